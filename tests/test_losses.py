"""What an error of MPI is taken for, in a job that loses a rank."""

from __future__ import annotations

import os
import subprocess
import sys
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


@pytest.mark.skipif(not MPIRUN.exists(), reason="no mpirun in this environment (make setup brings one)")
def test_an_error_of_any_class_is_a_loss_once_a_rank_is_gone(tmp_path: Path) -> None:
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = [str(MPIRUN), "--with-ft", "ulfm", "-n", "2", sys.executable, "-c", JOB]
    ended = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.stdout.split() == ["MessageError", "MessageError", "AgentLostError"], ended.stderr
