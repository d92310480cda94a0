"""Sketches: packing, the two estimators, and the variance that orthogonal projections leave."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from deot_mpi.errors import MessageError
from deot_mpi.kernel import SketchKernel
from deot_mpi.kinds import Kind
from deot_mpi.projections import block_width, projections
from deot_mpi.sketch import BitCounts, angle_variance, angles_by_count, flipped, packed_bytes, sketch

SEEDS = 1000
ANGLES = (0.3, 1.0, 1.3, np.pi / 2, 2.0, 2.5)


def estimated(
    a: np.ndarray, b: np.ndarray, bits: int, dimension: int, estimator: str, orthogonal: bool, left: float = 1.0
) -> np.ndarray:
    """The angle between every pair of rows."""
    counts = BitCounts(a, b, estimator).rows(0, len(a))
    return angles_by_count(bits, dimension, estimator, orthogonal, left).phi[counts]


def pair_at_angle(phi: float, dimension: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    basis = np.linalg.qr(rng.normal(size=(dimension, 2)))[0].T
    return basis[:1], np.cos(phi) * basis[:1] + np.sin(phi) * basis[1:]


@pytest.mark.parametrize("bits", [1, 7, 8, 63, 64, 65, 200])
def test_hamming_counts_the_differing_bits(bits: int) -> None:
    rng = np.random.default_rng(bits)
    x, y = rng.normal(size=(5, 4)), rng.normal(size=(3, 4))
    a, b = (sketch(rows, bits, seed=1, orthogonal=False) for rows in (x, y))
    assert a.shape == (5, packed_bytes(bits))
    plain_a, plain_b = (np.unpackbits(packed, axis=1)[:, :bits].astype(int) for packed in (a, b))
    differing = (plain_a[:, None, :] != plain_b[None, :, :]).sum(axis=2)
    common = (plain_a[:, None, :] & plain_b[None, :, :]).sum(axis=2)
    hamming = estimated(a, b, bits, 4, "hamming", False)
    paper = estimated(a, b, bits, 4, "paper", False)
    np.testing.assert_allclose(hamming, np.pi * differing / bits, rtol=1e-14)
    np.testing.assert_allclose(paper, np.pi * np.abs(1 - 2 * common / bits), rtol=1e-14, atol=1e-14)


def test_bits_are_signs_of_the_same_projections_on_every_agent() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(6, 5))
    whole = sketch(rows, 40, seed=3, orthogonal=True)
    np.testing.assert_array_equal(sketch(rows[2:4], 40, seed=3, orthogonal=True), whole[2:4])
    np.testing.assert_array_equal(sketch(7.0 * rows, 40, seed=3, orthogonal=True), whole)
    np.testing.assert_array_equal(sketch(-rows, 40, seed=3, orthogonal=True), ~whole)
    assert (sketch(rows, 40, seed=4, orthogonal=True) != whole).any()


@pytest.mark.parametrize("orthogonal", [False, True])
@pytest.mark.parametrize(
    ("estimator", "phi"),  # near 0 the paper's absolute value adds a bias of its own
    [*(("hamming", phi) for phi in (0.3, 1.0, np.pi / 2, 2.5)), *(("paper", phi) for phi in (1.3, np.pi / 2, 2.0))],
)
def test_estimates_are_unbiased_with_the_stated_variance(estimator: str, orthogonal: bool, phi: float) -> None:
    """Three full blocks of projections and half of one."""
    check_estimates(phi, 24, 84, estimator, orthogonal)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("estimator", "phi"), [("hamming", 0.3), ("hamming", 2.0), ("paper", 1.3)])
def test_structured_projections_pass_for_uniform_ones(estimator: str, phi: float, sparse: bool) -> None:
    """150 columns, padded to 256; also for rows with one or two entries, the hardest to mix."""
    check_estimates(phi, 150, 640, estimator, orthogonal=True, sparse=sparse)


@pytest.mark.parametrize("phi", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("sides", [1, 2])
def test_flipped_bits_still_tell_the_angle(phi: float, sides: int) -> None:
    """Turned round, the count is unbiased, with the stated variance, whether one sketch was flipped or both."""
    check_estimates(phi, 24, 84, "hamming", orthogonal=True, flips=(0.2, sides))


def test_full_blocks_are_tight_frames() -> None:
    """sum_l omega_l omega_l^T = c I over every full block; with fewer columns than a power of two, too."""
    for dimension, width in ((24, 24), (150, 256)):
        assert block_width(dimension, orthogonal=True) == width
        omega = projections(dimension, 2 * width, 1, orthogonal=True)
        for block in (omega[:, :width], omega[:, width:]):
            np.testing.assert_allclose(block @ block.T, np.eye(dimension), atol=1e-12)


@cache
def sketches(dimension: int, bits: int, orthogonal: bool) -> np.ndarray:
    """Pairs of rows at every angle, dense ones and then sparse ones, as every seed sketches them: projections take most
    of the time, and are the same for all."""
    pairs = [pair_at_angle(phi, dimension, np.random.default_rng(5)) for phi in ANGLES]
    for phi in ANGLES:
        x, y = np.zeros((2, 1, dimension))
        x[0, 3], y[0, 3], y[0, 4] = 1.0, np.cos(phi), np.sin(phi)
        pairs.append((x, y))
    rows = np.concatenate([row for pair in pairs for row in pair])
    told = np.array([sketch(rows, bits, seed, orthogonal) for seed in range(SEEDS)])
    return told.reshape(SEEDS, 2, len(ANGLES), 2, 1, -1)


def check_estimates(
    phi: float, dimension: int, bits: int, estimator: str, orthogonal: bool, sparse: bool = False,
    flips: tuple[float, int] = (0.0, 0),
) -> None:  # fmt: skip
    """Over many seeds: mean within 4 standard errors, variance within 4 of its own (sqrt(2/n), relative, if normal)."""
    (rate, sides), found = flips, np.empty(SEEDS)
    left, draws = (1 - 2 * rate) ** sides, np.random.default_rng(0)
    for seed, (a, b) in enumerate(sketches(dimension, bits, orthogonal)[:, int(sparse), ANGLES.index(phi)]):
        a = flipped(a, bits, rate, draws) if sides == 2 else a
        b = flipped(b, bits, rate, draws) if sides else b
        found[seed] = estimated(a, b, bits, dimension, estimator, orthogonal, left).item()
    stated = angle_variance(np.array(phi / np.pi), bits, dimension, estimator, orthogonal, left).item()
    assert abs(found.mean() - phi) < 4 * np.sqrt(stated / SEEDS)
    # The orthogonal variance is the limit of large D: its own error is of order 1/D.
    slack = 4 * np.sqrt(2 / SEEDS) + (1.5 / dimension if orthogonal else 0.0)
    assert abs(found.var() / stated - 1) < slack


def test_hamming_beats_the_papers_estimator_and_orthogonal_beats_independent() -> None:
    h = np.linspace(0.01, 0.99, 50)
    paper = angle_variance(h, 1000, 50, "paper", False)
    hamming = angle_variance(h, 1000, 50, "hamming", False)
    orthogonal = angle_variance(h, 1000, 50, "hamming", True)
    assert (hamming <= paper / 2 * (1 + 1e-12)).all()
    assert (orthogonal < hamming).all()
    assert (orthogonal > 0).all()
    at_right_angle = angle_variance(np.array(0.5), 1000, 50, "hamming", True) / angle_variance(
        np.array(0.5), 1000, 50, "hamming", False
    )
    assert at_right_angle == pytest.approx(1 - 4 / np.pi**2, rel=1e-12)


@pytest.mark.parametrize("bits", [10, 16])
def test_bits_that_were_not_agreed_on_are_refused(bits: int) -> None:
    """A neighbour that fills up its last byte with ones would be counted as farther than any can be."""
    kernel = SketchKernel(1.0, 3, bits=bits, seed=0)
    own, theirs = (kernel.show(np.random.default_rng(seed).normal(size=(4, 3))) for seed in (0, 1))
    kernel.pairs(own, theirs)
    theirs[Kind.SKETCH][2, -1] |= 1  # type: ignore[operator]  # the last bit of a byte: one of 16, none of 10
    if bits == 16:
        kernel.pairs(own, theirs)
        return
    with pytest.raises(MessageError, match="beyond the 10 that were agreed on"):
        kernel.pairs(own, theirs)
