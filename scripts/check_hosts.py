"""Whether a hostfile, a number of ranks and --sources fit, before anything starts: who would run where.

    python scripts/check_hosts.py --hostfile hostfiles/four-hosts --ranks 16 --sources 8

Needs neither MPI nor the package. Exit code 0 if they fit, 2 with one sentence if they do not. --oversubscribe allows
more ranks than slots; --rankfile is for mpirun --map-by rankfile:file=..., without it ranks fill the hosts in order.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


class DoesNotFitError(Exception):
    """Why the files and numbers do not fit, in one sentence."""


@dataclass(frozen=True)
class Host:
    name: str
    slots: int


def lines_of(path: str) -> Iterator[tuple[int, str]]:
    """Numbered lines without comments; empty ones are left out."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DoesNotFitError(f"{path}: cannot be read ({error}).") from error
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split("#", 1)[0].strip()
        if words:
            yield number, words


def read_hostfile(path: str) -> list[Host]:
    """Open MPI's format: a host a line, ``slots=N`` (1 without); a host that stands there again has so many more."""
    slots: dict[str, int] = {}
    for number, line in lines_of(path):
        name, *settings = line.split()
        count = 1
        for setting in settings:
            found = re.fullmatch(r"(slots|max[-_]slots)=(\d+)", setting)
            if found is None or int(found[2]) < 1:
                raise DoesNotFitError(
                    f"{path}, line {number}: '{setting}' is not understood; a line is a host and slots=N, e.g. "
                    f"'{name} slots=4'."
                )
            if found[1] == "slots":
                count = int(found[2])
        slots[name] = slots.get(name, 0) + count
    if not slots:
        raise DoesNotFitError(f"{path}: names no host; write one a line, e.g. 'node1 slots=4'.")
    return [Host(name, count) for name, count in slots.items()]


def in_order(hosts: list[Host], ranks: int) -> list[str]:
    """The host of every rank with --map-by slot: slots are filled in the order of the file; ranks beyond all slots are
    shared out evenly first, one more to each of the first hosts."""
    least, more = divmod(max(ranks - sum(host.slots for host in hosts), 0), len(hosts))
    places = [host.name for k, host in enumerate(hosts) for _ in range(host.slots + least + (k < more))]
    return places[:ranks]


def read_rankfile(path: str, hosts: list[Host], ranks: int) -> list[str]:
    """The host of every rank, by lines such as ``rank 3=node1 slot=0``."""
    known, placed = {host.name for host in hosts}, {}
    for number, line in lines_of(path):
        found = re.fullmatch(r"rank\s+(\d+)\s*=\s*(\S+)\s+slots?\s*=\s*\S+", line)
        if found is None:
            raise DoesNotFitError(
                f"{path}, line {number}: '{line}' is not understood; a line reads like 'rank 3=node1 slot=0'."
            )
        rank, name = int(found[1]), found[2]
        if name not in known:
            raise DoesNotFitError(f"{path}, line {number}: host {name} is not in the hostfile; add it there.")
        if rank in placed:
            raise DoesNotFitError(f"{path}, line {number}: rank {rank} stands there twice; drop one of the lines.")
        placed[rank] = name
    missing = sorted(set(range(ranks)) - set(placed))
    if missing:
        raise DoesNotFitError(f"{path}: has no line for rank {missing[0]} of {ranks}; every rank needs one.")
    return [placed[rank] for rank in range(ranks)]


def check(
    hostfile: str, ranks: int | None, sources: int | None, rankfile: str | None = None, oversubscribe: bool = False
) -> dict[str, list[str]]:
    """The agents of every host by name, or ``DoesNotFitError``."""
    hosts = read_hostfile(hostfile)
    slots = {host.name: host.slots for host in hosts}
    whole = sum(slots.values())
    count = whole if ranks is None else ranks
    if count < 2:
        raise DoesNotFitError(
            f"{count} rank(s) cannot be a job: it needs a source and a target agent; give {hostfile} more slots or "
            "--ranks 2 or more."
        )
    if count > whole and not oversubscribe:
        raise DoesNotFitError(
            f"{count} ranks and {whole} slots in {hostfile}; add slots or hosts, start {whole} ranks, or share cores "
            "on purpose with --oversubscribe (and mpirun --map-by slot:oversubscribe)."
        )
    divide = count // 2 if sources is None else sources
    if not 1 <= divide < count:
        raise DoesNotFitError(
            f"--sources {divide} with {count} ranks leaves {max(count - divide, 0)} targets; choose 1 to {count - 1}."
        )
    places = in_order(hosts, count) if rankfile is None else read_rankfile(rankfile, hosts, count)
    agents: dict[str, list[str]] = {host.name: [] for host in hosts}
    for rank, name in enumerate(places):
        agents[name].append(f"source {rank}" if rank < divide else f"target {rank - divide}")
    full = next((name for name, there in agents.items() if len(there) > slots[name]), None)
    if full is not None and not oversubscribe:
        raise DoesNotFitError(
            f"{rankfile} puts {len(agents[full])} ranks on {full}, which has {slots[full]} slots in {hostfile}."
        )
    return agents


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hostfile", required=True)
    parser.add_argument("--ranks", type=int, metavar="N", help="mpirun -n N (default: all slots)")
    parser.add_argument("--sources", type=int, metavar="I", help="as deot_mpi.run has it (default: half of the ranks)")
    parser.add_argument("--rankfile")
    parser.add_argument("--oversubscribe", action="store_true")
    chosen = parser.parse_args(arguments)
    try:
        agents = check(chosen.hostfile, chosen.ranks, chosen.sources, chosen.rankfile, chosen.oversubscribe)
    except DoesNotFitError as error:
        print(f"check_hosts: error: {error}", file=sys.stderr)
        return 2
    for name, there in agents.items():
        print(f"{name}: {', '.join(there) or 'nobody'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
