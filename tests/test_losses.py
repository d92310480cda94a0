"""Jobs that are started to survive losses: what an error of MPI is taken for, and that they can be ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from launch import MPIRUN

JOB = """
import os, signal, sys, time
from mpi4py import MPI
from deot_mpi.exchange.losses import lost, understood_failure

comm = MPI.COMM_WORLD
if comm.rank:
    comm.Recv(bytearray(1), 0)
    os.kill(os.getpid(), signal.SIGKILL)
means = lambda: type(understood_failure(MPI.Exception(MPI.ERR_ARG), (), lambda: "nobody")).__name__
said = [means()]
lost.watched = comm
said.append(means())
comm.Send(b"x", 1)
said.append(means())
print(*said, flush=True)
os._exit(0)
"""
"""The second rank waits to be told, and dies."""


ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
SURVIVING = [str(MPIRUN), "--with-ft", "ulfm", "-n", "2", sys.executable]
pytestmark = pytest.mark.skipif(not MPIRUN.exists(), reason="no mpirun in this environment (make setup brings one)")


def test_an_error_of_any_class_is_a_loss_once_a_rank_is_gone(tmp_path: Path) -> None:
    ended = subprocess.run(
        [*SURVIVING, "-c", JOB], env=ENVIRONMENT, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.stdout.split() == ["MessageError", "MessageError", "AgentLostError"], ended.stderr


def test_a_request_to_stop_without_checkpoints_does_not_look_like_success(tmp_path: Path) -> None:
    """mpirun passes SIGUSR1 on to all ranks. If it killed them, such a job would end with 0 and no result."""
    endless = ["--samples", "20", "--tol", "0", "--rounds", "1000000", "--progress", "plain", "--json", "result.json"]
    command = [*SURVIVING, "-m", "deot_mpi.run", "--on-failure", "continue", *endless]
    job = subprocess.Popen(command, env=ENVIRONMENT, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    killer = threading.Timer(60, job.kill)
    killer.start()
    assert job.stdout is not None
    said = b""
    for line in job.stdout:
        if b"round 1/" in line:
            job.send_signal(signal.SIGUSR1)
        said += line
    killer.cancel()
    assert (job.wait(), b"rank 0 was interrupted" in said) == (130, True), said.decode(errors="replace")
    assert not (tmp_path / "result.json").exists()
