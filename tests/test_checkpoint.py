"""Checkpoints: what is written is what is read, to the bit; anything else is refused."""

from __future__ import annotations

import hashlib
import io
import os
import time
from collections import deque
from pathlib import Path

import numpy as np
import pytest

from deot_mpi.faults.checkpoint import Checkpoint, Fingerprints, Folder, TornError
from deot_mpi.faults.deadline import deadline
from deot_mpi.roles import Role
from deot_mpi.solvers import SolverState
from deot_mpi.solvers.anderson import Anderson
from deot_mpi.solvers.saving import packed, unpacked

PRINTS = Fingerprints("d", "o", "p")


def full_state() -> SolverState:
    """Every field other than its default."""
    rng, mixer = np.random.default_rng(0), Anderson()
    for _ in range(3):
        mixer.remember(rng.normal(size=4), rng.normal(size=4))
    mixer.solve(mixer.products(np.ones(4)))
    return SolverState(
        rng.normal(size=4), 7, deque([0.5, np.inf], maxlen=2), 0.25, {0: rng.normal(size=4), 3: rng.normal(size=4)},
        16.0, 3, True, True, {role: rng.normal(size=(2, 3)) for role in Role}, True, rng.normal(size=4), mixer,
        (0.1, rng.normal(size=4), rng.normal(size=4)), 0.2, 5, 0.3, 2, 0.6, 4,
    )  # fmt: skip


def test_a_state_comes_back_with_all_its_bits() -> None:
    state = full_state()
    again = unpacked(packed(state), 2)
    first, second = packed(state), packed(again)
    assert set(first) == set(second)
    for name, array in first.items():
        assert array.dtype == second[name].dtype, name
        np.testing.assert_array_equal(array, second[name], err_msg=name)
    assert again.moves.maxlen == 2
    np.testing.assert_array_equal(state.mixer.step(np.ones(4)), again.mixer.step(np.ones(4)))


def test_an_empty_state_comes_back_empty() -> None:
    again = unpacked(packed(SolverState(np.zeros(2))), 1)
    assert again.tally is None
    assert again.violation is None
    assert again.best is None
    assert again.kept == {}


def written(folder: Path, round_: int = 12) -> tuple[Folder, Checkpoint]:
    place, one = Folder(str(folder), Role.TARGET, 3), Checkpoint(round_, 99, 5, 1, PRINTS, packed(full_state()))
    place.write(one)
    return place, one


def test_a_file_comes_back_and_is_the_owners_alone(tmp_path: Path) -> None:
    place, one = written(tmp_path)
    found = place.read(12)
    assert (found.round, found.run, found.private_seed, found.phase) == (12, 99, 5, 1)
    assert found.fingerprints == PRINTS
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, found.arrays[name])
    assert place.file(12).stat().st_mode & 0o077 == 0
    assert place.rounds() == [12]
    assert Folder(str(tmp_path), Role.SOURCE, 3).rounds() == []
    assert Folder(str(tmp_path / "none"), Role.SOURCE, 3).rounds() == []


@pytest.mark.parametrize("damage", ["cut", "bit", "empty", "other", "renamed", "pickle"])
def test_damage_is_found(tmp_path: Path, damage: str) -> None:
    place, _ = written(tmp_path)
    path = place.file(12)
    content = bytearray(path.read_bytes())
    if damage == "cut":
        path.write_bytes(content[:-1])
    elif damage == "bit":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "other":
        path.write_bytes(b"PK" + bytes(content))
    elif damage == "pickle":
        buffer = io.BytesIO()
        np.savez(buffer, potential=np.array([{}], dtype=object))
        inside = buffer.getvalue()
        magic = bytes(content[: content.index(b"\n") + 1])
        path.write_bytes(magic + hashlib.sha256(inside).digest() + inside)  # whole, but of Python objects
    else:
        os.replace(path, place.file(13))
    with pytest.raises(TornError):
        place.read(13 if damage == "renamed" else 12)


def test_a_write_that_fails_leaves_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, _ = written(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space"):
            written(tmp_path, 15)
    assert place.rounds() == [12]
    assert [path.name for path in tmp_path.iterdir()] == [place.file(12).name]


def test_only_the_rounds_wanted_are_kept(tmp_path: Path) -> None:
    for round_ in (10, 20, 30):
        place, _ = written(tmp_path, round_)
    place.keep({10, 30})
    assert place.rounds() == [30, 10]


def test_only_files_are_read(tmp_path: Path) -> None:
    """A pipe or a device of the right name would be read for ever."""
    folder = Folder(str(tmp_path), Role.SOURCE, 0)
    os.mkfifo(folder.file(3))
    folder.file(4).symlink_to("/dev/zero")
    folder.file(5).mkdir()
    assert folder.rounds() == []


def test_differences_have_names() -> None:
    assert PRINTS.differences(Fingerprints("d", "x", "y")) == ["options", "agents or edges"]
    assert PRINTS.differences(PRINTS) == []


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_deadline_may_be_ages_away() -> None:
    with deadline(1e12, "waiting"):
        time.sleep(0.01)
