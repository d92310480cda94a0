"""One seed, one generator per purpose.

Every stream is addressed by a purpose and the agent (and position) it belongs to, so any rank can rebuild the
stream of any agent without a message, and no stream depends on which rank plays which agent.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What a stream is for. The numbers are part of the result: changing one changes every seeded run."""

    SOURCE_SAMPLES = 1
    TARGET_SAMPLES = 2
    PROJECTIONS = 3
    GRAPH = 4
    PAIRS = 5
    SOURCE_PICKS = 6
    TARGET_PICKS = 7
    ALIGNMENTS = 8
    ALIGNMENT_PICKS = 9
    VALIDATION = 10
    AUDIT = 11


def generator(seed: int, purpose: Purpose, *address: int) -> np.random.Generator:
    """The generator of one purpose; ``address`` picks one of its independent streams (an agent, a block, ...)."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(int(purpose), *address)))
