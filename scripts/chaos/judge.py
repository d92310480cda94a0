"""What must come of a fault: a named end, and where there is a value, the right one (by POT, on those who are left)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from chaos.jobs import Ended
from chaos.plans import DIMENSION, SAMPLES, Plan, Problem
from deot_mpi.data.synthetic import SyntheticSet
from deot_mpi.kernel import RawKernel, SketchKernel, log_block
from deot_mpi.protocol import choose_protocol
from deot_mpi.reference import solve_pooled
from deot_mpi.roles import Role

TOLERANCE = 1e-8
BEFORE_IT_BEGINS = 10
"""Calls of MPI that the program makes before it watches for losses."""


@dataclass(frozen=True)
class Judgement:
    outcome: str
    """The named state it ended in."""
    fine: bool
    why: str = ""


Agents = frozenset[tuple[str, int]]


def right_value(problem: Problem, lost: Agents, never: Agents = frozenset()) -> float | None:
    """POT's value for the agents that are left, with what is left of E; None where nothing is.

    ``never`` were lost before E was made, and it was made without them.
    """
    data = SyntheticSet(samples=SAMPLES, dim=DIMENSION)
    counts = {Role.SOURCE: problem.sources, Role.TARGET: problem.ranks - problem.sources}
    parts = {role: [data.share(role, k, counts[role]).rows for k in range(counts[role])] for role in Role}
    met = {role: [k for k in range(counts[role]) if (role.value, k) not in never] for role in Role}
    masses = {role: np.array([len(parts[role][k]) for k in met[role]], dtype=float) for role in Role}
    shares = {role: masses[role] / masses[role].sum() for role in Role}
    protocol = choose_protocol(
        problem.protocol, shares[Role.SOURCE], shares[Role.TARGET], degree=4, matched=False, seed=0
    )
    kept = {role: [k for k in met[role] if (role.value, k) not in lost] for role in Role}
    places = {role: [met[role].index(k) for k in kept[role]] for role in Role}
    weights = protocol.E[np.ix_(places[Role.SOURCE], places[Role.TARGET])]
    if not weights.sum() > 0:
        return None
    x, y = (np.concatenate([parts[role][k] for k in kept[role]]) for role in Role)
    sizes = {role: [len(parts[role][k]) for k in kept[role]] for role in Role}
    owner = {role: np.repeat(np.arange(len(kept[role])), sizes[role]) for role in Role}
    inner = np.outer(*(1.0 / np.repeat(sizes[role], sizes[role]) for role in Role))
    reference = (weights / weights.sum())[owner[Role.SOURCE]][:, owner[Role.TARGET]] * inner
    kernel = (
        RawKernel(problem.eps, DIMENSION) if problem.kernel == "raw" else SketchKernel(problem.eps, DIMENSION, 256, 0)
    )
    cost = -problem.eps * log_block(kernel, kernel.show(x), kernel.show(y))
    return solve_pooled(cost, reference, problem.eps).values.dual_objective


_cached_value = cache(right_value)


def judge(plan: Plan, ended: Ended, found: dict[str, Any] | None) -> Judgement:
    """Of a run that was not resumed."""
    words = ended.err + ended.out
    if ended.code is None:
        return Judgement("hang", False, words[-6000:])
    if ended.orphans:
        return Judgement("orphans", False, f"{ended.orphans} left")
    if "Traceback" in ended.err and plan.kind != "raise":
        return Judgement("traceback", False, ended.err[-600:])
    if ended.code in (0, 4):
        return _value(plan, ended, found)
    if ended.code == 2:
        return Judgement("refused", False, words[-300:])
    if plan.kind == "lose":
        return _nothing_left(plan, words)
    expected = {
        "abort": ("signal 9", "is gone"),
        "stuck": ("no message within", "is stuck"), "raise": ("RuntimeError: as planned",),
        "short": ("bytes of",), "nan": ("not finite", "diverged"),
    }  # fmt: skip
    if any(text in words for text in expected.get(plan.kind, ())):
        return Judgement("ended with a message", True)
    return Judgement(f"code {ended.code}", False, words[-600:])


def _nothing_left(plan: Plan, words: str) -> Judgement:
    """Of a run that did not go on: rightly so only if it had not begun, or had nothing left."""
    if "is gone" in words and min(one["call"] for one in plan.faults) <= BEFORE_IT_BEGINS:
        return Judgement("lost before it began", True)
    sources = plan.problem.sources
    gone = {("source", rank) if rank < sources else ("target", rank - sources) for rank in plan.ranks}
    domains = [sum(role == name for role, _ in gone) for name in ("source", "target")]
    if "agents are lost" in words and (domains[0] >= sources or domains[1] >= plan.problem.ranks - sources):
        return Judgement("nothing left", True)
    if "have an edge in E" in words and plan.problem.protocol != "uniform":
        return Judgement("no edge left", True)
    return Judgement("did not go on", False, words[-600:])


def _value(plan: Plan, ended: Ended, found: dict[str, Any] | None) -> Judgement:
    if found is None:
        return Judgement("no result", False, ended.err[-300:])
    lost = frozenset((one["role"], one["index"]) for one in found["lost_agents"])
    never = frozenset((one["role"], one["index"]) for one in found["lost_agents"] if one["mass"] is None)
    late = "lost once the values were known" in ended.err
    if (bool(lost) or late) != (ended.code == 4):
        return Judgement("wrong code", False, f"code {ended.code}, lost {sorted(lost)}")
    value = _cached_value(plan.problem, lost, never)
    reached = found["dual_objective"]
    if value is None or not abs(reached - value) <= TOLERANCE * max(1.0, abs(value)):
        return Judgement("wrong value", False, f"{reached!r}, POT has {value!r}, lost {sorted(lost)}")
    return Judgement("finished without some" if lost else "finished", True)


def same_end(found: dict[str, Any], undisturbed: dict[str, Any]) -> str:
    """How a resumed run differs from one that was not disturbed: not at all, it should be."""
    names = ("dual_objective", "regularised_cost", "transport_cost", "entropy_cost", "rounds", "status")
    differing = [name for name in names if found[name] != undisturbed[name]]
    objectives = [[point["objective"] for point in one["trace"]] for one in (found, undisturbed)]
    if objectives[0] != objectives[1]:
        differing.append("trace")
    return ", ".join(differing)
