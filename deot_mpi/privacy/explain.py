"""Before anything is sent: what every agent will learn, from whom, of which kind, and how much of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from deot_mpi.options import AdaptOptions, AuditOptions, GromovOptions, Options


@dataclass(frozen=True)
class Lesson:
    """One thing somebody learns. ``kind`` is the ledger's name for it."""

    who: str
    of_whom: str
    kind: str
    what: str
    amount: str


def told(options: Options, agents: Mapping[str, int]) -> str:
    """The statement in words, one line a lesson. ``agents`` are how many each role has."""
    known = lessons(options, agents)
    lines = [f"{one.who} learns from {one.of_whom}: {one.what} ({one.amount}; {one.kind})" for one in known]
    return "Before anything is sent, what this run will tell:\n" + "\n".join(f"- {line}" for line in lines) + "\n"


def lessons(options: Options, agents: Mapping[str, int]) -> tuple[Lesson, ...]:
    """Everything a run with these options and so many agents tells anybody."""
    known = [_by_each("control", "the number of its rows, their columns and total weight", "a few numbers")]
    for role in ("target",) if options.solver == "sinkhorn" else ("source", "target"):
        known += _shown(options, role)
    known += _potentials(options) + _means(options, agents)
    if options.debias:
        known += _within(options)
    if isinstance(options, GromovOptions):
        known += _gromov(options)
    if isinstance(options, AdaptOptions):
        known += _adaptation(options)
    if getattr(options, "max_recovery", None) is not None:
        what = "for each setting tried, how near attacks came to its own rows and how far a distance was off"
        known.append(_by_each("audit", what, "2 numbers a setting, and 2 more"))
    if getattr(options, "pairwise_seeds", False):
        known.append(_by("target", "seeds", "the seed of the planes of their edge", "1 number"))
    if isinstance(options, AuditOptions) and options.mapped:
        amount = f"{options.bits} bits and 2 numbers a row"
        known.append(_by("source", "sketch, norms, potentials", "sketch, length and potential of a row", amount))
    if isinstance(options, AuditOptions):
        known.append(_by_each("audit", "quantiles of the errors of attacks on its own rows", "a few numbers a setting"))
    known.append(
        _by_each(
            "control, objectives",
            "its part of the objective and of the marginal error, its largest exponent, products of its last moves "
            "(acceleration); bytes, seconds and memory it used; with whom it shares a host; "
            "its largest distance to a neighbour, if E is not p q^T",
            "some numbers at every check (sinkhorn: also every third round) and at the end",
        )
    )
    if options.reference:
        who = "each source" if isinstance(options, AuditOptions) else "rank 0"
        known.append(Lesson(who, "everybody", "reference", "rows themselves, for the exact distance", "all rows"))
    return tuple(known)


def _by_each(kind: str, what: str, amount: str) -> Lesson:
    return Lesson("every agent", "every other", kind, what, amount)


def _by_all(kind: str, what: str, amount: str) -> Lesson:
    return Lesson("every agent", "all together (masked sums)", kind, what, amount)


def _by(role: str, kind: str, what: str, amount: str) -> Lesson:
    """What agents of a role tell their neighbours."""
    other = "source" if role == "target" else "target"
    return Lesson(f"each {other}", f"each {role} it has an edge with", kind, what, amount)


def _shown(options: Options, role: str) -> list[Lesson]:
    weights = _by(role, "weights", "the weight of a row, if any agent has weights", "1 number a row")
    if options.kernel == "raw":
        return [_by(role, "samples", "its rows themselves (less the mean)", "D numbers a row"), weights]
    flip, step = getattr(options, "flip", 0.0), getattr(options, "norm_step", 0.0)
    noise = f", each answer turned round with probability {flip:g}" if flip else ""
    bits = f"{options.bits} bits a row"
    if getattr(options, "max_recovery", None) is not None:
        noise, bits = ", answers turned round with a probability yet to be chosen", "at most 4 D bits a row"
    if getattr(options, "pairwise_seeds", False):
        noise += ", planes that only the two know"
    rounding = f"its square rounded by chance to steps of {step:g}" if step else "exactly"
    return [
        _by(role, "sketch", f"on which side of random planes a row lies{noise}", bits),
        _by(role, "norms", f"the length of a row (less the mean), {rounding}", "1 number a row"),
        weights,
    ]


def _within(options: Options) -> list[Lesson]:
    """Of the divergence: what one domain's agents show each other, which they do not without it."""
    domain = {"who": "each agent", "of_whom": "every other agent of its own domain"}
    potential = "the dual potential of a row in its domain's problem with itself"
    return [
        *(replace(lesson, **domain) for lesson in _shown(options, "target")),
        Lesson(**domain, kind="potentials", what=potential, amount="1 number a row in every round"),
    ]


def _potentials(options: Options) -> list[Lesson]:
    amount = "1 number a row in every round"
    own = _by("target", "potentials", "the dual potential of a row", amount)
    if options.solver == "sinkhorn":
        sums = _by("source", "potentials", "for each row of the target, a sum over all rows of the source", amount)
        squares = "for each row of the target, the squares of its shares of the source's rows, added up"
        curvatures = _by("source", "curvatures", squares, "1 number a row every third round")
        return [own, sums, *([curvatures] if options.acceleration == "full" else [])]
    return [own, _by("source", "potentials", "the dual potential of a row", amount)]


def _means(options: Options, agents: Mapping[str, int]) -> list[Lesson]:
    what = f"each domain's mean and mean squared length{_of_few(agents)}"
    if isinstance(options, GromovOptions):
        return [_by_all("mean", what, "D_X + D_Y + 2 numbers")]
    known = []
    if getattr(options, "centre", True):
        alone = ", so that each knows the other's" if sum(agents.values()) == 2 else ""
        known.append(_by_all("mean", f"the mean of both domains together{alone}", "D numbers"))
    if options.scale is not None:
        known.append(_by_all("mean", f"{what}, for eps as a share of the mean cost", "2 D + 2 numbers"))
    return known


def _of_few(agents: Mapping[str, int]) -> str:
    """A sum over one agent is that agent's; of a sum over two, each knows what the other has added."""
    told = {1: "one {}, whose own they are,", 2: "two {}s, each of which can tell the other's,"}
    few = [told[count].format(f"{role} agent") for role, count in agents.items() if count in told]
    return f" (there are only {' and '.join(few).removesuffix(',')})" if few else ""


def _gromov(options: GromovOptions) -> list[Lesson]:
    known = [_by_all("moments", "P, half the mean of x y^T under the plan", "D_X D_Y numbers at every alignment")]
    if options.sketched_terms:
        amount = f"{options.bits} bits and 1 number a row"
        known.append(
            Lesson("each agent", "agents of its own domain", "structure", "sketch and length of a row", amount)
        )
    else:
        known.append(_by_all("moments", "each domain's second moments", "D_X^2 + D_Y^2 numbers"))
    if options.kernel == "sketch" and options.moment == "exchange":
        what = "for each row of the target, the mean of the source rows that send it mass (raw rows, as eps goes to 0)"
        known.append(_by("source", "moments", what, "D_X numbers a row at every alignment"))
    return known


def _adaptation(options: AdaptOptions) -> list[Lesson]:
    known = [
        _by_all("labels", "which classes there are, and their shares of all source rows", "2 C numbers"),
        Lesson("every agent", "each target with known labels", "labels", "how many were predicted", "2 numbers"),
    ]
    if options.reading == "1nn":
        if options.kernel == "sketch":
            amount = f"{options.bits} bits and 2 numbers a row"
            known.append(_by("source", "sketch, norms, potentials", "sketch, length and potential of a row", amount))
            what = "for each row of the source, a mean of target rows (raw rows, as eps goes to 0)"
            known.append(_by("target", "mapped", what, "D + 1 numbers a row"))
        what = "a row mapped to the target domain (a mean of rows of all the source's targets), and its label"
        known.append(_by("source", "mapped, labels", what, "D + 1 numbers a row"))
    if options.method != "1nn":
        what = "for each row of the target, the mass that each of its classes sends"
        known.append(_by("source", "labels", what, "C numbers a row and tangent"))
    if options.method == "class-regularised":
        what = "for each row of the target, how much of each class it receives (as the slope of the penalty)"
        known.append(_by("target", "labels", what, "C numbers a row and tangent"))
    if options.choose_eps:
        what = "all of the above on parts of the rows, also with the roles swapped, to choose eps"
        known.append(Lesson("every agent", "the same agents", "all", what, f"{options.trials} times"))
        what = "how many hidden rows of each class were labelled rightly, over all sources"
        known.append(_by_all("mean", what, "2 C numbers an eps"))
    return known
