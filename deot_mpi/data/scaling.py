"""What may be done to a row before anything else, by its own agent and without a message."""

from __future__ import annotations

import numpy as np

from deot_mpi.data.samples import Floats
from deot_mpi.errors import InputError

SCALINGS = ("none", "unit", "hellinger")


def scaled(rows: Floats, how: str, owner: str) -> Floats:
    """``unit``: every row at length 1, for features whose direction counts. ``hellinger``: the roots of a row's shares
    (also of length 1), for counts, intensities and histograms; squared distances are then twice the squared Hellinger
    distance."""
    if how == "none":
        return rows
    if how == "hellinger":
        bad = np.argwhere(rows < 0)
        if bad.size:
            raise InputError(
                f"{owner}: row {bad[0][0]}, column {bad[0][1]} is negative (counted from 0; {len(bad)} are), "
                "and scaling 'hellinger' takes roots; use 'unit' or 'none'."
            )
        rows = np.sqrt(rows)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    zero = np.flatnonzero(lengths == 0)
    if zero.size:
        raise InputError(
            f"{owner}: row {zero[0]} is all zeros ({zero.size} such rows in all), and scaling '{how}' divides by its "
            "length; drop such rows or use scaling 'none'."
        )
    return np.asarray(rows / lengths)
