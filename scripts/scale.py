"""How far it scales: measured to 64 ranks on this machine, modelled beyond, and the model held against other runs.

``make scale`` takes some minutes, ``make scale ARGS=--quick`` a few; ``--only links`` repeats one part with what an
earlier run has left in ``--out``. Bytes, messages and rounds are exact however many
ranks share a core; seconds are not, and a loaded machine's mean little (the load before each run is written down).
Links of 10 ms are made with network namespaces where this runs as root; without, that part is left out and said so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from scaling import beyond, report
from scaling.clock import Place, Way
from scaling.hosts import Hosts, UnavailableError
from scaling.job import Job
from scaling.measured import STEADY, Runner, costs_of, overheads, shared_way, way_of
from scaling.model import Costs, Model

RECIPES = Path(__file__).resolve().parent.parent.parent / "shared" / "cluster"
HOSTS, SLOTS = 4, 4
LINK_RUNS = 3
"""Of each job over the links."""
PARTS = ("constants", "strong", "weak", "whole", "links", "beyond")
_LIMIT_SECONDS = 900.0


class Progress:
    """Says what runs and how long the rest may take, from how long the steps before took for what they are."""

    def __init__(self, console: Console, planned: dict[str, float]) -> None:
        self._console, self._left = console, dict(planned)
        self._spent, self._weight = 0.0, 0.0

    def __call__(self, name: str, weight: float, work: Callable[[], Any]) -> Any:
        """Do one step of a part; ``weight`` in units of the plan (seconds on a quiet machine)."""
        started = time.perf_counter()
        with self._console.status(name):
            found = work()
        seconds = time.perf_counter() - started
        self._spent, self._weight = self._spent + seconds, self._weight + weight
        part = name.split(":")[0]
        self._left[part] = max(0.0, self._left.get(part, 0.0) - weight)
        rest = sum(self._left.values()) * self._spent / self._weight
        self._console.print(f"{name}: {seconds:.0f} s; about {rest / 60:.0f} min left", highlight=False)
        return found

    def skip(self, part: str) -> None:
        self._left.pop(part, None)


def weight(job: Job) -> float:
    """Seconds of a run on a quiet machine of two cores, roughly: starting, and making its kernel."""
    return 2.0 + 0.25 * job.ranks + 1.5e-8 * job.samples**2


class Study:
    """The parts, each with what the ones before have found."""

    def __init__(self, runner: Runner, chosen: argparse.Namespace, console: Console) -> None:
        self.runner, self.quick, self.recipes, self.console = runner, chosen.quick, chosen.recipes, console
        self.cores = os.cpu_count() or 1
        self.ranks = chosen.ranks
        self.delay = 1e-3 * chosen.delay
        self.out = Path(chosen.out)
        plan = {part: sum(weight(job) for job in jobs) for part, jobs in self.jobs().items()} | {"constants": 35.0}
        plan["links"] *= 1 if chosen.quick else LINK_RUNS
        self.step = Progress(console, {part: seconds for part, seconds in plan.items() if part in chosen.only})
        self.results: dict[str, Any] = {}

    def jobs(self) -> dict[str, list[Job]]:
        strong, each, whole = (512, 16, 2000) if self.quick else (4096, 64, 32_000)
        wan = Job(HOSTS * SLOTS, 512 if self.quick else 2000, tol=0.0, rounds=STEADY, precision="float32")
        kept = replace(wan, solver="kept", neighbours=1, precision="auto")
        more = [] if self.quick else [replace(wan, samples=8000), replace(kept, samples=8000)]
        return {
            "strong": [
                replace(job, ranks=many) for many in self.ranks for job in (Job(2, strong), Job(2, strong, "kept", 1))
            ],
            "weak": [
                Job(many, each * many // 2, protocol=graph)
                for many in self.ranks
                if many >= 8
                for graph in ("uniform", "random-regular")
            ],
            "whole": [Job(self.ranks[-1], whole, kernel=kernel) for kernel in ("raw", "sketch")],
            "links": [
                wan, kept, replace(wan, kernel="raw"), replace(kept, neighbours=8), replace(kept, kernel="raw"), *more,
            ],
        }  # fmt: skip

    def local(self, ranks: int) -> Place:
        """All ranks on this machine."""
        way = Way(**self.results["constants"]["near"])
        return Place(np.zeros(ranks, dtype=int), self.cores, way, way)

    def constants(self) -> dict[str, Any]:
        """What the model is made of, none of it from the runs it is judged by."""
        run, repeats = self.runner, 5 if self.quick else 15
        kernel = self.step(
            "constants: kernel", 10, lambda: run.probe(self.cores, "kernel", str(repeats), "22" if self.quick else "24")
        )
        links = self.step("constants: links", 4, lambda: run.probe(2, "links", str(20 * repeats)))
        costs = costs_of(kernel)
        found = self.results["constants"] = {"near": asdict(way_of(links["seconds"])), "near_seconds": links["seconds"]}

        def rounds(ranks: int, solver: str) -> dict[str, Any]:
            name = f"constants: rounds of {solver}, {ranks} ranks"
            return self.step(name, 7, lambda: run.probe(ranks, "rounds", "150", solver))

        spent = overheads(rounds, costs, self.local)
        costs = replace(costs, **spent)
        # A pass takes a product and a sum for every entry, twice: for the rows and for the columns.
        flops = 4 / costs.sweep[max(costs.sweep)]
        return {**found, "costs": costs.to_dict(), "flops": flops}

    @property
    def costs(self) -> Costs:
        return Costs.from_dict(self.results["constants"]["costs"])

    def save(self) -> None:
        (self.out / "scale.json").write_text(json.dumps(self.results, indent=2) + "\n")

    def _measured(
        self, part: str, place: Callable[[int], Place], hosts: Hosts | None = None, times: int = 1
    ) -> list[dict[str, Any]]:
        """A part's runs, each beside what the model says of it; kept as they come.

        With ``times``, each is run as often, and the one with the median pace is kept: on a shared machine one run in
        ten takes a third longer than all others of its kind.
        """
        found: list[dict[str, Any]] = []
        if hosts is None:
            self.results[part] = found
        else:
            self.results[part]["runs"] = found
        for job in self.jobs()[part]:
            name = f"{part}: {job.ranks} ranks, {job.name}"
            runs = [self.step(name, weight(job), lambda job=job: self.runner.run(job, hosts)) for _ in range(times)]
            runs.sort(key=lambda run: run["round_seconds"])
            one = {**runs[len(runs) // 2], "every_pace": [run["round_seconds"] for run in runs]}
            predicted = Model(job, place(job.ranks), self.costs).round_seconds()
            found.append({**one, "predicted_round": predicted, "off": predicted / one["round_seconds"] - 1})
            self.save()
        return found

    def strong(self) -> list[dict[str, Any]]:
        return self._measured("strong", self.local)

    def weak(self) -> list[dict[str, Any]]:
        return self._measured("weak", self.local)

    def whole(self) -> list[dict[str, Any]]:
        """64 agents and 64,000 samples in all, in memory."""
        return self._measured("whole", self.local)

    def links(self) -> dict[str, Any]:
        """16 ranks on four hosts, 10 ms apart: the model has seen the links, but no run over them."""
        try:
            with Hosts(self.recipes, self.runner.folder, HOSTS, SLOTS, self.delay) as hosts:
                repeats = "10" if self.quick else "30"
                run, ranks = self.runner, HOSTS * SLOTS
                far = self.step("links: ping-pong", 4, lambda: run.probe(2, "links", repeats, hosts=hosts, spread=True))
                both = self.step("links: all at once", 8, lambda: run.probe(ranks, "together", repeats, hosts=hosts))
                near = Way(**self.results["constants"]["near"])

                def over(way: Way) -> Place:
                    return Place(np.arange(ranks) // SLOTS, self.cores, near, way, np.zeros(ranks, dtype=int))

                way = shared_way(far["seconds"], both["seconds"], over, self.costs.message)
                self.results["links"] = found = {
                    "far": asdict(way), "far_seconds": far["seconds"], "together_seconds": both["seconds"],
                }  # fmt: skip
                self._measured("links", lambda _: over(way), hosts, 1 if self.quick else LINK_RUNS)
        except UnavailableError as why:
            self.step.skip("links")
            self.console.print(f"links: left out: {why}", highlight=False)
            return {"left_out": str(why)}
        return found

    def beyond(self) -> dict[str, Any]:
        """A cluster and a WAN that are not here."""
        near = Way(**self.results["constants"]["near"])
        rounds = beyond.Rounds.fit(self.results["strong"], self.results["weak"])
        return {"rounds": asdict(rounds), "predictions": beyond.predictions(self.costs, near, rounds)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small problems: does it work, not how fast")
    parser.add_argument("--only", help=f"parts to run, by comma (default: all): {', '.join(PARTS)}")
    parser.add_argument("--ranks", default="2,4,8,16,32,64", metavar="P,P", help="how many (default: 2 to 64)")
    parser.add_argument("--delay", type=float, default=10.0, metavar="MS", help="of the links, one way (default: 10)")
    parser.add_argument("--recipes", type=Path, default=RECIPES, metavar="DIR", help="where hosts-up and wan.py are")
    parser.add_argument("--out", default="build/scale", metavar="DIR", help="where scale.json and scale.png go")
    chosen = parser.parse_args()
    given, words = chosen.ranks, chosen.ranks.split(",")
    chosen.ranks = sorted({int(many) for many in words}) if all(many.isdecimal() for many in words) else []
    if len(chosen.ranks) < 2 or chosen.ranks[0] < 2 or chosen.ranks[-1] < 8:
        parser.error(f"--ranks {given}: two numbers of ranks or more are needed, such as 4,16,64, and one of 8 or more")
    earlier = Path(chosen.out) / "scale.json"
    if chosen.only is not None and not earlier.exists():
        parser.error(f"--only needs an earlier run's {earlier}; leave it out once")
    unknown = set((chosen.only or "beyond").split(",")) - set(PARTS)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))} is not a part; parts are {', '.join(PARTS)}")
    known = json.loads(earlier.read_text()) if chosen.only is not None else {}
    chosen.only = PARTS if chosen.only is None else tuple(chosen.only.split(","))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    console = Console(width=140 if not sys.stdout.isatty() else None)
    out = Path(chosen.out)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        study = Study(Runner(Path(folder), _LIMIT_SECONDS), chosen, console)
        results = study.results
        results |= known
        results["machine"] = {
            "processor": platform.processor() or platform.machine(), "cores": study.cores, "quick": chosen.quick,
        }  # fmt: skip
        for part in chosen.only:
            results[part] = getattr(study, part)()
            study.save()
    missing = [part for part in PARTS if part not in results]
    if missing:
        console.print(f"not run yet: {', '.join(missing)}; no table and no picture without them")
        return 0
    report.show_all(console, results)
    report.draw(results, out / "scale.png")
    console.print(f"written: {out / 'scale.json'}, {out / 'scale.png'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
