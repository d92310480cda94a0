"""What was sent, held against the paper's formulas (in red there), in bytes: a number has 8, eight bits have one.

I and J source and target agents, N and M samples in all, T rounds, L neighbours, D columns, Q bits. For this program's
own solvers the same counting applies: ``kept`` moves every agent in every round, ``sinkhorn`` shows targets to sources
only, and sends M_j numbers down every edge and M_j back.
"""

from __future__ import annotations

from dataclasses import dataclass

from reproduction.findings import Findings
from reproduction.plan import COMMUNICATION_BITS, PAPER, RANKS, Place, runs

AGREES = 0.05
_NUMBER = 8


@dataclass(frozen=True)
class Row:
    run: str
    what: str
    formula: str
    expected: float
    measured: int

    @property
    def ratio(self) -> float:
        return self.measured / self.expected


def rows(findings: Findings, method: str) -> list[Row]:
    """Of every run of a method that is there: what it showed once, and its dual variables."""
    places = dict.fromkeys(run.place for run in runs(findings.size, ("communication",)) if run.place.method == method)
    return [row for place in places if findings.has(place) for row in _rows(findings, place)]


def _rows(findings: Findings, place: Place) -> list[Row]:
    found = findings.of(place)[0]
    sent, rounds = found["traffic"], found["rounds"]
    sources = targets = RANKS // 2
    samples, columns = findings.size.samples, int(place.panel.removeprefix("D = "))
    one_pass = place.curve.startswith("one pass")
    shown, rows_shown = ("IM", sources * samples) if one_pass else ("(IM + JN)", (sources + targets) * samples)
    known = []
    if sent["samples"]:
        known.append(("samples", f"{shown} D numbers", rows_shown * columns * _NUMBER, sent["samples"]))
    else:
        known.append(("sketches", f"{shown} Q bits", rows_shown * COMMUNICATION_BITS / 8, sent["sketch"]))
        known.append(("norms", f"{shown} numbers", rows_shown * _NUMBER, sent["norms"]))
    block = samples / sources + samples / targets
    if one_pass:
        duals = "2 T IM numbers", 2.0 * rounds * sources * samples
    elif place.method == PAPER:
        duals = "T L (N/I + M/J) numbers", rounds * float(place.neighbours or 0) * block
    else:
        duals = "T L (I M/J + J N/I) numbers", rounds * float(place.neighbours or 0) * sources * block
    known.append(("dual variables", duals[0], duals[1] * _NUMBER, sent["potentials"]))
    return [Row(place.curve, what, formula, expected, measured) for what, formula, expected, measured in known]


def finals(findings: Findings, method: str) -> list[Row]:
    """The final exchange, I J numbers in the paper; here the values are computed from the last potentials of all."""
    places = dict.fromkeys(run.place for run in runs(findings.size, ("communication",)) if run.place.method == method)
    return [
        Row(
            place.curve, "final objectives", "I J numbers", (RANKS // 2) ** 2 * _NUMBER,
            findings.of(place)[0]["traffic"]["objectives"],
        )
        for place in places
        if findings.has(place)
    ]  # fmt: skip


def sketch_bytes_by_dimension(findings: Findings) -> dict[int, int] | None:
    """Of the same run at two dimensions."""
    curves = {5: "Algorithm 3, sketch, L = 8", 50: "Algorithm 3, sketch, L = 8, D = 50"}
    places = {columns: Place("communication", f"D = {columns}", curve, PAPER, 8) for columns, curve in curves.items()}
    if not findings.has(*places.values()):
        return None
    return {columns: findings.of(place)[0]["traffic"]["sketch"] for columns, place in places.items()}
