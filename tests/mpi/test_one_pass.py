"""The one-pass solver on real ranks: small eps, precision, memory, threads, warm starts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from problems import pot_answers, scattered, squared_distances
from rank_0 import on_rank_0

import deot_mpi
from deot_mpi import InputError
from deot_mpi.kinds import Kind
from deot_mpi.roles import Role
from deot_mpi.solvers import Status
from deot_mpi.solvers.sinkhorn import Sinkhorn


def clouds(comm: MPI.Intracomm, samples: int = 60, dimension: int = 5) -> tuple[np.ndarray, str, np.ndarray]:
    """This rank's rows of two Gaussian clouds, its role, and the whole cost matrix."""
    count = comm.size // 2
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(samples, dimension)), rng.normal(size=(samples, dimension)) + 0.5
    parts = [*np.array_split(x, count), *np.array_split(y, comm.size - count)]
    return parts[comm.rank], "source" if comm.rank < count else "target", squared_distances(x, y)


@pytest.mark.mpi(min_size=2, max_size=4)
@pytest.mark.parametrize("acceleration", ["full", "anderson", "none"])
def test_every_way_leads_to_pots_values(comm: MPI.Intracomm, acceleration: str) -> None:
    rows, role, cost = clouds(comm)
    count = comm.size // 2
    whole = comm.allgather(rows)
    x, y = np.concatenate(whole[:count]), np.concatenate(whole[count:])
    eps = 0.1 * float(np.median(cost))
    expected = on_rank_0(comm, lambda: pot_answers(x, y, np.full(60, 1 / 60), np.full(60, 1 / 60), eps))
    result = deot_mpi.eot(
        comm, rows, role, kernel="raw", eps=eps, tol=1e-10, rounds=20_000, acceleration=acceleration,
        timeout=60.0,
    )  # fmt: skip
    assert result.status is Status.MARGINAL
    for name, value in vars(expected).items():
        assert getattr(result, name) == pytest.approx(value, rel=1e-8)


@pytest.mark.mpi(min_size=2, max_size=4)
def test_a_thousandth_of_the_median_cost_converges(comm: MPI.Intracomm) -> None:
    """No NaN and no overflow (warnings are errors in tests); F is the supremum, so no plan and no POT can beat it."""
    rows, role, cost = clouds(comm, samples=120)
    eps = 0.001 * float(np.median(cost))
    results = {
        tol: deot_mpi.eot(comm, rows, role, kernel="raw", eps=eps, tol=tol, rounds=20_000, timeout=60.0)
        for tol in (1e-6, 1e-7)
    }
    for tol, result in results.items():
        assert result.status is Status.MARGINAL
        assert result.marginal_error <= tol
        assert np.isfinite(result.potential).all()
    # An L1 error of 1e-6 times the largest cost bounds the difference.
    assert results[1e-6].transport_cost == pytest.approx(results[1e-7].transport_cost, abs=2e-6 * cost.max())

    def pots() -> float:
        import ot

        weights = np.full(120, 1 / 120)
        return float(ot.emd2(weights, weights, cost))

    unregularised = on_rank_0(comm, pots)
    assert unregularised - 1e-7 * cost.max() <= results[1e-7].transport_cost <= unregularised + eps * np.log(120)


@pytest.mark.mpi(min_size=2, max_size=4)
def test_eps_scaling_is_another_way_to_the_same_place(comm: MPI.Intracomm) -> None:
    rows, role, cost = clouds(comm)
    results = {
        scaling: deot_mpi.eot(
            comm, rows, role, kernel="raw", eps=0.003 * float(np.median(cost)), tol=1e-7, rounds=20_000,
            eps_scaling=scaling, timeout=60.0,
        )
        for scaling in (True, False)
    }  # fmt: skip
    assert {point.temperature for point in results[False].trace} == {1.0}
    assert max(point.temperature for point in results[True].trace) > 1.0
    for result in results.values():
        assert result.status is Status.MARGINAL
    assert results[True].regularised_cost == pytest.approx(results[False].regularised_cost, rel=1e-9)


@pytest.mark.mpi(min_size=4, max_size=7)
def test_an_agent_without_partners_sees_the_same_run(comm: MPI.Intracomm) -> None:
    """Source 0 (rank 0, which reports) has no edge; the others scale eps, set back, stop: all ranks tell the same."""
    rows, role, cost = clouds(comm)
    E = np.full((comm.size // 2, comm.size - comm.size // 2), 1.0)
    E[0] = 0.0
    result = deot_mpi.eot(
        comm, rows, role, kernel="raw", eps=0.003 * float(np.median(cost)), protocol=E / E.sum(), rounds=3000,
        timeout=60.0,
    )  # fmt: skip
    traces = comm.allgather([(p.round, p.objective, p.error, p.temperature) for p in result.trace])
    assert all(trace == traces[0] for trace in traces)
    assert max(temperature for *_, temperature in traces[0]) > 1
    assert result.status is Status.MARGINAL


@pytest.mark.mpi(min_size=2, max_size=4)
def test_acceleration_saves_rounds(comm: MPI.Intracomm) -> None:
    rows, role, cost = clouds(comm, samples=120)
    rounds = {}
    for acceleration in ("full", "anderson", "none"):
        result = deot_mpi.eot(
            comm, rows, role, kernel="raw", eps=0.03 * float(np.median(cost)), tol=1e-6, rounds=20_000,
            acceleration=acceleration, timeout=60.0,
        )  # fmt: skip
        rounds[acceleration] = result.rounds
    assert rounds["anderson"] < rounds["none"] / 3
    assert rounds["full"] < 0.8 * rounds["anderson"]


@pytest.mark.mpi(min_size=2, max_size=4)
def test_rounds_end_as_soon_as_tol_is_reached(comm: MPI.Intracomm) -> None:
    """Without a look after every round: where the error falls evenly, the agents know when one is worth it."""
    rows, role, cost = clouds(comm, samples=200)
    between = 0
    for share in (0.1, 0.12, 0.15, 0.2, 0.3):
        eps = share * float(np.median(cost))
        watched, alone = (
            deot_mpi.eot(comm, rows, role, kernel="raw", eps=eps, tol=1e-6, rounds=1000, check_every=every)
            for every in (1, 1000)
        )
        assert alone.status is watched.status is Status.MARGINAL
        # A tally, which every third round has, shows it in any case.
        assert watched.rounds <= alone.rounds <= watched.rounds + 2
        assert alone.ledger.of(Kind.CONTROL).collectives < watched.ledger.of(Kind.CONTROL).collectives
        between += alone.rounds % 3 != 0
    assert between > 0


@pytest.mark.mpi(min_size=2, max_size=4)
def test_a_run_that_stops_early_says_so(comm: MPI.Intracomm) -> None:
    rows, role, cost = clouds(comm)
    for rounds in (1, 2, 7):  # also while eps is still scaled
        result = deot_mpi.eot(
            comm, rows, role, kernel="raw", eps=0.001 * float(np.median(cost)), rounds=rounds, timeout=60.0
        )
        assert (result.status, result.rounds) == (Status.ROUNDS, rounds)
        assert "not converged" in result.status.text
        assert np.isfinite(list(vars(result.values).values())).all()
        blocks = comm.allgather(result.potential)
        count = comm.size // 2
        f, g = np.concatenate(blocks[:count]), np.concatenate(blocks[count:])
        plan = np.exp((f[:, None] + g - cost) / result.eps) / cost.size
        error = np.abs(plan.sum(axis=0) - 1 / 60).sum() + np.abs(plan.sum(axis=1) - 1 / 60).sum()
        assert result.marginal_error == pytest.approx(error, rel=1e-9)
        assert result.transport_cost == pytest.approx((plan * cost).sum(), rel=1e-9)


@pytest.mark.mpi(min_size=2, max_size=4)
def test_float32_is_checked_in_float64_and_sharpened_where_it_is_not_enough(comm: MPI.Intracomm) -> None:
    rows, role, cost = clouds(comm, samples=200)
    eps = 0.05 * float(np.median(cost))
    common = {"kernel": "raw", "eps": eps, "rounds": 5000, "timeout": 60.0}
    single, double = (
        deot_mpi.eot(comm, rows, role, **common, tol=1e-6, precision=precision) for precision in ("float32", "float64")
    )
    assert single.marginal_error <= 1e-6
    assert single.regularised_cost == pytest.approx(double.regularised_cost, rel=1e-9)
    assert single.transport_cost == pytest.approx(double.transport_cost, rel=1e-6)
    # Far below what float32 can see: the float64 check notices, and the rounds go on in float64.
    sharpened = deot_mpi.eot(comm, rows, role, **common, tol=2e-8, precision="float32")
    assert sharpened.status is Status.MARGINAL
    assert sharpened.marginal_error <= 2e-8


@pytest.mark.mpi(min_size=2, max_size=7)
@pytest.mark.parametrize("kernel", ["raw", "sketch"])
def test_memory_and_threads_do_not_change_a_bit(comm: MPI.Intracomm, kernel: str) -> None:
    count = comm.size // 2 or 1
    rows = scattered(3, comm.rank, count, base=40)
    common = {"kernel": kernel, "eps": 0.3, "rounds": 200, "timeout": 60.0}
    role = "source" if comm.rank < count else "target"
    first, *others = (
        deot_mpi.eot(comm, rows, role, **common, **means)
        for means in ({}, {"memory": 1}, {"threads": 3}, {"memory": 1 + comm.rank * 10**6, "threads": 1 + comm.rank})
    )
    for other in others:
        assert other.values == first.values
        np.testing.assert_array_equal(other.potential, first.potential)


@pytest.mark.mpi(min_size=2, max_size=4)
@pytest.mark.parametrize("solver", ["sinkhorn", "kept", "mrbcd"])
def test_a_warm_start_goes_on_where_the_last_run_ended(comm: MPI.Intracomm, solver: str) -> None:
    rows, role, cost = clouds(comm)
    common = {"kernel": "raw", "solver": solver, "rounds": 4000, "tol": 1e-6, "timeout": 60.0}
    eps = 0.2 * float(np.median(cost))
    cold = deot_mpi.eot(comm, rows, role, eps=eps, **common)
    assert cold.status is Status.MARGINAL
    again = deot_mpi.eot(comm, rows, role, eps=eps, start=cold.potential, **common)
    assert again.rounds <= min(3, cold.rounds)
    assert again.regularised_cost == pytest.approx(cold.regularised_cost, rel=1e-9)


@pytest.mark.mpi(min_size=2, max_size=4)
def test_a_start_that_does_not_fit_is_refused_on_all_ranks(comm: MPI.Intracomm) -> None:
    rows, role, _ = clouds(comm)
    wrong = np.zeros(len(rows) + (comm.rank == 0))
    with pytest.raises(InputError, match=r"source agent 0: the potential to start from has shape"):
        deot_mpi.eot(comm, rows, role, start=wrong, timeout=60.0)
    with pytest.raises(InputError, match=r"target agent 0 has no potential to start from"):
        deot_mpi.eot(comm, rows, role, start=np.zeros(len(rows)) if role == "source" else None, timeout=60.0)
    with pytest.raises(InputError, match=r"not finite"):
        deot_mpi.eot(comm, rows, role, start=np.full(len(rows), np.nan), timeout=60.0)


@pytest.mark.mpi(min_size=4, max_size=4)
def test_mixing_that_goes_wrong_falls_back_to_plain_steps(comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Coefficients that are nonsense must cost rounds, not the result."""
    from deot_mpi.solvers.anderson import Anderson

    calls, setbacks = [], []
    forget = Anderson.forget

    def counted(mixer: Anderson) -> None:
        setbacks.append(mixer)
        forget(mixer)

    def nonsense(mixer: Anderson, products: np.ndarray) -> None:
        calls.append(products)
        if len(calls) % 3 == 0 and len(mixer._points) > 2:
            mixer._coefficients = np.array([*[0.0] * (len(mixer._points) - 3), 40.0, -40.0])

    rows, role, cost = clouds(comm)
    eps = 0.1 * float(np.median(cost))
    common = {"kernel": "raw", "eps": eps, "rounds": 3000, "tol": 1e-8, "timeout": 60.0}
    plain = deot_mpi.eot(comm, rows, role, **common)
    monkeypatch.setattr(Anderson, "solve", nonsense)
    monkeypatch.setattr(Anderson, "forget", counted)
    led_astray = deot_mpi.eot(comm, rows, role, **common)
    assert setbacks, "no stage changes at this eps: a mixer forgets only when it was led astray"
    assert led_astray.status is Status.MARGINAL
    assert led_astray.rounds > plain.rounds
    assert led_astray.regularised_cost == pytest.approx(plain.regularised_cost, rel=1e-9)


@pytest.mark.mpi(min_size=3, max_size=7)
def test_potentials_that_arrive_late_are_worked_on_as_they_come(
    comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One target is slow: the sources use the time, and the result is the same to the bit."""
    import time

    from deot_mpi.kernel.rowblock import RowBlock

    count = 1
    rows = scattered(3, comm.rank, count, base=40)
    role = "source" if comm.rank < count else "target"
    common = {"kernel": "raw", "eps": 0.3, "rounds": 12, "tol": 0.0, "timeout": 60.0}
    prompt = deot_mpi.eot(comm, rows, role, **common)
    heard: list[int] = []
    hear, ask = RowBlock.hear, Sinkhorn._move_and_ask

    def counted(block: RowBlock, neighbour: int, potential: np.ndarray) -> None:
        heard.append(neighbour)
        hear(block, neighbour, potential)

    def slow(solver: Sinkhorn, *given: object) -> None:
        if solver.view.role is Role.TARGET and solver.view.index == 0:
            time.sleep(0.02)
        ask(solver, *given)

    monkeypatch.setattr(RowBlock, "hear", counted)
    monkeypatch.setattr(Sinkhorn, "_move_and_ask", slow)
    late = deot_mpi.eot(comm, rows, role, **common)
    assert late.values == prompt.values
    np.testing.assert_array_equal(late.potential, prompt.potential)
    if role == "source":
        assert 1 in heard


@pytest.mark.mpi(min_size=2, max_size=4)
def test_saved_potentials_start_the_next_run(comm: MPI.Intracomm, tmp_path: Path) -> None:
    from functools import partial

    from deot_mpi.data.files import load_start
    from deot_mpi.data.samples import Samples
    from deot_mpi.eot import solve_eot
    from deot_mpi.options import EOTOptions
    from deot_mpi.report.files import save_potential

    folder = str(comm.bcast(tmp_path))
    rows, role, cost = clouds(comm)
    eps = 0.05 * float(np.median(cost))
    first = deot_mpi.eot(comm, rows, role, kernel="raw", eps=eps, timeout=60.0)
    save_potential(first, folder)
    options = EOTOptions(kernel="raw", eps=eps, timeout=60.0)
    again = solve_eot(comm, Role(role), lambda agents: Samples(rows), options, start=partial(load_start, folder))
    assert again.rounds < first.rounds
    with pytest.raises(InputError, match="no such file"):
        solve_eot(comm, Role(role), lambda agents: Samples(rows), options, start=partial(load_start, folder + "x"))
