"""The paper, reproduced: rules that tell held from not held, runs that are not run twice, and one real panel."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from launch import MPIRUN

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
sys.path.insert(0, str(SCRIPTS))

import reproduce  # noqa: E402
from reproduction import claims, figures, jobs, sheet, traffic  # noqa: E402
from reproduction.findings import Findings  # noqa: E402
from reproduction.plan import (  # noqa: E402
    FIGURES,
    FULL,
    GAUSSIAN,
    GROMOV,
    MIXTURE,
    OWN,
    PANELS,
    PAPER,
    QUICK,
    SAMPLED,
    SEPARATED,
    Place,
    Run,
    gromov_place,
    runs,
    sinkhorn_place,
)
from reproduction.progress import Estimate, Watch  # noqa: E402
from reproduction.rules import RULES, judge  # noqa: E402
from reproduction.store import Store, source_digest  # noqa: E402
from rich.console import Console  # noqa: E402

TRUTH = 10.0
PAPERS_ATTACK = "least squares (the paper's)"


def _run(place: Place, seed: int) -> Run:
    return Run(place, seed, (), 1.0)


def made_up(errors: dict[Place, list[float]], adaptation: dict[str, float] | None = None) -> Findings:
    """Findings in which W~/W - 1 is what a test says, seed by seed."""
    known: list[tuple[Run, dict[str, Any]]] = []
    reference = {"reference": {"centralised": {"dual_objective": TRUTH}}}
    for place in (sinkhorn_place(GAUSSIAN), sinkhorn_place(MIXTURE), Place("fig6", GROMOV, "POT", OWN)):
        known += [(_run(place, seed), reference) for seed in range(3)]
    for place, values in errors.items():
        for seed, error in enumerate(values):
            trace = [{"round": 5 * k, "objective": TRUTH * (1 + error) * k / 4, "start": 0} for k in range(1, 5)]
            known.append((_run(place, seed), {"dual_objective": TRUTH * (1 + error), "trace": trace}))
    found = {}
    if adaptation is not None:
        columns = {column: [accuracy] for column, accuracy in adaptation.items()}
        found = {"U->M": {"set": "digits", "columns": columns}}
    return Findings(QUICK, known, found)


def by_neighbours(figure: str, panel: str, errors: tuple[float, float, float]) -> dict[Place, list[float]]:
    return {Place(figure, panel, "raw", PAPER, n): [e, -e] for n, e in zip(SAMPLED, errors, strict=True)}


def protocols(curve: str, error: float, spread: float = 0.0) -> dict[Place, list[float]]:
    ideal = {Place("fig5", panel, "ideal", PAPER): [0.001, 0.001] for panel in PANELS}
    other = {Place("fig5", panel, curve, PAPER): [error - spread, error + spread] for panel in PANELS}
    return ideal | other


def bits(figure: str, panels: list[str], few: float, many: list[float]) -> dict[Place, list[float]]:
    known = {Place(figure, panel, "Q = 10", PAPER, 8): [few, few] for panel in panels}
    return known | {Place(figure, panel, "Q = 100", PAPER, 8): many for panel in panels}


IID = by_neighbours("fig3", GAUSSIAN, (0.01, 0.005, 0.001))
ACCURACIES = dict(zip(
    ("1NN", "EMD", "Sinkhorn", "OT-LpL1", "DEOT_K", "DEOT_K^", "labels", "class-regularised"),
    (0.4, 0.5, 0.5, 0.5, 0.6, 0.56, 0.5, 0.6), strict=True,
))  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "errors", "held"),
    [
        (claims.robust_when_iid, IID | by_neighbours("fig3", MIXTURE, (0.02, 0.01, 0.001)), True),
        (claims.robust_when_iid, IID | by_neighbours("fig3", MIXTURE, (0.022, 0.01, 0.001)), False),
        (claims.robust_when_iid, IID, None),
        (claims.biased_when_not, by_neighbours("fig3", MIXTURE, (0.001, 0.0, 0.0))
         | by_neighbours("fig3", SEPARATED, (0.01, 0.003, 0.001)), True),
        (claims.biased_when_not, by_neighbours("fig3", MIXTURE, (0.006, 0.0, 0.0))
         | by_neighbours("fig3", SEPARATED, (0.01, 0.003, 0.001)), False),  # no worse than when i.i.d.
        (claims.biased_when_not, by_neighbours("fig3", MIXTURE, (1e-9, 0.0, 0.0))
         | by_neighbours("fig3", SEPARATED, (1e-7, 0.0, 1e-9)), False),  # worse, but nothing to see
        (claims.bits_tolerable, bits("fig3", list(PANELS), 0.4, [0.03, -0.05]), True),
        (claims.bits_tolerable, bits("fig3", list(PANELS), 0.4, [0.06, 0.06]), False),
        (claims.bits_tolerable, bits("fig3", list(PANELS), 0.4, [-0.08, 0.03, 0.03]), False),
        (claims.more_bits_better, bits("fig3", list(PANELS), 0.4, [0.1, 0.1]), True),
        (claims.more_bits_better, bits("fig3", list(PANELS), -0.05, [0.1, 0.1]), False),
        (claims.undirected_comparable, protocols("sparse undirected", -0.02), True),
        (claims.undirected_comparable, protocols("sparse undirected", 0.022), False),
        (claims.directed_degrades, protocols("sparse directed", -0.03), True),
        (claims.directed_degrades, protocols("sparse directed", 0.0, spread=0.0205), True),
        (claims.directed_degrades, protocols("sparse directed", 0.01), False),
        (claims.gromov_near, by_neighbours("fig6", GROMOV, (0.049, 0.03, 0.01)), True),
        (claims.gromov_near, by_neighbours("fig6", GROMOV, (0.051, 0.03, 0.01)), False),
        (claims.gromov_robust, by_neighbours("fig6", GROMOV, (0.2, 0.2, 0.2)), True),
        (claims.gromov_robust, by_neighbours("fig6", GROMOV, (0.2, 0.2, 0.1)), False),
        (claims.gromov_more_bits, bits("fig6", [GROMOV], 0.2, [0.1, 0.1]), True),
        (claims.gromov_more_bits, bits("fig6", [GROMOV], 0.05, [0.1, 0.1]), False),
    ],
)  # fmt: skip
def test_a_rule_tells_held_from_not_held(
    rule: Callable[[Findings, str], claims.Verdict | None], errors: dict[Place, list[float]], held: bool | None
) -> None:
    verdict = rule(made_up(errors), PAPER)
    assert (None if verdict is None else verdict.held) is held


@pytest.mark.parametrize(
    ("rule", "changed", "held"),
    [
        (claims.transport_helps, {}, True),
        (claims.transport_helps, {"EMD": 0.39}, False),
        (claims.adaptation_wins, {}, True),
        (claims.adaptation_wins, {"OT-LpL1": 0.6}, False),
        (claims.adaptation_tolerable, {}, True),
        (claims.adaptation_tolerable, {"DEOT_K^": 0.54}, False),
    ],
)
def test_accuracies_are_judged(
    rule: Callable[[Findings, str], claims.Verdict | None], changed: dict[str, float], held: bool
) -> None:
    verdict = rule(made_up({}, ACCURACIES | changed), PAPER)
    assert verdict is not None
    assert verdict.held is held
    assert rule(made_up({}), PAPER) is None
    assert made_up({}, ACCURACIES).complete("table2")
    assert not made_up({}).complete("table2")


def _audits(error: float, papers: float, strongest: float) -> Findings:
    def point(ratio: float, times: float) -> dict[str, Any]:
        errors = {PAPERS_ATTACK: times * papers, "half-spaces": times * strongest}
        return {"ratio": ratio, "distance_error": times * error, "recovery_errors": errors}

    frontier = {"frontier": [point(2.0, 1.5), point(15.0, 1.0), point(100.0, 0.5)]}
    places = [Place("fig4", f"D = {dimension}", "", PAPER) for dimension in (5, 50)]
    return Findings(QUICK, [(_run(place, 0), frontier) for place in places], {})


def test_privacy_is_judged_by_each_attack() -> None:
    found = _audits(0.04, 0.6, 0.1)
    assert claims.private_by_papers_attack(found, PAPER).held  # type: ignore[union-attr]
    assert not claims.private_by_strongest(found, PAPER).held  # type: ignore[union-attr]
    assert claims.both_fall(found, PAPER).held  # type: ignore[union-attr]
    assert not claims.private_by_papers_attack(_audits(0.06, 0.6, 0.6), PAPER).held  # type: ignore[union-attr]


def _sent(**changed: int) -> Findings:
    """Algorithm 3 at L = 4, as the formulas have it: N = M, I = J = 8, Q = 1000, 50 rounds."""
    samples = QUICK.samples
    place = Place("communication", "D = 5", "Algorithm 3, sketch, L = 4", PAPER, 4)
    sent = {
        "samples": 0, "sketch": 16 * samples * 125, "norms": 16 * samples * 8,
        "potentials": 50 * 4 * (2 * samples // 8) * 8, "objectives": 512,
    }  # fmt: skip
    return Findings(QUICK, [(_run(place, 0), {"traffic": sent | changed, "rounds": 50})], {})


def test_bytes_are_judged_by_the_papers_formulas() -> None:
    assert [row.ratio for row in traffic.rows(_sent(), PAPER)] == [1.0, 1.0, 1.0]
    assert claims.formulas_count(_sent(), PAPER).held  # type: ignore[union-attr]
    assert claims.final_counts(_sent(), PAPER).held  # type: ignore[union-attr]
    assert not claims.formulas_count(_sent(norms=17 * QUICK.samples * 8), PAPER).held  # type: ignore[union-attr]
    assert not claims.final_counts(_sent(objectives=1024), PAPER).held  # type: ignore[union-attr]


def test_a_curve_is_relative_and_stays_where_it_ended() -> None:
    place = Place("fig5", GAUSSIAN, "ideal", OWN)
    curve = made_up({place: [0.0, 0.2]}).curve(place, 40)
    assert curve.rounds.tolist() == [5, 10, 15, 20, 40]
    assert curve.mean == pytest.approx([0.275, 0.55, 0.825, 1.1, 1.1])
    assert curve.spread[-1] == pytest.approx(0.1)


def test_every_size_has_every_curve_of_the_paper() -> None:
    for size in (QUICK, FULL):
        places = {run.place for run in runs(size, FIGURES)}
        count = {name: sum(place.figure == name for place in places) for name in FIGURES}
        assert count["fig3"] == 9 * 3 * 2  # panels, kernels, methods
        assert count["fig5"] == 3 * 3 * 2
        assert count["fig6"] == 3 * 3 + 3 + 1  # by L, ours that asks all, POT
        assert count["fig4"] == 2 * 2
    assert {rule.figure for rule in RULES} == set(FIGURES)


def test_gromov_by_this_program_has_one_curve_for_every_l() -> None:
    found = made_up({gromov_place(curve, OWN, 4): [error] for curve, error in (("raw", 0.04), ("Q = 10", 0.2))})
    assert claims.gromov_near(found, OWN) == claims.Verdict(True, "all neighbours: 0.04")
    assert claims.gromov_near(found, PAPER) is None
    assert claims.gromov_robust(found, OWN) is None  # there is no other L to compare with
    assert claims.gromov_more_bits(found, OWN) is None
    more = made_up({gromov_place(curve, OWN): [error] for curve, error in (("Q = 100", 0.1), ("Q = 10", 0.2))})
    assert claims.gromov_more_bits(more, OWN).held  # type: ignore[union-attr]


def test_the_time_left_follows_the_pace() -> None:
    now = [0.0]
    estimate = Estimate(100.0, lambda: now[0])
    assert estimate.left == pytest.approx(100.0)
    now[0], estimate.done = 100.0, 50.0  # twice as long as it should have taken
    assert estimate.left == pytest.approx(95.0, rel=0.02)
    estimate.done = 100.0
    assert estimate.left == 0.0


def test_a_stored_run_is_of_its_settings_and_source_alone(tmp_path: Path) -> None:
    store, settings = Store(tmp_path, "a"), {"arguments": ["--samples", "10"]}
    assert store.get(settings) is None
    store.put(settings, {"rounds": 3})
    assert store.get(settings) == {"rounds": 3}
    assert store.get({"arguments": ["--samples", "11"]}) is None
    assert Store(tmp_path, "b").get(settings) is None
    next(tmp_path.glob("*.json")).write_text('{"settings"')  # torn
    assert store.get(settings) is None
    changed = tmp_path / "changed.py"
    changed.write_text("x = 1")
    before = source_digest([changed])
    changed.write_text("x = 2")
    assert before != source_digest([changed])


@pytest.mark.skipif(not MPIRUN.exists(), reason="no mpirun in this environment (make setup brings one)")
def test_a_panel_is_run_once_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = replace(QUICK, seeds=1, samples=40, rounds=20)
    shown = {Place("fig5", GAUSSIAN, "ideal", method) for method in (PAPER, OWN)}
    wanted = [run for run in runs(tiny, ("fig5",)) if run.place in shown | {sinkhorn_place(GAUSSIAN)}]
    store, watch = Store(tmp_path, source_digest()), Watch(Console(quiet=True), Estimate(1.0))
    jobs.run_all(wanted, store, watch, ranks=4)
    findings = Findings.stored(tiny, store, {})
    for method, near in ((OWN, 1e-6), (PAPER, 0.2)):
        (error,) = findings.finals(Place("fig5", GAUSSIAN, "ideal", method))
        assert abs(error) < near

    started: list[list[list[str]]] = []

    def no_job(command: list[str], *_: object) -> list[str]:
        started.append(json.loads(Path(command[-2]).read_text()))
        return []

    monkeypatch.setattr(jobs, "lines_of", no_job)
    jobs.run_all(wanted, store, watch, ranks=4)
    assert not started  # all that is wanted is finished
    changed = replace(wanted[-1], arguments=(*wanted[-1].arguments, "--rounds", "5"))
    jobs.run_all([*wanted, changed], store, watch, ranks=4)
    assert started == [[list(changed.arguments)]]

    picture = {"fig5": figures.rendered(figures.figure_5(findings), "svg")}
    text = sheet.built(findings, judge(findings), picture, 1.0, "")
    assert text.count("not measured") > 10  # what was not run is not judged
    assert "data:image/svg+xml" in text
    assert 'src="http' not in text


def test_a_figure_that_is_not_known_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["reproduce.py", "--only", "fig9"])
    assert reproduce.main() == 2
    assert "--only fig9: figures are fig3, fig4" in capsys.readouterr().err
