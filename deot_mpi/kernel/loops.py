"""The innermost passes over a chunk of the kernel: bits to exponents to entries, compiled where that was possible.

The library ``_loops`` is built when the package is installed, if there is a C compiler; elsewhere NumPy does the same
in several passes, three to five times slower. Both are right to the last digit or two; their bits differ.
``DEOT_LOOPS=numpy`` in the environment keeps to NumPy.
"""

from __future__ import annotations

import ctypes
import os
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deot_mpi.data.samples import Floats

Rows = NDArray[np.floating]

_ABSORB = {
    (np.dtype(np.float32), np.dtype(np.float32)): ("absorb_single", ctypes.c_float),
    (np.dtype(np.float64), np.dtype(np.float32)): ("absorb_rounded", ctypes.c_double),
    (np.dtype(np.float64), np.dtype(np.float64)): ("absorb_double", ctypes.c_double),
}
"""By the types of exponents and entries: the pass, and the type of its floor."""


def _library() -> ctypes.CDLL | None:
    if os.environ.get("DEOT_LOOPS") == "numpy":
        return None
    for suffix in EXTENSION_SUFFIXES:
        path = Path(__file__).with_name(f"_loops{suffix}")
        if path.exists():
            return ctypes.CDLL(str(path))
    return None


compiled = _library()


def absorb(exponent: Rows, shift: Rows, floor: float, out: Rows) -> None:
    """out_nm = exp(max(exponent_nm - shift_n, floor)), with a floor that the type of ``out`` can take the exp of.

    ``exponent`` may be spent on the way.
    """
    if compiled is None:
        exponent -= shift[:, None]
        np.maximum(exponent, floor, out=out, casting="same_kind")
        np.exp(out, out=out)
        return
    name, number = _ABSORB[exponent.dtype, out.dtype]
    shift = np.ascontiguousarray(shift, dtype=exponent.dtype)
    getattr(compiled, name)(*_size(exponent, out), _at(exponent), _at(shift), number(floor), _at(out))


def plan_rows(exponent: Floats) -> tuple[Floats, Floats]:
    """Makes P = exp(exponent) of ``exponent`` itself; of each row sum_m P_nm and sum_m P_nm log P_nm.

    Infinite where it overflows, as in a run that diverged.
    """
    if compiled is None:
        log_plan = exponent.copy()
        plan = np.exp(exponent, out=exponent)
        return plan.sum(axis=1), np.vecdot(plan, log_plan)
    sums, products = np.empty(len(exponent)), np.empty(len(exponent))
    compiled.plan_rows(*_size(exponent), _at(exponent), _at(sums), _at(products))
    return sums, products


def look_up(counts: NDArray[np.integer], table: Floats, left: Floats, right: Floats, out: Floats) -> None:
    """out_nm += table[counts_nm] left_n right_m, for counts that are places in the table."""
    if compiled is None:
        entries = table[counts]
        entries *= right
        entries *= left[:, None]
        out += entries
        return
    counts, right = np.ascontiguousarray(counts, dtype=np.uint32), np.ascontiguousarray(right)
    left, table = np.ascontiguousarray(left), np.ascontiguousarray(table)
    compiled.look_up(*_size(counts, out), _at(counts), _at(table), _at(left), _at(right), _at(out))


def take_off_noise(noise: Floats, out: Floats) -> None:
    """out -= g(z) for z = ``noise``: z/2 up to 1, then (1 + log z)/2."""
    if compiled is None:
        half, large = noise / 2.0, noise > 1.0
        half[large] = (1.0 + np.log(noise[large])) / 2.0
        out -= half
        return
    compiled.take_off_noise(*_size(noise, out), _at(noise), _at(out))


def _size(*chunks: NDArray[np.generic]) -> tuple[ctypes.c_ssize_t, ctypes.c_ssize_t]:
    shape = chunks[0].shape
    # What C is told must be so: it would read and write beyond an array's end.
    assert all(chunk.shape == shape and chunk.flags.c_contiguous for chunk in chunks)
    return ctypes.c_ssize_t(shape[0]), ctypes.c_ssize_t(shape[1])


def _at(array: NDArray[np.generic]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
