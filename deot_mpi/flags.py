"""All flags of the command line, by group; the parser that knows them speaks through exceptions."""

from __future__ import annotations

import argparse
import re
from functools import partial
from typing import Any, NoReturn

from deot_mpi import __version__
from deot_mpi.errors import InputError
from deot_mpi.options import (
    ACCELERATIONS,
    ESTIMATORS,
    KERNELS,
    METHODS,
    MOMENTS,
    P_UPDATES,
    PENALTIES,
    PRECISIONS,
    READINGS,
    SELF_TERMS,
    SOLVERS,
    STOPS,
    AdaptOptions,
    AuditOptions,
    EOTOptions,
    GromovOptions,
    Options,
)
from deot_mpi.protocol.choose import NAMES
from deot_mpi.scaling import SCALINGS
from deot_mpi.synthetic import DATASETS, SCATTERS

PROGRESS = ("auto", "live", "plain", "none")


class HelpWanted(Exception):  # noqa: N818 - not an error: the user asked for a text
    """The user asked for a text (--help, --version) instead of a run."""


class Parser(argparse.ArgumentParser):
    """A parser that speaks through exceptions, so that 16 ranks do not print the same text 16 times."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}. See --help.")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise HelpWanted(message or "")

    def print_help(self, file: Any = None) -> None:
        raise HelpWanted(self.format_help())

    def _print_message(self, message: str, file: Any = None) -> None:
        raise HelpWanted(message)


def build_parser(command: str = "eot", fresh_seed: int = 0) -> Parser:
    """``fresh_seed`` is what --seed fresh stands for, the same on every rank."""
    default: EOTOptions | GromovOptions = {
        "eot": EOTOptions, "gromov": GromovOptions, "adapt": AdaptOptions, "audit": AuditOptions,
    }[command]()  # fmt: skip
    parser = Parser(
        prog="python -m deot_mpi.run",
        usage=f"mpirun -n RANKS python -m deot_mpi.run {command if command != 'eot' else '[eot]'} [options]",
        description=_DESCRIPTIONS[command],
        formatter_class=argparse.RawTextHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"deot_mpi {__version__}")
    parser.add_argument(
        "--config", metavar="FILE", help="options from a TOML file, named as here; this line overrules it"
    )
    data = _add_data(parser, 5 if isinstance(default, EOTOptions) else 2, fresh_seed)
    problem = _add_problem(parser, default)
    _add_protocol(parser, default)
    solver = _add_solver(parser, default)
    if isinstance(default, EOTOptions):
        _add_noise(parser)
        problem.add_argument(
            "--centre", action=argparse.BooleanOptionalAction, default=True,
            help="subtract the global mean first (default: yes)",
        )  # fmt: skip
        solver.add_argument(
            "--rounds", type=int, default=default.rounds, metavar="T",
            help=f"rounds at most (default: {default.rounds})",
        )  # fmt: skip
        if isinstance(default, AdaptOptions):
            _add_adaptation(parser, default)
        if isinstance(default, AuditOptions):
            _add_audit(parser, default)
    else:
        _add_spaces(data)
        _add_alignment(parser, default)
    _add_outputs(parser)
    return parser


_DESCRIPTIONS = {
    "eot": "Decentralised entropic optimal transport: every MPI rank is one agent with samples of its own.\n"
    "Without options: 2,000 + 2,000 synthetic samples, sketches only on the wire. The other commands\n"
    "are gromov (different spaces), adapt (labels) and audit (privacy): python -m deot_mpi.run gromov --help.",
    "gromov": "Decentralised entropic Gromov-Wasserstein: two domains in spaces of different dimension, compared by\n"
    "their inner distances. Without options: 2,000 + 2,000 synthetic samples in 2 and 3 dimensions.",
    "audit": "What a curious neighbour can make of the sketches this run would send: every agent attacks its own\n"
    "rows as a neighbour would, and statistics are shared. Same data and options as eot; with --reference the\n"
    "error of W~ is measured, too, for which raw rows are sent.",
    "adapt": "Distributed domain adaptation: source agents have labelled rows (.npz with X and y, .csv with a\n"
    "column y), target agents unlabelled ones; each target agent gets labels for its own rows. Where a target\n"
    "file has y, the share of right predictions is reported, and y is used for nothing else.",
}


def _add_noise(parser: Parser) -> None:
    group = parser.add_argument_group("protection of sketches")
    group.add_argument(
        "--flip", type=float, default=0.0, metavar="R",
        help="turn every bit that is sent round with this probability (randomised response)",
    )  # fmt: skip
    group.add_argument(
        "--norm-step", type=float, default=0.0, metavar="S",
        help="send norms whose squares lie on a grid of this relative step, rounded by chance",
    )  # fmt: skip
    group.add_argument(
        "--max-recovery", type=float, metavar="R",
        help="choose bits and flips so that no attack tried comes nearer to a typical row than this share of\n"
        "its length, tried by every agent on its own rows; ends with an error where that cannot be",
    )  # fmt: skip
    group.add_argument(
        "--max-error", type=float, default=0.05, metavar="E",
        help="relative error of W~ that is accepted for that (default: 0.05)",
    )  # fmt: skip
    group.add_argument(
        "--private-seed", type=int, metavar="N",
        help="of that noise, to repeat a run; whoever knows it can undo the noise (default: never the same)",
    )  # fmt: skip


def _add_audit(parser: Parser, default: AuditOptions) -> None:
    group = parser.add_argument_group("attacks")
    group.add_argument(
        "--victims", type=int, default=default.victims, metavar="V",
        help=f"rows of each agent that are attacked (default: {default.victims}, at most half of them)",
    )  # fmt: skip
    for name, what in (("ratios", "Q/D of the frontier"), ("flips", "flip rates of the frontier")):
        values = ",".join(f"{value:g}" for value in getattr(default, name))
        group.add_argument(
            f"--{name}", type=_numbers, default=getattr(default, name), metavar="X,X,...",
            help=f"{what} (default: {values})",
        )  # fmt: skip
    group.add_argument(
        "--trials", type=int, default=default.trials, metavar="N",
        help=f"seeds for the error of W~, with --reference (default: {default.trials})",
    )  # fmt: skip


def _add_adaptation(parser: Parser, default: AdaptOptions) -> None:
    group = parser.add_argument_group("labels")
    group.add_argument(
        "--method", choices=METHODS, default=default.method,
        help="1nn: source rows mapped to the target domain, the nearest one's label;\n"
        "labels: the class that sends a row most mass for its share, no features on the wire;\n"
        "class-regularised: a plan that sends few classes to one row (default: 1nn)",
    )  # fmt: skip
    group.add_argument(
        "--class-penalty", choices=PENALTIES, default=default.class_penalty,
        help="entropy: less regularisation between classes than within;\n"
        "lpl1: POT's sinkhorn_lpl1_mm (default: entropy)",
    )  # fmt: skip
    group.add_argument(
        "--class-weight", type=float, metavar="W",
        help="of the penalty: entropy: the share of eps taken off between classes (default: 0.5);\n"
        "lpl1: in cost units (default: 0.1)",
    )  # fmt: skip
    group.add_argument(
        "--class-rounds", type=int, default=default.class_rounds, metavar="T",
        help=f"transport problems, each with the last one's class sums (default: {default.class_rounds})",
    )  # fmt: skip
    group.add_argument(
        "--class-reading", choices=READINGS, default=default.class_reading,
        help="how class-regularised predicts: as 1nn does, or as labels (default: 1nn)",
    )  # fmt: skip
    group.add_argument(
        "--scaling", choices=SCALINGS, default=default.scaling,
        help="of rows, first: unit: length 1; hellinger: roots of shares, for counts (default: none)",
    )  # fmt: skip
    group.add_argument(
        "--choose-eps", action=argparse.BooleanOptionalAction, default=False,
        help="choose eps from --eps-grid by reverse validation, without target labels",
    )  # fmt: skip
    group.add_argument(
        "--eps-grid", type=_numbers, default=default.eps_grid, metavar="S,S,...",
        help=f"shares of the mean cost (default: {','.join(f'{share:g}' for share in default.eps_grid)})",
    )  # fmt: skip
    group.add_argument(
        "--validation-rows", type=int, default=default.validation_rows, metavar="N",
        help=f"rows of each domain used for that, at most (default: {default.validation_rows})",
    )  # fmt: skip


def _add_spaces(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--target-dim", type=int, default=3, metavar="D", help="dimension of the synthetic targets (default: 3)"
    )
    group.add_argument(
        "--source-features", metavar="PATTERN",
        help="rows of features in a space both domains share, for the fused\nproblem (with --alpha)",
    )  # fmt: skip
    group.add_argument("--target-features", metavar="PATTERN", help="the same for targets")


def _add_alignment(parser: Parser, default: GromovOptions) -> None:
    group = parser.add_argument_group("alignment P")
    group.add_argument(
        "--alpha", type=float, metavar="A",
        help="share of structure against features (default: 1 without features, 0.5 with)",
    )  # fmt: skip
    group.add_argument(
        "--starts", type=int, default=default.starts, metavar="S",
        help=f"random alignments to start from, the best end is kept (default: {default.starts})",
    )  # fmt: skip
    group.add_argument(
        "--outer", type=int, default=default.outer, metavar="T",
        help=f"alignments at most from each start (default: {default.outer})",
    )  # fmt: skip
    group.add_argument(
        "--inner", type=int, default=default.inner, metavar="T",
        help=f"rounds at most for each alignment (default: {default.inner})",
    )  # fmt: skip
    group.add_argument(
        "--p-update", choices=P_UPDATES, default=default.p_update,
        help="closed: half the cross moment, accelerated; gradient: steps of eta/sqrt(t+1);\n"
        "sampled: such steps from one source agent's data, the paper's (default: closed)",
    )  # fmt: skip
    group.add_argument(
        "--moment", choices=MOMENTS, default=default.moment,
        help="with sketches, the cross moment from: surrogate: bits alone (a sigmoid for the sign);\n"
        "exchange: sums of source rows sent to the targets, which tells more (default: surrogate)",
    )  # fmt: skip
    group.add_argument(
        "--self-terms", choices=SELF_TERMS, default=default.self_terms,
        help="S_X and S_Y from sketches shown within a domain, or from second moments\n"
        "(default: auto, i.e. as the kernel)",
    )  # fmt: skip
    group.add_argument(
        "--within", type=int, metavar="K",
        help="agents of its domain an agent shows its sketch for that (default: all, each pair once)",
    )  # fmt: skip


def _add_data(parser: Parser, dimension: int, fresh_seed: int) -> argparse._ArgumentGroup:
    group = parser.add_argument_group("agents and their samples")
    group.add_argument(
        "--sources", type=int, metavar="I", help="ranks 0..I-1 are source agents, the rest targets (default: half)"
    )
    group.add_argument(
        "--source",
        metavar="PATTERN",
        help="each source agent's own file, e.g. 'site-{agent}.npy' (.npy .npz .csv .mat)",
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
    group.add_argument(
        "--dim", type=int, default=dimension, metavar="D", help=f"their dimension (default: {dimension})"
    )
    group.add_argument(
        "--scatter", choices=SCATTERS, default="iid", help="iid, or one mixture component per agent (default: iid)"
    )
    group.add_argument(
        "--seed", type=partial(_seed, fresh_seed), default=0, metavar="N|fresh",
        help="the one seed of all randomness, or a new one, which is reported (default: 0)",
    )  # fmt: skip
    return group


def _add_problem(parser: Parser, default: Options) -> argparse._ArgumentGroup:
    group = parser.add_argument_group("problem and kernel")
    units = "fourth power of" if isinstance(default, GromovOptions) else "squared"
    group.add_argument("--eps", type=float, metavar="EPS", help=f"regularisation in cost units ({units} data units)")
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
        ("orthogonal", "orthogonal projections"),
        ("correction", "correct the cost for sketch noise"),
    ):
        group.add_argument(
            f"--{name}", action=argparse.BooleanOptionalAction, default=True, help=f"{text} (default: yes)"
        )
    return group


def _add_protocol(parser: Parser, default: Options) -> None:
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


def _add_solver(parser: Parser, default: Options) -> argparse._ArgumentGroup:
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
        help="first step, then eta/sqrt(t+1): of mrbcd, in units of eps"
        + ("; of P, in units of 1/64" if isinstance(default, GromovOptions) else "")
        + " (default: 1)",
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
    return group


def _seed(fresh: int, text: str) -> int:
    if text == "fresh":
        return fresh
    try:
        return int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a whole number nor 'fresh'") from error


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers; write it like 0.05,0.1,0.2") from error


_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}


def _byte_count(text: str) -> int:
    """'500MB', '4GB', '2GiB' or a number of bytes."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", text)
    unit = "" if match is None else match[2].lower()
    if match is None or (unit not in _UNITS and unit + "b" not in _UNITS):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write it like 500MB, 4GB or 2GiB")
    return round(float(match[1]) * _UNITS.get(unit, _UNITS.get(unit + "b", 1)))


def _add_outputs(parser: Parser) -> None:
    group = parser.add_argument_group("results")
    group.add_argument(
        "--reference",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="pool the samples on rank 0 and compare with POT",
    )
    group.add_argument(
        "--explain", action=argparse.BooleanOptionalAction, default=False,
        help="say first what this run will tell whom (also in the JSON)",
    )  # fmt: skip
    group.add_argument("--json", metavar="FILE", help="write the result")
    group.add_argument("--save", metavar="DIR", help="each agent writes its own potentials")
    group.add_argument("--plot", metavar="FILE", help="draw the convergence (.png, .svg, .pdf)")
    group.add_argument(
        "--progress", choices=PROGRESS, default="auto", help="one live line, plain lines, or none (default: auto)"
    )
