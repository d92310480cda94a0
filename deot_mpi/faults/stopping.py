"""Requests to stop, as a batch system or a person sends them: noticed, and acted on between rounds."""

from __future__ import annotations

import signal
from types import FrameType


class StopRequests:
    """Listens for SIGTERM (what Slurm sends to processes before time is up) and SIGUSR1 (which mpirun passes on)."""

    def __init__(self) -> None:
        self._asked = False
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._asked = True

    def release(self) -> None:
        """There is nothing to stop for any more: from now on (and for what was asked before) the signals end things."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        interrupt_on_request()
        if self._asked:
            signal.raise_signal(signal.SIGTERM)

    def __call__(self) -> bool:
        return self._asked


def interrupt_on_request() -> None:
    """Where nothing could be gone on from: what mpirun passes on to all ranks ends the run as Ctrl-C does.

    Left alone it would kill them, and a job that was started to survive losses then ends with code 0 and no result.
    """
    signal.signal(signal.SIGUSR1, signal.default_int_handler)
