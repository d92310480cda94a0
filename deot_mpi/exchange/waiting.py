"""Waiting for requests without hanging and without burning the core another rank needs."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from mpi4py import MPI

from deot_mpi.errors import AgentLostError, ExchangeTimeoutError
from deot_mpi.exchange.losses import lost, understood_failure

_INSTANT_POLLS, _EAGER_POLLS = 2, 2000
"""Polls that keep the core, because MPI may need more than one to see what is already there; until there have been so
many in all, polls yield it, then come naps. Who naps is woken late where others compute: with 60 polls before naps,
solves of 36 ms (4 ranks on two cores) took 8 % longer in the median and a third longer in their slowest quarter, and 16
ranks (N = 8000) a quarter longer. Counted and not timed, since a yield takes long just where others want the core."""
_NAP_SECONDS = 50e-6
_LONGEST_NAP_SECONDS = 2e-3
_NAP_SHARE = 0.025
"""Naps are at most this share of the wait so far: who waits long may be woken late, by as little."""


_abandoned: list[MPI.Request] = []
"""Requests that were waited for in vain. MPI may still write into their buffers, so they must outlive the failure."""


def abandon(requests: Sequence[MPI.Request]) -> None:
    """Keep requests that will not be waited for, and their buffers."""
    _abandoned.extend(requests)


@dataclass
class Waited:
    """What this process has spent waiting for others since it started."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0


waited = Waited()


def wait_all(requests: Sequence[MPI.Request], timeout: float, late: Callable[[], str]) -> list[MPI.Status]:
    """Complete all requests, or raise ``ExchangeTimeoutError`` after ``timeout`` seconds. Says how each ended.

    A blocking MPI wait spins: with more ranks than cores it holds the core its partner needs (100 times slower
    rounds) unless the MPI was told so, and it never ends when a partner is stuck. Polling does neither.
    ``late`` says, once it is too late, who was being waited for.
    """
    pending, statuses = list(requests), [MPI.Status() for _ in requests]
    if pending:
        _poll(lambda: MPI.Request.Testall(pending, statuses), pending, statuses, timeout, late)
    return statuses


def arrived_within(request: MPI.Request, patience: float, late: Callable[[], str]) -> MPI.Status | None:
    """How the request ended, or None if it has not within ``patience`` seconds; it may be asked for again."""
    status, ended = MPI.Status(), []

    def done() -> bool:
        if request.Test(status):
            ended.append(status)
        return bool(ended)

    _poll(done, [request], [status], math.inf, late, patience)
    return ended[0] if ended else None


def arrivals(
    requests: Sequence[MPI.Request], timeout: float, late: Callable[[], str], patience: float
) -> Iterator[list[tuple[int, MPI.Status]]]:
    """Places of the requests that have completed and how, batch by batch, until all have; waits as ``wait_all`` does.

    A batch is given away ``patience`` seconds after its first arrival, or as soon as nothing more is expected.
    """
    pending, left = list(requests), len(requests)
    while left:
        batch: dict[int, MPI.Status] = {}
        statuses = [MPI.Status() for _ in pending]

        def enough(wanted: int, batch: dict[int, MPI.Status] = batch, ended: list[MPI.Status] = statuses) -> bool:
            for place, status in zip(MPI.Request.Testsome(pending, ended) or (), ended, strict=False):
                batch[place] = MPI.Status(status)
            return len(batch) >= wanted

        _poll(partial(enough, 1), pending, statuses, timeout, late)
        _poll(partial(enough, left), pending, statuses, timeout, late, patience)
        left -= len(batch)
        yield sorted(batch.items())


def _poll(
    done: Callable[[], bool],
    pending: list[MPI.Request],
    statuses: list[MPI.Status],
    timeout: float,
    late: Callable[[], str],
    patience: float = math.inf,
) -> None:
    """Ask until it is done, at most for ``patience`` seconds; an error after ``timeout``, or where MPI has one."""
    started, cpu_started, polls = time.monotonic(), time.thread_time(), 0
    try:
        while not done():
            lost.check()
            polls += 1
            so_far = time.monotonic() - started
            if so_far > patience:
                return
            if so_far > timeout:
                abandon(pending)
                raise ExchangeTimeoutError(f"no message within {timeout:g} s from {late()}; it may be stuck or gone.")
            if polls <= _INSTANT_POLLS:
                continue
            if polls < _EAGER_POLLS:
                os.sched_yield()
            else:
                time.sleep(min(max(_NAP_SECONDS, _NAP_SHARE * so_far), _LONGEST_NAP_SECONDS))
    except AgentLostError:
        abandon(pending)
        raise
    except MPI.Exception as error:
        abandon(pending)
        raise understood_failure(error, statuses, late) from error
    finally:
        waited.seconds += time.monotonic() - started
        waited.cpu_seconds += time.thread_time() - cpu_started
