"""Going on without agents that are lost (ULFM): notice, tell, agree on who is left, drop the others from E, try again.

Every attempt is a whole run over those who are left, from the samples, the centre, the eps and the potentials that each
has already. So a loss at any moment is treated alike, and the end is that of a run that had started without the lost
ones, but for eps and the centre, which stay what they were.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from deot_mpi.agent import Agents
from deot_mpi.errors import AgentLostError, AloneError, DeotError, InputError, NothingLeftError
from deot_mpi.exchange.received import losses_understood
from deot_mpi.exchange.waiting import lost, wait_all
from deot_mpi.faults.deadline import deadline
from deot_mpi.faults.keeper import Keeper, Stop
from deot_mpi.options import Options
from deot_mpi.result import LostAgent, Result
from deot_mpi.roles import Role
from deot_mpi.samples import Floats, Samples
from deot_mpi.setting import Setting, meet
from deot_mpi.solvers import SolverState

Ended = TypeVar("Ended", bound=Result)
Settled = TypeVar("Settled", bound=Options)

_MET, _SETTLED, _MOVED = 1, 2, 4
"""What an agent may have to bring along; used where all who are left have it."""
_ENABLED = "OMPI_MCA_mpi_ft_enable"


@dataclass
class Past:
    """What one agent brings from the attempts before."""

    private_seed: int
    roles: tuple[Role, ...] = ()
    """Of every rank that there was when the run began."""
    members: tuple[int, ...] = ()
    """Of these ranks, those that are left."""
    setting: Setting | None = None
    settled: tuple[Options, Any] | None = None
    """The options once eps, bits and flips were settled, and how they were."""
    state: SolverState | None = None
    lost: tuple[LostAgent, ...] = ()
    E: Floats | None = None
    """What is left of E, when there was one."""
    rounds: int = 0

    @property
    def left(self) -> dict[Role, NDArray[np.int64]] | None:
        """Of each role, who is left, by the index they had when the run began; None before a loss."""
        return {role: self._indices(role) for role in Role} if self.lost else None

    def _indices(self, role: Role) -> NDArray[np.int64]:
        ranks = np.flatnonzero([one is role for one in self.roles])
        return np.flatnonzero(np.isin(ranks, self.members))

    def meet(
        self,
        comm: MPI.Intracomm,
        role: Role,
        load: Callable[[Agents], Samples],
        options: Options,
        *,
        one_space: bool = True,
        centre: bool = True,
    ) -> Setting:
        """As ``setting.meet``; after a loss with the samples, the centre and the E that are left."""
        known = self.setting
        if known is None:
            setting = meet(comm, role, load, options, one_space=one_space, centre=centre, left=self.left)
        else:
            assert self.E is not None
            same, rows = known.samples, known.rows
            options = replace(options, protocol=self.E)
            setting = meet(comm, role, lambda _: same, options, one_space=one_space, centre=False, left=self.left)
            setting = replace(setting, rows=rows)
        self.setting = setting
        return setting

    def keeper(self, setting: Setting, options: Options, stop: Stop | None) -> Keeper:
        """Of checkpoints; after a loss none are written, and those that were are of all agents."""
        if self.lost:
            options = replace(options, checkpoint=None, resume=False)
        keeper = Keeper(setting, options, self.private_seed, stop)
        self.private_seed = keeper.private_seed
        return keeper

    def settle(self, options: Settled, choose: Callable[[], tuple[Settled, Any]]) -> tuple[Settled, Any]:
        """Options as an earlier attempt has settled them, or as ``choose`` does now."""
        if self.settled is None:
            self.settled = choose()
        chosen, how = self.settled
        assert isinstance(chosen, type(options))
        return chosen, how

    def start(self, first: Floats | None) -> Floats | None:
        """The potential that was reached, or the one given."""
        return first if self.state is None else self.state.potential

    @property
    def flags(self) -> int:
        return (
            _MET * (self.setting is not None)
            + _SETTLED * (self.settled is not None)
            + _MOVED * (self.state is not None and bool(np.isfinite(self.state.potential).all()))
        )

    def drop(self, common: int, gone: list[int]) -> None:
        """After a loss: keep what all have, and take the lost ranks (of the communicator that had them) out of it."""
        self.rounds += 0 if self.state is None else self.state.round
        before = {role: self._indices(role) for role in Role}
        there = {role: 1.0 - sum(one.mass or 0.0 for one in self.lost if one.role == role.value) for role in Role}
        self.members = tuple(rank for place, rank in enumerate(self.members) if place not in gone)
        kept = {role: np.isin(before[role], self._indices(role)) for role in Role}
        if not common & _SETTLED:
            self.settled = None
        if not common & _MOVED:
            self.state = None
        if not common & _MET:
            self.setting = None
        for role in Role:
            for place in np.flatnonzero(~kept[role]):
                shares = None if self.setting is None else self.setting.sizes.shares(role)
                mass = None if shares is None else float(shares[place]) * there[role]
                self.lost += (LostAgent(role.value, int(before[role][place]), self.rounds, mass),)
            if not kept[role].any():
                raise NothingLeftError(f"all {role.value} agents are lost; there is nothing left to compare.")
        if self.setting is None:
            self.E = None
            return
        E = self.setting.protocol.E[np.ix_(kept[Role.SOURCE], kept[Role.TARGET])]
        if not E.sum() > 0:
            raise NothingLeftError(
                "no two of the agents that are left have an edge in E; there is nothing left to compare."
            )
        self.E = E / E.sum()


def survive(
    comm: MPI.Intracomm, role: Role, options: Options, attempt: Callable[[MPI.Intracomm, Past], Ended]
) -> Ended:
    """``attempt``, again and again, each time over the agents that are left; once, where a loss is to end the run."""
    past = Past(secrets.randbits(62))
    if options.on_failure == "abort":
        with losses_understood():
            return attempt(comm, past)
    require_ulfm()
    base, request = comm.Idup()
    wait_all([request], options.timeout, lambda: "the other ranks")
    past.roles, past.members = _roles(base, role, options.timeout), tuple(range(base.size))
    while True:
        outcome: Ended | None = None
        refused: InputError | None = None
        lost.watched = base
        try:
            with losses_understood():
                outcome = attempt(base, past)
        except InputError as error:
            refused = error
        except AgentLostError:
            base.Revoke()
        except DeotError:
            raise
        except Exception as error:
            raise AloneError("this agent has failed; the others go on without it.") from error
        finally:
            lost.watched = None
        with deadline(options.timeout, "agreeing on who is left"):
            if _all_well(base, outcome is not None or refused is not None):
                if refused is not None:
                    raise refused
                assert outcome is not None
                return replace(outcome, lost_agents=past.lost, comm=base) if past.lost else outcome
            base = _those_left(base, past)


def _roles(comm: MPI.Intracomm, role: Role, timeout: float) -> tuple[Role, ...]:
    is_source = np.zeros(comm.size, dtype=np.int8)
    is_source[comm.rank] = role is Role.SOURCE
    wait_all([comm.Iallreduce(MPI.IN_PLACE, is_source, MPI.SUM)], timeout, lambda: "the other ranks")
    return tuple(Role.SOURCE if flag else Role.TARGET for flag in is_source)


def _all_well(comm: MPI.Intracomm, well: bool) -> bool:
    """Whether all agents have come to an end of the attempt. The same answer everywhere, whoever dies meanwhile."""
    try:
        return bool(comm.Agree(int(well)))
    except MPI.Exception:
        return False


def _those_left(comm: MPI.Intracomm, past: Past) -> MPI.Intracomm:
    """A communicator of those who are alive and know it of each other; ``past`` loses the others."""
    first = comm
    while True:
        shrunk = comm.Shrink()
        assert isinstance(shrunk, MPI.Intracomm)
        comm = shrunk
        try:
            common = comm.Agree(past.flags)
        except MPI.Exception:
            continue  # one more was lost meanwhile
        places = MPI.Group.Translate_ranks(first.group, list(range(first.size)), comm.group)
        try:
            past.drop(common, [rank for rank, place in enumerate(places) if place == MPI.UNDEFINED])
        except NothingLeftError as error:
            error.comm = comm
            raise
        return comm


def require_ulfm() -> None:
    if os.environ.get(_ENABLED) != "1":
        raise InputError(
            "on_failure is 'continue', but this MPI was not started to survive a loss; use Open MPI 5 and "
            "mpirun --with-ft ulfm, or leave it out."
        )
