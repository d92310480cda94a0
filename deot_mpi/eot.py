"""Decentralised entropic optimal transport: from an agent's samples to W~_eps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import ArrayLike

from deot_mpi.agent import Agents
from deot_mpi.block import KernelBlock
from deot_mpi.disclosure import privacy_notes, protocol_notes, reference_notes
from deot_mpi.errors import InputError
from deot_mpi.exchange.edges import Channel
from deot_mpi.exchange.join import agree
from deot_mpi.exchange.ledger import Ledger
from deot_mpi.kernel import Kernel, RawKernel, Shown, SketchKernel
from deot_mpi.kinds import Kind
from deot_mpi.options import EOTOptions
from deot_mpi.reference import FLAT_SIZE, Pooled, compare, flatten, require_pot, unflatten
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
from deot_mpi.sketch import packed_bytes
from deot_mpi.solvers import MRBCD, KeptSums, Measure, Sinkhorn, Solver, SolverState, Status
from deot_mpi.solvers.base import Rule
from deot_mpi.solvers.schedule import CyclicSchedule, SampledSchedule
from deot_mpi.view import AgentView

Progress = Callable[[TracePoint], None]

_LARGEST_EXPONENT = 1e11
"""Largest potential/eps: beyond it a marginal is off by more than 1e-5 through rounding alone."""
_REFERENCE_TIMEOUT = 3600.0
"""Seconds the other ranks wait for the centralised solver."""


def eot(
    comm: MPI.Intracomm,
    samples: ArrayLike,
    role: str,
    *,
    weights: ArrayLike | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> EOTResult:
    """Entropic OT between the samples of all 'source' ranks and those of all 'target' ranks. Collective over ``comm``.

    ``samples`` are this rank's own rows (N_i x D), ``weights`` their optional weights; ``options`` are the fields of
    ``EOTOptions``, named as on the command line. ``progress`` is called with every trace point. Raises
    ``InputError`` on all ranks if any rank's input is unusable.
    """
    error, own_role, checked = None, Role.SOURCE, EOTOptions()
    try:
        own_role, checked = as_role(role), EOTOptions(**options)
    except (InputError, TypeError) as caught:  # TypeError: an option that does not exist
        error = f"rank {comm.rank}: {caught}"
    agree(comm, error, checked.timeout)
    return solve_eot(comm, own_role, lambda agents: check_samples(samples, weights, agents.name), checked, progress)


def solve_eot(
    comm: MPI.Intracomm,
    role: Role,
    load: Callable[[Agents], Samples],
    options: EOTOptions,
    progress: Progress | None = None,
) -> EOTResult:
    """As ``eot``, with samples that are loaded once the agent knows who it is."""
    started = time.perf_counter()
    setting = meet(comm, role, load, options)
    with setting.agents.freed_on_error():
        if options.reference:
            setting.collectives.all_or_none(require_pot)
        eps = choose_eps(setting, options)
        kernel = _kernel(setting, eps, options)
        view = _build_view(setting, kernel, eps)
        setting.collectives.all_or_none(lambda: _check_resolution(view, setting.agents.name))
        setup_seconds = time.perf_counter() - started
        solution = _solve(setting, view, options, progress)
        result = _result(setting, kernel, view, options, solution, setup_seconds)
    setting.agents.free()
    return result


def _kernel(setting: Setting, eps: float, options: EOTOptions) -> Kernel:
    dimension = setting.sizes.dimension
    if options.kernel == "raw":
        return RawKernel(eps, dimension)
    return SketchKernel(
        eps, dimension, options.bits, options.seed, options.estimator, options.orthogonal, options.correction
    )


def _build_view(setting: Setting, kernel: Kernel, eps: float) -> AgentView:
    """Exchange what the kernel shows along the edges, once (Algorithm 2), and build this agent's blocks of log K."""
    role, edges = setting.agents.role, setting.edges
    counts = {j: int(setting.sizes.counts[role.other][j]) for j in edges.neighbours}
    own: Shown = kernel.show(setting.rows)
    received = {j: kernel.blank(count) for j, count in counts.items()}
    for kind in own:
        edges.swap(kind, own[kind], {j: shown[kind] for j, shown in received.items()})
    shares: dict[int, Floats] = {j: np.full(count, 1.0 / count) for j, count in counts.items()}
    if setting.sizes.weighted:
        edges.swap(Kind.WEIGHTS, setting.samples.shares, dict(shares))
    blocks = {}
    for j, shown in received.items():
        if role is Role.SOURCE:
            log_kernel = kernel.log_block(own, shown)
        else:
            log_kernel = np.ascontiguousarray(kernel.log_block(shown, own).T)
        blocks[j] = KernelBlock(log_kernel, np.log(shares[j]))
    weights = setting.protocol.weights(role, setting.agents.index)
    return AgentView(
        role=role,
        index=setting.agents.index,
        eps=eps,
        shares=setting.samples.shares,
        edge_weights={j: float(weights[j]) for j in edges.neighbours},
        blocks=blocks,
    )


def _check_resolution(view: AgentView, owner: str) -> None:
    """Refuse an eps that vanishes in the rounding of the potentials, which are as large as a row's smallest cost."""
    if not view.blocks:
        return
    nearest = np.max([block.log_kernel.max(axis=1) for block in view.blocks.values()], axis=0)
    largest = float(-nearest.min())
    if not largest < _LARGEST_EXPONENT:
        least = largest * view.eps / _LARGEST_EXPONENT
        raise InputError(
            f"{owner}: one of its samples is {largest:.1e} eps (eps = {view.eps:g}) away from the nearest sample of "
            f"the other domain, and doubles have no digits left; use eps of {least:.1e} or more."
        )


def _solver(setting: Setting, view: AgentView, channel: Channel, probe: Channel, options: EOTOptions) -> Solver:
    protocol, role, index = setting.protocol, view.role, view.index
    if options.solver == "mrbcd":
        schedule = SampledSchedule(protocol, role, index, options.neighbours, options.pairs, options.seed)
        return MRBCD(view, channel, probe, schedule, options.eta)
    cyclic = CyclicSchedule(protocol, role, index, options.neighbours)
    return (Sinkhorn if options.solver == "sinkhorn" else KeptSums)(view, channel, probe, cyclic)


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
            objective=_sum(rows[:, 0]),
            error=_sum(rows[:, 1]),
            change=float(rows[:, 2].max()),
            seconds=time.perf_counter() - self._started,
            bytes=int(rows[:, 3].sum()),
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


def _solve(setting: Setting, view: AgentView, options: EOTOptions, progress: Progress | None) -> _Solution:
    """Rounds until the stopping rule ends them, then the final reduce."""
    started = time.perf_counter()
    recorder = _Recorder(setting, progress)
    lengths = {j: block.log_shares.size for j, block in view.blocks.items()}
    rule = Rule(options.rounds, options.tol, options.stop, options.check_every)
    with (
        Channel(setting.edges, Kind.POTENTIALS, view.shares.size, lengths) as channel,
        Channel(setting.edges, Kind.OBJECTIVES, view.shares.size, lengths) as probe,
    ):
        solver = _solver(setting, view, channel, probe, options)
        state, status = solver.run(rule, recorder)
        values, marginal_errors = _final_values(setting, view, probe, state)
    if not math.isfinite(values.dual_objective):
        status = Status.DIVERGED
    seconds = time.perf_counter() - started
    return _Solution(state, status, values, marginal_errors, tuple(recorder.trace), seconds)


def _result(
    setting: Setting, kernel: Kernel, view: AgentView, options: EOTOptions, solution: _Solution, setup_seconds: float
) -> EOTResult:
    tau, pairs = _tau_on_edges(setting, view), "edges"
    reference, errors = None, None
    if options.reference:
        reached, rounds = solution.values.dual_objective, solution.state.round
        reference, errors, tau = _compare_with_pooled(setting, kernel, view.eps, reached, rounds)
        pairs = "all"
    protocol = setting.protocol.report(tau, pairs)
    return EOTResult(
        values=solution.values,
        eps=view.eps,
        status=solution.status,
        rounds=solution.state.round,
        seconds=solution.seconds,
        setup_seconds=setup_seconds,
        agents=_summaries(setting, solution.marginal_errors),
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


def _sum(column: Floats) -> float:
    """A sum that does not depend on the order of the agents; not finite if any part is not."""
    return math.fsum(column) if np.isfinite(column).all() else float(np.sum(column))


def _final_values(
    setting: Setting, view: AgentView, probe: Channel, state: SolverState
) -> tuple[Values, dict[Role, Floats]]:
    """The last exchange and the final reduce: every agent's part of the four values, and its marginal error."""
    probe.outgoing[:] = state.potential
    probe.swap(view.neighbours, view.neighbours)
    row = np.zeros(5)
    if view.neighbours:
        sums = {j: view.log_sums(j, probe.incoming[j]) for j in view.neighbours}
        with np.errstate(over="ignore", invalid="ignore"):  # a diverged run has infinite values, and says so
            error = view.marginal_error(view.log_violation(state.potential, sums))
            row[:2] = view.linear_part(state.potential), error
            if view.role is Role.SOURCE:
                edge = view.edge_values(state.potential, probe.incoming)
                row[2:] = edge.mass, edge.transport_cost, edge.entropy
    table = setting.collectives.share(Kind.OBJECTIVES, row)
    linear, _, mass, transport, entropy = (_sum(column) for column in np.concatenate([table.source, table.target]).T)
    dual = linear - view.eps * mass
    values = Values(dual, dual + view.eps, transport, transport + view.eps * entropy)
    return values, {role: table.of(role)[:, 1] for role in Role}


def _tau_on_edges(setting: Setting, view: AgentView) -> float | None:
    """The paper's tau, measured by the sources on the edges they have; not needed where E is the storage protocol."""
    if setting.protocol.is_storage:
        return None
    own = view.largest_local_distance() if view.role is Role.SOURCE else -np.inf
    table = setting.collectives.share(Kind.OBJECTIVES, np.array([own]))
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


def _summaries(setting: Setting, marginal_errors: dict[Role, Floats]) -> tuple[AgentSummary, ...]:
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
        )
        for role in Role
        for index in range(sizes.counts[role].size)
    )


def _ledger_report(setting: Setting, options: EOTOptions, rounds: int) -> LedgerReport:
    formula = _formulas(setting, options, rounds)
    table = setting.collectives.share_ledger()
    unpacked = {role: Ledger.unpack(table.of(role)) for role in Role}
    return summarise_ledger(
        {role: pair[0] for role, pair in unpacked.items()}, {role: pair[1] for role, pair in unpacked.items()}, formula
    )


def _formulas(setting: Setting, options: EOTOptions, rounds: int) -> dict[Kind, int]:
    """The paper's communication costs in bytes, on the edges that exist (its formulas are for a full E).

    Samples (IM + JN) D numbers, sketches (IM + JN) Q bits and norms, potentials T L (N/I + M/J) numbers per pair that
    moves, final objectives I J numbers.
    """
    sizes, number = setting.sizes, 8
    asked = {role: _numbers_asked(setting, role, options.neighbours) for role in Role}
    crossing = sum(_numbers_asked(setting, role, None).sum() for role in Role)
    costs: dict[Kind, float] = {Kind.OBJECTIVES: number * setting.agents.sources * setting.agents.targets}
    if options.kernel == "raw":
        costs[Kind.SAMPLES] = number * crossing * sizes.dimension
    else:
        costs[Kind.SKETCH] = packed_bytes(options.bits) * crossing
        costs[Kind.NORMS] = number * crossing
    per_round = sum(asked[role].sum() for role in Role)
    if options.pairs is not None:
        per_round = options.pairs * sum(float(setting.protocol.marginals(role) @ asked[role]) for role in Role)
    costs[Kind.POTENTIALS] = number * rounds * per_round
    return {kind: round(float(cost)) for kind, cost in costs.items()}


def _numbers_asked(setting: Setting, role: Role, neighbours: int | None) -> Floats:
    """For each agent of a role, the numbers it receives when it asks L of its neighbours for their block (mean)."""
    support = setting.protocol.support if role is Role.SOURCE else setting.protocol.support.T
    degree = support.sum(axis=1)
    whole = support @ setting.sizes.counts[role.other]
    asked = degree if neighbours is None else np.minimum(neighbours, degree)
    return np.asarray(whole * asked / np.maximum(degree, 1))


def _settings(options: EOTOptions) -> dict[str, Any]:
    settings = {**asdict(options), "eps_scale": options.scale}
    if not isinstance(options.protocol, str):
        settings["protocol"] = options.protocol.tolist()
    return settings
