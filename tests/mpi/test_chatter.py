"""How much is said: the formula for every E, one message an edge and way in a round; chunks."""

from __future__ import annotations

import weakref
from collections.abc import Mapping

import numpy as np
import pytest
from mpi4py import MPI
from problems import scattered
from test_same_result import bits_of

import deot_mpi
from deot_mpi import EOTResult, InputError, setting
from deot_mpi.exchange.edges import Edges, Hearing
from deot_mpi.kinds import Kind
from deot_mpi.protocol.choose import NAMES

ROUNDS = 4
SOLVERS = {"sinkhorn": {}, "kept": {}, "mrbcd": {}}


def run(comm: MPI.Intracomm, **options: object) -> EOTResult:
    count = comm.size // 2
    rows = scattered(25, comm.rank, count, dimension=3, base=4)
    role = "source" if comm.rank < count else "target"
    given = {"rounds": ROUNDS, "tol": 0.0, "bits": 64, "eps": 2.0, "timeout": 60.0, "degree": 2, **options}
    return deot_mpi.eot(comm, rows, role, **given)


@pytest.mark.mpi(min_size=7, max_size=7)
@pytest.mark.parametrize("protocol", NAMES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_bytes_are_those_of_the_formula_for_every_protocol(comm: MPI.Intracomm, protocol: str, solver: str) -> None:
    """And in a round, no more than one message on an edge each way; looks between rounds are counted apart."""
    kernel = "raw" if protocol == "star" else "sketch"
    result = run(comm, protocol=protocol, solver=solver, kernel=kernel)
    said = {row.kind: row for row in result.ledger.by_kind if row.formula_bytes is not None}
    assert {"samples"} if kernel == "raw" else {"sketch", "norms"} <= set(said)
    for row in said.values():
        assert row.bytes == row.formula_bytes, row.kind
    edges = result.protocol.edges
    assert said["potentials"].messages == 2 * edges * ROUNDS
    for edge in result.ledger.by_edge:
        assert edge.bytes == sum(edge.bytes_by_kind.values())


@pytest.mark.mpi(min_size=4, max_size=4)
@pytest.mark.parametrize("solver", ["sinkhorn", "kept"])
@pytest.mark.parametrize("kernel", ["raw", "sketch"])
def test_large_arrays_go_in_chunks(
    comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch, solver: str, kernel: str
) -> None:
    """Messages of at most 40 bytes: as many bytes, more messages, the same result to the bit."""
    whole = run(comm, solver=solver, kernel=kernel)
    monkeypatch.setattr(Edges, "most_bytes", 40)
    parts = run(comm, solver=solver, kernel=kernel)
    assert bits_of(parts) == bits_of(whole)
    np.testing.assert_array_equal(parts.potential, whole.potential)
    kind = Kind.SAMPLES if kernel == "raw" else Kind.SKETCH
    assert parts.ledger.of(kind).bytes == whole.ledger.of(kind).bytes == whole.ledger.of(kind).formula_bytes
    count = comm.size // 2
    width = 24 if kernel == "raw" else 8  # bytes of a row
    needed = 0
    for rank in range(comm.size):
        if rank >= count or solver == "kept":
            neighbours = count if rank >= count else comm.size - count
            needed += neighbours * -(-len(scattered(25, rank, count, dimension=3, base=4)) * width // 40)
    assert parts.ledger.of(kind).messages == needed


@pytest.mark.mpi(min_size=4, max_size=4)
def test_more_rows_than_a_message_takes_are_refused(comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setting, "MOST_ROWS", 3)
    with pytest.raises(InputError, match=r"source agent \d has \d+ rows, and in a round .* 3 at most"):
        run(comm)


@pytest.mark.mpi(min_size=4, max_size=7)
def test_one_neighbour_at_a_time(comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an agent needs no more than a block of each neighbour, it asks for the next one's rows only when it has
    done with those before, and gives these away."""
    held: list[int] = []
    real = Edges.swap_in_turn

    def watched(
        edges: Edges, outgoing: Mapping[Kind, Mapping[int, np.ndarray]], hearing: Hearing | None = None
    ) -> None:
        rooms: list[weakref.ref[np.ndarray]] = []

        def counted(j: int) -> dict[Kind, np.ndarray]:
            assert hearing is not None
            room = hearing.room(j)
            rooms.append(weakref.ref(room[Kind.SKETCH]))
            held.append(sum(one() is not None for one in rooms))
            return room

        real(edges, outgoing, None if hearing is None else Hearing(counted, hearing.use))

    monkeypatch.setattr(Edges, "swap_in_turn", watched)
    run(comm, solver="kept")
    count = comm.size // 2
    if comm.rank >= count:
        assert held == [1] * count
    else:  # sources go back to their targets' sketches, and keep them
        assert held == list(range(1, comm.size - count + 1))
