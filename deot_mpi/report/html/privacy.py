"""What the run told whom, how it was protected, and what is guaranteed."""

from __future__ import annotations

from deot_mpi.privacy.guarantee import Guarantee
from deot_mpi.report.html.numbers import Facts, number
from deot_mpi.report.page import Markup, Section, bullets, heading, joined, note, paragraph, section, table
from deot_mpi.report.privacy import guarantee_words


def privacy(result: Facts, warned: str | None) -> Section:
    """``warned``: what the program said before it started."""
    parts: list[object] = []
    if warned is not None:
        parts.append(note("warn", warned[0].upper() + warned[1:]))
    if result["guarantee"] is not None:
        parts.append(note("plain", guarantee_words(Guarantee(**result["guarantee"]))))
    if result.get("protection") is not None:
        parts.append(_protection(result["protection"]))
    told = [text for text in result["notes"] if text.startswith(("Privacy", "Audit"))]
    lessons = [[one["who"], one["of_whom"], one["what"], one["amount"], one["kind"]] for one in result["disclosure"]]
    columns = ["who learns", "from whom", "what", "how much", "kind in the ledger"]
    return section(
        "Privacy",
        *parts,
        bullets(text.removeprefix("Privacy: ") for text in told),
        table(columns, lessons, "All that this run told anybody (--explain says it beforehand)."),
    )


def _protection(known: Facts) -> Markup:
    rows = [
        [point["bits"], f"{point['flip']:g}", number(point["recovery_error"], 3), number(point["distance_error"], 3),
         "chosen" if (point["bits"], point["flip"]) == (known["bits"], known["flip"]) else ""]
        for point in known["tried"]
    ]  # fmt: skip
    words = (
        f"--max-recovery chose {known['bits']} bits and flips of {known['flip']:g}: at the agent known best, the "
        f"strongest attack tried leaves an error of {number(known['recovery_error'], 3)} of a typical row's length, "
        f"one who has similar rows and no message {number(known['rows_alone'], 3)}; a distance between halves of an "
        f"agent's rows is off by {number(known['distance_error'], 3)}. "
        f"The rows have about {number(known['intrinsic_dimension'], 3)} dimensions."
    )
    columns = ["bits", "flip", "recovery error", "error of a distance", ""]
    return joined(heading("How bits and flips were chosen"), paragraph(words), table(columns, rows))
