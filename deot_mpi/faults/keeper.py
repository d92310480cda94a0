"""Checkpoints of a run: written between rounds, agreed on when it goes on, and a last one when it is asked to stop."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import astuple, fields

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from deot_mpi.data.samples import Floats
from deot_mpi.errors import DeotError, InputError, StoppedError
from deot_mpi.exchange.join import PROTOCOL_VERSION
from deot_mpi.exchange.waiting import wait_all
from deot_mpi.faults.checkpoint import Checkpoint, Fingerprints, Folder, TornError
from deot_mpi.kinds import Kind
from deot_mpi.options import Options
from deot_mpi.result import TracePoint
from deot_mpi.roles import Role
from deot_mpi.setting import Setting
from deot_mpi.solvers import Solver, SolverState
from deot_mpi.solvers.saving import Arrays, restored, saved

Stop = Callable[[], bool]
"""Whether this process was asked to stop."""

_OWN_BUSINESS = ("rounds", "every", "resume", "on_failure", "checkpoint")
"""Options that may differ from those of the run that is gone on with: they change no round."""
_NONE = -1
_OFFERED = 2
"""Checkpoints that an agent offers to go on from: the newest, and the last one it knows that all have."""


class Keeper:
    """What one agent does about checkpoints; without a folder, nothing."""

    def __init__(self, setting: Setting, options: Options, private_seed: int, stop: Stop | None) -> None:
        self._setting, self._options, self._stop = setting, options, stop
        self.private_seed, self.phase = private_seed, 0
        self.resumed: Checkpoint | None = None
        self._folder: Folder | None = None
        self._trace: list[TracePoint] = []
        self._asked: tuple[MPI.Request, NDArray[np.int32], int | None] | None = None
        """A question to all that is under way, and the round that was to be written when it was asked."""
        self._wrote, self._common, self._failures = _NONE, _NONE, 0
        self.beside: Arrays = {}
        """What was found before the rounds, to be written with every checkpoint of them."""
        if options.checkpoint is None:
            return
        agents = setting.agents
        self._folder = Folder(options.checkpoint, agents.role, agents.known_as(agents.role, agents.index))
        self._fingerprints = fingerprints(setting, options)
        self._run = int(setting.collectives.tell(str(secrets.randbits(62)) if agents.comm.rank == 0 else None))
        if options.resume:
            self._agree()

    def _agree(self) -> None:
        """Find the last round of which all agents have a checkpoint of one and the same run."""
        setting, folder = self._setting, self._folder
        assert folder is not None
        own = setting.collectives.all_or_none(self._usable)
        row = np.full(2 * _OFFERED, _NONE, dtype=np.int64)
        for place, found in enumerate(own[:_OFFERED]):
            row[2 * place : 2 * place + 2] = found.round, found.run
        table = setting.collectives.share(Kind.CONTROL, row)
        offers = [
            {(int(round_), int(run)) for round_, run in line.reshape(-1, 2) if round_ != _NONE}
            for line in np.concatenate([table.source, table.target])
        ]
        if not any(offers):
            return  # the first of several jobs with the same command line
        common = set.intersection(*offers)
        if not common:
            raise InputError(
                f"resume: the agents' checkpoints do not fit together ({self._words(table.source, table.target)}); "
                "start without --resume."
            )
        chosen = max(common)
        self.resumed = next(found for found in own if (found.round, found.run) == chosen)
        self._run, self.private_seed, self.phase = self.resumed.run, self.resumed.private_seed, self.resumed.phase
        self._wrote = self._common = self.resumed.round

    def _usable(self) -> list[Checkpoint]:
        """This agent's own checkpoints, the newest first; torn ones do not count, foreign ones are refused."""
        assert self._folder is not None
        found = []
        for round_ in self._folder.rounds():
            try:
                one = self._folder.read(round_)
            except (TornError, OSError):
                continue
            differing = self._fingerprints.differences(one.fingerprints)
            if differing:
                raise InputError(
                    f"{self._setting.agents.name}: {self._folder.file(round_)} is of a run with other "
                    f"{' and '.join(differing)}; give the same ones, another folder, or leave out --resume."
                )
            found.append(one)
        return found

    def _words(self, source: NDArray[np.int64], target: NDArray[np.int64]) -> str:
        agents, said = self._setting.agents, []
        for role, table in ((Role.SOURCE, source), (Role.TARGET, target)):
            for index, line in enumerate(table):
                rounds = [str(round_) for round_ in line[::2] if round_ != _NONE]
                said.append(f"{role.value} {agents.known_as(role, index)}: {' and '.join(rounds) or 'none'}")
        return ", ".join(said[:4]) + (", ..." if len(said) > 4 else "")

    def start(self, solver: Solver, first: Floats | None, trace: list[TracePoint]) -> SolverState:
        """The state to begin with: that of the checkpoint, or a new one. ``trace`` is kept, and gone on with."""
        self._trace = trace
        if self.resumed is None:
            return solver.setup(first)

        def restore() -> SolverState:
            assert self.resumed is not None
            arrays = self.resumed.arrays
            try:
                trace.extend(
                    _point(row) for row in np.atleast_2d(np.asarray(arrays["trace"], dtype=np.float64)) if row.size
                )
                return restored(solver, arrays)
            except (KeyError, ValueError, TypeError, IndexError) as error:
                raise InputError(
                    f"{self._setting.agents.name}: the checkpoint of round {self.resumed.round} lacks a part "
                    f"({error}); start without --resume."
                ) from error

        return self._setting.collectives.all_or_none(restore)

    @property
    def resumed_from(self) -> int | None:
        return None if self.resumed is None else self.resumed.round

    def between(self, solver: Solver) -> Callable[[SolverState], None] | None:
        """What to do after every round but the last."""
        if self._folder is None:
            return None
        return lambda state: self._after(solver, state)

    def before(self, state: SolverState) -> None:
        """After every round of what comes before the run's own: there is nothing to write yet, but all may be asked to
        stop."""
        if self._folder is None:
            return
        if self._answered():
            raise StoppedError(
                "asked to stop, and stopped while the self-terms were computed, before the first round and checkpoint; "
                "begin again with --resume."
            )
        self._ask(None, failed=False)

    def _after(self, solver: Solver, state: SolverState) -> None:
        failed = False
        if self._answered():
            if state.round != self._wrote:
                failed = not self._write(solver, state)
            self._leave(state.round, failed)
        due = state.round % self._options.every == 0
        if due:
            failed = not self._write(solver, state)
        self._ask(state.round if due else None, failed)

    def _ask(self, written: int | None, failed: bool) -> None:
        """Ask all whether any was asked to stop, or could not write; answered after the next round: nobody waits."""
        wanted = self._stop is not None and self._stop()
        flags = np.array([wanted, failed], dtype=np.int32)
        self._setting.ledger.collective(Kind.CONTROL, flags.nbytes)
        request = self._setting.agents.comm.Iallreduce(MPI.IN_PLACE, flags, MPI.MAX)
        self._asked = request, flags, written

    def _answered(self) -> bool:
        """Whether any agent was asked to stop by the round before; also, whether all have written then."""
        if self._asked is None:
            return False
        (request, flags, written), self._asked = self._asked, None
        wait_all([request], self._options.timeout, lambda: "some agent, between rounds")
        if written is not None and not flags[1]:
            self._common = written
            assert self._folder is not None
            self._folder.keep({self._common})
        return bool(flags[0])

    def _write(self, solver: Solver, state: SolverState) -> bool:
        assert self._folder is not None
        solver.settle(state)
        trace = np.array([astuple(point) for point in self._trace], dtype=np.float64)
        arrays = saved(solver, state) | self.beside | {"trace": trace}
        one = Checkpoint(state.round, self._run, self.private_seed, self.phase, self._fingerprints, arrays)
        try:
            self._folder.write(one)
            self._folder.keep({self._common, state.round})
        except OSError:
            self._failures += 1
            return False
        self._wrote = state.round
        return True

    def _leave(self, round_: int, failed: bool) -> None:
        """All agents know that one was asked to stop, and have written: say what can be gone on from, and end."""
        table = self._setting.collectives.share(Kind.CONTROL, np.array([float(failed)]))
        if not (table.source.any() or table.target.any()):
            raise StoppedError(f"asked to stop, and stopped after round {round_}; go on from there with --resume.")
        if self._common == _NONE:
            raise DeotError(f"asked to stop, and stopped after round {round_}, but not all could write a checkpoint.")
        raise StoppedError(
            f"asked to stop, and stopped after round {round_}, of which not all could write a checkpoint; go on from "
            f"round {self._common} with --resume."
        )

    def close(self) -> tuple[str, ...]:
        """The rounds are over: settle what is open, and say what could not be written."""
        if self._folder is None:
            return ()
        self._answered()
        table = self._setting.collectives.share(Kind.CONTROL, np.array([float(self._failures)]))
        agents = self._setting.agents
        resumed = () if self.resumed is None else (f"Resumed: from the checkpoint of round {self.resumed.round}.",)
        return resumed + tuple(
            f"Checkpoints: {role.value} agent {agents.known_as(role, index)} could not write {int(count)} of them."
            for role in Role
            for index, count in enumerate(table.of(role)[:, 0])
            if count
        )


def _point(row: Floats) -> TracePoint:
    named = {field.name: float(number) for field, number in zip(fields(TracePoint), row, strict=True)}
    whole = {name: int(named[name]) for name in ("round", "bytes", "start", "outer", "trial", "staleness")}
    return TracePoint(**{**named, **whole})  # type: ignore[arg-type]


def fingerprints(setting: Setting, options: Options) -> Fingerprints:
    """Of an agent's samples, of the options that decide the rounds, and of who the agents are and how linked."""
    samples, agents, data = setting.samples, setting.agents, hashlib.sha256()
    for array in (samples.rows, samples.weights, samples.features, samples.labels):
        data.update(b"-" if array is None else repr((array.shape, array.dtype.str)).encode() + array.tobytes())
    shared = {name: value for name, value in options.shared().items() if name not in _OWN_BUSINESS}
    shared["private_seed"] = getattr(options, "private_seed", None)
    if isinstance(options.protocol, np.ndarray):
        shared["protocol"] = options.protocol.tolist()
    counted = (PROTOCOL_VERSION, agents.role.value, agents.index, agents.sources, agents.targets)
    linked = repr(counted).encode() + setting.protocol.E.tobytes()
    return Fingerprints(data.hexdigest(), _hex(repr(sorted(shared.items())).encode()), _hex(linked))


def _hex(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
