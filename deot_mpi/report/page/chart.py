"""Curves over a pair of axes, as SVG: points that say their numbers when pointed at, a legend that is ordinary text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deot_mpi.report.page.axis import Axis, span, text_width
from deot_mpi.report.page.markup import Markup, element

SERIES = 7
"""Colours of style.css; curves beyond that differ by dashes and marks."""
_DASHES = (None, "7 4", "2 3", "9 3 2 3")
_APART = 8.0
"""Pixels between two marks of one curve, at least; points between them are part of its line only."""
Numbers = Sequence[float | None]


@dataclass(frozen=True)
class Curve:
    """``low`` and ``high`` make a band; ``colour`` is 0 to 6 (by default the curve's place), ``dash`` 0 (none) to 3.

    ``hints``: what a point says when pointed at, by default its numbers. None and infinities are left out.
    """

    label: str
    x: Numbers
    y: Numbers
    low: Numbers | None = None
    high: Numbers | None = None
    colour: int | None = None
    dash: int = 0
    line: bool = True
    marks: bool = True
    hints: Sequence[str] | None = None


@dataclass(frozen=True)
class Level:
    """A dotted line at one value, named in the legend; ``upright`` for one at a value of x."""

    value: float
    label: str
    upright: bool = False


def chart(
    curves: Sequence[Curve],
    x_label: str,
    y_label: str,
    *,
    levels: Sequence[Level] = (),
    log_x: bool = False,
    log_y: bool = False,
    x_range: tuple[float, float] | None = None,
    y_range: tuple[float, float] | None = None,
    size: tuple[int, int] = (540, 300),
    described: str = "",
) -> Markup:
    """An SVG of ``size`` (it shrinks with the page) and below it the legend. Ranges are those of curves and levels."""
    xs = [value for curve in curves for value in curve.x] + [one.value for one in levels if one.upright]
    ys = [value for curve in curves for part in (curve.y, curve.low, curve.high) for value in part or ()]
    ys += [one.value for one in levels if not one.upright]
    low, high = y_range or span(ys, log_y)
    width, height = size
    upright = Axis(low, high, height - 44.0, 30.0, log_y)
    ticks = upright.ticks(6)
    left = max((text_width(label) for _, label in ticks), default=20.0) + 14.0
    across = Axis(*(x_range or span(xs, log_x, room=0.02)), left, width - 14.0, log_x)
    parts = [*_frame(across, upright, ticks, x_label, y_label)]
    parts += [_level(one, across, upright) for one in levels]
    parts += [part for place, curve in enumerate(curves) for part in _curve(curve, place, across, upright)]
    drawing = element(
        "svg", element("title", described or f"{y_label} over {x_label}"), *parts,
        viewBox=f"0 0 {width} {height}", width=width, height=height, role="img",
    )  # fmt: skip
    return Markup(drawing + _legend(curves, levels))


def _frame(across: Axis, upright: Axis, ticks: list[tuple[float, str]], x_label: str, y_label: str) -> list[Markup]:
    """Axes, grid, ticks; the name of y stands above its axis, lying text being hard to read."""
    left, right, bottom = across.start, across.end, upright.start
    parts = [element("text", y_label, x=0, y=14, class_="label")]
    for value, label in ticks:
        y = upright.at(value)
        parts.append(element("line", x1=left, x2=right, y1=y, y2=y, class_="grid"))
        parts.append(element("text", label, x=left - 7, y=y + 4, text_anchor="end", class_="tick"))
    most = max(2, int((right - left) / 70))
    shown = across.ticks(most)
    while len(shown) > 2 and max(text_width(label) for _, label in shown) + 10 > (right - left) / len(shown):
        most -= 1
        fewer = across.ticks(most)
        shown = fewer if len(fewer) < len(shown) else shown[::2]
    for value, label in shown:
        x = across.at(value)
        parts.append(element("line", x1=x, x2=x, y1=bottom, y2=bottom + 5, class_="axis"))
        # The outermost labels stay inside the picture.
        half = text_width(label) / 2
        parts.append(
            element(
                "text",
                label,
                x=min(max(x, half), right + 14 - half),
                y=bottom + 18,
                text_anchor="middle",
                class_="tick",
            )
        )
    parts.append(element("line", x1=left, x2=right, y1=bottom, y2=bottom, class_="axis"))
    parts.append(element("text", x_label, x=(left + right) / 2, y=bottom + 38, text_anchor="middle", class_="label"))
    return parts


def _level(one: Level, across: Axis, upright: Axis) -> Markup:
    if not (across if one.upright else upright).shows(one.value):
        return Markup("")
    if one.upright:
        x = across.at(one.value)
        line = {"x1": x, "x2": x, "y1": upright.start, "y2": upright.end}
    else:
        y = upright.at(one.value)
        line = {"x1": across.start, "x2": across.end, "y1": y, "y2": y}
    return element("line", element("title", f"{one.label}: {one.value:.6g}"), **line, class_="level")


def _curve(curve: Curve, place: int, across: Axis, upright: Axis) -> list[Markup]:
    colour = (place if curve.colour is None else curve.colour) % SERIES
    parts = []
    if curve.low is not None and curve.high is not None:
        parts.append(_band(curve, colour, across, upright))
    shown = [
        (number, across.at(x), upright.at(y))
        for number, (x, y) in enumerate(zip(curve.x, curve.y, strict=True))
        if x is not None and y is not None and across.shows(x) and upright.shows(y)
    ]
    if curve.line and len(shown) > 1:
        points = " ".join(f"{x:.1f},{y:.1f}" for _, x, y in shown)
        dash = _DASHES[curve.dash % len(_DASHES)]
        parts.append(
            element(
                "polyline",
                element("title", curve.label),
                points=points,
                stroke_dasharray=dash,
                class_=f"curve c{colour}",
            )
        )
    marked: tuple[float, float] | None = None
    for number, x, y in shown if curve.marks else []:
        if curve.line and marked is not None and max(abs(x - marked[0]), abs(y - marked[1])) < _APART:
            continue
        marked = x, y
        hint = (
            f"{curve.label}: {curve.x[number]:.6g}, {curve.y[number]:.6g}"
            if curve.hints is None
            else curve.hints[number]
        )
        parts.append(mark(place, colour, x, y, hint))
    return parts


def _band(curve: Curve, colour: int, across: Axis, upright: Axis) -> Markup:
    rims = [
        (across.at(x), upright.at(upright.kept_in(low)), upright.at(upright.kept_in(high)))
        for x, low, high in zip(curve.x, curve.low or (), curve.high or (), strict=True)
        if x is not None and across.shows(x) and low is not None and high is not None
    ]
    points = [f"{x:.1f},{low:.1f}" for x, low, _ in rims] + [f"{x:.1f},{high:.1f}" for x, _, high in reversed(rims)]
    return element("polygon", points=" ".join(points), class_=f"band f{colour}")


def mark(place: int, colour: int, x: float, y: float, hint: str = "") -> Markup:
    """A curve's mark: its shape tells it apart where colour does not."""
    title = element("title", hint) if hint else ""
    style = f"f{colour}"
    shape = place % 4
    if shape == 0:
        return element("circle", title, cx=x, cy=y, r=3.4, class_=style)
    if shape == 1:
        return element("rect", title, x=x - 3, y=y - 3, width=6, height=6, class_=style)
    corners = ((0, -4.2), (4, 3.2), (-4, 3.2)) if shape == 2 else ((0, -4.5), (4.5, 0), (0, 4.5), (-4.5, 0))
    points = " ".join(f"{x + across:.1f},{y + down:.1f}" for across, down in corners)
    return element("polygon", title, points=points, class_=style)


def _legend(curves: Sequence[Curve], levels: Sequence[Level]) -> Markup:
    entries: list[tuple[str, Sequence[object]]] = []
    for place, curve in enumerate(curves):
        colour = (place if curve.colour is None else curve.colour) % SERIES
        dash = _DASHES[curve.dash % len(_DASHES)]
        line = element("line", x1=0, x2=26, y1=6, y2=6, stroke_dasharray=dash, class_=f"curve c{colour}")
        drawn = (line if curve.line else "", mark(place, colour, 13.0, 6.0) if curve.marks else "")
        entries.append((curve.label, drawn))
    dotted = element("line", x1=0, x2=26, y1=6, y2=6, class_="level")
    entries += [(one.label, (dotted,)) for one in levels]
    return legend(entries) if len(entries) > 1 else Markup("")


def legend(entries: Sequence[tuple[str, Sequence[object]]]) -> Markup:
    """Names with a small drawing each (26 by 12 pixels), in a line that wraps."""
    keys = [
        (element("svg", *drawn, width=26, height=12, viewBox="0 0 26 12", aria_hidden="true"), label)
        for label, drawn in entries
    ]
    return element("div", *(element("span", key, label) for key, label in keys), class_="legend")
