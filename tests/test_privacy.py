"""Noise that is added, what it guarantees, and attacks at least as strong as those measured elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from deot_mpi.privacy.attacks import Prior, Seen, half_spaces, least_squares, near_rows, relative_errors
from deot_mpi.privacy.choose import candidates, chosen_point
from deot_mpi.privacy.findings import ProtectionPoint
from deot_mpi.privacy.guarantee import guarantee
from deot_mpi.privacy.noise import Noise, bit_epsilon, rounded_norms
from deot_mpi.privacy.victims import (
    HALF_SPACES,
    INFORMED,
    LEAST_SQUARES,
    Sending,
    Split,
    from_means,
    from_potentials,
    linked_by_norm,
    membership,
    recovery,
)
from deot_mpi.projections import projections
from deot_mpi.sketch import flipped, sketch, unpacked


@pytest.mark.parametrize("rate", [0.05, 0.25, 0.4])
def test_no_answer_is_likelier_than_the_stated_epsilon_allows(rate: float) -> None:
    """A million bits: the ratio of likelihoods of either answer, within four standard errors of its logarithm."""
    rng, bits = np.random.default_rng(1), 1001
    clean = np.packbits(rng.integers(2, size=(1000, bits), dtype=np.uint8), axis=1)
    shown = flipped(clean, bits, rate, np.random.default_rng(2))
    before, after = unpacked(clean, bits), unpacked(shown, bits)
    for answer in (0, 1):
        chances = [float((after[before == bit] == answer).mean()) for bit in (0, 1)]
        counts = [int((before == bit).sum()) for bit in (0, 1)]
        error = np.sqrt(sum((1 - p) / (p * n) for p, n in zip(chances, counts, strict=True)))
        assert abs(np.log(chances[0] / chances[1])) <= bit_epsilon(rate) + 4 * error
        assert abs(np.log(chances[0] / chances[1])) >= bit_epsilon(rate) - 4 * error  # and not more noise than said
    pad = np.unpackbits(shown, axis=1)[:, bits:]
    assert not pad.any(), "what fills the last byte is not a bit and stays 0"


def test_norms_lie_on_the_grid_and_squares_are_right_on_average() -> None:
    norms = np.repeat([0.0, 1e-3, 0.9, 1.0, 37.0], 20_000)
    told = rounded_norms(norms, 0.5, np.random.default_rng(0))
    positive = norms > 0
    steps = np.log(told[positive] ** 2) / np.log(1.5)
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-6)
    assert not told[~positive].any()
    for norm in (1e-3, 0.9, 1.0, 37.0):
        squares = told[norms == norm] ** 2
        assert abs(squares.mean() - norm**2) <= 4 * squares.std() / np.sqrt(squares.size) + 1e-12 * norm**2


@pytest.mark.parametrize(("rate", "bits"), [(0.25, 64), (0.4, 256)])
def test_the_guarantee_is_that_of_the_binomial(rate: float, bits: int) -> None:
    """delta(epsilon) = sum_k max(0, P(k) - e^epsilon P'(k)), k answers that agree: P binomial(1-r), P' binomial(r)."""
    pytest.importorskip("dp_accounting", reason="dp-accounting is not installed (pip install -e '.[privacy]')")
    known = guarantee(rate, bits)
    assert known is not None
    assert known.per_bit == pytest.approx(np.log((1 - rate) / rate))
    assert known.per_sample == pytest.approx(bits * known.per_bit)
    assert known.per_sample_delta is not None
    k = np.arange(bits + 1)

    def delta(epsilon: float) -> float:
        apart = binom.pmf(k, bits, 1 - rate) - np.exp(epsilon) * binom.pmf(k, bits, rate)
        return float(np.maximum(apart, 0).sum())

    # The accountant rounds losses up: never less than the truth, and by little.
    assert delta(known.per_sample_delta) <= known.delta
    assert delta(known.per_sample_delta * 0.99 - 0.05) > known.delta
    assert guarantee(0.0, bits) is None


@pytest.mark.parametrize(("dimension", "ratio", "measured"), [(5, 15, 0.08), (50, 2, 0.59), (50, 15, 0.10)])
def test_the_half_space_attack_is_as_strong_as_measured_elsewhere(dimension: int, ratio: int, measured: float) -> None:
    """MATH's medians for a linear SVM on Gaussian samples; a stronger attack is welcome, a weaker one is not."""
    rng = np.random.default_rng(dimension)
    rows = rng.normal(size=(60, dimension))
    omega = projections(dimension, ratio * dimension, 1, orthogonal=True)
    seen = Seen(omega, np.where(rows @ omega >= 0, 1.0, -1.0), np.linalg.norm(rows, axis=1), 0.0)
    errors = [float(np.median(relative_errors(found, rows))) for found in half_spaces(seen).values()]
    assert min(errors) < 1.1 * measured


def test_least_squares_recovers_from_exact_products() -> None:
    rng = np.random.default_rng(0)
    own, rows = rng.normal(size=(9, 6)), rng.normal(size=(4, 6))
    np.testing.assert_allclose(least_squares(own, rows @ own.T), rows, atol=1e-10)


def latent(rng: np.random.Generator, count: int) -> np.ndarray:
    """10 latent dimensions in 60 columns."""
    mixing = np.random.default_rng(3).normal(size=(10, 60))
    return np.asarray(rng.normal(size=(count, 10)) @ mixing)


def test_similar_rows_tell_where_to_look() -> None:
    """Few latent dimensions: with half a bit per column a plain attack fails, an informed one does not."""
    rows = latent(np.random.default_rng(0), 120)
    split, _ = Split.of(rows, 30, np.random.default_rng(1))
    errors = recovery(split, Sending(60, 0, True, Noise()), np.random.default_rng(2))
    assert np.median(errors[INFORMED]) < 0.35 < np.median(errors[HALF_SPACES])
    noisy = recovery(split, Sending(60, 0, True, Noise(flip=0.25)), np.random.default_rng(2))
    for name in (LEAST_SQUARES, HALF_SPACES, INFORMED):
        assert np.median(noisy[name]) > np.median(errors[name])
    assert Prior.of(rows).directions.shape == (60, 10)


def test_rows_of_the_same_kind_tell_more_than_all_rows() -> None:
    """Eight kinds of rows, each with four latent dimensions of its own: together they fill 32, and a prior of all rows
    is nearly round. One who looks again among the rows nearest to a first guess finds the kind."""
    rng = np.random.default_rng(0)
    kinds = rng.normal(size=(8, 5, 64))
    rows = np.concatenate([3.0 * kind[0] + rng.normal(size=(40, 4)) @ kind[1:] for kind in kinds])
    split, _ = Split.of(rows - rows.mean(axis=0), 20, rng)
    omega, norms = projections(64, 96, 1, orthogonal=True), np.linalg.norm(split.victims, axis=1)
    signs = np.where(split.victims @ omega >= 0, 1.0, -1.0) * np.where(rng.random((20, 96)) < 0.2, -1.0, 1.0)
    seen = Seen(omega, signs, norms, 0.2)
    guesses = [found for k in (5, 10, 20, 50) for found in half_spaces(seen, Prior.of(split.others).basis(k)).values()]
    first = min(guesses, key=lambda found: float(np.median(relative_errors(found, split.victims))))
    again = near_rows(seen, split.others, first, 30)
    errors = [float(np.median(relative_errors(found, split.victims))) for found in (first, again)]
    assert errors[1] < 0.8 * errors[0], errors
    np.testing.assert_allclose(np.linalg.norm(again, axis=1), norms, rtol=1e-9)
    whole = recovery(split, Sending(96, 1, True, Noise(flip=0.2)), np.random.default_rng(2))
    assert np.median(whole[INFORMED]) < 0.8 * errors[0], "the audit tries it"


def test_an_uncertain_guess_comes_nearer_when_it_is_shorter() -> None:
    """A guess with the cosine c to the truth is sqrt(2 - 2 c) off at full length, sqrt(1 - c^2) at c times that."""
    rows = np.random.default_rng(0).normal(size=(100, 20))
    split, _ = Split.of(rows, 50, np.random.default_rng(1))
    how = Sending(40, 0, True, Noise(flip=0.3))
    errors = recovery(split, how, np.random.default_rng(2))[HALF_SPACES]
    assert np.median(errors) < 0.95, "1.05 at full length"


def test_likelihood_survives_flips_better_than_the_svm() -> None:
    rng = np.random.default_rng(0)
    rows, omega = rng.normal(size=(40, 10)), projections(10, 400, 1, orthogonal=True)
    signs = np.where(rows @ omega >= 0, 1.0, -1.0) * np.where(rng.random((40, 400)) < 0.25, -1.0, 1.0)
    found = half_spaces(Seen(omega, signs, np.linalg.norm(rows, axis=1), 0.25))
    medians = {name: float(np.median(relative_errors(one, rows))) for name, one in found.items()}
    best = {kind: min(error for name, error in medians.items() if name.startswith(kind)) for kind in ("svm", "like")}
    assert best["like"] < best["svm"] < 0.6


def test_membership_linkage_and_potentials() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(80, 12))
    split, _ = Split.of(rows, 30, rng)
    clean, noisy = Sending(64, 0, True, Noise()), Sending(64, 0, True, Noise(flip=0.45))
    assert membership(split, clean, rng) == 1.0
    assert 0.3 < membership(split, noisy, rng) < 0.8
    norms = np.linalg.norm(rows, axis=1)
    assert linked_by_norm(rows, norms) == 1.0
    assert linked_by_norm(rows, rounded_norms(norms, 1.0, rng)) < 0.2
    # A potential that is a coordinate tells that coordinate, and no more.
    told = from_potentials(split, (split.victims[:, 0], split.others[:, 0]))
    guessed = from_potentials(split, (rng.normal(size=30), rng.normal(size=50)))
    assert np.median(told) < np.median(guessed)
    assert sketch(rows, 64, 0, True).shape == (80, 8)


def test_means_of_one_row_are_that_row_and_of_all_rows_their_mean() -> None:
    """Pi_ij Y_j of a plan that sends each source row one target row, and of one that sends it all of them."""
    rows = np.random.default_rng(3).normal(size=(30, 8))
    sharp = np.column_stack([0.3 * rows, np.full(30, 0.3)])
    flat = np.column_stack([np.tile(rows.sum(axis=0), (5, 1)), np.full(5, 30.0)])
    assert from_means(rows[:10], [flat, sharp]).max() < 1e-12
    blurred = from_means(rows[:10], [flat])
    expected = np.linalg.norm(rows[:10] - rows.mean(axis=0), axis=1) / np.linalg.norm(rows[:10], axis=1)
    np.testing.assert_allclose(blurred, expected, rtol=1e-12)
    assert (from_means(rows[:10], []) == 1.0).all(), "nothing sent, nothing known"


def test_of_what_protects_the_most_telling_is_chosen() -> None:
    points = tuple(ProtectionPoint(bits, 0.1, recovery, error) for bits, recovery, error in (
        (10, 0.9, 0.2), (20, 0.6, 0.05), (40, 0.4, 0.01),
    ))  # fmt: skip
    assert chosen_point(points, 0.5).bits == 20
    assert chosen_point(points, 0.95).bits == 10
    # 100 bits flipped at 0.4 say what 4 clean ones do (of two flipped sketches: less than one)
    flipped_ones = (ProtectionPoint(100, 0.4, 0.6, 0.1), ProtectionPoint(5, 0.0, 0.6, 0.1))
    assert chosen_point(flipped_ones, 0.5).bits == 5
    assert {one.bits for one in candidates(8)} == {16, 32}
