"""The common ground of every problem: agents who know each other's sizes, E, the edges, and centred samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from deot_mpi.agent import Agents
from deot_mpi.data.samples import Floats, Samples
from deot_mpi.errors import InputError
from deot_mpi.exchange.collective import Collectives
from deot_mpi.exchange.edges import Edges
from deot_mpi.exchange.join import join, same_everywhere
from deot_mpi.exchange.ledger import Ledger
from deot_mpi.exchange.parts import LARGEST_MESSAGE
from deot_mpi.exchange.placing import protocol_text
from deot_mpi.kinds import Kind
from deot_mpi.options import Options
from deot_mpi.protocol import Protocol, choose_protocol
from deot_mpi.roles import Role

MOST_ROWS = LARGEST_MESSAGE // 8


@dataclass(frozen=True)
class Sizes:
    """What every agent says about its samples before anything else: how many, how wide, how heavy."""

    counts: dict[Role, NDArray[np.int64]]
    masses: dict[Role, Floats]
    dimensions: dict[Role, int]
    features: int
    """Columns of the features that both domains share beside their own; 0 without."""
    weighted: bool
    """Whether any agent has per-sample weights (then all exchange theirs)."""

    @property
    def dimension(self) -> int:
        """Of the one space that both domains live in, where they do."""
        return self.dimensions[Role.SOURCE]

    def shares(self, role: Role) -> Floats:
        """The storage protocol: p (sources) or q (targets)."""
        return np.asarray(self.masses[role] / self.masses[role].sum())

    def owners(self, role: Role) -> NDArray[np.int64]:
        """The agent of each row of a domain, rows in agent order."""
        return np.repeat(np.arange(self.counts[role].size), self.counts[role])


@dataclass(frozen=True)
class Setting:
    """Where a problem starts: everything but the kernel."""

    agents: Agents
    collectives: Collectives
    ledger: Ledger
    sizes: Sizes
    protocol: Protocol
    edges: Edges
    samples: Samples
    rows: Floats
    """The agent's samples less the global mean (as they are, without centring)."""

    @property
    def storage_share(self) -> float:
        """p_i or q_j of this agent."""
        return float(self.sizes.shares(self.agents.role)[self.agents.index])


def meet(
    comm: MPI.Intracomm,
    role: Role,
    load: Callable[[Agents], Samples],
    options: Options,
    *,
    one_space: bool = True,
    centre: bool = True,
    left: dict[Role, NDArray[np.int64]] | None = None,
) -> Setting:
    """Bring the agents together: compare options, read samples, compare sizes, agree on E, find the centre.

    ``load`` gives this agent's own samples and may reject them; then all agents raise its sentence. With ``one_space``
    both domains have the same columns and one centre; otherwise each has its own, and perhaps features in common.
    """
    ledger = Ledger()
    same_everywhere(comm, options.shared(), options.timeout, ledger)
    agents = join(comm, role, ledger, options.timeout, left)
    collectives = Collectives(agents, ledger, options.timeout)
    with agents.freed_on_error():
        samples = collectives.all_or_none(lambda: load(agents))
        sizes = _compare_sizes(collectives, samples, one_space)
        protocol = _agree_on_protocol(collectives, sizes, options)
        edges = Edges(agents, protocol.neighbours(role, agents.index), ledger, options.timeout)
        setting = Setting(agents, collectives, ledger, sizes, protocol, edges, samples, samples.rows)
        if centre:
            setting = centred(setting) if one_space else _centred_apart(setting)
    return setting


def _compare_sizes(collectives: Collectives, samples: Samples, one_space: bool) -> Sizes:
    width = 0 if samples.features is None else samples.features.shape[1]
    row = [samples.count, samples.dimension, samples.mass, samples.weights is not None, width]
    table = collectives.share(Kind.CONTROL, np.array(row, dtype=np.float64))
    for role in Role:
        most = int(table.of(role)[:, 0].argmax())
        rows = int(table.of(role)[most, 0])
        if rows > MOST_ROWS:
            raise InputError(
                f"{role.value} agent {most} has {rows} rows, and in a round sends a number for each in one message, "
                f"{MOST_ROWS} at most; give its rows to several agents."
            )
        first = Role.SOURCE if one_space else role
        _all_alike(table.of(role)[:, 1], role, int(table.of(first)[0, 1]), first, "samples")
        _all_alike(table.of(role)[:, 4], role, int(table.source[0, 4]), Role.SOURCE, "features")
    return Sizes(
        counts={role: table.of(role)[:, 0].astype(np.int64) for role in Role},
        masses={role: table.of(role)[:, 2] for role in Role},
        dimensions={role: int(table.of(role)[0, 1]) for role in Role},
        features=int(table.source[0, 4]),
        weighted=bool(table.source[:, 3].any() or table.target[:, 3].any()),
    )


def _all_alike(widths: Floats, role: Role, expected: int, first: Role, what: str) -> None:
    for index, width in enumerate(widths):
        if width != expected:
            raise InputError(
                f"{role.value} agent {index} has {what} of {int(width)} columns, {first.value} agent 0 {expected}; "
                "agents that share a space need the same columns (eot has one space, gromov one for each role)."
            )


def _agree_on_protocol(collectives: Collectives, sizes: Sizes, options: Options) -> Protocol:
    """E from the options; a protocol file is read by rank 0 alone, which tells the others."""
    return choose_protocol(
        options.protocol,
        sizes.shares(Role.SOURCE),
        sizes.shares(Role.TARGET),
        degree=options.degree,
        matched=options.match,
        seed=options.seed,
        text=protocol_text(collectives.agents.comm, options, collectives.ledger),
    )


def _linked_share(setting: Setting, role: Role) -> float:
    """The share of a domain held by agents that have an edge: only these take part in sums over samples."""
    return float(sum(
        share
        for index, share in enumerate(setting.sizes.shares(role))
        if setting.protocol.neighbours(role, index)
    ))  # fmt: skip


def centred(setting: Setting) -> Setting:
    """Subtract the mean of the two domains' means: c(x,y) does not change, and sketches see more than the offset."""
    samples = setting.samples
    weighted_sum = setting.storage_share * (samples.shares @ samples.rows)
    total = setting.collectives.masked_sum(setting.edges, weighted_sum)
    centre = total / sum(_linked_share(setting, role) for role in Role)
    return replace(setting, rows=samples.rows - centre)


def _centred_apart(setting: Setting) -> Setting:
    """Subtract each domain's own mean under E's marginals, and from the features, if any, the mean of both domains.

    ``rows`` are then structure and features side by side.
    """
    samples, sizes, role = setting.samples, setting.sizes, setting.agents.role
    width, offset = sizes.dimensions[role], 0 if role is Role.SOURCE else sizes.dimensions[Role.SOURCE]
    features = samples.features if samples.features is not None else np.empty((samples.count, 0))
    row = np.zeros(sum(sizes.dimensions.values()) + sizes.features)
    marginal = float(setting.protocol.marginals(role)[setting.agents.index])
    row[offset : offset + width] = marginal * (samples.shares @ samples.rows)
    row[row.size - sizes.features :] = 0.5 * marginal * (samples.shares @ features)
    total = setting.collectives.masked_sum(setting.edges, row)
    structure = samples.rows - total[offset : offset + width]
    return replace(setting, rows=np.hstack([structure, features - total[row.size - sizes.features :]]))


def mean_cost(setting: Setting) -> float:
    """E ||x - y||^2 under the storage protocol, from moments: E||x||^2 + E||y||^2 - 2 <E x, E y>.

    Discloses the two domains' means and second moments; where a domain has one agent, these are that agent's own.
    """
    dimension, role = setting.sizes.dimension, setting.agents.role
    at = {Role.SOURCE: 0, Role.TARGET: dimension + 1}
    row = np.zeros(2 * (dimension + 1))
    shares, rows = setting.samples.shares, setting.rows
    row[at[role] : at[role] + dimension] = setting.storage_share * (shares @ rows)
    row[at[role] + dimension] = setting.storage_share * float(shares @ (rows**2).sum(axis=1))
    total = setting.collectives.masked_sum(setting.edges, row)
    means, squares = {}, {}
    for domain in Role:
        part = total[at[domain] : at[domain] + dimension + 1] / _linked_share(setting, domain)
        means[domain], squares[domain] = part[:-1], part[-1]
    return float(squares[Role.SOURCE] + squares[Role.TARGET] - 2.0 * (means[Role.SOURCE] @ means[Role.TARGET]))


def choose_eps(options: Options, mean: Callable[[], float]) -> float:
    """eps in cost units, given or as a share of the mean cost."""
    if options.scale is None:
        assert options.eps is not None
        return float(options.eps)
    cost = mean()
    if not cost > 0:
        raise InputError(f"the mean cost is {cost:g}, so eps cannot be a share of it; give --eps in cost units.")
    eps = options.scale * cost
    if not np.isfinite(eps):
        raise InputError(f"eps_scale is {options.scale:g}, and the mean cost times that overflows; use less.")
    return eps
