"""16 agents over four hosts with addresses of their own: the same numbers as on one host, and what crosses between."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cluster import HOSTS, ROOT, SMALL, Hosts, numbers, read, wait_for
from launch import launch

from deot_mpi.protocol.placement import crossing

DELAY_MS = 10.0
TCP = "OMPI_MCA_btl=tcp,self"  # not even agents of one host by shared memory
YIELD = "OMPI_MCA_mpi_yield_when_idle=1"  # four slots a host are a promise of cores that these hosts do not keep


def by_ssh(hosts: Hosts, *options: str, folder: Path, **environment: str) -> dict[str, object]:
    """scripts/ssh/run-on-hosts.sh on the first host, with host-shell for ssh."""
    words = " ".join(f'"{word}"' for word in (*SMALL, "--json", "four.json", *options))
    script = f"{ROOT}/scripts/ssh/run-on-hosts.sh {hosts.hostfile} 16 {words}"
    ended = hosts.run(f"export {TCP} {YIELD}; {script}", folder, DEOT_ENV=sys.prefix, **environment)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return read(folder / "four.json")


def test_the_same_to_the_bit_as_on_one_host(hosts: Hosts, on_one_host: dict[str, object], tmp_path: Path) -> None:
    result = by_ssh(hosts, "--sources", "8", folder=tmp_path)
    assert numbers(result) == on_one_host
    assert [agent["host"] for agent in result["agents"]] == [k // 4 for k in range(16)]
    edges = sum(edge["bytes"] for edge in result["ledger"]["by_edge"])
    assert result["ledger"]["bytes_between_hosts"] == edges, "sources on two hosts, targets on two others"


@pytest.mark.parametrize(("protocol", "share"), [("uniform", 0.75), ("ring", 0.25)])
def test_placement_by_edges(
    hosts: Hosts, on_one_host: dict[str, object], tmp_path: Path, protocol: str, share: float
) -> None:
    """The same bits, and between hosts only what the edges between them carry.

    uniform: two sources and two targets on a host, so 16 of 64 edges are within one; ring: 12 of its 16 edges.
    """
    placed = by_ssh(hosts, "--protocol", protocol, "--placement", "edges", folder=tmp_path)
    alone = on_one_host
    if protocol != "uniform":
        ended = launch(16, *SMALL, "--protocol", protocol, "--json", "alone.json", folder=tmp_path)
        assert ended.code == 0, ended.err
        alone = numbers(read(tmp_path / "alone.json"))
    assert numbers(placed) == alone
    host = np.array([agent["host"] for agent in placed["agents"]])
    carried = np.zeros((8, 8))
    for edge in placed["ledger"]["by_edge"]:
        carried[edge["source"], edge["target"]] = edge["bytes"]
    assert placed["ledger"]["bytes_between_hosts"] == crossing(carried, host)
    assert placed["ledger"]["bytes_between_hosts"] == share * carried.sum()


def test_a_rank_file_puts_neighbours_on_one_host(hosts: Hosts, tmp_path: Path) -> None:
    """hostfiles/ring.rankfile with the names and the two cores of the hosts here."""
    lines = (ROOT / "hostfiles" / "ring.rankfile").read_text().replace("=node", "=n")
    for slot in (2, 3):
        lines = lines.replace(f"slot={slot}", f"slot={slot - 2}")
    (tmp_path / "rankfile").write_text(lines)
    mapped = f"rankfile:file={tmp_path}/rankfile:oversubscribe"
    command = f"mpirun --hostfile {hosts.hostfile} --map-by {mapped} --bind-to core:overload-allowed -n 16"
    options = " ".join([*SMALL, "--sources 8 --protocol ring --json ranked.json"])
    ended = hosts.run(f"export {TCP} {YIELD}; {command} python -m deot_mpi.run {options}", tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    host = [agent["host"] for agent in read(tmp_path / "ranked.json")["agents"]]
    assert host == [k % 8 // 2 for k in range(16)]


def test_pbs_script_with_a_node_file(hosts: Hosts, on_one_host: dict[str, object], submission: Path) -> None:
    """No PBS here: its script, given what PBS would give it."""
    nodes = submission / "nodes"
    nodes.write_text("".join(f"n{k // 4 + 1}\n" for k in range(16)))
    given = {"PBS_O_WORKDIR": str(submission), "PBS_NODEFILE": str(nodes), "PBS_JOBID": "7.control"}
    options = " ".join(SMALL)
    ended = hosts.run(
        f"export {TCP} {YIELD}; bash scripts/pbs/four-nodes.pbs", submission, DEOT_OPTIONS=options, **given
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert numbers(read(submission / "deot-7.json")) == on_one_host


@pytest.fixture
def far_apart(hosts: Hosts) -> Iterator[Hosts]:
    """The same hosts behind a router that delays every packet."""
    log = hosts.folder / "router.log"
    with log.open("w") as said:
        router = subprocess.Popen(
            [sys.executable, hosts.recipes / "wan.py", str(HOSTS), str(DELAY_MS)], stdout=said, stderr=said
        )
    named = {k: Path(f"/etc/netns/n{k}/hosts") for k in range(1, HOSTS + 1)}
    near = {k: path.read_text() for k, path in named.items()}
    try:
        wait_for(lambda: "wan up" in log.read_text(), 20, "the router")
        for k, path in named.items():
            path.write_text(near[k].replace("10.77.", "10.88."))
        yield hosts
    finally:
        for k, path in named.items():
            path.write_text(near[k])
        router.kill()
        router.wait()


def test_ten_milliseconds_apart(far_apart: Hosts, on_one_host: dict[str, object], tmp_path: Path) -> None:
    """The same bits; sources work on what has come while the rest is on the way; the report shows the waiting."""
    wan = "OMPI_MCA_btl_tcp_if_include=wan0 PRTE_MCA_prte_if_include=wan0"
    options = " ".join([*SMALL, "--sources 8 --placement edges --json far.json"])
    launcher = f"mpirun --hostfile {far_apart.hostfile} --map-by slot --bind-to none -n 16"
    command = f"export {YIELD} {wan}; {launcher} python {ROOT}/tests/hosts/early.py {options}"
    ended = far_apart.run(command, tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    result = read(tmp_path / "far.json")
    assert numbers(result) == on_one_host
    assert "agents waited" in ended.stdout
    # In every round a source waits for its far targets and these for its answer: two ways through the router.
    least = result["rounds"] * DELAY_MS / 1e3
    assert all(agent["waiting_seconds"] > least for agent in result["agents"])
    counted = [read(tmp_path / f"early-{rank:02d}.json") for rank in range(16)]
    worked = [one["early"] for one in counted if one["sweeps"]]
    assert len(worked) == 8
    assert all(worked), f"sums that sources took before the last message had come: {worked}"
