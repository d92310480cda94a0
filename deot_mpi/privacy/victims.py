"""One agent plays its most curious neighbour against itself: only it can tell how near an attack came.

Some of its rows are victims; the attacker is given what the agent would have sent of them, and as similar rows that it
might have the agent's other rows. A neighbour's own rows are of another agent and mostly of another domain, with which
it does worse; with many more rows of the same kind than the agent has, it does better. Only statistics of the errors
leave the agent, never a recovered row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from deot_mpi.data.samples import Floats
from deot_mpi.privacy.attacks import (
    COMPONENTS,
    LENGTHS,
    NEAREST,
    Prior,
    Seen,
    half_spaces,
    least_squares,
    near_rows,
    relative_errors,
)
from deot_mpi.privacy.noise import Noise, rounded_norms
from deot_mpi.projections import projections
from deot_mpi.sketch import BitCounts, Bits, Estimator, angles_by_count, flipped, sketch, unpacked

LEAST_SQUARES = "least squares (the paper's)"
HALF_SPACES = "half-spaces"
INFORMED = "half-spaces, similar rows"
ROWS_ALONE = "similar rows alone"
TOGETHER = "half-spaces, similar rows, all neighbours together"
MEANS = "means of rows (Pi_ij Y_j)"
POTENTIALS = "potentials and norms"
MEMBERSHIP = "membership"
LINKAGE = "linkage by norms"
FROM_SKETCHES = (LEAST_SQUARES, HALF_SPACES, INFORMED)
RECOVERIES = (*FROM_SKETCHES, POTENTIALS, TOGETHER, MEANS)
"""Attacks that recover rows from what is sent; their errors are relative, 1 being no better than the origin."""
QUANTILES = (0.1, 0.5, 0.9)
LEAST_ROWS = 8
_CUTOFFS = (None, 0.03, 0.1, 0.3)
"""Of least squares: as it is, and steadied."""


@dataclass(frozen=True)
class Sending:
    """How sketches are made and sent."""

    bits: int
    seed: int
    orthogonal: bool
    noise: Noise
    estimator: Estimator = "hamming"


@dataclass(frozen=True)
class Split:
    """An agent's rows as the audit uses them."""

    victims: Floats
    others: Floats

    @classmethod
    def of(cls, rows: Floats, victims: int, draws: np.random.Generator) -> tuple[Split, NDArray[np.int64]]:
        """At most so many victims, and at most half of the rows; also the order they were drawn in."""
        order = draws.permutation(len(rows))
        count = max(1, min(victims, len(rows) // 2))
        return cls(rows[order[:count]], rows[order[count:]]), order


def recovery(
    split: Split, how: Sending, draws: np.random.Generator, components: tuple[int, ...] = COMPONENTS
) -> dict[str, Floats]:
    """The relative errors of every victim, by attack. Of several variants the one with the least median counts."""
    victims, others = split.victims, split.others
    seen, shown = _seen(victims, how, draws)
    prior, told, dimension = Prior.of(others), seen.norms, victims.shape[1]
    known = sketch(others, how.bits, how.seed, how.orthogonal)
    counts = BitCounts(shown, known, how.estimator).rows(0, len(victims))
    left = 1.0 - 2.0 * how.noise.flip
    cosines = np.cos(angles_by_count(how.bits, dimension, how.estimator, how.orthogonal, left).phi)[counts]
    products = cosines * told[:, None] * np.linalg.norm(others, axis=1)
    return {
        ROWS_ALONE: relative_errors(np.tile(prior.mean, (len(victims), 1)), victims),
        LEAST_SQUARES: _best({str(cut): least_squares(others, products, cut) for cut in _CUTOFFS}, victims),
        HALF_SPACES: _best(_shorter(half_spaces(seen)), victims),
        INFORMED: _informed(seen, others, victims, components),
    }


def together(split: Split, how: Sending, answers: int, draws: np.random.Generator) -> Floats:
    """Errors of neighbours that put together so many sketches of the same rows, each with planes of its own."""
    seen, _ = _seen(split.victims, replace(how, bits=answers * how.bits), draws)
    return _informed(seen, split.others, split.victims, COMPONENTS)


def _seen(victims: Floats, how: Sending, draws: np.random.Generator) -> tuple[Seen, Bits]:
    """What a neighbour has of these rows, and the bits as they are sent."""
    noise = how.noise
    norms = np.linalg.norm(victims, axis=1)
    told = rounded_norms(norms, noise.norm_step, draws) if noise.norm_step else norms
    bits = sketch(victims, how.bits, how.seed, how.orthogonal)
    shown = flipped(bits, how.bits, noise.flip, draws) if noise.flip else bits
    omega = projections(victims.shape[1], how.bits, how.seed, how.orthogonal)
    return Seen(omega, 2.0 * unpacked(shown, how.bits).astype(np.float64) - 1.0, told, noise.flip), shown


def _informed(seen: Seen, others: Floats, victims: Floats, components: tuple[int, ...]) -> Floats:
    """With similar rows: all as one cloud, then, from the best guess so far, those near to each guess, twice."""
    prior = Prior.of(others)
    recovered = {
        f"{name}, {k} components": rows
        for k in _numbers(prior, components)
        for name, rows in half_spaces(seen, prior.basis(k)).items()
    }
    first = min(recovered.values(), key=lambda rows: float(np.median(relative_errors(rows, victims))))
    for number in NEAREST:
        if number < len(others):
            once = near_rows(seen, others, first, number)
            recovered |= {f"nearest {number}": once, f"nearest {number}, twice": near_rows(seen, others, once, number)}
    return _best(_shorter(recovered), victims)


def _shorter(recovered: dict[str, Floats]) -> dict[str, Floats]:
    return {f"{name}, {share:g} long": share * rows for name, rows in recovered.items() for share in LENGTHS}


def from_means(victims: Floats, parts: Iterable[Floats]) -> Floats:
    """For each victim the error of the nearest of all means of rows that go to any source: one that knows which of
    them to look at. ``parts`` have sum_m P_nm y_m and, last, sum_m P_nm."""
    from scipy.spatial.distance import cdist  # only where it is needed: agents start faster without

    sums = np.concatenate([np.zeros((0, victims.shape[1] + 1)), *parts])
    sums = sums[sums[:, -1] > 0]
    if not len(sums):
        return np.ones(len(victims))
    means = sums[:, :-1] / sums[:, -1:]
    nearest = cdist(victims, means).min(axis=1)
    return np.asarray(nearest / np.maximum(np.linalg.norm(victims, axis=1), np.finfo(float).tiny))


def from_potentials(split: Split, potentials: tuple[Floats, Floats]) -> Floats:
    """Errors of the best linear guess from a row's potential and norm, learnt on the other rows."""
    known, asked = (
        np.column_stack([np.ones(len(rows)), values, np.linalg.norm(rows, axis=1)])
        for rows, values in ((split.others, potentials[1]), (split.victims, potentials[0]))
    )
    fitted = np.linalg.lstsq(known, split.others, rcond=None)[0]
    return relative_errors(asked @ fitted, split.victims)


def membership(split: Split, how: Sending, draws: np.random.Generator) -> float:
    """Is this row among those an agent has shown? The chance to tell a shown row from one that was not, given one of
    each (area under the curve): 0.5 is guessing, 1 certainty. The least Hamming distance to a shown sketch decides."""
    from scipy.stats import rankdata  # only where it is needed: agents start faster without

    sketches = [sketch(rows, how.bits, how.seed, how.orthogonal) for rows in (split.victims, split.others)]
    shown = flipped(sketches[0], how.bits, how.noise.flip, draws) if how.noise.flip else sketches[0]
    inside, outside = (BitCounts(bits, shown, "hamming").rows(0, len(bits)).min(axis=1) for bits in sketches)
    ranks = rankdata(-np.concatenate([inside, outside]).astype(np.float64))
    wins = ranks[: len(inside)].sum() - len(inside) * (len(inside) + 1) / 2
    return float(wins / (len(inside) * len(outside)))


def linked_by_norm(rows: Floats, told: Floats) -> float:
    """The share of rows whose told norm is nearest to their own, among all rows of the agent: one who has a list of
    rows finds out which is which."""
    norms = np.linalg.norm(rows, axis=1)
    order = np.sort(norms)
    gap = np.abs(told - norms)
    place = np.clip(np.searchsorted(order, told), 1, max(len(order) - 1, 1))
    nearest = np.minimum(np.abs(order[place - 1] - told), np.abs(order[np.minimum(place, len(order) - 1)] - told))
    return float((gap <= nearest + 1e-15).mean())


def _numbers(prior: Prior, components: tuple[int, ...]) -> list[int]:
    most = prior.directions.shape[1]
    return sorted({min(k, most) for k in components})


def _best(recovered: dict[str, Floats], truth: Floats) -> Floats:
    errors = [relative_errors(rows, truth) for rows in recovered.values()]
    return min(errors, key=lambda one: float(np.median(one)))
