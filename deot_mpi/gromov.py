"""Decentralised entropic Gromov-Wasserstein (Algorithm 4), plain or fused: alternate between the duals and P.

GW_eps = alpha (S_X + S_Y - S_XY) + min_P max_{u,v} [ 32 alpha |P|^2 + F(u,v; c_P) ] (+ eps for the KL form), with
c_P(x,y) = alpha (-4 |x|^2 |y|^2 - 32 x^T P y) + (1 - alpha) |f - g|^2, samples centred in their own domain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, replace
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import ArrayLike

from deot_mpi.agent import Agents
from deot_mpi.alignment.alternation import Alternation, Match, Run, temperatures
from deot_mpi.alignment.moment import CrossMoment, ExchangedMoment, SurrogateMoment
from deot_mpi.alignment.selfterms import mean_feature_cost, self_terms_from_moments, self_terms_from_sketches
from deot_mpi.data.samples import Floats, Samples, check_samples
from deot_mpi.data.start import Start, agree_on_alignment, agree_on_start, given_start
from deot_mpi.errors import InputError
from deot_mpi.exchange.traffic import gromov_bytes
from deot_mpi.faults.survival import Past, survive
from deot_mpi.kernel.gromov import AlignedKernel, BitSettings, RawGromovKernel, SketchGromovKernel, Spaces
from deot_mpi.kinds import Kind
from deot_mpi.options import GromovOptions
from deot_mpi.privacy.disclosure import gromov_notes, gromov_reference_notes, loss_notes, protocol_notes
from deot_mpi.problem import Holding, build, make_solver, open_channels
from deot_mpi.randomness import Purpose, generator
from deot_mpi.reference import REFERENCE_TIMEOUT, PooledMatch, require_pot, solve_pooled_gromov
from deot_mpi.resources import one_blas_thread
from deot_mpi.result import GromovReference, GromovResult, TracePoint, Values
from deot_mpi.roles import Role
from deot_mpi.running import Clock, Progress, Recorder, account, settings_of, spent, understood
from deot_mpi.setting import Setting, choose_eps
from deot_mpi.solvers import Solver, Status
from deot_mpi.solvers.base import LARGEST_EXPONENT

_MARGINALS_HOLD = 1e-3
"""Marginal error beyond which a start's value is not compared with others'."""
_LARGEST_VALUE, _SMALLEST_SQUARE = 1e30, 1e-60
"""Of centred samples and of their mean squared norm: costs are fourth powers, and float32 is near."""


def gromov(
    comm: MPI.Intracomm,
    samples: ArrayLike,
    role: str,
    *,
    weights: ArrayLike | None = None,
    features: ArrayLike | None = None,
    start: ArrayLike | None = None,
    alignment: ArrayLike | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> GromovResult:
    """Entropic Gromov-Wasserstein between the samples of all 'source' and all 'target' ranks. Collective over ``comm``.

    ``samples`` are this rank's own rows, N_i x D_X for sources and M_j x D_Y for targets; ``features`` (for all ranks
    or none) are rows in a space both domains share, for the fused problem. ``alignment`` is a P to start from (that of
    source agent 0 counts), ``start`` this agent's potential to go with it. ``options`` are the fields of
    ``GromovOptions``. Raises ``InputError`` on all ranks if any rank's input is unusable.
    """
    own_role, checked = understood(comm, role, GromovOptions, options)

    def load(agents: Agents) -> Samples:
        return check_samples(samples, weights, agents.name, features)

    return solve_gromov(comm, own_role, load, checked, progress, given_start(start), given_start(alignment))


def solve_gromov(
    comm: MPI.Intracomm,
    role: Role,
    load: Callable[[Agents], Samples],
    options: GromovOptions,
    progress: Progress | None = None,
    start: Start | None = None,
    alignment: Start | None = None,
) -> GromovResult:
    """As ``gromov``, with samples (and a start) that are loaded once the agent knows who it is."""

    def attempt(those: MPI.Intracomm, past: Past) -> GromovResult:
        return _solve_gromov(those, role, load, options, progress, start, alignment, past)

    with one_blas_thread():  # as for entropic OT: one order of addition
        return survive(comm, role, options, attempt)


def _solve_gromov(
    comm: MPI.Intracomm,
    role: Role,
    load: Callable[[Agents], Samples],
    options: GromovOptions,
    progress: Progress | None,
    start: Start | None,
    alignment: Start | None,
    past: Past,
) -> GromovResult:
    clock = Clock()
    setting = past.meet(comm, role, load, options, one_space=False)
    with setting.agents.freed_on_error():
        potential = agree_on_start(setting, None if past.lost else start)
        given = agree_on_alignment(setting, None if past.lost else alignment)
        if potential is not None and given is None:
            raise InputError(
                "there are potentials to start from, but source agent 0 has no alignment that goes with them; give "
                "both or none."
            )
        if options.reference:
            setting.collectives.all_or_none(require_pot)
        match = _prepare(setting, options, past)
        setup_seconds = clock.seconds
        runs, trace = _all_starts(match, options, progress, given, potential)
        seconds = clock.seconds - setup_seconds
        result = _result(match, options, runs, trace, (setup_seconds, seconds), clock)
    setting.agents.free()
    return replace(result, notes=(*result.notes, *loss_notes(past.lost)))


def _prepare(setting: Setting, options: GromovOptions, past: Past) -> Match:
    sizes = setting.sizes
    spaces = Spaces(sizes.dimensions[Role.SOURCE], sizes.dimensions[Role.TARGET], sizes.features)
    alpha = _choose_alpha(options, spaces)
    setting.collectives.all_or_none(lambda: _check_values(setting))
    how = BitSettings(options.bits, options.seed, options.estimator, options.orthogonal, options.correction)
    terms = (
        self_terms_from_sketches(setting, spaces, how, options.within)
        if options.sketched_terms
        else self_terms_from_moments(setting, spaces)
    )

    for role, square in ((Role.SOURCE, terms.source_square), (Role.TARGET, terms.target_square)):
        if 0.0 < square < _SMALLEST_SQUARE:
            raise InputError(
                f"the {role.value} samples are {np.sqrt(square):.1e} from their mean, and the fourth power of that is "
                "lost in rounding; rescale the columns."
            )

    def mean_cost() -> float:
        features = mean_feature_cost(setting, spaces) if spaces.features else 0.0
        return alpha * terms.mean_cost + (1.0 - alpha) * features

    _, eps = past.settle(options, lambda: (options, choose_eps(options, mean_cost)))
    if not alpha * terms.mean_cost < LARGEST_EXPONENT * eps:
        raise InputError(
            f"eps is {eps:g}, and the mean cost {terms.mean_cost / eps:.1e} times as much: doubles have no digits "
            f"left; use eps of {alpha * terms.mean_cost / LARGEST_EXPONENT:.1e} or more."
        )
    kernel: AlignedKernel = RawGromovKernel(spaces, eps, alpha)
    if options.kernel == "sketch":
        kernel = SketchGromovKernel(spaces, eps, alpha, how)
    holding = build(setting, kernel, eps, options, keep=True)
    return Match(setting, spaces, alpha, terms, kernel, holding, _moment(setting, holding, spaces, kernel, options))


def _check_values(setting: Setting) -> None:
    largest = float(np.abs(setting.rows).max())
    if not largest < _LARGEST_VALUE:
        raise InputError(
            f"{setting.agents.name}: a value of size {largest:.1e} once centred, whose fourth power leaves the range "
            "of numbers; rescale the columns."
        )


def _choose_alpha(options: GromovOptions, spaces: Spaces) -> float:
    if not spaces.features:
        if options.alpha not in (None, 1.0):
            raise InputError(
                f"alpha is {options.alpha:g}, but the agents have no features to weigh against structure; give "
                "features to all of them, or leave alpha out."
            )
        return 1.0
    return 0.5 if options.alpha is None else float(options.alpha)


def _moment(
    setting: Setting, holding: Holding, spaces: Spaces, kernel: AlignedKernel, options: GromovOptions
) -> CrossMoment:
    if isinstance(kernel, SketchGromovKernel):
        if options.moment == "exchange":
            return ExchangedMoment(holding, setting.rows, spaces, setting.edges)
        return SurrogateMoment(holding, setting.rows, spaces, kernel)
    return CrossMoment(holding, setting.rows, spaces)


def _all_starts(
    match: Match,
    options: GromovOptions,
    progress: Progress | None,
    given: Floats | None,
    potential: Floats | None,
) -> tuple[list[Run], tuple[TracePoint, ...]]:
    recorder = Recorder(match.setting, progress)
    view, runs = match.holding.view, []
    with open_channels(match.setting, view, options) as channels:

        def solver_at(temperature: float) -> Solver:
            holding = replace(match.holding, view=replace(view, eps=temperature * view.eps))
            return make_solver(match.setting, holding, channels, options)

        cooling = temperatures(match.alpha * match.terms.mean_cost, match.eps) if options.eps_scaling else [1.0]
        for number in range(options.starts):
            recorder.start = number
            alternation = Alternation(match, solver_at, options, recorder)
            if number == 0 and given is not None:
                runs.append(alternation.run(given, potential, [1.0]))
            else:
                first = random_alignment(match.spaces, match.terms.alignment_size, options.seed, number)
                runs.append(alternation.run(first, None, cooling))
    return runs, tuple(recorder.trace)


def random_alignment(spaces: Spaces, size: float, seed: int, number: int) -> Floats:
    """A random P of the size it would have for two isotropic clouds that match."""
    drawn = generator(seed, Purpose.ALIGNMENTS, number).standard_normal((spaces.source, spaces.target))
    norm = float(np.linalg.norm(drawn)) or 1.0
    return np.asarray(drawn * (size / np.sqrt(min(spaces.source, spaces.target)) / norm))


def _result(
    match: Match,
    options: GromovOptions,
    runs: list[Run],
    trace: tuple[TracePoint, ...],
    seconds: tuple[float, float],
    clock: Clock,
) -> GromovResult:
    setting, view = match.setting, match.holding.view
    best = min(runs, key=lambda run: (_rank(run, options.tol), run.values.regularised_cost))
    costs = spent(setting, clock)
    reference = _pooled_reference(match, best.alignment) if options.reference else None
    rounds = sum(run.report.rounds for run in runs)
    formula = gromov_bytes(setting, match.spaces, options, rounds, sum(run.report.outer for run in runs))
    known = account(setting, best.ended.errors, costs, formula)
    protocol = setting.protocol.report(None)
    checks = sum(run.ended.check_seconds for run in runs)
    return GromovResult(
        values=best.values,
        eps=match.eps,
        status=best.ended.status,
        rounds=rounds,
        seconds=seconds[1] - checks,
        setup_seconds=seconds[0],
        values_seconds=checks,
        agents=known.agents,
        protocol=protocol,
        ledger=known.ledger,
        trace=trace,
        role=view.role,
        index=view.index,
        potential=best.state.potential,
        notes=(
            *gromov_notes(setting, options),
            *protocol_notes(protocol),
            *gromov_reference_notes(options.reference, reference),
        ),
        settings=settings_of(options),
        alignment=best.alignment,
        starts=tuple(run.report for run in runs),
        alpha=match.alpha,
        reference=reference,
        self_terms={"S_X": match.terms.source, "S_Y": match.terms.target, "S_XY": match.terms.cross},
    )


def _rank(run: Run, tol: float) -> int:
    """A value says something only where the marginals hold."""
    if run.ended.status is Status.DIVERGED:
        return 2
    return int(run.ended.sums.error > max(_MARGINALS_HOLD, 100.0 * tol))


def _pooled_reference(match: Match, alignment: Floats) -> GromovReference | None:
    """Pool the samples on rank 0, go on from P there with POT, tell everybody."""
    setting, spaces = match.setting, match.spaces
    shares = setting.storage_share * setting.samples.shares
    widest = max(spaces.source, spaces.target) + spaces.features
    shown = np.zeros((shares.size, widest + 1))  # as wide for both roles
    shown[:, : setting.rows.shape[1]], shown[:, -1] = setting.rows, shares
    pooled = setting.collectives.pool(shown, setting.sizes.counts, REFERENCE_TIMEOUT)
    numbers, solver = np.zeros(4), ""
    if pooled is not None:
        rows = {role: pooled[role][:, : spaces.of(role) + spaces.features] for role in Role}
        x, y = (spaces.structure(rows[role], role) for role in Role)
        f, g = (spaces.shared(rows[role], role) for role in Role)
        cost = None if not spaces.features else ((f[:, None, :] - g[None, :, :]) ** 2).sum(axis=2)
        a, b = (pooled[role][:, -1] for role in Role)
        values, solver = solve_pooled_gromov(PooledMatch(x, y, a, b, cost, match.alpha), alignment, match.eps)
        numbers[:] = astuple(values)
    setting.collectives.broadcast(Kind.REFERENCE, numbers, REFERENCE_TIMEOUT)
    solver = setting.collectives.tell(solver)
    return (
        GromovReference(Values(*(float(number) for number in numbers)), solver) if np.isfinite(numbers).all() else None
    )
