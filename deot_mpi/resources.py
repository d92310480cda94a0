"""What of its node an agent may use: threads and memory."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from threadpoolctl import threadpool_limits

_SHARE_OF_FREE_MEMORY = 0.5
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
_CGROUPS, _MEMBERSHIP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def usable_cores() -> set[int]:
    """The cores this process may run on (all, where the system does not say)."""
    try:
        return os.sched_getaffinity(0)
    except AttributeError:  # macOS
        return set(range(os.cpu_count() or 1))


def threads_for(cores: float) -> int:
    """Threads of an agent whose fair share of the node is this many cores: one once the node is full."""
    return max(1, int(cores + 1e-9))


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Linear algebra in one thread: one order of addition, and no more threads than cores where every rank computes.

    Also for libraries that are loaded meanwhile, which have settings from the environment: SciPy brings a BLAS of its
    own along, and is imported only where it is needed.
    """
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def memory_for(workers: int) -> float:
    """Bytes of kernel that one of ``workers`` agents may hold on this node: its share of half of what is free."""
    return _SHARE_OF_FREE_MEMORY * free_memory() / max(workers, 1)


def free_memory() -> float:
    """Bytes that this process may still take, on its node and in its control group."""
    return min(_free_on_node(), _free_in_group())


def _free_on_node() -> float:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):  # not Linux
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) / 2


def _free_in_group() -> float:
    """What containers and batch systems leave of the node: the limits of this process's control groups."""
    try:
        groups = [line.split(":", 2) for line in _MEMBERSHIP.read_text(encoding="utf-8").splitlines()]
    except OSError:
        return float("inf")
    free = float("inf")
    for _, controllers, path in groups:
        if controllers == "":  # version 2: one tree
            root, limit, used = _CGROUPS, "memory.max", "anon"
        elif "memory" in controllers.split(","):
            root, limit, used = _CGROUPS / "memory", "memory.limit_in_bytes", "total_rss"
        else:
            continue
        folder = root / path.lstrip("/")
        for level in (folder, *folder.parents):
            if level == root.parent:
                break
            free = min(free, _left(level, limit, used))
    return free


def _left(folder: Path, limit: str, used: str) -> float:
    try:
        allowed = (folder / limit).read_text(encoding="ascii").strip()
        statistics = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines())
        return float("inf") if allowed == "max" else max(0.0, float(allowed) - float(statistics.get(used, 0)))
    except (OSError, ValueError):
        return float("inf")


def peak_memory() -> int:
    """The largest memory this process has had, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
