"""A fixed small part of the bench of faults (``make chaos``): agents killed, stuck, stopped, lying; inputs damaged."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launch import MPIRUN, launch_several
from problems import squared_distances

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from chaos.fuzz import fuzz, summary
from chaos.jobs import Ended, run_job
from chaos.judge import judge, right_value, same_end
from chaos.plans import DIMENSION, SAMPLES, Plan, Problem, draw_plan

from deot_mpi.data.synthetic import SyntheticSet
from deot_mpi.reference import solve_pooled
from deot_mpi.roles import Role

SMALL = Problem(4, 2, "raw", "uniform", "sinkhorn", 2.0)
needs_mpirun = pytest.mark.skipif(not MPIRUN.exists(), reason="no mpirun in this environment (make setup brings one)")


def run(
    problem: Problem, faults: list[dict[str, Any]], folder: Path, *more: str, ulfm: bool = False, limit: float = 60.0
) -> tuple[Ended, dict[str, Any] | None]:
    path = folder / "result.json"
    path.unlink(missing_ok=True)
    arguments = [*problem.arguments(), "--json", str(path), *more]
    ended = run_job(problem.ranks, arguments, faults, ulfm=ulfm, limit=limit, folder=folder)
    return ended, json.loads(path.read_text()) if path.exists() else None


@needs_mpirun
def test_a_loss_during_the_self_terms_leaves_those_of_who_is_left(tmp_path: Path) -> None:
    """The divergence is that of a run that the lost agent was never part of."""
    fault = {"rank": 3, "call": 45, "fault": "kill"}
    ended, found = run(SMALL, [fault], tmp_path, "--debias", "--on-failure", "continue", ulfm=True)
    assert ended.code == 4, ended.err
    assert found is not None
    assert [(one["role"], one["index"], one["round"]) for one in found["lost_agents"]] == [("target", 1, 0)]
    rows = SyntheticSet(samples=SAMPLES, dim=DIMENSION)
    x = np.concatenate([rows.share(Role.SOURCE, k, 2).rows for k in range(2)])
    y, costs = rows.share(Role.TARGET, 0, 2).rows, []
    for left, right in ((x, y), (x, x), (y, y)):
        plan = np.full((len(left), len(right)), 1.0 / (len(left) * len(right)))
        costs.append(solve_pooled(squared_distances(left, right), plan, 2.0).values.regularised_cost)
    assert found["sinkhorn_divergence"] == pytest.approx(costs[0] - (costs[1] + costs[2]) / 2, rel=1e-8)


@needs_mpirun
@pytest.mark.parametrize(
    ("problem", "faults", "fault"),
    [
        (SMALL, [(0, 42)], "kill"),  # who would have printed, in the rounds
        (SMALL, [(1, 42)], "raise"),
        (Problem(5, 2, "sketch", "ring", "kept", 2.0), [(3, 27), (1, 62)], "kill"),  # setting up, then in the rounds
        (SMALL, [(3, 69)], "kill"),  # in the final reduce
    ],
)
def test_the_others_go_on_and_have_the_value_of_those_who_are_left(
    tmp_path: Path, problem: Problem, faults: list[tuple[int, int]], fault: str
) -> None:
    planned: list[dict[str, Any]] = [{"rank": rank, "call": call, "fault": fault} for rank, call in faults]
    ended, found = run(problem, planned, tmp_path, "--on-failure", "continue", ulfm=True)
    judged = judge(Plan(0, "lose" if fault == "kill" else "raise", problem, tuple(planned)), ended, found)
    assert judged.fine, judged
    assert ended.code == 4
    assert found is not None
    named = {(one["role"], one["index"]) for one in found["lost_agents"]}
    agents = {("source", rank) if rank < problem.sources else ("target", rank - problem.sources) for rank, _ in faults}
    assert named == agents
    assert any(note.startswith("Lost: ") for note in found["notes"])
    assert found["dual_objective"] != pytest.approx(right_value(problem, frozenset()), rel=1e-6)


@needs_mpirun
def test_gromov_and_adapt_go_on_as_if_they_had_started_without(tmp_path: Path) -> None:
    """Compared with fresh runs on the files of those who are left."""
    for role, count in ((Role.SOURCE, 2), (Role.TARGET, 3)):
        for index in range(count):
            rows = SyntheticSet(samples=90, dim=3).share(role, index, count).rows
            labels = (rows.sum(axis=1) > rows.sum(axis=1).mean()).astype(int)
            np.savez(tmp_path / f"{role.value}-{index}.npz", X=rows, y=labels)
            place = index - (role is Role.TARGET and index > 1)
            if (role, index) != (Role.TARGET, 1):
                np.savez(tmp_path / f"left-{role.value}-{place}.npz", X=rows, y=labels)
    commands = {"gromov": ("--starts", "1", "--eps", "60"), "adapt": ("--eps", "2", "--no-centre")}

    def arguments(command: str, prefix: str, name: str) -> list[str]:
        return [
            command, "--sources", "2", "--source", f"{prefix}source-{{agent}}.npz", "--target",
            f"{prefix}target-{{agent}}.npz", "--kernel", "raw", "--tol", "1e-9", "--progress", "none", "--json", name,
            *commands[command],
        ]  # fmt: skip

    for fresh in launch_several(4, [arguments(one, "left-", f"fresh-{one}.json") for one in commands], tmp_path):
        assert fresh.code == 0, fresh
    for command in commands:
        lossy = [*arguments(command, "", "result.json"), "--on-failure", "continue"]
        fault = {"rank": 3, "call": 47, "fault": "kill"}
        ended = run_job(5, lossy, [fault], ulfm=True, limit=60.0, folder=tmp_path)
        assert ended.code == 4, ended
        found, whole = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("result", f"fresh-{command}"))
        (tmp_path / "result.json").unlink()
        assert [(one["role"], one["index"]) for one in found["lost_agents"]] == [("target", 1)]
        assert found["dual_objective"] == pytest.approx(whole["dual_objective"], rel=1e-7), command
        assert found.get("accuracy") == whole.get("accuracy")


@needs_mpirun
def test_who_is_lost_while_results_are_written_takes_none_along(tmp_path: Path) -> None:
    """Rank 0 at its last call, which agrees on what was written: the values are of all, and the next prints them."""
    counted, whole = run(SMALL, [{"fault": "count"}], tmp_path)
    calls = next(int(line.split()[2]) for line in counted.out.splitlines() if line.startswith("CALLS 0 "))
    last = calls + 1  # who goes on without the lost first says its role
    ended, found = run(
        SMALL, [{"rank": 0, "call": last, "fault": "kill"}], tmp_path, "--on-failure", "continue", ulfm=True
    )
    assert ended.code == 4, ended
    assert ended.orphans == 0
    assert "lost once the values were known" in ended.err
    assert found is not None
    assert whole is not None
    assert found["lost_agents"] == []
    assert found["dual_objective"] == whole["dual_objective"]


@needs_mpirun
def test_without_any_target_there_is_a_clear_end(tmp_path: Path) -> None:
    faults = [{"rank": rank, "call": 42, "fault": "kill"} for rank in (2, 3)]
    ended, found = run(SMALL, faults, tmp_path, "--on-failure", "continue", ulfm=True)
    assert ended.code == 1
    assert "all target agents are lost; there is nothing left to compare" in ended.err
    assert found is None
    assert ended.orphans == 0


@needs_mpirun
@pytest.mark.parametrize(
    ("fault", "more", "words"),
    [
        ("kill", (), "signal 9"),
        ("stop", ("--timeout", "4"), "no message within 4 s from"),
        ("nan", (), "agent 0 sent potentials with a number that is not finite"),
        ("short", (), "bytes of"),
        ("raise", (), "RuntimeError: as planned"),
    ],
)
def test_every_other_fault_ends_all_with_a_message(
    tmp_path: Path, fault: str, more: tuple[str, ...], words: str
) -> None:
    rank = 2 if fault == "nan" else 1
    call = 58 if fault == "nan" else 12 if fault == "short" else 42
    problem = Problem(4, 2, "raw", "uniform", "kept", 2.0) if fault == "short" else SMALL
    ended, found = run(problem, [{"rank": rank, "call": call, "fault": fault}], tmp_path, *more)
    assert ended.code not in (0, None), ended
    assert words in ended.err
    assert found is None
    assert ended.orphans == 0


@needs_mpirun
def test_stopped_killed_and_resumed_with_the_same_bits(tmp_path: Path) -> None:
    """Asked to stop (exit code 3), then killed as a whole, then to the end; one agent has no room for checkpoints."""
    problem = Problem(4, 2, "sketch", "uniform", "sinkhorn", 0.3)
    _, whole = run(problem, [], tmp_path)
    assert whole is not None
    more = ("--checkpoint", str(tmp_path / "kept"), "--every", "3", "--resume")
    ended, _ = run(problem, [{"rank": 1, "call": 72, "fault": "term"}], tmp_path, *more)
    assert ended.code == 3, ended
    assert "asked to stop, and stopped after round" in ended.err
    ended, _ = run(problem, [{"rank": k, "call": 92, "fault": "kill"} for k in range(4)], tmp_path, *more)
    assert ended.code not in (0, None)
    ended, found = run(problem, [{"rank": 3, "fault": "full", "bytes": 100}], tmp_path, *more)
    assert ended.code == 0, ended
    assert found is not None
    assert found["resumed_from"] is not None
    assert not same_end(found, whole)
    assert any("target agent 1 could not write" in note for note in found["notes"]), found["notes"]


def test_damaged_inputs_are_taken_rightly_or_refused() -> None:
    """Without .mat files, which are read by processes of their own: 500 take their time."""
    kinds = (".npy", ".npz", ".csv", "protocol", "config", "command line", "checkpoint", "message")
    found = fuzz(500, 1, kinds)
    assert [one.outcome for one in found if one.outcome not in ("taken", "refused")] == [], summary(found)
    for outcome in ("taken", "refused"):
        assert {one.kind for one in found if one.outcome == outcome} == {one.kind for one in found}


def test_plans_are_drawn_from_the_seed() -> None:
    first, again = (draw_plan(3, 5, {}, lambda _: 100) for _ in range(2))
    assert first == again
    assert draw_plan(3, 5, {}, lambda _: 100, {"no such fault"}) is None
