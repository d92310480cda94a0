"""The command line and the config file: one list of options, the same names in both."""

from __future__ import annotations

import argparse
import re
import tomllib
from dataclasses import dataclass, fields
from typing import Any, NoReturn

from deot_mpi import __version__
from deot_mpi.errors import InputError
from deot_mpi.options import ACCELERATIONS, ESTIMATORS, KERNELS, PRECISIONS, SOLVERS, STOPS, EOTOptions
from deot_mpi.protocol.choose import NAMES
from deot_mpi.synthetic import DATASETS, SCATTERS, SyntheticSet

COMMANDS = ("eot",)
PROGRESS = ("auto", "live", "plain", "none")


class HelpWanted(Exception):  # noqa: N818 - not an error: the user asked for a text
    """The user asked for a text (--help, --version) instead of a run."""


@dataclass(frozen=True)
class Outputs:
    """Where results go besides the screen."""

    json: str | None
    save: str | None
    plot: str | None
    progress: str


@dataclass(frozen=True)
class Inputs:
    """Where samples come from: files by pattern, or a synthetic set; and the potentials to start from, if any."""

    source: str | None
    target: str | None
    source_weights: str | None
    target_weights: str | None
    synthetic: SyntheticSet
    start: str | None


@dataclass(frozen=True)
class Job:
    """One command line, understood."""

    sources: int | None
    inputs: Inputs
    options: EOTOptions
    outputs: Outputs


class _Parser(argparse.ArgumentParser):
    """A parser that speaks through exceptions, so that 16 ranks do not print the same text 16 times."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}. See --help.")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise HelpWanted(message or "")

    def print_help(self, file: Any = None) -> None:
        raise HelpWanted(self.format_help())

    def _print_message(self, message: str, file: Any = None) -> None:
        raise HelpWanted(message)


def config_path(argv: list[str]) -> str | None:
    """The file named by --config, found before the rest is understood (one rank reads it for all)."""
    finder = _Parser(add_help=False, allow_abbrev=False)
    finder.add_argument("--config")
    found, _ = finder.parse_known_args(argv)
    return None if found.config is None else str(found.config)


def parse(argv: list[str], config: str | None = None) -> Job:
    """Understand a command line; ``config`` is the text of the config file, which the command line overrules."""
    arguments = argv[1:] if argv and argv[0] in COMMANDS else argv
    if arguments and not arguments[0].startswith("-"):
        raise InputError(f"'{arguments[0]}' is not a command; commands are {', '.join(COMMANDS)} (the default).")
    parser = build_parser()
    chosen = parser.parse_args(arguments)
    if config is not None:
        chosen = parser.parse_args([*_config_arguments(config, parser, arguments), *arguments])
    if (chosen.source is None) != (chosen.target is None):
        raise InputError("--source and --target come together: give a file pattern for both roles, or for none.")
    if chosen.source is None and (chosen.source_weights or chosen.target_weights):
        raise InputError("weights without samples: --source-weights and --target-weights need --source and --target.")
    named = vars(chosen)
    return Job(
        sources=chosen.sources,
        inputs=Inputs(
            chosen.source,
            chosen.target,
            chosen.source_weights,
            chosen.target_weights,
            SyntheticSet(chosen.dataset, chosen.samples, chosen.dim, chosen.scatter, chosen.seed),
            chosen.start,
        ),
        options=EOTOptions(**{field.name: named[field.name] for field in fields(EOTOptions)}),
        outputs=Outputs(chosen.json, chosen.save, chosen.plot, chosen.progress),
    )


def _config_arguments(text: str, parser: _Parser, arguments: list[str]) -> list[str]:
    """The config file as command-line words, put before the real ones so that these win."""
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise InputError(f"the config file is not valid TOML ({error}).") from error
    flags = {option for action in parser._actions for option in action.option_strings}
    on_line = {word.split("=", 1)[0] for word in arguments}
    words: list[str] = []
    for key, value in table.items():
        flag = "--" + key.replace("_", "-")
        if flag not in flags or flag in ("--help", "--config", "--version"):
            raise InputError(f"the config file has '{key}', which is not an option; options are named as in --help.")
        if flag in ("--eps", "--eps-scale") and on_line & {"--eps", "--eps-scale"}:
            continue
        if isinstance(value, bool):
            words.append(flag if value else "--no-" + flag[2:])
        elif isinstance(value, str | int | float):
            words.append(f"{flag}={value}")
        else:
            raise InputError(
                f"the config file gives '{key}' a {type(value).__name__}; it must be a number, a text or true/false."
            )
    return words


def build_parser() -> _Parser:
    default = EOTOptions()
    parser = _Parser(
        prog="python -m deot_mpi.run",
        usage="mpirun -n RANKS python -m deot_mpi.run [eot] [options]",
        description="Decentralised entropic optimal transport: every MPI rank is one agent with samples of its own. "
        "Without options: 2,000 + 2,000 synthetic samples, sketches only on the wire.",
        formatter_class=argparse.RawTextHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"deot_mpi {__version__}")
    parser.add_argument(
        "--config", metavar="FILE", help="options from a TOML file, named as here; this line overrules it"
    )
    _add_data(parser)
    _add_problem(parser, default)
    _add_protocol(parser, default)
    _add_solver(parser, default)
    _add_outputs(parser)
    return parser


def _add_data(parser: _Parser) -> None:
    group = parser.add_argument_group("agents and their samples")
    group.add_argument(
        "--sources", type=int, metavar="I", help="ranks 0..I-1 are source agents, the rest targets (default: half)"
    )
    group.add_argument(
        "--source", metavar="PATTERN", help="each source agent's own file, e.g. 'site-{agent}.npy' (.npy .npz .csv)"
    )
    group.add_argument("--target", metavar="PATTERN", help="each target agent's own file")
    group.add_argument(
        "--source-weights", metavar="PATTERN", help="per-sample weights, one number a row (default: all equal)"
    )
    group.add_argument("--target-weights", metavar="PATTERN", help="the same for targets")
    group.add_argument(
        "--dataset",
        choices=DATASETS,
        default="gaussian",
        help="synthetic set if no files are given (default: gaussian)",
    )
    group.add_argument(
        "--samples", type=int, default=2000, metavar="N", help="synthetic samples per domain (default: 2000)"
    )
    group.add_argument("--dim", type=int, default=5, metavar="D", help="their dimension (default: 5)")
    group.add_argument(
        "--scatter", choices=SCATTERS, default="iid", help="iid, or one mixture component per agent (default: iid)"
    )
    group.add_argument("--seed", type=int, default=0, help="the one seed of all randomness (default: 0)")


def _add_problem(parser: _Parser, default: EOTOptions) -> None:
    group = parser.add_argument_group("problem and kernel")
    group.add_argument("--eps", type=float, metavar="EPS", help="regularisation in cost units (squared data units)")
    group.add_argument(
        "--eps-scale", type=float, metavar="S", help="regularisation as a share of the mean cost (default: 0.1)"
    )
    group.add_argument(
        "--kernel",
        choices=KERNELS,
        default=default.kernel,
        help="sketch: bits and norms travel; raw: samples do (default: sketch)",
    )
    group.add_argument(
        "--bits", type=int, default=default.bits, metavar="Q", help=f"bits per sketch (default: {default.bits})"
    )
    group.add_argument(
        "--estimator", choices=ESTIMATORS, default=default.estimator, help="angle from bits (default: hamming)"
    )
    for name, text in (
        ("centre", "subtract the global mean first"),
        ("orthogonal", "orthogonal projections"),
        ("correction", "correct the cost for sketch noise"),
    ):
        group.add_argument(
            f"--{name}", action=argparse.BooleanOptionalAction, default=True, help=f"{text} (default: yes)"
        )


def _add_protocol(parser: _Parser, default: EOTOptions) -> None:
    group = parser.add_argument_group("communication protocol E")
    group.add_argument(
        "--protocol",
        default=default.protocol,
        metavar="NAME|FILE",
        help=f"{', '.join(NAMES)},\nor a file (default: uniform, i.e. p q^T)",
    )
    group.add_argument(
        "--degree",
        type=int,
        default=default.degree,
        metavar="k",
        help=f"neighbours in sparse and random graphs (default: {default.degree})",
    )
    group.add_argument(
        "--match",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="choose the weights of the edges nearest to p q^T",
    )


def _add_solver(parser: _Parser, default: EOTOptions) -> None:
    group = parser.add_argument_group("solver")
    group.add_argument(
        "--solver", choices=SOLVERS, default=default.solver,
        help="sinkhorn: all neighbours each round, one pass, accelerated;\n"
        "kept: L of them, exact; mrbcd: the paper's Algorithm 1 (default: sinkhorn)",
    )  # fmt: skip
    group.add_argument(
        "--acceleration",
        choices=ACCELERATIONS,
        default=default.acceleration,
        help="of sinkhorn: Anderson mixing, or plain steps (default: anderson)",
    )
    group.add_argument(
        "--eps-scaling",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="let sinkhorn start at a larger eps where eps is small (default: yes)",
    )
    group.add_argument(
        "--start", metavar="DIR", help="start from the potentials that an earlier run's --save wrote to DIR"
    )
    group.add_argument(
        "--neighbours", type=int, metavar="L", help="neighbours asked per round by kept and mrbcd (default: all)"
    )
    group.add_argument(
        "--pairs", type=int, metavar="B", help="pairs per round of mrbcd; 1 is the paper (default: every agent moves)"
    )
    group.add_argument(
        "--rounds", type=int, default=default.rounds, metavar="T", help=f"rounds at most (default: {default.rounds})"
    )
    group.add_argument("--tol", type=float, default=default.tol, help=f"stop below this (default: {default.tol:g})")
    group.add_argument(
        "--stop",
        choices=STOPS,
        default=default.stop,
        help="what tol is compared with: L1 marginal error, or\n"
        "largest change of a potential per round in units of eps (default: marginal)",
    )
    group.add_argument(
        "--check-every",
        type=int,
        default=default.check_every,
        metavar="K",
        help=f"rounds between measurements (default: {default.check_every})",
    )
    group.add_argument(
        "--eta",
        type=float,
        default=default.eta,
        help="first step of mrbcd in units of eps, then eta/sqrt(t+1) (default: 1)",
    )
    group.add_argument(
        "--precision",
        choices=PRECISIONS,
        default=default.precision,
        help="of the kernel sinkhorn stores; values are always checked in float64\n"
        "(default: auto, i.e. float32 if tol is 1e-6 or more)",
    )
    group.add_argument(
        "--memory",
        type=_byte_count,
        metavar="SIZE",
        help="kernel an agent of sinkhorn may hold, e.g. 500MB; beyond that it is\n"
        "computed again in every round (default: its share of half of the free memory)",
    )
    group.add_argument(
        "--threads", type=int, metavar="T", help="threads of an agent (default: its share of the node's cores)"
    )
    group.add_argument(
        "--timeout",
        type=float,
        default=default.timeout,
        metavar="S",
        help=f"end the run if an agent is silent this long (default: {default.timeout:g} s)",
    )


_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}


def _byte_count(text: str) -> int:
    """'500MB', '4GB', '2GiB' or a number of bytes."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", text)
    unit = "" if match is None else match[2].lower()
    if match is None or (unit not in _UNITS and unit + "b" not in _UNITS):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write it like 500MB, 4GB or 2GiB")
    return round(float(match[1]) * _UNITS.get(unit, _UNITS.get(unit + "b", 1)))


def _add_outputs(parser: _Parser) -> None:
    group = parser.add_argument_group("results")
    group.add_argument(
        "--reference",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="pool the samples on rank 0 and compare with POT",
    )
    group.add_argument("--json", metavar="FILE", help="write the result")
    group.add_argument("--save", metavar="DIR", help="each agent writes its own potentials")
    group.add_argument("--plot", metavar="FILE", help="draw the convergence (.png, .svg, .pdf)")
    group.add_argument(
        "--progress", choices=PROGRESS, default="auto", help="one live line, plain lines, or none (default: auto)"
    )
