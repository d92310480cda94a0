"""What a run takes, from what a machine and its links were measured to take: the program's rounds on ranks' clocks.

The critical path of a round of ``sinkhorn``: targets send potentials (1 latency), sources go over their rows and send
sums back (1 latency), targets add up their sources' sums; after every third round a tally (2 log2 P steps of a tree)
and after every tenth, where that has none, a check (a tree of a role, then two of all). ``kept``: the same two
latencies with L messages an agent, no tally, and a check that first asks all neighbours. Not in it: work that
``sinkhorn`` does on early arrivals, the start of MPI and its connections, what is agreed on before the rounds and
reported after them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from deot_mpi.roles import Role
from deot_mpi.running import CHECK_SIZE
from deot_mpi.sketch import packed_bytes
from scaling.clock import Clocks, Messages, Place
from scaling.counts import NUMBER, check_rounds, curved_rounds, share_bytes, tally_bytes, tally_rounds
from scaling.job import PERIOD, Job

_CHUNK_ENTRIES, _MOST_THREADS = 1 << 19, 8
"""Of a source's row block: entries of the rows it goes over at a time, and parts that may go side by side."""


@dataclass(frozen=True)
class Costs:
    """Seconds of one core, measured on the spot; see ``probe``."""

    sweep: dict[int, float]
    """One pass over a stored float32 row block, per entry, by entries of the block: it may fit a cache or not."""
    slice: float
    """Per neighbour and chunk of rows in such a pass: a call, whatever its length."""
    block: float
    """One log-sum over a stored float64 block (kept), per entry."""
    raw: float
    """Making the row block from samples, per entry (dimension of the runs here)."""
    sketch: tuple[float, float]
    """Making it from sketches, per entry: a + b Q."""
    raw_block: float
    """Making a block of kept, per entry."""
    evaluate: float
    """The closing pass in float64, per entry, beyond what making the entries takes."""
    logsum: float
    """Adding up sums of several neighbours in the log domain, per number."""
    bits: float
    """Sketching, per bit of a row."""
    message: float = 0.0
    """Processor time of a message at each of its ends."""
    round: dict[str, float] = field(default_factory=dict)
    """Processor time of an agent in a round beyond all that, by solver."""

    def to_dict(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_dict(cls, known: dict[str, Any]) -> Costs:
        """As JSON gives it back."""
        sweep = {int(size): seconds for size, seconds in known["sweep"].items()}
        return cls(**{**known, "sweep": sweep, "sketch": tuple(known["sketch"])})

    def sweep_at(self, entries: np.ndarray) -> np.ndarray:
        sizes = sorted(self.sweep)
        return np.interp(np.log(np.maximum(entries, 1)), np.log(sizes), [self.sweep[size] for size in sizes])

    def entry(self, job: Job) -> float:
        """Making one entry of the row block."""
        return self.raw if job.kernel == "raw" else self.sketch[0] + self.sketch[1] * job.bits


@dataclass(frozen=True)
class Prediction:
    """Seconds; ``parts`` says what a round's are spent on when nothing else took time."""

    round: float
    rounds: int
    showing: float
    building: float
    closing: float
    memory: float
    """Bytes of the largest agent: its part of the kernel and what it was shown, without Python."""
    stored: bool
    parts: dict[str, float]

    @property
    def total(self) -> float:
        return self.showing + self.building + self.rounds * self.round + self.closing


class Model:
    """One job at one place."""

    def __init__(self, job: Job, place: Place, costs: Costs, memory: float = np.inf) -> None:
        self.job, self.place, self.costs = job, place, costs
        self.ranks = {Role.SOURCE: np.arange(job.sources), Role.TARGET: np.arange(job.sources, job.ranks)}
        self.rows = job.sizes.counts
        self.width = {role: job.columns(role) for role in Role}
        self.entries = {role: self.rows[role] * self.width[role] for role in Role}
        self._down, self._back = self._both_ways(NUMBER * self.rows[Role.TARGET])
        self.stored = job.solver != "sinkhorn" or 4.0 * float(self.entries[Role.SOURCE].max()) <= memory

    def _both_ways(self, nbytes: np.ndarray) -> tuple[Messages, Messages]:
        """One message down each edge and one back, of as many bytes as its target's."""
        i, j = np.argwhere(self.job.E.support).T
        sources, targets = self.ranks[Role.SOURCE][i], self.ranks[Role.TARGET][j]
        sizes = nbytes[j].astype(float)
        return Messages(self.place, targets, sources, sizes), Messages(self.place, sources, targets, sizes)

    def _to_all(self, per_row: float) -> Messages:
        """Everybody to all neighbours, so many bytes for each of its rows."""
        i, j = np.argwhere(self.job.E.support).T
        sources, targets = self.ranks[Role.SOURCE][i], self.ranks[Role.TARGET][j]
        nbytes = per_row * np.concatenate([self.rows[Role.SOURCE][i], self.rows[Role.TARGET][j]])
        senders, receivers = np.concatenate([sources, targets]), np.concatenate([targets, sources])
        return Messages(self.place, senders, receivers, nbytes)

    def predict(self, rounds: int) -> Prediction:
        """The mean of some rounds in a row, and what comes once before and after ``rounds`` of them."""
        return Prediction(
            self.round_seconds(), rounds, self._showing(), self._building(), self._closing(), self._memory(),
            self.stored, self._parts(),
        )  # fmt: skip

    def round_seconds(self) -> float:
        """Mean seconds of a round of a whole period, after one period in which the clocks settle."""
        clocks = Clocks(self.place, self.costs.message)
        many = 2 * PERIOD
        tallies, curved = set(tally_rounds(self.job, many)), set(curved_rounds(self.job, many))
        checks = {t for t in check_rounds(self.job, many + 1) if t % self.job.options.check_every == 0}
        began = 0.0
        for t in range(1, many + 1):
            self._round(clocks, t, tally=t in tallies, check=t in checks, curved=t in curved)
            if t == PERIOD:
                began = float(clocks.now.max())
        return (float(clocks.now.max()) - began) / PERIOD

    def _round(self, clocks: Clocks, t: int, *, tally: bool, check: bool, curved: bool) -> None:
        job = self.job
        if job.solver == "sinkhorn":
            self._sinkhorn_round(clocks)
            if curved:
                clocks.exchange(self._back)  # right after the sums: one latency for both
        else:
            self._kept_round(clocks, self.job.turns[t - 1])
        if tally:
            everybody = np.arange(job.ranks)
            clocks.reduce(everybody, 0, tally_bytes(job))
            clocks.broadcast(everybody, 0, tally_bytes(job))
        elif check:
            if job.solver == "kept":
                self._measure(clocks)
            self._share(clocks)

    def _sinkhorn_round(self, clocks: Clocks) -> None:
        sources, targets = (self.ranks[role] for role in Role)
        overhead = self.costs.round.get("sinkhorn", 0.0)
        clocks.work(targets, overhead)
        clocks.exchange(self._down)
        clocks.work(sources, overhead + self._sweep())
        clocks.exchange(self._back)
        clocks.work(targets, self.costs.logsum * self._heard(Role.TARGET))

    def _kept_round(self, clocks: Clocks, turns: dict[Role, np.ndarray]) -> None:
        """Half a round each: the sources hear L targets and move, then the targets hear L sources' new potentials."""
        overhead = self.costs.round.get("kept", 0.0)
        for role in Role:
            own, other = turns[role].T
            nbytes = NUMBER * self.rows[role.other][other].astype(float)
            clocks.exchange(Messages(self.place, self.ranks[role.other][other], self.ranks[role][own], nbytes))
            entries = np.bincount(own, self.rows[role.other][other], minlength=self.rows[role].size) * self.rows[role]
            clocks.work(self.ranks[role], overhead + self.costs.block * entries + self.costs.logsum * self._heard(role))

    def _measure(self, clocks: Clocks) -> None:
        """A check of ``kept``: everybody tells all neighbours its potential, and all sums are computed."""
        clocks.exchange(self._to_all(NUMBER))
        everybody = np.concatenate([self.ranks[role] for role in Role])
        entries = np.concatenate([self.entries[role] for role in Role])
        heard = np.concatenate([self._heard(role) for role in Role])
        clocks.work(everybody, self.costs.block * entries + self.costs.logsum * heard)

    def _share(self, clocks: Clocks) -> None:
        """Each role's table to its first agent, then from both of these to all."""
        everybody = np.arange(self.job.ranks)
        for role in Role:
            clocks.reduce(self.ranks[role], 0, share_bytes(self.job, CHECK_SIZE, role))
        for role in Role:
            clocks.broadcast(everybody, int(self.ranks[role][0]), share_bytes(self.job, CHECK_SIZE, role))

    def _heard(self, role: Role) -> np.ndarray:
        """Numbers that an agent adds up over its neighbours in the log domain."""
        degree = self.job.E.support.sum(axis=1 if role is Role.SOURCE else 0)
        return np.asarray(self.rows[role] * degree)

    def _sweep(self) -> np.ndarray:
        """A source's pass over its rows: what is stored, or all of it made again."""
        entries, degree = self.entries[Role.SOURCE], self.job.E.support.sum(axis=1)
        chunk = np.maximum(1, _CHUNK_ENTRIES // np.maximum(self.width[Role.SOURCE], 1))
        calls = np.ceil(self.rows[Role.SOURCE] / chunk) * degree
        seconds = entries * self.costs.sweep_at(entries) + calls * self.costs.slice
        if not self.stored:
            seconds = seconds + entries * self.costs.entry(self.job)
        return np.asarray(seconds / self.place.threads(self.ranks[Role.SOURCE], _MOST_THREADS))

    def mean_work(self) -> float:
        """Processor seconds of an agent in a round, the mean of both roles, without messages and overheads."""
        if self.job.solver == "sinkhorn":
            return float(np.mean(self._sweep()) + np.mean(self.costs.logsum * self._heard(Role.TARGET))) / 2
        asked = len(self.job.turns[0][Role.SOURCE]) / self.job.E.support.sum()
        work = [self.costs.block * asked * self.entries[role] + self.costs.logsum * self._heard(role) for role in Role]
        return float(np.mean(np.concatenate(work)))

    def _showing(self) -> float:
        """Making and exchanging sketches (raw rows), once: targets' to sources, with ``kept`` both ways."""
        job, clocks = self.job, Clocks(self.place, self.costs.message)
        row = packed_bytes(job.bits) + NUMBER if job.kernel == "sketch" else NUMBER * job.dim
        if job.kernel == "sketch":
            for role in Role:
                clocks.work(self.ranks[role], self.costs.bits * job.bits * self.rows[role])
        clocks.exchange(self._to_all(row) if job.solver == "kept" else self._both_ways(row * self.rows[Role.TARGET])[0])
        return float(clocks.now.max())

    def _building(self) -> float:
        job, costs, clocks = self.job, self.costs, Clocks(self.place, 0.0)
        if job.solver == "sinkhorn":
            threads = self.place.threads(self.ranks[Role.SOURCE], _MOST_THREADS)
            if self.stored:
                clocks.work(self.ranks[Role.SOURCE], costs.entry(job) * self.entries[Role.SOURCE] / threads)
        else:
            everybody = np.arange(job.ranks)
            entries = np.concatenate([self.entries[role] for role in Role])
            clocks.work(everybody, (costs.raw_block + costs.entry(job) - costs.raw) * entries)
        return float(clocks.now.max())

    def _closing(self) -> float:
        """The last exchange and the float64 pass over the sources' rows, made anew."""
        clocks, costs, sources = Clocks(self.place, self.costs.message), self.costs, self.ranks[Role.SOURCE]
        clocks.exchange(self._down)
        threads = self.place.threads(sources, _MOST_THREADS)
        clocks.work(sources, (costs.entry(self.job) + costs.evaluate) * self.entries[Role.SOURCE] / threads)
        clocks.exchange(self._back)
        self._share(clocks)
        return float(clocks.now.max())

    def _memory(self) -> float:
        job = self.job
        row = packed_bytes(job.bits) + NUMBER if job.kernel == "sketch" else NUMBER * (job.dim + 2)
        if job.solver == "sinkhorn":
            kernel = 4.0 * self.entries[Role.SOURCE] if self.stored else 0.0
            return float(np.max(kernel + row * self.width[Role.SOURCE]))
        return float(max(np.max(2 * NUMBER * self.entries[role] + row * self.width[role]) for role in Role))

    def _parts(self) -> dict[str, float]:
        """A round with only latencies, only bytes, only work: which of them bounds it."""
        idle = Costs(dict.fromkeys(self.costs.sweep, 0.0), 0.0, 0.0, 0.0, (0.0, 0.0), 0.0, 0.0, 0.0, 0.0)

        def with_ways(**changed: float) -> Place:
            near, far = (replace(way, **changed) for way in (self.place.near, self.place.far))
            return replace(self.place, near=near, far=far)

        limit = np.inf if self.stored else 0.0
        return {
            "latency": Model(self.job, with_ways(bandwidth=np.inf), idle, limit).round_seconds(),
            "bytes": Model(self.job, with_ways(latency=0.0), idle, limit).round_seconds(),
            "work": Model(self.job, with_ways(latency=0.0, bandwidth=np.inf), self.costs, limit).round_seconds(),
        }
