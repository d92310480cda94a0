"""A run as a page to look at: one HTML file, made from the result's JSON form alone (no rows, no potentials)."""

from __future__ import annotations

from pathlib import Path

from deot_mpi.privacy.findings import AuditResult
from deot_mpi.report.files import json_ready
from deot_mpi.report.html.agents import agents
from deot_mpi.report.html.answer import answer, errors
from deot_mpi.report.html.audit import attacks, frontier, verdict
from deot_mpi.report.html.convergence import convergence
from deot_mpi.report.html.numbers import Facts
from deot_mpi.report.html.privacy import privacy
from deot_mpi.report.html.problems import alignment, labels
from deot_mpi.report.html.settings import how_to_read, settings
from deot_mpi.report.html.traffic import graph, ledger
from deot_mpi.report.page import Section, bullets, page, paragraph, section
from deot_mpi.result import Result
from deot_mpi.writing import write_whole

_TITLES = {
    "eot": "Entropic optimal transport",
    "gromov": "Entropic Gromov-Wasserstein",
    "adapt": "Domain adaptation",
    "audit": "Privacy audit",
}


def write_report(result: Result | AuditResult, path: str, command: str, warned: str | None) -> None:
    """``command``: the line that repeats the run; ``warned``: what was said before it."""
    text = report_page(json_ready(result.to_dict()), command, warned)
    # Paths that are not UTF-8 come as lone surrogates; a page has none.
    write_whole(Path(path), lambda file: file.write(text.encode("utf-8", "replace")))


def report_page(result: Facts, command: str, warned: str | None) -> str:
    """The page of a result in its JSON form (``settings`` with ``problem``, as the program adds it)."""
    chosen = result["settings"]
    audited = chosen["problem"] == "audit"
    made = [verdict(result), attacks(result), frontier(result)] if audited else _run_sections(result)
    made += [privacy(result, warned), settings(result, command), how_to_read(result)]
    lead = f"{chosen['kernel']} kernel, {chosen['solver']}, E {_protocol(result)}, seed {chosen['seed']}"
    closing = f"deot_mpi {chosen['version']}. This file stands alone: it loads nothing and runs nothing."
    return page(_TITLES[chosen["problem"]], made, lead=paragraph(lead, quiet=True), closing=closing)


def _protocol(result: Facts) -> str:
    if "protocol" in result:
        return str(result["protocol"]["name"])
    chosen = result["settings"]["protocol"]
    return chosen if isinstance(chosen, str) else "given as a matrix"


def _run_sections(result: Facts) -> list[Section]:
    own = {"gromov": alignment, "adapt": labels}.get(result["settings"]["problem"])
    notes = [text for text in result["notes"] if not text.startswith("Privacy")]
    made = [
        answer(result),
        own(result) if own is not None else None,
        convergence(result),
        errors(result),
        graph(result),
        agents(result),
        ledger(result),
        section("Notes", bullets(notes)) if notes else None,
    ]
    return [one for one in made if one is not None]
