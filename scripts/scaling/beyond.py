"""What the model says of a cluster and a WAN that are not here, by solver, L, Q and E."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from scaling.clock import Place, Way
from scaling.job import Job
from scaling.model import Costs, Model

MEMORY = 16e9
"""Bytes that an agent may hold."""


@dataclass(frozen=True)
class Rounds:
    """How many rounds a run takes (eps of 0.1, tol of 1e-6), from the runs here."""

    sinkhorn: float
    """All edges: the same problem, and the same rounds, whatever the number of agents."""
    sparse: float
    """A random E of degree 4, at the most agents there were."""
    kept_base: float
    kept_slope: float
    """kept takes base + slope times the rounds after which every neighbour has been heard, degree / L."""

    @classmethod
    def fit(cls, strong: list[dict[str, Any]], weak: list[dict[str, Any]]) -> Rounds:
        one_pass = [run["rounds"] for run in strong if run["job"]["solver"] == "sinkhorn"]
        kept = [(run["job"]["ranks"] // 2, run["rounds"]) for run in strong if run["job"]["solver"] == "kept"]
        slope, base = np.polyfit(*zip(*kept, strict=True), 1)
        sparse = [run["rounds"] for run in weak if run["job"]["protocol"] != "uniform"]
        return cls(float(np.median(one_pass)), float(sparse[-1]), float(base), float(slope))

    def of(self, job: Job) -> int:
        degree = job.ranks // 2 if job.protocol == "uniform" else job.degree
        if job.solver == "kept":
            return round(self.kept_base + self.kept_slope * -(-degree // (job.neighbours or degree)))
        return round(self.sinkhorn if job.protocol == "uniform" else self.sparse)


@dataclass(frozen=True)
class Scene:
    """A place that is assumed, and the jobs to be run there. Work takes what it takes on a core of this machine."""

    title: str
    hosts: int
    cores: int
    """Of a host."""
    latency: float
    bandwidth: float
    """Of a host, in bytes a second."""
    jobs: tuple[Job, ...]

    def place(self, ranks: int, near: Way) -> Place:
        hosts = np.arange(ranks) * self.hosts // ranks
        return Place(hosts, self.cores, near, Way(self.latency, self.bandwidth))


_CLUSTER, _SITES = Job(1000, 5_000_000), Job(100, 100_000)
_CLUSTER_JOBS = (
    replace(_CLUSTER, kernel="raw"),
    _CLUSTER,
    replace(_CLUSTER, solver="kept", neighbours=1, protocol="random-regular", degree=8),
    replace(_CLUSTER, protocol="random-regular", degree=8),
    replace(_CLUSTER, protocol="random-regular", degree=8, bits=256),
)
_SITES_JOBS = (
    replace(_SITES, kernel="raw"),
    replace(_SITES, bits=256),
    _SITES,
    replace(_SITES, bits=4096),
    replace(_SITES, solver="kept", neighbours=1),
    replace(_SITES, solver="kept", neighbours=8),
    replace(_SITES, solver="kept"),
    replace(_SITES, protocol="random-regular", degree=8),
)
SCENES = (
    Scene("cluster: 1,000 agents on 125 hosts of 32 cores, 10 Gbit/s, 20 us", 125, 32, 20e-6, 1.25e9, _CLUSTER_JOBS),
    Scene("WAN: 100 sites of 4 cores, 100 Mbit/s, 25 ms", 100, 4, 25e-3, 12.5e6, _SITES_JOBS),
    Scene("WAN: 100 sites of 4 cores, 10 Mbit/s, 25 ms", 100, 4, 25e-3, 1.25e6, _SITES_JOBS),
)


def predictions(costs: Costs, near: Way, rounds: Rounds) -> list[dict[str, Any]]:
    """For every scene, what each of its jobs takes."""
    found = []
    for scene in SCENES:
        rows = []
        for job in scene.jobs:
            said = Model(job, scene.place(job.ranks, near), costs, MEMORY).predict(rounds.of(job))
            rows.append({"name": job.name, "job": asdict(job), "total": said.total, **asdict(said)})
        found.append({"title": scene.title, "latency": scene.latency, "bandwidth": scene.bandwidth, "rows": rows})
    return found
