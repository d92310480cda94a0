"""From a user's word for the protocol to E."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from deot_mpi.data.samples import Floats
from deot_mpi.errors import InputError
from deot_mpi.protocol.graphs import GRAPHS, USE_DEGREE, Support
from deot_mpi.protocol.protocol import Protocol, check_weights
from deot_mpi.protocol.textfile import parse_protocol

UNIFORM = "uniform"
NAMES = (UNIFORM, *GRAPHS)


def choose_protocol(
    wanted: str | Floats, p: Floats, q: Floats, *, degree: int, matched: bool, seed: int, text: str | None = None
) -> Protocol:
    """E from a name, from the text of a protocol file, or from a matrix.

    ``text`` is the content of the file called ``wanted``. Edges without weights of their own get e_ij in proportion
    to p_i q_j (``full``: every edge the same), or the weights of ``match``.
    """
    sources, targets = p.size, q.size
    weights: Floats | None
    if isinstance(wanted, np.ndarray):
        name, support, weights = "matrix", wanted > 0, wanted
    elif wanted == UNIFORM:
        return Protocol(UNIFORM, np.outer(p, q), p, q)
    elif text is not None:
        name = wanted
        support, weights = _from_text(text, wanted, sources, targets)
    elif wanted in GRAPHS:
        name = wanted
        if wanted in USE_DEGREE and degree < 2 and max(sources, targets) > 1:
            raise InputError(f"degree is {degree}; a connected graph needs at least 2 neighbours per agent.")
        support, weights = GRAPHS[wanted](sources, targets, min(degree, max(sources, targets)), seed), None
        if wanted == "full":
            weights = np.full(support.shape, 1.0 / support.size)
    else:
        raise InputError(f"protocol '{wanted}' is neither a file nor one of {', '.join(NAMES)}.")
    if matched:
        from deot_mpi.protocol.matching import match  # scipy.optimize takes half a second to import

        # Weights that came along are not used, but what could not be weights is refused all the same.
        check_weights(name, support.astype(float) if weights is None else weights, p, q)
        return Protocol(f"{name}, matched", match(support, p, q), p, q)
    if weights is None:
        weights = np.where(support, np.outer(p, q), 0.0)
        weights /= weights.sum()
    return Protocol(name, weights, p, q)


def read_protocol_file(wanted: str) -> str:
    """The text of a protocol file. A .npy matrix becomes text as well, so that one rank can tell the others."""
    path = Path(wanted)
    if not path.is_file():
        raise InputError(f"protocol '{wanted}' is neither a file nor one of {', '.join(NAMES)}.")
    try:
        if path.suffix.lower() == ".npy":
            lines = np.atleast_2d(np.load(path, allow_pickle=False)).tolist()
            return "\n".join(",".join(repr(float(value)) for value in line) for line in lines)
        return path.read_text(encoding="utf-8")
    except Exception as error:  # damaged files fail in as many ways as there are formats
        raise InputError(f"protocol {wanted}: cannot be read ({type(error).__name__}: {error}).") from error


def _from_text(text: str, name: str, sources: int, targets: int) -> tuple[Support, Floats | None]:
    if Path(name).suffix.lower() not in (".npy", ".csv"):
        return parse_protocol(text, sources, targets, name)
    if not text.strip():
        raise InputError(f"protocol {name}: is empty; it must hold a matrix with a row per source agent.")
    try:
        matrix = np.loadtxt(io.StringIO(text), delimiter=",", ndmin=2)
    except ValueError as error:
        raise InputError(f"protocol {name}: is not a matrix of numbers ({error}).") from error
    return matrix > 0, matrix
