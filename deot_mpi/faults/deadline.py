"""An end for calls of MPI that have none: agreeing on who is left waits for all who are alive, stuck ones too."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from mpi4py import MPI

_LAST_SECONDS = 5.0


@contextmanager
def deadline(seconds: float, doing: str) -> Iterator[None]:
    """End the job, with a sentence, if the block takes longer."""

    def too_late() -> None:
        sys.stderr.write(f"deot_mpi: error: {doing} took more than {seconds:g} s; an agent is stuck, and all end.\n")
        sys.stderr.flush()
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
