"""Decentralised entropic optimal transport: from an agent's samples to W~_eps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from deot_mpi.agent import Agents
from deot_mpi.disclosure import privacy_notes, protocol_notes, reference_notes
from deot_mpi.errors import InputError
from deot_mpi.exchange.collective import Tables
from deot_mpi.exchange.join import agree
from deot_mpi.exchange.ledger import Ledger
from deot_mpi.exchange.waiting import waited
from deot_mpi.kernel import Kernel, RawKernel, SketchKernel
from deot_mpi.kinds import Kind
from deot_mpi.options import EOTOptions
from deot_mpi.problem import Holding, build, check_resolution, largest_local_distance, make_channel, make_solver
from deot_mpi.reference import FLAT_SIZE, Pooled, compare, flatten, require_pot, unflatten
from deot_mpi.resources import peak_memory
from deot_mpi.result import (
    AgentSummary,
    EOTResult,
    ErrorDecomposition,
    LedgerReport,
    ReferenceValues,
    TracePoint,
    Values,
    summarise_ledger,
)
from deot_mpi.roles import Role, as_role
from deot_mpi.samples import Floats, Samples, check_samples
from deot_mpi.setting import Setting, choose_eps, meet
from deot_mpi.solvers import Measure, Solver, SolverState, Status
from deot_mpi.solvers.base import Rule
from deot_mpi.start import Start, agree_on_start, given_start
from deot_mpi.sums import ordered_sum
from deot_mpi.traffic import expected_bytes

Progress = Callable[[TracePoint], None]

_SINGLE_SHARE = 0.8
"""A float32 solver aims this much lower than tol, so that its rounding does not show in the float64 check."""
_REFERENCE_TIMEOUT = 3600.0
"""Seconds the other ranks wait for the centralised solver, and for the small problems behind tau."""


def eot(
    comm: MPI.Intracomm,
    samples: ArrayLike,
    role: str,
    *,
    weights: ArrayLike | None = None,
    start: ArrayLike | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> EOTResult:
    """Entropic OT between the samples of all 'source' ranks and those of all 'target' ranks. Collective over ``comm``.

    ``samples`` are this rank's own rows (N_i x D), ``weights`` their optional weights, ``start`` this agent's potential
    of an earlier run to go on from (for all agents or none); ``options`` are the fields of ``EOTOptions``, named as on
    the command line. ``progress`` is called with every trace point. Raises ``InputError`` on all ranks if any rank's
    input is unusable.
    """
    error, own_role, checked = None, Role.SOURCE, EOTOptions()
    try:
        own_role, checked = as_role(role), EOTOptions(**options)
    except (InputError, TypeError) as caught:  # TypeError: an option that does not exist
        error = f"rank {comm.rank}: {caught}"
    agree(comm, error, checked.timeout)

    def load(agents: Agents) -> Samples:
        return check_samples(samples, weights, agents.name)

    return solve_eot(comm, own_role, load, checked, progress, given_start(start))


def solve_eot(
    comm: MPI.Intracomm,
    role: Role,
    load: Callable[[Agents], Samples],
    options: EOTOptions,
    progress: Progress | None = None,
    start: Start | None = None,
) -> EOTResult:
    """As ``eot``, with samples (and potentials to start from) that are loaded once the agent knows who it is."""
    # Agents of one node must not each use all its cores, and one BLAS thread adds in one order.
    with threadpool_limits(limits=1):
        return _solve_eot(comm, role, load, options, progress, start)


def _solve_eot(
    comm: MPI.Intracomm,
    role: Role,
    load: Callable[[Agents], Samples],
    options: EOTOptions,
    progress: Progress | None,
    start: Start | None,
) -> EOTResult:
    clock = _Clock()
    setting = meet(comm, role, load, options)
    with setting.agents.freed_on_error():
        first = agree_on_start(setting, start)
        if options.reference:
            setting.collectives.all_or_none(require_pot)
        eps = choose_eps(setting, options)
        kernel = _kernel(setting, eps, options)
        holding = build(setting, kernel, eps, options)
        setting.collectives.all_or_none(lambda: check_resolution(holding.view, setting.agents.name))
        setup_seconds = clock.seconds
        solution = _solve(setting, holding, options, progress, first)
        result = _result(setting, kernel, holding, options, solution, setup_seconds, clock)
    setting.agents.free()
    return result


class _Clock:
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


def _kernel(setting: Setting, eps: float, options: EOTOptions) -> Kernel:
    dimension = setting.sizes.dimension
    if options.kernel == "raw":
        return RawKernel(eps, dimension)
    return SketchKernel(
        eps, dimension, options.bits, options.seed, options.estimator, options.orthogonal, options.correction
    )


class _Recorder:
    """Adds every agent's measurement and keeps the trace."""

    def __init__(self, setting: Setting, progress: Progress | None) -> None:
        self._setting, self._progress = setting, progress
        self._started = time.perf_counter()
        self.trace: list[TracePoint] = []

    def __call__(self, round_: int, own: Measure) -> Measure:
        row = np.array([own.objective, own.error, own.change, self._setting.ledger.total_bytes], dtype=np.float64)
        table = self._setting.collectives.share(Kind.CONTROL, row)
        rows = np.concatenate([table.source, table.target])
        point = TracePoint(
            round=round_,
            objective=ordered_sum(rows[:, 0]),
            error=ordered_sum(rows[:, 1]),
            change=float(rows[:, 2].max()),
            seconds=time.perf_counter() - self._started,
            bytes=int(rows[:, 3].sum()),
            temperature=own.temperature,
        )
        self.trace.append(point)
        if self._progress is not None:
            self._progress(point)
        return Measure(point.objective, point.error, point.change)


@dataclass(frozen=True)
class _Solution:
    state: SolverState
    status: Status
    values: Values
    marginal_errors: dict[Role, Floats]
    trace: tuple[TracePoint, ...]
    seconds: float
    values_seconds: float


def _solve(
    setting: Setting, holding: Holding, options: EOTOptions, progress: Progress | None, start: Floats | None
) -> _Solution:
    """Rounds until the stopping rule ends them, then the final reduce; again in float64 if that finds tol missed."""
    clock = _Clock()
    recorder = _Recorder(setting, progress)
    tol = options.tol * (_SINGLE_SHARE if options.single_precision else 1.0)
    rule = Rule(options.rounds, tol, options.stop, options.check_every)
    with (
        make_channel(setting, holding.view, Kind.POTENTIALS, options) as channel,
        make_channel(setting, holding.view, Kind.OBJECTIVES, options) as probe,
    ):
        solver = make_solver(setting, holding, channel, probe, options)
        state = solver.setup(start)
        status = solver.run(state, rule, recorder)
        rounds_seconds = clock.seconds
        values, errors = _final_values(setting, solver, state)
        reached = sum(ordered_sum(part) for part in errors.values())
        if status is Status.MARGINAL and reached > options.tol and solver.sharpen(state):
            status = Status.ROUNDS
            if state.round < options.rounds:
                status = solver.run(state, replace(rule, tol=options.tol), recorder)
                rounds_seconds = clock.seconds
                values, errors = _final_values(setting, solver, state)
                reached = sum(ordered_sum(part) for part in errors.values())
    if not math.isfinite(values.dual_objective):
        status = Status.DIVERGED
    elif status is Status.ROUNDS and options.stop == "marginal" and reached <= options.tol:
        status = Status.MARGINAL  # the rounds had not seen it, the float64 check has
    return _Solution(
        state, status, values, errors, tuple(recorder.trace), rounds_seconds, clock.seconds - rounds_seconds
    )


def _result(
    setting: Setting,
    kernel: Kernel,
    holding: Holding,
    options: EOTOptions,
    solution: _Solution,
    setup_seconds: float,
    clock: _Clock,
) -> EOTResult:
    view = holding.view
    spent = setting.collectives.share(Kind.CONTROL, np.array([clock.working, clock.waiting, peak_memory()]))
    reference, errors, pairs = None, None, "edges"
    tau: float | None
    if options.reference:
        reached, rounds = solution.values.dual_objective, solution.state.round
        reference, errors, tau = _compare_with_pooled(setting, kernel, view.eps, reached, rounds)
        pairs = "all"
    else:
        tau = _tau_on_edges(setting, holding, kernel)
    protocol = setting.protocol.report(tau, pairs)
    return EOTResult(
        values=solution.values,
        eps=view.eps,
        status=solution.status,
        rounds=solution.state.round,
        seconds=solution.seconds,
        setup_seconds=setup_seconds,
        values_seconds=solution.values_seconds,
        agents=_summaries(setting, solution.marginal_errors, spent),
        protocol=protocol,
        ledger=_ledger_report(setting, options, solution.state.round),
        trace=solution.trace,
        role=view.role,
        index=view.index,
        potential=solution.state.potential,
        reference=reference,
        errors=errors,
        notes=(*privacy_notes(setting, options), *protocol_notes(protocol), *reference_notes(reference)),
        settings=_settings(options),
    )


def _final_values(setting: Setting, solver: Solver, state: SolverState) -> tuple[Values, dict[Role, Floats]]:
    """The last exchange and the final reduce: every agent's part of the four values, and its marginal error."""
    closing, eps = solver.finish(state), solver.view.eps
    table = setting.collectives.share(Kind.OBJECTIVES, np.array(astuple(closing)))
    parts = np.concatenate([table.source, table.target])
    linear, _, mass, transport, entropy = (ordered_sum(column) for column in parts.T)
    dual = linear - eps * mass
    values = Values(dual, dual + eps, transport, transport + eps * entropy)
    return values, {role: table.of(role)[:, 1] for role in Role}


def _tau_on_edges(setting: Setting, holding: Holding, kernel: Kernel) -> float | None:
    """The paper's tau, measured by the sources on the edges they have; not needed where E is the storage protocol."""
    if setting.protocol.is_storage:
        return None
    own = largest_local_distance(holding, kernel) if holding.view.role is Role.SOURCE else -np.inf
    table = setting.collectives.share(Kind.OBJECTIVES, np.array([own]), _REFERENCE_TIMEOUT)
    return float(table.source.max())


def _compare_with_pooled(
    setting: Setting, kernel: Kernel, eps: float, reached: float, rounds: int
) -> tuple[ReferenceValues, ErrorDecomposition, float]:
    """Pool the samples on rank 0, solve there with POT, tell everybody."""
    shown = np.column_stack([setting.rows, setting.samples.shares])
    pooled = setting.collectives.pool(shown, setting.sizes.counts, _REFERENCE_TIMEOUT)
    numbers, solver = np.zeros(FLAT_SIZE), ""
    if pooled is not None:
        together = Pooled(
            rows={role: pooled[role][:, :-1] for role in Role},
            shares={role: pooled[role][:, -1] for role in Role},
            owner={role: setting.sizes.owners(role) for role in Role},
        )
        reference, errors, tau = compare(together, setting.protocol, kernel, eps, reached, rounds)
        numbers, solver = flatten(reference, errors, tau), reference.solver
    setting.collectives.broadcast(Kind.REFERENCE, numbers, _REFERENCE_TIMEOUT)
    return unflatten(numbers, setting.collectives.tell(solver))


def _summaries(
    setting: Setting, marginal_errors: dict[Role, Floats], spent: Tables[np.float64]
) -> tuple[AgentSummary, ...]:
    sizes, protocol = setting.sizes, setting.protocol
    return tuple(
        AgentSummary(
            role=role.value,
            index=index,
            samples=int(sizes.counts[role][index]),
            mass=float(sizes.shares(role)[index]),
            protocol_mass=float(protocol.marginals(role)[index]),
            neighbours=len(protocol.neighbours(role, index)),
            marginal_error=float(marginal_errors[role][index]),
            working_seconds=float(spent.of(role)[index, 0]),
            waiting_seconds=float(spent.of(role)[index, 1]),
            peak_memory=int(spent.of(role)[index, 2]),
        )
        for role in Role
        for index in range(sizes.counts[role].size)
    )


def _ledger_report(setting: Setting, options: EOTOptions, rounds: int) -> LedgerReport:
    formula = expected_bytes(setting, options, rounds)
    table = setting.collectives.share_ledger()
    unpacked = {role: Ledger.unpack(table.of(role)) for role in Role}
    return summarise_ledger(
        {role: pair[0] for role, pair in unpacked.items()}, {role: pair[1] for role, pair in unpacked.items()}, formula
    )


def _settings(options: EOTOptions) -> dict[str, Any]:
    settings = {**asdict(options), "eps_scale": options.scale}
    if not isinstance(options.protocol, str):
        settings["protocol"] = options.protocol.tolist()
    return settings
