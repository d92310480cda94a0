"""Decentralised entropic optimal transport: from an agent's samples to W~_eps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import ArrayLike

from deot_mpi.agent import Agents
from deot_mpi.data.samples import Floats, Samples, check_samples
from deot_mpi.data.start import Start, agree_on_start, given_start
from deot_mpi.divergence import self_costs
from deot_mpi.exchange.traffic import expected_bytes, self_term_bytes
from deot_mpi.faults.keeper import Keeper, Stop
from deot_mpi.faults.survival import Past, survive
from deot_mpi.kernel import Kernel, RawKernel, SketchKernel, log_block
from deot_mpi.kinds import Kind
from deot_mpi.options import EOTOptions
from deot_mpi.privacy.choose import Chosen, protected
from deot_mpi.privacy.disclosure import (
    divergence_notes,
    loss_notes,
    privacy_notes,
    protection_notes,
    protocol_notes,
    reference_notes,
)
from deot_mpi.privacy.findings import Protection
from deot_mpi.privacy.guarantee import Guarantee, answers_sent, guarantee
from deot_mpi.privacy.noise import Chance, Noise, private_chance
from deot_mpi.problem import Holding, build, check_resolution, largest_local_distance, make_solver, open_channels
from deot_mpi.reference import FLAT_SIZE, REFERENCE_TIMEOUT, Pooled, compare, flatten, require_pot, unflatten
from deot_mpi.resources import one_blas_thread
from deot_mpi.result import EOTResult, ErrorDecomposition, ReferenceValues, SelfCosts, TracePoint, Values
from deot_mpi.roles import Role
from deot_mpi.running import Clock, Ended, Progress, Recorder, account, run_to_end, settings_of, spent, understood
from deot_mpi.setting import Setting, centred, choose_eps, mean_cost
from deot_mpi.solvers import SolverState
from deot_mpi.solvers.base import Rule


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
    own_role, checked = understood(comm, role, EOTOptions, options)

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
    stop: Stop | None = None,
) -> EOTResult:
    """As ``eot``, with samples (and potentials to start from) that are loaded once the agent knows who it is.

    ``stop`` says whether this process was asked to stop; with checkpoints, all agents then do.
    """

    def attempt(those: MPI.Intracomm, past: Past) -> EOTResult:
        return _solve_eot(those, role, load, options, progress, start, stop, past)

    # Agents of one node must not each use all its cores, and one BLAS thread adds in one order.
    with one_blas_thread():
        return survive(comm, role, options, attempt)


def _solve_eot(
    comm: MPI.Intracomm,
    role: Role,
    load: Callable[[Agents], Samples],
    options: EOTOptions,
    progress: Progress | None,
    start: Start | None,
    stop: Stop | None,
    past: Past,
) -> EOTResult:
    clock = Clock()
    setting = past.meet(comm, role, load, options, centre=options.centre)
    with setting.agents.freed_on_error():
        first = past.start(agree_on_start(setting, None if past.lost else start))
        keeper = past.keeper(setting, options, stop)
        if options.reference:
            setting.collectives.all_or_none(require_pot)
        options, (protection, eps) = past.settle(options, lambda: settled(setting, options))
        kernel, holding = prepare(setting, options, eps, keeper.private_seed, keep=True if options.reference else None)
        setup_seconds, terms = clock.seconds, None
        if options.debias:
            chance = _chance(setting, options, keeper.private_seed)
            terms = self_costs(setting, kernel, eps, options, chance, keeper, progress)
        solution = solve_prepared(setting, holding, options, progress, first, keeper, past)
        result = _result(setting, kernel, holding, options, solution, terms, setup_seconds, clock)
        said = keeper.close()
    setting.agents.free()
    notes = (*result.notes, *protection_notes(protection), *said, *loss_notes(past.lost))
    return replace(result, protection=protection, notes=notes)


def settled(setting: Setting, options: Chosen) -> tuple[Chosen, tuple[Protection | None, float]]:
    """What the data decide: bits and flips where they are to be chosen, and eps."""
    chosen, protection = protected(setting, options, lambda: eps_of(setting, options))
    return chosen, (protection, eps_of(setting, chosen))


def prepare(
    setting: Setting, options: EOTOptions, eps: float, private_seed: int, *, keep: bool | None = None
) -> tuple[Kernel, Holding]:
    """The kernel, and what every agent holds of it; ``keep`` what was shown for later. ``private_seed`` is this agent's
    own, for noise, where the options have none."""
    kernel = _kernel(setting, eps, options)
    seeded = None
    if options.pairwise_seeds and isinstance(kernel, SketchKernel):
        seeded = partial(_reseeded, kernel)
    chance = _chance(setting, options, private_seed)
    holding = build(setting, kernel, eps, options, keep=keep, chance=chance, seeded=seeded)
    setting.collectives.all_or_none(lambda: check_resolution(holding.view, setting.agents.name))
    return kernel, holding


def _chance(setting: Setting, options: EOTOptions, private_seed: int) -> Chance:
    """Of this agent alone; asked twice, it gives the same noise twice."""
    agents, seed = setting.agents, private_seed if options.private_seed is None else options.private_seed
    return private_chance(seed, agents.role, agents.known_as(agents.role, agents.index))


def eps_of(setting: Setting, options: EOTOptions) -> float:
    """eps in cost units. Collective where it is a share of the mean cost."""
    # Far from the origin, moments cancel: centred for the mean cost even where the kernel is not.
    return choose_eps(options, lambda: mean_cost(setting if options.centre else centred(setting)))


def _kernel(setting: Setting, eps: float, options: EOTOptions) -> Kernel:
    dimension = setting.sizes.dimension
    if options.kernel == "raw":
        return RawKernel(eps, dimension)
    return SketchKernel(
        eps, dimension, options.bits, options.seed, options.estimator, options.orthogonal, options.correction,
        Noise(options.flip, options.norm_step, options.one_sided),
    )  # fmt: skip


def answers_of(setting: Setting, options: EOTOptions) -> int:
    return answers_sent(setting.protocol.support, options.pairwise_seeds, options.one_sided)


def guarantee_of(setting: Setting, options: EOTOptions) -> Guarantee | None:
    """What flips guarantee; collective where there are any."""

    def ask(composed: Callable[[], Floats]) -> Floats:
        numbers = composed() if setting.agents.comm.rank == 0 else np.empty(2)
        setting.collectives.broadcast(Kind.CONTROL, numbers, REFERENCE_TIMEOUT)
        return numbers

    return guarantee(options.flip, options.bits, answers_of(setting, options), ask)


def _reseeded(kernel: SketchKernel, seed: int) -> Kernel:
    return replace(kernel, seed=seed)


@dataclass(frozen=True)
class Solution:
    state: SolverState
    resumed: int | None
    """The round of the checkpoint it began with."""
    ended: Ended
    looks: int
    """Exchanges of potentials for measuring."""
    curvatures: int
    """Exchanges of curvatures."""
    trace: tuple[TracePoint, ...]


def transport_values(ended: Ended, eps: float) -> Values:
    """The four values from the sums over all agents."""
    sums = ended.sums
    dual = sums.linear - eps * sums.mass
    return Values(dual, dual + eps, sums.transport_cost, sums.transport_cost + eps * sums.entropy)


def solve_prepared(
    setting: Setting,
    holding: Holding,
    options: EOTOptions,
    progress: Progress | None,
    start: Floats | None = None,
    keeper: Keeper | None = None,
    past: Past | None = None,
) -> Solution:
    """The rounds and the final reduce, with the kernel that agents hold."""
    recorder = Recorder(setting, progress)
    rule = Rule(options.rounds, options.tol, options.stop, options.check_every)
    with open_channels(setting, holding.view, options) as channels:
        solver = make_solver(setting, holding, channels, options)
        state = solver.setup(start) if keeper is None else keeper.start(solver, start, recorder.trace)
        if past is not None:
            past.state = state
        ended = run_to_end(setting, solver, state, rule, options, recorder, keeper)
    resumed = None if keeper is None else keeper.resumed_from
    return Solution(state, resumed, ended, solver.looks, solver.curvatures, tuple(recorder.trace))


def _result(
    setting: Setting,
    kernel: Kernel,
    holding: Holding,
    options: EOTOptions,
    solution: Solution,
    terms: SelfCosts | None,
    setup_seconds: float,
    clock: Clock,
) -> EOTResult:
    view, ended = holding.view, solution.ended
    values, rounds = transport_values(ended, view.eps), solution.state.round - (solution.resumed or 0)
    costs, guaranteed = spent(setting, clock), guarantee_of(setting, options)
    reference, errors, pairs = None, None, "edges"
    tau: float | None
    if options.reference:
        reference, errors, tau = _compare_with_pooled(
            setting, kernel, holding, options.pairwise_seeds, values.dual_objective, solution.state.round
        )
        pairs = "all"
    else:
        tau = _tau_on_edges(setting, holding, kernel)
    protocol = setting.protocol.report(tau, pairs)
    within = self_term_bytes(setting, options, terms.rounds) if terms is not None and terms.here else {}
    formula = expected_bytes(setting, options, rounds, solution.looks, solution.curvatures)
    known = account(setting, ended.errors, costs, formula, within)
    return EOTResult(
        values=values,
        eps=view.eps,
        status=ended.status,
        rounds=solution.state.round,
        seconds=ended.rounds_seconds,
        setup_seconds=setup_seconds,
        values_seconds=ended.check_seconds,
        agents=known.agents,
        protocol=protocol,
        ledger=known.ledger,
        trace=solution.trace,
        role=view.role,
        index=setting.agents.known_as(view.role, view.index),
        resumed_from=solution.resumed,
        potential=solution.state.potential,
        self_terms=terms,
        reference=reference,
        errors=errors,
        notes=(
            *privacy_notes(setting, options),
            *protocol_notes(protocol),
            *divergence_notes(setting.protocol, terms),
            *reference_notes(reference),
        ),
        settings=settings_of(options),
        guarantee=guaranteed,
    )


def _tau_on_edges(setting: Setting, holding: Holding, kernel: Kernel) -> float | None:
    """The paper's tau, measured by the sources on the edges they have; not needed where E is the storage protocol."""
    if setting.protocol.is_storage:
        return None
    own = largest_local_distance(holding, kernel) if holding.view.role is Role.SOURCE else -np.inf
    table = setting.collectives.share(Kind.OBJECTIVES, np.array([own]), REFERENCE_TIMEOUT)
    return float(table.source.max())


def _compare_with_pooled(
    setting: Setting, kernel: Kernel, holding: Holding, pairwise: bool, reached: float, rounds: int
) -> tuple[ReferenceValues, ErrorDecomposition, float]:
    """Pool the samples on rank 0, and the kernel where rows do not give it again; solve there with POT, tell all."""
    shown = np.column_stack([setting.rows, setting.samples.shares])
    pooled = setting.collectives.pool(shown, setting.sizes.counts, REFERENCE_TIMEOUT)
    estimated = None
    if isinstance(kernel, SketchKernel) and (kernel.noise.any or pairwise):
        estimated = _pooled_kernel(setting, holding, kernel)
    numbers, solver = np.zeros(FLAT_SIZE), ""
    if pooled is not None:
        together = Pooled(
            rows={role: pooled[role][:, :-1] for role in Role},
            shares={role: pooled[role][:, -1] for role in Role},
            owner={role: setting.sizes.owners(role) for role in Role},
            log_kernel=estimated,
        )
        reference, errors, tau = compare(together, setting.protocol, kernel, holding.view.eps, reached, rounds)
        numbers, solver = flatten(reference, errors, tau), reference.solver
    setting.collectives.broadcast(Kind.REFERENCE, numbers, REFERENCE_TIMEOUT)
    return unflatten(numbers, setting.collectives.tell(solver))


def _pooled_kernel(setting: Setting, holding: Holding, kernel: Kernel) -> Floats | None:
    """log K^ as the sources have it, on rank 0: chance that only its agents know went into it. 0 off E's edges."""
    sizes, source = setting.sizes, setting.agents.role is Role.SOURCE
    widths = {Role.SOURCE: int(sizes.counts[Role.TARGET].sum()), Role.TARGET: 0}
    own = np.zeros((setting.samples.count, widths[setting.agents.role]))
    if source:
        owners = sizes.owners(Role.TARGET)
        for j, theirs in holding.shown.items():
            own[:, owners == j] = log_block(kernel, holding.own[j], theirs)
    pooled = setting.collectives.pool(own, sizes.counts, REFERENCE_TIMEOUT, widths)
    return None if pooled is None else pooled[Role.SOURCE]
