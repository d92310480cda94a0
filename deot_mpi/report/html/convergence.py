"""How the objective and the marginal error went: over rounds, bytes and seconds."""

from __future__ import annotations

from collections.abc import Callable

from deot_mpi.report.html.numbers import Facts, byte_unit, number, small
from deot_mpi.report.page import Curve, Level, Markup, Section, chart, figure, paragraph, section, side_by_side, span


def convergence(result: Facts) -> Section | None:
    runs = _by_start(result["trace"])
    if not runs:
        return None
    size, unit = byte_unit(max(point["bytes"] for run in runs for point in run))
    scales: list[tuple[str, Callable[[Facts], float]]] = [
        ("round", lambda point: float(point["round"])),
        (f"{unit} sent by all agents", lambda point: point["bytes"] / size),
        ("seconds", lambda point: float(point["seconds"])),
    ]
    panels = []
    for name, place in scales:
        panels.append(figure(_objective(result, runs, name, place)))
        panels.append(figure(_error(result, runs, name, place)))
    return section("Convergence", paragraph(_words(result, runs)), side_by_side(*panels))


def _by_start(trace: list[Facts]) -> list[list[Facts]]:
    """Each start's points, its rounds, bytes and seconds counted from its own beginning; trials of eps left out."""
    own = [point for point in trace if not point["trial"]]
    runs = []
    before = {"round": 0, "bytes": 0, "seconds": 0.0}
    for start in sorted({point["start"] for point in own}):
        points = [point for point in own if point["start"] == start]
        runs.append([{**point, **{key: point[key] - before[key] for key in before}} for point in points])
        before = {key: points[-1][key] for key in before}
    return runs


def _curves(runs: list[list[Facts]], key: str, place: Callable[[Facts], float], *, own_eps: bool) -> list[Curve]:
    curves = []
    for start, points in enumerate(runs):
        shown = [point for point in points if point["temperature"] == 1.0] if own_eps else points
        hints = [
            f"round {point['round']}: objective {number(point['objective'], 9)}, marginal error {small(point['error'])}"
            + ("" if point["temperature"] == 1.0 else f", at {point['temperature']:g} eps")
            for point in shown
        ]
        label = "this run" if len(runs) == 1 else f"start {start + 1}"
        across, up = [place(point) for point in shown], [point[key] for point in shown]
        curves.append(Curve(label, across, up, dash=start % 4, hints=hints))
    return curves


def _objective(result: Facts, runs: list[list[Facts]], name: str, place: Callable[[Facts], float]) -> Markup:
    central = (result.get("reference") or {}).get("centralised", {}).get("dual_objective")
    levels = [] if central is None else [Level(central, "centralised (POT)")]
    ends = [point["objective"] for run in runs for point in run[len(run) // 2 :] if point["temperature"] == 1.0]
    known = [value for value in ends if value is not None] + [level.value for level in levels]
    y_range = None
    if len(runs) > 1 and len(known) > 1:  # the way there would hide where the starts end
        y_range = span(known, False)
    curves = _curves(runs, "objective", place, own_eps=True)
    return chart(curves, name, "dual objective (cost units)", levels=levels, y_range=y_range)


def _error(result: Facts, runs: list[list[Facts]], name: str, place: Callable[[Facts], float]) -> Markup:
    settings = result["settings"]
    levels = [Level(settings["tol"], "tol")] if settings["tol"] and settings["stop"] == "marginal" else []
    return chart(_curves(runs, "error", place, own_eps=False), name, "L1 marginal error", levels=levels, log_y=True)


def _words(result: Facts, runs: list[list[Facts]]) -> str:
    text = "Left: the dual objective. Right: how far the plan is from its marginals (logarithmic)."
    if len(runs) > 1:
        text += (
            " Each start is counted from its own beginning; the range of the objective is that of their second halves."
        )
    if any(point["temperature"] != 1.0 for run in runs for point in run):
        text += " A small eps was approached from larger ones: the objective is shown from where eps is the run's own."
    return text + " Point at a mark for its numbers."
