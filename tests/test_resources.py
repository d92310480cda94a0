"""Threads and memory: an agent's share of its node."""

from __future__ import annotations

import os

import pytest

from deot_mpi.resources import memory_for, peak_memory, threads_for


@pytest.mark.parametrize(
    ("usable", "cores", "workers", "expected"),
    [
        (8, 8, 2, 4),  # two agents share eight cores
        (8, 8, 8, 1),
        (2, 2, 16, 1),  # never more threads than cores
        (4, 16, 2, 4),  # bound to four cores by the launcher: these are its own
        (1, 16, 2, 1),
    ],
)
def test_threads_share_the_node(
    usable: int, cores: int, workers: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(usable)))
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert threads_for(workers) == expected


def test_memory_is_a_share_of_what_is_free() -> None:
    alone, among_four = memory_for(1), memory_for(4)
    assert among_four == pytest.approx(alone / 4, rel=0.2)
    assert 0 < alone < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_peak_memory_grows_with_what_is_held() -> None:
    before = peak_memory()
    held = bytearray(60_000_000)
    assert peak_memory() >= before
    assert peak_memory() > len(held)
