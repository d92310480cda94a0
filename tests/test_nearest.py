"""The nearest neighbour's place."""

from __future__ import annotations

import numpy as np
import pytest
from problems import squared_distances

from deot_mpi.adaptation import nearest as rooms
from deot_mpi.adaptation.nearest import nearest


@pytest.mark.parametrize("offset", [0.0, 1e9])
@pytest.mark.parametrize("entries", [1, 50, 1 << 22])
def test_nearest_rows_far_from_the_origin_in_any_chunks(
    offset: float, entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against squared differences. At 1e9, a square has no digits left below 100, a difference has seven."""
    monkeypatch.setattr(rooms, "_CHUNK_ENTRIES", entries)
    rng = np.random.default_rng(0)
    known, rows = (offset + rng.normal(size=(many, 3)) for many in (40, 25))
    np.testing.assert_array_equal(nearest(known, rows), squared_distances(rows, known).argmin(axis=1))


def test_of_several_as_near_the_first() -> None:
    assert list(nearest(np.array([[1.0], [0.0], [1.0]]), np.array([[1.0], [3.0]]))) == [0, 0]
