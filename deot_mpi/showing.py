"""The kernel's exchange, once per run (Algorithm 2): what agents show along their edges, and what pairs are made of.

With one seed, all neighbours are shown the same sketches. With seeds by edge, each target draws one for each of its
edges and tells that neighbour alone: nobody else can make the planes, or compare the sketches of two edges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deot_mpi.data.samples import Floats
from deot_mpi.exchange.edges import Hearing
from deot_mpi.kernel import Disclosure, Kernel, LogPairs, ShiftedPairs, Shown, stacked
from deot_mpi.kinds import Kind
from deot_mpi.privacy.noise import Chance
from deot_mpi.roles import Role
from deot_mpi.setting import Setting

_MOST_SEED = 1 << 62


def disclose(
    setting: Setting, kernel: Kernel, chance: Chance, seeded: Callable[[int], Kernel] | None
) -> dict[int, Disclosure]:
    """By neighbour, what it is told of this agent's rows, and what the agent goes on with.

    ``chance`` is the agent's own, which nobody else knows: of seeds, flips and roundings. ``seeded`` makes the kernel
    of an edge from its seed; None: one kernel for all.
    """
    role, edges = setting.agents.role, setting.edges
    if seeded is None:
        return dict.fromkeys(edges.neighbours, kernel.disclosed(kernel.show(setting.rows, role), chance()))
    draws = {j: chance(setting.agents.known_as(role.other, j)) for j in edges.neighbours}
    shown = {j: seeded(seed).show(setting.rows, role) for j, seed in _edge_seeds(setting, draws).items()}
    disclosures = {j: kernel.disclosed(on_edge, draws[j]) for j, on_edge in shown.items()}
    # Lengths are the same on every edge, and so is their noise: drawn for each anew, it could be averaged away.
    lengths = kernel.disclosed(kernel.show(setting.rows, role), chance())
    return {
        j: Disclosure(
            {**one.told, Kind.NORMS: lengths.told[Kind.NORMS]}, {**one.kept, Kind.NORMS: lengths.kept[Kind.NORMS]}
        )
        for j, one in disclosures.items()
    }


def show(setting: Setting, kernel: Kernel, told: Mapping[int, Shown], hearing: Hearing | None) -> None:
    """Tell the neighbours (those in ``told``) what the kernel needs of the agent's rows, and hear the same of them."""
    outgoing = {
        kind: {j: np.ascontiguousarray(shown[kind]) for j, shown in told.items()}
        for kind in kernel.blank(0, setting.agents.role)
    }
    setting.edges.swap_in_turn(outgoing, hearing)


def _edge_seeds(setting: Setting, draws: Mapping[int, np.random.Generator]) -> dict[int, int]:
    """One seed for each edge: the target draws it, for its rows are shown in any case, and tells the source."""
    edges = setting.edges
    seeds = {j: np.zeros(1, dtype=np.int64) for j in edges.neighbours}
    if setting.agents.role is Role.TARGET:
        seeds = {i: draws[i].integers(_MOST_SEED, size=1) for i in edges.neighbours}
        edges.swap_each(Kind.SEEDS, dict(seeds), {})
    else:
        edges.swap_each(Kind.SEEDS, {}, dict(seeds))
    return {j: int(seed[0]) for j, seed in seeds.items()}


def side_by_side(kernel: Kernel, own: Mapping[int, Shown], heard: Mapping[int, Shown]) -> LogPairs:
    """A source's rows against those of all its neighbours, in their order."""
    distinct = {id(shown) for shown in own.values()}
    if len(distinct) == 1:  # one product or one pass over bits for all, not one each
        return kernel.pairs(next(iter(own.values())), stacked([heard[j] for j in own]))
    return JoinedPairs([kernel.pairs(own[j], heard[j]) for j in own])


class JoinedPairs:
    """Pairs of the same rows with several sets of columns, as one."""

    def __init__(self, parts: Sequence[LogPairs]) -> None:
        self._parts = list(parts)
        rows, columns = parts[0].shape[0], sum(part.shape[1] for part in parts)
        self.shape, self.offset = (rows, columns), np.zeros(rows)

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        return np.hstack([part.rows(start, stop) for part in self._parts])

    def shifted(
        self, rows: Floats | float, columns: Floats | float, temperature: float = 1.0, *, single: bool = False
    ) -> LogPairs:
        return ShiftedPairs(self, rows, columns, temperature)
