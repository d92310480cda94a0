"""The innermost passes over a chunk of the kernel, from bits to exponents to entries to sums, and over potentials;
compiled where that was possible.

The library ``_loops`` is built from ``passes`` when the package is installed, if there is a C compiler that can;
elsewhere NumPy does the same in several passes, two to eight times slower. Both are right to the last digit or two;
their bits differ.
``DEOT_LOOPS=numpy`` in the environment keeps to NumPy.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deot_mpi.data.samples import Floats

Rows = NDArray[np.floating]

BLOCK, WORDS = 16, 8
"""Columns that ``passes/halves.h`` takes together, and words that hold one half of their entries."""
CACHE_LINE = 64
"""Bytes."""
_AT_ONCE, _MOST_AT_ONCE, _NEAR = 12, 2, 1 << 17
"""Rows that ``absorb_product`` takes together, how many times as many it makes at most before it goes on with them, and
how many entries these should have, for a near cache."""
_MOST_LINES = 16
"""That ``passes/mixing.c`` takes."""
_VERSION = 8
"""Of what the passes take, as ``passes/plain.c`` has it: with other arguments, it is another one."""
_PASSES = (
    "version", "has_wide_registers", "absorb_single", "absorb_rounded", "absorb_double", "absorb_split_single",
    "absorb_split_rounded", "join", "absorb_product", "sweep_product", "upper_sums", "sweep_upper", "sweep_both",
    "pack", "plan_rows", "look_up", "take_off_noise", "largest_move", "scale", "add_logs", "log_mass", "excess",
    "mixing_products", "mixing_step",
)  # fmt: skip

_ABSORB = {
    (np.dtype(np.float32), np.dtype(np.float32)): ("absorb_single", ctypes.c_float),
    (np.dtype(np.float64), np.dtype(np.float32)): ("absorb_rounded", ctypes.c_double),
    (np.dtype(np.float64), np.dtype(np.float64)): ("absorb_double", ctypes.c_double),
}
"""By the types of exponents and entries: the pass, and the type of its floor."""


def _library() -> ctypes.CDLL | None:
    """The compiled passes, if they were built, can be loaded and seem right."""
    if os.environ.get("DEOT_LOOPS") == "numpy":
        return None
    for suffix in EXTENSION_SUFFIXES:
        path = Path(__file__).with_name(f"_loops{suffix}")
        if not path.exists():
            continue
        try:
            library = ctypes.CDLL(str(path))
        except OSError:  # built for another machine
            return None
        return library if _is_right(library) else None
    return None


def _passes_of(library: ctypes.CDLL) -> bool:
    """Whether it has all passes, of this version; those that give a number back are then told to."""
    if not all(hasattr(library, name) for name in _PASSES) or library.version() != _VERSION:
        return False
    library.largest_move.restype = library.excess.restype = ctypes.c_double
    return True


def _is_right(library: ctypes.CDLL) -> bool:
    """Whether it has all passes, its exp is exp (a compiler that takes liberties with sums would undo how it rounds),
    and its halves make a whole."""
    if not _passes_of(library):
        return False  # built from earlier passes
    exponent, sums, products = np.linspace(-700.0, 700.0, 29)[:, None], np.empty(29), np.empty(29)
    plan = exponent.copy()
    library.plan_rows(*_size(plan), _at(plan), _at(sums), _at(products))
    single, shift, whole = (
        np.linspace(-79.0, 0.0, 19, dtype=np.float32)[None],
        np.zeros(1, np.float32),
        np.empty((1, 19)),
    )
    upper, lower = np.empty((2, 1, 2 * WORDS), dtype=np.uint32)
    whole = whole.astype(np.float32)
    logs = np.empty(29)
    library.add_logs(ctypes.c_ssize_t(29), _at(sums), _at(np.zeros(29)), ctypes.c_double(1.0), _at(logs))
    unknown = library.excess(ctypes.c_ssize_t(1), _at(np.ones(1)), _at(np.array([np.nan])))
    library.absorb_split_single(*_size(single), _at(single), _at(shift), ctypes.c_float(-80.0), _at(upper), _at(lower))
    library.join(*_size(whole), _at(upper), _at(lower), _at(whole))
    right = np.allclose(plan, np.exp(exponent), rtol=1e-14, atol=0.0) and np.allclose(whole, np.exp(single), rtol=1e-6)
    return right and np.allclose(logs, exponent[:, 0], rtol=1e-13, atol=1e-13) and np.isnan(unknown)


def room(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """For numbers that passes go over often. It begins with a line of the cache: registers that hold a whole line would
    otherwise touch two for each they read or write, which made the first sweep a fifth longer."""
    nbytes = 4 * math.prod(shape)
    whole = np.empty(nbytes + CACHE_LINE, dtype=np.uint8)
    start = -whole.ctypes.data % CACHE_LINE
    return whole[start : start + nbytes].view(np.float32).reshape(shape)


def absorb(exponent: Rows, shift: Rows, floor: float, out: Rows) -> None:
    """out_nm = exp(max(exponent_nm - shift_n, floor)), with a floor that the type of ``out`` can take the exp of.

    ``exponent`` may be spent on the way.
    """
    if compiled is None:
        exponent -= shift[:, None]
        np.maximum(exponent, floor, out=out, casting="same_kind")
        np.exp(out, out=out)
        return
    name, number = _ABSORB[exponent.dtype, out.dtype]
    shift = _line(shift, len(exponent), exponent.dtype)
    getattr(compiled, name)(*_size(exponent, out), _at(exponent), _at(shift), number(floor), _at(out))


def absorb_halves(
    exponent: Rows, shift: Rows, floor: float, upper: NDArray[np.uint32], lower: NDArray[np.uint32]
) -> None:
    """As ``absorb`` into float32, in the two halves that ``halves`` describes. Compiled only."""
    name, number = {np.dtype(np.float32): ("absorb_split_single", ctypes.c_float),
                    np.dtype(np.float64): ("absorb_split_rounded", ctypes.c_double)}[exponent.dtype]  # fmt: skip
    _size(exponent), _size(upper, lower)
    rows, width = exponent.shape
    if upper.shape != (rows, -(-width // BLOCK) * WORDS):
        raise ValueError(f"halves of {upper.shape} and {lower.shape} words do not hold {exponent.shape} entries")
    call(name, rows, width, exponent, _line(shift, rows, exponent.dtype), number(floor), upper, lower)


def joined_halves(upper: NDArray[np.uint32], lower: NDArray[np.uint32], width: int) -> NDArray[np.float32]:
    """The entries that ``absorb_halves`` has put there. Compiled only."""
    numbers = np.empty((len(upper), width), dtype=np.float32)
    call("join", *numbers.shape, upper, lower, numbers)
    return numbers


def upper_sums(upper: NDArray[np.uint32], words: slice, scaled: NDArray[np.float32]) -> Floats:
    """sum_m H_nm w_m of every row, over the columns in some of its words. Compiled only."""
    sums = np.empty(len(upper))
    call("upper_sums", *upper.shape, upper[:, words], (words.stop - words.start) // WORDS, scaled, sums)
    return sums


def packed(right: Floats) -> NDArray[np.float32]:
    """The right side for ``absorb_product``: 16 rows side by side, number by number, with zeros after the last.
    Compiled only."""
    (rows, inner), number = right.shape, _double(right).itemsize
    if right.strides[1] != number or right.strides[0] % number:
        right = np.ascontiguousarray(right)
    out = room((-(-rows // BLOCK), inner, BLOCK))
    call("pack", rows, inner, right.strides[0] // number, right, out)
    return out


def product_arguments(
    left: NDArray[np.float32],
    right: NDArray[np.float32],
    column: NDArray[np.float32],
    tops: Rows | None,
    floor: float,
    upper: NDArray[np.uint32],
    lower: NDArray[np.uint32],
) -> tuple[tuple[Any, ...], Rows]:
    """What ``absorb_product`` and ``sweep_product`` take to make halves, as ``absorb_halves`` does, but from exponents
    <left_n, right_m> + column_m to base 2, for a right side that is ``packed``: they are always added up in one order,
    and not held. Also where ``tops`` will be, what is taken off each row: unless they are given, a whole number near
    its largest exponent, 30 below or 2 above at most."""
    (rows, inner), blocks, width = left.shape, len(right), column.size
    _size(upper, lower)
    if right.shape != (-(-width // BLOCK), inner, BLOCK) or upper.shape != (rows, blocks * WORDS):
        raise ValueError(f"factors of {left.shape} and packed {right.shape} do not make {rows} rows of {width} entries")
    find = tops is None
    tops = np.empty(rows, dtype=np.float32) if tops is None else _line(tops, rows, np.dtype(np.float32))
    padded = room((blocks * BLOCK,))
    padded[:width], padded[width:] = column, 0.0
    together = max(1, min(_MOST_AT_ONCE, _NEAR // (_AT_ONCE * padded.size))) * _AT_ONCE
    left, right = (np.ascontiguousarray(side, dtype=np.float32) for side in (left, right))
    given = (inner, left, right, padded, int(find), tops, ctypes.c_float(floor), together, int(wide))
    return (*given, room((together * inner,)), upper, lower), tops


def plan_rows(exponent: Floats) -> tuple[Floats, Floats]:
    """Makes P = exp(exponent) of ``exponent`` itself; of each row sum_m P_nm and sum_m P_nm log P_nm.

    Infinite where it overflows, as in a run that diverged.
    """
    if compiled is None:
        log_plan = exponent.copy()
        plan = np.exp(exponent, out=exponent)
        return plan.sum(axis=1), np.vecdot(plan, log_plan)
    sums, products = np.empty(len(exponent), dtype=_double(exponent)), np.empty(len(exponent))
    compiled.plan_rows(*_size(exponent), _at(exponent), _at(sums), _at(products))
    return sums, products


def look_up(counts: NDArray[np.integer], table: Floats, left: Floats, right: Floats, out: Floats) -> None:
    """out_nm += table[counts_nm] left_n right_m."""
    if counts.size and not counts.max() < table.size:
        raise IndexError(f"a count of {counts.max()} in a table for {table.size}")
    if compiled is None:
        entries = table[counts]
        entries *= right
        entries *= left[:, None]
        out += entries
        return
    counts, kind = np.ascontiguousarray(counts, dtype=np.uint32), _double(out)
    lines = _line(table, table.size, kind), _line(left, len(out), kind), _line(right, out.shape[1], kind)
    compiled.look_up(*_size(counts, out), _at(counts), *map(_at, lines), _at(out))


def take_off_noise(noise: Floats, out: Floats) -> None:
    """out -= g(z) for z = ``noise``: z/2 up to 1, then (1 + log z)/2."""
    if compiled is None:
        half, large = noise / 2.0, noise > 1.0
        half[large] = (1.0 + np.log(noise[large])) / 2.0
        out -= half
        return
    _double(noise), _double(out)
    compiled.take_off_noise(*_size(noise, out), _at(noise), _at(out))


def largest_move(here: Floats, there: Floats) -> float:
    """max_m |here_m - there_m|; what is no number is passed over."""
    if compiled is None:
        return float(np.fmax.reduce(np.abs(here - there), initial=0.0))
    lines = _line(here, here.size, np.dtype(np.float64)), _line(there, here.size, np.dtype(np.float64))
    return float(compiled.largest_move(ctypes.c_ssize_t(here.size), *map(_at, lines)))


def add_logs(numbers: Floats, offsets: Floats, *, sign: float = 1.0) -> Floats:
    """sign (offset_m + log number_m), of numbers that underflow as of the least there is."""
    if compiled is None:
        return np.asarray(sign * (offsets + np.log(np.maximum(numbers, np.finfo(np.float64).tiny))))
    out, kind = np.empty(numbers.size), np.dtype(np.float64)
    lines = _line(numbers, numbers.size, kind), _line(offsets, numbers.size, kind)
    compiled.add_logs(ctypes.c_ssize_t(numbers.size), *map(_at, lines), ctypes.c_double(sign), _at(out))
    return out


def log_mass(lines: Sequence[Floats], offsets: Floats, own: Floats) -> Floats:
    """own_m + log sum_k exp(lines_km + offset_k). Infinite, or no number, where a term is."""
    if compiled is None:
        moved = np.stack([line + offset for line, offset in zip(lines, offsets, strict=True)])
        return np.asarray(own + np.logaddexp.reduce(moved, axis=0))
    out, kind, held = np.empty(own.size), np.dtype(np.float64), _Lines(lines, own.size)
    call(
        "log_mass", len(lines), own.size, held.places, _line(offsets, len(lines), kind), _line(own, own.size, kind), out
    )
    return out


def scale(
    potential: Floats,
    since: Floats,
    parts: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
    out: NDArray[np.float32],
) -> None:
    """out = exp(potential - since) for columns low to high - 1 of every part, the first at its place; ``parts`` are
    lows, highs and places, which must be within the arrays. Compiled only."""
    here, there = (_line(line, potential.size, np.dtype(np.float64)) for line in (potential, since))
    call("scale", len(parts[0]), *parts, here, there, out)


def excess(weights: Floats, x: Floats) -> float:
    """sum_m weight_m |exp(x_m) - 1|."""
    if compiled is None:
        return float(weights @ np.abs(np.expm1(x)))
    lines = _line(weights, x.size, np.dtype(np.float64)), _line(x, x.size, np.dtype(np.float64))
    return float(compiled.excess(ctypes.c_ssize_t(x.size), *map(_at, lines)))


def mixing_products(
    residuals: Sequence[Floats], stretch: Floats | None, longest: Floats, weights: Floats
) -> tuple[Floats, Floats]:
    """sum_m weight_m d_km d_lm, for l >= k at least, and sum_m weight_m d_km r_m: r the last residual, d_k the k-th
    one's difference from the next, all ``stretched``."""
    steps, size = len(residuals) - 1, weights.size
    if len(residuals) > _MOST_LINES:
        raise ValueError(f"{len(residuals)} residuals where {_MOST_LINES} are the most")
    if compiled is None:
        lines = stretched(np.array(residuals), stretch, longest)
        changes = np.diff(lines, axis=0)
        return (changes * weights) @ changes.T, (changes * weights) @ lines[-1]
    gram, last, held = np.zeros((steps, steps)), np.zeros(steps), _Lines(residuals, size)
    given = _line(weights, size, np.dtype(np.float64)), gram, last
    call("mixing_products", len(residuals), size, held.places, *_stretch_lines(stretch, longest, size), *given)
    return gram, last


def mixing_step(
    points: Sequence[Floats],
    residuals: Sequence[Floats],
    stretch: Floats | None,
    longest: Floats,
    coefficients: Floats,
    limit: float,
    residual: Floats,
) -> Floats:
    """r - sum_k c_k (dp_k + dr_k), with p the points and r the residuals, ``stretched``, d their differences; what is
    taken off is ``limit`` at most."""
    if len(residuals) != len(points):
        raise ValueError(f"{len(residuals)} residuals and {len(points)} points")
    if compiled is None:
        changes = np.diff(np.array(points), axis=0) + np.diff(stretched(np.array(residuals), stretch, longest), axis=0)
        return np.asarray(stretched(residual, stretch, longest) - np.clip(coefficients @ changes, -limit, limit))
    size, kind, out = residual.size, np.dtype(np.float64), np.empty(residual.size)
    held, moved = _Lines(points, size), _Lines(residuals, size)
    parts = _line(coefficients, len(points) - 1, kind)
    call(
        "mixing_step", len(points), size, held.places, moved.places, *_stretch_lines(stretch, longest, size),
        parts, ctypes.c_double(limit), _line(residual, size, kind), out,
    )  # fmt: skip
    return out


def stretched(residuals: Floats, stretch: Floats | None, longest: Floats) -> Floats:
    """Residuals, as many times as long, by no more than ``longest``."""
    if stretch is None:
        return residuals
    return residuals + np.clip(residuals * (stretch - 1.0), -longest, longest)


def _stretch_lines(stretch: Floats | None, longest: Floats, size: int) -> tuple[Rows | None, Rows | None]:
    if stretch is None:
        return None, None
    return _line(stretch, size, np.dtype(np.float64)), _line(longest, size, np.dtype(np.float64))


class _Lines:
    """Where lines of as many numbers are. Keeps them as C reads them until it has."""

    def __init__(self, lines: Sequence[Floats], length: int) -> None:
        self.held = [_line(line, length, np.dtype(np.float64)) for line in lines]
        self.places = (ctypes.c_void_p * len(lines))(*(line.ctypes.data for line in self.held))


def call(
    name: str, *given: int | NDArray[Any] | ctypes._SimpleCData[Any] | ctypes.Array[ctypes.c_void_p] | None
) -> None:
    """A compiled pass, with sizes and arrays as they come. It takes arrays to be as ``passes`` say, of the right
    types and without gaps within a row: callers see to that."""
    assert compiled is not None
    getattr(compiled, name)(*map(_passed, given))


def _passed(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    return ctypes.c_ssize_t(value) if isinstance(value, int) else value


def _size(*chunks: NDArray[np.generic]) -> tuple[ctypes.c_ssize_t, ctypes.c_ssize_t]:
    """Of chunks that are passed on as they are: alike, and without gaps."""
    rows, width = chunks[0].shape
    if not all(chunk.shape == (rows, width) and chunk.flags.c_contiguous for chunk in chunks):
        raise ValueError(f"chunks of {[chunk.shape for chunk in chunks]} numbers do not fit each other, or have gaps")
    return ctypes.c_ssize_t(rows), ctypes.c_ssize_t(width)


def _line(numbers: NDArray[np.floating], length: int, kind: np.dtype[Any]) -> NDArray[np.floating]:
    """As C reads it: it would go on beyond the end of one that is too short."""
    if numbers.shape != (length,):
        raise ValueError(f"{numbers.shape} numbers where {length} are needed")
    return np.ascontiguousarray(numbers, dtype=kind)


def _at(array: NDArray[np.generic]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _double(array: NDArray[np.generic]) -> np.dtype[Any]:
    """float64, which the array must be of."""
    if array.dtype != np.float64:
        raise ValueError(f"numbers of {array.dtype} where float64 is needed")
    return array.dtype


compiled = _library()
wide = compiled is not None and bool(compiled.has_wide_registers())
"""Whether products take registers of sixteen numbers: the same bits, sooner."""
