"""The benchmark runs, and judges everybody alike: deot_mpi and POT agree where both have converged."""

from __future__ import annotations

import json
import sys
from functools import partialmethod
from pathlib import Path

import numpy as np
import pytest
from launch import MPIRUN, script_main

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
sys.path.insert(0, str(SCRIPTS))

import bench  # noqa: E402
from benchmark.problem import Given, Problem, judge, squared_distances  # noqa: E402


@pytest.mark.skipif(not MPIRUN.exists(), reason="no mpirun in this environment (make setup brings one)")
def test_peers_are_measured_to_the_same_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of 300 rows each, by 1 + 1 ranks: more start more slowly than they work here.
    monkeypatch.setattr(bench.Bench, "own_command", partialmethod(bench.Bench.own_command, ranks=2))
    wanted = ("--quick", "--repeats", "1", "--only", "peers", "--peers", "POT sinkhorn")
    assert script_main(bench.main, *wanted, "--out", str(tmp_path)) == 0
    results = json.loads((tmp_path / "bench.json").read_text())["peers"]
    for measured in results.values():
        own, pot = measured["deot_mpi"], measured["POT sinkhorn"]
        assert own["l1_error"] <= 1e-6
        assert own["status"] == "marginal"
        if "over_limit" not in pot:
            assert pot["l1_error"] <= 1e-6
            for value in ("regularised_cost", "transport_cost"):
                assert own[value] == pytest.approx(pot[value], rel=1e-6)
    assert "over_limit" not in results["0.05"]["POT sinkhorn"]
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")


def test_the_judge_sees_what_a_plan_is_worth(tmp_path: Path) -> None:
    given = Given.read(str(Problem(30, 3, 0.5).write(tmp_path)))
    rng = np.random.default_rng(0)
    f, g = rng.normal(size=30), rng.normal(size=30)
    cost = squared_distances(np.asarray(given.rows("source")), np.asarray(given.rows("target")))
    plan = np.exp((f[:, None] + g - cost) / given.eps) / 900
    found = judge(given, f, g)
    error = np.abs(plan.sum(axis=0) - 1 / 30).sum() + np.abs(plan.sum(axis=1) - 1 / 30).sum()
    assert found["l1_error"] == pytest.approx(error, rel=1e-12)
    assert found["transport_cost"] == pytest.approx((plan * cost).sum(), rel=1e-12)
