"""Point-to-point messages between agents of one domain: along edges of their own, or once round a circle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from deot_mpi.agent import Agents
from deot_mpi.exchange.edges import Edges
from deot_mpi.exchange.ledger import Ledger
from deot_mpi.exchange.parts import in_parts
from deot_mpi.exchange.waiting import wait_all
from deot_mpi.kinds import Kind


class DomainEdges(Edges):
    """Edges of one agent to others of its own domain, by their index in it; counted apart in the ledger."""

    @property
    def comm(self) -> MPI.Intracomm:
        return self.agents.domain

    def _rank(self, neighbour: int) -> int:
        return neighbour  # an agent's index is its rank in its domain

    def name(self, neighbour: int) -> str:
        return f"{self.agents.role.value} agent {self.agents.known_as(self.agents.role, neighbour)}"

    def count(self, kind: Kind, neighbour: int, nbytes: int) -> None:
        self.ledger.within(kind, nbytes)


@dataclass(frozen=True)
class Meeting:
    """One turn: whom an agent shows its arrays, and who shows it theirs. None: nobody this time."""

    show_to: int | None
    hear_from: int | None


def circle(agents: int, index: int, reach: int | None = None) -> list[Meeting]:
    """The meetings of one agent: with the next ones on a circle it speaks, with the ones before it listens.

    ``reach`` limits how far round the circle (None: as far as it takes to meet everybody). Each pair meets once; with
    an even number of agents the opposite one is met by one side only.
    """
    meetings = []
    for step in range(1, min(agents // 2, reach or agents) + 1):
        opposite = 2 * step == agents
        show_to = None if opposite and index >= step else (index + step) % agents
        hear_from = None if opposite and index < step else (index - step) % agents
        meetings.append(Meeting(show_to, hear_from))
    return meetings


def visits(
    agents: Agents,
    ledger: Ledger,
    timeout: float,
    own: list[NDArray[np.generic]],
    counts: NDArray[np.int64],
    reach: int | None,
) -> Iterator[tuple[int, list[NDArray[np.generic]]]]:
    """Show ``own`` arrays round the circle; yields who was heard and what they showed, one agent at a time."""
    domain = agents.domain
    for meeting in circle(domain.size, domain.rank, reach):
        requests, theirs = [], []
        if meeting.hear_from is not None:
            count = int(counts[meeting.hear_from])
            theirs = [np.empty((count, *array.shape[1:]), dtype=array.dtype) for array in own]
            requests += [
                domain.Irecv(part, meeting.hear_from, k) for k, array in enumerate(theirs) for part in in_parts(array)
            ]
        if meeting.show_to is not None:
            for k, part in ((k, part) for k, array in enumerate(own) for part in in_parts(array)):
                ledger.within(Kind.STRUCTURE, part.nbytes)
                requests.append(domain.Isend(part, meeting.show_to, k))
        wait_all(requests, timeout, lambda: f"another {agents.role.value} agent")
        if meeting.hear_from is not None:
            yield meeting.hear_from, theirs
