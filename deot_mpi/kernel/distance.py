"""The kernel of entropic OT: log K_nm = -||x_n - y_m||^2/eps, exact or estimated from sketches."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from deot_mpi.data.samples import Floats
from deot_mpi.kernel.base import Disclosure, LogPairs, ProductPairs, ShiftedPairs, Shown
from deot_mpi.kernel.bits import Cosines, SketchPairs
from deot_mpi.kinds import Kind
from deot_mpi.privacy.noise import Noise, rounded_norms
from deot_mpi.roles import Role
from deot_mpi.sketch import Estimator, flipped, packed_bytes, sketch

_NEGLIGIBLE = 1e-11
"""Errors of a cost below this share of eps do not show in any value that is right to ten digits."""


@dataclass(frozen=True)
class RawKernel:
    """The exact kernel; one exchange of samples, O((IM + JN) D) numbers (Algorithm 1, lines 1-2)."""

    eps: float
    dimension: int

    def show(self, rows: Floats, role: Role = Role.TARGET) -> Shown:
        return {Kind.SAMPLES: rows}

    def disclosed(self, shown: Shown, draws: np.random.Generator) -> Disclosure:
        return Disclosure(shown, shown)

    def blank(self, count: int, role: Role = Role.TARGET) -> Shown:
        return {Kind.SAMPLES: np.empty((count, self.dimension))}

    def pairs(self, source: Shown, target: Shown) -> LogPairs:
        x, y = (np.asarray(shown[Kind.SAMPLES], dtype=np.float64) for shown in (source, target))
        return distance_pairs(x, y, self.eps)


def distance_pairs(x: Floats, y: Floats, eps: float) -> LogPairs:
    """-||x_n - y_m||^2/eps, with an error far below 1.

    As (2 <x,y> - |x|^2 - |y|^2)/eps it is one matrix product. A row far from the rest costs all its digits that way;
    where that would show, the differences are squared, column by column.
    """
    xx, yy = (x**2).sum(axis=1), (y**2).sum(axis=1)
    if float(xx.max() + yy.max()) / eps * np.finfo(float).eps < 2.0 * _NEGLIGIBLE:
        return ProductPairs(2.0 / eps * x, y, -xx / eps, -yy / eps)
    return DifferencePairs(x, y, eps)


class DifferencePairs:
    """-||x_n - y_m||^2/eps from the differences themselves: slower than a product, with all digits."""

    def __init__(self, x: Floats, y: Floats, eps: float) -> None:
        self.shape, self.offset, self._x, self._y, self._eps = (len(x), len(y)), np.zeros(len(x)), x, y, eps

    def rows(self, start: int, stop: int) -> Floats:
        log_kernel = np.zeros((stop - start, self.shape[1]))
        for a, b in zip(self._x[start:stop].T, self._y.T, strict=True):
            log_kernel -= np.subtract.outer(a, b) ** 2
        log_kernel /= self._eps
        return log_kernel

    def shifted(
        self, rows: Floats | float, columns: Floats | float, temperature: float = 1.0, *, single: bool = False
    ) -> LogPairs:
        return ShiftedPairs(self, rows, columns, temperature)


@dataclass(frozen=True)
class SketchKernel:
    """The kernel estimated from packed bits and norms (Algorithm 2): c^ = r^2 + s^2 - 2 r s cos(phi^)."""

    eps: float
    dimension: int
    bits: int
    seed: int
    estimator: Estimator = "hamming"
    orthogonal: bool = True
    correction: bool = True
    noise: Noise = field(default_factory=Noise)

    def show(self, rows: Floats, role: Role = Role.TARGET) -> Shown:
        return {
            Kind.SKETCH: sketch(rows, self.bits, self.seed, self.orthogonal),
            Kind.NORMS: np.linalg.norm(rows, axis=1),
        }

    def disclosed(self, shown: Shown, draws: np.random.Generator) -> Disclosure:
        """Bits flipped and norms rounded by chance. Where one side computes, it uses its own as they are."""
        noise = self.noise
        if not noise.any:
            return Disclosure(shown, shown)
        bits, norms = np.asarray(shown[Kind.SKETCH], np.uint8), np.asarray(shown[Kind.NORMS], np.float64)
        told: Shown = {
            Kind.SKETCH: flipped(bits, self.bits, noise.flip, draws) if noise.flip else bits,
            Kind.NORMS: rounded_norms(norms, noise.norm_step, draws) if noise.norm_step else norms,
        }
        return Disclosure(told, shown if noise.one_sided else told)

    def blank(self, count: int, role: Role = Role.TARGET) -> Shown:
        return {
            Kind.SKETCH: np.empty((count, packed_bytes(self.bits)), dtype=np.uint8),
            Kind.NORMS: np.empty(count),
        }

    def pairs(self, source: Shown, target: Shown) -> LogPairs:
        a, b = (np.asarray(shown[Kind.SKETCH], dtype=np.uint8) for shown in (source, target))
        r, s = (np.asarray(shown[Kind.NORMS], dtype=np.float64) for shown in (source, target))
        cosines = Cosines(a, b, self.bits, self.dimension, self.estimator, self.orthogonal, self.noise.left)
        return SketchPairs([(cosines, 2.0 * r, s / self.eps)], -(r**2) / self.eps, -(s**2) / self.eps, self.correction)
