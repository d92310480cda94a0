"""E itself, its marginals, and what can be said about it before anything is computed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deot_mpi.data.samples import Floats
from deot_mpi.errors import InputError
from deot_mpi.protocol.graphs import Support, components
from deot_mpi.roles import Role

_SUM_TOLERANCE = 1e-9
"""How far from 1 the sum of a given E may be: weights written with nine digits pass, a forgotten edge does not."""


_STORAGE_TOLERANCE = 1e-9
"""sigma below which E counts as the storage protocol: --match reaches it to about 1e-10."""


@dataclass(frozen=True)
class ProtocolReport:
    """What a reader should know about E."""

    name: str
    edges: int
    sigma: float
    """sum |e_ij - p_i q_j|: the mismatch with the storage protocol. 0 means the centralised problem."""
    tau: float | None
    """max W_eps(mu_i, gamma_j) over the pairs looked at; None where E is the storage protocol, or where the paper has
    no bound (Gromov-Wasserstein)."""
    tau_pairs: str
    """'edges' when tau was measured on E's own edges (it may be larger elsewhere), 'all' when pooled data gave it."""
    components: int
    isolated_sources: tuple[int, ...]
    isolated_targets: tuple[int, ...]

    @property
    def connected(self) -> bool:
        return self.components == 1 and not self.isolated_sources and not self.isolated_targets

    @property
    def is_storage(self) -> bool:
        return self.sigma < _STORAGE_TOLERANCE

    @property
    def tau_sigma(self) -> float | None:
        """tau sigma, the paper's bound on the mismatch (Lemma 1): 0 where E is the storage protocol, None for tau <= 0.

        The paper's proof passes over negative local objectives; with them the product bounds nothing.
        """
        if self.is_storage:
            return 0.0
        return self.tau * self.sigma if self.tau is not None and self.tau > 0 else None


def check_weights(name: str, E: Floats, p: Floats, q: Floats) -> None:
    """Refuse what cannot be weights of these agents' edges."""
    if E.shape != (p.size, q.size):
        raise InputError(
            f"protocol {name}: E has shape {E.shape} but there are {p.size} source and {q.size} target agents; "
            f"give a {p.size} x {q.size} matrix or change --sources."
        )
    bad = np.argwhere(~(np.isfinite(E) & (E >= 0)))
    if bad.size:
        i, j = (int(k) for k in bad[0])
        raise InputError(f"protocol {name}: weight {E[i, j]} between source {i} and target {j}; weights must be >= 0.")


@dataclass(frozen=True)
class Protocol:
    """The communication protocol E (I x J, non-negative, sum 1) beside the storage protocol p, q."""

    name: str
    E: Floats
    p: Floats
    q: Floats

    def __post_init__(self) -> None:
        check_weights(self.name, self.E, self.p, self.q)
        if abs(self.E.sum() - 1.0) > _SUM_TOLERANCE:
            raise InputError(
                f"protocol {self.name}: the weights sum to {self.E.sum():.10g}, not 1. Divide each by that sum, or use "
                "--match, for which only the edges count (in a text file the weights may also be left out)."
            )

    @property
    def support(self) -> Support:
        return self.E > 0

    def weights(self, role: Role, index: int) -> Floats:
        """One agent's row (source) or column (target) of E."""
        return self.E[index] if role is Role.SOURCE else self.E[:, index]

    def neighbours(self, role: Role, index: int) -> tuple[int, ...]:
        return tuple(int(k) for k in np.flatnonzero(self.weights(role, index)))

    def marginals(self, role: Role) -> Floats:
        """e_i (sources) or e^j (targets)."""
        return np.asarray(self.E.sum(axis=1 if role is Role.SOURCE else 0))

    @property
    def sigma(self) -> float:
        return float(np.abs(self.E - np.outer(self.p, self.q)).sum())

    @property
    def is_storage(self) -> bool:
        """Whether E is p q^T up to rounding: then this is the centralised problem."""
        return self.sigma < _STORAGE_TOLERANCE

    @property
    def is_product(self) -> bool:
        """Whether E is e_i e^j, the product of its own marginals, up to rounding."""
        product = np.outer(self.marginals(Role.SOURCE), self.marginals(Role.TARGET))
        return float(np.abs(self.E - product).sum()) < _STORAGE_TOLERANCE

    def report(self, tau: float | None, tau_pairs: str = "edges") -> ProtocolReport:
        return ProtocolReport(
            name=self.name,
            edges=int(self.support.sum()),
            sigma=self.sigma,
            tau=tau,
            tau_pairs=tau_pairs,
            components=components(self.support),
            isolated_sources=tuple(int(i) for i in np.flatnonzero(~self.support.any(axis=1))),
            isolated_targets=tuple(int(j) for j in np.flatnonzero(~self.support.any(axis=0))),
        )
