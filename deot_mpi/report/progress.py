"""What a person sees while it runs: one live line, plain lines now and then, or nothing."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from deot_mpi.options import AdaptOptions, EOTOptions, GromovOptions
from deot_mpi.result import SelfTermPoint, TracePoint

_LAUNCHERS = ("prterun", "prted", "orterun", "orted", "mpirun", "mpiexec", "hydra")
_PLAIN_SECONDS = 2.0
WIDTH = 110


def terminal_behind_launcher(descriptor: int) -> bool:
    """Whether a person looks at 1 (output) or 2 (errors). Open MPI gives ranks a terminal of their own, so the
    launcher's descriptor decides."""
    try:
        parent = Path("/proc") / str(os.getppid())
        if (parent / "comm").read_text().startswith(_LAUNCHERS):
            return os.readlink(parent / "fd" / str(descriptor)).startswith(("/dev/pts/", "/dev/tty"))
    except OSError:
        pass  # no /proc, or not ours to read
    return os.isatty(descriptor)


class ProgressLine:
    """One line that is rewritten (``live``), lines now and then (``plain``), or silence (``none``)."""

    def __init__(self, style: str, options: EOTOptions | GromovOptions) -> None:
        self._live = style == "live" or (style == "auto" and terminal_behind_launcher(2))
        self._silent = style == "none"
        self._options, self._spoken = options, -_PLAIN_SECONDS
        self._console = Console(file=sys.stderr, force_terminal=self._live, width=WIDTH, markup=False)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[facts]}"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        total = options.starts * options.outer if isinstance(options, GromovOptions) else options.rounds
        self._task = self._bar.add_task("", total=total, facts="setting up")

    def __enter__(self) -> ProgressLine:
        if self._live and not self._silent:
            self._bar.start()
        return self

    def __call__(self, point: TracePoint) -> None:
        if self._silent:
            return
        where, done, symbol = self._where(point)
        sent = f"{point.bytes / 1e6:.1f} MB sent"
        facts = (
            f"{symbol} {point.objective:.8g}  marginal error {point.error:.1e} (tol {self._options.tol:.0e})  {sent}"
        )
        if point.temperature != 1.0:
            facts += f"  at {point.temperature:g} eps"
        if self._live:
            self._bar.update(self._task, description=where, completed=done, facts=facts)
        elif time.monotonic() - self._spoken >= _PLAIN_SECONDS:
            self._spoken = time.monotonic()
            self._console.print(f"{where}  {facts}  {point.seconds:.1f} s", highlight=False)

    def _where(self, point: TracePoint) -> tuple[str, int, str]:
        options = self._options
        if isinstance(options, GromovOptions):
            done = point.start * options.outer + point.outer
            return f"start {point.start + 1}/{options.starts} alignment {point.outer}", done, "GW"
        if point.trial and isinstance(options, AdaptOptions):
            return f"choosing eps, run {point.trial}/{options.trials}, round {point.round}", 0, "W~"
        if isinstance(point, SelfTermPoint):
            return f"self-terms, round {point.round}/{options.rounds}", 0, "sum of W~"
        return f"round {point.round}/{options.rounds}", point.round, "W~"

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live and not self._silent:
            self._bar.stop()
