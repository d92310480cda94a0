"""The benchmark's data, and the one way in which everybody's answer is judged."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

AGAIN = 5
"""Further solves in the same process, of which the median counts. A first one also pays for memory that the system
has not handed out before, and for libraries that set themselves up; it is told apart."""
_SHORT_SECONDS = 5.0
"""Longer solves are not repeated: what comes once does not show in them."""
_CHUNK = 1 << 21
_MEDIAN_ROWS = 2000


@dataclass(frozen=True)
class Problem:
    """Two Gaussian clouds of N = M rows, half a unit apart in each of D columns; eps as a share of the median cost."""

    samples: int
    dimension: int
    share: float
    tol: float = 1e-6
    seed: int = 0

    def rows(self, domain: str) -> np.ndarray:
        rng = np.random.default_rng([self.seed, domain == "target"])
        return rng.normal(size=(self.samples, self.dimension)) + (0.5 if domain == "target" else 0.0)

    @property
    def eps(self) -> float:
        """From the first rows only: the same for everybody, and cheap."""
        x, y = (self.rows(domain)[:_MEDIAN_ROWS] for domain in ("source", "target"))
        return self.share * float(np.median(squared_distances(x, y)))

    def write(self, folder: Path, limit: float = math.inf) -> Path:
        """Put the data where every process finds it; returns the description's file."""
        for domain in ("source", "target"):
            np.save(folder / f"{domain}.npy", self.rows(domain))
        path = folder / "problem.json"
        path.write_text(json.dumps({**asdict(self), "eps": self.eps, "folder": str(folder), "limit": limit}))
        return path


@dataclass(frozen=True)
class Given:
    """A problem as a measured process sees it."""

    folder: Path
    eps: float
    tol: float
    limit: float
    """Seconds one solve may take."""

    @classmethod
    def read(cls, path: str) -> Given:
        found = json.loads(Path(path).read_text())
        return cls(Path(found["folder"]), found["eps"], found["tol"], found["limit"])

    def rows(self, domain: str) -> np.ndarray:
        return np.load(self.folder / f"{domain}.npy", mmap_mode="r")


def further(first: float, again: int = AGAIN) -> range:
    """Of which further solves there are, after one of so many seconds."""
    return range(again if first < _SHORT_SECONDS else 0)


def blocks(count: int, ranks: int) -> list[slice]:
    """Consecutive parts of ``count`` rows, one per rank, as even as they can be."""
    bounds = np.linspace(0, count, ranks + 1).round().astype(int)
    return [slice(int(low), int(high)) for low, high in pairwise(bounds)]


def squared_distances(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.maximum((x**2).sum(axis=1)[:, None] + (y**2).sum(axis=1)[None, :] - 2.0 * (x @ y.T), 0.0)


def judge(given: Given, f: np.ndarray, g: np.ndarray) -> dict[str, float]:
    """L1 error of both marginals, and the values, of pi = a b exp((f + g - c)/eps), in float64, chunk by chunk."""
    x, y = (np.asarray(given.rows(domain)) for domain in ("source", "target"))
    n, m = len(x), len(y)
    columns, error, transport, mass = np.zeros(m), 0.0, 0.0, 0.0
    step = max(1, _CHUNK // m)
    for start in range(0, n, step):
        part = slice(start, min(start + step, n))
        cost = squared_distances(x[part], y)
        plan = np.exp((f[part, None] + g[None, :] - cost) / given.eps) / (n * m)
        rows = plan.sum(axis=1)
        error += float(np.abs(rows - 1.0 / n).sum())
        columns += plan.sum(axis=0)
        mass += float(rows.sum())
        transport += float(np.vecdot(plan, cost).sum())
    error += float(np.abs(columns - 1.0 / m).sum())
    return {
        "l1_error": error,
        "transport_cost": transport,
        "regularised_cost": float(f.mean() + g.mean()) - given.eps * (mass - 1.0),
    }
