"""The innermost passes over the kernel, compiled and in NumPy, against exp in long double and plain formulas."""

from __future__ import annotations

import os
import shutil
from importlib.machinery import EXTENSION_SUFFIXES
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from deot_mpi.kernel import distance_pairs, loops
from deot_mpi.kernel.entries import Layout
from deot_mpi.kernel.rowblock import RowBlock

BUILT = loops.compiled


@pytest.fixture(params=["compiled", "numpy"], autouse=True)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "compiled" and BUILT is None:
        pytest.skip("no compiled passes: none were built when the package was installed")
    monkeypatch.setattr(loops, "compiled", BUILT if request.param == "compiled" else None)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.skipif(os.environ.get("DEOT_LOOPS") == "numpy", reason="NumPy's passes are asked for")
@pytest.mark.parametrize("_way", ["numpy"], indirect=True)
def test_where_there_is_a_compiler_the_passes_are_built() -> None:
    """pip says nothing when it could not build them."""
    assert BUILT is not None


def long_exp(x: np.ndarray) -> np.ndarray:
    return np.exp(x.astype(np.longdouble))


@pytest.mark.parametrize(
    ("given", "stored", "floor"),
    [(np.float32, np.float32, -80.0), (np.float64, np.float32, -80.0), (np.float64, np.float64, -690.0)],
)
@pytest.mark.parametrize("width", [1, 7, 4001])
def test_entries_are_right_to_the_last_digits(given: type, stored: type, floor: float, width: int) -> None:
    """Also those at the floor and below it, and in rows whose length is no multiple of a vector's."""
    rng = np.random.default_rng(width)
    exponent = (1.2 * floor * rng.random((9, width))).astype(given)
    exponent[0, 0], exponent[-1, -1] = 0.0, 3.0 * floor
    shift = exponent.max(axis=1)
    out = np.empty(exponent.shape, dtype=stored)
    below = np.maximum((exponent - shift[:, None]), given(floor)).astype(stored)
    loops.absorb(exponent.copy(), shift, floor, out)
    # Both round once or twice: NumPy's float32 is known to 2.52 units in the last place.
    assert float(np.abs(out / long_exp(below) - 1).max()) < 3.0 * np.finfo(stored).eps
    assert out.max() <= 1.0
    assert out.min() > 0.0


def test_sums_of_the_plan_and_of_its_logarithm() -> None:
    log_plan = np.random.default_rng(0).normal(scale=30.0, size=(5, 1003)) - 20.0
    plan = log_plan.copy()
    sums, products = loops.plan_rows(plan)
    exact = long_exp(log_plan)
    np.testing.assert_allclose(plan, exact.astype(float), rtol=4e-16)
    np.testing.assert_allclose(sums, exact.sum(axis=1).astype(float), rtol=1e-14)
    terms = exact * log_plan
    error = np.abs(products - terms.sum(axis=1)) / np.abs(terms).sum(axis=1)
    assert float(error.max()) < 1e-14


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_plan_that_overflows_is_infinite_and_one_that_vanishes_is_nothing() -> None:
    rows = np.array([[0.0, 710.0], [0.0, np.inf], [0.0, np.nan], [0.0, -800.0], [-800.0, -1e300]])
    sums, products = loops.plan_rows(rows)
    np.testing.assert_array_equal(sums, [np.inf, np.inf, np.nan, 1.0, 0.0])
    assert np.isnan(products[2])
    assert products[0] == products[1] == np.inf
    np.testing.assert_array_equal(products[3:], 0.0)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_what_is_no_number_stays_none(kind: type) -> None:
    out = np.empty((1, 2), dtype=kind)
    loops.absorb(np.array([[0.0, np.nan]], dtype=kind), np.zeros(1, dtype=kind), -80.0, out)
    np.testing.assert_array_equal(out, [[1.0, np.nan]])


def test_counts_are_looked_up_and_weighed() -> None:
    rng = np.random.default_rng(1)
    counts, table = rng.integers(0, 101, size=(4, 37)), rng.normal(size=101)
    left, right, before = rng.normal(size=4), rng.normal(size=37), rng.normal(size=(4, 37))
    for kind in (np.uint32, np.int64):
        out = before.copy()
        loops.look_up(counts.astype(kind), table, left, right, out)
        np.testing.assert_allclose(out, before + table[counts] * np.outer(left, right), rtol=1e-13, atol=1e-13)
    with pytest.raises(IndexError, match="a count of 101 in a table for 101"):
        loops.look_up(np.full((4, 37), 101, dtype=np.uint32), table, left, right, before)


def test_correction_is_guarded_beyond_small_noise() -> None:
    """Half the noise up to 1; beyond, (1 + log z)/2, which goes on with the same value and slope."""
    z = np.array([[0.0, 0.5, 1.0, 1.0 + 1e-9, 1.5, 10.0]])
    out = np.ones_like(z)
    loops.take_off_noise(z, out)
    beyond = (1.0 + np.log([1.5, 10.0])) / 2.0
    np.testing.assert_allclose(1.0 - out, [[0.0, 0.25, 0.5, 0.5, *beyond]], atol=1e-9)


@pytest.mark.parametrize("count", [1, 5, 300])
def test_logs_of_sums_are_right_to_the_last_digits(count: int) -> None:
    """Over all powers of two, near 1, and below what can be seen; against long doubles."""
    rng = np.random.default_rng(count)
    numbers = np.exp2(rng.uniform(-1000.0, 1000.0, count))
    numbers[::3] = 1.0 + rng.normal(scale=1e-6, size=numbers[::3].size)
    offsets = rng.normal(scale=100.0, size=count)
    exact = offsets + np.log(numbers.astype(np.longdouble))
    size = np.abs(offsets) + np.abs(np.log(numbers))
    for sign in (1.0, -1.0):
        off = np.abs(loops.add_logs(numbers, offsets, sign=sign) - sign * exact)
        assert np.all(off <= 2 * np.finfo(float).eps * size)
    apart = np.repeat(numbers, 3)[::3], np.repeat(offsets, 3)[::3]
    np.testing.assert_array_equal(loops.add_logs(*apart), loops.add_logs(numbers, offsets))
    least = np.log(np.finfo(float).tiny)
    np.testing.assert_allclose(loops.add_logs(np.array([0.0, 5e-324]), np.ones(2)), 1.0 + least, rtol=1e-15)
    assert np.isnan(loops.add_logs(np.array([np.nan]), np.zeros(1)))


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize(("lines", "count"), [(1, 1), (2, 129), (7, 300)])
def test_masses_are_added_up_in_the_log_domain(lines: int, count: int) -> None:
    """Terms that are thousands of nats apart, more columns than go at once, a line of nothing, and no line at all."""
    rng = np.random.default_rng(lines)
    numbers, offsets, own = rng.normal(scale=900.0, size=(lines, count)), rng.normal(size=lines), rng.normal(size=count)
    moved = (numbers + offsets[:, None]).astype(np.longdouble)
    top = moved.max(axis=0)
    exact = own + top + np.log(np.exp(moved - top).sum(axis=0))
    found = loops.log_mass(list(numbers), offsets, own)
    np.testing.assert_allclose(found, exact.astype(float), rtol=4e-16, atol=1e-12)
    nothing = np.full(count, -np.inf)
    np.testing.assert_array_equal(loops.log_mass([*numbers, nothing], np.append(offsets, 0.0), own), found)
    assert np.all(loops.log_mass([nothing, nothing], np.zeros(2), own) == -np.inf)
    numbers[0, -1] = np.inf
    assert loops.log_mass(list(numbers), offsets, own)[-1] == np.inf
    numbers[0, -1] = np.nan
    assert np.isnan(loops.log_mass(list(numbers), offsets, own)[-1])


@pytest.mark.filterwarnings("ignore:overflow")
def test_excess_and_largest_move() -> None:
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.normal(scale=scale, size=50) for scale in (1e-12, 1e-4, 1.0, 100.0)] + [[-800.0]])
    weights = rng.random(x.size)
    exact = weights.astype(np.longdouble) * np.abs(np.expm1(x.astype(np.longdouble)))
    assert loops.excess(weights, x) == pytest.approx(float(exact.sum()), rel=1e-14)
    for part in (slice(0, 50), slice(50, 100)):  # where exp(x) - 1 would have few digits left
        assert loops.excess(weights[part], x[part]) == pytest.approx(float(exact[part].sum()), rel=1e-11)
    assert loops.excess(np.ones(2), np.array([0.0, 710.0])) == np.inf
    assert np.isnan(loops.excess(np.ones(2), np.array([0.0, np.nan])))
    assert loops.largest_move(x, x[::-1]) == np.abs(x - x[::-1]).max()
    assert loops.largest_move(np.empty(0), np.empty(0)) == 0.0
    assert loops.largest_move(np.array([np.nan, 1.0]), np.zeros(2)) == 1.0


@pytest.mark.parametrize("_way", ["compiled"], indirect=True)
@pytest.mark.parametrize("bounds", [(0, 37), (0, 5, 37), (0, 16, 33, 40)])
def test_columns_are_laid_out_among_zeros(bounds: tuple[int, ...]) -> None:
    """Each part from its own first block on; one part alone, and all of them, as the same numbers."""
    rng, width = np.random.default_rng(0), bounds[-1]
    g, since = rng.normal(size=width), rng.normal(size=width)
    layout = Layout({k: slice(*ends) for k, ends in enumerate(pairwise(bounds))}, width)
    wanted = np.exp((g - since).astype(np.longdouble))
    padded = layout.padded(g, since).copy()
    np.testing.assert_array_equal(layout.padded(np.repeat(g, 2)[::2], np.repeat(since, 2)[::2]), padded)
    np.testing.assert_allclose(padded[:width], wanted.astype(float), rtol=6e-8)
    assert padded.size == -(-width // 16) * 16
    assert not padded[width:].any()
    windows = layout.windows(g, since)
    for k, (low, high) in enumerate(pairwise(bounds)):
        window = windows[layout.at[k] : layout.at[k + 1]]
        place = low - 16 * layout.first[k]
        np.testing.assert_array_equal(window[place : place + high - low], padded[low:high])
        assert np.count_nonzero(window) == high - low
        np.testing.assert_array_equal(layout.window(k, g[low:high], since[low:high]), window)


@pytest.mark.parametrize("_way", ["compiled"], indirect=True)
def test_arrays_that_do_not_fit_are_not_handed_to_c() -> None:
    whole = np.zeros((4, 6))
    for exponent, out in ((whole[:, :3], np.zeros((4, 3))), (whole, np.zeros((4, 5))), (whole, np.zeros((6, 4)).T)):
        with pytest.raises(ValueError, match="do not fit"):
            loops.absorb(exponent, np.zeros(4), -690.0, out)
    with pytest.raises(ValueError, match="where 4 are needed"):
        loops.absorb(whole, np.zeros(3), -690.0, whole)
    with pytest.raises(ValueError, match="where 4 are needed"):
        loops.log_mass([np.zeros(3)], np.zeros(1), np.zeros(4))
    with pytest.raises(ValueError, match="where float64 is needed"):
        loops.take_off_noise(whole, whole.astype(np.float32))


@pytest.mark.parametrize("_way", ["compiled"], indirect=True)
@pytest.mark.parametrize("given", [np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 15, 16, 537])
def test_two_halves_are_the_entry_and_the_upper_one_is_near_it(given: type, width: int) -> None:
    """Bit for bit together; alone, the upper half is the entry to 8 binary digits, rounded, not cut off."""
    exponent = (-90.0 * np.random.default_rng(width).random((5, width))).astype(given)
    exponent[:, 0] = 0.0
    whole = np.empty(exponent.shape, dtype=np.float32)
    loops.absorb(exponent.copy(), np.zeros(5, dtype=given), -80.0, whole)
    upper, lower = (np.zeros((5, -(-width // 16) * 8), dtype=np.uint32) for _ in range(2))
    loops.absorb_halves(exponent, np.zeros(5), -80.0, upper, lower)
    np.testing.assert_array_equal(loops.joined_halves(upper, lower, width), whole)
    alone = loops.joined_halves(upper, np.zeros_like(lower), width)
    assert np.abs(alone / whole - 1).max() <= 2.0**-8
    if width > 500:
        assert abs(float((alone / whole - 1).mean())) < 2.0**-9 / np.sqrt(3 * width)  # errors of either sign
    with pytest.raises(ValueError, match="do not hold"):
        loops.absorb_halves(exponent, np.zeros(5), -80.0, upper[:-1], lower[:-1])
    with pytest.raises(ValueError, match="do not fit"):
        loops.absorb_halves(exponent, np.zeros(5), -80.0, upper[:, :-1], lower)


@pytest.mark.parametrize("_way", ["compiled"], indirect=True)
@pytest.mark.parametrize(("rows", "width", "inner"), [(1, 1, 1), (6, 16, 3), (29, 47, 52), (7, 333, 258), (5, 9000, 4)])
def test_entries_from_factors_are_those_of_their_product(rows: int, width: int, inner: int) -> None:
    """Against NumPy in float64, to base 2; rows whose number is no multiple of six, and so many columns that few rows
    go at once. An exponent is off by what its terms lose when they are added up in float32, an entry by as much of
    itself."""
    rng = np.random.default_rng(inner)
    left, right = (rng.normal(size=(many, inner)) for many in (rows, width))
    packed, left = loops.packed(right), left.astype(np.float32)
    column = rng.normal(size=width).astype(np.float32)
    exponent = left.astype(float) @ right.T + column
    size = np.abs(left).astype(float) @ np.abs(right).T + np.abs(column)
    off = (inner + 2) * np.finfo(np.float32).eps * size

    def entries(tops: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        upper, lower = (np.full((rows, -(-width // 16) * 8), 77, dtype=np.uint32) for _ in range(2))
        given, tops = loops.product_arguments(left, packed, column, tops, -80.0, upper, lower)
        loops.call("absorb_product", rows, width, *given)
        beyond = loops.joined_halves(upper, lower, -(-width // 16) * 16)[:, width:]
        assert not beyond.any()
        return loops.joined_halves(upper, lower, width), tops

    found, tops = entries(None)
    np.testing.assert_array_equal(tops, np.rint(tops))
    above = exponent.max(axis=1) - tops
    assert np.all(above > -1.0 - off.max(axis=1))
    assert np.all(above <= 30.0)
    inside = np.maximum(exponent - tops[:, None], -80.0)
    rounding = 4 * np.finfo(np.float32).eps * (1.0 + np.abs(inside))
    assert np.all(np.abs(np.log2(found.astype(float)) - inside) <= off + rounding)
    again, _ = entries(tops)
    np.testing.assert_array_equal(again, found)
    lower_by_two, _ = entries(tops + np.float32(2.0))
    assert np.all(lower_by_two <= found)
    with pytest.raises(ValueError, match="do not make"):
        loops.product_arguments(left, packed, column, None, -80.0, *np.empty((2, rows + 1, 8), np.uint32))
    with pytest.raises(ValueError, match="are needed"):
        entries(np.zeros(rows + 1, dtype=np.float32))
    np.testing.assert_array_equal(loops.packed(np.asfortranarray(right)), packed)
    np.testing.assert_array_equal(loops.packed(np.repeat(right, 2, axis=1)[:, ::2]), packed)


@pytest.mark.parametrize("_way", ["compiled"], indirect=True)
@pytest.mark.parametrize(("rows", "width"), [(3, 300), (40, 1000), (29, 2100)])
def test_large_exponents_are_seen_where_nobody_looked_for_them(rows: int, width: int) -> None:
    """What is taken off a row is the largest of some of its exponents, and more, in steps of two, where another one is
    far above: the entries made so far are lowered, and bits are those of taking it all off at once. What is far below
    is at the floor of 2^-115."""
    rng = np.random.default_rng(width)
    packed, left = loops.packed(np.zeros((width, 2))), np.ones((rows, 2), dtype=np.float32)
    upper, lower = (np.empty((rows, -(-width // 16) * 8), dtype=np.uint32) for _ in range(2))

    def entries(column: np.ndarray, tops: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        given, tops = loops.product_arguments(left, packed, column, tops, -115.0, upper, lower)
        loops.call("absorb_product", rows, width, *given)
        return loops.joined_halves(upper, lower, width), tops

    for place in (17, width - 3, width // 2 + 40):
        column = np.zeros(width, dtype=np.float32)
        column[place] = 200.0
        found, tops = entries(column, None)
        np.testing.assert_array_equal(tops, 200.0)
        expected = np.full((rows, width), np.float32(2.0**-115))
        expected[:, place] = 1.0
        np.testing.assert_array_equal(found, expected)
    climbs = np.linspace(0.0, 600.0, width) + rng.normal(size=width)  # every strip is far above those before
    halves_of = np.round(2.0 * climbs) / 2.0  # and so that roundings are in doubt
    for column in (climbs.astype(np.float32), halves_of.astype(np.float32)):
        found, tops = entries(column, None)
        assert np.all(tops >= column.max() - 30.0)
        again, _ = entries(column, tops)
        np.testing.assert_array_equal(found, again)
        inside = np.maximum(column - tops[:, None], -115.0)
        np.testing.assert_allclose(np.log2(found.astype(float)), inside, rtol=0.0, atol=1e-4)


@pytest.mark.skipif(
    not loops.wide, reason="this processor, or what the passes were compiled with, has no registers of sixteen numbers"
)
@pytest.mark.parametrize("_way", ["compiled"], indirect=True)
@pytest.mark.parametrize(("rows", "width", "inner"), [(1, 1, 1), (12, 32, 3), (29, 47, 52), (31, 333, 258)])
def test_wide_registers_give_the_same_bits(rows: int, width: int, inner: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a whole sweep over entries that are made on the way."""
    rng = np.random.default_rng(rows)
    x, y, g = rng.normal(size=(rows, inner)), rng.normal(size=(width, inner)), rng.normal(size=width)
    found = []
    for wide in (True, False):
        monkeypatch.setattr(loops, "wide", wide)
        block = RowBlock(
            distance_pairs(x, y, 0.5 * inner), np.full(width, -np.log(width)), {0: slice(None)},
            np.full(rows, 1 / rows), 1.0, precision="float32",
        )  # fmt: skip
        found.append(np.concatenate(block.sweep(g)))
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("_way", ["compiled"], indirect=True)
def test_passes_that_are_wrong_or_of_another_machine_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert loops._is_right(BUILT)  # type: ignore[arg-type]
    idle = SimpleNamespace(**dict.fromkeys(loops._PASSES, lambda *_: None) | {"version": lambda: loops._VERSION})
    assert not loops._is_right(idle)  # type: ignore[arg-type]
    halved = SimpleNamespace(**{name: getattr(BUILT, name) for name in loops._PASSES} | {"join": lambda *_: None})
    assert not loops._is_right(halved)  # type: ignore[arg-type]
    old = SimpleNamespace(**{name: getattr(BUILT, name) for name in loops._PASSES if name != "sweep_upper"})
    assert not loops._is_right(old)  # type: ignore[arg-type]
    other = SimpleNamespace(**{name: getattr(BUILT, name) for name in loops._PASSES} | {"version": lambda: 1})
    assert not loops._is_right(other)  # type: ignore[arg-type]
    monkeypatch.setattr(loops, "__file__", str(tmp_path / "loops.py"))
    assert loops._library() is None  # not built
    (tmp_path / f"_loops{EXTENSION_SUFFIXES[0]}").write_text("not a library")
    assert loops._library() is None


@pytest.mark.parametrize("_way", ["compiled"], indirect=True)
@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-13), ("float32", 3e-7)])
def test_both_ways_sweep_alike(monkeypatch: pytest.MonkeyPatch, precision: str, tolerance: float) -> None:
    """A sweep's potentials differ by rounding alone, of the type of the stored block."""
    rng = np.random.default_rng(2)
    x, y, g = rng.normal(size=(30, 3)), rng.normal(size=(50, 3)), rng.normal(size=50)
    found = []
    for way in (loops.compiled, None):
        monkeypatch.setattr(loops, "compiled", way)
        block = RowBlock(
            distance_pairs(x, y, 0.5), np.full(50, -np.log(50)), {0: slice(None)}, np.full(30, 1 / 30), 1.0,
            precision=precision,  # type: ignore[arg-type]
        )  # fmt: skip
        found.append(np.concatenate(block.sweep(g)))
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=10 * tolerance)


@pytest.mark.parametrize("shape", [(1,), (3, 5), (24, 4000)])
def test_room_begins_with_a_line_of_the_cache(shape: tuple[int, ...]) -> None:
    for _ in range(5):  # wherever the system has some
        numbers = loops.room(shape)
        assert numbers.shape == shape
        assert numbers.ctypes.data % loops.CACHE_LINE == 0
