"""Options of entropic optimal transport, and of an audit of it."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Literal

from deot_mpi.data.scaling import SCALINGS
from deot_mpi.errors import InputError
from deot_mpi.options.base import Options
from deot_mpi.options.checks import as_grid, at_least_one, one_of, positive

_MOST_FLIPS = 0.49
"""Flips nearer to 1/2 leave nothing to estimate from."""


@dataclass(frozen=True)
class EOTOptions(Options):
    """Options of entropic optimal transport."""

    centre: bool = True
    rounds: int = 1000
    flip: float = 0.0
    """Of sketches: the probability with which every bit that is sent is turned round (randomised response)."""
    norm_step: float = 0.0
    """Of sketches: squared norms that are sent lie on a grid of this relative step, rounded by chance; 0: exact."""
    private_seed: int | None = None
    """Of this agent's flips and roundings; None: from the operating system, new in every run. Whoever knows it can undo
    them, so give it for tests only."""
    pairwise_seeds: bool = False
    """Of sketches: whether every edge has projections of its own, which only its two agents know."""
    max_recovery: float | None = None
    """Choose bits and flip so that no attack tried comes nearer to a typical row than this share of its length."""
    max_error: float | None = None
    """The relative error of W~ that is accepted for that, by default 0.05; beyond it, the run is refused."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_noise()
        at_least_one("rounds", self.rounds)
        if not isinstance(self.centre, bool):
            raise InputError(f"centre is {self.centre!r}; it must be True or False.")
        if self.debias:
            self._check_debias()

    def _check_debias(self) -> None:
        if self.pairwise_seeds:
            raise InputError(
                "debias compares distances between domains with those within, which takes the same planes for all "
                "pairs of rows, and with pairwise_seeds every edge has its own; leave out one of the two."
            )
        if self.max_recovery is not None:
            raise InputError(
                "debias takes a small difference of large values, and max_recovery chooses bits and flips by the error "
                "of one of them; give bits and flip instead, and see with 'audit --solver kept' (both roles' sketches "
                "are sent there, as with debias) what they protect."
            )

    def _check_noise(self) -> None:
        if not isinstance(self.flip, Real) or not 0 <= self.flip <= _MOST_FLIPS:
            raise InputError(f"flip is {self.flip!r}; it is a probability from 0 to {_MOST_FLIPS}.")
        if not isinstance(self.norm_step, Real) or not 0 <= self.norm_step <= 1:
            raise InputError(f"norm_step is {self.norm_step!r}; it is a relative step from 0 to 1.")
        if self.private_seed is not None and (not isinstance(self.private_seed, Integral) or self.private_seed < 0):
            raise InputError(f"private_seed is {self.private_seed!r}; it must be a whole number, 0 or more.")
        if not isinstance(self.pairwise_seeds, bool):
            raise InputError(f"pairwise_seeds is {self.pairwise_seeds!r}; it must be True or False.")
        self._check_wish()
        noisy = next((name for name in ("flip", "norm_step", "pairwise_seeds") if getattr(self, name)), None)
        if noisy and self.kernel == "raw":
            raise InputError(f"{noisy} is for sketches, but kernel is 'raw', which sends rows; use kernel 'sketch'.")
        if self.flip and self.estimator == "paper":
            raise InputError("flip needs estimator 'hamming': the paper's <a,b> has no correction for flipped bits.")

    def _check_wish(self) -> None:
        if self.max_error is not None:
            positive("max_error", self.max_error)
        if self.max_recovery is None:
            if self.max_error is not None:
                raise InputError(f"max_error is {self.max_error:g}, but it is what max_recovery may cost; give both.")
            return
        if not isinstance(self.max_recovery, Real) or not 0 < self.max_recovery < 1:
            raise InputError(
                f"max_recovery is {self.max_recovery!r}; it is a share of a row's length, above 0, below 1."
            )
        if self.pairwise_seeds:
            raise InputError(
                "max_recovery is about one neighbour, and with pairwise_seeds several that put their bits together "
                "know much more; leave out one of the two, or give bits and flip and see what 'audit' says of them."
            )
        if self.kernel == "raw" or self.flip or self.estimator == "paper" or self.bits != Options.bits:
            raise InputError(
                "max_recovery chooses bits and flips of sketches; it goes with neither bits, flip, kernel 'raw' nor "
                "estimator 'paper'."
            )

    @property
    def one_sided(self) -> bool:
        """Whether only targets' sketches are ever sent."""
        return self.solver == "sinkhorn"


@dataclass(frozen=True)
class AuditOptions(EOTOptions):
    """Options of the audit: those of the run that it is about, and how it is attacked."""

    victims: int = 40
    """Rows of each agent that are attacked, at most (and at most half of its rows)."""
    ratios: tuple[float, ...] = (0.5, 1.0, 2.0, 5.0, 15.0)
    """Q/D of the frontier."""
    flips: tuple[float, ...] = (0.0, 0.1, 0.25)
    """Flip rates of the frontier."""
    trials: int = 3
    """Seeds over which the distance's error is taken, where it is measured (reference)."""
    mapped: bool = False
    """Whether the run that it is about is adapt's with method 1nn, which also sends means of rows."""
    scaling: Literal["none", "unit", "hellinger"] = "none"
    """What adapt would do to rows first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.checkpoint is not None or self.on_failure != "abort":
            raise InputError("an audit writes no checkpoints and does not go on without an agent; leave both out.")
        if self.debias:
            raise InputError(
                "debias is for eot, where it makes the sources show their sketches, too (to each other); an audit with "
                "solver 'kept' is of runs in which both roles do."
            )
        if self.max_recovery is not None:
            raise InputError("max_recovery chooses what a run sends; an audit is of bits and flips that are given.")
        if self.estimator == "paper" and any(self.flips):
            raise InputError("estimator 'paper' has no correction for flipped bits; give flips 0 with it.")
        for name in ("victims", "trials"):
            at_least_one(name, getattr(self, name))
        one_of("scaling", self.scaling, SCALINGS)
        if not isinstance(self.mapped, bool):
            raise InputError(f"mapped is {self.mapped!r}; it must be True or False.")
        object.__setattr__(self, "ratios", as_grid("ratios", self.ratios, "Q/D: 0.5, 1, 2"))
        if not isinstance(self.flips, tuple | list) or not self.flips:
            raise InputError(f"flips is {self.flips!r}; it must be a list of probabilities: 0, 0.1, 0.25.")
        for rate in self.flips:
            if not isinstance(rate, Real) or not 0 <= rate <= _MOST_FLIPS:
                raise InputError(f"a rate in flips is {rate!r}; it is a probability from 0 to {_MOST_FLIPS}.")
        object.__setattr__(self, "flips", tuple(float(rate) for rate in self.flips))

    @property
    def one_sided(self) -> bool:
        return super().one_sided and not self.mapped
