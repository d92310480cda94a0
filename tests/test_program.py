"""The program from outside: results, files, and how it says no. Real ranks, started by mpirun."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from launch import MPIRUN, Ended, launch, launch_several
from problems import pot_answers

pytestmark = pytest.mark.skipif(not MPIRUN.exists(), reason="no mpirun in this environment (make setup brings one)")

QUICK = ("--samples", "64", "--rounds", "20", "--progress", "none")


def write_sites(folder: Path, sources: int, targets: int) -> tuple[np.ndarray, np.ndarray]:
    """One .npy per source (unequal), one weighted .npz per target. Returns the pooled rows."""
    rng = np.random.default_rng(0)
    x = [rng.normal(size=(10 + 3 * k, 3)) for k in range(sources)]
    y = [rng.normal(size=(12 + 2 * k, 3)) + 1 for k in range(targets)]
    for k, rows in enumerate(x):
        np.save(folder / f"hospital-{k}.npy", rows)
    for k, rows in enumerate(y):
        np.savez(folder / f"lab-{k}.npz", X=rows, weights=np.arange(1, len(rows) + 1))
    return np.concatenate(x), np.concatenate(y)


def test_own_files_give_pots_values(tmp_path: Path) -> None:
    x, y = write_sites(tmp_path, 3, 2)
    run = launch(
        5, "--sources", "3", "--source", "hospital-{agent}.npy", "--target", "lab-{agent}.npz", "--kernel", "raw",
        "--eps", "0.5", "--tol", "1e-11", "--rounds", "20000", "--json", "result.json", "--save", "out/potentials",
        "--plot", "run.png", folder=tmp_path,
    )  # fmt: skip
    assert run.code == 0, run.err
    result = json.loads((tmp_path / "result.json").read_text())
    weights = np.concatenate([np.arange(1, 13), np.arange(1, 15)]).astype(float)
    expected = pot_answers(x, y, np.full(len(x), 1 / len(x)), weights / weights.sum(), 0.5)
    for name in ("dual_objective", "regularised_cost", "transport_cost", "entropy_cost"):
        assert result[name] == pytest.approx(getattr(expected, name), rel=1e-8), name
    fields = ["status", "rounds", "seconds", "agents", "protocol", "ledger", "trace", "reference", "errors"]
    assert set(fields) <= set(result)
    assert [agent["samples"] for agent in result["agents"]] == [10, 13, 16, 12, 14]
    saved = sorted(path.name for path in (tmp_path / "out" / "potentials").iterdir())
    assert saved == ["source-0000.npz", "source-0001.npz", "source-0002.npz", "target-0000.npz", "target-0001.npz"]
    with np.load(tmp_path / "out" / "potentials" / "target-0001.npz") as file:
        assert file["potential"].shape == (14,)
        assert float(file["eps"]) == 0.5
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    assert f"{result['transport_cost']:.10g}" in run.out


def test_the_bare_command_is_a_good_first_run(tmp_path: Path) -> None:
    run = launch(16, "--reference", "--json", "r.json", folder=tmp_path)
    assert run.code == 0, run.err
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["status"] == "marginal"
    assert result["errors"]["relative_total"] < 0.01
    assert result["ledger"]["by_kind"][0] == {
        "kind": "samples", "messages": 0, "bytes": 0, "collectives": 0, "collective_bytes": 0, "formula_bytes": None,
        "within_messages": 0, "within_bytes": 0, "within_formula_bytes": None,
    }  # fmt: skip
    assert "Privacy: sketches are not secret" in run.out
    assert "round " in run.err  # plain progress lines, since nobody looks


def test_help_is_printed_once(tmp_path: Path) -> None:
    runs = launch_several(3, [("--help",), ("eot", "--help"), ("gromov", "--help")], tmp_path)
    for run, more in zip(runs, ("", "rounds centre", "starts outer inner p-update alpha target-dim"), strict=True):
        assert run.code == 0
        assert run.out.count("usage: mpirun -n RANKS") == 1
        assert run.err == ""
        flags = (
            "eps eps-scale kernel bits estimator solver neighbours pairs tol eta protocol degree match sources seed",
            "dataset samples dim scatter source target reference json save plot config",
            "acceleration eps-scaling start precision memory threads",
            more or "rounds centre",
        )
        for flag in " ".join(flags).split():
            assert f"--{flag}" in run.out


@pytest.fixture(scope="module")
def by_four(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Ended]]:
    """What 4 ranks are asked for below: one job for all, in a folder of its own; by the name of the command."""
    folder = tmp_path_factory.mktemp("four")
    commands = {**write_config(folder), **small_eps(), **write_spaces(folder), **write_labelled(folder)}
    runs = launch_several(4, list(commands.values()), folder)
    return folder, dict(zip(commands, runs, strict=True))


def write_config(folder: Path) -> dict[str, tuple[str, ...]]:
    (folder / "run.toml").write_text('kernel = "raw"\neps = 2.0\nprotocol = "links.txt"\nmatch = true\n')
    (folder / "links.txt").write_text("source 0 targets 0,1\nsource 1 targets all  # the big site\n")
    return {"config": ("--config", "run.toml", "--eps", "3.0", "--json", "config.json", *QUICK)}


def test_config_file_and_protocol_file(by_four: tuple[Path, dict[str, Ended]]) -> None:
    folder, runs = by_four
    assert runs["config"].code == 0, runs["config"].err
    result = json.loads((folder / "config.json").read_text())
    assert result["eps"] == 3.0
    assert result["settings"]["kernel"] == "raw"
    assert result["protocol"]["name"] == "links.txt, matched"
    assert result["protocol"]["sigma"] == pytest.approx(0, abs=1e-9)


def small_eps() -> dict[str, tuple[str, ...]]:
    common = ("--samples", "200", "--kernel", "raw", "--progress", "none", "--rounds", "5000", "--dim", "20")
    little = ("--memory", "50kB", "--threads", "2", "--save", "first", "--json", "1.json")
    again = (*common, "--eps-scale", "0.0011")
    return {
        "little": (*common, "--eps-scale", "0.001", *little),
        "warm": (*again, "--start", "first", "--json", "warm.json"),
        "cold": (*again, "--json", "cold.json"),
    }


def test_a_small_eps_is_reached_in_little_memory_and_gone_on_from(by_four: tuple[Path, dict[str, Ended]]) -> None:
    """eps = 0.001 of the mean cost: converges without a warning; then on from its potentials, at another eps."""
    folder, runs = by_four
    first = runs["little"]
    assert first.code == 0, first.err
    assert first.err == "deot_mpi: warning: not private: the raw kernel sends rows as they are.\n"
    result = json.loads((folder / "1.json").read_text())
    assert result["status"] == "marginal"
    assert result["marginal_error"] <= 1e-6
    assert max(point["temperature"] for point in result["trace"]) > 1
    assert result["settings"]["memory"] == 50_000
    assert [runs[name].code for name in ("warm", "cold")] == [0, 0]
    warm, cold = (json.loads((folder / f"{name}.json").read_text())["rounds"] for name in ("warm", "cold"))
    assert warm < cold


BAD_COMMANDS = [
    (2, ("--memory", "5 parsecs"), "'5 parsecs' is not a size; write it like 500MB"),
    (2, ("--memory", "0"), "memory is 0"),
    (2, ("--threads", "0"), "threads is 0"),
    (2, ("--memory", "1GB", "--solver", "mrbcd"), "only solver 'sinkhorn' can do without storing"),
    (2, ("--eps", "1e-310"), "nothing can be divided by that"),
    (2, ("--eps-scale", "1e308"), "the mean cost times that overflows"),
    (2, ("--precision", "float32", "--solver", "kept"), "only solver 'sinkhorn' has it"),
    (3, ("--start", "nowhere"), r"source agent 0: --start nowhere/source-0000.npz: no such file"),
    (2, ("--eps", "0"), "eps is 0"),
    (2, ("--eps", "-1"), "eps is -1"),
    (2, ("--bitz", "7"), "unrecognized"),
    (1, (), "one rank only"),
    (3, ("--sources", "3"), "--sources 3 with 3 ranks"),
    (3, ("--protocol", "nowhere"), "neither a file nor one of"),
    (3, ("--protocol", "short.csv"), r"shape \(1, 1\).*1 source and 2 target"),
    (3, ("--protocol", "light.txt"), "weights sum to 0.5"),
    (3, ("--config", "missing.toml"), "config file cannot be read"),
    (3, ("--json", "no/such/folder/r.json"), "does not exist or cannot be written"),
    (3, ("--plot", "picture.doc"), "pictures are"),
    (3, ("--samples", "1"), "target agent 1: 1 samples do not reach all 2 agents"),
    (3, ("--source", "s{agent}.npy", "--target", "t{agent}.npy"), r"target agent 1 \(t1.npy\): no such file"),
    (
        3,
        ("--source", "s{agent}.npy", "--target", "nan{agent}.npy"),
        r"target agent 0 \(nan0.npy\): row 1, column 2 is nan",
    ),
    (
        3,
        ("--source", "s{agent}.npy", "--target", "inf{agent}.csv"),
        r"target agent 1 \(inf1.csv\): row 0, column 0 is inf",
    ),
    (3, ("--source", "s{agent}.npy", "--target", "empty{agent}.npy"), r"target agent 1 \(empty1.npy\): no samples"),
    (3, ("--source", "s{agent}.npy", "--target", "wide{agent}.npy"), "target agent 1 has samples of 4 columns"),
]


@pytest.fixture(scope="module")
def bad_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    good = np.arange(12.0).reshape(4, 3)
    for name in ("s0", "t0", "empty0", "wide0"):
        np.save(folder / f"{name}.npy", good)
    with_nan = good.copy()
    with_nan[1, 2] = np.nan
    np.save(folder / "nan0.npy", with_nan)
    np.save(folder / "nan1.npy", good)
    (folder / "inf0.csv").write_text("1,2,3\n")
    (folder / "inf1.csv").write_text("inf,2,3\n")
    np.save(folder / "empty1.npy", np.empty((0, 3)))
    np.save(folder / "wide1.npy", np.ones((4, 4)))
    (folder / "short.csv").write_text("1.0\n")
    (folder / "light.txt").write_text("source 0 targets 0,1 weight=0.25\n")
    return folder


@pytest.fixture(scope="module")
def refused(bad_files: Path) -> dict[tuple[int, tuple[str, ...]], Ended]:
    """How each of the bad commands ended: one job for all of a number of ranks."""
    before, ended = sorted(bad_files.iterdir()), {}
    for size in {ranks for ranks, _, _ in BAD_COMMANDS}:
        commands = [arguments for ranks, arguments, _ in BAD_COMMANDS if ranks == size]
        runs = launch_several(size, commands, bad_files)
        ended |= {(size, arguments): run for arguments, run in zip(commands, runs, strict=True)}
    assert sorted(bad_files.iterdir()) == before, "nothing half-written"
    return ended


@pytest.mark.parametrize(("ranks", "arguments", "words"), BAD_COMMANDS)
def test_bad_input_is_one_sentence_and_exit_code_2(
    refused: dict[tuple[int, tuple[str, ...]], Ended], ranks: int, arguments: tuple[str, ...], words: str
) -> None:
    run = refused[ranks, arguments]
    assert run.code == 2
    said = re.findall(r"^deot_mpi: error: .*$", run.err, flags=re.MULTILINE)
    assert len(said) == 1, run.err
    assert re.search(words, said[0])
    assert "Traceback" not in run.err + run.out
    assert run.out == ""


@pytest.mark.parametrize(("ranks", "arguments", "words"), [BAD_COMMANDS[0], BAD_COMMANDS[-1]])
def test_so_it_is_from_outside(bad_files: Path, ranks: int, arguments: tuple[str, ...], words: str) -> None:
    """One command that no rank understands, and one whose fault a single rank sees."""
    run = launch(ranks, *arguments, folder=bad_files)
    assert (run.code, run.out) == (2, "")
    assert len(re.findall(f"^deot_mpi: error: .*{words}.*$", run.err, flags=re.MULTILINE)) == 1


def launch_spoiled(folder: Path, ranks: int, rank: int, body: str, *arguments: str) -> Ended:
    """The program with one rank's loading of samples replaced by ``body``."""
    script = folder / "spoiled.py"
    script.write_text(
        "import sys, time\n"
        "from mpi4py import MPI\n"
        "import deot_mpi.run as run\n"
        f"if MPI.COMM_WORLD.rank == {rank}:\n"
        f"    def spoiled(*_, **__): {body}\n"
        "    run._load = spoiled\n"
        "sys.exit(run.main(sys.argv[1:]))\n"
    )
    return launch(ranks, "--progress", "none", *arguments, folder=folder, program=(str(script),))


def test_an_unexpected_failure_on_one_rank_ends_all(tmp_path: Path) -> None:
    """A bug on one rank while the others wait in a collective: a traceback with the rank, and the end."""
    run = launch_spoiled(tmp_path, 4, 2, "raise RuntimeError('bug on purpose')")
    assert run.code == 1
    assert "unexpected failure on rank 2" in run.err
    assert "bug on purpose" in run.err


def test_a_stuck_agent_ends_the_run_by_its_timeout(tmp_path: Path) -> None:
    run = launch_spoiled(tmp_path, 3, 1, "time.sleep(60)", "--timeout", "2")
    assert run.code == 1
    assert "no message within 2 s" in run.err


def test_a_diverged_run_says_so(tmp_path: Path) -> None:
    run = launch(2, *QUICK, "--solver", "mrbcd", "--eta", "1e300", "--json", "r.json", folder=tmp_path)
    assert run.code == 1
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["status"] == "diverged"
    assert result["dual_objective"] is None
    assert "diverged" in run.out


def test_it_runs_without_a_launcher_only_to_say_how(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "deot_mpi.run"], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )
    assert ended.returncode == 2
    assert "mpirun -n 2" in ended.stderr


def write_spaces(folder: Path) -> dict[str, tuple[str, ...]]:
    rng = np.random.default_rng(0)
    for role, count, dimension in (("a", 30, 3), ("b", 25, 2)):
        for agent in range(2):
            np.save(folder / f"{role}-{agent}.npy", rng.normal(size=(count, dimension)) + 4.0)
            np.save(folder / f"{role}-features-{agent}.npy", rng.normal(size=(count, 2)))
    files = [
        "--source", "a-{agent}.npy", "--target", "b-{agent}.npy", "--source-features", "a-features-{agent}.npy",
        "--target-features", "b-features-{agent}.npy", "--alpha", "0.6", "--kernel", "raw", "--eps-scale", "0.1",
    ]  # fmt: skip
    outputs = ["--json", "gromov.json", "--save", "spaces", "--plot", "gromov.png"]
    return {
        "gromov": ("gromov", *files, *outputs, "--starts", "3", "--reference"),
        "again": ("gromov", *files, "--start", "spaces", "--starts", "1", "--json", "again.json"),
    }


def test_gromov_from_own_files(by_four: tuple[Path, dict[str, Ended]]) -> None:
    """Spaces of 3 and 2 columns with features of 2: JSON, picture, potentials, and a run that goes on from them."""
    folder, runs = by_four
    run, again = runs["gromov"], runs["again"]
    assert run.code == 0, run.err
    result = json.loads((folder / "gromov.json").read_text())
    assert result["alpha"] == 0.6
    assert np.shape(result["alignment"]) == (3, 2)
    values = [start["value"] for start in result["starts"]]
    assert result["regularised_cost"] == min(values)
    assert len(values) == 3
    central = result["reference"]["centralised"]
    assert result["regularised_cost"] == pytest.approx(central["regularised_cost"], rel=1e-5)
    assert result["transport_cost"] == pytest.approx(central["transport_cost"], rel=1e-3)
    assert result["settings"]["problem"] == "gromov"
    assert (folder / "gromov.png").read_bytes().startswith(b"\x89PNG")
    assert "Starts: ends lie" in run.out
    assert again.code == 0, again.err
    further = json.loads((folder / "again.json").read_text())
    assert further["regularised_cost"] == pytest.approx(result["regularised_cost"], rel=1e-6)
    assert further["rounds"] < 0.5 * min(start["rounds"] for start in result["starts"])


def test_gromov_says_no(tmp_path: Path) -> None:
    bad = {
        ("--dim", "0"): "dimension 0 and 3",
        ("--rounds", "5"): "unrecognized arguments: --rounds",
        ("--source-features", "x.npy"): "come together",
        ("--eps", "1e-15", "--kernel", "raw"): "no digits left",
        ("--within", "0"): "within is 0",
    }
    common = ("gromov", "--samples", "20", "--json", "r.json")
    runs = launch_several(2, [(*common, *arguments) for arguments in bad], tmp_path)
    for (arguments, words), run in zip(bad.items(), runs, strict=True):
        assert run.code == 2, arguments
        assert words in run.err
        assert run.err.count("deot_mpi: error") == 1
    assert not (tmp_path / "r.json").exists()


METHODS = ("1nn", "labels", "class-regularised")


def write_labelled(folder: Path) -> dict[str, tuple[str, ...]]:
    rng = np.random.default_rng(3)
    centres = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])
    for agent in range(2):
        labels = rng.integers(3, size=20 + agent)
        np.savez(folder / f"site-{agent}.npz", X=centres[labels] + 0.3 * rng.normal(size=(20 + agent, 2)), y=labels)
        truth = rng.integers(3, size=15)
        rows = centres[truth] + 0.5 + 0.3 * rng.normal(size=(15, 2))
        table = np.column_stack([rows[:, 0], truth, rows[:, 1]])
        np.savetxt(folder / f"lab-{agent}.csv", table, delimiter=",", header="a,y,b", comments="")
    files = ("--source", "site-{agent}.npz", "--target", "lab-{agent}.csv")
    return {
        **{name: ("adapt", *files, "--method", name, "--json", f"{name}.json", "--save", name) for name in METHODS},
        "no files": ("adapt", "--source", "lab-{agent}.csv", "--target", "lab-{agent}.npy"),
        "no rows": ("adapt",),
    }


def test_adapt_from_own_files(by_four: tuple[Path, dict[str, Ended]]) -> None:
    """Labels in .npz and in .csv; each target agent's predictions in its own file, the accuracy in the JSON."""
    folder, runs = by_four
    for method in METHODS:
        run = runs[method]
        assert run.code == 0, run.err
        result = json.loads((folder / f"{method}.json").read_text())
        assert result["accuracy"] == 1.0  # six apart, half a unit moved, a spread of 0.3
        assert result["accuracies"] == [1.0, 1.0]
        assert result["method"] == method
        assert result["settings"]["problem"] == "adapt"
        for agent in (0, 1):  # all labels are right, so these are the truth
            truth = np.loadtxt(folder / f"lab-{agent}.csv", delimiter=",", skiprows=1)[:, 1]
            with np.load(folder / method / f"target-000{agent}.npz") as file:
                np.testing.assert_array_equal(file["predictions"], truth)
        assert "Domain adaptation" in run.out
    assert runs["no files"].code == 2
    assert "no such file" in runs["no files"].err
    assert runs["no rows"].code == 2
    assert "adapt needs labelled rows" in runs["no rows"].err
