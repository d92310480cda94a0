"""A source agent's rows of the kernel against all its neighbours' columns, chunk by chunk, in float64; nothing is kept.

Everything here is in nats: f = u/eps, g = v/eps, log K = -c/eps. No messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np

from deot_mpi.data.samples import Floats
from deot_mpi.kernel import LogPairs, loops

Part = TypeVar("Part")

_CHUNK_ENTRIES = 1 << 19
"""Entries of a chunk of rows: 2 MiB of float32, so that it is still in cache for its column sums."""
_FEWEST_ROWS, _MOST_ROWS = 16, 4096
"""Rows of a chunk: what is done once for a chunk must not count, and its column sums are added up in float32."""
_SPANS = 8
"""Parts of the block that may be swept side by side. Always the same parts, so that threads do not change a bit."""


@dataclass(frozen=True)
class Evaluation:
    """Exact sums over a source agent's part of the plan pi_nm = a_n P_nm, all in float64."""

    potential: Floats
    """f: the rows' potential, corrected for the given g where that was asked for."""
    log_rows: Floats
    """log of each row's sum over what it should be; 0 where f was corrected."""
    log_sums: Floats
    """log sum_n alpha_n exp(f_n + log K_nm) for every column."""
    mass: float
    """sum pi."""
    log_kernel: float
    """sum pi log K = -<C, pi>/eps."""
    entropy: float
    """sum pi (log pi - 1) = -H(pi)."""


class Rows:
    """The rows of one source agent, their weights and those of the columns, log w_m = log (e_ij/e_i) beta_m."""

    def __init__(
        self,
        pairs: LogPairs,
        log_weights: Floats,
        columns: Mapping[int, slice],
        shares: Floats,
        marginal: float,
        threads: int = 1,
    ) -> None:
        self.columns, self._pairs, self._log_weights = dict(columns), pairs, log_weights
        self._shares, self._marginal = shares, marginal
        self._temperature = 1.0
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        rows, width = pairs.shape
        self._step = min(max(_CHUNK_ENTRIES // max(width, 1), _FEWEST_ROWS), _MOST_ROWS) // 4 * 4
        chunks = [slice(start, min(start + self._step, rows)) for start in range(0, rows, self._step)]
        self._spans = [span for span in _split(chunks, _SPANS) if span]

    def exact_log_sums(self, potential: Floats) -> Floats:
        """log sum_n alpha_n exp(f_n + log K_nm) for given f, in the log domain: for columns that S does not reach."""
        exponents = self._pairs.shifted(potential + np.log(self._shares), 0.0, self._temperature)

        def partial(chunks: list[slice]) -> Floats:
            total = np.full(self._pairs.shape[1], -np.inf)
            for rows in chunks:
                exponent = exponents.rows(rows.start, rows.stop)
                top = exponent.max(axis=0)
                exponent -= top
                total = np.logaddexp(total, top + np.log(np.exp(exponent, out=exponent).sum(axis=0)))
            return total

        return np.asarray(np.logaddexp.reduce(self._over_spans(partial), axis=0))

    def evaluate(self, own: Floats, potential: Floats, *, settle: bool) -> Evaluation:
        """Everything about the plan at potentials f (``own``) and g, exactly: float64, from the kernel itself.

        With ``settle``, f is first corrected so that the rows hold exactly for this g (it must be near to start with).
        The plan is pi_nm = a_n P_nm with log P = log K + f + g + log w, so <pi, log K> follows from <pi, log P>.
        """
        columns = potential + self._log_weights
        exponents = self._pairs.shifted(own, columns, self._temperature)
        log_rows, row_entropy = np.empty(own.size), np.empty(own.size)

        @np.errstate(over="ignore", divide="ignore", invalid="ignore")  # a diverged run has infinite values
        def partial(chunks: list[slice]) -> Floats:
            total = np.zeros(columns.size)
            for rows in chunks:
                plan = exponents.rows(rows.start, rows.stop)
                sums, entropies = loops.plan_rows(plan)
                log_rows[rows] = np.log(sums)
                weights = 1.0 / sums if settle else np.ones_like(sums)
                row_entropy[rows] = weights * entropies
                total += (weights * self._shares[rows]) @ plan
            return total

        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            column_mass = self._marginal * in_order(self._over_spans(partial))
            log_sums = np.log(column_mass / self._marginal) - columns
            row_mass = self._marginal * self._shares * (1.0 if settle else np.exp(log_rows))
            log_plan = self._marginal * float(self._shares @ row_entropy)  # <pi, log P> at the f that was given
            log_kernel = self._temperature * (log_plan - float(row_mass @ own) - float(column_mass @ columns))
            mass = float(row_mass.sum())
            if settle:
                log_plan -= float(row_mass @ log_rows)
            entropy = log_plan + float(row_mass @ np.log(self._marginal * self._shares)) - mass
        found, left = (own - log_rows, np.zeros(own.size)) if settle else (own, log_rows)
        return Evaluation(found, left, log_sums, mass, log_kernel, entropy)

    def _over_spans(self, work: Callable[[list[slice]], Part]) -> list[Part]:
        """The results of all spans in order, by one thread or several."""
        return list(map(work, self._spans) if self._pool is None else self._pool.map(work, self._spans))

    def _over_whole_spans(self, work: Callable[[slice, Sequence[slice]], Floats]) -> list[Floats]:
        """The same for work on one or more spans, whose results it adds up: one thread takes all at once, several take
        one at a time."""
        spans = [slice(chunks[0].start, chunks[-1].stop) for chunks in self._spans]
        if self._pool is None:
            return [work(slice(spans[0].start, spans[-1].stop), spans)]
        return list(self._pool.map(lambda rows: work(rows, [rows]), spans))


def _split(chunks: list[slice], parts: int) -> list[list[slice]]:
    """Consecutive groups of chunks, as even as they can be."""
    bounds = np.linspace(0, len(chunks), parts + 1).round().astype(int)
    return [chunks[low:high] for low, high in pairwise(bounds)]


def in_order(parts: Iterable[Floats]) -> Floats:
    """Their sum, added up as they come: of chunks nobody keeps more than one, however many rows there are."""
    parts = iter(parts)
    total = next(parts)
    for part in parts:
        total = total + part
    return total
