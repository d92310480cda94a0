"""What all kernels have in common: log K between two sides, computed on demand, row by row.

A kernel does not know who asks, nor does it hold a matrix: ``pairs`` gives an object that computes the rows it is
asked for.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from deot_mpi.data.samples import Floats
from deot_mpi.kernel import loops
from deot_mpi.kinds import Kind
from deot_mpi.roles import Role

Shown = dict[Kind, NDArray[np.generic]]
"""What an agent shows of its samples: one array per kind of message."""

BIT = math.log(2.0)
"""In nats."""
_MANY_COLUMNS = 256
"""Columns beyond which a copy of the factors costs more than one more pass over the product."""
_SINGLE_LARGEST = 60.0
"""The largest product that is taken in float32: an exponent is then off by 4e-6 at most, typically by a tenth of
that, at random like the rounding of a float32 kernel itself."""


class LogPairs(Protocol):
    """log K between the rows of a source and those of one or more targets, computed on demand."""

    shape: tuple[int, int]
    offset: Floats
    """What ``rows`` leaves out of every row: 0 but in float32, which has few digits to waste on constants."""

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """Rows start..stop-1; an array that is the caller's to change. float64 unless ``shifted`` said otherwise, whose
        arrays are lent: the next call in the same thread may take them back."""

    def shifted(
        self, rows: Floats | float, columns: Floats | float, temperature: float = 1.0, *, single: bool = False
    ) -> LogPairs:
        """log K_nm / temperature + rows_n + columns_m instead of log K.

        With ``single``, rows may come in float32, where that is enough for a kernel that is stored so.
        """


@dataclass(frozen=True)
class Disclosure:
    told: Shown
    kept: Shown


class Kernel(Protocol):
    """One interface for all kernels. The two roles may show different things."""

    def show(self, rows: Floats, role: Role = Role.TARGET) -> Shown:
        """What others need of an agent that holds these (centred) rows."""

    def disclosed(self, shown: Shown, draws: np.random.Generator) -> Disclosure:
        """Of what ``show`` gave: what is sent of it, and what the agent itself goes on with. Once per run and set of
        bits: noise that is drawn twice says more. ``draws`` are the agent's own, and nobody else's."""

    def blank(self, count: int, role: Role = Role.TARGET) -> Shown:
        """Empty arrays of the shapes and types ``show`` gives for ``count`` rows, to receive into."""

    def pairs(self, source: Shown, target: Shown) -> LogPairs:
        """The log-kernel between what two sides show."""


def log_block(kernel: Kernel, source: Shown, target: Shown) -> Floats:
    """The whole of log K between two agents, (N_i, M_j)."""
    pairs = kernel.pairs(source, target)
    return pairs.rows(0, pairs.shape[0])


def stacked(shown: Sequence[Shown]) -> Shown:
    """What several agents show, as if one agent held all their rows."""
    return {kind: _joined([part[kind] for part in shown]) for kind in shown[0]}


def parted(whole: Shown, counts: Sequence[int]) -> list[Shown]:
    """The other way round, without a copy: what each of several agents shows, as parts of what all do."""
    bounds = np.cumsum([0, *counts])
    return [
        {kind: array[low:high] for kind, array in whole.items()} for low, high in itertools.pairwise(bounds.tolist())
    ]


def _joined(arrays: Sequence[NDArray[np.generic]]) -> NDArray[np.generic]:
    """One after the other; where they are the parts of one array already, that array: sketches can be gigabytes."""
    whole = arrays[0].base
    if isinstance(whole, np.ndarray) and len(whole) == sum(map(len, arrays)):
        starts = np.cumsum([0, *map(len, arrays)]).tolist()
        if all(
            part.base is whole and _place(part) == _place(whole[at : at + len(part)])
            for part, at in zip(arrays, starts, strict=False)
        ):
            return whole
    return np.concatenate(arrays)


def _place(array: NDArray[np.generic]) -> object:
    return array.__array_interface__["data"], array.shape, array.strides


class ProductPairs:
    """log K_nm = <left_n, right_m> + row_n + column_m: one matrix product, the two terms as two more columns."""

    def __init__(self, left: Floats, right: Floats, row: Floats, column: Floats) -> None:
        self.shape, self.offset = (len(left), len(right)), np.zeros(len(left))
        self._left = np.column_stack([left, row, np.ones(len(left))])
        self._right = np.column_stack([right, np.ones(len(right)), column])
        # Cauchy-Schwarz: no product is larger. Rows' terms do not count: float32 leaves them out.
        product = float(np.sqrt((left**2).sum(axis=1).max() * (right**2).sum(axis=1).max()))
        self._largest = max(product, float(np.ptp(column)))
        self._packed: NDArray[np.float32] | None = None
        """The right side for ``factors``, once it was asked for."""
        self._lending: threading.local | None = None

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        left, out = self._left[start:stop], self._lent(stop - start)
        return np.matmul(left, self._right.T, out=out)

    def _lent(self, rows: int) -> NDArray[Any]:
        """Room for so many rows. Chunk after chunk it is the same: fresh memory costs as much as the product."""
        if self._lending is None:
            return np.empty((rows, self.shape[1]), dtype=self._left.dtype)
        room: NDArray[Any] | None = getattr(self._lending, "room", None)
        if room is None or len(room) < rows:
            room = self._lending.room = np.empty((rows, self.shape[1]), dtype=self._left.dtype)
        return room[:rows]

    def shifted(
        self, rows: Floats | float, columns: Floats | float, temperature: float = 1.0, *, single: bool = False
    ) -> LogPairs:
        if self._left.shape[1] > _MANY_COLUMNS:
            return ShiftedPairs(self, rows, columns, temperature)
        moved = copy(self)  # the two shifts go into the two extra columns: no pass of their own
        moved._left, moved._right, moved._packed = self._left.copy(), self._right.copy(), None
        moved._left[:, :-2] /= temperature
        moved._left[:, -2] = moved._left[:, -2] / temperature + rows
        moved._right[:, -1] = moved._right[:, -1] / temperature + columns
        if single and self._largest < _SINGLE_LARGEST * temperature:
            middle = moved._right[:, -1].mean()
            moved.offset = moved._left[:, -2] + middle
            moved._left[:, -2], moved._right[:, -1] = 0.0, moved._right[:, -1] - middle
            moved._left, moved._right = moved._left.astype(np.float32), moved._right.astype(np.float32)
        moved._lending = threading.local()
        return moved

    def factors(self, columns: Floats, temperature: float) -> Factors | None:
        """log K_nm / temperature + columns_m for the compiled passes, where float32 is enough and rows are short."""
        if self._left.shape[1] > _MANY_COLUMNS or not self._largest < _SINGLE_LARGEST * temperature:
            return None
        if self._packed is None:
            self._packed = loops.packed(self._right[:, :-2])
        column = self._right[:, -1] / temperature + columns
        middle = column.mean()
        return Factors(
            left=(self._left[:, :-2] / (temperature * BIT)).astype(np.float32),
            right=self._packed,
            column=((column - middle) / BIT).astype(np.float32),
            offset=self._left[:, -2] / temperature + middle,
        )


@dataclass(frozen=True)
class Factors:
    """log K_nm = (<left_n, right_m> + column_m) log 2 + offset_n, the first two in float32 and not computed yet."""

    left: NDArray[np.float32]
    right: NDArray[np.float32]
    """As ``loops.packed`` has it."""
    column: NDArray[np.float32]
    offset: Floats


class ShiftedPairs:
    """Any pairs, tempered and shifted after they are computed."""

    def __init__(self, pairs: LogPairs, rows: Floats | float, columns: Floats | float, temperature: float) -> None:
        self.shape, self.offset, self._pairs, self._temperature = pairs.shape, pairs.offset, pairs, temperature
        self._rows, self._columns = np.broadcast_to(rows, self.shape[0]), columns

    def rows(self, start: int, stop: int) -> Floats:
        log_kernel = self._pairs.rows(start, stop)
        if self._temperature != 1.0:
            log_kernel /= self._temperature
        log_kernel += self._columns
        log_kernel += self._rows[start:stop, None]
        return log_kernel

    def shifted(
        self, rows: Floats | float, columns: Floats | float, temperature: float = 1.0, *, single: bool = False
    ) -> LogPairs:
        return ShiftedPairs(self, rows, columns, temperature)
