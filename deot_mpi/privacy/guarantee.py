"""What flips guarantee, whatever an attacker knows: local differential privacy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from deot_mpi.data.samples import Floats
from deot_mpi.privacy.noise import bit_epsilon

DELTA = 1e-6
_GRID_POINTS = 1000


@dataclass(frozen=True)
class Guarantee:
    """Of one sample's bits against any other sample's; norms are not covered, nor what a plan carries."""

    flip: float
    per_bit: float
    """No answer is more than e^per_bit times likelier for one bit than for the other."""
    per_sample: float
    """The same for all Q bits of a sample together (they compose)."""
    delta: float
    per_sample_delta: float | None
    """As per_sample, but for a chance of delta: smaller. None where the accountant is not installed."""
    answers: int
    """Sets of Q bits that are sent of one sample: 1 where all neighbours are sent the same, as many as there are
    neighbours where every edge has its own planes."""
    together: float
    """As per_sample, against neighbours that put together all they were sent."""
    together_delta: float | None


Ask = Callable[[Callable[[], Floats]], Floats]
"""Has some rank compute numbers, and gives them to all."""


def guarantee(flip: float, bits: int, answers: int = 1, ask: Ask | None = None) -> Guarantee | None:
    """None without flips: then nothing is guaranteed. ``ask`` says who asks the accountant, whose import takes longer
    than a small run does; by default everybody does."""
    if flip == 0:
        return None

    def composed() -> Floats:
        return np.array([_composed(flip, bits), _composed(flip, answers * bits)], dtype=np.float64)  # None: NaN

    found = [
        None if np.isnan(epsilon) else float(epsilon) for epsilon in (composed() if ask is None else ask(composed))
    ]
    return Guarantee(
        flip, bit_epsilon(flip), bits * bit_epsilon(flip), DELTA, found[0],
        answers, answers * bits * bit_epsilon(flip), found[1],
    )  # fmt: skip


def answers_sent(support: NDArray[np.bool_], pairwise_seeds: bool, one_sided: bool) -> int:
    """How many sets of bits leave the agent that has most neighbours, of those whose sketches are sent."""
    if not pairwise_seeds:
        return 1
    return int(max(support.sum(axis=0).max(), 0 if one_sided else support.sum(axis=1).max()))


@cache
def _composed(flip: float, bits: int) -> float | None:
    """epsilon at delta for Q answers, by Google's accountant (privacy loss distributions)."""
    if find_spec("dp_accounting") is None:
        return None
    from dp_accounting.pld import privacy_loss_distribution as pld

    # A bit is kept with 1 - r: that is randomised response over two values with noise 2r. Its privacy loss is epsilon
    # or -epsilon, so a grid that has (nearly) both is as good as a much finer one; the accountant rounds up.
    grid = bit_epsilon(flip) / _GRID_POINTS * (1.0 + 1e-12)
    one = pld.from_randomized_response(2.0 * flip, 2, value_discretization_interval=grid)
    return float(one.self_compose(bits).get_epsilon_for_delta(DELTA))
