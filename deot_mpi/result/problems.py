"""What the single problems give back besides."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deot_mpi.data.samples import Floats
from deot_mpi.result.base import Result, Values
from deot_mpi.solvers import Status


@dataclass(frozen=True)
class ReferenceValues:
    """Centralised values of POT on the pooled samples."""

    centralised: Values
    """E = p q^T, exact kernel."""
    protocol: Values
    """This run's E, exact kernel."""
    approximate: Values
    """This run's E and kernel, solved to the end."""
    solver: str
    error: float
    """POT's own last marginal error (L2), the largest of its runs; above its tolerance it had not converged."""


@dataclass(frozen=True)
class ErrorDecomposition:
    """|F_t - W| and its three parts (Section 3.5), with the paper's bounds. W is the centralised value.

    ``mismatch`` = |W~_E - W|, ``kernel`` = |W^_E - W~_E|, ``algorithm`` = |F_t - W^_E|; together at least ``total``.
    """

    total: float
    mismatch: float
    kernel: float
    algorithm: float
    relative_total: float
    mismatch_bound: float
    """tau sigma (Lemma 1)."""
    kernel_bound: float
    """Lemma 2's bound on ||K - K^||, delta = 0.05; the paper multiplies it by an unknown Lipschitz constant."""
    algorithm_rate: float
    """1/sqrt(t): the order of the paper's Lemma 3, without its unknown constant."""


@dataclass(frozen=True)
class SelfCosts:
    """Each domain's regularised cost (KL form) with itself, over all pairs of its agents, weighed by e_i e_k."""

    source: float
    """W(mu,mu) = min <C,pi> + eps KL(pi | a a^T), a the rows' masses under E."""
    target: float
    """W(gamma,gamma), the same for the columns."""
    marginal_error: float
    """L1 over both marginals of both problems."""
    rounds: int
    status: Status
    seconds: float
    here: bool = True
    """Whether this process found them; otherwise they were in the checkpoint it went on from."""


@dataclass(frozen=True, kw_only=True)
class EOTResult(Result):
    """Of entropic optimal transport."""

    self_terms: SelfCosts | None = None
    """With debias."""
    reference: ReferenceValues | None = None
    errors: ErrorDecomposition | None = None

    @property
    def sinkhorn_divergence(self) -> float | None:
        """W(mu,gamma) - W(mu,mu)/2 - W(gamma,gamma)/2, W the regularised cost (KL form); None without debias.

        The dual objectives give the same number: each lacks eps, and 1 - 1/2 - 1/2 = 0.
        """
        terms = self.self_terms
        return None if terms is None else self.regularised_cost - 0.5 * (terms.source + terms.target)

    @property
    def source_self_term(self) -> float | None:
        """W(mu,mu), regularised cost."""
        return None if self.self_terms is None else self.self_terms.source

    @property
    def target_self_term(self) -> float | None:
        """W(gamma,gamma), regularised cost."""
        return None if self.self_terms is None else self.self_terms.target

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {
            "sinkhorn_divergence": self.sinkhorn_divergence,
            "source_self_term": self.source_self_term,
            "target_self_term": self.target_self_term,
            "self_terms": None if self.self_terms is None else asdict(self.self_terms),
            "reference": None if self.reference is None else asdict(self.reference),
            "errors": None if self.errors is None else asdict(self.errors),
        }


@dataclass(frozen=True)
class EpsScore:
    """One eps of the grid, as a share of the mean cost, and how it did."""

    scale: float
    score: float
    """Mean over classes of the share of hidden source rows that were labelled rightly by way of the targets."""


@dataclass(frozen=True)
class EpsChoice:
    """How eps was chosen without target labels, and what that cost."""

    scores: tuple[EpsScore, ...]
    chosen: float
    bytes: int
    """On the edges, in all trials; not in the ledger, which is of the run itself."""
    seconds: float


@dataclass(frozen=True, kw_only=True)
class AdaptResult(Result):
    """Of domain adaptation; the values are those of the transport problem behind it."""

    method: str
    classes: tuple[int, ...]
    """The labels that occur among the sources."""
    class_shares: tuple[float, ...]
    """Each one's share of the sources' mass."""
    predictions: NDArray[np.int64]
    """At a target: the predicted label of each of its rows. Empty at a source."""
    scores: Floats
    """At a target, where the method has them: each class's share of the mass that a row receives, (M_j, C)."""
    mapped: Floats
    """At a source, with 1nn: its rows mapped to the target domain. Empty otherwise."""
    received: Floats
    """At a target, with 1nn: the mapped rows of its sources, and their labels. Empty otherwise."""
    received_labels: NDArray[np.int64]
    accuracy: float | None
    """Of all target rows with known labels, the share that was predicted; None where none are known."""
    accuracies: tuple[float | None, ...]
    """The same for each target agent."""
    choice: EpsChoice | None = None

    def to_dict(self) -> dict[str, Any]:
        """Predictions are not in it: each target keeps its own (--save)."""
        return super().to_dict() | {
            "method": self.method,
            "classes": list(self.classes),
            "accuracy": self.accuracy,
            "accuracies": list(self.accuracies),
            "class_shares": list(self.class_shares),
            "eps_choice": None if self.choice is None else asdict(self.choice),
        }


@dataclass(frozen=True)
class StartReport:
    """Where one start of Gromov-Wasserstein ended."""

    value: float
    """Its regularised cost."""
    status: str
    outer: int
    """Alignments it went through."""
    rounds: int
    gap: float
    """|M/2 - P| over its largest possible size, sqrt(E|x|^2 E|y|^2)/2: 0 where P is stationary."""


@dataclass(frozen=True)
class GromovReference:
    """POT on the pooled samples, started from this run's plan: the value of the same local optimum."""

    centralised: Values
    solver: str


@dataclass(frozen=True, kw_only=True)
class GromovResult(Result):
    """Of entropic Gromov-Wasserstein, plain or fused; ``values`` and ``potential`` are those of the best start.

    ``transport_cost`` is the unregularised cost of the plan, ``rounds`` are those of all starts.
    """

    alignment: Floats
    """P, (D_X, D_Y): half the cross moment of the plan where it is stationary."""
    starts: tuple[StartReport, ...]
    alpha: float
    """The share of structure; 1 without features."""
    self_terms: dict[str, float]
    """S_X, S_Y and S_XY."""
    reference: GromovReference | None = None

    @property
    def spread(self) -> float:
        """How far the ends of the starts lie apart: 0 if all found the same optimum."""
        reached = [start.value for start in self.starts]
        return max(reached) - min(reached)

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {
            "alignment": self.alignment.tolist(),
            "starts": [asdict(start) for start in self.starts],
            "spread": self.spread,
            "alpha": self.alpha,
            "self_terms": self.self_terms,
            "reference": None if self.reference is None else asdict(self.reference),
        }
