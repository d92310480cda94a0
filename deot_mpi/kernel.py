"""Kernels: what an agent shows of its samples, and blocks of the log-kernel from what two agents show.

log K_nm = -c(x_n, y_m)/eps with c = ||x - y||^2, exact (``RawKernel``) or estimated from sketches (``SketchKernel``).
Neither knows who asks: source and target compute the same block from the same operands, to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from deot_mpi.kinds import Kind
from deot_mpi.samples import Floats
from deot_mpi.sketch import Estimator, estimate_angles, packed_bytes, sketch

Shown = dict[Kind, NDArray[np.generic]]
"""What an agent shows of its samples: one array per kind of message."""


_NEGLIGIBLE = 1e-11
"""Errors of a cost below this share of eps do not show in any value that is right to ten digits."""


class Kernel(Protocol):
    """One interface for all kernels."""

    def show(self, rows: Floats) -> Shown:
        """What leaves the agent that holds these (centred) rows."""

    def blank(self, count: int) -> Shown:
        """Empty arrays of the shapes and types ``show`` gives for ``count`` rows, to receive into."""

    def log_block(self, source: Shown, target: Shown) -> Floats:
        """log K between the rows of two agents, (N_i, M_j)."""


@dataclass(frozen=True)
class RawKernel:
    """The exact kernel; one exchange of samples, O((IM + JN) D) numbers (Algorithm 1, lines 1-2)."""

    eps: float
    dimension: int

    def show(self, rows: Floats) -> Shown:
        return {Kind.SAMPLES: rows}

    def blank(self, count: int) -> Shown:
        return {Kind.SAMPLES: np.empty((count, self.dimension))}

    def log_block(self, source: Shown, target: Shown) -> Floats:
        x, y = (np.asarray(shown[Kind.SAMPLES], dtype=np.float64) for shown in (source, target))
        return np.asarray(squared_distances(x, y, self.eps) / -self.eps)


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

    def log_block(self, source: Shown, target: Shown) -> Floats:
        a, b = (np.asarray(shown[Kind.SKETCH], dtype=np.uint8) for shown in (source, target))
        r, s = (np.asarray(shown[Kind.NORMS], dtype=np.float64) for shown in (source, target))
        angles = estimate_angles(a, b, self.bits, self.dimension, self.estimator, self.orthogonal)
        cross = 2.0 * r[:, None] * s[None, :]
        cost = r[:, None] ** 2 + s[None, :] ** 2 - cross * np.cos(angles.phi)
        log_kernel = np.maximum(cost, 0.0) / -self.eps
        if self.correction:
            log_kernel -= noise_correction((cross * np.sin(angles.phi) / self.eps) ** 2 * angles.variance)
        return log_kernel


def squared_distances(x: Floats, y: Floats, eps: float) -> Floats:
    """||x_n - y_m||^2 with an error far below eps.

    As |x|^2 + |y|^2 - 2 <x,y> it is one matrix product, but a row far from the rest costs all its digits; where that
    would show in units of eps, the differences are squared instead, column by column.
    """
    xx, yy = (x**2).sum(axis=1), (y**2).sum(axis=1)
    if max(xx.max(), yy.max()) * np.finfo(float).eps < _NEGLIGIBLE * eps:
        return np.asarray(np.maximum(xx[:, None] + yy[None, :] - 2.0 * (x @ y.T), 0.0))
    cost = np.zeros((len(x), len(y)))
    for a, b in zip(x.T, y.T, strict=True):
        cost += np.subtract.outer(a, b) ** 2
    return cost


def noise_correction(relative_variance: Floats) -> Floats:
    """g(z) for z = var(c^)/eps^2: z/2 up to 1, then (1 + log z)/2."""
    z = relative_variance
    return np.where(z <= 1.0, z / 2.0, (1.0 + np.log(np.maximum(z, 1.0))) / 2.0)
