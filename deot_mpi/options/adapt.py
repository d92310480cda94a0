"""Options of domain adaptation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from deot_mpi.data.scaling import SCALINGS
from deot_mpi.errors import InputError
from deot_mpi.options.checks import as_grid, at_least_one, one_of, positive
from deot_mpi.options.transport import EOTOptions

METHODS = ("1nn", "labels", "class-regularised")
PENALTIES = ("entropy", "lpl1")
READINGS = ("1nn", "labels")
_CLASS_WEIGHTS = {"entropy": 0.8, "lpl1": 0.1}


@dataclass(frozen=True)
class AdaptOptions(EOTOptions):
    """Options of domain adaptation: those of entropic optimal transport, and what to do with the plan."""

    method: Literal["1nn", "labels", "class-regularised"] = "1nn"
    """1nn: source rows mapped to the target domain, nearest one's label; labels: class sums of the plan, no features
    sent; class-regularised: a plan that sends few classes to one row, read in one of these two ways."""
    class_penalty: Literal["entropy", "lpl1"] = "entropy"
    """Of class-regularised: less regularisation between classes than within, or POT's sinkhorn_lpl1_mm."""
    class_weight: float | None = None
    """Of the penalty. entropy: the share of eps taken off between classes, at most 1, by default 0.8; lpl1: in cost
    units (POT's reg_cl, eta), by default 0.1."""
    class_rounds: int = 5
    """Tangents of the class penalty, each a transport problem. With 'entropy', each comes closer to the optimum by
    about class_weight: few are enough for labels, not for digits of the plan."""
    class_reading: Literal["1nn", "labels"] = "1nn"
    """How class-regularised predicts from its plan."""
    scaling: Literal["none", "unit", "hellinger"] = "none"
    """What every agent does to its rows first: nothing, length 1, or the roots of their shares."""
    choose_eps: bool = False
    """Whether eps is chosen from eps_grid by reverse validation, without target labels."""
    eps_grid: tuple[float, ...] = (0.05, 0.07, 0.1, 0.14, 0.2)
    """Shares of the mean cost to choose from."""
    validation_rows: int = 2000
    """Rows of each domain, at most, that take part in the choice."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("method", self.method, METHODS)
        one_of("class_penalty", self.class_penalty, PENALTIES)
        one_of("class_reading", self.class_reading, READINGS)
        if self.class_weight is not None:
            positive("class_weight", self.class_weight)
            if self.class_penalty == "entropy" and self.class_weight > 1:
                raise InputError(
                    f"class_weight is {self.class_weight:g}; with class_penalty 'entropy' it is a share of eps, at "
                    "most 1 (with 'lpl1' it is in cost units)."
                )
        at_least_one("class_rounds", self.class_rounds)
        if self.method != "class-regularised":
            self._refuse_class_options()
        one_of("scaling", self.scaling, SCALINGS)
        self._check_choice()
        if self.method == "class-regularised" and self.solver != "sinkhorn":
            raise InputError(
                f"solver is '{self.solver}', but method 'class-regularised' needs 'sinkhorn': labels stay with the "
                "sources, and only these hold the kernel."
            )
        if self.method == "class-regularised" and self.checkpoint is not None:
            raise InputError(
                f"checkpoint is {self.checkpoint!r}, but method 'class-regularised' solves several problems and writes "
                "none; leave it out."
            )
        if self.debias:
            raise InputError(
                "debias is for eot: it changes the value of a comparison, and adapt reads labels off the plan."
            )
        if self.reference:
            raise InputError(
                "reference is for eot; adapt is compared with POT by its accuracy, where labels are known."
            )

    def _refuse_class_options(self) -> None:
        for name in ("class_penalty", "class_weight", "class_rounds", "class_reading"):
            if getattr(self, name) != getattr(AdaptOptions, name):
                raise InputError(
                    f"{name} is {getattr(self, name)!r}, but it is for method 'class-regularised' and method is "
                    f"'{self.method}'; leave it out."
                )

    def _check_choice(self) -> None:
        if not isinstance(self.choose_eps, bool):
            raise InputError(f"choose_eps is {self.choose_eps!r}; it must be True or False.")
        if self.choose_eps and (self.eps is not None or self.eps_scale is not None):
            given = f"eps is {self.eps}" if self.eps is not None else f"eps_scale is {self.eps_scale}"
            raise InputError(f"{given}, and choose_eps is to choose it; give one of the two.")
        chance = self.flip or self.norm_step or self.pairwise_seeds or self.max_recovery is not None
        if self.choose_eps and chance:
            raise InputError(
                "choose_eps shows sketches and norms many times, and noise drawn anew each time (flip, norm_step, "
                "pairwise_seeds, max_recovery) cancels; give eps or eps_scale."
            )
        if self.max_recovery is not None and self.reading == "1nn":
            raise InputError(
                f"max_recovery is {self.max_recovery:g}, but reading by 1nn sends means of target rows, which tend to "
                "raw rows and which no flip protects; use method 'labels' (or class_reading 'labels')."
            )
        object.__setattr__(self, "eps_grid", as_grid("eps_grid", self.eps_grid, "shares of the mean cost: 0.05, 0.1"))
        at_least_one("validation_rows", self.validation_rows)

    @property
    def trials(self) -> int:
        """Runs it takes to choose eps: there and back, with either half, for each of the grid."""
        return 4 * len(self.eps_grid) if self.choose_eps else 0

    @property
    def weight_of_classes(self) -> float:
        return _CLASS_WEIGHTS[self.class_penalty] if self.class_weight is None else float(self.class_weight)

    @property
    def one_sided(self) -> bool:
        return super().one_sided and self.reading == "labels"

    @property
    def reading(self) -> str:
        """How labels are read off the plan."""
        return self.class_reading if self.method == "class-regularised" else self.method
