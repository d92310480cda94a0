"""Many short runs with faults in them (``make chaos``): each must end in time, in a named state, with a right value.

Agents are killed, stopped for good, asked to stop; messages are broken, checkpoints torn, disks full, agents slow. All
of it is drawn from ``--seed``. The table counts runs, faults, how they ended, and what must be 0: hangs, processes left
behind, wrong results.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from chaos.fuzz import fuzz, summary
from chaos.jobs import Ended, run_job
from chaos.judge import TOLERANCE, Judgement, judge, right_value, same_end
from chaos.plans import RESUMED, Plan, Problem, draw_plan
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

LIMIT = 90.0
"""Seconds: the longest wait of the program, for ranks that do not start, is 60."""
SAID_EVERY = 10
"""Runs between two lines about how far it is, where there is no terminal for a bar."""


@dataclass(frozen=True)
class Tried:
    plan: Plan
    judgement: Judgement
    seconds: float


class Bench:
    """Runs plans, and remembers what does not change from one to the next."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._undisturbed: dict[Problem, dict[str, Any]] = {}
        self.calls: dict[Problem, int] = {}

    def count(self, problem: Problem) -> int:
        """Calls of MPI that a rank makes in an undisturbed run."""
        ended, found = self._run(problem, [], [{"fault": "count"}])
        if ended.code != 0 or found is None:
            raise SystemExit(f"an undisturbed run of {problem} ended with {ended.code}\n{ended.err[-2000:]}")
        value = right_value(problem, frozenset())
        if value is None or abs(found["dual_objective"] - value) > TOLERANCE * max(1.0, abs(value)):
            raise SystemExit(f"an undisturbed run of {problem} has {found['dual_objective']}, POT {value}")
        self._undisturbed[problem] = found
        return min(int(line.split()[2]) for line in ended.out.splitlines() if line.startswith("CALLS"))

    def try_plan(self, plan: Plan) -> Tried:
        if plan.kind in RESUMED:
            return self._resumed(plan)
        more = {"lose": ["--on-failure", "continue"], "stuck": ["--timeout", "4"]}.get(plan.kind, [])
        if plan.kind == "full":
            more = ["--checkpoint", str(self._new_folder()), "--every", "3"]
        ulfm = plan.kind == "lose"
        if plan.kind == "stuck" and plan.number % 2:
            ulfm, more = True, [*more, "--on-failure", "continue"]
        if plan.kind == "lose" and plan.number % 3 == 0:
            more = [*more, "--checkpoint", str(self._new_folder()), "--every", "4"]
        ended, found = self._run(plan.problem, more, plan.faults, ulfm=ulfm)
        return Tried(plan, judge(plan, ended, found), ended.seconds)

    def _resumed(self, plan: Plan) -> Tried:
        """Stopped or killed, then gone on with, as often as it takes."""
        folder = self._new_folder()
        more = ["--checkpoint", str(folder), "--every", str(plan.problem.every), "--resume"]
        ended, found = self._run(plan.problem, more, plan.faults)
        seconds = ended.seconds
        if ended.code is None or ended.orphans:
            return Tried(plan, judge(plan, ended, found), seconds)
        if plan.kind == "stop" and ended.code not in (0, 3):
            return Tried(plan, Judgement(f"code {ended.code}", False, ended.err[-500:]), seconds)
        if plan.kind == "torn":
            files = sorted(folder.glob("*.checkpoint"))
            for path in files[plan.number % max(len(files), 1) : plan.number % max(len(files), 1) + 1]:
                path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        if ended.code != 0:
            ended, found = self._run(plan.problem, more, [])
            seconds += ended.seconds
        if plan.kind == "torn" and ended.code == 2 and "do not fit together" in ended.err:
            return Tried(plan, Judgement("torn checkpoint refused", True), seconds)
        if ended.code != 0 or found is None:
            return Tried(plan, Judgement(f"resume ended with {ended.code}", False, ended.err[-500:]), seconds)
        differing = same_end(found, self._undisturbed[plan.problem])
        outcome = "finished" if found["resumed_from"] is None else "resumed, same bits"
        return Tried(plan, Judgement(outcome if not differing else "other bits", not differing, differing), seconds)

    def _run(
        self, problem: Problem, more: list[str], faults: Any, *, ulfm: bool = False
    ) -> tuple[Ended, dict[str, Any] | None]:
        path = self._folder / "result.json"
        path.unlink(missing_ok=True)
        arguments = [*problem.arguments(), "--json", str(path), *more]
        ended = run_job(problem.ranks, arguments, list(faults), ulfm=ulfm, limit=LIMIT, folder=self._folder)
        return ended, json.loads(path.read_text()) if path.exists() else None

    def _new_folder(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self._folder))


def table_of(tried: list[Tried]) -> Table:
    table = Table(title=f"{len(tried)} runs with faults", title_justify="left")
    for column in ("fault", "runs", "how they ended", "not as they must"):
        table.add_column(column, justify="right" if column in ("runs", "not as they must") else "left")
    for kind in sorted({one.plan.kind for one in tried}):
        of_kind = [one for one in tried if one.plan.kind == kind]
        ends = Counter(one.judgement.outcome for one in of_kind)
        wrong = sum(not one.judgement.fine for one in of_kind)
        table.add_row(kind, str(len(of_kind)), ", ".join(f"{end} {n}" for end, n in ends.most_common()), str(wrong))
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first plan")
    parser.add_argument("--inputs", type=int, default=500, help="damaged files, options and messages beside")
    parser.add_argument("--kinds", help="only these faults, e.g. crash,stop,torn")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="FILE", default="build/chaos.json")
    chosen = parser.parse_args()
    console, tried = Console(width=120 if not sys.stdout.isatty() else None), []
    kinds = None if chosen.kinds is None else set(chosen.kinds.split(","))
    Path(chosen.json).parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Progress(console=console, disable=not sys.stdout.isatty()) as bar:
        bench, number, task = Bench(Path(folder)), chosen.first, bar.add_task("runs", total=chosen.runs)
        while len(tried) < chosen.runs:
            plan = draw_plan(chosen.seed, number, bench.calls, bench.count, kinds)
            number += 1
            if plan is None:
                continue
            tried.append(bench.try_plan(plan))
            bar.advance(task)
            if not tried[-1].judgement.fine:
                console.print(f"plan {plan.number}: {tried[-1].judgement}\n{plan}", highlight=False, markup=False)
            if not len(tried) % SAID_EVERY and not sys.stdout.isatty():
                console.print(
                    f"{len(tried)} of {chosen.runs} runs, plans {chosen.first} to {plan.number}", highlight=False
                )
            Path(chosen.json).write_text(json.dumps([asdict(one) for one in tried], indent=2) + "\n")
    console.print(table_of(tried))
    outcomes = Counter(one.judgement.outcome for one in tried)
    wrong = sum(not one.judgement.fine for one in tried)
    counts = {
        "runs": len(tried), "faults": sum(len(one.plan.faults) for one in tried), "hangs": outcomes["hang"],
        "processes left behind": outcomes["orphans"], "wrong results": outcomes["wrong value"] + outcomes["other bits"],
        "not as they must": wrong, "seconds of the longest": round(max(one.seconds for one in tried)),
    }  # fmt: skip
    console.print(", ".join(f"{name} {count}" for name, count in counts.items()), highlight=False)
    fuzzed = fuzz(chosen.inputs, chosen.seed)
    bad = [one for one in fuzzed if one.outcome not in ("taken", "refused")]
    console.print(
        f"{len(fuzzed)} damaged inputs, {len(bad)} of them not as they must:\n{summary(fuzzed)}", highlight=False
    )
    for one in bad:
        console.print(one.outcome, highlight=False, markup=False)
    return 1 if wrong or bad else 0


if __name__ == "__main__":
    os.environ.setdefault("OMPI_ALLOW_RUN_AS_ROOT", "1")
    os.environ.setdefault("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    sys.exit(main())
