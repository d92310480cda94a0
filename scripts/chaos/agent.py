"""``deot_mpi.run`` with a fault in it: one or more ranks misbehave at a given call of MPI, as a plan says.

Started by mpirun in place of ``-m deot_mpi.run``; the plan is JSON in the environment variable DEOT_CHAOS: a list of
{rank, call, fault}. Calls are counted from the first that sends or waits once the program has started, so a fault falls
at the same place in every run. ``{"fault": "count"}`` makes rank 0 say at the end how many there were.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import signal
import sys
import time
from typing import Any

import numpy as np
from mpi4py import MPI

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}
SPOILING = ("short", "nan")
SLOW_SECONDS = 0.02


def spoilable(buffer: Any, fault: str) -> bool:
    return isinstance(buffer, np.ndarray) and buffer.size > 0 and (fault == "short" or buffer.dtype.kind == "f")


class Plan:
    """The faults of this rank, and how many calls it has made."""

    def __init__(self) -> None:
        planned = json.loads(os.environ.get("DEOT_CHAOS", "[]"))
        self.counting = any(one["fault"] == "count" for one in planned)
        self.faults = [one for one in planned if one.get("rank") == MPI.COMM_WORLD.rank]
        self.calls = 0
        for one in self.faults:
            if one["fault"] == "full":  # as a full disk: files of this process end early
                resource.setrlimit(resource.RLIMIT_FSIZE, (one["bytes"], resource.RLIM_INFINITY))

    def due(self, buffer: Any = None) -> str | None:
        """The fault of this call, if it has one; what spoils messages waits for one that it can spoil."""
        self.calls += 1
        for one in self.faults:
            if one["fault"] == "slow":
                time.sleep(SLOW_SECONDS)
            elif one["fault"] in SPOILING and self.calls >= one["call"] and not one.get("done"):
                if spoilable(buffer, one["fault"]):
                    one["done"] = True
                    return str(one["fault"])
            elif one.get("call") == self.calls:
                return str(one["fault"])
        return None

    def act(self, fault: str | None) -> None:
        if fault in SIGNALS:
            os.kill(os.getpid(), SIGNALS[fault])
        elif fault == "raise":
            raise RuntimeError("as planned")
        elif fault == "exit":
            os._exit(1)


plan = Plan()


def spoilt(buffer: Any, fault: str | None) -> Any:
    """What a broken agent sends instead of an array: too little of it, or numbers that are none."""
    if fault == "short":
        return np.ascontiguousarray(buffer.ravel()[: buffer.size // 2])
    return np.full_like(buffer, np.nan) if fault == "nan" else buffer


class FaultyRequest(MPI.Prequest):
    """A persistent send whose content may be spoilt when it is started."""

    buffer: Any = None
    shortened = False

    def Start(self) -> None:  # noqa: N802
        fault = plan.due(None if self.shortened else self.buffer)
        plan.act(fault)
        if fault == "nan":
            self.buffer[...] = np.nan
        super().Start()


class FaultyComm(MPI.Intracomm):
    """Counts the calls that send, and does to them what the plan says."""

    def Isend(self, buf, dest, tag=0):  # type: ignore[no-untyped-def]  # noqa: N802
        fault = plan.due(buf)
        plan.act(fault)
        return super().Isend(spoilt(buf, fault), dest, tag)

    def Send_init(self, buf, dest, tag=0):  # type: ignore[no-untyped-def]  # noqa: N802
        fault = plan.due(buf) if any(one["fault"] == "short" for one in plan.faults) else None
        request = FaultyRequest(super().Send_init(spoilt(buf, fault), dest, tag))
        request.buffer, request.shortened = buf, fault == "short"
        return request

    def Shrink(self):  # type: ignore[no-untyped-def]  # noqa: N802
        return FaultyComm(super().Shrink())

    def Iallreduce(self, sendbuf, recvbuf, op=MPI.SUM):  # type: ignore[no-untyped-def]  # noqa: N802
        plan.act(plan.due())
        return super().Iallreduce(sendbuf, recvbuf, op)

    def Ireduce(self, sendbuf, recvbuf, op=MPI.SUM, root=0):  # type: ignore[no-untyped-def]  # noqa: N802
        plan.act(plan.due())
        return super().Ireduce(sendbuf, recvbuf, op, root)

    def Ibcast(self, buf, root=0):  # type: ignore[no-untyped-def]  # noqa: N802
        plan.act(plan.due())
        return super().Ibcast(buf, root)


def main() -> int:
    faulthandler.register(signal.SIGUSR2)  # says where it hangs, if it does
    from deot_mpi.run import main as run

    code = run(sys.argv[1:], FaultyComm(MPI.COMM_WORLD))
    if plan.counting:
        print(f"CALLS {MPI.COMM_WORLD.rank} {plan.calls}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
