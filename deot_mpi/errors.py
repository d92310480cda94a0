"""What can go wrong, and the exit code each kind of failure ends the program with."""

from __future__ import annotations

from mpi4py import MPI


class DeotError(Exception):
    """A failure the program explains in one sentence instead of a traceback."""

    exit_code = 1
    everywhere = False
    """Whether other agents are about to raise it, too, without a word to each other."""


class InputError(DeotError):
    """The user's data, options or files cannot be used; the message says whose, what was received and the fix."""

    exit_code = 2


class StoppedError(DeotError):
    """Asked to stop, with checkpoints to go on from; all agents raise it together."""

    exit_code = 3


class MessageError(DeotError):
    """A message that cannot be what it should be; the message names who sent it."""


class AgentLostError(DeotError):
    """An agent's process has ended, as MPI found out (or another agent, who told all)."""


class AloneError(DeotError):
    """One agent has failed where the others go on without those who are lost: it must go, and leave them in peace."""


class NothingLeftError(DeotError):
    """So many agents are lost that there is nothing to compare; all who are left raise it."""

    comm: MPI.Intracomm | None = None
    """Of those who are left."""


class ExchangeTimeoutError(DeotError):
    """A message did not arrive in time; the message names the silent agents."""

    everywhere = True
