"""What an audit found, and how a wish for protection was met."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from deot_mpi.privacy.explain import Lesson
from deot_mpi.privacy.guarantee import Guarantee


@dataclass(frozen=True)
class ProtectionPoint:
    """A setting that was tried on agents' own rows."""

    bits: int
    flip: float
    recovery_error: float
    """Median error of the strongest attack, at the agent whose rows are known best."""
    distance_error: float
    """Relative error of the distance between halves of an agent's rows, mean over agents."""


@dataclass(frozen=True)
class Protection:
    """How bits and flips were chosen (max_recovery), and what to expect of them."""

    tried: tuple[ProtectionPoint, ...]
    bits: int
    flip: float
    recovery_error: float
    distance_error: float
    intrinsic_dimension: float
    """Of the rows, median over agents: (sum of variances)^2 over the sum of their squares."""
    rows_alone: float
    """Median error of one who has similar rows and no message, at the worst agent."""


@dataclass(frozen=True)
class AttackReport:
    """How one attack did, over all agents whose sketches are sent."""

    name: str
    quantiles: tuple[float, ...] | None
    """Of the relative recovery error |y^ - y|/|y|: 10 %, median, 90 %; the medians over agents. None where an attack
    recovers nothing."""
    worst_agent: float | None
    """The median error at the agent whose rows are known best."""
    score: float | None = None
    """Of attacks that recover nothing: how often they are right."""
    worst_score: float | None = None

    @property
    def median_recovery_error(self) -> float | None:
        return None if self.quantiles is None else self.quantiles[1]


@dataclass(frozen=True)
class FrontierPoint:
    """What a setting protects, and what it costs."""

    bits: int
    ratio: float
    """Q/D."""
    flip: float
    recovery_errors: dict[str, float]
    """Median relative error by attack."""
    distance_error: float | None
    """Mean relative error of W~; None where it was not measured."""

    @property
    def strongest(self) -> float:
        return min(self.recovery_errors.values())


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """Of an audit; the same on every rank."""

    attacks: tuple[AttackReport, ...]
    frontier: tuple[FrontierPoint, ...]
    distance_error: float | None
    strongest: str
    guarantee: Guarantee | None
    verdict: str
    bits: int
    dimension: int
    eps: float
    notes: tuple[str, ...]
    settings: dict[str, Any]
    disclosure: tuple[Lesson, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "attacks": [{**asdict(one), "median_recovery_error": one.median_recovery_error} for one in self.attacks],
            "strongest": self.strongest,
            "frontier": [{**asdict(point), "strongest": point.strongest} for point in self.frontier],
            "distance_error": self.distance_error,
            "guarantee": None if self.guarantee is None else asdict(self.guarantee),
            "bits": self.bits,
            "dimension": self.dimension,
            "eps": self.eps,
            "notes": list(self.notes),
            "settings": self.settings,
            "disclosure": [asdict(lesson) for lesson in self.disclosure],
        }
