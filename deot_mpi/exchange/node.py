"""Which agents share a node: what each may use of it depends on that."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from deot_mpi.agent import Agents
from deot_mpi.exchange.ledger import Ledger
from deot_mpi.exchange.waiting import wait_all
from deot_mpi.kinds import Kind
from deot_mpi.roles import Role


def agents_on_node(agents: Agents, ledger: Ledger, timeout: float) -> dict[Role, int]:
    """The number of agents of each role that share memory (a node) with this one. Collective over all agents."""
    node = agents.comm.Split_type(MPI.COMM_TYPE_SHARED)
    counts = np.array([agents.role is role for role in Role], dtype=np.int64)
    ledger.collective(Kind.CONTROL, counts.nbytes)
    wait_all([node.Iallreduce(MPI.IN_PLACE, counts, MPI.SUM)], timeout, lambda: "the other agents of this node")
    node.Free()
    return {role: int(count) for role, count in zip(Role, counts, strict=True)}
