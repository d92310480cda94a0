from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import ROOT, SMALL, Hosts, Slurm, numbers, read
from launch import launch


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Four hosts; a skip with the reason where they cannot be had."""
    reason = os.environ.get("DEOT_NO_HOSTS", "start these with make test-hosts")
    if reason:
        pytest.skip(reason)
    made = Hosts(Path(os.environ["DEOT_CLUSTER_RECIPES"]), tmp_path_factory.mktemp("hosts"))
    try:
        yield made.up()
    finally:
        made.down()


@pytest.fixture(scope="session")
def slurm(hosts: Hosts) -> Slurm:
    reason = os.environ.get("DEOT_NO_SLURM", "start these with make test-hosts")
    if reason:
        pytest.skip(reason)
    return Slurm(hosts).up()


@pytest.fixture(scope="session")
def on_one_host(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What 16 agents find on one host, started by plain mpirun."""
    folder = tmp_path_factory.mktemp("alone")
    ended = launch(16, *SMALL, "--json", "one.json", folder=folder)
    assert ended.code == 0, ended.err
    return numbers(read(folder / "one.json"))


@pytest.fixture
def submission(tmp_path: Path) -> Path:
    """A folder to submit from, as the project's own is: with its environment and its scripts."""
    for name in (".venv", "scripts"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path
