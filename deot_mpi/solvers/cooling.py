"""eps-scaling: at how many times eps a far problem starts, and how it comes down."""

from __future__ import annotations

import math

REACH = 50.0
"""Nats: columns whose mass is further off than this are not seen by a float32 block; such problems start easier."""
COOLING = 4.0
"""Every stage has an eps this many times smaller than the one before."""
_EVERY = 3
"""Rounds between two mixings, but for the first two. Mixing in every round took a tenth more rounds at eps = 0.01 of
the median cost (N = M = 2000, D = 50), and adds up over all agents three times as often."""


def mixes_after(round_: int) -> bool:
    """Whether the moves are mixed after this round of a stage: 3, 5, 8, 11 and so on."""
    return round_ == _EVERY or (round_ > _EVERY and curves_in(round_))


def curves_in(round_: int) -> bool:
    """Whether sources find curvatures in this round of a stage: 2, 5, 8 and so on. Those of the first would be of
    potentials that are nowhere near."""
    return round_ % _EVERY == _EVERY - 1


def first_temperature(farthest: float) -> float:
    """The smallest power of ``COOLING`` that brings the farthest column within reach; 1 where it already is."""
    return COOLING ** math.ceil(math.log(max(farthest, REACH) / REACH, COOLING))
