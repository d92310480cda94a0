"""The kernel of entropic Gromov-Wasserstein at an alignment P, plain or fused with features.

log K_nm = alpha (4 |x_n|^2 |y_m|^2 + 32 x_n^T P y_m)/eps - (1 - alpha) |f_n - g_m|^2/eps

x in R^{D_X} and y in R^{D_Y} are centred in their own domains; f and g are features in a space both domains share,
there only for the fused problem (alpha < 1). Rows are structure and features side by side: [x, f] and [y, g].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from deot_mpi.data.samples import Floats
from deot_mpi.kernel.base import Disclosure, Kernel, LogPairs, ProductPairs, Shown
from deot_mpi.kernel.bits import Cosines, SketchPairs
from deot_mpi.kinds import Kind
from deot_mpi.projections import projections
from deot_mpi.roles import Role
from deot_mpi.sketch import Bits, Estimator, packed_bytes, sketch


@dataclass(frozen=True)
class Spaces:
    """The dimensions of the structures and of the common features (0 without)."""

    source: int
    target: int
    features: int = 0

    def of(self, role: Role) -> int:
        return self.source if role is Role.SOURCE else self.target

    def structure(self, rows: Floats, role: Role) -> Floats:
        return rows[:, : self.of(role)]

    def shared(self, rows: Floats, role: Role) -> Floats:
        """The features of these rows."""
        return rows[:, self.of(role) :]


class AlignedKernel(Kernel, Protocol):
    """A kernel that depends on P."""

    @property
    def shows_alignment(self) -> bool:
        """Whether what a source shows changes with P."""

    def align(self, alignment: Floats, temperature: float = 1.0) -> None:
        """Go over to another P, at temperature times eps."""


class RawGromovKernel:
    """The exact kernel: one matrix product."""

    shows_alignment = False

    def __init__(self, spaces: Spaces, eps: float, alpha: float) -> None:
        self._spaces, self._own_eps, self._eps, self._alpha = spaces, eps, eps, alpha
        self._alignment = np.zeros((spaces.source, spaces.target))

    def align(self, alignment: Floats, temperature: float = 1.0) -> None:
        self._alignment, self._eps = alignment, temperature * self._own_eps

    def show(self, rows: Floats, role: Role = Role.TARGET) -> Shown:
        return {Kind.SAMPLES: rows}

    def disclosed(self, shown: Shown, draws: np.random.Generator) -> Disclosure:
        return Disclosure(shown, shown)

    def blank(self, count: int, role: Role = Role.TARGET) -> Shown:
        return {Kind.SAMPLES: np.empty((count, self._spaces.of(role) + self._spaces.features))}

    def pairs(self, source: Shown, target: Shown) -> LogPairs:
        spaces = self._spaces
        rows, columns = (np.asarray(shown[Kind.SAMPLES], dtype=np.float64) for shown in (source, target))
        x, y = spaces.structure(rows, Role.SOURCE), spaces.structure(columns, Role.TARGET)
        share = self._alpha / self._eps
        left, right, row, column = _squared_norms((x**2).sum(axis=1), (y**2).sum(axis=1), 4.0 * share)
        left, right = np.hstack([left, 32.0 * share * (x @ self._alignment)]), np.hstack([right, y])
        if spaces.features:
            f, g = spaces.shared(rows, Role.SOURCE), spaces.shared(columns, Role.TARGET)
            rest = (1.0 - self._alpha) / self._eps
            left, right = np.hstack([left, 2.0 * rest * f]), np.hstack([right, g])
            row, column = row - rest * (f**2).sum(axis=1), column - rest * (g**2).sum(axis=1)
        return ProductPairs(left, right, row, column)


def _squared_norms(xx: Floats, yy: Floats, factor: float) -> tuple[Floats, Floats, Floats, Floats]:
    """factor |x|^2 |y|^2 as left right^T + row + column.

    The squared norms enter as deviations from their means, so that the product itself, which may be taken in float32,
    is small.
    """
    a, b = float(xx.mean()), float(yy.mean())
    left, right = factor * (xx - a)[:, None], (yy - b)[:, None]
    return left, right, factor * b * (xx - a), factor * a * yy


@dataclass(frozen=True)
class BitSettings:
    """How sketches are made and read."""

    bits: int
    seed: int
    estimator: Estimator = "hamming"
    orthogonal: bool = True
    correction: bool = True


class SketchGromovKernel:
    """The kernel estimated from bits and norms: x^T P y = |P^T x| |y| cos(phi^), the angle between P^T x and y.

    Targets show sketches of y in R^{D_Y} and norms; a source sketches its P^T x anew at every P, for itself (or for
    its neighbours, where these compute, too). Features are sketched apart, in a space of their own.
    """

    shows_alignment = True

    def __init__(self, spaces: Spaces, eps: float, alpha: float, how: BitSettings) -> None:
        self._spaces, self._own_eps, self._eps, self._alpha, self.how = spaces, eps, eps, alpha, how
        self.alignment = np.zeros((spaces.source, spaces.target))

    def align(self, alignment: Floats, temperature: float = 1.0) -> None:
        self.alignment, self._eps = alignment, temperature * self._own_eps

    @cached_property
    def projections(self) -> Floats:
        """omega for R^{D_Y}, (D_Y, Q): kept, because every P needs it again."""
        return projections(self._spaces.target, self.how.bits, self.how.seed, self.how.orthogonal)

    def projected(self, x: Floats) -> Floats:
        """P^T x_n for every row."""
        return x @ self.alignment

    def show(self, rows: Floats, role: Role = Role.TARGET) -> Shown:
        structure = self._spaces.structure(rows, role)
        norms = [np.linalg.norm(structure, axis=1)]
        seen = structure
        if role is Role.SOURCE:
            seen = self.projected(structure)
            norms.append(np.linalg.norm(seen, axis=1))
        bits = [np.packbits(seen @ self.projections >= 0, axis=1)]
        if self._spaces.features:
            features = self._spaces.shared(rows, role)
            bits.append(sketch(features, self.how.bits, self.how.seed, self.how.orthogonal))
            norms.append(np.linalg.norm(features, axis=1))
        return {Kind.SKETCH: np.hstack(bits), Kind.NORMS: np.column_stack(norms)}

    def disclosed(self, shown: Shown, draws: np.random.Generator) -> Disclosure:
        return Disclosure(shown, shown)

    def blank(self, count: int, role: Role = Role.TARGET) -> Shown:
        fused = int(self._spaces.features > 0)
        width = packed_bytes(self.how.bits) * (1 + fused)
        numbers = (2 if role is Role.SOURCE else 1) + fused
        return {Kind.SKETCH: np.empty((count, width), dtype=np.uint8), Kind.NORMS: np.empty((count, numbers))}

    def pairs(self, source: Shown, target: Shown) -> LogPairs:
        a, b = (np.asarray(shown[Kind.SKETCH], dtype=np.uint8) for shown in (source, target))
        r, s = (np.asarray(shown[Kind.NORMS], dtype=np.float64) for shown in (source, target))
        width, share = packed_bytes(self.how.bits), self._alpha / self._eps
        left, right, row, column = _squared_norms(r[:, 0] ** 2, s[:, 0] ** 2, 4.0 * share)
        terms = [(self.cosines(source, target), 32.0 * share * r[:, 1], s[:, 0])]
        if self._spaces.features:
            rest = (1.0 - self._alpha) / self._eps
            cosines = self._cosines(a[:, width:], b[:, width:], self._spaces.features)
            terms.append((cosines, 2.0 * rest * r[:, -1], s[:, -1]))
            row, column = row - rest * r[:, -1] ** 2, column - rest * s[:, -1] ** 2
        exact = ProductPairs(left, right, np.zeros(len(row)), np.zeros(len(column)))
        return SketchPairs(terms, row, column, self.how.correction, exact)

    def cosines(self, source: Shown, target: Shown) -> Cosines:
        """Of the angles between P^T x and y."""
        width = packed_bytes(self.how.bits)
        a, b = (np.asarray(shown[Kind.SKETCH], dtype=np.uint8)[:, :width] for shown in (source, target))
        return self._cosines(a, b, self._spaces.target)

    def _cosines(self, a: Bits, b: Bits, dimension: int) -> Cosines:
        how = self.how
        return Cosines(a, b, how.bits, dimension, how.estimator, how.orthogonal)
