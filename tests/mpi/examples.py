"""Examples of hypothesis for several ranks: drawn by rank 0, which tells the others.

Each rank drawing its own would not do: hypothesis takes constants from the modules that a process has loaded, and rank
0 has loaded more of them than the others. These need not even import it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpi4py import MPI
from rank_0 import on_rank_0


def told_examples(
    comm: MPI.Intracomm, count: int, strategies: Callable[[Any], tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """So many examples, the same on every rank and in every run of the same tests.

    ``strategies`` makes one for each place of an example, of the module that it is given, hypothesis.strategies.
    """

    def drawn() -> list[tuple[Any, ...]]:
        from hypothesis import Phase, given, settings
        from hypothesis import strategies as st

        found: list[tuple[Any, ...]] = []

        @settings(deadline=None, derandomize=True, database=None, max_examples=count, phases=[Phase.generate])
        @given(st.tuples(*strategies(st)))
        def collect(example: tuple[Any, ...]) -> None:
            found.append(example)

        collect()
        return found

    told: list[tuple[Any, ...]] = on_rank_0(comm, drawn)
    return told
