"""One agent's view of the problem, and the formulas it can evaluate alone. No message is sent from here.

For an agent of either role: ``potential`` is its own block (u or v, in cost units), the other role's blocks come in by
message. Written for a source; a target reads rows for columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from deot_mpi.data.samples import Floats
from deot_mpi.kernel import loops
from deot_mpi.kernel.block import KernelBlock
from deot_mpi.roles import Role

_FAR = 50.0
"""Nats: columns that lack more than this are not seen by the rows, and give them nothing back."""


@dataclass(frozen=True)
class AgentView:
    """What one agent knows: its role, eps, its rows' shares alpha, its part of E (and kernel blocks)."""

    role: Role
    index: int
    eps: float
    shares: Floats
    edge_weights: dict[int, float]
    """e_ij for each neighbour j."""
    blocks: dict[int, KernelBlock]
    """The agent's kernel with each neighbour, for solvers that ask them one by one; empty for the one-pass solver."""

    @property
    def neighbours(self) -> tuple[int, ...]:
        return tuple(self.edge_weights)

    @cached_property
    def marginal(self) -> float:
        """e_i: the mass E gives this agent."""
        return float(sum(self.edge_weights.values()))

    @cached_property
    def factors(self) -> dict[int, float]:
        """e_ij/e_i for each neighbour j."""
        return {j: e / self.marginal for j, e in self.edge_weights.items()}

    def log_sums(self, neighbour: int, potential: Floats) -> Floats:
        """log sum_m beta_m exp((v_m - c_nm)/eps) for one neighbour's block of v."""
        return self.blocks[neighbour].log_sums(potential / self.eps)

    def log_violation(
        self,
        potential: Floats,
        log_sums: Mapping[int, Floats],
        factors: Mapping[int, float] | None = None,
        temperature: float = 1.0,
    ) -> Floats:
        """s_n: log of the plan's row sum over what it should be, a_n = e_i alpha_n. 0 where the marginal holds.

        s_n = u_n/eps + log sum_j (e_ij/e_i) exp(log_sums_jn), with other factors than e_ij/e_i where given, and an eps
        so many times larger.
        """
        factors = factors or self.factors
        nats = potential / (self.eps * temperature)
        return loops.log_mass([log_sums[j] for j in factors], np.log(list(factors.values())), nats)

    def marginal_error(self, log_violation: Floats) -> float:
        """sum_n a_n |1 - exp(s_n)|: this agent's part of the L1 marginal error."""
        return self.marginal * loops.excess(self.shares, log_violation)

    def returned(self, squares: Floats, log_violation: Floats) -> Floats:
        """J_nn: see ``returned``."""
        return returned(squares, log_violation, self.marginal * self.shares)

    def linear_part(self, potential: Floats) -> float:
        """sum_n a_n u_n: the part of F that is linear in the agent's own block."""
        return self.marginal * float(self.shares @ potential)


def returned(squares: Floats, log_violation: Floats, masses: Floats) -> Floats:
    """J_mm = sum_n pi_nm^2 / (a_n c_m) for columns of mass c_m = b_m exp(s_m): the part of a column's error that its
    own move leaves, once the rows have moved. ``squares`` has sum_n pi_nm^2 / a_n, ``masses`` b."""
    return np.asarray(squares * np.exp(-np.maximum(log_violation, -_FAR)) / masses)
