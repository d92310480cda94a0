"""What the messages of a run should cost, by formula: to be held against what the ledger counted."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from deot_mpi.data.samples import Floats
from deot_mpi.kernel.gromov import Spaces
from deot_mpi.kinds import Kind
from deot_mpi.options import AdaptOptions, GromovOptions, Options
from deot_mpi.roles import Role
from deot_mpi.setting import Setting
from deot_mpi.sketch import packed_bytes

_NUMBER = 8
"""Bytes of a float64."""


def expected_bytes(
    setting: Setting, options: Options, rounds: int, looks: int | None = None, curvatures: int | None = None
) -> dict[Kind, int]:
    """Entropic OT's bytes on the edges by kind (the paper's formulas are for a full E; here only its edges count).

    The paper: samples (IM + JN) D numbers, sketches (IM + JN) Q bits and norms, potentials T L (N/I + M/J) numbers per
    pair that moves. The one-pass solver sends samples or sketches one way only, I M instead of IM + JN, and in every
    round M_j numbers down each edge and M_j back. Objectives are measured at potentials that all have exchanged,
    ``looks`` times in all (the paper counts I J numbers, for their sum alone; that is a collective here). Curvatures
    are M_j numbers down each edge, ``curvatures`` times.
    """
    row = _bytes_a_row(setting, options)
    costs = _potentials(setting, options, rounds) | _shown(setting, options, dict.fromkeys(Role, row))
    if looks is not None:
        costs[Kind.OBJECTIVES] = _NUMBER * looks * _per_look(setting, options)
    if curvatures:
        costs[Kind.CURVATURES] = _NUMBER * curvatures * _per_look(setting, options) / 2.0
    if getattr(options, "pairwise_seeds", False):
        costs[Kind.SEEDS] = _NUMBER * float(setting.protocol.support.sum())
    return _rounded(costs)


def self_term_bytes(setting: Setting, options: Options, rounds: int) -> dict[Kind, int]:
    """Bytes within the domains for the self-terms of the divergence: every agent that E gives mass to shows all others
    of its domain what the kernel needs of its rows (and weights), and its potential in every round. With I such agents
    and N rows among them (I - 1) N of each, and the same for the targets."""
    rows = 0
    for role in Role:
        active = setting.protocol.marginals(role) > 0
        rows += int(active.sum() - 1) * int(setting.sizes.counts[role][active].sum())
    costs = {kind: rows * nbytes for kind, nbytes in _bytes_a_row(setting, options).items()}
    costs[Kind.POTENTIALS] = rows * rounds * _NUMBER
    return costs | ({Kind.WEIGHTS: rows * _NUMBER} if setting.sizes.weighted else {})


def gromov_bytes(
    setting: Setting, spaces: Spaces, options: GromovOptions, rounds: int, alignments: int
) -> dict[Kind, int]:
    """Gromov-Wasserstein's: the same, in two spaces (and features). Where targets compute, too, sources show their
    sketches of P^T x at every P."""
    fused = int(spaces.features > 0)
    per_row: dict[Role, dict[Kind, float]] = {}
    for role in Role:
        if options.kernel == "raw":
            per_row[role] = {Kind.SAMPLES: _NUMBER * (spaces.of(role) + spaces.features)}
            continue
        source = role is Role.SOURCE
        times = 1 + alignments if source else 1
        per_row[role] = {
            Kind.SKETCH: times * packed_bytes(options.bits) * (1 + fused),
            Kind.NORMS: times * _NUMBER * (1 + int(source) + fused),
        }
    return _rounded(_potentials(setting, options, rounds) | _shown(setting, options, per_row))


def adapt_bytes(setting: Setting, options: AdaptOptions, rounds: int, classes: int) -> dict[Kind, int]:
    """Domain adaptation's: entropic OT's, and what the plan carries.

    1nn: mapped rows and labels to the targets, D and 1 numbers a row and edge; with sketches, before that, sketch, norm
    and potential of every source row to the targets (and its class, where classes are penalised) and D + 1 numbers
    (Pi_ij Y_j and the row sums) back. labels: C numbers a column and edge. Every further tangent of a class penalty
    takes C numbers a column and edge to the targets and as many back.
    """
    costs: dict[Kind, float] = dict(expected_bytes(setting, options, rounds))
    rows = float(_numbers_asked(setting, Role.TARGET, None).sum())
    columns = float(_numbers_asked(setting, Role.SOURCE, None).sum())
    penalised = options.method == "class-regularised" and options.class_rounds > 1
    costs[Kind.LABELS] = _NUMBER * classes * columns * 2 * (options.class_rounds - 1) if penalised else 0
    if options.reading == "labels":
        costs[Kind.LABELS] += _NUMBER * classes * columns
        return _rounded(costs)
    numbers = setting.sizes.dimension
    costs[Kind.LABELS] += _NUMBER * rows
    if options.kernel == "sketch":
        numbers += setting.sizes.dimension + 1
        costs[Kind.SKETCH] += packed_bytes(options.bits) * rows
        costs[Kind.NORMS] += _NUMBER * rows
        costs[Kind.POTENTIALS] += _NUMBER * rows
        costs[Kind.LABELS] += _NUMBER * rows if penalised else 0
    return _rounded(costs | {Kind.MAPPED: _NUMBER * numbers * rows})


def _bytes_a_row(setting: Setting, options: Options) -> dict[Kind, int]:
    """What entropic OT's kernel shows of a row."""
    if options.kernel == "raw":
        return {Kind.SAMPLES: _NUMBER * setting.sizes.dimension}
    return {Kind.SKETCH: packed_bytes(options.bits), Kind.NORMS: _NUMBER}


def _shown(setting: Setting, options: Options, per_row: Mapping[Role, Mapping[Kind, float]]) -> dict[Kind, float]:
    """What the kernel shows, from bytes per row: targets to sources, and back where the targets compute, too."""
    costs: dict[Kind, float] = {}
    for role in (Role.TARGET,) if options.solver == "sinkhorn" else tuple(Role):
        rows = float(_numbers_asked(setting, role.other, None).sum())
        for kind, nbytes in per_row[role].items():
            costs[kind] = costs.get(kind, 0.0) + rows * nbytes
    return costs


def _potentials(setting: Setting, options: Options, rounds: int) -> dict[Kind, float]:
    asked = {role: _numbers_asked(setting, role, options.neighbours) for role in Role}
    per_round = float(sum(asked[role].sum() for role in Role))
    if options.solver == "sinkhorn":
        per_round = _per_look(setting, options)
    if options.pairs is not None:
        per_round = options.pairs * sum(float(setting.protocol.marginals(role) @ asked[role]) for role in Role)
    return {Kind.POTENTIALS: _NUMBER * rounds * per_round}


def _per_look(setting: Setting, options: Options) -> float:
    """Numbers on all edges when every agent hears all its neighbours once."""
    heard = {role: float(_numbers_asked(setting, role, None).sum()) for role in Role}
    return 2.0 * heard[Role.SOURCE] if options.solver == "sinkhorn" else sum(heard.values())


def _rounded(costs: Mapping[Kind, float]) -> dict[Kind, int]:
    return {kind: round(float(cost)) for kind, cost in costs.items()}


def _numbers_asked(setting: Setting, role: Role, neighbours: int | None) -> Floats:
    """For each agent of a role, the numbers it receives when it asks L of its neighbours for their block (mean)."""
    support = setting.protocol.support if role is Role.SOURCE else setting.protocol.support.T
    degree = support.sum(axis=1)
    whole = support @ setting.sizes.counts[role.other]
    asked = degree if neighbours is None else np.minimum(neighbours, degree)
    return np.asarray(whole * asked / np.maximum(degree, 1))
