"""One agent's formulas against finite differences of F."""

from __future__ import annotations

import numpy as np
import pytest
from problems import squared_distances

from deot_mpi.kernel.block import KernelBlock
from deot_mpi.roles import Role
from deot_mpi.solvers.mrbcd import ascent
from deot_mpi.view import AgentView, returned

EPS = 0.8
WEIGHTS = {0: 0.15, 1: 0.05}


def setup() -> tuple[AgentView, np.ndarray, dict[int, np.ndarray], dict[int, np.ndarray], dict[int, np.ndarray]]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 2))
    costs = {j: squared_distances(x, rng.normal(size=(4 + j, 2))) for j in WEIGHTS}
    shares = {j: rng.dirichlet(np.ones(4 + j)) for j in WEIGHTS}
    alpha = rng.dirichlet(np.ones(6))
    view = AgentView(
        Role.SOURCE, 0, EPS, alpha, WEIGHTS, {j: KernelBlock(-costs[j] / EPS, np.log(shares[j])) for j in WEIGHTS}
    )
    v = {j: 0.3 * rng.normal(size=4 + j) for j in WEIGHTS}
    return view, 0.3 * rng.normal(size=6), v, costs, shares


def objective(
    u: np.ndarray,
    v: dict[int, np.ndarray],
    alpha: np.ndarray,
    costs: dict[int, np.ndarray],
    shares: dict[int, np.ndarray],
) -> float:
    """F as MATH.md writes it, restricted to one source agent's edges."""
    return sum(
        e * np.einsum(
            "n,m,nm->", alpha, shares[j],
            u[:, None] + v[j][None, :] - EPS * np.exp((u[:, None] + v[j][None, :] - costs[j]) / EPS),
        )
        for j, e in WEIGHTS.items()
    )  # fmt: skip


def test_bracket_is_the_gradient_over_the_marginal() -> None:
    view, u, v, costs, shares = setup()
    bracket = -np.expm1(view.log_violation(u, {j: view.log_sums(j, v[j]) for j in WEIGHTS}))
    step = 1e-6
    for n in range(6):
        up, down = u.copy(), u.copy()
        up[n] += step
        down[n] -= step
        slope = (objective(up, v, view.shares, costs, shares) - objective(down, v, view.shares, costs, shares)) / (
            2 * step
        )
        assert slope == pytest.approx(view.marginal * view.shares[n] * bracket[n], abs=1e-9)


def test_what_a_move_leaves_is_the_slope_of_the_next_one() -> None:
    """J_mm, away from the optimum too, against finite differences of v -> v - eps s(v), where s is the log of a
    column's mass over b once the rows have been brought to hold."""
    rng = np.random.default_rng(4)
    log_kernel = -squared_distances(rng.normal(size=(9, 2)), rng.normal(size=(5, 2))) / EPS
    a, b, g = rng.dirichlet(np.ones(9)), rng.dirichlet(np.ones(5)), 0.5 * rng.normal(size=5)

    def moved(g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        plan = b * np.exp(log_kernel + g)
        plan *= (a / plan.sum(axis=1))[:, None]
        return g - np.log(plan.sum(axis=0) / b), plan

    after, plan = moved(g)
    found = returned((plan**2 / a[:, None]).sum(axis=0), g - after, b)
    step = 1e-5
    for m in range(5):
        ahead, behind = (moved(g + sign * step * np.eye(5)[m])[0][m] for sign in (1, -1))
        # The third derivative times step^2 / 6, and rounding over the step.
        assert found[m] == pytest.approx((ahead - behind) / (2 * step), abs=1e-9)
    assert np.all((found > 0) & (found < 1))
    assert returned(np.zeros(1), np.array([-800.0]), np.ones(1)) == 0.0


def test_steps_follow_the_gradient_and_never_fall_far_past_the_maximum() -> None:
    s = np.array([-1000.0, -1.0, 0.0, 1.0, 5.0, 2000.0])
    np.testing.assert_allclose(ascent(s[:4], 0.5), 0.5 * (1 - np.exp(s[:4])))
    np.testing.assert_allclose(ascent(s[4:], 0.5), -s[4:])
