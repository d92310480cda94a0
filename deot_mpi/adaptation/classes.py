"""The classes: which there are, agreed on without saying who has which; labels as places and as one-hot rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deot_mpi.data.samples import Floats
from deot_mpi.errors import InputError
from deot_mpi.kinds import Kind
from deot_mpi.roles import Role
from deot_mpi.setting import Setting

Labels = NDArray[np.int64]
UNKNOWN = -1
"""Predicted where E gives a target row no mass: its agent has no edge."""


@dataclass(frozen=True)
class Classes:
    """The labels that occur among the sources, in ascending order."""

    names: Labels
    shares: Floats
    """Each class's share of the sources' mass under E's marginals."""

    @property
    def count(self) -> int:
        return int(self.names.size)

    def places(self, labels: Labels) -> Labels:
        """0..C-1 for each label."""
        return np.asarray(np.searchsorted(self.names, labels))

    def lift(self, scores: Floats) -> Floats:
        """How many times its share in the sources each class sends: at a large eps, a frequent class sends every row
        most mass, and says nothing by that."""
        return np.divide(scores, self.shares, out=np.zeros_like(scores), where=self.shares > 0)

    def one_hot(self, labels: Labels) -> Floats:
        return np.eye(self.count)[self.places(labels)]


def agree_on_classes(setting: Setting) -> Classes:
    """Every source must have labels; the classes are the union. What is learnt is that and their shares in all rows,
    not who has which. Collective."""
    labels, collectives, agents = setting.samples.labels, setting.collectives, setting.agents
    collectives.all_or_none(lambda: _require(labels, agents.role, agents.name))
    own = labels if agents.role is Role.SOURCE and labels is not None else np.zeros(0, dtype=np.int64)
    largest = collectives.maximum(Kind.LABELS, np.array([own.max(initial=0)]))
    seen = np.zeros(int(largest[0]) + 1, dtype=np.int64)
    seen[own] = 1
    names = np.flatnonzero(collectives.maximum(Kind.LABELS, seen))
    mass = np.zeros(names.size)
    if own.size:
        marginal = float(setting.protocol.marginals(Role.SOURCE)[agents.index])
        mass += marginal * np.bincount(np.searchsorted(names, own), setting.samples.shares, names.size)
    return Classes(names, collectives.masked_sum(setting.edges, mass))


def _require(labels: Labels | None, role: Role, owner: str) -> None:
    if role is Role.SOURCE and labels is None:
        raise InputError(
            f"{owner}: has no labels; every source agent needs one per row (the array y in its .npz, the column y in "
            "its .csv, or a file of their own, --source-labels)."
        )
