"""An end for calls of MPI that have none: agreeing on who is left waits for all who are alive, stuck ones too. And an
end of the job, in turns."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from mpi4py import MPI

_LAST_SECONDS = 5.0
_TURN_SECONDS, _LAST_TURN_SECONDS = 0.5, 5.0


def wait_for_turn(comm: MPI.Intracomm) -> None:
    """Where all ranks know that it is over, they end the job in turns, the first that is left alone: of prterun 3.0.13,
    some hung for ever when all aborted at once."""
    time.sleep(min(_TURN_SECONDS * comm.rank, _LAST_TURN_SECONDS))


@contextmanager
def deadline(seconds: float, doing: str) -> Iterator[None]:
    """End the job, with a sentence, if the block takes longer."""

    def too_late() -> None:
        sys.stderr.write(f"deot_mpi: error: {doing} took more than {seconds:g} s; an agent is stuck, and all end.\n")
        sys.stderr.flush()
        wait_for_turn(MPI.COMM_WORLD)
        last = threading.Timer(_LAST_SECONDS, os._exit, [1])  # in case MPI is in no state to do it
        last.daemon = True
        last.start()
        MPI.COMM_WORLD.Abort(1)  # the only way that also ends the one who is stuck

    timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), too_late)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
