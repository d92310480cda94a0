"""The one-pass Sinkhorn solver: full neighbourhoods, exact, accelerated. Only the sources hold a kernel."""

from __future__ import annotations

import math
import time
from typing import Literal

import numpy as np

from deot_mpi.data.samples import Floats
from deot_mpi.errors import InputError
from deot_mpi.kernel.rowblock import RowBlock
from deot_mpi.roles import Role
from deot_mpi.solvers.anderson import PRODUCTS
from deot_mpi.solvers.base import (
    LARGEST_EXPONENT,
    Channel,
    Closing,
    Measure,
    Rule,
    Solver,
    SolverState,
    load,
    too_small,
)
from deot_mpi.solvers.cooling import COOLING, REACH, curves_in, first_temperature, mixes_after
from deot_mpi.sums import ordered_sums
from deot_mpi.view import AgentView

TALLY_SIZE = 1 + PRODUCTS
"""Numbers an agent tells the others in a tally: its largest exponent, its part of Anderson's inner products."""

_STAGE_ERROR, _STAGE_ROUNDS = 1e-3, 60
"""When a stage of eps-scaling has done its work (an error of 1e-2 made the last stage a third longer in trials)."""
_PATIENCE, _NOISE, _LONG_PATIENCE = 90, 1e-4, 300
"""Rounds in which a small error, or any, must halve before float32 is held to be what keeps it from falling: its
rounding, or columns that it does not reach. Plain steps may take as long by themselves."""
EARLY_ROUNDS = 8
_HOPE = 2.0
"""All look at the error when it may be this many times tol or less: looking costs less than a round for nothing."""
_FALLING = 0.9
"""An error that falls more slowly from tally to tally is not looked at in between."""
_SETBACK = 2.0
"""An error this many times the best one so far means that mixing went wrong: back to the best, and shorter steps."""


class Sinkhorn(Solver):
    """Block Sinkhorn in one pass over the kernel per round (MATH: 'One pass over the kernel per iteration').

    A round: the targets send v; a source computes u_n = -eps log sum_j (e_ij/e_i) sum_m beta_m exp((v_m - c_nm)/eps)
    and, from the same chunk of its rows, log sum_n alpha_n exp((u_n - c_nm)/eps) for every column, which it sends
    back. So the rows always hold, a target sees the columns' error at the potentials at hand, and its next move
    v_m -= eps s_m, with s_m the log of its column's mass over what it should be, is mixed with earlier ones
    (Anderson) every third round.

    Such a move leaves the part J_mm = sum_n pi_nm^2 / (a_n c_m) of a column's error, c_m its mass: what the rows that a
    column shares with nobody give back to it. Where a column has few rows in reach that is most of it, and these are
    the errors that fall most slowly. So every third round the sources find J_mm, too, and moves are as many times as
    long as that asks for, or nearly (``Anderson.stretch``).

    Where the potentials are many nats away, eps is first made larger and then lowered
    in steps of 4, each starting from the last one's potentials.
    """

    def __init__(
        self,
        view: AgentView,
        rows: RowBlock | None,
        channel: Channel,
        probe: Channel,
        curvatures: Channel,
        *,
        acceleration: Literal["full", "anderson", "none"],
        scaling: bool,
        single_precision: bool,
    ) -> None:
        super().__init__(view, rows, channel, probe)
        self._curvatures = curvatures
        self._accelerate, self._stretches = acceleration != "none", acceleration == "full"
        self._scaling, self._single = scaling, single_precision
        self._sweep_seconds = 0.0

    def setup(self, start: Floats | None = None) -> SolverState:
        state = super().setup(start)
        state.single = self._single
        if self.rows is not None:
            self.rows.use("float32" if self._single else "float64")  # an earlier run may have sharpened it
        return state

    def step(self, state: SolverState) -> None:
        if state.tally is not None:
            self._decide(state, state.tally)
        curved = self._stretches and curves_in(state.stage_round + 1)
        self.curvatures += curved
        if self.view.role is Role.SOURCE:
            self._sweep(state, curved)
        else:
            self._move_and_ask(state, curved)
        state.stage_round += 1

    def worth_a_look(self, state: SolverState, rule: Rule) -> bool:
        """Early tallies, and when the error, falling as between the last two of them, may have reached tol; a mixing
        is worth a round more."""
        if not self._mixes(state):
            return super().worth_a_look(state, rule)
        if self._tally_due(state):
            return state.round <= EARLY_ROUNDS
        if not (self.settled(state) and rule.stop == "marginal" and state.fall < _FALLING):
            return False
        # error fall^((ahead + 1) / rounds) <= hope tol, with products alone: their bits are the same on all hosts.
        ahead, wanted = state.stage_round - state.tallied_round, _HOPE * rule.tol / state.total_error
        return math.prod([state.fall] * (ahead + 1)) <= math.prod([wanted] * state.fall_rounds)

    def tells(self, state: SolverState) -> Floats | None:
        return self._row(state) if self._tally_due(state) else None

    def hears(self, state: SolverState, total: Measure, rows: dict[Role, Floats]) -> None:
        before, state.fall_rounds = state.total_error, state.stage_round - state.tallied_round
        state.fall = total.error / before if 0.0 < before < np.inf else np.inf
        state.tally, state.total_error, state.tallied_round = rows, total.error, state.stage_round
        if state.stage_round == 1 or state.exact_columns:
            self._check_resolution(rows, state)

    def _sweep(self, state: SolverState, curved: bool) -> None:
        """A source's part: new rows from the targets' potentials, and the column sums they ask for."""
        if self.rows is None:
            return
        eps, neighbours = self.view.eps * state.temperature, self.view.neighbours
        self.rows.temper(state.temperature)
        missing = set(neighbours)
        # Early work reads the block one more time: it pays only if others are later than such a pass takes.
        for batch in self.channel.arrivals(neighbours, self._sweep_seconds):
            missing -= set(batch)
            for j in batch if missing else ():
                self.rows.hear(j, self.channel.incoming[j] / eps)
        received = np.concatenate([self.channel.incoming[j] for j in neighbours]) / eps
        started, curvature = time.perf_counter(), None
        if curved:
            potential, log_sums, curvature = self.rows.sweep_curved(received)
        else:
            potential, log_sums = self.rows.sweep(received)
        self._sweep_seconds = time.perf_counter() - started
        if state.exact_columns:
            log_sums = self.rows.exact_log_sums(potential)
        self._answer(self.channel, log_sums)
        if curvature is not None:
            self._curvatures.swap((), ())  # what was sent three rounds ago has arrived
            self._answer(self._curvatures, self.view.marginal * curvature)
        self.move(state, eps * potential)

    def _answer(self, channel: Channel, numbers: Floats) -> None:
        assert self.rows is not None
        for j, columns in self.rows.columns.items():
            channel.outgoing[j][:] = numbers[columns]
        channel.post(self.view.neighbours)

    def _move_and_ask(self, state: SolverState, curved: bool) -> None:
        """A target's part: its move from the last round's sums, and the sums at its new potential."""
        if not self.view.neighbours:
            return
        if state.violation is not None:
            self._advance(state)
        state.violation = self._ask(self.channel, state.potential, state.temperature)
        if curved:
            self._curvatures.swap((), self.view.neighbours)
            squares = np.sum([self._curvatures.incoming[j] for j in self.view.neighbours], axis=0)
            state.mixer.stretch(self.view.returned(squares, state.violation))
        state.seen_error = self.view.marginal_error(state.violation)
        state.mixer.remember(state.potential / (self.view.eps * state.temperature), -state.violation)

    def _ask(self, channel: Channel, potential: Floats, temperature: float) -> Floats:
        load(channel, potential)
        channel.swap(self.view.neighbours, self.view.neighbours)
        return self.view.log_violation(potential, channel.incoming, temperature=temperature)

    def _advance(self, state: SolverState) -> None:
        assert state.violation is not None
        step = state.mixer.step(-state.violation)
        self.move(state, state.potential + self.view.eps * state.temperature * step)

    def _tally_due(self, state: SolverState) -> bool:
        added_up = state.stage_round == 1 or state.exact_columns
        return added_up or (self._mixes(state) and mixes_after(state.stage_round))

    def _mixes(self, state: SolverState) -> bool:
        """Whether tallies go on after the first round of a stage: for the mixing, or to decide when a stage ends."""
        return self._accelerate or state.single or state.temperature > 1.0

    def _decide(self, state: SolverState, tables: dict[Role, Floats]) -> None:
        """From what the last round added up over the agents, decide, all alike, how to go on."""
        state.tally = None
        farthest = float(tables[Role.TARGET][:, 0].max())
        if state.exact_columns:
            state.exact_columns = False
            if self._scaling and not state.scaled and farthest > REACH:
                state.scaled = True
                self._enter_stage(state, first_temperature(farthest))
                return
        elif state.stage_round == 1 and farthest > REACH:
            state.exact_columns, state.violation = True, None  # the same potentials once more
            state.mixer.forget()
            return
        if state.temperature > 1.0 and (state.total_error <= _STAGE_ERROR or state.stage_round >= _STAGE_ROUNDS):
            if state.violation is not None:
                self._advance(state)
            self._enter_stage(state, max(1.0, state.temperature / COOLING))
            return
        if state.single and state.temperature == 1.0 and self._stagnates(state):
            self.sharpen(state)
            return
        if self._accelerate:
            self._mix(state, tables[Role.TARGET])

    def _stagnates(self, state: SolverState) -> bool:
        if state.total_error < 0.5 * state.halved_error:
            state.halved_error, state.halved_round = state.total_error, state.round
        if state.total_error < _NOISE:
            return state.round - state.halved_round > _PATIENCE
        return self._accelerate and state.round - state.halved_round > _LONG_PATIENCE

    def _enter_stage(self, state: SolverState, temperature: float) -> None:
        state.temperature, state.stage_round, state.violation, state.tally = temperature, 0, None, None
        state.total_error, state.fall, state.halved_error, state.halved_round = np.inf, np.inf, np.inf, state.round
        state.mixer.forget()
        state.best = None

    def _row(self, state: SolverState) -> Floats:
        row = np.zeros(TALLY_SIZE)
        if not self.view.neighbours:
            return row
        if state.violation is not None:
            row[0] = np.abs(state.violation).max()
            row[1:] = state.mixer.products(self.view.marginal * self.view.shares)
        elif self.view.role is Role.SOURCE:
            row[0] = np.abs(state.potential).max() / (self.view.eps * state.temperature)
        return row

    def _mix(self, state: SolverState, table: Floats) -> None:
        """Anderson's coefficients from the sums over all targets, or back to the best potentials so far."""
        error, mine = state.total_error, state.violation
        if state.best is not None and not error <= _SETBACK * state.best[0]:
            state.mixer.step_back()
            if mine is not None:
                state.potential, state.violation = state.best[1], state.best[2]
            state.best = None
            return
        if state.best is None or error < state.best[0]:
            state.best = (error, state.potential, mine if mine is not None else np.empty(0))
        if mine is not None:
            state.mixer.solve(ordered_sums(table[:, 1:]))

    def _check_resolution(self, tables: dict[Role, Floats], state: SolverState) -> None:
        """Refuse an eps that vanishes in the rounding of the potentials, which are as large as a row's least cost."""
        for role, table in tables.items():
            worst = int(table[:, 0].argmax())
            largest = float(table[worst, 0]) * state.temperature
            if not largest < LARGEST_EXPONENT:
                raise InputError(too_small(f"{role.value} agent {worst}", largest, self.view.eps))

    def settled(self, state: SolverState) -> bool:
        return state.temperature == 1.0

    def measure(self, state: SolverState) -> Measure:
        """No message: the rows hold, so the plan's mass is 1, and the targets have just seen the columns' error."""
        view = self.view
        if not view.neighbours:
            return Measure(0.0, 0.0, 0.0, state.temperature)
        seen = state.seen_error if view.role is Role.TARGET else 0.0
        mass = 0.5 * view.marginal  # the two roles' halves of the plan's mass
        objective = view.linear_part(state.potential) - view.eps * state.temperature * mass
        return Measure(objective, seen, max(state.moves), state.temperature)

    def sharpen(self, state: SolverState) -> bool:
        if not state.single:
            return False
        state.single = False
        if self.rows is not None:
            self.rows.use("float64")
        self._enter_stage(state, state.temperature)
        return True

    def plan(self, state: SolverState) -> tuple[Floats, Floats] | None:
        """No message: after a round, a source's u is exact for the v it has heard last."""
        if self.rows is None:
            return None
        received = np.concatenate([self.channel.incoming[j] for j in self.view.neighbours]) / self.view.eps
        if state.temperature == 1.0:
            return state.potential / self.view.eps, received
        self.rows.temper(1.0)  # stopped on the way: this u belongs to a larger eps
        own, _ = self.rows.sweep(received)
        return own, received

    def finish(self, state: SolverState) -> Closing:
        """One more round, in float64 from the kernel itself: the rows' exact potential, then the columns' error."""
        view = self.view
        self.looks += 1
        if not view.neighbours:
            return Closing()
        if self.rows is None:
            violation = self._ask(self.probe, state.potential, 1.0)
            return Closing(view.linear_part(state.potential), view.marginal_error(violation))
        self.rows.temper(1.0)
        self.probe.swap((), view.neighbours)
        received = np.concatenate([self.probe.incoming[j] for j in view.neighbours]) / view.eps
        own = state.potential / view.eps
        if state.temperature != 1.0:  # stopped on the way: this u belongs to a larger eps
            own, _ = self.rows.sweep(received)
        found = self.rows.evaluate(own, received, settle=True)
        self._answer(self.probe, found.log_sums)
        state.potential = view.eps * found.potential
        linear, transport = view.linear_part(state.potential), -view.eps * found.log_kernel
        return Closing(linear, 0.0, found.mass, transport, found.entropy)
