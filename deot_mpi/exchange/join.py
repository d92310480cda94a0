"""Coming together: agreeing on what went wrong, on the options, and on who is who."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from deot_mpi.agent import Agents
from deot_mpi.errors import AgentLostError, InputError
from deot_mpi.exchange.ledger import Ledger
from deot_mpi.exchange.losses import lost
from deot_mpi.exchange.waiting import wait_all
from deot_mpi.kinds import Kind
from deot_mpi.roles import Role

PROTOCOL_VERSION = 5
"""Of what agents send each other, and in which order: changed whenever that changes."""


def join(
    comm: MPI.Intracomm,
    role: Role,
    ledger: Ledger,
    timeout: float,
    left: dict[Role, NDArray[np.int64]] | None = None,
) -> Agents:
    """Duplicate the communicator, tell each other the roles, and split by role. Collective over ``comm``.

    ``left``: what the agents are known as, where some were lost before.
    """
    own, request = comm.Idup()
    wait_all([request], timeout, lambda: "the other ranks")
    try:
        is_source = np.zeros(own.size, dtype=np.int8)
        is_source[own.rank] = role is Role.SOURCE
        ledger.collective(Kind.CONTROL, is_source.nbytes)
        wait_all([own.Iallreduce(MPI.IN_PLACE, is_source, MPI.SUM)], timeout, lambda: "the other ranks")
        ranks = {Role.SOURCE: np.flatnonzero(is_source), Role.TARGET: np.flatnonzero(is_source == 0)}
        for needed, members in ranks.items():
            if members.size == 0:
                own.Free()
                raise InputError(
                    f"none of the {is_source.size} rank(s) is a {needed.value} agent; a job needs at least one of each "
                    "role (two ranks or more)."
                )
        domain = own.Split(int(role is Role.TARGET), own.rank)
        assert isinstance(domain, MPI.Intracomm)
        return Agents(
            own, domain, role, ranks, left or {name: np.arange(members.size) for name, members in ranks.items()}
        )
    except (AgentLostError, MPI.Exception):
        lost.tell(own)
        raise


def agree(comm: MPI.Intracomm, error: str | None, timeout: float, ledger: Ledger | None = None) -> None:
    """Raise the same ``InputError`` on every rank if any has one: the lowest rank's sentence, and how many more."""
    failed = np.zeros(comm.size, dtype=np.int32)
    failed[comm.rank] = error is not None
    _count(ledger, failed)
    wait_all([comm.Iallreduce(MPI.IN_PLACE, failed, MPI.SUM)], timeout, lambda: "the other ranks")
    if not failed.any():
        return
    first = int(np.flatnonzero(failed)[0])
    others = int(failed.sum()) - 1 if not failed.all() else 0  # wrong everywhere: one mistake, not many
    text = broadcast_text(comm, error if comm.rank == first else None, first, timeout, ledger)
    more = {0: "", 1: " (One more agent has a problem, too.)"}.get(
        others, f" ({others} more agents have a problem, too.)"
    )
    raise InputError(text + more)


def counted(comm: MPI.Intracomm, own: NDArray[np.int64], timeout: float) -> NDArray[np.int64]:
    """The sums of all ranks' counts, on every rank."""
    sums = np.empty_like(own)
    wait_all([comm.Iallreduce(own, sums, MPI.SUM)], timeout, lambda: "the other ranks")
    return sums


def same_everywhere(comm: MPI.Intracomm, named: Mapping[str, object], timeout: float, ledger: Ledger) -> None:
    """Refuse to start when ranks were given different options: they would wait for messages nobody sends."""
    _same_program(comm, tuple(named), timeout, ledger)
    own = np.array([_digest(value) for value in named.values()], dtype=np.int64)
    extremes = np.concatenate([own, -own])
    _count(ledger, extremes)
    wait_all([comm.Iallreduce(MPI.IN_PLACE, extremes, MPI.MAX)], timeout, lambda: "the other ranks")
    largest, smallest = extremes[: own.size], -extremes[own.size :]
    differing = [name for name, high, low in zip(named, largest, smallest, strict=True) if high != low]
    if differing:
        raise InputError(
            f"the agents were started with different values of {', '.join(differing)}; give all of them the same."
        )


def _same_program(comm: MPI.Intracomm, names: tuple[str, ...], timeout: float, ledger: Ledger) -> None:
    """Versions and problems, before anything whose length depends on them."""
    own = [_digest(value) for value in (PROTOCOL_VERSION, names)]
    extremes = np.array(own + [-number for number in own], dtype=np.int64)
    _count(ledger, extremes)
    wait_all([comm.Iallreduce(MPI.IN_PLACE, extremes, MPI.MAX)], timeout, lambda: "the other ranks")
    if (extremes[:2] != -extremes[2:]).any():
        differing = "versions of deot_mpi" if extremes[0] != -extremes[2] else "problems (eot, gromov, adapt, audit)"
        raise InputError(
            f"the agents were started with different {differing}; rank {comm.rank} has protocol version "
            f"{PROTOCOL_VERSION}. Install the same version everywhere, and start the same command."
        )


def broadcast_text(
    comm: MPI.Intracomm, text: str | None, root: int, timeout: float, ledger: Ledger | None = None
) -> str:
    """One rank's text on every rank."""
    encoded = np.frombuffer((text or "").encode(errors="surrogateescape"), dtype=np.uint8)
    length = np.array([encoded.size], dtype=np.int64)
    wait_all([comm.Ibcast(length, root)], timeout, lambda: f"rank {root}")
    buffer = np.zeros(int(length[0]), dtype=np.uint8)
    if comm.rank == root:
        buffer[:] = encoded
        _count(ledger, length)
        _count(ledger, buffer)
    wait_all([comm.Ibcast(buffer, root)], timeout, lambda: f"rank {root}")
    return buffer.tobytes().decode(errors="surrogateescape")


def read_for_all(comm: MPI.Intracomm, read: Callable[[], str], timeout: float, ledger: Ledger | None = None) -> str:
    """What rank 0 reads, on every rank; if it cannot, all raise its sentence."""
    text, error = None, None
    if comm.rank == 0:
        try:
            text = read()
        except InputError as caught:
            error = str(caught)
    agree(comm, error, timeout, ledger)
    return broadcast_text(comm, text, 0, timeout, ledger)


def _digest(value: object) -> int:
    """62 bits that differ when the values do."""
    text = value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 2


def _count(ledger: Ledger | None, buffer: NDArray[np.generic]) -> None:
    if ledger is not None:
        ledger.collective(Kind.CONTROL, buffer.nbytes)
