"""Four hosts and a Slurm over them, on one machine, for as long as a test session takes.

Only for the inside of the namespaces that ``scripts/run_host_tests.py`` makes: everything started here ends with them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
HOSTS = 4
SMALL = ("--samples", "320", "--bits", "128", "--progress", "none")
"""A run of a second; what follows on a command line overrules it."""
_SLURM_CONF = """
ClusterName=deot
SlurmctldHost=control(10.77.0.254)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=/run/munge/socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
TmpFS={folder}/tmp-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
SwitchType=switch/none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


@dataclass
class Hosts:
    """Hosts n1 to n4 with addresses of their own; commands run on them as if by ssh."""

    recipes: Path
    folder: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def up(self) -> Hosts:
        environment = {**os.environ, "HOSTFILE": str(self.hostfile), "SLOTS": "4"}
        subprocess.run([self.recipes / "hosts-up", str(HOSTS)], env=environment, check=True)
        return self

    @property
    def hostfile(self) -> Path:
        return self.folder / "hostfile"

    @property
    def shell(self) -> str:
        return str(self.recipes / "host-shell")

    def start(self, command: list[str], log: str, environment: dict[str, str] | None = None) -> None:
        """A daemon, in the foreground, for as long as the session takes."""
        with (self.folder / log).open("w") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, env=environment
            )
        self.started.append(process)

    def last_words(self) -> str:
        """The ends of what the daemons have said."""
        return "\n".join(f"{log.name}: {log.read_text()[-600:]}" for log in sorted(self.folder.glob("*.log")))

    def run(
        self, command: str, folder: Path, limit: float = 180.0, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """A command on the first host; MPI's daemons come to the others by way of ``host-shell``."""
        named = {"PRTE_MCA_plm_ssh_agent": self.shell, **environment}
        exports = " ".join(f"export {name}='{value}';" for name, value in named.items())
        line = f"{exports} source {sys.prefix}/bin/activate; cd {folder}; {command}"
        return subprocess.run(
            [self.shell, "n1", "bash", "-c", f"'{line.replace(chr(39), chr(39) + chr(92) + chr(39) + chr(39))}'"],
            capture_output=True, text=True, timeout=limit, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def down(self) -> None:
        for process in reversed(self.started):
            process.terminate()
        for process in self.started:
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
        subprocess.run([self.recipes / "hosts-down", str(HOSTS)], capture_output=True, check=False)


class Slurm:
    """A controller here and one slurmd on each host, 16 CPUs each as far as Slurm knows."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts, self._folder = hosts, hosts.folder / "slurm"
        self._conf = self._folder / "slurm.conf"
        self.environment = {**os.environ, "SLURM_CONF": str(self._conf)}

    def up(self) -> Slurm:
        for name in ("state", *(f"{what}-n{k}" for what in ("spool", "tmp") for k in range(1, HOSTS + 1))):
            (self._folder / name).mkdir(parents=True)
        nodes = "\n".join(
            f"NodeName=n{k} NodeAddr=10.77.0.{k} CPUs=16 Sockets=1 CoresPerSocket=16 ThreadsPerCore=1 State=UNKNOWN"
            for k in range(1, HOSTS + 1)
        )
        self._conf.write_text(_SLURM_CONF.format(folder=self._folder, nodes=nodes))
        # Nothing here uses cgroups, and a host has none mounted: name a version, so that none is looked for.
        self._conf.with_name("cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        keyed = Path("/run/munge")
        key = keyed / "key"
        key.write_bytes(os.urandom(128))
        for path in (keyed, key):
            subprocess.run(["chown", "munge:munge", path], check=True)
        keyed.chmod(0o755)
        key.chmod(0o400)
        munged = [
            "runuser", "-u", "munge", "--", "munged", "--foreground", f"--key-file={key}", "--socket=/run/munge/socket",
            "--pid-file=/run/munge/pid", "--log-file=/run/munge/log", "--seed-file=/run/munge/seed",
        ]  # fmt: skip
        self._hosts.start(munged, "munged.log")
        wait_for(lambda: Path("/run/munge/socket").exists(), 20, "munged")
        self._hosts.start(["slurmctld", "-D"], "slurmctld.log", self.environment)
        for k in range(1, HOSTS + 1):
            self._hosts.start([self._hosts.shell, f"n{k}", "slurmd", "-D"], f"slurmd-n{k}.log", self.environment)
        try:
            wait_for(self._ready, 60, "four nodes")
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self._hosts.last_words()}") from late
        return self

    def _ready(self) -> bool:
        return self.ask("sinfo", "--noheader", "--format=%D %t").split() == [str(HOSTS), "idle"]

    def ask(self, *command: str) -> str:
        ended = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=30, check=False, cwd=ROOT
        )
        return ended.stdout

    def submit(self, *words: str, folder: Path, **variables: str) -> int:
        """sbatch words, from ``folder``; the number of the job."""
        exported = ",".join(["ALL", *(f"{name}={value}" for name, value in variables.items())])
        command = ["sbatch", "--parsable", f"--export={exported}", *words]
        ended = subprocess.run(
            command, env=self.environment, cwd=folder, capture_output=True, text=True, timeout=60, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return int(ended.stdout.split(";")[0])

    def job(self, number: int) -> dict[str, str]:
        shown = self.ask("scontrol", "--oneliner", "show", "job", str(number)).splitlines()
        return dict(word.split("=", 1) for word in (shown[0].split() if shown else ()) if "=" in word)

    def states(self, number: int) -> list[str]:
        """Of all tasks of a job."""
        return self.ask("squeue", "--noheader", "--states=all", f"--jobs={number}", "--array", "--format=%T").split()

    def finish(self, number: int, limit: float = 240.0) -> list[str]:
        """The states of a job's tasks once all have ended."""
        running = {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED"}
        wait_for(lambda: bool(self.states(number)) and not set(self.states(number)) & running, limit, f"job {number}")
        return self.states(number)


def wait_for(done: Callable[[], bool], limit: float, what: str) -> None:
    end = time.monotonic() + limit
    while not done():
        assert time.monotonic() < end, f"{what}: not there after {limit:g} s"
        time.sleep(0.25)


def numbers(result: dict[str, Any]) -> dict[str, Any]:
    """Of a result's JSON, everything that must not depend on hosts, launchers and seconds."""
    moments = ("round", "objective", "error", "change", "bytes")
    kept = ("dual_objective", "regularised_cost", "transport_cost", "entropy_cost", "eps", "status", "rounds")
    return {
        **{name: result[name] for name in kept},
        "errors": [agent["marginal_error"] for agent in result["agents"]],
        "trace": [[point[name] for name in moments] for point in result["trace"]],
        "edges": result["ledger"]["by_edge"],
    }  # fmt: skip


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found
