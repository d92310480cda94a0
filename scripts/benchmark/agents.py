"""This project under mpirun: ``mpirun -n 4 python -m benchmark.agents problem.json '{"solver": "sinkhorn"}'``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from mpi4py import MPI
from processes import announce

import deot_mpi
from benchmark.problem import Given, blocks, further, judge
from deot_mpi.kinds import Kind
from deot_mpi.result import TracePoint


def main() -> None:
    given, options = Given.read(sys.argv[1]), json.loads(sys.argv[2])
    judged, again = options.pop("judged", True), options.pop("again", 0)
    comm = MPI.COMM_WORLD
    sources = comm.size // 2
    role = "source" if comm.rank < sources else "target"
    members, index = (sources, comm.rank) if role == "source" else (comm.size - sources, comm.rank - sources)
    mapped = given.rows(role)
    rows = np.array(mapped[blocks(len(mapped), members)[index]])
    del mapped
    defaults = {"kernel": "raw", "eps": given.eps, "tol": given.tol, "rounds": 100_000, "timeout": 3600.0}
    began = time.perf_counter()

    def solve() -> tuple[deot_mpi.EOTResult, float]:
        comm.Barrier()
        started = time.perf_counter()
        result = deot_mpi.eot(comm, rows, role, **{**defaults, **options})
        return result, time.perf_counter() - started

    first, first_total = solve()
    known = comm.bcast(first.seconds, root=0)
    later = sorted((solve() for _ in further(known, again)), key=lambda one: one[0].seconds)
    result, total = later[len(later) // 2] if later else (first, first_total)
    gathered = comm.gather(first.potential, root=0)
    if comm.rank == 0:
        f, g = np.concatenate(gathered[:sources]), np.concatenate(gathered[sources:])
        ledger = result.ledger
        announce(
            rounds=result.rounds,
            status=str(result.status),
            setup_seconds=result.setup_seconds,
            solve_seconds=result.seconds,
            values_seconds=result.values_seconds,
            round_seconds=_round_seconds(result.trace),
            total_seconds=total,
            first_seconds=first.seconds,
            first_total_seconds=first_total,
            peak_memory=sum(agent.peak_memory for agent in first.agents),
            working_seconds=sum(agent.working_seconds for agent in result.agents),
            round_bytes=sum(ledger.of(kind).bytes for kind in (Kind.POTENTIALS, Kind.CURVATURES))
            + ledger.of(Kind.CONTROL).collective_bytes,
            bytes=ledger.bytes,
            own_error=result.marginal_error,
            dual_objective=result.dual_objective,
            **(judge(given, f, g) if judged else {"regularised_cost": result.regularised_cost}),
            inside_seconds=time.perf_counter() - began,
        )


def _round_seconds(trace: Sequence[TracePoint]) -> float:
    """Seconds of one round between two checks, the median; the first check is left out, which builds the kernel."""
    pace = [(after.seconds - before.seconds) / (after.round - before.round) for before, after in pairwise(trace)]
    return float(np.median(pace)) if pace else float("nan")


if __name__ == "__main__":
    main()
