"""Point-to-point sends along the edges of E, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from deot_mpi.agent import Agents
from deot_mpi.data.samples import Floats
from deot_mpi.errors import InputError
from deot_mpi.exchange.ledger import Ledger
from deot_mpi.exchange.parts import LARGEST_MESSAGE, in_parts
from deot_mpi.exchange.received import check_message
from deot_mpi.exchange.waiting import abandon, arrivals, wait_all
from deot_mpi.kinds import Kind

Array = NDArray[np.generic]


@dataclass(frozen=True)
class Hearing:
    """How an agent hears its neighbours: into which arrays, and what it does with them once they have come."""

    room: Callable[[int], dict[Kind, Array]]
    use: Callable[[int, dict[Kind, Array]], None]


class Edges:
    """The edges of one agent: its neighbours in the other role, by their index there."""

    most_bytes = LARGEST_MESSAGE
    """A larger array goes in several messages, all alike but the last."""

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
        receives = [self._receives(kind, j, array) for j, array in incoming.items()]
        sends = [self._sends(kind, j, array) for j, array in outgoing.items()]
        self._complete(receives, [request for batch in sends for request in batch])

    def swap_in_turn(self, outgoing: Mapping[Kind, Mapping[int, Array]], hearing: Hearing | None = None) -> None:
        """Send arrays of several kinds, and hear the neighbours one after the other.

        Nobody's arrays are received before those of the one before have been used: what is on the way takes no memory
        here. Without ``hearing``, nobody is heard.
        """
        sends = [
            request
            for kind, arrays in outgoing.items()
            for j, array in arrays.items()
            for request in self._sends(kind, j, array)
        ]
        for j in self.neighbours if hearing is not None else ():
            assert hearing is not None
            room = hearing.room(j)
            self._complete([self._receives(kind, j, array) for kind, array in room.items()], [])
            hearing.use(j, room)
            del room  # before there is one for the next
        self._complete([], sends)

    def _receives(self, kind: Kind, neighbour: int, array: Array) -> _Expected:
        comm, rank = self.comm, self.rank(neighbour)
        parts = in_parts(array, self.most_bytes)
        return _Expected(kind, neighbour, parts, [comm.Irecv(part, rank, int(kind)) for part in parts])

    def _sends(self, kind: Kind, neighbour: int, array: Array) -> list[MPI.Request]:
        requests = []
        for part in in_parts(array, self.most_bytes):
            self.count(kind, neighbour, part.nbytes)
            requests.append(self.comm.Isend(part, self.rank(neighbour), int(kind)))
        return requests

    def _complete(self, receives: Sequence[_Expected], sends: Sequence[MPI.Request]) -> None:
        requests = [request for expected in receives for request in expected.requests]
        names = {expected.neighbour: None for expected in receives}
        statuses = iter(wait_all([*requests, *sends], self.timeout, lambda: self._names(names)))
        for expected in receives:
            sender = partial(self.name, expected.neighbour)
            for part in expected.parts:
                check_message(expected.kind, part, next(statuses), sender)

    def _names(self, neighbours: Iterable[int]) -> str:
        return " or ".join(self.name(j) for j in neighbours) or "its neighbours"


@dataclass(frozen=True)
class _Expected:
    """An array that a neighbour sends, in one message or several."""

    kind: Kind
    neighbour: int
    parts: list[Array]
    requests: list[MPI.Request]


class Channel:
    """A repeated exchange along the edges, planned once: persistent requests that are only started.

    ``outgoing[j]`` is what goes to neighbour j (the same array for all, or one each), ``incoming[j]`` holds the last
    that came from it. Use it in a ``with`` block: the requests are freed at its end.
    Whoever posts must not touch ``outgoing`` before ``arrivals``, or a ``swap`` that only receives, has completed that.
    """

    def __init__(self, edges: Edges, kind: Kind, outgoing: dict[int, Floats], incoming: dict[int, Floats]) -> None:
        comm, self._edges, self._kind = edges.comm, edges, kind
        self.outgoing, self.incoming = outgoing, incoming
        self._send = {j: comm.Send_init(array, edges.rank(j), int(kind)) for j, array in outgoing.items()}
        self._receive = {j: comm.Recv_init(array, edges.rank(j), int(kind)) for j, array in incoming.items()}
        self._posted: list[MPI.Request] = []

    def swap(self, send_to: Sequence[int], receive_from: Sequence[int]) -> None:
        """Start the sends and receives of this turn and complete them all."""
        receives = self._expect(receive_from)
        if send_to:
            self._complete_posted()
        self.post(send_to)
        sends, self._posted = self._posted, []
        statuses = wait_all([*receives, *sends], self._edges.timeout, lambda: self._edges._names(receive_from))
        for j, status in zip(receive_from, statuses, strict=False):  # receives come first
            self._check(j, status)

    def post(self, send_to: Sequence[int]) -> None:
        """Start the sends of this turn. A large one is complete only when its receiver is there: no need to wait."""
        assert not (self._posted and send_to), "what was posted before is not complete"
        for j in send_to:
            self._edges.count(self._kind, j, self.outgoing[j].nbytes)
            self._send[j].Start()
            self._posted.append(self._send[j])

    def _expect(self, receive_from: Sequence[int]) -> list[MPI.Prequest]:
        requests = [self._receive[j] for j in receive_from]
        for request in requests:
            request.Start()
        return requests

    def _complete_posted(self) -> None:
        sends, self._posted = self._posted, []
        wait_all(sends, self._edges.timeout, lambda: self._edges._names(self._send))

    def _check(self, neighbour: int, status: MPI.Status) -> None:
        check_message(self._kind, self.incoming[neighbour], status, lambda: self._edges.name(neighbour))

    def arrivals(self, receive_from: Sequence[int], patience: float) -> Iterator[list[int]]:
        """Receive from these neighbours and say who has arrived, batch by batch, while others are on the way.

        Others get ``patience`` seconds to be in the same batch.
        """
        requests = self._expect(receive_from)
        for batch in arrivals(requests, self._edges.timeout, lambda: self._edges._names(receive_from), patience):
            for k, status in batch:
                self._check(receive_from[k], status)
            yield [receive_from[k] for k, _ in batch]
        self._complete_posted()

    def __enter__(self) -> Channel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if value is not None and not isinstance(value, InputError):
            abandon(self._posted)  # an active request must not be freed; the job is ending, or goes on without some
            return
        self._complete_posted()
        for request in (*self._send.values(), *self._receive.values()):
            request.Free()
