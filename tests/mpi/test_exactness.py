"""The decentralised result against POT, a dense solution and closed forms, on real ranks."""

from __future__ import annotations

import numpy as np
import pytest
from examples import told_examples
from mpi4py import MPI
from problems import (
    Answers,
    Floats,
    dense_answers,
    gaussian_quadrature,
    gaussian_regularised_cost,
    pot_answers,
    scattered,
    squared_distances,
)
from rank_0 import on_rank_0

import deot_mpi
from deot_mpi import EOTResult

EXACT = {"kernel": "raw", "tol": 1e-11, "rounds": 100_000, "check_every": 100, "timeout": 60.0}
NAMES = ("dual_objective", "regularised_cost", "transport_cost", "entropy_cost")


def role_of(rank: int, sources: int) -> str:
    return "source" if rank < sources else "target"


def check(result: EOTResult, expected: Answers, relative: float) -> None:
    """All four values, each against the size of the costs it is made of."""
    scale = max(abs(expected.transport_cost), abs(expected.regularised_cost))
    for name in NAMES:
        assert getattr(result, name) == pytest.approx(getattr(expected, name), abs=relative * scale), name


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize(
    "share",  # the smallest takes thousands of rounds, too many where ranks share cores
    [5.0, 0.5, 0.05, pytest.param(0.005, marks=pytest.mark.mpi(min_size=2, max_size=4))],
)
@pytest.mark.parametrize("sources", ["half", pytest.param("one", marks=pytest.mark.mpi(min_size=3))])  # of 2, the same
def test_uniform_raw_equals_pot_on_the_pooled_samples(comm: MPI.Intracomm, share: float, sources: str) -> None:
    """Unequal blocks, I != J, eps from 5 down to 0.005 of the median cost: four values to 1e-8."""
    count = 1 if sources == "one" else max(1, comm.size // 2)
    blocks = [scattered(2, rank, count, base=20 if comm.size < 8 else 4) for rank in range(comm.size)]
    x, y = np.concatenate(blocks[:count]), np.concatenate(blocks[count:])
    eps = share * float(np.median(squared_distances(x, y)))
    result = deot_mpi.eot(comm, blocks[comm.rank], role_of(comm.rank, count), eps=eps, **EXACT)
    if comm.rank == 0:
        a, b = np.full(len(x), 1 / len(x)), np.full(len(y), 1 / len(y))
        check(result, pot_answers(x, y, a, b, eps), 1e-8)


@pytest.mark.mpi(min_size=3)
def test_weights_equal_pot_with_these_weights(comm: MPI.Intracomm) -> None:
    count = max(1, comm.size // 3)
    blocks = [scattered(1, rank, count, base=5) for rank in range(comm.size)]
    weights = [np.random.default_rng([7, rank]).uniform(0.1, 2.0, size=len(rows)) for rank, rows in enumerate(blocks)]
    mine = weights[comm.rank]
    if comm.rank == comm.size - 1:
        weights[comm.rank] = np.ones(len(blocks[comm.rank]))
    result = deot_mpi.eot(
        comm, blocks[comm.rank], role_of(comm.rank, count), eps=0.7, **EXACT,
        weights=None if comm.rank == comm.size - 1 else mine,
    )  # fmt: skip
    weights[-1] = np.ones(len(blocks[-1]))  # the last agent gave none: its rows weigh 1 each
    x, y = np.concatenate(blocks[:count]), np.concatenate(blocks[count:])
    a, b = np.concatenate(weights[:count]), np.concatenate(weights[count:])
    if comm.rank == 0:
        check(result, pot_answers(x, y, a / a.sum(), b / b.sum(), 0.7), 1e-8)


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize(
    "protocol",
    [
        "ring",
        "matrix",
        *(pytest.param(name, marks=pytest.mark.mpi(max_size=7)) for name in ("star", "sparse-directed", "full")),
    ],
)
@pytest.mark.parametrize("solver", ["sinkhorn", "kept"])
def test_any_protocol_equals_the_dense_weighted_problem(comm: MPI.Intracomm, protocol: str, solver: str) -> None:
    count = comm.size // 2
    blocks = [scattered(2, rank, count, base=3) for rank in range(comm.size)]
    E: str | np.ndarray = protocol
    if protocol == "matrix":  # an arbitrary one, with an agent left alone
        rng = np.random.default_rng(3)
        E = rng.random((count, comm.size - count)) * (rng.random((count, comm.size - count)) < 0.6)
        E[0, :] += 0.2
        E[-1, :] = 0.0
        E /= E.sum()
    eps = 1.5
    extra = {"neighbours": 1} if solver == "kept" else {}
    result = deot_mpi.eot(
        comm, blocks[comm.rank], role_of(comm.rank, count), eps=eps, solver=solver, protocol=E, **EXACT, **extra
    )
    if comm.rank == 0:
        masses = {(a.role, a.index): a for a in result.agents}
        used = np.zeros((count, comm.size - count))
        if protocol == "matrix":
            used = np.asarray(E)
            assert masses["source", count - 1].neighbours == 0
            assert any("no partner" in note for note in result.notes)
        else:
            from deot_mpi.protocol import choose_protocol

            sizes = np.array([len(rows) for rows in blocks], dtype=float)
            p, q = sizes[:count] / sizes[:count].sum(), sizes[count:] / sizes[count:].sum()
            used = choose_protocol(protocol, p, q, degree=4, matched=False, seed=0).E
        x, y = np.concatenate(blocks[:count]), np.concatenate(blocks[count:])
        rows = np.repeat(np.arange(count), [len(b) for b in blocks[:count]])
        columns = np.repeat(np.arange(comm.size - count), [len(b) for b in blocks[count:]])
        inner = np.array([1 / len(blocks[i]) for i in rows])[:, None] * np.array(
            [1 / len(blocks[count + j]) for j in columns]
        )
        check(result, dense_answers(squared_distances(x, y), used[rows][:, columns] * inner, eps), 1e-8)
        assert result.status.converged


@pytest.mark.mpi(min_size=2, max_size=7)
@pytest.mark.parametrize("dimension", [1, 2])
@pytest.mark.parametrize("eps", [1.0, 3.0, 10.0])
def test_gaussians_have_their_closed_form(comm: MPI.Intracomm, dimension: int, eps: float) -> None:
    """Quadrature points with weights stand for two Gaussians; the KL form has a formula (Janati et al. 2020)."""
    rng = np.random.default_rng(dimension)
    roots = [np.eye(dimension) + 0.3 * rng.normal(size=(dimension, dimension)) for _ in range(2)]
    covariances = [root @ root.T for root in roots]
    means = [np.zeros(dimension), np.full(dimension, 0.8)]
    count = max(1, comm.size // 2)
    domain = 0 if comm.rank < count else 1
    members, place = (count, comm.rank) if domain == 0 else (comm.size - count, comm.rank - count)
    points, weights = gaussian_quadrature(means[domain], covariances[domain], nodes=100 if dimension == 1 else 24)
    mine = np.arange(len(points)) % members == place
    result = deot_mpi.eot(
        comm, points[mine], role_of(comm.rank, count), weights=weights[mine], eps=eps, **{**EXACT, "tol": 1e-12}
    )
    given = means[0], covariances[0], means[1], covariances[1]
    expected = on_rank_0(comm, lambda: gaussian_regularised_cost(*given, eps))
    assert result.regularised_cost == pytest.approx(expected, rel=1e-6)  # the quadrature is that good


@pytest.mark.mpi(min_size=2, max_size=7)
def test_diracs(comm: MPI.Intracomm) -> None:
    """All mass in one point on each side: the plan is forced, and every value follows from the one cost."""
    for dimension, eps, place, sketched in told_examples(
        comm,
        8,
        lambda st: (
            st.integers(1, 4), st.floats(0.05, 20), st.lists(st.floats(-50, 50), min_size=8, max_size=8), st.booleans(),
        ),
    ):  # fmt: skip
        _check_dirac(comm, dimension, eps, place, sketched)


def _check_dirac(comm: MPI.Intracomm, dimension: int, eps: float, place: list[float], sketched: bool) -> None:
    count = max(1, comm.size // 2)
    here, there = np.array(place[:dimension]), np.array(place[4 : 4 + dimension])
    rows = np.tile(here if comm.rank < count else there, (1 + comm.rank % 3, 1))
    kernel = {"kernel": "sketch", "bits": 64, "correction": False} if sketched else {"kernel": "raw"}
    result = deot_mpi.eot(comm, rows, role_of(comm.rank, count), eps=eps, timeout=60.0, **kernel)
    # Centred, the two points are opposite: bits differ everywhere, so the sketch is exact as well.
    cost = float(((here - there) ** 2).sum())
    scale = 1e-9 * max(cost, eps, float(here @ here), float(there @ there))
    assert result.transport_cost == pytest.approx(cost, abs=scale)
    assert result.regularised_cost == pytest.approx(cost, abs=scale)
    assert result.dual_objective == pytest.approx(cost - eps, abs=scale)


@pytest.mark.mpi(min_size=2, max_size=4)
def test_shifting_one_domain_changes_the_cost_by_what_geometry_says(comm: MPI.Intracomm) -> None:
    """c(x, y+s) = c(x, y) + |s|^2 + 2 <s, y-x>: the plan stays, the cost moves by |s|^2 + 2 <s, mean y - mean x>."""
    for shift, eps in told_examples(
        comm, 6, lambda st: (st.lists(st.floats(-30, 30), min_size=3, max_size=3), st.floats(0.5, 10))
    ):
        _check_shift(comm, np.array(shift), eps)


def _check_shift(comm: MPI.Intracomm, shift: Floats, eps: float) -> None:
    count = max(1, comm.size // 2)
    blocks = [scattered(5, rank, count, base=3) for rank in range(comm.size)]
    x, y = np.concatenate(blocks[:count]), np.concatenate(blocks[count:])
    exact = {**EXACT, "tol": 1e-10, "rounds": 3000}
    rows, role = blocks[comm.rank], role_of(comm.rank, count)
    moved = deot_mpi.eot(comm, rows + shift * (comm.rank >= count), role, eps=eps, **exact)
    still = deot_mpi.eot(comm, rows, role, eps=eps, **exact)
    expected = float(shift @ shift + 2 * shift @ (y.mean(axis=0) - x.mean(axis=0)))
    tolerance = 1e-8 * max(1.0, float(shift @ shift))
    for name in NAMES:
        assert getattr(moved, name) - getattr(still, name) == pytest.approx(expected, abs=tolerance), name


@pytest.mark.mpi(min_size=2)
def test_exchanging_the_roles_changes_nothing(comm: MPI.Intracomm) -> None:
    count = max(1, comm.size // 2)
    rows = scattered(6, comm.rank, count, base=4)
    one, other = (
        deot_mpi.eot(comm, rows, role, eps=1.0, **EXACT)
        for role in (("source", "target") if comm.rank < count else ("target", "source"))
    )
    for name in NAMES:
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-9), name


@pytest.mark.mpi(min_size=2)
def test_eps_scale_is_a_share_of_the_mean_cost(comm: MPI.Intracomm) -> None:
    count = max(1, comm.size // 2)
    blocks = [scattered(8, rank, count) + 100.0 for rank in range(comm.size)]
    result = deot_mpi.eot(
        comm, blocks[comm.rank], role_of(comm.rank, count), eps_scale=0.25, kernel="raw", timeout=60.0
    )
    mean = squared_distances(np.concatenate(blocks[:count]), np.concatenate(blocks[count:])).mean()
    assert result.eps == pytest.approx(0.25 * mean, rel=1e-12)


@pytest.mark.mpi(min_size=2, max_size=4)
@pytest.mark.parametrize("scale", [1e-20, 1e-12, 1e12, 1e20])
@pytest.mark.parametrize("centre", [True, False])
def test_eps_scale_does_not_depend_on_the_units(comm: MPI.Intracomm, scale: float, centre: bool) -> None:
    count = max(1, comm.size // 2)
    blocks = [scale * (scattered(8, rank, count) + 1000.0) for rank in range(comm.size)]
    result = deot_mpi.eot(
        comm,
        blocks[comm.rank],
        role_of(comm.rank, count),
        eps_scale=0.5,
        kernel="raw",
        centre=centre,
        timeout=60.0,
        rounds=2,
    )
    mean = squared_distances(np.concatenate(blocks[:count]), np.concatenate(blocks[count:])).mean()
    assert result.eps == pytest.approx(0.5 * mean, rel=1e-9)


@pytest.mark.mpi(min_size=2, max_size=4)
@pytest.mark.parametrize("far", [1e6, 1e8])
def test_far_rows_do_not_cost_the_near_ones_their_digits(comm: MPI.Intracomm, far: float) -> None:
    """Two clusters far apart in both domains: each is matched within itself, to all digits of its own distances."""
    count = max(1, comm.size // 2)
    blocks = [
        np.vstack([rows - far, rows[:2] + far]) for rows in (scattered(8, r, count, base=4) for r in range(comm.size))
    ]
    result = deot_mpi.eot(
        comm, blocks[comm.rank], role_of(comm.rank, count), eps=1.0, kernel="raw", timeout=60.0, rounds=3
    )
    potentials = comm.allgather(result.potential)
    x, y = np.concatenate(blocks[:count]), np.concatenate(blocks[count:])
    u, v = np.concatenate(potentials[:count]), np.concatenate(potentials[count:])
    cost = squared_distances(x, y)
    plan = np.exp(u[:, None] + v[None, :] - cost) / cost.size
    assert result.transport_cost == pytest.approx((plan * cost).sum(), rel=1e-6)


@pytest.mark.mpi(min_size=2)
def test_potentials_are_in_cost_units_and_give_the_plan(comm: MPI.Intracomm) -> None:
    """pi = R exp((u + v - c)/eps) has the right marginals when rebuilt from the potentials the agents hold."""
    count = max(1, comm.size // 2)
    blocks = [scattered(9, rank, count, base=4) for rank in range(comm.size)]
    result = deot_mpi.eot(comm, blocks[comm.rank], role_of(comm.rank, count), eps=0.9, **EXACT)
    potentials = comm.allgather(result.potential)
    x, y = np.concatenate(blocks[:count]), np.concatenate(blocks[count:])
    u, v = np.concatenate(potentials[:count]), np.concatenate(potentials[count:])
    plan = np.exp((u[:, None] + v[None, :] - squared_distances(x, y)) / 0.9) / (len(x) * len(y))
    np.testing.assert_allclose(plan.sum(axis=1), 1 / len(x), rtol=1e-8)
    np.testing.assert_allclose(plan.sum(axis=0), 1 / len(y), rtol=1e-8)
    assert result.marginal_error < 1e-9
