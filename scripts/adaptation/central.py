"""The centralised columns of one pair, by POT: ``python -m adaptation.central FOLDER SEEDS``.

Sinkhorn and OT-LpL1 use the eps that the agents chose, seed by seed, so that columns differ by their method alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import ot
from processes import announce

from adaptation.domains import read

_CLASS_WEIGHT = 0.1
"""POT's default reg_cl."""


def main() -> None:
    folder, seeds = sys.argv[1], int(sys.argv[2])
    (xs, ys), (xt, yt) = ((np.array(rows), labels) for rows, labels in (read(folder, "source"), read(folder, "target")))
    cost = ot.dist(xs, xt)
    a, b = np.full(len(xs), 1 / len(xs)), np.full(len(xt), 1 / len(xt))

    def accuracy(known: np.ndarray) -> float:
        return float((ys[ot.dist(xt, known).argmin(axis=1)] == yt).mean())

    def mapped(plan: np.ndarray) -> np.ndarray:
        return np.asarray(plan / plan.sum(axis=1, keepdims=True)) @ xt

    announce(column="1NN", accuracy=accuracy(xs))
    announce(column="EMD", accuracy=accuracy(mapped(ot.emd(a, b, cost, numItermax=10_000_000))))
    done: dict[float, tuple[float, float, np.ndarray]] = {}
    for seed in range(seeds):
        with np.load(Path(folder) / f"potentials-{seed}.npz") as found:
            eps, f, g = float(found["eps"]), found["source"], found["target"]
        place = round(eps, 9)
        if place not in done:
            plan = ot.sinkhorn(a, b, cost, eps, stopThr=1e-9, numItermax=20_000)
            grouped = ot.da.sinkhorn_lpl1_mm(a, ys, b, cost, eps, eta=_CLASS_WEIGHT)
            done[place] = accuracy(mapped(plan)), accuracy(mapped(grouped)), plan
        plain, grouped_accuracy, plan = done[place]
        own = np.exp((f[:, None] + g - cost) / eps) * np.outer(a, b)
        announce(column="Sinkhorn", seed=seed, accuracy=plain, distance=float(np.abs(own - plan).sum()))
        announce(column="OT-LpL1", seed=seed, accuracy=grouped_accuracy)


if __name__ == "__main__":
    main()
