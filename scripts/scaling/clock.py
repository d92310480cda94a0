"""A clock for every rank: messages and collectives move the clocks of those who wait for them (max-plus algebra).

Nothing is sent here. A message takes what it takes alone, longer beside others on the same way, and processor time at
both ends; who waits for several goes on after the last. Collectives are the trees that Open MPI's non-blocking
ones are: binomial, with the ranks in order, so that ranks of one host come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

EAGER = 1 << 16
"""Open MPI's TCP: a longer message first asks whether it may come, and then takes three latencies instead of one."""


@dataclass(frozen=True)
class Way:
    """One kind of way between two ranks."""

    latency: float
    """Seconds of an empty message, as the program's own waiting sees it."""
    bandwidth: float
    """Bytes a second: of one host's way out or in, or, where ``shared``, of all hosts together (one router)."""
    shared: bool = False
    per_message: float = 0.0
    """Seconds that a shared way is taken by a message, whatever its length: a router has one packet at a time."""
    measured: Sequence[tuple[float, float]] = ()
    """Bytes of a message and the seconds it took alone, where that is known: with TCP's windows it is no straight
    line."""

    def alone(self, nbytes: np.ndarray) -> np.ndarray:
        """Seconds of messages that have the way to themselves."""
        if not self.measured:
            return np.where(nbytes > EAGER, 3, 1) * self.latency + nbytes / self.bandwidth
        sizes, seconds = np.array(self.measured).T
        return np.interp(nbytes, sizes, seconds) + np.maximum(nbytes - sizes[-1], 0.0) / self.bandwidth


@dataclass(frozen=True)
class Place:
    """Where the agents run: ``hosts[r]`` is the host of rank r; hosts with one ``machine`` share its cores."""

    hosts: np.ndarray
    cores: float
    """Of a machine."""
    near: Way
    """Within a host."""
    far: Way
    machines: np.ndarray | None = None

    @property
    def machine(self) -> np.ndarray:
        return self.hosts if self.machines is None else self.machines

    def stretch(self, ranks: np.ndarray) -> np.ndarray:
        """How much longer work takes when all these ranks work at once: a machine's ranks over its cores, or 1."""
        machine = self.machine[ranks]
        busy = np.bincount(machine, minlength=int(self.machine.max()) + 1)
        return np.maximum(1.0, busy[machine] / self.cores)

    def threads(self, ranks: np.ndarray, most: int) -> np.ndarray:
        """Threads that each of these ranks has to itself, as the program shares a node out."""
        machine = self.machine[ranks]
        busy = np.bincount(machine, minlength=int(self.machine.max()) + 1)
        return np.clip(np.floor(self.cores / busy[machine]), 1, most)

    def alone(self, a: np.ndarray, b: np.ndarray, nbytes: np.ndarray) -> np.ndarray:
        """Seconds of each of these messages if it had its way to itself."""
        return np.where(self.hosts[a] == self.hosts[b], self.near.alone(nbytes), self.far.alone(nbytes))

    def queueing(self, a: np.ndarray, b: np.ndarray, nbytes: np.ndarray) -> np.ndarray:
        """Seconds that each of these messages, all sent at once, takes longer than alone: until its hosts' ways, or the
        one shared way, have carried everything."""
        here, there = self.hosts[a], self.hosts[b]
        seconds = np.zeros(len(nbytes))
        for way, mine in ((self.near, here == there), (self.far, here != there)):
            if not mine.any():
                continue
            if way.shared:
                carried, handled = nbytes[mine].sum(), mine.sum() * way.per_message
            else:
                out, into = (
                    np.bincount(side[mine], nbytes[mine], minlength=int(self.hosts.max()) + 1) for side in (here, there)
                )
                carried, handled = np.maximum(out[here[mine]], into[there[mine]]), 0.0
            seconds[mine] = handled + (carried - nbytes[mine]) / way.bandwidth
        return seconds


class Messages:
    """Messages that are sent at once, and how long each is on its way: planned once, sent often."""

    def __init__(self, place: Place, senders: np.ndarray, receivers: np.ndarray, nbytes: np.ndarray) -> None:
        order = np.argsort(receivers, kind="stable")
        self.senders, receivers, nbytes = senders[order], receivers[order], nbytes[order]
        self.sending, self.posted = np.unique(self.senders, return_counts=True)
        self.receiving, self.starts, self.collected = np.unique(receivers, return_index=True, return_counts=True)
        ways = self.senders, receivers, nbytes
        self.delays = place.alone(*ways) + place.queueing(*ways)


class Clocks:
    """The clocks of all ranks, in seconds."""

    def __init__(self, place: Place, per_message: float) -> None:
        self.place, self.per_message = place, per_message
        self.now = np.zeros(place.hosts.size)

    def work(self, ranks: np.ndarray, seconds: np.ndarray | float) -> None:
        """Processor time of these ranks, all at once."""
        self.now[ranks] += seconds * self.place.stretch(ranks)

    def exchange(self, messages: Messages) -> None:
        """Send them all; who receives goes on once all of its own are there."""
        self.work(messages.sending, self.per_message * messages.posted)
        arrivals = np.maximum.reduceat(self.now[messages.senders] + messages.delays, messages.starts)
        self.now[messages.receiving] = np.maximum(self.now[messages.receiving], arrivals)
        self.work(messages.receiving, self.per_message * messages.collected)

    def _hop(self, source: np.ndarray, target: np.ndarray, nbytes: int) -> np.ndarray:
        """When one message of a tree, each on its own, is through; both ends work for it."""
        alone = self.place.alone(source, target, np.full(source.size, float(nbytes)))
        return self.now[source] + alone + 2 * self.per_message

    def reduce(self, members: np.ndarray, root: int, nbytes: int) -> None:
        """To members[root]: in step k, who is at an odd multiple of 2^k gives to the one 2^k below it."""
        at = np.roll(members, -root)
        for k in range(int(len(members) - 1).bit_length()):
            senders = np.arange(1 << k, len(members), 2 << k)
            into = at[senders - (1 << k)]
            self.now[into] = np.maximum(self.now[into], self._hop(at[senders], into, nbytes))

    def broadcast(self, members: np.ndarray, root: int, nbytes: int) -> None:
        """From members[root]: in step k, the first 2^k give to the next 2^k."""
        at = np.roll(members, -root)
        for k in range(int(len(members) - 1).bit_length()):
            receivers = np.arange(1 << k, min(2 << k, len(members)))
            into = at[receivers]
            self.now[into] = np.maximum(self.now[into], self._hop(at[receivers - (1 << k)], into, nbytes))
