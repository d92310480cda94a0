"""What a run gives back: named values, who took part, how it went, what it cost."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from deot_mpi.exchange.ledger import Counts
from deot_mpi.explain import Lesson
from deot_mpi.kinds import Kind
from deot_mpi.privacy.findings import Protection
from deot_mpi.privacy.guarantee import Guarantee
from deot_mpi.protocol import ProtocolReport
from deot_mpi.roles import Role
from deot_mpi.samples import Floats
from deot_mpi.solvers import Status


@dataclass(frozen=True)
class Values:
    """The four numbers, in cost units; the README says who else reports which."""

    dual_objective: float
    """F(u,v), the paper's W~_eps."""
    regularised_cost: float
    """F + eps: <C,pi> + eps KL(pi | R) at the optimum."""
    transport_cost: float
    """<C,pi>."""
    entropy_cost: float
    """<C,pi> - eps H(pi) with H(pi) = -sum pi (log pi - 1)."""


@dataclass(frozen=True)
class AgentSummary:
    role: str
    index: int
    samples: int
    mass: float
    """p_i or q_j: the agent's share of its domain."""
    protocol_mass: float
    """e_i or e^j: the share that E gives it."""
    neighbours: int
    marginal_error: float
    """L1, sum_n |(pi 1)_n - a_n| over its rows (sources) or columns (targets)."""
    working_seconds: float
    """CPU seconds it spent, not counting those burnt while waiting."""
    waiting_seconds: float
    """Seconds it waited for messages."""
    peak_memory: int
    """The largest memory its process has had so far, in bytes (resident)."""


@dataclass(frozen=True)
class TracePoint:
    round: int
    objective: float
    """F at temperature times eps."""
    error: float
    change: float
    seconds: float
    bytes: int
    temperature: float
    """1, or more while a small eps is approached from larger ones."""
    start: int = 0
    """Of several starts, which; 0 where there is one."""
    outer: int = 0
    """The alignment at work, counted from 1 in each start; 0 where there is none."""
    trial: int = 0
    """Of the runs that choose eps, which, counted from 1; 0 in the run itself."""
    staleness: int = 0
    """Rounds by which the latest message of a neighbour was behind since the point before; 0 where all wait."""


@dataclass(frozen=True)
class Traffic:
    """Messages and bytes of one kind, measured, beside what they should be by formula where there is one."""

    kind: str
    messages: int
    bytes: int
    collectives: int
    collective_bytes: int
    formula_bytes: int | None
    within_messages: int = 0
    """Between agents of one domain."""
    within_bytes: int = 0


@dataclass(frozen=True)
class EdgeTraffic:
    source: int
    target: int
    messages: int
    bytes: int
    bytes_by_kind: dict[str, int]


@dataclass(frozen=True)
class LedgerReport:
    """All messages of the run. Point-to-point messages by kind and edge (both directions), collectives apart."""

    by_kind: tuple[Traffic, ...]
    by_edge: tuple[EdgeTraffic, ...]

    @property
    def bytes(self) -> int:
        return sum(row.bytes + row.collective_bytes + row.within_bytes for row in self.by_kind)

    @property
    def messages(self) -> int:
        return sum(row.messages + row.within_messages for row in self.by_kind)

    def of(self, kind: Kind) -> Traffic:
        return next(row for row in self.by_kind if row.kind == kind.name.lower())


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
class LostAgent:
    """An agent whose process ended during the run."""

    role: str
    index: int
    round: int
    """Rounds that had been done."""
    mass: float | None
    """Its share of its domain; None where it was lost before it had said how many samples it has."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """Everything an agent knows at the end, whatever the problem.

    The same on every rank but for the agent's own ``role``, ``index`` and ``potential``, and for its clock.
    """

    values: Values
    eps: float
    status: Status
    rounds: int
    seconds: float
    """The rounds, from the first kernel entry to the last potential."""
    setup_seconds: float
    """Before them: meeting, the mean, eps, and the exchange of what the kernel needs."""
    values_seconds: float
    """After them: the float64 check of the marginals and the values."""
    agents: tuple[AgentSummary, ...]
    protocol: ProtocolReport
    ledger: LedgerReport
    trace: tuple[TracePoint, ...]
    role: Role
    index: int
    potential: Floats
    """This agent's block of u or v, in cost units (defined up to a constant that u and v share)."""
    notes: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    disclosure: tuple[Lesson, ...] = ()
    """What the run told whom, as --explain says it beforehand."""
    protection: Protection | None = None
    guarantee: Guarantee | None = None
    """Where bits were flipped."""
    lost_agents: tuple[LostAgent, ...] = ()
    """Whose samples are missing in the values."""
    resumed_from: int | None = None
    """The round of the checkpoint that the run went on from."""
    comm: MPI.Intracomm | None = None
    """Of those who are left, where agents were lost: the caller's communicator is of no use then."""

    @property
    def dual_objective(self) -> float:
        return self.values.dual_objective

    @property
    def regularised_cost(self) -> float:
        return self.values.regularised_cost

    @property
    def transport_cost(self) -> float:
        return self.values.transport_cost

    @property
    def entropy_cost(self) -> float:
        return self.values.entropy_cost

    @property
    def staleness(self) -> int:
        """Rounds by which a message that was not waited for was behind, at most (--patience)."""
        return max((point.staleness for point in self.trace), default=0)

    @property
    def marginal_error(self) -> float:
        """L1 over both marginals."""
        return float(sum(agent.marginal_error for agent in self.agents))

    def to_dict(self) -> dict[str, Any]:
        """The JSON form. Potentials are not in it: each agent keeps its own (--save)."""
        return {
            **asdict(self.values),
            "eps": self.eps,
            "status": self.status.value,
            "status_text": self.status.text,
            "rounds": self.rounds,
            "seconds": self.seconds,
            "setup_seconds": self.setup_seconds,
            "values_seconds": self.values_seconds,
            "marginal_error": self.marginal_error,
            "agents": [asdict(agent) for agent in self.agents],
            "protocol": {
                **asdict(self.protocol),
                "connected": self.protocol.connected,
                "tau_sigma": self.protocol.tau_sigma,
            },
            "ledger": {**asdict(self.ledger), "messages": self.ledger.messages, "bytes": self.ledger.bytes},
            "trace": [asdict(point) for point in self.trace],
            "notes": list(self.notes),
            "settings": self.settings,
            "disclosure": [asdict(lesson) for lesson in self.disclosure],
            "protection": None if self.protection is None else asdict(self.protection),
            "guarantee": None if self.guarantee is None else asdict(self.guarantee),
            "lost_agents": [asdict(one) for one in self.lost_agents],
            "resumed_from": self.resumed_from,
            "staleness": self.staleness,
        }


@dataclass(frozen=True, kw_only=True)
class EOTResult(Result):
    """Of entropic optimal transport."""

    reference: ReferenceValues | None = None
    errors: ErrorDecomposition | None = None

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {
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


def summarise_ledger(counts: dict[Role, Counts], formula: dict[Kind, int]) -> LedgerReport:
    """The report from every agent's counts."""
    # A source's neighbours are targets: swap the target side's axes so that both are (kind, source, target, 2).
    sources, targets = (len(counts[role].edges) for role in Role)
    from_sources = counts[Role.SOURCE].edges[:, :, :targets].transpose(1, 0, 2, 3)
    from_targets = counts[Role.TARGET].edges[:, :, :sources].transpose(1, 2, 0, 3)
    per_edge = from_sources + from_targets
    per_kind = per_edge.sum(axis=(1, 2))
    together = sum(counts[role].collectives.sum(axis=0) for role in Role)
    within = sum(counts[role].within.sum(axis=0) for role in Role)
    by_kind = tuple(
        Traffic(
            kind=kind.name.lower(),
            messages=int(per_kind[kind, 0]),
            bytes=int(per_kind[kind, 1]),
            collectives=int(together[kind, 0]),
            collective_bytes=int(together[kind, 1]),
            formula_bytes=formula.get(kind),
            within_messages=int(within[kind, 0]),
            within_bytes=int(within[kind, 1]),
        )
        for kind in Kind
    )
    by_edge = tuple(
        EdgeTraffic(
            source=int(i),
            target=int(j),
            messages=int(per_edge[:, i, j, 0].sum()),
            bytes=int(per_edge[:, i, j, 1].sum()),
            bytes_by_kind={k.name.lower(): int(per_edge[k, i, j, 1]) for k in Kind if per_edge[k, i, j, 1]},
        )
        for i, j in np.argwhere(per_edge[..., 0].sum(axis=0))
    )
    return LedgerReport(by_kind, by_edge)
