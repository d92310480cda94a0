from __future__ import annotations

from collections.abc import Iterator

import pytest
from mpi4py import MPI


@pytest.fixture
def comm() -> Iterator[MPI.Intracomm]:
    """All ranks, on a communicator of the test's own; the barrier keeps tests of different ranks apart."""
    duplicate = MPI.COMM_WORLD.Dup()
    yield duplicate
    duplicate.Barrier()
    duplicate.Free()
