"""The options of a run, validated once, with the names the command line uses."""

from __future__ import annotations

from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Literal

from deot_mpi.checks import as_grid, as_matrix, at_least_one, one_of, positive
from deot_mpi.errors import InputError
from deot_mpi.samples import Floats
from deot_mpi.scaling import SCALINGS
from deot_mpi.sketch import Estimator

DEFAULT_EPS_SCALE = 0.1
_SMALLEST_EPS = 1e-280
_MOST_BITS, _MOST_PAIRS = 1 << 24, 1 << 20
"""Beyond these, a typing error is likelier than a wish."""
_MOST_ALIGNMENT_ETA = 2.0

KERNELS = ("sketch", "raw")
ESTIMATORS = ("hamming", "paper")
SOLVERS = ("sinkhorn", "kept", "mrbcd")
STOPS = ("marginal", "change")
PRECISIONS = ("auto", "float32", "float64")
ACCELERATIONS = ("anderson", "none")
P_UPDATES = ("closed", "gradient", "sampled")
MOMENTS = ("surrogate", "exchange")
SELF_TERMS = ("auto", "sketch", "moments")
METHODS = ("1nn", "labels", "class-regularised")
PENALTIES = ("entropy", "lpl1")
READINGS = ("1nn", "labels")
_CLASS_WEIGHTS = {"entropy": 0.5, "lpl1": 0.1}
_SINGLE_TOLERANCE = 1e-6
"""The smallest marginal error that a float32 kernel is asked for; its rounding is about a tenth of it."""

_OWN = ("timeout", "memory", "threads", "private_seed")
"""Options that each agent may choose for itself: they do not change the result, but for the noise of private_seed."""
_MOST_FLIPS = 0.49
"""Flips nearer to 1/2 leave nothing to estimate from."""


@dataclass(frozen=True)
class Options:
    """Options that all problems share. ``None`` means: chosen by the program, as the comment says."""

    eps: float | None = None
    """Regularisation in cost units; with neither eps nor eps_scale, eps_scale = 0.1."""
    eps_scale: float | None = None
    """Regularisation as a share of the mean cost under the storage protocol, from moments."""
    kernel: Literal["sketch", "raw"] = "sketch"
    bits: int = 1024
    estimator: Estimator = "hamming"
    orthogonal: bool = True
    correction: bool = True
    protocol: str | Floats = "uniform"
    degree: int = 4
    match: bool = False
    solver: Literal["sinkhorn", "kept", "mrbcd"] = "sinkhorn"
    neighbours: int | None = None
    """L: neighbours asked per round; all by default."""
    pairs: int | None = None
    """B: pairs per round of MRBCD; by default every agent moves in every round."""
    tol: float = 1e-6
    stop: Literal["marginal", "change"] = "marginal"
    check_every: int = 10
    eta: float = 1.0
    precision: Literal["auto", "float32", "float64"] = "auto"
    """Of the kernel that sinkhorn stores; auto: float32 where tol is a marginal error of 1e-6 or more."""
    acceleration: Literal["anderson", "none"] = "anderson"
    """Of sinkhorn: Anderson mixing every third round, or plain steps."""
    eps_scaling: bool = True
    """Whether sinkhorn may start at a larger eps where potentials are many eps away."""
    memory: int | None = None
    """Bytes of kernel a source agent may hold, beyond which it computes its rows again in every round; by default its
    share of half of the node's free memory. Does not change the result."""
    threads: int | None = None
    """Threads of an agent; by default its share of the node's cores. Does not change the result."""
    seed: int = 0
    reference: bool = False
    timeout: float = 300.0
    """Seconds after which a silent agent ends the run."""

    def __post_init__(self) -> None:
        if not isinstance(self.protocol, str):
            object.__setattr__(self, "protocol", as_matrix(self.protocol))
        self._check_eps()
        one_of("kernel", self.kernel, KERNELS)
        one_of("estimator", self.estimator, ESTIMATORS)
        one_of("solver", self.solver, SOLVERS)
        one_of("stop", self.stop, STOPS)
        one_of("precision", self.precision, PRECISIONS)
        one_of("acceleration", self.acceleration, ACCELERATIONS)
        for name in ("orthogonal", "correction", "match", "eps_scaling", "reference"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} is {getattr(self, name)!r}; it must be True or False.")
        for name, most in (("bits", _MOST_BITS), ("pairs", _MOST_PAIRS)):
            if isinstance(getattr(self, name), Integral) and getattr(self, name) > most:
                raise InputError(f"{name} is {getattr(self, name)}; more than {most} make no sense.")
        for name in ("bits", "degree", "check_every"):
            at_least_one(name, getattr(self, name))
        for name in ("neighbours", "pairs", "threads", "memory"):
            if getattr(self, name) is not None:
                at_least_one(name, getattr(self, name))
        for name in ("eta", "timeout"):
            positive(name, getattr(self, name))
        if not (isinstance(self.tol, Real) and self.tol >= 0):
            raise InputError(f"tol is {self.tol}; it must be 0 (use all rounds) or more.")
        if not isinstance(self.seed, Integral) or self.seed < 0:
            raise InputError(f"seed is {self.seed}; it must be a whole number, 0 or more.")
        if self.solver == "sinkhorn" and self.neighbours is not None:
            raise InputError(
                f"neighbours is {self.neighbours}, but solver 'sinkhorn' always asks all neighbours; "
                "use solver 'kept' (exact for any number) or 'mrbcd' (the paper's)."
            )
        if self.solver != "mrbcd" and self.pairs is not None:
            raise InputError(
                f"pairs is {self.pairs}, but only solver 'mrbcd' draws pairs; leave it out or use 'mrbcd'."
            )
        if self.solver != "sinkhorn" and self.precision == "float32":
            raise InputError(
                f"precision is 'float32', but only solver 'sinkhorn' has it; '{self.solver}' works in float64, leave "
                "it out."
            )
        if self.solver != "sinkhorn" and self.memory is not None:
            raise InputError(
                f"memory is {self.memory}, but only solver 'sinkhorn' can do without storing its kernel; leave it out "
                f"with '{self.solver}'."
            )

    def _check_eps(self) -> None:
        if isinstance(self.eps, Real) and 0 < self.eps < _SMALLEST_EPS:
            raise InputError(f"eps is {self.eps}; nothing can be divided by that, use {_SMALLEST_EPS:g} or more.")
        if self.eps is not None and self.eps_scale is not None:
            raise InputError(f"eps is {self.eps} and eps_scale is {self.eps_scale}; give one of the two.")
        for name in ("eps", "eps_scale"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))

    def shared(self) -> dict[str, object]:
        """The options all agents must have alike: all but the patience and the means of each."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _OWN}

    @property
    def single_precision(self) -> bool:
        """Whether kernels are stored in float32."""
        enough = self.stop == "marginal" and self.tol >= _SINGLE_TOLERANCE
        return self.precision == "float32" or (self.precision == "auto" and self.solver == "sinkhorn" and enough)

    @property
    def scale(self) -> float | None:
        """The share of the mean cost to use, None when eps is given."""
        return None if self.eps is not None else self.eps_scale or DEFAULT_EPS_SCALE


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
    max_recovery: float | None = None
    """Choose bits and flip so that no attack tried comes nearer to a typical row than this share of its length."""
    max_error: float = 0.05
    """The relative error of W~ that is accepted for that; beyond it, the run is refused."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_noise()
        at_least_one("rounds", self.rounds)
        if not isinstance(self.centre, bool):
            raise InputError(f"centre is {self.centre!r}; it must be True or False.")

    def _check_noise(self) -> None:
        if not isinstance(self.flip, Real) or not 0 <= self.flip <= _MOST_FLIPS:
            raise InputError(f"flip is {self.flip!r}; it is a probability from 0 to {_MOST_FLIPS}.")
        if not isinstance(self.norm_step, Real) or not 0 <= self.norm_step <= 1:
            raise InputError(f"norm_step is {self.norm_step!r}; it is a relative step from 0 to 1.")
        if self.private_seed is not None and (not isinstance(self.private_seed, Integral) or self.private_seed < 0):
            raise InputError(f"private_seed is {self.private_seed!r}; it must be a whole number, 0 or more.")
        positive("max_error", self.max_error)
        if self.max_recovery is not None:
            if not isinstance(self.max_recovery, Real) or not 0 < self.max_recovery < 1:
                raise InputError(
                    f"max_recovery is {self.max_recovery!r}; it is a share of a row's length, above 0, below 1."
                )
            if self.kernel == "raw" or self.flip or self.estimator == "paper":
                raise InputError(
                    "max_recovery chooses bits and flips of sketches; it goes with neither flip, kernel 'raw' nor "
                    "estimator 'paper'."
                )
        noisy = "flip" if self.flip else "norm_step" if self.norm_step else None
        if noisy and self.kernel == "raw":
            raise InputError(f"{noisy} is for sketches, but kernel is 'raw', which sends rows; use kernel 'sketch'.")
        if self.flip and self.estimator == "paper":
            raise InputError("flip needs estimator 'hamming': the paper's <a,b> has no correction for flipped bits.")

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

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_recovery is not None:
            raise InputError("max_recovery chooses what a run sends; an audit is of bits and flips that are given.")
        if self.estimator == "paper" and any(self.flips):
            raise InputError("estimator 'paper' has no correction for flipped bits; give flips 0 with it.")
        for name in ("victims", "trials"):
            at_least_one(name, getattr(self, name))
        object.__setattr__(self, "ratios", as_grid("ratios", self.ratios, "Q/D: 0.5, 1, 2"))
        if not isinstance(self.flips, tuple | list) or not self.flips:
            raise InputError(f"flips is {self.flips!r}; it must be a list of probabilities: 0, 0.1, 0.25.")
        for rate in self.flips:
            if not isinstance(rate, Real) or not 0 <= rate <= _MOST_FLIPS:
                raise InputError(f"a rate in flips is {rate!r}; it is a probability from 0 to {_MOST_FLIPS}.")
        object.__setattr__(self, "flips", tuple(float(rate) for rate in self.flips))


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


@dataclass(frozen=True)
class AdaptOptions(EOTOptions):
    """Options of domain adaptation: those of entropic optimal transport, and what to do with the plan."""

    method: Literal["1nn", "labels", "class-regularised"] = "1nn"
    """1nn: source rows mapped to the target domain, nearest one's label; labels: class sums of the plan, no features
    sent; class-regularised: a plan that sends few classes to one row, read in one of these two ways."""
    class_penalty: Literal["entropy", "lpl1"] = "entropy"
    """Of class-regularised: less regularisation between classes than within, or POT's sinkhorn_lpl1_mm."""
    class_weight: float | None = None
    """Of the penalty. entropy: the share of eps taken off between classes, at most 1, by default 0.5; lpl1: in cost
    units (POT's reg_cl, eta), by default 0.1."""
    class_rounds: int = 5
    """Tangents of the class penalty, each a transport problem."""
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
        one_of("scaling", self.scaling, SCALINGS)
        self._check_choice()
        if self.method == "class-regularised" and self.solver != "sinkhorn":
            raise InputError(
                f"solver is '{self.solver}', but method 'class-regularised' needs 'sinkhorn': labels stay with the "
                "sources, and only these hold the kernel."
            )
        if self.reference:
            raise InputError(
                "reference is for eot; adapt is compared with POT by its accuracy, where labels are known."
            )

    def _check_choice(self) -> None:
        if not isinstance(self.choose_eps, bool):
            raise InputError(f"choose_eps is {self.choose_eps!r}; it must be True or False.")
        if self.choose_eps and (self.eps is not None or self.eps_scale is not None):
            given = f"eps is {self.eps}" if self.eps is not None else f"eps_scale is {self.eps_scale}"
            raise InputError(f"{given}, and choose_eps is to choose it; give one of the two.")
        if self.choose_eps and (self.flip or self.norm_step or self.max_recovery is not None):
            raise InputError(
                "choose_eps shows sketches and norms many times, and noise drawn anew each time (flip, norm_step, "
                "max_recovery) cancels; give eps or eps_scale."
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
