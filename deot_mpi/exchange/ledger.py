"""The ledger: messages and bytes by kind and by edge, counted where the sends happen."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deot_mpi.kinds import Kind


@dataclass(frozen=True)
class Counts:
    """(messages, bytes) of several agents."""

    edges: NDArray[np.int64]
    """By agent, kind and neighbour."""
    collectives: NDArray[np.int64]
    """By agent and kind."""
    within: NDArray[np.int64]
    """By agent and kind: messages to agents of the same domain."""


class Ledger:
    """Counts of one agent. Sends along the edges are kept per neighbour, collectives and sends within the domain apart.

    For a collective, what is counted is the buffer this rank hands to MPI to be sent; how often MPI forwards it inside
    is the implementation's business and not seen from here.
    """

    def __init__(self) -> None:
        self._edges: defaultdict[tuple[Kind, int], list[int]] = defaultdict(lambda: [0, 0])
        self._collectives = [[0, 0] for _ in Kind]
        self._within = [[0, 0] for _ in Kind]
        self.total_bytes = 0

    def sent(self, kind: Kind, neighbour: int, nbytes: int) -> None:
        self._count(self._edges[kind, neighbour], nbytes)

    def collective(self, kind: Kind, nbytes: int) -> None:
        self._count(self._collectives[kind], nbytes)

    def within(self, kind: Kind, nbytes: int) -> None:
        """A message to an agent of the same domain."""
        self._count(self._within[kind], nbytes)

    def _count(self, counts: list[int], nbytes: int) -> None:
        counts[0] += 1
        counts[1] += nbytes
        self.total_bytes += nbytes

    def row(self, neighbours: int) -> NDArray[np.int64]:
        """This agent's (messages, bytes) as one row: by kind and neighbour, then by kind, collective and within."""
        edges = np.zeros((len(Kind), neighbours, 2), dtype=np.int64)
        for (kind, neighbour), count in self._edges.items():
            edges[kind, neighbour] = count
        return np.concatenate([edges.ravel(), np.ravel(self._collectives), np.ravel(self._within)])

    @staticmethod
    def unpack(rows: NDArray[np.int64]) -> Counts:
        """Rows of several agents back to tables."""
        kinds = len(Kind)
        edges, collectives, within = np.split(rows, [-4 * kinds, -2 * kinds], axis=1)
        return Counts(
            edges.reshape(len(rows), kinds, -1, 2),
            collectives.reshape(len(rows), kinds, 2),
            within.reshape(len(rows), kinds, 2),
        )
