"""Run the whole suite: the tests of one process, and those of real ranks under mpirun, at several sizes, two at a time.

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
from collections.abc import Callable
from functools import partial
from pathlib import Path

SIZES = (4, 7, 16, 2, 3, 1)
"""Numbers of ranks, those that take longest first."""
AT_ONCE = 2
"""Suites that run beside each other: ranks that wait for each other leave a core to others."""
LEFT_TO_FOUR = {
    2: ("test_gromov.py", "test_choice.py", "test_protection.py", "test_divergence.py", "test_one_pass.py"),
    3: (
        "test_adapt.py", "test_bad_input.py", "test_choice.py", "test_divergence.py", "test_estimator.py",
        "test_exactness.py", "test_faults.py", "test_gromov.py", "test_gromov_agents.py", "test_notes.py",
        "test_one_pass.py", "test_protection.py", "test_same_result.py", "test_solvers.py",
    ),
    7: ("test_bad_input.py", "test_one_pass.py"),
}  # fmt: skip
"""Files of which a size runs only what 4 ranks do not: the whole must stay short (7 have uneven domains, too)."""
LIMIT_SECONDS = 1200
TESTS = Path(__file__).resolve().parent.parent / "tests"


class Suite:
    """One run of pytest: started, and looked after to its end or its time limit; nothing it started stays behind."""

    def __init__(self, name: str, command: list[str], folder: Path, left_to_four: tuple[str, ...] = ()) -> None:
        self.name, self._command = name, command
        self._counts = folder / f"{name.replace(' ', '-')}.json"
        self._output = (folder / f"{name.replace(' ', '-')}.txt").open("w+b")
        # Suites share the cores; threads of one that wait for each other would keep the others from working.
        environment = {
            **os.environ, "OPENBLAS_NUM_THREADS": "1", "DEOT_TEST_COUNTS": str(self._counts),
            "DEOT_LEFT_TO_FOUR": ",".join(left_to_four),
        }  # fmt: skip
        self._started = time.monotonic()
        self._process = subprocess.Popen(
            command, env=environment, start_new_session=True, stdout=self._output, stderr=subprocess.STDOUT
        )

    @property
    def over(self) -> bool:
        """Whether it has ended, or must."""
        return self._process.poll() is not None or self._seconds > LIMIT_SECONDS

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._started

    def finish(self) -> dict[str, int]:
        """End it if it has not ended, show what it printed, and say how many tests passed, failed, were skipped."""
        code = self._process.poll()
        if code is None:
            print(f"run_tests: over {LIMIT_SECONDS} s, ended: {' '.join(self._command)}", file=sys.stderr)
            self.end()
            code = 124
        self._output.seek(0)
        print(f"\n== {self.name}", flush=True)
        sys.stdout.buffer.write(self._output.read())
        sys.stdout.flush()
        counts: dict[str, int] = json.loads(self._counts.read_text()) if self._counts.exists() else {}
        if code != 0 and not counts.get("failed"):
            counts["failed"] = 1
            print(f"run_tests: {self.name} ended with exit code {code}", file=sys.stderr)
        return counts

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
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and end what was started
    pytest = [sys.executable, "-m", "pytest", "-q", "--color=no", *chosen.pytest_arguments]
    sizes, started = SIZES if chosen.ranks is None else (chosen.ranks,), time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        waiting = [partial(_of_ranks, size, pytest, Path(name), chosen.ranks is None) for size in sizes]
        if chosen.ranks is None:
            apart = [f"--ignore={TESTS / folder}" for folder in ("mpi", "hosts")]  # make test-hosts has the latter
            waiting.insert(0, partial(Suite, "one process", [*pytest, str(TESTS), *apart], Path(name)))
        totals = _run(waiting)
    print(f"\nall runs, {time.monotonic() - started:.0f} s")
    print(f"{totals['passed']} passed, {totals['failed']} failed, {totals['skipped']} skipped")
    return 1 if totals["failed"] or not totals["passed"] else 0


def _of_ranks(size: int, pytest: list[str], folder: Path, together: bool) -> Suite:
    left = LEFT_TO_FOUR.get(size, ()) if together else ()
    command = ["mpirun", "-n", str(size), *pytest, "--capture=sys", "--with-mpi", str(TESTS / "mpi")]
    return Suite(f"{size} rank(s)", command, folder, left)


def _run(waiting: list[Callable[[], Suite]]) -> dict[str, int]:
    """All suites, some at once, in this order; passed, failed and skipped tests of all of them."""
    totals, running = {"passed": 0, "failed": 0, "skipped": 0}, list[Suite]()
    try:
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                running.append(waiting.pop(0)())
            time.sleep(0.1)
            for suite in [suite for suite in running if suite.over]:
                counts = suite.finish()
                running.remove(suite)
                totals = {outcome: count + counts.get(outcome, 0) for outcome, count in totals.items()}
    finally:
        for suite in running:
            suite.end()
    return totals


if __name__ == "__main__":
    sys.exit(main())
