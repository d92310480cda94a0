"""The Sinkhorn divergence: W(mu,gamma) - W(mu,mu)/2 - W(gamma,gamma)/2, its self-terms over edges within the domains.

The kernel is the run's own. Within a domain every agent that E gives mass to has an edge to every other, weighed by
e_i e_k: the product protocol of E's own marginals. Both domains solve at the same time, each agent for its own rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from deot_mpi.data.samples import Floats
from deot_mpi.errors import InputError
from deot_mpi.exchange.edges import Channel
from deot_mpi.exchange.within import DomainEdges
from deot_mpi.faults.keeper import Keeper
from deot_mpi.kernel import Kernel, LogPairs, Shown, SketchKernel
from deot_mpi.kernel.rowblock import RowBlock
from deot_mpi.kinds import Kind
from deot_mpi.options import EOTOptions
from deot_mpi.privacy.noise import Chance, Noise
from deot_mpi.problem import means_of_node, row_block
from deot_mpi.result import SelfCosts, SelfTermPoint
from deot_mpi.roles import Role
from deot_mpi.running import Clock, Ended, Progress, Recorder, run_to_end
from deot_mpi.setting import Setting
from deot_mpi.showing import JoinedPairs, side_by_side
from deot_mpi.solvers import Status
from deot_mpi.solvers.base import Rule
from deot_mpi.solvers.symmetric import Symmetric
from deot_mpi.view import AgentView

_SAVED = "self_terms"
_CHECK_EVERY = 5
"""Rounds between measurements, at most: the error halves in each, and adding it up over all agents takes as long as a
small round."""


def self_costs(
    setting: Setting,
    kernel: Kernel,
    eps: float,
    options: EOTOptions,
    chance: Chance,
    keeper: Keeper,
    progress: Progress | None = None,
) -> SelfCosts:
    """W(mu,mu) and W(gamma,gamma), to the run's own tol; from the checkpoint, where the run goes on from one.

    Comes before the run's rounds, so that its kernel is gone when theirs is stored, and so that their checkpoints have
    what was found. Collective over all agents.
    """
    found = setting.collectives.all_or_none(lambda: _restored(setting, keeper))
    if found is None:
        clock = Clock()
        view, edges = _view(setting, eps), _edges(setting)
        rows = _rows(setting, kernel, options, view, edges, chance)
        solver_of = partial(Symmetric, view, rows, single_precision=options.single_precision)
        ended, rounds = _rounds(setting, solver_of, edges, options, keeper, progress)
        # F + eps: the regularised cost of each domain with itself.
        sums = {role: ended.sums_of(role) for role in Role}
        source, target = (sums[role].linear - eps * sums[role].mass + eps for role in Role)
        found = SelfCosts(source, target, ended.sums.error, rounds, ended.status, clock.seconds)
    numbers = [found.source, found.target, found.marginal_error, float(found.rounds), found.seconds]
    keeper.beside[_SAVED] = np.array([*numbers, float(list(Status).index(found.status))])
    return found


def _rounds(
    setting: Setting,
    solver_of: Callable[[Channel], Symmetric],
    edges: DomainEdges,
    options: EOTOptions,
    keeper: Keeper,
    progress: Progress | None,
) -> tuple[Ended, int]:
    counts = setting.sizes.counts[setting.agents.role]
    outgoing = dict.fromkeys(edges.neighbours, np.zeros(setting.samples.count))
    incoming = {k: np.zeros(int(counts[k])) for k in edges.neighbours}
    with Channel(edges, Kind.POTENTIALS, outgoing, incoming) as channel:
        solver = solver_of(channel)
        state, recorder = solver.setup(), Recorder(setting, progress, SelfTermPoint)
        rule = Rule(options.rounds, options.tol, "marginal", min(_CHECK_EVERY, options.check_every))
        return run_to_end(setting, solver, state, rule, options, recorder, between=keeper.before), state.round


def _restored(setting: Setting, keeper: Keeper) -> SelfCosts | None:
    if keeper.resumed is None:
        return None
    try:
        *numbers, rounds, seconds, status = np.asarray(keeper.resumed.arrays[_SAVED], np.float64).tolist()
        source, target, error = numbers
        return SelfCosts(source, target, error, int(rounds), list(Status)[int(status)], seconds, here=False)
    except (KeyError, ValueError, IndexError) as error:
        raise InputError(
            f"{setting.agents.name}: the checkpoint of round {keeper.resumed.round} lacks the self-terms ({error}); "
            "start without --resume."
        ) from error


def _view(setting: Setting, eps: float) -> AgentView:
    """The agent in its domain's problem with itself: e_i e_k for every k with mass, itself among them."""
    role, index = setting.agents.role, setting.agents.index
    marginals = setting.protocol.marginals(role)
    weights = {int(k): float(marginals[index] * marginals[k]) for k in np.flatnonzero(marginals)}
    return AgentView(role, index, eps, setting.samples.shares, weights if marginals[index] > 0 else {}, {})


def _edges(setting: Setting) -> DomainEdges:
    role, index = setting.agents.role, setting.agents.index
    marginals = setting.protocol.marginals(role)
    others = [int(k) for k in np.flatnonzero(marginals) if k != index] if marginals[index] > 0 else []
    return DomainEdges(setting.agents, others, setting.ledger, setting.collectives.timeout)


def _rows(
    setting: Setting, kernel: Kernel, options: EOTOptions, view: AgentView, edges: DomainEdges, chance: Chance
) -> RowBlock | None:
    """Show the others of the domain what the kernel needs, and hold the agent's own rows against all they show."""
    role, counts = view.role, setting.sizes.counts[view.role]
    own = kernel.show(setting.rows, role)
    told = kernel.disclosed(own, chance()).told  # the same that the other domain is shown
    heard = {k: kernel.blank(int(counts[k]), role) for k in edges.neighbours}
    for kind in told:
        edges.swap(kind, told[kind], {k: theirs[kind] for k, theirs in heard.items()})
    shares: dict[int, Floats] = {k: np.full(int(counts[k]), 1.0 / counts[k]) for k in edges.neighbours}
    if setting.sizes.weighted:
        edges.swap(Kind.WEIGHTS, setting.samples.shares, dict(shares))
    memory, threads = means_of_node(setting, options, works=bool(view.neighbours))
    if not view.neighbours:
        return None
    shares[view.index] = view.shares
    pairs = _pairs(kernel, view, own, told, heard)
    return row_block(view, pairs, shares, options, memory, threads)


def _pairs(kernel: Kernel, view: AgentView, own: Shown, told: Shown, heard: dict[int, Shown]) -> LogPairs:
    """log K of an agent's rows with all rows of its domain, in the order of the agents.

    With noise, both agents of a pair compute with what both have told: so they mean the same kernel, and bits were
    turned round on both sides. Its own rows an agent compares as they are, without noise; a row with itself has
    ham(a, a) = 0, so cost 0.
    """
    if not isinstance(kernel, SketchKernel) or not kernel.noise.any:
        every = {k: own if k == view.index else heard[k] for k in view.neighbours}
        return side_by_side(kernel, dict.fromkeys(view.neighbours, own), every)
    both = replace(kernel, noise=replace(kernel.noise, one_sided=False))
    clean = replace(kernel, noise=Noise())
    return JoinedPairs(
        [clean.pairs(own, own) if k == view.index else both.pairs(told, heard[k]) for k in view.neighbours]
    )
