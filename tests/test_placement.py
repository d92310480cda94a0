"""Placement by edges: against the best of all placements where these can be tried, and against the order of ranks."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest

from deot_mpi.protocol.graphs import GRAPHS
from deot_mpi.protocol.placement import crossing, edge_traffic, placed


def host_of(ranks: np.ndarray, hosts: np.ndarray) -> np.ndarray:
    return hosts[ranks]


@pytest.mark.parametrize("seed", range(6))
def test_no_exchange_of_two_agents_would_help(seed: int) -> None:
    """And nothing is better than the best of all 120 placements of 3 + 3 agents, which are tried."""
    draws = np.random.default_rng(seed)
    for sources, targets, hosts in ((3, 3, [0, 0, 0, 1, 1, 2]), (6, 5, [0, 1, 1, 1, 0, 0, 2, 2, 2, 2, 1])):
        traffic, hosts = draws.integers(0, 9, (sources, targets)).astype(float), np.array(hosts)
        ranks = placed(traffic, hosts)
        host = host_of(ranks, hosts)
        found = crossing(traffic, host)
        assert sorted(ranks) == list(range(hosts.size))
        assert found <= crossing(traffic, hosts)
        for u, v in combinations(range(1, hosts.size), 2):
            other = host.copy()
            other[[u, v]] = host[[v, u]]
            assert crossing(traffic, other) >= found
        if hosts.size == 6:
            assert found >= min(crossing(traffic, hosts[[0, *rest]]) for rest in permutations(range(1, 6)))


def test_the_rank_that_writes_stays_source_agent_0() -> None:
    """Also where it is alone on its host, and this agent is the one with most traffic."""
    traffic = np.array([[9.0, 9.0, 9.0], [1.0, 1.0, 1.0]])
    assert placed(traffic, np.array([5, 2, 2, 2, 2]))[0] == 0
    assert placed(traffic, np.array([5, 2, 2, 5, 2]))[0] == 0


@pytest.mark.parametrize("name", GRAPHS)
def test_never_worse_than_ranks_in_order(name: str) -> None:
    E = GRAPHS[name](8, 8, 4, 0).astype(float)
    hosts = np.repeat(np.arange(4), 4)
    for traffic in (E / E.sum(), E * np.random.default_rng(1).random(E.shape)):
        ranks = placed(traffic, hosts)
        assert sorted(ranks) == list(range(16))
        assert crossing(traffic, host_of(ranks, hosts)) <= crossing(traffic, hosts)


def test_parts_of_a_graph_that_fit_a_host_are_not_torn() -> None:
    """Four components of 2 + 2 agents, mixed up: nothing crosses."""
    draws = np.random.default_rng(5)
    left, right = draws.permutation(8) // 2, draws.permutation(8) // 2
    traffic = (left[:, None] == right).astype(float)
    hosts = draws.permutation(np.repeat(np.arange(4), 4))  # slots need not be in order, either
    assert crossing(traffic, host_of(placed(traffic, hosts), hosts)) == 0


def test_a_ring_over_four_hosts() -> None:
    E = GRAPHS["ring"](8, 8, 4, 0).astype(float)
    hosts = np.repeat(np.arange(4), 4)
    assert crossing(E, hosts) == 16
    assert crossing(E, host_of(placed(E, hosts), hosts)) == 4  # a cycle cut into four arcs: each arc has two ends


def test_traffic_of_an_edge() -> None:
    E = np.array([[0.5, 0.25], [0.25, 0.0]])
    rows = np.array([10.0, 20.0]), np.array([3.0, 4.0])
    np.testing.assert_array_equal(
        edge_traffic(E, rows, one_pass=True, asked=None, pairs=False), [[6.0, 8.0], [6.0, 0.0]]
    )
    np.testing.assert_array_equal(
        edge_traffic(E, rows, one_pass=False, asked=None, pairs=False), [[13.0, 14.0], [23.0, 0.0]]
    )
    # L = 1: an agent with two neighbours asks each in half of the rounds.
    np.testing.assert_array_equal(
        edge_traffic(E, rows, one_pass=False, asked=1, pairs=False), [[6.5, 12.0], [13.0, 0.0]]
    )
    np.testing.assert_array_equal(
        edge_traffic(E, rows, one_pass=False, asked=None, pairs=True), [[6.5, 3.5], [5.75, 0.0]]
    )
