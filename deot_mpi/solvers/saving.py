"""A solver's state as arrays of numbers, and back: what a checkpoint holds of it. Nothing is pickled."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, fields

import numpy as np
from numpy.typing import NDArray

from deot_mpi.data.samples import Floats
from deot_mpi.kernel.entries import Absorbed, Precision
from deot_mpi.roles import Role
from deot_mpi.solvers.anderson import Anderson
from deot_mpi.solvers.base import Solver, SolverState

Arrays = dict[str, NDArray[np.generic]]
_PLAIN = (
    "round", "seen_error", "temperature", "stage_round", "scaled", "single", "exact_columns", "halved_error",
    "halved_round", "total_error", "tallied_round", "fall", "fall_rounds",
)  # fmt: skip
_BLOCK, _ROWS = "block.", "rows."
_TOGETHER = {"potential", "moves", "kept", "tally", "violation", "mixer", "best"}
assert {field.name for field in fields(SolverState)} == {*_PLAIN, *_TOGETHER}, "a new field needs a place here"


def saved(solver: Solver, state: SolverState) -> Arrays:
    """All that decides the rounds to come, bit for bit: the state, and where the stored kernel was absorbed."""
    arrays = packed(state)
    for j, block in solver.view.blocks.items():
        if block.absorbed_at is not None:
            arrays[f"{_BLOCK}{j}"] = block.absorbed_at
    if solver.rows is not None:
        absorbed = asdict(solver.rows.absorbed())
        arrays |= {f"{_ROWS}{name}": np.array(value) for name, value in absorbed.items() if value is not None}
    return arrays


def restored(solver: Solver, arrays: Mapping[str, NDArray[np.generic]]) -> SolverState:
    """The solver where it stood, and its state."""
    state = unpacked(arrays, solver.window)
    for j, block in solver.view.blocks.items():
        if f"{_BLOCK}{j}" in arrays:
            block.absorb(np.array(arrays[f"{_BLOCK}{j}"], np.float64))
    if solver.rows is not None:
        precision: Precision = "float32" if arrays[f"{_ROWS}precision"].item() == "float32" else "float64"
        where = {
            name: np.array(arrays[f"{_ROWS}{name}"], np.float64) if f"{_ROWS}{name}" in arrays else None
            for name in ("reference", "lifted", "last")
        }
        solver.rows.absorb(Absorbed(precision, float(arrays[f"{_ROWS}temperature"].item()), **where))
    solver.resume(state)
    return state


def packed(state: SolverState) -> Arrays:
    """Every field, under its name; what is None is left out."""
    arrays: Arrays = {name: np.array(getattr(state, name)) for name in _PLAIN}
    arrays |= {"potential": state.potential, "moves": np.array(state.moves)}
    arrays |= {f"kept.{j}": sums for j, sums in state.kept.items()}
    if state.tally is not None:
        arrays |= {f"tally.{role.value}": table for role, table in state.tally.items()}
    if state.violation is not None:
        arrays["violation"] = state.violation
    if state.best is not None:
        arrays |= {
            "best.error": np.array(state.best[0]),
            "best.potential": state.best[1],
            "best.violation": state.best[2],
        }
    return arrays | {f"mixer.{name}": array for name, array in state.mixer.packed().items()}


def unpacked(arrays: Mapping[str, NDArray[np.generic]], moves: int) -> SolverState:
    """The state these arrays were made of; ``moves`` is how many moves the solver remembers."""

    def floats(name: str) -> Floats:
        return np.array(arrays[name], dtype=np.float64)

    state = SolverState(floats("potential"), moves=deque(floats("moves").tolist(), maxlen=moves))
    for name in _PLAIN:
        setattr(state, name, arrays[name].item())
    state.kept = {int(name[5:]): floats(name) for name in arrays if name.startswith("kept.")}
    if "tally.source" in arrays:
        state.tally = {role: floats(f"tally.{role.value}") for role in Role}
    if "violation" in arrays:
        state.violation = floats("violation")
    if "best.error" in arrays:
        state.best = (float(arrays["best.error"].item()), floats("best.potential"), floats("best.violation"))
    state.mixer = Anderson.unpacked({name[6:]: floats(name) for name in arrays if name.startswith("mixer.")})
    return state
