"""Who is who: every rank is one agent of one role, and each role has its own communicator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from mpi4py import MPI

from deot_mpi.errors import InputError
from deot_mpi.roles import Role
from deot_mpi.waiting import wait_all


class Agents:
    """All agents of a job as one of them sees it.

    ``comm`` is a duplicate of the caller's communicator, ``domain`` the communicator of this agent's own role. The
    index of an agent is its rank in ``domain``. Both are freed by ``free``.
    """

    def __init__(self, comm: MPI.Intracomm, role: Role, timeout: float) -> None:
        self.role, self.timeout = role, timeout
        self.comm = comm.Dup()
        is_source = np.zeros(self.comm.size, dtype=np.int8)
        is_source[self.comm.rank] = role is Role.SOURCE
        request = self.comm.Iallreduce(MPI.IN_PLACE, is_source, MPI.SUM)
        wait_all([request], timeout, lambda: "the other ranks")
        self._ranks = {Role.SOURCE: np.flatnonzero(is_source), Role.TARGET: np.flatnonzero(is_source == 0)}
        for needed in Role:
            if self.count(needed) == 0:
                self.comm.Free()
                raise InputError(
                    f"none of the {is_source.size} rank(s) is a {needed.value} agent; a job needs at least one of each "
                    "role (two ranks or more)."
                )
        self.domain = self.comm.Split(int(role is Role.TARGET), self.comm.rank)
        self.index = self.domain.rank

    def count(self, role: Role) -> int:
        return int(self._ranks[role].size)

    @property
    def sources(self) -> int:
        return self.count(Role.SOURCE)

    @property
    def targets(self) -> int:
        return self.count(Role.TARGET)

    def rank_of(self, role: Role, index: int) -> int:
        return int(self._ranks[role][index])

    @property
    def name(self) -> str:
        return f"{self.role.value} agent {self.index}"

    def neighbour_name(self, index: int) -> str:
        return f"{self.role.other.value} agent {index}"

    def free(self) -> None:
        self.domain.Free()
        self.comm.Free()

    @contextmanager
    def freed_on_error(self) -> Iterator[None]:
        """Free the communicators if the input is rejected: that is agreed on, so all ranks leave together.

        After any other error the others may still be using them; the job is ending then.
        """
        try:
            yield
        except InputError:
            self.free()
            raise
