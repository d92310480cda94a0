"""One agent's view of the problem, and the formulas it can evaluate alone. No message is sent from here.

For an agent of either role: ``potential`` is its own block (u or v, in cost units), the other role's blocks come in by
message. Written for a source; a target reads rows for columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from deot_mpi.block import KernelBlock
from deot_mpi.roles import Role
from deot_mpi.samples import Floats

_TAU_ROUNDS, _TAU_TOLERANCE = 200, 1e-4
"""When tau's small problems stop: F is within the tolerance squared of its supremum by then, in units of eps."""


@dataclass(frozen=True)
class EdgeValues:
    """Sums over the edges of one source agent; added over the sources they give the problem's values."""

    mass: float
    """sum pi over the agent's rows: e_i once converged."""
    transport_cost: float
    """<C, pi>."""
    entropy: float
    """sum pi (log pi - 1) = -H(pi)."""


@dataclass(frozen=True)
class AgentView:
    """What one agent knows: its role, eps, its rows' shares alpha, its part of E and its kernel blocks."""

    role: Role
    index: int
    eps: float
    shares: Floats
    edge_weights: dict[int, float]
    """e_ij for each neighbour j."""
    blocks: dict[int, KernelBlock]

    @property
    def neighbours(self) -> tuple[int, ...]:
        return tuple(self.edge_weights)

    @property
    def marginal(self) -> float:
        """e_i: the mass E gives this agent."""
        return float(sum(self.edge_weights.values()))

    def start(self) -> Floats:
        """u = 0 (Algorithm 1, line 4)."""
        return np.zeros(self.shares.size)

    def log_sums(self, neighbour: int, potential: Floats) -> Floats:
        """log sum_m beta_m exp((v_m - c_nm)/eps) for one neighbour's block of v."""
        return self.blocks[neighbour].log_sums(potential / self.eps)

    def log_row_mass(self, log_sums: Mapping[int, Floats], factors: Mapping[int, float] | None = None) -> Floats:
        """log sum_j (e_ij/e_i) exp(log_sums_j), with other factors than e_ij/e_i where given."""
        factors = factors or {j: e / self.marginal for j, e in self.edge_weights.items()}
        stacked = np.stack([log_sums[j] + np.log(factors[j]) for j in factors])
        return np.asarray(np.logaddexp.reduce(stacked, axis=0))

    def log_violation(self, potential: Floats, log_sums: Mapping[int, Floats]) -> Floats:
        """s_n: log of the plan's row sum over what it should be, a_n = e_i alpha_n. 0 where the marginal holds."""
        return potential / self.eps + self.log_row_mass(log_sums)

    def marginal_error(self, log_violation: Floats) -> float:
        """sum_n a_n |1 - exp(s_n)|: this agent's part of the L1 marginal error."""
        return self.marginal * float(self.shares @ np.abs(np.expm1(log_violation)))

    def linear_part(self, potential: Floats) -> float:
        """sum_n a_n u_n: the part of F that is linear in the agent's own block."""
        return self.marginal * float(self.shares @ potential)

    def edge_values(self, potential: Floats, received: Mapping[int, Floats]) -> EdgeValues:
        """Plan-weighted sums over all edges of this agent, from the plan itself (one pass over the blocks)."""
        mass = transport = entropy = 0.0
        for j, e in self.edge_weights.items():
            block = self.blocks[j]
            log_density = block.log_kernel + (potential / self.eps)[:, None] + (received[j] / self.eps)[None, :]
            log_reference = np.log(e) + np.log(self.shares)[:, None] + block.log_shares[None, :]
            plan = np.exp(log_reference + log_density)
            mass += float(plan.sum())
            transport -= self.eps * float(np.einsum("nm,nm->", plan, block.log_kernel))
            entropy += float(np.einsum("nm,nm->", plan, log_reference + log_density - 1.0))
        return EdgeValues(mass, transport, entropy)

    def largest_local_distance(self) -> float:
        """max_j W_eps(mu_i, gamma_j) over this agent's edges: its part of the paper's tau."""
        return max((self._local_distance(j) for j in self.neighbours), default=-np.inf)

    def _local_distance(self, neighbour: int) -> float:
        block = self.blocks[neighbour]
        backward = KernelBlock(np.ascontiguousarray(block.log_kernel.T), np.log(self.shares))
        other_shares = np.exp(block.log_shares)
        g = np.zeros(other_shares.size)
        f = -block.log_sums(g)
        for _ in range(_TAU_ROUNDS):
            violation = g + backward.log_sums(f)
            g = g - violation
            if float(other_shares @ np.abs(np.expm1(violation))) < _TAU_TOLERANCE:
                break
            f = -block.log_sums(g)
        return self.eps * (float(self.shares @ f) + float(other_shares @ g) - 1.0)
