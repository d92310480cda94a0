"""The cross moment of a plan, M = sum pi_nm x_n y_m^T, from what each agent may know; and the moves of P it gives.

d/dP [32 |P|^2 + F(u,v; c_P)] = 64 P - 32 M (MATH: Gromov-Wasserstein), so P = M/2 where the duals stay fixed. Every
function gives an agent's own part of M; the parts are added by a masked sum.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from deot_mpi.data.samples import Floats
from deot_mpi.exchange.edges import Edges
from deot_mpi.kernel.base import Shown, stacked
from deot_mpi.kernel.gromov import SketchGromovKernel, Spaces
from deot_mpi.kinds import Kind
from deot_mpi.problem import Holding
from deot_mpi.roles import Role
from deot_mpi.sketch import unpacked

Plan = tuple[Floats, Floats] | None
"""A source's f and its neighbours' g, in nats; None for an agent that holds no rows of the kernel."""

SLOPE = 0.25
"""Width of the sigmoid that stands for the sign of a standardised projection: narrow has little bias, wide little
noise."""
_SPREAD = SLOPE * np.pi / np.sqrt(3.0)
"""Standard deviation of the logistic distribution of that width."""


class CrossMoment:
    """From samples: a source knows its x, and y where these were shown (raw kernel)."""

    def __init__(self, holding: Holding, rows: Floats, spaces: Spaces) -> None:
        self.holding, self.spaces = holding, spaces
        self.role = holding.view.role
        self.structure = spaces.structure(rows, self.role)
        self.weighted = holding.view.marginal * holding.view.shares[:, None] * self.structure

    @property
    def blank(self) -> Floats:
        return np.zeros((self.spaces.source, self.spaces.target))

    def part(self, plan: Plan) -> Floats:
        """This agent's part of M."""
        if plan is None or self.holding.rows is None:
            return self.blank
        theirs = {j: np.asarray(shown[Kind.SAMPLES]) for j, shown in self.holding.shown.items()}
        y = self.spaces.structure(np.concatenate([theirs[j] for j in self.holding.view.neighbours]), Role.TARGET)

        def moment(rows: slice, chunk: NDArray[np.floating]) -> Floats:
            return np.asarray(self.weighted[rows].T @ (chunk @ y.astype(chunk.dtype)))

        return self.holding.rows.plan_sum(*plan, moment)


class ExchangedMoment(CrossMoment):
    """From X_i^T Pi_ij, which a source sends to target j, and the y that this holds: nothing is estimated.

    A target learns, for each of its rows, the mass it gets from source i times the mean of the source's rows that send
    it: as eps goes to 0, these are raw rows of X_i.
    """

    def __init__(self, holding: Holding, rows: Floats, spaces: Spaces, edges: Edges) -> None:
        super().__init__(holding, rows, spaces)
        self._edges = edges

    def part(self, plan: Plan) -> Floats:
        if self.role is Role.TARGET:
            count = self.holding.view.shares.size
            heard = {i: np.empty((self.spaces.source, count)) for i in self.holding.view.neighbours}
            self._edges.swap_each(Kind.MOMENTS, {}, dict(heard))
            total = self.blank
            for sums in heard.values():
                total += sums @ self.structure
            return total
        if plan is None or self.holding.rows is None:
            return self.blank

        def carried(rows: slice, chunk: NDArray[np.floating]) -> Floats:
            return np.asarray(self.weighted[rows].T.astype(chunk.dtype) @ chunk, dtype=np.float64)

        sums = self.holding.rows.plan_sum(*plan, carried)
        outgoing = {j: np.ascontiguousarray(sums[:, part]) for j, part in self.holding.rows.columns.items()}
        self._edges.swap_each(Kind.MOMENTS, dict(outgoing), {})
        return self.blank


class SurrogateMoment(CrossMoment):
    """From bits and norms alone: the derivative of the estimated x^T P y with the sigmoid for the sign.

    With p = P^T x and bits b_l = [<omega_l, p> >= 0], the estimate of <p, y> is |p| |y| cos(phi^). Its derivative by p
    is |y| (cos(phi^) p/|p| - sin(phi^) |p| d phi^/d p), and d phi^/d b_l is known: (pi/Q)(1 - 2 a_l) for the Hamming
    estimate. Only d b_l/d p needs the sigmoid, here of the projection standardised by its size, since bits do not
    change with the length of p and neither should their derivative. Its width shrinks the mean by
    1/sqrt(1 + spread^2/sin^2); that is undone.
    """

    def __init__(self, holding: Holding, rows: Floats, spaces: Spaces, kernel: SketchGromovKernel) -> None:
        super().__init__(holding, rows, spaces)
        self._rows, self._kernel = rows, kernel

    @cached_property
    def _columns(self) -> Shown:
        return stacked([self.holding.shown[j] for j in self.holding.view.neighbours])

    @cached_property
    def _signs(self) -> NDArray[np.float32]:
        """d phi^/d b_l over (pi/Q), for each target row: 1 - 2 a_l, or a_l for the paper's <a, b>."""
        how = self._kernel.how
        bits = unpacked(np.asarray(self._columns[Kind.SKETCH], dtype=np.uint8), how.bits).astype(np.float32)
        return bits if how.estimator == "paper" else 1.0 - 2.0 * bits

    @cached_property
    def _directions(self) -> Floats:
        """omega_l/|omega_l| sqrt(D_Y), (D_Y, Q): projections of a unit vector on these have variance 1."""
        omega = self._kernel.projections
        return np.asarray(omega / np.linalg.norm(omega, axis=0) * np.sqrt(len(omega)))

    def part(self, plan: Plan) -> Floats:
        if plan is None or self.holding.rows is None:
            return self.blank
        how, y_norms = self._kernel.how, np.asarray(self._columns[Kind.NORMS])[:, 0]
        own = self._kernel.show(self._rows, Role.SOURCE)
        cosines = self._kernel.cosines(own, self._columns)
        spread_sine = np.sqrt(cosines.sine**2 + _SPREAD**2)
        if how.estimator == "paper":
            half = np.arange(how.bits + 1) * 2.0 / how.bits
            spread_sine = spread_sine * -2.0 * np.sign(1.0 - half)
        projected = self._kernel.projected(self.structure)
        sizes = np.linalg.norm(projected, axis=1)
        unit = np.divide(projected, sizes[:, None], out=np.zeros_like(projected), where=sizes[:, None] > 0)

        def moment(rows: slice, chunk: NDArray[np.floating]) -> Floats:
            counts, sent = cosines.counts(rows.start, rows.stop), chunk * y_norms.astype(chunk.dtype)
            radial = (sent * cosines.cosine[counts].astype(chunk.dtype)).sum(axis=1, dtype=np.float64)
            turned = (sent * spread_sine[counts].astype(chunk.dtype)).astype(np.float32) @ self._signs
            derivative = _logistic_density((unit[rows] @ self._directions) / SLOPE) / SLOPE
            sideways = (-np.pi / how.bits) * (turned * derivative) @ self._directions.T
            sideways -= np.vecdot(sideways, unit[rows])[:, None] * unit[rows]
            sideways[sizes[rows] == 0] = 0.0
            return np.asarray(self.weighted[rows].T @ (radial[:, None] * unit[rows] + sideways))

        return self.holding.rows.plan_sum(*plan, moment)


def _logistic_density(z: Floats) -> Floats:
    """The derivative of 1/(1 + exp(-z))."""
    decay = np.exp(-np.abs(z))
    return np.asarray(decay / (1.0 + decay) ** 2)
