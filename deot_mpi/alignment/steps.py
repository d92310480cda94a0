"""The moves of P, given the cross moment: P = M/2 accelerated, gradient steps, or the paper's sampled steps.

All in terms of the residual r = M/2 - P = -(64 P - 32 M)/64: a gradient step of size eta/64 is P + eta r.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from deot_mpi.samples import Floats
from deot_mpi.solvers.anderson import Anderson


class Step(Protocol):
    """From where P is to where it goes next. The same numbers give the same answer on every agent."""

    def __call__(self, alignment: Floats, residual: Floats, objective: float, slack: float) -> Floats:
        """``objective`` is 32 |P|^2 + F at ``alignment``, known up to ``slack``."""


@dataclass
class GradientStep:
    """P + eta_t r with eta_t = eta/sqrt(t+1) (Algorithm 4, line 4), eta in units of 1/64."""

    eta: float
    taken: int = 0

    def __call__(self, alignment: Floats, residual: Floats, objective: float, slack: float) -> Floats:
        rate = self.eta / np.sqrt(self.taken + 1)
        self.taken += 1
        return np.asarray(alignment + rate * residual)


@dataclass
class ClosedStep:
    """P + r = M/2, mixed with earlier steps (Anderson) as long as the objective falls.

    The plain step never raises the objective. Where a mixed one did, the next is a plain one from the best P so far.
    """

    size: float
    mixing: bool = True
    _mixer: Anderson = field(default_factory=Anderson)
    _best: tuple[float, Floats, Floats] | None = None

    def __call__(self, alignment: Floats, residual: Floats, objective: float, slack: float) -> Floats:
        if not self.mixing or self.size == 0.0:
            return np.asarray(alignment + residual)
        if self._best is not None and objective > self._best[0] + slack:
            _, alignment, residual = self._best
            self._best = None  # whatever the plain step gives is taken
            self._mixer.forget()
        else:
            self._best = (objective, alignment, residual)
        point, step = alignment.ravel() / self.size, residual.ravel() / self.size
        self._mixer.remember(point, step)
        self._mixer.solve(self._mixer.products(np.ones(point.size)))
        return np.asarray(alignment + self.size * self._mixer.step(step).reshape(alignment.shape))
