"""Stored runs as what figures and claims need: curves relative to the centralised value, and where they end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from adaptation.report import Found
from numpy.typing import NDArray

from reproduction.plan import FIGURES, OWN, Place, Run, Size, gromov_place, runs, sinkhorn_place
from reproduction.store import Store

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """Mean over seeds, and its band of one standard deviation to each side."""

    rounds: Floats
    mean: Floats
    spread: Floats


class Findings:
    """What is known: of each place, by seed, what was found."""

    def __init__(self, size: Size, known: Iterable[tuple[Run, dict[str, Any]]], adaptation: Found) -> None:
        self.size, self.adaptation = size, adaptation
        self._found: dict[Place, dict[int, dict[str, Any]]] = {}
        self.examples: dict[str, Run] = {}
        """By figure, the first run of it."""
        for run, found in known:
            self._found.setdefault(run.place, {})[run.seed] = found
            self.examples.setdefault(run.place.figure, run)

    @classmethod
    def stored(cls, size: Size, store: Store, adaptation: Found) -> Findings:
        """All that is finished, whether it was asked for this time or before."""
        looked = ((run, store.get(run.settings)) for run in runs(size, FIGURES))
        return cls(size, ((run, found) for run, found in looked if found is not None), adaptation)

    def has(self, *places: Place) -> bool:
        return all(place in self._found for place in places)

    def complete(self, figure: str) -> bool:
        """Whether there is something of every curve, of table 2 of any pair."""
        if figure == "table2":
            return bool(self.adaptation)
        wanted = {run.place for run in runs(self.size, (figure,))}
        return bool(wanted) and self.has(*wanted)

    def finished(self, figure: str) -> tuple[int, int]:
        """Runs of a figure that are there, and all."""
        wanted = [run for run in runs(self.size, (figure,)) if run.place.figure == figure]
        return sum(run.seed in self.of(run.place) for run in wanted), len(wanted)

    def of(self, place: Place) -> dict[int, dict[str, Any]]:
        return self._found.get(place, {})

    def _truth(self, place: Place, seed: int) -> float | None:
        """The dual objective that POT has at the optimum, on the pooled samples of this seed."""
        where = gromov_place("POT", OWN) if place.figure == "fig6" else sinkhorn_place(place.panel)
        found = self.of(where).get(seed)
        if found is None or found.get("reference") is None:
            return None
        return float(found["reference"]["centralised"]["dual_objective"])

    def _relative(self, place: Place) -> list[tuple[dict[str, Any], float]]:
        known = ((found, self._truth(place, seed)) for seed, found in sorted(self.of(place).items()))
        return [(found, truth) for found, truth in known if truth is not None]

    def finals(self, place: Place) -> list[float]:
        """W~ / W - 1 at the end of the run, seed by seed."""
        return [found["dual_objective"] / truth - 1.0 for found, truth in self._relative(place)]

    def longest(self, places: Iterable[Place]) -> int:
        """The last round of any curve."""
        ends = [trace[-1]["round"] for place in places for found, _ in self._relative(place)
                if (trace := _best_start(found))]  # fmt: skip
        return max(ends, default=1)

    def curve(self, place: Place, last: int) -> Curve:
        """W~ / W over the rounds; a run that converged stays where it ended."""
        traces = [(_best_start(found), truth) for found, truth in self._relative(place)]
        traces = [(trace, truth) for trace, truth in traces if trace]
        if not traces:
            return Curve(np.empty(0), np.empty(0), np.empty(0))
        first = max(trace[0]["round"] for trace, _ in traces)
        rounds = np.unique([point["round"] for trace, _ in traces for point in trace] + [last])
        rounds = rounds[(rounds >= first) & (rounds <= last)]
        rows = []
        for trace, truth in traces:
            at = np.array([point["round"] for point in trace])
            value = np.array([np.nan if point["objective"] is None else point["objective"] for point in trace])
            rows.append(value[np.searchsorted(at, rounds, side="right") - 1] / truth)
        values = np.array(rows)
        return Curve(rounds, values.mean(axis=0), values.std(axis=0))


def _best_start(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The trace; of several starts, that of the best one, counted from its own first round."""
    trace: list[dict[str, Any]] = found["trace"]
    starts = found.get("starts")
    if not starts or len(starts) == 1:
        return trace
    best = min(range(len(starts)), key=lambda number: abs(starts[number]["value"] - found["regularised_cost"]))
    before = sum(one["rounds"] for one in starts[:best])
    return [{**point, "round": point["round"] - before} for point in trace if point["start"] == best]
