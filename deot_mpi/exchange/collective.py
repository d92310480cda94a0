"""The few collectives: small tables everybody needs, the masked sum behind the mean, agreed errors, the reference.

Sums of floats depend on their order, and MPI chooses the order. So nothing here lets MPI add two non-zero floats:
tables are reduced with one owner per row, and the mean is added in integers. Results are the same to the bit on
every run and for every placement of agents on ranks.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from deot_mpi.agent import Agents
from deot_mpi.data.samples import Floats
from deot_mpi.errors import InputError
from deot_mpi.exchange.edges import Edges
from deot_mpi.exchange.join import agree, broadcast_text
from deot_mpi.exchange.ledger import Ledger
from deot_mpi.exchange.waiting import abandon, wait_all
from deot_mpi.kinds import Kind
from deot_mpi.roles import Role

Result = TypeVar("Result")
Number = TypeVar("Number", np.float64, np.int64)

_HEADROOM_BITS = 62
"""Bits of a masked sum: 2**62 leaves the sign and one spare bit of a 64-bit word."""


@dataclass(frozen=True)
class Tables(Generic[Number]):
    """One row per agent, in agent order, the same on every rank."""

    source: NDArray[Number]
    target: NDArray[Number]

    def of(self, role: Role) -> NDArray[Number]:
        return self.source if role is Role.SOURCE else self.target


class Collectives:
    """Collectives over all agents, each with an end and an entry in the ledger."""

    def __init__(self, agents: Agents, ledger: Ledger, timeout: float) -> None:
        self.agents, self.ledger, self.timeout = agents, ledger, timeout

    def _finish(self, requests: Sequence[MPI.Request], kind: Kind, timeout: float | None = None) -> None:
        wait_all(requests, timeout or self.timeout, lambda: f"some agent, during a {kind.name.lower()} collective")

    def share(self, kind: Kind, row: NDArray[Number], timeout: float | None = None) -> Tables[Number]:
        """Reduce one row per agent to agent 0 of each role, then broadcast both tables (Algorithm 1, lines 15-16)."""
        self._count_share(kind, row.nbytes)
        return self._share(kind, row, timeout)

    def tally(self, kind: Kind, row: Floats) -> Tables[np.float64]:
        """Every agent's row on every rank, in one reduction: for the rounds, where ``share`` would take too long."""
        agents = self.agents
        table = np.zeros((agents.sources + agents.targets, row.size))
        table[agents.index + (0 if agents.role is Role.SOURCE else agents.sources)] = row
        self.ledger.collective(kind, table.nbytes)
        self._finish([agents.comm.Iallreduce(MPI.IN_PLACE, table, MPI.SUM)], kind)
        return Tables(table[: agents.sources], table[agents.sources :])

    def maximum(self, kind: Kind, row: NDArray[np.int64]) -> NDArray[np.int64]:
        """The largest number in each place over all agents; who has it is not learnt."""
        largest = np.empty_like(row)
        self.ledger.collective(kind, row.nbytes)
        self._finish([self.agents.comm.Iallreduce(row, largest, MPI.MAX)], kind)
        return largest

    def share_ledger(self) -> Tables[np.int64]:
        """Every agent's ledger on every rank; the sharing itself is counted before the counts are read."""
        neighbours = max(self.agents.sources, self.agents.targets)  # as wide for both roles: rows fit one table
        self._count_share(Kind.CONTROL, self.ledger.row(neighbours).nbytes)
        return self._share(Kind.CONTROL, self.ledger.row(neighbours))

    def _count_share(self, kind: Kind, row_bytes: int) -> None:
        table_bytes = row_bytes * self.agents.count(self.agents.role)
        self.ledger.collective(kind, table_bytes)
        if self.agents.domain.rank == 0:
            self.ledger.collective(kind, table_bytes)

    def _share(self, kind: Kind, row: NDArray[Number], timeout: float | None = None) -> Tables[Number]:
        agents = self.agents
        tables = {role: np.zeros((agents.count(role), row.size), dtype=row.dtype) for role in Role}
        own = tables[agents.role]
        own[agents.index] = row
        root = agents.domain.rank == 0
        send = MPI.IN_PLACE if root else own.copy()  # the broadcast into ``own`` may come before the reduction is over
        started: list[MPI.Request] = []
        try:
            started.append(agents.domain.Ireduce(send, own if root else None, MPI.SUM, 0))
            for role in Role:
                if root and role is agents.role:
                    self._finish(started[:1], kind, timeout)
                started.append(agents.comm.Ibcast(tables[role], agents.rank_of(role, 0)))
            self._finish(started, kind, timeout)
        except BaseException:
            abandon(started)  # those that nobody was waiting for yet, too
            raise
        return Tables(tables[Role.SOURCE], tables[Role.TARGET])

    def masked_sum(self, edges: Edges, row: Floats, kind: Kind = Kind.MEAN) -> Floats:
        """The sum of every agent's row, without any agent's own row leaving it.

        Rows become integers on a common scale; source i adds a random word to each, target j takes the same word
        off, for every edge (i, j). All arithmetic is modulo 2**64, so the masks cancel exactly and the order of
        the additions does not matter. What an agent learns is the sum. Its row stays hidden as long as one of its
        neighbours keeps the mask to itself; an agent without neighbours contributes nothing.
        """
        exponent = self._common_exponents(row if edges.neighbours else np.zeros_like(row), kind)
        scaled = np.zeros(row.size, dtype=np.int64)
        if edges.neighbours:
            scaled = np.round(np.ldexp(row, -exponent)).astype(np.int64)
        words = scaled.view(np.uint64).copy()
        for mask in self._edge_masks(edges, row.size, kind):
            if self.agents.role is Role.SOURCE:
                words += mask
            else:
                words -= mask
        total = np.empty_like(words)
        self.ledger.collective(kind, words.nbytes)
        self._finish([self.agents.comm.Iallreduce(words, total, MPI.SUM)], kind)
        return np.ldexp(total.view(np.int64).astype(np.float64), exponent)

    def _common_exponents(self, row: Floats, kind: Kind) -> NDArray[np.int64]:
        """For each place, the exponent of the unit in which neither a number nor the sum overflows.

        Discloses the power of two above the largest number in each place.
        """
        own = np.where(row == 0, -1074, np.frexp(row)[1]).astype(np.int64)
        top = np.empty_like(own)
        self.ledger.collective(kind, own.nbytes)
        self._finish([self.agents.comm.Iallreduce(own, top, MPI.MAX)], kind)
        return np.asarray(top + int(self.agents.comm.size).bit_length() - _HEADROOM_BITS)

    def _edge_masks(self, edges: Edges, length: int, kind: Kind) -> list[NDArray[np.uint64]]:
        """One secret mask per edge, drawn by the source from the operating system, not from the shared seed."""
        if self.agents.role is Role.SOURCE:
            masks = {j: np.frombuffer(secrets.token_bytes(8 * length), dtype=np.uint64) for j in edges.neighbours}
            edges.swap_each(kind, dict(masks), {})
        else:
            masks = {i: np.empty(length, dtype=np.uint64) for i in edges.neighbours}
            edges.swap_each(kind, {}, dict(masks))
        return list(masks.values())

    def all_or_none(self, attempt: Callable[[], Result]) -> Result:
        """Run something that may reject its input; if it does on any agent, all raise that agent's sentence."""
        error = None
        try:
            outcome = attempt()
        except InputError as caught:
            error = str(caught)
        agree(self.agents.comm, error, self.timeout, self.ledger)
        return outcome

    def tell(self, text: str | None) -> str:
        """Rank 0's text on every rank."""
        return broadcast_text(self.agents.comm, text, 0, self.timeout, self.ledger)

    def pool(
        self,
        rows: Floats,
        counts: Mapping[Role, NDArray[np.int64]],
        timeout: float,
        widths: Mapping[Role, int] | None = None,
    ) -> dict[Role, Floats] | None:
        """Gather rows on rank 0, for a centralised reference; None elsewhere. ``widths``, where roles differ in it."""
        agents, width = self.agents, dict.fromkeys(Role, int(rows.shape[1])) if widths is None else widths
        lengths = np.zeros(agents.comm.size, dtype=np.int64)
        for role in Role:
            lengths[agents.ranks[role]] = counts[role] * width[role]
        everything = np.empty(int(lengths.sum())) if agents.comm.rank == 0 else None
        self.ledger.collective(Kind.REFERENCE, rows.nbytes)
        receive = None if everything is None else [everything, lengths]
        self._finish([agents.comm.Igatherv(rows, receive, 0)], Kind.REFERENCE, timeout)
        if everything is None:
            return None
        blocks = np.split(everything, np.cumsum(lengths)[:-1])
        return {
            role: np.concatenate([
                blocks[rank].reshape(int(count), width[role])
                for rank, count in zip(agents.ranks[role], counts[role], strict=True)
            ])
            for role in Role
        }  # fmt: skip

    def broadcast(self, kind: Kind, array: Floats, timeout: float | None = None, root: int = 0) -> None:
        """Give one rank's array to all."""
        if self.agents.comm.rank == root:
            self.ledger.collective(kind, array.nbytes)
        self._finish([self.agents.comm.Ibcast(array, root)], kind, timeout)
