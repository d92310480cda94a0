"""Ways to count the differing bits of N x M sketches, beside one exact kernel: ``python -m benchmark.popcount``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
from processes import announce
from threadpoolctl import threadpool_limits

from deot_mpi.kernel import RawKernel, SketchKernel, log_block
from deot_mpi.kinds import Kind

_REPEATS = 3


def best_of(work: Callable[[], object], repeats: int = _REPEATS) -> float:
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def with_numpy(a: np.ndarray, b: np.ndarray) -> Callable[[], object]:
    def words(packed: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8)))).view(np.uint64)

    left, right = words(a), words(b)

    def count() -> np.ndarray:
        return np.stack([np.bitwise_count(row ^ right).sum(axis=1, dtype=np.int64) for row in left])

    return count


def with_gemm(a: np.ndarray, b: np.ndarray) -> Callable[[], object]:
    def count() -> np.ndarray:
        left, right = (np.unpackbits(packed, axis=1).astype(np.float32) * 2 - 1 for packed in (a, b))
        return (left.shape[1] - left @ right.T) / 2

    return count


def with_numkong(a: np.ndarray, b: np.ndarray) -> Callable[[], object]:
    import numkong

    return lambda: numkong.hammings_packed(a, numkong.hammings_pack(b, dtype="uint1"))


def with_simsimd(a: np.ndarray, b: np.ndarray) -> Callable[[], object]:
    import simsimd

    return lambda: simsimd.cdist(a, b, metric="hamming", dtype="bin8")


def with_numba(a: np.ndarray, b: np.ndarray) -> Callable[[], object]:
    import numba

    one, two, four, byte = (np.uint64(int(digits * 8, 16)) for digits in ("55", "33", "0f", "01"))

    @numba.njit
    def count(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        out = np.empty((len(left), len(right)), dtype=np.int64)
        for n in range(len(left)):
            for m in range(len(right)):
                total = np.uint64(0)
                for k in range(left.shape[1]):
                    w = left[n, k] ^ right[m, k]
                    w -= (w >> np.uint64(1)) & one
                    w = (w & two) + ((w >> np.uint64(2)) & two)
                    w = (w + (w >> np.uint64(4))) & four
                    total += (w * byte) >> np.uint64(56)
                out[n, m] = total
        return out

    left, right = (np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8))).view(np.uint64) for packed in (a, b))
    return lambda: count(left, right)


WAYS = {
    "numpy bitwise_count": with_numpy,
    "float32 GEMM of +-1": with_gemm,
    "NumKong (used)": with_numkong,
    "SimSIMD": with_simsimd,
    "numba": with_numba,
}


def main() -> None:
    samples, bits, dimension = (int(word) for word in sys.argv[1:])
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(samples, dimension)), rng.normal(size=(samples, dimension))
    sketches, raw = SketchKernel(2.0 * dimension, dimension, bits, seed=0), RawKernel(2.0 * dimension, dimension)
    shown = [sketches.show(rows) for rows in (x, y)]
    a, b = (part[Kind.SKETCH] for part in shown)
    found: dict[str, dict[str, float]] = {}
    with threadpool_limits(limits=1):
        found["exact kernel"] = {"seconds": best_of(lambda: log_block(raw, raw.show(x), raw.show(y)))}
        found["making the sketches (one side)"] = {"seconds": best_of(lambda: sketches.show(x), repeats=1)}
        found["sketch kernel, from sketches"] = {"seconds": best_of(lambda: log_block(sketches, *shown))}
        for name, way in WAYS.items():
            started = time.perf_counter()
            try:
                work = way(a, b)
                way(a[:2], b[:2])()
            except ImportError:
                continue
            found[name] = {"start_seconds": time.perf_counter() - started, "seconds": best_of(work)}
    announce(ways=found)


if __name__ == "__main__":
    main()
