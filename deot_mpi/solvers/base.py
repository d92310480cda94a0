"""What all solvers share: setup, one step (a round), a measurement, the run with its stopping rule, the last word."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol

import numpy as np

from deot_mpi.data.samples import Floats
from deot_mpi.kernel.rowblock import RowBlock
from deot_mpi.roles import Role
from deot_mpi.solvers.anderson import Anderson
from deot_mpi.view import AgentView

EARLY = (1, 2, 5, 8)
LARGEST_EXPONENT = 1e11
"""Largest potential/eps: beyond it a marginal is off by more than 1e-5 through rounding alone."""


def too_small(owner: str, largest: float, eps: float) -> str:
    """The sentence for an eps that vanishes in the rounding of the potentials."""
    return (
        f"{owner}: the least cost of one of its samples is of size {largest:.1e} eps (eps = {eps:g}), and doubles have "
        f"no digits left; use eps of {largest * eps / LARGEST_EXPONENT:.1e} or more."
    )


class Status(StrEnum):
    """Why a run stopped. Compares equal to its name in lower case: ``status == "marginal"``."""

    MARGINAL = "marginal"
    CHANGE = "change"
    ROUNDS = "rounds"
    STALLED = "stalled"
    DIVERGED = "diverged"

    @property
    def text(self) -> str:
        return {
            Status.MARGINAL: "converged: marginal error below tol",
            Status.CHANGE: "converged: potentials changed by less than tol",
            Status.ROUNDS: "stopped early: all rounds used, not converged (use more of them, or a larger eps)",
            Status.STALLED: "stopped: P comes no closer to a stationary one (with sketches: their resolution)",
            Status.DIVERGED: "diverged: the objective is not finite",
        }[self]

    @property
    def converged(self) -> bool:
        return self in (Status.MARGINAL, Status.CHANGE)


class Channel(Protocol):
    """A repeated exchange of one vector per edge and direction (``exchange.edges.Channel``)."""

    outgoing: dict[int, Floats]
    incoming: dict[int, Floats]

    def swap(self, send_to: Sequence[int], receive_from: Sequence[int]) -> None: ...

    def post(self, send_to: Sequence[int]) -> None: ...

    def arrivals(self, receive_from: Sequence[int], patience: float) -> Iterator[list[int]]: ...


class Watch(Protocol):
    """Adds up measurements over all agents, and keeps a trace of them (``running.Recorder``)."""

    def add(self, own: Measure, row: Floats) -> tuple[Measure, dict[Role, Floats]]:
        """All agents' measurements together and, in the same message, every agent's row on every agent."""

    def keep(self, round_: int) -> None:
        """Put the last sum into the trace."""


class Mailbox(Protocol):
    """An exchange in which nobody waits long for late ones (``exchange.mailbox.Mailbox``)."""

    def send(self, neighbours: Sequence[int], vector: Floats) -> None: ...

    def collect(self, neighbours: Sequence[int], patience: float) -> dict[int, Floats]: ...

    def behind(self, neighbour: int) -> int: ...

    def settle(self) -> dict[int, Floats]: ...


@dataclass
class SolverState:
    """What an agent's solver has reached; where the schedule stands follows from the round and the seed."""

    potential: Floats
    round: int = 0
    moves: deque[float] = field(default_factory=deque)
    """max_n |u_n(t) - u_n(t-1)| / eps of the agent's last moves, over the step size where the solver has one."""
    seen_error: float = 0.0
    """The agent's part of the marginal error as last seen: at these potentials, or just before its last move."""
    kept: dict[int, Floats] = field(default_factory=dict)
    """The last log-sums computed for each neighbour, where the solver keeps them."""
    temperature: float = 1.0
    """The stage of eps-scaling: the solver works on temperature * eps."""
    stage_round: int = 0
    """Rounds since the stage began."""
    scaled: bool = False
    """Whether eps-scaling has begun: it begins once."""
    single: bool = False
    """Whether kernels are still in float32."""
    tally: dict[Role, Floats] | None = None
    """What the last round added up over the agents, for the next one to act on."""
    exact_columns: bool = False
    """Whether the next round repeats the last one with column sums in the log domain."""
    violation: Floats | None = None
    """A target's log-violation at its potential: what its next move undoes."""
    mixer: Anderson = field(default_factory=Anderson)
    best: tuple[float, Floats, Floats] | None = None
    """Error, potential and violation of the best tally since the last restart."""
    halved_error: float = np.inf
    halved_round: int = 0
    """The total error when it was last found halved, and when that was."""
    total_error: float = np.inf
    """The marginal error over all agents, when it was last added up for the solver."""
    tallied_round: int = 0
    """After which round of the stage that was."""
    fall: float = np.inf
    """What was left then of the error that was found when it was added up before."""
    fall_rounds: int = 1
    """Rounds between the two."""


@dataclass(frozen=True)
class Measure:
    """One agent's part of a measurement, to be added (change: maximised) over the agents."""

    objective: float
    error: float
    change: float
    temperature: float = 1.0
    """How much larger than eps the eps was (the same on all agents)."""
    staleness: int = 0
    """Rounds by which the latest neighbour's message was behind, at most, since the last measurement."""


@dataclass(frozen=True)
class Closing:
    """One agent's part of the final values, exact at its last potentials; to be added over the agents."""

    linear: float = 0.0
    """sum_n a_n u_n."""
    error: float = 0.0
    """Its part of the L1 marginal error."""
    mass: float = 0.0
    """sum pi over a source's rows; 0 for targets, as the two below."""
    transport_cost: float = 0.0
    entropy: float = 0.0
    """sum pi (log pi - 1)."""


@dataclass(frozen=True)
class Rule:
    """When to stop and how often to look."""

    rounds: int
    tol: float
    stop: Literal["marginal", "change"]
    check_every: int

    def due(self, round_: int) -> bool:
        """Every ``check_every`` rounds, and at the end."""
        return round_ % self.check_every == 0 or round_ >= self.rounds

    def status(self, round_: int, total: Measure, settled: bool) -> Status | None:
        """The same decision on every rank, since ``total`` is."""
        if not np.isfinite(total.objective):
            return Status.DIVERGED
        if settled and self.stop == "marginal" and total.error <= self.tol:
            return Status.MARGINAL
        if settled and self.stop == "change" and total.change <= self.tol:
            return Status.CHANGE
        return Status.ROUNDS if round_ >= self.rounds else None


class Solver(ABC):
    """A solver for one agent. ``setup`` makes the state, ``step`` does one round, ``run`` goes on to the end.

    ``rows`` is a source's row block (None for targets). ``channel`` carries the rounds' potentials, ``probe`` what is
    sent only to measure; they are counted apart.
    """

    def __init__(self, view: AgentView, rows: RowBlock | None, channel: Channel, probe: Channel) -> None:
        self.view, self.rows, self.channel, self.probe = view, rows, channel, probe
        self.looks = 0
        """Exchanges over the probe so far, of all agents alike."""
        self.curvatures = 0
        """Rounds so far in which sources have told targets more than sums."""

    window = 1
    """Moves that count for the change: as many as it takes until every neighbour has been heard."""

    def setup(self, start: Floats | None = None) -> SolverState:
        """The state before the first round: u = 0 (Algorithm 1, line 4), or potentials of an earlier run."""
        unknown = [np.inf] * self.window if self.view.neighbours else [0.0]  # nobody has converged before moving
        potential = np.zeros(self.view.shares.size) if start is None else start.copy()
        return SolverState(potential, moves=deque(unknown, maxlen=self.window))

    def settle(self, state: SolverState) -> None:
        """Wait for messages that are under way, where the solver goes on without late ones."""
        return

    def resume(self, state: SolverState) -> None:
        """Stand where the solver stood when it had this state: what else decides the rounds to come."""
        return

    @abstractmethod
    def step(self, state: SolverState) -> None:
        """One round, in place."""

    def measure(self, state: SolverState) -> Measure:
        """This agent's part of F and of the L1 marginal error at the current potentials, from one exchange."""
        view = self.view
        self.exchange(self.probe, state.potential)
        if not view.neighbours:
            return Measure(0.0, 0.0, 0.0)
        sums = {j: view.log_sums(j, self.probe.incoming[j]) for j in view.neighbours}
        violation = view.log_violation(state.potential, sums)
        with np.errstate(over="ignore"):  # an infinite objective is the message: the run diverged
            mass = view.marginal * float(view.shares @ np.exp(violation))
            error = view.marginal_error(violation)
        # Each role reports the plan's mass from its own side; half of each is the mass once.
        return Measure(view.linear_part(state.potential) - 0.5 * view.eps * mass, error, max(state.moves))

    def run(
        self,
        state: SolverState,
        rule: Rule,
        watch: Watch,
        between: Callable[[SolverState], None] | None = None,
    ) -> Status:
        """Rounds until the rule ends them. All agents measure together when the rule says so, and whenever the solver
        has to tell all agents something, which goes with it; ``between`` is called after every round but the last."""
        while True:
            self.step(state)
            state.round += 1
            due, told = rule.due(state.round) or self.worth_a_look(state, rule), self.tells(state)
            if due or told is not None:
                total, rows = watch.add(self.measure(state), np.empty(0) if told is None else told)
                if told is not None:
                    self.hears(state, total, rows)
                status = rule.status(state.round, total, self.settled(state))
                if due or status is not None:
                    watch.keep(state.round)
                if status is not None:
                    return status
            if between is not None:
                between(state)

    def worth_a_look(self, state: SolverState, rule: Rule) -> bool:
        """Whether, all agents alike, to look at the error when the rule does not say so: early on, where most of the
        way is made."""
        return state.round in EARLY

    def tells(self, state: SolverState) -> Floats | None:
        """Numbers for all agents after this round, of the same length on each; None, on all alike, where there are
        none to tell."""
        return None

    def hears(self, state: SolverState, total: Measure, rows: dict[Role, Floats]) -> None:
        """What ``tells`` gave on every agent, and what all have measured."""
        return

    def settled(self, state: SolverState) -> bool:
        """Whether the solver works on the problem itself by now, not on an easier one on the way."""
        return True

    def sharpen(self, state: SolverState) -> bool:
        """Go on with more precision, if there is more to be had; the same answer on every rank."""
        return False

    def plan(self, state: SolverState) -> tuple[Floats, Floats] | None:
        """A source's f and its neighbours' g, in nats, at eps itself; None for targets. May take an exchange."""
        self.exchange(self.probe, state.potential)
        if self.rows is None:
            return None
        others = np.concatenate([self.probe.incoming[j] for j in self.view.neighbours])
        return state.potential / self.view.eps, others / self.view.eps

    def finish(self, state: SolverState) -> Closing:
        """This agent's part of the final values at its last potentials, from one exchange."""
        view = self.view
        self.exchange(self.probe, state.potential)
        if not view.neighbours:
            return Closing()
        linear = view.linear_part(state.potential)
        with np.errstate(over="ignore", invalid="ignore"):  # a diverged run has infinite values, and says so
            if self.rows is None:
                sums = {j: view.log_sums(j, self.probe.incoming[j]) for j in view.neighbours}
                return Closing(linear, view.marginal_error(view.log_violation(state.potential, sums)))
            others = np.concatenate([self.probe.incoming[j] for j in view.neighbours])
            found = self.rows.evaluate(state.potential / view.eps, others / view.eps, settle=False)
            error = view.marginal_error(found.log_rows)
        return Closing(linear, error, found.mass, -view.eps * found.log_kernel, found.entropy)

    def exchange(self, channel: Channel, potential: Floats) -> None:
        """Send a potential to all neighbours and receive theirs."""
        self.looks += channel is self.probe
        load(channel, potential)
        channel.swap(self.view.neighbours, self.view.neighbours)

    def move(self, state: SolverState, potential: Floats, rate: float = 1.0) -> None:
        """Put a new potential in place and note how far it went, in steps of ``rate``."""
        state.moves.append(float(np.abs(potential - state.potential).max(initial=0.0)) / (rate * self.view.eps))
        state.potential = potential


def load(channel: Channel, potential: Floats) -> None:
    """Put one vector into all outgoing buffers (which may be one and the same)."""
    for buffer in channel.outgoing.values():
        buffer[:] = potential
