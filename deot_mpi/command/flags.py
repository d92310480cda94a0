"""All flags of the command line, by group; the parser that knows them speaks through exceptions."""

from __future__ import annotations

import argparse
from functools import partial

from deot_mpi import __version__
from deot_mpi.command.command_flags import add_adaptation, add_alignment, add_audit, add_faults, add_noise, add_spaces
from deot_mpi.command.flag_values import Parser, byte_count, seed_value
from deot_mpi.data.synthetic import DATASETS, SCATTERS
from deot_mpi.options import (
    ACCELERATIONS,
    ESTIMATORS,
    KERNELS,
    PRECISIONS,
    SOLVERS,
    STOPS,
    AdaptOptions,
    AuditOptions,
    EOTOptions,
    GromovOptions,
    Options,
)
from deot_mpi.protocol.choose import NAMES

PLACEMENTS = ("ranks", "edges")
PROGRESS = ("auto", "live", "plain", "none")


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
        add_noise(parser)
        problem.add_argument(
            "--centre", action=argparse.BooleanOptionalAction, default=True,
            help="subtract the global mean first (default: yes)",
        )  # fmt: skip
        solver.add_argument(
            "--rounds", type=int, default=default.rounds, metavar="T",
            help=f"rounds at most (default: {default.rounds})",
        )  # fmt: skip
        if isinstance(default, AdaptOptions):
            add_adaptation(parser, default)
        if isinstance(default, AuditOptions):
            add_audit(parser, default)
    else:
        add_spaces(data)
        add_alignment(parser, default)
    add_faults(parser)
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


def _add_data(parser: Parser, dimension: int, fresh_seed: int) -> argparse._ArgumentGroup:
    group = parser.add_argument_group("agents and their samples")
    group.add_argument(
        "--sources", type=int, metavar="I", help="ranks 0..I-1 are source agents, the rest targets (default: half)"
    )
    group.add_argument(
        "--placement", choices=PLACEMENTS, default="ranks",
        help="ranks: as --sources says; edges: agents are given to ranks so that the edges of E with most\n"
        "bytes stay on a host; all hosts must be able to read all files (default: ranks)",
    )  # fmt: skip
    group.add_argument(
        "--source",
        metavar="PATTERN",
        help="each source agent's own file, e.g. 'site-{agent}.npy' (.npy .npz .csv .mat .h5); {host} is the\n"
        "name of its host",
    )
    group.add_argument("--target", metavar="PATTERN", help="each target agent's own file")
    group.add_argument(
        "--slice", action=argparse.BooleanOptionalAction, default=False,
        help="files are one for all agents of a role, e.g. --source all.npy, and each agent reads its own\n"
        "rows of it and no others (.npy .h5)",
    )  # fmt: skip
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
        "--seed", type=partial(seed_value, fresh_seed), default=0, metavar="N|fresh",
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
    group.add_argument(
        "--debias", action=argparse.BooleanOptionalAction, default=False,
        help="eot: also the Sinkhorn divergence, 0 for equal samples; agents of one domain then show\n"
        "each other what they show to the other domain (default: no)",
    )  # fmt: skip
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
        help="of sinkhorn: full: curvatures and Anderson mixing; anderson: mixing alone, which tells less;\n"
        "none: plain steps (default: full)",
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
        help=f"rounds between points of the trace; sinkhorn measures every third round, too "
        f"(default: {default.check_every})",
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
        type=byte_count,
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
        help="say first what this run will tell whom, then go on (also in the JSON)",
    )  # fmt: skip
    group.add_argument("--json", metavar="FILE", help="write the result")
    group.add_argument("--save", metavar="DIR", help="each agent writes its own potentials")
    group.add_argument("--plot", metavar="FILE", help="draw the convergence (.png, .svg, .pdf)")
    group.add_argument("--report", metavar="FILE", help="write a page to look at (.html, one file, opens from disk)")
    group.add_argument(
        "--progress", choices=PROGRESS, default="auto", help="one live line, plain lines, or none (default: auto)"
    )
