"""Agent by agent: marginal errors, work and waiting, memory."""

from __future__ import annotations

from deot_mpi.report.html.numbers import Facts, count, in_bytes, number, seconds, small
from deot_mpi.report.page import Bar, Curve, Markup, Section, bars, chart, figure, folded, section, side_by_side, table

_LISTED = 40
"""Agents up to which each has a bar."""


def name_of(agent: Facts) -> str:
    return f"{agent['role']} {agent['index']}"


def agents(result: Facts) -> Section:
    known = result["agents"]
    spent = [Bar(name_of(one), (one["working_seconds"], one["waiting_seconds"])) for one in known]
    memory = [Bar(name_of(one), (float(one["peak_memory"]),)) for one in known]
    if len(known) <= _LISTED:
        work = bars(spent, ["worked (CPU)", "waited for messages"], seconds)
        held = bars(memory, ["peak memory"], in_bytes)
    else:
        work = _by_agent(known, {"working_seconds": "worked (CPU)", "waiting_seconds": "waited"}, "seconds", 1.0)
        held = _by_agent(known, {"peak_memory": "peak memory"}, "peak memory, MB", 1e6)
    waits = "Many ranks on few cores also wait for a core; a lone long waiter beside busy ones means uneven samples."
    return section(
        "Agents",
        figure(_errors(known), _errors_words(known), title="Marginal error, agent by agent"),
        side_by_side(
            figure(work, waits, title="Who worked, who waited"),
            figure(held, "The largest memory each process has had, Python and libraries included.", title="Memory"),
        ),
        folded("All numbers, agent by agent", _listing(known)),
    )


def _errors(known: list[Facts]) -> Markup:
    if not any(one["marginal_error"] for one in known):
        return Markup("")
    curves = []
    for role in ("source", "target"):
        side = [one for one in known if one["role"] == role]
        hints = [f"{name_of(one)}: {small(one['marginal_error'])}" for one in side]
        places = [float(one["index"]) for one in side]
        curves.append(Curve(f"{role}s", places, [one["marginal_error"] for one in side], line=False, hints=hints))
    return chart(curves, "agent", "L1 marginal error", log_y=True, size=(1080, 260))


def _errors_words(known: list[Facts]) -> str:
    exact = sum(one["marginal_error"] == 0 for one in known)
    text = "L1 distance between the mass of an agent's rows under the plan and what E gives them, summed over its rows."
    if exact:
        text += f" {exact} of {len(known)} agents have exactly 0, which a logarithmic axis cannot show"
        text += ": the side that moved last has its marginals by construction."
    return text


def _by_agent(known: list[Facts], keys: dict[str, str], label: str, unit: float) -> Markup:
    """Points in place of bars, where agents are many: sources first."""
    places = [float(place) for place in range(len(known))]
    curves = [
        Curve(name, places, [one[key] / unit for one in known], line=False, hints=[name_of(one) for one in known])
        for key, name in keys.items()
    ]
    return chart(curves, "rank's place: sources first, then targets", label)


def _listing(known: list[Facts]) -> Markup:
    columns = [
        "agent",
        "rows",
        "share of its domain",
        "share by E",
        "neighbours",
        "marginal error",
        "worked",
        "waited",
        "memory",
    ]
    rows = [
        [
            name_of(one), count(one["samples"]), number(one["mass"], 4), number(one["protocol_mass"], 4),
            one["neighbours"], small(one["marginal_error"]), seconds(one["working_seconds"]),
            seconds(one["waiting_seconds"]), in_bytes(one["peak_memory"]),
        ]
        for one in known
    ]  # fmt: skip
    return table(columns, rows)
