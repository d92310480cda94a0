"""Choosing eps by reverse validation: the same scores as POT's plans give on the pooled halves. Real ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from problems import squared_distances
from rank_0 import on_rank_0
from test_adapt import Domains, blocks, nearest

import deot_mpi
from deot_mpi import InputError
from deot_mpi.adaptation.choice import chosen_scale
from deot_mpi.randomness import Purpose, generator

GRID = (0.05, 0.4)
CHOOSE: dict[str, Any] = {"eps": None, "choose_eps": True, "eps_grid": GRID, "tol": 1e-6}


def plan(x: np.ndarray, y: np.ndarray, scale: float) -> np.ndarray:
    import ot

    cost = squared_distances(x, y)
    a, b = np.full(len(x), 1 / len(x)), np.full(len(y), 1 / len(y))
    return np.asarray(ot.sinkhorn(a, b, cost, scale * cost.mean(), method="sinkhorn_log", numItermax=20_000))


def mapped(coupling: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return np.asarray(coupling / coupling.sum(axis=1, keepdims=True)) @ rows


def score(domains: Domains, scale: float) -> float:
    """There with one half, back to the other, with POT."""
    places = blocks(np.arange(len(domains.x)), domains.sources)
    draws = [generator(0, Purpose.VALIDATION, 0, i).permutation(len(part)) for i, part in enumerate(places)]
    first = np.concatenate([part[order[: len(part) // 2]] for part, order in zip(places, draws, strict=True)])
    second = np.setdiff1d(np.arange(len(domains.x)), first)
    right, known = np.zeros(3), np.zeros(3)
    for shown, hidden in ((first, second), (second, first)):
        x, y = domains.x[shown], domains.y
        guessed = nearest(mapped(plan(x, y, scale), y), domains.labels[shown], y)
        back = plan(domains.x[hidden], y, scale).T
        predicted = nearest(mapped(back, domains.x[hidden]), guessed, domains.x[hidden])
        for place, name in enumerate((2, 5, 11)):
            own = domains.labels[hidden] == name
            right[place] += (predicted[own] == name).sum()
            known[place] += own.sum()
    return float((right / known).mean())


@pytest.mark.mpi(min_size=2, max_size=4)
def test_scores_are_those_of_pots_plans(comm: MPI.Intracomm) -> None:
    domains = Domains(comm)
    result = domains.run(**CHOOSE)
    expected = on_rank_0(comm, lambda: [score(domains, scale) for scale in GRID])
    assert result.choice is not None
    assert [one.scale for one in result.choice.scores] == list(GRID)
    assert [one.score for one in result.choice.scores] == pytest.approx(expected)
    assert len(set(expected)) == 2, "the scores should tell the two apart"
    assert result.settings["eps_scale"] == result.choice.chosen == chosen_scale(GRID, expected)
    assert result.choice.bytes > result.ledger.of(deot_mpi.kinds.Kind.SAMPLES).bytes
    assert any("Targets' true labels were not used" in note for note in result.notes)
    beyond = any("one beyond it may do as well or better" in note for note in result.notes)
    assert beyond is (result.choice.chosen == GRID[-1])


@pytest.mark.mpi(min_size=4, max_size=4)
@pytest.mark.parametrize("options", [{"kernel": "sketch", "bits": 64}, {"protocol": "ring"}, {"method": "labels"}])
def test_the_choice_needs_no_target_labels_and_is_everywhere_the_same(
    comm: MPI.Intracomm, options: dict[str, Any]
) -> None:
    domains = Domains(comm)
    told, untold = domains.run(**{**CHOOSE, **options}), domains.run(truth=False, **{**CHOOSE, **options})
    assert told.choice is not None
    assert untold.choice is not None
    assert told.choice.scores == untold.choice.scores
    assert len(set(comm.allgather(told.choice.scores))) == 1
    np.testing.assert_array_equal(told.predictions, untold.predictions)


@pytest.mark.mpi(min_size=2, max_size=2)
def test_what_cannot_be_chosen(comm: MPI.Intracomm) -> None:
    domains = Domains(comm)
    with pytest.raises(InputError, match=r"eps_scale is 0.1, and choose_eps is to choose it"):
        domains.run(**{**CHOOSE, "eps_scale": 0.1})
    with pytest.raises(InputError, match=r"eps_grid is .*it must be a list"):
        domains.run(**{**CHOOSE, "eps_grid": ()})
    rows, labels = domains.own(domains.x, domains.y), domains.own(domains.labels, domains.truth)
    role = "source" if domains.is_source else "target"
    with pytest.raises(InputError, match="source agent 0: has one row, and choosing eps needs two"):
        deot_mpi.adapt(comm, rows[:1], role, labels=labels[:1], choose_eps=True, kernel="raw")


def test_the_largest_eps_within_a_twentieth_of_the_best() -> None:
    assert chosen_scale((0.1, 0.2, 0.3), [0.8, 0.765, 0.5]) == 0.2
    assert chosen_scale((0.1, 0.2, 0.3), [0.8, 0.7, 0.77]) == 0.3
    assert chosen_scale((0.1,), [0.0]) == 0.1
