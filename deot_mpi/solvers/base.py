"""What all solvers share: setup, one step (a round), a measurement, and the run with its stopping rule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol

import numpy as np

from deot_mpi.samples import Floats
from deot_mpi.view import AgentView


class Status(StrEnum):
    """Why a run stopped. Compares equal to its name in lower case: ``status == "marginal"``."""

    MARGINAL = "marginal"
    CHANGE = "change"
    ROUNDS = "rounds"
    DIVERGED = "diverged"

    @property
    def text(self) -> str:
        return {
            Status.MARGINAL: "converged: marginal error below tol",
            Status.CHANGE: "converged: potentials changed by less than tol",
            Status.ROUNDS: "stopped: all rounds used",
            Status.DIVERGED: "diverged: the objective is not finite",
        }[self]

    @property
    def converged(self) -> bool:
        return self in (Status.MARGINAL, Status.CHANGE)


class Channel(Protocol):
    """A repeated exchange of one vector per agent along the edges (``exchange.edges.Channel``)."""

    outgoing: Floats
    incoming: dict[int, Floats]

    def swap(self, send_to: Sequence[int], receive_from: Sequence[int]) -> None: ...


@dataclass
class SolverState:
    """What an agent's solver has reached; where the schedule stands follows from the round and the seed."""

    potential: Floats
    round: int = 0
    moves: deque[float] = field(default_factory=deque)
    """max_n |u_n(t) - u_n(t-1)| / eps of the agent's last moves, over the step size where the solver has one."""
    seen_error: float = 0.0
    """The agent's part of the marginal error just before its last move, as far as its sums were fresh."""
    kept: dict[int, Floats] = field(default_factory=dict)
    """The last log-sums computed for each neighbour, where the solver keeps them."""


@dataclass(frozen=True)
class Measure:
    """One agent's part of a measurement, to be added (change: maximised) over the agents."""

    objective: float
    error: float
    change: float


@dataclass(frozen=True)
class Rule:
    """When to stop and how often to look."""

    rounds: int
    tol: float
    stop: Literal["marginal", "change"]
    check_every: int

    def due(self, round_: int) -> bool:
        """Every ``check_every`` rounds, at the end, and early on, where most of the way is made."""
        return round_ % self.check_every == 0 or round_ == self.rounds or round_ in (1, 2, 5)

    def status(self, round_: int, total: Measure) -> Status | None:
        """The same decision on every rank, since ``total`` is."""
        if not np.isfinite(total.objective):
            return Status.DIVERGED
        if self.stop == "marginal" and total.error <= self.tol:
            return Status.MARGINAL
        if self.stop == "change" and total.change <= self.tol:
            return Status.CHANGE
        return Status.ROUNDS if round_ >= self.rounds else None


class Solver(ABC):
    """A solver for one agent. ``setup`` makes the state, ``step`` does one round, ``run`` goes on to the end.

    ``channel`` carries the rounds' potentials, ``probe`` those sent only to measure; they are counted apart.
    """

    def __init__(self, view: AgentView, channel: Channel, probe: Channel) -> None:
        self.view, self.channel, self.probe = view, channel, probe

    window = 1
    """Moves that count for the change: as many as it takes until every neighbour has been heard."""

    def setup(self) -> SolverState:
        unknown = [np.inf] * self.window if self.view.neighbours else [0.0]  # nobody has converged before moving
        return SolverState(self.view.start(), moves=deque(unknown, maxlen=self.window))

    @abstractmethod
    def step(self, state: SolverState) -> None:
        """One round, in place."""

    def measure(self, state: SolverState) -> Measure:
        """This agent's part of F and of the L1 marginal error at the current potentials, from one exchange."""
        view = self.view
        self.probe.outgoing[:] = state.potential
        self.probe.swap(view.neighbours, view.neighbours)
        if not view.neighbours:
            return Measure(0.0, 0.0, 0.0)
        sums = {j: view.log_sums(j, self.probe.incoming[j]) for j in view.neighbours}
        violation = view.log_violation(state.potential, sums)
        with np.errstate(over="ignore"):  # an infinite objective is the message: the run diverged
            mass = view.marginal * float(view.shares @ np.exp(violation))
            error = view.marginal_error(violation)
        # Each role reports the plan's mass from its own side; half of each is the mass once.
        return Measure(view.linear_part(state.potential) - 0.5 * view.eps * mass, error, max(state.moves))

    def run(self, rule: Rule, total: Callable[[int, Measure], Measure]) -> tuple[SolverState, Status]:
        """Rounds until the rule ends them. ``total`` adds a measurement over all agents (and may record it)."""
        state = self.setup()
        status: Status | None = None
        while status is None:
            self.step(state)
            state.round += 1
            if rule.due(state.round):
                status = rule.status(state.round, total(state.round, self.measure(state)))
        return state, status

    def move(self, state: SolverState, potential: Floats, rate: float = 1.0) -> None:
        """Put a new potential in place and note how far it went, in steps of ``rate``."""
        state.moves.append(float(np.abs(potential - state.potential).max(initial=0.0)) / (rate * self.view.eps))
        state.potential = potential
