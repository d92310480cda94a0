"""Anderson's mixing on problems whose fixed point is known."""

from __future__ import annotations

import numpy as np

from deot_mpi.solvers.anderson import DEPTH, PRODUCTS, Anderson


def contraction(rate: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """g -> A g + b with a symmetric A of the given largest eigenvalue; returns A, b and the fixed point."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(40, 40)))[0]
    matrix = basis @ np.diag(np.linspace(0.0, rate, 40)) @ basis.T
    offset = rng.normal(size=40)
    return matrix, offset, np.linalg.solve(np.eye(40) - matrix, offset)


def steps_needed(mixed: bool, parts: list[slice], tolerance: float = 1e-8) -> int:
    matrix, offset, answer = contraction(0.98)
    mixers = [Anderson() for _ in parts]
    g = np.zeros(40)
    for step in range(5000):
        if np.abs(g - answer).max() < tolerance:
            return step
        residual = matrix @ g + offset - g
        for mixer, part in zip(mixers, parts, strict=True):
            mixer.remember(g[part], residual[part])
        if mixed and step % 3 == 0:
            total = sum(
                mixer.products(np.ones(part.stop - part.start)) for mixer, part in zip(mixers, parts, strict=True)
            )
            assert total.shape == (PRODUCTS,)
            for mixer in mixers:
                mixer.solve(total)
        g = g + np.concatenate([mixer.step(residual[part]) for mixer, part in zip(mixers, parts, strict=True)])
    raise AssertionError("did not converge")


def test_mixing_needs_far_fewer_steps_than_the_plain_iteration() -> None:
    whole = [slice(0, 40)]
    assert steps_needed(True, whole) < steps_needed(False, whole) / 5


def test_scattered_over_agents_it_is_the_same_iteration() -> None:
    assert steps_needed(True, [slice(0, 7), slice(7, 30), slice(30, 40)]) == steps_needed(True, [slice(0, 40)])


def test_a_linear_problem_of_few_directions_is_solved_at_once() -> None:
    """As many differences as the space has directions: the next point is the fixed point."""
    rng = np.random.default_rng(1)
    matrix = rng.normal(size=(DEPTH, DEPTH)) / DEPTH
    answer = rng.normal(size=DEPTH)
    mixer = Anderson()
    g = np.zeros(DEPTH)
    for _ in range(DEPTH + 1):
        residual = matrix @ (g - answer) + answer - g
        mixer.remember(g, residual)
        plain, g = g, g + residual
    mixer.solve(mixer.products(np.ones(DEPTH)))
    np.testing.assert_allclose(plain + mixer.step(residual), answer, atol=1e-4)


def test_without_history_the_step_is_plain() -> None:
    mixer, residual = Anderson(), np.array([1.0, -2.0])
    np.testing.assert_array_equal(mixer.step(residual), residual)
    mixer.remember(np.zeros(2), residual)
    mixer.solve(mixer.products(np.ones(2)))
    np.testing.assert_array_equal(mixer.step(residual), residual)
    mixer.remember(np.ones(2), residual / 2)
    mixer.solve(mixer.products(np.ones(2)))
    assert (mixer.step(residual / 2) != residual / 2).any()
    mixer.forget()
    np.testing.assert_array_equal(mixer.step(residual), residual)
