"""The paper's synthetic sets (Section 5.1), made row by row so that no agent ever holds a whole set.

The paper gives the kinds (5-d Gaussians N1, N2; mixtures M1, M2 of two Gaussians; 2,000 samples each) but not the
parameters; the ones here are this project's. Row n of a domain is the same whatever the number of agents, because
it comes from a stream addressed by its block of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deot_mpi.data.samples import Floats, Samples
from deot_mpi.errors import InputError
from deot_mpi.randomness import Purpose, generator
from deot_mpi.roles import Role

DATASETS = ("gaussian", "mixture")
SCATTERS = ("iid", "component")
_BLOCK = 64
"""Rows drawn from one stream: small enough that an agent draws few rows it does not keep."""


@dataclass(frozen=True)
class SyntheticSet:
    """A synthetic pair of distributions: N samples per domain in D dimensions, scattered over the agents."""

    dataset: str = "gaussian"
    samples: int = 2000
    dim: int = 5
    scatter: str = "iid"
    seed: int = 0
    target_dim: int | None = None
    """Of the target domain, where it lives in a space of its own; the same by default."""

    def __post_init__(self) -> None:
        if self.dataset not in DATASETS:
            raise InputError(f"dataset '{self.dataset}' is not known; choose one of {', '.join(DATASETS)}.")
        if self.scatter not in SCATTERS:
            raise InputError(f"scatter '{self.scatter}' is not known; choose one of {', '.join(SCATTERS)}.")
        if self.samples < 1 or min(self.dimension(role) for role in Role) < 1:
            dimensions = " and ".join(sorted({str(self.dimension(role)) for role in Role}))
            raise InputError(
                f"a set needs samples and dimensions, got {self.samples} samples of dimension {dimensions}."
            )
        if self.scatter == "component" and self.dataset != "mixture":
            raise InputError("scatter 'component' needs --dataset mixture: a Gaussian has one component only.")

    def dimension(self, role: Role) -> int:
        return self.dim if role is Role.SOURCE or self.target_dim is None else self.target_dim

    def count(self, agent: int, agents: int) -> int:
        """How many rows one of ``agents`` agents of a role holds."""
        return int(self._row_numbers(agent, agents).size)

    def share(self, role: Role, agent: int, agents: int) -> Samples:
        """The rows that one of ``agents`` agents of a role holds, drawn by that agent alone."""
        try:
            return self._share(role, agent, agents)
        except MemoryError as error:
            raise InputError(
                f"{role.value} agent {agent}: {self.samples} samples of dimension {self.dimension(role)} do not fit in "
                "memory."
            ) from error

    def _share(self, role: Role, agent: int, agents: int) -> Samples:
        rows = self._row_numbers(agent, agents)
        if not rows.size:
            raise InputError(
                f"{role.value} agent {agent}: {self.samples} samples do not reach all {agents} agents; "
                f"use --samples {agents} or more, or fewer agents."
            )
        return Samples(self._draw(role, rows))

    def _row_numbers(self, agent: int, agents: int) -> NDArray[np.int64]:
        everything = np.arange(self.samples)
        if self.scatter == "iid":
            return np.array_split(everything, agents)[agent]
        if agents < 2:
            raise InputError("scatter 'component' needs at least two agents in each role; start more ranks.")
        component = agent % 2
        holders = len(range(component, agents, 2))
        return np.array_split(everything[everything % 2 == component], holders)[agent // 2]

    def _draw(self, role: Role, rows: NDArray[np.int64]) -> Floats:
        purpose = Purpose.SOURCE_SAMPLES if role is Role.SOURCE else Purpose.TARGET_SAMPLES
        dimension = self.dimension(role)
        normal = np.empty((rows.size, dimension))
        blocks = rows // _BLOCK
        for block in np.unique(blocks):
            drawn = generator(self.seed, purpose, int(block)).standard_normal((_BLOCK, dimension))
            normal[blocks == block] = drawn[rows[blocks == block] % _BLOCK]
        return self._shape(role, normal, rows % 2)

    def _shape(self, role: Role, normal: Floats, component: NDArray[np.int64]) -> Floats:
        """N1 = N(0, I), N2 = N(1, diag(0.5 .. 1.5)); the mixtures sit at +-2 on the first (M1) or last axis (M2)."""
        dimension = self.dimension(role)
        spread = np.linspace(0.5, 1.5, dimension) if role is Role.TARGET else np.ones(dimension)
        rows = normal * np.sqrt(spread) + (1.0 if role is Role.TARGET else 0.0)
        if self.dataset == "mixture":
            axis = 0 if role is Role.SOURCE else dimension - 1
            rows = 0.7 * rows
            rows[:, axis] += np.where(component == 0, -2.0, 2.0)
        return rows
