"""The nearest neighbour's label, chunk by chunk: one matrix product per chunk."""

from __future__ import annotations

import numpy as np

from deot_mpi.adaptation.classes import Labels
from deot_mpi.data.samples import Floats

_CHUNK_ENTRIES = 1 << 22


def nearest_labels(known: Floats, labels: Labels, rows: Floats) -> Labels:
    """The label of the nearest known row."""
    return np.asarray(labels[nearest(known, rows)])


def nearest(known: Floats, rows: Floats) -> Labels:
    """The place of the nearest known row (squared Euclidean; the first, where several are as near)."""
    centre = known.mean(axis=0)  # far from the origin, squares would have no digits left for differences
    known, rows = known - centre, rows - centre
    squares = (known**2).sum(axis=1)
    step = max(1, _CHUNK_ENTRIES // max(len(known), 1))
    places = np.empty(len(rows), dtype=np.int64)
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        places[start : start + step] = (squares - 2.0 * part @ known.T).argmin(axis=1)
    return places
