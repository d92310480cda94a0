"""What an agent checks of a message before it uses it: its length, and that its numbers can be what they should be.

MPI says when a message is longer than the buffer it was meant for, but not when it is shorter, and nothing of what is
in it. A neighbour that is broken, or lies so that it shows, is named and refused.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from deot_mpi.errors import MessageError
from deot_mpi.kinds import Kind

_LEAST = {
    Kind.NORMS: (0.0, "a length below 0"),
    Kind.WEIGHTS: (np.finfo(float).tiny, "a weight that is not above 0"),
    Kind.SEEDS: (0.0, "a seed below 0"),
    Kind.CURVATURES: (0.0, "a square below 0"),
}
_MAY_DIVERGE = {Kind.OBJECTIVES}
"""Where a run diverges, this is where it shows, and it ends as such."""


def check_message(kind: Kind, array: NDArray[np.generic], status: MPI.Status, sender: Callable[[], str]) -> None:
    """Refuse a message of the wrong length or with numbers that its kind cannot have; ``sender`` says whose it is."""
    received = status.Get_count(MPI.BYTE)
    if received != array.nbytes:
        raise MessageError(
            f"{sender()} sent {received} bytes of {kind.name.lower()}, expected were {array.nbytes}; it runs another "
            "program or is broken, and nothing of it was used."
        )
    if kind in _MAY_DIVERGE or (array.dtype.kind != "f" and kind not in _LEAST):
        return
    numbers, wrong = np.asarray(array, dtype=np.float64), ""
    if not np.isfinite(numbers).all():
        wrong = "a number that is not finite"
    elif kind in _LEAST and (numbers < _LEAST[kind][0]).any():
        wrong = _LEAST[kind][1]
    if wrong:
        sent = f"{sender()} sent {kind.name.lower()} with {wrong}"
        raise MessageError(f"{sent}; it is broken, and nothing of it was used.")
