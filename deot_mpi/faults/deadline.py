"""An end for calls of MPI that have none: agreeing on who is left waits for all who are alive, stuck ones too."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def deadline(seconds: float, doing: str) -> Iterator[None]:
    """End this process, with a sentence, if the block takes longer: every agent has such a clock, so all end."""

    def too_late() -> None:
        sys.stderr.write(f"deot_mpi: error: {doing} took more than {seconds:g} s; an agent is stuck, and all end.\n")
        sys.stderr.flush()
        os._exit(1)

    timer = threading.Timer(seconds, too_late)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
