"""The paper's table of domain adaptation: accuracies of eight methods, decentralised ones on 4 + 4 agents.

``make adaptation`` runs the digits and PACS; ``--domains Art=art.mat Clipart=clip.csv`` runs every pair of a user's own
files, such as features of Office-Home. No choice is made with target labels, unless a line says so.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from adaptation import agents, report
from adaptation.domains import DIGITS, PACS, SEEDS, VALIDATION_ROWS, Pair, digits, own, pacs
from processes import MARK, lines_of
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from deot_mpi.command.flag_values import number_list
from deot_mpi.data.scaling import SCALINGS
from deot_mpi.errors import InputError
from deot_mpi.options.checks import as_grid

SCRIPTS = Path(__file__).resolve().parent
DATA = SCRIPTS.parent.parent / "shared" / "data"
RANKS = 8
GRID = (0.05, 0.07, 0.1, 0.14, 0.2)
_PAIR_LIMIT = 3600.0
"""Seconds a pair's processes may take before they are ended."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sets", default=f"{DIGITS},{PACS}", help="which, by comma (default: digits,pacs)")
    parser.add_argument("--data", default=str(DATA), help="folder of these sets")
    parser.add_argument("--domains", nargs="+", metavar="NAME=FILE", help="own domains instead: .npz, .csv or .mat")
    parser.add_argument("--scaling", choices=SCALINGS, default="unit", help="of own domains' rows (default: unit)")
    parser.add_argument("--pairs", metavar="A->B", help="only these pairs, by comma: 'U->M,P->A' (default: all)")
    parser.add_argument("--seeds", type=int, help="times the rows are scattered (default: 3, PACS 2)")
    parser.add_argument("--bits", type=int, default=10_000, help="bits of DEOT_K^'s sketches (default: 10000)")
    parser.add_argument(
        "--grid", type=number_list, default=GRID, metavar="S,S,...",
        help=f"eps to choose from, as shares of the mean cost (default: {','.join(f'{share:g}' for share in GRID)})",
    )  # fmt: skip
    parser.add_argument("--validation-rows", type=int, help="rows that choose it (default: 2000, PACS 1000)")
    parser.add_argument(
        "--by-target-labels", action="store_true",
        help="also what the eps that is best by target labels would give, for all pairs\n"
        "(default: for those of which the paper has figures, chosen that way)",
    )  # fmt: skip
    parser.add_argument("--rows", type=int, help="only so many rows of each domain")
    parser.add_argument("--out", default="build/adaptation", metavar="DIR", help="where table, numbers and picture go")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        how = _settings(chosen)
        if chosen.domains:
            pairs = shortened(own(chosen.domains, chosen.scaling), chosen.rows)
        else:
            pairs = known_pairs(chosen.sets, Path(chosen.data), chosen.rows)
        if chosen.pairs is not None:
            pairs = named(pairs, chosen.pairs.split(","))
    except InputError as error:
        print(f"adaptation_table: error: {error}", file=sys.stderr)
        return 2
    out = Path(chosen.out)
    out.mkdir(parents=True, exist_ok=True)
    sys.stdout.reconfigure(line_buffering=True)  # also a log file shows how far it is
    console = Console(width=170 if not sys.stdout.isatty() else None)
    started = time.monotonic()
    found = _measure(pairs, how, console, out)
    report.show(console, found)
    (out / "adaptation.md").write_text(report.markdown(found))
    report.drawn(found).savefig(out / "adaptation.png", dpi=130)
    console.print(f"{time.monotonic() - started:.0f} s; written: {out}/adaptation.json, .md, .png")
    return 0


@dataclass(frozen=True)
class Settings:
    """What is asked of every pair; None: as its set has it."""

    seeds: int | None = None
    bits: int = 10_000
    grid: list[float] = field(default_factory=lambda: list(GRID))
    validation_rows: int | None = None
    by_target_labels: bool = False

    def of(self, pair: Pair) -> dict[str, Any]:
        """As the pair's processes take them."""
        return {
            "seeds": self.seeds or SEEDS[pair.set], "bits": self.bits, "grid": self.grid,
            "validation_rows": self.validation_rows or VALIDATION_ROWS[pair.set],
            "by_target_labels": self.by_target_labels or pair.name in report.PAPER,
        }  # fmt: skip


def _settings(chosen: argparse.Namespace) -> Settings:
    least = {"seeds": 1, "bits": 1, "rows": 2 * RANKS, "validation_rows": 2 * RANKS}
    for name, bound in least.items():
        given = getattr(chosen, name)
        if given is not None and given < bound:
            raise InputError(f"--{name.replace('_', '-')} is {given}; it must be {bound} or more.")
    grid = as_grid("--grid", chosen.grid, "shares of the mean cost: 0.05,0.1")
    return Settings(chosen.seeds, chosen.bits, list(grid), chosen.validation_rows, chosen.by_target_labels)


def known_pairs(sets: str, data: Path, rows: int | None = None) -> list[Pair]:
    """All pairs of the sets that are named, by comma."""
    loaders = {DIGITS: digits, PACS: pacs}
    unknown = [name for name in sets.split(",") if name not in loaders]
    if unknown:
        raise InputError(f"{', '.join(unknown)} is not a set; sets are {', '.join(loaders)}.")
    return shortened([pair for name in sets.split(",") for pair in loaders[name](data)], rows)


def named(pairs: list[Pair], names: list[str]) -> list[Pair]:
    known = {pair.name: pair for pair in pairs}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(f"{', '.join(unknown)} is not a pair; pairs are {', '.join(known)}.")
    return [known[name] for name in names]


def shortened(pairs: list[Pair], rows: int | None) -> list[Pair]:
    if rows is None:
        return pairs
    return [Pair(one.set, one.source.part(rows), one.target.part(rows)) for one in pairs]


def measure(pair: Pair, how: Settings, folder: Path, step: Callable[[str, float], None]) -> dict[str, Any]:
    """One pair, all columns; ``step`` is told which column is done, and what share of the pair's steps that was."""
    settings = how.of(pair)
    seeds = settings["seeds"]
    steps = seeds * (len(agents.COLUMNS) + 2) + 2
    steps += (len(agents.BY_TARGET_LABELS) + 1) * len(how.grid) if settings["by_target_labels"] else 0
    one: dict[str, Any] = {"set": pair.set, "columns": {}, "runs": [], "at_every_eps": {}, "distances": []}
    one["grid"] = settings["grid"]
    for line in _lines(pair.write(folder), settings):
        _note(one, line, seeds)
        step(line["column"], 1.0 / steps)
    return one


def _measure(pairs: list[Pair], how: Settings, console: Console, out: Path) -> report.Found:
    """All pairs, one after the other; what is known is on disk after each."""
    found: report.Found = {}
    # What a pair takes grows with its entries; the estimate of the time left needs that.
    work = {pair.name: float(len(pair.source.labels)) * len(pair.target.labels) for pair in pairs}
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("left:"), TimeRemainingColumn(),
        console=console, speed_estimate_period=3600.0,
    )  # fmt: skip
    with bar, tempfile.TemporaryDirectory() as folder:
        task = bar.add_task("", total=sum(work.values()))

        def step(name: str, column: str, share: float) -> None:
            bar.update(task, description=f"{name} {column}", advance=work[name] * share)

        for pair in pairs:
            found[pair.name] = measure(pair, how, Path(folder), partial(step, pair.name))
            if not console.is_terminal:
                means = (f"{column} {report.mean(found, pair.name, column):.3f}" for column in report.COLUMNS)
                console.print(f"{pair.name}: {', '.join(means)}", highlight=False)
            (out / "adaptation.json").write_text(json.dumps(found, indent=2) + "\n")
    return found


def _lines(folder: Path, settings: dict[str, Any]) -> Any:
    """What the pair's processes announce: the agents first, since POT takes over the eps they choose."""
    # POT imports every array library it finds, and takes the longer to start.
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    environment |= {f"POT_BACKEND_DISABLE_{name}": "1" for name in ("PYTORCH", "JAX", "TENSORFLOW", "CUPY")}
    mpirun = ["mpirun", "-n", str(RANKS), sys.executable, "-m", "mpi4py", "-m", "adaptation.agents"]
    central = [sys.executable, "-m", "adaptation.central"]
    for command in ([*start, str(folder), json.dumps(settings)] for start in (mpirun, central)):
        for line in lines_of(command, environment, _PAIR_LIMIT):
            if line.startswith(MARK):
                yield json.loads(line[len(MARK) :])


def _note(one: dict[str, Any], line: dict[str, Any], seeds: int) -> None:
    column = line["column"]
    one["runs"].append(line)
    if column.endswith(" at every eps"):
        one["at_every_eps"].setdefault(column.removesuffix(" at every eps"), []).append(line["accuracy"])
        return
    # What no seed touches counts once for each, so that columns are lists of the same length.
    one["columns"].setdefault(column, []).extend([line["accuracy"]] * (1 if "seed" in line else seeds))
    if "distance" in line:
        one["distances"].append(line["distance"])


if __name__ == "__main__":
    sys.exit(main())
