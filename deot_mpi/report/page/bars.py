"""Lying bars, one a row, of one part or several on top of each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deot_mpi.report.page.axis import text_width
from deot_mpi.report.page.chart import SERIES, legend
from deot_mpi.report.page.markup import Markup, element

_ROW, _THICK = 22, 14


@dataclass(frozen=True)
class Bar:
    label: str
    parts: Sequence[float]


def bars(
    rows: Sequence[Bar], names: Sequence[str], shown: Callable[[float], str], *, width: int = 540, described: str = ""
) -> Markup:
    """``names`` are those of the parts, ``shown`` says a number with its unit; the sum stands behind each bar."""
    totals = [sum(row.parts) for row in rows]
    left = max(text_width(row.label) for row in rows) + 8
    room = width - left - max(text_width(shown(total)) for total in totals) - 10
    scale = room / (max(totals) or 1.0)
    drawn: list[Markup] = []
    for number, (row, total) in enumerate(zip(rows, totals, strict=True)):
        middle, x = number * _ROW + _ROW / 2, left
        drawn.append(element("text", row.label, x=left - 8, y=middle + 4, text_anchor="end"))
        for place, (part, name) in enumerate(zip(row.parts, names, strict=True)):
            hint = element("title", f"{row.label}, {name}: {shown(part)}")
            box = {"x": x, "y": middle - _THICK / 2, "width": max(part * scale, 0.0), "height": _THICK}
            drawn.append(element("rect", hint, **box, class_=f"cell f{place % SERIES}"))
            x += part * scale
        drawn.append(element("text", shown(total), x=x + 6, y=middle + 4, class_="tick"))
    height = len(rows) * _ROW + 4
    title = element("title", described or ", ".join(names))
    picture = element("svg", title, *drawn, viewBox=f"0 0 {width} {height}", width=width, height=height, role="img")
    if len(names) < 2:
        return picture
    keys = [
        (name, [element("rect", x=4, y=0, width=18, height=12, class_=f"f{place % SERIES}")])
        for place, name in enumerate(names)
    ]
    return Markup(picture + legend(keys))
