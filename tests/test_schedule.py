"""The schedule: unbiased for every E, exact at full degree, and the same seen from both ends of an edge."""

from __future__ import annotations

import numpy as np
import pytest

from deot_mpi.protocol import Protocol
from deot_mpi.randomness import Purpose, generator
from deot_mpi.roles import Role
from deot_mpi.solvers.schedule import CyclicSchedule, SampledSchedule, draw, inclusion_probabilities


def some_protocol(sources: int = 4, targets: int = 3) -> Protocol:
    rng = np.random.default_rng(1)
    E = rng.random((sources, targets)) * (rng.random((sources, targets)) < 0.8)
    E[0, :] += 0.1
    E[:, 0] += 0.1
    return Protocol("test", E / E.sum(), np.full(sources, 1 / sources), np.full(targets, 1 / targets))


@pytest.mark.parametrize("wanted", [1, 2, 3, 4, 9])
def test_inclusion_probabilities_sum_to_the_sample_size(wanted: int) -> None:
    weights = np.array([0.7, 0.1, 0.15, 0.05])
    probabilities = inclusion_probabilities(weights, wanted)
    assert probabilities.sum() == pytest.approx(min(wanted, 4))
    assert (probabilities <= 1).all()
    if wanted >= 4:
        np.testing.assert_array_equal(probabilities, 1.0)


@pytest.mark.parametrize("wanted", [1, 2, 3])
def test_draws_have_the_stated_probabilities_and_size(wanted: int) -> None:
    rng = generator(0, Purpose.SOURCE_PICKS, 0)
    probabilities = inclusion_probabilities(np.array([0.5, 0.2, 0.2, 0.1]), wanted)
    draws = [draw(probabilities, rng) for _ in range(6000)]
    assert {len(set(places)) for places in draws} == {wanted}
    frequency = np.bincount(np.concatenate(draws), minlength=4) / len(draws)
    np.testing.assert_allclose(frequency, probabilities, atol=4 * 0.5 / np.sqrt(len(draws)))


@pytest.mark.parametrize("wanted", [1, 2, None])
def test_estimate_is_unbiased_for_any_protocol(wanted: int | None) -> None:
    """The mean of sum_j factor_j G_j over rounds is sum_j (e_ij/e_i) G_j; with all neighbours, every time."""
    protocol = some_protocol()
    G = np.array([1.0, 5.0, -2.0])
    for i in range(4):
        schedule = SampledSchedule(protocol, Role.SOURCE, i, wanted, None, seed=3)
        exact = protocol.E[i] @ G / protocol.E[i].sum()
        estimates = np.array([sum(f * G[j] for j, f in schedule.next().factors.items()) for _ in range(4000)])
        if wanted is None:
            np.testing.assert_allclose(estimates, exact, rtol=1e-12)
        assert abs(estimates.mean() - exact) <= 4.5 * estimates.std() / np.sqrt(len(estimates)) + 1e-12


@pytest.mark.parametrize("pairs", [None, 1, 5])
@pytest.mark.parametrize("wanted", [1, 2, None])
def test_both_ends_of_every_edge_agree(wanted: int | None, pairs: int | None) -> None:
    protocol = some_protocol()
    sampled = {
        (role, k): SampledSchedule(protocol, role, k, wanted, pairs, seed=9)
        for role, count in ((Role.SOURCE, 4), (Role.TARGET, 3))
        for k in range(count)
    }
    cyclic = {key: CyclicSchedule(protocol, *key, wanted) for key in sampled}
    for schedules in (sampled, cyclic):
        for _ in range(50):
            turns = {key: schedule.next() for key, schedule in schedules.items()}
            received = {((role.other, j), (role, k)) for (role, k), turn in turns.items() for j in turn.receive_from}
            sent = {((role, k), (role.other, j)) for (role, k), turn in turns.items() for j in turn.send_to}
            assert received == sent


def test_pairs_are_drawn_from_e() -> None:
    protocol = some_protocol()
    active = np.zeros(4)
    schedules = [SampledSchedule(protocol, Role.SOURCE, i, 1, 1, seed=2) for i in range(4)]
    for _ in range(1500):
        movers = [bool(schedule.next().factors) for schedule in schedules]
        assert sum(movers) == 1
        active += movers
    np.testing.assert_allclose(active / 1500, protocol.E.sum(axis=1), atol=4 * 0.5 / np.sqrt(1500))


def test_cycle_visits_every_neighbour() -> None:
    protocol = some_protocol()
    for i in range(4):
        schedule = CyclicSchedule(protocol, Role.SOURCE, i, 1)
        degree = len(protocol.neighbours(Role.SOURCE, i))
        seen = [schedule.next().receive_from[0] for _ in range(degree)]
        assert sorted(seen) == sorted(protocol.neighbours(Role.SOURCE, i))
