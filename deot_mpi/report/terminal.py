"""What a person sees at the end: the values, how the run went, what was sent, what was disclosed."""

from __future__ import annotations

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from deot_mpi.report.meanings import DIVERGENCE_MEANINGS, EOT_MEANINGS, GROMOV_MEANINGS
from deot_mpi.report.privacy import guarantee_words
from deot_mpi.report.progress import WIDTH, terminal_behind_launcher
from deot_mpi.result import AdaptResult, EOTResult, EpsChoice, ErrorDecomposition, GromovResult, Result, Values

_MOST_STARTS = 10
"""Starts that are listed one by one."""


def print_result(result: Result) -> None:
    """The closing tables, to standard output."""
    console = Console(force_terminal=terminal_behind_launcher(1), width=WIDTH, highlight=False, markup=False)
    if isinstance(result, GromovResult):
        fused = f", fused: alpha = {result.alpha:g}" if result.alpha < 1.0 else ""
        central = None if result.reference is None else result.reference.centralised
        title = f"Entropic Gromov-Wasserstein{fused}, in cost units (squared squared distances)"
        console.print(_values_table(title, result.values, central, GROMOV_MEANINGS))
        console.print(_starts_table(result))
    elif isinstance(result, EOTResult):
        central = None if result.reference is None else result.reference.centralised
        table = _values_table("Entropic optimal transport, in cost units", result.values, central, EOT_MEANINGS)
        if result.self_terms is not None:
            _add_divergence(table, result, central is not None)
        console.print(table)
    elif isinstance(result, AdaptResult):
        if result.choice is not None:
            console.print(_choice_table(result.choice))
        console.print(_accuracy_table(result))
        console.print(_values_table("The transport behind it, in cost units", result.values, None, EOT_MEANINGS))
    console.print(_run_table(result))
    if isinstance(result, EOTResult) and result.errors is not None:
        console.print(_errors_table(result.errors))
    console.print(_ledger_table(result))
    if result.guarantee is not None:
        console.print(guarantee_words(result.guarantee))
    for note in result.notes:
        console.print(f"- {note}")


def _values_table(title: str, values: Values, central: Values | None, meanings: dict[str, str]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("value")
    table.add_column("this run", justify="right")
    if central is not None:
        table.add_column("centralised (POT)", justify="right")
    table.add_column("what it is")
    for name, meaning in meanings.items():
        row = [name, f"{getattr(values, name):.10g}"]
        if central is not None:
            row.append(f"{getattr(central, name):.10g}")
        table.add_row(*row, meaning)
    return table


def _add_divergence(table: Table, result: EOTResult, compared: bool) -> None:
    for name, meaning in DIVERGENCE_MEANINGS.items():
        table.add_row(name, f"{getattr(result, name):.10g}", *[""] * compared, meaning)


def _accuracy_table(result: AdaptResult) -> Table:
    """How many labels were right, where they are known."""
    table = Table(title=f"Domain adaptation, {result.method}: {len(result.classes)} classes", title_justify="left")
    for column in ("target agent", "rows", "accuracy"):
        table.add_column(column, justify="right")
    targets = [agent for agent in result.agents if agent.role == "target"]
    for agent, accuracy in zip(targets, result.accuracies, strict=True):
        table.add_row(str(agent.index), str(agent.samples), _share(accuracy))
    table.add_row("all", str(sum(agent.samples for agent in targets)), _share(result.accuracy))
    return table


def _choice_table(choice: EpsChoice) -> Table:
    title = "eps by reverse validation (no target labels): source rows labelled rightly by way of the targets"
    table = Table(title=title, title_justify="left")
    for column in ("share of the mean cost", "mean over classes", ""):
        table.add_column(column, justify="right")
    for one in choice.scores:
        table.add_row(f"{one.scale:g}", f"{one.score:.4f}", "chosen" if one.scale == choice.chosen else "")
    table.caption = f"{choice.seconds:.1f} s, {choice.bytes / 1e6:.1f} MB; the largest within 5 % of the best"
    return table


def _share(accuracy: float | None) -> str:
    return "not known" if accuracy is None else f"{accuracy:.4f}"


def _starts_table(result: GromovResult) -> Table:
    """Where the starts ended, best first: the problem is not convex in P."""
    table = Table(title=f"Starts: ends lie {result.spread:.3g} apart, the best is kept", title_justify="left")
    for column in ("start", "regularised cost", "above the best", "alignments", "rounds", "gap of P", "status"):
        table.add_column(column, justify="left" if column == "status" else "right")
    ranked = sorted(enumerate(result.starts), key=lambda pair: pair[1].value)
    best = ranked[0][1].value
    for number, start in ranked[:_MOST_STARTS]:
        table.add_row(
            str(number + 1), f"{start.value:.8g}", f"{start.value - best:.2e}", str(start.outer), str(start.rounds),
            f"{start.gap:.1e}", start.status,
        )  # fmt: skip
    return table


def _run_table(result: Result) -> Table:
    table = Table(show_header=False, title="Run", title_justify="left")
    starts = f" in all {len(result.starts)} start(s)" if isinstance(result, GromovResult) else ""
    table.add_row("status", f"{result.status.text}, after {result.rounds} rounds{starts}")
    if isinstance(result, EOTResult) and result.self_terms is not None:
        terms = result.self_terms
        error = f"marginal error {terms.marginal_error:.2e}"
        table.add_row("self-terms", f"{terms.status.text}, after {terms.rounds} rounds; {error}; {terms.seconds:.2f} s")
    worst = max(result.agents, key=lambda agent: agent.marginal_error)
    share = f"largest share: {worst.role} agent {worst.index}, {worst.marginal_error:.2e}"
    table.add_row("marginal error", f"{result.marginal_error:.2e} (L1); {share}")
    hosts = len({agent.host for agent in result.agents})
    where = f", on {hosts} hosts" if hosts > 1 else ""
    table.add_row("agents", f"{_count(result, 'source')}, {_count(result, 'target')}{where}")
    table.add_row("eps", f"{result.eps:.6g}")
    if isinstance(result, GromovResult):
        if result.alpha < 1.0:
            table.add_row("alpha", f"{result.alpha:g} of structure, {1.0 - result.alpha:g} of features")
        table.add_row("within the domains", ", ".join(f"{name} {term:.6g}" for name, term in result.self_terms.items()))
    settings = result.settings
    bits = f", {settings['bits']} bits, {settings['estimator']}" if settings["kernel"] == "sketch" else ""
    bits += f", flips of {settings['flip']:g}" if settings.get("flip") else ""
    table.add_row("kernel, solver", f"{settings['kernel']}{bits}; {settings['solver']}")
    protocol = result.protocol
    connected = "connected" if protocol.connected else "NOT connected"
    mismatch = f"sigma {protocol.sigma:.3g}"
    if protocol.tau is not None or protocol.is_storage:
        bound = "none" if protocol.tau_sigma is None else f"{protocol.tau_sigma:.3g}"
        where = f" (tau on {protocol.tau_pairs})" if not protocol.is_storage else ""
        mismatch += f", tau sigma {bound}{where}"
    table.add_row("protocol E", Text(f"{protocol.name}: {protocol.edges} edges, {connected}, {mismatch}"))
    table.add_row("seconds", _seconds(result))
    peak = sum(agent.peak_memory for agent in result.agents)
    most = max(agent.peak_memory for agent in result.agents)
    table.add_row("peak memory", f"{peak / 1e6:.0f} MB over all agents, {most / 1e6:.0f} MB the largest")
    return table


def _seconds(result: Result) -> str:
    parts = f"{result.setup_seconds:.2f} to set up, {result.seconds:.2f} to solve, {result.values_seconds:.2f} to check"
    waiting = np.mean([agent.waiting_seconds for agent in result.agents])
    return f"{parts}; agents waited {waiting:.2f} on average"


def _count(result: Result, role: str) -> str:
    samples = [agent.samples for agent in result.agents if agent.role == role]
    return f"{len(samples)} {role}s with {sum(samples)} samples"


def _errors_table(errors: ErrorDecomposition) -> Table:
    table = Table(title="Error of W~ against the centralised value", title_justify="left")
    for column in ("part", "measured", "the paper's bound"):
        table.add_column(column, justify="left" if column == "part" else "right")
    mismatch_bound = f"{errors.mismatch_bound:.3g} (tau sigma)" if errors.mismatch_bound >= 0 else "none (tau <= 0)"
    table.add_row("mismatch of E and p q^T", f"{errors.mismatch:.3e}", mismatch_bound)
    table.add_row("kernel", f"{errors.kernel:.3e}", f"{errors.kernel_bound:.3g} (on ||K-K^||)")
    table.add_row("algorithm", f"{errors.algorithm:.3e}", f"O({errors.algorithm_rate:.3g})")
    table.add_row("total", f"{errors.total:.3e} ({errors.relative_total:.2%})", "")
    return table


def _ledger_table(result: Result) -> Table:
    table = Table(title="Ledger: what was sent", title_justify="left")
    within = any(row.within_messages for row in result.ledger.by_kind)
    columns = ["kind", "messages on edges", "bytes on edges", "by formula", "bytes in collectives"]
    for column in columns + ["bytes within a domain", "by formula"] * within:
        table.add_column(column, justify="left" if column == "kind" else "right")
    for row in result.ledger.by_kind:
        if row.messages or row.collectives or row.within_messages:
            formula = "" if row.formula_bytes is None else f"{row.formula_bytes:,}"
            cells = [row.kind, f"{row.messages:,}", f"{row.bytes:,}", formula, f"{row.collective_bytes:,}"]
            by_formula = "" if row.within_formula_bytes is None else f"{row.within_formula_bytes:,}"
            table.add_row(*cells, *[f"{row.within_bytes:,}", by_formula] * within)
    if len({agent.host for agent in result.agents}) > 1:
        ledger = result.ledger
        edges = sum(row.bytes for row in ledger.by_kind)
        table.caption = f"between hosts: {ledger.bytes_between_hosts:,} of the {edges:,} bytes on edges"
    return table
