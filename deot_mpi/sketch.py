"""Binary sketches: Q sign bits per sample, and the angle two sketches tell (Section 3.4, eqs. 9-10).

a_l = [ <omega_l, x> >= 0 ]. Two samples at angle phi differ in a bit with probability h = phi/pi, whatever
their length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from deot_mpi.randomness import Purpose, generator
from deot_mpi.samples import Floats

Bits = NDArray[np.uint8]
Estimator = Literal["hamming", "paper"]

_WORD = 8
"""Bytes of a machine word: packed rows are padded to it so that 64 bits are compared at once."""
_CHUNK_WORDS = 1 << 18
"""Words compared at once (2 MiB): keeps the temporary in cache."""


def packed_bytes(bits: int) -> int:
    """Bytes of one packed sketch on the wire."""
    return -(-bits // 8)


def sketch(rows: Floats, bits: int, seed: int, orthogonal: bool) -> Bits:
    """Pack the signs of Q random projections of each row: (N, ceil(Q/8)) bytes, Algorithm 2 lines 1-9.

    Projections come in blocks of D; with ``orthogonal`` each block is made orthonormal, which lowers the variance of
    the angle (see ``angle_variance``). A block exists only while it is used, so omega (Q x D) is never held whole.
    """
    count, dimension = rows.shape
    signs = np.empty((count, bits), dtype=bool)
    for block, start in enumerate(range(0, bits, dimension)):
        stop = min(start + dimension, bits)
        signs[:, start:stop] = rows @ _projections(dimension, stop - start, seed, block, orthogonal) >= 0
    return np.packbits(signs, axis=1)


def _projections(dimension: int, count: int, seed: int, block: int, orthogonal: bool) -> Floats:
    gaussian = generator(seed, Purpose.PROJECTIONS, block).standard_normal((dimension, count))
    if not orthogonal:
        return gaussian
    q, r = np.linalg.qr(gaussian)
    # QR fixes signs by convention, not by chance; the Gaussian's own signs make the directions uniform again. The
    # Hamming distance does not notice, the paper's <a, b> does.
    return np.asarray(q * np.where(np.diag(r) < 0, -1.0, 1.0))


@dataclass(frozen=True)
class Angles:
    """Estimated angles phi between two sets of sketched samples, and the variance of each estimate."""

    phi: Floats
    variance: Floats


def estimate_angles(
    source: Bits, target: Bits, bits: int, dimension: int, estimator: Estimator, orthogonal: bool
) -> Angles:
    """The angle between every pair of rows from their packed bits.

    ``hamming``: pi ham(a, b)/Q. ``paper``: pi |1 - (2/Q) <a, b>| (eq. 10), from the same bits with more variance.
    """
    if estimator == "hamming":
        h = _count_bits(np.bitwise_xor, source, target) / bits
    else:
        h = np.abs(1.0 - (2.0 / bits) * _count_bits(np.bitwise_and, source, target))
    return Angles(np.pi * h, angle_variance(h, bits, dimension, estimator, orthogonal))


def angle_variance(h: Floats, bits: int, dimension: int, estimator: Estimator, orthogonal: bool) -> Floats:
    """Variance of the estimated angle phi = pi h: pi^2 (spread - f sin(phi)^2/pi^2) / Q.

    The spread of one bit is h(1-h) for ``hamming`` and 1-h^2 for ``paper``. Orthonormal projections fix the sums of
    <omega,x>^2, <omega,y>^2 and <omega,x><omega,y> over a full block, so whatever part of a bit a linear
    regression on these three explains is no longer random: sin(phi)^2/pi^2 as D grows (see the tests).
    f is the share of that effect when the last block has r < D rows: f = sum r_b^2 / (D Q); 0 without orthogonality.
    """
    spread = h * (1.0 - h) if estimator == "hamming" else 1.0 - h**2
    if orthogonal:
        full, rest = divmod(bits, dimension)
        fill = (full * dimension**2 + rest**2) / (dimension * bits)
        spread = np.maximum(spread - fill * (np.sin(np.pi * h) / np.pi) ** 2, 0.0)
    return np.pi**2 / bits * spread


def _count_bits(operation: np.ufunc, source: Bits, target: Bits) -> Floats:
    """Number of set bits of ``operation`` for every pair of rows."""
    a, b = _as_words(source), _as_words(target)
    counts = np.empty((len(a), len(b)))
    step = max(1, _CHUNK_WORDS // max(1, b.size))
    for start in range(0, len(a), step):
        joint = operation(a[start : start + step, None, :], b[None, :, :])
        counts[start : start + step] = np.bitwise_count(joint).sum(axis=2, dtype=np.int64)
    return counts


def _as_words(packed: Bits) -> NDArray[np.uint64]:
    padding = -packed.shape[1] % _WORD
    return np.ascontiguousarray(np.pad(packed, ((0, 0), (0, padding)))).view(np.uint64)
