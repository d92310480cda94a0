"""Bits and flips from a wish: rows protected so much, the distance right to so much; or the news that both cannot be.

Every agent whose sketches are sent tries each setting on its own rows: attacks on some with the others as what is known
(``victims``), and the distance between two halves of its rows, exact and from noisy sketches. What it shares is two
numbers for each setting, and how many dimensions its rows really have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from deot_mpi.data.samples import Floats
from deot_mpi.errors import InputError
from deot_mpi.kernel import LogPairs, RawKernel, SketchKernel
from deot_mpi.kernel.rowblock import RowBlock
from deot_mpi.kinds import Kind
from deot_mpi.options import EOTOptions
from deot_mpi.privacy.findings import Protection, ProtectionPoint
from deot_mpi.privacy.noise import Noise
from deot_mpi.privacy.victims import LEAST_ROWS, ROWS_ALONE, Sending, Split, recovery
from deot_mpi.randomness import Purpose, generator
from deot_mpi.reference import REFERENCE_TIMEOUT
from deot_mpi.roles import Role
from deot_mpi.setting import Setting
from deot_mpi.solvers.alone import local_distance

RATIOS = (0.25, 0.5, 1.0, 2.0, 4.0)
FLIPS = (0.0, 0.1, 0.2, 0.3, 0.4)
_VICTIMS, _HALF, _SEEDS = 20, 100, 2
_COMPONENTS = (20, 50, 100)
_FEWEST_BITS = 16
ACCEPTED_ERROR = 0.05

Chosen = TypeVar("Chosen", bound=EOTOptions)


@dataclass(frozen=True)
class Candidate:
    bits: int
    flip: float


def candidates(dimension: int) -> list[Candidate]:
    bits = sorted({max(_FEWEST_BITS, round(ratio * dimension)) for ratio in RATIOS})
    return [Candidate(number, flip) for number in bits for flip in FLIPS]


def protected(setting: Setting, options: Chosen, eps: Callable[[], float]) -> tuple[Chosen, Protection | None]:
    """Options with bits and flip chosen, where ``max_recovery`` asks for that; all agents raise if none will do."""
    if options.max_recovery is None:
        return options, None
    tried = candidates(setting.sizes.dimension)
    sends = setting.agents.role is Role.TARGET or not options.one_sided
    setting.collectives.all_or_none(lambda: _require_rows(setting, options) if sends else None)
    cost_eps = eps()
    numbers = _study(setting, options, cost_eps, tried) if sends else np.zeros(2 * len(tried) + 2)
    table = setting.collectives.share(Kind.AUDIT, numbers, REFERENCE_TIMEOUT)
    rows = table.target if options.one_sided else np.concatenate([table.source, table.target])
    least = [shared_error(one, float(np.median(rows[:, -1])), options.one_sided) for one in tried]
    points = tuple(
        ProtectionPoint(
            one.bits, one.flip, float(rows[:, 2 * k].min()), max(float(rows[:, 2 * k + 1].mean()), least[k])
        )
        for k, one in enumerate(tried)
    )
    found = chosen_point(points, options.max_recovery, options.one_sided)
    protection = Protection(
        points, found.bits, found.flip, found.recovery_error, found.distance_error,
        float(np.median(rows[:, -1])), float(rows[:, -2].min()),
    )  # fmt: skip
    accepted = ACCEPTED_ERROR if options.max_error is None else options.max_error
    if found.recovery_error < options.max_recovery or found.distance_error > accepted:
        raise InputError(refusal(protection, options.max_recovery, accepted))
    return replace(options, bits=found.bits, flip=found.flip, max_recovery=None, max_error=None), protection


def shared_error(one: Candidate, dimensions: float, one_sided: bool) -> float:
    """The relative error of W~ that an agent cannot see on its own rows: all pairs of two domains see the same planes.

    The deviation of an angle near pi/2, pi/(2 sqrt(Q) left), over 2 sqrt(d): in d dimensions pairs share their noise,
    and d is what is left to average it. A rule of thumb, which agents that try halves of their own rows need: at D = 5,
    Q = 20 and flips of 0.2 they found 0.02, and W~ was off by 0.15.
    """
    left = Noise(one.flip, one_sided=one_sided).left
    return float(np.pi / (2.0 * np.sqrt(one.bits) * left) / (2.0 * np.sqrt(max(dimensions, 1.0))))


def chosen_point(points: tuple[ProtectionPoint, ...], least: float, one_sided: bool = True) -> ProtectionPoint:
    """Of those that protect, the one whose angles have the least variance; if none does, the one that protects best.

    Not the one with the least error in the trial: halves of one agent's rows are few, and of many noisy numbers the
    least is least by luck.
    """
    enough = [point for point in points if point.recovery_error >= least]
    if enough:
        return max(enough, key=lambda point: point.bits * Noise(point.flip, one_sided=one_sided).left ** 2)
    return max(points, key=lambda point: point.recovery_error)


def refusal(best: Protection, wanted: float, accepted: float) -> str:
    return (
        f"max_recovery {wanted:g} and max_error {accepted:g} cannot both be had on these data: "
        f"the best trade found is Q = {best.bits} with flips of {best.flip:g}, where the strongest attack comes within "
        f"{best.recovery_error:.2f} of a typical row's length and the distance is off by {best.distance_error:.3f}. "
        f"The rows have about {best.intrinsic_dimension:.0f} dimensions, and similar rows alone come within "
        f"{best.rows_alone:.2f}. Ask for less protection or accuracy, or do not call it private."
    )


def _require_rows(setting: Setting, options: EOTOptions) -> None:
    if setting.samples.count < LEAST_ROWS:
        raise InputError(
            f"{setting.agents.name}: has {setting.samples.count} rows, and max_recovery {options.max_recovery:g} takes "
            f"{LEAST_ROWS} or more to try settings on; give bits and flip instead."
        )


def _study(setting: Setting, options: EOTOptions, eps: float, tried: list[Candidate]) -> Floats:
    agents = setting.agents
    address = (int(agents.role is Role.TARGET), agents.index)
    split, _ = Split.of(setting.rows, _VICTIMS, generator(options.seed, Purpose.AUDIT, *address))
    numbers, alone = [], 1.0
    for place, one in enumerate(tried):
        draws = generator(options.seed, Purpose.AUDIT, *address, 1, place)
        how = Sending(one.bits, options.seed, options.orthogonal, Noise(one.flip, options.norm_step))
        errors = recovery(split, how, draws, components=_COMPONENTS)
        alone = float(np.median(errors.pop(ROWS_ALONE)))
        strongest = min(float(np.median(found)) for found in errors.values())
        numbers += [strongest, _distance_error(setting.rows, options, eps, one, draws)]
    return np.array([*numbers, alone, _intrinsic_dimension(setting.rows)])


def _intrinsic_dimension(rows: Floats) -> float:
    """(sum of variances)^2 / sum of their squares, over principal components: k where k of them are alike."""
    variances = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False) ** 2
    return float(variances.sum() ** 2 / max(float((variances**2).sum()), np.finfo(float).tiny))


def _distance_error(rows: Floats, options: EOTOptions, eps: float, one: Candidate, draws: np.random.Generator) -> float:
    """Mean of |F^ - F|/(F + eps), the regularised cost, between two halves of an agent's rows, over seeds."""
    order = draws.permutation(len(rows))
    half = min(_HALF, len(rows) // 2)
    x, y = rows[order[:half]], rows[order[half : 2 * half]]
    raw = RawKernel(eps, rows.shape[1])
    exact = _distance(raw.pairs(raw.show(x), raw.show(y)), half)
    errors = []
    for trial in range(_SEEDS):
        noise = Noise(one.flip, options.norm_step, options.one_sided)
        kernel = SketchKernel(
            eps, rows.shape[1], one.bits, options.seed + trial, options.estimator, options.orthogonal,
            options.correction, noise,
        )  # fmt: skip
        source, target = (kernel.disclosed(kernel.show(part), draws) for part in (x, y))
        errors.append(abs(_distance(kernel.pairs(source.kept, target.told), half) - exact) / abs(exact))
    return float(np.mean(errors))


def _distance(pairs: LogPairs, count: int) -> float:
    """(F + eps) / eps between two equally heavy halves."""
    shares = np.full(count, 1.0 / count)
    block = RowBlock(pairs, np.log(shares), {0: slice(None)}, shares, 1.0, precision="float64", memory=1e9, threads=1)
    return local_distance(block, shares, shares) + 1.0
