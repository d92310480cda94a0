"""The Sinkhorn divergence against POT, GeomLoss, a dense solution and what it must be by definition. Real ranks."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from problems import pot_answers, scattered, squared_distances
from recording import Record, RecordingComm

import deot_mpi
from deot_mpi import EOTResult
from deot_mpi.kinds import Kind
from deot_mpi.sketch import sketch, unpacked

EXACT: dict[str, Any] = {"tol": 1e-11, "rounds": 100_000, "check_every": 100, "timeout": 60.0, "debias": True}
BITS = 256


def role_of(rank: int, sources: int) -> str:
    return "source" if rank < sources else "target"


def weights_of(rank: int, count: int) -> np.ndarray:
    return np.random.default_rng([7, rank]).uniform(0.1, 2.0, size=count)


def sources_of(comm: MPI.Intracomm) -> int:
    return max(1, comm.size // 3)


def pooled(blocks: list[np.ndarray], sources: int) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate(blocks[:sources]), np.concatenate(blocks[sources:])


def own_part(comm: MPI.Intracomm, sources: int, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """This rank's part of its domain's rows: equal ones for the sources, growing ones for the targets."""
    source = comm.rank < sources
    ends = np.linspace(0, 1, (sources if source else comm.size - sources) + 1) ** (1.0 if source else 1.2)
    parts = np.split(rows if source else others, (len(rows) * ends[1:-1]).round().astype(int))
    return parts[comm.rank if source else comm.rank - sources]


def self_cost(cost: np.ndarray, a: np.ndarray, eps: float) -> float:
    """W(mu,mu) = 2 sum a u, from SciPy's root of u = T(u): alternating steps take tens of thousands of rounds here."""
    from scipy.optimize import root  # slow to import, and most ranks never need it
    from scipy.special import logsumexp

    cost, a = cost[np.ix_(a > 0, a > 0)], a[a > 0]
    kernel = np.log(a) - cost / eps
    found = root(lambda f: f + logsumexp(kernel + f, axis=1), np.zeros(len(a)), tol=1e-13)
    return float(2.0 * eps * a @ found.x)


def check(result: EOTResult, cross: float, source: float, target: float, tolerance: float = 1e-8) -> None:
    assert result.source_self_term == pytest.approx(source, abs=tolerance * abs(cross))
    assert result.target_self_term == pytest.approx(target, abs=tolerance * abs(cross))
    assert result.sinkhorn_divergence == pytest.approx(cross - (source + target) / 2, abs=tolerance * abs(cross))


@pytest.mark.mpi(min_size=2, max_size=7)
@pytest.mark.parametrize(("weighted", "solver"), [(True, "sinkhorn"), (False, "kept")])
def test_raw_equals_pot_term_by_term(comm: MPI.Intracomm, weighted: bool, solver: str) -> None:
    """Unequal agents, with and without weights; each term from POT's log-domain solver on the pooled samples."""
    count = sources_of(comm)
    blocks = [scattered(2, rank, count, base=9) for rank in range(comm.size)]
    weights = [weights_of(rank, len(rows)) if weighted else np.ones(len(rows)) for rank, rows in enumerate(blocks)]
    (x, y), (a, b) = pooled(blocks, count), (part / part.sum() for part in pooled(weights, count))
    eps = 0.5 * float(np.median(squared_distances(x, y)))
    result = deot_mpi.eot(
        comm, blocks[comm.rank], role_of(comm.rank, count), eps=eps, kernel="raw", solver=solver,
        weights=weights[comm.rank] if weighted else None, **EXACT,
    )  # fmt: skip
    if comm.rank == 0:
        problems = ((x, y, a, b), (x, x, a, a), (y, y, b, b))
        check(result, *(pot_answers(*problem, eps).regularised_cost for problem in problems))
    assert result.self_terms is not None
    assert result.self_terms.status.converged
    assert not [note for note in result.notes if note.startswith("Divergence")]


@pytest.mark.mpi(min_size=2, max_size=7)
@pytest.mark.parametrize("eps", [0.5, 1e-4])
def test_of_a_moved_cloud_it_is_the_square_of_the_move(comm: MPI.Intracomm, eps: float) -> None:
    """W(mu, mu + t) = W(mu,mu) + |t|^2 for any eps; and as eps goes to 0, W(mu,mu) is eps log N for N separate rows."""
    count, rng = sources_of(comm), np.random.default_rng(6)
    rows, move = rng.normal(size=(42, 3)), np.array([0.3, -0.2, 0.1])
    own = own_part(comm, count, rows, rng.permutation(rows) + move)
    result = deot_mpi.eot(comm, own, role_of(comm.rank, count), eps=eps, kernel="raw", **{**EXACT, "tol": 1e-8})
    assert result.status.converged
    assert result.sinkhorn_divergence == pytest.approx(float(move @ move), rel=1e-8)
    if eps < 1e-3:
        assert result.source_self_term == pytest.approx(eps * np.log(42), rel=1e-8)


@pytest.mark.mpi(min_size=4, max_size=4)
def test_it_is_geomloss_s(comm: MPI.Intracomm) -> None:
    if find_spec("geomloss") is None:
        pytest.skip("GeomLoss is not installed (pip install geomloss torch)")
    blocks = [scattered(2, rank, 1, base=9) for rank in range(comm.size)]
    weights = [weights_of(rank, len(rows)) for rank, rows in enumerate(blocks)]
    (x, y), (a, b), eps = pooled(blocks, 1), (part / part.sum() for part in pooled(weights, 1)), 3.0
    result = deot_mpi.eot(
        comm, blocks[comm.rank], role_of(comm.rank, 1), eps=eps, kernel="raw", weights=weights[comm.rank], **EXACT
    )
    if comm.rank == 0:
        import torch
        from geomloss import SamplesLoss

        torch.set_num_threads(1)
        # Its cost is |x-y|^2/2 and its eps is blur^2. It anneals without a tolerance: near 1, scaling takes many steps.
        loss = SamplesLoss("sinkhorn", p=2, blur=float(np.sqrt(eps)), scaling=0.999, backend="tensorized")
        rows = [torch.from_numpy(np.sqrt(2.0) * part) for part in (x, y)]
        theirs = loss(torch.from_numpy(a), rows[0], torch.from_numpy(b), rows[1]).item()
        assert result.sinkhorn_divergence == pytest.approx(theirs, rel=1e-6)


@pytest.mark.mpi(min_size=2, max_size=7)
@pytest.mark.parametrize(
    "options",
    [
        {"kernel": "raw"}, {"bits": BITS}, {"bits": 64, "estimator": "paper", "solver": "kept"},
        {"bits": 63, "orthogonal": False, "correction": False},
    ],
)  # fmt: skip
def test_equal_samples_have_none(comm: MPI.Intracomm, options: dict[str, Any]) -> None:
    """The same rows in both domains, cut into agents in different ways; also at the default tol, with float32.

    An error e of the marginals leaves one of eps e^2 in the values.
    """
    count, rng = sources_of(comm), np.random.default_rng(5)
    rows, role = rng.normal(size=(42, 4)), role_of(comm.rank, count)
    own = own_part(comm, count, rows, rng.permutation(rows))
    settings = {**EXACT, "rounds": 3000, **options}
    result = deot_mpi.eot(comm, own, role, eps=1.5, **settings)
    assert result.sinkhorn_divergence == pytest.approx(0.0, abs=1e-9)
    assert result.source_self_term == pytest.approx(result.regularised_cost, abs=1e-9)
    assert result.regularised_cost > 0.5
    rough = deot_mpi.eot(comm, own, role, eps=1.5, **{**settings, "tol": 1e-6})
    assert rough.sinkhorn_divergence == pytest.approx(0.0, abs=1.5 * 1e-6)
    assert rough.self_terms is not None
    assert rough.self_terms.marginal_error <= 1e-6


@pytest.mark.mpi(min_size=2, max_size=7)
@pytest.mark.parametrize("kernel", ["raw", "sketch"])
def test_swapped_shifted_and_repeated(comm: MPI.Intracomm, kernel: str) -> None:
    """Non-negative; the same with the roles swapped, and with all rows moved; the same bits in every run and placement,
    and where the kernel is not stored."""
    count = sources_of(comm)
    options = {**EXACT, "rounds": 3000, "eps": 0.8, "kernel": kernel, "bits": 256}

    def play(agent: int, swapped: bool = False, shift: float = 0.0, **more: Any) -> EOTResult:
        stage = comm.Split(0, agent)
        rows = scattered(30, agent, count, base=12) + shift
        role = role_of(agent, count) if not swapped else role_of(comm.size - 1 - agent, comm.size - count)
        result = deot_mpi.eot(stage, rows, role, **{**options, **more})
        stage.Free()
        return result

    def bits(result: EOTResult) -> tuple[object, ...]:
        terms = result.self_terms
        assert terms is not None
        return result.sinkhorn_divergence, terms.source, terms.target, terms.marginal_error, terms.rounds, result.values

    first = play(comm.rank)
    assert first.sinkhorn_divergence is not None
    assert first.sinkhorn_divergence > 0.1
    swapped = play(comm.rank, swapped=True)
    assert swapped.sinkhorn_divergence == pytest.approx(first.sinkhorn_divergence, abs=1e-9)
    assert swapped.source_self_term == pytest.approx(first.target_self_term, abs=1e-9)
    assert play(comm.rank, shift=30.0).sinkhorn_divergence == pytest.approx(first.sinkhorn_divergence, abs=1e-8)
    moved = int(np.roll(np.arange(comm.size), 1)[comm.rank])  # a run again, and elsewhere
    assert bits(play(moved)) == bits(first)
    assert bits(play(moved, tol=1e-6, memory=1000)) == bits(play(comm.rank, tol=1e-6))


@pytest.mark.mpi(min_size=4, max_size=7)
def test_any_protocol_has_the_self_terms_of_its_marginals(comm: MPI.Intracomm) -> None:
    """An E that is no product, with a source that has no partner: it takes no part, and the notes say what it is."""
    count = comm.size // 2
    blocks = [scattered(2, rank, count, base=5) for rank in range(comm.size)]
    E = np.random.default_rng(3).random((count, comm.size - count))
    E[-1] = 0.0
    E /= E.sum()
    result = deot_mpi.eot(
        comm, blocks[comm.rank], role_of(comm.rank, count), eps=1.5, kernel="raw", protocol=E, **EXACT
    )
    (x, y), masses = pooled(blocks, count), []
    for marginal, part in ((E.sum(axis=1), blocks[:count]), (E.sum(axis=0), blocks[count:])):
        masses.append(np.concatenate([np.full(len(r), e / len(r)) for e, r in zip(marginal, part, strict=True)]))
    if comm.rank == 0:
        terms = (self_cost(squared_distances(rows, rows), a, 1.5) for rows, a in zip((x, y), masses, strict=True))
        check(result, result.regularised_cost, *terms)
    assert result.ledger.of(Kind.POTENTIALS).within_bytes == result.ledger.of(Kind.POTENTIALS).within_formula_bytes
    if count > 2:  # with two, one of them alone, any E is a product
        assert any("E is not the product of its marginals" in note for note in result.notes)


@pytest.mark.mpi(min_size=4, max_size=7)
def test_within_a_domain_no_rows_are_sent_and_the_ledger_knows_every_byte(comm: MPI.Intracomm) -> None:
    count = comm.size // 2
    blocks = [scattered(20, rank, count, dimension=6, base=5) for rank in range(comm.size)]
    weights = [weights_of(rank, len(rows)) for rank, rows in enumerate(blocks)]
    domains = zip(pooled(blocks, count), pooled(weights, count), strict=True)
    centre = sum(np.average(rows, axis=0, weights=mass) for rows, mass in domains) / 2
    record, tags = Record(), {}
    for kernel in ("raw", "sketch"):
        record.sent.clear()
        result = deot_mpi.eot(
            RecordingComm(comm).recording(record), blocks[comm.rank], role_of(comm.rank, count), kernel=kernel, bits=96,
            eps=2.0, weights=weights[comm.rank], debias=True, timeout=60.0,
        )  # fmt: skip
        assert record.held == 0
        within = [message for message in record.sent if message.within and message.destination is not None]
        own = np.sort((blocks[comm.rank] - centre).ravel())
        content = np.concatenate([np.frombuffer(m.content[: len(m.content) // 8 * 8]) for m in within])
        content = content[np.isfinite(content)]
        found = np.abs(content[:, None] - own[None, :]).min(axis=0) < 1e-9
        assert found.all() if kernel == "raw" else not found.any()
        tags[kernel] = {Kind(message.tag) for message in within if message.tag is not None}
        totals = np.array([len(within), sum(len(message.content) for message in within)])
        everybody = np.empty_like(totals)
        comm.Allreduce(totals, everybody)
        ledger = result.ledger.by_kind
        assert everybody.tolist() == [sum(r.within_messages for r in ledger), sum(r.within_bytes for r in ledger)]
        assert all(row.within_bytes == (row.within_formula_bytes or 0) for row in ledger)
        assert result.self_terms is not None
        sizes = [len(rows) for rows in blocks]
        others = (count - 1) * sum(sizes[:count]) + (comm.size - count - 1) * sum(sizes[count:])
        assert result.ledger.of(Kind.POTENTIALS).within_bytes == 8 * result.self_terms.rounds * others
        shown, bytes_a_row = (Kind.SAMPLES, 48) if kernel == "raw" else (Kind.SKETCH, 12)
        assert result.ledger.of(shown).within_bytes == bytes_a_row * others
    assert tags["sketch"] == {Kind.SKETCH, Kind.NORMS, Kind.WEIGHTS}
    assert tags["raw"] == {Kind.SAMPLES, Kind.WEIGHTS}


def noisy_costs(bits: np.ndarray, told: np.ndarray, norms: np.ndarray, owner: np.ndarray, flip: float) -> np.ndarray:
    """|x|^2 + |y|^2 - 2 |x||y| cos(pi h): h from clean bits within an agent, and between agents from bits that both
    have turned round, h = (h' - 2 r (1 - r))/(1 - 2 r)^2."""
    clean = (bits[:, None] != bits[None]).mean(axis=2)
    noisy = ((told[:, None] != told[None]).mean(axis=2) - 2 * flip * (1 - flip)) / (1 - 2 * flip) ** 2
    h = np.where(owner[:, None] == owner, clean, noisy)
    return norms[:, None] ** 2 + norms**2 - 2 * np.outer(norms, norms) * np.cos(np.pi * h)


@pytest.mark.mpi(min_size=4, max_size=4)
def test_flips_within_a_domain_are_those_that_were_shown_and_are_corrected_for(comm: MPI.Intracomm) -> None:
    """The self-terms are those of the kernel that the wire shows; the same bits go to both domains, clean ones never;
    with many bits the divergence is that of the rows."""
    rows, record = scattered(4, comm.rank, 2, 6, 9), Record()
    options = {"eps": 4.0, "flip": 0.15, "private_seed": 3, "bits": BITS, "correction": False, **EXACT}
    result = deot_mpi.eot(RecordingComm(comm).recording(record), rows, role_of(comm.rank, 2), **options)
    everything = comm.allgather(rows)
    centred = rows - sum(part.mean(axis=0) for part in pooled(everything, 2)) / 2
    clean = sketch(centred, BITS, 0, True)
    shown = {message.content for message in record.sent if message.tag == Kind.SKETCH}
    assert len(shown) == 1, "all are shown the same bits"
    told = unpacked(np.frombuffer(shown.pop(), np.uint8).reshape(clean.shape), BITS)
    assert 0.1 < (told != unpacked(clean, BITS)).mean() < 0.2
    mine = [unpacked(clean, BITS), told, np.linalg.norm(centred, axis=1), np.full(len(rows), comm.rank)]
    for first, term in ((0, result.source_self_term), (2, result.target_self_term)):
        parts = comm.allgather(mine)[first : first + 2]
        cost = noisy_costs(*(np.concatenate(column) for column in zip(*parts, strict=True)), 0.15)
        if comm.rank == 0:
            expected = self_cost(cost, np.full(len(cost), 1.0 / len(cost)), 4.0)
            assert term == pytest.approx(expected, rel=1e-8)
    exact = deot_mpi.eot(comm, rows, role_of(comm.rank, 2), eps=4.0, kernel="raw", **EXACT).sinkhorn_divergence
    many = {**options, "bits": 1024, "correction": True, "norm_step": 0.1}
    found = deot_mpi.eot(comm, rows, role_of(comm.rank, 2), **many).sinkhorn_divergence
    assert found == pytest.approx(exact, rel=0.1)
