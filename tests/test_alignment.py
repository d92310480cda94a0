"""P without MPI: its kernels, the plan's moments from bits, the moves, and who meets whom within a domain."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import squared_distances

from deot_mpi.alignment.alternation import temperatures
from deot_mpi.alignment.moment import CrossMoment, SurrogateMoment
from deot_mpi.alignment.steps import ClosedStep, GradientStep
from deot_mpi.exchange.within import circle
from deot_mpi.kernel import log_block
from deot_mpi.kernel.gromov import BitSettings, RawGromovKernel, SketchGromovKernel, Spaces
from deot_mpi.kernel.rowblock import RowBlock
from deot_mpi.kinds import Kind
from deot_mpi.problem import Holding
from deot_mpi.roles import Role
from deot_mpi.sketch import packed_bytes
from deot_mpi.view import AgentView

EPS, ALPHA = 0.9, 0.7


class Rows:
    """Structure in 2 and 3 dimensions, features in 4, and a P."""

    def __init__(self, features: int = 4) -> None:
        rng = np.random.default_rng(12)
        self.spaces = Spaces(2, 3, features)
        self.x, self.y = rng.normal(size=(20, 2)), rng.normal(size=(17, 3))
        self.f, self.g = rng.normal(size=(20, features)), rng.normal(size=(17, features))
        self.alignment = rng.normal(size=(2, 3))
        self.source, self.target = np.hstack([self.x, self.f]), np.hstack([self.y, self.g])

    def log_kernel(self, alpha: float, eps: float) -> np.ndarray:
        structure = -4 * np.outer((self.x**2).sum(1), (self.y**2).sum(1)) - 32 * self.x @ self.alignment @ self.y.T
        return -(alpha * structure + (1 - alpha) * squared_distances(self.f, self.g)) / eps


@pytest.mark.parametrize("features", [0, 4])
def test_the_raw_kernel_is_the_formula(features: int) -> None:
    rows = Rows(features)
    alpha = ALPHA if features else 1.0
    kernel = RawGromovKernel(rows.spaces, EPS, alpha)
    kernel.align(rows.alignment)
    shown = kernel.show(rows.source, Role.SOURCE), kernel.show(rows.target, Role.TARGET)
    np.testing.assert_allclose(log_block(kernel, *shown), rows.log_kernel(alpha, EPS), rtol=1e-12, atol=1e-11)
    kernel.align(rows.alignment, temperature=4.0)
    np.testing.assert_allclose(log_block(kernel, *shown), rows.log_kernel(alpha, 4 * EPS), rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("estimator", ["hamming", "paper"])
def test_the_sketch_kernel_comes_near_with_more_bits(estimator: str) -> None:
    """The error of an angle falls as 1/sqrt(Q): 100 times the bits, about a tenth of the error."""
    rows, errors = Rows(), []
    for bits in (100, 10_000):
        how = BitSettings(bits, 3, estimator, correction=False)  # type: ignore[arg-type]
        kernel = SketchGromovKernel(rows.spaces, EPS, ALPHA, how)
        kernel.align(rows.alignment)
        shown = kernel.show(rows.source, Role.SOURCE), kernel.show(rows.target, Role.TARGET)
        off = log_block(kernel, *shown) - rows.log_kernel(ALPHA, EPS)
        errors.append(np.sqrt(np.mean(off**2)))
    assert 0.05 < errors[1] / errors[0] < 0.2


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("features", [0, 4])
def test_what_is_received_fits_what_is_shown(role: Role, features: int) -> None:
    rows = Rows(features)
    own = rows.source if role is Role.SOURCE else rows.target
    for kernel in (
        RawGromovKernel(rows.spaces, EPS, 1.0),
        SketchGromovKernel(rows.spaces, EPS, 1.0, BitSettings(77, 0)),
    ):
        shown, blank = kernel.show(own, role), kernel.blank(len(own), role)
        assert {k: (a.shape, a.dtype) for k, a in shown.items()} == {k: (a.shape, a.dtype) for k, a in blank.items()}
    assert shown[Kind.SKETCH].shape[1] == packed_bytes(77) * (2 if features else 1)


def held(rows: Rows, kernel: RawGromovKernel | SketchGromovKernel) -> Holding:
    """A source agent with one target, which has shown its rows."""
    own, theirs = kernel.show(rows.source, Role.SOURCE), kernel.show(rows.target, Role.TARGET)
    shares, weights = np.full(20, 1 / 20), np.full(17, 1 / 17)
    view = AgentView(Role.SOURCE, 0, EPS, shares, {0: 1.0}, {})
    block = RowBlock(kernel.pairs(own, theirs), np.log(weights), {0: slice(None)}, shares, 1.0)
    return Holding(view, block, {0: own}, {0: theirs}, {0: weights}, np.inf, 1)


def plan_of(log_kernel: np.ndarray, f: np.ndarray, g: np.ndarray) -> np.ndarray:
    return np.exp(log_kernel + f[:, None] + g[None, :]) / log_kernel.size


@pytest.mark.parametrize("swept", [True, False])
def test_the_moment_of_a_plan_is_the_sum_over_it(swept: bool) -> None:
    rows = Rows(0)
    kernel = RawGromovKernel(rows.spaces, 40.0, 1.0)
    kernel.align(rows.alignment)
    holding, g = held(rows, kernel), np.linspace(-1, 1, 17)
    assert holding.rows is not None
    f = holding.rows.sweep(g)[0] if swept else np.linspace(0, 1, 20)
    plan = plan_of(rows.log_kernel(1.0, 40.0), f, g)
    expected = rows.x.T @ plan @ rows.y
    found = CrossMoment(holding, rows.source, rows.spaces).part((f, g))
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("estimator", ["hamming", "paper"])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_sigmoid_finds_the_moment_of_the_same_plan(estimator: str, scale: float) -> None:
    """With many bits the surrogate's moment is that of the samples, whatever the length of P.

    A quarter of a standard deviation, the width of the sigmoid, leaves a bias of some per cent.
    """
    rows = Rows(0)
    rows.alignment = scale * rows.alignment
    how = BitSettings(20_000, 5, estimator)  # type: ignore[arg-type]
    kernel = SketchGromovKernel(rows.spaces, 300.0 * scale, 1.0, how)
    kernel.align(rows.alignment)
    holding, g = held(rows, kernel), np.linspace(-1, 1, 17)
    assert holding.rows is not None
    block, plan = holding.rows, np.zeros((20, 17))
    f, _ = block.sweep(g)

    def keep(part: slice, chunk: np.ndarray) -> np.ndarray:
        plan[part] = chunk / 20
        return np.zeros(1)

    block.plan_sum(f, g, keep)
    expected = rows.x.T @ plan @ rows.y
    found = SurrogateMoment(holding, rows.source, rows.spaces, kernel).part((f, g))
    largest = np.sqrt((rows.x**2).sum(axis=1).mean() * (rows.y**2).sum(axis=1).mean())
    assert np.linalg.norm(found - expected) < 0.03 * largest


@given(st.integers(1, 12), st.one_of(st.none(), st.integers(1, 4)))
def test_every_pair_of_a_domain_meets_once(agents: int, reach: int | None) -> None:
    heard = [
        frozenset((index, meeting.hear_from))
        for index in range(agents)
        for meeting in circle(agents, index, reach)
        if meeting.hear_from is not None
    ]
    shown = [
        frozenset((index, meeting.show_to))
        for index in range(agents)
        for meeting in circle(agents, index, reach)
        if meeting.show_to is not None
    ]
    assert sorted(map(sorted, heard)) == sorted(map(sorted, shown))
    assert len(set(heard)) == len(heard)
    if reach is None:
        assert set(heard) == {frozenset(pair) for pair in combinations(range(agents), 2)}


def quadratic(curvatures: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """The Hessian (in units of 64) and the stationary point of an objective whose curvatures are known."""
    rng = np.random.default_rng(2)
    turn = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    return turn @ np.diag(curvatures) @ turn.T, rng.normal(size=6)


def walk(step: ClosedStep, hessian: np.ndarray, end: np.ndarray, moves: int, first: np.ndarray) -> list[np.ndarray]:
    points = [first.reshape(2, 3)]
    for _ in range(moves):
        off = points[-1].ravel() - end
        points.append(step(points[-1], -(hessian @ off).reshape(2, 3), float(off @ hessian @ off), 0.0))
    return points


def test_long_steps_reach_the_end_that_plain_ones_crawl_to() -> None:
    hessian, end = quadratic([0.01, 0.1, 0.3, 0.5, 0.8, 1.0])
    size = float(np.linalg.norm(end))
    off = [
        float(np.linalg.norm(walk(step, hessian, end, 40, np.zeros(6))[-1].ravel() - end))
        for step in (ClosedStep(size), ClosedStep(size, plain=True))
    ]
    assert off[0] < 1e-6 * size
    assert off[1] > 0.1 * size


def test_long_steps_leave_a_saddle() -> None:
    """A direction of small negative curvature: from near the saddle, plain steps hardly move in it."""
    hessian, saddle = quadratic([-0.01, 0.1, 0.3, 0.5, 0.8, 1.0])
    lowest = np.linalg.eigh(hessian)[1][:, 0]
    first = saddle + 1e-3 * lowest
    away = [
        abs(float((walk(step, hessian, saddle, 15, first)[-1].ravel() - saddle) @ lowest))
        for step in (ClosedStep(1.0), ClosedStep(1.0, plain=True))
    ]
    assert away[0] > 20 * away[1]


def test_a_move_that_raised_the_objective_is_taken_back() -> None:
    """First a quarter of it is tried; once that is no more than the plain step, the plain step."""
    hessian, end = quadratic([0.01, 0.1, 0.3, 0.5, 0.8, 1.0])
    step = ClosedStep(1.0)
    points = walk(step, hessian, end, 6, np.zeros(6))
    best, off = points[-2], points[-2].ravel() - end
    plain = best - (hessian @ off).reshape(2, 3)
    moved, tried = points[-1], []
    for _ in range(10):
        tried.append(step(moved, np.ones((2, 3)), np.inf, 0.0))
        moved = tried[-1]
        if np.allclose(moved, plain, rtol=1e-12):
            break
    np.testing.assert_allclose(tried[-1], plain, rtol=1e-12)
    for k, point in enumerate(tried[:-1], start=1):
        np.testing.assert_allclose(point - best, 0.25**k * (points[-1] - best), rtol=1e-9, atol=1e-15)


def test_gradient_steps_shrink() -> None:
    step, p, residual = GradientStep(0.5), np.zeros((1, 1)), np.ones((1, 1))
    taken = [float(step(p, residual, 0.0, 0.0)[0, 0]) for _ in range(4)]
    np.testing.assert_allclose(taken, 0.5 / np.sqrt([1, 2, 3, 4]))


def test_a_small_eps_is_approached_from_a_tenth_of_the_mean_cost() -> None:
    assert temperatures(10.0, 1.0) == [1.0]
    assert temperatures(10.0, 50.0) == [1.0]
    stages = temperatures(10.0, 0.01)
    assert stages[0] * 0.01 >= 1.0 > stages[1] * 0.01
    assert stages[-1] == 1.0
    assert temperatures(0.0, 1.0) == [1.0]
