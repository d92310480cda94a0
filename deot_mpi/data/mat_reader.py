"""Reads a .mat file and writes its numeric arrays as .npz to standard output; started as a process of its own.

scipy's reader can crash the interpreter on a damaged file (found by fuzzing), and a crashed rank ends a whole job. Not
imported by the package, and imports nothing of it: a child of a rank must not start MPI.
"""

import io
import sys

import numpy as np
from scipy.io import loadmat

if __name__ == "__main__":
    found = {}
    for name, array in loadmat(sys.argv[1]).items():
        if not name.startswith("__") and isinstance(array, np.ndarray) and array.dtype.kind in "fiub":
            found[name] = array
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **found)
    sys.stdout.buffer.write(buffer.getvalue())
