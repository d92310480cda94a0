"""Measure deot_mpi beside every centralised library that is installed, in one go, on the same data, to the same error.

``make bench`` runs everything (some minutes), ``make bench ARGS="--only peers"`` one part, ``--quick`` a small version
of all. Every process is measured alone, one after the other; short solves are repeated in it, and the median of all but
the first counts, for everybody alike. Seconds depend on the machine: compare within one run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmark import gromov
from benchmark.peers import PEERS, installed
from benchmark.problem import AGAIN, Problem
from benchmark.report import OWN, PEER_COLUMNS, draw, peer_rows, show
from processes import MARK, end
from rich.console import Console

SCRIPTS = Path(__file__).resolve().parent
_START_SECONDS = 30.0
"""What a process may take beside its solve."""
_SEARCHES = 4
"""POT looks for its stopping threshold and solves more than once: each solve has the limit."""
REPEAT_BELOW_SECONDS = 10.0
"""Shorter measurements are repeated, and the median counts."""


class Bench:
    """Runs measured processes and keeps what they found."""

    def __init__(self, folder: Path, chosen: argparse.Namespace, limit: float, console: Console) -> None:
        self.folder, self.limit, self.console = folder, limit, console
        self.repeats, self.quick, self.wanted = chosen.repeats, chosen.quick, chosen.peers.split(",")
        self.environment = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
        # POT imports every array library it finds; measured without them, it starts sooner and takes less memory.
        self.environment |= {f"POT_BACKEND_DISABLE_{name}": "1" for name in ("PYTORCH", "JAX", "TENSORFLOW", "CUPY")}

    def run(self, command: list[str], name: str, hard_limit: float | None = None) -> dict[str, Any]:
        """One process, to its end or the limit; the median of several runs where they are short."""
        return self.middle(self.runs(command, name, hard_limit))

    def runs(self, command: list[str], name: str, hard_limit: float | None = None) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for _ in range(self.repeats):
            if self.console.is_terminal:  # no spinner: nothing may move beside what is measured
                self.console.print(f"[dim]{name} ...[/]")
            found.append(self._once(command, hard_limit))
            if found[-1].get("over_limit") or found[-1]["wall_seconds"] > REPEAT_BELOW_SECONDS:
                break
        return found

    def middle(self, found: list[dict[str, Any]]) -> dict[str, Any]:
        """The run in the middle (of an even number, the slower one), with the seconds of all of them. First solves have
        a middle of their own."""
        found = sorted(found, key=lambda one: one.get("solve_seconds", self.limit))
        firsts = {
            name: sorted(one[name] for one in found)[len(found) // 2]
            for name in ("first_seconds", "first_total_seconds")
            if all(name in one for one in found)
        }
        return {**found[len(found) // 2], **firsts, "runs": [one.get("solve_seconds") for one in found]}

    def _once(self, command: list[str], hard_limit: float | None = None) -> dict[str, Any]:
        started = time.perf_counter()
        process = subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            output, errors = process.communicate(timeout=hard_limit or self.limit + _START_SECONDS)
        except subprocess.TimeoutExpired:
            return {"over_limit": True, "limit": self.limit}
        finally:
            end(process)
        lines = [line for line in output.splitlines() if line.startswith(MARK)]
        if process.returncode or not lines:
            raise SystemExit(f"bench: failed ({process.returncode}): {' '.join(command)}\n{output}\n{errors}")
        found: dict[str, Any] = json.loads(lines[-1][len(MARK) :])
        found["wall_seconds"] = time.perf_counter() - started
        # Launcher, interpreter, imports, compilation: what is left of the wall clock.
        found["start_seconds"] = found["wall_seconds"] - found.get("inside_seconds", 0.0)
        return found

    def problem(self, samples: int, dimension: int, share: float) -> str:
        return str(Problem(samples, dimension, share).write(self.folder, self.limit))

    def own(self, problem: str, ranks: int = 4, **options: Any) -> dict[str, Any]:
        return self.run(self.own_command(problem, ranks, **options), f"{OWN}, {ranks} ranks")

    def own_command(self, problem: str, ranks: int = 4, **options: Any) -> list[str]:
        return ["mpirun", "-n", str(ranks), sys.executable, "-m", "benchmark.agents", problem, json.dumps(options)]

    def peer(self, name: str, problem: str) -> dict[str, Any]:
        hard_limit = _SEARCHES * (self.limit + _START_SECONDS) if name.startswith("POT") else None
        return self.run([sys.executable, "-m", "benchmark.peers", name, problem], name, hard_limit)

    # The parts. Each returns its numbers and prints its table.

    def peers(self) -> dict[str, Any]:
        """deot_mpi with 2 + 2 ranks beside every installed library."""
        samples, results = (300 if self.quick else 4000), {}
        for share in (0.05, 0.01):
            problem = self.problem(samples, 50, share)
            before = self.runs(self.own_command(problem, again=AGAIN), OWN)
            theirs = {name: self.peer(name, problem) for name in self.wanted if installed(name)}
            # Also after the peers, since the machine's other load changes meanwhile; all runs count alike.
            after = self.runs(self.own_command(problem, again=AGAIN), OWN)
            measured = {OWN: self.middle(before + after), **theirs}
            results[str(share)] = measured
            title = f"N = M = {samples}, D = 50, eps = {share} of the median cost, to an L1 marginal error of 1e-6"
            show(self.console, title, PEER_COLUMNS, peer_rows(measured))
        missing = [name for name in self.wanted if not installed(name)]
        if missing:
            self.console.print(f"not installed, so not measured: {', '.join(missing)} (pip install -e '.[bench]')")
        return results

    def small(self) -> dict[str, Any]:
        """eps = 0.001 of the median cost: does it converge?"""
        found = self.own(self.problem(1000 if self.quick else 4000, 50, 0.001))
        row = [found["status"], str(found["rounds"]), f"{found['solve_seconds']:.2f}", f"{found['l1_error']:.1e}"]
        show(self.console, "eps = 0.001 of the median cost", ["status", "rounds", "solve s", "L1 error"], [row])
        return found

    def size(self) -> dict[str, Any]:
        """Time and memory against N, and the cost of one round."""
        sizes = (1000, 2000) if self.quick else (1000, 2000, 4000, 8000, 16000, 32000)
        results, rows = {}, []
        for samples in sizes:
            problem = self.problem(samples, 50, 0.05)
            measured = {OWN: self.own(problem, judged=samples <= 8000, again=AGAIN)}
            if samples <= 8000 and installed("POT sinkhorn"):
                measured["POT sinkhorn"] = self.peer("POT sinkhorn", problem)
            # Between checks, so without the building of the kernel. More rounds would go over to float64.
            endless = self.own(problem, judged=False, tol=0.0, precision="float32", rounds=60, check_every=5)
            own, per_round = measured[OWN], endless["round_seconds"]
            own["round_seconds"] = per_round
            results[str(samples)] = measured
            pot = measured.get("POT sinkhorn")
            rows.append([
                str(samples), f"{own['solve_seconds']:.3f}", f"{pot['solve_seconds']:.2f}" if pot else "",
                f"{1e3 * per_round:.2f}", f"{1e9 * per_round / samples**2:.3f}", f"{own['peak_memory'] / 1e6:.0f}",
                f"{4 * samples**2 / 1e6:.0f}",
            ])  # fmt: skip
        columns = ["N = M", "solve s", "POT solve s", "ms a round", "ns per entry", "peak MB, 4 ranks", "4 N M bytes"]
        show(self.console, "Against the number of samples (D = 50, eps = 0.05 of the median cost)", columns, rows)
        return results

    def ranks(self) -> dict[str, Any]:
        """Time against the number of ranks, and what of it MPI costs."""
        samples, cores = (1000 if self.quick else 8000), os.cpu_count() or 1
        problem = self.problem(samples, 50, 0.01)
        results, rows = {}, []
        for ranks in (2, 4, 8, 16):
            found = self.own(problem, ranks, judged=False)
            # CPU that is not work: waiting, polling, idle cores. Work is counted in CPU seconds over all ranks.
            found["lost_share"] = 1.0 - found["working_seconds"] / (min(cores, ranks) * found["total_seconds"])
            results[str(ranks)] = found
            rows.append([
                str(ranks), f"{found['total_seconds']:.2f}", f"{found['solve_seconds']:.2f}", str(found["rounds"]),
                f"{found['lost_share']:.0%}", f"{found['bytes'] / 1e6:.0f}", f"{found['start_seconds']:.1f}",
            ])  # fmt: skip
        columns = ["ranks", "total s", "solve s", "rounds", "lost: waiting, polling, idle", "MB sent", "start-up s"]
        show(self.console, f"Against ranks (N = M = {samples}, eps = 0.01 of the median, {cores} cores)", columns, rows)
        return results

    def dimension(self) -> dict[str, Any]:
        results, rows = {}, []
        for dimension in (2, 10, 50, 200, 1000):
            found = self.own(self.problem(1000 if self.quick else 4000, dimension, 0.05), again=AGAIN)
            results[str(dimension)] = found
            rows.append([str(dimension), f"{found['solve_seconds']:.3f}", str(found["rounds"])])
        show(self.console, "Against dimension (eps = 0.05 of the median cost)", ["D", "solve s", "rounds"], rows)
        return results

    def acceleration(self) -> dict[str, Any]:
        """Rounds with curvatures and mixing, with mixing alone, and of plain steps."""
        ways, most = ("full", "anderson", "none"), 5000
        results, rows = {}, []
        for dimension in (5, 50):
            for share in (0.05, 0.02, 0.01, 0.003):
                problem = self.problem(300 if self.quick else 2000, dimension, share)
                found = {way: self.own(problem, acceleration=way, rounds=most, judged=False) for way in ways}
                results[f"{dimension}, {share}"] = found
                told = [f"{one['rounds']}" + ("" if one["rounds"] < most else " (not there)") for one in found.values()]
                rows.append([str(dimension), f"{share:g}", *told, f"{found['full']['solve_seconds']:.3f}"])
        title = f"Rounds to an L1 marginal error of 1e-6, N = M = {300 if self.quick else 2000}, at most {most}"
        show(self.console, title, ["D", "eps / median cost", *ways, "full: solve s"], rows)
        return results

    def mrbcd(self) -> dict[str, Any]:
        """The paper's MRBCD beside the one-pass solver, with the same bytes of potentials."""
        problem, results, rows = self.problem(500 if self.quick else 2000, 5, 0.1), {}, []
        exact = self.own(problem, 16, tol=1e-10)
        fast = self.own(problem, 16)
        results = {"sinkhorn": fast}
        for neighbours in (1, 4, 8):
            # Two lengths tell what a round costs and what is sent once; then as many rounds as the bytes allow.
            short, long = (
                self.own(problem, 16, solver="mrbcd", rounds=n, tol=0.0, neighbours=neighbours, check_every=n)
                for n in (10, 20)
            )
            per_round = (long["round_bytes"] - short["round_bytes"]) / 10
            rounds = max(1, round(10 + (fast["round_bytes"] - short["round_bytes"]) / per_round))
            results[f"MRBCD, L = {neighbours}"] = self.own(
                problem, 16, solver="mrbcd", rounds=rounds, tol=0.0, neighbours=neighbours, check_every=rounds
            )
        for name, found in results.items():
            off = abs(found["dual_objective"] / exact["dual_objective"] - 1)
            found["relative_error"] = off
            rows.append([
                name, str(found["rounds"]), f"{found['round_bytes'] / 1e6:.2f}", f"{off:.1e}",
                f"{found['solve_seconds']:.2f}",
            ])  # fmt: skip
        title = "The paper's MRBCD at equal bytes (8 + 8 agents, D = 5, eps = 0.1 of the median cost)"
        show(self.console, title, ["solver", "rounds", "MB in rounds", "relative error of W~", "s"], rows)
        return results

    def rivals(self) -> dict[str, Any]:
        """Allgather and Star exact Sinkhorn over the same ranks."""
        results: dict[str, Any] = {}
        for share in (0.05, 0.01):
            problem, rows = self.problem(1000 if self.quick else 4000, 50, share), []
            measured = {OWN: self.own(problem)}
            for name in ("allgather", "star"):
                command = ["mpirun", "-n", "4", sys.executable, "-m", "benchmark.rivals", name, problem]
                measured[name] = self.run(command, name)
            results[str(share)] = measured
            for name, found in measured.items():
                whole = found.get("total_seconds", found.get("setup_seconds", 0.0) + found.get("solve_seconds", 0.0))
                if found.get("over_limit"):
                    rows.append([name, "", f"over {found['limit']:.0f}", "", "", ""])
                    continue
                rows.append([
                    name, str(found["rounds"]), f"{whole:.2f}", f"{found['round_bytes'] / 1e6:.1f}",
                    f"{found['peak_memory'] / 1e6:.0f}", f"{found['l1_error']:.1e}",
                ])  # fmt: skip
            columns = ["who", "rounds", "s", "MB sent in rounds", "peak MB", "L1 error"]
            show(self.console, f"Distributed rivals, 4 ranks (eps = {share} of the median cost)", columns, rows)
        return results

    def sketch(self) -> dict[str, Any]:
        """Building the sketch kernel."""
        size = ("500", "2000", "512") if self.quick else ("2000", "10000", "2048")
        ways = self._once([sys.executable, "-m", "benchmark.popcount", *size])["ways"]
        exact = ways["exact kernel"]["seconds"]
        rows = [
            [name, f"{one['seconds']:.3f}", f"{one['seconds'] / exact:.2f}", f"{one.get('start_seconds', 0.0):.3f}"]
            for name, one in ways.items()
        ]
        title = f"Sketch kernel, N = M = {size[0]}, Q = {size[1]}, beside one exact kernel at D = {size[2]}, one thread"
        show(self.console, title, ["way", "s", "times the exact kernel", "first use s"], rows)
        return dict(ways)

    def passes(self) -> dict[str, Any]:
        """The innermost passes, compiled and in NumPy."""
        ways: dict[str, Any] = self._once([sys.executable, "-m", "benchmark.passes"])["ways"]
        rows = [[name, *(f"{1e9 * one[name]:.2f}" for one in ways.values())] for name in ways["NumPy"]]
        show(self.console, "Passes over a chunk of the kernel, one thread, ns an entry", ["pass", *ways], rows)
        return ways

    def memory(self) -> dict[str, Any]:
        """Kernels computed again in every round instead of stored."""
        problem, results, rows = self.problem(1000 if self.quick else 4000, 50, 0.05), {}, []
        for name, options in (("stored", {}), ("computed again", {"memory": 1})):
            found = self.own(problem, **options)
            results[name] = found
            rows.append([name, f"{found['solve_seconds']:.2f}", f"{found['peak_memory'] / 1e6:.0f}"])
        show(self.console, "Bounded memory (eps = 0.05 of the median cost)", ["kernel", "solve s", "peak MB"], rows)
        return results

    def gromov(self) -> dict[str, Any]:
        """Gromov-Wasserstein beside POT's entropic one, and a size that POT's matrices would not fit."""
        samples, many = (100, 1000) if self.quick else (2000, 20_000)
        path, rows = str(gromov.write(self.folder, samples)), []
        command = ["mpirun", "-n", "4", sys.executable, "-m", "benchmark.gromov", "agents"]
        results = {OWN: self.run([*command, path, "{}"], OWN)}
        if installed("POT sinkhorn"):
            peer = [sys.executable, "-m", "benchmark.gromov", "pot", path]
            results["POT, PGD"] = self.run(peer, "POT, PGD", 1200.0)
        path = str(gromov.write(self.folder, many))
        name = f"{OWN}, N = M = {many}"
        results[name] = self.run([*command, path, json.dumps({"judged": False, "tol": 1e-5})], name, 1200.0)
        own = results[OWN]["total_seconds"]
        for name, found in results.items():
            if found.get("over_limit"):
                rows.append([name, "over 1200", f"over {1200 / own:.0f}", "", "", "", ""])
                continue
            whole = found.get("total_seconds", found["setup_seconds"] + found["solve_seconds"])
            rows.append([
                name, f"{whole:.2f}", f"{whole / own:.1f}", str(found["alignments"]),
                f"{found['regularised_cost']:.7f}", f"{found['l1_error']:.1e}", f"{found['peak_memory'] / 1e6:.0f}",
            ])  # fmt: skip
        columns = ["who", "samples to values s", "/ ours", "alignments", "regularised cost", "L1 error", "peak MB"]
        title = f"Gromov-Wasserstein, 2-d and 3-d Gaussians, N = M = {samples}, eps = 0.1 of the mean cost, one start"
        show(self.console, title, columns, rows)
        return results

    def huge(self) -> dict[str, Any]:
        """N = M = 100,000, which nobody stores: 40 GB of float32."""
        samples = 5000 if self.quick else 100_000
        problem = self.problem(samples, 10, 0.1)
        found = self.own(problem, judged=False, memory=10**9, tol=1e-4)
        row = [
            str(samples), found["status"], str(found["rounds"]), f"{found['total_seconds']:.0f}",
            f"{found['peak_memory'] / 1e6:.0f}", f"{found['own_error']:.1e}",
        ]  # fmt: skip
        columns = ["N = M", "status", "rounds", "s", "peak MB", "L1 error"]
        show(self.console, "More than fits (D = 10, eps = 0.1 of the median cost, 1 GB an agent)", columns, [row])
        return found


PARTS = (
    "peers", "small", "size", "ranks", "dimension", "acceleration", "mrbcd", "rivals", "sketch", "passes", "memory",
    "gromov",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help=f"parts to run, by comma: {', '.join(PARTS)}, huge (default: all but huge)")
    parser.add_argument("--quick", action="store_true", help="small problems: does it work, not how fast")
    parser.add_argument(
        "--limit", type=float, default=120.0, metavar="S", help="seconds a peer may take (default: 120)"
    )
    parser.add_argument(
        "--peers", default=",".join(PEERS), metavar="NAMES", help="which of them, by comma (default: all)"
    )
    parser.add_argument("--repeats", type=int, default=3, help="processes for short measurements (default: 3)")
    parser.add_argument("--out", default="build/bench", metavar="DIR", help="where bench.json and bench.png go")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parts = PARTS if chosen.only is None else tuple(chosen.only.split(","))
    unknown = [part for part in parts if part not in (*PARTS, "huge")]
    if unknown:
        parser.error(f"{', '.join(unknown)} is not a part; parts are {', '.join((*PARTS, 'huge'))}")
    strangers = [name for name in chosen.peers.split(",") if name not in PEERS]
    if strangers:
        parser.error(f"{', '.join(strangers)} is not a peer; peers are {', '.join(PEERS)}")
    console = Console(width=180 if not sys.stdout.isatty() else None)
    out = Path(chosen.out)
    out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {
        "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    }
    with tempfile.TemporaryDirectory() as folder:
        limit = max(chosen.limit, 3600.0) if "huge" in parts else chosen.limit
        bench = Bench(Path(folder), chosen, limit, console)
        for part in parts:
            results[part] = getattr(bench, part)()
            (out / "bench.json").write_text(json.dumps(results, indent=2) + "\n")
    draw(results, out / "bench.png")
    console.print(f"written: {out / 'bench.json'}" + (f", {out / 'bench.png'}" if (out / "bench.png").exists() else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
