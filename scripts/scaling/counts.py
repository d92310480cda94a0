"""How many messages, bytes and rounds a run takes, by formula: what the ledger of a real run must say, to the byte.

Edges: what the kernel shows, once; in every round the potentials (and, one-pass, the sums that come back, every third
round with curvatures); at a check of ``kept``, and once at the end, the potentials again, to measure with. Collectives
in the rounds: the tallies that the acceleration adds up, and the checks. What is agreed on once, before and after the
rounds, is left to the ledger.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deot_mpi.exchange.traffic import expected_bytes
from deot_mpi.kinds import Kind
from deot_mpi.roles import Role
from deot_mpi.running import CHECK_SIZE
from deot_mpi.solvers.base import EARLY, Rule
from deot_mpi.solvers.cooling import curves_in, mixes_after
from deot_mpi.solvers.sinkhorn import EARLY_ROUNDS, TALLY_SIZE
from scaling.job import Job

NUMBER = 8
"""Bytes of a float64."""
_CLOSING_SIZE = 5
"""Numbers an agent puts into the final reduce."""


@dataclass(frozen=True)
class Count:
    """What the ledger calls messages, bytes, collectives, collective_bytes, of one kind and all agents."""

    messages: int = 0
    bytes: int = 0
    collectives: int = 0
    collective_bytes: int = 0


def check_rounds(job: Job, rounds: int) -> list[int]:
    """The rounds after which all agents look at objective and error, in a run that never comes near tol."""
    rule = Rule(job.options.rounds, job.options.tol, job.options.stop, job.options.check_every)
    early = [t for t in tally_rounds(job, rounds) if t <= EARLY_ROUNDS] if job.solver == "sinkhorn" else EARLY
    return [t for t in range(1, rounds + 1) if rule.due(t) or t in early or t == rounds]


def tally_rounds(job: Job, rounds: int) -> list[int]:
    """The rounds after which Anderson's inner products are added up, in a run of one stage (no eps-scaling)."""
    return [t for t in range(1, rounds + 1) if t == 1 or mixes_after(t)] if job.solver == "sinkhorn" else []


def curved_rounds(job: Job, rounds: int) -> list[int]:
    """The rounds in which sources tell curvatures, too, in such a run."""
    return (
        [t for t in range(1, rounds + 1) if curves_in(t)]
        if job.solver == "sinkhorn" and job.options.acceleration == "full"
        else []
    )


def tally_bytes(job: Job) -> int:
    """The table that one agent hands to a tally, which is a check, too: a row for every agent."""
    return NUMBER * (CHECK_SIZE + TALLY_SIZE) * job.ranks


def share_bytes(job: Job, numbers: int, role: Role) -> int:
    """The table that an agent of a role hands to a shared table of so many numbers an agent."""
    return NUMBER * numbers * int(job.sizes.counts[role].size)


def _shares(job: Job, numbers: int, times: int = 1) -> Count:
    """Every agent hands its role's table to a reduction, the first of each role hands it on to all."""
    tables = {role: share_bytes(job, numbers, role) for role in Role}
    handed = sum((job.sizes.counts[role].size + 1) * tables[role] for role in Role)
    return Count(0, 0, times * (job.ranks + 2), times * handed)


def _probes(job: Job) -> int:
    """Bytes of one exchange that only measures."""
    both = {role: int(job.columns(role).sum()) for role in Role}  # numbers that the agents of a role receive
    return NUMBER * (2 * both[Role.SOURCE] if job.solver == "sinkhorn" else sum(both.values()))


def _asked(job: Job) -> int:
    """Messages of one round: two an edge, or L an agent."""
    support = job.E.support
    if job.solver == "sinkhorn":
        return 2 * int(support.sum())
    wanted = np.inf if job.neighbours is None else job.neighbours
    return int(sum(np.minimum(wanted, support.sum(axis=axis)).sum() for axis in (0, 1)))


def expected(job: Job, rounds: int) -> dict[Kind, Count]:
    """By kind, for the kinds that have a formula; the bytes of showing and of potentials are the ledger's own."""
    curved = len(curved_rounds(job, rounds))
    formula = expected_bytes(job.as_setting, job.options, rounds, curvatures=curved)  # type: ignore[arg-type]
    edges, ways = int(job.E.support.sum()), 1 if job.solver == "sinkhorn" else 2
    checks = len(check_rounds(job, rounds))
    found = {
        kind: Count(ways * edges, formula[kind]) for kind in (Kind.SAMPLES, Kind.SKETCH, Kind.NORMS) if kind in formula
    }
    found[Kind.POTENTIALS] = Count(rounds * _asked(job), formula[Kind.POTENTIALS])
    if curved:
        found[Kind.CURVATURES] = Count(curved * edges, formula[Kind.CURVATURES])
    probes = 1 if job.solver == "sinkhorn" else 1 + checks
    ends = _shares(job, _CLOSING_SIZE)
    tau = Count() if job.E.is_storage else _shares(job, 1)
    found[Kind.OBJECTIVES] = Count(
        2 * edges * probes,
        probes * _probes(job),
        ends.collectives + tau.collectives,
        ends.collective_bytes + tau.collective_bytes,
    )
    return found


def control_in_rounds(job: Job, rounds: int) -> Count:
    """Collectives of the rounds: tallies, and checks where there is no tally. Control also has what is agreed on before
    and after them."""
    tallies = tally_rounds(job, rounds)
    checks = _shares(job, CHECK_SIZE, len(set(check_rounds(job, rounds)) - set(tallies)))
    return Count(
        0,
        0,
        job.ranks * len(tallies) + checks.collectives,
        job.ranks * len(tallies) * tally_bytes(job) + checks.collective_bytes,
    )
