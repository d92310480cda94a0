"""Hostfiles, rank files and --sources, checked before anything starts; the examples fit what they say."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cluster import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
from check_hosts import check, main

from deot_mpi.protocol.graphs import GRAPHS

FILES = ROOT / "hostfiles"
SCRIPTS = sorted(path for name in ("slurm", "pbs", "ssh") for path in (ROOT / "scripts" / name).iterdir())


@pytest.mark.parametrize(
    ("name", "more", "largest"),
    [("one-host", (), 16), ("four-hosts", (), 4), ("mixed-slots", (), 8), ("localhost", ("--oversubscribe",), 16)],
)
def test_the_examples_fit_sixteen_agents(name: str, more: tuple[str, ...], largest: int) -> None:
    agents = check(str(FILES / name), 16, 8, oversubscribe=bool(more))
    assert max(map(len, agents.values())) == largest
    assert sorted(itertools.chain(*agents.values())) == sorted(
        f"{role} {k}" for role in ("source", "target") for k in range(8)
    )
    words = ["--hostfile", str(FILES / name), "--ranks", "16", *more]
    assert main(words) == 0


def test_the_rank_file_keeps_most_edges_of_a_ring_on_a_host() -> None:
    agents = check(str(FILES / "four-hosts"), 16, 8, str(FILES / "ring.rankfile"))
    host = {agent: name for name, there in agents.items() for agent in there}
    edges = np.argwhere(GRAPHS["ring"](8, 8, 4, 0))
    assert sum(host[f"source {i}"] == host[f"target {j}"] for i, j in edges) == 12
    assert len(edges) == 16


@pytest.mark.parametrize(
    ("text", "words", "sentence"),
    [
        ("n1 slots=2\nn2 slots=2", ["--ranks", "5"], "5 ranks and 4 slots"),
        ("n1 slots=2", ["--sources", "2"], "--sources 2 with 2 ranks leaves 0 targets; choose 1 to 1."),
        ("n1 slots=2", ["--sources", "0"], "choose 1 to 1."),
        ("n1", [], "1 rank(s) cannot be a job"),
        ("n1 slot=2", [], "line 1: 'slot=2' is not understood"),
        ("n1 slots=0", [], "line 1: 'slots=0' is not understood"),
        ("# nobody", [], "names no host"),
    ],
)
def test_what_does_not_fit_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: list[str], sentence: str
) -> None:
    path = tmp_path / "hosts"
    path.write_text(text)
    assert main(["--hostfile", str(path), *words]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("rank 0=n1 slot=0", "has no line for rank 1 of 2"),
        ("rank 0=n1 slot=0\nrank 0=n1 slot=1", "rank 0 stands there twice"),
        ("rank 0=n3 slot=0", "host n3 is not in the hostfile"),
        ("0=n1", "is not understood"),
        ("rank 0=n1 slot=0\nrank 1=n1 slot=0", "puts 2 ranks on n1, which has 1 slots"),
    ],
)
def test_rank_files_that_do_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, sentence: str
) -> None:
    (tmp_path / "hosts").write_text("n1 slots=1\nn2")
    (tmp_path / "ranks").write_text(text)
    assert main(["--hostfile", str(tmp_path / "hosts"), "--ranks", "2", "--rankfile", str(tmp_path / "ranks")]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_the_scripts_are_bash(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)
