"""Flags that belong to one command or another: noise, attacks, labels, spaces, alignment."""

from __future__ import annotations

import argparse

from deot_mpi.command.flag_values import Parser, number_list
from deot_mpi.data.scaling import SCALINGS
from deot_mpi.options import (
    METHODS,
    MOMENTS,
    ON_FAILURE,
    P_UPDATES,
    PENALTIES,
    READINGS,
    SELF_TERMS,
    AdaptOptions,
    AuditOptions,
    GromovOptions,
    Options,
)


def add_noise(parser: Parser) -> None:
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
        "--pairwise-seeds", action=argparse.BooleanOptionalAction, default=False,
        help="projections of its own for every edge, which only its two agents know",
    )  # fmt: skip
    group.add_argument(
        "--max-recovery", type=float, metavar="R",
        help="choose bits and flips so that no attack tried comes nearer to a typical row than this share of\n"
        "its length, tried by every agent on its own rows; ends with an error where that cannot be",
    )  # fmt: skip
    group.add_argument(
        "--max-error", type=float, metavar="E",
        help="relative error of W~ that is accepted for that (default: 0.05)",
    )  # fmt: skip
    group.add_argument(
        "--private-seed", type=int, metavar="N",
        help="of that noise, to repeat a run; whoever knows it can undo the noise (default: never the same)",
    )  # fmt: skip


def add_faults(parser: Parser) -> None:
    group = parser.add_argument_group("failures")
    group.add_argument(
        "--checkpoint", metavar="DIR",
        help="every agent writes its own state there, for --resume; SIGTERM or SIGUSR1 then end the run\n"
        "in good order, with exit code 3",
    )  # fmt: skip
    group.add_argument(
        "--every", type=int, default=Options.every, metavar="N",
        help=f"rounds between checkpoints (default: {Options.every})",
    )  # fmt: skip
    group.add_argument(
        "--resume", action=argparse.BooleanOptionalAction, default=False,
        help="go on from the last round of which all agents have a checkpoint, with the same result to\n"
        "the bit; from the start, where there is none",
    )  # fmt: skip
    group.add_argument(
        "--patience", type=float, metavar="S",
        help="with --solver kept: go on with the last sums of a neighbour that is this late, until the next check",
    )  # fmt: skip
    group.add_argument(
        "--on-failure", choices=ON_FAILURE, default="abort",
        help="when an agent's process is lost: abort, or continue without it, which takes Open MPI 5 and\n"
        "mpirun --with-ft ulfm; exit code 4 then (default: abort)",
    )  # fmt: skip


def add_audit(parser: Parser, default: AuditOptions) -> None:
    group = parser.add_argument_group("attacks")
    group.add_argument(
        "--victims", type=int, default=default.victims, metavar="V",
        help=f"rows of each agent that are attacked (default: {default.victims}, at most half of them)",
    )  # fmt: skip
    for name, what in (("ratios", "Q/D of the frontier"), ("flips", "flip rates of the frontier")):
        values = ",".join(f"{value:g}" for value in getattr(default, name))
        group.add_argument(
            f"--{name}", type=number_list, default=getattr(default, name), metavar="X,X,...",
            help=f"{what} (default: {values})",
        )  # fmt: skip
    group.add_argument(
        "--trials", type=int, default=default.trials, metavar="N",
        help=f"seeds for the error of W~, with --reference (default: {default.trials})",
    )  # fmt: skip
    group.add_argument(
        "--mapped", action=argparse.BooleanOptionalAction, default=False,
        help="the run it is about is adapt --method 1nn, which also sends means of rows and the sources' sketches",
    )  # fmt: skip
    _add_scaling(group, default.scaling)


def add_adaptation(parser: Parser, default: AdaptOptions) -> None:
    group = parser.add_argument_group("labels")
    for role in ("source", "target"):
        group.add_argument(
            f"--{role}-labels", metavar="PATTERN",
            help=f"each {role} agent's labels, one number a row, where its file has none (y)",
        )  # fmt: skip
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
        help="of the penalty: entropy: the share of eps taken off between classes (default: 0.8);\n"
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
    _add_scaling(group, default.scaling)
    group.add_argument(
        "--choose-eps", action=argparse.BooleanOptionalAction, default=False,
        help="choose eps from --eps-grid by reverse validation, without target labels",
    )  # fmt: skip
    group.add_argument(
        "--eps-grid", type=number_list, default=default.eps_grid, metavar="S,S,...",
        help=f"shares of the mean cost (default: {','.join(f'{share:g}' for share in default.eps_grid)})",
    )  # fmt: skip
    group.add_argument(
        "--validation-rows", type=int, default=default.validation_rows, metavar="N",
        help=f"rows of each domain used for that, at most (default: {default.validation_rows})",
    )  # fmt: skip


def _add_scaling(group: argparse._ArgumentGroup, default: str) -> None:
    group.add_argument(
        "--scaling", choices=SCALINGS, default=default,
        help="of rows, first: unit: length 1; hellinger: roots of shares, for counts (default: none)",
    )  # fmt: skip


def add_spaces(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--target-dim", type=int, default=3, metavar="D", help="dimension of the synthetic targets (default: 3)"
    )
    group.add_argument(
        "--source-features", metavar="PATTERN",
        help="rows of features in a space both domains share, for the fused\nproblem (with --alpha)",
    )  # fmt: skip
    group.add_argument("--target-features", metavar="PATTERN", help="the same for targets")


def add_alignment(parser: Parser, default: GromovOptions) -> None:
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
