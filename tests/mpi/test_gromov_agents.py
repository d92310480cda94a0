"""Gromov-Wasserstein's manners: what crosses the wire, the same bits every time, and how it says no."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from problems import scattered
from recording import Record, RecordingComm, Sent

import deot_mpi
from deot_mpi import GromovResult, InputError
from deot_mpi.kinds import Kind

SHORT: dict[str, Any] = {"starts": 2, "outer": 6, "inner": 30, "tol": 1e-4, "bits": 96, "timeout": 60.0}


def rows_of(agent: int, sources: int, base: int = 8) -> np.ndarray:
    return scattered(40, agent, sources, dimension=4 if agent < sources else 6, base=base)


def role_of(agent: int, sources: int) -> str:
    return "source" if agent < sources else "target"


def recorded(comm: MPI.Intracomm, sources: int, **options: Any) -> tuple[GromovResult, list[Sent]]:
    record = Record()
    rows = rows_of(comm.rank, sources)
    recorder = RecordingComm(comm).recording(record)
    result = deot_mpi.gromov(recorder, rows, role_of(comm.rank, sources), **{**SHORT, **options})
    assert record.held == 0, "communicators or requests were left behind"
    return result, record.sent[1:]


def holds(content: bytes, wanted: np.ndarray) -> bool:
    """Whether any of these numbers stands in these bytes, in double precision."""
    doubles = np.frombuffer(content[: len(content) // 8 * 8], dtype=np.float64)
    with np.errstate(invalid="ignore"):  # bits and masks read as numbers may be anything
        return bool((np.abs(doubles[:, None] - wanted[None, :]) <= 1e-10 * np.abs(wanted)[None, :]).any())


@pytest.mark.mpi(min_size=4, max_size=4)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"solver": "kept", "neighbours": 1},
        {"p_update": "sampled"},
        {"moment": "exchange"},
        {"self_terms": "moments"},
    ],
)
def test_private_mode_sends_no_samples_and_the_ledger_counts_all(comm: MPI.Intracomm, options: dict[str, Any]) -> None:
    sources = comm.size // 2
    result, sent = recorded(comm, sources, kernel="sketch", protocol="ring", **options)
    rows = rows_of(comm.rank, sources)
    members = range(sources) if comm.rank < sources else range(sources, comm.size)
    centre = np.concatenate([rows_of(agent, sources) for agent in members]).mean(axis=0)
    secret = np.concatenate([rows.ravel(), (rows - centre).ravel()])
    for message in sent:
        assert not holds(message.content, secret), message.call
    totals = np.array([
        [sum(m.destination is not None for m in sent), sum(len(m.content) for m in sent if m.destination is not None)],
        [sum(m.destination is None for m in sent), sum(len(m.content) for m in sent if m.destination is None)],
    ])  # fmt: skip
    everybody = np.empty_like(totals)
    comm.Allreduce(totals, everybody)
    ledger = result.ledger.by_kind
    assert everybody[0, 0] == sum(row.messages + row.within_messages for row in ledger)
    assert everybody[0, 1] == sum(row.bytes + row.within_bytes for row in ledger)
    assert everybody[1, 0] == sum(row.collectives for row in ledger)
    assert everybody[1, 1] == sum(row.collective_bytes for row in ledger)
    assert (result.ledger.of(Kind.STRUCTURE).within_bytes > 0) == (options.get("self_terms") != "moments")
    for kind in (Kind.SKETCH, Kind.NORMS, Kind.POTENTIALS):
        row = result.ledger.of(kind)
        assert row.bytes == row.formula_bytes, kind


@pytest.mark.mpi(min_size=4, max_size=4)
def test_the_search_finds_samples_where_they_are_sent(comm: MPI.Intracomm) -> None:
    """With the raw kernel the targets' centred rows travel, the sources' stay: otherwise the proof proves nothing."""
    sources = comm.size // 2
    result, sent = recorded(comm, sources, kernel="raw")
    rows = rows_of(comm.rank, sources)
    members = range(sources) if comm.rank < sources else range(sources, comm.size)
    centred = (rows - np.concatenate([rows_of(agent, sources) for agent in members]).mean(axis=0)).ravel()
    assert any(holds(message.content, centred) for message in sent) == (comm.rank >= sources)
    assert result.ledger.of(Kind.SAMPLES).bytes == result.ledger.of(Kind.SAMPLES).formula_bytes


CASES = [
    {"kernel": "raw"},
    {"kernel": "sketch"},
    {"kernel": "sketch", "moment": "exchange", "protocol": "ring"},
    {"kernel": "raw", "solver": "kept", "neighbours": 1},
    {"kernel": "sketch", "solver": "mrbcd", "neighbours": 1, "p_update": "sampled"},
]


@pytest.mark.mpi(min_size=7, max_size=7)
@pytest.mark.parametrize("options", CASES)
def test_bitwise_equal_for_every_run_and_placement(comm: MPI.Intracomm, options: dict[str, Any]) -> None:
    sources = comm.size // 2

    def play(agent: int, **more: Any) -> GromovResult:
        stage = comm.Split(0, agent)
        rows = rows_of(agent, sources)
        result = deot_mpi.gromov(stage, rows, role_of(agent, sources), **{**SHORT, "outer": 3, **options, **more})
        stage.Free()
        return result

    first = play(comm.rank)
    moved = int(np.roll(np.arange(comm.size), 1)[comm.rank])
    # With other means as well, where there are any: what depends on them, on the run or on the rank, differs here.
    others = [play(moved, memory=1), play(comm.rank, threads=2)] if "solver" not in options else [play(moved)]
    for other in others:
        assert other.values == first.values
        assert other.starts == first.starts
        np.testing.assert_array_equal(other.alignment, first.alignment)
        assert [p.objective for p in other.trace] == [p.objective for p in first.trace]


def refused(comm: MPI.Intracomm, rows: object, words: str, **options: Any) -> None:
    """Every rank raises the same sentence, and the next run works."""
    sources = max(1, comm.size // 2)
    role = role_of(comm.rank, sources)
    with pytest.raises(InputError, match=words) as caught:
        deot_mpi.gromov(comm, rows, role, timeout=20.0, **options)  # type: ignore[arg-type]
    assert len(set(comm.allgather(str(caught.value)))) == 1
    assert deot_mpi.gromov(comm, rows_of(comm.rank, sources), role, **SHORT).rounds > 0


@pytest.mark.mpi(min_size=3, max_size=3)
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda rows: rows[:, :0], r"target agent 1: no samples.*shape \(12, 0\)"),
        (lambda rows: np.full_like(rows, np.nan), "target agent 1: row 0, column 0 is nan"),
        (lambda rows: rows[:, :2], "target agent 1 has samples of 2 columns, target agent 0 6"),
        (lambda rows: 1e141 * rows, "target agent 1: a value of size .* overflows"),
    ],
)
def test_samples_of_one_agent(comm: MPI.Intracomm, spoil: Any, words: str) -> None:
    rows = rows_of(comm.rank, 1)
    refused(comm, spoil(rows) if comm.rank == 2 else rows, words)


@pytest.mark.mpi(min_size=2, max_size=2)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"alpha": 0.5}, "alpha is 0.5, but the agents have no features"),
        ({"alpha": 0.0}, "alpha is 0.0; it must be above 0"),
        ({"starts": 0}, "starts is 0; it must be a whole number"),
        ({"outer": 1.5}, "outer is 1.5; it must be a whole number"),
        ({"p_update": "newton"}, "p_update is 'newton'; it must be one of closed, gradient, sampled"),
        ({"alignment": np.ones((2, 2))}, r"source agent 0: the alignment to start from has shape \(2, 2\)"),
        ({"eps": 1e-15, "kernel": "raw"}, "no digits left; use eps of .* or more"),
        ({"p_update": "sampled", "moment": "exchange"}, "use moment 'surrogate'"),
        ({"eta": 3.0, "p_update": "gradient"}, "eta is 3; a step of P beyond 2/64"),
        ({"rounds": 5}, "unexpected keyword argument 'rounds'"),
    ],
)
def test_options_that_cannot_be(comm: MPI.Intracomm, options: dict[str, Any], words: str) -> None:
    refused(comm, rows_of(comm.rank, 1), words, **options)


@pytest.mark.mpi(min_size=3, max_size=3)
def test_features_are_for_all_agents_or_none(comm: MPI.Intracomm) -> None:
    rows = rows_of(comm.rank, 1)
    features = None if comm.rank == 2 else rows[:, :2]
    refused(comm, rows, "target agent 1 has features of 0 columns, source agent 0 2", features=features)
    short = rows[:-1, :2] if comm.rank == 1 else rows[:, :2]
    refused(comm, rows, "target agent 0: 10 rows but features of 9", features=short)


@pytest.mark.mpi(min_size=2, max_size=2)
@pytest.mark.parametrize("kernel", ["raw", "sketch"])
@pytest.mark.parametrize(
    ("scale", "words"), [(1e35, "agent 0: a value of size .*rescale"), (1e-35, "are .* from their")]
)
def test_samples_whose_fourth_power_is_lost(comm: MPI.Intracomm, kernel: str, scale: float, words: str) -> None:
    refused(comm, scale * rows_of(comm.rank, 1), words, kernel=kernel)


@pytest.mark.mpi(min_size=2, max_size=2)
def test_hardly_any_structure_is_still_a_problem(comm: MPI.Intracomm) -> None:
    rows = rows_of(comm.rank, 1)
    result = deot_mpi.gromov(
        comm, rows, role_of(comm.rank, 1), features=rows[:, :2], alpha=1e-13, kernel="raw", timeout=60.0
    )
    assert result.status == "marginal"


@pytest.mark.mpi(min_size=4, max_size=4)
def test_a_start_whose_marginals_do_not_hold_is_not_the_best(comm: MPI.Intracomm) -> None:
    """One round each: values far below any plan's, which only a start with marginals may beat."""
    sources = comm.size // 2
    rows, role = rows_of(comm.rank, sources), role_of(comm.rank, sources)
    whole = deot_mpi.gromov(comm, rows, role, kernel="raw", eps=4.0, starts=1, timeout=60.0)
    mixed = deot_mpi.gromov(
        comm, rows, role, kernel="raw", eps=4.0, starts=3, inner=2, outer=2, alignment=whole.alignment,
        start=whole.potential, timeout=60.0,
    )  # fmt: skip
    assert min(start.value for start in mixed.starts) < mixed.regularised_cost
    assert mixed.regularised_cost == pytest.approx(whole.regularised_cost, rel=1e-6)


@pytest.mark.mpi(min_size=2, max_size=2)
def test_clouds_without_extent_need_eps(comm: MPI.Intracomm) -> None:
    refused(comm, np.ones((3, 2)), "mean cost is 0.*--eps")
    result = deot_mpi.gromov(comm, np.ones((3, 2)), role_of(comm.rank, 1), eps=1.0)
    assert result.transport_cost == pytest.approx(0.0, abs=1e-12)
