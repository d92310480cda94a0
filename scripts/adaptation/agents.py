"""The decentralised columns of one pair: ``mpirun -n 8 python -m adaptation.agents FOLDER SETTINGS``.

Rows are scattered anew over the agents for every seed, which also draws the projections and the halves that choose eps.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from processes import announce

import deot_mpi
from adaptation.domains import read

COLUMNS: dict[str, dict[str, Any]] = {
    "DEOT_K": {"kernel": "raw", "method": "1nn"},
    "DEOT_K^": {"kernel": "sketch", "method": "1nn"},
    "labels": {"kernel": "raw", "method": "labels"},
    "class-regularised": {"kernel": "raw", "method": "class-regularised"},
}
BY_TARGET_LABELS = ("DEOT_K", "DEOT_K^")
"""Columns that are also run at every eps, to see what the paper's way of choosing it would give."""


class Scattered:
    """A pair whose rows lie with the agents as one seed has it."""

    def __init__(self, folder: str, comm: MPI.Intracomm, seed: int) -> None:
        self.comm, self.seed, sources = comm, seed, comm.size // 2
        self.role = "source" if comm.rank < sources else "target"
        rows, labels = read(folder, self.role)
        order = np.random.default_rng([seed, int(self.role == "target")]).permutation(len(labels))
        members, index = (sources, comm.rank) if self.role == "source" else (comm.size - sources, comm.rank - sources)
        self.places = np.array_split(order, members)[index]
        self.rows, self.labels = np.array(rows[self.places]), labels[self.places]

    def adapt(self, column: str, settings: dict[str, Any], **options: Any) -> deot_mpi.AdaptResult:
        chosen = {**COLUMNS[column], "bits": settings["bits"], "seed": self.seed, "rounds": 5000, **options}
        return deot_mpi.adapt(self.comm, self.rows, self.role, labels=self.labels, timeout=3600.0, **chosen)

    def potentials(self, result: deot_mpi.AdaptResult) -> dict[str, np.ndarray] | None:
        """f and g in the order of the domains' rows, at rank 0."""
        gathered = self.comm.gather((self.role, self.places, result.potential))
        if gathered is None:
            return None
        whole = {}
        for role in ("source", "target"):
            parts = [(places, values) for whose, places, values in gathered if whose == role]
            whole[role] = np.empty(sum(len(places) for places, _ in parts))
            for places, values in parts:
                whole[role][places] = values
        return whole


def main() -> None:
    folder, settings = sys.argv[1], json.loads(sys.argv[2])
    comm = MPI.COMM_WORLD
    choice = {
        "choose_eps": True, "eps_grid": tuple(settings["grid"]), "validation_rows": settings["validation_rows"],
    }  # fmt: skip
    for seed in range(settings["seeds"]):
        scattered = Scattered(folder, comm, seed)
        for column in COLUMNS:
            started = time.perf_counter()
            # The coupling is held against POT's to 1e-6.
            result = scattered.adapt(column, settings, **choice, tol=1e-7 if column == "DEOT_K" else 1e-6)
            found = scattered.potentials(result) if column == "DEOT_K" else None
            if comm.rank == 0:
                assert result.choice is not None
                if found is not None:
                    np.savez(Path(folder) / f"potentials-{seed}.npz", **found, eps=result.eps)
                announce(
                    column=column, seed=seed, accuracy=result.accuracy, scale=result.choice.chosen,
                    scores=[one.score for one in result.choice.scores], status=str(result.status),
                    seconds=time.perf_counter() - started, bytes=result.ledger.bytes, choice_bytes=result.choice.bytes,
                )  # fmt: skip
    if settings["by_target_labels"]:
        scattered = Scattered(folder, comm, 0)
        for column in BY_TARGET_LABELS:
            for scale in settings["grid"]:
                result = scattered.adapt(column, settings, eps_scale=scale)
                if comm.rank == 0:
                    announce(column=f"{column} at every eps", scale=scale, accuracy=result.accuracy)


if __name__ == "__main__":
    main()
