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
from pathlib import Path
from typing import Any

from adaptation import agents, report
from adaptation.domains import DIGITS, PACS, SEEDS, VALIDATION_ROWS, Pair, digits, own, pacs
from processes import MARK, lines_of
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from deot_mpi.data.scaling import SCALINGS
from deot_mpi.errors import InputError

SCRIPTS = Path(__file__).resolve().parent
RANKS = 8
_PAIR_LIMIT = 3600.0
"""Seconds a pair's processes may take before they are ended."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sets", default=f"{DIGITS},{PACS}", help="which, by comma (default: digits,pacs)")
    parser.add_argument("--data", default=str(SCRIPTS.parent.parent / "shared" / "data"), help="folder of these sets")
    parser.add_argument("--domains", nargs="+", metavar="NAME=FILE", help="own domains instead: .npz, .csv or .mat")
    parser.add_argument("--scaling", choices=SCALINGS, default="unit", help="of own domains' rows (default: unit)")
    parser.add_argument("--seeds", type=int, help="times the rows are scattered (default: 3, PACS 2)")
    parser.add_argument("--bits", type=int, default=10_000, help="bits of DEOT_K^'s sketches (default: 10000)")
    parser.add_argument(
        "--grid", default="0.05,0.07,0.1,0.14,0.2", help="eps to choose from, as shares of the mean cost"
    )
    parser.add_argument("--validation-rows", type=int, help="rows that choose it (default: 2000, PACS 1000)")
    parser.add_argument("--rows", type=int, help="only so many rows of each domain")
    parser.add_argument("--out", default="build/adaptation", metavar="DIR", help="where table, numbers and picture go")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        pairs = _pairs(chosen)
    except InputError as error:
        print(f"adaptation_table: error: {error}", file=sys.stderr)
        return 2
    out = Path(chosen.out)
    out.mkdir(parents=True, exist_ok=True)
    sys.stdout.reconfigure(line_buffering=True)  # also a log file shows how far it is
    console = Console(width=170 if not sys.stdout.isatty() else None)
    started = time.monotonic()
    found = _measure(pairs, chosen, console, out)
    report.show(console, found)
    (out / "adaptation.md").write_text(report.markdown(found))
    report.draw(found, out / "adaptation.png")
    console.print(f"{time.monotonic() - started:.0f} s; written: {out}/adaptation.json, .md, .png")
    return 0


def _pairs(chosen: argparse.Namespace) -> list[Pair]:
    if (
        (chosen.seeds is not None and chosen.seeds < 1)
        or chosen.bits < 1
        or (chosen.rows is not None and chosen.rows < 2 * RANKS)
    ):
        raise InputError(f"--seeds and --bits are 1 or more, --rows {2 * RANKS} or more.")
    if chosen.domains:
        pairs = own(chosen.domains, chosen.scaling)
    else:
        loaders = {DIGITS: digits, PACS: pacs}
        unknown = [name for name in chosen.sets.split(",") if name not in loaders]
        if unknown:
            raise InputError(f"{', '.join(unknown)} is not a set; sets are {', '.join(loaders)}.")
        pairs = [pair for name in chosen.sets.split(",") for pair in loaders[name](Path(chosen.data))]
    if chosen.rows is not None:
        pairs = [Pair(one.set, one.source.part(chosen.rows), one.target.part(chosen.rows)) for one in pairs]
    return pairs


def _measure(pairs: list[Pair], chosen: argparse.Namespace, console: Console, out: Path) -> report.Found:
    """All pairs, one after the other; what is known is on disk after each."""
    found: report.Found = {}
    grid = [float(share) for share in chosen.grid.split(",")]
    # What a pair takes grows with its entries; the estimate of the time left needs that.
    work = {pair.name: float(len(pair.source.labels)) * len(pair.target.labels) for pair in pairs}
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("left:"), TimeRemainingColumn(),
        console=console, speed_estimate_period=3600.0,
    )  # fmt: skip
    with bar, tempfile.TemporaryDirectory() as folder:
        task = bar.add_task("", total=sum(work.values()))
        for pair in pairs:
            seeds = chosen.seeds or SEEDS[pair.set]
            settings = {
                "seeds": seeds, "bits": chosen.bits, "grid": grid,
                "validation_rows": chosen.validation_rows or VALIDATION_ROWS[pair.set],
                "by_target_labels": pair.name in report.PAPER,
            }  # fmt: skip
            steps = seeds * (len(agents.COLUMNS) + 2) + 2
            steps += len(agents.BY_TARGET_LABELS) * len(grid) if settings["by_target_labels"] else 0
            found[pair.name] = one = {"set": pair.set, "columns": {}, "runs": [], "at_every_eps": {}, "distances": []}
            for line in _lines(pair.write(Path(folder)), settings):
                _note(one, line, seeds)
                bar.update(task, description=f"{pair.name} {line['column']}", advance=work[pair.name] / steps)
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
    central = [sys.executable, "-m", "adaptation.central", str(folder), str(settings["seeds"])]
    for command in ([*mpirun, str(folder), json.dumps(settings)], central):
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
