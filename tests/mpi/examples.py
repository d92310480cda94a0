"""Examples of hypothesis for several ranks: drawn by rank 0, which tells the others.

Each rank drawing its own would not do: hypothesis takes constants from the modules that a process has loaded, and rank
0 has loaded more of them than the others.
"""

from __future__ import annotations

from typing import Any

from hypothesis import Phase, given, settings
from hypothesis.strategies import SearchStrategy, tuples
from mpi4py import MPI
from rank_0 import on_rank_0


def told_examples(comm: MPI.Intracomm, count: int, *strategies: SearchStrategy[Any]) -> list[tuple[Any, ...]]:
    """So many examples, the same on every rank and in every run of the same tests."""
    found: list[tuple[Any, ...]] = []

    @settings(deadline=None, derandomize=True, database=None, max_examples=count, phases=[Phase.generate])
    @given(tuples(*strategies))
    def collect(example: tuple[Any, ...]) -> None:
        found.append(example)

    def drawn() -> list[tuple[Any, ...]]:
        collect()
        return found

    told: list[tuple[Any, ...]] = on_rank_0(comm, drawn)
    return told
