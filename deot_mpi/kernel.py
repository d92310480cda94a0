"""Kernels: what an agent shows of its samples, and the log-kernel between what two agents show.

log K_nm = -c(x_n, y_m)/eps with c = ||x - y||^2, exact (``RawKernel``) or estimated from sketches (``SketchKernel``).
Neither knows who asks, nor holds a matrix: ``pairs`` gives an object that computes the rows it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from deot_mpi.kinds import Kind
from deot_mpi.samples import Floats
from deot_mpi.sketch import BitCounts, Bits, Estimator, angles_by_count, packed_bytes, sketch

Shown = dict[Kind, NDArray[np.generic]]
"""What an agent shows of its samples: one array per kind of message."""


_NEGLIGIBLE = 1e-11
"""Errors of a cost below this share of eps do not show in any value that is right to ten digits."""


_MANY_COLUMNS = 256
"""Columns beyond which a copy of the samples costs more than one more pass over the product."""


_SINGLE_LARGEST = 60.0
"""(|x|^2 + |y|^2)/eps up to which the product is taken in float32: an exponent is then off by 4e-6 at most,
typically by a tenth of that, at random like the rounding of a float32 kernel itself."""


class LogPairs(Protocol):
    """log K between the rows of a source and those of one or more targets, computed on demand."""

    shape: tuple[int, int]
    offset: Floats
    """What ``rows`` leaves out of every row: 0 but in float32, which has few digits to waste on constants."""

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """Rows start..stop-1; a new array, the caller's to change. float64 unless ``shifted`` said otherwise."""

    def shifted(
        self, rows: Floats | float, columns: Floats | float, temperature: float = 1.0, *, single: bool = False
    ) -> LogPairs:
        """log K_nm / temperature + rows_n + columns_m instead of log K.

        With ``single``, rows may come in float32, where that is enough for a kernel that is stored so.
        """


class Kernel(Protocol):
    """One interface for all kernels."""

    def show(self, rows: Floats) -> Shown:
        """What others need of an agent that holds these (centred) rows."""

    def blank(self, count: int) -> Shown:
        """Empty arrays of the shapes and types ``show`` gives for ``count`` rows, to receive into."""

    def pairs(self, source: Shown, target: Shown) -> LogPairs:
        """The log-kernel between what two sides show."""


def log_block(kernel: Kernel, source: Shown, target: Shown) -> Floats:
    """The whole of log K between two agents, (N_i, M_j)."""
    pairs = kernel.pairs(source, target)
    return pairs.rows(0, pairs.shape[0])


def stacked(shown: Sequence[Shown]) -> Shown:
    """What several agents show, as if one agent held all their rows."""
    return {kind: np.concatenate([part[kind] for part in shown]) for kind in shown[0]}


@dataclass(frozen=True)
class RawKernel:
    """The exact kernel; one exchange of samples, O((IM + JN) D) numbers (Algorithm 1, lines 1-2)."""

    eps: float
    dimension: int

    def show(self, rows: Floats) -> Shown:
        return {Kind.SAMPLES: rows}

    def blank(self, count: int) -> Shown:
        return {Kind.SAMPLES: np.empty((count, self.dimension))}

    def pairs(self, source: Shown, target: Shown) -> LogPairs:
        x, y = (np.asarray(shown[Kind.SAMPLES], dtype=np.float64) for shown in (source, target))
        return RawPairs(x, y, self.eps)


class RawPairs:
    """-||x_n - y_m||^2/eps, with an error far below 1.

    As (2 <x,y> - |x|^2 - |y|^2)/eps it is one matrix product, with |x|^2 and |y|^2 as two more columns. A row far from
    the rest costs all its digits that way; where that would show, the differences are squared, column by column.
    """

    def __init__(self, x: Floats, y: Floats, eps: float) -> None:
        self.shape, self._eps, self._x, self._y = (len(x), len(y)), eps, x, y
        self.offset = np.zeros(len(x))
        xx, yy = (x**2).sum(axis=1), (y**2).sum(axis=1)
        self._largest = float(xx.max() + yy.max()) / eps
        self._by_product = self._largest * np.finfo(float).eps < 2.0 * _NEGLIGIBLE
        if self._by_product:
            self._x = np.column_stack([2.0 / eps * x, -xx / eps, np.ones(len(x))])
            self._y = np.column_stack([y, np.ones(len(y)), -yy / eps])

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        x, y = self._x[start:stop], self._y
        if self._by_product:
            return x @ y.T
        log_kernel = np.zeros((len(x), len(y)))
        for a, b in zip(x.T, y.T, strict=True):
            log_kernel -= np.subtract.outer(a, b) ** 2
        log_kernel /= self._eps
        return log_kernel

    def shifted(
        self, rows: Floats | float, columns: Floats | float, temperature: float = 1.0, *, single: bool = False
    ) -> LogPairs:
        if not self._by_product or self._x.shape[1] > _MANY_COLUMNS:
            return ShiftedPairs(self, rows, columns, temperature)
        moved = copy(self)  # the two shifts go into the two extra columns: no pass of their own
        moved._x, moved._y = self._x.copy(), self._y.copy()
        moved._x[:, :-2] /= temperature
        moved._x[:, -2] = moved._x[:, -2] / temperature + rows
        moved._y[:, -1] = moved._y[:, -1] / temperature + columns
        if single and self._largest < _SINGLE_LARGEST * temperature:
            middle = moved._y[:, -1].mean()
            moved.offset = moved._x[:, -2] + middle
            moved._x[:, -2], moved._y[:, -1] = 0.0, moved._y[:, -1] - middle
            moved._x, moved._y = moved._x.astype(np.float32), moved._y.astype(np.float32)
        return moved


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


@dataclass(frozen=True)
class SketchKernel:
    """The kernel estimated from packed bits and norms (Algorithm 2): c^ = r^2 + s^2 - 2 r s cos(phi^).

    ``correction`` adds eps g(var/eps^2) to c^. Noise in c^ makes exp(-c^/eps) too large on average, by
    exp(var/(2 eps^2)) where the noise is small against eps; g(z) = z/2 undoes that. Beyond z = 1 the expansion means
    little, and g continues as (1 + log z)/2, with the same slope.
    """

    eps: float
    dimension: int
    bits: int
    seed: int
    estimator: Estimator = "hamming"
    orthogonal: bool = True
    correction: bool = True

    def show(self, rows: Floats) -> Shown:
        return {
            Kind.SKETCH: sketch(rows, self.bits, self.seed, self.orthogonal),
            Kind.NORMS: np.linalg.norm(rows, axis=1),
        }

    def blank(self, count: int) -> Shown:
        return {
            Kind.SKETCH: np.empty((count, packed_bytes(self.bits)), dtype=np.uint8),
            Kind.NORMS: np.empty(count),
        }

    def pairs(self, source: Shown, target: Shown) -> LogPairs:
        a, b = (np.asarray(shown[Kind.SKETCH], dtype=np.uint8) for shown in (source, target))
        r, s = (np.asarray(shown[Kind.NORMS], dtype=np.float64) for shown in (source, target))
        return SketchPairs(self, a, b, r, s)


class SketchPairs:
    """log K^ from bits and norms: a count of bits per pair, then tables of cos(phi^) and of the noise by count."""

    def __init__(self, kernel: SketchKernel, a: Bits, b: Bits, r: Floats, s: Floats) -> None:
        self.shape, self.offset = (len(a), len(b)), np.zeros(len(a))
        self._counts = BitCounts(a, b, kernel.estimator)
        self._r, self._s, self._eps = r, s, kernel.eps
        angles = angles_by_count(kernel.bits, kernel.dimension, kernel.estimator, kernel.orthogonal)
        self._cosine = np.cos(angles.phi)
        # var(c^) = (2 r s sin(phi))^2 var(phi): all but r s by count
        self._noise = (2.0 * np.sin(angles.phi)) ** 2 * angles.variance if kernel.correction else None

    def rows(self, start: int, stop: int) -> Floats:
        counts = self._counts.rows(start, stop)
        r, s, eps = self._r[start:stop, None], self._s[None, :], self._eps
        log_kernel = self._cosine[counts]
        log_kernel *= s * (2.0 / eps)
        log_kernel *= r
        log_kernel -= r**2 / eps
        log_kernel -= s**2 / eps
        np.minimum(log_kernel, 0.0, out=log_kernel)
        if self._noise is not None:
            relative_variance = self._noise[counts]
            relative_variance *= (s / eps) ** 2
            relative_variance *= r**2
            log_kernel -= noise_correction(relative_variance)
        return np.asarray(log_kernel)

    def shifted(
        self, rows: Floats | float, columns: Floats | float, temperature: float = 1.0, *, single: bool = False
    ) -> LogPairs:
        return ShiftedPairs(self, rows, columns, temperature)


def noise_correction(relative_variance: Floats) -> Floats:
    """g(z) for z = var(c^)/eps^2: z/2 up to 1, then (1 + log z)/2."""
    z = relative_variance
    half = z / 2.0
    large = z > 1.0
    if large.any():
        half[large] = (1.0 + np.log(z[large])) / 2.0
    return np.asarray(half)
