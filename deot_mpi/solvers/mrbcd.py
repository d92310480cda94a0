"""Mini-batch randomised block-coordinate descent: the paper's Algorithm 1, in the log domain."""

from __future__ import annotations

import numpy as np

from deot_mpi.data.samples import Floats
from deot_mpi.kernel.rowblock import RowBlock
from deot_mpi.solvers.base import Channel, Solver, SolverState, load
from deot_mpi.solvers.schedule import SampledSchedule
from deot_mpi.view import AgentView

_FREE_FALL = 2.0
"""A step down of up to 2 eps is taken as it comes; below that it ends where the block's maximum is (see ``ascent``)."""


class MRBCD(Solver):
    """Sampled gradient steps of size eta_t = eta/sqrt(t+1), in units of eps.

    The gradient is 1 - sum_j (e_ij/e_i) sum_m beta_m exp((u_n + v_m - c_nm)/eps): the paper's, divided by a_n,
    so that eta = O(1) suits every eps, N and L. Both roles move at once, from the potentials of round t.
    """

    def __init__(
        self,
        view: AgentView,
        rows: RowBlock | None,
        channel: Channel,
        probe: Channel,
        schedule: SampledSchedule,
        eta: float,
    ) -> None:
        super().__init__(view, rows, channel, probe)
        self._schedule, self._eta = schedule, eta

    def resume(self, state: SolverState) -> None:
        for _ in range(state.round):
            self._schedule.next()

    def step(self, state: SolverState) -> None:
        turn = self._schedule.next()
        load(self.channel, state.potential)
        self.channel.swap(turn.send_to, turn.receive_from)  # Algorithm 1, lines 8 and 10
        if not turn.factors:
            return
        sums = {j: self.view.log_sums(j, self.channel.incoming[j]) for j in turn.receive_from}
        log_violation = self.view.log_violation(state.potential, sums, turn.factors)
        rate = self._eta / np.sqrt(state.round + 1)
        self.move(state, state.potential + self.view.eps * ascent(log_violation, rate), rate)  # lines 9 and 11


def ascent(log_violation: Floats, rate: float) -> Floats:
    """The step in units of eps: rate (1 - e^s), but never past the block's maximum at -s by more than a step of 2.

    Where e^s is large, the gradient step overshoots exponentially: -s is where the maximum of the (sampled) block
    lies, so the step is cut at -max(s, 2). Steps with e^s < 3 are never touched, for rates up to 1.
    """
    s = log_violation
    gradient = -np.expm1(np.minimum(s, 700.0))
    return np.asarray(np.maximum(rate * gradient, -np.maximum(s, _FREE_FALL)))
