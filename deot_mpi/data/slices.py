"""One file for all agents of a role, of which each reads its own rows and no others: .npy (mapped) and HDF5.

The agents' slices are consecutive and as even as they can be: of R rows, agent k of n reads R // n, one more if
k < R mod n. Together they are the file.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deot_mpi.data.file_sizes import check_array_file
from deot_mpi.errors import InputError
from deot_mpi.resources import free_memory

HDF5 = (".h5", ".hdf5")
SLICED = (".npy", *HDF5)
"""Formats of which a part can be read without the rest."""


def slice_of(rows: int, agent: int, agents: int) -> slice:
    """The rows of one agent."""
    least, more = divmod(rows, agents)
    start = agent * least + min(agent, more)
    return slice(start, start + least + (agent < more))


def read_npy_slice(path: Path, owner: str, agent: int, agents: int) -> NDArray[np.generic]:
    """An agent's rows of an .npy file, copied out of a memory map: nothing else is read."""
    check_array_file(path, owner)
    mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    if mapped.ndim > 1 and not mapped.flags.c_contiguous:
        raise InputError(
            f"{owner}: is stored column by column, so a slice of its rows is all over the file; save it again with "
            "np.save(file, np.ascontiguousarray(X))."
        )
    return np.array(_own_part(mapped, owner, agent, agents))


def read_hdf5(path: Path, owner: str, names: tuple[str, ...], agent: int, agents: int) -> dict[str, NDArray[Any]]:
    """An agent's rows of those of the named datasets that an HDF5 file has; the first one must be there or another."""
    h5py = _h5py(owner)
    with h5py.File(path, "r") as file:
        found = {name: file[name] for name in names if isinstance(file.get(name), h5py.Dataset)}
        return {name: np.asarray(_own_part(data, f"{owner}, {name}", agent, agents)) for name, data in found.items()}


def hdf5_rows(path: Path, name: str) -> int:
    """How many rows a dataset has."""
    with _h5py(str(path)).File(path, "r") as file:
        rows: int = file[name].shape[0]
        return rows


def _h5py(owner: str) -> Any:
    try:
        import h5py
    except ImportError as error:
        raise InputError(f"{owner}: HDF5 files take h5py; pip install 'deot_mpi[hdf5]' (or use .npy).") from error
    return h5py


def _own_part(stored: Any, owner: str, agent: int, agents: int) -> Any:
    """The agent's rows of an array on disk, once they are known to fit into memory."""
    if not stored.ndim:
        raise InputError(f"{owner}: is a single number; it must have a row for each sample.")
    rows = int(stored.shape[0])
    if rows < agents:
        raise InputError(
            f"{owner}: {rows} rows do not reach all {agents} agents that share it; start fewer agents or add rows."
        )
    part = slice_of(rows, agent, agents)
    wanted, free = 8.0 * (part.stop - part.start) * math.prod(stored.shape[1:]), free_memory()
    if wanted > free:
        raise InputError(
            f"{owner}: rows {part.start} to {part.stop - 1} are {wanted:,.0f} bytes as float64, and {free:,.0f} are "
            "free; start more agents, on more hosts."
        )
    return stored[part]
