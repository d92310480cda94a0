"""What a result tells a reader beside its numbers."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

import deot_mpi


def notes(comm: MPI.Intracomm, columns: int, **options: object) -> str:
    rows = np.random.default_rng(comm.rank).normal(size=(5, columns))
    role = "source" if comm.rank == 0 else "target"
    return " ".join(deot_mpi.eot(comm, rows, role, rounds=2, timeout=60.0, **options).notes)


@pytest.mark.mpi(min_size=2, max_size=4)
def test_privacy_is_described_as_it_is(comm: MPI.Intracomm) -> None:
    assert "sends the targets' samples themselves to the sources" in notes(comm, 3, kernel="raw", eps=1.0)
    assert "sends the samples themselves" in notes(comm, 3, kernel="raw", eps=1.0, solver="kept")
    assert "Nothing is hidden" in notes(comm, 1, eps=1.0)
    assert "Q/D = 15 a neighbour that knows the projections recovers a typical row to within about 10 %" in notes(
        comm, 4, bits=60, eps=1.0
    )
    assert "which is no promise" in notes(comm, 4, bits=4, eps=1.0)


@pytest.mark.mpi(min_size=2, max_size=4)
def test_a_lone_agent_is_told_what_its_mean_gives_away(comm: MPI.Intracomm) -> None:
    assert "there is one source agent, so the mean of the domain" in notes(comm, 3)
    assert ("there are two target agents, so from the mean of the domain" in notes(comm, 3)) == (comm.size == 3)
    assert "there is one source agent" not in notes(comm, 3, eps=1.0)
    assert "two target agents" not in notes(comm, 3, eps=1.0)
    assert ("with two agents, the global mean" in notes(comm, 3, eps=1.0)) == (comm.size == 2)
    assert "mean" not in notes(comm, 3, eps=1.0, centre=False)


@pytest.mark.mpi(min_size=3, max_size=4)
def test_a_protocol_that_is_not_the_storage_protocol_is_named(comm: MPI.Intracomm) -> None:
    E = np.zeros((1, comm.size - 1))
    E[0, 0] = 1.0
    text = notes(comm, 3, eps=0.01, kernel="raw", protocol=E)
    assert "target agent(s) 1" in text
    assert "sigma = " in text
    assert "with tau measured on E's edges only" in text
    assert "tau is not positive" in notes(comm, 3, eps=1e3, kernel="raw", protocol=E)
