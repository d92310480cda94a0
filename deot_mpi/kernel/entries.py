"""The stored entries of a source's rows, and what a sweep does with them: row sums, then column sums.

Here as an array (``Numbers``); ``halves`` has them in another form. No messages, no decisions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from deot_mpi.data.samples import Floats
from deot_mpi.kernel import loops
from deot_mpi.kernel.base import Factors, LogPairs
from deot_mpi.kernel.loops import BLOCK

Precision = Literal["float32", "float64"]
Exponents = LogPairs | Factors

FLOOR: dict[Precision, float] = {"float32": -80.0, "float64": -690.0}
"""Entries below exp(this), once what is taken off their row is, are stored as exp(this): far below the rounding of any
sum, and never so small that the processor falls back to slow (denormal) arithmetic."""


class Layout:
    """Columns in parts, one for each neighbour, in their order."""

    def __init__(self, columns: Mapping[int, slice], width: int) -> None:
        bounds = [part.indices(width)[:2] for part in columns.values()]
        self.width, self.parts = width, [slice(low, high) for low, high in bounds]
        self.first = np.array([low // BLOCK for low, _ in bounds], dtype=np.int64)
        self.last = np.array([-(-high // BLOCK) for _, high in bounds], dtype=np.int64)
        self.at = np.concatenate([[0], np.cumsum(self.last - self.first)]).astype(np.int64) * BLOCK
        self.blocks = -(-width // BLOCK)
        low, high = (np.array(ends, dtype=np.int64) for ends in zip(*bounds, strict=True))
        self._windows = _Room(low, high, self.at[:-1] + low - self.first * BLOCK, int(self.at[-1]))
        whole = np.array([0]), np.array([width]), np.array([0])
        self._padded = _Room(*whole, self.blocks * BLOCK)

    def padded(self, potential: Floats, since: Floats) -> NDArray[np.float32]:
        """exp(potential - since) for all columns, with zeros up to the end of the last block. Lent, until the next."""
        return self._padded.filled(potential, since)

    def windows(self, potential: Floats, since: Floats) -> NDArray[np.float32]:
        """The same for all parts, one after the other, each with zeros around it up to the next blocks."""
        return self._windows.filled(potential, since)

    def window(self, part: int, potential: Floats, since: Floats) -> NDArray[np.float32]:
        """The same for one part, of potentials of its columns alone."""
        start = self.parts[part].start - self.first[part] * BLOCK
        room = _Room(np.array([0]), np.array([potential.size]), np.array([start]), self.at[part + 1] - self.at[part])
        return room.filled(potential, since)


class _Room:
    """Where columns low to high - 1 of some parts stand, the first of each at a place of its own, among zeros."""

    def __init__(self, low: NDArray[np.int64], high: NDArray[np.int64], places: NDArray[np.int64], size: int) -> None:
        self._parts, self._out = (low, high, places), loops.room((size,))
        self._out[:] = 0.0

    def filled(self, potential: Floats, since: Floats) -> NDArray[np.float32]:
        loops.scale(potential, since, self._parts, self._out)
        return self._out


@dataclass
class Tallies:
    """What sweeps need of every row, and leave there."""

    shares: Floats
    by_part: Floats
    """Row sums over the columns of each part."""
    scale: Floats
    """Row sums over all columns."""
    lift: Floats
    """1 + lambda."""
    heard: NDArray[np.uint8]
    """Which parts' row sums are there already."""


@dataclass(frozen=True)
class Absorbed:
    """What decides the bits of the stored block and of its next sweeps."""

    precision: Precision
    """That was asked for."""
    temperature: float
    reference: Floats | None
    """g0: where the block was absorbed, if it was."""
    lifted: Floats | None = None
    """Where both halves were last read, if only one is read since."""
    last: Floats | None = None
    """Of the last sweep."""


@dataclass(frozen=True)
class Sweep:
    """One pass over the entries, for given w."""

    scaled: NDArray[np.floating]
    """w for every column; for ``Halves`` in float32, ``padded`` where both halves are read, else in ``windows``."""
    both: bool
    """Whether both halves are read."""
    columns: bool
    """Whether column sums are asked for, too."""
    curved: bool = False
    """Whether squares are, too; not where both halves are read."""


class Entries(Protocol):
    """The entries of some rows."""

    def part(self, rows: slice) -> Entries:
        """Those of fewer rows, in the same memory."""

    def put(self, exponents: Exponents, rows: slice, tops: Floats | None) -> Floats:
        """Make them exp(exponent_nm - top_n), or the floor, from some rows of the exponents (without their offset).
        Returns ``tops``: near the largest exponent of each row, 21 below or 2 above at most, unless they are given."""

    def numbers(self) -> NDArray[np.floating]:
        """As an array."""

    def hear(self, part: int, scaled: NDArray[np.floating]) -> Floats:
        """Row sums over one part's columns, as ``sweep`` would find them without reading both halves."""

    def sweep(self, sweep: Sweep, tallies: Tallies, spans: Sequence[slice], step: int) -> Floats:
        """Row sums go into the tallies, where the spans are that these rows consist of; column sums of share / row sum
        come back, added up ``step`` rows at a time, then for each span, then over these: as a line, and one of H alone
        where both halves are read, or one of share (entry / row sum)^2 where that is asked for."""


class Numbers:
    """Entries as an array, and BLAS for their sums."""

    def __init__(self, array: NDArray[np.floating], layout: Layout, precision: Precision) -> None:
        self._array, self._layout, self._precision = array, layout, precision

    def part(self, rows: slice) -> Numbers:
        return Numbers(self._array[rows], self._layout, self._precision)

    def put(self, exponents: Exponents, rows: slice, tops: Floats | None) -> Floats:
        assert not isinstance(exponents, Factors)
        exponent = exponents.rows(rows.start, rows.stop)
        tops = exponent.max(axis=1) if tops is None else tops
        loops.absorb(exponent, tops.astype(exponent.dtype), FLOOR[self._precision], self._array)
        return tops

    def numbers(self) -> NDArray[np.floating]:
        return self._array

    def hear(self, part: int, scaled: NDArray[np.floating]) -> Floats:
        return np.asarray(self._array[:, self._layout.parts[part]] @ scaled, dtype=np.float64)

    def sweep(self, sweep: Sweep, tallies: Tallies, spans: Sequence[slice], step: int) -> Floats:
        first, total = spans[0].start, np.zeros((1 + sweep.curved, self._layout.width))
        for span in spans:
            total += self._sweep_span(sweep, tallies, span, span.start - first, step)
        return total

    def _sweep_span(self, sweep: Sweep, tallies: Tallies, span: slice, place: int, step: int) -> Floats:
        total = np.zeros((1 + sweep.curved, self._layout.width))
        for start in range(0, span.stop - span.start, step):
            here = slice(span.start + start, min(span.start + start + step, span.stop))
            block = self._array[place + start : place + start + here.stop - here.start]
            for part, columns in enumerate(self._layout.parts):
                if not tallies.heard[part]:
                    tallies.by_part[part, here] = block[:, columns] @ sweep.scaled[columns]
            scale = np.zeros(len(block))
            for sums in tallies.by_part:  # in the order of the neighbours, not of their arrival
                scale += sums[here]
            tallies.scale[here] = scale
            if sweep.columns:
                total[0] += (tallies.shares[here] / scale).astype(block.dtype) @ block
            if sweep.curved:
                roots = (np.sqrt(tallies.shares[here]) / scale).astype(block.dtype)
                total[1] += ((roots[:, None] * block) ** 2).sum(axis=0)
        return total
