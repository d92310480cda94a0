"""What travels along the edges once the plan is known: class sums to the targets, barycentres to the sources and back.

Sums over a plan pi_nm = a_n P_nm, with f and g in nats (``Solver.plan``). A source knows its rows of P; with the raw
kernel it also knows the targets' rows, with sketches it does not, and the targets compute for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deot_mpi.adaptation.classes import Labels
from deot_mpi.adaptation.penalty import PenalisedPairs
from deot_mpi.data.samples import Floats
from deot_mpi.exchange.edges import Hearing
from deot_mpi.kernel import Kernel, LogPairs, Shown, stacked
from deot_mpi.kinds import Kind
from deot_mpi.problem import Holding
from deot_mpi.roles import Role
from deot_mpi.setting import Setting

Plan = tuple[Floats, Floats] | None
_CHUNK_ENTRIES = 1 << 20


def class_sums(setting: Setting, holding: Holding, plan: Plan, one_hot: Floats) -> Floats:
    """Mass that each class sends to each of a target's rows, (C, M_j), summed over its sources; empty at sources.

    Label propagation: Pi_ij^T times one-hot labels. No features are sent.
    """
    edges, view, classes = setting.edges, holding.view, one_hot.shape[1]
    if view.role is Role.TARGET:
        heard = {i: np.empty((classes, view.shares.size)) for i in view.neighbours}
        edges.swap_each(Kind.LABELS, {}, dict(heard))
        return np.sum([heard[i] for i in view.neighbours], axis=0) if heard else np.zeros((classes, view.shares.size))
    if plan is None or holding.rows is None:
        return np.zeros((classes, 0))
    weighted = view.marginal * view.shares[:, None] * one_hot

    def carried(rows: slice, chunk: NDArray[np.floating]) -> Floats:
        return np.asarray(weighted[rows].T.astype(chunk.dtype) @ chunk, dtype=np.float64)

    sums = holding.rows.plan_sum(*plan, carried)
    outgoing = {j: np.ascontiguousarray(sums[:, part]) for j, part in holding.rows.columns.items()}
    edges.swap_each(Kind.LABELS, dict(outgoing), {})
    return np.zeros((classes, 0))


@dataclass(frozen=True)
class Penalty:
    """What an agent must know to compute with a penalised plan."""

    places: Labels
    """The classes of its rows, 0..C-1; empty at a target."""
    table: Floats
    """Of its columns, (C, M): all neighbours' side by side at a source, its own at a target. In units of eps."""


def barycentres(
    setting: Setting, holding: Holding, kernel: Kernel, plan: Plan, own: Floats, penalty: Penalty | None = None
) -> Floats:
    """x^_n = sum_m P_nm y_m / sum_m P_nm for a source's rows; empty at targets. ``own`` is the agent's potential."""
    if Kind.SAMPLES not in kernel.blank(0):
        sums = _asked(setting, holding, kernel, own, penalty)
    elif plan is None or holding.rows is None:
        sums = np.ones((0, setting.sizes.dimension + 1))
    else:
        sums = _computed(holding, plan)
    return np.asarray(sums[:, :-1] / sums[:, -1:])


def _with_ones(rows: Floats) -> Floats:
    return np.column_stack([rows, np.ones(len(rows))])


def _computed(holding: Holding, plan: tuple[Floats, Floats]) -> Floats:
    """At a source that has been shown the targets' samples."""
    assert holding.rows is not None
    theirs = stacked([holding.shown[j] for j in holding.view.neighbours])
    y = _with_ones(np.asarray(theirs[Kind.SAMPLES], dtype=np.float64))
    sums = np.empty((len(plan[0]), y.shape[1]))

    def averaged(rows: slice, chunk: NDArray[np.floating]) -> Floats:
        sums[rows] = chunk @ y.astype(chunk.dtype)
        return np.zeros(1)

    holding.rows.plan_sum(*plan, averaged)
    return sums


def _asked(setting: Setting, holding: Holding, kernel: Kernel, own: Floats, penalty: Penalty | None) -> Floats:
    """Sources show their sketches and potentials, targets answer with their part of every barycentre.

    A source learns sum_m P_nm y_m of each target, which tends to raw rows as eps goes to 0; a target learns the
    sources' sketches and potentials, and where classes are penalised the rows' classes.
    """
    edges, view, width = setting.edges, holding.view, setting.sizes.dimension + 1
    parts = parts_of_barycentres(setting, holding, kernel, own, penalty)
    answers = {j: np.empty((view.shares.size, width)) for j in edges.neighbours} if view.role is Role.SOURCE else {}
    edges.swap_each(Kind.MAPPED, dict(parts), dict(answers))
    return np.asarray(np.sum(list(answers.values()), axis=0)) if answers else np.ones((0, width))


def parts_of_barycentres(
    setting: Setting, holding: Holding, kernel: Kernel, own: Floats, penalty: Penalty | None = None
) -> dict[int, Floats]:
    """At a target, for each source: sum_m P_nm y_m over its own rows, and sum_m P_nm, (N_i, D + 1); not sent yet.

    Sources show what it takes to compute that, and get nothing.
    """
    edges, view = setting.edges, holding.view
    if view.role is Role.SOURCE:
        alike = {Kind.POTENTIALS: own, **({} if penalty is None else {Kind.LABELS: penalty.places})}
        outgoing = {
            kind: {j: np.ascontiguousarray(shown[kind]) for j, shown in holding.own.items()}
            for kind in kernel.blank(0, Role.SOURCE)
        } | {kind: dict.fromkeys(edges.neighbours, np.ascontiguousarray(array)) for kind, array in alike.items()}
        edges.swap_in_turn(outgoing)
        return {}

    def room(i: int) -> Shown:
        count = int(setting.sizes.counts[Role.SOURCE][i])
        places: Shown = {} if penalty is None else {Kind.LABELS: np.empty(count, dtype=np.int64)}
        return {**kernel.blank(count, Role.SOURCE), Kind.POTENTIALS: np.empty(count), **places}

    y, parts = _with_ones(setting.rows), {}

    def use(i: int, theirs: Shown) -> None:
        weights = np.log(view.edge_weights[i] / float(setting.protocol.marginals(Role.SOURCE)[i])) + np.log(view.shares)
        f = np.asarray(theirs.pop(Kind.POTENTIALS), dtype=np.float64) / view.eps
        places = theirs.pop(Kind.LABELS, None)
        pairs = kernel.pairs(theirs, holding.own[i])
        if penalty is not None and places is not None:
            pairs = PenalisedPairs(pairs, np.asarray(places, dtype=np.int64), penalty.table)
        parts[i] = _times(pairs.shifted(f, own / view.eps + weights), y)

    edges.swap_in_turn({}, Hearing(room, use))  # one source's sketches at a time
    return parts


def _times(exponents: LogPairs, values: Floats) -> Floats:
    """exp(exponents) @ values, chunk by chunk."""
    rows, columns = exponents.shape
    step, product = max(1, _CHUNK_ENTRIES // max(columns, 1)), np.empty((rows, values.shape[1]))
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        product[start:stop] = np.exp(exponents.rows(start, stop)) @ values
    return product


def labelled_rows(setting: Setting, mapped: Floats, labels: Labels | None) -> tuple[Floats, Labels]:
    """A source's mapped rows and their labels, at its targets; at a source, nothing."""
    edges, dimension = setting.edges, setting.sizes.dimension
    if setting.agents.role is Role.SOURCE:
        assert labels is not None
        edges.swap_each(Kind.MAPPED, dict.fromkeys(edges.neighbours, np.ascontiguousarray(mapped)), {})
        edges.swap_each(Kind.LABELS, dict.fromkeys(edges.neighbours, np.ascontiguousarray(labels)), {})
        return np.zeros((0, dimension)), np.zeros(0, dtype=np.int64)
    counts = {i: int(setting.sizes.counts[Role.SOURCE][i]) for i in edges.neighbours}
    rows = {i: np.empty((count, dimension)) for i, count in counts.items()}
    names = {i: np.empty(count, dtype=np.int64) for i, count in counts.items()}
    edges.swap_each(Kind.MAPPED, {}, dict(rows))
    edges.swap_each(Kind.LABELS, {}, dict(names))
    if not counts:
        return np.zeros((0, dimension)), np.zeros(0, dtype=np.int64)
    return np.concatenate(list(rows.values())), np.concatenate(list(names.values()))


def slopes_to_sources(setting: Setting, holding: Holding, own: Floats, classes: int) -> Floats:
    """Every target's (C, M_j) numbers at its sources, side by side in the order of the columns; empty at targets."""
    edges, view = setting.edges, holding.view
    if view.role is Role.TARGET:
        edges.swap_each(Kind.LABELS, dict.fromkeys(edges.neighbours, np.ascontiguousarray(own)), {})
        return np.zeros((classes, 0))
    counts = {j: int(setting.sizes.counts[Role.TARGET][j]) for j in edges.neighbours}
    heard = {j: np.empty((classes, count)) for j, count in counts.items()}
    edges.swap_each(Kind.LABELS, {}, dict(heard))
    return np.hstack(list(heard.values())) if heard else np.zeros((classes, 0))
