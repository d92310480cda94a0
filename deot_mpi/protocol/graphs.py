"""Which edges exist: the named bipartite graphs between I sources and J targets.

Names are those of decentralised optimisation (ring, star, grid, ...), where a graph has one kind of node. Here an
edge joins a source and a target, and I may differ from J. Most graphs are made on max(I, J) slots on a circle: slot
t holds source floor(t I / n) and target floor(t J / n), so that every agent has a slot and agents of the smaller role
have several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from deot_mpi.errors import InputError
from deot_mpi.randomness import Purpose, generator

Support = NDArray[np.bool_]

_TRIES = 200
"""Attempts at a connected random graph; a random regular graph of degree 2 or more rarely needs a second one."""


def _slots(sources: int, targets: int) -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:
    slots = max(sources, targets)
    t = np.arange(slots)
    return slots, t * sources // slots, t * targets // slots


def _circulant(sources: int, targets: int, offsets: Iterable[int]) -> Support:
    """Join the source in slot t with the targets in slots t + o, for every offset o."""
    slots, source_of, target_of = _slots(sources, targets)
    support = np.zeros((sources, targets), dtype=bool)
    for offset in offsets:
        support[source_of, target_of[(np.arange(slots) + offset) % slots]] = True
    return support


def full(sources: int, targets: int, degree: int, seed: int) -> Support:
    """Every source with every target."""
    return np.ones((sources, targets), dtype=bool)


def ring(sources: int, targets: int, degree: int, seed: int) -> Support:
    """Sources and targets alternate on a cycle: two neighbours each (more where I and J differ)."""
    return _circulant(sources, targets, (0, 1))


def sparse(sources: int, targets: int, degree: int, seed: int) -> Support:
    """k neighbours, connected, symmetric where I = J allows: offsets 0, +-1, +-2, ... and the opposite slot.

    For I = J = 8 and k = 4 this is the paper's sparse undirected protocol: half of E is zero.
    """
    slots = max(sources, targets)
    near = [0, *(sign * step for step in range(1, slots) for sign in (1, -1))]
    offsets = near[:degree]
    if degree >= 4 and degree % 2 == 0 and slots % 2 == 0:
        offsets[-1] = slots // 2
    return _circulant(sources, targets, offsets)


def sparse_directed(sources: int, targets: int, degree: int, seed: int) -> Support:
    """The sparse graph with its upper triangle (target index above source index) cut: the paper's directed case.

    Nothing guarantees that it is connected, nor that every agent keeps a partner.
    """
    return np.tril(sparse(sources, targets, degree, seed)).astype(bool)


def star(sources: int, targets: int, degree: int, seed: int) -> Support:
    """Source 0 with every target and target 0 with every source: one hub in each role."""
    support = np.zeros((sources, targets), dtype=bool)
    support[0, :] = True
    support[:, 0] = True
    return support


def grid(sources: int, targets: int, degree: int, seed: int) -> Support:
    """A chessboard as square as its 2 max(I, J) fields allow: sources on one colour, targets on the other."""
    slots, source_of, target_of = _slots(sources, targets)
    rows = max(r for r in range(1, int(np.sqrt(2 * slots)) + 1) if (2 * slots) % r == 0)
    columns = 2 * slots // rows
    colour_slot = {}
    counts = [0, 0]
    for field in np.ndindex(rows, columns):
        colour = sum(field) % 2
        colour_slot[field] = counts[colour]
        counts[colour] += 1
    support = np.zeros((sources, targets), dtype=bool)
    for row, column in colour_slot:
        for beside in ((row + 1, column), (row, column + 1)):
            if beside in colour_slot:
                black, white = sorted(((row, column), beside), key=lambda field: sum(field) % 2)
                support[source_of[colour_slot[black]], target_of[colour_slot[white]]] = True
    return support


def exponential(sources: int, targets: int, degree: int, seed: int) -> Support:
    """Slots at distances 0, 1, 2, 4, 8, ...: about log2(n) + 1 neighbours, every agent few hops away."""
    slots = max(sources, targets)
    return _circulant(sources, targets, [0, *(2**k for k in range(slots.bit_length()) if 2**k < slots)])


def random_regular(sources: int, targets: int, degree: int, seed: int) -> Support:
    """k random pairings of the slots, no pair twice, drawn again until the graph is connected."""
    slots, source_of, target_of = _slots(sources, targets)
    rng = generator(seed, Purpose.GRAPH)
    for _ in range(_TRIES):
        paired = np.zeros((slots, slots), dtype=bool)
        for _ in range(degree):
            _add_pairing(paired, rng)
        joined = np.zeros((sources, targets), dtype=bool)
        a, b = np.nonzero(paired)
        joined[source_of[a], target_of[b]] = True
        if components(joined) == 1:
            return joined
    raise InputError(f"no connected random regular graph of degree {degree} was found; use a larger --degree.")


def _add_pairing(used: Support, rng: np.random.Generator) -> None:
    """Pair every source slot with a target slot it is not paired with yet (a random perfect matching)."""
    from scipy.optimize import linear_sum_assignment

    cost = rng.random(used.shape) + 10.0 * used
    rows, columns = linear_sum_assignment(cost)
    used[rows, columns] = True


GRAPHS: dict[str, Callable[[int, int, int, int], Support]] = {
    "full": full,
    "sparse": sparse,
    "sparse-directed": sparse_directed,
    "ring": ring,
    "star": star,
    "grid": grid,
    "exponential": exponential,
    "random-regular": random_regular,
}


USE_DEGREE = ("sparse", "sparse-directed", "random-regular")
"""The graphs that --degree shapes."""


def components(support: Support) -> int:
    """Connected components of the bipartite graph, agents without a partner not counted.

    Every source starts with a label of its own; labels spread along edges, the smallest wins, until nothing changes.
    """
    linked = support[support.any(axis=1)][:, support.any(axis=0)]
    labels = np.arange(len(linked))
    while linked.size:
        of_targets = np.where(linked, labels[:, None], len(linked)).min(axis=0)
        spread = np.where(linked, of_targets[None, :], len(linked)).min(axis=1)
        if (spread == labels).all():
            break
        labels = spread
    return np.unique(labels).size
