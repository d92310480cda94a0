"""What a person sees: one live line while it runs, a table at the end."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import TracebackType

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from deot_mpi.result import EOTResult, TracePoint

_LAUNCHERS = ("prterun", "prted", "orterun", "orted", "mpirun", "mpiexec", "hydra")
_PLAIN_SECONDS = 2.0
_WIDTH = 110

_MEANINGS = {
    "dual_objective": "F(u,v), the paper's W~_eps",
    "regularised_cost": "F + eps = <C,pi> + eps KL(pi|R); OTT reg_ot_cost, GeomLoss value",
    "transport_cost": "<C,pi>; POT sinkhorn2",
    "entropy_cost": "<C,pi> - eps H(pi), the paper's eq. 2",
}


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

    def __init__(self, style: str, rounds: int, tol: float) -> None:
        self._live = style == "live" or (style == "auto" and terminal_behind_launcher(2))
        self._silent = style == "none"
        self._rounds, self._tol, self._spoken = rounds, tol, -_PLAIN_SECONDS
        self._console = Console(file=sys.stderr, force_terminal=self._live, width=_WIDTH, markup=False)
        self._bar = Progress(
            TextColumn("round {task.completed:>6.0f}/{task.total:.0f}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[facts]}"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task("", total=rounds, facts="setting up")

    def __enter__(self) -> ProgressLine:
        if self._live and not self._silent:
            self._bar.start()
        return self

    def __call__(self, point: TracePoint) -> None:
        if self._silent:
            return
        sent = f"{point.bytes / 1e6:.1f} MB sent"
        facts = f"W~ {point.objective:.8g}  marginal error {point.error:.1e} (tol {self._tol:.0e})  {sent}"
        if point.temperature != 1.0:
            facts += f"  at {point.temperature:g} eps"
        if self._live:
            self._bar.update(self._task, completed=point.round, facts=facts)
        elif time.monotonic() - self._spoken >= _PLAIN_SECONDS:
            self._spoken = time.monotonic()
            self._console.print(f"round {point.round}/{self._rounds}  {facts}  {point.seconds:.1f} s", highlight=False)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live and not self._silent:
            self._bar.stop()


def print_result(result: EOTResult) -> None:
    """The closing table, to standard output."""
    console = Console(force_terminal=terminal_behind_launcher(1), width=_WIDTH, highlight=False, markup=False)
    console.print(_values_table(result))
    console.print(_run_table(result))
    if result.errors is not None:
        console.print(_errors_table(result))
    console.print(_ledger_table(result))
    for note in result.notes:
        console.print(f"- {note}")


def _values_table(result: EOTResult) -> Table:
    table = Table(title="Entropic optimal transport, in cost units", title_justify="left")
    table.add_column("value")
    table.add_column("this run", justify="right")
    if result.reference is not None:
        table.add_column("centralised (POT)", justify="right")
    table.add_column("what it is")
    for name, meaning in _MEANINGS.items():
        row = [name, f"{getattr(result.values, name):.10g}"]
        if result.reference is not None:
            row.append(f"{getattr(result.reference.centralised, name):.10g}")
        table.add_row(*row, meaning)
    return table


def _run_table(result: EOTResult) -> Table:
    table = Table(show_header=False, title="Run", title_justify="left")
    table.add_row("status", f"{result.status.text}, after {result.rounds} rounds")
    worst = max(result.agents, key=lambda agent: agent.marginal_error)
    share = f"largest share: {worst.role} agent {worst.index}, {worst.marginal_error:.2e}"
    table.add_row("marginal error", f"{result.marginal_error:.2e} (L1); {share}")
    table.add_row("agents", f"{_count(result, 'source')}, {_count(result, 'target')}")
    table.add_row("eps", f"{result.eps:.6g}")
    settings = result.settings
    bits = f", {settings['bits']} bits, {settings['estimator']}" if settings["kernel"] == "sketch" else ""
    table.add_row("kernel, solver", f"{settings['kernel']}{bits}; {settings['solver']}")
    protocol = result.protocol
    connected = "connected" if protocol.connected else "NOT connected"
    bound = "none" if protocol.tau_sigma is None else f"{protocol.tau_sigma:.3g}"
    where = f" (tau on {protocol.tau_pairs})" if not protocol.is_storage else ""
    mismatch = f"sigma {protocol.sigma:.3g}, tau sigma {bound}{where}"
    table.add_row("protocol E", Text(f"{protocol.name}: {protocol.edges} edges, {connected}, {mismatch}"))
    table.add_row("seconds", _seconds(result))
    peak = sum(agent.peak_memory for agent in result.agents)
    most = max(agent.peak_memory for agent in result.agents)
    table.add_row("peak memory", f"{peak / 1e6:.0f} MB over all agents, {most / 1e6:.0f} MB the largest")
    return table


def _seconds(result: EOTResult) -> str:
    parts = f"{result.setup_seconds:.2f} to set up, {result.seconds:.2f} to solve, {result.values_seconds:.2f} to check"
    waiting = np.mean([agent.waiting_seconds for agent in result.agents])
    return f"{parts}; agents waited {waiting:.2f} on average"


def _count(result: EOTResult, role: str) -> str:
    samples = [agent.samples for agent in result.agents if agent.role == role]
    return f"{len(samples)} {role}s with {sum(samples)} samples"


def _errors_table(result: EOTResult) -> Table:
    errors = result.errors
    assert errors is not None
    table = Table(title="Error of W~ against the centralised value", title_justify="left")
    for column in ("part", "measured", "the paper's bound"):
        table.add_column(column, justify="left" if column == "part" else "right")
    mismatch_bound = f"{errors.mismatch_bound:.3g} (tau sigma)" if errors.mismatch_bound >= 0 else "none (tau <= 0)"
    table.add_row("mismatch of E and p q^T", f"{errors.mismatch:.3e}", mismatch_bound)
    table.add_row("kernel", f"{errors.kernel:.3e}", f"{errors.kernel_bound:.3g} (on ||K-K^||)")
    table.add_row("algorithm", f"{errors.algorithm:.3e}", f"O({errors.algorithm_rate:.3g})")
    table.add_row("total", f"{errors.total:.3e} ({errors.relative_total:.2%})", "")
    return table


def _ledger_table(result: EOTResult) -> Table:
    table = Table(title="Ledger: what was sent", title_justify="left")
    for column in ("kind", "messages on edges", "bytes on edges", "by formula", "bytes in collectives"):
        table.add_column(column, justify="left" if column == "kind" else "right")
    for row in result.ledger.by_kind:
        if row.messages or row.collectives:
            formula = "" if row.formula_bytes is None else f"{row.formula_bytes:,}"
            table.add_row(row.kind, f"{row.messages:,}", f"{row.bytes:,}", formula, f"{row.collective_bytes:,}")
    return table
