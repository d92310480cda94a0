"""Which rank plays which agent, so that the edges with most traffic stay on a host. No messages here.

Agents are the nodes of a graph whose edges weigh what crosses them; hosts are parts of given sizes; what is to be small
is the weight between parts. That problem is hard in general; here agents are exchanged as long as it helps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deot_mpi.data.samples import Floats

Ints = NDArray[np.int64]


def edge_traffic(E: Floats, rows: tuple[Floats, Floats], *, one_pass: bool, asked: int | None, pairs: bool) -> Floats:
    """Numbers that cross each edge in a round, on average, for agents with N_i and M_j rows.

    The one-pass solver takes M_j down every edge and M_j back. Otherwise M_j go to the source and N_i to the target,
    each with the probability L/degree that the other one is asked; and where pairs are drawn, in proportion to e_ij.
    """
    edges = (E > 0).astype(np.float64)
    sources, targets = rows
    if one_pass:
        return np.asarray(2.0 * edges * targets)
    shares = []
    for axis in (1, 0):
        degree = np.maximum(edges.sum(axis=axis, keepdims=True), 1.0)
        shares.append(1.0 if asked is None else np.minimum(asked, degree) / degree)
    both = edges * (shares[0] * targets + shares[1] * sources[:, None])
    return np.asarray(both * E if pairs else both)


def crossing(traffic: Floats, host: Ints) -> float:
    """The traffic between hosts, for agents (sources first) on these hosts."""
    sources = len(traffic)
    return float(traffic[host[:sources, None] != host[None, sources:]].sum())


def placed(traffic: Floats, hosts: Ints) -> Ints:
    """The rank of every agent (sources first), given the host of every rank.

    Source agent 0 is rank 0 in any case, because that rank speaks and writes. The same traffic and hosts give the same
    answer everywhere. Never worse than agents in the order of the ranks.
    """
    starts = [hosts, _grown(traffic, hosts)]
    improved = [_exchanged(traffic, start) for start in starts]
    best = min(improved, key=lambda host: crossing(traffic, host))
    ranks = np.empty(hosts.size, dtype=np.int64)
    for name in np.unique(hosts):
        ranks[best == name] = np.flatnonzero(hosts == name)
    return ranks


def _both_ways(traffic: Floats) -> Floats:
    """The same as a symmetric matrix over all agents."""
    sources, targets = traffic.shape
    weights = np.zeros((sources + targets, sources + targets))
    weights[:sources, sources:] = traffic
    return weights + weights.T


def _grown(traffic: Floats, hosts: Ints) -> Ints:
    """Hosts filled one after the other, each time with the agent that has most traffic with those already there."""
    weights, size = _both_ways(traffic), hosts.size
    host, free = np.full(size, -1), np.ones(size, dtype=bool)
    order = [hosts[0], *(name for name in np.unique(hosts) if name != hosts[0])]
    for name in order:
        drawn = np.zeros(size)
        for place in range(int((hosts == name).sum())):
            # The first one of a host: whoever has least traffic with those still without one, so that nobody is left.
            attraction = drawn if place else -weights @ free
            agent = 0 if free[0] else int(np.argmax(np.where(free, attraction, -np.inf)))
            host[agent], free[agent] = name, False
            drawn += weights[agent]
    return host


def _exchanged(traffic: Floats, host: Ints) -> Ints:
    """Exchange two agents of different hosts as long as that lowers what crosses, the best pair first."""
    weights, host = _both_ways(traffic), host.copy()
    names, place = np.unique(host, return_inverse=True)
    to_host = np.stack([weights[:, place == k].sum(axis=1) for k in range(names.size)], axis=1)
    smallest = 1e-9 * max(float(weights.max()), np.finfo(float).tiny)
    for _ in range(4 * host.size):
        near = to_host[np.arange(host.size), place]
        there = to_host[:, place] - near[:, None]  # what agent u gains at the host of agent v
        gain = there + there.T - 2.0 * weights
        gain[place[:, None] == place[None, :]] = -np.inf
        gain[0], gain[:, 0] = -np.inf, -np.inf  # source agent 0 stays with rank 0
        u, v = np.unravel_index(int(np.argmax(gain)), gain.shape)
        if not gain[u, v] > smallest:
            break
        moved = weights[:, u] - weights[:, v]
        to_host[:, place[u]] -= moved
        to_host[:, place[v]] += moved
        place[u], place[v] = place[v], place[u]
    return np.asarray(names[place])
