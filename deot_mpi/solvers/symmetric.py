"""Entropic OT of a domain with itself: one potential for rows and columns, held by the agents of that domain."""

from __future__ import annotations

import numpy as np

from deot_mpi.data.samples import Floats
from deot_mpi.kernel.rowblock import RowBlock
from deot_mpi.solvers.base import Channel, Closing, Measure, Solver, SolverState, load
from deot_mpi.view import AgentView

_SINGLE_ROUNDS = 60
"""Rounds after which a float32 kernel's rounding is held to be what keeps the error from falling: without it the error
halves in every round, where the kernel is positive definite, and 1e-6 takes about twenty."""


class Symmetric(Solver):
    """W(mu,mu) = sup_u F(u,u) over the pairs of one domain's agents, weighed by e_i e_k.

    A round: an agent sends u to the others, and with theirs computes, for its own rows against all of the domain,
    T(u)_n = -eps log sum_k e_k sum_m alpha_m exp((u_m - c_nm)/eps). The optimum is the fixed point u = T(u), and
    u <- (u + T(u))/2 leads there: near it T is -P for the plan's transition matrix P, so an error is multiplied by
    (1 - lambda)/2 for the eigenvalues lambda of P, at most 1/2 where K is positive definite, whatever eps is. A row's
    cost to itself is 0, so u lies within eps log(1/a_n) of 0: nothing is far away, and eps needs no scaling.
    """

    def __init__(self, view: AgentView, rows: RowBlock | None, channel: Channel, *, single_precision: bool) -> None:
        super().__init__(view, rows, channel, channel)
        self._single = single_precision
        self._others = tuple(k for k in view.neighbours if k != view.index)

    def setup(self, start: Floats | None = None) -> SolverState:
        state = super().setup(start)
        state.single = self._single
        return state

    def step(self, state: SolverState) -> None:
        if state.single and state.round == _SINGLE_ROUNDS:
            self.sharpen(state)
        if self.rows is None:
            return
        eps = self.view.eps
        if state.violation is not None:
            self.move(state, state.potential - 0.5 * eps * state.violation)
        load(self.channel, state.potential)
        self.channel.swap(self._others, self._others)
        state.violation = state.potential / eps - self.rows.row_potential(self._domain(state))
        state.seen_error = 2.0 * self.view.marginal_error(state.violation)

    def _domain(self, state: SolverState) -> Floats:
        """u/eps of all rows of the domain, in the order of their agents, as last exchanged."""
        blocks = {**self.channel.incoming, self.view.index: state.potential}
        return np.concatenate([blocks[k] for k in self.view.neighbours]) / self.view.eps

    def measure(self, state: SolverState) -> Measure:
        """No message: the agent has just seen the error of its rows, and its columns have the same."""
        if state.violation is None:
            return Measure(0.0, 0.0, 0.0)
        view = self.view
        mass = view.marginal * float(view.shares @ np.exp(state.violation))
        objective = 2.0 * view.linear_part(state.potential) - view.eps * mass
        return Measure(objective, state.seen_error, max(state.moves))

    def sharpen(self, state: SolverState) -> bool:
        if not state.single:
            return False
        state.single = False
        if self.rows is not None:
            self.rows.use("float64")
        return True

    def finish(self, state: SolverState) -> Closing:
        """The agent's part of F(u,u) and of both marginals' error, in float64 from the kernel itself. No message."""
        if self.rows is None:
            return Closing()
        view = self.view
        found = self.rows.evaluate(state.potential / view.eps, self._domain(state), settle=False)
        return Closing(
            2.0 * view.linear_part(state.potential), 2.0 * view.marginal_error(found.log_rows), found.mass,
            -view.eps * found.log_kernel, found.entropy,
        )  # fmt: skip
