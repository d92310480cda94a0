"""Random projections in blocks: each block's directions are independent, orthonormal, or (many columns) structured.

A block of directions is a tight frame where it is full, sum_l omega_l omega_l^T proportional to the identity; that is
what lowers the variance of an angle told by sign bits (``sketch.angle_variance``).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from deot_mpi.data.samples import Floats
from deot_mpi.randomness import Purpose, generator

STRUCTURED_FROM = 128
"""Columns from which orthogonal blocks are products of random signs and Hadamard matrices: D log D instead of D^2 for a
row, and no D^3 for the block."""
_MIXINGS = 3
"""Rounds of random signs and Hadamard matrix; from three on, directions pass for uniform ones (see the tests)."""
_CHUNK_ENTRIES = 1 << 18


def block_width(dimension: int, orthogonal: bool) -> int:
    """Directions in a full block: as many as columns, padded to a power of two where blocks are structured."""
    structured = orthogonal and dimension >= STRUCTURED_FROM
    return 1 << (dimension - 1).bit_length() if structured else dimension


def projected(rows: Floats, bits: int, seed: int, orthogonal: bool) -> Iterator[tuple[slice, Floats]]:
    """<omega_l, x_n> for l = 0..Q-1, a block of l at a time, (N, block). omega (D, Q) is never held whole."""
    dimension = rows.shape[1]
    width = block_width(dimension, orthogonal)
    structured = orthogonal and dimension >= STRUCTURED_FROM
    for block, start in enumerate(range(0, bits, width)):
        stop = min(start + width, bits)
        if structured:
            yield slice(start, stop), _mixed(rows, width, seed, block)[:, : stop - start]
        else:
            yield slice(start, stop), rows @ _directions(dimension, stop - start, seed, block, orthogonal)


def projections(dimension: int, bits: int, seed: int, orthogonal: bool) -> Floats:
    """omega as a whole, (D, Q), for those who use it again and again."""
    omega = np.empty((dimension, bits))
    for part, block in projected(np.eye(dimension), bits, seed, orthogonal):
        omega[:, part] = block
    return omega


def _directions(dimension: int, count: int, seed: int, block: int, orthogonal: bool) -> Floats:
    draws = generator(seed, Purpose.PROJECTIONS, block)
    return _orthonormal(draws, dimension, count) if orthogonal else draws.standard_normal((dimension, count))


def _orthonormal(draws: np.random.Generator, dimension: int, count: int) -> Floats:
    q, r = np.linalg.qr(draws.standard_normal((dimension, count)))
    # QR fixes signs by convention, not by chance; the Gaussian's own signs make the directions uniform again. The
    # Hamming distance does not notice, the paper's <a, b> does.
    return np.asarray(q * np.where(np.diag(r) < 0, -1.0, 1.0))


def _mixed(rows: Floats, width: int, seed: int, block: int) -> Floats:
    """H S_3 H S_2 H_1 S_1 x: S_k random signs, H the (orthonormal) Hadamard matrix of the padded width.

    H is the Kronecker product of two small matrices, so it is applied by two thin products; the order in which its
    outputs come out does not matter. In H_1 one of the two is a random rotation instead: with signs alone, rows of few
    entries would often project to exactly 0, which has no sign.
    """
    draws = generator(seed, Purpose.PROJECTIONS, block)
    signs = 2.0 * draws.integers(2, size=(_MIXINGS, width)) - 1.0
    log_width = width.bit_length() - 1
    left, right = (_hadamard(size) for size in (log_width // 2, log_width - log_width // 2))
    rights = [_orthonormal(draws, len(right), len(right)), *[right] * (_MIXINGS - 1)]
    mixed = np.empty((len(rows), width))
    step = max(1, _CHUNK_ENTRIES // width)
    for start in range(0, len(rows), step):
        part = np.zeros((len(rows[start : start + step]), width))
        part[:, : rows.shape[1]] = rows[start : start + step]
        for sign, factor in zip(signs, rights, strict=True):
            part *= sign
            grid = (part.reshape(-1, len(factor)) @ factor).reshape(len(part), len(left), len(factor))
            part = (np.ascontiguousarray(grid.transpose(0, 2, 1)).reshape(-1, len(left)) @ left).reshape(len(part), -1)
        mixed[start : start + step] = part
    return mixed


def _hadamard(log_size: int) -> Floats:
    """Sylvester's, orthonormal. (SciPy has one, whose import would take every agent a quarter of a second.)"""
    matrix = np.ones((1, 1))
    for _ in range(log_size):
        matrix = np.block([[matrix, matrix], [matrix, -matrix]]) / np.sqrt(2.0)
    return matrix
