"""The alternation of Algorithm 4: duals for a fixed P, then a move of P, until P is stationary."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from deot_mpi.alignment.moment import CrossMoment
from deot_mpi.alignment.selfterms import SelfTerms
from deot_mpi.alignment.steps import ClosedStep, GradientStep, Step
from deot_mpi.data.samples import Floats
from deot_mpi.kernel.gromov import AlignedKernel, Spaces
from deot_mpi.kinds import Kind
from deot_mpi.options import GromovOptions
from deot_mpi.problem import Holding, realign
from deot_mpi.randomness import Purpose, generator
from deot_mpi.result import StartReport, Values
from deot_mpi.roles import Role
from deot_mpi.running import Ended, Recorder, run_to_end
from deot_mpi.setting import Setting
from deot_mpi.solvers import Solver, SolverState, Status
from deot_mpi.solvers.base import Rule
from deot_mpi.solvers.cooling import COOLING

_FIRST_TOLERANCE, _TOLERANCE_SHARE = 1e-2, 0.1
"""Marginal error to reach before P moves: at first, and as a share of how far P moved last."""
_SAMPLED_TOLERANCE = 1e-3
_PATIENCE = {"raw": 40, "sketch": 25}
"""Alignments in which the gap of P must halve; bits change in jumps, so that sketches leave less to wait for."""
_EASY_SHARE = 0.1
"""eps as a share of the mean cost at which most random starts find a good optimum."""
_GAP = 10.0
"""P counts as stationary within this many tol: the values are off by the square of the gap."""


@dataclass(frozen=True)
class Match:
    """Everything that stays the same whatever P is."""

    setting: Setting
    spaces: Spaces
    alpha: float
    terms: SelfTerms
    kernel: AlignedKernel
    holding: Holding
    moment: CrossMoment

    @property
    def eps(self) -> float:
        return self.holding.view.eps

    def constant(self, alignment: Floats) -> float:
        """What the objective has besides F."""
        return self.alpha * (self.terms.constant + 32.0 * float((alignment**2).sum()))

    def cross_moment(self, solver: Solver, state: SolverState) -> Floats:
        """M, the same on every agent."""
        setting = self.setting
        part = self.moment.part(solver.plan(state))
        return setting.collectives.masked_sum(setting.edges, part.ravel(), Kind.MOMENTS).reshape(part.shape)


def temperatures(mean_cost: float, eps: float) -> list[float]:
    """By how much eps is larger, stage by stage: from 0.1 of the mean cost down to 1, which is always the last."""
    if not mean_cost > 0:
        return [1.0]
    stages = max(0, math.ceil(math.log(_EASY_SHARE * mean_cost / eps, COOLING) - 1e-9))
    return [COOLING**stage for stage in range(stages, -1, -1)]


@dataclass(frozen=True)
class Run:
    """One start, to its end."""

    report: StartReport
    alignment: Floats
    state: SolverState
    ended: Ended
    values: Values


@dataclass
class _Watch:
    """Whether P still comes closer to a stationary one: the gap must halve now and then."""

    patience: int
    halved: float = np.inf
    at: int = 0

    def stalled(self, outer: int, gap: float) -> bool:
        if gap <= 0.5 * self.halved:
            self.halved, self.at = gap, outer
        return outer - self.at >= self.patience


@dataclass(frozen=True)
class _Goal:
    """When a stage of the alternation has done its work."""

    gap: float
    """How far P may be from stationary."""
    tol: float
    """The marginal error that goes with it."""
    outer: int


_ON_THE_WAY = _Goal(gap=1e-2, tol=1e-3, outer=30)
"""At an eps larger than that of the problem."""


class Alternation:
    """From one P to a stationary one (Algorithm 4, lines 3-10), by way of larger eps where eps is small.

    At a small eps most P are near some local optimum. So P first moves at 0.1 of the mean cost or more, and then along
    with eps as it falls.
    """

    def __init__(
        self, match: Match, solver_at: Callable[[float], Solver], options: GromovOptions, recorder: Recorder
    ) -> None:
        self._match, self._solver_at, self._options, self._recorder = match, solver_at, options, recorder
        self._solver, self._temperature = solver_at(1.0), 1.0
        self._rounds, self._outer = 0, 0

    def run(self, alignment: Floats, potential: Floats | None, temperatures: Sequence[float]) -> Run:
        options = self._options
        for temperature in temperatures:
            self._temperature, self._solver = temperature, self._solver_at(temperature)
            goal = _Goal(0.5 * _GAP * options.tol, options.tol, options.outer)
            if temperature > 1.0:
                goal = _ON_THE_WAY
            alignment, state, stalled = self._approach(alignment, potential, goal)
            potential = state.potential
        return self._finish(alignment, state, stalled)

    def _approach(self, alignment: Floats, potential: Floats | None, goal: _Goal) -> tuple[Floats, SolverState, bool]:
        """Moves of P until the goal is reached, P stalls, or its moves are used up; P is always a solved one."""
        sampled, match = self._options.p_update == "sampled", self._match
        gap, step, watch = np.inf, self._first_step(), _Watch(_PATIENCE[self._options.kernel])
        for outer in range(1, goal.outer + 1):
            wanted = max(goal.tol, _SAMPLED_TOLERANCE if sampled else min(_FIRST_TOLERANCE, _TOLERANCE_SHARE * gap))
            state, status = self._solve(alignment, potential, wanted)
            potential = state.potential
            if status is Status.DIVERGED or outer == goal.outer:
                return alignment, state, False
            if sampled:
                alignment = self._sampled(alignment, state, outer)
                continue
            residual = match.cross_moment(self._solver, state) / 2.0 - alignment
            gap = self._relative(residual)
            if gap <= goal.gap and wanted <= goal.tol:
                return alignment, state, False
            if watch.stalled(outer, gap):
                return alignment, state, True
            objective, slack = self._recorder.trace[-1].objective, 2.0 * match.eps * self._temperature * wanted
            alignment = self._told(step(alignment, residual, objective, slack))
        raise AssertionError("a goal has at least one move")

    def _solve(self, alignment: Floats, potential: Floats | None, tol: float) -> tuple[SolverState, Status]:
        """The duals at this P, from those at the last one (lines 5-7)."""
        match, options, recorder = self._match, self._options, self._recorder
        match.kernel.align(alignment, self._temperature)
        realign(match.setting, match.holding, match.kernel)
        self._outer += 1
        recorder.constant, recorder.outer, recorder.temperature = (
            match.constant(alignment),
            self._outer,
            self._temperature,
        )
        state = self._solver.setup(potential)
        status = self._solver.run(state, Rule(options.inner, tol, options.stop, options.check_every), recorder)
        recorder.rounds_before += state.round
        self._rounds += state.round
        state.round = 0
        return state, status

    def _first_step(self) -> Step:
        options = self._options
        if options.p_update == "closed":
            return ClosedStep(self._match.terms.alignment_size, options.acceleration == "none")
        return GradientStep(options.eta)

    def _relative(self, residual: Floats) -> float:
        size = self._match.terms.alignment_size
        return float(np.linalg.norm(residual)) / size if size > 0 else 0.0

    def _told(self, alignment: Floats) -> Floats:
        """P as source agent 0 has it: agents on different machines may round differently."""
        match = self._match
        told = np.ascontiguousarray(alignment)
        root = match.setting.agents.rank_of(Role.SOURCE, 0)
        match.setting.collectives.broadcast(Kind.MOMENTS, told, root=root)
        return told

    def _sampled(self, alignment: Floats, state: SolverState, outer: int) -> Floats:
        """The paper's mini-batch step: one source agent's own data give the gradient, and it tells all the new P."""
        match, agents = self._match, self._match.setting.agents
        marginals = match.setting.protocol.marginals(Role.SOURCE)
        drawn = generator(self._options.seed, Purpose.ALIGNMENT_PICKS, self._recorder.start, outer)
        chosen = int(drawn.choice(marginals.size, p=marginals / marginals.sum()))
        plan = self._solver.plan(state)
        told = np.ascontiguousarray(alignment)
        if agents.role is Role.SOURCE and agents.index == chosen:
            residual = match.moment.part(plan) / marginals[chosen] / 2.0 - alignment
            told = alignment + self._options.eta / np.sqrt(outer) * residual
        match.setting.collectives.broadcast(Kind.MOMENTS, told, root=agents.rank_of(Role.SOURCE, chosen))
        return told

    def _finish(self, alignment: Floats, state: SolverState, stalled: bool) -> Run:
        """The duals to the end at the last P, the final reduce, and the values (line 11)."""
        match, options = self._match, self._options
        rule = Rule(options.inner, options.tol, options.stop, options.check_every)
        ended = run_to_end(match.setting, self._solver, state, rule, options, self._recorder)
        self._recorder.rounds_before += state.round
        self._rounds += state.round
        moment = match.cross_moment(self._solver, state)
        gap = self._relative(moment / 2.0 - alignment)
        if ended.status.converged and not gap <= _GAP * options.tol:
            ended = replace(ended, status=Status.STALLED if stalled else Status.ROUNDS)
        values = gromov_values(match, alignment, moment, ended)
        report = StartReport(values.regularised_cost, ended.status.value, self._outer, self._rounds, gap)
        return Run(report, alignment, state, ended, values)


def gromov_values(match: Match, alignment: Floats, moment: Floats, ended: Ended) -> Values:
    """The four values. <C_P, pi> is linearised at P: the cost itself has -8 |M|^2 where that has -32 <P, M>."""
    sums, eps = ended.sums, match.eps
    dual = match.constant(alignment) + sums.linear - eps * sums.mass
    bilinear = 32.0 * float((alignment * moment).sum()) - 8.0 * float((moment**2).sum())
    transport = match.alpha * (match.terms.constant + bilinear) + sums.transport_cost
    return Values(dual, dual + eps, transport, transport + eps * sums.entropy)
