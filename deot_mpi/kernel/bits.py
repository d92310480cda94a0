"""Log-kernels from packed bits and norms: inner products <x,y> estimated as |x| |y| cos(phi^)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deot_mpi.data.samples import Floats
from deot_mpi.errors import MessageError
from deot_mpi.kernel.base import LogPairs, ProductPairs, ShiftedPairs
from deot_mpi.kernel.loops import look_up, take_off_noise
from deot_mpi.sketch import BitCounts, Bits, Estimator, angles_by_count, stray_bits


class Cosines:
    """cos(phi^) of every pair: a count of bits per pair, then a table by count."""

    def __init__(
        self, a: Bits, b: Bits, bits: int, dimension: int, estimator: Estimator, orthogonal: bool, left: float = 1.0
    ) -> None:
        if stray_bits(a, bits) or stray_bits(b, bits):
            raise MessageError(
                f"a neighbour sent sketches with bits beyond the {bits} that were agreed on; it runs another program "
                "or is broken, and nothing of it was used."
            )
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
        log_kernel = np.add.outer(self._row[start:stop], self._column)
        if self._exact is not None:
            log_kernel += self._exact.rows(start, stop)
        noise = np.zeros_like(log_kernel) if self._correction else None
        for cosines, left, right in self._terms:
            counts, own = cosines.counts(start, stop), left[start:stop]
            look_up(counts, cosines.cosine, own, right, log_kernel)
            if noise is not None:
                look_up(counts, cosines.variance, own**2, right**2, noise)
        if noise is not None:
            take_off_noise(noise, log_kernel)
        return log_kernel

    def shifted(
        self, rows: Floats | float, columns: Floats | float, temperature: float = 1.0, *, single: bool = False
    ) -> LogPairs:
        return ShiftedPairs(self, rows, columns, temperature)
