"""Two domains of labelled rows over all ranks, and what POT finds for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from problems import squared_distances
from rank_0 import on_rank_0

import deot_mpi
from deot_mpi import AdaptResult

EXACT: dict[str, Any] = {"kernel": "raw", "eps": 0.4, "tol": 1e-11, "rounds": 50_000, "timeout": 60.0}
NAMES = np.array([2, 5, 11])
PLANS: dict[tuple[str, float] | None, np.ndarray] = {}
"""POT's couplings of the rows below, by penalty, at rank 0."""


def blocks(rows: np.ndarray, members: int) -> list[np.ndarray]:
    """Unequal parts, one per agent: in proportion to 1, 2, 3, ..."""
    ends = np.cumsum(np.arange(1, members + 1))
    return np.split(rows, np.rint(len(rows) * ends[:-1] / ends[-1]).astype(int))


class Domains:
    """Three classes, 2 apart, turned a little in the target domain. Every rank knows all, to compare."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        rng = np.random.default_rng(6)
        self.comm, self.sources = comm, max(1, comm.size // 2)
        place, spots = rng.integers(3, size=31), rng.integers(3, size=26)
        centres = 2.0 * np.eye(4)[:3]
        turn = np.eye(4) + 0.2 * rng.normal(size=(4, 4))
        self.x, self.labels = centres[place] + 0.5 * rng.normal(size=(31, 4)) + 7.0, NAMES[place]
        self.y, self.truth = centres[spots] @ turn + 0.5 * rng.normal(size=(26, 4)) + 7.2, NAMES[spots]

    @property
    def is_source(self) -> bool:
        return self.comm.rank < self.sources

    def own(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        if self.is_source:
            return blocks(source, self.sources)[self.comm.rank]
        return blocks(target, self.comm.size - self.sources)[self.comm.rank - self.sources]

    @property
    def role(self) -> str:
        return "source" if self.is_source else "target"

    def run(self, comm: MPI.Intracomm | None = None, truth: bool = True, **options: Any) -> AdaptResult:
        labels = self.own(self.labels, self.truth) if truth or self.is_source else None
        rows = self.own(self.x, self.y)
        return deot_mpi.adapt(comm or self.comm, rows, self.role, labels=labels, **{**EXACT, **options})

    def plan(self, cost: np.ndarray | None = None, penalty: tuple[str, float] | None = None) -> np.ndarray:
        """POT's coupling, from rank 0: importing POT takes longer than the rest."""
        return np.asarray(
            on_rank_0(self.comm, lambda: self._known_plan(penalty) if cost is None else self._pots_plan(cost, penalty))
        )

    def _known_plan(self, penalty: tuple[str, float] | None) -> np.ndarray:
        """For the distances of the rows, which are the same in every test: found once."""
        if penalty not in PLANS:
            PLANS[penalty] = self._pots_plan(squared_distances(self.x, self.y), penalty)
        return PLANS[penalty]

    def _pots_plan(self, cost: np.ndarray, penalty: tuple[str, float] | None) -> np.ndarray:
        import ot

        a, b = np.full(31, 1 / 31), np.full(26, 1 / 26)
        if penalty is not None and penalty[0] == "lpl1":
            return ot.da.sinkhorn_lpl1_mm(
                a, self.labels, b, cost, 0.4, eta=penalty[1], numItermax=10, numInnerItermax=100_000,
                stopInnerThr=1e-13,
            )  # fmt: skip
        plain = np.asarray(ot.sinkhorn(a, b, cost, 0.4, method="sinkhorn_log", numItermax=100_000, stopThr=1e-13))
        return plain if penalty is None else self.sharp_between_classes(cost, penalty[1], plain)

    def sharp_between_classes(self, cost: np.ndarray, weight: float, start: np.ndarray) -> np.ndarray:
        """min <C,pi> + eps KL(pi|R) - eps w KL(S|shares b), by POT's generalised conditional gradient."""
        import ot

        classes = (self.labels[:, None] == NAMES).astype(float)
        usual = np.outer(classes.mean(axis=0), np.full(26, 1 / 26))

        def between(plan: np.ndarray) -> float:
            mass = classes.T @ plan
            return -weight * float((mass * np.log(mass / usual)).sum())

        def slope(plan: np.ndarray) -> np.ndarray:
            return np.asarray(-weight * classes @ (np.log(classes.T @ plan / usual) + 1.0))

        return np.asarray(ot.optim.gcg(
            np.full(31, 1 / 31), np.full(26, 1 / 26), cost, 0.4, 0.4, between, slope, G0=start, numItermax=300,
            numInnerItermax=10_000, stopThr=1e-14, stopThr2=1e-14,
        ))  # fmt: skip

    def shares(self, plan: np.ndarray) -> np.ndarray:
        """Each class's share of the mass of each target row."""
        sums = plan.T @ (self.labels[:, None] == NAMES)
        return np.asarray(sums / sums.sum(axis=1, keepdims=True))

    @property
    def class_shares(self) -> np.ndarray:
        return np.asarray((self.labels[:, None] == NAMES).mean(axis=0))

    def mapped(self, plan: np.ndarray) -> np.ndarray:
        return np.asarray(plan / plan.sum(axis=1, keepdims=True)) @ self.y


def pots_plan_within(cost: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """POT's plan with a reference measure's marginals and support."""
    import ot

    allowed = reference > 0
    cost = np.where(allowed, cost - EXACT["eps"] * np.log(np.where(allowed, reference, 1.0)), 1e6)
    a, b = reference.sum(axis=1), reference.sum(axis=0)
    return np.asarray(ot.sinkhorn(a, b, cost, EXACT["eps"], method="sinkhorn_log", numItermax=200_000, stopThr=1e-13))


def nearest(known: np.ndarray, labels: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return np.asarray(labels[squared_distances(rows, known).argmin(axis=1)])
