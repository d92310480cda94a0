"""The scaling study: its counts are the ledger's, its clocks do what a pencil does, and its tables can be drawn."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from launch import MPIRUN, launch_several

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
sys.path.insert(0, str(SCRIPTS))

import scale  # noqa: E402
from rich.console import Console  # noqa: E402
from scaling import report  # noqa: E402
from scaling.beyond import Rounds  # noqa: E402
from scaling.clock import EAGER, Clocks, Messages, Place, Way  # noqa: E402
from scaling.counts import Count, check_rounds, control_in_rounds, expected  # noqa: E402
from scaling.hosts import Hosts, UnavailableError  # noqa: E402
from scaling.job import Job  # noqa: E402
from scaling.measured import pace, shared_way, summary, way_of  # noqa: E402
from scaling.model import Costs, Model  # noqa: E402

FREE = Costs({1: 0.0}, 0.0, 0.0, 0.0, (0.0, 0.0), 0.0, 0.0, 0.0, 0.0)
NEAR = Way(0.0, np.inf)


def place(ranks: int, hosts: int = 1, latency: float = 1.0, bandwidth: float = np.inf, cores: float = np.inf) -> Place:
    """Ranks in order over hosts; within a host messages take no time."""
    return Place(np.arange(ranks) * hosts // ranks, cores, NEAR, Way(latency, bandwidth))


def ran(jobs: list[Job], folder: Path) -> dict[Job, dict[str, Any]]:
    """Jobs of as many ranks."""
    commands = [(*job.flags, "--json", f"{place}.json") for place, job in enumerate(jobs)]
    for ended in launch_several(jobs[0].ranks, commands, folder):
        assert ended.code == 0, ended.err
    return {job: json.loads((folder / f"{place}.json").read_text()) for place, job in enumerate(jobs)}


def counted(told: dict[str, Any], kind: str) -> Count:
    row = next(row for row in told["ledger"]["by_kind"] if row["kind"] == kind)
    return Count(row["messages"], row["bytes"], row["collectives"], row["collective_bytes"])


@pytest.mark.skipif(not MPIRUN.exists(), reason="no mpirun in this environment (make setup brings one)")
def test_counts_are_the_ledgers(tmp_path: Path) -> None:
    """To the byte, for uneven blocks, both solvers, all edges and few."""
    long = Job(5, 53, tol=0.0, rounds=13)
    kept = Job(6, 60, "kept", 1, kernel="raw", protocol="random-regular", degree=2, tol=0.0, rounds=12)
    told = ran([long, replace(long, rounds=7)], tmp_path) | ran([kept], tmp_path)
    for job, found in told.items():
        assert [point["round"] for point in found["trace"]] == check_rounds(job, job.rounds)
        for kind, count in expected(job, job.rounds).items():
            assert counted(found, kind.name.lower()) == count, (job, kind)
    # Control also has what is agreed on once: what two runs differ by is of the rounds alone.
    more, less = (counted(told[job], "control") for job in (long, replace(long, rounds=7)))
    formula = [control_in_rounds(long, rounds) for rounds in (13, 7)]
    assert more.collectives - less.collectives == formula[0].collectives - formula[1].collectives
    assert more.collective_bytes - less.collective_bytes == formula[0].collective_bytes - formula[1].collective_bytes
    assert (
        summary(kept, told[kept], 1.0, 0.0)["messages"]
        == sum(count.messages for count in expected(kept, 12).values()) + counted(told[kept], "mean").messages
    )


@pytest.mark.parametrize(("ranks", "steps"), [(2, 1), (8, 3), (16, 4), (12, 3)])
def test_trees_take_log2_steps(ranks: int, steps: int) -> None:
    """A rank is as many steps from the root as its number has ones: log2 P at most, fewer where 2^k - 1 is no rank."""
    for collective in (Clocks.reduce, Clocks.broadcast):
        clocks = Clocks(place(ranks, ranks), 0.0)
        collective(clocks, np.arange(ranks), 0, 8)
        assert clocks.now.max() == steps
        late = Clocks(place(ranks, ranks), 0.0)
        late.now[-1] = 10.0  # the last rank is a leaf of depth log2 P or so, never the root
        collective(late, np.arange(ranks), 0, 8)
        assert late.now[0] == (0.0 if collective is Clocks.broadcast else 10.0 + bin(ranks - 1).count("1"))


def test_who_hears_when_in_a_tree() -> None:
    up, down = (Clocks(place(8, 8), 0.0) for _ in range(2))
    up.reduce(np.arange(8), 0, 8)
    assert up.now.tolist() == [3, 0, 1, 0, 2, 0, 1, 0]  # 2 and 6 have one below them, 4 has 6, 0 has 4
    down.broadcast(np.arange(8), 2, 8)
    assert down.now.tolist() == [2, 3, 0, 1, 1, 2, 1, 2]  # from rank 2: 3, 4 and 6 first; 1 is seven away


def test_only_steps_between_hosts_count() -> None:
    """16 ranks on 4 hosts: a tally crosses twice up and twice down. A check: by hand, 1 up, then 3 for both tables."""
    clocks = Clocks(place(16, 4), 0.0)
    clocks.reduce(np.arange(16), 0, 8)
    clocks.broadcast(np.arange(16), 0, 8)
    assert clocks.now.max() == 4.0
    clocks = Clocks(place(16, 4), 0.0)
    Model(Job(16, 160), place(16, 4), FREE)._share(clocks)
    assert clocks.now.max() == 4.0


def test_a_round_is_two_latencies_and_what_all_add_up() -> None:
    """Sources and targets on hosts of their own, no work, bytes for nothing."""
    two = Model(Job(4, 40), place(4, 2, latency=3.0), FREE).round_seconds()
    # A round ends at the targets, T; the sources are done a latency before. A tally is in after T + 1 at rank 0 and
    # T + 2 at the targets. A check is for nothing here: the sources' table left at T - 1, and the targets' travels
    # beside the next round's potentials.
    assert two == pytest.approx(3.0 * (2 + 2 / 3))
    kept = Model(Job(4, 40, "kept", 1), place(4, 2, latency=3.0), FREE).round_seconds()
    # No tally. A check asks the neighbours first: the sources know at T + 1, and their table is there at T + 2.
    assert kept == pytest.approx(3.0 * (2 + 2 / 10))


def test_work_is_shared_by_cores() -> None:
    """8 + 8 ranks on 2 cores, 100 entries for each source, 1 s each: 8 x 100 / 2."""
    costs = replace(FREE, sweep={1: 1.0})
    job = Job(16, 8 * 10)
    entries = 10 * 80
    alone, shared = (Model(job, place(16, cores=cores), costs).round_seconds() for cores in (8, 2))
    assert alone == pytest.approx(entries)
    assert shared == pytest.approx(4 * entries)


def test_bytes_leave_through_their_hosts() -> None:
    here = place(4, 2, latency=0.0, bandwidth=100.0)
    senders, receivers, nbytes = np.array([0, 1, 0]), np.array([2, 3, 1]), np.array([300.0, 200.0, 1e9])
    assert Messages(here, senders, receivers, nbytes).delays.tolist() == [0.0, 5.0, 5.0]  # by receiver: 1, 2, 3
    router = replace(here, far=replace(here.far, shared=True))
    both = np.array([0, 2]), np.array([2, 0]), np.array([300.0, 200.0])
    assert Messages(here, *both).delays.tolist() == [2.0, 3.0]
    assert Messages(router, *both).delays.tolist() == [5.0, 5.0]
    long = np.array([EAGER + 1.0])  # asks first
    assert Messages(place(2, 2), np.array([0]), np.array([1]), long).delays.tolist() == [3.0]


def test_links_are_read_from_times() -> None:
    seconds = {str(size): (3 if size > EAGER else 1) * 0.01 + size / 5e6 for size in (0, 1024, 1 << 18, 1 << 20)}
    way = way_of(seconds)
    assert way.latency == pytest.approx(0.01)
    assert way.bandwidth == pytest.approx(5e6)
    trace = [{"round": t, "seconds": 100.0 * (t < 30) + 2.0 * t} for t in (1, 2, 5, *range(10, 91, 10))]
    assert pace(trace) == 2.0


def test_a_router_is_read_from_half_rounds() -> None:
    """2 x 2 messages at once between two hosts: 1 s on the way (alone; 5 s for 1000 bytes), 2 s of a core at either
    end, 3 s each at the router and 0.1 s a byte."""
    one, together = {"0": 1.0, "1000": 5.0}, {"0": 1 + 4 + 4 * 3, "1000": 5 + 4 + 4 * (3 + 100)}
    way = shared_way(one, together, lambda way: replace(place(4, 2, cores=4), far=way), per_message=1.0)
    assert (way.shared, way.latency) == (True, 1.0)
    assert way.alone(np.array([0.0, 500.0, 1010.0])).tolist() == [1.0, 3.0, 6.0]
    assert way.bandwidth == pytest.approx(10.0)
    assert way.per_message == pytest.approx(3.0)
    router = replace(place(4, 2), far=way)
    # By receiver, 0 and then 2: alone, two messages at the router, the other's bytes.
    delays = Messages(router, np.array([0, 2]), np.array([2, 0]), np.array([0.0, 500.0])).delays
    assert delays.tolist() == pytest.approx([3.0 + 6.0, 1.0 + 6.0 + 50.0])


def test_rounds_of_kept_grow_with_the_cycle() -> None:
    def run(ranks: int, rounds: int, **job: object) -> dict[str, Any]:
        return {"rounds": rounds, "job": {"ranks": ranks, "solver": "sinkhorn", "protocol": "uniform", **job}}

    strong = [run(4, 9), run(8, 9), run(4, 50, solver="kept"), run(8, 90, solver="kept")]
    found = Rounds.fit(strong, [run(8, 30, protocol="random-regular")])
    assert found.of(Job(100, 100)) == 9
    assert found.of(Job(100, 100, protocol="random-regular")) == 30
    assert found.of(Job(100, 100, "kept", 1)) == 10 + 20 * 50
    assert found.of(Job(100, 100, "kept", 8)) == 10 + 20 * 7


def test_hosts_that_cannot_be_had_are_said_so(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="hosts-up"), Hosts(tmp_path, tmp_path, 4, 4, 0.01):
        pass


def test_of_several_runs_the_one_in_the_middle_counts(tmp_path: Path) -> None:
    """One that took twice as long as the others of its kind is shown, and moves nothing."""
    paces = iter([0.06, 0.12, 0.05] * 7)
    runner = SimpleNamespace(folder=tmp_path, run=lambda job, hosts: {"round_seconds": next(paces)})
    chosen = argparse.Namespace(quick=True, recipes=tmp_path, ranks=[4, 8], delay=10.0, out=tmp_path, only=("links",))
    study = scale.Study(runner, chosen, Console(quiet=True))  # type: ignore[arg-type]
    study.results |= {"constants": {"costs": FREE.to_dict()}, "links": {}}
    found = study._measured("links", lambda ranks: place(ranks, 4), hosts=object(), times=3)  # type: ignore[arg-type]
    assert [run["round_seconds"] for run in found] == [0.06] * len(study.jobs()["links"])
    assert report._pace(found[0]) == "60.00 (50-120)"
    assert report._pace({"round_seconds": 0.06}) == "60.00"


def test_the_picture(tmp_path: Path) -> None:
    one = {"edge_bytes": 1, "collective_bytes": 1, "messages": 1, "rounds": 9, "round_seconds": 1.0}
    runs = [
        {**one, "predicted_round": 1.1, "job": {"ranks": ranks, "samples": 64, "solver": solver, "protocol": protocol}}
        for ranks in (8, 16)
        for solver, protocol in (("sinkhorn", "uniform"), ("kept", "uniform"), ("sinkhorn", "random-regular"))
    ]
    job = Job(16, 160)
    row = {"name": job.name, "job": {"protocol": "uniform", "degree": 4}, "total": 3.0}
    scenes = [{"title": "a place", "bandwidth": 1e9, "rows": [row]}] * 3
    results = {"strong": runs, "weak": runs, "whole": runs[:1], "links": {}, "beyond": {"predictions": scenes}}
    report.draw(results, tmp_path / "scale.png")
    assert (tmp_path / "scale.png").read_bytes().startswith(b"\x89PNG")
