"""Distributed domain adaptation: labelled source agents, unlabelled target agents, a plan between them.

The transport problem is that of ``eot``; what its plan carries is labels. Every target agent ends with labels for its
own rows (MATH: Domain adaptation).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import ArrayLike, NDArray

from deot_mpi.adaptation.carry import Penalty, barycentres, class_sums, labelled_rows, slopes_to_sources
from deot_mpi.adaptation.choice import choose_scale
from deot_mpi.adaptation.classes import UNKNOWN, Classes, Labels, agree_on_classes
from deot_mpi.adaptation.nearest import nearest_labels
from deot_mpi.adaptation.penalty import PenalisedPairs, entropy_slopes, lpl1_slopes
from deot_mpi.agent import Agents
from deot_mpi.data.samples import Floats, Samples, check_samples
from deot_mpi.data.scaling import scaled
from deot_mpi.data.start import Start, agree_on_start, given_start
from deot_mpi.eot import guarantee_of, prepare, settled, transport_values
from deot_mpi.exchange.traffic import adapt_bytes
from deot_mpi.faults.keeper import Keeper, Stop
from deot_mpi.faults.survival import Past, survive
from deot_mpi.kernel import Kernel
from deot_mpi.kinds import Kind
from deot_mpi.options import AdaptOptions
from deot_mpi.privacy.disclosure import adapt_notes, choice_notes, loss_notes, protection_notes, protocol_notes
from deot_mpi.privacy.findings import Protection
from deot_mpi.problem import Holding, make_solver, open_channels
from deot_mpi.resources import one_blas_thread
from deot_mpi.result import AdaptResult, EpsChoice, TracePoint
from deot_mpi.roles import Role
from deot_mpi.running import Clock, Ended, Progress, Recorder, account, run_to_end, settings_of, spent, understood
from deot_mpi.setting import Setting
from deot_mpi.solvers import Solver, SolverState
from deot_mpi.solvers.base import Rule
from deot_mpi.sums import ordered_sum


def adapt(
    comm: MPI.Intracomm,
    samples: ArrayLike,
    role: str,
    *,
    labels: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    start: ArrayLike | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> AdaptResult:
    """Labels for the rows of all 'target' ranks from those of all 'source' ranks. Collective over ``comm``.

    ``labels`` are whole numbers, one per row; every source needs them, a target may have them, and is then told how
    many were predicted (they are used for nothing else). The rest is as for ``eot``; ``options`` are the fields of
    ``AdaptOptions``.
    """
    own_role, checked = understood(comm, role, AdaptOptions, options)

    def load(agents: Agents) -> Samples:
        return check_samples(samples, weights, agents.name, labels=labels)

    return solve_adapt(comm, own_role, load, checked, progress, given_start(start))


def solve_adapt(
    comm: MPI.Intracomm,
    role: Role,
    load: Callable[[Agents], Samples],
    options: AdaptOptions,
    progress: Progress | None = None,
    start: Start | None = None,
    stop: Stop | None = None,
) -> AdaptResult:
    """As ``adapt``, with samples that are loaded once the agent knows who it is."""

    def load_scaled(agents: Agents) -> Samples:
        samples = load(agents)
        return replace(samples, rows=scaled(samples.rows, options.scaling, agents.name))

    def attempt(those: MPI.Intracomm, past: Past) -> AdaptResult:
        clock = Clock()
        setting = past.meet(those, role, load_scaled, options, centre=options.centre)
        with setting.agents.freed_on_error():
            first = past.start(agree_on_start(setting, None if past.lost else start))
            keeper = past.keeper(setting, options, stop)
            chosen, (choice, protection, eps) = past.settle(
                options, lambda: _settled(those, setting, options, progress)
            )
            result = _adapt(setting, chosen, eps, (progress, first, clock), keeper, past)
            said = keeper.close()
        setting.agents.free()
        told = (*choice_notes(options, choice), *protection_notes(protection))
        notes = (*result.notes, *told, *said, *loss_notes(past.lost))
        settings = {**result.settings, "choose_eps": options.choose_eps}
        return replace(result, choice=choice, notes=notes, settings=settings, protection=protection)

    with one_blas_thread():  # as for entropic OT: one order of addition
        return survive(comm, role, options, attempt)


def _settled(
    comm: MPI.Intracomm, setting: Setting, options: AdaptOptions, progress: Progress | None
) -> tuple[AdaptOptions, tuple[EpsChoice | None, Protection | None, float]]:
    """What the data decide: eps, where it is to be chosen, and bits and flips, where these are."""

    def trial(number: int, own_role: Role, samples: Samples, tried: AdaptOptions) -> AdaptResult:
        def told(point: TracePoint) -> None:
            if progress is not None:
                progress(replace(point, trial=number))

        tried = replace(tried.without_checkpoints(), on_failure="abort")  # the whole is what is gone on with
        return solve_adapt(comm, own_role, lambda _: samples, tried, told)

    choice = None
    if options.choose_eps:
        choice = choose_scale(setting, options, trial)
        options = replace(options, choose_eps=False, eps_scale=choice.chosen)
    chosen, (protection, eps) = settled(setting, options)
    return chosen, (choice, protection, eps)


@dataclass(frozen=True)
class _Task:
    """Everything the steps of an adaptation have in common."""

    setting: Setting
    holding: Holding
    kernel: Kernel
    solver: Solver
    options: AdaptOptions
    classes: Classes

    @property
    def one_hot(self) -> Floats:
        labels = self.setting.samples.labels
        if self.setting.agents.role is Role.TARGET or labels is None:
            return np.zeros((0, self.classes.count))
        return self.classes.one_hot(labels)

    def class_sums(self, state: SolverState) -> Floats:
        return class_sums(self.setting, self.holding, self.solver.plan(state), self.one_hot)


@dataclass(frozen=True)
class _Carried:
    """What the plan has brought an agent; empty where it brought nothing."""

    predictions: Labels
    scores: Floats
    mapped: Floats
    received: Floats
    received_labels: Labels


def _nothing(dimension: int, classes: int) -> _Carried:
    labels, rows = np.zeros(0, dtype=np.int64), np.zeros((0, dimension))
    return _Carried(labels, np.zeros((0, classes)), rows, rows, labels)


def _adapt(
    setting: Setting,
    options: AdaptOptions,
    eps: float,
    run: tuple[Progress | None, Floats | None, Clock],
    keeper: Keeper,
    past: Past,
) -> AdaptResult:
    progress, start, clock = run
    classes = agree_on_classes(setting)
    kernel, holding = prepare(setting, options, eps, keeper.private_seed, keep=True)
    setup_seconds = clock.seconds
    recorder = Recorder(setting, progress)
    with open_channels(setting, holding.view, options) as channels:
        solver = make_solver(setting, holding, channels, options)
        task = _Task(setting, holding, kernel, solver, options, classes)
        state, ended, penalty = _solve(task, recorder, start, keeper, past)
        carried = _carry(task, state, penalty)
    return _result(
        setting, holding, options, classes, (state, ended, keeper.resumed_from), carried, tuple(recorder.trace),
        setup_seconds, clock,
    )  # fmt: skip


def _solve(
    task: _Task, recorder: Recorder, start: Floats | None, keeper: Keeper, past: Past
) -> tuple[SolverState, Ended, Penalty | None]:
    """One transport problem or, class-regularised, one for each tangent of the penalty."""
    options, solver = task.options, task.solver
    rule = Rule(options.rounds, options.tol, options.stop, options.check_every)
    turns = options.class_rounds if options.method == "class-regularised" else 1
    potential, rounds, penalty = start, 0, None
    for turn in range(turns):
        recorder.outer = turn
        state = keeper.start(solver, potential, recorder.trace)
        past.state = state
        if turn < turns - 1:
            solver.run(state, rule, recorder)  # on the way, nobody needs exact values
            penalty = _penalise(task, state)
        else:
            ended = run_to_end(task.setting, solver, state, rule, options, recorder, keeper)
        recorder.rounds_before += state.round
        rounds, potential = rounds + state.round, state.potential
    state.round = rounds
    return state, ended, penalty


def _penalise(task: _Task, state: SolverState) -> Penalty:
    """Every target turns its class sums into slopes, every source adds these to its rows' costs."""
    holding, classes, labels, view = task.holding, task.classes, task.setting.samples.labels, task.holding.view
    sums, weight = task.class_sums(state), task.options.weight_of_classes
    if view.role is Role.SOURCE:
        own = np.zeros((classes.count, 0))
    elif task.options.class_penalty == "entropy":
        own = entropy_slopes(sums, classes.shares, view.marginal * view.shares, weight)
    else:
        own = lpl1_slopes(sums, weight / view.eps)
    heard = slopes_to_sources(task.setting, holding, own, classes.count)
    if view.role is Role.TARGET or labels is None:
        return Penalty(np.zeros(0, dtype=np.int64), own)
    penalty = Penalty(classes.places(labels), heard)
    if holding.rows is not None:
        holding.rows.take(PenalisedPairs(holding.pairs(task.kernel), penalty.places, penalty.table))
    return penalty


def _carry(task: _Task, state: SolverState, penalty: Penalty | None) -> _Carried:
    setting, classes, target = task.setting, task.classes, task.setting.agents.role is Role.TARGET
    nothing = _nothing(setting.sizes.dimension, classes.count)
    if task.options.reading == "labels":
        sums = task.class_sums(state).T
        if not target:
            return nothing
        whole = sums.sum(axis=1, keepdims=True)
        scores = np.divide(sums, whole, out=np.zeros_like(sums), where=whole > 0)
        likeliest = classes.names[classes.lift(scores).argmax(axis=1)]
        return replace(nothing, predictions=np.where(whole[:, 0] > 0, likeliest, UNKNOWN), scores=scores)
    mapped = barycentres(setting, task.holding, task.kernel, task.solver.plan(state), state.potential, penalty)
    known, labels = labelled_rows(setting, mapped, setting.samples.labels)
    centre = setting.samples.rows[0] - setting.rows[0]
    if not target:
        return replace(nothing, mapped=mapped + centre)
    predictions = nearest_labels(known, labels, setting.rows) if len(known) else np.full(len(setting.rows), UNKNOWN)
    return replace(nothing, predictions=predictions, received=known + centre, received_labels=labels)


def _result(
    setting: Setting,
    holding: Holding,
    options: AdaptOptions,
    classes: Classes,
    solved: tuple[SolverState, Ended, int | None],
    carried: _Carried,
    trace: tuple[TracePoint, ...],
    setup_seconds: float,
    clock: Clock,
) -> AdaptResult:
    view, (state, ended, resumed) = holding.view, solved
    right = _right(setting, carried.predictions)
    costs, guaranteed = spent(setting, clock), guarantee_of(setting, options)
    known = account(
        setting, ended.errors, costs, adapt_bytes(setting, options, state.round - (resumed or 0), classes.count)
    )
    protocol = setting.protocol.report(None)
    counted = right[:, 1].sum()
    return AdaptResult(
        values=transport_values(ended, view.eps),
        eps=view.eps,
        status=ended.status,
        rounds=state.round,
        seconds=ended.rounds_seconds,
        setup_seconds=setup_seconds,
        values_seconds=ended.check_seconds,
        agents=known.agents,
        protocol=protocol,
        ledger=known.ledger,
        trace=trace,
        role=view.role,
        index=setting.agents.known_as(view.role, view.index),
        resumed_from=resumed,
        potential=state.potential,
        notes=(*_values_notes(options), *adapt_notes(setting, options), *protocol_notes(protocol)),
        settings=settings_of(options),
        guarantee=guaranteed,
        method=options.method,
        classes=tuple(int(name) for name in classes.names),
        class_shares=tuple(float(share) for share in classes.shares),
        predictions=carried.predictions,
        scores=carried.scores,
        mapped=carried.mapped,
        received=carried.received,
        received_labels=carried.received_labels,
        accuracy=ordered_sum(right[:, 0]) / float(counted) if counted else None,
        accuracies=tuple(float(hits / rows) if rows else None for hits, rows in right),
    )


def _values_notes(options: AdaptOptions) -> tuple[str, ...]:
    """What the values are of, where it is not the cost alone."""
    if options.method != "class-regularised" or options.class_rounds == 1:
        return ()
    return (
        "Values are those of the last tangent's problem, whose cost is C and the slope of the penalty: transport_cost "
        "is <C + slope,pi>, not <C,pi>, and the other values have the slope in them, too.",
    )


def _right(setting: Setting, predictions: Labels) -> NDArray[np.float64]:
    """For each target agent, how many of its known labels were predicted, and how many it knows. Collective."""
    truth, row = setting.samples.labels, np.zeros(2)
    if setting.agents.role is Role.TARGET and truth is not None and setting.edges.neighbours:
        row[:] = float((predictions == truth).sum()), truth.size
    return setting.collectives.share(Kind.LABELS, row).target
