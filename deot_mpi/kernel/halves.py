"""float32 entries in two halves of 16 bits, S = H + L, so that most sweeps read the upper one alone: half the memory.

What the lower half adds is kept as two vectors, lambda and kappa, from the last sweep over both:
    S w = (1 + lambda) * (H w),   S^T x = (1 + kappa) * (H^T x).
H is S rounded to 8 binary digits (by 0.4 % at most, 0.14 % on average, at random), so where w has since moved by d nats
a sum is off by no more than 0.004 d of itself, and by far less where many terms count. Needs the compiled passes.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deot_mpi.data.samples import Floats
from deot_mpi.kernel import loops
from deot_mpi.kernel.base import BIT, Factors
from deot_mpi.kernel.entries import FLOOR, Exponents, Layout, Sweep, Tallies
from deot_mpi.kernel.loops import BLOCK, WORDS

_LARGE_PAGE = 1 << 21
_LARGEST_SPARE = 1 << 28
_FLOOR_BITS = math.ceil(FLOOR["float32"] / BIT)
"""A whole number: an entry at the floor then has the same bits whatever is taken off its row."""

_spare: list[mmap.mmap] = []
"""The pages of the last block that was given up, if any. The system may take them when it needs memory; if not, the
next solve of this process does not pay for a first touch again, which can cost as much as filling them."""


def in_large_pages(shape: tuple[int, ...]) -> NDArray[np.uint32]:
    """Room that begins with a large page where the system has some: fewer, and so faster, first touches. NumPy asks for
    large pages, too, but begins anywhere. What is in it is not defined."""
    count = math.prod(shape)
    if 4 * count < _LARGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.empty(shape, dtype=np.uint32)
    pages = _pages(4 * count + _LARGE_PAGE)
    whole = np.frombuffer(pages, dtype=np.uint8)
    weakref.finalize(whole, _give_up, pages).atexit = False
    start = -whole.ctypes.data % _LARGE_PAGE
    return whole[start : start + 4 * count].view(np.uint32).reshape(shape)


def _pages(nbytes: int) -> mmap.mmap:
    with contextlib.suppress(IndexError):  # none, or another thread has just taken them
        pages = _spare.pop()
        if nbytes <= len(pages) <= 2 * nbytes:
            return pages
        del pages
    try:
        pages = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"no room for {nbytes} bytes of kernel: {error}") from error
    with contextlib.suppress(OSError):  # a kernel without them
        pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


def spare_bytes() -> int:
    """What a next block may take without new memory."""
    return sum(map(len, _spare))


def drop_spare() -> None:
    """Give it back, where something else needs room."""
    _spare.clear()


def _give_up(pages: mmap.mmap) -> None:
    """Called when nobody uses them any more."""
    if len(pages) <= _LARGEST_SPARE and hasattr(mmap, "MADV_FREE"):
        with contextlib.suppress(OSError):  # a kernel that cannot take pages back in its own time
            pages.madvise(mmap.MADV_FREE)
            _spare[:] = [pages]


class Halves:
    """Some rows; ``upper`` and ``lower`` are laid out as ``passes/halves.h`` says."""

    def __init__(self, upper: NDArray[np.uint32], lower: NDArray[np.uint32], layout: Layout) -> None:
        self._upper, self._lower, self._layout = upper, lower, layout

    @classmethod
    def room(cls, rows: int, layout: Layout) -> Halves:
        upper, lower = in_large_pages((2, rows, layout.blocks * WORDS))
        return cls(upper, lower, layout)

    def part(self, rows: slice) -> Halves:
        return Halves(self._upper[rows], self._lower[rows], self._layout)

    def put(self, exponents: Exponents, rows: slice, tops: Floats | None) -> Floats:
        if isinstance(exponents, Factors):
            given, found = self._product(exponents, rows, None if tops is None else np.rint(tops / BIT))
            loops.call("absorb_product", len(found), self._layout.width, *given)
            return BIT * found.astype(np.float64)
        exponent = exponents.rows(rows.start, rows.stop)
        tops = exponent.max(axis=1) if tops is None else tops
        loops.absorb_halves(exponent, tops, FLOOR["float32"], self._upper, self._lower)
        return tops

    def numbers(self) -> NDArray[np.floating]:
        return loops.joined_halves(self._upper, self._lower, self._layout.width)

    def hear(self, part: int, scaled: NDArray[np.floating]) -> Floats:
        layout = self._layout
        blocks = slice(int(layout.first[part]) * WORDS, int(layout.last[part]) * WORDS)
        return loops.upper_sums(self._upper, blocks, np.asarray(scaled, dtype=np.float32))

    def sweep(self, sweep: Sweep, tallies: Tallies, spans: Sequence[slice], step: int) -> Floats:
        layout, rows, size, sums = self._laid_out(sweep, spans, step)
        shares, scale, lift = (line[rows] for line in (tallies.shares, tallies.scale, tallies.lift))
        if sweep.both:
            loops.call(
                "sweep_both", *size, self._upper, self._lower, sweep.scaled, lift, shares, scale, *sums.columns,
                *sums.wanted(sweep),
            )  # fmt: skip
            return sums.total
        by_part = tallies.by_part
        loops.call(
            "sweep_upper", *size, self._upper, len(layout.parts), layout.first, layout.last, layout.at, sweep.scaled,
            tallies.heard, by_part[:, rows], by_part.shape[1], lift, shares, scale, int(sweep.curved), sums.columns,
            *sums.wanted(sweep),
        )  # fmt: skip
        return sums.total

    def put_and_sweep(
        self, factors: Factors, sweep: Sweep, tallies: Tallies, spans: Sequence[slice], step: int
    ) -> tuple[Floats, Floats]:
        """``put`` and ``sweep`` over both halves in one go: what is read was made just before. The same bits."""
        assert sweep.both
        _, rows, size, sums = self._laid_out(sweep, spans, step)
        shares, scale, lift = (line[rows] for line in (tallies.shares, tallies.scale, tallies.lift))
        given, tops = self._product(factors, rows, None)
        loops.call(
            "sweep_product", *size, *given, sweep.scaled, lift, shares, scale, *sums.columns, *sums.wanted(sweep)
        )
        return BIT * tops.astype(np.float64), sums.total

    def _product(
        self, factors: Factors, rows: slice, tops: Floats | None
    ) -> tuple[tuple[Any, ...], NDArray[np.floating]]:
        return loops.product_arguments(
            factors.left[rows], factors.right, factors.column, tops, _FLOOR_BITS, self._upper, self._lower
        )

    def _laid_out(
        self, sweep: Sweep, spans: Sequence[slice], step: int
    ) -> tuple[Layout, slice, tuple[int, NDArray[np.int64], int, int], _Sums]:
        """Which rows the spans are, what a pass over them takes first, and room for its sums."""
        layout, rows = self._layout, slice(spans[0].start, spans[-1].stop)
        bounds = np.array([*(span.start for span in spans), rows.stop], dtype=np.int64) - rows.start
        lines = 2 if sweep.both or sweep.curved else 1
        sums = _Sums(
            columns=loops.room((2, layout.blocks * BLOCK)),
            span=np.empty((lines, layout.width)),
            total=np.zeros((lines, layout.width)),
        )
        return layout, rows, (len(spans), bounds, step, layout.width), sums


@dataclass(frozen=True)
class _Sums:
    """Column sums as they are added up."""

    columns: NDArray[np.float32]
    """Over a step of rows, of both halves and of the upper ones, or of these and of their squares."""
    span: Floats
    total: Floats

    def wanted(self, sweep: Sweep) -> tuple[Floats, Floats | None]:
        return self.span, self.total if sweep.columns else None
