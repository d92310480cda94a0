"""What of its node an agent may use: threads and memory."""

from __future__ import annotations

import os
import resource
import sys

_SHARE_OF_FREE_MEMORY = 0.5


def threads_for(workers: int) -> int:
    """Threads of one of ``workers`` agents that compute side by side on this node: one each once it is full.

    A process that its launcher has bound to some cores has these for itself.
    """
    usable, cores = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    return max(1, usable if usable < cores else cores // max(workers, 1))


def memory_for(workers: int) -> float:
    """Bytes of kernel that one of ``workers`` agents may hold on this node: its share of half of what is free."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        pass  # not Linux: pages that are free right now
    return _SHARE_OF_FREE_MEMORY * free / max(workers, 1)


def peak_memory() -> int:
    """The largest memory this process has had, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
