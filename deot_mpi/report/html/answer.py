"""The answer first: the values by name, whether the run ended well, and what to do if it did not."""

from __future__ import annotations

from deot_mpi.report.html.numbers import Facts, count, number, plural, seconds, small
from deot_mpi.report.meanings import DIVERGENCE_MEANINGS, EOT_MEANINGS, EOT_UNITS, GROMOV_MEANINGS, GROMOV_UNITS
from deot_mpi.report.page import Markup, Section, joined, note, paragraph, section, table, tiles

_CONVERGED = ("marginal", "change")


def meanings_of(result: Facts) -> tuple[dict[str, str], str]:
    """The names of the values with their formulas, and their unit."""
    if result["settings"]["problem"] == "gromov":
        return GROMOV_MEANINGS, GROMOV_UNITS
    return EOT_MEANINGS, EOT_UNITS


def answer(result: Facts) -> Section:
    meanings, units = meanings_of(result)
    first = (
        [("accuracy", _share(result["accuracy"]), "of the target rows with known labels")]
        if "accuracy" in result
        else []
    )
    debiased = DIVERGENCE_MEANINGS if result.get("sinkhorn_divergence") is not None else {}
    shown = [(name, number(result[name], 8), meaning) for name, meaning in (debiased | meanings).items()]
    return section(
        "The answer",
        _status(result),
        *_warnings(result),
        tiles(first + shown),
        paragraph(f"In {units}. eps = {number(result['eps'])}. {_went(result)}", quiet=True),
        _compared(result, meanings),
    )


def _share(accuracy: float | None) -> str:
    return "not known" if accuracy is None else f"{accuracy:.2%}"


def _status(result: Facts) -> Markup:
    kind = "good" if result["status"] in _CONVERGED else "bad" if result["status"] == "diverged" else "warn"
    how, _, why = result["status_text"].partition(": ")
    tol = number(result["settings"]["tol"], 3)
    error = f"L1 marginal error {small(result['marginal_error'])} (tol {tol}). "
    facts = f"{why}, after {plural(result['rounds'], 'round')}; {error}"
    return note(kind, facts, _advice(result), word=how.capitalize() + ":")


def _advice(result: Facts) -> str:
    """What to change, by why it stopped."""
    settings, status = result["settings"], result["status"]
    if status == "rounds":
        more = "--outer or --inner" if settings["problem"] == "gromov" else f"--rounds (now {settings['rounds']})"
        sampled = settings["solver"] == "mrbcd"
        slow = " mrbcd comes near, not closer: --solver kept or sinkhorn are exact." if sampled else ""
        return f"The plan does not have its marginals yet: give more {more}, a larger eps, or a larger --tol.{slow}"
    if status == "stalled":
        return "P is as near as it comes: more --bits, --moment exchange or --kernel raw go further."
    if status == "diverged":
        step = (
            "give a smaller --eta, or --solver kept or sinkhorn"
            if settings["solver"] == "mrbcd"
            else "give a larger eps"
        )
        return f"The values below mean nothing: {step}, and look for columns of very different scales."
    return ""


def _warnings(result: Facts) -> list[Markup]:
    warnings = []
    for one in result["lost_agents"]:
        share = "" if one["mass"] is None else f", {one['mass']:.2%} of its domain"
        who = f"{one['role']} agent {one['index']} was lost after {plural(one['round'], 'round')}{share}: "
        warnings.append(note("bad", who, "its samples are missing in all values below.", word="Lost:"))
    if not result["protocol"]["connected"]:
        parts = plural(result["protocol"]["components"], "part")
        alone = [f"{side} {k}" for side in ("source", "target") for k in result["protocol"][f"isolated_{side}s"]]
        names = f" and {', '.join(alone)} without an edge" if alone else ""
        warnings.append(
            note("warn", f"E falls into {parts}{names}: mass does not cross between them.", word="Not connected:")
        )
    if result["resumed_from"] is not None:
        warnings.append(note("plain", f"The run went on from a checkpoint at round {result['resumed_from']}."))
    if result["staleness"]:
        late = (
            f"Messages that were not waited for were up to {plural(result['staleness'], 'round')} behind (--patience)."
        )
        warnings.append(note("plain", late))
    return warnings


def _went(result: Facts) -> str:
    sides = {role: [one for one in result["agents"] if one["role"] == role] for role in ("source", "target")}
    who = " and ".join(
        f"{plural(len(side), role + ' agent')} with {count(sum(one['samples'] for one in side))} samples"
        for role, side in sides.items()
    )
    return (
        f"{who}. {seconds(result['setup_seconds'])} to set up, {seconds(result['seconds'])} to solve, "
        f"{seconds(result['values_seconds'])} to check in float64."
    )


def _compared(result: Facts, meanings: dict[str, str]) -> Markup:
    """Beside the centralised values, where there are some."""
    reference = result.get("reference")
    if reference is None:
        return Markup("")
    central = reference["centralised"]
    rows = []
    for name in meanings:
        here, there = result[name], central[name]
        off = None if here is None or there is None or not there else abs(here - there) / abs(there)
        rows.append([name, number(here, 10), number(there, 10), "—" if off is None else f"{off:.2e}"])
    where = (
        "going on from this run's alignment" if result["settings"]["problem"] == "gromov" else "E = p q^T, exact kernel"
    )
    caption = f"Centralised: POT ({reference['solver']}) on the pooled samples, {where}."
    return joined(table(["value", "this run", "centralised", "relative difference"], rows, caption))


def errors(result: Facts) -> Section | None:
    """|F - W| in its three parts, where a reference was computed (Section 3.5 of the paper)."""
    known = result.get("errors")
    if known is None:
        return None
    bound = known["mismatch_bound"]
    rows = [
        ["mismatch", "|W~_E - W|: E is not p q^T", small(known["mismatch"]),
         f"{number(bound, 3)} (tau sigma)" if bound is not None and bound >= 0 else "none (tau <= 0)"],
        ["kernel", "|W^_E - W~_E|: sketches in place of samples", small(known["kernel"]),
         f"{number(known['kernel_bound'], 3)} (on |K - K^|)"],
        ["algorithm", "|F_t - W^_E|: rounds that were not run", small(known["algorithm"]),
         f"O({number(known['algorithm_rate'], 3)})"],
        ["total", "|F_t - W|, at most the sum of the three", small(known["total"]), ""],
    ]  # fmt: skip
    total = "" if known["relative_total"] is None else f" The total is {known['relative_total']:.2%} of W."
    lead = f"How far the dual objective is from the centralised value W, and why, in cost units.{total}"
    return section(
        "Error against the centralised value",
        paragraph(lead),
        table(["part", "what it is", "measured", "the paper's bound"], rows),
    )
