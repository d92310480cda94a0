"""Options that all problems share."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import Literal, Self

from deot_mpi.data.samples import Floats
from deot_mpi.errors import InputError
from deot_mpi.options.checks import as_matrix, at_least_one, one_of, positive
from deot_mpi.sketch import Estimator

DEFAULT_EPS_SCALE = 0.1
_SMALLEST_EPS = 1e-280
_MOST_BITS, _MOST_PAIRS = 1 << 24, 1 << 20
"""Beyond these, a typing error is likelier than a wish."""

KERNELS = ("sketch", "raw")
ESTIMATORS = ("hamming", "paper")
SOLVERS = ("sinkhorn", "kept", "mrbcd")
STOPS = ("marginal", "change")
PRECISIONS = ("auto", "float32", "float64")
ACCELERATIONS = ("full", "anderson", "none")
ON_FAILURE = ("abort", "continue")
_SINGLE_TOLERANCE = 1e-6
"""The smallest marginal error that a float32 kernel is asked for; its rounding is about a tenth of it."""

_OWN = ("timeout", "memory", "threads", "private_seed", "checkpoint")
"""Options that each agent may choose for itself: they do not change the result, but for the noise of private_seed."""


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
    acceleration: Literal["full", "anderson", "none"] = "full"
    """Of sinkhorn: moves stretched by curvatures, which sources tell targets every third round, and mixed (Anderson);
    mixed alone; or plain steps."""
    eps_scaling: bool = True
    """Whether sinkhorn may start at a larger eps where potentials are many eps away."""
    memory: int | None = None
    """Bytes of kernel a source agent may hold, beyond which it computes its rows again in every round; by default its
    share of half of the node's free memory. Does not change the result."""
    threads: int | None = None
    """Threads of an agent; by default its share of the node's cores. Does not change the result."""
    seed: int = 0
    checkpoint: str | None = None
    """The folder each agent writes its own checkpoints to (on its own host)."""
    every: int = 100
    """Rounds between them."""
    resume: bool = False
    """Whether to go on from the last round of which all agents have one."""
    patience: float | None = None
    """Of kept: seconds an agent waits for a late neighbour before it goes on with the last sums it has; None: as long
    as it takes. Results are then right to tol, but not the same to the bit."""
    on_failure: Literal["abort", "continue"] = "abort"
    """What the others do when an agent's process is lost: end, or go on without it (needs mpirun --with-ft ulfm)."""
    debias: bool = False
    """Of eot: whether to solve each domain's problem with itself, too, for the Sinkhorn divergence."""
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
        for name in ("orthogonal", "correction", "match", "eps_scaling", "debias", "reference", "resume"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} is {getattr(self, name)!r}; it must be True or False.")
        for name, most in (("bits", _MOST_BITS), ("pairs", _MOST_PAIRS)):
            if isinstance(getattr(self, name), Integral) and getattr(self, name) > most:
                raise InputError(f"{name} is {getattr(self, name)}; more than {most} make no sense.")
        one_of("on_failure", self.on_failure, ON_FAILURE)
        if self.checkpoint is not None and not isinstance(self.checkpoint, str):
            raise InputError(f"checkpoint is {self.checkpoint!r}; it is the name of a folder.")
        if self.checkpoint is None and (self.resume or self.every != Options.every):
            raise InputError("resume and every are about checkpoints; name their folder with checkpoint.")
        for name in ("bits", "degree", "check_every", "every"):
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
        if self.patience is not None:
            if not (isinstance(self.patience, Real) and 0 <= self.patience < float("inf")):
                raise InputError(f"patience is {self.patience!r}; it is a number of seconds, 0 or more.")
            if self.solver != "kept":
                raise InputError(
                    f"patience is {self.patience:g}, but solver is '{self.solver}', which needs every message of a "
                    "round; use solver 'kept'."
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
        named = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _OWN}
        return named | {"checkpoint": self.checkpoint is not None}

    def without_checkpoints(self) -> Self:
        return replace(self, checkpoint=None, resume=False, every=Options.every)

    @property
    def single_precision(self) -> bool:
        """Whether kernels are stored in float32."""
        enough = self.stop == "marginal" and self.tol >= _SINGLE_TOLERANCE
        return self.precision == "float32" or (self.precision == "auto" and self.solver == "sinkhorn" and enough)

    @property
    def scale(self) -> float | None:
        """The share of the mean cost to use, None when eps is given."""
        return None if self.eps is not None else self.eps_scale or DEFAULT_EPS_SCALE
