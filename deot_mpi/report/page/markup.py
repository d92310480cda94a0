"""Text that is HTML already, and text that is not: whatever is not ``Markup`` is escaped where it enters a page."""

from __future__ import annotations

from html import escape


class Markup(str):
    """HTML or SVG that was made here; never made from what a user typed without ``escaped``."""

    __slots__ = ()


def escaped(value: object) -> Markup:
    """Safe between tags and in attributes. Control characters, which HTML forbids, are shown as such."""
    if isinstance(value, Markup):
        return value
    shown = "".join(letter if letter.isprintable() or letter in "\n\t" else "\ufffd" for letter in str(value))
    return Markup(escape(shown, quote=True))


def joined(*parts: object) -> Markup:
    return Markup("".join(escaped(part) for part in parts))


def element(tag: str, *children: object, **attributes: object) -> Markup:
    """``<tag attributes>children</tag>``. ``class_`` is ``class``, ``_`` in a name is ``-``, None leaves one out."""
    given = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escaped(_short(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{given}>{joined(*children)}</{tag}>")


def _short(value: object) -> object:
    """Coordinates need no more than two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
