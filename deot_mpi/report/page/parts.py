"""What a page is made of: sections, tables, figures, values, claims, notes. Each gives ``Markup`` and escapes text."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from deot_mpi.report.page.markup import Markup, element, escaped, joined

_STYLE = Path(__file__).with_name("style.css")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""The browser itself keeps the page alone: nothing is loaded, and no script runs."""
_NUMBER = re.compile(r"[-+<>≤]?\s*[\d,.]+(e[-+]?\d+)?\s*(%|[kMGT]?B|s|ms)?$|not finite$|—$")
_NOTE_WORDS = {"good": "✓ ", "warn": "⚠ ", "bad": "✗ ", "plain": ""}
_VERDICTS = {True: ("good", "✓ held"), False: ("bad", "✗ did not hold"), None: ("warn", "not measured")}


@dataclass(frozen=True)
class Section:
    title: str
    body: Markup

    @property
    def anchor(self) -> str:
        return re.sub(r"\W+", "-", self.title.lower()).strip("-")


@dataclass(frozen=True)
class Claim:
    """What was said, what was measured, and whether it held; None: nothing to tell by."""

    claim: str
    measured: object
    held: bool | None


def page(title: str, sections: Sequence[Section], *, lead: object = "", closing: object = "") -> str:
    """The whole file: title, lead, links to the sections, the sections, a closing line. Loads nothing, runs nothing."""
    links = element("nav", *(element("a", one.title, href=f"#{one.anchor}") for one in sections), aria_label="Contents")
    body = [element("section", element("h2", one.title), one.body, id=one.anchor) for one in sections]
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{escaped(_POLICY)}">'
        f'<link rel="icon" href="data:,"><title>{escaped(title)}</title>'
        f"<style>{_STYLE.read_text(encoding='utf-8')}</style>"
    )
    header = element("header", element("h1", title), lead, links)
    footer = element("footer", element("p", closing, class_="quiet"))
    main = element("main", *body)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{header}\n{main}\n{footer}</body></html>\n'


def section(title: str, *parts: object) -> Section:
    return Section(title, joined(*parts))


def heading(text: object) -> Markup:
    return element("h3", text)


def paragraph(*text: object, quiet: bool = False) -> Markup:
    return element("p", *text, class_="quiet" if quiet else None)


def bullets(items: Iterable[object]) -> Markup:
    return element("ul", *(element("li", item) for item in items))


def note(kind: str, *text: object, word: str = "") -> Markup:
    """``kind``: good, warn, bad or plain; ``word`` stands first, in bold."""
    return element("div", element("b", _NOTE_WORDS[kind], word, " " if word else ""), *text, class_=f"note {kind}")


def command(text: str) -> Markup:
    """A command line, to be copied."""
    return element("pre", element("code", text))


def folded(summary: str, *parts: object) -> Markup:
    """Shown on demand (and on paper)."""
    return element("details", element("summary", summary), *parts)


def tiles(values: Iterable[tuple[object, object, object]]) -> Markup:
    """The numbers that matter most: (name, value, meaning)."""
    return element("div", *(_tile(*one) for one in values), class_="tiles")


def _tile(name: object, value: object, meaning: object) -> Markup:
    return element(
        "div", element("span", name, class_="name"), element("b", value), element("span", meaning), class_="tile"
    )


def table(columns: Sequence[object], rows: Iterable[Sequence[object]], caption: object = "") -> Markup:
    """A column in which every cell is a number (or empty) stands to the right. Cells may be ``Markup``."""
    cells = [[escaped("" if cell is None else cell) for cell in row] for row in rows]
    numeric = [
        any(row[place] for row in cells) and all(not row[place] or _NUMBER.match(row[place]) for row in cells)
        for place in range(len(columns))
    ]

    def line(tag: str, row: Sequence[object]) -> Markup:
        aligned = zip(row, numeric, strict=True)
        return element("tr", *(element(tag, cell, class_="number" if right else None) for cell, right in aligned))

    head = element("thead", line("th", columns))
    title = element("caption", caption) if caption else ""
    body = element("tbody", *(line("td", row) for row in cells))
    return element("div", element("table", title, head, body), class_="wide")


def facts(pairs: Iterable[tuple[object, object]], caption: object = "") -> Markup:
    """Names and what they are, as a table without a head."""
    title = element("caption", caption) if caption else ""
    rows = (element("tr", element("th", name, scope="row"), element("td", value)) for name, value in pairs)
    return element("div", element("table", title, element("tbody", *rows)), class_="wide")


def claims(entries: Iterable[Claim]) -> Markup:
    """One by one: what was said, what was measured, whether it held."""
    rows = []
    for one in entries:
        kind, word = _VERDICTS[one.held]
        rows.append(
            element("tr", element("td", one.claim), element("td", one.measured), element("td", word, class_=kind))
        )
    head = element("tr", *(element("th", name) for name in ("claim", "measured", "here")))
    return element("div", element("table", element("thead", head), element("tbody", *rows)), class_="wide")


def figure(drawing: Markup, caption: object = "", title: object = "") -> Markup:
    """A drawing (``chart``, ``bars``, ``bipartite``, ``heat_map``, ``picture``) with its words."""
    return element(
        "figure", heading(title) if title else "", drawing, element("figcaption", caption) if caption else ""
    )


def picture(data: bytes, kind: str, described: str) -> Markup:
    """A picture made elsewhere, inside the page: ``kind`` is png, jpeg or svg+xml."""
    encoded = base64.b64encode(data).decode("ascii")
    return Markup(f'<img src="data:image/{escaped(kind)};base64,{encoded}" alt="{escaped(described)}">')


def side_by_side(*parts: object) -> Markup:
    """Beside each other where there is room (from 440 pixels each), below each other where not."""
    return element("div", *parts, class_="side")
