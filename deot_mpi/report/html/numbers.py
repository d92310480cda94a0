"""Numbers as a report says them. None is what a diverged run's infinities have become."""

from __future__ import annotations

from typing import Any

Facts = dict[str, Any]
"""A result, or a part of it, in its JSON form."""
_SIZES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


def number(value: float | None, digits: int = 6) -> str:
    return "not finite" if value is None else f"{value:.{digits}g}"


def small(value: float | None) -> str:
    """An error: its size, not its digits."""
    return "not finite" if value is None else "0" if value == 0 else f"{value:.1e}"


def count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def byte_unit(most: float) -> tuple[float, str]:
    """The unit in which numbers up to ``most`` are short."""
    return next((size, name) for size, name in _SIZES if most >= size or name == "B")


def in_bytes(value: float) -> str:
    size, name = byte_unit(value)
    return f"{value / size:.3g} {name}"


def seconds(value: float) -> str:
    return f"{value:.2f} s" if value < 100 else f"{value:.0f} s"


def plural(amount: int, name: str) -> str:
    return f"{amount:,} {name}" + ("" if amount == 1 else "s")
