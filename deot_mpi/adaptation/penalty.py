"""Class-regularised transport: mass for one target row should come from few classes.

The decentralised counterpart of POT's ``sinkhorn_lpl1_mm`` (Courty et al.): the penalty weight sum_m sum_c
(mass of class c in column m)^(1/2) is concave, and is replaced, time after time, by its tangent. That is a transport
problem with a cost W_cm added for rows of class c. Labels stay with the sources; the class sums of a column meet at the
target that holds it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deot_mpi.adaptation.classes import Labels
from deot_mpi.kernel import LogPairs
from deot_mpi.kernel.base import ShiftedPairs
from deot_mpi.samples import Floats

_POWER, _FLOOR = 0.5, 1e-3
"""POT's: p, and what keeps the slope finite where a class sends nothing."""


def slopes(class_mass: Floats) -> Floats:
    """d/dm (m + floor)^p of every class's mass in every column."""
    return np.asarray(_POWER * (class_mass + _FLOOR) ** (_POWER - 1.0))


class PenalisedPairs:
    """log K_nm - penalty_cm, c the class of row n (the penalty in units of eps)."""

    def __init__(self, pairs: LogPairs, places: Labels, penalty: Floats) -> None:
        self.shape, self.offset, self._pairs = pairs.shape, np.zeros(pairs.shape[0]), pairs
        self._places, self._penalty = places, penalty

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        log_kernel = self._pairs.rows(start, stop)
        log_kernel -= self._penalty[self._places[start:stop]]
        return log_kernel

    def shifted(
        self, rows: Floats | float, columns: Floats | float, temperature: float = 1.0, *, single: bool = False
    ) -> LogPairs:
        return ShiftedPairs(self, rows, columns, temperature)
