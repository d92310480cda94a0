"""Who talks to whom in a round. Every agent works it out for itself and its neighbours; no message is needed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deot_mpi.data.samples import Floats
from deot_mpi.protocol import Protocol
from deot_mpi.randomness import Purpose, generator
from deot_mpi.roles import Role


def inclusion_probabilities(weights: Floats, wanted: int) -> Floats:
    """min(1, k w_j) with the k for which they sum to ``wanted``: all ones once ``wanted`` reaches the degree."""
    probabilities = np.zeros(weights.size)
    open_places = np.ones(weights.size, dtype=bool)
    wanted = min(wanted, weights.size)
    while True:
        free = wanted - np.count_nonzero(~open_places)
        probabilities[open_places] = free * weights[open_places] / max(weights[open_places].sum(), np.finfo(float).tiny)
        overfull = open_places & (probabilities >= 1.0)
        if not overfull.any():
            return np.where(open_places, probabilities, 1.0)
        open_places &= ~overfull


def draw(probabilities: Floats, rng: np.random.Generator) -> tuple[int, ...]:
    """A set of sum(probabilities) places that holds place j with its probability, by systematic sampling.

    Places are laid end to end in random order on a line, and the line is cut at u, u+1, u+2, ... for one uniform u.
    """
    order = rng.permutation(probabilities.size)
    ends = np.cumsum(probabilities[order])
    size = round(float(ends[-1]))
    cuts = rng.random() + np.arange(size)
    places = np.minimum(np.searchsorted(ends, cuts, side="right"), probabilities.size - 1)
    return tuple(sorted(int(k) for k in order[places]))


@dataclass(frozen=True)
class Turn:
    """One agent's part in a round: whose blocks it needs, who needs its own, and how each received block counts."""

    receive_from: tuple[int, ...]
    send_to: tuple[int, ...]
    factors: dict[int, float]
    """Weight of each received neighbour in the estimate of sum_j (e_ij/e_i) G_j; empty for an agent that rests."""


class _Picks:
    """The stream of neighbour samples of one agent."""

    def __init__(self, protocol: Protocol, role: Role, index: int, wanted: int | None, seed: int) -> None:
        purpose = Purpose.SOURCE_PICKS if role is Role.SOURCE else Purpose.TARGET_PICKS
        self._rng = generator(seed, purpose, index)
        self._neighbours = protocol.neighbours(role, index)
        weights = protocol.weights(role, index)[list(self._neighbours)]
        weights = weights / weights.sum()
        self._probabilities = inclusion_probabilities(weights, wanted or weights.size)
        self._factors = weights / self._probabilities

    def next(self) -> dict[int, float]:
        """The next sample: neighbour -> (e_ij/e_i) / probability, the Horvitz-Thompson factor. Unbiased for any E."""
        places = draw(self._probabilities, self._rng)
        return {self._neighbours[k]: float(self._factors[k]) for k in places}


class SampledSchedule:
    """Algorithm 1, lines 6-12: pairs (i, j) ~ E, then L neighbours for the source and L for the target of each pair.

    With ``pairs`` None every agent is active in every round. With ``pairs`` = B, the agents of B pairs drawn from E are
    (B = 1 is the paper); an agent drawn twice in a round moves once.
    """

    def __init__(
        self, protocol: Protocol, role: Role, index: int, neighbours: int | None, pairs: int | None, seed: int
    ) -> None:
        self._role, self._index, self._pairs = role, index, pairs
        self._edges = np.argwhere(protocol.support)
        self._edge_weights = protocol.E[protocol.support]
        self._pair_rng = generator(seed, Purpose.PAIRS)
        self._own_neighbours = protocol.neighbours(role, index)
        self._own = _Picks(protocol, role, index, neighbours, seed) if self._own_neighbours else None
        self._theirs = {j: _Picks(protocol, role.other, j, neighbours, seed) for j in self._own_neighbours}

    def next(self) -> Turn:
        active = self._active()
        factors: dict[int, float] = {}
        if self._own is not None and (active is None or self._index in active[self._role]):
            factors = self._own.next()
        send_to = tuple(
            j
            for j, picks in self._theirs.items()
            if (active is None or j in active[self._role.other]) and self._index in picks.next()
        )
        return Turn(tuple(factors), send_to, factors)

    def _active(self) -> dict[Role, set[int]] | None:
        if self._pairs is None:
            return None
        drawn = self._edges[
            self._pair_rng.choice(len(self._edges), size=self._pairs, p=self._edge_weights / self._edge_weights.sum())
        ]
        return {Role.SOURCE: {int(i) for i in drawn[:, 0]}, Role.TARGET: {int(j) for j in drawn[:, 1]}}


class CyclicSchedule:
    """Every agent goes round its neighbours, L at a time: each kept sum is at most ceil(degree/L) rounds old."""

    def __init__(self, protocol: Protocol, role: Role, index: int, neighbours: int | None) -> None:
        self._wanted, self._index, self._round = neighbours, index, 0
        degree = int(max(protocol.support.sum(axis=0).max(), protocol.support.sum(axis=1).max()))
        self.cycle = 1 if neighbours is None else -(-degree // neighbours)
        """Rounds after which every agent has heard all its neighbours."""
        self._own = protocol.neighbours(role, index)
        self._theirs = {j: protocol.neighbours(role.other, j) for j in self._own}
        self.own_cycle = 1 if neighbours is None else max(1, -(-len(self._own) // neighbours))
        """Rounds after which this agent has heard all of its own."""

    def next(self) -> Turn:
        t, self._round = self._round, self._round + 1
        send_to = tuple(j for j, neighbours in self._theirs.items() if self._index in self._turn(j, neighbours, t))
        return Turn(self._turn(self._index, self._own, t), send_to, {})

    def _turn(self, agent: int, neighbours: tuple[int, ...], t: int) -> tuple[int, ...]:
        """Agents start at different neighbours, so that the same neighbour is not asked by all at once."""
        degree = len(neighbours)
        wanted = degree if self._wanted is None else min(self._wanted, degree)
        return tuple(neighbours[(agent + t * wanted + k) % degree] for k in range(wanted))
