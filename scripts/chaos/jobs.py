"""Start a job with a fault in it, give it an end, and see that nothing of it is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

AGENT = Path(__file__).with_name("agent.py")
_SETTLING_SECONDS = 5.0


@dataclass(frozen=True)
class Ended:
    code: int | None
    """None: it had to be ended, a hang."""
    out: str
    err: str
    seconds: float
    orphans: int
    """Processes of it that were left when it had ended."""


def run_job(
    ranks: int, arguments: Sequence[str], faults: Sequence[dict[str, Any]], *, ulfm: bool, limit: float, folder: Path
) -> Ended:
    mark = uuid.uuid4().hex
    environment = {
        **os.environ, "DEOT_CHAOS": json.dumps(list(faults)), "DEOT_CHAOS_RUN": mark,
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }  # fmt: skip
    mpirun = Path(sys.prefix) / "bin" / "mpirun"
    launcher = [
        str(mpirun) if mpirun.exists() else "mpirun",
        *(["--with-ft", "ulfm"] if ulfm else []),
        "-n",
        str(ranks),
    ]
    started = time.monotonic()
    process = subprocess.Popen(
        [*launcher, sys.executable, str(AGENT), *arguments], env=environment, cwd=folder, text=True, errors="replace",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    code: int | None
    try:
        out, err = process.communicate(timeout=limit)
        code = process.returncode
    except subprocess.TimeoutExpired:
        hanging = _with_mark(mark)
        for pid in hanging:
            if pid != process.pid and AGENT.name.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGUSR2)
        time.sleep(1.0)
        for pid in hanging:
            os.kill(pid, signal.SIGKILL)
        out, err = process.communicate()
        code = None
    seconds = time.monotonic() - started
    return Ended(code, out, err, seconds, _leftovers(mark))


def _leftovers(mark: str) -> int:
    """Processes that are still there some seconds later; they are ended, and counted."""
    deadline = time.monotonic() + _SETTLING_SECONDS
    while (left := _with_mark(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return len(left)


def _with_mark(mark: str) -> list[int]:
    """Processes, other than this one, that were started with this mark in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found
