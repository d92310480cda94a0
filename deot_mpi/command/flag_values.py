"""The parser that speaks through exceptions, and the values that flags take as text."""

from __future__ import annotations

import argparse
import re
from typing import Any, NoReturn

from deot_mpi.errors import InputError


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


def seed_value(fresh: int, text: str) -> int:
    if text == "fresh":
        return fresh
    try:
        return int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a whole number nor 'fresh'") from error


def number_list(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers; write it like 0.05,0.1,0.2") from error


_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}


def byte_count(text: str) -> int:
    """'500MB', '4GB', '2GiB' or a number of bytes."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", text)
    unit = "" if match is None else match[2].lower()
    if match is None or (unit not in _UNITS and unit + "b" not in _UNITS):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write it like 500MB, 4GB or 2GiB")
    return round(float(match[1]) * _UNITS.get(unit, _UNITS.get(unit + "b", 1)))
