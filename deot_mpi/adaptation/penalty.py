"""Class-regularised transport: mass for one target row should come from few classes.

Two penalties on S_cm, the mass that class c sends to target row m; labels stay with the sources, the class sums of a
column meet at the target that holds it. Both are met by tangents: S's penalty is replaced, time after time, by its
slope at the last S, a cost added for all rows of class c in column m. Each time that is a transport problem.

``entropy``: eps KL(pi|R) is the sum of a part between classes and a part within them, KL(S | shares b) and
sum_cm S_cm KL(pi(.|c,m) | R(.|c)). Taking w of the part between off leaves eps (1 - w) between classes and eps within:
a plan that is sharp about classes and smooth about rows. What remains is convex for w <= 1, so the tangents lead to the
one optimum (each comes closer by a factor of about w).

``lpl1``: POT's ``sinkhorn_lpl1_mm`` (Courty et al.): w sum_cm (S_cm + floor)^(1/2), concave. It depends on the number
of target rows through S_cm, and where the tangents end depends on where they start.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deot_mpi.adaptation.classes import Labels
from deot_mpi.data.samples import Floats
from deot_mpi.kernel import LogPairs
from deot_mpi.kernel.base import ShiftedPairs

_POWER, _FLOOR = 0.5, 1e-3
"""POT's: p, and what keeps the slope finite where a class sends nothing."""
_LEAST_LIFT = 1e-12
"""A class that sends a row this much less than its share is shut out of it, and stays at this."""


def entropy_slopes(class_mass: Floats, class_shares: Floats, column_mass: Floats, weight: float) -> Floats:
    """-w log(S_cm / (share_c b_m)), in units of eps: the slope of -w KL(S | shares b), up to a constant."""
    usual = np.outer(class_shares, column_mass)
    lift = np.divide(class_mass, usual, out=np.ones_like(class_mass), where=usual > 0)
    return np.asarray(-weight * np.log(np.maximum(lift, _LEAST_LIFT)))


def lpl1_slopes(class_mass: Floats, weight: float) -> Floats:
    """w d/dS (S + floor)^p of every class's mass in every column, in the units of w."""
    return np.asarray(weight * _POWER * (class_mass + _FLOOR) ** (_POWER - 1.0))


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
