"""Run the whole suite: the tests of one process, and beside them those of real ranks under mpirun, at several sizes.

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
LEFT_TO_FOUR = {
    2: ("test_gromov.py", "test_choice.py", "test_protection.py", "test_divergence.py"),
    3: (
        "test_gromov.py", "test_gromov_agents.py", "test_adapt.py", "test_choice.py", "test_protection.py",
        "test_divergence.py", "test_faults.py", "test_one_pass.py",
    ),
}  # fmt: skip
"""Files of which a size runs only what 4 ranks do not: the whole must stay below eight minutes."""
LIMIT_SECONDS = 600
TESTS = Path(__file__).resolve().parent.parent / "tests"


class Suite:
    """One run of pytest: started, and later waited for; nothing that it started stays behind."""

    def __init__(self, name: str, command: list[str], folder: Path, left_to_four: tuple[str, ...] = ()) -> None:
        self.name, self._command = name, command
        self._counts = folder / f"{name.replace(' ', '-')}.json"
        self._output = (folder / f"{name.replace(' ', '-')}.txt").open("w+b")
        # Suites share the cores; threads of one that wait for each other would keep the others from working.
        environment = {
            **os.environ, "OPENBLAS_NUM_THREADS": "1", "DEOT_TEST_COUNTS": str(self._counts),
            "DEOT_LEFT_TO_FOUR": ",".join(left_to_four),
        }  # fmt: skip
        self._process = subprocess.Popen(
            command, env=environment, start_new_session=True, stdout=self._output, stderr=subprocess.STDOUT
        )

    def finish(self) -> dict[str, int]:
        """Wait for its end or its time limit, show what it printed, and say how many tests passed, failed, skipped."""
        code = self._wait()
        self._output.seek(0)
        print(f"\n== {self.name}", flush=True)
        sys.stdout.buffer.write(self._output.read())
        sys.stdout.flush()
        counts: dict[str, int] = json.loads(self._counts.read_text()) if self._counts.exists() else {}
        if code != 0 and not counts.get("failed"):
            counts["failed"] = 1
            print(f"run_tests: {self.name} ended with exit code {code}", file=sys.stderr)
        return counts

    def _wait(self) -> int:
        try:
            return self._process.wait(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            print(f"run_tests: over {LIMIT_SECONDS} s, ended: {' '.join(self._command)}", file=sys.stderr)
            return 124
        finally:
            self.end()

    def end(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, help="only the MPI tests, with this many ranks")
    parser.add_argument("pytest_arguments", nargs="*", help="passed on to pytest, after --")
    chosen = parser.parse_args()
    pytest = [sys.executable, "-m", "pytest", "-q", "--color=no", *chosen.pytest_arguments]
    totals, started = {"passed": 0, "failed": 0, "skipped": 0}, time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder, alongside = Path(name), []
        if chosen.ranks is None:
            apart = [f"--ignore={TESTS / name}" for name in ("mpi", "hosts")]  # make test-hosts has the latter
            alongside.append(Suite("one process", [*pytest, str(TESTS), *apart], folder))
        try:
            for size in SIZES if chosen.ranks is None else (chosen.ranks,):
                left = LEFT_TO_FOUR.get(size, ()) if chosen.ranks is None else ()
                command = ["mpirun", "-n", str(size), *pytest, "--capture=sys", "--with-mpi", str(TESTS / "mpi")]
                _add(totals, Suite(f"{size} rank(s)", command, folder, left).finish())
            for suite in alongside:
                _add(totals, suite.finish())
        finally:
            for suite in alongside:
                suite.end()
    print(f"\nall runs, {time.monotonic() - started:.0f} s")
    print(f"{totals['passed']} passed, {totals['failed']} failed, {totals['skipped']} skipped")
    return 1 if totals["failed"] or not totals["passed"] else 0


def _add(totals: dict[str, int], counts: dict[str, int]) -> None:
    for outcome in totals:
        totals[outcome] += counts.get(outcome, 0)


if __name__ == "__main__":
    sys.exit(main())
