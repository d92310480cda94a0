"""Run the whole suite: the tests of one process first, then those of real ranks under mpirun, at several sizes.

Every run has a time limit, and the last line adds up all of them. ``--ranks 4`` runs that size alone.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SIZES = (1, 2, 3, 4, 7, 16)
LIMIT_SECONDS = 600
TESTS = Path(__file__).resolve().parent.parent / "tests"


def run(command: list[str], environment: dict[str, str]) -> int:
    """Run one command to its end or its time limit; nothing it started stays behind."""
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        return process.wait(timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        print(f"run_tests: over {LIMIT_SECONDS} s, ended: {' '.join(command)}", file=sys.stderr)
        return 124
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, help="only the MPI tests, with this many ranks")
    parser.add_argument("pytest_arguments", nargs="*", help="passed on to pytest, after --")
    chosen = parser.parse_args()
    pytest = [sys.executable, "-m", "pytest", "-q", "--color=no", *chosen.pytest_arguments]
    serial = [("one process", [*pytest, str(TESTS), "--ignore", str(TESTS / "mpi")])]
    sizes = SIZES if chosen.ranks is None else (chosen.ranks,)
    parallel = [
        (f"{size} rank(s)", ["mpirun", "-n", str(size), *pytest, "--capture=sys", "--with-mpi", str(TESTS / "mpi")])
        for size in sizes
    ]
    totals = {"passed": 0, "failed": 0, "skipped": 0}
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for name, command in ([] if chosen.ranks else serial) + parallel:
            print(f"\n== {name}", flush=True)
            counts = Path(folder) / "counts.json"
            counts.unlink(missing_ok=True)
            code = run(command, {**os.environ, "DEOT_TEST_COUNTS": str(counts)})
            seen = json.loads(counts.read_text()) if counts.exists() else {}
            for outcome in totals:
                totals[outcome] += seen.get(outcome, 0)
            if code != 0 and not seen.get("failed"):
                totals["failed"] += 1
                print(f"run_tests: {name} ended with exit code {code}", file=sys.stderr)
    print(f"\nall runs, {time.monotonic() - started:.0f} s")
    print(f"{totals['passed']} passed, {totals['failed']} failed, {totals['skipped']} skipped")
    return 1 if totals["failed"] or not totals["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
