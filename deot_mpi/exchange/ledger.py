"""The ledger: messages and bytes by kind and by edge, counted where the sends happen."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from deot_mpi.kinds import Kind


class Ledger:
    """Counts of one agent. Point-to-point sends are kept per neighbour, collectives apart.

    For a collective, what is counted is the buffer this rank hands to MPI to be sent; how often MPI forwards it inside
    is the implementation's business and not seen from here.
    """

    def __init__(self) -> None:
        self._edges: defaultdict[tuple[Kind, int], NDArray[np.int64]] = defaultdict(lambda: np.zeros(2, dtype=np.int64))
        self._collectives = np.zeros((len(Kind), 2), dtype=np.int64)

    def sent(self, kind: Kind, neighbour: int, nbytes: int) -> None:
        self._edges[kind, neighbour] += (1, nbytes)

    def collective(self, kind: Kind, nbytes: int) -> None:
        self._collectives[kind] += (1, nbytes)

    @property
    def total_bytes(self) -> int:
        return int(sum(count[1] for count in self._edges.values()) + self._collectives[:, 1].sum())

    def row(self, neighbours: int) -> NDArray[np.int64]:
        """This agent's counts as one flat row: kind x neighbour x (messages, bytes), then kind x (messages, bytes)."""
        edges = np.zeros((len(Kind), neighbours, 2), dtype=np.int64)
        for (kind, neighbour), count in self._edges.items():
            edges[kind, neighbour] = count
        return np.concatenate([edges.ravel(), self._collectives.ravel()])

    @staticmethod
    def unpack(rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows of several agents back to (agent, kind, neighbour, 2) and (agent, kind, 2)."""
        kinds = len(Kind)
        return (
            rows[:, : -2 * kinds].reshape(len(rows), kinds, -1, 2),
            rows[:, -2 * kinds :].reshape(len(rows), kinds, 2),
        )
