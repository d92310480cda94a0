"""One file for all agents: the slices together are the file, and no agent reads more than its own."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from launch import launch_several

from deot_mpi.command.arguments import parse
from deot_mpi.data import slices
from deot_mpi.data.files import load_samples, rows_by_header
from deot_mpi.data.samples import Samples
from deot_mpi.data.synthetic import SyntheticSet
from deot_mpi.errors import InputError
from deot_mpi.roles import Role

h5py = pytest.importorskip("h5py")
ROWS = np.random.default_rng(3).standard_normal((23, 3))
WEIGHTS = np.arange(1.0, 24.0)
LABELS = np.arange(23) % 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "X.npy", ROWS)
    np.save(tmp_path / "w.npy", WEIGHTS)
    np.save(tmp_path / "y.npy", LABELS)
    with h5py.File(tmp_path / "all.h5", "w") as file:
        for name, array in (("X", ROWS), ("weights", WEIGHTS), ("y", LABELS)):
            file[name] = array
    return tmp_path


def loaded(folder: Path, kind: str, agent: int, agents: int) -> Samples:
    if kind == "hdf5":
        return load_samples(str(folder / "all.h5"), agent, f"source agent {agent}", labelled=True, sharing=agents)
    x, w, y = (str(folder / f"{name}.npy") for name in "Xwy")
    return load_samples(x, agent, f"source agent {agent}", w, None, y, labelled=True, sharing=agents)


@pytest.mark.parametrize("kind", ["npy", "hdf5"])
@pytest.mark.parametrize("agents", [1, 4, 7, 23])
def test_slices_together_are_the_file(folder: Path, kind: str, agents: int) -> None:
    parts = [loaded(folder, kind, agent, agents) for agent in range(agents)]
    for name, whole in (("rows", ROWS), ("weights", WEIGHTS), ("labels", LABELS)):
        np.testing.assert_array_equal(np.concatenate([getattr(part, name) for part in parts]), whole)
    sizes = [part.count for part in parts]
    assert max(sizes) - min(sizes) <= 1
    pattern = str(folder / ("all.h5" if kind == "hdf5" else "X.npy"))
    assert [rows_by_header(pattern, agent, agents) for agent in range(agents)] == sizes
    assert rows_by_header(pattern, 0) == 23


@pytest.mark.parametrize("name", ["large.npy", "large.h5"])
def test_an_agent_takes_memory_for_its_own_rows_only(tmp_path: Path, name: str) -> None:
    """16 MB in all, an eighth of it for each: at most the slice and one copy of it are ever held."""
    rows = np.random.default_rng(0).standard_normal((250_000, 8))
    if name.endswith(".npy"):
        np.save(tmp_path / name, rows)
    else:
        with h5py.File(tmp_path / name, "w") as file:
            file["X"] = rows
    own = rows.nbytes // 8
    load_samples(str(tmp_path / name), 0, "source agent 0", sharing=100_000)  # what is imported once is not counted
    tracemalloc.start()
    try:
        samples = load_samples(str(tmp_path / name), 5, "source agent 5", sharing=8)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(samples.rows, rows[5 * 31250 : 6 * 31250])
    assert samples.rows.base is None or samples.rows.base.nbytes == own
    assert own <= most < 3.5 * own  # the rows, and masks and squares of them while they are checked


def test_what_of_the_file_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is on disk, only the agent's rows are ever asked for."""
    asked: list[slice] = []

    class Watched:
        def __init__(self, array: np.ndarray) -> None:
            self.array, self.shape, self.ndim, self.flags = array, array.shape, array.ndim, array.flags

        def __getitem__(self, part: slice) -> np.ndarray:
            asked.append(part)
            return self.array[part]

    load = np.load
    monkeypatch.setattr(slices.np, "load", lambda *given, **named: Watched(load(*given, **named)))
    loaded(folder, "npy", 2, 7)
    assert asked == [slice(8, 11)] * 3  # 23 = 4 + 4 + 3 + ...: rows, weights and labels


@pytest.mark.parametrize(
    ("make", "name", "sentence"),
    [
        (lambda p: np.save(p, np.asfortranarray(ROWS)), "f.npy", "stored column by column"),
        (lambda p: np.save(p, ROWS[:2]), "short.npy", "2 rows do not reach all 4 agents"),
        (lambda p: np.save(p, np.float64(1.0)), "one.npy", "a single number"),
        (lambda p: p.write_text("1,2\n3,4\n"), "t.csv", "can only be read whole; --slice takes .npy, .h5"),
        (lambda p: p.write_bytes(b"no hdf5"), "bad.h5", "cannot be read"),
        (lambda p: h5py.File(p, "w").close(), "empty.h5", "no dataset called X"),
        (lambda p: None, "nowhere.h5", "no such file"),
    ],
)
def test_files_that_cannot_be_sliced(tmp_path: Path, make: object, name: str, sentence: str) -> None:
    make(tmp_path / name)  # type: ignore[operator]
    with pytest.raises(InputError, match=f"source agent 1 .*{sentence}"):
        load_samples(str(tmp_path / name), 1, "source agent 1", sharing=4)


def test_a_slice_larger_than_memory_is_refused_before_it_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "free_memory", lambda: 100.0)
    with pytest.raises(InputError, match=r"rows 6 to 11 are 144 bytes as float64, and 100 are free"):
        load_samples(str(folder / "X.npy"), 1, "source agent 1", sharing=4)


def test_hosts_have_files_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.node", lambda: "node7")
    np.save(tmp_path / "node7-3.npy", ROWS)
    samples = load_samples(str(tmp_path / "{host}-{agent}.npy"), 3, "source agent 3")
    np.testing.assert_array_equal(samples.rows, ROWS)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--slice"], "--slice is about the files"),
        (["--source", "s-{agent}.npy", "--target", "t.npy", "--slice"], "drop one of the two"),
        (["--source", "s.npy", "--target", "t.npy", "--placement", "edges"], "an agent cannot move"),
        (["--source", "{host}/{agent}.npy", "--target", "{agent}.npy", "--placement", "edges"], "cannot move"),
    ],
)
def test_flags_that_contradict_each_other(words: list[str], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        parse(words)


def test_slices_of_one_file_give_the_bits_of_a_file_each(tmp_path: Path) -> None:
    """Synthetic sets are scattered as slices are: rows 0 to N/I - 1 to the first agent, and so on."""
    made = SyntheticSet("gaussian", 90, 3, "iid", 0)
    for role in Role:
        np.save(tmp_path / f"{role.value}.npy", made.share(role, 0, 1).rows)
    options = ("--eps", "2", "--bits", "64", "--progress", "none")
    files = ("--source", "source.npy", "--target", "target.npy", "--slice", "--placement", "edges")
    ways = {"made": ("--samples", "90", "--dim", "3"), "sliced": files}
    for ended in launch_several(
        4, [(*way, *options, "--json", f"{name}.json") for name, way in ways.items()], tmp_path
    ):
        assert ended.code == 0, ended.err
    found = [json.loads((tmp_path / f"{name}.json").read_text()) for name in ways]
    for name in ("dual_objective", "transport_cost", "rounds"):
        assert found[0][name] == found[1][name]
    assert [agent["samples"] for agent in found[1]["agents"]] == [45] * 4
