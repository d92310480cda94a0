"""The moves of P, given the cross moment: P = M/2 accelerated, gradient steps, or the paper's sampled steps.

All in terms of the residual r = M/2 - P = -(64 P - 32 M)/64: a gradient step of size eta/64 is P + eta r.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from deot_mpi.data.samples import Floats

_MEMORY = 8
"""Pairs kept."""
_FLATTEST = 0.02
"""The smallest curvature a step reckons with: up to 50 plain steps in one."""
_LONGEST = 0.3
"""The longest move, as a share of the largest P."""


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
class _Visited:
    """A P, what is known there."""

    objective: float
    alignment: Floats
    residual: Floats


@dataclass
class ClosedStep:
    """P + r = M/2, which never raises the objective, made longer by what earlier steps have shown (L-BFGS).

    In units of 64 the Hessian of the objective is I less something positive: along some directions plain steps crawl,
    along others they leave a saddle, slowly. Pairs (s, y) of moves and changes of the gradient tell the curvature
    s^T y/s^T s; where that is below ``_FLATTEST``, or negative, a step is as long as at that curvature. A move that
    raised the objective is tried again at a quarter, then the plain step is taken.
    """

    size: float
    """The largest P there can be."""
    plain: bool = False
    """Take plain steps only."""
    _pairs: deque[tuple[Floats, Floats]] = field(default_factory=lambda: deque(maxlen=_MEMORY))
    _best: _Visited | None = None
    _move: Floats | None = None
    """The last move from the best P, if it was not a plain one."""

    def __call__(self, alignment: Floats, residual: Floats, objective: float, slack: float) -> Floats:
        if self.plain:
            return np.asarray(alignment + residual)
        best = self._best
        if best is not None and self._move is not None and objective > best.objective + slack:
            return self._shorter(best)
        if best is not None:
            self._learn(alignment - best.alignment, best.residual - residual)
        self._best = _Visited(objective, alignment, residual)
        self._move = self._direction(residual)
        return np.asarray(alignment + self._move)

    def _shorter(self, best: _Visited) -> Floats:
        """Back to the best P: a quarter of the move that failed or, where that is no longer than it, the plain step."""
        assert self._move is not None
        self._move = 0.25 * self._move
        if np.linalg.norm(self._move) <= 2.0 * np.linalg.norm(best.residual):
            self._pairs.clear()
            self._move = None
            return np.asarray(best.alignment + best.residual)
        return np.asarray(best.alignment + self._move)

    def _learn(self, moved: Floats, change: Floats) -> None:
        square = float((moved**2).sum())
        if square > 0:
            lacking = max(0.0, _FLATTEST - float((moved * change).sum()) / square)
            change = change + lacking * moved
            if float((moved * change).sum()) > 0:  # not where it underflows
                self._pairs.append((moved, change))

    def _direction(self, residual: Floats) -> Floats:
        """The two loops of L-BFGS, from the unit matrix."""
        direction, applied = residual.copy(), []
        for moved, change in reversed(self._pairs):
            weight = float((moved * direction).sum()) / float((moved * change).sum())
            applied.append(weight)
            direction -= weight * change
        for (moved, change), weight in zip(self._pairs, reversed(applied), strict=True):
            again = float((change * direction).sum()) / float((moved * change).sum())
            direction += (weight - again) * moved
        length = float(np.linalg.norm(direction))
        if not float((direction * residual).sum()) > 0:
            return residual.copy()
        return np.asarray(direction * min(1.0, _LONGEST * self.size / length)) if length > 0 else direction
