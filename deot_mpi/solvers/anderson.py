"""Anderson's mixing for a fixed-point iteration whose vector is scattered over agents."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np

from deot_mpi.data.samples import Floats
from deot_mpi.kernel import loops

DEPTH = 10
"""Differences kept. 5 took a fifth more rounds in trials, 20 and 40 no fewer than 10."""
PRODUCTS = DEPTH * (DEPTH + 1) // 2 + DEPTH
"""Numbers in ``Anderson.products``."""
_UPPER_TRIANGLE = np.triu_indices(DEPTH)
_RIDGE = 1e-10
"""Relative to the Gram matrix's trace: differences become parallel near the end, and float32 has noise."""
_LONGEST_CORRECTION = 10.0
"""Nats: an extrapolation beyond this says more about the history than about the fixed point."""
_TRUST, _LONGEST_STRETCH, _FREE, _LONGEST_FLIGHT = 0.95, 1.0, 0.99, 8.0
"""What share of what a step leaves is undone at once. With all of it, two columns that share their rows would push each
other to and fro for ever; 0.8 took a quarter more rounds. Nats: further away, a step is not the straight line that is
stretched; but a column that gets back all it gives has all that its rows have, and meets no others for a while."""
_LESS_TRUST = 0.7
"""What is left of the trust after a setback: after some, steps are nearly plain ones, which always converge."""


class Anderson:
    """g' = g + r - sum_k c_k (dg_k + dr_k), with c minimising || r - sum_k c_k dr_k ||, over the last differences.

    r is the residual of the plain step, times what it is stretched by: a plain step leaves a known part of some
    numbers' error (``stretch``). An agent has its own part of all these vectors; only inner products need adding up
    over the agents, and they are all that leaves it.
    """

    def __init__(self) -> None:
        self._points: deque[Floats] = deque(maxlen=DEPTH + 1)
        self._residuals: deque[Floats] = deque(maxlen=DEPTH + 1)
        self._coefficients: Floats | None = None
        self._stretch: Floats | None = None
        self._longest = np.array([_LONGEST_STRETCH])
        self._trust = _TRUST

    def packed(self) -> dict[str, Floats]:
        """Everything it remembers, as arrays."""
        known = {"points": np.array(self._points), "residuals": np.array(self._residuals)} if self._points else {}
        apart = {"coefficients": self._coefficients, "stretch": self._stretch}
        known |= {"trust": np.array([self._trust]), "longest": self._longest}
        return known | {name: array for name, array in apart.items() if array is not None}

    @classmethod
    def unpacked(cls, arrays: Mapping[str, Floats]) -> Anderson:
        mixer = cls()
        mixer._points.extend(arrays.get("points", ()))
        mixer._residuals.extend(arrays.get("residuals", ()))
        mixer._coefficients, mixer._stretch = arrays.get("coefficients"), arrays.get("stretch")
        mixer._trust, mixer._longest = float(arrays["trust"][0]), arrays["longest"]
        return mixer

    def forget(self) -> None:
        self._points.clear()
        self._residuals.clear()
        self._coefficients = self._stretch = None
        self._trust = _TRUST

    def step_back(self) -> None:
        """Forget all that led astray, and stretch less from now on."""
        trust = self._trust
        self.forget()
        self._trust = _LESS_TRUST * trust

    def stretch(self, left: Floats) -> None:
        """A plain step leaves this part of a number's error, as long as the others have none: from now on residuals,
        those of before too, are 1 / (1 - left) times as long, or nearly: by a nat at most, eight where all is left."""
        self._stretch = 1.0 / (1.0 - self._trust * np.clip(left, 0.0, 1.0))
        self._longest = np.where(left > _FREE, _LONGEST_FLIGHT, _LONGEST_STRETCH)
        self._coefficients = None

    def remember(self, point: Floats, residual: Floats) -> None:
        self._points.append(point)
        self._residuals.append(residual)
        self._coefficients = None

    def products(self, weights: Floats) -> Floats:
        """This agent's part of <dr_k, dr_l> (upper triangle) and <dr_k, r>, in the metric of the weights."""
        flat = np.zeros(PRODUCTS)
        count = len(self._residuals) - 1
        if count < 1:
            return flat
        gram = np.zeros((DEPTH, DEPTH))
        gram[:count, :count], flat[-DEPTH : count - DEPTH or None] = loops.mixing_products(
            list(self._residuals), self._stretch, self._longest, weights
        )
        flat[:-DEPTH] = gram[_UPPER_TRIANGLE]
        return flat

    def solve(self, products: Floats) -> None:
        """Find the coefficients from the products added over all agents; used by the next ``step``."""
        count = len(self._points) - 1
        if count < 1 or not np.isfinite(products).all():
            return
        gram = np.zeros((DEPTH, DEPTH))
        gram[_UPPER_TRIANGLE] = products[:-DEPTH]
        gram = (gram + np.triu(gram, 1).T)[:count, :count]
        ridge = _RIDGE * float(np.trace(gram))
        if not ridge > 0:
            return
        self._coefficients = np.asarray(np.linalg.solve(gram + ridge * np.eye(count), products[-DEPTH:][:count]))

    def step(self, residual: Floats) -> Floats:
        """The plain step r, stretched, and corrected where coefficients are at hand."""
        if self._coefficients is None:
            return loops.stretched(residual, self._stretch, self._longest)
        return loops.mixing_step(
            list(self._points), list(self._residuals), self._stretch, self._longest, self._coefficients,
            _LONGEST_CORRECTION, residual,
        )  # fmt: skip
