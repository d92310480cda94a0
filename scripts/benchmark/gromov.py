"""Gromov-Wasserstein beside POT's: ``python -m benchmark.gromov pot FILE``, ``mpirun ... gromov agents FILE '{}'``.

The paper's setting: Gaussian clouds in 2 and 3 dimensions, stretched, so that no turn leaves them as they were. Both
sides start from the same random alignment, POT from the plan that belongs to it. What both reached is judged from
their plans, outside the clock.
"""

from __future__ import annotations

import json
import resource
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from processes import announce

from benchmark.problem import blocks, squared_distances

_MENDING, _MENDED = 5000, 1e-9
_SHARE = 0.1
"""eps as a share of the cost without any matching."""


def write(folder: Path, samples: int) -> Path:
    """Put the clouds, eps and the first alignment where every process finds them."""
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(samples, 2)) * [1.3, 0.8], rng.normal(size=(samples, 3)) * [1.3, 0.9, 0.6]
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    means = [(z**2).sum(axis=1).mean() for z in (x, y)]
    few = [squared_distances(z[:2000], z[:2000]) for z in (x, y)]
    eps = _SHARE * float(sum((d**2).mean() for d in few) - 8.0 * means[0] * means[1])
    path = folder / "gromov.npz"
    np.savez(path, x=x, y=y, eps=eps, alignment=0.3 * rng.normal(size=(2, 3)))
    return path


def judge(x: np.ndarray, y: np.ndarray, plan: np.ndarray, eps: float) -> dict[str, float]:
    """The L1 error of a plan's marginals; and, once they are mended, its cost by the definition, with eps KL.

    Mended, because a marginal error changes the cost in proportion to the potentials, which are large here: the plan is
    scaled, rows and columns in turn, to the nearest one (in KL) that has the marginals.
    """
    a, b = np.full(len(x), 1 / len(x)), np.full(len(y), 1 / len(y))
    c1, c2 = squared_distances(x, x), squared_distances(y, y)
    error = float(np.abs(plan.sum(axis=1) - a).sum() + np.abs(plan.sum(axis=0) - b).sum())
    left, right = np.ones(len(x)), np.ones(len(y))
    for _ in range(_MENDING):
        left = a / (plan @ right)
        sums = left @ plan
        if np.abs(right * sums - b).sum() < _MENDED:
            break
        right = b / sums
    plan = left[:, None] * plan * right
    rows, columns = plan.sum(axis=1), plan.sum(axis=0)
    cost = float(rows @ c1**2 @ rows + columns @ c2**2 @ columns - 2.0 * ((c1 @ plan @ c2) * plan).sum())
    positive = plan[plan > 0]
    divergence = float((positive * np.log(positive * plan.size)).sum())
    return {"transport_cost": cost, "regularised_cost": cost + eps * divergence, "l1_error": error}


def log_kernel(x: np.ndarray, y: np.ndarray, alignment: np.ndarray, eps: float) -> np.ndarray:
    return (4.0 * np.outer((x**2).sum(axis=1), (y**2).sum(axis=1)) + 32.0 * x @ alignment @ y.T) / eps


def pot(path: str) -> None:
    import ot

    with np.load(path) as file:
        x, y, eps, alignment = file["x"], file["y"], float(file["eps"]), file["alignment"]
    a, b = np.full(len(x), 1 / len(x)), np.full(len(y), 1 / len(y))
    begun = time.perf_counter()
    cost = -eps * log_kernel(x, y, alignment, eps)
    first = ot.sinkhorn(a, b, cost, eps, method="sinkhorn_log", warn=False)
    started = time.perf_counter()
    c1, c2 = ot.dist(x), ot.dist(y)
    prepared = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan, log = ot.gromov.entropic_gromov_wasserstein(
            c1, c2, a, b, "square_loss", epsilon=eps, G0=first, solver="PGD", log=True
        )
    solved = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    announce(
        setup_seconds=prepared - started, solve_seconds=solved - prepared, alignments=10 * len(log["err"]),
        peak_memory=peak, **judge(x, y, plan, eps), inside_seconds=time.perf_counter() - begun,
    )  # fmt: skip


def agents(path: str, options: str) -> None:
    from mpi4py import MPI

    import deot_mpi

    comm = MPI.COMM_WORLD
    sources, chosen = comm.size // 2, json.loads(options)
    judged = chosen.pop("judged", True)
    with np.load(path) as file:
        whole = file["x" if comm.rank < sources else "y"]
        eps, alignment = float(file["eps"]), file["alignment"]
    members, index = (sources, comm.rank) if comm.rank < sources else (comm.size - sources, comm.rank - sources)
    rows = whole[blocks(len(whole), members)[index]].copy()
    del whole
    given = {"kernel": "raw", "eps": eps, "starts": 1, "alignment": alignment, "timeout": 3600.0, **chosen}
    comm.Barrier()
    started = time.perf_counter()
    result = deot_mpi.gromov(comm, rows, "source" if comm.rank < sources else "target", **given)
    total = time.perf_counter() - started
    gathered = comm.gather(result.potential, root=0)
    if comm.rank == 0:
        found = {"transport_cost": result.transport_cost, "regularised_cost": result.regularised_cost}
        found["l1_error"] = result.marginal_error
        if judged:
            with np.load(path) as file:
                x, y = file["x"], file["y"]
            f, g = np.concatenate(gathered[:sources]) / eps, np.concatenate(gathered[sources:]) / eps
            plan = np.exp(log_kernel(x, y, result.alignment, eps) + f[:, None] + g[None, :]) / (len(x) * len(y))
            found = judge(x, y, plan, eps)
        announce(
            status=str(result.status), alignments=sum(start.outer for start in result.starts), rounds=result.rounds,
            setup_seconds=result.setup_seconds, solve_seconds=result.seconds, total_seconds=total,
            peak_memory=sum(agent.peak_memory for agent in result.agents), **found,
            inside_seconds=time.perf_counter() - started,
        )  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1] == "pot":
        pot(sys.argv[2])
    else:
        agents(*sys.argv[2:])
