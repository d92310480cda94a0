"""Runs of the program and of the probes, each to its end or its limit, and what they say about themselves."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from processes import MARK, lines_of

from scaling.clock import EAGER, Clocks, Messages, Place, Way
from scaling.hosts import Hosts
from scaling.job import PERIOD, PROBED_SAMPLES, Job
from scaling.model import Costs, Model

SCRIPTS = Path(__file__).resolve().parent.parent
STEADY = 3 * PERIOD
"""Rounds of a run that is made for its pace: the first period is left out. More would go over to float64."""


class Runner:
    """Starts processes; ``hosts`` says where, this machine otherwise."""

    def __init__(self, folder: Path, limit: float) -> None:
        self.folder, self.limit = folder, limit
        self.environment = {**os.environ, "PYTHONPATH": str(SCRIPTS)}

    def _command(self, hosts: Hosts | None, ranks: int, words: list[str], spread: bool = False) -> list[str]:
        words = [sys.executable, *words]
        return ["mpirun", "-n", str(ranks), *words] if hosts is None else hosts.command(ranks, words, spread=spread)

    def probe(self, ranks: int, *words: str, hosts: Hosts | None = None, spread: bool = False) -> dict[str, Any]:
        command = self._command(hosts, ranks, ["-m", "scaling.probe", *words], spread)
        lines = [line for line in lines_of(command, self.environment, self.limit) if line.startswith(MARK)]
        found: dict[str, Any] = json.loads(lines[-1][len(MARK) :])
        return found

    def run(self, job: Job, hosts: Hosts | None = None) -> dict[str, Any]:
        """The program, as a user starts it; its own JSON, cut down to what the study needs."""
        path = self.folder / "run.json"
        path.unlink(missing_ok=True)
        started, load = time.perf_counter(), os.getloadavg()[0]
        command = self._command(hosts, job.ranks, ["-m", "deot_mpi.run", *job.flags, "--json", str(path)])
        for _ in lines_of(command, self.environment, self.limit):
            pass
        return summary(job, json.loads(path.read_text()), time.perf_counter() - started, load)


def summary(job: Job, told: dict[str, Any], wall: float, load: float) -> dict[str, Any]:
    """What a run took. ``load`` is the machine's before it began: 0 on a quiet one."""
    kinds = told["ledger"]["by_kind"]
    agents = told["agents"]
    return {
        "job": asdict(job),
        "name": job.name,
        "status": told["status"],
        "rounds": told["rounds"],
        "messages": sum(kind["messages"] for kind in kinds),
        "edge_bytes": sum(kind["bytes"] for kind in kinds),
        "collective_bytes": sum(kind["collective_bytes"] for kind in kinds),
        "round_seconds": pace(told["trace"]),
        "rounds_seconds": told["seconds"],
        "setup_seconds": told["setup_seconds"],
        "values_seconds": told["values_seconds"],
        "wall_seconds": wall,
        "working_seconds": {
            role: float(np.mean([one["working_seconds"] for one in agents if one["role"] == role]))
            for role in ("source", "target")
        },
        "peak_memory": sum(one["peak_memory"] for one in agents),
        "load_before": load,
    }


def pace(trace: list[dict[str, Any]]) -> float:
    """Seconds of a round: the median of what lies between two checks, after the first period where there is more."""
    between = [(after["round"] - before["round"], after["seconds"] - before["seconds"], before["round"])
               for before, after in pairwise(trace)]  # fmt: skip
    later = [one for one in between if one[2] >= PERIOD] or between[1:] or between
    if not later:
        return float(trace[-1]["seconds"]) / int(trace[-1]["round"])
    return float(np.median([seconds / rounds for rounds, seconds, _ in later]))


def way_of(seconds: dict[str, float]) -> Way:
    """Latency and bandwidth from messages to and fro: the shortest one, and the slope over the longest ones."""
    by_size = {int(size): value for size, value in seconds.items()}
    sizes = sorted(by_size)
    latency = by_size[sizes[0]]
    low, high = next(size for size in sizes if size > EAGER), sizes[-1]
    slope = max((by_size[high] - by_size[low]) / (high - low), 1e-12)
    return Way(latency, 1.0 / slope)


def shared_way(
    one: dict[str, float], all_at_once: dict[str, float], place: Callable[[Way], Place], per_message: float
) -> Way:
    """A way that all share, from single messages and from half rounds of all ranks at once (``probe``), by bytes.

    What the longest half round takes beyond the shortest, less what a single message does, is the way's time for bytes;
    what the shortest takes beyond a single message and the processors, its time for messages. ``place`` is where they
    were measured, given the way between its hosts.
    """
    curve = sorted((int(size), value) for size, value in one.items())
    alone = Way(curve[0][1], np.inf, shared=True, measured=curve)
    free = place(alone)
    ranks = np.arange(free.hosts.size)
    sources, targets = ranks[: ranks.size // 2], ranks[ranks.size // 2 :]
    senders, receivers = (side.ravel() for side in np.meshgrid(targets, sources))
    far = int((free.hosts[senders] != free.hosts[receivers]).sum())
    queues = []
    for size, seconds in sorted((int(size), value) for size, value in all_at_once.items()):
        clocks = Clocks(free, per_message)
        clocks.exchange(Messages(free, senders, receivers, np.full(senders.size, float(size))))
        queues.append((size, max(seconds - float(clocks.now.max()), 0.0)))
    (low, short), (high, long) = queues[0], queues[-1]
    bandwidth = far * (high - low) / max(long - short, 1e-9)
    return replace(alone, bandwidth=bandwidth, per_message=short / far)


def costs_of(found: dict[str, Any]) -> Costs:
    """From the probe of kernels."""
    return Costs(
        sweep={int(size): value for size, value in found["sweep"].items()},
        sketch=(found["sketch_base"], found["sketch_slope"]),
        **{name: found[name] for name in ("slice", "block", "raw", "raw_block", "evaluate", "logsum", "bits")},
    )


def overheads(
    probe: Callable[[int, str], dict[str, Any]], costs: Costs, place: Callable[[int], Place]
) -> dict[str, Any]:
    """Processor time of a message and of a round, from rounds with hardly any samples.

    For ``sinkhorn`` it is a + b times the neighbours: two numbers of ranks give a message's and a round's; ``kept``
    with one neighbour gives its round's. What the kernel and the sums take is known, and taken off.
    """
    spent = {}
    for ranks, solver in ((4, "sinkhorn"), (16, "sinkhorn"), (16, "kept")):
        job = Job(ranks, PROBED_SAMPLES, solver, 1 if solver == "kept" else None)
        known = Model(job, place(ranks), costs).mean_work()
        spent[solver, ranks] = max(probe(ranks, solver)["seconds"] - known, 1e-6)
    few, many = spent["sinkhorn", 4], spent["sinkhorn", 16]
    message = max((many - few) / (2 * (8 - 2)), 0.0)  # an agent sends to and hears from 2 and 8 others
    return {
        "message": message,
        "round": {"sinkhorn": max(few - 4 * message, 0.0), "kept": max(spent["kept", 16] - 2 * message, 0.0)},
    }
