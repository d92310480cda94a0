"""An audit: the verdict, the attacks, the frontier of protection against accuracy."""

from __future__ import annotations

from deot_mpi.report.html.numbers import Facts, number
from deot_mpi.report.page import (
    Bar,
    Curve,
    Level,
    Section,
    bars,
    chart,
    figure,
    note,
    paragraph,
    section,
    side_by_side,
    table,
)
from deot_mpi.report.page import tiles as tiles_of

_PROTECTED = 0.5
"""A recovery error above which a row counts as protected, as --max-recovery is used."""


def verdict(result: Facts) -> Section:
    strongest = next(one for one in result["attacks"] if one["name"] == result["strongest"])
    median = strongest["median_recovery_error"]
    off = result["distance_error"]
    known = [
        (
            "recovery error",
            number(median, 3),
            f"|y^ - y|/|y| of a typical row by '{result['strongest']}'; 0 is recovery",
        ),
        (
            "error of W~",
            "not measured" if off is None else f"{off:.2%}",
            "relative, of the distance itself (--reference)",
        ),
        (
            "Q",
            str(result["bits"]),
            f"bits a row; Q/D = {result['bits'] / result['dimension']:.3g}, D = {result['dimension']}",
        ),
        ("flip", f"{result['settings']['flip']:g}", "chance that a bit is turned round before it is sent"),
    ]
    head, _, rest = result["verdict"].partition(": ")
    kind = "bad" if median is not None and median < _PROTECTED else "good"
    said = note(kind, rest, word=head + ":") if rest else note(kind, result["verdict"])
    return section(
        "The answer", said, tiles_of(known), paragraph(f"eps = {number(result['eps'])} (cost units).", quiet=True)
    )


def attacks(result: Facts) -> Section:
    rows = []
    for one in result["attacks"]:
        low, median, high = one["quantiles"] or (None, None, None)
        worst = one["worst_agent"] if one["quantiles"] else one["worst_score"]
        cells = ["" if value is None else f"{value:.3f}" for value in (low, median, high, worst)]
        rows.append([one["name"], *cells, "" if one["score"] is None else f"{one['score']:.1%}"])
    found = [Bar(one["name"], (one["median_recovery_error"],)) for one in result["attacks"] if one["quantiles"]]
    picture = bars(found, ["median recovery error"], lambda value: f"{value:.3f}", width=760)
    return section(
        "Attacks",
        paragraph(
            "Every agent whose sketches are sent attacked some of its own rows as a curious neighbour would. Only "
            "these statistics left it. A neighbour knows other rows, mostly of another domain, and does worse."
        ),
        figure(picture, "Short bars are rows given away: 0 is recovery, 1 no better than a guess of nothing at all."),
        table(
            ["attack", "10 %", "median error", "90 %", "worst agent", "right"],
            rows,
            "Errors |y^ - y|/|y|, medians over agents. Right: of attacks that recover nothing, how often they are "
            "right (worst agent is then the share there).",
        ),
    )


def frontier(result: Facts) -> Section:
    points = result["frontier"]
    rates = sorted({point["flip"] for point in points})
    over_bits, against = [], []
    for place, rate in enumerate(rates):
        mine = [point for point in points if point["flip"] == rate]
        label = f"flips of {rate:g}" if rate else "no flips"
        errors = [point["strongest"] for point in mine]
        hints = [_hint(point) for point in mine]
        over_bits.append(Curve(label, [point["ratio"] for point in mine], errors, dash=place % 4, hints=hints))
        against.append(Curve(label, errors, [point["distance_error"] for point in mine], dash=place % 4, hints=hints))
    strongest = "recovery error of the strongest attack"
    drawn = [
        figure(
            chart(
                over_bits,
                "Q/D, bits per column",
                strongest,
                log_x=True,
                levels=[Level(_PROTECTED, "half a row's length")],
            ),
            "Up: protected. More bits tell more, flips tell less.",
        )
    ]
    if any(point["distance_error"] for point in points):
        level = Level(_PROTECTED, "half a row's length", upright=True)
        picture = chart(against, strongest, "relative error of W~", log_y=True, levels=[level])
        drawn.append(
            figure(picture, "Right and down is better: protected, and a distance worth having (the paper's Fig. 4).")
        )
    names = list(points[0]["recovery_errors"])
    rows = [
        [point["bits"], f"{point['ratio']:g}", f"{point['flip']:g}"]
        + [f"{point['recovery_errors'][name]:.3f}" for name in names]
        + ["not known" if point["distance_error"] is None else f"{point['distance_error']:.4f}"]
        for point in points
    ]
    return section("Frontier", side_by_side(*drawn), table(["Q", "Q/D", "flip", *names, "error of W~"], rows))


def _hint(point: Facts) -> str:
    off = "" if point["distance_error"] is None else f", W~ off by {point['distance_error']:.2%}"
    return f"Q = {point['bits']}, flips of {point['flip']:g}: recovery error {point['strongest']:.3f}{off}"
