"""What was sent: the graph E with the bytes of its edges, and the ledger by kind beside its formulas."""

from __future__ import annotations

from deot_mpi.report.html.agents import name_of
from deot_mpi.report.html.numbers import Facts, byte_unit, count, in_bytes, number, plural
from deot_mpi.report.page import (
    Edge,
    Markup,
    Section,
    bipartite,
    facts,
    figure,
    heat_map,
    paragraph,
    section,
    side_by_side,
    table,
)

_DRAWN = 16
"""Agents a side up to which E is drawn as a graph; above that, as a map alone."""
_KINDS = {
    "samples": "raw rows (raw kernel)",
    "sketch": "packed sign bits",
    "norms": "lengths of the centred rows",
    "weights": "weights of rows",
    "potentials": "blocks of u and v, or the sums in their place, in the rounds",
    "objectives": "potentials sent for measuring, and the final reduce",
    "mean": "masks and masked sums behind the mean and the mean cost",
    "control": "roles, sizes, options, parts of objective and error at checks",
    "reference": "pooled raw rows, for --reference",
    "moments": "Gromov-Wasserstein: moments and P",
    "structure": "sketches and norms within a domain, for S_X and S_Y",
    "labels": "classes, labels of mapped rows, class sums",
    "mapped": "parts of barycentres, mapped rows",
    "audit": "statistics of attacks",
    "seeds": "seeds of an edge's projections",
    "curvatures": "squared shares of a source's rows, every third round",
}


def graph(result: Facts) -> Section:
    """E drawn; indices in the ledger are places among the agents that are there, names are their own."""
    sides = {role: [one for one in result["agents"] if one["role"] == role] for role in ("source", "target")}
    sources, targets = ([name_of(one) for one in side] for side in sides.values())
    edges = result["ledger"]["by_edge"]
    size, unit = byte_unit(max((edge["bytes"] for edge in edges), default=1))

    def shown(amount: float) -> str:
        text = f"{amount / size:.3g}"
        return text if len(text) <= 4 else f"{amount / size:.2f}"  # cells of 16 by 16 have room for no more

    drawn = []
    if max(len(sources), len(targets)) <= _DRAWN:
        lines = [Edge(edge["source"], edge["target"], edge["bytes"], _hint(edge, sources, targets)) for edge in edges]
        words = f"Width and strength: what the edge carried, both ways; numbers, where all have room, in {unit}."
        drawn.append(figure(bipartite(sources, targets, lines, shown), words))
    table_of = [[0.0] * len(targets) for _ in sources]
    for edge in edges:
        table_of[edge["source"]][edge["target"]] = float(edge["bytes"])
    indices = [[str(one["index"]) for one in side] for side in sides.values()]
    named = max(map(len, indices)) <= 64
    picture = heat_map(
        table_of, "source agents", "target agents", shown,
        row_names=indices[0] if named else (), column_names=indices[1] if named else (),
    )  # fmt: skip
    words = f"{unit} on each edge, both ways; empty: no edge. Point at a cell for its number."
    if not named:
        words += " A cell is a block of neighbouring agents, named by its first."
    drawn.append(figure(picture, words))
    return section("The graph E", _protocol(result["protocol"]), side_by_side(*drawn))


def _hint(edge: Facts, sources: list[str], targets: list[str]) -> str:
    kinds = ", ".join(f"{kind} {amount:,}" for kind, amount in edge["bytes_by_kind"].items())
    ends = f"{sources[edge['source']]} and {targets[edge['target']]}"
    return f"{ends}: {edge['bytes']:,} bytes, {plural(edge['messages'], 'message')} ({kinds})"


def _protocol(known: Facts) -> Markup:
    connected = "connected" if known["connected"] else "NOT connected"
    rows: list[tuple[object, object]] = [
        ("protocol", f"{known['name']}: {plural(known['edges'], 'edge')}, {connected}"),
        ("sigma", f"{number(known['sigma'], 3)} = sum |e_ij - p_i q_j|; 0 means the centralised problem"),
    ]
    if known["tau"] is not None:
        bound = "none (tau <= 0)" if known["tau_sigma"] is None else number(known["tau_sigma"], 3)
        where = "all pairs of agents" if known["tau_pairs"] == "all" else "E's own edges, may be larger elsewhere"
        rows.append(("tau sigma", f"{bound}: the paper's bound on what E changes in W~ (tau on {where})"))
    return facts(rows)


def ledger(result: Facts) -> Section:
    known = result["ledger"]
    within = any(row["within_messages"] for row in known["by_kind"])
    columns = ["kind", "what it is", "messages on edges", "bytes on edges", "by formula", "bytes in collectives"]
    rows = []
    for row in known["by_kind"]:
        if row["messages"] or row["collectives"] or row["within_messages"]:
            cells: list[object] = [
                row["kind"],
                _KINDS.get(row["kind"], ""),
                count(row["messages"]),
                count(row["bytes"]),
            ]
            cells += [count(row["formula_bytes"]), count(row["collective_bytes"])]
            rows.append(cells + [count(row["within_bytes"]), count(row["within_formula_bytes"])] * within)
    compared = [
        (row["kind"], row[f"{where}formula_bytes"], row[f"{where}bytes"])
        for row in known["by_kind"]
        for where in ("", "within_")
        if row[f"{where}formula_bytes"] is not None and row[f"{where}messages"]
    ]
    off = [kind for kind, formula, measured in compared if formula != measured]
    words = (
        f"{plural(known['messages'], 'message')} between agents, {in_bytes(known['bytes'])} in all with collectives. "
    )
    if compared:
        words += (
            f"Off the formula: {', '.join(off)}." if off else "Where there is a formula, the bytes are those it says."
        )
    return section(
        "The ledger",
        paragraph(words),
        table(columns + ["bytes within a domain", "by formula"] * within, rows),
    )
