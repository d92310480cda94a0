"""The command line and the config file: one list of options, the same names in both."""

from __future__ import annotations

import argparse
import shlex
import tomllib
from dataclasses import dataclass, fields

from deot_mpi.command.flag_values import Parser
from deot_mpi.command.flags import build_parser
from deot_mpi.data.synthetic import SyntheticSet
from deot_mpi.errors import InputError
from deot_mpi.options import AdaptOptions, AuditOptions, EOTOptions, GromovOptions

COMMANDS = {"eot": EOTOptions, "gromov": GromovOptions, "adapt": AdaptOptions, "audit": AuditOptions}


@dataclass(frozen=True)
class Outputs:
    """Where results go besides the screen."""

    json: str | None
    save: str | None
    plot: str | None
    report: str | None
    progress: str
    explain: bool


@dataclass(frozen=True)
class Inputs:
    """Where samples come from: files by pattern, or a synthetic set; and the potentials to start from, if any."""

    source: str | None
    target: str | None
    source_weights: str | None
    target_weights: str | None
    source_features: str | None
    target_features: str | None
    source_labels: str | None
    target_labels: str | None
    slice: bool
    """Whether the files are one for all agents of a role, each reading its own slice."""
    synthetic: SyntheticSet
    start: str | None


@dataclass(frozen=True)
class Job:
    """One command line, understood."""

    command: str
    sources: int | None
    placement: str
    inputs: Inputs
    options: EOTOptions | GromovOptions  # AdaptOptions and AuditOptions are EOTOptions
    outputs: Outputs


def config_path(argv: list[str]) -> str | None:
    """The file named by --config, found before the rest is understood (one rank reads it for all)."""
    finder = Parser(add_help=False, allow_abbrev=False)
    finder.add_argument("--config")
    found, _ = finder.parse_known_args(argv)
    return None if found.config is None else str(found.config)


def parse(argv: list[str], config: str | None = None, fresh_seed: int = 0) -> Job:
    """Understand a command line; ``config`` is the text of the config file, which the command line overrules."""
    command, arguments = (argv[0], argv[1:]) if argv and argv[0] in COMMANDS else ("eot", argv)
    if arguments and not arguments[0].startswith("-"):
        raise InputError(f"'{arguments[0]}' is not a command; commands are eot (the default), gromov, adapt and audit.")
    parser = build_parser(command, fresh_seed)
    chosen = parser.parse_args(arguments)
    if config is not None:
        chosen = parser.parse_args([*_config_arguments(config, parser, arguments), *arguments])
    if (chosen.source is None) != (chosen.target is None):
        raise InputError("--source and --target come together: give a file pattern for both roles, or for none.")
    if chosen.source is None and (chosen.source_weights or chosen.target_weights):
        raise InputError("weights without samples: --source-weights and --target-weights need --source and --target.")
    named = vars(chosen)
    features = (named.get("source_features"), named.get("target_features"))
    if (features[0] is None) != (features[1] is None) or (features[0] is not None and chosen.source is None):
        raise InputError(
            "--source-features and --target-features come together, and with --source and --target: give a file "
            "pattern for both roles, or for none."
        )
    _check_files(chosen)
    kind = COMMANDS[command]
    if chosen.checkpoint is not None and fresh_seed and chosen.seed == fresh_seed:
        raise InputError("--seed fresh is another one in every job, and none could be gone on with; give a number.")
    for flag, given in (("--save", chosen.save), ("--start", chosen.start)):
        if command == "audit" and given is not None:
            raise InputError(
                f"{flag} is {given!r}, but an audit keeps no potentials; it has --json, --plot and --report."
            )
    if command == "adapt" and chosen.source is None:
        raise InputError("adapt needs labelled rows: --source 'site-{agent}.npz' (arrays X and y) and --target.")
    return Job(
        command=command,
        sources=chosen.sources,
        placement=chosen.placement,
        inputs=Inputs(
            chosen.source,
            chosen.target,
            chosen.source_weights,
            chosen.target_weights,
            *features,
            named.get("source_labels"),
            named.get("target_labels"),
            chosen.slice,
            SyntheticSet(
                chosen.dataset, chosen.samples, chosen.dim, chosen.scatter, chosen.seed, named.get("target_dim")
            ),
            chosen.start,
        ),
        options=kind(**{field.name: named[field.name] for field in fields(kind)}),
        outputs=Outputs(chosen.json, chosen.save, chosen.plot, chosen.report, chosen.progress, chosen.explain),
    )


def repeating(argv: list[str], ranks: int, seed: int) -> str:
    """The command line again, to be shown: a fresh seed by its number, and no private seed, which undoes the noise."""
    words, hidden = [], False
    for word in argv:
        flag, given, _ = word.partition("=")
        if hidden or (given and flag == "--private-seed"):
            words.append("PRIVATE" if hidden else "--private-seed=PRIVATE")
            hidden = False
            continue
        hidden = word == "--private-seed"
        words.append(word)
    for place, word in enumerate(words):
        if word == "--seed=fresh" or (word == "fresh" and place and words[place - 1] == "--seed"):
            words[place] = word.replace("fresh", str(seed))
    return shlex.join(["mpirun", "-n", str(ranks), "python", "-m", "deot_mpi.run", *words])


def _check_files(chosen: argparse.Namespace) -> None:
    """Patterns, slices and placement must not contradict each other about who reads what where."""
    patterns = {
        f"--{role}{what}": named
        for role in ("source", "target")
        for what in ("", "-weights", "-features", "-labels")
        if (named := getattr(chosen, f"{role}{what.replace('-', '_')}", None)) is not None
    }
    if chosen.slice and not patterns:
        raise InputError("--slice is about the files that agents share; name them with --source and --target.")
    for flag, pattern in patterns.items():
        if chosen.slice and "{agent" in pattern:
            raise InputError(
                f"{flag} {pattern} names a file for each agent, and --slice one for all; drop one of the two."
            )
        if chosen.placement == "edges" and not chosen.slice and ("{agent" not in pattern or "{host" in pattern):
            raise InputError(
                f"{flag} {pattern} means other rows on every host, so an agent cannot move to another one; leave out "
                "--placement edges, or name files that all hosts can read by '{agent}' or with --slice."
            )


def _config_arguments(text: str, parser: Parser, arguments: list[str]) -> list[str]:
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
