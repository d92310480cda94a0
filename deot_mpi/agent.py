"""Who is who: every rank is one agent of one role, and each role has its own communicator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from deot_mpi.errors import AgentLostError, InputError
from deot_mpi.exchange.losses import lost
from deot_mpi.roles import Role


@dataclass(frozen=True)
class Agents:
    """All agents of a job as one of them sees it (made by ``exchange.join``).

    ``comm`` is a duplicate of the caller's communicator, ``domain`` the communicator of this agent's own role. The
    index of an agent is its rank in ``domain``. Both are freed by ``free``.
    """

    comm: MPI.Intracomm
    domain: MPI.Intracomm
    role: Role
    ranks: dict[Role, NDArray[np.int64]]
    """The rank of every agent, by role and index."""
    left: dict[Role, NDArray[np.int64]]
    """What each agent is known as: its index when the job began, before any was lost."""

    @property
    def index(self) -> int:
        return self.domain.rank

    def count(self, role: Role) -> int:
        return int(self.ranks[role].size)

    @property
    def sources(self) -> int:
        return self.count(Role.SOURCE)

    @property
    def targets(self) -> int:
        return self.count(Role.TARGET)

    def rank_of(self, role: Role, index: int) -> int:
        return int(self.ranks[role][index])

    def known_as(self, role: Role, index: int) -> int:
        return int(self.left[role][index])

    @property
    def name(self) -> str:
        return f"{self.role.value} agent {self.known_as(self.role, self.index)}"

    def neighbour_name(self, index: int) -> str:
        return f"{self.role.other.value} agent {self.known_as(self.role.other, index)}"

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
        except (AgentLostError, MPI.Exception):
            lost.tell(self.comm, self.domain)
            raise
