"""What this machine and its links take, measured on the spot: ``mpirun -n 2 python -m scaling.probe links 50``.

``links``: messages to and fro between the first and the last rank. ``together``: what a round of the program sends, by
all ranks at once and without its work. ``kernel``: the program's own passes over kernels, on all ranks at once, as
agents do them. ``rounds``: processor time of a round in which there is hardly anything to compute. Messages are waited
for as the program waits, so that its polls and naps are in the latency.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI
from processes import announce
from threadpoolctl import threadpool_limits

import deot_mpi
from deot_mpi.exchange.waiting import wait_all, waited
from deot_mpi.kernel import RawKernel, SketchKernel, log_block
from deot_mpi.kernel.block import KernelBlock
from deot_mpi.kernel.rowblock import RowBlock
from deot_mpi.result import TracePoint
from deot_mpi.roles import Role
from deot_mpi.sketch import sketch
from deot_mpi.view import AgentView
from scaling.job import PERIOD, PROBED_SAMPLES, Job

TIMEOUT = 120.0
SIZES = (8, 1 << 10, 1 << 13, 1 << 15, 1 << 18, 1 << 20)
WIDTH = 4096


def _finish(requests: list[MPI.Request]) -> None:
    wait_all(requests, TIMEOUT, lambda: "a rank of the probe")


def links(comm: MPI.Intracomm, repeats: int) -> dict[str, dict[int, float]]:
    """Median seconds of one way between the first and the last rank, by bytes."""
    other, found = comm.size - 1 - comm.rank, {}
    for size in SIZES:
        buffer, seconds = np.zeros(size, dtype=np.uint8), []
        for _ in range(repeats + 2):  # the first ones connect, and open TCP's window
            started = time.perf_counter()
            if comm.rank == 0:
                _finish([comm.Isend(buffer, other)])
                _finish([comm.Irecv(buffer, other)])
            else:
                _finish([comm.Irecv(buffer, other)])
                _finish([comm.Isend(buffer, other)])
            seconds.append((time.perf_counter() - started) / 2)
        found[size] = float(np.median(seconds[2:]))
    return {"seconds": found}


def together(comm: MPI.Intracomm, repeats: int) -> dict[str, dict[int, float]]:
    """Median seconds of half a round, by bytes of a message: every target to every source, then back."""
    sources, found = comm.size // 2, {}
    source = comm.rank < sources
    others = range(sources, comm.size) if source else range(sources)
    for size in (8, 1 << 11, 1 << 13, 1 << 15):
        out, into = np.zeros(size, dtype=np.uint8), {k: np.zeros(size, dtype=np.uint8) for k in others}
        send, receive = [comm.Send_init(out, k) for k in others], [comm.Recv_init(into[k], k) for k in others]
        seconds = []
        for _ in range(repeats + 2):
            started = time.perf_counter()
            for half in (send, receive) if not source else (receive, send):
                MPI.Prequest.Startall(half)
                _finish(list(half))
            seconds.append((time.perf_counter() - started) / 2)
        found[size] = float(np.median(seconds[2:]))
        for request in (*send, *receive):
            request.Free()
        _finish([comm.Ibarrier()])
    return {"seconds": found}


def _median(work: Callable[[], object], times: int) -> float:
    """Processor seconds, so that what else the machine does counts less."""
    seconds = []
    for _ in range(times):
        started = time.thread_time()
        work()
        seconds.append(time.thread_time() - started)
    return float(np.median(seconds))


def _sweep_seconds(rows: RowBlock, times: int) -> float:
    """Processor seconds of a sweep, the mean of some with potentials that settle, by 0.3 a time: of a kernel in two
    halves, one or both are then read about as often as in a run."""
    direction, potential = np.cos(np.arange(WIDTH)), np.zeros(WIDTH)
    rows.sweep(potential)
    started = time.thread_time()
    for k in range(times):
        potential = potential + 0.3 ** (k % 9) * direction
        rows.sweep(potential)
    return (time.thread_time() - started) / times


def _row_block(kernel: RawKernel | SketchKernel, x: np.ndarray, y: np.ndarray, neighbours: int) -> RowBlock:
    ends = np.linspace(0, len(y), neighbours + 1).astype(int)
    columns = {j: slice(int(ends[j]), int(ends[j + 1])) for j in range(neighbours)}
    weights = np.full(len(y), -np.log(len(y)))
    pairs = kernel.pairs(kernel.show(x), kernel.show(y))
    return RowBlock(pairs, weights, columns, np.full(len(x), 1.0 / len(x)), 1.0, precision="float32", threads=1)


def kernel(comm: MPI.Intracomm, repeats: int, most: int) -> dict[str, object]:
    """Seconds per entry (number, bit) of the program's passes; the mean over ranks, which work at once."""
    rng = np.random.default_rng(comm.rank)
    sides = [rng.normal(size=(rows, 5)) for rows in (most // WIDTH, WIDTH)]
    raw, zero = RawKernel(1.0, 5), np.zeros(WIDTH)
    sweep, found = {}, {}
    for entries in [1 << k for k in range(16, most.bit_length(), 2)]:
        rows = _row_block(raw, sides[0][: entries // WIDTH], sides[1], 1)
        first = _median(lambda rows=rows: rows.sweep(zero), 1) / entries
        sweep[entries] = _sweep_seconds(rows, repeats) / entries
    found["raw"] = first - sweep[entries]
    own = np.zeros(len(sides[0]))
    found["evaluate"] = max(_median(lambda: rows.evaluate(own, zero, settle=True), 3) / entries - found["raw"], 0.0)
    x = sides[0][:128]
    one, many = (_row_block(raw, x, sides[1], neighbours) for neighbours in (1, 64))
    for block in (one, many):
        block.sweep(zero)
    extra = _median(lambda: many.sweep(zero), repeats) - _median(lambda: one.sweep(zero), repeats)
    found["slice"] = max(extra, 0.0) / 63  # 128 rows of this width are one chunk
    made = {}
    for bits in (256, 4096):
        rows = _row_block(SketchKernel(1.0, 5, bits, 0), x, sides[1], 1)
        made[bits] = _median(lambda rows=rows: (rows.release(), rows.sweep(zero)), 5) / (len(x) * WIDTH)
    slope = max(made[4096] - made[256], 0.0) / (4096 - 256)
    found["sketch_slope"], found["sketch_base"] = slope, made[256] - 256 * slope
    found["bits"] = _median(lambda: sketch(sides[1], 1024, 0, True), 3) / (1024 * WIDTH)
    found |= _kept(raw, sides[0][:512], sides[1][:2048], repeats)
    mean = {name: float(comm.allreduce(value)) / comm.size for name, value in found.items()}
    return {**mean, "sweep": {size: float(comm.allreduce(value)) / comm.size for size, value in sweep.items()}}


def _kept(raw: RawKernel, x: np.ndarray, y: np.ndarray, repeats: int) -> dict[str, float]:
    """Of the solver that keeps sums: making a block, summing over it, adding up neighbours' sums."""
    shares, entries = np.full(len(y), -np.log(len(y))), len(x) * len(y)
    zero, made = np.zeros(len(y)), []

    def make() -> None:
        made.append(KernelBlock(log_block(raw, raw.show(x), raw.show(y)), shares))
        made[-1].log_sums(zero)

    building = _median(make, 3) / entries
    summing = _median(lambda: made[-1].log_sums(zero), repeats) / entries
    neighbours = 16
    view = AgentView(Role.TARGET, 0, 1.0, np.ones(len(x)), dict.fromkeys(range(neighbours), 0.1), {})
    sums = dict.fromkeys(range(neighbours), np.linspace(-1, 1, len(x)))
    adding = _median(lambda: view.log_row_mass(sums), repeats) / (neighbours * len(x))
    return {"raw_block": building, "block": summing, "logsum": adding}


def rounds(comm: MPI.Intracomm, many: int, solver: str) -> dict[str, object]:
    """Processor seconds of an agent in a round without those of waiting, the mean of all agents; few samples each."""
    job = Job(comm.size, PROBED_SAMPLES, solver, 1 if solver == "kept" else None)
    role, index = (Role.SOURCE, comm.rank) if comm.rank < job.sources else (Role.TARGET, comm.rank - job.sources)
    rows = np.random.default_rng(comm.rank).normal(size=(int(job.sizes.counts[role][index]), job.dim))
    seen: list[tuple[int, float]] = []

    def note(point: TracePoint) -> None:
        seen.append((point.round, time.process_time() - waited.cpu_seconds))

    options = {"solver": solver, "neighbours": job.neighbours, "tol": 0.0, "rounds": many, "precision": "float64"}
    deot_mpi.eot(comm, rows, role.value, progress=note, **options)
    (first, before), (last, after) = next(one for one in seen if one[0] >= PERIOD), seen[-1]
    own = (after - before) / (last - first)
    return {"seconds": float(comm.allreduce(own)) / comm.size}


def main() -> None:
    what, repeats, comm = sys.argv[1], int(sys.argv[2]), MPI.COMM_WORLD
    with threadpool_limits(limits=1):
        if what == "kernel":
            found = kernel(comm, repeats, 1 << int(sys.argv[3]))
        elif what == "rounds":
            found = rounds(comm, repeats, sys.argv[3])
        else:
            found = {"links": links, "together": together}[what](comm, repeats)
    if comm.rank == 0:
        announce(**found)


if __name__ == "__main__":
    main()
