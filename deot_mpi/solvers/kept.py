"""Exact block maximisation: with kept partial sums for any L, and with full neighbourhoods (block Sinkhorn)."""

from __future__ import annotations

import numpy as np

from deot_mpi.roles import Role
from deot_mpi.solvers.base import Channel, Measure, Solver, SolverState
from deot_mpi.solvers.schedule import CyclicSchedule, Turn
from deot_mpi.view import AgentView


class KeptSums(Solver):
    """Every agent keeps the last log-sums it computed for each neighbour and refreshes L of them per round.

    u_n = -eps log sum_j (e_ij/e_i) exp(kept_j[n]): the maximiser of F in the agent's own block, were all sums fresh.
    A round is two half rounds: the sources move on the targets' last blocks, then the targets on the sources' new ones
    (moving both at once would let the constant that u and v share oscillate for ever). The first sums belong to
    potentials of zero, which everybody knows without a message.
    """

    def __init__(self, view: AgentView, channel: Channel, probe: Channel, schedule: CyclicSchedule) -> None:
        super().__init__(view, channel, probe)
        self._schedule = schedule
        self.window = schedule.cycle

    def setup(self) -> SolverState:
        state = super().setup()
        for j, block in self.view.blocks.items():
            state.kept[j] = block.log_sums(np.zeros_like(block.log_shares))
        return state

    def step(self, state: SolverState) -> None:
        turn = self._schedule.next()
        if self.view.role is Role.SOURCE:
            self._receive_and_move(state, turn)
            self._send(state, turn)
        else:
            self._send(state, turn)
            self._receive_and_move(state, turn)

    def _send(self, state: SolverState, turn: Turn) -> None:
        self.channel.outgoing[:] = state.potential
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


class Sinkhorn(KeptSums):
    """The block Sinkhorn step: kept sums with full neighbourhoods, where measuring needs no message.

    After the targets' half round the columns hold exactly, so the plan's mass is 1 and F = <a,u> + <b,v> - eps. The
    error that a target saw before it moved is that of the columns at (u(t), v(t-1)); the L1 error of Sinkhorn's
    iterates never grows, so it bounds the rows' error at (u(t), v(t)).
    """

    def measure(self, state: SolverState) -> Measure:
        view = self.view
        seen = state.seen_error if view.role is Role.TARGET else 0.0
        mass = 0.5 * view.marginal  # the two roles' halves of the plan's mass
        return Measure(view.linear_part(state.potential) - view.eps * mass, seen, max(state.moves))
