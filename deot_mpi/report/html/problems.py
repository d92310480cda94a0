"""What single problems add: where the starts of Gromov-Wasserstein ended, and P; labels, and how eps was chosen."""

from __future__ import annotations

from deot_mpi.report.html.numbers import Facts, count, in_bytes, number, plural, seconds, small
from deot_mpi.report.page import (
    Bar,
    Curve,
    Level,
    Markup,
    Section,
    bars,
    chart,
    facts,
    figure,
    heat_map,
    paragraph,
    section,
    side_by_side,
    table,
)

_LISTED = 40


def alignment(result: Facts) -> Section:
    """Gromov-Wasserstein: the ends of the starts, best first, and the alignment of the best."""
    ranked = sorted(enumerate(result["starts"], 1), key=lambda one: _last(one[1]["value"]))
    best = ranked[0][1]["value"]
    rows = [
        [
            f"start {place}", number(start["value"], 8), small(_above(start["value"], best)), start["outer"],
            start["rounds"], small(start["gap"]), start["status"],
        ]
        for place, start in ranked
    ]  # fmt: skip
    columns = ["start", "regularised cost", "above the best", "alignments", "rounds", "gap of P", "why it stopped"]
    P = [[value or 0.0 for value in row] for row in result["alignment"]]  # a diverged run's are not finite
    shape = f"P ({len(P)} x {len(P[0])})"
    picture = heat_map(P, "source columns", "target columns", lambda value: f"{value:.2g}")
    terms = [(name, number(value)) for name, value in result["self_terms"].items()]
    if result["alpha"] < 1.0:
        terms.append(("alpha", f"{result['alpha']:g} of structure, {1.0 - result['alpha']:g} of features"))
    words = (
        f"The problem is not convex in the alignment P: of {plural(len(ranked), 'start')} run to the end, the best "
        f"whose marginals hold is kept. The ends lie {number(result['spread'], 3)} apart; 0 means that all found the "
        "same optimum, a large number that more starts may find a better one."
    )
    return section(
        "Starts and alignment",
        paragraph(words),
        table(columns, rows, "Gap of P: 0 where P is half the mean of x y^T under its own plan (stationary)."),
        side_by_side(
            figure(picture, f"{shape}: blue above 0, orange below; the stronger, the larger.", "Alignment P"),
            figure(facts(terms), "The parts of the cost within the domains (S_XY from both).", "Within the domains"),
        ),
    )


def _last(value: float | None) -> float:
    return float("inf") if value is None else value


def _above(value: float | None, best: float | None) -> float | None:
    return None if value is None or best is None else value - best


def labels(result: Facts) -> Section:
    """Domain adaptation: how many labels were right, where they are known, and how eps was chosen."""
    targets = [one for one in result["agents"] if one["role"] == "target"]
    pairs = list(zip(targets, result["accuracies"], strict=True))
    drawn = []
    known = [Bar(f"target {one['index']}", (share,)) for one, share in pairs if share is not None]
    if known and len(known) <= _LISTED:
        title = "Accuracy by target agent"
        drawn.append(
            figure(bars(known, ["accuracy"], lambda share: f"{share:.2%}"), "Share of rows labelled rightly.", title)
        )
    choice = result["eps_choice"]
    if choice is not None:
        drawn.append(_choice(choice))
    rows = [[f"target {one['index']}", count(one["samples"]), _share(share)] for one, share in pairs]
    rows.append(["all", count(sum(one["samples"] for one in targets)), _share(result["accuracy"])])
    classes = zip(result["classes"], result["class_shares"], strict=True)
    words = (
        f"Method {result['method']}: {plural(len(result['classes']), 'class')[:-1] + 'es'} among the sources. "
        "Each target agent keeps its own predictions (--save); known target labels are used for this count alone."
    )
    return section(
        "Labels",
        paragraph(words),
        side_by_side(*drawn),
        side_by_side(
            table(["target agent", "rows", "accuracy"], rows),
            table(["class", "share of the sources' mass"], [[name, f"{share:.2%}"] for name, share in classes]),
        ),
    )


def _share(accuracy: float | None) -> str:
    return "not known" if accuracy is None else f"{accuracy:.2%}"


def _choice(choice: Facts) -> Markup:
    scales, scores = ([one[key] for one in choice["scores"]] for key in ("scale", "score"))
    picture = chart(
        [Curve("source rows labelled rightly by way of the targets", scales, scores)],
        "eps, as a share of the mean cost", "mean over classes", log_x=True,
        levels=[Level(choice["chosen"], f"chosen: {choice['chosen']:g}", upright=True)],
    )  # fmt: skip
    words = (
        "Reverse validation, without target labels; the largest eps within 5 % of the best is taken. It took "
        f"{seconds(choice['seconds'])} and {in_bytes(choice['bytes'])} on the edges, which are not in the ledger."
    )
    return figure(picture, words, title="How eps was chosen")
