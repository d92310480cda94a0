"""The audit: how near a curious neighbour comes to an agent's rows, and what the distance costs that protects them.

Every agent whose sketches are sent plays that neighbour against itself (``privacy.victims``); statistics are shared.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import ArrayLike

from deot_mpi.adaptation.carry import parts_of_barycentres
from deot_mpi.agent import Agents
from deot_mpi.data.samples import Floats, Samples, check_samples
from deot_mpi.data.scaling import scaled
from deot_mpi.eot import answers_of, eps_of, guarantee_of, prepare, solve_eot, solve_prepared
from deot_mpi.errors import InputError
from deot_mpi.kinds import Kind
from deot_mpi.options import AuditOptions
from deot_mpi.privacy.disclosure import PROTECTED
from deot_mpi.privacy.findings import AttackReport, AuditResult, FrontierPoint
from deot_mpi.privacy.noise import Noise, rounded_norms
from deot_mpi.privacy.victims import (
    FROM_SKETCHES,
    LEAST_ROWS,
    LINKAGE,
    MEANS,
    MEMBERSHIP,
    POTENTIALS,
    QUANTILES,
    RECOVERIES,
    ROWS_ALONE,
    TOGETHER,
    Sending,
    Split,
    from_means,
    from_potentials,
    linked_by_norm,
    membership,
    recovery,
    together,
)
from deot_mpi.randomness import Purpose, generator
from deot_mpi.reference import REFERENCE_TIMEOUT
from deot_mpi.resources import one_blas_thread
from deot_mpi.result import EOTResult
from deot_mpi.roles import Role
from deot_mpi.running import Progress, settings_of, understood
from deot_mpi.setting import Setting, meet


def audit(
    comm: MPI.Intracomm,
    samples: ArrayLike,
    role: str,
    *,
    weights: ArrayLike | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> AuditResult:
    """Attack what these samples and options would show. Collective over ``comm``; ``options``: ``AuditOptions``."""
    own_role, checked = understood(comm, role, AuditOptions, options)

    def load(agents: Agents) -> Samples:
        return check_samples(samples, weights, agents.name)

    return solve_audit(comm, own_role, load, checked, progress)


def solve_audit(
    comm: MPI.Intracomm,
    role: Role,
    load: Callable[[Agents], Samples],
    options: AuditOptions,
    progress: Progress | None = None,
) -> AuditResult:
    """As ``audit``, with samples that are loaded once the agent knows who it is."""

    def load_scaled(agents: Agents) -> Samples:
        samples = load(agents)
        return replace(samples, rows=scaled(samples.rows, options.scaling, agents.name))

    with one_blas_thread():
        setting = meet(comm, role, load_scaled, options, centre=options.centre)

        def solve(**changes: Any) -> EOTResult:
            tried = replace(options, reference=False, **changes)
            return solve_eot(comm, role, lambda _: setting.samples, tried, progress)

        with setting.agents.freed_on_error():
            result = _audit(setting, options, solve, progress)
        setting.agents.free()
        return result


@dataclass(frozen=True)
class _Own:
    """What this agent brings to the audit; without rows that are sent, it only listens."""

    setting: Setting
    options: AuditOptions

    @property
    def sends(self) -> bool:
        return self.setting.agents.role is Role.TARGET or not self.options.one_sided

    def draws(self, *address: int) -> np.random.Generator:
        agents = self.setting.agents
        return generator(self.options.seed, Purpose.AUDIT, int(agents.role is Role.TARGET), agents.index, *address)

    @property
    def answers(self) -> int:
        return answers_of(self.setting, self.options)

    def sending(self, bits: int, flip: float) -> Sending:
        options = self.options
        noise = Noise(flip, options.norm_step, options.one_sided)
        return Sending(bits, options.seed, options.orthogonal, noise, options.estimator)

    def share(self, numbers: Floats) -> Floats:
        """Every sending agent's numbers, sources first, (agents, numbers)."""
        table = self.setting.collectives.share(Kind.AUDIT, numbers, REFERENCE_TIMEOUT)
        return np.concatenate([table.source, table.target] if not self.options.one_sided else [table.target])


def _audit(
    setting: Setting, options: AuditOptions, solve: Callable[..., EOTResult], progress: Progress | None
) -> AuditResult:
    own = _Own(setting, options)
    setting.collectives.all_or_none(lambda: _require_rows(own))
    kernel, holding = prepare(setting, options, eps_of(setting, options), secrets.randbits(62), keep=False)
    potential = solve_prepared(setting, holding, options, progress).state.potential
    means = parts_of_barycentres(setting, holding, kernel, potential) if options.mapped else {}
    exact = (
        solve(kernel="raw", flip=0.0, norm_step=0.0, pairwise_seeds=False).dual_objective if options.reference else None
    )
    attacks = _attacks(own, potential, means)
    distance_error = None if exact is None else _distance_error(options, solve, exact, options.bits, options.flip)
    points = []
    for number, (ratio, flip) in enumerate((ratio, flip) for ratio in options.ratios for flip in options.flips):
        bits = max(1, round(ratio * setting.sizes.dimension))
        errors = None if exact is None else _distance_error(options, solve, exact, bits, flip)
        points.append(_point(own, bits, flip, number, errors))
    strongest = min(
        (one for one in attacks if one.name in RECOVERIES), key=lambda one: one.median_recovery_error or 0.0
    )
    return AuditResult(
        attacks=attacks,
        frontier=tuple(points),
        distance_error=distance_error,
        strongest=strongest.name,
        guarantee=guarantee_of(setting, options),
        verdict=verdict(attacks, distance_error, options),
        bits=options.bits,
        dimension=setting.sizes.dimension,
        eps=holding.view.eps,
        notes=_notes(options, own.answers),
        settings=settings_of(options),
    )


def _require_rows(own: _Own) -> None:
    if own.options.kernel == "raw":
        raise InputError("kernel is 'raw', which sends rows: there is nothing to recover. Audit kernel 'sketch'.")
    if own.sends and own.setting.samples.count < LEAST_ROWS:
        raise InputError(
            f"{own.setting.agents.name}: has {own.setting.samples.count} rows; attacking some, with the others as what "
            f"an attacker knows, needs {LEAST_ROWS} or more."
        )


def _attacks(own: _Own, potential: Floats, means: dict[int, Floats]) -> tuple[AttackReport, ...]:
    options = own.options
    left_out = {TOGETHER: own.answers == 1, MEANS: not options.mapped}
    names = (ROWS_ALONE, *(name for name in RECOVERIES if not left_out.get(name)))
    numbers = np.full(len(names) * len(QUANTILES) + 2, np.nan)
    if own.sends:
        rows, how = own.setting.rows, own.sending(options.bits, options.flip)
        split, order = Split.of(rows, options.victims, own.draws(0))
        errors = recovery(split, how, own.draws(1))
        count = len(split.victims)
        errors[POTENTIALS] = from_potentials(split, (potential[order[:count]], potential[order[count:]]))
        if TOGETHER in names:
            errors[TOGETHER] = together(split, how, own.answers, own.draws(5))
        if MEANS in names:  # only targets' rows go into means
            target = own.setting.agents.role is Role.TARGET
            errors[MEANS] = from_means(split.victims, means.values()) if target else np.full(count, np.nan)
        norms = np.linalg.norm(rows, axis=1)
        told = rounded_norms(norms, options.norm_step, own.draws(2)) if options.norm_step else norms
        numbers = np.concatenate([
            *(np.quantile(errors[name], QUANTILES) for name in names),
            [membership(split, how, own.draws(3)), linked_by_norm(rows, told)],
        ])  # fmt: skip
    table = own.share(numbers)
    reports = []
    for place, name in enumerate(names):
        part = table[:, len(QUANTILES) * place : len(QUANTILES) * (place + 1)]
        quantiles = tuple(float(q) for q in np.nanmedian(part, axis=0))
        reports.append(AttackReport(name, quantiles, float(np.nanmin(part[:, 1]))))
    for place, name in ((-2, MEMBERSHIP), (-1, LINKAGE)):
        reports.append(AttackReport(name, None, None, float(np.median(table[:, place])), float(table[:, place].max())))
    return tuple(reports)


def _point(own: _Own, bits: int, flip: float, number: int, distance_error: float | None) -> FrontierPoint:
    names = FROM_SKETCHES
    numbers = np.full(len(names), np.nan)
    if own.sends:
        split, _ = Split.of(own.setting.rows, own.options.victims, own.draws(0))
        errors = recovery(split, own.sending(bits, flip), own.draws(4, number))
        numbers = np.array([np.median(errors[name]) for name in names])
    table = own.share(numbers)
    medians = {name: float(np.median(table[:, place])) for place, name in enumerate(names)}
    return FrontierPoint(bits, bits / own.setting.sizes.dimension, flip, medians, distance_error)


def _distance_error(
    options: AuditOptions, solve: Callable[..., EOTResult], exact: float, bits: int, flip: float
) -> float:
    """Mean of |W~ - W| / |W| over seeds: of the projections, the flips, and the roundings."""
    reached = []
    for trial in range(options.trials):
        private = None if options.private_seed is None else options.private_seed + trial
        reached.append(solve(bits=bits, flip=flip, seed=options.seed + trial, private_seed=private).dual_objective)
    return float(np.mean(np.abs(np.array(reached) - exact)) / abs(exact))


def verdict(attacks: tuple[AttackReport, ...], distance_error: float | None, options: AuditOptions) -> str:
    """In words, and never more than was measured."""
    by_name = {one.name: one for one in attacks}
    recoveries = [by_name[name] for name in RECOVERIES if name in by_name]
    best = min(recoveries, key=lambda one: one.median_recovery_error or 0.0)
    error, alone = best.median_recovery_error or 0.0, by_name[ROWS_ALONE].median_recovery_error or 0.0
    if alone < PROTECTED:
        said = (
            f"Not private, and no setting would be: similar rows alone give a typical row to within {alone:.2f} of its "
            "length, without any message."
        )
    elif error < PROTECTED:
        said = f"Not private: '{best.name}' gives a neighbour a typical row to within {error:.2f} of its length."
    else:
        said = (
            f"No attack tried here gives a typical row to better than {error:.2f} of its length ('{best.name}'). That "
            "is what was tried, not a proof."
        )
    worst = min(one.worst_agent or 0.0 for one in recoveries)
    if error >= PROTECTED > worst:
        said += f" But one agent's rows are known better: {worst:.2f}."
    inside = by_name[MEMBERSHIP].score or 0.0
    if inside > 0.9:
        said += f" Whether a row it knows is among an agent's is told rightly {inside:.0%} of the time."
    if distance_error is not None:
        said += f" W~ is off by {100 * distance_error:.2g} %."
    return said


def _notes(options: AuditOptions, answers: int) -> tuple[str, ...]:
    notes = [
        "Audit: every agent attacked its own rows with its other rows as what the attacker knows; statistics were "
        "shared, no row left. A neighbour whose rows are of another kind does worse; one that has many more rows of "
        "the same kind does better.",
        "Audit: it is a run, too: sketches, norms and potentials were sent as the run it is about would send them.",
        "Audit: every edge has bits of its own; neighbours that put theirs together were tried, too."
        if answers > 1
        else "Audit: all neighbours are shown the same bits, so putting them together gains nothing.",
    ]
    if options.mapped:
        notes.append(
            "Audit: sources showed their sketches and potentials to their targets, as adapt does; the means were "
            "attacked where they were made, and not sent. Of the many means a source gets, the nearest one counts."
        )
    if options.reference:
        notes.append("Privacy: the exact distance was computed with raw rows, which went to the sources.")
    else:
        notes.append("Audit: the distance's error is not known without --reference, which sends raw rows.")
    if options.one_sided:
        notes.append("Audit: the sources' sketches are never sent; of them, targets see sums over all their rows.")
    return tuple(notes)
