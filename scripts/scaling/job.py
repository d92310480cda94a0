"""A run of the program as the study sees it: how many agents, how many samples, E, solver, kernel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace

import numpy as np

from deot_mpi.options import EOTOptions
from deot_mpi.protocol import Protocol, choose_protocol
from deot_mpi.roles import Role
from deot_mpi.setting import Sizes
from deot_mpi.solvers.schedule import CyclicSchedule

PERIOD = 30
"""Rounds after which tallies and checks have come round."""
PROBED_SAMPLES = 256
"""Samples of a run that is made for what a round costs beside its work."""


@dataclass(frozen=True)
class Job:
    """``samples`` is N = M, of the program's synthetic Gaussians; half of the ranks are sources, the first half."""

    ranks: int
    samples: int
    solver: str = "sinkhorn"
    neighbours: int | None = None
    """L."""
    kernel: str = "sketch"
    bits: int = 1024
    """Q."""
    protocol: str = "uniform"
    degree: int = 4
    dim: int = 5
    eps_scale: float = 0.1
    tol: float = 1e-6
    rounds: int = 1000
    precision: str = "auto"

    @property
    def sources(self) -> int:
        return self.ranks // 2

    @cached_property
    def options(self) -> EOTOptions:
        return EOTOptions(
            solver=self.solver, neighbours=self.neighbours, kernel=self.kernel, bits=self.bits,
            protocol=self.protocol, degree=self.degree, eps_scale=self.eps_scale, tol=self.tol, rounds=self.rounds,
            precision=self.precision,
        )  # type: ignore[arg-type]  # fmt: skip

    @property
    def flags(self) -> list[str]:
        """The program's own, so that what is measured can be run by hand."""
        given: dict[str, object] = {
            "solver": self.solver, "kernel": self.kernel, "bits": self.bits, "samples": self.samples, "dim": self.dim,
            "eps-scale": self.eps_scale, "tol": self.tol, "rounds": self.rounds, "sources": self.sources,
            "protocol": self.protocol, "degree": self.degree, "precision": self.precision,
        }  # fmt: skip
        if self.neighbours is not None:
            given["neighbours"] = self.neighbours
        return [word for name, value in given.items() for word in (f"--{name}", str(value))]

    @property
    def name(self) -> str:
        asked = "" if self.solver == "sinkhorn" else f", L = {self.neighbours or 'all'}"
        shown = f"Q = {self.bits}" if self.kernel == "sketch" else "raw"
        graph = "" if self.protocol == "uniform" else f", degree {self.degree}"
        return f"{self.solver}{asked}, {shown}, N = {self.samples}{graph}"

    @cached_property
    def sizes(self) -> Sizes:
        """Rows of each agent, as the synthetic sets are scattered: as even as they can be, the first ones larger."""
        agents = {Role.SOURCE: self.sources, Role.TARGET: self.ranks - self.sources}
        counts = {
            role: np.full(many, self.samples // many) + (np.arange(many) < self.samples % many)
            for role, many in agents.items()
        }
        masses = {role: rows.astype(float) for role, rows in counts.items()}
        return Sizes(counts, masses, dict.fromkeys(Role, self.dim), 0, False)

    @cached_property
    def E(self) -> Protocol:  # noqa: N802
        p, q = (self.sizes.shares(role) for role in Role)
        return choose_protocol(self.protocol, p, q, degree=self.degree, matched=False, seed=0)

    @property
    def agents(self) -> SimpleNamespace:
        """As much of a setting's agents as the ledger's formula asks for; with ``sizes`` and ``protocol`` beside it."""
        return SimpleNamespace(sources=self.sources, targets=self.ranks - self.sources)

    @property
    def as_setting(self) -> SimpleNamespace:
        return SimpleNamespace(sizes=self.sizes, protocol=self.E, agents=self.agents)

    def columns(self, role: Role) -> np.ndarray:
        """For each agent of a role, the rows that its neighbours hold together: the width of its kernel."""
        support = self.E.support if role is Role.SOURCE else self.E.support.T
        return np.asarray(support @ self.sizes.counts[role.other])

    @cached_property
    def turns(self) -> list[dict[Role, np.ndarray]]:
        """Of ``kept``: who hears whom, (own, other), round by round, as the agents work it out."""
        everybody = {
            role: [
                CyclicSchedule(self.E, role, index, self.neighbours) for index in range(self.sizes.counts[role].size)
            ]
            for role in Role
        }
        return [
            {
                role: np.array([(own, other) for own, one in enumerate(members) for other in one.next().receive_from])
                for role, members in everybody.items()
            }
            for _ in range(2 * PERIOD)
        ]
