"""Whether what the paper says of its experiments held here: one function for each rule of ``rules``.

COMPARABLE and TOLERABLE stand for the paper's words; it calls an error of 0.05 of W "significantly small". Each
function gives None where the method was not measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, pstdev

from adaptation.report import COLUMNS, average
from privacy_figure import PAPERS_ATTACK

from reproduction import traffic
from reproduction.findings import Findings
from reproduction.plan import (
    DIMENSIONS,
    GAUSSIAN,
    GROMOV,
    MIXTURE,
    OWN,
    PANELS,
    PAPER,
    SAMPLED,
    SEPARATED,
    Place,
    gromov_place,
)

COMPARABLE, TOLERABLE = 0.02, 0.05
VISIBLE, WORSE = 0.001, 2.0
RECOVERED = 0.5
"""Of a row's length: the paper's mark for a recovery that fails."""
RATIO = 15.0
"""Q/D that the paper recommends."""


@dataclass(frozen=True)
class Verdict:
    held: bool
    measured: str


def size_of(errors: list[float]) -> float:
    """Mean |W~/W - 1| over seeds."""
    return fmean(abs(error) for error in errors)


def _errors(findings: Findings, places: dict[str, Place]) -> dict[str, list[float]] | None:
    known = {name: findings.finals(place) for name, place in places.items()}
    return known if all(known.values()) else None


def _listed(errors: dict[str, list[float]]) -> str:
    return "; ".join(f"{name}: {size_of(values):.2g}" for name, values in errors.items())


def _by_neighbours(figure: str, panel: str, curve: str, method: str) -> dict[str, Place]:
    if figure == "fig6" and method == OWN:
        return {"all neighbours": gromov_place(curve, OWN)}
    return {f"L = {number}": Place(figure, panel, curve, method, number) for number in SAMPLED}


def _robust(findings: Findings, figure: str, panels: tuple[str, ...], method: str) -> Verdict | None:
    held, said = True, []
    for panel in panels:
        errors = _errors(findings, _by_neighbours(figure, panel, "raw", method))
        if errors is None:
            return None
        sizes = [size_of(values) for values in errors.values()]
        held &= all(abs(one - sizes[-1]) <= COMPARABLE for one in sizes[:-1])
        said.append(f"{panel}: {_listed(errors)}")
    return Verdict(held, ". ".join(said))


def robust_when_iid(findings: Findings, method: str) -> Verdict | None:
    return _robust(findings, "fig3", (GAUSSIAN, MIXTURE), method)


def biased_when_not(findings: Findings, method: str) -> Verdict | None:
    errors = _errors(findings, {
        "L = 1, non-i.i.d.": Place("fig3", SEPARATED, "raw", method, 1),
        "L = 8, non-i.i.d.": Place("fig3", SEPARATED, "raw", method, 8),
        "L = 1, i.i.d.": Place("fig3", MIXTURE, "raw", method, 1),
    })  # fmt: skip
    if errors is None:
        return None
    first, *others = (size_of(values) for values in errors.values())
    return Verdict(first > VISIBLE and all(first > WORSE * one for one in others), _listed(errors))


def bits_tolerable(findings: Findings, method: str) -> Verdict | None:
    errors = _errors(findings, {panel: Place("fig3", panel, "Q = 100", method, 8) for panel in PANELS})
    if errors is None:
        return None
    held = all(size_of(values) <= TOLERABLE and pstdev(values) <= TOLERABLE for values in errors.values())
    said = "; ".join(
        f"{panel}: {fmean(values):+.3f}, deviation {pstdev(values):.3f}" for panel, values in errors.items()
    )
    return Verdict(held, said)


def more_bits_better(findings: Findings, method: str) -> Verdict | None:
    return _more_bits(findings, "fig3", tuple(PANELS), method)


def _more_bits(findings: Findings, figure: str, panels: tuple[str, ...], method: str) -> Verdict | None:
    held, said = True, []
    for panel in panels:
        curves = ("Q = 10", "Q = 100")
        errors = _errors(findings, {one: [*_by_neighbours(figure, panel, one, method).values()][-1] for one in curves})
        if errors is None:
            return None
        held &= size_of(errors["Q = 10"]) > size_of(errors["Q = 100"])
        said.append(f"{panel}: {_listed(errors)}")
    return Verdict(held, ". ".join(said))


def _against_ideal(findings: Findings, curve: str, method: str) -> dict[str, tuple[float, float]] | None:
    """By panel: how much larger the error is than with the ideal protocol, and the deviation over seeds."""
    known = {}
    for panel in PANELS:
        errors = _errors(findings, {name: Place("fig5", panel, name, method) for name in ("ideal", curve)})
        if errors is None:
            return None
        known[panel] = size_of(errors[curve]) - size_of(errors["ideal"]), pstdev(errors[curve])
    return known


def _more(known: dict[str, tuple[float, float]]) -> str:
    return "; ".join(
        f"{panel}: error {more:+.3f} more, deviation {spread:.3f}" for panel, (more, spread) in known.items()
    )


def undirected_comparable(findings: Findings, method: str) -> Verdict | None:
    known = _against_ideal(findings, "sparse undirected", method)
    return None if known is None else Verdict(all(more <= COMPARABLE for more, _ in known.values()), _more(known))


def directed_degrades(findings: Findings, method: str) -> Verdict | None:
    known = _against_ideal(findings, "sparse directed", method)
    if known is None:
        return None
    return Verdict(all(more > COMPARABLE or spread > COMPARABLE for more, spread in known.values()), _more(known))


def _frontiers(findings: Findings, method: str) -> dict[str, list[dict[str, object]]] | None:
    places = {f"D = {dimension}": Place("fig4", f"D = {dimension}", "", method) for dimension in DIMENSIONS}
    if not findings.has(*places.values()):
        return None
    return {name: findings.of(place)[0]["frontier"] for name, place in places.items()}


def _recovery(point: dict[str, object], attack: str) -> float:
    errors = point["recovery_errors"]
    assert isinstance(errors, dict)
    return float(min(errors.values()) if attack == "strongest" else errors[attack])


def _private(findings: Findings, method: str, attack: str) -> Verdict | None:
    known = _frontiers(findings, method)
    if known is None:
        return None
    held, said = True, []
    for name, points in known.items():
        point = next(one for one in points if abs(float(str(one["ratio"])) - RATIO) < 0.5)
        error, left = float(str(point["distance_error"])), _recovery(point, attack)
        held &= error <= TOLERABLE and left > RECOVERED
        said.append(f"{name}: error of W~ {error:.3f}, recovery error {left:.2f}")
    return Verdict(held, "; ".join(said))


def private_by_papers_attack(findings: Findings, method: str) -> Verdict | None:
    return _private(findings, method, PAPERS_ATTACK)


def private_by_strongest(findings: Findings, method: str) -> Verdict | None:
    return _private(findings, method, "strongest")


def both_fall(findings: Findings, method: str) -> Verdict | None:
    known = _frontiers(findings, method)
    if known is None:
        return None
    held, said = True, []
    for name, points in known.items():
        ends = [(float(str(one["distance_error"])), _recovery(one, PAPERS_ATTACK)) for one in (points[0], points[-1])]
        held &= ends[1][0] < ends[0][0] and ends[1][1] < ends[0][1]
        said.append(
            f"{name}: error of W~ {ends[0][0]:.2g} to {ends[1][0]:.2g}, recovery {ends[0][1]:.2f} to {ends[1][1]:.2f}"
        )
    return Verdict(held, "; ".join(said))


def gromov_near(findings: Findings, method: str) -> Verdict | None:
    errors = _errors(findings, _by_neighbours("fig6", GROMOV, "raw", method))
    return None if errors is None else Verdict(all(size_of(v) <= TOLERABLE for v in errors.values()), _listed(errors))


def gromov_robust(findings: Findings, method: str) -> Verdict | None:
    return None if method == OWN else _robust(findings, "fig6", (GROMOV,), method)


def gromov_more_bits(findings: Findings, method: str) -> Verdict | None:
    return _more_bits(findings, "fig6", (GROMOV,), method)


def _accuracies(findings: Findings) -> dict[str, float] | None:
    found = findings.adaptation
    return {column: average(found, None, column) for column in COLUMNS} if found else None


def _means(known: dict[str, float], *columns: str) -> str:
    return ", ".join(f"{column} {known[column]:.3f}" for column in columns)


def transport_helps(findings: Findings, method: str) -> Verdict | None:
    known = _accuracies(findings)
    if known is None or method == OWN:
        return None
    held = all(known[column] > known["1NN"] for column in COLUMNS[1:4])
    return Verdict(held, _means(known, *COLUMNS[:4]))


def adaptation_wins(findings: Findings, method: str) -> Verdict | None:
    known = _accuracies(findings)
    if known is None:
        return None
    ours = "DEOT_K" if method == PAPER else "class-regularised"
    return Verdict(all(known[ours] > known[column] for column in COLUMNS[:4]), _means(known, ours, *COLUMNS[:4]))


def adaptation_tolerable(findings: Findings, method: str) -> Verdict | None:
    known = _accuracies(findings)
    if known is None or method == OWN:
        return None
    return Verdict(known["DEOT_K"] - known["DEOT_K^"] <= TOLERABLE, _means(known, "DEOT_K", "DEOT_K^"))


def formulas_count(findings: Findings, method: str) -> Verdict | None:
    rows = traffic.rows(findings, method)
    if not rows:
        return None
    worst = max(rows, key=lambda row: abs(row.ratio - 1.0))
    said = f"{len(rows)} numbers; farthest: {worst.run}, {worst.what}: {worst.ratio:.3f} times the formula"
    return Verdict(abs(worst.ratio - 1.0) <= traffic.AGREES, said)


def final_counts(findings: Findings, method: str) -> Verdict | None:
    rows = traffic.finals(findings, method)
    if not rows:
        return None
    said = "; ".join(f"{row.run}: {row.measured:,} bytes, formula {row.expected:,.0f}" for row in rows[:2])
    return Verdict(all(row.ratio <= 1.0 + traffic.AGREES for row in rows), said)


def independent_of_columns(findings: Findings, method: str) -> Verdict | None:
    known = traffic.sketch_bytes_by_dimension(findings)
    if known is None or method == OWN:
        return None
    return Verdict(len(set(known.values())) == 1, "; ".join(f"D = {d}: {size:,} bytes" for d, size in known.items()))
