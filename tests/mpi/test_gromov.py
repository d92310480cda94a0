"""Gromov-Wasserstein against POT, closed forms and finite differences, on real ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from problems import answers_of_plan, squared_distances

import deot_mpi
from deot_mpi import GromovResult
from deot_mpi.kinds import Kind

EXACT: dict[str, Any] = {"kernel": "raw", "tol": 1e-10, "starts": 1, "inner": 20_000, "timeout": 60.0}


class Clouds:
    """Two clouds in 2 and 3 dimensions, scattered in unequal blocks; every rank knows all of it, to compare."""

    def __init__(self, comm: MPI.Intracomm, seed: int = 0, count: int = 40, features: int = 0) -> None:
        rng = np.random.default_rng([31, seed])
        self.comm, self.sources = comm, max(1, comm.size // 2)
        count = max(count, 3 * comm.size)
        self.x = rng.normal(size=(count, 2)) * [1.3, 0.7] + 3.0
        self.y = rng.normal(size=(count + 5, 3)) * [1.2, 0.8, 0.5] - 1.0
        self.f, self.g = rng.normal(size=(count, features)), rng.normal(size=(count + 5, features)) + 0.5
        self.start = rng.normal(size=(2, 3)) * 0.3

    @property
    def is_source(self) -> bool:
        return self.comm.rank < self.sources

    def own(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """This rank's rows: the first agent of a role has more than the others."""
        rows, members, index = source, self.sources, self.comm.rank
        if not self.is_source:
            rows, members, index = target, self.comm.size - self.sources, self.comm.rank - self.sources
        first = len(rows) // 3 if members > 1 else 0
        return [rows[:first], *np.array_split(rows[first:], max(members - 1, 1))][index + (members == 1)]

    def run(self, x: np.ndarray | None = None, y: np.ndarray | None = None, **options: Any) -> GromovResult:
        rows = self.own(self.x if x is None else x, self.y if y is None else y)
        role = "source" if self.is_source else "target"
        if self.f.shape[1]:
            options["features"] = self.own(self.f, self.g)
        return deot_mpi.gromov(self.comm, rows, role, **{**EXACT, "alignment": self.start, **options})

    def pot(self, result: GromovResult, a: np.ndarray | None = None, b: np.ndarray | None = None) -> dict[str, float]:
        """POT's PGD from the plan that belongs to P, and the four values of the plan it ends with."""
        import ot  # slow to import, and most ranks never need it

        x, y, eps, alpha = self.x, self.y, result.eps, result.alpha
        a, b = (np.full(len(z), 1 / len(z)) if w is None else w for z, w in ((x, a), (y, b)))
        x, y = x - a @ x, y - b @ y
        linear = squared_distances(self.f, self.g) if self.f.shape[1] else np.zeros((len(x), len(y)))
        cost = -4 * np.outer((x**2).sum(1), (y**2).sum(1)) - 32 * x @ result.alignment @ y.T
        cost = alpha * cost + (1 - alpha) * linear
        strict = {"numItermax": 100_000, "stopThr": 1e-14}
        first = ot.sinkhorn(a, b, cost, eps, method="sinkhorn_log", warn=False, numItermax=3000)  # near is enough
        c1, c2 = squared_distances(x, x), squared_distances(y, y)
        plan = ot.gromov.entropic_fused_gromov_wasserstein(
            linear, c1, c2, a, b, "square_loss", epsilon=eps, alpha=alpha, G0=first, solver="PGD", max_iter=3000,
            tol=1e-14, warn=False, **strict,
        )  # fmt: skip
        structure = a @ c1**2 @ a + b @ c2**2 @ b - 2 * ((c1 @ plan @ c2) * plan).sum()
        whole = alpha * structure + (1 - alpha) * (plan * linear).sum()
        found = answers_of_plan(plan, np.full(plan.shape, whole), np.outer(a, b), eps)
        return vars(found)


def check(result: GromovResult, expected: dict[str, float], relative: float) -> None:
    scale = abs(expected["regularised_cost"])
    for name, value in expected.items():
        assert getattr(result, name) == pytest.approx(value, abs=relative * scale), name


@pytest.mark.mpi(min_size=2, max_size=4)
@pytest.mark.parametrize("share", [0.5, 0.1, 0.03])
def test_raw_equals_pot_at_the_same_optimum(comm: MPI.Intracomm, share: float) -> None:
    """All four values to 1e-6 of the cost; which local optimum it is depends on the start, so both start alike."""
    clouds = Clouds(comm)
    result = clouds.run(eps_scale=share)
    assert result.status == "marginal"
    if comm.rank == 0:
        check(result, clouds.pot(result), 1e-6)


@pytest.mark.mpi(min_size=3, max_size=3)
def test_weights_equal_pot_with_these_weights(comm: MPI.Intracomm) -> None:
    clouds = Clouds(comm)
    rng = np.random.default_rng(5)
    a, b = rng.uniform(0.2, 2.0, size=len(clouds.x)), rng.uniform(0.2, 2.0, size=len(clouds.y))
    result = clouds.run(eps_scale=0.1, weights=clouds.own(a, b))
    if comm.rank == 0:
        check(result, clouds.pot(result, a / a.sum(), b / b.sum()), 1e-6)


@pytest.mark.mpi(min_size=4, max_size=4)
@pytest.mark.parametrize("alpha", [0.2, 0.5, 0.9])
def test_fused_equals_pot(comm: MPI.Intracomm, alpha: float) -> None:
    clouds = Clouds(comm, features=4)
    result = clouds.run(eps_scale=0.1, alpha=alpha)
    assert result.alpha == alpha
    if comm.rank == 0:
        check(result, clouds.pot(result), 1e-6)


@pytest.mark.mpi(min_size=2, max_size=2)
def test_the_gradient_is_that_of_the_objective(comm: MPI.Intracomm) -> None:
    """64 P - 32 M against central differences of 32 |P|^2 + max F, whose error is O(h^2)."""
    clouds, h = Clouds(comm, count=25), 1e-4

    def at(alignment: np.ndarray) -> GromovResult:
        return clouds.run(eps=4.0, alignment=alignment, outer=1, tol=1e-12)

    def objective(alignment: np.ndarray) -> float:
        return at(alignment).dual_objective

    duals = at(clouds.start).potential
    moved = clouds.run(eps=4.0, start=duals, outer=2, p_update="gradient", eta=1.0, tol=1e-12).alignment  # M/2
    gradient = 64 * clouds.start - 64 * moved
    for place in np.ndindex(2, 3):
        unit = np.zeros((2, 3))
        unit[place] = h
        difference = (objective(clouds.start + unit) - objective(clouds.start - unit)) / (2 * h)
        assert gradient[place] == pytest.approx(difference, rel=1e-5, abs=1e-5 * np.abs(gradient).max())


@pytest.mark.mpi(min_size=4, max_size=4)
def test_rotations_shifts_and_order_do_not_matter(comm: MPI.Intracomm) -> None:
    clouds, rng = Clouds(comm), np.random.default_rng(8)
    plain = clouds.run(eps=4.0)
    turns = [np.linalg.qr(rng.normal(size=(d, d)))[0] for d in (2, 3)]
    order = [rng.permutation(len(z)) for z in (clouds.x, clouds.y)]
    x, y = (
        z[o] @ t + 50.0 * rng.normal(size=z.shape[1])
        for z, o, t in zip((clouds.x, clouds.y), order, turns, strict=True)
    )
    moved = clouds.run(x, y, eps=4.0, alignment=turns[0].T @ clouds.start @ turns[1])
    for name in ("dual_objective", "regularised_cost", "transport_cost", "entropy_cost"):
        assert getattr(moved, name) == pytest.approx(getattr(plain, name), rel=1e-6), name
    np.testing.assert_allclose(turns[0] @ moved.alignment @ turns[1].T, plain.alignment, atol=1e-6)


@pytest.mark.mpi(min_size=2, max_size=2)
def test_isometric_clouds_have_no_distance_as_eps_goes_to_zero(comm: MPI.Intracomm) -> None:
    """Y is X turned in a larger space: some start must find that, and the cost falls with eps, to 0."""
    clouds, rng = Clouds(comm), np.random.default_rng(3)
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0][:2]
    costs = []
    for share in (0.1, 0.01, 0.001):
        result = clouds.run(
            y=clouds.x @ turn, eps_scale=share, starts=4, tol=1e-7, alignment=None, outer=100, inner=3000
        )
        costs.append(result.transport_cost / (result.eps / share))  # over the cost without any matching
    assert costs[0] > costs[1] > costs[2]
    assert costs[2] < 1e-3


@pytest.mark.mpi(min_size=2, max_size=2)
def test_sketches_approach_the_raw_value(comm: MPI.Intracomm) -> None:
    """More bits, nearer; at 10,000 within 1 % (the error of an angle is about 1/sqrt(Q) rad)."""
    clouds = Clouds(comm)
    options = {"eps": 4.0, "tol": 1e-6, "outer": 40}
    exact = clouds.run(**options)
    private = {"kernel": "sketch", "alignment": exact.alignment}
    off = [
        np.mean([abs(clouds.run(**options | private, bits=bits, seed=s).regularised_cost - exact.regularised_cost)
                 for s in range(2)])
        for bits in (10, 300, 10_000)
    ]  # fmt: skip
    assert off[0] > off[1] > off[2]
    assert off[2] < 0.01 * exact.regularised_cost


@pytest.mark.mpi(min_size=3, max_size=3)
@pytest.mark.parametrize("moment", ["surrogate", "exchange"])
def test_private_moments_lead_where_samples_would(comm: MPI.Intracomm, moment: str) -> None:
    """With many bits, P from bits alone, or from sums of rows, is P from samples to a few per cent."""
    clouds = Clouds(comm)
    options = {"eps": 4.0, "tol": 1e-6, "outer": 40}
    exact = clouds.run(**options)
    result = clouds.run(**options, kernel="sketch", bits=8000, moment=moment, alignment=exact.alignment)
    assert np.linalg.norm(result.alignment - exact.alignment) < 0.05 * np.linalg.norm(exact.alignment)


@pytest.mark.mpi(min_size=4, max_size=4)
@pytest.mark.parametrize(("update", "relative"), [("gradient", 1e-3), ("sampled", 2e-2)])
def test_every_update_of_p_goes_to_the_same_optimum(comm: MPI.Intracomm, update: str, relative: float) -> None:
    """Steps of eta/sqrt(t+1) come near the closed form's end; sampled ones up to the noise of their last steps."""
    clouds = Clouds(comm)
    options = {"eps": 4.0, "tol": 1e-6}
    closed = clouds.run(**options)
    away = closed.alignment + 0.3 * clouds.start
    other = clouds.run(**options, p_update=update, outer=150, alignment=away)
    assert not np.allclose(other.alignment, away, atol=0.01)
    assert other.regularised_cost == pytest.approx(closed.regularised_cost, rel=relative)


@pytest.mark.mpi(min_size=7)
@pytest.mark.parametrize(
    "neighbours",  # one of 3 or 4, and four of 8: one of 8 takes twice as long
    [pytest.param(1, marks=pytest.mark.mpi(max_size=7)), pytest.param(4, marks=pytest.mark.mpi(min_size=16))],
)
def test_kept_sums_are_exact_with_few_neighbours(comm: MPI.Intracomm, neighbours: int) -> None:
    """L = 1 or 4 of the targets per round: the value of the one-pass solver."""
    clouds = Clouds(comm)
    options = {"eps": 6.0, "tol": 1e-6, "outer": 60, "timeout": 120.0}
    whole = clouds.run(**options)
    few = clouds.run(**options, solver="kept", neighbours=neighbours)
    assert few.status == whole.status == "marginal"
    assert few.regularised_cost == pytest.approx(whole.regularised_cost, rel=1e-6)


@pytest.mark.mpi(min_size=4, max_size=4)
def test_the_papers_algorithm_comes_near(comm: MPI.Intracomm) -> None:
    """MRBCD within, sampled steps without, sketches on the wire: Algorithm 4 as it is printed, to a few per cent."""
    clouds = Clouds(comm)
    exact = clouds.run(eps=6.0, tol=1e-6)
    paper = clouds.run(
        eps=6.0, kernel="sketch", bits=4000, solver="mrbcd", neighbours=1, p_update="sampled", outer=20, inner=100,
        tol=1e-6, alignment=exact.alignment,
    )  # fmt: skip
    assert paper.regularised_cost == pytest.approx(exact.regularised_cost, rel=0.05)


@pytest.mark.mpi(min_size=2, max_size=7)
def test_self_terms_are_the_sums_over_all_pairs(comm: MPI.Intracomm) -> None:
    clouds = Clouds(comm)
    result = clouds.run(eps=4.0, outer=1, tol=1e-3)
    fourth = {"S_X": np.mean(squared_distances(clouds.x, clouds.x) ** 2)}
    fourth["S_Y"] = np.mean(squared_distances(clouds.y, clouds.y) ** 2)
    fourth["S_XY"] = 4 * clouds.x.var(axis=0).sum() * clouds.y.var(axis=0).sum()
    assert result.self_terms == pytest.approx(fourth, rel=1e-12)
    private = clouds.run(eps=4.0, outer=1, tol=1e-3, kernel="sketch", bits=5000)
    assert private.self_terms == pytest.approx(fourth, rel=0.03)
    exact = clouds.run(eps=4.0, outer=1, tol=1e-3, kernel="sketch", self_terms="moments")
    assert exact.self_terms == pytest.approx(fourth, rel=1e-12)


@pytest.mark.mpi(min_size=7, max_size=7)
def test_a_sparse_graph_within_a_domain_stands_for_all_pairs(comm: MPI.Intracomm) -> None:
    """The agents' rows are alike, so a few pairs of agents tell what all do, up to sampling."""
    clouds = Clouds(comm, count=40 * comm.size)
    full, sparse = (
        clouds.run(eps=4.0, outer=1, tol=1e-2, kernel="sketch", bits=512, within=within) for within in (None, 1)
    )
    for name in ("S_X", "S_Y"):
        assert sparse.self_terms[name] == pytest.approx(full.self_terms[name], rel=0.15)
    assert sparse.ledger.of(Kind.STRUCTURE).within_bytes < full.ledger.of(Kind.STRUCTURE).within_bytes


@pytest.mark.mpi(min_size=2, max_size=3)
def test_one_sample_has_no_structure(comm: MPI.Intracomm) -> None:
    """A single point against a cloud: the cost is the cloud's own S_Y, whatever eps is."""
    rng = np.random.default_rng(4)
    x, y = np.array([[5.0, -2.0]]), rng.normal(size=(12 * comm.size, 3))
    rows = x if comm.rank == 0 else np.array_split(y, comm.size - 1)[comm.rank - 1]
    role = "source" if comm.rank == 0 else "target"
    result = deot_mpi.gromov(comm, rows, role, kernel="raw", eps=1.0, tol=1e-12, starts=2)
    expected = np.mean(squared_distances(y, y) ** 2)
    assert result.transport_cost == pytest.approx(expected, rel=1e-9)
    assert result.regularised_cost == pytest.approx(expected, rel=1e-9)


@pytest.mark.mpi(min_size=4, max_size=4)
def test_starts_report_their_ends_and_the_best_is_kept(comm: MPI.Intracomm) -> None:
    clouds = Clouds(comm)
    result = clouds.run(eps=2.0, tol=1e-6, starts=5, alignment=None)
    values = [start.value for start in result.starts]
    assert len(values) == 5
    assert result.regularised_cost == min(values)
    assert result.spread == max(values) - min(values)
    again = clouds.run(eps=2.0, tol=1e-6, alignment=result.alignment, start=result.potential)
    assert again.regularised_cost == pytest.approx(result.regularised_cost, rel=1e-7)
    assert again.rounds < 0.5 * min(start.rounds for start in result.starts)
