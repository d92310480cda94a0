"""Point-to-point sends along the edges of E, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from deot_mpi.agent import Agents
from deot_mpi.data.samples import Floats
from deot_mpi.errors import InputError
from deot_mpi.exchange.ledger import Ledger
from deot_mpi.exchange.received import check_message
from deot_mpi.exchange.waiting import arrivals, wait_all
from deot_mpi.kinds import Kind

Array = NDArray[np.generic]


class Edges:
    """The edges of one agent: its neighbours in the other role, by their index there."""

    def __init__(self, agents: Agents, neighbours: Sequence[int], ledger: Ledger, timeout: float) -> None:
        self.agents, self.neighbours = agents, tuple(neighbours)
        self.ledger, self.timeout = ledger, timeout

    def rank(self, neighbour: int) -> int:
        """The rank behind a neighbour. Asking for an agent that E does not connect is a bug, not a message."""
        if neighbour not in self.neighbours:
            raise AssertionError(f"{self.agents.name} has no edge to {self.name(neighbour)}")
        return self._rank(neighbour)

    def _rank(self, neighbour: int) -> int:
        return self.agents.rank_of(self.agents.role.other, neighbour)

    @property
    def comm(self) -> MPI.Intracomm:
        return self.agents.comm

    def name(self, neighbour: int) -> str:
        return self.agents.neighbour_name(neighbour)

    def count(self, kind: Kind, neighbour: int, nbytes: int) -> None:
        """Note a message in the ledger."""
        self.ledger.sent(kind, neighbour, nbytes)

    def swap(self, kind: Kind, outgoing: Array, incoming: dict[int, Array]) -> None:
        """Send one array to every neighbour and fill one array from each; used once per run and kind."""
        outgoing = np.ascontiguousarray(outgoing)
        self.swap_each(kind, dict.fromkeys(self.neighbours, outgoing), incoming)

    def swap_each(self, kind: Kind, outgoing: Mapping[int, Array], incoming: Mapping[int, Array]) -> None:
        """As ``swap``, with an array of its own for each neighbour that gets one."""
        comm = self.comm
        requests = [comm.Irecv(array, self.rank(j), int(kind)) for j, array in incoming.items()]
        for j, array in outgoing.items():
            self.count(kind, j, array.nbytes)
            requests.append(comm.Isend(array, self.rank(j), int(kind)))
        statuses = wait_all(requests, self.timeout, lambda: self._names(incoming))
        for (j, array), status in zip(incoming.items(), statuses, strict=False):  # receives come first
            check_message(kind, array, status, self.name(j))

    def _names(self, neighbours: Iterable[int]) -> str:
        return " or ".join(self.name(j) for j in neighbours) or "its neighbours"


class Channel:
    """A repeated exchange along the edges, planned once: persistent requests that are only started.

    ``outgoing[j]`` is what goes to neighbour j (the same array for all, or one each), ``incoming[j]`` holds the last
    that came from it. Use it in a ``with`` block: the requests are freed at its end.
    """

    def __init__(self, edges: Edges, kind: Kind, outgoing: dict[int, Floats], incoming: dict[int, Floats]) -> None:
        comm, self._edges, self._kind = edges.comm, edges, kind
        self.outgoing, self.incoming = outgoing, incoming
        self._send = {j: comm.Send_init(array, edges.rank(j), int(kind)) for j, array in outgoing.items()}
        self._receive = {j: comm.Recv_init(array, edges.rank(j), int(kind)) for j, array in incoming.items()}

    def swap(self, send_to: Sequence[int], receive_from: Sequence[int]) -> None:
        """Start the sends and receives of this turn and complete them all."""
        requests: list[MPI.Request] = []
        for j in receive_from:
            self._receive[j].Start()
            requests.append(self._receive[j])
        for j in send_to:
            self._edges.count(self._kind, j, self.outgoing[j].nbytes)
            self._send[j].Start()
            requests.append(self._send[j])
        statuses = wait_all(requests, self._edges.timeout, lambda: self._edges._names(receive_from))
        for j, status in zip(receive_from, statuses, strict=False):  # receives come first
            self._check(j, status)

    def _check(self, neighbour: int, status: MPI.Status) -> None:
        check_message(self._kind, self.incoming[neighbour], status, self._edges.name(neighbour))

    def arrivals(self, receive_from: Sequence[int], patience: float) -> Iterator[list[int]]:
        """Receive from these neighbours and say who has arrived, batch by batch, while others are on the way.

        Others get ``patience`` seconds to be in the same batch.
        """
        for j in receive_from:
            self._receive[j].Start()
        requests = [self._receive[j] for j in receive_from]
        for batch in arrivals(requests, self._edges.timeout, lambda: self._edges._names(receive_from), patience):
            for k, status in batch:
                self._check(receive_from[k], status)
            yield [receive_from[k] for k, _ in batch]

    def __enter__(self) -> Channel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if value is not None and not isinstance(value, InputError):
            return  # an active request must not be freed; the job is ending anyway
        for request in (*self._send.values(), *self._receive.values()):
            request.Free()
