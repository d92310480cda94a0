"""Waiting for requests without hanging and without burning the core another rank needs."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from mpi4py import MPI

from deot_mpi.errors import ExchangeTimeoutError

_EAGER_POLLS = 20
"""Polls that only yield the core: most messages of a round are there by then."""
_NAP_SECONDS = 50e-6
_LONGEST_NAP_SECONDS = 2e-3
_NAP_SHARE = 0.05
"""Naps are at most this share of the wait so far: who waits long may be woken late, by as little."""


_abandoned: list[MPI.Request] = []
"""Requests that were waited for in vain. MPI may still write into their buffers, so they must outlive the failure."""


@dataclass
class Waited:
    """What this process has spent waiting for others since it started."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0


waited = Waited()


def wait_all(requests: Sequence[MPI.Request], timeout: float, late: Callable[[], str]) -> None:
    """Complete all requests, or raise ``ExchangeTimeoutError`` after ``timeout`` seconds.

    A blocking MPI wait spins: with more ranks than cores it holds the core its partner needs (100 times slower
    rounds) unless the MPI was told so, and it never ends when a partner is stuck. Polling does neither.
    ``late`` says, once it is too late, who was being waited for.
    """
    pending = list(requests)
    if pending:
        _poll(lambda: MPI.Request.Testall(pending), pending, timeout, late)


def arrivals(
    requests: Sequence[MPI.Request], timeout: float, late: Callable[[], str], patience: float
) -> Iterator[list[int]]:
    """Places of the requests that have completed, batch by batch, until all have; waits as ``wait_all`` does.

    A batch is given away ``patience`` seconds after its first arrival, or as soon as nothing more is expected.
    """
    pending, left = list(requests), len(requests)
    while left:
        batch: list[int] = []

        def enough(wanted: int, batch: list[int] = batch) -> bool:
            batch.extend(MPI.Request.Testsome(pending) or ())
            return len(batch) >= wanted

        _poll(partial(enough, 1), pending, timeout, late)
        _poll(partial(enough, left), pending, timeout, late, patience)
        left -= len(batch)
        yield sorted(batch)


def _poll(
    done: Callable[[], bool],
    pending: list[MPI.Request],
    timeout: float,
    late: Callable[[], str],
    patience: float = math.inf,
) -> None:
    """Ask until it is done, at most for ``patience`` seconds; an error after ``timeout``."""
    if done():
        return
    started, cpu_started, polls = time.monotonic(), time.thread_time(), 0
    try:
        while not done():
            polls += 1
            so_far = time.monotonic() - started
            if so_far > patience:
                return
            if so_far > timeout:
                _abandoned.extend(pending)
                raise ExchangeTimeoutError(f"no message within {timeout:g} s from {late()}; it may be stuck or gone.")
            if polls < _EAGER_POLLS:
                os.sched_yield()
            else:
                time.sleep(min(max(_NAP_SECONDS, _NAP_SHARE * so_far), _LONGEST_NAP_SECONDS))
    finally:
        waited.seconds += time.monotonic() - started
        waited.cpu_seconds += time.thread_time() - cpu_started
