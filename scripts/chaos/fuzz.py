"""Inputs that are damaged or made up: each must be taken rightly or refused with a sentence, never with a traceback."""

from __future__ import annotations

import io
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from mpi4py import MPI
from scipy.io import savemat

from deot_mpi.command.arguments import parse
from deot_mpi.data.files import load_samples
from deot_mpi.errors import DeotError, MessageError
from deot_mpi.exchange.received import check_message
from deot_mpi.faults.checkpoint import Checkpoint, Fingerprints
from deot_mpi.kinds import Kind
from deot_mpi.protocol import choose_protocol
from deot_mpi.protocol.choose import read_protocol_file

_WORDS = (
    "nan",
    "inf",
    "-1",
    "1e999",
    "0",
    "",
    "é",
    "0x10",
    "1,2",
    "true",
    "[]",
    '"',
    "\x00",
    "source",
    "target",
    "1e-320",
)
_CONFIG = 'kernel = "raw"\nbits = 64\neps = 0.5\nsolver = "kept"\nneighbours = 2\ntol = 1e-6\nmatch = false\n'
_PROTOCOL = "# links\n0 0 0.25\n0 1 0.25\n1 0 0.25\n1 1 0.25\n"
_FLAGS = (
    "--eps", "--bits", "--kernel", "--solver", "--sources", "--tol", "--rounds", "--flip", "--every", "--checkpoint",
    "--patience", "--memory", "--seed", "--protocol", "--degree", "--max-recovery", "--on-failure", "--dim",
)  # fmt: skip


@dataclass(frozen=True)
class Fuzzed:
    kind: str
    outcome: str
    """taken, refused, or the traceback."""


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Bytes turned, cut, doubled, put in; sometimes left as they are."""
    array = bytearray(content)
    for _ in range(int(rng.integers(0, 4))):
        place = int(rng.integers(0, len(array) + 1))
        how = rng.integers(0, 5)
        if how == 0 and array:
            array[min(place, len(array) - 1)] ^= 1 << int(rng.integers(0, 8))
        elif how == 1:
            del array[place:]
        elif how == 2:
            array[place:place] = array[: int(rng.integers(0, len(array) + 1))]
        elif how == 3:
            array[place:place] = rng.bytes(int(rng.integers(1, 9)))
        else:
            array[place : place + int(rng.integers(1, 5))] = str(rng.choice(_WORDS)).encode()
    return bytes(array)


def _good_file(suffix: str, rng: np.random.Generator) -> bytes:
    rows = rng.normal(size=(5, 3))
    buffer = io.BytesIO()
    if suffix == ".npy":
        np.save(buffer, rows)
    elif suffix == ".npz":
        np.savez(buffer, X=rows, y=np.arange(5), weights=np.ones(5))
    elif suffix == ".mat":
        savemat(buffer, {"X": rows, "y": np.arange(5)})
    else:
        np.savetxt(buffer, rows, delimiter=",", header="a,b,y", comments="")
    return buffer.getvalue()


def _data_file(suffix: str, folder: Path, rng: np.random.Generator) -> None:
    path = folder / f"agent-0{suffix}"
    path.write_bytes(damaged(_good_file(suffix, rng), rng))
    found = load_samples(str(folder / f"agent-{{agent}}{suffix}"), 0, "source agent 0", labelled=bool(rng.integers(2)))
    assert found.rows.ndim == 2
    assert found.rows.size
    assert np.isfinite(found.rows).all()
    assert found.labels is None or len(found.labels) == len(found.rows)


def _protocol_file(folder: Path, rng: np.random.Generator) -> None:
    text = rng.integers(2)
    path = folder / ("links.txt" if text else "E.npy")
    matrix = io.BytesIO()
    np.save(matrix, np.full((2, 2), 0.25))
    path.write_bytes(damaged(_PROTOCOL.encode() if text else matrix.getvalue(), rng))
    half = np.full(2, 0.5)
    found = choose_protocol(str(path), half, half, degree=2, matched=False, seed=0, text=read_protocol_file(str(path)))
    assert found.E.shape == (2, 2)
    assert (found.E >= 0).all()
    assert abs(found.E.sum() - 1) < 1e-6


def _config(folder: Path, rng: np.random.Generator) -> None:
    parse(["--config", "x"], damaged(_CONFIG.encode(), rng).decode(errors="replace"))


def _command_line(folder: Path, rng: np.random.Generator) -> None:
    words: list[str] = []
    for _ in range(int(rng.integers(1, 5))):
        words += [str(rng.choice(_FLAGS)), str(rng.choice((*_WORDS, "0.5", "3", "raw", "kept")))]
    parse(words)


def _checkpoint(folder: Path, rng: np.random.Generator) -> None:
    arrays = {"potential": rng.normal(size=4), "moves": np.zeros(1)}
    whole = Checkpoint(3, 1, 2, 0, Fingerprints("a", "b", "c"), arrays).to_bytes()
    content = damaged(whole, rng)
    found = Checkpoint.from_bytes(content)
    assert content == whole, "a changed file was taken"
    np.testing.assert_array_equal(found.arrays["potential"], arrays["potential"])


def _message(folder: Path, rng: np.random.Generator) -> None:
    """A real message, from this process to itself: bytes as they come, where eight numbers are expected."""
    kind = Kind(int(rng.choice([Kind.NORMS, Kind.WEIGHTS, Kind.POTENTIALS, Kind.SAMPLES])))
    sent = np.frombuffer(damaged(rng.uniform(0.1, 1.0, size=8).tobytes(), rng), dtype=np.uint8)
    array, status = np.empty(8), MPI.Status()
    if sent.size > array.nbytes:
        sent = sent[: array.nbytes]  # longer ones end in MPI itself, which says so
    request = MPI.COMM_SELF.Isend(sent, 0, 1)
    MPI.COMM_SELF.Recv(array, 0, 1, status)
    request.Wait()
    check_message(kind, array, status, lambda: "target agent 0")
    assert sent.size == array.nbytes
    assert np.isfinite(array).all()


KINDS: dict[str, Callable[[Path, np.random.Generator], None]] = {
    **{suffix: partial(_data_file, suffix) for suffix in (".npy", ".npz", ".csv", ".mat")},
    "protocol": _protocol_file, "config": _config, "command line": _command_line, "checkpoint": _checkpoint,
    "message": _message,
}  # fmt: skip


def fuzz(count: int, seed: int, kinds: Sequence[str] | None = None) -> list[Fuzzed]:
    """So many inputs, the kinds in turn."""
    found, names = [], list(kinds or KINDS)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            kind = names[number % len(names)]
            try:
                KINDS[kind](Path(folder), np.random.default_rng([seed, number]))
                outcome = "taken"
            except (DeotError, MessageError):
                outcome = "refused"
            except (Exception, SystemExit):  # a program that leaves is wrong, too; who interrupts this one is not
                outcome = f"input {number}: {traceback.format_exc()}"
            found.append(Fuzzed(kind, outcome))
    return found


def summary(found: list[Fuzzed]) -> str:
    parts = []
    for kind in KINDS:
        of_kind = [one.outcome for one in found if one.kind == kind]
        taken, refused = of_kind.count("taken"), of_kind.count("refused")
        parts.append(f"{kind}: taken {taken}, refused {refused}, wrong {len(of_kind) - taken - refused}")
    return "\n".join(parts)
