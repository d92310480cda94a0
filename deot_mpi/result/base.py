"""What every run gives back, whatever the problem: named values, how it went, what it cost."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from mpi4py import MPI

from deot_mpi.data.samples import Floats
from deot_mpi.privacy.explain import Lesson
from deot_mpi.privacy.findings import Protection
from deot_mpi.privacy.guarantee import Guarantee
from deot_mpi.protocol import ProtocolReport
from deot_mpi.result.account import AgentSummary, LedgerReport
from deot_mpi.roles import Role
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


class SelfTermPoint(TracePoint):
    """A round of the domains' problems with themselves, before those of the run itself; in no result's trace."""


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
