"""What one rank computes for all: a reference takes as long as the cores that nobody else uses."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from mpi4py import MPI


def wait_asleep(comm: MPI.Intracomm) -> None:
    """A barrier. A blocking one would take the core that the last rank needs."""
    there = comm.Ibarrier()
    while not there.Test():
        time.sleep(0.002)


def on_rank_0(comm: MPI.Intracomm, compute: Callable[[], Any]) -> Any:
    """``compute`` on rank 0, told to all."""
    found = compute() if comm.rank == 0 else None
    wait_asleep(comm)
    return comm.bcast(found)
