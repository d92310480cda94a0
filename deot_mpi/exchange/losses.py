"""What an error of MPI means where agents can be lost, and how those who have not noticed a loss are told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from mpi4py import MPI

from deot_mpi.errors import AgentLostError, DeotError, MessageError

_CLASSES = {MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED}
_NEWS_SECONDS, _LOOK_SECONDS = 2.0, 0.01
"""How long the word of a loss may take to get here (it took milliseconds), and how often to look for it."""


class Losses:
    """Whether another agent has found out that an agent is gone: it then revokes the communicator that all watch."""

    def __init__(self) -> None:
        self.watched: MPI.Intracomm | None = None

    def tell(self, *comms: MPI.Intracomm) -> None:
        """Where losses are watched for: let nobody wait in these for one who has left."""
        if self.watched is not None:
            for comm in comms:
                comm.Revoke()

    def check(self) -> None:
        if self.watched is not None and self.watched.Is_revoked():
            raise AgentLostError("an agent is gone, as another agent has found out.")

    def explain(self) -> bool:
        """Whether an error of any class may be that of a loss: one is known here, or word of it comes soon.

        Open MPI 5 ends a collective under way with the right class, but one that it starts in that moment with
        whatever class its schedule fails with (MPI_ERR_ARG was seen).
        """
        if self.watched is None:
            return False
        until = time.monotonic() + _NEWS_SECONDS
        while time.monotonic() < until:
            if self.watched.Is_revoked():
                return True
            failed = self.watched.Get_failed()
            gone = failed.size
            failed.Free()
            if gone:
                return True
            MPI.COMM_SELF.Iprobe()  # any call lets MPI take in what has come
            time.sleep(_LOOK_SECONDS)
        return False


lost = Losses()


@contextmanager
def losses_understood() -> Iterator[None]:
    """Calls of MPI that fail at once where a process is gone, said as those are that fail while waiting."""
    try:
        yield
    except MPI.Exception as error:
        raise understood_failure(error, (), lambda: "other agents") from error


def understood_failure(error: MPI.Exception, statuses: Sequence[MPI.Status], late: Callable[[], str]) -> DeotError:
    """What an error of MPI means: an agent is gone, or sent more than was asked for."""
    classes = {error.Get_error_class(), *(MPI.Get_error_class(status.Get_error()) for status in statuses)}
    if classes & _CLASSES:
        return AgentLostError("an agent is gone: its process ended without a word.")
    if MPI.ERR_TRUNCATE in classes:
        return MessageError(f"{late()} sent more bytes than were expected; it runs another program or is broken.")
    if lost.explain():
        return AgentLostError(f"an agent is gone, and MPI failed because of it ({error}).")
    return MessageError(f"MPI failed while waiting for {late()} ({error}).")
