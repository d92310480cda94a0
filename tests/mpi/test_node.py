"""What an agent may take of its node, found out by the agents themselves."""

from __future__ import annotations

import pytest
from mpi4py import MPI

from deot_mpi.exchange.join import join
from deot_mpi.exchange.ledger import Ledger
from deot_mpi.exchange.node import share_node
from deot_mpi.resources import threads_for, usable_cores
from deot_mpi.roles import Role


@pytest.mark.mpi(min_size=2)
def test_cores_are_shared_among_the_agents_that_compute(comm: MPI.Intracomm) -> None:
    role = Role.SOURCE if comm.rank < comm.size // 2 or comm.rank == 0 else Role.TARGET
    agents = join(comm, role, Ledger(), 60.0)
    masks = comm.allgather((role, usable_cores()))  # one node in tests
    for works in (lambda one: one is Role.SOURCE, lambda one: True):
        share = share_node(agents, works(role), Ledger(), 60.0)
        loads = {core: sum(core in mask for one, mask in masks if works(one)) for core in usable_cores()}
        assert share.workers == sum(works(one) for one, _ in masks)
        assert share.cores == pytest.approx(sum(1 / max(load, 1) for load in loads.values()))
        threads = comm.allgather(threads_for(share.cores) if works(role) else 0)
        everybody = set().union(*(mask for _, mask in masks))
        assert sum(threads) <= max(len(everybody), share.workers), "more threads than cores"
    agents.free()
