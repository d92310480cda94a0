"""Log-kernels from packed bits and norms: inner products <x,y> estimated as |x| |y| cos(phi^)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deot_mpi.data.samples import Floats
from deot_mpi.kernel.base import LogPairs, ProductPairs, ShiftedPairs
from deot_mpi.sketch import BitCounts, Bits, Estimator, angles_by_count


class Cosines:
    """cos(phi^) of every pair: a count of bits per pair, then a table by count."""

    def __init__(
        self, a: Bits, b: Bits, bits: int, dimension: int, estimator: Estimator, orthogonal: bool, left: float = 1.0
    ) -> None:
        self._counts = BitCounts(a, b, estimator)
        angles = angles_by_count(bits, dimension, estimator, orthogonal, left)
        self.cosine = np.cos(angles.phi)
        self.sine = np.sin(angles.phi)
        self.angle_variance = angles.variance
        self.variance = self.sine**2 * angles.variance
        """Of cos(phi^), by count."""

    def counts(self, start: int, stop: int) -> NDArray[Any]:
        """The counts of bits of source rows start..stop-1 with every target row: places in the tables."""
        return self._counts.rows(start, stop)


class SketchPairs:
    """log K^_nm = sum_k r_kn s_km cos_k(phi^_nm) + row_n + column_m (+ an exact product), for one or more sketches k.

    ``correction`` takes g(z) off, z = sum_k (r_kn s_km)^2 var(cos_k). Noise in log K^ makes K^ too large on average,
    by exp(z/2) where the noise is small; g(z) = z/2 undoes that. Beyond z = 1 the expansion means little, and g
    continues as (1 + log z)/2, with the same slope.
    """

    def __init__(
        self,
        terms: Sequence[tuple[Cosines, Floats, Floats]],
        row: Floats,
        column: Floats,
        correction: bool,
        exact: ProductPairs | None = None,
    ) -> None:
        self.shape, self.offset = (len(row), len(column)), np.zeros(len(row))
        self._terms, self._row, self._column = list(terms), row, column
        self._correction, self._exact = correction, exact

    def rows(self, start: int, stop: int) -> Floats:
        parts: list[Floats] = [] if self._exact is None else [self._exact.rows(start, stop)]
        noise: list[Floats] = []
        for cosines, left, right in self._terms:
            counts, own = cosines.counts(start, stop), left[start:stop, None]
            parts.append(_scaled(cosines.cosine[counts], own, right))
            if self._correction:
                noise.append(_scaled(cosines.variance[counts], own**2, right**2))
        log_kernel = _added(parts)
        log_kernel += self._row[start:stop, None]
        log_kernel += self._column
        if noise:
            log_kernel -= noise_correction(_added(noise))
        return log_kernel

    def shifted(
        self, rows: Floats | float, columns: Floats | float, temperature: float = 1.0, *, single: bool = False
    ) -> LogPairs:
        return ShiftedPairs(self, rows, columns, temperature)


def _scaled(entries: Floats, rows: Floats, columns: Floats) -> Floats:
    entries *= columns
    entries *= rows
    return entries


def _added(parts: list[Floats]) -> Floats:
    total, *rest = parts
    for part in rest:
        total += part
    return total


def noise_correction(relative_variance: Floats) -> Floats:
    """g(z) for z = var(c^)/eps^2: z/2 up to 1, then (1 + log z)/2."""
    z = relative_variance
    half = z / 2.0
    large = z > 1.0
    if large.any():
        half[large] = (1.0 + np.log(z[large])) / 2.0
    return np.asarray(half)
