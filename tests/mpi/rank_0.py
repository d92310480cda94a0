"""What one rank computes for all: a reference takes as long as the cores that nobody else uses."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from mpi4py import MPI


def on_rank_0(comm: MPI.Intracomm, compute: Callable[[], Any]) -> Any:
    """``compute`` on rank 0, told to all. Who waits sleeps: a blocking call would take the core that rank 0 needs."""
    found = compute() if comm.rank == 0 else None
    there = comm.Ibarrier()
    while not there.Test():
        time.sleep(0.002)
    return comm.bcast(found)
