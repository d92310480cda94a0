from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from mpi4py import MPI
from rank_0 import wait_asleep


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of files that ``scripts/run_tests.py`` leaves to 4 ranks, only what these do not run."""
    files = set(os.environ.get("DEOT_LEFT_TO_FOUR", "").split(","))

    def left(item: pytest.Item) -> bool:
        mark = item.get_closest_marker("mpi")
        sizes = {} if mark is None else mark.kwargs
        return item.path.name in files and sizes.get("min_size", 1) <= 4 <= sizes.get("max_size", 4)

    config.hook.pytest_deselected(items=[item for item in items if left(item)])
    items[:] = [item for item in items if not left(item)]


@pytest.fixture
def comm() -> Iterator[MPI.Intracomm]:
    """All ranks, on a communicator of the test's own; nobody begins the next test before all are here."""
    duplicate = MPI.COMM_WORLD.Dup()
    yield duplicate
    wait_asleep(duplicate)
    duplicate.Free()
