"""Choosing eps without target labels: reverse validation, distributed.

Every source agent splits its rows in two halves. One half labels the targets' rows; then the roles are swapped, and the
targets' rows, with these labels, label the other half, whose labels are known. No plan sees both halves, so an eps too
small, which follows the noise of one half, is found out by the other. Targets' true labels are never looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from deot_mpi.adaptation.classes import Classes, Labels, agree_on_classes
from deot_mpi.data.samples import Samples
from deot_mpi.errors import InputError
from deot_mpi.options import AdaptOptions
from deot_mpi.randomness import Purpose, generator
from deot_mpi.result import AdaptResult, EpsChoice, EpsScore
from deot_mpi.roles import Role
from deot_mpi.running import Clock
from deot_mpi.setting import Setting

Trial = Callable[[int, Role, Samples, AdaptOptions], AdaptResult]
"""Adapts once: the trial's number (from 1), this agent's role in it, its samples, the options."""

TOLERATED = 0.05
"""The largest eps whose score is at most this share below the best is taken: a circle closes more easily than a label
is right, and a small eps closes circles."""
_TRIAL_TOL = 1e-4
"""Marginal error of the trials: predictions do not change below it."""


def choose_scale(setting: Setting, options: AdaptOptions, trial: Trial) -> EpsChoice:
    """Score every eps of the grid; collective. The score is the mean over classes of the share of right labels."""
    clock, agents = Clock(), setting.agents
    setting.collectives.all_or_none(lambda: _require_two(setting))
    classes = agree_on_classes(setting)
    halves = _halves(setting, options)
    scores, sent, number = [], 0, 0
    for scale in options.eps_grid:
        # Precision follows tol: a trial's is loose, so float32 where the solver has it.
        tried = replace(
            options, choose_eps=False, eps=None, eps_scale=scale, scaling="none", tol=max(options.tol, _TRIAL_TOL),
            protocol="uniform" if setting.protocol.is_storage else setting.protocol.E, match=False,
        )  # fmt: skip
        counts = np.zeros((2, classes.count))
        for shown, hidden in (halves, halves[::-1]):
            there = trial(number + 1, agents.role, shown, tried)
            swapped = hidden
            if agents.role is Role.TARGET:
                guessed = np.where(there.predictions < 0, classes.names[0], there.predictions)
                swapped = replace(hidden, labels=guessed)
            else:
                swapped = replace(hidden, labels=None)
            back = trial(
                number + 2, agents.role.other, swapped,
                tried if isinstance(tried.protocol, str) else replace(tried, protocol=tried.protocol.T.copy()),
            )  # fmt: skip
            number, sent = number + 2, sent + there.ledger.bytes + back.ledger.bytes
            if agents.role is Role.SOURCE and hidden.labels is not None:
                counts += _counted(classes, hidden.labels, back.predictions)
        right, known = setting.collectives.masked_sum(setting.edges, counts.ravel()).reshape(2, -1)
        scores.append(float((right[known > 0] / known[known > 0]).mean()))
    chosen = chosen_scale(options.eps_grid, scores)
    pairs = zip(options.eps_grid, scores, strict=True)
    return EpsChoice(tuple(EpsScore(scale, score) for scale, score in pairs), chosen, sent, clock.seconds)


def chosen_scale(scales: tuple[float, ...], scores: list[float]) -> float:
    good = (1.0 - TOLERATED) * max(scores)
    return max(scale for scale, score in zip(scales, scores, strict=True) if score >= good)


def _require_two(setting: Setting) -> None:
    if setting.agents.role is Role.SOURCE and setting.samples.count < 2:
        raise InputError(
            f"{setting.agents.name}: has one row, and choosing eps needs two (one to label with, one to label back); "
            "give this agent more rows, or eps_scale."
        )


def _halves(setting: Setting, options: AdaptOptions) -> tuple[Samples, Samples]:
    """The two halves of a source's rows, or a target's rows twice; of each domain at most about validation_rows."""
    role, index, samples = setting.agents.role, setting.agents.index, setting.samples
    share = min(1.0, options.validation_rows / int(setting.sizes.counts[role].sum()))
    least = 2 if role is Role.SOURCE else 1
    count = max(least, round(share * samples.count))
    draws = generator(options.seed, Purpose.VALIDATION, int(role is Role.TARGET), index)
    picked = draws.permutation(samples.count)[:count]
    if role is Role.TARGET:  # without labels, if it has any: they are not for the choice
        part = replace(_part(samples, np.sort(picked)), labels=None)
        return part, part
    return _part(samples, np.sort(picked[: count // 2])), _part(samples, np.sort(picked[count // 2 :]))


def _part(samples: Samples, rows: NDArray[np.int64]) -> Samples:
    return Samples(
        samples.rows[rows],
        None if samples.weights is None else samples.weights[rows],
        labels=None if samples.labels is None else samples.labels[rows],
    )


def _counted(classes: Classes, truth: Labels, predicted: Labels) -> NDArray[np.float64]:
    """Of each class: rows labelled rightly, and rows."""
    places = classes.places(truth)
    return np.stack([np.bincount(places[rows], minlength=classes.count) for rows in (predicted == truth, ...)])
