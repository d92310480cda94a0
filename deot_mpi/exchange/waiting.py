"""Waiting for requests without hanging and without burning the core another rank needs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from mpi4py import MPI

from deot_mpi.errors import ExchangeTimeoutError

_EAGER_POLLS = 20
"""Polls that only yield the core: most messages of a round are there by then."""
_NAP_SECONDS = 50e-6
_LONGEST_NAP_SECONDS = 2e-3


_abandoned: list[MPI.Request] = []
"""Requests that were waited for in vain. MPI may still write into their buffers, so they must outlive the failure."""


def wait_all(requests: Sequence[MPI.Request], timeout: float, late: Callable[[], str]) -> None:
    """Complete all requests, or raise ``ExchangeTimeoutError`` after ``timeout`` seconds.

    A blocking MPI wait spins: with more ranks than cores it holds the core its partner needs (100 times slower
    rounds) unless the MPI was told so, and it never ends when a partner is stuck. Polling does neither.
    ``late`` says, once it is too late, who was being waited for.
    """
    pending = list(requests)
    if not pending:
        return
    nap, polls, deadline = _NAP_SECONDS, 0, time.monotonic() + timeout
    while not MPI.Request.Testall(pending):
        polls += 1
        if polls < _EAGER_POLLS:
            os.sched_yield()
            continue
        if time.monotonic() > deadline:
            _abandoned.extend(pending)
            raise ExchangeTimeoutError(f"no message within {timeout:g} s from {late()}; it may be stuck or gone.")
        time.sleep(nap)
        nap = min(_LONGEST_NAP_SECONDS, nap * 1.5)
