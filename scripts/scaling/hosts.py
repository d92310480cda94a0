"""Hosts with their own addresses, and links that take time, on one machine: recipes for network namespaces.

The recipes (``hosts-up``, ``hosts-down``, ``host-shell``, ``wan.py``) are in ``../shared/cluster`` beside the
repository, or where ``--recipes`` says. They need root and iproute2; without, this part of the study is left out.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from processes import end

BRIDGE = "br-deot"
"""The recipes' one bridge: where it exists, somebody has hosts."""
_WAIT_SECONDS = 300.0
_UP_SECONDS = 30.0


class UnavailableError(Exception):
    """Hosts cannot be had here, and why."""


def _run(command: Sequence[str | Path], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command], env={**os.environ, **environment}, capture_output=True, text=True,
        timeout=_UP_SECONDS, check=False,
    )  # fmt: skip


def in_use() -> bool:
    return _run(["ip", "link", "show", BRIDGE]).returncode == 0


class Hosts:
    """``count`` hosts of ``slots`` ranks each, every packet between them ``delay`` seconds late; gone at the end."""

    def __init__(self, recipes: Path, folder: Path, count: int, slots: int, delay: float) -> None:
        self.recipes, self.count, self.slots, self.delay = recipes, count, slots, delay
        self.hostfile = folder / "hostfile"
        self._router: subprocess.Popen[str] | None = None

    def _check(self) -> None:
        missing = [
            name for name in ("hosts-up", "hosts-down", "host-shell", "wan.py") if not (self.recipes / name).exists()
        ]
        if missing:
            raise UnavailableError(f"no {', '.join(missing)} in {self.recipes}")
        if os.geteuid() != 0:
            raise UnavailableError("network namespaces need root")
        if shutil.which("ip") is None:
            raise UnavailableError("iproute2 is not installed (apt-get install iproute2)")
        if not Path("/dev/net/tun").exists():
            raise UnavailableError("this system has no /dev/net/tun")

    def __enter__(self) -> Hosts:
        self._check()
        deadline = time.monotonic() + _WAIT_SECONDS
        while in_use():  # somebody else's; they are not ours to take down
            if time.monotonic() > deadline:
                raise UnavailableError(f"others have had hosts (bridge {BRIDGE}) for {_WAIT_SECONDS:.0f} s")
            time.sleep(1.0)
        up = _run([self.recipes / "hosts-up", str(self.count)], HOSTFILE=str(self.hostfile), SLOTS=str(self.slots))
        if up.returncode:
            if "File exists" not in up.stderr:  # else another was faster
                self._down()
            raise UnavailableError(f"hosts-up: {up.stderr.strip()}")
        try:
            self._start_router()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _start_router(self) -> None:
        command = [sys.executable, str(self.recipes / "wan.py"), str(self.count), f"{1e3 * self.delay:g}"]
        self._router = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        timer = threading.Timer(_UP_SECONDS, end, [self._router])
        timer.start()
        assert self._router.stdout is not None
        ready = self._router.stdout.readline().strip()
        timer.cancel()
        if ready != "wan up":
            said = self._router.communicate()[1].strip().splitlines()[-1:]
            raise UnavailableError(f"wan.py: {' '.join(said) or 'did not start'}")

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._router is not None:
            end(self._router)
        self._down()

    def _down(self) -> None:
        _run([self.recipes / "hosts-down", str(self.count)])

    def command(self, ranks: int, words: Sequence[str], *, spread: bool = False) -> list[str]:
        """mpirun on the first host; ranks fill the hosts in order, or, ``spread``, go one to a host."""
        mapping = ["--map-by", "ppr:1:node"] if spread else ["--bind-to", "none"]
        line = ["mpirun", "--hostfile", str(self.hostfile), *mapping, "-n", str(ranks), *words]
        settings = {
            "PRTE_MCA_plm_ssh_agent": str(self.recipes / "host-shell"),
            "OMPI_MCA_btl_tcp_if_include": "wan0",
        }
        exports = " ".join(f"export {name}={shlex.quote(value)};" for name, value in settings.items())
        return [str(self.recipes / "host-shell"), "n1", f"{exports} cd {shlex.quote(os.getcwd())}; {shlex.join(line)}"]
