"""Bad input on one rank: the same sentence on all ranks, and everybody leaves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

import deot_mpi
from deot_mpi import InputError
from deot_mpi.errors import ExchangeTimeoutError
from deot_mpi.exchange.collective import Collectives
from deot_mpi.exchange.edges import Edges
from deot_mpi.exchange.join import agree, join
from deot_mpi.exchange.ledger import Ledger
from deot_mpi.roles import Role
from deot_mpi.run import main


def good(comm: MPI.Intracomm) -> np.ndarray:
    return np.random.default_rng(comm.rank).normal(size=(6, 3))


def role(comm: MPI.Intracomm) -> str:
    return "source" if comm.rank < max(1, comm.size // 2) else "target"


def refused(comm: MPI.Intracomm, rows: object, words: str, **options: object) -> None:
    """Every rank raises, every rank the same sentence, and the next run works."""
    with pytest.raises(InputError, match=words) as caught:
        deot_mpi.eot(comm, rows, role(comm), timeout=20.0, **options)  # type: ignore[arg-type]
    sentences = comm.allgather(str(caught.value))
    assert len(set(sentences)) == 1
    assert deot_mpi.eot(comm, good(comm), role(comm), timeout=20.0, rounds=5).rounds == 5


@pytest.mark.mpi(min_size=1, max_size=1)
def test_one_rank_is_not_a_job(comm: MPI.Intracomm) -> None:
    with pytest.raises(InputError, match="at least one of each role"):
        deot_mpi.eot(comm, good(comm), "source")


@pytest.mark.mpi(min_size=2)
def test_all_ranks_of_one_role(comm: MPI.Intracomm) -> None:
    with pytest.raises(InputError, match="source agent"):
        deot_mpi.eot(comm, good(comm), "target", timeout=20.0)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda rows: np.where(rows == rows[2, 1], np.nan, rows), "target agent 0: row 2, column 1 is nan"),
        (lambda rows: rows[:, :2], "target agent 0 has samples of 2 columns, source agent 0 3"),
        *(
            pytest.param(*given, marks=pytest.mark.mpi(max_size=7))
            for given in (
                (lambda rows: rows / 0.0, "target agent 0: row 0, column 0 is -?inf"),
                (lambda rows: rows[:0], r"target agent 0: no samples.*\(0, 3\)"),
            )
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_samples_of_one_agent(comm: MPI.Intracomm, spoil: object, words: str) -> None:
    first_target = max(1, comm.size // 2)
    rows = spoil(good(comm)) if comm.rank == first_target else good(comm)  # type: ignore[operator]
    refused(comm, rows, words)


@pytest.mark.mpi(min_size=3)
def test_several_bad_agents_are_counted(comm: MPI.Intracomm) -> None:
    refused(comm, good(comm) if comm.rank == 0 else np.empty((0, 3)), rf"\((One|{comm.size - 2}) more")


@pytest.mark.mpi(min_size=2, max_size=7)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"eps": 0.0}, "eps is 0"),
        ({"eps": -2.0}, "eps is -2"),
        ({"protocol": np.full((1, 1), 0.5)}, "shape|sum to"),
        ({"protocol": "no-such-graph"}, "neither a file nor one of"),
        ({"protocol": np.full((40, 40), 1 / 1600)}, r"shape \(40, 40\)"),
        ({"protocol": np.full((40, 40), 1 / 1600), "match": True}, r"shape \(40, 40\)"),
        ({"protocol": [0.5, 0.5]}, r"shape \(2,\)"),
    ],
)
def test_options(comm: MPI.Intracomm, options: dict[str, object], words: str) -> None:
    refused(comm, good(comm), words, **options)


@pytest.mark.mpi(min_size=2, max_size=7)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"eps": -2.0}, "rank 1: eps is -2"),
        ({"epsilon": 1.0}, "rank 1: .*unexpected keyword argument 'epsilon'"),
        ({"eps": 2.0}, "different values of eps;"),
        ({"eps": 1.0, "bits": 64, "solver": "kept"}, "different values of bits, solver;"),
        ({"protocol": [[1.0, 2.0], 3.0]}, "rank 1: protocol is a list"),
    ],
)
def test_options_of_one_rank(comm: MPI.Intracomm, options: dict[str, object], words: str) -> None:
    refused(comm, good(comm), words, **(options if comm.rank == 1 else {"eps": 1.0}))


@pytest.mark.mpi(min_size=2, max_size=7)
def test_role_of_one_rank(comm: MPI.Intracomm) -> None:
    with pytest.raises(InputError, match="rank 1: role 'sorce' is not known"):
        deot_mpi.eot(comm, good(comm), "sorce" if comm.rank == 1 else "target", timeout=20.0)


@pytest.mark.mpi(min_size=2, max_size=7)
def test_numbers_of_numpy_are_numbers(comm: MPI.Intracomm) -> None:
    result = deot_mpi.eot(
        comm, good(comm).astype(np.float32), role(comm), eps=np.float32(0.5), bits=np.int64(64), timeout=20.0
    )
    assert result.eps == 0.5


@pytest.mark.mpi(min_size=2)
def test_protocol_that_does_not_sum_to_one(comm: MPI.Intracomm) -> None:
    sources = max(1, comm.size // 2)
    E = np.full((sources, comm.size - sources), 0.9 / (sources * (comm.size - sources)))
    refused(comm, good(comm), "weights sum to 0.9", protocol=E)


@pytest.mark.mpi(min_size=2, max_size=7)
def test_all_samples_alike_need_eps(comm: MPI.Intracomm) -> None:
    refused(comm, np.ones((3, 2)), "mean cost is 0.*--eps")


@pytest.mark.mpi(min_size=2, max_size=4)
def test_eps_below_the_rounding_of_the_costs(comm: MPI.Intracomm) -> None:
    refused(comm, good(comm), "no digits left; use eps of .* or more", eps=1e-17)


@pytest.mark.mpi(min_size=2)
def test_a_silent_agent_ends_the_wait(comm: MPI.Intracomm) -> None:
    """The others' wait has an end, and the message says so. Rank 0 never answers."""
    if comm.rank != 0:
        with pytest.raises(ExchangeTimeoutError, match=r"within 0\.5 s"):
            agree(comm, None, timeout=0.5)
    else:
        import time

        time.sleep(1.0)
        agree(comm, None, timeout=20.0)


@pytest.mark.mpi(min_size=2, max_size=7)
@pytest.mark.parametrize("size", [1e-300, 1e-3, 1.0, 1e12])
def test_masked_sum_is_the_sum(comm: MPI.Intracomm, size: float) -> None:
    """Exact to a unit in the last place of the largest number, on any scale."""
    sources = max(1, comm.size // 2)
    ledger = Ledger()
    agents = join(comm, Role.SOURCE if comm.rank < sources else Role.TARGET, ledger, 20.0)
    neighbours = range(agents.count(agents.role.other))
    edges = Edges(agents, list(neighbours), ledger, 20.0)
    rows = [size * np.random.default_rng([1, rank]).normal(size=5) for rank in range(comm.size)]
    total = Collectives(agents, ledger, 20.0).masked_sum(edges, rows[comm.rank])
    expected = np.sum(np.array(rows, dtype=np.longdouble), axis=0).astype(float)
    np.testing.assert_allclose(total, expected, rtol=0, atol=4 * np.finfo(float).eps * np.abs(rows).max())
    agents.free()


@pytest.mark.mpi(min_size=2, max_size=7)
def test_a_message_off_the_edges_is_impossible(comm: MPI.Intracomm) -> None:
    sources = max(1, comm.size // 2)
    ledger = Ledger()
    agents = join(comm, Role.SOURCE if comm.rank < sources else Role.TARGET, ledger, 20.0)
    edges = Edges(agents, [], ledger, 20.0)
    with pytest.raises(AssertionError, match="has no edge"):
        edges.rank(0)
    agents.free()


@pytest.mark.mpi(min_size=2, max_size=4)
@pytest.mark.parametrize(
    ("first", "others", "words"),
    [
        (["--config", "run.toml"], [], "different values of config"),
        ([], ["--config", "run.toml"], "different values of config"),
        (["--help"], [], "different values of help"),
        (["--sources", "0"], [], "different values of sources"),
        (["--sources", "1"], ["--sources", "2"], "different values of sources"),
    ],
)
def test_ranks_that_were_started_differently_find_out(
    comm: MPI.Intracomm,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    first: list[str],
    others: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text("eps = 0.5\n")
    assert main(["--samples", "20", *(others if comm.rank else first)], comm) == 2
    assert comm.rank or words in capsys.readouterr().err


@pytest.mark.mpi(min_size=2, max_size=4)
def test_a_result_that_cannot_be_written_is_still_printed(
    comm: MPI.Intracomm, capsys: pytest.CaptureFixture[str]
) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no device that is always full")
    assert main(["--samples", "20", "--progress", "none", "--json", "/dev/full"], comm) == 1
    if comm.rank == 0:
        said = capsys.readouterr()
        assert "transport_cost" in said.out or "<C,pi>" in said.out, said.out
        assert "deot_mpi: error: rank 0: --json /dev/full could not be written" in said.err
