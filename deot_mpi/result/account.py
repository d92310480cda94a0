"""Who took part and what it cost: agents, and messages and bytes by kind and by edge."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deot_mpi.exchange.ledger import Counts
from deot_mpi.kinds import Kind
from deot_mpi.roles import Role


@dataclass(frozen=True)
class AgentSummary:
    role: str
    index: int
    samples: int
    mass: float
    """p_i or q_j: the agent's share of its domain."""
    protocol_mass: float
    """e_i or e^j: the share that E gives it."""
    neighbours: int
    marginal_error: float
    """L1, sum_n |(pi 1)_n - a_n| over its rows (sources) or columns (targets)."""
    working_seconds: float
    """CPU seconds it spent, not counting those burnt while waiting."""
    waiting_seconds: float
    """Seconds it waited for messages."""
    peak_memory: int
    """The largest memory its process has had so far, in bytes (resident)."""
    host: int
    """Agents with the same number share a host; 0 is that of source agent 0."""


@dataclass(frozen=True)
class Traffic:
    """Messages and bytes of one kind, measured, beside what they should be by formula where there is one."""

    kind: str
    messages: int
    bytes: int
    collectives: int
    collective_bytes: int
    formula_bytes: int | None
    within_messages: int = 0
    """Between agents of one domain."""
    within_bytes: int = 0
    within_formula_bytes: int | None = None


@dataclass(frozen=True)
class EdgeTraffic:
    source: int
    target: int
    messages: int
    bytes: int
    bytes_by_kind: dict[str, int]


@dataclass(frozen=True)
class LedgerReport:
    """All messages of the run. Point-to-point messages by kind and edge (both directions), collectives apart."""

    by_kind: tuple[Traffic, ...]
    by_edge: tuple[EdgeTraffic, ...]
    messages_between_hosts: int
    """Of those on the edges: from one host to another."""
    bytes_between_hosts: int

    @property
    def bytes(self) -> int:
        return sum(row.bytes + row.collective_bytes + row.within_bytes for row in self.by_kind)

    @property
    def messages(self) -> int:
        return sum(row.messages + row.within_messages for row in self.by_kind)

    def of(self, kind: Kind) -> Traffic:
        return next(row for row in self.by_kind if row.kind == kind.name.lower())


def summarise_ledger(
    counts: dict[Role, Counts],
    formula: dict[Kind, int],
    within_formula: dict[Kind, int],
    hosts: dict[Role, NDArray[np.int64]],
) -> LedgerReport:
    """The report from every agent's counts and the number of its host."""
    # A source's neighbours are targets: swap the target side's axes so that both are (kind, source, target, 2).
    sources, targets = (len(counts[role].edges) for role in Role)
    from_sources = counts[Role.SOURCE].edges[:, :, :targets].transpose(1, 0, 2, 3)
    from_targets = counts[Role.TARGET].edges[:, :, :sources].transpose(1, 2, 0, 3)
    per_edge = from_sources + from_targets
    per_kind = per_edge.sum(axis=(1, 2))
    together = sum(counts[role].collectives.sum(axis=0) for role in Role)
    within = sum(counts[role].within.sum(axis=0) for role in Role)
    by_kind = tuple(
        Traffic(
            kind=kind.name.lower(),
            messages=int(per_kind[kind, 0]),
            bytes=int(per_kind[kind, 1]),
            collectives=int(together[kind, 0]),
            collective_bytes=int(together[kind, 1]),
            formula_bytes=formula.get(kind),
            within_messages=int(within[kind, 0]),
            within_bytes=int(within[kind, 1]),
            within_formula_bytes=within_formula.get(kind),
        )
        for kind in Kind
    )
    by_edge = tuple(
        EdgeTraffic(
            source=int(i),
            target=int(j),
            messages=int(per_edge[:, i, j, 0].sum()),
            bytes=int(per_edge[:, i, j, 1].sum()),
            bytes_by_kind={k.name.lower(): int(per_edge[k, i, j, 1]) for k in Kind if per_edge[k, i, j, 1]},
        )
        for i, j in np.argwhere(per_edge[..., 0].sum(axis=0))
    )
    apart = hosts[Role.SOURCE][:, None] != hosts[Role.TARGET]
    messages, nbytes = (int(per_edge[..., k].sum(axis=0)[apart].sum()) for k in (0, 1))
    return LedgerReport(by_kind, by_edge, messages, nbytes)
