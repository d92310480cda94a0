"""What a person sees of an audit: the attacks, the frontier, the verdict; on the screen and as a picture."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from deot_mpi.privacy.findings import AuditResult, FrontierPoint
from deot_mpi.privacy.guarantee import Guarantee
from deot_mpi.report.progress import WIDTH, terminal_behind_launcher
from deot_mpi.writing import write_whole

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = {0: "o", 1: "s", 2: "^", 3: "D", 4: "v", 5: "P"}


def print_audit(result: AuditResult) -> None:
    console = Console(force_terminal=terminal_behind_launcher(1), width=WIDTH, highlight=False, markup=False)
    console.print(_attacks_table(result))
    console.print(_frontier_table(result))
    if result.guarantee is not None:
        console.print(guarantee_words(result.guarantee))
    for note in result.notes:
        console.print(f"- {note}")
    console.print(f"Verdict: {result.verdict}")


def guarantee_words(known: Guarantee) -> str:
    """The stated epsilon, and that it is of bits only."""
    composed = (
        "" if known.per_sample_delta is None else f", {known.per_sample_delta:.4g} but for a chance of {known.delta:g}"
    )
    joined = (
        f" Every edge has bits of its own: {known.answers} neighbours that put them together have "
        f"{known.together:.4g}"
        + ("" if known.together_delta is None else f" ({known.together_delta:.4g} but for that chance)")
        + "."
        if known.answers > 1
        else ""
    )
    return (
        f"Guarantee (local differential privacy, bits only, not norms): epsilon {known.per_bit:.3g} for a bit, "
        f"{known.per_sample:.4g} for a sample's bits together{composed}.{joined} Above 10 or so it promises little."
    )


def _attacks_table(result: AuditResult) -> Table:
    ratio = result.bits / result.dimension
    table = Table(title=f"Attacks at Q = {result.bits} (Q/D = {ratio:.3g})", title_justify="left")
    for column in ("attack", "10 %", "median error", "90 %", "worst agent", "right"):
        table.add_column(column, justify="left" if column == "attack" else "right")
    for one in result.attacks:
        cells = ["", "", ""] if one.quantiles is None else [f"{value:.3f}" for value in one.quantiles]
        worst = one.worst_score if one.quantiles is None else one.worst_agent
        table.add_row(
            one.name, *cells, "" if worst is None else f"{worst:.3f}", "" if one.score is None else f"{one.score:.1%}"
        )
    table.caption = "errors |y^ - y|/|y|: 0 is recovery, 1 no better than the origin; medians over agents"
    return table


def _frontier_table(result: AuditResult) -> Table:
    table = Table(title="Frontier: what protects, and what it costs", title_justify="left")
    names = list(result.frontier[0].recovery_errors)
    for column in ("Q", "Q/D", "flip", *names, "error of W~"):
        table.add_column(column, justify="right")
    for point in result.frontier:
        error = "not known" if point.distance_error is None else f"{point.distance_error:.4f}"
        table.add_row(
            str(point.bits), f"{point.ratio:g}", f"{point.flip:g}",
            *(f"{point.recovery_errors[name]:.3f}" for name in names), error,
        )  # fmt: skip
    return table


def draw_frontier(result: AuditResult, path: str) -> None:
    """Error of W~ against recovery error (the paper's Fig. 4), or recovery error against Q/D where W is not known."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    measured = result.distance_error is not None
    rates = sorted({point.flip for point in result.frontier})
    for place, name in enumerate(result.frontier[0].recovery_errors):
        for number, rate in enumerate(rates):
            points = [point for point in result.frontier if point.flip == rate]
            errors = [point.recovery_errors[name] for point in points]
            across, up = (errors, [_known(point) for point in points]) if measured else (_ratios(points), errors)
            label = name + (f", flip {rate:g}" if rate else "")
            axes.plot(
                across, up, color=_COLOURS[place % len(_COLOURS)], marker=_MARKERS[number % len(_MARKERS)],
                linestyle=("-", "--", ":", "-.")[number % 4], markersize=4, linewidth=1, label=label,
            )  # fmt: skip
    if measured:
        axes.axvline(0.5, color="grey", linewidth=0.8)
        axes.set(xlabel="median recovery error (right: protected)", ylabel="relative error of W~", yscale="log")
    else:
        axes.axhline(0.5, color="grey", linewidth=0.8)
        axes.set(xlabel="Q/D", ylabel="median recovery error (up: protected)", xscale="log")
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=7)
    write_whole(Path(path), lambda file: figure.savefig(file, format=Path(path).suffix[1:].lower(), dpi=130))


def _known(point: FrontierPoint) -> float:
    return float("nan") if point.distance_error is None else point.distance_error


def _ratios(points: list[FrontierPoint]) -> list[float]:
    return [point.ratio for point in points]
