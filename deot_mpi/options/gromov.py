"""Options of entropic Gromov-Wasserstein."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Literal

from deot_mpi.errors import InputError
from deot_mpi.options.base import Options
from deot_mpi.options.checks import at_least_one, one_of

P_UPDATES = ("closed", "gradient", "sampled")
MOMENTS = ("surrogate", "exchange")
SELF_TERMS = ("auto", "sketch", "moments")
_MOST_ALIGNMENT_ETA = 2.0


@dataclass(frozen=True)
class GromovOptions(Options):
    """Options of entropic Gromov-Wasserstein. The samples of each domain are always centred: the formula needs it."""

    alpha: float | None = None
    """The share of structure against features: 1 is Gromov-Wasserstein; by default 1 without features, 0.5 with."""
    starts: int = 4
    """Random alignments to start from; the best end is kept."""
    outer: int = 200
    """Alignments at most, from each start (T_outer)."""
    inner: int = 1000
    """Rounds at most for each alignment (T_inner)."""
    p_update: Literal["closed", "gradient", "sampled"] = "closed"
    moment: Literal["surrogate", "exchange"] = "surrogate"
    """With sketches, where the cross moment comes from: the sigmoid's derivative, or sums sent to the targets."""
    self_terms: Literal["auto", "sketch", "moments"] = "auto"
    """S_X and S_Y from sketches within a domain or from second moments; by default as the kernel is."""
    within: int | None = None
    """How many agents of its domain, next on a circle, an agent shows its sketch for that; by default as many as it
    takes for every pair to meet."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("starts", "outer", "inner"):
            at_least_one(name, getattr(self, name))
        if self.checkpoint is not None:
            raise InputError(
                f"checkpoint is {self.checkpoint!r}, but gromov writes none; --save and --start go on from potentials."
            )
        if self.debias:
            raise InputError(
                "debias is for eot; gromov of a domain with itself is no convex problem, and is not computed here."
            )
        if self.within is not None:
            at_least_one("within", self.within)
        one_of("p_update", self.p_update, P_UPDATES)
        one_of("moment", self.moment, MOMENTS)
        one_of("self_terms", self.self_terms, SELF_TERMS)
        if self.alpha is not None and not (isinstance(self.alpha, Real) and 0 < self.alpha <= 1):
            raise InputError(
                f"alpha is {self.alpha!r}; it must be above 0 and at most 1 (1: structure alone; for features alone "
                "use eot)."
            )

        if self.p_update != "closed" and self.eta > _MOST_ALIGNMENT_ETA:
            raise InputError(
                f"eta is {self.eta:g}; a step of P beyond {_MOST_ALIGNMENT_ETA:g}/64 goes past the optimum by more "
                "than it was off, use less."
            )
        if self.p_update == "sampled" and self.kernel == "sketch" and self.moment == "exchange":
            raise InputError(
                "p_update is 'sampled', which takes the moment from one source agent alone, but moment 'exchange' "
                "takes it from the targets; use moment 'surrogate'."
            )

    @property
    def sketched_terms(self) -> bool:
        return self.self_terms == "sketch" or (self.self_terms == "auto" and self.kernel == "sketch")
