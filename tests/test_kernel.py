"""Kernels against the distances they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from problems import squared_distances
from scipy.special import logsumexp

from deot_mpi.kernel import Kernel, RawKernel, SketchKernel, log_block, stacked
from deot_mpi.kernel.block import KernelBlock
from deot_mpi.kinds import Kind


def test_raw_kernel_is_exact() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 6)), rng.normal(size=(15, 6)) + 3
    kernel = RawKernel(eps=0.7, dimension=6)
    np.testing.assert_allclose(
        log_block(kernel, kernel.show(x), kernel.show(y)), -squared_distances(x, y) / 0.7, rtol=1e-12, atol=1e-13
    )


def test_far_rows_keep_their_digits() -> None:
    """|x|^2 + |y|^2 - 2 <x,y> would lose them all at this distance from the origin."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(8, 3)) + 1e7, rng.normal(size=(5, 3)) + 1e7
    kernel = RawKernel(eps=0.7, dimension=3)
    exact = -squared_distances(x, y) / 0.7
    np.testing.assert_allclose(log_block(kernel, kernel.show(x), kernel.show(y)), exact, rtol=1e-12)
    shifted = kernel.pairs(kernel.show(x), kernel.show(y)).shifted(np.arange(8.0), 2.0, temperature=4.0)
    np.testing.assert_allclose(shifted.rows(2, 5), exact[2:5] / 4 + np.arange(2.0, 5.0)[:, None] + 2.0, rtol=1e-12)


@pytest.mark.parametrize("estimator", ["hamming", "paper"])
def test_sketch_kernel_follows_its_formula(estimator: str) -> None:
    """c^ = r^2 + s^2 - 2 r s cos(pi h), minus eps g(var/eps^2), from bits counted one by one."""
    rng = np.random.default_rng(5)
    x, y, eps, bits = rng.normal(size=(9, 5)), rng.normal(size=(4, 5)), 3.0, 90
    kernel = SketchKernel(eps, 5, bits=bits, seed=2, estimator=estimator, orthogonal=False)
    a, b = (np.unpackbits(kernel.show(z)[Kind.SKETCH], axis=1)[:, :bits].astype(int) for z in (x, y))
    if estimator == "hamming":
        h = (a[:, None] != b[None]).mean(axis=2)
        spread = h * (1 - h)
    else:
        h = np.abs(1 - 2 * (a[:, None] & b[None]).mean(axis=2))
        spread = 1 - h**2
    rs = np.outer(np.linalg.norm(x, axis=1), np.linalg.norm(y, axis=1))
    cost = (x**2).sum(axis=1)[:, None] + (y**2).sum(axis=1)[None] - 2 * rs * np.cos(np.pi * h)
    z = (2 * rs * np.sin(np.pi * h) * np.pi / eps) ** 2 * spread / bits
    expected = -np.maximum(cost, 0) / eps - np.where(z <= 1, z / 2, (1 + np.log(np.maximum(z, 1))) / 2)
    np.testing.assert_allclose(log_block(kernel, kernel.show(x), kernel.show(y)), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kernel", [RawKernel(0.5, 4), SketchKernel(0.5, 4, bits=100, seed=1)])
def test_rows_of_stacked_targets_are_those_of_each(kernel: Kernel) -> None:
    rng = np.random.default_rng(6)
    x, *targets = (rng.normal(size=(n, 4)) for n in (12, 5, 7))
    shown = [kernel.show(y) for y in targets]
    together = kernel.pairs(kernel.show(x), stacked(shown))
    assert together.shape == (12, 12)
    apart = np.hstack([log_block(kernel, kernel.show(x), part) for part in shown])
    np.testing.assert_allclose(together.rows(3, 8), apart[3:8], rtol=1e-13, atol=1e-13)
    moved = together.shifted(np.arange(12.0), np.linspace(0, 1, 12), temperature=2.0)
    expected = apart / 2 + np.arange(12.0)[:, None] + np.linspace(0, 1, 12)
    np.testing.assert_allclose(moved.rows(3, 8), expected[3:8], rtol=1e-13, atol=1e-13)


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
        errors.append(np.sqrt(np.mean((log_block(kernel, kernel.show(x), kernel.show(y)) - exact) ** 2)))
    assert errors[0] / errors[1] == pytest.approx(4.0, rel=0.25)


def test_correction_restores_the_mean_of_the_kernel() -> None:
    """E exp(-c^/eps) is too large by exp(var/2eps^2); with the correction the mean is right where that is small."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(1, 30)), rng.normal(size=(1, 30))
    cost, bits = squared_distances(x, y).item(), 100
    eps = 0.15 * cost
    logs: dict[bool, list[float]] = {False: [], True: []}
    for seed in range(1000):
        shown = None
        for correction, found in logs.items():
            kernel = SketchKernel(eps, 30, bits=bits, seed=seed, correction=correction)
            shown = shown or (kernel.show(x), kernel.show(y))  # the same bits: it is the costs that are corrected
            found.append(log_block(kernel, *shown).item())
    means = {correction: logsumexp(found) - np.log(len(found)) + cost / eps for correction, found in logs.items()}
    assert means[False] > 0.2
    assert abs(means[True]) < 0.2 * means[False]


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
