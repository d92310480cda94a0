"""The figures, drawn once for the page and as pictures: colours that all can tell apart, dashes for methods."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping

import privacy_figure
from adaptation import report
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from reproduction.findings import Findings
from reproduction.plan import (
    DIMENSIONS,
    KERNELS,
    METHODS,
    OWN,
    PANELS,
    PAPER,
    PROTOCOLS,
    SAMPLED,
    Place,
    gromov_place,
    runs,
)

_COLOURS = ("#D55E00", "#0072B2", "#009E73")
_DASHES = {PAPER: "-", OWN: (0, (4, 2))}


def _blank(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _plot(axes: Axes, findings: Findings, place: Place, colour: str, last: int) -> None:
    curve = findings.curve(place, last)
    if not curve.rounds.size:
        return
    axes.plot(curve.rounds, curve.mean, color=colour, linestyle=_DASHES[place.method], linewidth=1.4)
    axes.fill_between(
        curve.rounds, curve.mean - curve.spread, curve.mean + curve.spread, color=colour, alpha=0.18, linewidth=0
    )


def _finish(figure: Figure, curves: Mapping[str, object], truth: str) -> None:
    """One legend below all panels: colours are curves, dashes are methods."""
    handles = [Line2D([], [], color=colour, label=name) for name, colour in zip(curves, _COLOURS, strict=True)]
    handles += [
        Line2D([], [], color="#444444", linestyle=_DASHES[method], label=name) for method, name in METHODS.items()
    ]
    handles.append(Line2D([], [], color="black", linestyle=":", label=truth))
    figure.legend(handles=handles, ncols=len(handles), loc="outside lower center", frameon=False, fontsize=9)


def _limits(findings: Findings, places: Iterable[Place]) -> tuple[float, float]:
    """Around where curves end, with room for the way there: all panels of a figure have the same."""
    ends = [1.0 + error for place in places for error in findings.finals(place)] or [1.0]
    low, high = min(*ends, 1.0), max(*ends, 1.0)
    room = max(0.3 * (high - low), 0.01)
    return low - 1.5 * room, high + 0.5 * room


def _panel(axes: Axes, title: str, last: int, limits: tuple[float, float]) -> None:
    axes.axhline(1.0, color="black", linestyle=":", linewidth=1.0)
    axes.set_title(title, fontsize=9.5)
    axes.set(xlim=(0, last), ylim=limits)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _places(findings: Findings, name: str) -> set[Place]:
    return {run.place for run in runs(findings.size, (name,)) if run.place.figure == name}


def figure_3(findings: Findings) -> Figure:
    figure, last = _blank(10.0, 8.2), findings.size.rounds
    limits = _limits(findings, _places(findings, "fig3"))
    panels = figure.subplots(len(PANELS), len(SAMPLED), sharex=True, sharey=True)
    for line, panel in zip(panels, PANELS, strict=True):
        for axes, neighbours in zip(line, SAMPLED, strict=True):
            for colour, curve in zip(_COLOURS, KERNELS, strict=True):
                for method in METHODS:
                    _plot(axes, findings, Place("fig3", panel, curve, method, neighbours), colour, last)
            _panel(axes, f"{panel}, L = {neighbours}", last, limits)
        line[0].set_ylabel("W~ over Sinkhorn's W", fontsize=9)
    for axes in panels[-1]:
        axes.set_xlabel("round", fontsize=9)
    _finish(figure, KERNELS, "Sinkhorn, centralised")
    return figure


def figure_4(findings: Findings) -> Figure:
    found = {
        f"D = {dimension}, {way}": findings.of(Place("fig4", f"D = {dimension}", "", method))[0]
        for dimension in DIMENSIONS
        for way, method in zip(privacy_figure.WAYS, (PAPER, OWN), strict=True)
    }
    return privacy_figure.drawn(found, list(DIMENSIONS))


def figure_5(findings: Findings) -> Figure:
    figure, last = _blank(10.0, 3.6), findings.size.rounds
    limits = _limits(findings, _places(findings, "fig5"))
    for axes, panel in zip(figure.subplots(1, len(PANELS), sharey=True), PANELS, strict=True):
        for colour, curve in zip(_COLOURS, PROTOCOLS, strict=True):
            for method in METHODS:
                _plot(axes, findings, Place("fig5", panel, curve, method), colour, last)
        _panel(axes, panel, last, limits)
        axes.set_xlabel("round", fontsize=9)
    figure.axes[0].set_ylabel("W~ over Sinkhorn's W", fontsize=9)
    _finish(figure, PROTOCOLS, "Sinkhorn, centralised")
    return figure


def figure_6(findings: Findings) -> Figure:
    places = _places(findings, "fig6")
    figure, limits, last = _blank(10.0, 3.6), _limits(findings, places), findings.longest(places)
    for axes, neighbours in zip(figure.subplots(1, len(SAMPLED), sharey=True), SAMPLED, strict=True):
        for colour, curve in zip(_COLOURS, KERNELS, strict=True):
            for method in METHODS:
                _plot(axes, findings, gromov_place(curve, method, neighbours), colour, last)
        _panel(axes, f"GW, L = {neighbours}", last, limits)
        axes.set(xscale="log", xlim=(5, last))  # runs to convergence beside the paper's few rounds
        axes.set_xlabel("round", fontsize=9)
    figure.axes[0].set_ylabel("GW~ over POT's GW", fontsize=9)
    _finish(figure, KERNELS, "POT, centralised")
    return figure


def table_2(findings: Findings) -> Figure:
    return report.drawn(findings.adaptation)


DRAWN: dict[str, Callable[[Findings], Figure]] = {
    "fig3": figure_3, "fig4": figure_4, "fig5": figure_5, "fig6": figure_6, "table2": table_2,
}  # fmt: skip


def rendered(figure: Figure, kind: str) -> bytes:
    """The same bytes for the same numbers."""
    file = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    figure.savefig(file, format=kind, dpi=100, metadata=metadata)
    return file.getvalue()
