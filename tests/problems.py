"""Problems with answers nobody here computed: closed forms, POT, and a dense log-domain solution.

POT and SciPy are imported where they are used: that takes longer than most tests, and most ranks never need them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Answers:
    dual_objective: float
    regularised_cost: float
    transport_cost: float
    entropy_cost: float


def squared_distances(x: Floats, y: Floats) -> Floats:
    return ((x[:, None, :] - y[None, :, :]) ** 2).sum(axis=2)


def answers_of_plan(plan: Floats, cost: Floats, reference: Floats, eps: float) -> Answers:
    """The four values from an optimal plan, by their primal formulas."""
    positive = plan > 0
    p, r = plan[positive], reference[positive]
    transport = float((p * cost[positive]).sum())
    divergence = float((p * np.log(p / r)).sum())
    entropy = float((p * (np.log(p) - 1.0)).sum())
    regularised = transport + eps * divergence
    return Answers(regularised - eps, regularised, transport, transport + eps * entropy)


def pot_answers(x: Floats, y: Floats, a: Floats, b: Floats, eps: float) -> Answers:
    import ot

    cost = ot.dist(x, y)
    plan = ot.sinkhorn(a, b, cost, eps, method="sinkhorn_log", numItermax=200_000, stopThr=1e-13, warn=False)
    return answers_of_plan(plan, cost, np.outer(a, b), eps)


def dense_answers(cost: Floats, reference: Floats, eps: float, rounds: int = 20_000) -> Answers:
    """min <C,pi> + eps KL(pi|R) with R's marginals, by log-domain Sinkhorn on the whole matrix."""
    from scipy.special import logsumexp

    with np.errstate(divide="ignore"):
        log_r = np.log(reference)
        log_a, log_b = np.log(reference.sum(axis=1)), np.log(reference.sum(axis=0))
    kernel = log_r - cost / eps
    f, g = np.zeros(len(cost)), np.zeros(cost.shape[1])
    rows, columns = np.isfinite(log_a), np.isfinite(log_b)
    for _ in range(rounds):
        f[rows] = log_a[rows] - logsumexp(kernel[rows][:, columns] + g[None, columns], axis=1)
        before = g.copy()
        g[columns] = log_b[columns] - logsumexp(kernel[rows][:, columns] + f[rows, None], axis=0)
        if np.abs(g - before).max() < 4 * np.finfo(float).eps * max(1.0, np.abs(g).max()):  # rounding is all there is
            break
    plan = np.exp(kernel + f[:, None] + g[None, :])
    return answers_of_plan(plan, cost, reference, eps)


def gaussian_regularised_cost(m1: Floats, s1: Floats, m2: Floats, s2: Floats, eps: float) -> float:
    """Entropic OT (KL form) between N(m1, s1) and N(m2, s2): Janati et al. (2020), eps = 2 sigma^2."""
    from scipy.linalg import sqrtm

    sigma2, d = eps / 2.0, len(m1)
    root = np.real(sqrtm(s1))
    big = np.real(sqrtm(4.0 * root @ s2 @ root + sigma2**2 * np.eye(d)))
    return float(
        ((m1 - m2) ** 2).sum()
        + np.trace(s1) + np.trace(s2) - np.trace(big)
        + d * sigma2 * (1.0 - np.log(2.0 * sigma2))
        + sigma2 * np.linalg.slogdet(big + sigma2 * np.eye(d))[1]
    )  # fmt: skip


def gaussian_quadrature(mean: Floats, covariance: Floats, nodes: int) -> tuple[Floats, Floats]:
    """Weighted points that stand for a Gaussian to many digits (Gauss-Hermite, tensor grid)."""
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    dimension = len(mean)
    grid = np.stack(np.meshgrid(*[points] * dimension, indexing="ij"), axis=-1).reshape(-1, dimension)
    mass = np.prod(np.stack(np.meshgrid(*[weights] * dimension, indexing="ij"), axis=-1), axis=-1).reshape(-1)
    keep = mass / mass.sum() > 1e-18
    return grid[keep] @ np.linalg.cholesky(covariance).T + mean, mass[keep] / mass[keep].sum()


def scattered(seed: int, rank: int, sources: int, dimension: int = 3, base: int = 9) -> Floats:
    """Rank's own rows of a small random problem: unequal blocks, the targets shifted by one."""
    rng = np.random.default_rng([seed, rank])
    return rng.normal(size=(base + 2 * rank, dimension)) + (0.0 if rank < sources else 1.0)
