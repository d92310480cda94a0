"""The kinds of messages: what crosses between agents, by name."""

from __future__ import annotations

from enum import IntEnum


class Kind(IntEnum):
    """What a message carries. The number is also its MPI tag."""

    SAMPLES = 0
    """Raw rows (raw kernel only)."""
    SKETCH = 1
    """Packed sign bits."""
    NORMS = 2
    """Euclidean norms of the centred rows."""
    WEIGHTS = 3
    """Per-sample weights, when any agent has them."""
    POTENTIALS = 4
    """Blocks of u and v during the rounds."""
    OBJECTIVES = 5
    """Potentials sent for measuring, and the final reduce that gives the values."""
    MEAN = 6
    """Masks along the edges and the masked sums behind the global mean and the mean cost."""
    CONTROL = 7
    """Roles, sizes, options, protocol text, each agent's part of objective and error at a check, error messages."""
    REFERENCE = 8
    """Pooled raw rows for --reference: leaves the decentralised setting on request."""
    MOMENTS = 9
    """Gromov-Wasserstein: X_i^T Pi_ij to the targets (on request), the masked sums of moments, and P itself."""
    STRUCTURE = 10
    """Sketches and norms between agents of one domain, for S_X and S_Y."""
    LABELS = 11
    """Domain adaptation: which classes there are, labels of mapped rows, class sums and their slopes."""
    MAPPED = 12
    """Domain adaptation: parts of barycentres to the sources, mapped rows to the targets."""
    AUDIT = 13
    """Statistics of attacks, shared among all agents."""
    SEEDS = 14
    """With pairwise seeds: the seed of an edge's projections, from the target that drew it to the source."""
    CURVATURES = 15
    """One-pass solver, every third round: for each row of a target, the squares of its shares of a source's rows."""
