"""Exact block maximisation with kept partial sums: any number L of neighbours per round."""

from __future__ import annotations

import numpy as np

from deot_mpi.roles import Role
from deot_mpi.rowblock import RowBlock
from deot_mpi.samples import Floats
from deot_mpi.solvers.base import Channel, Solver, SolverState, load
from deot_mpi.solvers.schedule import CyclicSchedule, Turn
from deot_mpi.view import AgentView


class KeptSums(Solver):
    """Every agent keeps the last log-sums it computed for each neighbour and refreshes L of them per round.

    u_n = -eps log sum_j (e_ij/e_i) exp(kept_j[n]): the maximiser of F in the agent's own block, were all sums fresh.
    A round is two half rounds: the sources move on the targets' last blocks, then the targets on the sources' new ones
    (moving both at once would let the constant that u and v share oscillate for ever). The first sums belong to
    potentials of zero, which everybody knows without a message, or to the start that all exchange.
    """

    def __init__(
        self, view: AgentView, rows: RowBlock | None, channel: Channel, probe: Channel, schedule: CyclicSchedule
    ) -> None:
        super().__init__(view, rows, channel, probe)
        self._schedule = schedule
        self.window = schedule.cycle

    def setup(self, start: Floats | None = None) -> SolverState:
        state = super().setup(start)
        if start is not None:
            self.exchange(self.probe, start)
        for j, block in self.view.blocks.items():
            first = np.zeros_like(block.log_shares) if start is None else self.probe.incoming[j]
            state.kept[j] = self.view.log_sums(j, first)
        return state

    def resume(self, state: SolverState) -> None:
        for _ in range(state.round):
            self._schedule.next()

    def step(self, state: SolverState) -> None:
        turn = self._schedule.next()
        if self.view.role is Role.SOURCE:
            self._receive_and_move(state, turn)
            self._send(state, turn)
        else:
            self._send(state, turn)
            self._receive_and_move(state, turn)

    def _send(self, state: SolverState, turn: Turn) -> None:
        load(self.channel, state.potential)
        self.channel.swap(turn.send_to, ())

    def _receive_and_move(self, state: SolverState, turn: Turn) -> None:
        self.channel.swap((), turn.receive_from)
        if not self.view.neighbours:
            return
        for j in turn.receive_from:
            state.kept[j] = self.view.log_sums(j, self.channel.incoming[j])
        violation = self.view.log_violation(state.potential, state.kept)
        state.seen_error = self.view.marginal_error(violation)
        self.move(state, state.potential - self.view.eps * violation)
