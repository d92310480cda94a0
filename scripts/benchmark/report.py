"""The benchmark's tables and its picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

OWN = "deot_mpi"
_COLOURS = {OWN: "#0072B2", "POT sinkhorn": "#D55E00", "rest": "#999999"}


def show(console: Console, title: str, columns: list[str], rows: list[list[str]]) -> None:
    table = Table(title=title, title_justify="left")
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place == 0 else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def seconds(found: dict[str, Any], key: str = "solve_seconds") -> str:
    return f"{found[key]:.3f}" if key in found else ""


def ratio(found: dict[str, Any], own: dict[str, Any], key: str = "solve_seconds") -> str:
    """How many times this project's value fits into a peer's."""
    return f"{found[key] / own[key]:.1f}"


def _with_range(found: dict[str, Any]) -> str:
    """The median, and the fastest and slowest run where there were several."""
    several = len(found["runs"]) > 1
    return seconds(found) + (f" ({found['runs'][0]:.2f}-{found['runs'][-1]:.2f})" if several else "")


def peer_rows(measured: dict[str, dict[str, Any]], tol: float = 1e-6) -> list[list[str]]:
    """Ratios to this project's rounds alone, and to all it does with the samples the first time: exchange, rounds,
    float64 check."""
    own = measured[OWN]
    rows = []
    for name, found in measured.items():
        if found.get("over_limit"):
            least = {"solve_seconds": found["limit"]}
            rows.append([
                name, "", "", "", f"over {found['limit']:.0f}", f"over {ratio(least, own)}",
                f"over {found['limit'] / own['first_total_seconds']:.0f}", "", "", "", "", "",
            ])  # fmt: skip
            continue
        everything = found.get("first_total_seconds", found["setup_seconds"] + found["first_seconds"])
        difference = abs(found["regularised_cost"] / own["regularised_cost"] - 1)
        error = f"{found['l1_error']:.1e}" + (" (missed)" if found["l1_error"] > 1.5 * tol else "")
        rows.append([
            name, seconds(found, "start_seconds"), seconds(found, "setup_seconds"), seconds(found, "first_seconds"),
            _with_range(found), ratio(found, own), f"{everything / own['first_total_seconds']:.1f}",
            f"{found['peak_memory'] / 1e6:.0f}", f"{own['peak_memory'] / found['peak_memory']:.2f}",
            str(found["rounds"] or ""), error, f"{difference:.0e}",
        ])  # fmt: skip
    return rows


PEER_COLUMNS = [
    "who", "start-up s", "cost or exchange s", "first solve s", "solve s (range)", "solve / ours",
    "samples to values, first / ours", "peak MB", "our memory / its", "rounds", "L1 error", "value differs by",
]  # fmt: skip


def draw(results: dict[str, Any], path: Path) -> None:
    """Peers' times, time against size and against ranks, in one picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    panels = [name for name in ("peers", "size", "ranks") if results.get(name)]
    if not panels:
        return
    figure, axes = plt.subplots(1, len(panels), figsize=(5.2 * len(panels), 4.2), squeeze=False, layout="constrained")
    for panel, axis in zip(panels, axes[0], strict=True):
        {"peers": _draw_peers, "size": _draw_size, "ranks": _draw_ranks}[panel](axis, results[panel])
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _draw_peers(axis: Any, peers: dict[str, dict[str, dict[str, Any]]]) -> None:
    shares = list(peers)
    names = list(peers[shares[0]])
    height = 0.8 / len(shares)
    for k, share in enumerate(shares):
        values = [peers[share][name].get("solve_seconds", peers[share][name].get("limit")) for name in names]
        places = [place + k * height for place in range(len(names))]
        bars = axis.barh(places, values, height * 0.9, label=f"eps = {share} of the median cost", alpha=1 - 0.4 * k)
        for bar, name in zip(bars, names, strict=True):
            bar.set_color(_COLOURS[OWN] if name == OWN else _COLOURS["rest"])
            found = peers[share][name]
            missed = found.get("l1_error", 0.0) > 1.5e-6
            remark = " stopped" if found.get("over_limit") else " missed 1e-6" if missed else ""
            axis.text(bar.get_width(), bar.get_y() + bar.get_height() / 2, remark, va="center", fontsize=7)
    axis.set_yticks([place + 0.4 - height / 2 for place in range(len(names))], names)
    axis.invert_yaxis()
    axis.set_xscale("log")
    axis.margins(x=0.25)
    axis.set_xlabel("seconds to solve (log); pale: the smaller eps")
    axis.set_title("To an L1 marginal error of 1e-6, same machine", fontsize=10)


def _draw_size(axis: Any, size: dict[str, dict[str, dict[str, Any]]]) -> None:
    for name in sorted({who for found in size.values() for who in found}):
        points = [
            (int(n), found[name]["solve_seconds"])
            for n, found in size.items()
            if name in found and "solve_seconds" in found[name]
        ]
        axis.plot(*zip(*points, strict=True), "o-", label=name, color=_COLOURS.get(name, _COLOURS["rest"]))
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("samples per domain")
    axis.set_ylabel("seconds to solve")
    axis.legend(fontsize=8)
    axis.set_title("Against the number of samples", fontsize=10)


def _draw_ranks(axis: Any, ranks: dict[str, dict[str, Any]]) -> None:
    places = [int(count) for count in ranks]
    axis.plot(places, [found["solve_seconds"] for found in ranks.values()], "o-", color=_COLOURS[OWN])
    axis.set_ylim(bottom=0)
    axis.set_xticks(places)
    axis.set_xlabel("ranks (half of them sources)")
    axis.set_ylabel("seconds to solve")
    axis.set_title("Against the number of ranks", fontsize=10)
