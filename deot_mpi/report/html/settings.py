"""What, with the samples, makes the run repeatable; and how to read the page."""

from __future__ import annotations

from deot_mpi.report.html.numbers import Facts
from deot_mpi.report.page import Section, bullets, command, folded, paragraph, section, table

_VALUES = (
    "dual_objective is what the paper calls W~; regularised_cost, transport_cost and entropy_cost are other readings "
    "of the same plan, as other programs report them. Compare like with like: never one with another."
)
_RUN = (
    "Marginal error: a plan moves all mass of every row only when it is 0. Values are exact for the plan at hand; they "
    "are those of the optimum once the marginal error is small against what you want to know.",
    "The graph E says who may speak with whom. Where E is not p q^T, marginals and support are E's, and the value is "
    "another problem's: sigma says how far, the error section (with --reference) what that changed.",
    "The ledger counts what this program sent, not what the network made of it. Collectives are apart: MPI chooses "
    "their paths.",
    "Seconds and memory are this machine's; values are the same for the same seed, samples and number of agents, but "
    "for noise (--flip, --norm-step, --pairwise-seeds) and --patience.",
)
_GROMOV = (
    "Gromov-Wasserstein compares distances within each domain, so its cost is a squared difference of squared "
    "distances. A value is that of the best local optimum found: look at the spread of the starts before you trust it.",
)
_ADAPT = (
    "The transport values are a means here; what counts are the labels. Accuracy is known only where target files "
    "have y.",
)
_AUDIT = (
    "A recovery error is |y^ - y|/|y| for a typical row: at 0.1 a neighbour has the row but for a tenth of its length, "
    "at 1 it is no nearer than one who guesses 0. The strongest attack counts, and only attacks that were tried are in "
    "it.",
    "The frontier shows what other numbers of bits and flips would do to these rows. It is about recovery of rows: "
    "membership and linking have their own lines among the attacks.",
)


def settings(result: Facts, line: str) -> Section:
    """All options by the names of their flags, and the command line."""
    chosen = result["settings"]
    rows = [[name.replace("_", "-"), _shown(value)] for name, value in chosen.items() if value is not None]
    return section(
        "Settings",
        paragraph("The command of this run; it repeats it where the samples and the number of ranks are the same."),
        command(line),
        folded("All settings", table(["option", "value"], rows)),
    )


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and value and isinstance(value[0], list):
        return f"a matrix, {len(value)} x {len(value[0])}"
    return ", ".join(f"{one}" for one in value) if isinstance(value, list) else str(value)


def how_to_read(result: Facts) -> Section:
    problem = result["settings"]["problem"]
    if problem == "audit":
        return section("How to read this", bullets(_AUDIT))
    own = {"gromov": _GROMOV, "adapt": _ADAPT}.get(problem, ())
    return section("How to read this", bullets((_VALUES, *own, *_RUN)))
