"""Every .sbatch file, submitted as it is to a Slurm of four nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster import SMALL, Slurm, numbers, read, wait_for

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


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_job_goes_back_to_the_queue_and_on_from_its_checkpoint(slurm: Slurm, submission: Path, launcher: str) -> None:
    """The signal is what Slurm sends when time runs out (--signal=B:USR1@120): to the script alone."""
    rounds = ("--tol", "0", "--rounds", "500", "--samples", "160", "--bits", "64")
    job = slurm.submit("scripts/slurm/requeue.sbatch", *rounds, folder=submission, DEOT_LAUNCHER=launcher)
    wait_for(lambda: "round 1/" in output(submission), 180, "the first round")
    slurm.ask("scancel", "--batch", "--signal=USR1", str(job))
    wait_for(lambda: slurm.job(job).get("Restarts") == "1", 60, "the requeued job")
    assert slurm.finish(job) == ["COMPLETED"], output(submission)
    result = read(submission / f"deot-{job}.json")
    assert 0 < result["resumed_from"] < result["rounds"] == 500
