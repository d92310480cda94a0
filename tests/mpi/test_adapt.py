"""Domain adaptation against POT on the pooled rows: what the plan carries, and how it says no. Real ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from problems import squared_distances
from rank_0 import on_rank_0
from recording import Record, RecordingComm, holds_samples

import deot_mpi
from deot_mpi import AdaptResult, InputError
from deot_mpi.kernel import SketchKernel, log_block
from deot_mpi.kinds import Kind

EXACT: dict[str, Any] = {"kernel": "raw", "eps": 0.4, "tol": 1e-11, "rounds": 50_000, "timeout": 60.0}
NAMES = np.array([2, 5, 11])
PLANS: dict[tuple[str, float] | None, np.ndarray] = {}
"""POT's couplings of the rows below, by penalty, at rank 0."""


def blocks(rows: np.ndarray, members: int) -> list[np.ndarray]:
    """Unequal parts, one per agent: in proportion to 1, 2, 3, ..."""
    ends = np.cumsum(np.arange(1, members + 1))
    return np.split(rows, np.rint(len(rows) * ends[:-1] / ends[-1]).astype(int))


class Domains:
    """Three classes, 2 apart, turned a little in the target domain. Every rank knows all, to compare."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        rng = np.random.default_rng(6)
        self.comm, self.sources = comm, max(1, comm.size // 2)
        place, spots = rng.integers(3, size=31), rng.integers(3, size=26)
        centres = 2.0 * np.eye(4)[:3]
        turn = np.eye(4) + 0.2 * rng.normal(size=(4, 4))
        self.x, self.labels = centres[place] + 0.5 * rng.normal(size=(31, 4)) + 7.0, NAMES[place]
        self.y, self.truth = centres[spots] @ turn + 0.5 * rng.normal(size=(26, 4)) + 7.2, NAMES[spots]

    @property
    def is_source(self) -> bool:
        return self.comm.rank < self.sources

    def own(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        if self.is_source:
            return blocks(source, self.sources)[self.comm.rank]
        return blocks(target, self.comm.size - self.sources)[self.comm.rank - self.sources]

    @property
    def role(self) -> str:
        return "source" if self.is_source else "target"

    def run(self, comm: MPI.Intracomm | None = None, truth: bool = True, **options: Any) -> AdaptResult:
        labels = self.own(self.labels, self.truth) if truth or self.is_source else None
        rows = self.own(self.x, self.y)
        return deot_mpi.adapt(comm or self.comm, rows, self.role, labels=labels, **{**EXACT, **options})

    def plan(self, cost: np.ndarray | None = None, penalty: tuple[str, float] | None = None) -> np.ndarray:
        """POT's coupling, from rank 0: importing POT takes longer than the rest."""
        return np.asarray(
            on_rank_0(self.comm, lambda: self._known_plan(penalty) if cost is None else self._pots_plan(cost, penalty))
        )

    def _known_plan(self, penalty: tuple[str, float] | None) -> np.ndarray:
        """For the distances of the rows, which are the same in every test: found once."""
        if penalty not in PLANS:
            PLANS[penalty] = self._pots_plan(squared_distances(self.x, self.y), penalty)
        return PLANS[penalty]

    def _pots_plan(self, cost: np.ndarray, penalty: tuple[str, float] | None) -> np.ndarray:
        import ot

        a, b = np.full(31, 1 / 31), np.full(26, 1 / 26)
        if penalty is not None and penalty[0] == "lpl1":
            return ot.da.sinkhorn_lpl1_mm(
                a, self.labels, b, cost, 0.4, eta=penalty[1], numItermax=10, numInnerItermax=100_000,
                stopInnerThr=1e-13,
            )  # fmt: skip
        plain = np.asarray(ot.sinkhorn(a, b, cost, 0.4, method="sinkhorn_log", numItermax=100_000, stopThr=1e-13))
        return plain if penalty is None else self.sharp_between_classes(cost, penalty[1], plain)

    def sharp_between_classes(self, cost: np.ndarray, weight: float, start: np.ndarray) -> np.ndarray:
        """min <C,pi> + eps KL(pi|R) - eps w KL(S|shares b), by POT's generalised conditional gradient."""
        import ot

        classes = (self.labels[:, None] == NAMES).astype(float)
        usual = np.outer(classes.mean(axis=0), np.full(26, 1 / 26))

        def between(plan: np.ndarray) -> float:
            mass = classes.T @ plan
            return -weight * float((mass * np.log(mass / usual)).sum())

        def slope(plan: np.ndarray) -> np.ndarray:
            return np.asarray(-weight * classes @ (np.log(classes.T @ plan / usual) + 1.0))

        return np.asarray(ot.optim.gcg(
            np.full(31, 1 / 31), np.full(26, 1 / 26), cost, 0.4, 0.4, between, slope, G0=start, numItermax=300,
            numInnerItermax=10_000, stopThr=1e-14, stopThr2=1e-14,
        ))  # fmt: skip

    def shares(self, plan: np.ndarray) -> np.ndarray:
        """Each class's share of the mass of each target row."""
        sums = plan.T @ (self.labels[:, None] == NAMES)
        return np.asarray(sums / sums.sum(axis=1, keepdims=True))

    @property
    def class_shares(self) -> np.ndarray:
        return np.asarray((self.labels[:, None] == NAMES).mean(axis=0))

    def mapped(self, plan: np.ndarray) -> np.ndarray:
        return np.asarray(plan / plan.sum(axis=1, keepdims=True)) @ self.y


def pots_plan_within(cost: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """POT's plan with a reference measure's marginals and support."""
    import ot

    allowed = reference > 0
    cost = np.where(allowed, cost - EXACT["eps"] * np.log(np.where(allowed, reference, 1.0)), 1e6)
    a, b = reference.sum(axis=1), reference.sum(axis=0)
    return np.asarray(ot.sinkhorn(a, b, cost, EXACT["eps"], method="sinkhorn_log", numItermax=200_000, stopThr=1e-13))


def nearest(known: np.ndarray, labels: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return np.asarray(labels[squared_distances(rows, known).argmin(axis=1)])


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


@pytest.mark.mpi(min_size=2, max_size=4)
def test_the_estimator_maps_new_rows_as_pot_does(comm: MPI.Intracomm) -> None:
    """Fitted rows as ``adapt`` maps them, new ones as POT's out-of-sample transform does with one source agent."""
    domains, rng = Domains(comm), np.random.default_rng(9)
    new = rng.normal(size=(7, 4)) + 7.0
    model = deot_mpi.DistributedTransport(comm, reg_e=0.4, kernel="raw", tol=1e-11, max_iter=50_000)
    model.fit(domains.own(domains.x, domains.y), domains.own(domains.labels, domains.truth), domains.role)
    mapped = domains.mapped(domains.plan())
    if domains.is_source:
        rows, ours = domains.own(domains.x, domains.y), domains.own(mapped, domains.y)
        np.testing.assert_allclose(model.transform(), ours, atol=1e-6)
        place = squared_distances(new, rows).argmin(axis=1)
        np.testing.assert_allclose(model.transform(new), ours[place] + new - rows[place], atol=1e-6)
        with pytest.raises(InputError, match="predict is for targets"):
            model.predict()
        if comm.size == 2:
            import ot

            peer = ot.da.SinkhornTransport(
                reg_e=0.4, max_iter=100_000, tol=1e-13, out_of_sample_map="ferradans", method="sinkhorn_log"
            ).fit(Xs=domains.x, Xt=domains.y)
            np.testing.assert_allclose(model.transform(new), peer.transform(Xs=new), atol=1e-6)
    else:
        np.testing.assert_array_equal(
            model.predict(), nearest(mapped, domains.labels, domains.own(domains.x, domains.y))
        )
        np.testing.assert_array_equal(model.predict(new), nearest(mapped, domains.labels, new))
        with pytest.raises(InputError, match="transform is for sources"):
            model.transform()


@pytest.mark.mpi(min_size=2, max_size=2)
def test_the_estimators_parameters_are_those_of_scikit_learn(comm: MPI.Intracomm) -> None:
    model = deot_mpi.DistributedTransport(comm, reg_e=0.5)
    assert type(model)(**model.get_params()).get_params() == model.get_params()
    assert model.set_params(reg_e=2.0, method="labels").reg_e == 2.0
    with pytest.raises(InputError, match="'rge_e' is not a parameter"):
        model.set_params(rge_e=1.0)
    with pytest.raises(InputError, match="not fitted yet"):
        model.predict()
    with pytest.raises(InputError, match="not fitted yet"):
        model.score()
    domains = Domains(comm)
    rows, labels = domains.own(domains.x, domains.y), domains.own(domains.labels, domains.truth)
    model.fit(rows, labels, domains.role)
    near = rows + 1e-9
    with pytest.raises(InputError, match="read off class sums" if domains.is_source else "this is a target agent"):
        model.transform()
    if not domains.is_source:
        np.testing.assert_array_equal(model.predict(near), model.predict())
    assert model.score(near, labels) == pytest.approx(model.result_.accuracy)
    with pytest.raises(InputError, match=r"target agent 0: 26 rows but labels of shape \(25,\)"):
        model.score(rows, labels[1:])
    with pytest.raises(InputError, match="no target agent has given labels"):
        model.score(rows, labels if domains.is_source else None)


@pytest.mark.mpi(min_size=4, max_size=4)
def test_scikit_learn_searches_its_parameters(comm: MPI.Intracomm) -> None:
    """Every rank makes the same search, and finds what runs one by one find."""
    from sklearn.model_selection import GridSearchCV

    domains, scales = Domains(comm), [0.02, 0.3, 1.5]
    rows, labels = domains.own(domains.x, domains.y), domains.own(domains.labels, domains.truth)
    every = np.arange(len(rows))
    model = deot_mpi.DistributedTransport(comm, kernel="raw")
    search = GridSearchCV(model, {"eps_scale": scales, "method": ["1nn", "labels"]}, cv=[(every, every)])
    search.fit(rows, labels, role=domains.role)
    singly = [
        domains.run(eps=None, eps_scale=scale, method=method, tol=1e-6).accuracy
        for scale in scales
        for method in ("1nn", "labels")
    ]
    assert list(search.cv_results_["mean_test_score"]) == pytest.approx(singly)
    assert search.best_score_ == pytest.approx(max(one for one in singly if one is not None))
    assert comm.allgather(search.best_params_) == [search.best_params_] * comm.size
    assert search.best_estimator_.result_.accuracy == pytest.approx(search.best_score_)
