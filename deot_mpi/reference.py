"""The centralised reference: POT on pooled samples, and the error decomposition of Section 3.5.

Only for asking how far off a run is: pooling is what this project exists to avoid. Runs on one rank, without MPI.
"""

from __future__ import annotations

import warnings
from dataclasses import astuple, dataclass
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from deot_mpi.data.samples import Floats
from deot_mpi.errors import InputError
from deot_mpi.kernel import Kernel, RawKernel, log_block
from deot_mpi.protocol import Protocol
from deot_mpi.result import ErrorDecomposition, ReferenceValues, Values
from deot_mpi.roles import Role

_SCALING_LIMIT = 300.0
"""Largest cost/eps for POT's scaling form; beyond it exp(-c/eps) nears underflow and the log form is used."""
_POT_ROUNDS, POT_TOLERANCE = 20_000, 1e-10
_POT_ALIGNMENTS, _POT_INNER = 500, 2000
_POT_FIRST = 300
"""Rounds for the plan that Gromov-Wasserstein starts from: near its optimum is enough, and these take long."""
REFERENCE_TIMEOUT = 3600.0
"""Seconds the other ranks wait for the centralised solver, and for the small problems behind tau."""
_DELTA = 0.05


@dataclass(frozen=True)
class Pooled:
    """All samples in agent order, as the reference sees them."""

    rows: dict[Role, Floats]
    shares: dict[Role, Floats]
    """Each row's share in its own agent."""
    owner: dict[Role, NDArray[np.int64]]
    """Index of the agent each row belongs to."""
    log_kernel: Floats | None = None
    """The kernel the run had, where it cannot be made again from the rows: with noise, or with seeds of edges."""


def require_pot() -> None:
    """Say how to get POT where it is not installed."""
    if find_spec("ot") is None:
        raise InputError("reference needs the package POT, which is not installed: pip install 'deot_mpi[reference]'.")


@dataclass(frozen=True)
class Solved:
    values: Values
    solver: str
    error: float
    """POT's last L2 marginal error."""


def solve_pooled(cost: Floats, reference: Floats, eps: float) -> Solved:
    """The problem min <C,pi> + eps KL(pi | R) - eps over plans with R's marginals, by POT.

    POT regularises with KL(pi | a b^T), so R enters as a change of cost: C - eps log(R / a b^T), infinite off R's
    support.
    """
    import ot

    keep_rows, keep_columns = reference.any(axis=1), reference.any(axis=0)
    cost, reference = cost[np.ix_(keep_rows, keep_columns)], reference[np.ix_(keep_rows, keep_columns)]
    a, b = reference.sum(axis=1), reference.sum(axis=0)
    with np.errstate(divide="ignore"):
        shifted = cost - eps * (np.log(reference) - np.log(np.outer(a, b)))
    finite = shifted[np.isfinite(shifted)]
    method = "sinkhorn" if np.ptp(finite) < _SCALING_LIMIT * eps else "sinkhorn_log"
    offset = finite.min()
    plan, log = ot.sinkhorn(
        a, b, shifted - offset, eps, method=method, numItermax=_POT_ROUNDS, stopThr=POT_TOLERANCE, log=True, warn=False
    )
    scalings = (log["log_u"], log["log_v"]) if "log_u" in log else (np.log(log["u"]), np.log(log["v"]))
    f, g = (eps * (scaling - np.log(weights)) for scaling, weights in zip(scalings, (a, b), strict=True))
    mass = float(plan.sum())
    dual = float(a @ f + b @ g) + offset - eps * mass
    transport = float((plan * cost).sum())
    positive = plan > 0
    entropy = float((plan[positive] * (np.log(plan[positive]) - 1.0)).sum())
    values = Values(dual, dual + eps, transport, transport + eps * entropy)
    return Solved(values, f"POT {ot.__version__} {method}", float(log["err"][-1]) if log["err"] else 0.0)


def compare(
    pooled: Pooled, protocol: Protocol, kernel: Kernel, eps: float, reached: float, rounds: int
) -> tuple[ReferenceValues, ErrorDecomposition, float]:
    """Solve the three centralised problems, and the small ones behind tau, and decompose the error of ``reached``."""
    x, y = pooled.rows[Role.SOURCE], pooled.rows[Role.TARGET]
    raw = RawKernel(eps, x.shape[1])
    cost = np.maximum(-eps * log_block(raw, raw.show(x), raw.show(y)), 0.0)
    inner = np.outer(pooled.shares[Role.SOURCE], pooled.shares[Role.TARGET])
    rows, columns = (pooled.owner[role] for role in Role)

    storage = np.outer(protocol.p, protocol.q)[rows][:, columns] * inner
    communication = protocol.E[rows][:, columns] * inner
    central = solve_pooled(cost, storage, eps)
    exact = central if protocol.is_storage else solve_pooled(cost, communication, eps)
    used = pooled.log_kernel
    estimated = -eps * (log_block(kernel, kernel.show(x), kernel.show(y)) if used is None else used)
    same_kernel = np.allclose(estimated, cost, rtol=0.0, atol=1e-9 * cost.max(initial=0.0))
    approximate = exact if same_kernel else solve_pooled(estimated, communication, eps)
    tau = max(
        solve_pooled(cost[pair], inner[pair], eps).values.dual_objective
        for pair in (np.ix_(rows == i, columns == j) for i in range(protocol.p.size) for j in range(protocol.q.size))
    )
    w, w_protocol, w_kernel = (solved.values.dual_objective for solved in (central, exact, approximate))
    total = abs(reached - w)
    errors = ErrorDecomposition(
        total=total,
        mismatch=abs(w_protocol - w),
        kernel=abs(w_kernel - w_protocol),
        algorithm=abs(reached - w_kernel),
        relative_total=total / max(abs(w), np.finfo(float).tiny),
        mismatch_bound=tau * protocol.sigma,
        kernel_bound=_kernel_bound(x, y, cost, eps, getattr(kernel, "bits", None)),
        algorithm_rate=1.0 / np.sqrt(rounds),
    )
    worst = max(solved.error for solved in (central, exact, approximate))
    reference = ReferenceValues(central.values, exact.values, approximate.values, central.solver, worst)
    return reference, errors, tau


def _kernel_bound(x: Floats, y: Floats, cost: Floats, eps: float, bits: int | None) -> float:
    """G (N+M) ( sqrt(32 pi^2/Q log(2(N+M)/delta)) + 8 pi/(3Q) log(2(N+M)/delta) ), Lemma 2; 0 for the exact kernel.

    G = max |d kappa/d phi| = max (2 r s |sin phi|/eps) exp(-c/eps) over the pairs at hand.
    """
    if bits is None:
        return 0.0
    norms = np.outer(np.linalg.norm(x, axis=1), np.linalg.norm(y, axis=1))
    sine = np.sqrt((norms**2 - (x @ y.T) ** 2).clip(min=0.0))
    lipschitz = float((2.0 / eps * sine * np.exp(-cost / eps)).max())
    count = len(x) + len(y)
    log_term = np.log(2.0 * count / _DELTA)
    return float(
        lipschitz * count * (np.sqrt(32.0 * np.pi**2 / bits * log_term) + 8.0 * np.pi / (3.0 * bits) * log_term)
    )


@dataclass(frozen=True)
class PooledMatch:
    """All rows of both domains (centred structure), their masses, and a cost between features (None without)."""

    x: Floats
    y: Floats
    a: Floats
    b: Floats
    feature_cost: Floats | None
    alpha: float


def solve_pooled_gromov(pooled: PooledMatch, alignment: Floats, eps: float) -> tuple[Values, str]:
    """POT's entropic (fused) Gromov-Wasserstein, started from the plan that belongs to P: the same local optimum."""
    import ot

    a, b, alpha = pooled.a, pooled.b, pooled.alpha
    x, y = pooled.x - a @ pooled.x, pooled.y - b @ pooled.y  # E's marginals, and so its centre, may be others
    within_x, within_y = ot.dist(x), ot.dist(y)
    linear = np.zeros((a.size, b.size)) if pooled.feature_cost is None else pooled.feature_cost
    cost = alpha * (-4.0 * np.outer((x**2).sum(axis=1), (y**2).sum(axis=1)) - 32.0 * x @ alignment @ y.T)
    first = ot.sinkhorn(
        a, b, cost + (1.0 - alpha) * linear, eps, method="sinkhorn_log", numItermax=_POT_FIRST, stopThr=POT_TOLERANCE,
        warn=False,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of every inner solve, whether it reached its tolerance or overflowed
        plan = ot.gromov.entropic_fused_gromov_wasserstein(
            linear, within_x, within_y, a, b, "square_loss", epsilon=eps, alpha=alpha, G0=first, solver="PGD",
            max_iter=_POT_ALIGNMENTS, tol=POT_TOLERANCE, numItermax=_POT_INNER, stopThr=POT_TOLERANCE,
        )  # fmt: skip
    square = (within_x**2 @ plan.sum(axis=1)) @ plan.sum(axis=1) + (within_y**2 @ plan.sum(axis=0)) @ plan.sum(axis=0)
    structure = float(square) - 2.0 * float(((within_x @ plan @ within_y) * plan).sum())
    transport = alpha * structure + (1.0 - alpha) * float((linear * plan).sum())
    positive = plan > 0
    logs = np.log(plan[positive])
    divergence = float((plan[positive] * (logs - np.log(np.outer(a, b)[positive]))).sum())
    entropy = float((plan[positive] * (logs - 1.0)).sum())
    regularised = transport + eps * divergence
    values = Values(regularised - eps, regularised, transport, transport + eps * entropy)
    return values, f"POT {ot.__version__} entropic_fused_gromov_wasserstein, PGD"


def flatten(reference: ReferenceValues, errors: ErrorDecomposition, tau: float) -> Floats:
    """All numbers as one array, for the broadcast to the other ranks."""
    return np.array([
        *astuple(reference.centralised), *astuple(reference.protocol), *astuple(reference.approximate),
        reference.error, *astuple(errors), tau,
    ])  # fmt: skip


FLAT_SIZE = 4 * 3 + 1 + 8 + 1


def unflatten(numbers: Floats, solver: str) -> tuple[ReferenceValues, ErrorDecomposition, float]:
    values = [float(number) for number in numbers]
    return (
        ReferenceValues(Values(*values[0:4]), Values(*values[4:8]), Values(*values[8:12]), solver, values[12]),
        ErrorDecomposition(*values[13:21]),
        values[21],
    )
