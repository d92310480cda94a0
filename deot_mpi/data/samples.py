"""One agent's samples: the array, its weights, and the checks every array passes before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deot_mpi.errors import InputError

Floats = NDArray[np.float64]

LARGEST_LABEL = 1_000_000
_LARGEST = 1e140
"""Values beyond this have squared distances beyond double precision."""


@dataclass(frozen=True)
class Samples:
    """The rows an agent holds (N_i x D) and their positive weights, or None when all rows weigh the same.

    The mass of an agent is the sum of its weights (the number of its rows when it has none): the storage
    protocol p_i is that mass over the domain's.
    """

    rows: Floats
    weights: Floats | None = None
    features: Floats | None = None
    """What both domains have in common (N_i x D_F), for the fused problem; ``rows`` is the structure then."""
    labels: NDArray[np.int64] | None = None
    """The class of each row, where it is known: whole numbers, 0 or more."""

    @property
    def count(self) -> int:
        return int(self.rows.shape[0])

    @property
    def dimension(self) -> int:
        return int(self.rows.shape[1])

    @property
    def mass(self) -> float:
        return float(self.count) if self.weights is None else float(self.weights.sum())

    @property
    def shares(self) -> Floats:
        """alpha_n: the share of each row in its own agent's mass; 1/N_i without weights."""
        if self.weights is None:
            return np.full(self.count, 1.0 / self.count)
        return np.asarray(self.weights / self.weights.sum())


def check_samples(
    rows: ArrayLike,
    weights: ArrayLike | None,
    owner: str,
    features: ArrayLike | None = None,
    labels: ArrayLike | None = None,
) -> Samples:
    """Turn what a user handed over into ``Samples``, or say what is wrong with it and how to mend it."""
    array = _check_rows(rows, owner)
    table = None if features is None else _check_rows(features, f"{owner}, features")
    if table is not None and len(table) != len(array):
        raise InputError(f"{owner}: {len(array)} rows but features of {len(table)}; give one row of features per row.")
    return Samples(
        array,
        None if weights is None else _check_weights(weights, len(array), owner),
        table,
        None if labels is None else _check_labels(labels, len(array), owner),
    )


def _check_rows(rows: ArrayLike, owner: str) -> Floats:
    try:
        array = np.asarray(rows)
    except ValueError as error:
        raise InputError(f"{owner}: the samples are not a rectangular array ({error}).") from error
    if array.dtype.kind not in "fiub":
        raise InputError(f"{owner}: samples must be real numbers, got an array of {array.dtype}.")
    if array.ndim == 1 and array.size:
        array = array[:, None]
    if array.ndim > 2:
        raise InputError(f"{owner}: an array of shape {array.shape}; samples are rows of a 2-d array, reshape it.")
    if array.ndim != 2 or array.shape[0] == 0 or array.shape[1] == 0:
        raise InputError(
            f"{owner}: no samples, got an array of shape {array.shape}. Every agent needs at least one row and one "
            "column; give this agent rows or start the job without it."
        )
    array = np.ascontiguousarray(array, dtype=np.float64)
    bad = np.argwhere(~np.isfinite(array))
    if bad.size:
        row, column = (int(k) for k in bad[0])
        raise InputError(
            f"{owner}: row {row}, column {column} is {array[row, column]}, one of {len(bad)} like it (counted from 0). "
            "Samples must be finite; drop or fill these entries."
        )
    largest = float(np.abs(array).max())
    if largest > _LARGEST:
        raise InputError(f"{owner}: a value of size {largest:g}, whose square overflows; rescale the columns.")
    return array


def _check_labels(labels: ArrayLike, count: int, owner: str) -> NDArray[np.int64]:
    """Labels are whole numbers from 0 to a million, one per row."""
    given = np.asarray(labels)
    if given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    if given.shape != (count,):
        raise InputError(f"{owner}: {count} rows but labels of shape {given.shape}; give one label per row.")
    if given.dtype.kind not in "fiub":
        raise InputError(f"{owner}: labels are an array of {given.dtype}; number the classes 0, 1, 2, ...")
    whole = given.astype(np.int64) if np.isfinite(given).all() else np.full(count, -1)
    bad = np.flatnonzero((whole != given) | (whole < 0) | (whole > LARGEST_LABEL))
    if bad.size:
        raise InputError(
            f"{owner}: label {given[bad[0]]} of row {bad[0]} ({bad.size} such labels in all); labels are whole numbers "
            f"from 0 to {LARGEST_LABEL}."
        )
    return whole


def _check_weights(weights: ArrayLike, count: int, owner: str) -> Floats:
    given = np.asarray(weights)
    if given.dtype.kind not in "fiub":
        raise InputError(f"{owner}: weights are real numbers, got an array of {given.dtype}.")
    array = given.astype(np.float64)
    if array.shape != (count,):
        raise InputError(f"{owner}: {count} rows but weights of shape {array.shape}; give one weight per row.")
    bad = np.flatnonzero(~(np.isfinite(array) & (array > 0)))
    if bad.size:
        raise InputError(
            f"{owner}: weight {array[bad[0]]} of row {bad[0]} ({bad.size} such weights in all). Weights must be "
            "positive and finite; drop rows that weigh nothing."
        )
    if array.max() > 1e290 or array.min() / array.max() < 1e-290:
        raise InputError(
            f"{owner}: weights from {array.min():g} to {array.max():g}, whose shares leave double precision; rescale "
            "them or drop the rows that weigh nothing."
        )
    return np.ascontiguousarray(array)
