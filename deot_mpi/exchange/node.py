"""Which agents share a node: what each may use of it depends on that."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from deot_mpi.agent import Agents
from deot_mpi.exchange.ledger import Ledger
from deot_mpi.exchange.waiting import wait_all
from deot_mpi.kinds import Kind
from deot_mpi.resources import usable_cores


@dataclass(frozen=True)
class NodeShare:
    """What an agent that computes may take of its node."""

    workers: int
    """Agents that compute on this node."""
    cores: float
    """This agent's cores, each divided by the number of computing agents that may run on it."""


def share_node(agents: Agents, works: bool, ledger: Ledger, timeout: float) -> NodeShare:
    """Find out who else computes on this node, and on which of its cores. Collective over all agents."""
    node = agents.comm.Split_type(MPI.COMM_TYPE_SHARED)
    own = [core for core in usable_cores() if core < core_count()]
    load = np.zeros(core_count() + 1, dtype=np.int64)
    if works:
        load[[*own, -1]] = 1
    ledger.collective(Kind.CONTROL, load.nbytes)
    wait_all([node.Iallreduce(MPI.IN_PLACE, load, MPI.SUM)], timeout, lambda: "the other agents of this node")
    node.Free()
    return NodeShare(int(load[-1]), float((1.0 / np.maximum(load[own], 1)).sum()))


def host_number() -> int:
    """The same for agents of one host and, in practice, for no others: 52 bits, which a float64 holds exactly. Names of
    hosts are not told."""
    name = MPI.Get_processor_name().encode()
    return 1 + (int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big") >> 12)


def core_count() -> int:
    return int(os.sysconf("SC_NPROCESSORS_CONF"))
