"""One voice, no hangs: under mpirun only rank 0 reports, and the first failure on any rank ends the job."""

from __future__ import annotations

import json
import os
import sys
import time

import pytest

WITH_MPI = "--with-mpi" in sys.argv
SIZE, RANK = 1, 0
if WITH_MPI:
    from mpi4py import MPI

    SIZE, RANK = MPI.COMM_WORLD.size, MPI.COMM_WORLD.rank

_counts = {"passed": 0, "failed": 0, "skipped": 0}


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if RANK != 0:
        config.pluginmanager.getplugin("terminalreporter")._tw._file = open(os.devnull, "w")  # noqa: SIM115


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test for more ranks than there are belongs to another run of the suite: it is not here, rather than skipped."""
    if not WITH_MPI:
        return
    kept, others = [], []
    for item in items:
        marks = [mark.kwargs for mark in item.iter_markers("mpi")]
        fits = all(mark.get("min_size", 1) <= SIZE <= mark.get("max_size", SIZE) for mark in marks)
        (kept if marks and fits else others).append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = kept


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _counts["failed"] += 1
    elif report.skipped:
        _counts["skipped"] += 1
    elif report.when == "call":
        _counts["passed"] += 1
    if report.failed and SIZE > 1:
        _write_counts()
        text = f"\nFAILED on rank {RANK} of {SIZE}: {report.nodeid}\n{report.longreprtext}\n{report.capstderr}\n"
        os.write(2, text.encode())
        time.sleep(0.5)  # let the text leave before the job ends
        MPI.COMM_WORLD.Abort(1)


def pytest_internalerror(excrepr: object) -> None:
    if SIZE > 1:
        os.write(2, f"\npytest failed on rank {RANK} of {SIZE}\n{excrepr}\n".encode())
        time.sleep(0.5)
        MPI.COMM_WORLD.Abort(1)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if RANK == 0:
        _write_counts()
    if WITH_MPI and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK


def _write_counts() -> None:
    path = os.environ.get("DEOT_TEST_COUNTS")
    if path:
        with open(path, "w") as file:
            json.dump(_counts, file)
