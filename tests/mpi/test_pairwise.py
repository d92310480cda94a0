"""Seeds by edge: every pair of agents has planes of its own, nobody else learns them, and all is still one plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from problems import scattered
from recording import Record, RecordingComm

import deot_mpi
from deot_mpi.kinds import Kind
from deot_mpi.sketch import sketch, unpacked

BITS = 64
PAIRWISE: dict[str, Any] = {"bits": BITS, "pairwise_seeds": True, "eps": 1.0, "private_seed": 5}


def role_of(comm: MPI.Intracomm) -> str:
    return "source" if comm.rank < comm.size // 2 else "target"


def rows_of(comm: MPI.Intracomm, dimension: int = 6) -> np.ndarray:
    return scattered(4, comm.rank, comm.size // 2, dimension, 9)


@pytest.mark.mpi(min_size=4)
def test_every_edge_has_its_own_planes_and_only_its_agents_know(comm: MPI.Intracomm) -> None:
    """Each seed goes to one rank, no two are alike, and the bits on an edge are those of its seed."""
    rows, record = rows_of(comm), Record()
    result = deot_mpi.eot(RecordingComm(comm).recording(record), rows, role_of(comm), **PAIRWISE, centre=False)
    seeds = {m.destination: int(np.frombuffer(m.content, np.int64)[0]) for m in record.sent if m.tag == Kind.SEEDS}
    bits = {m.destination: m.content for m in record.sent if m.tag == Kind.SKETCH and m.destination is not None}
    everyone = [seed for part in comm.allgather(list(seeds.values())) for seed in part]
    sources = comm.size // 2
    assert len(set(everyone)) == len(everyone) == sources * (comm.size - sources)
    if role_of(comm) == "source":
        assert not seeds
        assert not bits
    else:
        assert set(seeds) == set(bits) == set(range(sources))
        for destination, seed in seeds.items():
            assert bits[destination] == sketch(rows, BITS, seed, True).tobytes()
        assert len(set(bits.values())) == sources
    known = result.ledger.of(Kind.SEEDS)
    assert known.bytes == 8 * len(everyone) == known.formula_bytes


@pytest.mark.mpi(min_size=4, max_size=4)
@pytest.mark.parametrize(
    "options", [{}, {"solver": "kept"}, {"flip": 0.1}, {"protocol": np.array([[0.5, 0.0], [0.1, 0.4]])}]
)
def test_pot_finds_the_same_value_on_the_kernel_of_all_edges(comm: MPI.Intracomm, options: dict[str, Any]) -> None:
    result = deot_mpi.eot(
        comm, rows_of(comm), role_of(comm), **PAIRWISE, **options, tol=1e-9, rounds=5000, reference=True
    )
    assert result.errors is not None
    assert result.errors.algorithm < 1e-6 * abs(result.dual_objective)
    assert result.errors.kernel > 1e-4 * abs(result.dual_objective), "64 bits are few"


@pytest.mark.mpi(min_size=4, max_size=4)
def test_seeds_are_new_in_every_run(comm: MPI.Intracomm) -> None:
    def value(private_seed: int | None) -> float:
        options = {**PAIRWISE, "private_seed": private_seed}
        return deot_mpi.eot(comm, rows_of(comm), role_of(comm), **options).dual_objective

    assert value(5) == value(5)
    assert value(None) != value(None)


@pytest.mark.mpi(min_size=4, max_size=4)
@pytest.mark.parametrize("method", ["1nn", "labels", "class-regularised"])
def test_labels_travel_along_such_edges_too(comm: MPI.Intracomm, method: str) -> None:
    """Two far classes: any plan with kernels that mean the same on both ends labels all rows."""
    rng, role = np.random.default_rng(comm.rank), role_of(comm)
    labels = np.arange(12) % 2
    rows = rng.normal(size=(12, 6)) + 6.0 * labels[:, None]
    result = deot_mpi.adapt(comm, rows, role, labels=labels, method=method, **{**PAIRWISE, "bits": 512, "eps": 20.0})
    assert result.accuracy == 1.0


@pytest.mark.mpi(min_size=4, max_size=4)
def test_neighbours_together_know_more_and_less_is_promised(comm: MPI.Intracomm) -> None:
    rows = np.random.default_rng(comm.rank).normal(size=(40, 20))
    options: dict[str, Any] = {"flip": 0.1, "eps": 10.0, "ratios": (2.0,), "flips": (0.0,), "victims": 20}
    found = deot_mpi.audit(comm, rows, role_of(comm), **{**PAIRWISE, **options})
    errors = {one.name: one.median_recovery_error for one in found.attacks}
    alone, together = errors["half-spaces, similar rows"], errors["half-spaces, similar rows, all neighbours together"]
    assert alone is not None
    assert together is not None
    assert together < 0.9 * alone
    assert found.guarantee is not None
    assert found.guarantee.together == pytest.approx(2 * found.guarantee.per_sample)
    assert any("neighbours that put theirs together were tried" in note for note in found.notes)


def test_two_seeds_have_nothing_in_common() -> None:
    """Bits of one row under two seeds agree as often as coins do: sketches of two edges cannot be compared."""
    rows = np.random.default_rng(0).normal(size=(400, 6))
    one, other = (unpacked(sketch(rows, BITS, seed, True), BITS) for seed in (11, 12))
    agreeing = float((one == other).mean())
    assert abs(agreeing - 0.5) < 4 * np.sqrt(0.25 / BITS)  # the planes are the chance here, not the rows
