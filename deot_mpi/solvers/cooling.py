"""eps-scaling: at how many times eps a far problem starts, and how it comes down."""

from __future__ import annotations

import math

REACH = 50.0
"""Nats: columns whose mass is further off than this are not seen by a float32 block; such problems start easier."""
COOLING = 4.0
"""Every stage has an eps this many times smaller than the one before."""
_MIX_EVERY = 3
"""Rounds between two mixings. Mixing in every round took as many rounds at eps = 0.01 of the median cost and twice as
many at 0.001 (N = M = 2000, D = 50), and adds up over all agents three times as often."""


def mixes_after(round_: int) -> bool:
    """Whether the moves are mixed after this round of a stage. With few rounds before it, a mixing brings little:
    beginning with the second took half a round longer."""
    return round_ % _MIX_EVERY == 0


def first_temperature(farthest: float) -> float:
    """The smallest power of ``COOLING`` that brings the farthest column within reach; 1 where it already is."""
    return COOLING ** math.ceil(math.log(max(farthest, REACH) / REACH, COOLING))
