"""Samples from files: one file per agent, in .npy, .npz or .csv. Nothing is ever unpickled."""

from __future__ import annotations

import csv
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deot_mpi.errors import InputError
from deot_mpi.samples import Samples, check_samples

ROWS, WEIGHTS = "X", "weights"
"""Names of the arrays in an .npz file; a .csv file with a header may have a column called ``weights``."""


def agent_path(pattern: str, agent: int) -> Path:
    """The file of one agent: ``{agent}`` in the pattern stands for its index, ``{agent:03d}`` for 000, 001, ..."""
    try:
        path = pattern.format(agent=agent)
    except (KeyError, IndexError, ValueError) as error:
        raise InputError(
            f"'{pattern}' is not a file pattern ({error}); {{agent}} is the only placeholder: 'site-{{agent}}.npy'."
        ) from error
    return Path(path)


def load_samples(pattern: str, agent: int, owner: str, weights_pattern: str | None = None) -> Samples:
    """Read one agent's own file; ``owner`` names the agent in messages."""
    path = agent_path(pattern, agent)
    owner = f"{owner} ({path})"
    rows, weights = _read(path, owner)
    if weights_pattern is not None:
        weights_path = agent_path(weights_pattern, agent)
        column, _ = _read(weights_path, f"{owner}, weights {weights_path}")
        weights = column.reshape(-1) if column.ndim == 2 and column.shape[1] == 1 else column
    return check_samples(rows, weights, owner)


def _read(path: Path, owner: str) -> tuple[NDArray[np.generic], NDArray[np.generic] | None]:
    readers = {".npy": _read_npy, ".npz": _read_npz, ".csv": _read_csv}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{owner}: cannot read '{path.suffix}' files; use .npy, .npz or .csv.")
    try:
        return reader(path, owner)
    except FileNotFoundError as error:
        raise InputError(
            f"{owner}: no such file. Each agent reads its own file on its own host; check the path and the {{agent}} "
            "number (counted from 0 in each role)."
        ) from error
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, MemoryError) as error:
        raise InputError(f"{owner}: cannot be read ({error}).") from error


def _read_npy(path: Path, owner: str) -> tuple[NDArray[np.generic], None]:
    return np.load(path, allow_pickle=False), None


def _read_npz(path: Path, owner: str) -> tuple[NDArray[np.generic], NDArray[np.generic] | None]:
    with np.load(path, allow_pickle=False) as archive:
        names = list(archive.files)
        if ROWS not in names:
            raise InputError(f"{owner}: has arrays {names} but none called '{ROWS}'; save with np.savez(file, X=rows).")
        return archive[ROWS], archive[WEIGHTS] if WEIGHTS in names else None


def _read_csv(path: Path, owner: str) -> tuple[NDArray[np.generic], NDArray[np.generic] | None]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = [line for line in csv.reader(file) if line]
    if not lines:
        return np.empty((0, 0)), None
    header = None if _numeric(lines[0]) else [name.strip().lower() for name in lines[0]]
    body = lines if header is None else lines[1:]
    first_line = 1 if header is None else 2
    width = len(lines[0])
    for number, line in enumerate(body, start=first_line):
        if len(line) != width:
            raise InputError(f"{owner}: line {number} has {len(line)} values where line 1 has {width}.")
        if not _numeric(line):
            raise InputError(f"{owner}: line {number} has a value that is not a number: {line}.")
    table = np.array(body, dtype=np.float64).reshape(len(body), width)
    if header is not None and WEIGHTS in header:
        column = header.index(WEIGHTS)
        return np.delete(table, column, axis=1), table[:, column]
    return table, None


def _numeric(line: list[str]) -> bool:
    try:
        [float(value) for value in line]
    except ValueError:
        return False
    return True
