"""Samples from files, in .npy, .npz, .csv, .mat or HDF5: one for each agent, or one that agents share by slices.

Nothing is ever unpickled.
"""

from __future__ import annotations

import csv
import io
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deot_mpi.agent import Agents
from deot_mpi.data.file_sizes import check_archive, check_array_file
from deot_mpi.data.samples import Samples, check_samples
from deot_mpi.data.slices import HDF5, SLICED, hdf5_rows, read_hdf5, read_npy_slice, slice_of
from deot_mpi.errors import InputError
from deot_mpi.roles import Role

ROWS, WEIGHTS = "X", "weights"
"""Names of the arrays in an .npz file; a .csv file with a header may have a column called ``weights``."""
LABELS = "y"
"""Name of the labels, in .npz and in the header of .csv."""
_MAT_NAMES = {ROWS: (ROWS, "fts", "feas", "features", "fea"), LABELS: (LABELS, "labels", "label", "gnd")}
"""What published .mat files of features call them."""
_MAT_SECONDS = 600.0


@dataclass(frozen=True)
class Whose:
    """Whose rows of a file: one agent's, by its index; all of them, or its slice among ``sharing`` agents."""

    agent: int
    sharing: int | None = None

    @property
    def part(self) -> tuple[int, int]:
        return (0, 1) if self.sharing is None else (self.agent, self.sharing)


def agent_path(pattern: str, agent: int) -> Path:
    """The file of one agent: ``{agent}`` in the pattern stands for its index, ``{agent:03d}`` for 000, 001, ...,
    ``{host}`` for the name of the host it runs on."""
    try:
        path = pattern.format(agent=agent, host=platform.node())
    except (LookupError, ValueError, AttributeError, TypeError, MemoryError) as error:
        raise InputError(
            f"'{pattern}' is not a file pattern ({error}); placeholders are {{agent}} and {{host}}: "
            "'site-{{agent}}.npy'."
        ) from error
    return Path(path)


def load_samples(
    pattern: str,
    agent: int,
    owner: str,
    weights_pattern: str | None = None,
    features_pattern: str | None = None,
    labels_pattern: str | None = None,
    *,
    labelled: bool = False,
    sharing: int | None = None,
) -> Samples:
    """Read one agent's own files; ``owner`` names the agent in messages. ``labelled``: y is labels, not a column.

    ``sharing``: the files are those of so many agents, of which this one reads its slice alone.
    """
    path, whose = agent_path(pattern, agent), Whose(agent, sharing)
    owner = f"{owner} ({path})"
    rows, weights = _read(path, owner, whose=whose)
    rows, labels = _guarded(path, owner, partial(_labels_apart, path, rows, whose)) if labelled else (rows, None)
    if weights_pattern is not None:
        if weights is not None:
            raise InputError(f"{owner}: has weights of its own, and a weights file is given; drop one of the two.")
        weights = _read_column(agent_path(weights_pattern, agent), owner, WEIGHTS, whose)
    if labels_pattern is not None:
        if labels is not None:
            raise InputError(f"{owner}: has labels of its own, and a labels file is given; drop one of the two.")
        labels = _read_column(agent_path(labels_pattern, agent), owner, LABELS, whose)
    features = None
    if features_pattern is not None:
        path = agent_path(features_pattern, agent)
        features, _ = _read(path, f"{owner}, features {path}", whose=whose)
    return check_samples(rows, weights, owner, features, labels)


def rows_by_header(pattern: str, agent: int, sharing: int | None = None) -> int | None:
    """How many rows an agent has, as its file says at the beginning; None where that takes reading it."""
    path, part = agent_path(pattern, agent), Whose(agent, sharing).part
    try:
        if path.suffix.lower() == ".npy":
            rows = int(np.load(path, mmap_mode="r", allow_pickle=False).shape[0])
        elif path.suffix.lower() in HDF5:
            rows = hdf5_rows(path, ROWS)
        else:
            return None
    except Exception:  # whoever reads it says what is wrong with it
        return None
    return len(range(rows)[slice_of(rows, *part)])


def _labels_apart(
    path: Path, rows: NDArray[np.generic], whose: Whose
) -> tuple[NDArray[np.generic], NDArray[np.generic] | None]:
    """Rows and labels, where a file that has been read has them: the array ``y`` of an .npz, .mat or HDF5 file, the
    column of a .csv."""
    if path.suffix.lower() in HDF5:
        return rows, read_hdf5(path, str(path), (LABELS,), *whose.part).get(LABELS)
    if path.suffix.lower() == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            return rows, archive[LABELS] if LABELS in archive.files else None
    if path.suffix.lower() == ".mat":
        arrays = _mat_arrays(path)
        found = next((name for name in _MAT_NAMES[LABELS] if name in arrays), None)
        return rows, None if found is None else arrays[found].reshape(-1)
    place = _csv_place(path, LABELS) if path.suffix.lower() == ".csv" else None
    return (rows, None) if place is None else (np.delete(rows, place, axis=1), rows[:, place])


def _csv_place(path: Path, name: str) -> int | None:
    """Where a named column stands among the rows' columns, once that of the weights is taken out."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        header = [cell.strip().lower() for cell in next((line for line in csv.reader(file) if line), [])]
    columns = [cell for cell in header if cell != WEIGHTS]
    return columns.index(name) if name in columns else None


def potential_file(folder: str, role: Role, index: int) -> Path:
    """Where an agent's potential lies: ``source-0003.npz`` or ``target-0003.npz``."""
    return Path(folder) / f"{role.value}-{index:04d}.npz"


def load_start(folder: str, agents: Agents) -> NDArray[np.generic]:
    """This agent's potential as an earlier run's --save has written it."""
    path = potential_file(folder, agents.role, agents.known_as(agents.role, agents.index))
    potential, _ = _read(path, f"{agents.name}: --start {path}", ("potential",))
    return potential


def load_alignment(folder: str, agents: Agents) -> NDArray[np.generic]:
    """P as an earlier run's --save has written it beside every agent's potential."""
    path = potential_file(folder, agents.role, agents.known_as(agents.role, agents.index))
    alignment, _ = _read(path, f"{agents.name}: --start {path}", ("alignment",))
    return alignment


def _read_column(path: Path, owner: str, name: str, whose: Whose) -> NDArray[np.generic]:
    """A file of weights or labels alone: an array or one column, called so where the format has names."""
    column, named = _read(path, f"{owner}, {name} {path}", (name, ROWS), whose)
    if named is not None and name == WEIGHTS:
        return named
    return column.reshape(-1) if column.ndim == 2 and column.shape[1] == 1 else column


def _read(
    path: Path, owner: str, names: tuple[str, ...] = (ROWS,), whose: Whose | None = None
) -> tuple[NDArray[np.generic], NDArray[np.generic] | None]:
    whole = whose is None or whose.sharing is None
    if not whole and path.suffix.lower() not in SLICED:
        raise InputError(f"{owner}: a '{path.suffix}' file can only be read whole; --slice takes .npy, .h5 or .hdf5.")
    if path.suffix.lower() in HDF5 or not whole:
        part = (0, 1) if whose is None else whose.part
        return _guarded(path, owner, partial(_read_part, path, owner, names, part))
    readers = {".npy": _read_npy, ".npz": _read_npz, ".csv": _read_csv, ".mat": _read_mat}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{owner}: cannot read '{path.suffix}' files; use .npy, .npz, .csv, .mat or .h5.")
    if path.exists() and not path.is_file():
        raise InputError(f"{owner}: is a folder, a pipe or a device; rows are read from files.")
    return _guarded(path, owner, partial(reader, path, owner, names))


def _read_part(
    path: Path, owner: str, names: tuple[str, ...], part: tuple[int, int]
) -> tuple[NDArray[np.generic], NDArray[np.generic] | None]:
    """A slice of an .npy file, or of the first named dataset of an HDF5 file, with that of its weights."""
    if path.suffix.lower() == ".npy":
        return read_npy_slice(path, owner, *part), None
    with path.open("rb"):
        pass  # a file that is not there is said to be so, as for other formats
    arrays = read_hdf5(path, owner, (*names, WEIGHTS), *part)
    found = next((name for name in names if name in arrays), None)
    if found is None:
        raise InputError(f"{owner}: has no dataset called {' or '.join(names)}; name the rows {ROWS}.")
    return arrays[found], arrays.get(WEIGHTS)


def _guarded(
    path: Path, owner: str, read: Callable[[], tuple[NDArray[np.generic], NDArray[np.generic] | None]]
) -> tuple[NDArray[np.generic], NDArray[np.generic] | None]:
    """What a file gives, or a sentence about why it gives nothing."""
    try:
        return read()
    except FileNotFoundError as error:
        raise InputError(
            f"{owner}: no such file on this agent's host ({platform.node()}). Each agent reads its own file on its own "
            "host; check the path and the {agent} number (counted from 0 in each role). With --placement, agents move "
            "between hosts, and each must be able to read every agent's file."
        ) from error
    except InputError:
        raise
    except ValueError as error:
        if path.suffix.lower() in (".npy", ".npz") and "pickle" in str(error):
            raise InputError(
                f"{owner}: is not an array of numbers: Python objects (or no {path.suffix} file at all), which are "
                "never loaded, for they can run code; save rows and labels as numbers."
            ) from error
        raise InputError(f"{owner}: cannot be read ({type(error).__name__}: {error}).") from error
    except Exception as error:  # damaged files fail in as many ways as there are formats
        raise InputError(f"{owner}: cannot be read ({type(error).__name__}: {error}).") from error


def _read_npy(path: Path, owner: str, names: tuple[str, ...]) -> tuple[NDArray[np.generic], None]:
    check_array_file(path, owner)
    return np.load(path, allow_pickle=False), None


def _read_npz(path: Path, owner: str, names: tuple[str, ...]) -> tuple[NDArray[np.generic], NDArray[np.generic] | None]:
    check_archive(path, owner)
    with np.load(path, allow_pickle=False) as archive:
        found = next((name for name in names if name in archive.files), None)
        if found is None:
            raise InputError(
                f"{owner}: has arrays {archive.files} but none called '{names[0]}'; "
                f"save with np.savez(file, {names[0]}=...)."
            )
        return archive[found], archive[WEIGHTS] if WEIGHTS in archive.files else None


def _read_mat(path: Path, owner: str, names: tuple[str, ...]) -> tuple[NDArray[np.generic], NDArray[np.generic] | None]:
    """MATLAB's format before 7.3; a matrix is an array of rows already."""
    arrays = _mat_arrays(path)
    wanted = [alias for name in names for alias in _MAT_NAMES.get(name, (name,))]
    found = next((name for name in wanted if name in arrays), None)
    if found is None:
        present = [name for name in arrays if not name.startswith("__")]
        raise InputError(f"{owner}: has arrays {present} but none of {', '.join(wanted)}; name the rows X.")
    weights = arrays[WEIGHTS].reshape(-1) if WEIGHTS in arrays else None
    return arrays[found], weights


def _mat_arrays(path: Path) -> dict[str, NDArray[np.generic]]:
    """Read by a process of its own: a damaged file can crash the reader, and that must not take the agent along."""
    with path.open("rb"):
        pass  # a file that is not there is said to be so, as for other formats
    command = [sys.executable, str(Path(__file__).with_name("mat_reader.py")), str(path)]
    ended = subprocess.run(command, capture_output=True, timeout=_MAT_SECONDS, check=False)
    if ended.returncode:
        words = ended.stderr.decode(errors="replace").strip().splitlines()
        raise ValueError(words[-1] if words and ended.returncode > 0 else "its reader crashed on it")
    with np.load(io.BytesIO(ended.stdout), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _read_csv(path: Path, owner: str, names: tuple[str, ...]) -> tuple[NDArray[np.generic], NDArray[np.generic] | None]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        lines = [(reader.line_num, line) for line in reader if line]
    if not lines:
        return np.empty((0, 0)), None
    header = None
    if not any(_is_number(cell) for cell in lines[0][1]):
        header = [name.strip().lower() for name in lines.pop(0)[1]]
    width = len(header or lines[0][1])
    for number, line in lines:
        if len(line) != width:
            raise InputError(f"{owner}: line {number} has {len(line)} values where the first line has {width}.")
        bad = next((column for column, cell in enumerate(line, start=1) if not _is_number(cell)), None)
        if bad is not None:  # where, not what: the message reaches all agents
            raise InputError(f"{owner}: line {number}, value {bad} is not a number.")
    table = np.array([line for _, line in lines], dtype=np.float64).reshape(len(lines), width)
    if header is not None and WEIGHTS in header:
        column = header.index(WEIGHTS)
        return np.delete(table, column, axis=1), table[:, column]
    return table, None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
