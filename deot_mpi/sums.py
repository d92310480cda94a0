"""Sums that do not depend on the order of the agents."""

from __future__ import annotations

import math

import numpy as np

from deot_mpi.data.samples import Floats


def ordered_sum(parts: Floats) -> float:
    """The correctly rounded sum, so in any order the same; not finite if any part is not."""
    return math.fsum(parts) if np.isfinite(parts).all() else float(np.sum(parts))


def ordered_sums(table: Floats) -> Floats:
    """``ordered_sum`` of every column."""
    if not np.isfinite(table).all():
        return np.array([ordered_sum(column) for column in table.T])
    return np.array([math.fsum(column) for column in table.T.tolist()])
