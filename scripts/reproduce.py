"""Every figure and table of the paper, through real jobs of 16 agents, and one page that shows them and judges claims.

``make reproduce`` has the paper's sizes (but for Fig. 6, 1,000 samples), ``make reproduce-quick`` takes minutes.
What is finished is kept under ``results/`` and not run again, as long as its settings and the program are the same.
``--only fig3,fig5`` runs parts.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

import adaptation_table
from matplotlib.figure import Figure
from reproduction import figures, plan
from reproduction.claims import Verdict
from reproduction.findings import Findings
from reproduction.jobs import BESIDE, Adaptation, run_all
from reproduction.progress import Estimate, Watch, spoken
from reproduction.rules import judge
from reproduction.sheet import built, markdown
from reproduction.store import Store, source_digest
from rich.console import Console

from deot_mpi.writing import write_whole


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few samples, seeds and rounds")
    parser.add_argument("--only", default=",".join(plan.FIGURES), help=f"by comma, of {','.join(plan.FIGURES)}")
    parser.add_argument("--results", default="results", metavar="DIR", help="finished runs, figures and the page")
    parser.add_argument("--data", default=str(adaptation_table.DATA), help="folder of the digits and PACS, for table2")
    parser.add_argument("--pictures", metavar="DIR", help="also put the figures of --only there, as .png")
    chosen = parser.parse_args()
    wanted = tuple(chosen.only.split(","))
    unknown = [name for name in wanted if name not in plan.FIGURES]
    if unknown:
        print(f"reproduce: error: --only {','.join(unknown)}: figures are {', '.join(plan.FIGURES)}.", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # also a log file shows how far it is
    console = Console(width=150 if not sys.stdout.isatty() else None)
    size = plan.QUICK if chosen.quick else plan.FULL
    store = Store(Path(chosen.results) / "runs", source_digest(BESIDE))
    adaptation = Adaptation.of(size, Path(chosen.data))
    seconds = _run(size, wanted, store, adaptation, console)
    findings = Findings.stored(size, store, adaptation.found(store))
    drawn = _show(findings, Path(chosen.results), seconds, adaptation.missing, console)
    if chosen.pictures:
        _draw({name: figure for name, figure in drawn.items() if name in wanted}, Path(chosen.pictures))
    return 0


def _show(findings: Findings, results: Path, seconds: float, missing: str, console: Console) -> dict[str, Figure]:
    """The page, the figures beside it, and the claims on the screen; gives back the figures."""
    drawn = {name: draw(findings) for name, draw in figures.DRAWN.items() if findings.complete(name)}
    judged = judge(findings)
    for one in judged:
        words = [f"{name}: {_word(verdict)}" for name, verdict in (("paper", one.paper), ("own", one.own))]
        console.print(f"{one.rule.figure:13s} {one.rule.claim}: {', '.join(words)}", highlight=False)
    vectors = {name: figures.rendered(figure, "svg") for name, figure in drawn.items()}
    text = built(findings, judged, vectors, seconds, missing)
    path, folder = results / f"{findings.size.name}.html", results / findings.size.name
    write_whole(path, lambda file: file.write(text.encode("utf-8", "replace")))
    _draw(drawn, folder)
    (folder / "claims.md").write_text(markdown(judged))
    console.print(f"written: {path}, and the figures in {folder}", highlight=False)
    return drawn


def _draw(drawn: dict[str, Figure], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in drawn.items():
        (folder / f"{name}.png").write_bytes(figures.rendered(figure, "png"))


def _word(verdict: Verdict | None) -> str:
    return "not measured" if verdict is None else "held" if verdict.held else "did not hold"


def _run(size: plan.Size, names: tuple[str, ...], store: Store, adaptation: Adaptation, console: Console) -> float:
    """Everything that is not finished; the seconds it took."""
    wanted = plan.runs(size, names)
    missing = [run for run in wanted if store.get(run.settings) is None]
    pairs = adaptation.left(store) if "table2" in names else []
    total = sum(run.weight for run in missing) + sum(adaptation.weight(pair) for pair in pairs)
    console.print(
        f"{len(missing)} runs and {len(pairs)} pairs of domains to do, {len(wanted) - len(missing)} runs finished "
        f"before; about {spoken(total)} on two quiet cores",
        highlight=False,
    )
    watch = Watch(console, Estimate(total))
    try:
        for figure in dict.fromkeys(run.place.figure for run in missing):
            # Seed by seed: what is interrupted has whole figures of fewer seeds.
            own = sorted((run for run in missing if run.place.figure == figure), key=lambda run: run.seed)
            run_all(own, store, watch)
        if pairs:
            adaptation.run(store, watch)
    finally:
        watch.close()
    return watch.estimate.elapsed


if __name__ == "__main__":
    sys.exit(main())
