"""What crosses the wire in private mode: every buffer is recorded and searched."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI
from problems import scattered
from recording import Record, RecordingComm, Sent, holds_samples

import deot_mpi
from deot_mpi import EOTOptions, EOTResult, InputError
from deot_mpi.exchange.node import core_count
from deot_mpi.kinds import Kind
from deot_mpi.protocol.graphs import GRAPHS
from deot_mpi.running import CHECK_SIZE
from deot_mpi.solvers.sinkhorn import TALLY_SIZE


def run(comm: MPI.Intracomm, rows: np.ndarray, count: int, **options: object) -> tuple[EOTResult, list[Sent]]:
    record = Record()
    role = "source" if comm.rank < count else "target"
    recorder = RecordingComm(comm).recording(record)
    result = deot_mpi.eot(recorder, rows, role, timeout=60.0, **options)
    assert record.held == 0, "communicators or requests were left behind"
    # The agreement on each rank's own options comes before the run that the ledger describes.
    assert record.sent[0].call == "Iallreduce"
    return result, record.sent[1:]


def pooled_centre(comm: MPI.Intracomm, count: int, blocks: list[np.ndarray]) -> np.ndarray:
    return (np.concatenate(blocks[:count]).mean(axis=0) + np.concatenate(blocks[count:]).mean(axis=0)) / 2


@pytest.mark.mpi(min_size=4, max_size=7)
@pytest.mark.parametrize("solver", ["sinkhorn", "kept", "mrbcd"])
@pytest.mark.parametrize("protocol", ["ring", "uniform"])
def test_private_mode_sends_no_samples_and_nothing_off_the_edges(
    comm: MPI.Intracomm, solver: str, protocol: str
) -> None:
    count = comm.size // 2
    blocks = [scattered(20, rank, count, dimension=6, base=5) for rank in range(comm.size)]
    blocks[0] = blocks[0][:1]  # one sample only: its sum is the sample, and must not travel either
    options = {"neighbours": 1} if solver != "sinkhorn" else {}
    result, sent = run(comm, blocks[comm.rank], count, solver=solver, protocol=protocol, rounds=20, bits=96, **options)
    centre = pooled_centre(comm, count, blocks)

    assert sent
    for message in sent:
        assert not holds_samples(message.content, blocks[comm.rank], centre), message.call

    support = np.ones((count, comm.size - count), dtype=bool)
    if protocol != "uniform":
        support = GRAPHS[protocol](count, comm.size - count, 4, 0)
    for message in sent:
        if message.destination is not None:
            ends = (comm.rank, message.destination)
            source, target = ends if comm.rank < count else ends[::-1]
            assert source < count <= target, "a message between two agents of one role"
            assert support[source, target - count], f"a message where E has no edge: {ends}"

    # The recorder saw all there is: as many messages and bytes as the ledger, no more, no less.
    edges = [message for message in sent if message.destination is not None]
    collectives = [message for message in sent if message.destination is None]
    totals = np.array([len(edges), size_of(edges), len(collectives), size_of(collectives)])
    everybody = np.empty_like(totals)
    comm.Allreduce(totals, everybody)
    ledger = result.ledger.by_kind
    assert everybody[0] == sum(row.messages for row in ledger)
    assert everybody[1] == sum(row.bytes for row in ledger)
    assert everybody[2] == sum(row.collectives for row in ledger)
    assert everybody[3] == sum(row.collective_bytes for row in ledger)


def size_of(messages: list[Sent]) -> int:
    return sum(len(message.content) for message in messages)


@pytest.mark.mpi(min_size=4)
def test_only_named_collectives_leave_the_edges(comm: MPI.Intracomm) -> None:
    """Off the edges go the masked mean, sizes, options, decisions and values: tables whose size is known beforehand."""
    count = comm.size // 2
    rows = scattered(20, comm.rank, count, dimension=6, base=50)
    result, sent = run(comm, rows, count, protocol="ring", rounds=20)
    assert {row.kind for row in result.ledger.by_kind if row.collectives} == {"mean", "objectives", "control"}
    agents, kinds, options = comm.size - count, len(Kind), len(EOTOptions().shared())
    members = {count, agents}
    numbers_per_agent = {
        5,  # sizes; later objective, error, change, bytes and staleness at a check; the final values
        4,  # time worked and waited, memory, who shares a host
        1,  # the largest local distance; whether there is a potential to start from
        kinds * agents * 2 + kinds * 4,  # the ledger itself
    }
    allowed = {8 * m * n for m in members for n in numbers_per_agent}
    allowed |= {comm.size, 4 * comm.size, 8, 16 * options, 32}  # roles, agreements, exponents, options, versions
    allowed |= {8 * 6, 8 * 14}  # masked sums: the mean; the moments behind --eps-scale
    allowed |= {8 * (core_count() + 1)}  # who computes on which core of the node
    allowed |= {8 * comm.size * (CHECK_SIZE + TALLY_SIZE)}  # a check, the largest exponent, Anderson's inner products
    for message in sent:
        if message.destination is None:
            assert len(message.content) in allowed, (message.call, len(message.content))


@pytest.mark.mpi(min_size=4)
def test_nothing_is_left_behind_when_the_input_is_refused(comm: MPI.Intracomm) -> None:
    record = Record()
    rows = scattered(20, comm.rank, 1) if comm.rank else np.full((2, 3), np.nan)
    recorder = RecordingComm(comm).recording(record)
    with pytest.raises(InputError, match="is nan"):
        deot_mpi.eot(recorder, rows, "target" if comm.rank else "source", timeout=60.0)
    assert record.held == 0


@pytest.mark.mpi(min_size=4, max_size=7)
def test_the_search_finds_samples_where_they_are_sent(comm: MPI.Intracomm) -> None:
    """The raw kernel must trip the same search: otherwise the proof above proves nothing."""
    count = comm.size // 2
    blocks = [scattered(20, rank, count, dimension=6, base=5) for rank in range(comm.size)]
    bare = {"kernel": "raw", "rounds": 5, "centre": False}
    _, sent = run(comm, blocks[comm.rank], count, solver="kept", **bare)
    assert any(holds_samples(m.content, blocks[comm.rank], np.zeros(6)) for m in sent)
    _, sent = run(comm, blocks[comm.rank], count, **bare)  # one pass: the targets' samples go, the sources' stay
    is_target = comm.rank >= count
    assert any(holds_samples(m.content, blocks[comm.rank], np.zeros(6)) for m in sent) == is_target
    _, sent = run(comm, blocks[comm.rank], count, kernel="raw", rounds=5, solver="kept")
    centre = pooled_centre(comm, count, blocks)
    shown = np.concatenate([np.frombuffer(m.content, dtype=np.float64) for m in sent if m.call == "Isend"])
    shown = shown[np.isfinite(shown)]  # masks read as doubles may be anything
    mine = (blocks[comm.rank] - centre).ravel()
    assert np.abs(shown[:, None] - mine[None, :]).min(axis=0).max() < 1e-12


@pytest.mark.mpi(min_size=4, max_size=7)
def test_the_mean_is_masked(comm: MPI.Intracomm) -> None:
    """Every word an agent puts into the sum is far from its own sum, and each edge has masks of its own."""
    count = comm.size // 2
    blocks = [scattered(20, rank, count, dimension=6, base=5) for rank in range(comm.size)]
    mine = blocks[comm.rank]
    domain = blocks[:count] if comm.rank < count else blocks[count:]
    own_sum = mine.sum(axis=0) / sum(len(rows) for rows in domain)
    _, sent = run(comm, mine, count, eps=1.0, rounds=1)
    _, words = [m.content for m in sent if m.call == "Iallreduce" and len(m.content) == 8 * 6]  # exponents, then words
    shown = np.frombuffer(words, dtype=np.uint64)

    def bare_sums(numbers: np.ndarray) -> np.ndarray:
        """Which words are the agent's own sums in some unit, a power of two."""
        ratios = numbers.view(np.int64).astype(float) / own_sum
        exponents = np.log2(np.abs(ratios))
        return (ratios > 0) & (np.abs(exponents - np.round(exponents)) < 1e-7)

    assert not bare_sums(shown).any()
    if comm.rank < count:
        masks = [np.frombuffer(m.content, dtype=np.uint64) for m in sent if m.call == "Isend"][: comm.size - count]
        assert len(masks) == comm.size - count
        assert np.unique(np.concatenate(masks)).size == 6 * len(masks), "each edge has masks of its own"
        for mask in masks:  # one dishonest neighbour learns nothing
            assert not bare_sums(shown - mask).any()
        assert bare_sums(shown - sum(masks)).all()


@pytest.mark.mpi(min_size=4, max_size=7)
def test_ledger_agrees_with_the_papers_formulas(comm: MPI.Intracomm) -> None:
    count = comm.size // 2
    rows = scattered(21, comm.rank, count, dimension=4, base=5)
    sizes = np.array([len(scattered(21, rank, count, dimension=4, base=5)) for rank in range(comm.size)])
    n, m, sources, targets = sizes[:count].sum(), sizes[count:].sum(), count, comm.size - count
    crossing = sources * m + targets * n  # IM + JN
    one_way = sources * m  # the one-pass solver: samples or sketches go from targets to sources only
    for solver, shown, per_round in (("kept", crossing, crossing), ("sinkhorn", one_way, 2 * one_way)):
        raw, _ = run(comm, rows, count, kernel="raw", rounds=30, tol=0.0, solver=solver)
        assert raw.ledger.of(Kind.SAMPLES).bytes == 8 * 4 * shown
        assert raw.ledger.of(Kind.POTENTIALS).bytes == 8 * 30 * per_round
        sketch, _ = run(comm, rows, count, bits=100, rounds=30, tol=0.0, solver=solver)
        assert sketch.ledger.of(Kind.SKETCH).bytes == 13 * shown
        assert sketch.ledger.of(Kind.NORMS).bytes == 8 * shown
        assert sketch.ledger.of(Kind.SAMPLES).messages == 0
        for row in sketch.ledger.by_kind:
            if row.formula_bytes is not None:
                assert row.bytes == row.formula_bytes
    ring, _ = run(comm, rows, count, protocol="ring", solver="kept", neighbours=4, rounds=12, tol=0.0)
    assert ring.ledger.of(Kind.POTENTIALS).bytes == ring.ledger.of(Kind.POTENTIALS).formula_bytes
    equal = np.ones((6, 2)) + comm.rank
    sampled, _ = run(comm, equal, count, solver="mrbcd", neighbours=1, rounds=30, tol=0.0)
    assert sampled.ledger.of(Kind.POTENTIALS).bytes == sampled.ledger.of(Kind.POTENTIALS).formula_bytes
