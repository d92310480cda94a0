"""Matching: given only which edges exist, the weights nearest to the storage protocol.

The paper asks to adjust the communication protocol to match the storage protocol p q^T as much as possible
(Section 3.2) and leaves open how. "Nearest" is decided here by three linear programmes, each keeping what the
one before it reached:

1. the marginals of E come as near to p and q as the edges allow (exactly, where feasible);
2. sigma = sum |e_ij - p_i q_j|, the quantity in the paper's mismatch bound, is smallest;
3. the smallest ratio e_ij / (p_i q_j) over the edges is largest, so that no edge dies without need.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import bmat, csr_matrix, eye, hstack, vstack

from deot_mpi.data.samples import Floats
from deot_mpi.errors import InputError
from deot_mpi.protocol.graphs import Support

Indices = NDArray[np.intp]

_FEASIBILITY = 1e-10
"""How exactly HiGHS meets the constraints: its finest setting."""
_SLACK = 1e-8
"""How far a later programme may fall behind what an earlier one reached; below it, marginals count as met."""


@dataclass(frozen=True)
class _Programme:
    """Variables: e (edges), a >= |marginals e - wanted| (agents), s >= |e - wish| (edges), t <= e / wish (1)."""

    inequalities: csr_matrix
    limits: Floats
    marginals: csr_matrix
    """The sums of e for each source, then for each target."""
    goals: Floats
    """One row per programme: sum a, sum s, -t."""


def match(support: Support, p: Floats, q: Floats) -> Floats:
    """Weights on the edges of ``support`` (I x J, sum 1) by the three programmes above."""
    rows, columns = np.nonzero(support)
    wanted = np.concatenate([p, q])
    programme = _build(rows, columns, p, q, wanted)
    inequalities, limits = programme.inequalities, programme.limits
    equalities, sums = csr_matrix(np.arange(programme.goals.shape[1])[None, :] < rows.size, dtype=float), np.ones(1)
    weights = np.zeros(rows.size)
    for stage, goal in enumerate(programme.goals):
        outcome = linprog(
            goal, inequalities, limits, equalities, sums, bounds=(0, None), method="highs",
            options={"primal_feasibility_tolerance": _FEASIBILITY},
        )  # fmt: skip
        if outcome.x is None:
            if stage == 0:
                raise InputError(f"no weights were found for these edges ({outcome.message}).")
            break  # a later programme may fail on the last digits; what the earlier ones reached stands
        weights = outcome.x[: rows.size]
        if stage == 0 and outcome.fun < _SLACK:
            equalities, sums = programme.marginals, wanted
        else:
            inequalities = vstack([inequalities, csr_matrix(goal)])
            limits = np.append(limits, outcome.fun + _SLACK)
    protocol = np.zeros(support.shape)
    protocol[rows, columns] = np.where(weights > _FEASIBILITY, weights, 0.0)
    return np.asarray(protocol / protocol.sum())


def _build(rows: Indices, columns: Indices, p: Floats, q: Floats, wanted: Floats) -> _Programme:
    edges, agents = rows.size, wanted.size
    wish = p[rows] * q[columns]
    ones, place = np.ones(edges), np.arange(edges)
    sums = vstack([
        csr_matrix((ones, (rows, place)), shape=(p.size, edges)),
        csr_matrix((ones, (columns, place)), shape=(q.size, edges)),
    ])  # fmt: skip
    eye_a, eye_s, column = eye(agents), eye(edges), csr_matrix(wish[:, None])
    # Blocks of a row: e, a, s, t; None stands for zeros.
    inequalities = bmat([
        [sums, -eye_a, None, None],
        [-sums, -eye_a, None, None],
        [eye_s, None, -eye_s, None],
        [-eye_s, None, -eye_s, None],
        [-eye_s, None, None, column],
    ]).tocsr()  # fmt: skip
    size = 2 * edges + agents + 1
    goals = np.zeros((3, size))
    goals[0, edges : edges + agents] = 1.0
    goals[1, edges + agents : -1] = 1.0
    goals[2, -1] = -1.0
    return _Programme(
        inequalities,
        np.concatenate([wanted, -wanted, wish, -wish, np.zeros(edges)]),
        hstack([sums, csr_matrix((agents, size - edges))]).tocsr(),
        goals,
    )
