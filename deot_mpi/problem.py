"""From a setting and a kernel to what an agent computes with: its view, its rows of the kernel, its solver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from deot_mpi.data.samples import Floats
from deot_mpi.errors import InputError
from deot_mpi.exchange.edges import Channel, Hearing
from deot_mpi.exchange.mailbox import Mailbox
from deot_mpi.exchange.node import share_node
from deot_mpi.kernel import Kernel, LogPairs, Shown, log_block, parted
from deot_mpi.kernel.block import KernelBlock
from deot_mpi.kernel.gromov import AlignedKernel
from deot_mpi.kernel.halves import spare_bytes
from deot_mpi.kernel.rowblock import RowBlock
from deot_mpi.kinds import Kind
from deot_mpi.options import Options
from deot_mpi.privacy.noise import Chance
from deot_mpi.resources import memory_for, threads_for
from deot_mpi.roles import Role
from deot_mpi.setting import Setting
from deot_mpi.showing import disclose, show, side_by_side
from deot_mpi.solvers import MRBCD, KeptSums, Sinkhorn, Solver
from deot_mpi.solvers.alone import local_distance
from deot_mpi.solvers.base import LARGEST_EXPONENT, too_small
from deot_mpi.solvers.schedule import CyclicSchedule, SampledSchedule
from deot_mpi.view import AgentView


@dataclass(frozen=True)
class Holding:
    """What one agent holds once the kernel's exchange is over."""

    view: AgentView
    rows: RowBlock | None
    """A source's rows of the kernel; None for targets and for sources without neighbours."""
    own: dict[int, Shown]
    """What the agent computes with of its own rows, by neighbour (all the same, but with seeds by edge)."""
    shown: dict[int, Shown]
    """What its neighbours have shown, where it is needed again."""
    shares: dict[int, Floats]
    """beta of each neighbour."""
    memory: float
    """Bytes of kernel the agent may hold."""
    threads: int

    def pairs(self, kernel: Kernel) -> LogPairs:
        """The kernel of a source's rows, as ``rows`` has it; needs what was shown."""
        return side_by_side(kernel, self.own, self.shown)


def build(
    setting: Setting,
    kernel: Kernel,
    eps: float,
    options: Options,
    *,
    keep: bool | None = None,
    chance: Chance | None = None,
    seeded: Callable[[int], Kernel] | None = None,
) -> Holding:
    """Exchange what the kernel shows along the edges, once (Algorithm 2), and build this agent's part of log K.

    With the one-pass solver only targets show something; otherwise both roles do, and each holds its own blocks. The
    neighbours are heard one after the other: who needs only a block of each holds one neighbour's rows at a time.
    ``keep`` what others have shown if it is needed again (by default: at a source, for tau, where E is not the storage
    protocol).
    ``chance`` and ``seeded``: see ``disclose``; kernels without noise need neither.
    """
    role, edges = setting.agents.role, setting.edges
    one_pass = options.solver == "sinkhorn"
    counts = {j: int(setting.sizes.counts[role.other][j]) for j in edges.neighbours}
    listens, speaks = (role is Role.SOURCE or not one_pass), (role is Role.TARGET or not one_pass)
    chance = np.random.default_rng if chance is None else chance
    shares = _neighbours_shares(setting, counts if listens else {}, speaks=speaks)
    kept = role is Role.SOURCE and not setting.protocol.is_storage if keep is None else keep
    disclosures = disclose(setting, kernel, chance, seeded)
    own = {j: one.kept for j, one in disclosures.items()}
    # A source goes back to what its targets have shown whenever it computes its rows again, and at the end.
    needed = kept or role is Role.SOURCE
    shown: dict[int, Shown] = {}
    blocks: dict[int, KernelBlock] = {}

    def use(j: int, theirs: Shown) -> None:
        if needed:
            shown[j] = theirs
        if not one_pass:
            blocks[j] = _block(role, kernel, own[j], theirs, shares[j])

    hearing = Hearing(_rooms(kernel, role.other, counts, together=needed), use) if listens else None
    show(setting, kernel, {j: one.told for j, one in disclosures.items()} if speaks else {}, hearing)
    view = _view(setting, eps, blocks)
    memory, threads = means_of_node(setting, options, works=listens)  # who listens also computes
    rows = None
    if role is Role.SOURCE and edges.neighbours:
        pairs = side_by_side(kernel, own, shown)
        rows = row_block(view, pairs, shares, options, memory if one_pass else 0.0, threads)
    return Holding(view, rows, own, shown if kept else {}, shares, memory, threads)


def _neighbours_shares(setting: Setting, counts: dict[int, int], *, speaks: bool) -> dict[int, Floats]:
    """beta of the neighbours that are heard: told where any agent has weights, 1/M_j otherwise."""
    shares: dict[int, Floats] = {j: np.full(count, 1.0 / count) for j, count in counts.items()}
    if setting.sizes.weighted:
        own = np.ascontiguousarray(setting.samples.shares)
        outgoing = dict.fromkeys(setting.edges.neighbours, own) if speaks else {}
        setting.edges.swap_each(Kind.WEIGHTS, outgoing, dict(shares))
    return shares


def _view(setting: Setting, eps: float, blocks: dict[int, KernelBlock]) -> AgentView:
    role, index = setting.agents.role, setting.agents.index
    weights = setting.protocol.weights(role, index)
    return AgentView(
        role=role,
        index=index,
        eps=eps,
        shares=setting.samples.shares,
        edge_weights={j: float(weights[j]) for j in setting.edges.neighbours},
        blocks=blocks,
    )


def realign(setting: Setting, holding: Holding, kernel: AlignedKernel) -> None:
    """Go over to the kernel's new P: rows and blocks of the same size, computed anew.

    Where targets compute, too, and cannot find out by themselves what P does to the sources' rows, these show it.
    """
    role, view, edges = setting.agents.role, holding.view, setting.edges
    own = holding.own
    if role is Role.SOURCE:
        own = dict.fromkeys(edges.neighbours, kernel.show(setting.rows, role))
        if holding.rows is not None:
            holding.rows.take(side_by_side(kernel, own, holding.shown))
    if not view.blocks:
        return
    if kernel.shows_alignment:
        for kind in kernel.blank(0, role):
            outgoing = {j: np.ascontiguousarray(own[j][kind]) for j in own} if role is Role.SOURCE else {}
            heard = {j: part[kind] for j, part in holding.shown.items()} if role is Role.TARGET else {}
            edges.swap_each(kind, outgoing, heard)
    for j, theirs in holding.shown.items():
        view.blocks[j] = _block(role, kernel, own[j], theirs, holding.shares[j])


def _rooms(kernel: Kernel, role: Role, counts: dict[int, int], *, together: bool) -> Callable[[int], Shown]:
    """Where to put what a neighbour shows: in its part of one room for all, or in one that is its own and goes."""
    if not together:
        return lambda j: kernel.blank(counts[j], role)
    whole = kernel.blank(sum(counts.values()), role)
    return dict(zip(counts, parted(whole, list(counts.values())), strict=True)).__getitem__


def _block(role: Role, kernel: Kernel, own: Shown, theirs: Shown, shares: Floats) -> KernelBlock:
    """log K between an agent's own rows and one neighbour's."""
    if role is Role.SOURCE:
        return KernelBlock(log_block(kernel, own, theirs), np.log(shares))
    return KernelBlock(np.ascontiguousarray(log_block(kernel, theirs, own).T), np.log(shares))


def means_of_node(setting: Setting, options: Options, *, works: bool) -> tuple[float, int]:
    """Bytes of kernel and threads that an agent which ``works`` may use. Collective over all agents."""
    node = share_node(setting.agents, works, setting.ledger, options.timeout)
    memory = memory_for(node.workers) + spare_bytes() if options.memory is None else float(options.memory)
    return memory, options.threads or threads_for(node.cores)


def row_block(
    view: AgentView, pairs: LogPairs, shares: dict[int, Floats], options: Options, memory: float, threads: int
) -> RowBlock:
    """An agent's rows against the columns of all its neighbours, weighed by (e_ij/e_i) beta_m."""
    ends = np.cumsum([shares[j].size for j in view.neighbours])
    columns = {j: slice(int(end) - shares[j].size, int(end)) for j, end in zip(view.neighbours, ends, strict=True)}
    log_weights = [np.log(e / view.marginal) + np.log(shares[j]) for j, e in view.edge_weights.items()]
    return RowBlock(
        pairs,
        np.concatenate(log_weights),
        columns,
        view.shares,
        view.marginal,
        precision="float32" if options.single_precision else "float64",
        memory=memory,
        threads=threads,
    )


@dataclass(frozen=True)
class Channels:
    """What a solver sends through."""

    rounds: Channel
    """Both ways along every edge: potentials, or (one-pass, from a source) sums for the target's columns."""
    probe: Channel
    """The same, to measure with."""
    curvatures: Channel
    """From a source to its targets (one-pass only)."""


def make_solver(setting: Setting, holding: Holding, channels: Channels, options: Options) -> Solver:
    protocol, view, rows = setting.protocol, holding.view, holding.rows
    channel, probe = channels.rounds, channels.probe
    if options.solver == "sinkhorn":
        return Sinkhorn(
            view,
            rows,
            channel,
            probe,
            channels.curvatures,
            acceleration=options.acceleration,
            scaling=options.eps_scaling,
            single_precision=options.single_precision,
        )
    if options.solver == "kept":
        turns = CyclicSchedule(protocol, view.role, view.index, options.neighbours)
        if options.patience is None:
            return KeptSums(view, rows, channel, probe, turns)
        lengths = {j: int(setting.sizes.counts[view.role.other][j]) for j in view.neighbours}
        mailbox = Mailbox(setting.edges, Kind.POTENTIALS, lengths)
        return KeptSums(view, rows, channel, probe, turns, mailbox, options.patience)
    schedule = SampledSchedule(protocol, view.role, view.index, options.neighbours, options.pairs, options.seed)
    return MRBCD(view, rows, channel, probe, schedule, options.eta)


@contextmanager
def open_channels(setting: Setting, view: AgentView, options: Options) -> Iterator[Channels]:
    """Planned once, freed at the end of the ``with`` block."""
    neighbours, own = view.neighbours, view.shares.size
    counts = {j: int(setting.sizes.counts[view.role.other][j]) for j in neighbours}
    one_pass, target = options.solver == "sinkhorn", view.role is Role.TARGET

    def both_ways(kind: Kind) -> Channel:
        outgoing = dict.fromkeys(neighbours, np.zeros(own))
        if one_pass and not target:
            outgoing = {j: np.zeros(length) for j, length in counts.items()}
        lengths = dict.fromkeys(neighbours, own) if one_pass and target else counts
        return Channel(setting.edges, kind, outgoing, {j: np.zeros(length) for j, length in lengths.items()})

    down = {j: np.zeros(own if target else count) for j, count in counts.items()} if one_pass else {}
    with (
        both_ways(Kind.POTENTIALS) as rounds,
        both_ways(Kind.OBJECTIVES) as probe,
        Channel(setting.edges, Kind.CURVATURES, {} if target else down, down if target else {}) as curvatures,
    ):
        yield Channels(rounds, probe, curvatures)


def check_resolution(view: AgentView, owner: str) -> None:
    """Refuse an eps that vanishes in the rounding of the potentials, which are as large as a row's smallest cost."""
    if not view.blocks:
        return
    nearest = np.max([block.log_kernel.max(axis=1) for block in view.blocks.values()], axis=0)
    largest = float(-nearest.min())
    if not largest < LARGEST_EXPONENT:
        raise InputError(too_small(owner, largest, view.eps))


def largest_local_distance(holding: Holding, kernel: Kernel) -> float:
    """max_j W_eps(mu_i, gamma_j) over a source agent's edges: its part of the paper's tau."""
    view, shares = holding.view, holding.shares
    if holding.rows is not None:
        holding.rows.release()  # the solver is done with it, and the pairs have the same memory
    return max((
        view.eps * local_distance(
            RowBlock(
                kernel.pairs(holding.own[j], theirs),
                np.log(shares[j]),
                {j: slice(None)},
                view.shares,
                1.0,
                memory=holding.memory,
                threads=holding.threads,
            ),
            view.shares,
            shares[j],
        )
        for j, theirs in holding.shown.items()
    ), default=-np.inf)  # fmt: skip
