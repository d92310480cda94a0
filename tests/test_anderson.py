"""Anderson's mixing on problems whose fixed point is known."""

from __future__ import annotations

import numpy as np
import pytest

from deot_mpi.kernel import loops
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


def test_the_step_is_the_least_squares_one() -> None:
    """Against numpy's own least squares, in the metric of the weights."""
    rng = np.random.default_rng(1)
    weights = rng.dirichlet(np.ones(30))
    points, residuals = rng.normal(size=(DEPTH + 1, 30)), 0.1 * rng.normal(size=(DEPTH + 1, 30))
    mixer = Anderson()
    for point, residual in zip(points, residuals, strict=True):
        mixer.remember(point, residual)
    mixer.solve(mixer.products(weights))
    root = np.sqrt(weights)
    changes = np.diff(residuals, axis=0)
    best = np.linalg.lstsq((root * changes).T, root * residuals[-1], rcond=None)[0]
    expected = residuals[-1] - best @ (np.diff(points, axis=0) + changes)
    # The ridge, 1e-10 of the trace, moves the coefficients by that times trace over smallest eigenvalue.
    spectrum = np.linalg.svd(root * changes, compute_uv=False) ** 2
    slack = 1e-10 * spectrum.sum() / spectrum.min() * np.abs(best).sum() * np.abs(points).max() * 2
    assert slack < 1e-4
    np.testing.assert_allclose(mixer.step(residuals[-1]), expected, atol=slack)


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


def test_stretched_steps_undo_what_plain_ones_leave() -> None:
    """Where numbers do not depend on each other, one stretched step is nearly the fixed point; what led astray is
    trusted less; residuals of before are stretched, too, and all of it outlives a checkpoint."""
    left, answer = np.array([0.0, 0.5, 0.9, 1.0]), np.array([0.3, -0.2, 0.1, 0.1])
    residual, trusted = (1.0 - left) * answer, 0.95
    mixer = Anderson()
    for trust in (trusted, 0.7 * trusted, 0.49 * trusted):
        mixer.stretch(left)
        np.testing.assert_allclose(mixer.step(residual), residual / (1.0 - trust * left), rtol=1e-14)
        np.testing.assert_allclose(
            mixer.step(np.full(4, 10.0))[1:], [11.0, 11.0, 18.0]
        )  # so many nats more, no further
        mixer.step_back()
        np.testing.assert_array_equal(mixer.step(residual), residual)
    mixer.forget()
    mixer.stretch(left)
    np.testing.assert_allclose(mixer.step(residual), residual / (1.0 - trusted * left), rtol=1e-14)

    rng = np.random.default_rng(2)
    points, residuals, weights = rng.normal(size=(3, 4)), 0.01 * rng.normal(size=(3, 4)), rng.dirichlet(np.ones(4))
    late, early = Anderson(), Anderson()
    for point, one in zip(points, residuals, strict=True):
        late.remember(point, one)
        early.remember(point, one / (1.0 - trusted * left))
    late.stretch(left)
    for mixed in (late, early):
        mixed.solve(mixed.products(weights))
    restored = Anderson.unpacked(late.packed())
    np.testing.assert_allclose(late.step(residuals[-1]), early.step(residuals[-1] / (1.0 - trusted * left)), rtol=1e-9)
    np.testing.assert_array_equal(restored.step(residuals[-1]), late.step(residuals[-1]))


def test_columns_that_share_their_rows_do_not_push_each_other_to_and_fro() -> None:
    """J = 1/2 everywhere: what one column gets, the other gives back. Stretched by all of it, plain steps would swap
    the two for ever."""
    g, mixer = np.array([1.0, -1.0]), Anderson()
    for _ in range(400):
        residual = np.full(2, g.mean()) - g
        mixer.stretch(np.full(2, 0.5))
        g = g + mixer.step(residual)
    assert np.abs(g - g.mean()).max() < 1e-10


@pytest.mark.skipif(loops.compiled is None, reason="no compiled passes here")
@pytest.mark.parametrize("lines", [2, 3, DEPTH + 1])
@pytest.mark.parametrize("size", [1, 63, 64, 200])
@pytest.mark.parametrize("with_stretch", [False, True])
def test_compiled_mixing_is_that_of_numpy(
    lines: int, size: int, with_stretch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To rounding: sums of ``size`` products, and of ``lines`` corrections, of terms below a hundred. What is taken off
    is sometimes more than it may be, and sometimes not."""
    rng = np.random.default_rng(lines + size)
    points, residuals = rng.normal(size=(lines, size)), rng.normal(size=(lines, size))
    stretch = 1.0 + 5.0 * rng.random(size) if with_stretch else None
    longest = np.where(rng.random(size) < 0.5, 1.0, 8.0) if with_stretch else np.ones(1)
    weights, coefficients = rng.dirichlet(np.ones(size)), rng.normal(size=lines - 1)
    coefficients *= 5.0 / np.linalg.norm(coefficients)

    def found() -> tuple[np.ndarray, ...]:
        gram, last = loops.mixing_products(list(residuals), stretch, longest, weights)
        step = loops.mixing_step(list(points), list(residuals), stretch, longest, coefficients, 10.0, residuals[-1])
        return np.triu(gram), last, step

    compiled = found()
    monkeypatch.setattr(loops, "compiled", None)
    for one, other in zip(compiled, found(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-12)
    bounded = loops.stretched(residuals[-1], stretch, longest) - compiled[2]
    assert np.abs(bounded).max() <= 10.0 + 1e-12
    assert size < 63 or 0.05 < np.mean(np.abs(bounded) > 10.0 - 1e-9) < 0.95
    with pytest.raises(ValueError, match="residuals and"):
        loops.mixing_step(list(points), list(residuals)[1:], None, longest, coefficients, 10.0, residuals[-1])
    with pytest.raises(ValueError, match="the most"):
        loops.mixing_products([weights] * 17, None, longest, weights)
