"""Messages along the edges for agents who do not wait for late ones: the last that has come is what they go on with."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from mpi4py import MPI

from deot_mpi.data.samples import Floats
from deot_mpi.exchange.edges import Edges
from deot_mpi.exchange.received import check_message
from deot_mpi.exchange.waiting import arrived_within, wait_all
from deot_mpi.kinds import Kind


class Mailbox:
    """Vectors to and from the neighbours. Every one that is sent is received, in order, late ones with the next.

    Who sends does not wait for the receiver, so copies are kept until they are gone; ``settle`` waits for all.
    """

    def __init__(self, edges: Edges, kind: Kind, lengths: dict[int, int]) -> None:
        self._edges, self._kind, self._lengths = edges, kind, lengths
        self._owed = dict.fromkeys(lengths, 0)
        self._open: dict[int, tuple[MPI.Request, Floats]] = {}
        self._sent: list[tuple[MPI.Request, Floats]] = []

    def send(self, neighbours: Sequence[int], vector: Floats) -> None:
        self._sent = [one for one in self._sent if not one[0].Test()]
        copy, comm = vector.copy(), self._edges.agents.comm
        for j in neighbours:
            self._edges.ledger.sent(self._kind, j, copy.nbytes)
            self._sent.append((comm.Isend(copy, self._edges.rank(j), int(self._kind)), copy))

    def collect(self, neighbours: Sequence[int], patience: float) -> dict[int, Floats]:
        """One more message is due from each of these: the newest that has come within ``patience`` seconds of now, from
        each that anything has come from."""
        for j in neighbours:
            self._owed[j] += 1
        end, found = time.monotonic() + patience, {}
        for j in neighbours:
            while self._owed[j]:
                newer = self._next(j, max(end - time.monotonic(), 0.0))
                if newer is None:
                    break
                found[j] = newer
        return found

    def behind(self, neighbour: int) -> int:
        """How many messages of a neighbour are due that have not come."""
        return self._owed[neighbour]

    def settle(self) -> dict[int, Floats]:
        """Wait for all that is due, as long as it takes (or the time-out says); the newest of those who were late."""
        found: dict[int, Floats] = {}
        for j in self._owed:
            while self._owed[j]:
                newer = self._next(j, None)
                assert newer is not None
                found[j] = newer
        wait_all([request for request, _ in self._sent], self._edges.timeout, lambda: "its neighbours")
        self._sent.clear()
        return found

    def _next(self, neighbour: int, patience: float | None) -> Floats | None:
        """The next message of a neighbour; None if it has not come in time. ``patience`` None: an error then."""
        edges = self._edges
        if neighbour not in self._open:
            array = np.empty(self._lengths[neighbour])
            self._open[neighbour] = edges.agents.comm.Irecv(array, edges.rank(neighbour), int(self._kind)), array
        request, array = self._open[neighbour]
        name = edges.agents.neighbour_name(neighbour)
        if patience is None:
            status: MPI.Status | None = wait_all([request], edges.timeout, lambda: name)[0]
        else:
            status = arrived_within(request, patience, lambda: name)
        if status is None:
            return None
        del self._open[neighbour]
        self._owed[neighbour] -= 1
        check_message(self._kind, array, status, lambda: name)
        return array
