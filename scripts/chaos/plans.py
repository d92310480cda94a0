"""What is tried: problems, faults and their moments, drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

SAMPLES, DIMENSION = 96, 3
KINDS = {
    "lose": 0.36, "abort": 0.08, "stuck": 0.05, "raise": 0.06, "short": 0.06, "nan": 0.06, "full": 0.05, "slow": 0.05,
    "stop": 0.08, "crash": 0.09, "torn": 0.06,
}  # fmt: skip
"""Faults and how often they are drawn. lose: ranks killed, the others go on; abort: the same without ULFM; stuck: a
rank stopped for good; raise: an error in the program; short, nan: broken messages; full: no room for checkpoints; slow;
stop: asked to stop and resumed; crash: all killed and resumed; torn: the same, and the last checkpoint cut short."""
RESUMED = ("stop", "crash", "torn")
_PROTOCOLS = ("uniform", "uniform", "ring", "sparse")


@dataclass(frozen=True)
class Problem:
    """A run without its fault."""

    ranks: int
    sources: int
    kernel: str
    protocol: str
    solver: str
    eps: float
    every: int = 5

    def arguments(self) -> list[str]:
        named = {
            "sources": self.sources, "kernel": self.kernel, "protocol": self.protocol, "solver": self.solver,
            "eps": self.eps, "samples": SAMPLES, "dim": DIMENSION, "bits": 256, "tol": 1e-11, "rounds": 20_000,
            "progress": "none",
        }  # fmt: skip
        words = [word for name, value in named.items() for word in (f"--{name}", str(value))]
        return [*words, "--no-centre"]  # so that POT can be given the same sketches of those who are left


@dataclass(frozen=True)
class Plan:
    number: int
    kind: str
    problem: Problem
    faults: tuple[dict[str, Any], ...]

    @property
    def ranks(self) -> set[int]:
        return {int(one["rank"]) for one in self.faults}


def draw_problem(rng: np.random.Generator, kind: str) -> Problem:
    ranks = int(rng.choice([4, 5, 6, 8, 12, 16], p=[0.3, 0.2, 0.2, 0.15, 0.1, 0.05]))
    sources = int(rng.integers(2, ranks - 1))
    solver = str(rng.choice(["sinkhorn", "kept"], p=[0.75, 0.25]))
    protocol = str(rng.choice(_PROTOCOLS))
    return Problem(
        ranks, sources, str(rng.choice(["raw", "sketch"])), protocol, solver, 0.3 if kind in RESUMED else 2.0,
        int(rng.integers(2, 12)),
    )  # fmt: skip


def draw_plan(
    seed: int, number: int, calls: dict[Problem, int], count: Callable[[Problem], int], kinds: set[str] | None = None
) -> Plan | None:
    """The plan of this number; None if its fault is none of ``kinds``.

    ``count`` says how many calls a problem makes without a fault; ``calls`` keeps what it said.
    """
    rng = np.random.default_rng([seed, number])
    kind = str(rng.choice(list(KINDS), p=list(KINDS.values())))
    if kinds is not None and kind not in kinds:
        return None
    problem = draw_problem(rng, kind)
    if problem not in calls:
        calls[problem] = count(problem)
    total = calls[problem]
    victims = [int(rank) for rank in rng.permutation(problem.ranks)]
    if kind in ("crash", "torn"):
        chosen = victims
    else:
        chosen = victims[: 1 if kind != "lose" else int(rng.choice([1, 1, 1, 2, 3]))]
    first, last = {"short": (1, total // 4), **dict.fromkeys(RESUMED, (total // 3, total))}.get(kind, (1, total))
    moment = int(rng.integers(first, last + 1))
    fault = {"lose": "kill", "abort": "kill", "stuck": "stop", "stop": "term", "crash": "kill", "torn": "kill"}
    faults = []
    for rank in chosen:
        if kind == "lose":
            moment = int(rng.integers(1, total + 1))
        one: dict[str, Any] = {"rank": rank, "call": moment, "fault": fault.get(kind, kind)}
        if kind == "full":
            one["bytes"] = int(rng.integers(0, 3000))
        faults.append(one)
    return Plan(number, kind, problem, tuple(faults))
