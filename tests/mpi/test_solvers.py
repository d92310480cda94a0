"""Convergence of the three solvers to an answer they did not compute, and why they stop."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from mpi4py import MPI
from problems import dense_answers, squared_distances
from rank_0 import on_rank_0

import deot_mpi
from deot_mpi.data.synthetic import SyntheticSet
from deot_mpi.roles import Role
from deot_mpi.solvers import Status


def mixture(comm: MPI.Intracomm, scatter: str, samples: int = 240) -> tuple[np.ndarray, str, float, float]:
    """The paper's mixtures over this job's agents; own rows, role, eps and the centralised dual objective."""
    count = comm.size // 2
    role, index = (Role.SOURCE, comm.rank) if comm.rank < count else (Role.TARGET, comm.rank - count)
    eps, expected = on_rank_0(comm, lambda: centralised(count, comm.size - count, scatter, samples))
    rows = mixtures(scatter, samples).share(role, index, count if role is Role.SOURCE else comm.size - count).rows
    return rows, role.value, eps, expected


def mixtures(scatter: str, samples: int) -> SyntheticSet:
    return SyntheticSet("mixture", samples, 5, scatter, seed=4)


@cache
def centralised(sources: int, targets: int, scatter: str, samples: int) -> tuple[float, float]:
    """eps and the dual objective of the pooled rows; several tests ask for the same."""
    x, y = (
        np.concatenate([mixtures(scatter, samples).share(role, k, agents).rows for k in range(agents)])
        for role, agents in ((Role.SOURCE, sources), (Role.TARGET, targets))
    )
    cost = squared_distances(x, y)
    eps = 0.1 * float(cost.mean())
    return eps, dense_answers(cost, np.full(cost.shape, 1 / cost.size), eps).dual_objective


@pytest.mark.mpi(min_size=16)
@pytest.mark.parametrize("scatter", ["iid", "component"])
def test_kept_sums_with_one_neighbour_are_exact(comm: MPI.Intracomm, scatter: str) -> None:
    """L = 1, 8 + 8 agents: below 1e-3 in 200 rounds, non-i.i.d. as well."""
    rows, role, eps, expected = mixture(comm, scatter)
    result = deot_mpi.eot(
        comm, rows, role, kernel="raw", eps=eps, solver="kept", neighbours=1, rounds=200, tol=0.0, timeout=60.0
    )
    assert result.rounds == 200
    assert abs(result.dual_objective / expected - 1) < 1e-6


@pytest.mark.mpi(min_size=7)
@pytest.mark.parametrize(
    ("neighbours", "limit", "scatter"),  # the easier half with fewer ranks, which takes less
    [
        pytest.param(1, 3e-2, "iid", marks=pytest.mark.mpi(max_size=7)),
        pytest.param(1, 3e-2, "component", marks=pytest.mark.mpi(min_size=16)),
        pytest.param(4, 3e-3, "component", marks=pytest.mark.mpi(min_size=16)),
        pytest.param(8, 1e-4, "component", marks=pytest.mark.mpi(max_size=7)),
    ],
)
def test_mrbcd_approaches_the_reference(comm: MPI.Intracomm, neighbours: int, limit: float, scatter: str) -> None:
    rows, role, eps, expected = mixture(comm, scatter)
    result = deot_mpi.eot(
        comm, rows, role, kernel="raw", eps=eps, solver="mrbcd", neighbours=neighbours, rounds=300, tol=0.0,
        check_every=50, timeout=60.0,
    )  # fmt: skip
    errors = [abs(point.objective / expected - 1) for point in result.trace]
    assert errors[-1] < limit
    assert errors[-1] < 0.05 * errors[0]
    assert result.dual_objective <= expected * (1 + 1e-9), "F never exceeds its supremum"


@pytest.mark.mpi(min_size=4, max_size=7)
@pytest.mark.parametrize("pairs", [1, 3])
def test_mrbcd_with_the_papers_pairs(comm: MPI.Intracomm, pairs: int) -> None:
    """B pairs per round: slower per round, since most agents rest, and the same limit."""
    rows, role, eps, expected = mixture(comm, "iid", samples=80)
    busy = comm.size // 2
    result = deot_mpi.eot(
        comm, rows, role, kernel="raw", eps=eps, solver="mrbcd", pairs=pairs, rounds=400 * busy // pairs, tol=0.0,
        check_every=200, timeout=60.0,
    )  # fmt: skip
    assert abs(result.dual_objective / expected - 1) < 1e-2


@pytest.mark.mpi(min_size=2, max_size=4)
@pytest.mark.parametrize("solver", ["sinkhorn", "kept", "mrbcd"])
def test_solvers_agree_with_each_other_and_say_why_they_stop(comm: MPI.Intracomm, solver: str) -> None:
    rows, role, eps, expected = mixture(comm, "iid", samples=64)
    common = {"kernel": "raw", "eps": eps, "solver": solver, "timeout": 60.0}
    stopped = deot_mpi.eot(comm, rows, role, **common, rounds=3, tol=1e-9)
    assert (stopped.status, stopped.rounds) == (Status.ROUNDS, 3)
    assert not stopped.status.converged
    limit = {"sinkhorn": 1e-9, "kept": 1e-9, "mrbcd": 1e-5}[solver]
    by_error = deot_mpi.eot(comm, rows, role, **common, rounds=3000, tol=limit)
    assert by_error.status is Status.MARGINAL
    assert by_error.marginal_error <= limit
    assert by_error.dual_objective == pytest.approx(expected, rel=1e-6)
    by_change = deot_mpi.eot(comm, rows, role, **common, rounds=3000, tol=limit, stop="change")
    assert by_change.status is Status.CHANGE
    assert by_change.trace[-1].change <= limit
    assert by_change.dual_objective == pytest.approx(expected, rel=1e-6)
    assert all(point.change > limit for point in by_change.trace[:-1])


@pytest.mark.mpi(min_size=4, max_size=4)
def test_change_waits_until_every_neighbour_was_heard(comm: MPI.Intracomm) -> None:
    """One far cluster per agent: with L = 1, the rounds in which nobody hears its dominant neighbour change nothing."""
    count = comm.size // 2
    place = comm.rank if comm.rank < count else comm.rank - count
    rows = np.random.default_rng(comm.rank).normal(size=(6, 2)) + 10.0 * place
    common = {"kernel": "raw", "eps": 1.0, "timeout": 60.0, "rounds": 5000}
    exact = deot_mpi.eot(comm, rows, "source" if comm.rank < count else "target", tol=1e-10, **common)
    kept = deot_mpi.eot(
        comm,
        rows,
        "source" if comm.rank < count else "target",
        solver="kept",
        neighbours=1,
        stop="change",
        tol=1e-10,
        **common,
    )
    assert kept.status is Status.CHANGE
    assert kept.dual_objective == pytest.approx(exact.dual_objective, rel=1e-8)


@pytest.mark.mpi(min_size=2, max_size=4)
def test_small_steps_are_not_convergence(comm: MPI.Intracomm) -> None:
    rows, role, eps, _ = mixture(comm, "iid", samples=64)
    result = deot_mpi.eot(
        comm, rows, role, kernel="raw", eps=eps, solver="mrbcd", eta=1e-9, stop="change", rounds=20, timeout=60.0
    )
    assert result.status is Status.ROUNDS


@pytest.mark.mpi(min_size=2, max_size=4)
def test_divergence_is_named(comm: MPI.Intracomm) -> None:
    rows, role, eps, _ = mixture(comm, "iid", samples=64)
    result = deot_mpi.eot(comm, rows, role, kernel="raw", eps=eps, solver="mrbcd", eta=1e300, rounds=50, timeout=60.0)
    assert result.status is Status.DIVERGED
    assert not result.status.converged


@pytest.mark.mpi(min_size=2)
def test_trace_grows_in_rounds_and_bytes_and_the_objective_never_falls(comm: MPI.Intracomm) -> None:
    """Block maximisation: F rises with every round, up to rounding."""
    rows, role, eps, expected = mixture(comm, "iid", samples=64)
    result = deot_mpi.eot(comm, rows, role, kernel="raw", eps=eps, rounds=60, tol=0.0, check_every=1, timeout=60.0)
    assert [point.round for point in result.trace] == list(range(1, 61))
    objectives = np.array([point.objective for point in result.trace])
    assert (np.diff(objectives) >= -1e-12 * abs(expected)).all()
    assert (np.diff([point.bytes for point in result.trace]) > 0).all()
    assert (np.diff([point.seconds for point in result.trace]) > 0).all()
    assert result.trace[-1].objective == pytest.approx(result.dual_objective, rel=1e-9)


@pytest.mark.mpi(min_size=2, max_size=4)
def test_sketches_come_near_and_nearer_with_more_bits(comm: MPI.Intracomm) -> None:
    rows, role, eps, expected = mixture(comm, "iid", samples=160)
    errors = {}
    for bits in (40, 4000):
        found = [
            deot_mpi.eot(comm, rows, role, eps=eps, bits=bits, seed=seed, timeout=60.0).dual_objective
            for seed in range(5)
        ]
        errors[bits] = np.mean(np.abs(np.array(found) / expected - 1))
    assert errors[4000] < 0.01
    assert errors[4000] < errors[40] / 3


@pytest.mark.mpi(min_size=2)
def test_data_far_from_the_origin_is_no_worse(comm: MPI.Intracomm) -> None:
    """Centring: a common offset changes nothing, in the sketch as in the raw kernel."""
    rows, role, eps, _ = mixture(comm, "iid", samples=64)
    near, far = (deot_mpi.eot(comm, rows + offset, role, eps=eps, bits=256, timeout=60.0) for offset in (0.0, 1e4))
    assert far.dual_objective == pytest.approx(near.dual_objective, rel=1e-6)


@pytest.mark.mpi(min_size=2, max_size=7)
def test_reference_decomposes_the_error(comm: MPI.Intracomm) -> None:
    rows, role, eps, expected = mixture(comm, "iid", samples=64)
    result = deot_mpi.eot(comm, rows, role, eps=eps, bits=128, protocol="star", reference=True, rounds=40, timeout=60.0)
    assert result.reference is not None
    assert result.errors is not None
    errors = result.errors
    assert result.reference.centralised.dual_objective == pytest.approx(expected, rel=1e-9)
    assert errors.total <= errors.mismatch + errors.kernel + errors.algorithm + 1e-12
    assert errors.total == pytest.approx(abs(result.dual_objective - expected), rel=1e-6, abs=1e-9)
    assert errors.mismatch_bound >= errors.mismatch
    assert result.reference.solver.startswith("POT")
    assert result.reference.error <= 1e-10
    assert errors.kernel > 0
    assert errors.kernel_bound > errors.kernel
    assert result.protocol.tau_pairs == "all"
    exact = deot_mpi.eot(comm, rows, role, eps=eps, kernel="raw", reference=True, tol=1e-10, timeout=60.0)
    assert exact.errors is not None
    assert exact.errors.total < 1e-8 * abs(expected)
    assert exact.errors.mismatch == exact.errors.kernel == 0.0
