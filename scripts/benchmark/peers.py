"""One centralised peer in a process of its own: ``python -m benchmark.peers NAME problem.json``.

Each is given the samples in memory, and runs to the asked L1 marginal error as nearly as its own stopping rule allows;
what it reached is judged from its potentials, outside the clock.
"""

from __future__ import annotations

import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

import numpy as np
from processes import announce

from benchmark.problem import Given, further, judge

MOST_ROUNDS = 100_000


@dataclass(frozen=True)
class Answer:
    """What a peer found: potentials, how often it went round, and its seconds for the cost matrix and for solving."""

    imported: float
    """The clock when all modules were there."""
    f: np.ndarray
    g: np.ndarray
    rounds: int | None
    cost_seconds: float
    first_seconds: float
    peak_memory: int
    """After the first solve."""
    again: Callable[[], object]
    """One more solve."""
    compile_seconds: float = 0.0


class TooLongError(Exception):
    """One solve took longer than allowed."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """For one solve, where the library comes back to Python now and then."""

    def over(*_: object) -> None:
        raise TooLongError

    signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def pot(method: str) -> Callable[[Given], Answer]:
    def solve(given: Given) -> Answer:
        import ot

        imported = time.perf_counter()
        x, y = (np.array(given.rows(domain)) for domain in ("source", "target"))
        a, b = np.full(len(x), 1 / len(x)), np.full(len(y), 1 / len(y))
        started = time.perf_counter()
        cost = ot.dist(x, y)
        cost_seconds = time.perf_counter() - started
        threshold = given.tol
        while True:
            started = time.perf_counter()
            work = partial(
                ot.sinkhorn, a, b, cost, given.eps, method=method, stopThr=threshold, numItermax=MOST_ROUNDS, log=True,
                warn=False,
            )  # fmt: skip
            with time_limit(given.limit):
                plan, log = work()
            first_seconds, peak = time.perf_counter() - started, peak_memory()
            del plan  # not in memory twice, should it be solved again
            log_u, log_v = (log["log_u"], log["log_v"]) if "log_u" in log else (np.log(log["u"]), np.log(log["v"]))
            f, g = given.eps * (log_u - np.log(a)), given.eps * (log_v - np.log(b))
            # POT compares an L2 norm with stopThr, so a threshold that gives the L1 error is looked for from above; the
            # first run that reaches it counts, the others are forgotten.
            reached = judge(given, f, g)["l1_error"]
            if reached <= given.tol or log["niter"] >= MOST_ROUNDS - 1:
                return Answer(imported, f, g, int(log["niter"]) + 1, cost_seconds, first_seconds, peak, work)
            threshold *= 0.95 * given.tol / reached

    return solve


def geomloss(given: Given) -> Answer:
    import torch
    from geomloss import SamplesLoss

    imported = time.perf_counter()
    # Its cost is |x-y|^2/2 and its eps is blur^2: rows times sqrt(2) make the cost ours.
    x, y = (torch.from_numpy(np.sqrt(2.0) * given.rows(domain)) for domain in ("source", "target"))
    loss = SamplesLoss(
        "sinkhorn", p=2, blur=float(np.sqrt(given.eps)), scaling=0.9, debias=False, potentials=True,
        backend="tensorized",
    )  # fmt: skip
    started = time.perf_counter()
    f, g = loss(x, y)
    done = time.perf_counter()
    again = partial(loss, x, y)
    return Answer(imported, f.numpy().ravel(), g.numpy().ravel(), None, 0.0, done - started, peak_memory(), again)


def ott(double: bool) -> Callable[[Given], Answer]:
    return lambda given: _ott(given, double)


def _ott(given: Given, double: bool) -> Answer:
    import jax

    jax.config.update("jax_enable_x64", double)
    import jax.numpy as jnp
    from ott.geometry import pointcloud
    from ott.problems.linear import linear_problem
    from ott.solvers.linear import sinkhorn

    imported = time.perf_counter()
    x, y = (jnp.asarray(np.array(given.rows(domain))) for domain in ("source", "target"))
    solver = jax.jit(sinkhorn.Sinkhorn(threshold=given.tol, norm_error=1, max_iterations=MOST_ROUNDS))
    problem = linear_problem.LinearProblem(pointcloud.PointCloud(x, y, epsilon=given.eps))
    started = time.perf_counter()
    lowered = solver.lower(problem).compile()

    def again() -> tuple[np.ndarray, np.ndarray, int]:
        out = lowered(problem)
        f, g = (np.asarray(jax.block_until_ready(part), dtype=np.float64) for part in (out.f, out.g))
        return f, g, int(np.asarray(out.n_iters))

    ready = time.perf_counter()
    f, g, rounds = again()
    done, peak = time.perf_counter(), peak_memory()
    n, m = len(f), len(g)
    # Its plan is exp((f + g - c)/eps) without the weights.
    f, g = f + given.eps * np.log(n), g + given.eps * np.log(m)
    return Answer(imported, f, g, rounds, 0.0, done - ready, peak, again, ready - started)


PEERS: dict[str, tuple[str, Callable[[Given], Answer]]] = {
    "POT sinkhorn": ("ot", pot("sinkhorn")),
    "POT sinkhorn_log": ("ot", pot("sinkhorn_log")),
    "GeomLoss": ("geomloss", geomloss),
    "OTT-JAX float32": ("ott", ott(double=False)),
    "OTT-JAX float64": ("ott", ott(double=True)),
}


def installed(name: str) -> bool:
    return find_spec(PEERS[name][0]) is not None


def main() -> None:
    name, path = sys.argv[1:]
    given = Given.read(path)
    try:
        answer = PEERS[name][1](given)
    except TooLongError:
        announce(over_limit=True, limit=given.limit)
        return
    later = sorted(_seconds(answer.again) for _ in further(answer.first_seconds))
    announce(
        rounds=answer.rounds,
        setup_seconds=answer.cost_seconds,
        first_seconds=answer.first_seconds,
        solve_seconds=later[len(later) // 2] if later else answer.first_seconds,
        compile_seconds=answer.compile_seconds,
        peak_memory=answer.peak_memory,
        **judge(given, answer.f, answer.g),
        inside_seconds=time.perf_counter() - answer.imported - answer.compile_seconds,
    )


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
