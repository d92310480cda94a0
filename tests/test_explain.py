"""The statement beforehand: every kind of message that a run sends along edges is announced, and no other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from launch import MPIRUN, launch_several

from deot_mpi.options import AdaptOptions, AuditOptions, EOTOptions, GromovOptions, Options
from deot_mpi.privacy.disclosure import protection_notes, warning
from deot_mpi.privacy.explain import lessons, told
from deot_mpi.privacy.findings import Protection

MANY = {"source": 3, "target": 3}


@pytest.mark.parametrize(
    ("options", "words", "absent"),
    [
        (EOTOptions(), "1024 bits a row", "rows themselves"),
        (EOTOptions(flip=0.2, norm_step=0.1), "turned round with probability 0.2", "exactly"),
        (EOTOptions(kernel="raw"), "its rows themselves", "bits"),
        (EOTOptions(eps=1.0), "the mean of both domains", "each domain's mean"),
        (GromovOptions(), "agents of its own domain", "second moments"),
        (GromovOptions(moment="exchange"), "raw rows, as eps goes to 0", "second moments"),
        (AdaptOptions(), "a row mapped to the target domain", "the mass that each"),
        (AdaptOptions(method="labels"), "the mass that each of its classes sends", "mapped"),
        (EOTOptions(debias=True), "every other agent of its own domain: on which side of random planes", "themselves"),
        (EOTOptions(kernel="raw", debias=True), "of its own domain: its rows themselves", "bits"),
        (EOTOptions(pairwise_seeds=True), "planes that only the two know", "rows themselves"),
        (AuditOptions(mapped=True), "sketch, length and potential of a row", "rows themselves"),
        (AuditOptions(), "quantiles of the errors", "rows themselves"),
        (AuditOptions(reference=True), "rows themselves", "second moments"),
    ],
)
def test_what_is_said(options: Options, words: str, absent: str) -> None:
    assert words in told(options, MANY)
    assert absent not in told(options, MANY)


@pytest.mark.parametrize("options", [EOTOptions(), EOTOptions(centre=False), GromovOptions(), AdaptOptions()])
def test_so_few_agents_that_a_sum_tells_of_each_are_told_so_beforehand(options: Options) -> None:
    told_to = {count: told(options, {"source": count, "target": 3}) for count in (1, 2, 3)}
    assert "one source agent, whose own they are" in told_to[1]
    assert "two source agents, each of which can tell the other's" in told_to[2]
    assert "there are only" not in told_to[3]
    both = told(options, {"source": 1, "target": 2})
    assert "only one source agent, whose own they are, and two target agents, each of which" in both


def test_two_agents_learn_each_other_from_the_mean_of_both() -> None:
    for options, said in ((EOTOptions(eps=1.0), True), (EOTOptions(eps=1.0, centre=False), False)):
        assert ("each knows the other's" in told(options, {"source": 1, "target": 1})) is said
        assert "each knows the other's" not in told(options, {"source": 1, "target": 2})


def test_what_gives_rows_away_is_said_beforehand() -> None:
    """A wish for less than half a row's length is no protection, whoever wishes it."""
    assert warning(EOTOptions(max_recovery=0.5)) is None
    for options in (EOTOptions(max_recovery=0.2), EOTOptions(kernel="raw"), EOTOptions(), AdaptOptions(flip=0.2)):
        assert (warning(options) or "").startswith("not private")
    chosen = Protection((), 64, 0.1, 0.2, 0.01, 5.0, 0.9)
    assert "That is not private." in protection_notes(chosen)[0]
    assert "not private" not in protection_notes(replace(chosen, recovery_error=0.5))[0]


ANNOUNCED = [["--debias"], ["--pairwise-seeds"], ["--kernel", "raw", "--solver", "kept"], ["gromov", "--starts", "1"]]


@pytest.mark.skipif(not MPIRUN.exists(), reason="no mpirun in this environment (make setup brings one)")
def test_the_ledger_shows_nothing_that_was_not_announced(tmp_path: Path) -> None:
    common = ["--samples", "40", "--explain", "--bits", "64", "--json"]
    runs = launch_several(4, [[*words, *common, f"{k}.json"] for k, words in enumerate(ANNOUNCED)], tmp_path)
    for k, run in enumerate(runs):
        assert run.code == 0, run.err
        assert run.out.index("Before anything is sent") < run.out.index("dual_objective")
        assert run.err.startswith("deot_mpi: warning: not private")
        found = json.loads((tmp_path / f"{k}.json").read_text())
        announced = {kind for lesson in found["disclosure"] for kind in lesson["kind"].split(", ")}
        sent = {row["kind"] for row in found["ledger"]["by_kind"] if row["bytes"] or row["within_bytes"]}
        assert sent <= announced, ANNOUNCED[k]
    found = json.loads((tmp_path / "0.json").read_text())
    assert len(found["disclosure"]) == len(lessons(EOTOptions(debias=True), MANY))
    assert found["sinkhorn_divergence"] == pytest.approx(
        found["regularised_cost"] - (found["source_self_term"] + found["target_self_term"]) / 2
    )
    assert f"{found['sinkhorn_divergence']:.10g}" in runs[0].out
