"""Exact block maximisation with kept partial sums: any number L of neighbours per round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from deot_mpi.data.samples import Floats
from deot_mpi.kernel.rowblock import RowBlock
from deot_mpi.roles import Role
from deot_mpi.solvers.base import Channel, Closing, Mailbox, Measure, Solver, SolverState, load
from deot_mpi.solvers.schedule import CyclicSchedule, Turn
from deot_mpi.view import AgentView


class KeptSums(Solver):
    """Every agent keeps the last log-sums it computed for each neighbour and refreshes L of them per round.

    u_n = -eps log sum_j (e_ij/e_i) exp(kept_j[n]): the maximiser of F in the agent's own block, were all sums fresh.
    A round is two half rounds: the sources move on the targets' last blocks, then the targets on the sources' new ones
    (moving both at once would let the constant that u and v share oscillate for ever). The first sums belong to
    potentials of zero, which everybody knows without a message, or to the start that all exchange.

    With a ``mailbox``, an agent waits ``patience`` seconds at most for those whose turn it is, and otherwise goes on
    with the last sums it has. It then moves half as far: with old sums, both roles may be undoing the same error. At
    every measurement all wait for each other, so sums are never older than that, and what is measured is exact.
    """

    def __init__(
        self,
        view: AgentView,
        rows: RowBlock | None,
        channel: Channel,
        probe: Channel,
        schedule: CyclicSchedule,
        mailbox: Mailbox | None = None,
        patience: float = 0.0,
    ) -> None:
        super().__init__(view, rows, channel, probe)
        self._schedule, self._mailbox, self._patience = schedule, mailbox, patience
        self.window = schedule.cycle
        self._behind = dict.fromkeys(view.neighbours, 0)
        self._staleness = 0

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
        if self._mailbox is not None:
            self._mailbox.send(turn.send_to, state.potential)
            return
        load(self.channel, state.potential)
        self.channel.swap(turn.send_to, ())

    def _receive_and_move(self, state: SolverState, turn: Turn) -> None:
        heard = self._hear(turn.receive_from)
        if not self.view.neighbours:
            return
        for j, potential in heard.items():
            state.kept[j] = self.view.log_sums(j, potential)
        violation = self.view.log_violation(state.potential, state.kept)
        state.seen_error = self.view.marginal_error(violation)
        share = 0.5 if any(self._behind.values()) else 1.0
        self.move(state, state.potential - share * self.view.eps * violation)

    def _hear(self, neighbours: Sequence[int]) -> dict[int, Floats]:
        """The potentials of those whose turn it is, or of those among them who are not late."""
        if self._mailbox is None:
            self.channel.swap((), neighbours)
            return {j: self.channel.incoming[j] for j in neighbours}
        heard = self._mailbox.collect(neighbours, self._patience)
        for j in neighbours:
            self._behind[j] = self._mailbox.behind(j) * self._schedule.own_cycle  # turns come once in so many rounds
            self._staleness = max(self._staleness, self._behind[j])
        return heard

    def settle(self, state: SolverState) -> None:
        if self._mailbox is None:
            return
        for j, potential in self._mailbox.settle().items():
            state.kept[j] = self.view.log_sums(j, potential)
        self._behind = dict.fromkeys(self._behind, 0)

    def measure(self, state: SolverState) -> Measure:
        self.settle(state)
        found = super().measure(state)
        behind, self._staleness = self._staleness, 0
        return replace(found, staleness=behind)

    def finish(self, state: SolverState) -> Closing:
        self.settle(state)
        return super().finish(state)
