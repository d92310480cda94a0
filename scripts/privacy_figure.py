"""The paper's Fig. 4: the error of W~ against how well rows are recovered, over Q/D, at D = 5 and 50.

``make privacy`` runs audits of 16 agents on Gaussian samples, once with the paper's estimator (and neither centring,
orthogonal projections nor correction), once as this program does it, and shows the paper's attack beside the strongest.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from processes import lines_of
from rich.console import Console
from rich.table import Table

from deot_mpi.options import AuditOptions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPERS_ATTACK = "least squares (the paper's)"
PAPERS = ["--estimator", "paper", "--no-centre", "--no-orthogonal", "--no-correction"]
WAYS = {"the paper's sketches": PAPERS, "this program's": []}
_LIMIT = 1800.0


def arguments(
    dimension: int, ways: list[str], samples: int, ratios: str, trials: int, victims: int = AuditOptions.victims
) -> list[str]:
    """Of the program, for the audit that gives one way's curve."""
    return [
        "audit", "--dim", str(dimension), "--samples", str(samples), "--ratios", ratios, "--flips", "0", "--reference",
        "--trials", str(trials), "--bits", str(15 * dimension), "--victims", str(victims), *ways,
    ]  # fmt: skip


def audit(dimension: int, ways: list[str], chosen: argparse.Namespace, path: Path) -> dict[str, Any]:
    asked = arguments(dimension, ways, chosen.samples, chosen.ratios, chosen.trials)
    program = ["mpirun", "-n", "16", sys.executable, "-m", "deot_mpi.run"]
    command = [*program, *asked, "--json", str(path), "--progress", "none"]
    for _ in lines_of(command, dict(os.environ), _LIMIT):
        pass
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def drawn(found: dict[str, dict[str, Any]], dimensions: list[int]) -> Figure:
    """From the audits, by dimension and way."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(dimensions), squeeze=False)[0]
    for axes, dimension in zip(panels, dimensions, strict=True):
        for colour, way in zip(("#D55E00", "#0072B2"), WAYS, strict=True):
            points = found[f"D = {dimension}, {way}"]["frontier"]
            for style, attack in (("-", PAPERS_ATTACK), ("--", "strongest")):
                errors = [
                    one["strongest"] if attack == "strongest" else one["recovery_errors"][attack] for one in points
                ]
                axes.plot(
                    errors, [one["distance_error"] for one in points], linestyle=style, marker="o", markersize=3,
                    color=colour, label=f"{way}, {attack}",
                )  # fmt: skip
        axes.axvline(0.5, color="grey", linewidth=0.8)
        axes.set(xlabel="median recovery error", ylabel="relative error of W~", yscale="log", title=f"D = {dimension}")
    figure.legend(
        *panels[-1].get_legend_handles_labels(), fontsize=8, frameon=False, loc="outside lower center", ncols=2
    )
    return figure


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dims", default="5,50")
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--ratios", default="2,5,10,15,30,100")
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--out", default="build/privacy", metavar="DIR")
    chosen = parser.parse_args()
    out, console, found = Path(chosen.out), Console(width=120 if not sys.stdout.isatty() else None), {}
    out.mkdir(parents=True, exist_ok=True)
    dimensions = [int(number) for number in chosen.dims.split(",")]
    table = Table(title="Error of W~ and median recovery error", title_justify="left")
    for column in ("", "Q/D", "error of W~", "the paper's attack", "half-spaces", "with similar rows"):
        table.add_column(column, justify="right")
    with tempfile.TemporaryDirectory() as folder:
        for dimension in dimensions:
            for way, options in WAYS.items():
                name = f"D = {dimension}, {way}"
                with console.status(name):
                    found[name] = audit(dimension, options, chosen, Path(folder) / "audit.json")
                for one in found[name]["frontier"]:
                    errors = list(one["recovery_errors"].values())
                    table.add_row(
                        name, f"{one['ratio']:g}", f"{one['distance_error']:.4f}", *(f"{error:.3f}" for error in errors)
                    )
                (out / "privacy.json").write_text(json.dumps(found, indent=2) + "\n")
    console.print(table)
    drawn(found, dimensions).savefig(out / "privacy.png", dpi=130)
    console.print(f"written: {out}/privacy.json, {out}/privacy.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
