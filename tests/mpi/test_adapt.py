"""Domain adaptation against POT on the pooled rows: what the plan carries, and how it says no. Real ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from domains import EXACT, NAMES, Domains, blocks, nearest, pots_plan_within
from mpi4py import MPI
from problems import squared_distances
from rank_0 import on_rank_0
from recording import Record, RecordingComm, holds_samples

import deot_mpi
from deot_mpi import InputError
from deot_mpi.kernel import SketchKernel, log_block
from deot_mpi.kinds import Kind


@pytest.mark.mpi(min_size=2, max_size=7)
@pytest.mark.parametrize("solver", ["sinkhorn", "kept"])
def test_mapped_rows_and_predictions_are_pots(comm: MPI.Intracomm, solver: str) -> None:
    domains = Domains(comm)
    result = domains.run(solver=solver)
    mapped = domains.mapped(domains.plan())
    if domains.is_source:
        np.testing.assert_allclose(result.mapped, domains.own(mapped, domains.y), atol=1e-6)
        assert result.predictions.size == 0
    expected = nearest(mapped, domains.labels, domains.y)
    if not domains.is_source:
        np.testing.assert_array_equal(result.predictions, domains.own(domains.labels, expected))
    assert result.accuracy == pytest.approx(np.mean(expected == domains.truth))
    assert 0.5 < np.mean(expected == domains.truth) < 1.0, "the problem should be neither hopeless nor trivial"
    parts = blocks(expected == domains.truth, comm.size - domains.sources)
    assert list(result.accuracies) == pytest.approx([part.mean() for part in parts])


LOPSIDED = np.array([[0.3, 0.1], [0.0, 0.6]])
"""An E that is no product, with two agents that never talk."""


@pytest.mark.mpi(min_size=4, max_size=4)
@pytest.mark.parametrize("kernel", ["raw", "sketch"])
def test_any_protocol_and_any_weights_are_pots_with_their_reference_measure(comm: MPI.Intracomm, kernel: str) -> None:
    """min <C,pi> + eps KL(pi|R) is POT's problem for C - eps log R, at a cost beyond all bounds where E has no edge."""
    domains, rng = Domains(comm), np.random.default_rng(8)
    source_weights, target_weights = rng.uniform(0.5, 2.0, 31), rng.uniform(0.5, 2.0, 26)
    result = domains.run(
        protocol=LOPSIDED, weights=domains.own(source_weights, target_weights), kernel=kernel, bits=512, centre=False
    )
    owners = [np.repeat(np.arange(2), [len(part) for part in blocks(rows, 2)]) for rows in (domains.x, domains.y)]
    shares = [
        weights / np.bincount(owner, weights)[owner]
        for weights, owner in zip((source_weights, target_weights), owners, strict=True)
    ]
    reference = LOPSIDED[np.ix_(*owners)] * np.outer(*shares)
    cost = squared_distances(domains.x, domains.y)
    if kernel == "sketch":
        estimate = SketchKernel(EXACT["eps"], 4, 512, 0)
        cost = -EXACT["eps"] * log_block(estimate, estimate.show(domains.x), estimate.show(domains.y))
    mapped = domains.mapped(np.asarray(on_rank_0(comm, lambda: pots_plan_within(cost, reference))))
    if domains.is_source:
        np.testing.assert_allclose(result.mapped, domains.own(mapped, domains.y), atol=1e-6)


@pytest.mark.mpi(min_size=4, max_size=4)
@pytest.mark.parametrize("kernel", ["raw", "sketch"])
@pytest.mark.parametrize("method", ["1nn", "labels"])
def test_agents_without_an_edge_get_nothing(comm: MPI.Intracomm, kernel: str, method: str) -> None:
    """Source 1 and target 1 talk to nobody: nothing is mapped, and no label is made up."""
    domains = Domains(comm)
    result = domains.run(protocol=np.diag([1.0, 0.0]), kernel=kernel, method=method, tol=1e-6)
    alone = comm.rank % 2 == 1
    if domains.is_source:
        assert len(result.mapped) == (0 if alone or method == "labels" else 10)
    else:
        assert np.all(result.predictions == -1) == alone
    assert result.accuracies[1] is None


@pytest.mark.mpi(min_size=2, max_size=4)
def test_label_propagation_is_pots_coupling_times_labels(comm: MPI.Intracomm) -> None:
    domains = Domains(comm)
    result, shares = domains.run(method="labels"), domains.shares(domains.plan())
    assert result.classes == tuple(NAMES)
    if not domains.is_source:
        np.testing.assert_allclose(result.scores, domains.own(domains.x, shares), atol=1e-7)
        lift = domains.own(domains.x, shares) / domains.class_shares
        np.testing.assert_array_equal(result.predictions, NAMES[lift.argmax(axis=1)])


@pytest.mark.mpi(min_size=4, max_size=4)
@pytest.mark.parametrize(("penalty", "weight"), [("lpl1", 0.1), ("lpl1", 2.0), ("entropy", 0.5), ("entropy", 0.8)])
def test_class_regularised_transport_is_pots(comm: MPI.Intracomm, penalty: str, weight: float) -> None:
    """lpl1: ten tangents of the same penalty from the same start as sinkhorn_lpl1_mm; entropy: the one optimum, to
    which each tangent comes closer by w, against POT's generalised conditional gradient. Read in both ways."""
    domains = Domains(comm)
    plan, rounds = domains.plan(penalty=(penalty, weight)), 10 if penalty == "lpl1" else 24 if weight == 0.5 else 60
    shares, tolerance = domains.shares(plan), 1e-6 if penalty == "lpl1" else 1e-5  # gcg's line search ends there
    for reading in ("labels", "1nn"):
        result = domains.run(
            method="class-regularised", class_penalty=penalty, class_weight=weight, class_rounds=rounds,
            class_reading=reading,
        )  # fmt: skip
        assert any("slope of the penalty" in note for note in result.notes)
        if reading == "labels" and not domains.is_source:
            np.testing.assert_allclose(result.scores, domains.own(domains.x, shares), atol=tolerance)
        if reading == "1nn" and domains.is_source:
            np.testing.assert_allclose(result.mapped, domains.own(domains.mapped(plan), domains.y), atol=tolerance)
    assert np.abs(shares - domains.shares(domains.plan())).max() > 0.01, "the penalty should matter"


@pytest.mark.mpi(min_size=4, max_size=4)
@pytest.mark.parametrize(("solver", "weight"), [("sinkhorn", None), ("kept", None), ("sinkhorn", 0.1)])
def test_private_mapping_is_that_of_the_estimated_kernel(
    comm: MPI.Intracomm, solver: str, weight: float | None
) -> None:
    """The targets compute their parts from the same bits: the barycentres of POT's plan for the estimated cost."""
    domains = Domains(comm)
    penalised = {"method": "class-regularised", "class_penalty": "lpl1", "class_weight": weight, "class_rounds": 10}
    result = domains.run(kernel="sketch", bits=512, solver=solver, **({} if weight is None else penalised))
    centre = (domains.x.mean(axis=0) + domains.y.mean(axis=0)) / 2
    kernel = SketchKernel(0.4, 4, 512, 0)
    cost = -0.4 * log_block(kernel, kernel.show(domains.x - centre), kernel.show(domains.y - centre))
    mapped = domains.mapped(domains.plan(cost, None if weight is None else ("lpl1", weight)))
    if domains.is_source:
        np.testing.assert_allclose(result.mapped, domains.own(mapped, domains.y), atol=1e-6)


@pytest.mark.mpi(min_size=4, max_size=4)
@pytest.mark.parametrize(
    ("method", "reading", "more"),
    [
        ("1nn", "1nn", {}),
        ("1nn", "1nn", {"protocol": LOPSIDED}),
        ("1nn", "1nn", {"choose_eps": True, "eps": None, "eps_grid": (0.4, 0.8)}),
        ("labels", "labels", {}),
        ("class-regularised", "1nn", {"class_rounds": 3}),
        ("class-regularised", "labels", {"class_rounds": 3, "class_reading": "labels"}),
    ],
)
def test_no_raw_rows_on_the_wire_and_the_formula_holds(
    comm: MPI.Intracomm, method: str, reading: str, more: dict[str, Any]
) -> None:
    """Nobody's rows, whoever sends; nothing where E has no edge; what was sent is what the ledger says."""
    domains, record = Domains(comm), Record()
    recorder = RecordingComm(comm).recording(record)
    result = domains.run(
        recorder, **{"kernel": "sketch", "bits": 96, "tol": 1e-6, "method": method, "eps": 2.0, **more}
    )
    assert record.held == 0
    rows = np.concatenate([domains.x, domains.y])
    centre = (domains.x.mean(axis=0) + domains.y.mean(axis=0)) / 2
    edges = more.get("protocol", np.ones((2, 2))) > 0
    for message in record.sent:
        assert not holds_samples(message.content, rows, centre), message.call
        if message.destination is not None:
            source, target = sorted((comm.rank, message.destination))
            assert source < 2 <= target
            assert edges[source, target - 2]
    for kind in (Kind.SKETCH, Kind.NORMS, Kind.POTENTIALS, Kind.LABELS, Kind.MAPPED):
        row = result.ledger.of(kind)
        assert row.bytes == (row.formula_bytes or 0), kind
    counts = [np.array([len(part) for part in blocks(domain, 2)]) for domain in (domains.x, domains.y)]
    shown = int((edges * counts[0][:, None]).sum())  # a source's rows, once for each of its targets
    back, mapped = (
        8 * (4 + 1) * shown,
        8 * 4 * shown,
    )  # Pi_ij Y_j with its row sums to the sources, then the mapped rows
    assert result.ledger.of(Kind.MAPPED).bytes == (back + mapped if reading == "1nn" else 0)
    if not more.get("choose_eps"):  # whose trials have ledgers of their own
        sent = [len(message.content) for message in record.sent if message.destination is not None]
        assert comm.allreduce(sum(sent)) == sum(row.bytes for row in result.ledger.by_kind)


@pytest.mark.mpi(min_size=4, max_size=4)
def test_the_search_finds_rows_where_they_are_sent(comm: MPI.Intracomm) -> None:
    """The raw kernel must trip it at the targets, which show their rows: otherwise the proof above proves nothing."""
    domains, record = Domains(comm), Record()
    domains.run(RecordingComm(comm).recording(record), centre=False)
    found = any(holds_samples(message.content, domains.y, np.zeros(4)) for message in record.sent)
    assert found == (not domains.is_source)


@pytest.mark.mpi(min_size=4, max_size=4)
def test_truth_is_only_counted(comm: MPI.Intracomm) -> None:
    """The same predictions, to the bit, whether or not the targets know their labels."""
    domains = Domains(comm)
    told, untold = domains.run(), domains.run(truth=False)
    np.testing.assert_array_equal(told.predictions, untold.predictions)
    assert told.values == untold.values
    assert untold.accuracy is None
    assert untold.accuracies == (None, None)


@pytest.mark.mpi(min_size=3, max_size=3)
@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (None, "source agent 0: has no labels"),
        (np.arange(5), r"source agent 0: 31 rows but labels of shape \(5,\)"),
        (np.full(31, -1), "source agent 0: label -1 of row 0 .31 such labels"),
        (np.full(31, 0.5), "source agent 0: label 0.5 of row 0"),
        (np.full(31, "cat"), "number the classes 0, 1, 2"),
    ],
)
def test_labels_of_one_agent(comm: MPI.Intracomm, labels: object, words: str) -> None:
    domains = Domains(comm)
    given = labels if comm.rank == 0 else domains.own(domains.labels, domains.truth)
    with pytest.raises(InputError, match=words) as caught:
        deot_mpi.adapt(comm, domains.own(domains.x, domains.y), domains.role, labels=given, timeout=20.0)  # type: ignore[arg-type]
    assert len(set(comm.allgather(str(caught.value)))) == 1
    assert domains.run().accuracy is not None


@pytest.mark.mpi(min_size=2, max_size=2)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "2nn"}, "method is '2nn'; it must be one of 1nn, labels, class-regularised"),
        ({"method": "class-regularised", "solver": "kept"}, "needs 'sinkhorn'"),
        ({"class_weight": 1.5}, "class_weight is 1.5; with class_penalty 'entropy' it is a share of eps, at most 1"),
        ({"class_penalty": "l1"}, "class_penalty is 'l1'; it must be one of entropy, lpl1"),
        ({"class_weight": 0.0}, "class_weight is 0.0; it must be a finite number above 0"),
        ({"class_rounds": 3}, "class_rounds is 3, but it is for method 'class-regularised' and method is '1nn'"),
        ({"reference": True}, "reference is for eot"),
    ],
)
def test_options_that_cannot_be(comm: MPI.Intracomm, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Domains(comm).run(**options)
