"""What is run for each figure, as command lines of the program, small (quick) or as in the paper (full).

The paper gives no eps, no step size, no number of rounds and no parameters of its distributions for Section 5.1: eps
is 0.1 of the mean cost here, eta 1 in units of eps, and the distributions are those of ``deot_mpi.data.synthetic``.
Every seed draws samples, projections and neighbours anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

import privacy_figure

RANKS = 16
SAMPLED = (1, 4, 8)
"""The paper's L."""
KERNELS = {"raw": (), "Q = 100": ("--bits", "100"), "Q = 10": ("--bits", "10")}
PAPER, OWN = "paper", "own"
METHODS = {PAPER: "the paper's method", OWN: "this program's default"}
PROTOCOLS = {
    "ideal": ("--protocol", "uniform"),
    "sparse undirected": ("--protocol", "sparse", "--degree", "4"),
    "sparse directed": ("--protocol", "sparse-directed", "--degree", "4"),
}
PANELS = {
    "N1, N2, i.i.d.": ("--dataset", "gaussian"),
    "M1, M2, i.i.d.": ("--dataset", "mixture"),
    "M1, M2, non-i.i.d.": ("--dataset", "mixture", "--scatter", "component"),
}
GAUSSIAN, MIXTURE, SEPARATED = PANELS
GROMOV = "GW, 2-d and 3-d Gaussians"
DIMENSIONS = (5, 50)
FIGURES = ("fig3", "fig4", "fig5", "fig6", "table2", "communication")
PAPERS_BITS = tuple(privacy_figure.PAPERS)
_GROMOV_BITS = tuple(word for word in PAPERS_BITS if word != "--no-centre")  # there, all is always centred
COMMUNICATION_BITS = 1000
"""Packs into whole bytes, so that the formulas count what is sent."""


@dataclass(frozen=True)
class Size:
    """How much is run."""

    name: str
    seeds: int
    samples: int
    rounds: int
    check_every: int
    gromov_seeds: int
    gromov_samples: int
    outer: int
    inner: int
    privacy_samples: int
    victims: int
    trials: int
    ratios: str
    sets: str
    rows: int | None
    adaptation_seeds: int | None
    """None: as many as the table of domain adaptation has by itself."""
    adaptation_bits: int
    communication_rounds: int = 50


QUICK = Size("quick", 3, 400, 100, 5, 1, 200, 20, 10, 400, 8, 1, "2,5,15,30,100", "digits", 600, 1, 2000)
FULL = Size(
    "full", 5, 2000, 300, 5, 3, 1000, 40, 20, 2000, 40, 3, "2,5,10,15,30,100", "digits,pacs", None, None, 10_000
)


@dataclass(frozen=True)
class Place:
    """Where a run belongs; runs that differ in their seed alone make one curve with its band."""

    figure: str
    panel: str
    curve: str
    method: str
    neighbours: int | None = None


@dataclass(frozen=True)
class Run:
    place: Place
    seed: int
    arguments: tuple[str, ...]
    weight: float = field(compare=False)
    """Seconds on two quiet cores, about; for the estimate of the time left."""

    @property
    def settings(self) -> dict[str, object]:
        """What decides its numbers."""
        return {"ranks": RANKS, "arguments": list(self.arguments)}

    @property
    def command(self) -> str:
        return f"mpirun -n {RANKS} python -m deot_mpi.run {' '.join(self.arguments)}"


def runs(size: Size, figures: tuple[str, ...]) -> list[Run]:
    """Everything that the figures need of the program itself; table 2 is apart, with ranks and data of its own."""
    makers = {
        "fig3": _figure_3, "fig4": _figure_4, "fig5": _figure_5, "fig6": _figure_6, "communication": _communication,
    }  # fmt: skip
    wanted = [run for name in figures if name in makers for run in makers[name](size)]
    if {"fig3", "fig5"} & set(figures):
        wanted = [*_sinkhorn(size), *wanted]
    return wanted


def sinkhorn_place(panel: str) -> Place:
    """The centralised value does not depend on where rows are."""
    return Place("sinkhorn", MIXTURE if panel == SEPARATED else panel, "POT", OWN)


def _numbers(**options: object) -> tuple[str, ...]:
    return tuple(word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value)))


def _seconds(samples: int, rounds: float, passes: float) -> float:
    """Of 16 ranks on two quiet cores, about: each round's messages, and passes of all agents over their kernels."""
    return 0.4 + 8.5e-3 * rounds + 4.0e-9 * samples**2 * passes


def _sinkhorn(size: Size) -> Iterator[Run]:
    for panel in (GAUSSIAN, MIXTURE):
        for seed in range(size.seeds):
            asked = (*PANELS[panel], *_numbers(samples=size.samples, seed=seed, kernel="raw", tol=1e-9), "--reference")
            yield Run(sinkhorn_place(panel), seed, asked, 1.0 + 2.0e-6 * size.samples**2)


def _kernel(name: str, method: str, papers: tuple[str, ...]) -> tuple[str, ...]:
    if name == "raw":
        return ("--kernel", "raw")
    return (*KERNELS[name], *(papers if method == PAPER else ()))


def _figure_3(size: Size) -> Iterator[Run]:
    solvers = {PAPER: ("--solver", "mrbcd", "--tol", "0"), OWN: ("--solver", "kept")}
    for panel, neighbours, curve, method, seed in product(PANELS, SAMPLED, KERNELS, METHODS, range(size.seeds)):
        asked = _numbers(
            samples=size.samples, seed=seed, neighbours=neighbours, rounds=size.rounds, check_every=size.check_every
        )
        rounds = size.rounds * (0.4 if method == OWN else 1.0)
        passes = rounds * (neighbours / 8 + 1.0 / size.check_every)
        yield Run(
            Place("fig3", panel, curve, method, neighbours), seed,
            (*PANELS[panel], *asked, *solvers[method], *_kernel(curve, method, PAPERS_BITS)),
            _seconds(size.samples, rounds, passes),
        )  # fmt: skip


def _figure_4(size: Size) -> Iterator[Run]:
    points = 1 + len(size.ratios.split(","))
    for dimension in DIMENSIONS:
        for method, options in zip((PAPER, OWN), privacy_figure.WAYS.values(), strict=True):
            asked = privacy_figure.arguments(
                dimension, options, size.privacy_samples, size.ratios, size.trials, size.victims
            )
            attacks = 0.3 * size.victims * (1.0 + dimension / 50)
            solves = size.trials * (0.5 + 2.0e-6 * size.privacy_samples**2)
            yield Run(Place("fig4", f"D = {dimension}", "", method), 0, tuple(asked), points * (attacks + solves))


def _figure_5(size: Size) -> Iterator[Run]:
    solvers = {PAPER: ("--solver", "mrbcd", "--tol", "0"), OWN: ()}
    for panel, curve, method, seed in product(PANELS, PROTOCOLS, METHODS, range(size.seeds)):
        asked = _numbers(
            samples=size.samples, seed=seed, rounds=size.rounds, kernel="raw",
            check_every=size.check_every if method == PAPER else 1,
        )  # fmt: skip
        rounds = size.rounds * (0.1 if method == OWN else 1.0)
        yield Run(
            Place("fig5", panel, curve, method), seed,
            (*PANELS[panel], *asked, *PROTOCOLS[curve], *solvers[method]), _seconds(size.samples, rounds, rounds),
        )  # fmt: skip


def _figure_6(size: Size) -> Iterator[Run]:
    common = ("gromov", *_numbers(samples=size.gromov_samples))
    papers = (
        "--solver", "mrbcd", "--p-update", "sampled", "--no-eps-scaling",
        *_numbers(starts=1, outer=size.outer, inner=size.inner, check_every=size.inner, tol=0),
    )  # fmt: skip
    own = _numbers(outer=size.outer, check_every=5, tol=1e-4)
    for seed in range(size.gromov_seeds):
        # Four starts, then POT from the best of them: the value that all curves are held against.
        asked = (*common, *_numbers(seed=seed, kernel="raw"), "--reference")
        yield Run(gromov_place("POT", OWN), seed, asked, 15.0 + 2.0e-4 * size.gromov_samples**2)
        for neighbours, curve in product(SAMPLED, KERNELS):
            sampled = (*_numbers(seed=seed, neighbours=neighbours), *papers, *_kernel(curve, PAPER, _GROMOV_BITS))
            yield Run(
                gromov_place(curve, PAPER, neighbours), seed, (*common, *sampled),
                _gromov_seconds(size, (size.outer + 1) * size.inner),
            )  # fmt: skip
        for curve in KERNELS:
            # Four starts, each until it has converged or used its alignments.
            yield Run(
                gromov_place(curve, OWN), seed, (*common, *_numbers(seed=seed), *own, *_kernel(curve, OWN, ())),
                _gromov_seconds(size, 30 * size.outer),
            )  # fmt: skip


def gromov_place(curve: str, method: str, neighbours: int | None = None) -> Place:
    """Of Fig. 6. This program's default asks all neighbours in every round: one curve beside the paper's of any L."""
    return Place("fig6", GROMOV, curve, method, neighbours if method == PAPER else None)


def _gromov_seconds(size: Size, rounds: int) -> float:
    return _seconds(size.gromov_samples, rounds, 2.0 * rounds)


def _communication(size: Size) -> Iterator[Run]:
    sketch = (*_numbers(bits=COMMUNICATION_BITS), *PAPERS_BITS)
    papers = ("--solver", "mrbcd", "--pairs", "1")
    rows = {
        "Algorithm 1, raw, L = 1": (5, ("--kernel", "raw", *papers, "--neighbours", "1"), PAPER, 1),
        "Algorithm 3, sketch, L = 1": (5, (*sketch, *papers, "--neighbours", "1"), PAPER, 1),
        "Algorithm 3, sketch, L = 4": (5, (*sketch, *papers, "--neighbours", "4"), PAPER, 4),
        "Algorithm 3, sketch, L = 8": (5, (*sketch, *papers, "--neighbours", "8"), PAPER, 8),
        "Algorithm 3, sketch, L = 8, D = 50": (50, (*sketch, *papers, "--neighbours", "8"), PAPER, 8),
        "kept sums, sketch, L = 1": (5, (*sketch[:2], "--solver", "kept", "--neighbours", "1"), OWN, 1),
        "one pass, sketch": (5, sketch[:2], OWN, 8),
    }
    for curve, (dimension, options, method, neighbours) in rows.items():
        rounds = size.communication_rounds
        asked = _numbers(samples=size.samples, dim=dimension, rounds=rounds, tol=0, check_every=rounds)
        yield Run(
            Place("communication", f"D = {dimension}", curve, method, neighbours), 0, (*asked, *options),
            _seconds(size.samples, rounds, rounds * neighbours / 8),
        )  # fmt: skip
