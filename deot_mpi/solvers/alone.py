"""The one-pass solver for two single agents, without a message: the small problems behind the paper's tau."""

from __future__ import annotations

import numpy as np

from deot_mpi.data.samples import Floats
from deot_mpi.kernel.rowblock import RowBlock
from deot_mpi.solvers.anderson import Anderson
from deot_mpi.solvers.cooling import COOLING, curves_in, first_temperature, mixes_after
from deot_mpi.view import returned

_ROUNDS, _STAGE_TOLERANCE, _TOLERANCE = 500, 1e-2, 1e-4
"""When a stage, and the last one, stops: F is within the tolerance squared of its supremum by then, in units of eps."""
_FAR = 300.0
"""Nats beyond which column sums are taken in the log domain."""


def local_distance(rows: RowBlock, alpha: Floats, beta: Floats) -> float:
    """sup F / eps between two single agents, accelerated and eps-scaled."""
    g = np.zeros(beta.size)
    farthest = float(np.abs(rows.exact_log_sums(rows.sweep(g)[0])).max())
    temperature = first_temperature(farthest)
    while True:
        rows.temper(temperature)
        f, g = _stage(rows, g / temperature, beta, _TOLERANCE if temperature == 1.0 else _STAGE_TOLERANCE)
        if temperature == 1.0:
            return float(alpha @ f + beta @ g) - 1.0
        g, temperature = g * temperature, temperature / COOLING


def _stage(rows: RowBlock, g: Floats, beta: Floats, tolerance: float) -> tuple[Floats, Floats]:
    mixer = Anderson()
    for round_ in range(1, _ROUNDS + 1):
        curved = curves_in(round_)
        if curved:
            f, sums, squares = rows.sweep_curved(g)
        else:
            f, sums = rows.sweep(g)
        if np.abs(g + sums).max() > _FAR:
            sums = rows.exact_log_sums(f)
        violation = g + sums
        if float(beta @ np.abs(np.expm1(violation))) < tolerance:
            break
        if curved:
            mixer.stretch(returned(squares, violation, beta))
        mixer.remember(g, -violation)
        if mixes_after(round_):
            mixer.solve(mixer.products(beta))
        g = g + mixer.step(-violation)
    return rows.sweep(g)[0], g
