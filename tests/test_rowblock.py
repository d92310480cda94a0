"""The one-pass row block against dense sums in the log domain."""

from __future__ import annotations

import mmap
import tracemalloc

import numpy as np
import pytest
from problems import dense_answers, squared_distances
from scipy.special import logsumexp

import deot_mpi.kernel.rows
from deot_mpi.kernel import distance_pairs, halves, loops
from deot_mpi.kernel.entries import Sweep
from deot_mpi.kernel.halves import Halves
from deot_mpi.kernel.rowblock import RowBlock
from deot_mpi.solvers.alone import local_distance

EPS = 0.8
SIZES = {2: 11, 5: 7, 6: 16}
"""Three neighbours and their numbers of samples."""
MARGINAL = 0.3


@pytest.fixture(autouse=True)
def _several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of four rows: small problems must not hide the seams."""
    monkeypatch.setattr(deot_mpi.kernel.rows, "_CHUNK_ENTRIES", 4 * sum(SIZES.values()))
    monkeypatch.setattr(deot_mpi.kernel.rows, "_FEWEST_ROWS", 4)


class Problem:
    """A source agent with weighted rows and three neighbours, dense."""

    def __init__(self, spread: float = 1.0, seed: int = 0, rows: int = 40) -> None:
        rng = np.random.default_rng(seed)
        width = sum(SIZES.values())
        self.x, self.y = spread * rng.normal(size=(rows, 3)), spread * (rng.normal(size=(width, 3)) + 0.5)
        self.log_kernel = -squared_distances(self.x, self.y) / EPS
        self.shares = rng.dirichlet(np.ones(rows))
        self.log_weights = np.log(rng.dirichlet(np.ones(width)))
        ends = np.cumsum(list(SIZES.values()))
        self.columns = {j: slice(int(e) - n, int(e)) for (j, n), e in zip(SIZES.items(), ends, strict=True)}

    def block(self, **options: object) -> RowBlock:
        return RowBlock(
            distance_pairs(self.x, self.y, EPS), self.log_weights, self.columns, self.shares, MARGINAL, **options
        )

    def dense(self, g: np.ndarray, temperature: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        log_kernel = self.log_kernel / temperature
        f = -logsumexp(log_kernel + self.log_weights + g, axis=1)
        return f, logsumexp(log_kernel + (f + np.log(self.shares))[:, None], axis=0)


@pytest.mark.parametrize("way", ["compiled", "numpy"])
@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-12), ("float32", 0.008)])
def test_curvatures_are_squares_of_shares(
    monkeypatch: pytest.MonkeyPatch, precision: str, tolerance: float, way: str
) -> None:
    """Against dense sums; in halves from the upper ones alone, which are right to 2^-8. The sweep is as without them,
    the bits do not depend on threads or memory, and potentials may have drifted, or not, before."""
    if way == "compiled" and loops.compiled is None:
        pytest.skip("no compiled passes")
    if way == "numpy":
        monkeypatch.setattr(loops, "compiled", None)
    rng, problem = np.random.default_rng(7), Problem()
    g = rng.normal(size=sum(SIZES.values()))
    for start in (None, g + 0.1, g - 400.0):
        found = []
        for options in ({}, {"threads": 3}, {"memory": 0.0}):
            block = problem.block(precision=precision, **options)
            if start is not None:
                block.sweep(start)
            found.append(block.sweep_curved(g))
            plain = block.sweep(g)
            for curved, without in zip(found[-1], plain, strict=False):
                np.testing.assert_allclose(curved, without, rtol=0, atol=1e-12 if precision == "float64" else 5e-6)
        f, log_sums = problem.dense(g)
        plan = np.exp(problem.log_kernel + f[:, None] + g + problem.log_weights)
        np.testing.assert_allclose(found[0][2], problem.shares @ plan**2, rtol=tolerance)
        np.testing.assert_allclose(found[0][1], log_sums, rtol=0, atol=1e-12 if precision == "float64" else 5e-6)
        for other in found[1:]:
            for one, another in zip(found[0], other, strict=True):
                np.testing.assert_array_equal(one, another)


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-12), ("float32", 5e-6)])
def test_sweep_is_a_row_step_and_the_column_sums(precision: str, tolerance: float, threads: int, stored: bool) -> None:
    """Also while the potentials drift away from where the block was absorbed, and at another temperature."""
    problem, rng = Problem(), np.random.default_rng(1)
    block = problem.block(precision=precision, threads=threads, memory=np.inf if stored else 0.0)
    assert block.stored is stored
    g = np.zeros(34)
    for step in (0.0, 0.5, 5.0, 60.0, 0.1):
        g = g + step * rng.normal(size=34)
        for temperature in (1.0, 4.0):
            block.temper(temperature)
            f, sums = problem.dense(g, temperature)
            got, got_sums = block.sweep(g)
            seen = np.abs(sums + g) < 40  # beyond that, the stored block knows only that a column is far
            np.testing.assert_allclose(got, f, rtol=tolerance, atol=tolerance)
            np.testing.assert_allclose(got_sums[seen], sums[seen], rtol=tolerance, atol=tolerance)
            assert seen.any()


@pytest.mark.parametrize("rows", [40, 427])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_memory_threads_and_order_of_arrival_do_not_change_a_bit(precision: str, rows: int) -> None:
    """Nor does going on from where another block stood. 427: spans of several groups of rows, the last one uneven."""
    problem, rng = Problem(rows=rows), np.random.default_rng(2)
    variants = {
        "stored": problem.block(precision=precision),
        "recomputed": problem.block(precision=precision, memory=0.0),
        "threads": problem.block(precision=precision, threads=4),
        "early": problem.block(precision=precision),
        "early, other order": problem.block(precision=precision),
    }
    g = np.zeros(34)
    for _ in range(6):
        g = g + rng.normal(size=34)
        for j in (5, 2):
            variants["early"].hear(j, g[problem.columns[j]])
        for j in (6, 5):
            variants["early, other order"].hear(j, g[problem.columns[j]])
        first, *others = (block.sweep(g) for block in variants.values())
        for other in others:
            np.testing.assert_array_equal(other[0], first[0])
            np.testing.assert_array_equal(other[1], first[1])
        resumed, moved = problem.block(precision=precision), g + 0.01 * rng.normal(size=34)
        resumed.absorb(variants["stored"].absorbed())
        goes_on = [block.sweep(moved) for block in (resumed, *variants.values())]
        for other in goes_on[1:]:
            np.testing.assert_array_equal(other[0], goes_on[0][0])
            np.testing.assert_array_equal(other[1], goes_on[0][1])
        alone, *others = (block.row_potential(g) for block in variants.values())
        for other in others:
            np.testing.assert_array_equal(other, alone)
        np.testing.assert_allclose(alone, first[0], rtol=0, atol=2e-6 if precision == "float32" else 1e-13)


@pytest.mark.skipif(loops.compiled is None, reason="no compiled passes: entries are not in halves")
def test_upper_halves_alone_follow_potentials_that_settle() -> None:
    """Moves that shrink by 3 at a time, as a solver's do: both halves are read now and then, and at every point a sweep
    is as near to the dense sums as the bound says (0.4 % of the last move's 30-fold, rows and columns), in the end to
    float32."""
    problem, rng = Problem(), np.random.default_rng(4)
    block, dense = problem.block(precision="float32"), []
    g, move = np.zeros(34), 1.0
    read_both, sweep_both = [], Halves.sweep

    def counted(self: Halves, sweep: Sweep, *given: object) -> np.ndarray:
        read_both.append(sweep.both)
        return sweep_both(self, sweep, *given)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Halves, "sweep", counted)
        for _ in range(14):
            step = rng.normal(size=34)
            g = g + move * step / np.abs(step).max()
            found, expected = (np.concatenate(one) for one in (block.sweep(g), problem.dense(g)))
            dense.append((move, float(np.abs(found - expected).max())))
            move /= 3.0
    assert all(off < 2 * 2.0**-8 * 30.0 * move + 5e-6 for move, off in dense), dense
    assert dense[-1][1] < 5e-6
    assert len(read_both) == 13  # the first sweep makes the entries, too
    assert not all(read_both)
    assert any(read_both)


@pytest.mark.parametrize("spread", [1.0, 30.0])
def test_columns_out_of_reach_are_found_in_the_log_domain(spread: float) -> None:
    problem = Problem(spread)
    block = problem.block(precision="float32")
    g = np.zeros(34)
    f, expected = problem.dense(g)
    got, sums = block.sweep(g)
    np.testing.assert_allclose(block.exact_log_sums(f), expected, rtol=1e-12, atol=1e-10)
    np.testing.assert_allclose(got, f, rtol=1e-6, atol=1e-6)
    if spread > 1.0:  # the stored block says 'far', not how far
        far = expected + g < -100
        assert far.any()
        assert (sums[far] + g[far] < -50).all()


def test_very_light_columns_need_float64() -> None:
    problem = Problem()
    problem.log_weights = problem.log_weights.copy()
    problem.log_weights[3] -= 60.0
    block = problem.block(precision="float32")
    assert block.precision == "float64"
    g = np.zeros(34)
    for got, expected in zip(block.sweep(g), problem.dense(g), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize("settle", [True, False])
def test_values_match_their_definitions(settle: bool) -> None:
    problem, rng = Problem(), np.random.default_rng(3)
    g = rng.normal(size=34)
    f = problem.dense(g)[0] + 0.1 * rng.normal(size=40)
    found = problem.block().evaluate(f, g, settle=settle)
    if settle:
        f = problem.dense(g)[0]
    np.testing.assert_allclose(found.potential, f, rtol=1e-12)
    a = MARGINAL * problem.shares
    log_p = problem.log_kernel + f[:, None] + g + problem.log_weights
    plan = a[:, None] * np.exp(log_p)
    np.testing.assert_allclose(found.log_rows, np.log(np.exp(log_p).sum(axis=1)), atol=1e-12)
    expected = logsumexp(problem.log_kernel + (f + np.log(problem.shares))[:, None], axis=0)
    np.testing.assert_allclose(found.log_sums, expected, atol=1e-12)
    assert found.mass == pytest.approx(plan.sum(), rel=1e-13)
    assert found.log_kernel == pytest.approx((plan * problem.log_kernel).sum(), rel=1e-12)
    assert found.entropy == pytest.approx((plan * (np.log(plan) - 1)).sum(), rel=1e-12)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_more_rows_that_are_computed_again_take_no_more_memory(precision: str) -> None:
    """But for some numbers a row: not even the column sums of a chunk are kept once they are added up."""
    width, rng = 12_000, np.random.default_rng(6)
    y, log_weights, g = rng.normal(size=(width, 3)), np.full(width, -np.log(width)), np.zeros(width)
    peaks = {}
    for rows in (80, 800):
        x = rng.normal(size=(rows, 3))
        block = RowBlock(
            distance_pairs(x, y, EPS), log_weights, {0: slice(None)}, np.full(rows, 1.0 / rows), 1.0,
            precision=precision, memory=0.0,
        )  # fmt: skip
        tracemalloc.start()
        f, _ = block.sweep(g)
        block.plan_sum(f, g, lambda _, plan: plan.sum(axis=0, dtype=np.float64))
        block.evaluate(f, g, settle=False)
        peaks[rows] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    # One span's sums, kept, would be 8 bytes a column for each of 180 / 8 chunks more: 2.2 MB. Small objects vary.
    assert peaks[800] - peaks[80] < 1_000_000


@pytest.mark.parametrize("threads", [1, 3])
def test_rows_with_a_neighbour_far_nearer_than_all_others(threads: int) -> None:
    """Whose largest exponent is known only when most of their entries are made: sums, too, are what they should be."""
    rng, width, rows = np.random.default_rng(7), 1500, 90
    y = rng.normal(size=(width, 30))
    y *= np.sqrt(25.0 * EPS) / np.linalg.norm(y, axis=1, keepdims=True)
    x, shares = y[rng.permutation(width)[:rows]], rng.dirichlet(np.ones(rows))
    log_kernel, log_weights = -squared_distances(x, y) / EPS, np.full(width, -np.log(width))
    nearest, typical = log_kernel.max(axis=1), np.median(log_kernel, axis=1)
    assert np.all(nearest - typical > 40.0)
    block = RowBlock(
        distance_pairs(x, y, EPS), log_weights, {0: slice(0, 700), 1: slice(700, width)}, shares, 1.0,
        precision="float32", threads=threads,
    )  # fmt: skip
    g = rng.normal(size=width)
    f, sums = block.sweep(g)
    expected = -logsumexp(log_kernel + log_weights + g, axis=1)
    np.testing.assert_allclose(f, expected, rtol=0.0, atol=3e-5)
    expected = logsumexp(log_kernel + (expected + np.log(shares))[:, None], axis=0)
    seen = expected > -40.0  # the others know only that they are far
    np.testing.assert_allclose(sums[seen], expected[seen], rtol=0.0, atol=3e-5)
    assert seen.sum() >= rows
    moved = g + 0.01 * rng.normal(size=width)  # the upper halves alone, by what the lower ones added before
    expected = -logsumexp(log_kernel + log_weights + moved, axis=1)
    f, _ = block.sweep(moved)
    np.testing.assert_allclose(f, expected, rtol=0.0, atol=0.004 * 0.05 + 3e-5)


@pytest.mark.parametrize("spread", [1.0, 5.0])
def test_local_distance_is_the_entropic_distance_of_one_pair(spread: float) -> None:
    problem = Problem(spread)
    beta = np.exp(problem.log_weights)
    cost = squared_distances(problem.x, problem.y)
    expected = dense_answers(cost, np.outer(problem.shares, beta), EPS).dual_objective
    block = RowBlock(
        distance_pairs(problem.x, problem.y, EPS), problem.log_weights, {0: slice(None)}, problem.shares, 1.0
    )
    assert EPS * local_distance(block, problem.shares, beta) == pytest.approx(expected, rel=1e-6)


@pytest.mark.skipif(loops.compiled is None or not hasattr(mmap, "MADV_FREE"), reason="no pages are kept here")
def test_pages_of_a_block_are_taken_again_and_what_was_in_them_does_not_show() -> None:
    rng = np.random.default_rng(5)
    x, y, g = rng.normal(size=(800, 3)), rng.normal(size=(700, 3)), rng.normal(size=700)

    def swept() -> tuple[np.ndarray, np.ndarray, int]:
        block = RowBlock(
            distance_pairs(x, y, EPS), np.full(700, -np.log(700.0)), {0: slice(None)}, np.full(800, 1 / 800), 1.0,
            precision="float32",
        )  # fmt: skip
        f, sums = block.sweep(g)
        return f, sums, block._entries._upper.ctypes.data  # type: ignore[union-attr]

    halves._spare.clear()
    room = halves.in_large_pages((2, 800, 352))  # 44 blocks of 16 columns
    room[:] = 0x7FC07FC0  # two numbers that are none
    before = room.ctypes.data
    del room
    assert len(halves._spare) == 1
    f, sums, place = swept()
    assert place == before
    halves._spare.clear()
    fresh_f, fresh_sums, _ = swept()
    np.testing.assert_array_equal(f, fresh_f)
    np.testing.assert_array_equal(sums, fresh_sums)
    halves.in_large_pages((3 * halves._LARGE_PAGE,))  # much larger: the spare pages are given back, not kept beside it
    assert [len(pages) > 4 * halves._LARGE_PAGE for pages in halves._spare] == [True]
