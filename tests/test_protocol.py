"""E: named graphs, the text format, matching, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deot_mpi.errors import InputError
from deot_mpi.protocol import Protocol, choose_protocol
from deot_mpi.protocol.choose import read_protocol_file
from deot_mpi.protocol.graphs import GRAPHS, components
from deot_mpi.protocol.matching import match
from deot_mpi.protocol.textfile import parse_protocol


def uniform(n: int) -> np.ndarray:
    return np.full(n, 1.0 / n)


def choose(name: str, p: np.ndarray, q: np.ndarray, **changes: object) -> Protocol:
    options = {"degree": 4, "matched": False, "seed": 0, **changes}
    return choose_protocol(name, p, q, **options)  # type: ignore[arg-type]


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(sorted(set(GRAPHS) - {"sparse-directed"})), st.integers(1, 9), st.integers(1, 9), st.integers(2, 6)
)
def test_graphs_are_connected_and_reach_everybody(name: str, sources: int, targets: int, degree: int) -> None:
    protocol = choose(name, uniform(sources), uniform(targets), degree=degree)
    assert protocol.E.sum() == pytest.approx(1.0)
    assert protocol.report(None).connected


def test_the_papers_sparse_protocols() -> None:
    """8 + 8 agents, four neighbours: half of E is zero, E is symmetric; directed: the upper triangle as well is."""
    sparse = choose("sparse", uniform(8), uniform(8))
    assert (sparse.E == 0).mean() == 0.5
    np.testing.assert_array_equal(sparse.E, sparse.E.T)
    assert set(sparse.support.sum(axis=1)) == {4}
    directed = choose("sparse-directed", uniform(8), uniform(8))
    assert (np.triu(directed.E, 1) == 0).all()
    np.testing.assert_array_equal(directed.support, np.tril(sparse.support))


def test_degrees_of_the_named_graphs() -> None:
    p = uniform(8)
    assert set(choose("ring", p, p).support.sum(axis=1)) == {2}
    assert set(choose("random-regular", p, p, degree=3).support.sum(axis=0)) == {3}
    assert set(choose("exponential", p, p).support.sum(axis=1)) == {4}  # 0, 1, 2, 4
    assert sorted(choose("star", p, p).support.sum(axis=1)) == [1] * 7 + [8]
    assert choose("grid", p, p).support.sum() == 24  # edges of a 4 x 4 board
    assert choose("full", p, p).support.all()


def test_random_regular_is_owned_by_the_seed() -> None:
    p = uniform(8)
    again = [choose("random-regular", p, p, degree=3, seed=seed).E for seed in (1, 1, 2)]
    np.testing.assert_array_equal(again[0], again[1])
    assert (again[0] != again[2]).any()


def test_uniform_is_the_storage_protocol() -> None:
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.9, 0.1])
    protocol = choose("uniform", p, q)
    np.testing.assert_allclose(protocol.E, np.outer(p, q))
    assert protocol.sigma == pytest.approx(0, abs=1e-15)
    assert protocol.report(None).tau_sigma == 0


def test_report_names_the_agents_left_alone() -> None:
    E = np.array([[0.5, 0, 0], [0, 0, 0], [0, 0, 0.5]])
    report = Protocol("test", E, uniform(3), uniform(3)).report(2.0)
    assert (report.isolated_sources, report.isolated_targets, report.components) == ((1,), (1,), 2)
    assert not report.connected
    assert report.tau_sigma == pytest.approx(2.0 * report.sigma)


def test_components() -> None:
    assert components(np.eye(3, dtype=bool)) == 3
    chain = np.eye(6, dtype=bool) | np.eye(6, k=1, dtype=bool)
    assert components(chain) == 1
    assert components(chain[::-1]) == 1


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 6), st.integers(2, 6), st.integers(0, 1000))
def test_matching_meets_the_marginals_where_it_can(sources: int, targets: int, seed: int) -> None:
    """Edges of a plan with these marginals: exact marginals are feasible and must come out, with the smallest sigma."""
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.ones(sources)), rng.dirichlet(np.ones(targets))
    corner = np.maximum(
        0, np.minimum.outer(np.cumsum(p), np.cumsum(q)) - np.maximum.outer(np.cumsum(p) - p, np.cumsum(q) - q)
    )  # the north-west corner plan
    support = (corner > 1e-12) | (rng.random((sources, targets)) < 0.3)
    E = match(support, p, q)
    assert E.sum() == pytest.approx(1)
    np.testing.assert_allclose(E.sum(axis=1), p, atol=1e-8)
    np.testing.assert_allclose(E.sum(axis=0), q, atol=1e-8)
    assert (E[~support] == 0).all()
    assert np.abs(E - np.outer(p, q)).sum() == pytest.approx(smallest_sigma(support, p, q), abs=1e-7)


def smallest_sigma(support: np.ndarray, p: np.ndarray, q: np.ndarray) -> float:
    """min sum |e - p q^T| over e with marginals p, q on the support, with e = wish + over - under as the variables."""
    from scipy.optimize import linprog

    rows, columns = np.nonzero(support)
    sums = np.vstack([rows == i for i in range(p.size)] + [columns == j for j in range(q.size)]).astype(float)
    wish = p[rows] * q[columns]
    gap = np.concatenate([p, q]) - sums @ wish
    bounds = [(0, None)] * rows.size + [(0, value) for value in wish]
    outcome = linprog(
        np.ones(2 * rows.size), A_eq=np.hstack([sums, -sums]), b_eq=gap, bounds=bounds, method="highs-ipm"
    )
    return float(outcome.fun + 1.0 - wish.sum())


def test_matching_on_a_full_graph_is_the_storage_protocol() -> None:
    p, q = np.array([0.6, 0.4]), np.array([0.2, 0.3, 0.5])
    np.testing.assert_allclose(match(np.ones((2, 3), dtype=bool), p, q), np.outer(p, q), atol=1e-9)


def test_matching_reaches_the_smallest_mismatch() -> None:
    """Two sources, two targets, one missing edge: exact marginals leave one plan only."""
    p, q = np.array([0.7, 0.3]), np.array([0.5, 0.5])
    support = np.array([[True, True], [True, False]])
    np.testing.assert_allclose(match(support, p, q), [[0.2, 0.5], [0.3, 0.0]], atol=1e-8)


def test_matching_keeps_edges_alive_and_survives_the_infeasible() -> None:
    ring = GRAPHS["ring"](8, 8, 2, 0)
    assert (match(ring, uniform(8), uniform(8))[ring] > 0.05).all()
    one_edge = np.array([[True, False], [False, False]])
    np.testing.assert_allclose(match(one_edge, uniform(2), uniform(2)), [[1, 0], [0, 0]])


def test_text_format() -> None:
    text = "# clinics\nsource 0  targets 0,1\n\nSOURCE 1 targets 1-2  # a range\nsource 2 target all\n"
    support, weights = parse_protocol(text, 3, 3, "t")
    np.testing.assert_array_equal(support, [[1, 1, 0], [0, 1, 1], [1, 1, 1]])
    assert weights is None
    support, weights = parse_protocol("source 0 targets 0 weight=0.25\nsource 1 targets 0-1 weight = 0.375", 2, 2, "t")
    np.testing.assert_array_equal(weights, [[0.25, 0], [0.375, 0.375]])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no edge"),
        ("source 0 tragets 1", "line 1"),
        ("source 9 targets 0", "source 9 does not exist"),
        ("source 0 targets 0-7", "target 7 does not exist"),
        ("source 0 targets 0\nsource 1 targets 1 weight=1", "some lines have a weight"),
        ("source 0 targets 0,0", "twice"),
        ("source 0 targets 0 weight=-1", "positive"),
        ("source 0 targets 0 weight=abc", "not a number"),
        ("source 0 targets 1-", "line 1"),
        ("source 0 targets 1--2", "range"),
        ("source 0 targets 1-0", "backwards"),
    ],
)
def test_text_format_says_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_protocol(text, 2, 2, "t")


def test_files(tmp_path: Path) -> None:
    p = uniform(2)
    E = np.array([[0.5, 0.25], [0.0, 0.25]])
    np.save(tmp_path / "e.npy", E)
    np.savetxt(tmp_path / "e.csv", E, delimiter=",")
    (tmp_path / "e.txt").write_text(
        "source 0 targets 0 weight=0.5\nsource 0 targets 1 weight=0.25\nsource 1 targets 1 weight=0.25"
    )
    for name in ("e.npy", "e.csv", "e.txt"):
        path = str(tmp_path / name)
        np.testing.assert_array_equal(choose(path, p, p, text=read_protocol_file(path)).E, E)


@pytest.mark.parametrize(
    ("E", "words"),
    [
        (np.full((2, 2), 0.3), "sum to 1.2"),
        (np.full((3, 2), 1 / 6), r"shape \(3, 2\).*2 source and 2 target"),
        (np.array([[1.5, -0.5], [0, 0]]), "weight -0.5 between source 0 and target 1"),
        (np.array([[np.nan, 0.5], [0.5, 0]]), "weight nan"),
    ],
)
def test_bad_matrices_are_refused(E: np.ndarray, words: str) -> None:
    with pytest.raises(InputError, match=words):
        choose_protocol(E, uniform(2), uniform(2), degree=2, matched=False, seed=0)


def test_matching_does_not_hide_bad_weights() -> None:
    with pytest.raises(InputError, match="weight nan"):
        choose_protocol(np.array([[np.nan, 1.0], [1, 1]]), uniform(2), uniform(2), degree=2, matched=True, seed=0)


def test_degree_matters_only_where_it_is_used() -> None:
    assert choose("ring", uniform(4), uniform(4), degree=1).report(None).connected
    with pytest.raises(InputError, match="degree is 1"):
        choose("sparse", uniform(4), uniform(4), degree=1)


def test_tau_sigma_bounds_nothing_when_tau_is_not_positive() -> None:
    E = np.array([[0.5, 0.0], [0.0, 0.5]])
    assert Protocol("test", E, uniform(2), uniform(2)).report(-1.0).tau_sigma is None


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match="uniform, full, sparse"):
        read_protocol_file("no-such-graph")
