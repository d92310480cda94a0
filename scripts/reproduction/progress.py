"""How far it is, and how long it will still take: by what runs took so far, and at first by what they should take."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console

_PRIOR_SHARE = 0.05
"""The first estimate counts as much as this share of all work, so that one odd run does not overrule it."""
_LINE_SECONDS = 10.0
"""Between two lines where nobody watches a terminal."""


class Estimate:
    """Seconds left, from weights: seconds that each run would take on two quiet cores."""

    def __init__(self, total: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self.done, self._clock, self._started = total, 0.0, clock, clock()

    @property
    def elapsed(self) -> float:
        return self._clock() - self._started

    @property
    def left(self) -> float:
        prior = _PRIOR_SHARE * self.total
        pace = (self.elapsed + prior) / (self.done + prior) if self.total else 1.0
        return max(self.total - self.done, 0.0) * pace


def spoken(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


class Watch:
    """Says what was done last and what is left: in one line that changes, or line by line in a log."""

    def __init__(self, console: Console, estimate: Estimate) -> None:
        self._console, self.estimate, self._said = console, estimate, -_LINE_SECONDS
        self._line = console.status("starting")
        if console.is_terminal:
            self._line.start()

    def done(self, what: str, weight: float) -> None:
        estimate = self.estimate
        estimate.done += weight
        share = estimate.done / estimate.total if estimate.total else 1.0
        text = f"{share:4.0%}  {what}; {spoken(estimate.elapsed)} so far, about {spoken(estimate.left)} left"
        if self._console.is_terminal:
            self._line.update(text)
        elif estimate.elapsed - self._said >= _LINE_SECONDS:
            self._said = estimate.elapsed
            self._console.print(text, highlight=False)

    def close(self) -> None:
        self._line.stop()
