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
        """Nobody will ask any more: from now on (and for what was asked before) the signals do what they always do."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        if self._asked:
            signal.raise_signal(signal.SIGTERM)

    def __call__(self) -> bool:
        return self._asked
