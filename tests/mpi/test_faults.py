"""Agents that go on from checkpoints, that are asked to stop, and that are sent nonsense. Real ranks."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from problems import scattered

import deot_mpi
from deot_mpi import InputError
from deot_mpi.adapt import solve_adapt
from deot_mpi.data.samples import Samples
from deot_mpi.eot import solve_eot
from deot_mpi.errors import MessageError, StoppedError
from deot_mpi.exchange.received import check_message
from deot_mpi.faults.checkpoint import Checkpoint, Folder
from deot_mpi.kinds import Kind
from deot_mpi.options import AdaptOptions, EOTOptions
from deot_mpi.roles import Role

HARD: dict[str, Any] = {"eps": 0.2, "tol": 1e-9, "rounds": 3000, "timeout": 60.0}


def role_of(comm: MPI.Intracomm) -> Role:
    return Role.SOURCE if comm.rank < comm.size // 2 else Role.TARGET


def samples_of(comm: MPI.Intracomm) -> Samples:
    labels = np.arange(9 + comm.rank) % 3
    rows = scattered(4, comm.rank, comm.size // 2, 4, 9)
    return Samples(rows[: labels.size], labels=labels[: len(rows)])


class StopAfter:
    """Asked to stop after so many rounds, on one rank alone."""

    def __init__(self, comm: MPI.Intracomm, rounds: int) -> None:
        self._left = rounds if comm.rank == comm.size - 1 else None

    def __call__(self) -> bool:
        if self._left is None:
            return False
        self._left -= 1
        return self._left < 0


@pytest.fixture
def folder(comm: MPI.Intracomm, tmp_path: Path) -> Path:
    """One folder for all ranks."""
    return Path(comm.bcast(str(tmp_path)))


def told(result: deot_mpi.EOTResult) -> list[Any]:
    objectives = [point.objective for point in result.trace]
    return [result.values, result.sinkhorn_divergence, result.potential.tobytes(), result.rounds, objectives]


@pytest.mark.mpi(min_size=4, max_size=4)
@pytest.mark.parametrize(
    "options",
    [
        {}, {"kernel": "raw", "eps": 0.05}, {"tol": 1e-6, "eps": 0.02, "kernel": "raw"}, {"flip": 0.1},
        {"pairwise_seeds": True}, {"solver": "kept", "neighbours": 1, "eps": 1.0},
        {"solver": "mrbcd", "rounds": 60, "neighbours": 1}, {"protocol": "ring", "memory": 1000},
        {"kernel": "raw", "eps": 0.05, "debias": True},
    ],
)  # fmt: skip
def test_a_run_that_is_stopped_and_resumed_has_the_same_bits(
    comm: MPI.Intracomm, folder: Path, options: dict[str, Any]
) -> None:
    """Stopped again and again; the noise and the planes of an edge are those that were shown before."""
    role, samples = role_of(comm), samples_of(comm)
    wanted = {**HARD, **options, "private_seed": 7 if "flip" in options or "pairwise_seeds" in options else None}
    whole = told(solve_eot(comm, role, lambda _: samples, EOTOptions(**wanted)))
    kept = EOTOptions(**wanted, checkpoint=str(folder), every=5, resume=True)
    stops = 0
    while True:
        try:
            result = solve_eot(comm, role, lambda _: samples, kept, stop=StopAfter(comm, 4 * 4**stops))
            break
        except StoppedError:
            stops += 1
    assert stops >= 2
    assert told(result) == whole
    assert result.resumed_from is not None
    for row in result.ledger.by_kind:
        if row.kind in ("potentials", "sketch", "samples") and options.get("solver") != "mrbcd":  # which draws
            assert row.formula_bytes is None or row.bytes == row.formula_bytes
        assert row.within_bytes == 0, "the self-terms were in the checkpoint"


@pytest.mark.mpi(min_size=4, max_size=4)
def test_noise_is_kept_where_nobody_gave_a_seed(comm: MPI.Intracomm, folder: Path) -> None:
    """Flips come from the operating system, but a resumed run must not draw them anew: that would show more."""
    role, samples = role_of(comm), samples_of(comm)
    kept = EOTOptions(**HARD, flip=0.2, checkpoint=str(folder), every=4, resume=True)
    with pytest.raises(StoppedError):
        solve_eot(comm, role, lambda _: samples, kept, stop=StopAfter(comm, 9))
    copy = folder / "copy"
    if comm.rank == 0:
        shutil.copytree(folder, copy, ignore=lambda *_: ["copy"])
    comm.Barrier()
    first = solve_eot(comm, role, lambda _: samples, kept)
    again = EOTOptions(**HARD, flip=0.2, checkpoint=str(copy), every=4, resume=True)
    assert told(solve_eot(comm, role, lambda _: samples, again)) == told(first)


@pytest.mark.mpi(min_size=4, max_size=4)
def test_adaptation_goes_on_too(comm: MPI.Intracomm, folder: Path) -> None:
    role, samples = role_of(comm), samples_of(comm)
    whole = solve_adapt(comm, role, lambda _: samples, AdaptOptions(**HARD))
    kept = AdaptOptions(**HARD, checkpoint=str(folder), every=5, resume=True)
    with pytest.raises(StoppedError):
        solve_adapt(comm, role, lambda _: samples, kept, stop=StopAfter(comm, 7))
    result = solve_adapt(comm, role, lambda _: samples, kept)
    assert result.values == whole.values
    np.testing.assert_array_equal(result.predictions, whole.predictions)


@pytest.mark.mpi(min_size=4, max_size=4)
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("other data", r"target agent 1: .*target-0001-round-.* is of a run with other samples; give the same"),
        ("other options", r"is of a run with other options"),
        ("other edges", r"is of a run with other options and agents or edges"),
        ("one is missing", r"do not fit together \(source 0: \d+.*target 1: none\); start without --resume"),
    ],
)
def test_what_does_not_belong_together_is_refused(comm: MPI.Intracomm, folder: Path, damage: str, words: str) -> None:
    role, samples = role_of(comm), samples_of(comm)
    kept = {**HARD, "checkpoint": str(folder), "every": 5}
    with pytest.raises(StoppedError):
        solve_eot(comm, role, lambda _: samples, EOTOptions(**kept), stop=StopAfter(comm, 11))
    comm.Barrier()
    changed = {"other options": {"eps": 0.3}, "other edges": {"protocol": "star"}}.get(damage, {})
    if comm.rank == 3:
        if damage == "other data":
            samples = Samples(samples.rows + 1.0, labels=samples.labels)
        if damage == "one is missing":
            for path in folder.glob("target-0001-*"):
                path.unlink()
    comm.Barrier()
    with pytest.raises(InputError, match=words):
        solve_eot(comm, role, lambda _: samples, EOTOptions(**{**kept, **changed, "resume": True}))


@pytest.mark.mpi(min_size=4, max_size=4)
def test_a_torn_checkpoint_takes_all_back_to_the_one_before(comm: MPI.Intracomm, folder: Path) -> None:
    """Killed between two agents' writes: one has a newer round than all, another a torn file."""
    role, samples = role_of(comm), samples_of(comm)
    whole = told(solve_eot(comm, role, lambda _: samples, EOTOptions(**HARD)))
    kept = {**HARD, "checkpoint": str(folder), "every": 5}
    with pytest.raises(StoppedError, match="after round 6"):
        solve_eot(comm, role, lambda _: samples, EOTOptions(**kept), stop=StopAfter(comm, 4))
    mine = f"{role.value}-{comm.rank % 2:04d}-round-"
    newest = max(folder.glob(f"{mine}*"))
    assert newest.name == f"{mine}{6:09d}.checkpoint"
    comm.Barrier()
    if comm.rank == 1:
        newest.write_bytes(newest.read_bytes()[:100])
    comm.Barrier()
    result = solve_eot(comm, role, lambda _: samples, EOTOptions(**kept, resume=True))
    assert result.resumed_from == 5
    assert told(result) == whole


@pytest.mark.mpi(min_size=4, max_size=4)
def test_a_write_that_fails_once_loses_no_common_round(
    comm: MPI.Intracomm, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One agent has no room in round 10; until round 15 is written by all, all keep round 5."""
    role, samples, write = role_of(comm), samples_of(comm), Folder.write

    def full_once(self: Folder, checkpoint: Checkpoint) -> None:
        if comm.rank == 2 and checkpoint.round in (10, 13):
            raise OSError(28, "No space left on device")
        write(self, checkpoint)

    whole = told(solve_eot(comm, role, lambda _: samples, EOTOptions(**HARD)))
    kept = {**HARD, "checkpoint": str(folder), "every": 5}
    with monkeypatch.context() as patch:
        patch.setattr(Folder, "write", full_once)
        with pytest.raises(StoppedError, match=r"after round 13, of which not all .* go on from round 5 with"):
            solve_eot(comm, role, lambda _: samples, EOTOptions(**kept), stop=StopAfter(comm, 11))
    result = solve_eot(comm, role, lambda _: samples, EOTOptions(**kept, resume=True))
    assert result.resumed_from == 5
    assert told(result) == whole


@pytest.mark.mpi(min_size=3, max_size=7)
@pytest.mark.parametrize("options", [{}, {"neighbours": 1}, {"protocol": "ring", "check_every": 4}])
def test_who_does_not_wait_arrives_at_the_same_values(comm: MPI.Intracomm, options: dict[str, Any]) -> None:
    """No patience at all: nearly every sum is an old one, and the end is exact all the same."""
    rows, role = samples_of(comm).rows, role_of(comm).value
    wanted = {"kernel": "raw", "eps": 1.0, "tol": 1e-10, "rounds": 20_000, "solver": "kept", **options}
    exact = deot_mpi.eot(comm, rows, role, **wanted)
    hasty = deot_mpi.eot(comm, rows, role, **wanted, patience=0.0)
    assert hasty.status == "marginal"
    assert hasty.dual_objective == pytest.approx(exact.dual_objective, rel=1e-9)
    assert exact.staleness == 0
    assert 1 <= hasty.staleness <= wanted.get("check_every", 10) + comm.size  # the last turn began before the check
    sent = hasty.ledger.of(Kind.POTENTIALS)
    if "neighbours" not in options:  # else the formula is a mean over turns
        assert sent.bytes == sent.formula_bytes, "late messages are sent and received, not dropped"


@pytest.mark.mpi(min_size=2, max_size=2)
def test_options_of_checkpoints_that_cannot_be(comm: MPI.Intracomm) -> None:
    rows, role = samples_of(comm).rows, role_of(comm).value
    for call, options, words in (
        (deot_mpi.eot, {"resume": True}, "name their folder with checkpoint"),
        (deot_mpi.eot, {"checkpoint": 5}, "it is the name of a folder"),
        (deot_mpi.eot, {"on_failure": "hope"}, "on_failure is 'hope'; it must be one of abort, continue"),
        (deot_mpi.eot, {"on_failure": "continue"}, "use Open MPI 5 and mpirun --with-ft ulfm, or leave it out"),
        (deot_mpi.eot, {"patience": 1.0}, "solver is 'sinkhorn', which needs every message of a round; use solver"),
        (deot_mpi.eot, {"patience": -1.0, "solver": "kept"}, "patience is -1.0; it is a number of seconds"),
        (deot_mpi.gromov, {"checkpoint": "x"}, "gromov writes none"),
        (deot_mpi.audit, {"checkpoint": "x"}, "an audit writes no checkpoints"),
        (deot_mpi.adapt, {"checkpoint": "x", "method": "class-regularised"}, "solves several problems and writes"),
    ):
        with pytest.raises(InputError, match=words):
            call(comm, rows, role, **options)  # type: ignore[operator]


@pytest.mark.mpi(min_size=2, max_size=2)
@pytest.mark.parametrize(
    ("kind", "sent", "expected", "words"),
    [
        (Kind.POTENTIALS, np.zeros(2), 3, "sent 16 bytes of potentials, expected were 24"),
        (Kind.POTENTIALS, np.array([0.0, np.nan, 0.0]), 3, "sent potentials with a number that is not finite"),
        (Kind.NORMS, np.array([1.0, -1.0, 0.0]), 3, "sent norms with a length below 0"),
        (Kind.WEIGHTS, np.array([1.0, 0.0, 1.0]), 3, "sent weights with a weight that is not above 0"),
        (Kind.NORMS, np.array([1.0, np.inf, 0.0]), 3, "sent norms with a number that is not finite"),
    ],
)
def test_a_message_that_cannot_be_is_refused(
    comm: MPI.Intracomm, kind: Kind, sent: np.ndarray, expected: int, words: str
) -> None:
    if comm.rank == 0:
        comm.Send(sent, 1)
        return
    array, status = np.empty(expected), MPI.Status()
    comm.Recv(array, 0, status=status)
    with pytest.raises(MessageError, match=f"source agent 0 {words}"):
        check_message(kind, array, status, lambda: "source agent 0")
