"""The few collectives: small tables everybody needs, the masked sum behind the mean, agreed errors, the reference.

Sums of floats depend on their order, and MPI chooses the order. So nothing here lets MPI add two non-zero floats:
tables are reduced with one owner per row, and the mean is added in integers. Results are the same to the bit on
every run and for every placement of agents on ranks.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from deot_mpi.agent import Agents
from deot_mpi.errors import InputError
from deot_mpi.exchange.edges import Edges
from deot_mpi.exchange.ledger import Ledger
from deot_mpi.kinds import Kind
from deot_mpi.roles import Role
from deot_mpi.samples import Floats
from deot_mpi.waiting import wait_all

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

    def _finish(self, request: MPI.Request, kind: Kind, timeout: float | None = None) -> None:
        wait_all([request], timeout or self.timeout, lambda: f"some agent, during a {kind.name.lower()} collective")

    def share(self, kind: Kind, row: NDArray[Number]) -> Tables[Number]:
        """Reduce one row per agent to agent 0 of each role, then broadcast both tables (Algorithm 1, lines 15-16)."""
        agents, tables = self.agents, {}
        own = np.zeros((agents.count(agents.role), row.size), dtype=row.dtype)
        own[agents.index] = row
        root = agents.domain.rank == 0
        self.ledger.collective(kind, 0 if root else own.nbytes)
        send = MPI.IN_PLACE if root else own
        self._finish(agents.domain.Ireduce(send, own if root else None, MPI.SUM, 0), kind)
        for role in Role:
            mine = role is agents.role
            table = own if mine else np.zeros((agents.count(role), row.size), dtype=row.dtype)
            if mine and root:
                self.ledger.collective(kind, table.nbytes)
            self._finish(agents.comm.Ibcast(table, agents.rank_of(role, 0)), kind)
            tables[role] = table
        return Tables(tables[Role.SOURCE], tables[Role.TARGET])

    def masked_sum(self, edges: Edges, row: Floats) -> Floats:
        """The sum of every agent's row, without any agent's own row leaving it.

        Rows become integers on a common scale; source i adds a random word to each, target j takes the same word
        off, for every edge (i, j). All arithmetic is modulo 2**64, so the masks cancel exactly and the order of
        the additions does not matter. What an agent learns is the sum. Its row stays hidden as long as one of its
        neighbours keeps the mask to itself; an agent without neighbours contributes nothing.
        """
        exponent = self._common_exponent(np.abs(row).max(initial=0.0) if edges.neighbours else 0.0)
        scaled = np.zeros(row.size, dtype=np.int64)
        if edges.neighbours:
            scaled = np.round(np.ldexp(row, -exponent)).astype(np.int64)
        words = scaled.view(np.uint64).copy()
        for mask in self._edge_masks(edges, row.size):
            if self.agents.role is Role.SOURCE:
                words += mask
            else:
                words -= mask
        total = np.empty_like(words)
        self.ledger.collective(Kind.MEAN, words.nbytes)
        self._finish(self.agents.comm.Iallreduce(words, total, MPI.SUM), Kind.MEAN)
        return np.ldexp(total.view(np.int64).astype(np.float64), exponent)

    def _common_exponent(self, largest: float) -> int:
        """The exponent of the unit in which nobody's number, nor their sum, overflows. Discloses a power of two."""
        own = np.array([np.frexp(largest)[1] if largest > 0 else -1074], dtype=np.int64)
        top = np.empty_like(own)
        self.ledger.collective(Kind.MEAN, own.nbytes)
        self._finish(self.agents.comm.Iallreduce(own, top, MPI.MAX), Kind.MEAN)
        return int(top[0]) + int(self.agents.comm.size).bit_length() - _HEADROOM_BITS

    def _edge_masks(self, edges: Edges, length: int) -> list[NDArray[np.uint64]]:
        """One secret mask per edge, drawn by the source from the operating system, not from the shared seed."""
        if self.agents.role is Role.SOURCE:
            masks = {j: np.frombuffer(secrets.token_bytes(8 * length), dtype=np.uint64) for j in edges.neighbours}
            edges.swap_each(Kind.MEAN, dict(masks), {})
        else:
            masks = {i: np.empty(length, dtype=np.uint64) for i in edges.neighbours}
            edges.swap_each(Kind.MEAN, {}, dict(masks))
        return list(masks.values())

    def all_or_none(self, attempt: Callable[[], Result]) -> Result:
        """Run something that may reject its input; if it does on any agent, all raise that agent's sentence."""
        outcome, error = None, None
        try:
            outcome = attempt()
        except InputError as caught:
            error = str(caught)
        agree(self.agents.comm, error, self.timeout)
        assert outcome is not None
        return outcome

    def pool(self, rows: Floats, counts: Tables[np.int64], timeout: float) -> dict[Role, Floats] | None:
        """Gather raw rows on rank 0, for a centralised reference; None elsewhere."""
        agents, width = self.agents, rows.shape[1]
        agents_in_rank_order = np.zeros(agents.comm.size, dtype=np.int64)
        for role in Role:
            for index in range(agents.count(role)):
                agents_in_rank_order[agents.rank_of(role, index)] = counts.of(role)[index, 0] * width
        everything = np.empty(int(agents_in_rank_order.sum())) if agents.comm.rank == 0 else None
        self.ledger.collective(Kind.REFERENCE, 0 if everything is not None else rows.nbytes)
        receive = None if everything is None else [everything, agents_in_rank_order]
        self._finish(agents.comm.Igatherv(rows, receive, 0), Kind.REFERENCE, timeout)
        if everything is None:
            return None
        starts = np.concatenate([[0], np.cumsum(agents_in_rank_order)])
        return {
            role: np.concatenate(
                [
                    everything[starts[rank] : starts[rank + 1]].reshape(-1, width)
                    for rank in (agents.rank_of(role, index) for index in range(agents.count(role)))
                ]
            )
            for role in Role
        }

    def broadcast(self, kind: Kind, array: Floats, timeout: float) -> None:
        """Give rank 0's array to all."""
        if self.agents.comm.rank == 0:
            self.ledger.collective(kind, array.nbytes)
        self._finish(self.agents.comm.Ibcast(array, 0), kind, timeout)


def agree(comm: MPI.Intracomm, error: str | None, timeout: float) -> None:
    """Raise the same ``InputError`` on every rank if any has one: the lowest rank's sentence, and how many more."""
    failed = np.zeros(comm.size, dtype=np.int32)
    failed[comm.rank] = error is not None
    wait_all([comm.Iallreduce(MPI.IN_PLACE, failed, MPI.SUM)], timeout, lambda: "the other ranks")
    if not failed.any():
        return
    first = int(np.flatnonzero(failed)[0])
    others = int(failed.sum()) - 1 if not failed.all() else 0  # wrong everywhere: one mistake, not many
    text = broadcast_text(comm, error if comm.rank == first else None, first, timeout)
    raise InputError(text + (f" ({others} more agents have a problem, too.)" if others else ""))


def broadcast_text(comm: MPI.Intracomm, text: str | None, root: int, timeout: float) -> str:
    """One rank's text on every rank."""
    encoded = np.frombuffer((text or "").encode(), dtype=np.uint8)
    length = np.array([encoded.size], dtype=np.int64)
    wait_all([comm.Ibcast(length, root)], timeout, lambda: f"rank {root}")
    buffer = encoded.copy() if comm.rank == root else np.empty(int(length[0]), dtype=np.uint8)
    wait_all([comm.Ibcast(buffer, root)], timeout, lambda: f"rank {root}")
    return buffer.tobytes().decode()
