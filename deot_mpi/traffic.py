"""What the messages of a run should cost, by formula: to be held against what the ledger counted."""

from __future__ import annotations

import numpy as np

from deot_mpi.kinds import Kind
from deot_mpi.options import EOTOptions
from deot_mpi.roles import Role
from deot_mpi.samples import Floats
from deot_mpi.setting import Setting
from deot_mpi.sketch import packed_bytes

_NUMBER = 8
"""Bytes of a float64."""


def expected_bytes(setting: Setting, options: EOTOptions, rounds: int) -> dict[Kind, int]:
    """Bytes on the edges by kind (the paper's formulas are for a full E; here only its edges count).

    The paper: samples (IM + JN) D numbers, sketches (IM + JN) Q bits and norms, potentials T L (N/I + M/J) numbers per
    pair that moves, final objectives I J numbers. The one-pass solver sends samples or sketches one way only, I M
    instead of IM + JN, and in every round M_j numbers down each edge and M_j back.
    """
    one_way = options.solver == "sinkhorn"
    asked = {role: _numbers_asked(setting, role, options.neighbours) for role in Role}
    columns = _numbers_asked(setting, Role.SOURCE, None).sum()
    crossing = columns if one_way else columns + _numbers_asked(setting, Role.TARGET, None).sum()
    costs: dict[Kind, float] = {Kind.OBJECTIVES: _NUMBER * setting.agents.sources * setting.agents.targets}
    if options.kernel == "raw":
        costs[Kind.SAMPLES] = _NUMBER * crossing * setting.sizes.dimension
    else:
        costs[Kind.SKETCH] = packed_bytes(options.bits) * crossing
        costs[Kind.NORMS] = _NUMBER * crossing
    per_round = 2.0 * columns if one_way else sum(asked[role].sum() for role in Role)
    if options.pairs is not None:
        per_round = options.pairs * sum(float(setting.protocol.marginals(role) @ asked[role]) for role in Role)
    costs[Kind.POTENTIALS] = _NUMBER * rounds * per_round
    return {kind: round(float(cost)) for kind, cost in costs.items()}


def _numbers_asked(setting: Setting, role: Role, neighbours: int | None) -> Floats:
    """For each agent of a role, the numbers it receives when it asks L of its neighbours for their block (mean)."""
    support = setting.protocol.support if role is Role.SOURCE else setting.protocol.support.T
    degree = support.sum(axis=1)
    whole = support @ setting.sizes.counts[role.other]
    asked = degree if neighbours is None else np.minimum(neighbours, degree)
    return np.asarray(whole * asked / np.maximum(degree, 1))
