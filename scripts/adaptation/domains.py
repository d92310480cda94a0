"""Labelled domains and the pairs of them: the digits, PACS, or a user's own files."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deot_mpi.data.files import load_samples
from deot_mpi.data.samples import Floats, check_samples
from deot_mpi.data.scaling import scaled
from deot_mpi.errors import InputError

DIGITS, PACS, OWN = "digits", "pacs", "own"
SCALINGS = {DIGITS: "hellinger", PACS: "hellinger"}
"""Pixels are intensities, and so are these features of a network: means of what is never below 0. (With ``unit``,
DEOT_K was right for 0.622 of PACS, not 0.638.)"""

SEEDS = {DIGITS: 3, PACS: 2, OWN: 3}
VALIDATION_ROWS = {DIGITS: 2000, PACS: 1000, OWN: 2000}
"""Unless asked for otherwise: what half an hour on two cores allows."""


@dataclass(frozen=True)
class Domain:
    name: str
    rows: Floats
    labels: NDArray[np.int64]

    def part(self, count: int) -> Domain:
        """Some rows, drawn at random; for trying things out."""
        picked = np.random.default_rng(0).permutation(len(self.labels))[:count]
        return Domain(self.name, self.rows[picked], self.labels[picked])


@dataclass(frozen=True)
class Pair:
    """From a labelled domain to one whose labels are only counted."""

    set: str
    source: Domain
    target: Domain

    @property
    def name(self) -> str:
        return f"{self.source.name}->{self.target.name}"

    def write(self, folder: Path) -> Path:
        """Where every process can map it into memory."""
        own = folder / self.name.replace("->", "-")
        own.mkdir()
        for role, domain in (("source", self.source), ("target", self.target)):
            np.save(own / f"{role}-rows.npy", domain.rows)
            np.save(own / f"{role}-labels.npy", domain.labels)
        return own


def read(folder: str, role: str) -> tuple[Floats, NDArray[np.int64]]:
    """A written domain; the rows are mapped, not read."""
    path = Path(folder)
    return np.load(path / f"{role}-rows.npy", mmap_mode="r"), np.load(path / f"{role}-labels.npy")


def digits(folder: Path) -> list[Pair]:
    """USPS (U) and MNIST (M), 16 x 16 pixels."""
    arrays = _archive(folder / "usps_mnist.npz")
    usps, mnist = (
        _domain(short, arrays[f"X_{name}"], arrays[f"y_{name}"], SCALINGS[DIGITS])
        for short, name in (("U", "usps"), ("M", "mnist"))
    )
    return [Pair(DIGITS, usps, mnist), Pair(DIGITS, mnist, usps)]


def pacs(folder: Path) -> list[Pair]:
    """Photos, art, cartoons and sketches of seven things, behind a network: stands in for Office-Home."""
    arrays = _archive(folder / "pacs_efflite2.npz")
    names = {"P": "photo", "A": "art_painting", "C": "cartoon", "S": "sketch"}
    domains = [
        _domain(short, arrays[f"X_{name}"], arrays[f"y_{name}"], SCALINGS[PACS]) for short, name in names.items()
    ]
    return [Pair(PACS, source, target) for source, target in permutations(domains, 2)]


def own(files: list[str], scaling: str) -> list[Pair]:
    """Every pair of domains given as NAME=FILE, one .npz, .csv or .mat a domain."""
    domains = []
    for given in files:
        name, separator, path = given.partition("=")
        if not (name and separator and path):
            raise InputError(f"'{given}' is not a domain; give each as NAME=FILE, such as Art=art.npz.")
        domains.append(_from_file(name, Path(path), scaling))
    widths = {domain.name: domain.rows.shape[1] for domain in domains}
    if len(domains) < 2 or len(widths) < len(domains) or len(set(widths.values())) > 1:
        raise InputError(f"domains have {widths} columns; give two or more with different names and the same columns.")
    return [Pair(OWN, source, target) for source, target in permutations(domains, 2)]


def _from_file(name: str, path: Path, scaling: str) -> Domain:
    samples = load_samples(str(path).replace("{", "{{").replace("}", "}}"), 0, name, labelled=True)
    rows, labels = samples.rows, samples.labels
    if labels is None and path.suffix.lower() == ".csv":  # as published: no header, the label in the last column
        rows, labels = rows[:, :-1], check_samples(rows[:, :-1], None, name, labels=rows[:, -1]).labels
    if labels is None:
        raise InputError(f"{name} ({path}): has no labels; it needs an array y (.csv: a column y, or the last one).")
    return Domain(name, scaled(rows, scaling, name), labels)


def _domain(name: str, rows: NDArray[np.generic], labels: NDArray[np.generic], scaling: str) -> Domain:
    samples = check_samples(rows, None, name, labels=labels)
    assert samples.labels is not None
    return Domain(name, scaled(samples.rows, scaling, name), samples.labels)


def _archive(path: Path) -> dict[str, NDArray[np.generic]]:
    if not path.is_file():
        raise InputError(f"{path} is not there; name its folder with --data, or give --domains of your own.")
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}
