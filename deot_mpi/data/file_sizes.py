"""How large the arrays in a file say they are, before memory is taken for them: a few bytes can claim terabytes."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import IO

import numpy as np

from deot_mpi.errors import InputError
from deot_mpi.resources import free_memory

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def check_array_file(path: Path, owner: str) -> None:
    """Refuse an .npy file that has less in it than its header says, or more than memory holds (it may be sparse)."""
    with path.open("rb") as file:
        _check(file, path.stat().st_size, owner)


def check_archive(path: Path, owner: str) -> None:
    """The same for every array of an .npz file, and refuse what unpacked is larger than memory."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        _check_memory(sum(member.file_size for member in members), owner)
        for member in members:
            if member.filename.endswith(".npy"):
                with archive.open(member) as file:
                    _check(file, member.file_size, f"{owner}, {member.filename}")


def _check(file: IO[bytes], size: int, owner: str) -> None:
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise InputError(f"{owner}: is an array file of format {version[0]}.{version[1]}; save plain numbers.")
    shape, _, dtype = _HEADERS[version](file)
    claimed, there = math.prod(shape) * dtype.itemsize, size - file.tell()
    if not dtype.hasobject and claimed != there:
        raise InputError(
            f"{owner}: its header claims an array of shape {shape}, {claimed:,} bytes, and has {there:,}; it is torn."
        )
    _check_memory(claimed, owner)


def _check_memory(claimed: int, owner: str) -> None:
    free = free_memory()
    if claimed > free:
        raise InputError(f"{owner}: is {claimed:,} bytes when unpacked, and {free:,.0f} are free; split it.")
