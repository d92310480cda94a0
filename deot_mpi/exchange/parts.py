"""Messages of limited size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LARGEST_MESSAGE = 1 << 30
"""Bytes of a message at most: MPI counts in 32 bits, so that 2^31 bytes are more than some of its ways can take."""


def in_parts(array: NDArray[np.generic], most_bytes: int = LARGEST_MESSAGE) -> list[NDArray[np.generic]]:
    """A contiguous array as views of at most so many bytes; one, where it is small enough."""
    if array.nbytes <= most_bytes:
        return [array]
    flat, length = array.reshape(-1), max(1, most_bytes // array.itemsize)
    return [flat[start : start + length] for start in range(0, flat.size, length)]
