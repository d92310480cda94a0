"""Every .sbatch file, submitted as it is to a Slurm of four nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cluster import SMALL, Slurm, numbers, read, wait_for
from launch import launch

LAUNCHERS = ("mpirun", "srun")


def output(folder: Path) -> str:
    return "\n".join(path.read_text() for path in sorted(folder.glob("*.out")))


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize(("script", "hosts_used"), [("one-node", 1), ("four-nodes", 4)])
def test_sixteen_agents(
    slurm: Slurm, submission: Path, on_one_host: dict[str, object], script: str, hosts_used: int, launcher: str
) -> None:
    """The numbers are those of plain mpirun on one host, to the bit, whoever launches and wherever the agents are."""
    job = slurm.submit(f"scripts/slurm/{script}.sbatch", *SMALL, folder=submission, DEOT_LAUNCHER=launcher)
    assert slurm.finish(job) == ["COMPLETED"], output(submission)
    result = read(submission / f"deot-{job}.json")
    assert numbers(result) == on_one_host
    assert len({agent["host"] for agent in result["agents"]}) == hosts_used


@pytest.mark.parametrize(("vary", "launcher", "names"), [
    ("eps", "mpirun", ["eps-0.02", "eps-0.05"]), ("seed", "srun", ["seed-0", "seed-1"]),
])  # fmt: skip
def test_an_array(slurm: Slurm, submission: Path, vary: str, launcher: str, names: list[str]) -> None:
    words = ("--array=0-1", "scripts/slurm/array.sbatch", *SMALL, "--samples", "160")
    job = slurm.submit(*words, folder=submission, DEOT_VARY=vary, DEOT_LAUNCHER=launcher)
    assert slurm.finish(job) == ["COMPLETED"] * 2, output(submission)
    settings = [read(submission / f"deot-{job}-{name}.json")["settings"] for name in names]
    key = "eps_scale" if vary == "eps" else "seed"
    assert [f"{vary}-{setting[key]:g}" for setting in settings] == names


def without_bytes(found: dict[str, Any]) -> dict[str, Any]:
    """A job that goes on counts what it sends itself."""
    kept = {name: value for name, value in found.items() if name != "edges"}
    return kept | {"trace": [point[:-1] for point in kept["trace"]]}


LONG = ("--tol", "0", "--rounds", "500", "--samples", "160", "--bits", "64")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the long run finds when nobody stops it."""
    folder = tmp_path_factory.mktemp("undisturbed")
    ended = launch(16, *LONG, "--progress", "none", "--json", "whole.json", folder=folder)
    assert ended.code == 0, ended.err
    return numbers(read(folder / "whole.json"))


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_job_goes_back_to_the_queue_and_on_from_its_checkpoint(
    slurm: Slurm, submission: Path, undisturbed: dict[str, Any], launcher: str
) -> None:
    """The signal is what Slurm sends when time runs out (--signal=B:USR1@120): to the script alone."""
    job = slurm.submit("scripts/slurm/requeue.sbatch", *LONG, folder=submission, DEOT_LAUNCHER=launcher)
    wait_for(lambda: "round 1/" in output(submission), 180, "the first round")
    slurm.ask("scancel", "--batch", "--signal=USR1", str(job))
    wait_for(lambda: slurm.job(job).get("Restarts") == "1", 60, "the requeued job")
    assert slurm.finish(job) == ["COMPLETED"], output(submission)
    result = read(submission / f"deot-{job}.json")
    assert 0 < result["resumed_from"] < result["rounds"] == 500
    assert without_bytes(numbers(result)) == without_bytes(undisturbed)


def test_slurm_gives_the_signal_itself_when_time_runs_out(slurm: Slurm, submission: Path) -> None:
    """A job of two minutes asks for its signal 110 s before their end (Slurm may be a minute early, and then waits for
    the job to run). It would take many times as long, and is ended once it has begun again."""
    endless = (*LONG[:2], "--rounds", "1000000", *LONG[4:])
    words = ("--time=2", "--signal=B:USR1@110", "scripts/slurm/requeue.sbatch")
    job = slurm.submit(*words, *endless, folder=submission)
    wait_for(lambda: slurm.job(job).get("Restarts") == "1", 110, "the requeued job")
    assert "back to the queue" in output(submission)
    assert list((submission / f"deot-{job}-checkpoints").glob("*.checkpoint"))
    slurm.ask("scancel", str(job))
    assert slurm.finish(job) == ["CANCELLED"]
