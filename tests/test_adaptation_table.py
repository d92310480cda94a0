"""The table of domain adaptation: own files in, every column out, and DEOT_K is POT's Sinkhorn."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from launch import MPIRUN, script_main

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
sys.path.insert(0, str(SCRIPTS))

import adaptation_table  # noqa: E402
from adaptation.domains import own  # noqa: E402
from adaptation.report import COLUMNS, Verdict, verdicts  # noqa: E402


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """One domain in each format a user may have; three classes along different columns, the domains turned a little."""
    rng = np.random.default_rng(0)
    given = []
    for name, suffix in (("Art", "npz"), ("Clipart", "csv"), ("Product", "mat")):
        labels = np.tile([1, 2, 3], 16)
        rows = np.eye(5)[labels] + 0.25 * rng.normal(size=(48, 5)) + 0.1 * rng.normal(size=5)
        path = tmp_path / f"{name}.{suffix}"
        if suffix == "npz":
            np.savez(path, X=rows, y=labels)
        elif suffix == "csv":
            np.savetxt(path, np.column_stack([rows, labels]), delimiter=",")
        else:
            scipy.io.savemat(path, {"fts": rows, "labels": labels[:, None]})
        given.append(f"{name}={path}")
    return given


def test_own_domains_are_read_from_every_format(files: list[str]) -> None:
    pairs = own(files, "unit")
    assert [pair.name for pair in pairs][:2] == ["Art->Clipart", "Art->Product"]
    assert len(pairs) == 6
    for pair in pairs:
        assert pair.source.rows.shape == (48, 5)
        np.testing.assert_allclose(np.linalg.norm(pair.source.rows, axis=1), 1.0)
        np.testing.assert_array_equal(pair.target.labels, np.tile([1, 2, 3], 16))


@pytest.mark.skipif(not MPIRUN.exists(), reason="no mpirun in this environment (make setup brings one)")
def test_every_column_is_there_and_ours_is_pots(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adaptation_table, "RANKS", 4)  # eight start more slowly than they work here
    code = script_main(
        adaptation_table.main, "--domains", *files[:2], "--seeds", "1", "--bits", "256", "--grid", "0.1", "--pairs",
        "Clipart->Art", "--by-target-labels", "--out", str(tmp_path / "out"),
    )  # fmt: skip
    assert code == 0
    found = json.loads((tmp_path / "out" / "adaptation.json").read_text())
    assert list(found) == ["Clipart->Art"]
    for one in found.values():
        assert set(one["columns"]) == set(COLUMNS)
        assert all(len(accuracies) == 1 and accuracies[0] > 0.5 for accuracies in one["columns"].values())
        assert one["columns"]["DEOT_K"] == one["columns"]["Sinkhorn"]
        assert max(one["distances"]) < 1e-6
        for column in ("DEOT_K", "OT-LpL1"):  # of one eps, that is the best
            assert one["at_every_eps"][column] == one["columns"][column]
    told = (tmp_path / "out" / "adaptation.md").read_text()
    assert "| Clipart->Art |" in told
    assert f"own, OT-LpL1, mean at each eps (a share of the mean cost): 0.1: {one['columns']['OT-LpL1'][0]:.3f}" in told
    assert (tmp_path / "out" / "adaptation.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data", "/nowhere"], "/nowhere/usps_mnist.npz is not there; name its folder with --data"),
        (["--domains", "Art"], "'Art' is not a domain; give each as NAME=FILE"),
        (["--sets", "letters"], "letters is not a set; sets are digits, pacs"),
        (["--seeds", "0"], "--seeds is 0; it must be 1 or more"),
        (["--validation-rows", "3"], "--validation-rows is 3; it must be 16 or more"),
        (["--grid", "0.1,0"], "a number in --grid is 0.0; it must be a finite number above 0"),
        (["--domains", "ART", "CLIPART", "--pairs", "Art->Photo"], "Art->Photo is not a pair; pairs are Art->Clipart,"),
    ],
)
def test_what_cannot_be_run(
    arguments: list[str], words: str, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [{"ART": files[0], "CLIPART": files[1]}.get(word, word) for word in arguments]
    assert script_main(adaptation_table.main, *arguments) == 2
    assert words in capsys.readouterr().err


def test_so_it_is_from_outside() -> None:
    command = [sys.executable, str(SCRIPTS / "adaptation_table.py"), "--seeds", "0"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("adaptation_table: error: --seeds is 0; it must be 1 or more")


def test_a_figure_that_falls_short_is_said_to() -> None:
    assert str(Verdict("x", 0.57, 0.58)).startswith("NOT MET: x")
    assert str(Verdict("x", 0.58, 0.58)).startswith("met: x")
    columns = {column: [0.6] for column in COLUMNS} | {"DEOT_K": [0.5], "DEOT_K^": [0.45]}
    found = {"P->A": {"set": "pacs", "columns": columns, "at_every_eps": {}, "distances": [1e-9]}}
    assert [verdict.met for verdict in verdicts(found)] == [False, False, True, False, True]
    found["P->A"]["at_every_eps"] = {"DEOT_K": [0.4, 0.55, 0.5]}
    (at_best,) = (verdict for verdict in verdicts(found) if "best eps" in verdict.claim)
    assert (at_best.measured, at_best.least, at_best.met) == (0.55, 0.6, False)
