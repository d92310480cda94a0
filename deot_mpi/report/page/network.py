"""Who speaks with whom: a graph of two sides, and a map of the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deot_mpi.report.page.axis import text_width
from deot_mpi.report.page.markup import Markup, element

_ROW = 36
_ALONG = (0.5, 0.38, 0.62, 0.3, 0.7, 0.22, 0.78, 0.16, 0.84)
"""Places on an edge where its number may stand, in the order they are tried."""
_BLOCKS = 64
"""Cells a side beyond which neighbouring ones are drawn as one."""
_CELL, _LEAST_CELL = 40, 7
_SMALL_LETTER = 6.3
"""Pixels of a digit of 11 pixels' height."""
_NUMBERED = 16
"""Rows and columns up to which a map says its numbers."""


@dataclass(frozen=True)
class Edge:
    """From the left side's place ``left`` to the right side's place ``right``."""

    left: int
    right: int
    amount: float
    hint: str = ""


def bipartite(
    left: Sequence[str],
    right: Sequence[str],
    edges: Sequence[Edge],
    shown: Callable[[float], str],
    *,
    width: int = 540,
    described: str = "",
) -> Markup:
    """Nodes with their names, edges the wider and darker the more they carry; numbers on them where all find room."""
    height = max(len(left), len(right)) * _ROW + 8
    ends = max(text_width(name) for name in left) + 14, width - max(text_width(name) for name in right) - 14
    places = [[(height - len(side) * _ROW) / 2 + (k + 0.5) * _ROW for k in range(len(side))] for side in (left, right)]
    most = max((edge.amount for edge in edges), default=0.0) or 1.0
    widest = min(3.0, max(0.6, 80.0 / max(len(edges), 1)))
    drawn: list[Markup] = []
    for edge in sorted(edges, key=lambda one: one.amount):
        share = edge.amount / most
        line = {"x1": ends[0], "y1": places[0][edge.left], "x2": ends[1], "y2": places[1][edge.right]}
        style = {"stroke_width": 0.7 + widest * share, "stroke_opacity": f"{0.15 + 0.6 * share:.2f}"}
        drawn.append(element("line", element("title", edge.hint), **line, **style, class_="c0"))
    for number, (names, x) in enumerate(zip((left, right), ends, strict=True)):
        outside, anchor = (-9, "end") if number == 0 else (9, "start")
        for name, y in zip(names, places[number], strict=True):
            drawn.append(element("circle", cx=x, cy=y, r=5, class_=f"f{1 + number}"))
            drawn.append(element("text", name, x=x + outside, y=y + 4, text_anchor=anchor))
    drawn += _numbers(edges, ends, places, shown)
    title = element("title", described or "edges between both sides")
    return element("svg", title, *drawn, viewBox=f"0 0 {width} {height}", width=width, height=height, role="img")


def _numbers(
    edges: Sequence[Edge], ends: tuple[float, float], places: list[list[float]], shown: Callable[[float], str]
) -> list[Markup]:
    """Each edge's number at the first of its places where no other stands; none at all if one finds no place."""
    taken: list[tuple[float, float, float]] = []
    drawn: list[Markup] = []
    for edge in edges:
        text = shown(edge.amount)
        start, end = places[0][edge.left], places[1][edge.right]
        half = text_width(text) / 2 + 2
        spots = ((ends[0] + t * (ends[1] - ends[0]), start + t * (end - start)) for t in _ALONG)
        free = (
            (x, y)
            for x, y in spots
            if x - half > ends[0] + 8
            and x + half < ends[1] - 8
            and all(abs(x - there) > half + other or abs(y - down) > 15 for there, down, other in taken)
        )
        spot = next(free, None)
        if spot is None:
            return []
        taken.append((*spot, half))
        plate = {"x": spot[0] - half, "y": spot[1] - 7, "width": 2 * half, "height": 14, "rx": 3}
        drawn.append(element("rect", **plate, class_="plate"))
        drawn.append(element("text", text, x=spot[0], y=spot[1] + 4, text_anchor="middle", class_="small"))
    return drawn


def heat_map(
    values: Sequence[Sequence[float]],
    rows: str,
    columns: str,
    shown: Callable[[float], str],
    *,
    row_names: Sequence[str] = (),
    column_names: Sequence[str] = (),
    width: int = 540,
    described: str = "",
) -> Markup:
    """The darker, the more. Up to 16 by 16 cells say their numbers; from 64 on, neighbouring rows and columns are one.

    ``rows`` and ``columns`` name the sides; ``row_names`` and ``column_names`` are numbers by default.
    """
    blocks = _blocked(values)
    step_down, step_across = (-(-size // _BLOCKS) for size in (len(values), len(values[0])))
    down, across = len(blocks), len(blocks[0])
    names = [list(row_names) or [str(k * step_down) for k in range(down)]]
    names.append(list(column_names) or [str(k * step_across) for k in range(across)])
    left = max(text_width(name) for name in names[0]) + 10
    cell = max(_LEAST_CELL, min(_CELL, (width - left - 4) / across))
    top, most = 40.0, max(max(map(abs, row)) for row in blocks) or 1.0
    numbered = max(down, across) <= _NUMBERED and all(
        _SMALL_LETTER * len(shown(value)) <= cell for row in blocks for value in row if value
    )
    drawn = [element("text", columns, x=left, y=13), *_names(names, left, top, cell)]
    for i, row in enumerate(blocks):
        for j, value in enumerate(row):
            x, y, share = left + j * cell, top + i * cell, abs(value) / most
            hint = element("title", f"{rows} {names[0][i]}, {columns} {names[1][j]}: {shown(value)}")
            box = {"x": x, "y": y, "width": cell, "height": cell, "fill_opacity": f"{0.04 + 0.96 * share:.3f}"}
            drawn.append(element("rect", hint, **box, class_=f"cell f{0 if value >= 0 else 1}"))
            if numbered and value:
                tone = "small on" if share > 0.6 else "small"
                middle = {"x": x + cell / 2, "y": y + cell / 2 + 4}
                drawn.append(element("text", shown(value), **middle, text_anchor="middle", class_=tone))
    size = max(left + across * cell + 4, left + text_width(columns)), top + down * cell + 24
    drawn.append(element("text", f"{rows} (down)", x=left, y=size[1] - 6))
    size = max(size[0], left + text_width(f"{rows} (down)")), size[1]
    title = element("title", described or f"{rows} and {columns}")
    box = {"viewBox": f"0 0 {size[0]:.0f} {size[1]:.0f}", "width": f"{size[0]:.0f}", "height": f"{size[1]:.0f}"}
    return element("svg", title, *drawn, **box, role="img")


def _names(names: list[list[str]], left: float, top: float, cell: float) -> list[Markup]:
    """Of rows and columns; every second, third, ... where there is no room for all."""
    drawn = []
    every = max(1, -(-13 // max(int(cell), 1)))
    for i, name in list(enumerate(names[0]))[::every]:
        y = top + (i + 0.5) * cell + 4
        drawn.append(element("text", name, x=left - 6, y=y, text_anchor="end", class_="tick small"))
    longest = max(text_width(name) for name in names[1]) + 4
    every = max(1, int(-(-longest // cell)))
    for j, name in list(enumerate(names[1]))[::every]:
        x = left + (j + 0.5) * cell
        drawn.append(element("text", name, x=x, y=top - 7, text_anchor="middle", class_="tick small"))
    return drawn


def _blocked(values: Sequence[Sequence[float]]) -> list[list[float]]:
    """The values, or sums over blocks of them where there are too many to draw."""
    down, across = (-(-size // _BLOCKS) for size in (len(values), len(values[0])))
    return [
        [
            sum(value for row in values[i : i + down] for value in row[j : j + across])
            for j in range(0, len(values[0]), across)
        ]
        for i in range(0, len(values), down)
    ]
