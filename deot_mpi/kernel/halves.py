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

import numpy as np
from numpy.typing import NDArray

from deot_mpi.data.samples import Floats
from deot_mpi.kernel import loops
from deot_mpi.kernel.entries import FLOOR, Layout, Sweep, Tallies
from deot_mpi.kernel.loops import BLOCK, WORDS

_LARGE_PAGE = 1 << 21


def in_large_pages(shape: tuple[int, ...]) -> NDArray[np.uint32]:
    """Room that begins with a large page where the system has some: fewer, and so faster, first touches. NumPy asks for
    large pages, too, but begins anywhere."""
    count = math.prod(shape)
    if 4 * count < _LARGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.empty(shape, dtype=np.uint32)
    try:
        pages = mmap.mmap(-1, 4 * count + _LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"no room for {4 * count} bytes of kernel: {error}") from error
    with contextlib.suppress(OSError):  # a kernel without them
        pages.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(pages, dtype=np.uint8)
    start = -whole.ctypes.data % _LARGE_PAGE
    return whole[start : start + 4 * count].view(np.uint32).reshape(shape)


class Halves:
    """Some rows; ``upper`` and ``lower`` are laid out as ``_loops.c`` says."""

    def __init__(self, upper: NDArray[np.uint32], lower: NDArray[np.uint32], layout: Layout) -> None:
        self._upper, self._lower, self._layout = upper, lower, layout

    @classmethod
    def room(cls, rows: int, layout: Layout) -> Halves:
        upper, lower = in_large_pages((2, rows, layout.blocks * WORDS))
        return cls(upper, lower, layout)

    def part(self, rows: slice) -> Halves:
        return Halves(self._upper[rows], self._lower[rows], self._layout)

    def put(self, exponent: NDArray[np.floating], shift: NDArray[np.floating]) -> None:
        loops.absorb_halves(exponent, shift, FLOOR["float32"], self._upper, self._lower)

    def numbers(self) -> NDArray[np.floating]:
        return loops.joined_halves(self._upper, self._lower, self._layout.width)

    def hear(self, part: int, scaled: NDArray[np.floating]) -> Floats:
        layout = self._layout
        blocks = slice(int(layout.first[part]) * WORDS, int(layout.last[part]) * WORDS)
        return loops.upper_sums(self._upper, blocks, layout.window(part, scaled))

    def sweep(self, sweep: Sweep, tallies: Tallies, rows: slice, step: int) -> Floats:
        layout, size = self._layout, (len(self._upper), step, self._layout.width)
        total = np.zeros((2 if sweep.both else 1, layout.width))
        scratch = np.empty((2, layout.blocks * BLOCK), dtype=np.float32)
        shares, scale, lift = (line[rows] for line in (tallies.shares, tallies.scale, tallies.lift))
        if sweep.both:
            totals = (total[0], total[1]) if sweep.columns else (None, None)
            loops.call(
                "sweep_both", *size, self._upper, self._lower, sweep.scaled, lift, shares, scale, *scratch, *totals
            )
            return total
        by_part = tallies.by_part
        loops.call(
            "sweep_upper", *size, self._upper, len(layout.parts), layout.first, layout.last, layout.at, sweep.scaled,
            tallies.heard, by_part[:, rows], by_part.shape[1], lift, shares, scale, scratch[0], total,
        )  # fmt: skip
        return total
