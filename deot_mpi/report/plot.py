"""The picture of a run: how the objective and the error went."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from deot_mpi.errors import InputError
from deot_mpi.report.files import write_whole
from deot_mpi.result import EOTResult

_FORMATS = (".png", ".svg", ".pdf")


def check_plot(path: str | None) -> None:
    if path is None:
        return
    if Path(path).suffix.lower() not in _FORMATS:
        raise InputError(f"--plot {path}: pictures are {', '.join(_FORMATS)}.")
    if find_spec("matplotlib") is None:
        raise InputError("--plot needs the package matplotlib, which is not installed: pip install 'deot_mpi[plot]'.")


def draw_convergence(result: EOTResult, path: str) -> None:
    """Two panels over the rounds: W~ (with the reference where there is one) and the L1 marginal error."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    rounds = [point.round for point in result.trace]
    own = [point for point in result.trace if point.temperature == 1.0]  # on the way, W~ is that of a larger eps
    left.plot([p.round for p in own], [p.objective for p in own], color="#0072B2", marker=".", label="this run")
    if result.reference is not None:
        central = result.reference.centralised.dual_objective
        left.axhline(central, color="black", linestyle=":", label="centralised (POT)")
    left.set(xlabel="round", ylabel="dual objective $\\tilde W_\\epsilon$ (cost units)")
    left.legend(frameon=False)
    right.semilogy(rounds, [max(point.error, 1e-17) for point in result.trace], color="#D55E00", marker=".")
    right.axhline(result.settings["tol"] or 1e-17, color="grey", linestyle=":", label="tol")
    right.set(xlabel="round", ylabel="L1 marginal error")
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    agents = len(result.agents)
    figure.suptitle(
        f"{agents} agents, {result.settings['kernel']} kernel, {result.settings['solver']}, E {result.protocol.name}: "
        f"{result.status.text}",
        fontsize=10,
    )
    kind = Path(path).suffix[1:].lower()
    write_whole(Path(path), lambda file: figure.savefig(file, format=kind, dpi=150))
