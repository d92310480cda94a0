"""Start the program as a user would, and read what it says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

MPIRUN = Path(sys.prefix) / "bin" / "mpirun"


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str
    seconds: float


def launch(
    ranks: int, *arguments: str, folder: Path, limit: float = 120.0, program: tuple[str, ...] = ("-m", "deot_mpi.run")
) -> Ended:
    """mpirun -n ranks python -m deot_mpi.run arguments, in a folder, ended after ``limit`` seconds."""
    command = [str(MPIRUN), "-n", str(ranks), sys.executable, *program, *arguments]
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    started = time.monotonic()
    process = subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired as late:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise AssertionError(f"still running after {limit} s: {' '.join(command)}") from late
    return Ended(process.returncode, out, err, time.monotonic() - started)


def launch_several(ranks: int, commands: Sequence[Sequence[str]], folder: Path, limit: float = 120.0) -> list[Ended]:
    """Command lines one after the other in one job, for those that all ranks see the end of (``several.py``)."""
    program = (str(Path(__file__).with_name("several.py")),)
    job = launch(
        ranks, json.dumps([list(command) for command in commands]), folder=folder, limit=limit, program=program
    )
    assert job.code == 0, job.err
    return [Ended(**one, seconds=job.seconds / len(commands)) for one in json.loads(job.out)]


def script_main(main: Callable[[], int], *arguments: str) -> int:
    """A script's main with these arguments, in this process: another would first import all that is here already."""
    given, handler = sys.argv, signal.getsignal(signal.SIGTERM)
    sys.argv = [main.__module__, *arguments]
    try:
        return main()
    finally:
        sys.argv = given
        signal.signal(signal.SIGTERM, handler)
