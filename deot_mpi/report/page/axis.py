"""Where ticks go and what they say."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

LETTER = 7.0
"""Pixels of a letter at 12 pixels' height, wide ones included."""


def text_width(text: str) -> float:
    return LETTER * len(text)


@dataclass(frozen=True)
class Axis:
    """A range of numbers on a range of pixels. On a logarithmic one, what is not positive has no place."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        if self.log:
            share = (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def shows(self, value: float | None) -> bool:
        """Whether there is a place for it."""
        return value is not None and math.isfinite(value) and self.low <= value <= self.high

    def kept_in(self, value: float) -> float:
        """The nearest number that has a place."""
        return min(max(value, self.low), self.high)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        values = _log_ticks(self.low, self.high, most) if self.log else _linear_ticks(self.low, self.high, most)
        return list(zip(values, _labels(values, self.log), strict=True))


def usable(values: Iterable[float | None], log: bool) -> list[float]:
    """The values that an axis of the kind can show."""
    return [value for value in values if value is not None and math.isfinite(value) and (value > 0 or not log)]


def span(values: Iterable[float | None], log: bool, *, room: float = 0.05) -> tuple[float, float]:
    """From the least to the greatest, with a little room; never empty."""
    known = usable(values, log)
    if not known:
        return (0.1, 1.0) if log else (0.0, 1.0)
    low, high = min(known), max(known)
    if log:
        factor = max((high / low) ** room, 1.15)
        return low / factor, high * factor
    width = (high - low) * room or abs(high) * 1e-3 or 1.0
    return low - width, high + width


def _linear_ticks(low: float, high: float, most: int) -> list[float]:
    rough = (high - low) / max(most, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= 0.8 * rough)
    first = math.ceil(low / step - 1e-9)
    return [place * step for place in range(first, math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last - first >= 1:
        every = math.ceil((last - first + 1) / most)
        return [10.0**power for power in range(first, last + 1) if (power - first) % every == 0]
    fine = [10.0**power * digit for power in range(first - 1, last + 1) for digit in (1, 2, 5)]
    inside = [value for value in fine if low <= value <= high]
    return inside if len(inside) >= 2 else _linear_ticks(low, high, min(most, 4))


def _labels(values: list[float], log: bool) -> list[str]:
    if log and any(value < 1e-3 or value >= 1e5 for value in values):
        return [f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e+") for value in values]
    if log or len(values) < 2:
        return [f"{value:g}" for value in values]
    step, largest = values[1] - values[0], max(abs(value) for value in values)
    if largest >= 1e6 or step < 1e-6:
        digits = max(0, math.ceil(math.log10(largest / step)))
        return [f"{value:.{digits}e}" if value else "0" for value in values]
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return [f"{value:.{decimals}f}" for value in values]
