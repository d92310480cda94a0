"""The same to the last bit: run after run, and whichever rank plays which agent."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI
from problems import scattered

import deot_mpi
from deot_mpi import EOTResult

CASES = [
    {"solver": "sinkhorn"},
    {"solver": "mrbcd", "pairs": 2, "eps": 0.5},
    *(
        pytest.param(options, marks=pytest.mark.mpi(max_size=7))
        for options in (
            {"solver": "sinkhorn", "kernel": "raw", "protocol": "ring"},
            {"solver": "kept", "neighbours": 1},
            {"solver": "mrbcd", "neighbours": 1, "protocol": "random-regular", "degree": 2},
        )
    ),
]


def bits_of(result: EOTResult) -> tuple[object, ...]:
    values = result.values
    trace = tuple((p.round, p.objective, p.error, p.change, p.bytes) for p in result.trace)
    return (values, result.eps, result.rounds, trace, tuple(a.marginal_error for a in result.agents))


def play(comm: MPI.Intracomm, agent: int, sources: int, options: dict[str, object]) -> EOTResult:
    """Run with this rank as the given agent: agents 0..I-1 are sources."""
    stage = comm.Split(0, agent)
    role = "source" if agent < sources else "target"
    result = deot_mpi.eot(stage, scattered(30, agent, sources, base=30), role, rounds=40, timeout=60.0, **options)
    stage.Free()
    return result


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize("options", CASES)
def test_bitwise_equal_for_every_run_and_placement(comm: MPI.Intracomm, options: dict[str, object]) -> None:
    sources = comm.size // 2
    first = play(comm, comm.rank, sources, options)
    again = play(comm, comm.rank, sources, options)
    assert bits_of(again) == bits_of(first)
    np.testing.assert_array_equal(again.potential, first.potential)
    agents = np.random.default_rng(1).permutation(comm.size)
    moved = play(comm, int(agents[comm.rank]), sources, options)
    assert bits_of(moved) == bits_of(first)


@pytest.mark.mpi(min_size=4)
def test_roles_may_alternate_over_the_ranks(comm: MPI.Intracomm) -> None:
    """Sources on even ranks, targets on odd ones: agents are numbered within their role."""
    sources = (comm.size + 1) // 2
    index = comm.rank // 2
    agent = index if comm.rank % 2 == 0 else sources + index
    role = "source" if comm.rank % 2 == 0 else "target"
    rows = scattered(30, agent, sources, base=10)
    mixed = deot_mpi.eot(comm, rows, role, rounds=40, timeout=60.0)
    stage = comm.Split(0, agent)
    sorted_ = deot_mpi.eot(stage, rows, role, rounds=40, timeout=60.0)
    stage.Free()
    assert (mixed.role.value, mixed.index) == (role, index)
    assert bits_of(mixed) == bits_of(sorted_)
    np.testing.assert_array_equal(mixed.potential, sorted_.potential)


@pytest.mark.mpi(min_size=2)
def test_another_seed_is_another_sketch(comm: MPI.Intracomm) -> None:
    sources = max(1, comm.size // 2)
    one, two = (
        play(comm, comm.rank, sources, {"seed": seed, "bits": 64, "eps": 1.0}).dual_objective for seed in (1, 2)
    )
    assert one != two
