"""The page of a run (--report): whole, alone, safe, and looked at by a real browser."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import CHROMIUM, Browser
from launch import launch, launch_several

from deot_mpi.command.arguments import repeating
from deot_mpi.report.html import report_page
from deot_mpi.report.page import Axis, Claim, Curve, chart, claims, page, section, table

RANKS = 4
EVIL = "<script>alert(1)&"
"""A name that is harmless only where it is escaped."""
LINE = "mpirun -n 4 python -m deot_mpi.run"
COMMANDS = {
    "eot": ("--samples", "60", "--protocol", "star", "--reference", "--flip", "0.1"),
    "gromov": ("gromov", "--samples", "40", "--starts", "2", "--kernel", "raw"),
    "adapt": (
        "adapt",
        "--source",
        f"{EVIL}-{{agent}}.npz",
        "--target",
        f"{EVIL}-{{agent}}.npz",
        "--choose-eps",
        "--eps-grid",
        "0.1,0.2",
    ),
    "audit": ("audit", "--samples", "60", "--ratios", "1,5", "--flips", "0,0.25", "--victims", "5", "--bits", "32"),
}
SECTIONS = {
    "eot": "The answer|Convergence|Error against the centralised value|The graph E|Agents|The ledger|Notes",
    "gromov": "The answer|Starts and alignment|Convergence|The graph E|Agents|The ledger",
    "adapt": "The answer|Labels|Convergence|The graph E|Agents|The ledger|Notes",
    "audit": "The answer|Attacks|Frontier",
}
VOID = ("meta", "link", "img")


class Tags(HTMLParser):
    """Every tag that is opened is closed, in order; what the page would load or run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loaded: list[str] = []
        self.headings: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        given = [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "srcset")]
        self.loaded += [value for value in given if not value.startswith(("#", "data:"))]
        assert tag != "script"
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["h2"]:
            self.headings.append(data)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[dict[str, Any], Path]]:
    """Each problem run once, by 4 ranks: its JSON, and its page."""
    folder, chance = tmp_path_factory.mktemp("pages"), np.random.default_rng(3)
    for agent in range(2):
        y = np.arange(30) % 3
        np.savez(folder / f"{EVIL}-{agent}.npz", X=5 * np.eye(3)[y] + chance.normal(size=(30, 3)), y=y)
    commands = [
        (*arguments, "--progress", "none", "--report", f"{name}.html", "--json", f"{name}.json")
        for name, arguments in COMMANDS.items()
    ]
    for ended in launch_several(RANKS, commands, folder):
        assert ended.code == 0, ended.err
    return {name: (json.loads((folder / f"{name}.json").read_text()), folder / f"{name}.html") for name in COMMANDS}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_has_what_the_result_has_and_nothing_from_outside(name: str, runs: dict[str, Any]) -> None:
    result, path = runs[name]
    text = path.read_text(encoding="utf-8")
    tags = Tags(text)
    assert tags.loaded == []
    assert tags.headings == [*SECTIONS[name].split("|"), "Privacy", "Settings", "How to read this"]
    assert "http:" not in text
    assert "https:" not in text
    if name == "audit":
        value = next(one["median_recovery_error"] for one in result["attacks"] if one["name"] == result["strongest"])
        assert f"<b>{value:.3g}</b>" in text
    else:
        assert f"<b>{result['transport_cost']:.8g}</b>" in text
    assert f"mpirun -n {RANKS} python -m deot_mpi.run" in text
    assert ("&lt;script&gt;alert(1)&amp;" in text) == (name == "adapt")
    if name != "audit":  # every edge that carried anything, with its bytes
        for edge in result["ledger"]["by_edge"]:
            assert f"source {edge['source']} and target {edge['target']}: {edge['bytes']:,} bytes" in text


def _many(result: dict[str, Any], sources: int, targets: int) -> dict[str, Any]:
    """The result, as if there were this many agents, all with each other."""
    more = copy.deepcopy(result)
    sizes = {"source": sources, "target": targets}
    like = {role: next(one for one in result["agents"] if one["role"] == role) for role in sizes}
    more["agents"] = [
        {**like[role], "index": index, "marginal_error": 10.0 ** -(3 + index % 5)}
        for role, size in sizes.items()
        for index in range(size)
    ]
    more["ledger"]["by_edge"] = [
        {
            "source": i,
            "target": j,
            "messages": 3,
            "bytes": 1000 + 7919 * (i * targets + j),
            "bytes_by_kind": {"sketch": 9},
        }
        for i in range(sources)
        for j in range(targets)
    ]
    return more


def _diverged(result: dict[str, Any]) -> dict[str, Any]:
    lost = copy.deepcopy(result) | dict.fromkeys(
        ("dual_objective", "regularised_cost", "transport_cost", "entropy_cost", "marginal_error")
    )
    lost |= {
        "status": "diverged",
        "status_text": "diverged: the objective is not finite",
        "resumed_from": 7,
        "staleness": 2,
    }
    lost["lost_agents"] = [{"role": "source", "index": 5, "round": 3, "mass": None}]
    lost["protocol"] |= {"connected": False, "components": 2, "isolated_targets": [1]}
    for point in lost["trace"]:
        point |= {"objective": None, "error": None}
    for agent in lost["agents"]:
        agent["marginal_error"] = None
    return lost


def test_what_went_wrong_stands_first(runs: dict[str, Any]) -> None:
    result, _ = runs["eot"]
    text = report_page(_diverged(result), LINE, None)
    Tags(text)
    head = text[: text.index('id="convergence"')]
    for said in (
        "mean nothing",
        "source agent 5 was lost",
        "2 parts and target 1 without an edge",
        "round 7",
        "2 rounds behind",
    ):
        assert said in head
    early = {**result, "status": "rounds", "status_text": "stopped early: all rounds used, not converged"}
    assert "give more --rounds (now 1000)" in report_page(early, LINE, None)


def test_every_edge_has_its_number_up_to_16_by_16_agents(runs: dict[str, Any]) -> None:
    result, _ = runs["eot"]
    numbers = {
        size: len(re.findall('class="small( on)?"', report_page(_many(result, size, size), LINE, None)))
        for size in (16, 17)
    }
    assert numbers == {16: 256, 17: 0}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine, so no page is looked at; make browser installs it")
    with Browser() as one:
        yield one


def test_a_browser_finds_nothing_to_complain_about(browser: Browser, runs: dict[str, Any], tmp_path: Path) -> None:
    """At two widths of a laptop, light and dark: no message, no request, no label on another or cut."""
    pages = {name: path for name, (_, path) in runs.items()}
    result, _ = runs["eot"]
    odd = {"16 x 16": _many(result, 16, 16), "100 x 70": _many(result, 100, 70), "diverged": _diverged(result)}
    for name, changed in odd.items():
        pages[name] = tmp_path / f"{name} {EVIL}.html".replace("/", "")
        pages[name].write_text(report_page(changed, f"{LINE} --json '{EVIL}'", "not private."), encoding="utf-8")
    for name, path in pages.items():
        for width, dark in ((1280, False), (1024, True)):
            seen = browser.visit(path, width, dark=dark)
            assert (name, seen.complaints, seen.requests, seen.faults, seen.scripts) == (name, [], [], [], 0)
            assert seen.drawings >= 2
            assert "The answer" in seen.text


def test_a_browser_does_complain_where_there_is_reason(browser: Browser, tmp_path: Path) -> None:
    """The same look at a page with everything wrong."""
    path = tmp_path / "bad.html"
    path.write_text(
        '<svg viewBox="0 0 90 40" width="90" height="40"><text x="2" y="20">one</text><text x="5" y="22">two</text>'
        '<text x="80" y="35">outside</text></svg><img src="missing.png"><p style="width:3000px">wide</p>'
        "<script>console.error('no')</script>"
    )
    seen = browser.visit(path)
    assert len(seen.requests) == 1
    assert any("no" in said for said in seen.complaints)
    assert seen.faults[:2] == ["svg 0: 'one' lies on 'two'", "svg 0: 'outside' is cut"]
    assert seen.faults[2].startswith("the page is 30")


def test_only_what_was_made_here_is_markup() -> None:
    made = [
        table([EVIL], [[EVIL]], EVIL),
        claims([Claim(EVIL, EVIL, True)]),
        chart([Curve(EVIL, [1], [2], hints=[EVIL]), Curve(EVIL, [], [])], EVIL, EVIL),
    ]
    text = page(EVIL, [section(EVIL, EVIL, *made)], lead=EVIL, closing=f"{EVIL}\udcff\0")
    Tags(text)
    assert "<script" not in text
    assert "\0" not in text
    assert text.count("alert(1)&amp;") == text.count("alert(1)") > 10


@pytest.mark.parametrize(
    ("low", "high", "log"), [(0, 7, False), (22.3555, 22.3556, False), (3e-9, 2, True), (2e-8, 3e-8, True)]
)
def test_ticks_lie_inside_and_say_what_they_are(low: float, high: float, log: bool) -> None:
    ticks = Axis(low, high, 0.0, 100.0, log).ticks(6)
    assert 2 <= len(ticks) <= 8
    for value, label in ticks:
        assert low <= value <= high * (1 + 1e-9)
        assert abs(float(label) - value) <= 1e-2 * (high - low)
    assert len({label for _, label in ticks}) == len(ticks)


def test_the_command_repeats_the_run_but_for_the_private_seed() -> None:
    line = repeating(["--seed", "fresh", "--private-seed", "77", "--private-seed=78", "--source", "a b.npy"], 4, 5)
    assert line == f"{LINE} --seed 5 --private-seed PRIVATE --private-seed=PRIVATE --source 'a b.npy'"
    assert not re.search("7[78]", line)


def test_a_page_that_cannot_be_written_is_refused_before_anything_starts(tmp_path: Path) -> None:
    ended = launch(2, "--report", "no/run.html", folder=tmp_path)
    assert (ended.code, "--report no/run.html" in ended.err) == (2, True)
