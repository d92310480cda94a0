"""Matching: given only which edges exist, the weights nearest to the storage protocol.

The paper asks to adjust the communication protocol to match the storage protocol p q^T as much as possible
(Section 3.2) and leaves open how. "Nearest" is decided here by three linear programmes, each keeping what the
one before it reached:

1. the marginals of E come as near to p and q as the edges allow (exactly, where feasible);
2. sigma = sum |e_ij - p_i q_j|, the quantity in the paper's mismatch bound, is smallest;
3. the smallest ratio e_ij / (p_i q_j) over the edges is largest, so that no edge dies without need.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_matrix, eye, hstack, vstack

from deot_mpi.errors import InputError
from deot_mpi.protocol.graphs import Support
from deot_mpi.samples import Floats

_FEASIBILITY = 1e-10
"""How exactly HiGHS meets the constraints: its finest setting."""
_SLACK = 1e-8
"""How far a later programme may fall behind what an earlier one reached; below it, marginals count as met."""


def match(support: Support, p: Floats, q: Floats) -> Floats:
    """Weights on the edges of ``support`` (I x J, sum 1) by the three programmes above."""
    rows, columns = np.nonzero(support)
    edges = rows.size
    wish = p[rows] * q[columns]
    ones = np.ones(edges)
    source_sums = csr_matrix((ones, (rows, np.arange(edges))), shape=(p.size, edges))
    target_sums = csr_matrix((ones, (columns, np.arange(edges))), shape=(q.size, edges))
    marginals = vstack([source_sums, target_sums])
    wanted = np.concatenate([p, q])
    agents = wanted.size

    # Variables: e (edges), a >= |marginals e - wanted| (agents), s >= |e - wish| (edges), t (1).
    size = 2 * edges + agents + 1
    at_e, at_a, at_s, at_t = 0, edges, edges + agents, size - 1
    eye_a, eye_s = eye(agents), eye(edges)

    def zeros(height: int, width: int) -> csr_matrix:
        return csr_matrix((height, width))

    inequalities = vstack(
        [
            hstack([marginals, -eye_a, zeros(agents, edges), zeros(agents, 1)]),
            hstack([-marginals, -eye_a, zeros(agents, edges), zeros(agents, 1)]),
            hstack([eye_s, zeros(edges, agents), -eye_s, zeros(edges, 1)]),
            hstack([-eye_s, zeros(edges, agents), -eye_s, zeros(edges, 1)]),
            hstack([-eye_s, zeros(edges, agents), zeros(edges, edges), csr_matrix(wish[:, None])]),
        ]
    )
    limits = np.concatenate([wanted, -wanted, wish, -wish, np.zeros(edges)])
    total = np.zeros((1, size))
    total[0, at_e:at_a] = 1.0

    goals = np.zeros((3, size))
    goals[0, at_a:at_s] = 1.0
    goals[1, at_s:at_t] = 1.0
    goals[2, at_t] = -1.0
    equalities, sums = csr_matrix(total), np.ones(1)
    solution = np.zeros(size)
    for stage, goal in enumerate(goals):
        outcome = linprog(
            goal, inequalities, limits, equalities, sums, bounds=(0, None), method="highs",
            options={"primal_feasibility_tolerance": _FEASIBILITY},
        )  # fmt: skip
        if outcome.x is None:
            if stage == 0:
                raise InputError(f"no weights were found for these edges ({outcome.message}).")
            break  # a later programme may fail on the last digits; what the earlier ones reached stands
        solution = outcome.x
        if stage == 0 and outcome.fun < _SLACK:
            equalities = hstack([marginals, zeros(agents, size - edges)]).tocsr()
            sums = wanted
        else:
            inequalities = vstack([inequalities, csr_matrix(goal)])
            limits = np.append(limits, outcome.fun + _SLACK)

    protocol = np.zeros(support.shape)
    protocol[rows, columns] = np.where(solution[:edges] > _FEASIBILITY, solution[:edges], 0.0)
    return np.asarray(protocol / protocol.sum())
