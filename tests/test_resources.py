"""Threads and memory: an agent's share of its node."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import deot_mpi.resources
from deot_mpi.resources import memory_for, peak_memory, threads_for


@pytest.mark.parametrize(
    ("cores", "expected"),
    [(8 / 2, 4), (1.0, 1), (2 / 16, 1), (sum([1 / 3] * 3), 1), (7 / 2, 3)],  # never more threads than cores
)
def test_threads_are_the_whole_cores_of_a_share(cores: float, expected: int) -> None:
    assert threads_for(cores) == expected


def test_one_thread_also_for_a_library_that_is_loaded_meanwhile() -> None:
    """SciPy's BLAS, in a process that has not loaded it; more than one thread where the machine has cores."""
    program = """
import os
from threadpoolctl import threadpool_info
from deot_mpi.resources import one_blas_thread
threads = lambda: {library["filepath"]: library["num_threads"] for library in threadpool_info()}
known = threads()
with one_blas_thread():
    import scipy.linalg
    print({*threads().values()}, len(threads()) > len(known))
print("OPENBLAS_NUM_THREADS" in os.environ)
"""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.splitlines() == ["{1} True", "False"]


def test_a_control_group_limits_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 2 as containers and batch systems write it: the tightest of the levels above counts."""
    unlimited = memory_for(1)
    (tmp_path / "job" / "step").mkdir(parents=True)
    for level, limit in ((tmp_path, "max"), (tmp_path / "job", "3000000"), (tmp_path / "job" / "step", "9000000")):
        (level / "memory.max").write_text(limit + "\n")
        (level / "memory.stat").write_text("anon 1000000\nfile 5000000\n")
    listing = tmp_path / "cgroup"
    listing.write_text("0::/job/step\n")
    monkeypatch.setattr(deot_mpi.resources, "_CGROUPS", tmp_path)
    monkeypatch.setattr(deot_mpi.resources, "_MEMBERSHIP", listing)
    assert memory_for(1) == 1_000_000.0  # half of what is left of 3 MB
    assert unlimited > memory_for(1)


def test_memory_is_a_share_of_what_is_free() -> None:
    alone, among_four = memory_for(1), memory_for(4)
    assert among_four == pytest.approx(alone / 4, rel=0.2)
    assert 0 < alone < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_peak_memory_grows_with_what_is_held() -> None:
    before = peak_memory()
    held = bytearray(60_000_000)
    assert peak_memory() >= before
    assert peak_memory() > len(held)
