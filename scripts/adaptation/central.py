"""The centralised columns of one pair, by POT: ``python -m adaptation.central FOLDER SETTINGS``.

Sinkhorn and OT-LpL1 use the eps that the agents chose, seed by seed, so that columns differ by their method alone.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path

import numpy as np
import ot
from processes import announce

from adaptation.domains import read

_CLASS_WEIGHT = 0.1
"""POT's default reg_cl."""


def main() -> None:
    folder, settings = sys.argv[1], json.loads(sys.argv[2])
    (xs, ys), (xt, yt) = ((np.array(rows), labels) for rows, labels in (read(folder, "source"), read(folder, "target")))
    cost = ot.dist(xs, xt)
    a, b = np.full(len(xs), 1 / len(xs)), np.full(len(xt), 1 / len(xt))

    def accuracy(known: np.ndarray) -> float:
        return float((ys[ot.dist(xt, known).argmin(axis=1)] == yt).mean())

    def mapped(plan: np.ndarray) -> np.ndarray:
        return np.asarray(plan / plan.sum(axis=1, keepdims=True)) @ xt

    @cache
    def sinkhorn(eps: float) -> np.ndarray:
        return np.asarray(ot.sinkhorn(a, b, cost, eps, stopThr=1e-9, numItermax=20_000))

    @cache
    def grouped(eps: float) -> float:
        return accuracy(mapped(ot.da.sinkhorn_lpl1_mm(a, ys, b, cost, eps, eta=_CLASS_WEIGHT)))

    announce(column="1NN", accuracy=accuracy(xs))
    announce(column="EMD", accuracy=accuracy(mapped(ot.emd(a, b, cost, numItermax=10_000_000))))
    for seed in range(settings["seeds"]):
        with np.load(Path(folder) / f"potentials-{seed}.npz") as found:
            chosen, f, g = float(found["eps"]), found["source"], found["target"]
        eps = round(chosen, 9)  # of seeds that chose alike, sums differ in their last digits
        plan, own = sinkhorn(eps), np.exp((f[:, None] + g - cost) / chosen) * np.outer(a, b)
        distance = float(np.abs(own - plan).sum())
        announce(column="Sinkhorn", seed=seed, accuracy=accuracy(mapped(plan)), distance=distance)
        announce(column="OT-LpL1", seed=seed, accuracy=grouped(eps))
    if settings["by_target_labels"]:
        for scale in settings["grid"]:
            announce(column="OT-LpL1 at every eps", scale=scale, accuracy=grouped(round(scale * cost.mean(), 9)))


if __name__ == "__main__":
    main()
