"""Sums that do not depend on the order of the agents."""

from __future__ import annotations

import math

import numpy as np

from deot_mpi.data.samples import Floats


def ordered_sum(parts: Floats) -> float:
    """The correctly rounded sum, so in any order the same; not finite if any part is not."""
    return _sum(parts.tolist())


def ordered_sums(table: Floats) -> Floats:
    """``ordered_sum`` of every column."""
    return np.array([_sum(column) for column in table.T.tolist()])


def _sum(parts: list[float]) -> float:
    try:
        return math.fsum(parts)
    except (ValueError, OverflowError):  # infinities of both signs, or a sum beyond all numbers on the way
        return math.nan
