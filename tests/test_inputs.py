"""Samples from files and synthetic sets; options and the command line."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from deot_mpi.command.arguments import build_parser, config_path, parse
from deot_mpi.command.flag_values import HelpWanted
from deot_mpi.data.files import load_samples
from deot_mpi.data.samples import check_samples
from deot_mpi.data.scaling import scaled
from deot_mpi.data.synthetic import SyntheticSet
from deot_mpi.errors import InputError
from deot_mpi.options import AdaptOptions, AuditOptions, EOTOptions, GromovOptions, Options
from deot_mpi.roles import Role

ROWS = np.array([[1.0, 2.0], [3.5, -4.0], [0.1, 1e-3]])


def save_all_formats(folder: Path) -> None:
    np.save(folder / "a-0.npy", ROWS)
    np.savez(folder / "a-0.npz", X=ROWS, weights=[1.0, 2.0, 3.0])
    (folder / "a-0.csv").write_text("1.0,2.0\n3.5,-4.0\n0.1,1e-3\n")
    (folder / "b-0.csv").write_text("height,weights,age\n1.0,1,2.0\n3.5,2,-4.0\n0.1,3,1e-3\n")


@pytest.mark.parametrize(
    ("name", "weighted"), [("a-{agent}.npy", 0), ("a-{agent}.npz", 1), ("a-{agent}.csv", 0), ("b-{agent}.csv", 1)]
)
def test_formats(tmp_path: Path, name: str, weighted: int) -> None:
    save_all_formats(tmp_path)
    samples = load_samples(str(tmp_path / name), 0, "source agent 0")
    np.testing.assert_array_equal(samples.rows, ROWS)
    expected = np.array([1, 2, 3]) / 6 if weighted else np.full(3, 1 / 3)
    np.testing.assert_allclose(samples.shares, expected)
    assert samples.mass == (6.0 if weighted else 3.0)


def test_weights_from_a_file_of_their_own(tmp_path: Path) -> None:
    save_all_formats(tmp_path)
    np.save(tmp_path / "w-0.npy", [1.0, 1.0, 2.0])
    (tmp_path / "w-0.csv").write_text("1\n1\n2\n")
    (tmp_path / "named-0.csv").write_text("weights\n1\n1\n2\n")
    np.savez(tmp_path / "named-0.npz", weights=[1.0, 1.0, 2.0])
    for name in ("w-{agent}.npy", "w-{agent}.csv", "named-{agent}.csv", "named-{agent}.npz"):
        samples = load_samples(str(tmp_path / "a-{agent}.npy"), 0, "source agent 0", str(tmp_path / name))
        np.testing.assert_allclose(samples.shares, [0.25, 0.25, 0.5])


def test_weights_given_twice_are_refused(tmp_path: Path) -> None:
    save_all_formats(tmp_path)
    np.save(tmp_path / "w-0.npy", [1.0, 1.0, 2.0])
    with pytest.raises(InputError, match="drop one of the two"):
        load_samples(str(tmp_path / "a-{agent}.npz"), 0, "source agent 0", str(tmp_path / "w-{agent}.npy"))


def test_one_dimensional_arrays_are_one_column() -> None:
    assert check_samples(np.arange(4), None, "source agent 0").rows.shape == (4, 1)


@pytest.mark.parametrize(
    ("rows", "weights", "words"),
    [
        (np.empty((0, 3)), None, r"no samples.*\(0, 3\)"),
        (np.empty((3, 0)), None, "no samples"),
        (np.ones((2, 2, 2)), None, r"\(2, 2, 2\)"),
        (np.array([[1.0, np.nan]]), None, "row 0, column 1 is nan"),
        (np.array([[1.0], [-np.inf]]), None, "row 1, column 0 is -inf"),
        (np.array([["a"]]), None, "real numbers"),
        (np.array([[1 + 2j]]), None, "real numbers"),
        ([[1.0, 2.0], [3.0]], None, "rectangular"),
        (np.ones((2, 1)), [1.0], "one weight per row"),
        (np.ones((2, 1)), [1.0, 0.0], "weight 0.0 of row 1"),
        (np.ones((2, 1)), [np.nan, 1.0], "weight nan of row 0"),
        (np.ones((2, 1)), ["x", "y"], "weights are real numbers"),
        (np.ones((2, 1)), [1 + 1j, 1.0], "weights are real numbers"),
        (np.ones((2, 1)), [1e-200, 1e200], "leave double precision"),
        (np.ones((2, 1)), [1e308, 1e308], "leave double precision"),
    ],
)
def test_bad_samples_name_the_owner_and_the_value(rows: object, weights: object, words: str) -> None:
    with pytest.raises(InputError, match=f"^target agent 3: .*{words}"):
        check_samples(rows, weights, "target agent 3")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.npy", None, "no such file"),
        ("x.txt", b"1 2", "cannot read '.txt'"),
        ("x.npy", b"not numpy", "cannot be read"),
        ("x.npz", b"PK\x03\x04 torn", "cannot be read"),
        ("x.csv", b"", "no samples"),
        ("x.csv", b"1,2\n\n3\n", "line 3 has 1 values"),
        ("x.csv", b"a,b\n1,2\n3,oops\n", "line 3, value 2 is not a number"),
        ("x.csv", b"1.0,,2\n1,2,3\n", "line 1, value 2 is not a number"),
        ("x.csv", b"1.0,NA,2\n1,2,3\n", "line 1, value 2 is not a number"),
        ("x.csv", b"1e200\n", "overflows"),
        ("x.csv", b"1,nan\n", "is nan"),
        ("x.csv", b"\xff\xfe\x00", "cannot be read"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: bytes | None, words: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=words) as caught:
        load_samples(str(tmp_path / name), 0, "source agent 0")
    assert "source agent 0" in str(caught.value)
    assert name in str(caught.value)


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "x.npz", X=np.array([{"a": 1}], dtype=object))
    for name in ("x.npy", "x.npz"):
        with pytest.raises(InputError, match=r"Python objects .* never loaded"):
            load_samples(str(tmp_path / name), 0, "source agent 0")
    np.savez(tmp_path / "y.npz", X=ROWS, y=np.array(["a", {}], dtype=object))
    with pytest.raises(InputError, match=r"Python objects .* never loaded"):
        load_samples(str(tmp_path / "y.npz"), 0, "source agent 0", labelled=True)


def test_rows_that_memory_cannot_hold_are_not_read(tmp_path: Path) -> None:
    """A sparse file has all the bytes that its header claims, and takes no room on the disk."""
    with (tmp_path / "rows.npy").open("wb") as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": (1 << 30, 1 << 7)}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + (1 << 40))
    with pytest.raises(InputError, match=r"source agent 0 \(.*rows.npy\): is 1,099,511,627,776 bytes.*are free"):
        load_samples(str(tmp_path / "rows.npy"), 0, "source agent 0")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rows.csv")
    with pytest.raises(InputError, match=r"source agent 0 .*is a folder, a pipe or a device"):
        load_samples(str(tmp_path / "rows.csv"), 0, "source agent 0")


def test_npz_without_rows_says_what_it_has(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", features=ROWS)
    with pytest.raises(InputError, match=r"\['features'\] but none called 'X'"):
        load_samples(str(tmp_path / "x.npz"), 0, "source agent 0")


def test_pattern_with_an_unknown_placeholder() -> None:
    for pattern in ("site-{rank}.npy", "site-{}.npy", "site-{agent.x}.npy", "site-{agent.npy"):
        with pytest.raises(InputError, match="placeholders are"):
            load_samples(pattern, 0, "source agent 0")


@pytest.mark.parametrize("dataset", ["gaussian", "mixture"])
def test_synthetic_rows_do_not_depend_on_the_number_of_agents(dataset: str) -> None:
    pooled = []
    for agents in (1, 3, 8):
        made = [SyntheticSet(dataset, 333, 4, seed=5).share(Role.TARGET, k, agents).rows for k in range(agents)]
        assert max(map(len, made)) - min(map(len, made)) <= 1
        pooled.append(np.concatenate(made))
    np.testing.assert_array_equal(pooled[0], pooled[1])
    np.testing.assert_array_equal(pooled[0], pooled[2])


def test_component_scatter_gives_one_component_per_agent_and_the_same_pool() -> None:
    one = SyntheticSet("mixture", 400, 5, "iid", 1)
    apart = SyntheticSet("mixture", 400, 5, "component", 1)
    blocks = [apart.share(Role.SOURCE, k, 4).rows for k in range(4)]
    for k, rows in enumerate(blocks):
        assert np.sign(rows[:, 0].mean()) == (-1 if k % 2 == 0 else 1)
        assert abs(rows[:, 0].mean()) == pytest.approx(2, abs=0.3)
    pool = np.concatenate([one.share(Role.SOURCE, k, 4).rows for k in range(4)])
    np.testing.assert_array_equal(np.sort(np.concatenate(blocks), axis=0), np.sort(pool, axis=0))


def test_gaussian_moments() -> None:
    rows = SyntheticSet("gaussian", 40_000, 5).share(Role.TARGET, 0, 1).rows
    np.testing.assert_allclose(rows.mean(axis=0), 1.0, atol=4 * np.sqrt(1.5 / 40_000))
    np.testing.assert_allclose(rows.var(axis=0), np.linspace(0.5, 1.5, 5), rtol=4 * np.sqrt(2 / 40_000))


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("eps is 0", {"eps": 0.0}),
        ("eps is -1", {"eps": -1.0}),
        ("eps is nan", {"eps": float("nan")}),
        ("eps_scale is inf", {"eps_scale": float("inf")}),
        ("give one of the two", {"eps": 1.0, "eps_scale": 1.0}),
        ("kernel is 'exact'", {"kernel": "exact"}),
        ("bits is 0", {"bits": 0}),
        ("rounds is 1.5", {"rounds": 1.5}),
        ("tol is -1", {"tol": -1}),
        ("seed is -3", {"seed": -3}),
        ("'sinkhorn' always asks all", {"neighbours": 2}),
        ("only solver 'mrbcd' draws pairs", {"pairs": 2}),
        ("eta is 0", {"eta": 0}),
        ("reference is 'no'", {"reference": "no"}),
        ("bits is 100000000000", {"bits": 10**11}),
    ],
)
def test_bad_options(words: str, options: dict[str, object]) -> None:
    with pytest.raises(InputError, match=words):
        EOTOptions(**options)  # type: ignore[arg-type]


def test_the_command_line_has_the_defaults_of_the_api() -> None:
    assert parse([]).options == EOTOptions()
    assert parse(["eot"]) == parse([])


def test_config_file_and_command_line() -> None:
    text = 'eps = 0.5\nkernel = "raw"\nmatch = true\ncentre = false\nbits = 64\n'
    job = parse(["--bits", "128"], text)
    assert (job.options.eps, job.options.kernel, job.options.bits) == (0.5, "raw", 128)
    assert job.options.match
    assert not job.options.centre
    assert parse(["--eps-scale", "0.2"], text).options.eps is None
    assert config_path(["eot", "--config", "run.toml", "--bits", "3"]) == "run.toml"
    for bad, words in (
        ("epsilon = 1", "'epsilon', which is not an option"),
        ("eps = ", "valid TOML"),
        ("eps = [1]", "list"),
    ):
        with pytest.raises(InputError, match=words):
            parse([], bad)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--bitz", "3"], "unrecognized"),
        (["--bits", "many"], "invalid int"),
        (["--kernel", "exact"], "invalid choice"),
        (["--source", "a-{agent}.npy"], "come together"),
        (["--source-weights", "w-{agent}.npy"], "weights without samples"),
        (["gromow"], "'gromow' is not a command"),
        (["--dataset", "gaussian", "--scatter", "component"], "--dataset mixture"),
        (["--samples", "0"], "0 samples"),
    ],
)
def test_bad_command_lines(argv: list[str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse(argv)


def test_help_and_version_are_texts() -> None:
    with pytest.raises(HelpWanted, match="mpirun -n RANKS"):
        parse(["--help"])
    with pytest.raises(HelpWanted, match="deot_mpi"):
        parse(["--version"])


def test_every_flag_says_what_it_does() -> None:
    assert all(action.help for action in build_parser()._actions)


@pytest.mark.parametrize(("rows", "labels"), [("X", "y"), ("fts", "labels"), ("feas", "gnd")])
def test_labelled_rows_from_matlab(tmp_path: Path, rows: str, labels: str) -> None:
    """Names as published feature files have them; MATLAB's labels are a column."""
    scipy.io.savemat(tmp_path / "d-0.mat", {rows: ROWS, labels: np.array([[3], [1], [3]], dtype=np.uint8)})
    samples = load_samples(str(tmp_path / "d-{agent}.mat"), 0, "source agent 0", labelled=True)
    np.testing.assert_array_equal(samples.rows, ROWS)
    np.testing.assert_array_equal(samples.labels, [3, 1, 3])
    scipy.io.savemat(tmp_path / "e-0.mat", {"data": ROWS})
    with pytest.raises(InputError, match=r"source agent 0 .*has arrays \['data'\] but none of X, fts"):
        load_samples(str(tmp_path / "e-{agent}.mat"), 0, "source agent 0")


def test_scaling_of_rows() -> None:
    rows = np.array([[3.0, 4.0], [0.0, 2.0]])
    np.testing.assert_array_equal(scaled(rows, "none", "source agent 0"), rows)
    np.testing.assert_allclose(scaled(rows, "unit", "source agent 0"), [[0.6, 0.8], [0.0, 1.0]])
    roots = scaled(rows, "hellinger", "source agent 0")
    np.testing.assert_allclose(roots**2, rows / rows.sum(axis=1, keepdims=True))
    with pytest.raises(InputError, match=r"source agent 0: row 1 is all zeros .1 such rows"):
        scaled(np.array([[1.0], [0.0]]), "unit", "source agent 0")
    with pytest.raises(InputError, match=r"target agent 2: row 0, column 1 is negative .*takes roots; use 'unit'"):
        scaled(np.array([[1.0, -1.0]]), "hellinger", "target agent 2")


@pytest.mark.parametrize(
    ("kind", "more", "words"),
    [
        (EOTOptions, {"pairwise_seeds": True}, "the same planes for all pairs of rows"),
        (EOTOptions, {"max_recovery": 0.5}, "small difference of large values"),
        (EOTOptions, {"debias": "yes"}, "debias is 'yes'; it must be True or False"),
        (AdaptOptions, {}, "adapt reads labels off the plan"),
        (AuditOptions, {}, "an audit with solver 'kept'"),
        (GromovOptions, {}, "no convex problem"),
    ],
)
def test_debias_is_refused_where_it_cannot_be_had(kind: type[Options], more: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        kind(**{"debias": True, **more})
