"""The nearest distributed rivals, exact Sinkhorn in scaling form over the same ranks: ``Allgather`` and ``Star``.

The two synchronous schemes of 'Federated Sinkhorn' (arXiv 2502.07021), written from its description. They are given
the whole kernel's operands at the start, since both need every pair of samples somewhere: in Allgather every rank
keeps a block of rows and a block of columns of K, in Star one server keeps all of K and the others own marginals.
Run as ``mpirun -n 4 python -m benchmark.rivals star problem.json``.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI
from processes import announce
from threadpoolctl import threadpool_limits

from benchmark.problem import Given, blocks, judge, squared_distances

_MOST_ROUNDS, _CHECK_EVERY = 20_000, 10


class Scheme:
    """u and v in scaling form, with every agent's bytes counted as they are handed to MPI."""

    def __init__(self, comm: MPI.Intracomm, given: Given) -> None:
        self.comm, self.given, self.bytes = comm, given, 0
        self.x, self.y = given.rows("source"), given.rows("target")
        self.a, self.b = np.full(len(self.x), 1 / len(self.x)), np.full(len(self.y), 1 / len(self.y))
        self.u, self.v = np.ones(len(self.x)), np.ones(len(self.y))

    def kernel(self, rows: slice, columns: slice) -> np.ndarray:
        cost = squared_distances(np.asarray(self.x[rows]), np.asarray(self.y[columns]))
        cost /= -self.given.eps
        return np.exp(cost, out=cost)

    def solve(self) -> int:
        for round_ in range(1, _MOST_ROUNDS + 1):
            error = self.round(round_ % _CHECK_EVERY == 0)
            if error is not None and error <= self.given.tol:
                return round_
        return _MOST_ROUNDS

    def round(self, look: bool) -> float | None:
        raise NotImplementedError


class Allgather(Scheme):
    """Every rank updates its own block of u and of v, and all tell each other."""

    def __init__(self, comm: MPI.Intracomm, given: Given) -> None:
        super().__init__(comm, given)
        self.rows, self.columns = blocks(len(self.x), comm.size), blocks(len(self.y), comm.size)
        whole = slice(None)
        self.own_rows, self.own_columns = self.rows[comm.rank], self.columns[comm.rank]
        self.by_rows = self.kernel(self.own_rows, whole)
        self.by_columns = np.ascontiguousarray(self.kernel(whole, self.own_columns).T)

    def _gather(self, own: np.ndarray, whole: np.ndarray, parts: list[slice]) -> None:
        counts = [part.stop - part.start for part in parts]
        self.bytes += own.nbytes * (self.comm.size - 1)
        self.comm.Allgatherv(own, [whole, counts])

    def round(self, look: bool) -> float | None:
        self._gather(self.a[self.own_rows] / (self.by_rows @ self.v), self.u, self.rows)
        sums = self.by_columns @ self.u
        error = None
        if look:
            b = self.b[self.own_columns]
            own = np.array([np.abs(self.v[self.own_columns] * sums - b).sum()])
            self.comm.Allreduce(MPI.IN_PLACE, own)
            error = float(own[0])
        if error is None or error > self.given.tol:
            self._gather(self.b[self.own_columns] / sums, self.v, self.columns)
        return error


class Star(Scheme):
    """A server multiplies by K and K^T; the others own the marginals and divide."""

    def __init__(self, comm: MPI.Intracomm, given: Given) -> None:
        super().__init__(comm, given)
        clients = comm.size - 1
        self.parts = {len(self.x): blocks(len(self.x), clients), len(self.y): blocks(len(self.y), clients)}
        self.whole = self.kernel(slice(None), slice(None)) if comm.rank == 0 else None

    def _divide(self, marginal: np.ndarray, sums: np.ndarray | None) -> np.ndarray:
        """Clients get their part of the sums and send back marginal over sums; the server collects."""
        parts = self.parts[len(marginal)]
        counts = [0, *(part.stop - part.start for part in parts)]
        own = np.empty(counts[self.comm.rank])
        self.comm.Scatterv(None if sums is None else [sums, counts], own, root=0)
        if self.comm.rank:
            own = marginal[parts[self.comm.rank - 1]] / own
        whole = np.empty(len(marginal)) if self.comm.rank == 0 else None
        self.bytes += 8 * len(marginal) if self.comm.rank == 0 else own.nbytes
        self.comm.Gatherv(own, None if whole is None else [whole, counts], root=0)
        return marginal if whole is None else whole

    def round(self, look: bool) -> float | None:
        server = self.whole is not None
        self.u = self._divide(self.a, self.whole @ self.v if server else None)
        sums = self.whole.T @ self.u if server else None
        error = np.array([np.inf])
        if look:
            if server:
                error[0] = np.abs(self.v * sums - self.b).sum()
            self.comm.Bcast(error)
        if error[0] > self.given.tol:
            self.v = self._divide(self.b, sums)
        return float(error[0]) if look else None


RIVALS: dict[str, Callable[[MPI.Intracomm, Given], Scheme]] = {"allgather": Allgather, "star": Star}


def main() -> None:
    comm, given = MPI.COMM_WORLD, Given.read(sys.argv[2])
    comm.Barrier()
    started = time.perf_counter()
    alone = sys.argv[1] == "star" and comm.rank == 0  # the server does all the work, so it may use all cores
    with threadpool_limits(limits=os.cpu_count() if alone else 1):
        scheme = RIVALS[sys.argv[1]](comm, given)
        comm.Barrier()
        ready = time.perf_counter()
        rounds = scheme.solve()
        comm.Barrier()
    done = time.perf_counter()
    peak = comm.reduce(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    sent = comm.reduce(scheme.bytes)
    if comm.rank == 0:
        f, g = (given.eps * (np.log(s) - np.log(w)) for s, w in ((scheme.u, scheme.a), (scheme.v, scheme.b)))
        announce(
            rounds=rounds,
            setup_seconds=ready - started,
            solve_seconds=done - ready,
            peak_memory=peak,
            round_bytes=sent,
            **judge(given, f, g),
            inside_seconds=time.perf_counter() - started,
        )


if __name__ == "__main__":
    main()
