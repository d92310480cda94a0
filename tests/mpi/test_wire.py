"""What crosses the wire in private mode: every buffer is recorded and searched."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI
from problems import scattered
from recording import Record, RecordingComm, Sent

import deot_mpi
from deot_mpi import EOTResult
from deot_mpi.kinds import Kind
from deot_mpi.protocol.graphs import GRAPHS


def run(comm: MPI.Intracomm, rows: np.ndarray, count: int, **options: object) -> tuple[EOTResult, list[Sent]]:
    record = Record()
    role = "source" if comm.rank < count else "target"
    recorder = RecordingComm(comm).recording(record)
    return deot_mpi.eot(recorder, rows, role, timeout=60.0, **options), record.sent


def holds_samples(content: bytes, rows: np.ndarray, centre: np.ndarray) -> bool:
    """Whether any coordinate of any row, as given or centred, stands in these bytes, in double or single precision."""
    wanted = np.concatenate([rows.ravel(), (rows - centre).ravel()])
    doubles = np.frombuffer(content[: len(content) // 8 * 8], dtype=np.float64)
    singles = np.frombuffer(content[: len(content) // 4 * 4], dtype=np.float32)
    with np.errstate(invalid="ignore"):  # bits and masks read as numbers may be anything
        near = np.abs(doubles[:, None] - wanted[None, :]) <= 1e-10 * np.abs(wanted)[None, :]
    return bool(near.any() or np.isin(singles, wanted.astype(np.float32)).any())


def pooled_centre(comm: MPI.Intracomm, count: int, blocks: list[np.ndarray]) -> np.ndarray:
    return (np.concatenate(blocks[:count]).mean(axis=0) + np.concatenate(blocks[count:]).mean(axis=0)) / 2


@pytest.mark.mpi(min_size=4)
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

    # The recorder saw all there is: as many point-to-point messages and bytes as the ledger, no more, no less.
    own = [message for message in sent if message.destination is not None]
    totals = np.array([len(own), sum(len(message.content) for message in own)])
    everybody = np.empty_like(totals)
    comm.Allreduce(totals, everybody)
    assert everybody[0] == result.ledger.messages
    assert everybody[1] == sum(row.bytes for row in result.ledger.by_kind)


@pytest.mark.mpi(min_size=4)
def test_only_named_collectives_leave_the_edges(comm: MPI.Intracomm) -> None:
    """Off the edges go: the mean (masked), objectives and errors (a few numbers per agent), sizes and decisions."""
    count = comm.size // 2
    rows = scattered(20, comm.rank, count, dimension=6, base=50)
    result, sent = run(comm, rows, count, protocol="ring", rounds=20)
    collectives = {row.kind for row in result.ledger.by_kind if row.collectives}
    assert collectives == {"mean", "objectives", "control"}
    longest = max(len(message.content) for message in sent if message.call in ("Iallreduce", "Ireduce"))
    # Nothing of the size of the data: the longest is the ledger's own table.
    agents, kinds = comm.size - count, len(Kind)
    assert longest <= 8 * agents * (kinds * agents * 2 + kinds * 2)


@pytest.mark.mpi(min_size=4, max_size=7)
def test_the_search_finds_samples_where_they_are_sent(comm: MPI.Intracomm) -> None:
    """The raw kernel must trip the same search: otherwise the proof above proves nothing."""
    count = comm.size // 2
    blocks = [scattered(20, rank, count, dimension=6, base=5) for rank in range(comm.size)]
    _, sent = run(comm, blocks[comm.rank], count, kernel="raw", rounds=5, centre=False)
    assert any(holds_samples(m.content, blocks[comm.rank], np.zeros(6)) for m in sent)
    _, sent = run(comm, blocks[comm.rank], count, kernel="raw", rounds=5)
    centre = pooled_centre(comm, count, blocks)
    shown = np.concatenate([np.frombuffer(m.content, dtype=np.float64) for m in sent if m.call == "Isend"])
    shown = shown[np.isfinite(shown)]  # masks read as doubles may be anything
    mine = (blocks[comm.rank] - centre).ravel()
    assert np.abs(shown[:, None] - mine[None, :]).min(axis=0).max() < 1e-12


@pytest.mark.mpi(min_size=4, max_size=7)
def test_the_mean_is_masked(comm: MPI.Intracomm) -> None:
    """The words an agent puts into the sum look nothing like its own sum, and differ from run to run."""
    count = comm.size // 2
    rows = scattered(20, comm.rank, count, dimension=6, base=5)
    words = []
    for _ in range(2):
        _, sent = run(comm, rows, count, eps=1.0, rounds=1)
        sums = [m.content for m in sent if m.call == "Iallreduce" and len(m.content) == 8 * 6]
        assert len(sums) == 1
        words.append(sums[0])
    assert words[0] != words[1]


@pytest.mark.mpi(min_size=4, max_size=7)
def test_ledger_agrees_with_the_papers_formulas(comm: MPI.Intracomm) -> None:
    count = comm.size // 2
    rows = scattered(21, comm.rank, count, dimension=4, base=5)
    sizes = np.array([len(scattered(21, rank, count, dimension=4, base=5)) for rank in range(comm.size)])
    n, m, sources, targets = sizes[:count].sum(), sizes[count:].sum(), count, comm.size - count
    crossing = sources * m + targets * n  # IM + JN
    raw, _ = run(comm, rows, count, kernel="raw", rounds=30, tol=0.0)
    assert raw.ledger.of(Kind.SAMPLES).bytes == 8 * 4 * crossing
    assert raw.ledger.of(Kind.POTENTIALS).bytes == 8 * 30 * crossing
    sketch, _ = run(comm, rows, count, bits=100, rounds=30, tol=0.0)
    assert sketch.ledger.of(Kind.SKETCH).bytes == 13 * crossing
    assert sketch.ledger.of(Kind.NORMS).bytes == 8 * crossing
    assert sketch.ledger.of(Kind.SAMPLES).messages == 0
    for row in sketch.ledger.by_kind:
        if row.formula_bytes is not None and row.kind != "objectives":
            assert row.bytes == row.formula_bytes
    equal = np.ones((6, 2)) + comm.rank
    sampled, _ = run(comm, equal, count, solver="mrbcd", neighbours=1, rounds=30, tol=0.0)
    assert sampled.ledger.of(Kind.POTENTIALS).bytes == sampled.ledger.of(Kind.POTENTIALS).formula_bytes
