"""What every problem's run has in common: the clock, the trace, rounds to the end with an exact last word, the account.

``run_to_end`` is the way from a solver to exact sums; ``account`` gathers what all results report besides values.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any, TypeVar

import numpy as np
from mpi4py import MPI

from deot_mpi.data.samples import Floats
from deot_mpi.errors import InputError
from deot_mpi.exchange.collective import Tables
from deot_mpi.exchange.join import agree
from deot_mpi.exchange.ledger import Ledger
from deot_mpi.exchange.node import host_number
from deot_mpi.exchange.waiting import waited
from deot_mpi.faults.keeper import Keeper
from deot_mpi.kinds import Kind
from deot_mpi.options import Options
from deot_mpi.resources import peak_memory
from deot_mpi.result import AgentSummary, LedgerReport, TracePoint, summarise_ledger
from deot_mpi.roles import Role, as_role
from deot_mpi.setting import Setting
from deot_mpi.solvers import Measure, Solver, SolverState, Status
from deot_mpi.solvers.base import Closing, Rule
from deot_mpi.sums import ordered_sum

Progress = Callable[[TracePoint], None]

_SINGLE_SHARE = 0.9
"""A float32 solver aims this much lower than tol, so that its rounding does not show in the float64 check: errors of
1e-6 and less, as a float32 solver saw them, were off by 3e-8 at most in 26 trial runs."""

CHECK_SIZE = 5
"""Numbers of a measurement that an agent tells the others."""

Chosen = TypeVar("Chosen", bound=Options)


def understood(comm: MPI.Intracomm, role: str, kind: type[Chosen], options: dict[str, Any]) -> tuple[Role, Chosen]:
    """This rank's role and options, checked; if any rank's cannot be used, all ranks raise its sentence."""
    error, own_role, checked = None, Role.SOURCE, kind()
    try:
        own_role, checked = as_role(role), kind(**options)
    except (InputError, TypeError) as caught:  # TypeError: an option that does not exist
        error = f"rank {comm.rank}: {caught}"
    agree(comm, error, checked.timeout)
    return own_role, checked


class Clock:
    """Seconds since it was made, and how this process spent them."""

    def __init__(self) -> None:
        self._started, self._cpu = time.perf_counter(), time.process_time()
        self._waited, self._waited_cpu = waited.seconds, waited.cpu_seconds

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._started

    @property
    def waiting(self) -> float:
        """Seconds spent waiting for messages."""
        return waited.seconds - self._waited

    @property
    def working(self) -> float:
        """CPU seconds of all threads, less those burnt by waiting."""
        return time.process_time() - self._cpu - (waited.cpu_seconds - self._waited_cpu)


class Recorder:
    """Adds every agent's measurement and keeps the trace, of points of a kind."""

    def __init__(self, setting: Setting, progress: Progress | None, kind: type[TracePoint] = TracePoint) -> None:
        self._setting, self._progress, self._kind = setting, progress, kind
        self._clock = Clock()
        self.trace: list[TracePoint] = []
        self.constant = 0.0
        """What the objective has besides F."""
        self.rounds_before, self.start, self.outer = 0, 0, 0
        self.temperature = 1.0

        self._last: tuple[Measure, int] | None = None

    def add(self, own: Measure, row: Floats) -> tuple[Measure, dict[Role, Floats]]:
        numbers = (own.objective, own.error, own.change, self._setting.ledger.total_bytes, own.staleness)
        collectives, whole = self._setting.collectives, np.concatenate([numbers, row])
        # A tally goes up a tree and down again. A shared table comes with what each role waits for anyway: far apart,
        # it costs less.
        table = collectives.tally(Kind.CONTROL, whole) if row.size else collectives.share(Kind.CONTROL, whole)
        objectives, errors, changes, nbytes, behind = np.concatenate([table.source, table.target]).T[:CHECK_SIZE]
        objective = self.constant + ordered_sum(objectives)
        total = Measure(objective, ordered_sum(errors), float(changes.max()), own.temperature, int(behind.max()))
        self._last = total, int(nbytes.sum())
        return total, {role: table.of(role)[:, CHECK_SIZE:] for role in Role}

    def keep(self, round_: int) -> None:
        assert self._last is not None
        total, nbytes = self._last
        point = self._kind(
            round=self.rounds_before + round_,
            objective=total.objective,
            error=total.error,
            change=total.change,
            seconds=self._clock.seconds,
            bytes=nbytes,
            temperature=self.temperature * total.temperature,
            start=self.start,
            outer=self.outer,
            staleness=total.staleness,
        )
        self.trace.append(point)
        if self._progress is not None:
            self._progress(point)


@dataclass(frozen=True)
class Ended:
    """The end of a solver's run: why it stopped, and every agent's part of the sums, exact at the last potentials."""

    status: Status
    parts: Tables[np.float64]
    """A ``Closing`` of each agent, as a row."""
    rounds_seconds: float
    check_seconds: float

    @property
    def sums(self) -> Closing:
        """Over all agents."""
        return _added(np.concatenate([self.parts.source, self.parts.target]))

    def sums_of(self, role: Role) -> Closing:
        return _added(self.parts.of(role))

    @property
    def errors(self) -> dict[Role, Floats]:
        """Each agent's part of the L1 marginal error."""
        return {role: self.parts.of(role)[:, 1] for role in Role}


def _added(parts: Floats) -> Closing:
    return Closing(*(ordered_sum(column) for column in parts.T))


def run_to_end(
    setting: Setting,
    solver: Solver,
    state: SolverState,
    rule: Rule,
    options: Options,
    recorder: Recorder,
    keeper: Keeper | None = None,
    between: Callable[[SolverState], None] | None = None,
) -> Ended:
    """Rounds until the stopping rule ends them, then the final reduce; again in float64 if that finds tol missed.

    ``keeper`` writes checkpoints of these rounds; without one, ``between`` is what is done after every round.
    """
    clock = Clock()
    between = between if keeper is None else keeper.between(solver)
    first, more = keeper is None or keeper.phase == 0, True
    if first:
        aimed = replace(rule, tol=rule.tol * (_SINGLE_SHARE if options.single_precision else 1.0))
        status = solver.run(state, aimed, recorder, between)
        rounds_seconds = clock.seconds
        parts = _final_parts(setting, solver, state)
        missed = _added(np.concatenate([parts.source, parts.target])).error > rule.tol
        more = status is Status.MARGINAL and missed and solver.sharpen(state)
        if more:
            status = Status.ROUNDS
            more = state.round < rule.rounds
    if more:
        if keeper is not None:
            keeper.phase = 1
        status = solver.run(state, rule, recorder, between)
        rounds_seconds = clock.seconds
        parts = _final_parts(setting, solver, state)
    ended = Ended(status, parts, rounds_seconds, clock.seconds - rounds_seconds)
    if not np.isfinite(ended.sums.linear - solver.view.eps * ended.sums.mass):
        return replace(ended, status=Status.DIVERGED)
    if status is Status.ROUNDS and rule.stop == "marginal" and ended.sums.error <= rule.tol:
        return replace(ended, status=Status.MARGINAL)  # the rounds had not seen it, the float64 check has
    return ended


def _final_parts(setting: Setting, solver: Solver, state: SolverState) -> Tables[np.float64]:
    """The last exchange and the final reduce: every agent's part of the values and of the marginal error."""
    return setting.collectives.share(Kind.OBJECTIVES, np.array(astuple(solver.finish(state))))


@dataclass(frozen=True)
class Account:
    """What a run cost whom."""

    agents: tuple[AgentSummary, ...]
    ledger: LedgerReport


def spent(setting: Setting, clock: Clock) -> Tables[np.float64]:
    """Every agent's seconds of work and of waiting, its memory, and which host it shares with whom."""
    row = [clock.working, clock.waiting, peak_memory(), host_number()]
    return setting.collectives.share(Kind.CONTROL, np.array(row, dtype=np.float64))


def account(
    setting: Setting,
    errors: dict[Role, Floats],
    costs: Tables[np.float64],
    formula: dict[Kind, int],
    within_formula: dict[Kind, int] | None = None,
) -> Account:
    """Every agent's summary and the ledger of all; nothing may be sent after it that the ledger should show."""
    table = setting.collectives.share_ledger()
    counts = {role: Ledger.unpack(table.of(role)) for role in Role}
    agents = _summaries(setting, errors, costs)
    hosts = {role: np.array([agent.host for agent in agents if agent.role == role.value]) for role in Role}
    return Account(agents, summarise_ledger(counts, formula, within_formula or {}, hosts))


def _summaries(setting: Setting, errors: dict[Role, Floats], costs: Tables[np.float64]) -> tuple[AgentSummary, ...]:
    sizes, protocol = setting.sizes, setting.protocol
    numbers = np.concatenate([costs.of(role)[:, 3] for role in Role]).tolist()
    places = {number: place for place, number in enumerate(dict.fromkeys(numbers))}
    return tuple(
        AgentSummary(
            role=role.value,
            index=setting.agents.known_as(role, index),
            samples=int(sizes.counts[role][index]),
            mass=float(sizes.shares(role)[index]),
            protocol_mass=float(protocol.marginals(role)[index]),
            neighbours=len(protocol.neighbours(role, index)),
            marginal_error=float(errors[role][index]),
            working_seconds=float(costs.of(role)[index, 0]),
            waiting_seconds=float(costs.of(role)[index, 1]),
            peak_memory=int(costs.of(role)[index, 2]),
            host=places[float(costs.of(role)[index, 3])],
        )
        for role in Role
        for index in range(sizes.counts[role].size)
    )


def settings_of(options: Options) -> dict[str, Any]:
    """The options as a result reports them."""
    settings = {**asdict(options), "eps_scale": options.scale}
    settings.pop("private_seed", None)  # it would undo the noise
    if not isinstance(options.protocol, str):
        settings["protocol"] = options.protocol.tolist()
    return settings
