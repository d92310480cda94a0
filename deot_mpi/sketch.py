"""Binary sketches: Q sign bits per sample, and the angle two sketches tell (Section 3.4, eqs. 9-10).

a_l = [ <omega_l, x> >= 0 ]. Two samples at angle phi differ in a bit with probability h = phi/pi, whatever
their length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numkong
import numpy as np
from numpy.typing import NDArray

from deot_mpi.data.samples import Floats
from deot_mpi.projections import block_width, projected

Bits = NDArray[np.uint8]
Estimator = Literal["hamming", "paper"]


def packed_bytes(bits: int) -> int:
    """Bytes of one packed sketch on the wire."""
    return -(-bits // 8)


def stray_bits(sketches: Bits, bits: int) -> bool:
    """Whether bits are set behind the Q-th, where a packed sketch is filled up to whole bytes."""
    unused = (1 << (-bits % 8)) - 1
    return bool(unused and (sketches[:, -1] & unused).any())


def sketch(rows: Floats, bits: int, seed: int, orthogonal: bool) -> Bits:
    """Pack the signs of Q random projections of each row: (N, ceil(Q/8)) bytes, Algorithm 2 lines 1-9.

    Projections come in blocks; with ``orthogonal`` those of a block are, which lowers the variance of the angle (see
    ``angle_variance``).
    """
    signs = np.empty((len(rows), bits), dtype=bool)
    for part, values in projected(rows, bits, seed, orthogonal):
        signs[:, part] = values >= 0
    return np.packbits(signs, axis=1)


def flipped(sketches: Bits, bits: int, rate: float, draws: np.random.Generator) -> Bits:
    """Randomised response: every bit turned round with probability ``rate``, by chance that stays with its owner."""
    return np.asarray(sketches ^ np.packbits(draws.random((len(sketches), bits)) < rate, axis=1))


def unpacked(sketches: Bits, bits: int) -> Bits:
    """The bits of packed sketches, one byte each: (N, Q) of 0 and 1."""
    return np.unpackbits(sketches, axis=1, count=bits)


@dataclass(frozen=True)
class Angles:
    """The angles that a number of bits stands for, and the variance of each: one entry per count 0..Q."""

    phi: Floats
    variance: Floats


def angles_by_count(bits: int, dimension: int, estimator: Estimator, orthogonal: bool, left: float = 1.0) -> Angles:
    """What every possible count of bits says about the angle; a pair of sketches is looked up, not calculated.

    ``hamming``: pi ham(a, b)/Q. ``paper``: pi |1 - (2/Q) <a, b>| (eq. 10), from the same bits with more variance.
    ``left`` is what flips have left of a bit's word: (1 - 2r)^s for rate r on s sides. Then bits differ with
    probability h' = left h + (1 - left)/2, and h is that turned round: unbiased, so it may leave [0, 1].
    """
    h = np.arange(bits + 1) / bits
    if estimator == "paper":
        h = np.abs(1.0 - 2.0 * h)
    h = (h - (1.0 - left) / 2.0) / left
    return Angles(np.pi * h, angle_variance(h, bits, dimension, estimator, orthogonal, left))


class BitCounts:
    """Counts of bits between the rows of two sets of packed sketches: ham(a, b), or <a, b> for the paper's estimator.

    NumKong's popcount kernels do the work; <a, b> = (|a| + |b| - ham(a, b))/2 needs nothing else.
    """

    def __init__(self, source: Bits, target: Bits, estimator: Estimator) -> None:
        self._source = np.ascontiguousarray(source)
        self._target = numkong.hammings_pack(np.ascontiguousarray(target), dtype="uint1")
        self._ones = None
        if estimator == "paper":
            self._ones = tuple(np.bitwise_count(bits).sum(axis=1, dtype=np.int64) for bits in (source, target))

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """The counts of source rows start..stop-1 with every target row."""
        hamming: NDArray[Any] = np.asarray(numkong.hammings_packed(self._source[start:stop], self._target))
        if self._ones is None:
            return np.asarray(hamming)
        return np.asarray((self._ones[0][start:stop, None] + self._ones[1][None, :] - hamming) // 2)


def angle_variance(
    h: Floats, bits: int, dimension: int, estimator: Estimator, orthogonal: bool, left: float = 1.0
) -> Floats:
    """Variance of the estimated angle phi = pi h: pi^2 (spread - f sin(phi)^2/pi^2) / Q.

    The spread of one bit is h(1-h) for ``hamming`` and 1-h^2 for ``paper``. Orthonormal projections fix the sums of
    <omega,x>^2, <omega,y>^2 and <omega,x><omega,y> over a full block, so whatever part of a bit a linear
    regression on these three explains is no longer random: sin(phi)^2/pi^2 as D grows (see the tests).
    f is the share of that effect when the last of the blocks, W wide, has r < W directions: f = sum r_b^2 / (W Q); 0
    without orthogonality. Flips make bits differ with h' = left h + (1 - left)/2: the spread is h'(1-h'), what
    orthogonality explains is less by left^2, and turning h' round multiplies the rest by 1/left^2.
    """
    seen = left * h + (1.0 - left) / 2.0
    spread = seen * (1.0 - seen) if estimator == "hamming" else 1.0 - seen**2
    if orthogonal:
        width = block_width(dimension, orthogonal)
        full, rest = divmod(bits, width)
        fill = (full * width**2 + rest**2) / (width * bits)
        spread = np.maximum(spread - fill * (left * np.sin(np.pi * h) / np.pi) ** 2, 0.0)
    return np.pi**2 / (bits * left**2) * spread
