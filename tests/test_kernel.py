"""Kernels against the distances they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from problems import squared_distances
from scipy.special import logsumexp

from deot_mpi.block import KernelBlock
from deot_mpi.kernel import RawKernel, SketchKernel, noise_correction
from deot_mpi.kinds import Kind


def test_raw_kernel_is_exact() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 6)), rng.normal(size=(15, 6)) + 3
    kernel = RawKernel(eps=0.7, dimension=6)
    np.testing.assert_allclose(
        kernel.log_block(kernel.show(x), kernel.show(y)), -squared_distances(x, y) / 0.7, rtol=1e-12, atol=1e-13
    )


@pytest.mark.parametrize("kernel", [RawKernel(0.5, 4), SketchKernel(0.5, 4, bits=100, seed=1)])
def test_blank_has_the_shape_of_what_is_shown(kernel: RawKernel | SketchKernel) -> None:
    shown = kernel.show(np.random.default_rng(0).normal(size=(7, 4)))
    blank = kernel.blank(7)
    assert list(shown) == list(blank)
    for kind in shown:
        assert (shown[kind].shape, shown[kind].dtype) == (blank[kind].shape, blank[kind].dtype)


def test_sketch_shows_bits_and_norms_only() -> None:
    shown = SketchKernel(0.5, 4, bits=100, seed=1).show(np.ones((3, 4)))
    assert set(shown) == {Kind.SKETCH, Kind.NORMS}


def test_sketch_kernel_approaches_the_exact_one_as_one_over_root_q() -> None:
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(40, 20)), rng.normal(size=(40, 20))
    exact = -squared_distances(x, y)
    errors = []
    for bits in (200, 3200):
        kernel = SketchKernel(1.0, 20, bits=bits, seed=0, correction=False)
        errors.append(np.sqrt(np.mean((kernel.log_block(kernel.show(x), kernel.show(y)) - exact) ** 2)))
    assert errors[0] / errors[1] == pytest.approx(4.0, rel=0.25)


def test_correction_restores_the_mean_of_the_kernel() -> None:
    """E exp(-c^/eps) is too large by exp(var/2eps^2); with the correction the mean is right where that is small."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(1, 30)), rng.normal(size=(1, 30))
    cost, bits = squared_distances(x, y).item(), 100
    eps = 0.15 * cost
    means = {}
    for correction in (False, True):
        logs = []
        for seed in range(2000):
            kernel = SketchKernel(eps, 30, bits=bits, seed=seed, correction=correction)
            logs.append(kernel.log_block(kernel.show(x), kernel.show(y)).item())
        means[correction] = logsumexp(logs) - np.log(len(logs)) + cost / eps
    assert means[False] > 0.2
    assert abs(means[True]) < 0.2 * means[False]


def test_correction_is_guarded_beyond_small_noise() -> None:
    z = np.array([0.0, 0.5, 1.0, 1.0 + 1e-9, 10.0])
    g = noise_correction(z)
    np.testing.assert_allclose(g[:3], z[:3] / 2)
    assert g[3] == pytest.approx(0.5)
    assert g[4] == pytest.approx((1 + np.log(10)) / 2)


@pytest.mark.parametrize("spread", [1.0, 100.0, 3000.0])
def test_absorbed_log_sums_equal_plain_ones(spread: float) -> None:
    """Also where exp alone under- or overflows, and while the potential drifts far from where it was absorbed."""
    rng = np.random.default_rng(4)
    log_kernel, log_shares = -spread * rng.random((30, 25)), np.log(rng.dirichlet(np.ones(25)))
    block = KernelBlock(log_kernel, log_shares)
    potential = np.zeros(25)
    for _ in range(12):
        potential = potential + spread * rng.normal(size=25) / 4
        expected = logsumexp(log_kernel + (log_shares + potential)[None, :], axis=1)
        np.testing.assert_allclose(block.log_sums(potential), expected, rtol=1e-12, atol=1e-12)
