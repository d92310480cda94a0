"""Runs what is not finished: one job of 16 ranks for a figure's runs, one of 8 for each pair of domains."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import adaptation_table
from adaptation.domains import Pair
from adaptation.report import Found
from processes import MARK, lines_of

from deot_mpi.errors import InputError
from reproduction.plan import RANKS, Run, Size
from reproduction.progress import Watch
from reproduction.store import Store

SCRIPTS = Path(__file__).resolve().parent.parent
BESIDE = [
    *(SCRIPTS / "reproduction" / name for name in ("agents.py",)),
    *(SCRIPTS / "adaptation" / name for name in ("agents.py", "central.py", "domains.py")),
]
"""What, with the package, decides the numbers."""
_LIMIT = 6 * 3600.0
"""Seconds after which a figure's job is ended."""
_KEPT = (
    "dual_objective", "regularised_cost", "transport_cost", "eps", "status", "rounds", "seconds", "marginal_error",
    "reference", "starts", "frontier",
)  # fmt: skip


def kept(result: dict[str, Any]) -> dict[str, Any]:
    """Of the program's JSON, what figures, tables and claims use."""
    found = {name: result[name] for name in _KEPT if name in result}
    names = ("round", "objective", "error", "bytes", "start")
    # On the way from a larger eps the objective is that of another problem.
    found["trace"] = [
        {name: point[name] for name in names} for point in result.get("trace", ()) if point["temperature"] == 1.0
    ]
    if "ledger" in result:
        found["traffic"] = {row["kind"]: row["bytes"] for row in result["ledger"]["by_kind"]}
        found["collective_bytes"] = sum(row["collective_bytes"] for row in result["ledger"]["by_kind"])
        found["sigma"] = result["protocol"]["sigma"]
    return found


def run_all(runs: Sequence[Run], store: Store, watch: Watch, ranks: int = RANKS) -> None:
    """Those of the runs that the store does not have, in one job; each is stored when it ends."""
    missing = list({run.arguments: run for run in runs if store.get(run.settings) is None}.values())
    if not missing:
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "runs.json").write_text(json.dumps([run.arguments for run in missing]))
        command = [
            "mpirun", "-n", str(ranks), sys.executable, "-m", "mpi4py", "-m", "reproduction.agents",
            str(folder / "runs.json"), name,
        ]  # fmt: skip
        for line in lines_of(command, {**os.environ, "PYTHONPATH": str(SCRIPTS)}, _LIMIT):
            if not line.startswith(MARK):
                continue
            ended = json.loads(line[len(MARK) :])
            run, path = missing[ended["number"]], folder / f"{ended['number']}.json"
            store.put(run.settings, kept(json.loads(path.read_text())) | {"wall_seconds": ended["seconds"]})
            path.unlink()
            place = run.place
            asked = "" if place.neighbours is None else f", L = {place.neighbours}"
            curve = f", {place.curve}" if place.curve else ""
            watch.done(f"{place.figure}: {place.panel}{asked}{curve}, {place.method}, seed {run.seed}", run.weight)


@dataclass(frozen=True)
class Adaptation:
    """Table 2: every pair of domains is one job, kept for itself."""

    pairs: list[Pair]
    how: adaptation_table.Settings
    missing: str = ""
    """Why there are no pairs."""

    @classmethod
    def of(cls, size: Size, data: Path) -> Adaptation:
        how = adaptation_table.Settings(seeds=size.adaptation_seeds, bits=size.adaptation_bits)
        try:
            return cls(adaptation_table.known_pairs(size.sets, data, size.rows), how)
        except InputError as error:
            return cls([], how, str(error))

    def settings(self, pair: Pair) -> dict[str, Any]:
        entries = [int(rows.shape[0]) for rows in (pair.source.rows, pair.target.rows)]
        total = float(pair.source.rows.sum() + pair.target.rows.sum())  # other data under the same name
        return {"pair": pair.name, "rows": entries, "sum": total, "ranks": adaptation_table.RANKS, **self.how.of(pair)}

    def weight(self, pair: Pair) -> float:
        return 12.0 + 9.4e-6 * len(pair.source.labels) * len(pair.target.labels) * self.how.of(pair)["seeds"]

    def left(self, store: Store) -> list[Pair]:
        return [pair for pair in self.pairs if store.get(self.settings(pair)) is None]

    def run(self, store: Store, watch: Watch) -> None:
        for pair in self.left(store):
            with tempfile.TemporaryDirectory() as folder:

                def step(column: str, share: float, pair: Pair = pair) -> None:
                    watch.done(f"table2: {pair.name} {column}", share * self.weight(pair))

                store.put(self.settings(pair), adaptation_table.measure(pair, self.how, Path(folder), step))

    def found(self, store: Store) -> Found:
        """By pair, those that are finished."""
        known = {pair.name: store.get(self.settings(pair)) for pair in self.pairs}
        return {name: one for name, one in known.items() if one is not None}
