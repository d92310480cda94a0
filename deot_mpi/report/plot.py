"""The picture of a run: how the objective and the error went."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from deot_mpi.errors import InputError
from deot_mpi.result import EOTResult, GromovResult, Result, TracePoint
from deot_mpi.writing import write_whole

_FORMATS = (".png", ".svg", ".pdf")
_NEAR = 1e-2
"""Marginal error below which an objective says something about the problem."""
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Told apart by everybody, colour-blind or not (Okabe and Ito)."""


def check_plot(path: str | None) -> None:
    if path is None:
        return
    if Path(path).suffix.lower() not in _FORMATS:
        raise InputError(f"--plot {path}: pictures are {', '.join(_FORMATS)}.")
    if find_spec("matplotlib") is None:
        raise InputError("--plot needs the package matplotlib, which is not installed: pip install 'deot_mpi[plot]'.")


def draw_convergence(result: Result, path: str) -> None:
    """Two panels over the rounds: the objective (with the reference where there is one) and the L1 marginal error."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    name, central = _objective(result)
    for start, points in enumerate(_by_start(result)):
        first = points[0].round - 1 if start else 0  # several starts lie over each other
        own = [point for point in points if point.temperature == 1.0]  # on the way, it is that of a larger eps
        colour, label = _COLOURS[start % len(_COLOURS)], "this run" if start == 0 else None
        if len(getattr(result, "starts", ())) > 1:
            label = f"start {start + 1}"
        left.plot([p.round - first for p in own], [p.objective for p in own], color=colour, marker=".", label=label)
        right.semilogy(
            [p.round - first for p in points], [max(p.error, 1e-17) for p in points], color=colour, marker="."
        )
    if central is not None:
        left.axhline(central, color="black", linestyle=":", label="centralised (POT)")
    left.set(xlabel="round", ylabel=name)
    right.axhline(result.settings["tol"] or 1e-17, color="grey", linestyle=":", label="tol")
    right.set(xlabel="round", ylabel="L1 marginal error")
    near = [point.objective for point in result.trace if point.temperature == 1.0 and point.error < _NEAR]
    if len(near) > 1 and len(getattr(result, "starts", ())) > 0:  # the way there would hide where the starts end
        margin = 0.05 * (max(near) - min(near)) or 1.0
        left.set_ylim(min(near) - margin, max(near) + margin)
    for axes in (left, right):
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    agents = len(result.agents)
    figure.suptitle(
        f"{agents} agents, {result.settings['kernel']} kernel, {result.settings['solver']}, E {result.protocol.name}: "
        f"{result.status.text}",
        fontsize=10,
    )
    kind = Path(path).suffix[1:].lower()
    write_whole(Path(path), lambda file: figure.savefig(file, format=kind, dpi=150))


def _objective(result: Result) -> tuple[str, float | None]:
    """What the left panel shows, and POT's value of it."""
    if isinstance(result, GromovResult):
        central = None if result.reference is None else result.reference.centralised.dual_objective
        return "Gromov-Wasserstein dual objective (cost units)", central
    reference = result.reference if isinstance(result, EOTResult) else None
    central = None if reference is None else reference.centralised.dual_objective
    return "dual objective $\\tilde W_\\epsilon$ (cost units)", central


def _by_start(result: Result) -> list[list[TracePoint]]:
    starts = max((point.start for point in result.trace), default=-1) + 1
    return [[point for point in result.trace if point.start == start] for start in range(starts)]
