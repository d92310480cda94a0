"""The innermost passes over the kernel, compiled and in NumPy, by entry: ``python -m benchmark.passes``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from processes import announce

from benchmark.popcount import best_of
from deot_mpi.kernel import loops

_ROWS, _WIDTH = 128, 4096
"""A chunk of the program's own size."""
_REPEATS = 30


def passes() -> dict[str, Callable[[], object]]:
    """What is done to a chunk; each may spoil its arrays, not their size."""
    rng = np.random.default_rng(0)
    double = -20.0 * rng.random((_ROWS, _WIDTH))
    single, shift = double.astype(np.float32), np.zeros(_ROWS)
    counts, table = rng.integers(0, 1025, size=double.shape, dtype=np.uint32), rng.random(1025)
    left, right, noise = rng.random(_ROWS), rng.random(_WIDTH), 2.0 * rng.random(double.shape)
    exponent, entries = np.empty_like(double), np.empty_like(single)

    def plan() -> None:
        exponent[:] = double  # the pass overwrites it; the copy is a small part of its time
        loops.plan_rows(exponent)

    return {
        "entries, float32": lambda: loops.absorb(single, shift.astype(np.float32), -80.0, entries),
        "entries, float64": lambda: loops.absorb(double, shift, -690.0, exponent),
        "plan with its sums": plan,
        "bits to cosines": lambda: loops.look_up(counts, table, left, right, exponent),
        "noise taken off": lambda: loops.take_off_noise(noise, exponent),
    }


def main() -> None:
    built, found = loops.compiled, {}
    for way, library in (("compiled", built), ("NumPy", None)):
        if way == "compiled" and built is None:
            continue
        loops.compiled = library
        found[way] = {name: best_of(work, _REPEATS) / (_ROWS * _WIDTH) for name, work in passes().items()}
    announce(ways=found)


if __name__ == "__main__":
    main()
