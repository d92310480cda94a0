"""Building blocks of a page that stands alone: one HTML file, no script, nothing loaded, light and dark, printable.

Whatever is not ``Markup`` is text and is escaped. A page is a list of sections, a section a list of parts::

    from deot_mpi.report.page import Claim, Curve, Level, chart, claims, figure, page, section, side_by_side, table

    curve = Curve("raw", rounds, mean, low=least, high=greatest)
    drawn = figure(chart([curve], "round", "W~", levels=[Level(1.93, "Sinkhorn")]), "Mean and range of 5 seeds.")
    text = page("Title", [
        section("Results", side_by_side(drawn, drawn), table(["Q", "error"], [[100, 0.02]])),
        section("Claims", claims([Claim("Q = 100 is tolerable", "2.0 % off", True)])),
    ])
    write_whole(Path("report.html"), lambda file: file.write(text.encode("utf-8", "replace")))
"""

from deot_mpi.report.page.chart import Curve, Level, chart
from deot_mpi.report.page.markup import Markup, element, escaped, joined
from deot_mpi.report.page.parts import (
    Claim,
    Section,
    bullets,
    claims,
    command,
    facts,
    figure,
    folded,
    heading,
    note,
    page,
    paragraph,
    picture,
    section,
    side_by_side,
    table,
    tiles,
)

__all__ = [
    "Claim",
    "Curve",
    "Level",
    "Markup",
    "Section",
    "bullets",
    "chart",
    "claims",
    "command",
    "element",
    "escaped",
    "facts",
    "figure",
    "folded",
    "heading",
    "joined",
    "note",
    "page",
    "paragraph",
    "picture",
    "section",
    "side_by_side",
    "table",
    "tiles",
]
