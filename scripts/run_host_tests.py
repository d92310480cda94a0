"""Run the tests of several hosts and of Slurm (``make test-hosts``): hosts and daemons that exist only while they run.

The tests run in namespaces of their own (network, mounts, processes, host name). Whatever they start there, hosts,
routers, daemons, jobs, is gone with the first process in them, however it ends; the machine itself is not touched but
for Debian packages, which are installed where this is root and apt-get works. What cannot be had is skipped with a
word.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECIPES = ROOT.parent / "shared" / "cluster"
PACKAGES = {"ip": "iproute2", "sbatch": "slurm-wlm", "slurmd": "slurm-wlm", "munged": "munge"}
LIMIT_SECONDS = 900
APART = ["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--mount-proc", "--kill-child"]
BOX = """
set -e
mount -t tmpfs tmpfs /run
mkdir -p /run/munge /run/lock
mount -t tmpfs tmpfs /etc/netns
ip link set lo up
hostname control
"$@"
"""
"""The first process of the namespaces: it makes room for hosts and daemons, and lives as long as the tests."""


def missing() -> list[str]:
    return [name for name in PACKAGES if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None]


def why_no_hosts() -> str:
    """Why there cannot be several hosts here; nothing where there can."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "several hosts take root on Linux"
    if not RECIPES.is_dir():
        return f"no recipes for hosts at {RECIPES}"
    if "ip" in missing():
        return "Debian's iproute2 is missing and could not be installed"
    tried = subprocess.run([*APART, "true"], capture_output=True, text=True, check=False)
    return f"namespaces cannot be made ({tried.stderr.strip()})" if tried.returncode else ""


def install() -> None:
    """Debian's packages, where they are missing and this is a machine on which they can be installed."""
    wanted = sorted({PACKAGES[name] for name in missing()})
    if not wanted or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    wait = ["-o", "DPkg::Lock::Timeout=300"]
    for command in (["update"], ["install", "-y", "--no-install-recommends", *wanted, "libpmix-dev"]):
        ended = subprocess.run(
            ["apt-get", "-qq", *wait, *command], env=environment, capture_output=True, text=True, check=False
        )
        if ended.returncode:
            print(f"apt-get {command[0]}: {ended.stderr.strip().splitlines()[-1:]}", file=sys.stderr)


def main() -> int:
    for request in (signal.SIGTERM, signal.SIGHUP):  # by way of an exception, so that nothing is left running
        signal.signal(request, lambda number, _: sys.exit(128 + number))
    install()
    environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    hosts = why_no_hosts()
    lacking = [PACKAGES[name] for name in missing() if name != "ip"]
    slurm = hosts or (f"Debian's {', '.join(sorted(set(lacking)))} could not be installed" if lacking else "")
    environment |= {"DEOT_NO_HOSTS": hosts, "DEOT_NO_SLURM": slurm, "DEOT_CLUSTER_RECIPES": str(RECIPES)}
    tests = [sys.executable, "-m", "pytest", "-q", "--color=no", *sys.argv[1:], str(ROOT / "tests" / "hosts")]
    command, made = tests, False
    if not hosts:
        folder = Path("/etc/netns")  # where iproute2 looks for a host's own files; only a mount inside is written to
        made = not folder.exists()
        folder.mkdir(exist_ok=True)
        command = [*APART, "sh", "-c", BOX, "box", *tests]
    try:
        return subprocess.run(command, env=environment, cwd=ROOT, timeout=LIMIT_SECONDS, check=False).returncode
    except subprocess.TimeoutExpired:
        print(f"run_host_tests: over {LIMIT_SECONDS} s, ended", file=sys.stderr)
        return 124
    finally:
        if made:
            with suppress(OSError):  # others may have begun to use it
                Path("/etc/netns").rmdir()


if __name__ == "__main__":
    sys.exit(main())
