"""Ranks become agents by what their hosts have in common: a communicator in which rank k plays agent k."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from deot_mpi.exchange.join import read_for_all
from deot_mpi.exchange.ledger import Ledger
from deot_mpi.exchange.node import host_number
from deot_mpi.exchange.waiting import wait_all
from deot_mpi.options import Options
from deot_mpi.protocol import choose_protocol
from deot_mpi.protocol.choose import NAMES, read_protocol_file
from deot_mpi.protocol.placement import edge_traffic, placed


def place_agents(comm: MPI.Intracomm, sources: int, rows: int | None, options: Options) -> MPI.Intracomm:
    """A communicator of all ranks, sources first, in which the edges with most traffic stay on a host. Collective.

    ``rows`` are those of the agent that this rank would be without: a guide to what an edge will carry. If any rank
    cannot say (None), all agents count alike. Nothing but the traffic depends on it.
    """
    table = np.zeros((comm.size, 2), dtype=np.int64)
    table[comm.rank] = host_number(), rows or 0
    wait_all([comm.Iallreduce(MPI.IN_PLACE, table, MPI.SUM)], options.timeout, lambda: "the other ranks")
    _, hosts = np.unique(table[:, 0], return_inverse=True)
    counts = table[:, 1].astype(np.float64) if table[:, 1].all() else np.ones(comm.size)
    there = counts[:sources], counts[sources:]
    p, q = (count / count.sum() for count in there)
    E = choose_protocol(
        options.protocol, p, q, degree=options.degree, matched=options.match, seed=options.seed,
        text=protocol_text(comm, options),
    ).E  # fmt: skip
    traffic = edge_traffic(
        E, there, one_pass=options.solver == "sinkhorn", asked=options.neighbours, pairs=options.pairs is not None
    )
    ranks = placed(traffic, hosts.astype(np.int64))
    stage = comm.Split(0, int(np.flatnonzero(ranks == comm.rank)[0]))
    assert isinstance(stage, MPI.Intracomm)
    return stage


def protocol_text(comm: MPI.Intracomm, options: Options, ledger: Ledger | None = None) -> str | None:
    """The protocol file, where there is one, read by rank 0 alone."""
    wanted = options.protocol
    if not isinstance(wanted, str) or wanted in NAMES:
        return None
    return read_for_all(comm, lambda: read_protocol_file(wanted), options.timeout, ledger)
