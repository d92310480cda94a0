"""The study's tables and its picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmark.report import show
from rich.console import Console

_BLUE, _ORANGE, _GREEN, _PINK, _GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#999999"
"""Told apart by colour-blind readers, too (Okabe and Ito)."""
_COLUMNS = [
    "ranks", "run", "rounds", "messages", "MB on edges", "MB in collectives", "ms a round", "model", "off", "peak GB",
    "load before",
]  # fmt: skip
NOT_EXACT = "Bytes, messages and rounds are exact; seconds of ranks that share cores are not, nor on a loaded machine."


def show_all(console: Console, results: dict[str, Any]) -> None:
    for part, title in (
        ("strong", "Strong scaling: the same samples over more agents"),
        ("weak", "Weak scaling: as many samples for every agent"),
        ("whole", "The largest run"),
    ):
        show(console, title, _COLUMNS, [_row(run) for run in results[part]])
    console.print(NOT_EXACT)
    if "left_out" in results["links"]:
        console.print(f"Links with a delay: left out ({results['links']['left_out']}).")
    else:
        far = results["links"]["far"]
        title = f"16 ranks on 4 hosts, links of {1e3 * far['latency']:.1f} ms; none of these runs was fitted to"
        show(console, title, _COLUMNS, [_row(run) for run in results["links"]["runs"]])
    for scene in results["beyond"]["predictions"]:
        show(console, f"Predicted, {scene['title']}", _PREDICTED, [_predicted(row) for row in scene["rows"]])


def _row(run: dict[str, Any]) -> list[str]:
    return [
        str(run["job"]["ranks"]), run["name"], str(run["rounds"]), str(run["messages"]),
        f"{run['edge_bytes'] / 1e6:.2f}", f"{run['collective_bytes'] / 1e6:.2f}", _pace(run),
        f"{1e3 * run['predicted_round']:.2f}", f"{run['off']:+.0%}", f"{run['peak_memory'] / 1e9:.2f}",
        f"{run['load_before']:.1f}",
    ]  # fmt: skip


def _pace(run: dict[str, Any]) -> str:
    """Milliseconds a round; where a job was run several times, the median and, behind it, the fastest and slowest."""
    paces = [1e3 * seconds for seconds in run.get("every_pace", ())]
    rest = f" ({min(paces):.3g}-{max(paces):.3g})" if len(paces) > 1 else ""
    return f"{1e3 * run['round_seconds']:.2f}{rest}"


_PREDICTED = ["run", "GB an agent", "rounds", "s a round", "only latency", "only bytes", "only work", "total s"]


def _predicted(row: dict[str, Any]) -> list[str]:
    name = row["name"] + ("" if row["stored"] else " (made anew every round)")
    parts = [f"{row['parts'][part]:.3g}" for part in ("latency", "bytes", "work")]
    return [
        name,
        f"{row['memory'] / 1e9:.2f}",
        str(row["rounds"]),
        f"{row['round']:.3g}",
        *parts,
        f"{row['total']:.0f}",
    ]


def draw(results: dict[str, Any], path: Path) -> None:
    """Counts and seconds against ranks, prediction against measurement, and what is predicted for places not here."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 4, figsize=(19, 8.6), layout="constrained")
    lines = _lines(results)
    for axis, (key, label) in zip(
        (*axes[0], axes[1][0]),
        (
            ("edge_bytes", "bytes along edges"), ("collective_bytes", "bytes handed to collectives"),
            ("messages", "messages along edges"), ("rounds", "rounds to a marginal error of 1e-6"),
            ("round_seconds", "seconds a round (cores are shared)"),
        ),
        strict=True,
    ):  # fmt: skip
        _draw_lines(axis, lines, key, label)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper left", ncols=4, fontsize=9)
    _draw_accuracy(axes[1][1], results)
    cluster, *sites = results["beyond"]["predictions"]
    _draw_predictions(axes[1][2], [cluster], "Predicted: 1,000 agents, 10,000,000 samples, cluster")
    _draw_predictions(axes[1][3], sites, "Predicted: 100 sites, 200,000 samples, WAN of 25 ms")
    figure.savefig(path, dpi=75)
    plt.close(figure)


def _lines(results: dict[str, Any]) -> dict[str, tuple[str, str, list[dict[str, Any]]]]:
    """Name: colour, style and runs."""
    strong, weak = results["strong"], results["weak"]
    samples, each = strong[0]["job"]["samples"], 2 * weak[0]["job"]["samples"] // weak[0]["job"]["ranks"]
    return {
        f"strong (N = {samples}), sinkhorn": (_BLUE, "o-", [r for r in strong if r["job"]["solver"] == "sinkhorn"]),
        "strong, kept, L = 1": (_ORANGE, "s-", [r for r in strong if r["job"]["solver"] == "kept"]),
        f"weak ({each} rows an agent), sinkhorn": (
            _GREEN,
            "^--",
            [r for r in weak if r["job"]["protocol"] == "uniform"],
        ),
        "weak, sinkhorn, E of degree 4": (_PINK, "D--", [r for r in weak if r["job"]["protocol"] != "uniform"]),
    }


def _draw_lines(axis: Any, lines: dict[str, tuple[str, str, list[dict[str, Any]]]], key: str, label: str) -> None:
    from matplotlib.ticker import NullLocator

    for name, (colour, style, runs) in lines.items():
        axis.plot([run["job"]["ranks"] for run in runs], [run[key] for run in runs], style, color=colour, label=name)
    ranks = sorted({run["job"]["ranks"] for _, _, runs in lines.values() for run in runs})
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(ranks, [str(many) for many in ranks])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlabel("ranks (half of them sources)")
    axis.set_title(label, fontsize=10)


def _draw_accuracy(axis: Any, results: dict[str, Any]) -> None:
    groups = {"this machine, cores shared": (_GREY, "o", results["strong"] + results["weak"] + results["whole"])}
    groups["16 ranks over 10 ms links"] = (_ORANGE, "s", results["links"].get("runs", []))
    every = [run for _, _, runs in groups.values() for run in runs]
    ends = [
        pick(run[key] for run in every) for pick in (min, max) for key in ("round_seconds", "predicted_round")
    ]  # fmt: skip
    span = [min(ends) / 1.5, max(ends) * 1.5]
    axis.fill_between(span, [0.7 * end for end in span], [1.3 * end for end in span], color=_BLUE, alpha=0.15, lw=0)
    axis.plot(span, span, color=_BLUE, lw=1)
    for name, (colour, marker, runs) in groups.items():
        points = [(run["round_seconds"], run["predicted_round"]) for run in runs]
        if points:
            axis.plot(*zip(*points, strict=True), marker, color=colour, label=name, alpha=0.8)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlim(span)
    axis.set_ylim(span)
    axis.set_xlabel("measured seconds a round")
    axis.set_ylabel("predicted (band: 30 %)")
    axis.legend(fontsize=8, loc="upper left")
    axis.set_title("Model against runs it was not fitted to", fontsize=10)


def _draw_predictions(axis: Any, scenes: list[dict[str, Any]], title: str) -> None:
    rows = scenes[0]["rows"]
    height = 0.8 / len(scenes)
    for k, (scene, colour) in enumerate(zip(scenes, (_BLUE, _ORANGE), strict=False)):
        label = f"{8e-6 * scene['bandwidth']:,.0f} Mbit/s"
        places = [place + k * height for place in range(len(rows))]
        bars = axis.barh(places, [row["total"] for row in scene["rows"]], 0.9 * height, color=colour, label=label)
        axis.bar_label(bars, [_duration(row["total"]) for row in scene["rows"]], fontsize=7, padding=2)
    names = [row["name"].split(", N =")[0] + _graph(row["job"]) for row in rows]
    axis.set_yticks([place + 0.4 - height / 2 for place in range(len(rows))], names, fontsize=8)
    axis.invert_yaxis()
    axis.set_xscale("log")
    axis.margins(x=0.25)
    axis.set_xlabel("seconds from samples to values")
    axis.legend(fontsize=8, loc="lower right")
    axis.set_title(title, fontsize=10)


def _graph(job: dict[str, Any]) -> str:
    return ",\nall edges" if job["protocol"] == "uniform" else f",\nE of degree {job['degree']}"


def _duration(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )
