"""What an agent adds to its sketches and norms before they leave it, by chance that no one else knows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from deot_mpi.data.samples import Floats
from deot_mpi.roles import Role


@dataclass(frozen=True)
class Noise:
    """Randomised response on bits, random rounding of norms."""

    flip: float = 0.0
    """r: every bit that is sent is turned round with this probability."""
    norm_step: float = 0.0
    """Squared norms that are sent lie on a grid with this ratio between neighbours, less 1; 0: as they are."""
    one_sided: bool = True
    """Whether only one of two sketches that are compared has been sent; the other is its owner's, as it was made."""

    @property
    def any(self) -> bool:
        return self.flip > 0 or self.norm_step > 0

    @property
    def left(self) -> float:
        """What flips leave of the word of a pair of bits: (1 - 2r) for each side that was sent."""
        return (1.0 - 2.0 * self.flip) ** (1 if self.one_sided else 2)


Chance = Callable[..., np.random.Generator]
"""An agent's own: a stream for all its neighbours, or for the one that is given; asked again, the same again."""


def private_chance(private_seed: int, role: Role, index: int) -> Chance:
    """Chance of one agent alone: a stream of its own even where all agents were given one and the same number."""
    return lambda *neighbour: np.random.default_rng((private_seed, int(role is Role.TARGET), index, *neighbour))


def rounded_norms(norms: Floats, step: float, draws: np.random.Generator) -> Floats:
    """Norms whose squares lie on the grid (1 + step)^k, one of the two nearest, so that squares are right on average.

    A cost is |x|^2 + |y|^2 - 2 <x,y>: squared norms enter as they are, so their mean is what must not change.
    """
    squares = norms**2
    positive = squares > 0
    base = math.log1p(step)
    low = np.exp(base * np.floor(np.log(squares, out=np.zeros_like(squares), where=positive) / base))
    high = low * (1.0 + step)
    upper = draws.random(len(norms)) * (high - low) < squares - low
    return np.asarray(np.where(positive, np.sqrt(np.where(upper, high, low)), 0.0))


def bit_epsilon(flip: float) -> float:
    """Local differential privacy of one bit: no answer is more than e^epsilon times likelier for one bit than for the
    other."""
    return math.inf if flip == 0 else math.log((1.0 - flip) / flip)
