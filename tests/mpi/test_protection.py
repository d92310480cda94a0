"""Noise on what is sent, and the audit of it. Real ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from problems import scattered
from recording import Record, RecordingComm

import deot_mpi
from deot_mpi import InputError
from deot_mpi.privacy.victims import INFORMED, LINKAGE, MEANS, MEMBERSHIP, RECOVERIES, ROWS_ALONE, TOGETHER
from deot_mpi.sketch import packed_bytes, sketch, unpacked

BITS = 128
NOISY: dict[str, Any] = {"bits": BITS, "eps": 2.0, "flip": 0.2, "private_seed": 7, "timeout": 60.0}


def role_of(comm: MPI.Intracomm) -> str:
    return "source" if comm.rank < comm.size // 2 else "target"


def rows_of(comm: MPI.Intracomm, dimension: int = 6, base: int = 9) -> np.ndarray:
    return scattered(4, comm.rank, comm.size // 2, dimension, base)


@pytest.mark.mpi(min_size=4, max_size=4)
def test_clean_bits_never_leave(comm: MPI.Intracomm) -> None:
    """What targets send differs from their sketch in about a fifth of the bits, and is the same to every neighbour."""
    rows, record = rows_of(comm), Record()
    deot_mpi.eot(RecordingComm(comm).recording(record), rows, role_of(comm), **NOISY)
    everything = comm.allgather(rows)
    means = [np.concatenate(part).mean(axis=0) for part in (everything[:2], everything[2:])]
    clean = sketch(rows - (means[0] + means[1]) / 2, BITS, 0, True)
    size = clean.size
    sent = {m.content for m in record.sent if m.destination is not None and len(m.content) == size}
    if role_of(comm) == "source":
        return
    alike = [unpacked(np.frombuffer(c, np.uint8).reshape(clean.shape), BITS) for c in sent]
    differing = [float((bits != unpacked(clean, BITS)).mean()) for bits in alike]
    near = [share for share in differing if 0.1 < share < 0.3]
    assert len(near) == 1, differing
    assert clean.tobytes() not in sent
    assert packed_bytes(BITS) * len(rows) == size


@pytest.mark.mpi(min_size=4, max_size=4)
@pytest.mark.parametrize("solver", ["sinkhorn", "kept"])
def test_the_solution_is_that_of_the_noisy_kernel(comm: MPI.Intracomm, solver: str) -> None:
    """Both roles mean the same kernel, also where both compute: POT solves it to the same value."""
    result = deot_mpi.eot(
        comm, rows_of(comm), role_of(comm), **NOISY, solver=solver, norm_step=0.3, tol=1e-9, rounds=5000, reference=True
    )
    assert result.errors is not None
    assert result.errors.algorithm < 1e-6 * abs(result.dual_objective)
    assert result.errors.kernel > 1e-4 * abs(result.dual_objective), "noise should show"
    assert "private_seed" not in result.settings


@pytest.mark.mpi(min_size=2, max_size=2)
def test_noise_is_the_agents_own(comm: MPI.Intracomm) -> None:
    def value(**options: Any) -> float:
        return deot_mpi.eot(comm, rows_of(comm), role_of(comm), **{**NOISY, **options}).dual_objective

    assert value() == value()
    assert value() != value(private_seed=8)
    assert value(private_seed=None) != value(private_seed=None)
    assert value(private_seed=comm.rank) == value(private_seed=comm.rank), "every agent may have its own"


@pytest.mark.mpi(min_size=2, max_size=2)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"flip": 0.5}, r"flip is 0.5; it is a probability from 0 to 0.49"),
        ({"flip": 0.1, "kernel": "raw"}, r"flip is for sketches, but kernel is 'raw'"),
        ({"norm_step": 0.1, "kernel": "raw"}, r"norm_step is for sketches"),
        ({"flip": 0.1, "estimator": "paper"}, r"flip needs estimator 'hamming'"),
        ({"norm_step": -1.0}, r"norm_step is -1.0; it is a relative step"),
        ({"private_seed": -1}, r"private_seed is -1; it must be a whole number"),
    ],
)
def test_noise_that_cannot_be(comm: MPI.Intracomm, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        deot_mpi.eot(comm, rows_of(comm), role_of(comm), **options)


AUDIT: dict[str, Any] = {
    "bits": 60, "eps": 2.0, "victims": 15, "ratios": (0.5, 10.0), "flips": (0.0, 0.3), "trials": 1, "timeout": 60.0,
}  # fmt: skip


@pytest.mark.mpi(min_size=4, max_size=4)
@pytest.mark.parametrize("solver", ["sinkhorn", "kept"])
def test_the_audit_says_what_it_found_and_shows_no_row(comm: MPI.Intracomm, solver: str) -> None:
    rows, record = rows_of(comm, base=40), Record()
    result = deot_mpi.audit(RecordingComm(comm).recording(record), rows, role_of(comm), **AUDIT, solver=solver)
    assert record.held == 0
    assert len(set(comm.allgather(str(result.to_dict())))) == 1
    by_name = {one.name: one for one in result.attacks}
    assert set(by_name) == {ROWS_ALONE, *RECOVERIES, MEMBERSHIP, LINKAGE} - {TOGETHER, MEANS}
    assert by_name[INFORMED].median_recovery_error < 0.3  # ten bits a column
    assert by_name[MEMBERSHIP].score == 1.0
    assert by_name[LINKAGE].score == 1.0
    assert result.verdict.startswith("Not private: 'half-spaces")
    assert result.distance_error is None
    few, many = result.frontier[0], result.frontier[-2]
    assert (few.bits, few.flip, many.bits, many.flip) == (3, 0.0, 60, 0.0)
    assert many.strongest < few.strongest
    assert many.strongest < result.frontier[-1].strongest, "flips protect"
    secret = rows.ravel()
    for message in record.sent:
        doubles = np.frombuffer(message.content[: len(message.content) // 8 * 8], dtype=np.float64)
        with np.errstate(invalid="ignore"):
            assert not (np.abs(doubles[:, None] - secret) <= 1e-10 * np.abs(secret)).any(), message.call


@pytest.mark.mpi(min_size=2, max_size=2)
def test_the_audit_measures_the_distance_where_it_may(comm: MPI.Intracomm) -> None:
    rows = rows_of(comm, base=30)
    result = deot_mpi.audit(comm, rows, role_of(comm), **AUDIT, reference=True, flip=0.25, private_seed=1)
    exact = deot_mpi.eot(comm, rows, role_of(comm), kernel="raw", eps=2.0).dual_objective
    noisy = deot_mpi.eot(comm, rows, role_of(comm), eps=2.0, bits=60, flip=0.25, private_seed=1).dual_objective
    assert result.distance_error == pytest.approx(abs(noisy - exact) / abs(exact))
    assert result.guarantee is not None
    assert result.guarantee.per_bit == pytest.approx(np.log(3.0))
    assert any("raw rows" in note for note in result.notes)


@pytest.mark.mpi(min_size=4, max_size=4)
@pytest.mark.parametrize(("eps", "near"), [(0.01, True), (50.0, False)])
def test_means_of_rows_are_rows_at_small_eps(comm: MPI.Intracomm, eps: float, near: bool) -> None:
    """Each target row has a twin among the source rows, to which a sharp plan sends it alone. A means attack is then
    sure of it; at a large eps all means are one mean."""
    rows = np.random.default_rng(comm.rank % (comm.size // 2)).normal(size=(20, 6))
    record = Record()
    options = {**AUDIT, "eps": eps, "bits": 1024, "ratios": (1.0,), "flips": (0.0,), "mapped": True, "rounds": 200}
    result = deot_mpi.audit(RecordingComm(comm).recording(record), rows, role_of(comm), **options)
    error = next(one for one in result.attacks if one.name == MEANS).median_recovery_error
    assert error is not None
    assert error < 0.01 if near else error > 0.5
    assert result.verdict.startswith("Not private")  # 1024 bits, in any case
    secret = rows.ravel()
    for message in record.sent:
        doubles = np.frombuffer(message.content[: len(message.content) // 8 * 8], dtype=np.float64)
        with np.errstate(invalid="ignore"):
            assert not (np.abs(doubles[:, None] - secret) <= 1e-10 * np.abs(secret)).any(), message.call


@pytest.mark.mpi(min_size=2, max_size=2)
def test_audits_that_cannot_be(comm: MPI.Intracomm) -> None:
    with pytest.raises(InputError, match=r"kernel is 'raw', which sends rows: there is nothing to recover"):
        deot_mpi.audit(comm, rows_of(comm), role_of(comm), kernel="raw")
    with pytest.raises(InputError, match=r"target agent 0: has 5 rows; attacking some,.* needs 8 or more"):
        deot_mpi.audit(comm, rows_of(comm)[:5], role_of(comm), eps=1.0)
    with pytest.raises(InputError, match=r"a rate in flips is 0.7"):
        deot_mpi.audit(comm, rows_of(comm), role_of(comm), flips=(0.7,))


def wide_rows(comm: MPI.Intracomm, latent: int | None) -> np.ndarray:
    """60 columns: all of them independent, or a few latent ones mixed."""
    rng = np.random.default_rng([5, comm.rank])
    if latent is None:
        return np.asarray(rng.normal(size=(40, 60)))
    return np.asarray(rng.normal(size=(40, latent)) @ np.random.default_rng(0).normal(size=(latent, 60)))


@pytest.mark.mpi(min_size=4, max_size=4)
def test_bits_and_flips_are_chosen_or_refused(comm: MPI.Intracomm) -> None:
    """Many dimensions can have both; few cannot, and the sentence says so."""
    wish: dict[str, Any] = {"max_recovery": 0.5, "max_error": 0.05, "eps_scale": 0.2, "private_seed": 1}
    result = deot_mpi.eot(comm, wide_rows(comm, None), role_of(comm), **wish)
    assert result.protection is not None
    assert result.settings["bits"] == result.protection.bits
    assert result.settings["flip"] == result.protection.flip
    assert result.protection.recovery_error >= 0.5
    assert result.protection.distance_error <= 0.05
    assert result.protection.intrinsic_dimension > 15
    assert any("were chosen" in note for note in result.notes)
    with pytest.raises(
        InputError, match=r"max_recovery 0.5 and max_error 0.02 cannot both be had .* 1 dimensions"
    ) as said:
        deot_mpi.eot(comm, wide_rows(comm, 1), role_of(comm), **{**wish, "max_error": 0.02})
    assert len(set(comm.allgather(str(said.value)))) == 1


@pytest.mark.mpi(min_size=4, max_size=4)
def test_five_dimensions_are_refused_though_halves_of_rows_look_well(comm: MPI.Intracomm) -> None:
    """All pairs of two distant domains share the noise of few planes, which halves of one agent's rows do not show."""
    rows = np.random.default_rng(comm.rank).normal(size=(60, 5)) + (0.0 if role_of(comm) == "source" else 1.5)
    with pytest.raises(InputError, match=r"cannot both be had .* off by 0\.[1-9]"):
        deot_mpi.eot(comm, rows, role_of(comm), max_recovery=0.5)


@pytest.mark.mpi(min_size=2, max_size=2)
@pytest.mark.parametrize(
    ("call", "options", "words"),
    [
        (deot_mpi.adapt, {"max_recovery": 0.5}, r"max_recovery is 0.5, but reading by 1nn sends means of target rows"),
        (deot_mpi.adapt, {"choose_eps": True, "norm_step": 0.1}, r"noise drawn anew each time .* cancels; give eps"),
        (deot_mpi.audit, {"estimator": "paper"}, r"estimator 'paper' has no correction for flipped bits; give flips 0"),
        (deot_mpi.eot, {"max_recovery": 1.5}, r"max_recovery is 1.5; it is a share of a row's length"),
        (deot_mpi.eot, {"max_recovery": 0.5, "flip": 0.1}, r"max_recovery chooses bits and flips"),
        (deot_mpi.eot, {"max_recovery": 0.5, "bits": 64}, r"max_recovery chooses bits and flips"),
        (deot_mpi.eot, {"max_recovery": 0.5, "pairwise_seeds": True}, r"several that put their bits together know"),
        (deot_mpi.adapt, {"choose_eps": True, "pairwise_seeds": True}, r"noise drawn anew each time .* cancels"),
        (deot_mpi.eot, {"max_error": 0.1}, r"max_error is 0.1, but it is what max_recovery may cost; give both"),
        (deot_mpi.eot, {"kernel": "raw", "pairwise_seeds": True}, r"pairwise_seeds is for sketches, but kernel is"),
    ],
)
def test_wishes_that_contradict_each_other(comm: MPI.Intracomm, call: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        call(comm, rows_of(comm), role_of(comm), **options)


@pytest.mark.mpi(min_size=2, max_size=2)
def test_an_agent_with_few_rows_cannot_try(comm: MPI.Intracomm) -> None:
    with pytest.raises(InputError, match=r"target agent 0: has 5 rows, and max_recovery 0.5 takes 8 or more"):
        deot_mpi.eot(comm, rows_of(comm)[:5], role_of(comm), max_recovery=0.5)
