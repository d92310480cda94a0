"""What a run lets others see, in plain words; attached to every result."""

from __future__ import annotations

from collections.abc import Sequence

from deot_mpi.options import AdaptOptions, AuditOptions, EOTOptions, GromovOptions, Options
from deot_mpi.privacy.findings import Protection
from deot_mpi.protocol import Protocol, ProtocolReport
from deot_mpi.reference import POT_TOLERANCE
from deot_mpi.result import EpsChoice, GromovReference, LostAgent, ReferenceValues, SelfCosts
from deot_mpi.roles import Role
from deot_mpi.setting import Setting

PROTECTED = 0.5
"""A median recovery error below this is called recovery: the row's direction is known to within 30 degrees."""
_RECOVERY = ((100.0, "1 %"), (30.0, "5 %"), (15.0, "10 %"), (5.0, "30 %"), (2.0, "60 %"))
"""Median relative error of a linear SVM that knows the projections, by Q/D, on Gaussian samples."""


def warning(options: Options) -> str | None:
    """What must be said before a run, whatever the data: that what it sends gives rows away."""
    if isinstance(options, AuditOptions):
        return None  # it says itself, and in numbers
    if options.kernel == "raw":
        return "not private: the raw kernel sends rows as they are."
    wish = getattr(options, "max_recovery", None)
    if wish is not None:
        # Refused where rows would be recovered; unless that is what was asked for.
        return (
            None
            if wish >= PROTECTED
            else f"not private: max_recovery {wish:g} lets a neighbour come that near to rows."
        )
    if isinstance(options, AdaptOptions) and options.reading == "1nn":
        return "not private: besides sketches, means of rows are sent, which come near to rows ('audit --mapped')."
    if getattr(options, "flip", 0.0):
        return "whether flipped sketches protect your rows depends on them: 'audit' measures it on your data."
    chosen = "." if isinstance(options, GromovOptions) or options.debias else _CHOOSE
    return (
        "not private: sketches without flips give rows away to a neighbour that tries; 'audit' measures how well on "
        f"your data{chosen}"
    )


_CHOOSE = ", and '--max-recovery 0.5' protects them where it can."


def privacy_notes(setting: Setting, options: EOTOptions) -> tuple[str, ...]:
    notes = [_kernel_note(options, setting.sizes.dimension)]
    if options.scale is not None:
        notes += _lone_agents(setting, "the mean of the domain, which --eps-scale makes known to all,", "Give --eps")
    if options.pairwise_seeds:
        notes.append(
            "Privacy: every edge has its own planes, which only its two agents know. Neighbours that put their "
            "sketches together have all of them, and as many more bits of a row."
        )
    if options.private_seed is not None:
        notes.append(
            "Privacy: chance came from a private seed; who knows it undoes all noise, and flips promise nothing."
        )
    if options.debias:
        what = "their rows themselves" if options.kernel == "raw" else "the sketches and norms of their rows"
        notes.append(
            f"Privacy: for the divergence, the agents of a domain showed each other {what} (less the global mean), "
            "weights where any agent has them, and a potential for every row, round by round; the sources, too, whose "
            "rows and sketches otherwise need not leave them."
        )
    if options.centre and setting.agents.comm.size == 2:
        notes.append("Privacy: with two agents, the global mean tells each the other's mean.")
    if options.reference:
        notes.append(_POOLED)
    return tuple(notes)


_POOLED = "Privacy: the reference pooled all samples on rank 0."


def gromov_notes(setting: Setting, options: GromovOptions) -> tuple[str, ...]:
    """What Gromov-Wasserstein discloses besides: means, second moments, P, and what the cross moment needs."""
    notes = [_kernel_note(options, min(setting.sizes.dimensions.values()))]
    if options.kernel == "sketch":
        if options.moment == "exchange":
            notes.append(
                "Privacy: every source sent its targets X_i^T Pi_ij at every alignment: for each target row, the mass "
                "it gets times the mean of the source's rows that send it. As eps goes to 0, these are raw rows."
            )
        if options.solver != "sinkhorn":
            notes.append(
                "Privacy: the sources showed sketches of P^T x at every alignment; together these tell more than one."
            )
    notes.append(
        "Privacy: all agents know each domain's mean, its mean squared norm, and P, half the mean of x y^T under the "
        "plan" + ("." if options.sketched_terms else "; and each domain's matrix of second moments.")
    )
    if setting.sizes.features:
        how = "as they are" if options.kernel == "raw" else "as sketches and norms of their own"
        notes.append(f"Privacy: the targets' features went to the sources {how}; all agents know their mean.")
    if options.sketched_terms:
        notes.append("Privacy: the agents of a domain showed each other the sketches and norms of their rows.")
    notes += _lone_agents(setting, "what all know of the domain", "There is no way around it")
    if options.reference:
        notes.append(_POOLED)
    return tuple(notes)


def adapt_notes(setting: Setting, options: AdaptOptions) -> tuple[str, ...]:
    """What domain adaptation discloses besides the transport problem behind it."""
    notes = [*privacy_notes(setting, options)]
    if options.reading == "1nn":
        notes.append(
            "Privacy: the sources' rows mapped to the target domain, with their labels, went to their targets. These "
            "are means over the rows of all of a source's targets: as eps goes to 0, a target gets others' raw rows."
            if options.kernel == "raw"
            else "Privacy: every target showed its sources sum_m P_nm y_m, a mean of its rows for each row of theirs, "
            "and got their sketches and their mapped rows with labels, means over rows of all of a source's targets. "
            "As eps goes to 0, such means are raw rows, also of other targets."
        )
        if options.flip:
            notes.append("Privacy: flips protect bits; means of rows are sent as they are.")
    if options.method != "1nn":
        notes.append(
            ("Privacy: a" if options.reading == "1nn" else "Privacy: no features were sent; a")
            + " target learnt the mass each class of each source sends its rows."
        )
    notes.append(
        "Privacy: all agents know which classes there are, their shares in all source rows, and how many of its known "
        "labels each target predicted."
    )
    return tuple(notes)


def protection_notes(protection: Protection | None) -> tuple[str, ...]:
    """How bits and flips were chosen."""
    if protection is None:
        return ()
    return (
        f"Privacy: Q = {protection.bits} and flips of {protection.flip:g} were chosen. The strongest attack tried "
        f"comes within {protection.recovery_error:.2f} of a typical row's length at the agent whose rows are known "
        f"best; W~ should be off by about {protection.distance_error:.3f}. Agents measured both on their own rows; "
        "attacks are no proof. All know these numbers, and that rows have about "
        f"{protection.intrinsic_dimension:.0f} dimensions."
        + (" That is not private." if protection.recovery_error < PROTECTED else ""),
    )


def loss_notes(lost: Sequence[LostAgent]) -> tuple[str, ...]:
    """Who is missing, and what is measured instead."""
    if not lost:
        return ()
    shares = ["an unknown share" if one.mass is None else f"{one.mass:.1%}" for one in lost]
    named = [
        f"{one.role} agent {one.index} ({share} of the {one.role}s' mass, after round {one.round})"
        for one, share in zip(lost, shares, strict=True)
    ]
    return (
        f"Lost: {', '.join(named)}. The values are those of the agents that are left, with E's rows and columns of the "
        "lost ones dropped and the rest scaled to 1 (or matched again), and the eps and centre that all had agreed on.",
    )


def choice_notes(options: AdaptOptions, choice: EpsChoice | None) -> tuple[str, ...]:
    """What choosing eps discloses besides, and whether the grid ended too soon."""
    if choice is None:
        return ()
    swapped = (
        " In half of them the roles were swapped: what is said above of targets then held for sources, and the other "
        "way round."
    )
    return (
        f"Privacy: eps was chosen in {options.trials} runs on parts of the rows.{swapped} All agents know how many "
        "hidden rows of each class were labelled rightly in all. Targets' true labels were not used.",
        *((_LARGEST_OF_GRID,) if choice.chosen == max(options.eps_grid) else ()),
    )


_LARGEST_OF_GRID = (
    "Choice: the largest eps of the grid was chosen; one beyond it may do as well or better (give --eps-grid)."
)


def _kernel_note(options: Options, dimension: int) -> str:
    if options.kernel == "raw":
        return (
            "Privacy: the raw kernel sends the targets' samples themselves to the sources they have an edge with."
            if options.solver == "sinkhorn"
            else "Privacy: the raw kernel sends the samples themselves to every neighbour."
        )
    if dimension == 1:
        return "Privacy: with one column, the norm of a centred sample is the sample up to its sign. Nothing is hidden."
    ratio = options.bits / dimension
    if getattr(options, "flip", 0.0):
        return (
            f"Privacy: sketches are not secret. How near a neighbour comes to a row at Q/D = {ratio:.3g} with these "
            "flips depends on the rows; 'audit' measures it."
        )
    error = next((words for limit, words in _RECOVERY if ratio >= limit), None)
    known = (
        f"a neighbour that knows the projections recovers a typical row to within about {error}"
        if error
        else "recovery of rows was not measured at so few bits, which is no promise"
    )
    return f"Privacy: sketches are not secret. At Q/D = {ratio:.3g} {known}; less is needed if it holds similar rows."


def _lone_agents(setting: Setting, what: str, remedy: str) -> list[str]:
    """A sum over one agent is that agent's; of a sum over two, each knows what the other has added."""
    told = {
        1: "there is one {role} agent, so {what} is its own (its row, if it has one). {remedy}.",
        2: "there are two {role} agents, so from {what} each can tell the other's. {remedy}.",
    }
    counts = {role: setting.agents.count(role) for role in Role}
    return [
        "Privacy: " + told[count].format(role=role.value, what=what, remedy=remedy)
        for role, count in counts.items()
        if count in told
    ]


def protocol_notes(report: ProtocolReport) -> tuple[str, ...]:
    notes = []
    for role, isolated in (("source", report.isolated_sources), ("target", report.isolated_targets)):
        if isolated:
            agents = ", ".join(str(index) for index in isolated)
            notes.append(f"Protocol: {role} agent(s) {agents} have no partner in E; their samples do not count.")
    if report.components > 1:
        notes.append(
            f"Protocol: E falls into {report.components} parts that exchange no mass; the values are of that problem."
        )
    if not report.is_storage:
        bound = (
            "The paper has no bound for that here."
            if report.tau is None
            else (
                "tau is not positive here, and the paper's bound tau sigma says nothing."
                if report.tau_sigma is None
                else f"The paper bounds the difference to the centralised value by tau sigma = {report.tau_sigma:.3g}"
                + ("." if report.tau_pairs == "all" else ", with tau measured on E's edges only.")
            )
        )
        notes.append(
            f"Protocol: E is not the storage protocol (sigma = {report.sigma:.3g}); the values are those of E's own "
            f"marginals and support. {bound}"
        )
    return tuple(notes)


def divergence_notes(protocol: Protocol, terms: SelfCosts | None) -> tuple[str, ...]:
    """What the divergence is where it is not that of the pooled samples, or not yet."""
    if terms is None:
        return ()
    notes = []
    if not protocol.is_product:
        notes.append(
            "Divergence: E is not the product of its marginals. The self-terms are those of E's marginals over all "
            "pairs of a domain's agents, so this is not 0 for equal samples, and may be negative."
        )
    if not terms.status.converged:
        notes.append(
            f"Divergence: the self-terms have not converged, their marginal error is {terms.marginal_error:.1e} after "
            f"{terms.rounds} rounds; raise --rounds."
        )
    return tuple(notes)


def reference_notes(reference: ReferenceValues | None) -> tuple[str, ...]:
    if reference is None or reference.error <= POT_TOLERANCE:
        return ()
    return (
        f"Reference: POT used all its rounds and is at a marginal error of {reference.error:.1e} (L2); the "
        "parts of the error are no better known than that.",
    )


def gromov_reference_notes(wanted: bool, reference: GromovReference | None) -> tuple[str, ...]:
    if not wanted or reference is not None:
        return ()
    return ("Reference: POT's scaling form overflowed at this eps and gave no values; a larger eps would have some.",)
