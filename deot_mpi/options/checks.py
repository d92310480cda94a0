"""Checks that options share: a value as it should be, or one sentence about it."""

from __future__ import annotations

import math
from numbers import Integral, Real

import numpy as np

from deot_mpi.data.samples import Floats
from deot_mpi.errors import InputError


def as_matrix(value: object) -> Floats:
    try:
        matrix = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"protocol is a {type(value).__name__}; it must be a name, a file or a matrix.") from error
    if matrix.ndim != 2:
        raise InputError(f"protocol is an array of shape {matrix.shape}; a matrix has a row per source agent.")
    return matrix


def as_grid(name: str, value: object, what: str) -> tuple[float, ...]:
    if not isinstance(value, tuple | list) or not value:
        raise InputError(f"{name} is {value!r}; it must be a list of {what}.")
    for number in value:
        positive(f"a number in {name}", number)
    return tuple(sorted({float(number) for number in value}))


def one_of(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"{name} is {value!r}; it must be one of {', '.join(choices)}.")


def at_least_one(name: str, value: object) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name} is {value!r}; it must be a whole number, 1 or more.")


def positive(name: str, value: object) -> None:
    if not isinstance(value, Real) or not math.isfinite(value) or value <= 0:
        raise InputError(f"{name} is {value!r}; it must be a finite number above 0.")
