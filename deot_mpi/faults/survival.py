"""Going on without agents that are lost (ULFM): notice, tell, agree on who is left, drop the others from E, try again.

Every attempt is a whole run over those who are left, from the samples, the centre, the eps and the potentials that each
has already. So a loss at any moment is treated alike, and the end is that of a run that had started without the lost
ones, but for eps and the centre, which stay what they were.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from deot_mpi.agent import Agents
from deot_mpi.data.samples import Floats, Samples
from deot_mpi.errors import AgentLostError, AloneError, DeotError, InputError, NothingLeftError
from deot_mpi.exchange.losses import losses_understood, lost
from deot_mpi.exchange.waiting import wait_all
from deot_mpi.faults.deadline import deadline
from deot_mpi.faults.keeper import Keeper, Stop
from deot_mpi.faults.stopping import StopRequests
from deot_mpi.options import Options
from deot_mpi.reference import REFERENCE_TIMEOUT
from deot_mpi.result import LostAgent, Result
from deot_mpi.roles import Role
from deot_mpi.setting import Setting, meet
from deot_mpi.solvers import SolverState

Ended = TypeVar("Ended", bound=Result)
Settled = TypeVar("Settled", bound=Options)

_MET, _SETTLED, _MOVED = 1, 2, 4
"""What an agent may have to bring along; used where all who are left have it."""
_ENABLED = "OMPI_MCA_mpi_ft_enable"


@dataclass(frozen=True)
class Agreed:
    """What all knew of each other once they had met: who, how heavy, and E."""

    indices: dict[Role, NDArray[np.int64]]
    shares: dict[Role, Floats]
    E: Floats
    samples: Samples
    """This agent's own, and its rows less the centre."""
    rows: Floats


@dataclass
class Past:
    """What one agent brings from the attempts before."""

    private_seed: int
    roles: tuple[Role, ...] = ()
    """Of every rank that there was when the run began."""
    members: tuple[int, ...] = ()
    """Of these ranks, those that are left."""
    agreed: Agreed | None = None
    settled: tuple[Options, Any] | None = None
    """The options once eps, bits and flips were settled, and how they were."""
    state: SolverState | None = None
    """Of the attempt at work."""
    potential: Floats | None = None
    """That the attempts before have reached."""
    rounds: int = 0
    """That they have done."""
    lost: tuple[LostAgent, ...] = ()

    def left(self, role: Role) -> NDArray[np.int64]:
        """Who is left of a role, by the index they had when the run began."""
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
        """As ``setting.meet``; after a loss with the samples and the centre of before, and what is left of E.

        In spaces of their own, domains are centred anew: the formulas hold for no other centre.
        """
        left = {name: self.left(name) for name in Role} if self.lost else None
        known = self.agreed
        if known is None:
            if left is not None and isinstance(options.protocol, np.ndarray):
                options = replace(options, protocol=_scaled(options.protocol[np.ix_(*(left[name] for name in Role))]))
            setting = meet(comm, role, load, options, one_space=one_space, centre=centre, left=left)
            sizes, indices = setting.sizes, setting.agents.left
            shares = {name: sizes.shares(name) for name in Role}
            self.agreed = Agreed(indices, shares, setting.protocol.E, setting.samples, setting.rows)
            return setting
        options, anew = replace(options, protocol=self._what_is_left(known)), centre and not one_space
        setting = meet(comm, role, lambda _: known.samples, options, one_space=one_space, centre=anew, left=left)
        return setting if anew else replace(setting, rows=known.rows)

    def _what_is_left(self, known: Agreed) -> Floats:
        kept = [np.isin(known.indices[role], self.left(role)) for role in Role]
        return _scaled(known.E[np.ix_(*kept)])

    def keeper(self, setting: Setting, options: Options, stop: Stop | None) -> Keeper:
        """Of checkpoints; after a loss none are written, and those that were are of all agents."""
        if self.lost:
            options = options.without_checkpoints()
            if isinstance(stop, StopRequests):
                stop.release()
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
        return first if self.potential is None else self.potential

    @property
    def flags(self) -> int:
        reached = self.potential if self.state is None else self.state.potential
        return (
            _MET * (self.agreed is not None)
            + _SETTLED * (self.settled is not None)
            + _MOVED * (reached is not None and bool(np.isfinite(reached).all()))
        )

    def drop(self, common: int, gone: list[int]) -> None:
        """After a loss: keep what all have, and take the lost ranks (of the communicator that had them) out of it."""
        if self.state is not None:
            self.rounds, self.potential, self.state = self.rounds + self.state.round, self.state.potential, None
        if not common & _MOVED:
            self.potential = None
        if not common & _SETTLED:
            self.settled = None
        if not common & _MET:
            self.agreed = None
        before = {role: self.left(role) for role in Role}
        self.members = tuple(rank for place, rank in enumerate(self.members) if place not in gone)
        known = self.agreed
        for role in Role:
            for index in np.setdiff1d(before[role], self.left(role)):
                mass = None if known is None else float(known.shares[role][known.indices[role] == index][0])
                self.lost += (LostAgent(role.value, int(index), self.rounds, mass),)
            if not self.left(role).size:
                raise NothingLeftError(f"all {role.value} agents are lost; there is nothing left to compare.")
        if known is not None and not self._what_is_left(known).any():
            raise NothingLeftError("no two of the agents left have an edge in E; there is nothing left to compare.")


def _scaled(weights: Floats) -> Floats:
    total = float(weights.sum())
    return weights / total if total > 0 else np.zeros_like(weights)


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
        with deadline(_patience(options), "agreeing on who is left"):
            if _all_well(base, outcome is not None or refused is not None):
                if refused is not None:
                    raise refused
                assert outcome is not None
                return replace(outcome, lost_agents=past.lost, comm=base) if past.lost else outcome
            base = _those_left(base, past)


def fewer_than(comm: MPI.Intracomm, options: Options) -> MPI.Intracomm | None:
    """Those who are left of ``comm``, where any was lost since, or None; the same answer everywhere."""
    with deadline(_patience(options), "agreeing on who is left"):
        if _all_well(comm, True):
            return None
        comm.Revoke()
        left = comm.Shrink()
        assert isinstance(left, MPI.Intracomm)
        return left


def _patience(options: Options) -> float:
    """Agreeing takes as long as what the slowest computes alone before it finds out."""
    alone = options.reference or getattr(options, "max_recovery", None) is not None
    return max(options.timeout, REFERENCE_TIMEOUT) if alone else options.timeout


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
        known = len(past.lost)
        try:
            past.drop(common, [rank for rank, place in enumerate(places) if place == MPI.UNDEFINED])
        except NothingLeftError as error:
            error.comm = comm
            raise
        if comm.rank == 0:
            _say(past.lost[known:], comm.size)
        return comm


def _say(lost: Sequence[LostAgent], left: int) -> None:
    names = ", ".join(f"{one.role} agent {one.index} after {one.round} rounds" for one in lost)
    logging.getLogger("deot_mpi").warning("deot_mpi: lost: %s; the other %d go on, counting from round 1.", names, left)


def require_ulfm() -> None:
    if os.environ.get(_ENABLED) != "1":
        raise InputError(
            "on_failure is 'continue', but this MPI was not started to survive a loss; use Open MPI 5 and "
            "mpirun --with-ft ulfm, or leave it out."
        )
