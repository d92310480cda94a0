"""A protocol a person can write: one line per source, in the manner of a hostfile.

    # which clinic talks to which laboratory
    source 0   targets 0,1
    source 1   targets 1-3
    source 2   targets all

and, with weights (each edge of the line gets that weight; all lines have one or none does):

    source 0   targets 0,1   weight=0.25
    source 1   targets 1     weight=0.5
"""

from __future__ import annotations

import re

import numpy as np

from deot_mpi.data.samples import Floats
from deot_mpi.errors import InputError
from deot_mpi.protocol.graphs import Support

_LINE = re.compile(r"source\s+(\d{1,9})\s+targets?\s+(all|[\d,\s-]*\d)(?:\s+weight\s*=\s*(\S+))?\s*", re.IGNORECASE)
_EXAMPLE = "'source 0  targets 0,2-3  weight=0.25' (the weight may be left out)"


def parse_protocol(text: str, sources: int, targets: int, name: str) -> tuple[Support, Floats | None]:
    """The edges in a protocol text and their weights, None where the text gives none."""
    support = np.zeros((sources, targets), dtype=bool)
    weights = np.zeros((sources, targets))
    weighted: set[bool] = set()
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        where = f"protocol {name}, line {number}"
        parsed = _LINE.fullmatch(line)
        if parsed is None:
            raise InputError(f"{where}: cannot read '{line}'; a line looks like {_EXAMPLE}.")
        source = _agent(int(parsed[1]), sources, "source", where)
        weighted.add(parsed[3] is not None)
        if len(weighted) == 2:
            raise InputError(f"{where}: some lines have a weight and some have none; give all of them one, or none.")
        weight = 0.0 if parsed[3] is None else _weight(parsed[3], where)
        for target in _targets(parsed[2], targets, where):
            if support[source, target]:
                raise InputError(f"{where}: the edge from source {source} to target {target} stands there twice.")
            support[source, target] = True
            weights[source, target] = weight
    if not support.any():
        raise InputError(f"protocol {name}: there is no edge in it; a line looks like {_EXAMPLE}.")
    return support, weights if True in weighted else None


def _agent(index: int, count: int, role: str, where: str) -> int:
    if index >= count:
        raise InputError(
            f"{where}: {role} {index} does not exist; this job has {count} {role} agents (0 to {count - 1})."
        )
    return index


def _targets(words: str, targets: int, where: str) -> list[int]:
    if words.lower() == "all":
        return list(range(targets))
    chosen: list[int] = []
    for part in words.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        if not first.isdigit() or (dash and not last.isdigit()) or len(first + last) > 18:
            raise InputError(f"{where}: '{part.strip()}' is not a target or a range like 2-5.")
        end = _agent(int(last) if dash else int(first), targets, "target", where)
        if int(first) > end:
            raise InputError(f"{where}: the range {part.strip()} runs backwards; write {end}-{first}.")
        chosen.extend(range(int(first), end + 1))
    return chosen


def _weight(word: str, where: str) -> float:
    try:
        weight = float(word)
    except ValueError as error:
        raise InputError(f"{where}: weight '{word}' is not a number.") from error
    if not np.isfinite(weight) or weight <= 0:
        raise InputError(f"{where}: weight {word}; an edge has a positive weight, leave it out if it should have none.")
    return weight
