"""Processes that a script starts, that tell it what they found, and that leave nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator

MARK = "FOUND "
"""Begins the line on which a process prints what it found."""


def announce(**found: object) -> None:
    """Tell the script that started this process what was found."""
    print(MARK + json.dumps(found), flush=True)


def end(process: subprocess.Popen[str]) -> None:
    """End a process and all its children, also when the script itself is stopped: forgotten ones slow what follows."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        os.killpg(process.pid, how)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            continue


def lines_of(command: list[str], environment: dict[str, str], limit: float) -> Iterator[str]:
    """What a command prints, line by line as it comes; SystemExit with its last words if it fails or takes too long."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )
        timer = threading.Timer(limit, end, [process])
        timer.start()
        try:
            assert process.stdout is not None
            yield from process.stdout
            process.wait()
        finally:
            late = not timer.is_alive()
            timer.cancel()
            end(process)
        if process.returncode:
            errors.seek(0)
            why = f"took more than {limit:.0f} s" if late else f"ended with {process.returncode}"
            raise SystemExit(f"{' '.join(command)}\n{why}\n{errors.read()[-4000:]}")
