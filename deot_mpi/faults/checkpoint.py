"""One agent's checkpoints: files that hold its own state alone, each whole or not there, each with a checksum."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deot_mpi.errors import DeotError
from deot_mpi.roles import Role
from deot_mpi.writing import write_whole

_MAGIC = b"deot_mpi checkpoint 1\n"
_DIGEST_BYTES = hashlib.sha256().digest_size
_PREFIX = "deot."
"""Of the arrays about a checkpoint itself, beside those of the solver."""
_ABOUT = ("round", "run", "private_seed", "phase")


class TornError(DeotError):
    """A file that is not a whole checkpoint: cut short, changed, or something else."""


@dataclass(frozen=True)
class Fingerprints:
    """What a checkpoint belongs to, as digests: agents of another run find out, and which of these differs."""

    data: str
    options: str
    protocol: str

    def differences(self, other: Fingerprints) -> list[str]:
        names = {"data": "samples", "options": "options", "protocol": "agents or edges"}
        return [words for name, words in names.items() if getattr(self, name) != getattr(other, name)]


@dataclass(frozen=True)
class Checkpoint:
    """An agent's state after a round."""

    round: int
    run: int
    """The same for all agents of a run, and for no other run."""
    private_seed: int
    """Of the agent's flips, roundings and edge seeds: it goes on with what it has shown. Nobody else may read it."""
    phase: int
    """0: as first planned; 1: again in float64, because the check had found tol missed."""
    fingerprints: Fingerprints
    arrays: Mapping[str, NDArray[np.generic]]

    def to_bytes(self) -> bytes:
        about = {name: np.array(getattr(self, name), dtype=np.int64) for name in _ABOUT}
        about |= {name: np.array(value) for name, value in vars(self.fingerprints).items()}
        buffer = io.BytesIO()
        named = {f"{_PREFIX}{name}": array for name, array in about.items()} | dict(self.arrays)
        np.savez(buffer, allow_pickle=False, **named)
        content = buffer.getvalue()
        return _MAGIC + hashlib.sha256(content).digest() + content

    @classmethod
    def from_bytes(cls, content: bytes) -> Checkpoint:
        """Raises ``TornError`` for anything but a whole checkpoint."""
        start = len(_MAGIC) + _DIGEST_BYTES
        if not content.startswith(_MAGIC):
            raise TornError("is not a checkpoint of this version")
        if hashlib.sha256(content[start:]).digest() != content[len(_MAGIC) : start]:
            raise TornError("does not have the checksum it was written with")
        try:
            with np.load(io.BytesIO(content[start:]), allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            about = {name: int(arrays.pop(f"{_PREFIX}{name}")) for name in _ABOUT}
            prints = {name: str(arrays.pop(f"{_PREFIX}{name}")) for name in ("data", "options", "protocol")}
        except Exception as error:
            raise TornError(f"cannot be read ({type(error).__name__})") from error
        return cls(fingerprints=Fingerprints(**prints), arrays=arrays, **about)


class Folder:
    """The checkpoints of one agent in a folder that agents may share."""

    def __init__(self, path: str, role: Role, index: int) -> None:
        self._path, self._stem = Path(path), f"{role.value}-{index:04d}-round-"

    def file(self, round_: int) -> Path:
        return self._path / f"{self._stem}{round_:09d}.checkpoint"

    def write(self, checkpoint: Checkpoint) -> None:
        """Raises ``OSError``, and leaves nothing behind, where it cannot be written."""
        self._path.mkdir(parents=True, exist_ok=True)
        content = checkpoint.to_bytes()
        path = self.file(checkpoint.round)
        # The owner's alone: it has the potentials, and what undoes the noise.
        write_whole(path, lambda file: file.write(content), mode=0o600)

    def rounds(self) -> list[int]:
        """Of the files that are there, the newest first."""
        pattern = re.compile(re.escape(self._stem) + r"(\d{9})\.checkpoint")
        try:
            # Files alone: a pipe or a device of that name would be read for ever.
            names = [path.name for path in self._path.iterdir() if path.is_file()]
        except OSError:  # not there yet, or not to be read: nothing to go on from
            return []
        return sorted((int(match[1]) for name in names if (match := pattern.fullmatch(name))), reverse=True)

    def read(self, round_: int) -> Checkpoint:
        found = Checkpoint.from_bytes(self.file(round_).read_bytes())
        if found.round != round_:
            raise TornError(f"is of round {found.round}")
        return found

    def keep(self, rounds: set[int]) -> None:
        """Remove all others, and what writes that were killed have left."""
        with suppress(OSError):
            for round_ in set(self.rounds()) - rounds:
                self.file(round_).unlink(missing_ok=True)
            for path in self._path.glob(f".{self._stem}*"):
                path.unlink(missing_ok=True)
