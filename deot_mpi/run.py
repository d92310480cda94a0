"""The program: ``mpirun -n 16 python -m deot_mpi.run [eot|gromov|adapt|audit]``.

The one place that parses, prints and sets the exit code.

Exit codes: 0 done, 2 unusable input, 3 stopped early but resumable, 4 finished without some agents, 130 interrupted
(Ctrl-C), 1 anything else.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TextIO

from mpi4py import MPI

from deot_mpi import __version__
from deot_mpi.adapt import solve_adapt
from deot_mpi.agent import Agents
from deot_mpi.audit import solve_audit
from deot_mpi.command.arguments import Inputs, Job, config_path, parse, repeating
from deot_mpi.command.flag_values import HelpWanted
from deot_mpi.data.files import load_alignment, load_samples, load_start, rows_by_header
from deot_mpi.data.samples import Samples
from deot_mpi.eot import solve_eot
from deot_mpi.errors import AgentLostError, AloneError, DeotError, InputError, NothingLeftError, StoppedError
from deot_mpi.exchange.join import agree, broadcast_text, same_everywhere
from deot_mpi.exchange.ledger import Ledger
from deot_mpi.exchange.losses import losses_understood
from deot_mpi.exchange.placing import place_agents
from deot_mpi.exchange.waiting import wait_all
from deot_mpi.faults.deadline import wait_for_turn
from deot_mpi.faults.keeper import Stop
from deot_mpi.faults.stopping import StopRequests, interrupt_on_request
from deot_mpi.faults.survival import fewer_than
from deot_mpi.gromov import solve_gromov
from deot_mpi.kernel import loops
from deot_mpi.options import AdaptOptions, AuditOptions, GromovOptions, Options
from deot_mpi.privacy.disclosure import warning
from deot_mpi.privacy.explain import lessons, told
from deot_mpi.privacy.findings import AuditResult
from deot_mpi.report.files import check_writable, make_folder, save_potential, write_json
from deot_mpi.report.plot import check_plot, draw_convergence
from deot_mpi.result import Result
from deot_mpi.roles import Role
from deot_mpi.running import Progress
from deot_mpi.solvers import Status

_START_TIMEOUT = 60.0
"""Seconds the ranks wait for each other before the options (and their own timeout) are known."""
_FINISHED_WITHOUT = 4
_LEAVING_SECONDS = 0.3
_GOING_ON = "(--on-failure continue goes on without agents that are lost once the samples are being read.)"
_LOST_LATE = "an agent was lost once the values were known: they are of all, but what it had to write may be missing."
_LAUNCHED_SIZE = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE", "SLURM_STEP_NUM_TASKS")


def main(argv: list[str] | None = None, comm: MPI.Intracomm = MPI.COMM_WORLD) -> int:
    """Run one command line on every rank. Returns the exit code, or ends all ranks."""
    try:
        with losses_understood():
            return _run(comm, sys.argv[1:] if argv is None else argv)
    except HelpWanted as wanted:
        text, stream, code = str(wanted), sys.stdout, 0
    except (InputError, StoppedError) as error:  # agreed on: every rank is here
        text, stream, code = f"deot_mpi: error: {error}\n", sys.stderr, error.exit_code
    except NothingLeftError as error:
        _end_without_them(comm if error.comm is None else error.comm, f"deot_mpi: error: {error}\n", error.exit_code)
    except AloneError as error:
        print(f"deot_mpi: rank {comm.rank}: {error}\n{traceback.format_exc()}", end="", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)  # noticed at once, as leaving in any other way is not
    except AgentLostError as error:
        wait_for_turn(comm)
        _end_all(comm, f"deot_mpi: error on rank {comm.rank}: {error} {_GOING_ON}\n", 1)
    except DeotError as error:
        text, code = f"deot_mpi: error on rank {comm.rank}: {error}\n", error.exit_code
        _end_all(comm, text, code, in_turn=error.everywhere)
    except KeyboardInterrupt:
        wait_for_turn(comm)
        _end_all(comm, f"deot_mpi: rank {comm.rank} was interrupted\n", 130)
    except BaseException:
        _end_all(comm, f"deot_mpi: unexpected failure on rank {comm.rank}\n{traceback.format_exc()}", 1)
    return _say_once(comm, text, stream, code)


def _run(comm: MPI.Intracomm, argv: list[str]) -> int:
    # Before the ranks have met, where it can be: a request to stop may come at any moment.
    stop = StopRequests() if any(word.startswith("--checkpoint") for word in argv) else None
    job = _understand(comm, argv)
    if stop is None and job.options.checkpoint is not None:
        stop = StopRequests()
    if stop is None:
        interrupt_on_request()
    timeout = job.options.timeout
    sources = _split(comm, job)
    comm = _placed(comm, job, sources)
    role = Role.SOURCE if comm.rank < sources else Role.TARGET
    members = {"source": sources, "target": comm.size - sources}
    _check_outputs(comm, job, timeout)

    warned = warning(job.options)
    if comm.rank == 0:
        if warned is not None:
            print(f"deot_mpi: warning: {warned}", file=sys.stderr, flush=True)
        if job.outputs.explain:
            print(told(job.options, members), flush=True)

    def load(agents: Agents) -> Samples:
        count = sources if agents.role is Role.SOURCE else comm.size - sources  # also where some were lost before
        return _load(job.inputs, agents, count, labelled=_has_labels(job.options))

    if comm.rank == 0:
        from deot_mpi.report.progress import ProgressLine  # only one rank speaks: the others start faster without

        with ProgressLine(job.outputs.progress, job.options) as progress:
            result = _solve(comm, role, load, job, progress, stop)
    else:
        result = _solve(comm, role, load, job, None, stop)
    more: dict[str, Any] = {
        "settings": {**result.settings, **_provenance(job, sources)},
        "disclosure": lessons(job.options, members),
    }
    result = replace(result, **more)
    page = partial(_write_page, repeat=repeating(argv, comm.size, job.options.seed), warned=warned)
    if isinstance(result, AuditResult):
        return _written(comm, job, result, page)
    left = comm if result.comm is None else result.comm
    code = 1 if result.status is Status.DIVERGED else 0
    code = _written(left, job, result, page) or code
    if job.options.on_failure == "continue":
        gone = bool(result.lost_agents)
        while (fewer := fewer_than(left, job.options)) is not None:
            left, gone = fewer, True
            if left.rank == 0:
                print(f"deot_mpi: warning: {_LOST_LATE}", file=sys.stderr, flush=True)
            code = _written(left, job, result, page) or code
        _leave_without_them(left, code or (_FINISHED_WITHOUT if gone else 0))
    return code


def _end_without_them(survivors: MPI.Intracomm, text: str, code: int) -> NoReturn:
    if survivors.rank == 0:
        print(text, end="", file=sys.stderr, flush=True)
    _leave_without_them(survivors, code)


def _leave_without_them(survivors: MPI.Intracomm, code: int) -> NoReturn:
    """MPI's own end can hang once a process is lost: those who are left wait for each other, and go.

    One of them brings the exit code, after the others: of prterun 3.0.13, 7 of 40 hung for ever when all left at once
    with a code that is not 0, and none when one did.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    with suppress(DeotError):
        wait_all([survivors.Ibarrier()], 10.0, lambda: "the others that are left")
    if survivors.rank:
        os._exit(0)
    time.sleep(_LEAVING_SECONDS)
    os._exit(code)


def _solve(
    comm: MPI.Intracomm,
    role: Role,
    load: Callable[[Agents], Samples],
    job: Job,
    progress: Progress | None,
    stop: Stop | None,
) -> Result | AuditResult:
    folder, options = job.inputs.start, job.options
    start = None if folder is None else partial(load_start, folder)
    if isinstance(options, AuditOptions):
        return solve_audit(comm, role, load, options, progress)
    if isinstance(options, AdaptOptions):
        return solve_adapt(comm, role, load, options, progress, start, stop)
    if isinstance(options, GromovOptions):
        alignment = None if folder is None else partial(load_alignment, folder)
        return solve_gromov(comm, role, load, options, progress, start, alignment)
    return solve_eot(comm, role, load, options, progress, start, stop)


def _has_labels(options: Options) -> bool:
    return isinstance(options, AdaptOptions) or (isinstance(options, AuditOptions) and options.mapped)


def _provenance(job: Job, sources: int) -> dict[str, object]:
    """What, with the options, makes a run repeatable."""
    inputs = {key: value for key, value in asdict(job.inputs).items() if key != "synthetic" and value is not None}
    if job.inputs.source is None:
        inputs |= {key: value for key, value in asdict(job.inputs.synthetic).items() if value is not None}
    passes = "numpy" if loops.compiled is None else "compiled"
    return {
        "version": __version__,
        "passes": passes,
        "problem": job.command,
        "sources": sources,
        "placement": job.placement,
        **inputs,
    }


def _understand(comm: MPI.Intracomm, argv: list[str]) -> Job:
    """The command line and the config file, the latter read by rank 0 alone."""
    job, wanted, error, path, config = None, None, None, None, ""
    try:
        path = config_path(argv)
        if path is not None and comm.rank == 0:
            config = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as caught:
        error = f"the config file cannot be read ({caught})."
    except InputError as caught:
        error = str(caught)
    agree(comm, error, _START_TIMEOUT)
    # In one text, whoever has a config file: ranks started differently must not wait for different messages.
    fresh, _, config = broadcast_text(comm, f"{secrets.randbits(62)}\n{config}", 0, _START_TIMEOUT).partition("\n")
    try:
        job = parse(argv, None if path is None else config, int(fresh))
    except InputError as caught:
        error = str(caught)
    except HelpWanted as caught:
        wanted = caught
    agree(comm, error, _START_TIMEOUT)
    alike = {"config": path is not None, "help": job is None, "sources": None if job is None else job.sources}
    same_everywhere(comm, alike, _START_TIMEOUT, Ledger())
    if wanted is not None:
        raise wanted
    assert job is not None
    return job


def _split(comm: MPI.Intracomm, job: Job) -> int:
    """The number of source agents; the same on every rank."""
    if comm.size == 1:
        launched = max((int(os.environ.get(name) or 1) for name in _LAUNCHED_SIZE), default=1)
        hint = (
            f"the launcher started {launched} processes, each sees only itself: mpirun and mpi4py are of different MPIs"
            if launched > 1
            else "start it with mpirun -n 2 (or more) python -m deot_mpi.run"
        )
        raise InputError(f"one rank only, and a job needs a source and a target agent; {hint}.")
    sources = comm.size // 2 if job.sources is None else job.sources
    if not 1 <= sources < comm.size:
        raise InputError(
            f"--sources {sources} with {comm.size} ranks leaves {max(comm.size - sources, 0)} targets; "
            f"choose 1 to {comm.size - 1}."
        )
    return sources


def _placed(comm: MPI.Intracomm, job: Job, sources: int) -> MPI.Intracomm:
    """The ranks in the order of the agents they play: as they are, or as --placement wants it."""
    wanted = {"placement": job.placement, "sources": sources}
    same_everywhere(comm, wanted, job.options.timeout, Ledger())
    if job.placement == "ranks":
        return comm
    inputs, source = job.inputs, comm.rank < sources
    agent, agents = (comm.rank, sources) if source else (comm.rank - sources, comm.size - sources)
    pattern = inputs.source if source else inputs.target
    if pattern is None:
        rows: int | None = inputs.synthetic.count(agent, agents)
    else:
        rows = rows_by_header(pattern, agent, agents if inputs.slice else None)
    return place_agents(comm, sources, rows, job.options)


def _load(inputs: Inputs, agents: Agents, count: int, labelled: bool) -> Samples:
    """This agent's own samples, from its file or its share of a synthetic set."""
    source, index = agents.role is Role.SOURCE, agents.known_as(agents.role, agents.index)
    pattern = inputs.source if source else inputs.target
    if pattern is None:
        return inputs.synthetic.share(agents.role, index, count)
    weights = inputs.source_weights if source else inputs.target_weights
    features = inputs.source_features if source else inputs.target_features
    labels = inputs.source_labels if source else inputs.target_labels
    return load_samples(
        pattern, index, agents.name, weights, features, labels, labelled=labelled,
        sharing=count if inputs.slice else None,
    )  # fmt: skip


def _check_outputs(comm: MPI.Intracomm, job: Job, timeout: float) -> None:
    error = None
    try:
        make_folder(job.outputs.save, "--save", f"rank {comm.rank}")
        make_folder(job.options.checkpoint, "--checkpoint", f"rank {comm.rank}")
        if comm.rank == 0:
            check_plot(job.outputs.plot)
            check_writable(job.outputs.json, "--json")
            check_writable(job.outputs.plot, "--plot")
            check_writable(job.outputs.report, "--report")
    except InputError as caught:
        error = str(caught)
    agree(comm, error, timeout)


_Page = Callable[[Result | AuditResult, str], None]


def _written(comm: MPI.Intracomm, job: Job, result: Result | AuditResult, page: _Page) -> int:
    """Write and print what there is; the exit code, the same on all ranks. What cannot be written costs no result."""
    failures = []
    for flag, path, write in _files(comm, job, result, page):
        try:
            write()
        except OSError as error:
            failures.append(f"rank {comm.rank}: {flag} {path} could not be written ({error}).")
    if comm.rank == 0:
        _print(result)
    code = 0
    try:
        agree(comm, " ".join(failures) or None, job.options.timeout)
    except InputError as error:
        code = 1
        if comm.rank == 0:
            print(f"deot_mpi: error: {error}", file=sys.stderr, flush=True)
    except AgentLostError:
        if job.options.on_failure == "abort":
            raise
    return code


def _files(
    comm: MPI.Intracomm, job: Job, result: Result | AuditResult, page: _Page
) -> Iterator[tuple[str, str, Callable[[], None]]]:
    """What this rank has to write: the flag that asked for it, where, and how."""
    outputs = job.outputs
    if outputs.save is not None and not isinstance(result, AuditResult):
        yield "--save", outputs.save, partial(save_potential, result, outputs.save)
    if comm.rank == 0 and outputs.json is not None:
        yield "--json", outputs.json, partial(write_json, result, outputs.json)
    if comm.rank == 0 and outputs.plot is not None:
        yield "--plot", outputs.plot, partial(_draw, result, outputs.plot)
    if comm.rank == 0 and outputs.report is not None:
        yield "--report", outputs.report, partial(page, result, outputs.report)


def _write_page(result: Result | AuditResult, path: str, *, repeat: str, warned: str | None) -> None:
    from deot_mpi.report.html import write_report

    write_report(result, path, repeat, warned)


def _draw(result: Result | AuditResult, path: str) -> None:
    if isinstance(result, AuditResult):
        from deot_mpi.report.privacy import draw_frontier

        draw_frontier(result, path)
    else:
        draw_convergence(result, path)


def _print(result: Result | AuditResult) -> None:
    if isinstance(result, AuditResult):
        from deot_mpi.report.privacy import print_audit

        print_audit(result)
    else:
        from deot_mpi.report.terminal import print_result

        print_result(result)
    sys.stdout.flush()


def _say_once(comm: MPI.Intracomm, text: str, stream: TextIO, code: int) -> int:
    """Print on rank 0; the others wait, because the launcher ends a job at the first rank that leaves with an error."""
    if comm.rank == 0:
        print(text, end="", file=stream, flush=True)
    try:
        wait_all([comm.Ibarrier()], 10.0, lambda: "the other ranks")
    except DeotError as error:
        _end_all(comm, f"deot_mpi: rank {comm.rank}: {error}\n", code or error.exit_code)
    return code


def _end_all(comm: MPI.Intracomm, text: str, code: int, *, in_turn: bool = False) -> NoReturn:
    """Say it, give the text time to leave, and end the job; ``in_turn`` where the others are about to do so, too."""
    print(text, end="", file=sys.stderr, flush=True)
    time.sleep(0.2)
    if in_turn:
        wait_for_turn(comm)
    comm.Abort(code)
    raise SystemExit(code)  # not reached: Abort ends this process, too


if __name__ == "__main__":
    sys.exit(main())
