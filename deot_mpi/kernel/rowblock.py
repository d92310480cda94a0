"""A source agent's rows of the kernel against all its neighbours' columns, read once per round.

One sweep takes the neighbours' potentials v and gives both the rows' new potential and what the targets need for
theirs: while a chunk of rows is in cache, its row sums give u, and u gives its part of the column sums
sum_n alpha_n exp((u_n - c_nm)/eps). Everything here is in nats: f = u/eps, g = v/eps, log K = -c/eps. No messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from deot_mpi.data.samples import Floats
from deot_mpi.kernel import LogPairs
from deot_mpi.kernel.loops import absorb, plan_rows

Precision = Literal["float32", "float64"]
Part = TypeVar("Part")

_CHUNK_ENTRIES = 1 << 19
"""Entries of a chunk of rows: 2 MiB of float32, so that it is still in cache for its column sums."""
_SPANS = 8
"""Parts of the block that may be swept side by side. Always the same parts, so that threads do not change a bit."""
_FLOOR = {"float32": -80.0, "float64": -690.0}
"""Entries below exp(this) of their row's largest are stored as exp(this): far below the rounding of any sum, and never
so small that the processor falls back to slow (denormal) arithmetic."""
_DRIFT = {"float32": 30.0, "float64": 300.0}
"""How far (in nats) a potential may move before the block is absorbed anew. Together with the floor: an entry that was
lost to it is still below exp(30 - 80) of the row's sum."""
_LIGHTEST = 1e-12
"""Columns whose weight is a smaller part of the heaviest one's than this would sink to the floor of float32."""


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


class RowBlock:
    """The rows of one source agent. ``sweep`` is a Sinkhorn step of its rows and its part of one for the columns.

    What is stored is S_nm = exp(log K_nm + g0_m + log w_m - shift_n), with w_m = (e_ij/e_i) beta_m, g0 the potential it
    was absorbed at and shift_n the largest exponent of the row: entries lie in (0, 1], whatever eps is. For a potential
    g near g0, r_n = sum_m S_nm exp(g_m - g0_m) gives f_n = -shift_n - log r_n, and
    sum_n alpha_n exp(f_n + log K_nm) = exp(-g0_m - log w_m) sum_n (alpha_n/r_n) S_nm.
    Above the memory limit S is not kept, but computed again chunk by chunk in every sweep, with the same bits.
    """

    def __init__(
        self,
        pairs: LogPairs,
        log_weights: Floats,
        columns: Mapping[int, slice],
        shares: Floats,
        marginal: float,
        *,
        precision: Precision = "float64",
        memory: float = np.inf,
        threads: int = 1,
    ) -> None:
        self.columns, self._pairs, self._log_weights = dict(columns), pairs, log_weights
        self._shares, self._marginal = shares, marginal
        self._relative_shares = shares / shares.max()
        self._memory = memory
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        rows, width = pairs.shape
        step = max(1, _CHUNK_ENTRIES // max(width, 1))
        chunks = [slice(start, min(start + step, rows)) for start in range(0, rows, step)]
        self._spans = [span for span in _split(chunks, _SPANS) if span]
        self._shift = np.zeros(rows)
        self._row_sums = {j: np.zeros(rows) for j in self.columns}
        self._scale = np.ones(rows)
        self._heard: set[int] = set()
        self._temperature = 1.0
        self._reference: Floats | None = None
        self._block: NDArray[np.floating] | None = None
        self.precision: Precision = "float64"
        self._asked: Precision | None = None
        self.use(precision)

    def use(self, precision: Precision) -> None:
        """Choose the precision of the stored block; very uneven weights need float64 whatever is asked for."""
        if precision == self._asked:
            return
        self._asked = precision
        spread = np.ptp(self._log_weights) if self._log_weights.size else 0.0
        self.precision = precision if spread < -np.log(_LIGHTEST) else "float64"
        rows, width = self._pairs.shape
        self.stored = rows * width * np.dtype(self.precision).itemsize <= self._memory
        self.release()

    def release(self) -> None:
        """Give the stored block back; it is computed again if it is needed."""
        self._block, self._reference = None, None

    def take(self, pairs: LogPairs) -> None:
        """Go over to another kernel between the same rows and columns."""
        assert pairs.shape == self._pairs.shape
        self._pairs, self._reference = pairs, None

    def temper(self, temperature: float) -> None:
        """Work on log K / temperature: the kernel of a larger eps."""
        if temperature != self._temperature:
            self._temperature, self._reference = temperature, None

    def absorbed_at(self) -> tuple[Precision, float, Floats | None]:
        """What decides the bits of the stored block: the precision asked for, the temperature, g0."""
        return self._asked or self.precision, self._temperature, self._reference

    def absorb(self, precision: Precision, temperature: float, reference: Floats | None) -> None:
        """Store the block as it was: a run that goes on has the bits of one that was not interrupted."""
        self.use(precision)
        self.temper(temperature)
        self._reference = reference
        if reference is None:
            return
        if self.stored and self._block is None:
            self._block = np.empty(self._pairs.shape, dtype=self.precision)
        exponents = self._exponents()

        def fill(chunks: list[slice]) -> None:
            for rows in chunks:
                self._absorbed(rows, exponents, anew=True)

        self._over_spans(fill)

    def hear(self, neighbour: int, potential: Floats) -> None:
        """Row sums over one neighbour's columns, while other neighbours' potentials are still on the way."""
        columns = self.columns[neighbour]
        if self._block is None or self._reference is None or self._drifted(potential, columns):
            return  # not possible before all are there; ``sweep`` does it then
        scaled = self._scaled(potential, columns)

        def sums(chunks: list[slice]) -> None:
            assert self._block is not None
            for rows in chunks:
                self._row_sums[neighbour][rows] = self._block[rows, columns] @ scaled

        self._over_spans(sums)
        self._heard.add(neighbour)

    def sweep(self, potential: Floats) -> tuple[Floats, Floats]:
        """f and log sum_n alpha_n exp(f_n + log K_nm), for potentials g of all columns. One pass over the block."""
        parts = self._swept(potential, columns=True)
        # A column so far from all rows that its sum underflows is drawn nearer until it is seen.
        total = np.log(np.maximum(_in_order(parts), np.finfo(np.float64).tiny)) + np.log(self._shares.max())
        assert self._reference is not None
        return -self._shift - np.log(self._scale), total - self._reference - self._log_weights

    def row_potential(self, potential: Floats) -> Floats:
        """f alone, as ``sweep`` gives it: for kernels whose columns are the rows of all agents, who need no sums."""
        self._swept(potential, columns=False)
        return np.asarray(-self._shift - np.log(self._scale))

    def _swept(self, potential: Floats, columns: bool) -> list[Floats]:
        """Row sums over all columns, put into ``_scale``; the spans' parts of the column sums where they are asked
        for."""
        everything = slice(None)
        anew = self._reference is None or self._drifted(potential, everything)
        if anew:
            self._heard.clear()
            self._reference = potential.copy()
            if self.stored and self._block is None:
                self._block = np.empty(self._pairs.shape, dtype=self.precision)
        scaled = self._scaled(potential, everything)
        exponents = None
        if anew or self._block is None:
            exponents = self._exponents()
        parts = self._over_spans(lambda chunks: self._sweep_chunks(chunks, scaled, exponents, anew, columns))
        self._heard.clear()
        return parts

    def _sweep_chunks(
        self,
        chunks: list[slice],
        scaled: NDArray[np.floating],
        exponents: LogPairs | None,
        anew: bool,
        with_columns: bool,
    ) -> Floats:
        total = np.zeros(self._pairs.shape[1])
        for rows in chunks:
            block = self._absorbed(rows, exponents, anew)
            for j, columns in self.columns.items():
                if j not in self._heard:
                    self._row_sums[j][rows] = block[:, columns] @ scaled[columns]
            scale = np.zeros(rows.stop - rows.start)
            for sums in self._row_sums.values():  # in the order of the neighbours, not of their arrival
                scale += sums[rows]
            self._scale[rows] = scale
            if with_columns:
                total += (self._relative_shares[rows] / scale).astype(block.dtype) @ block
        return total

    def _exponents(self) -> LogPairs:
        """log S but for the rows' shifts."""
        assert self._reference is not None
        columns, single = self._reference + self._log_weights, self.precision == "float32"
        return self._pairs.shifted(0.0, columns, self._temperature, single=single)

    def _absorbed(self, rows: slice, exponents: LogPairs | None, anew: bool) -> NDArray[np.floating]:
        """S for a chunk of rows: as stored, or from its exponents (``anew``: with a new shift)."""
        if exponents is None:
            assert self._block is not None
            return self._block[rows]
        exponent, offset = exponents.rows(rows.start, rows.stop), exponents.offset[rows]
        if anew:
            self._shift[rows] = exponent.max(axis=1) + offset
        out = np.empty(exponent.shape, dtype=self.precision) if self._block is None else self._block[rows]
        absorb(exponent, (self._shift[rows] - offset).astype(exponent.dtype), _FLOOR[self.precision], out)
        return out

    def _drifted(self, potential: Floats, columns: slice) -> bool:
        assert self._reference is not None
        return bool(np.abs(potential - self._reference[columns]).max(initial=0.0) > _DRIFT[self.precision])

    def _scaled(self, potential: Floats, columns: slice) -> NDArray[np.floating]:
        assert self._reference is not None
        return np.exp(potential - self._reference[columns]).astype(self.precision)

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

    def plan_sum(self, own: Floats, potential: Floats, work: Callable[[slice, NDArray[np.floating]], Floats]) -> Floats:
        """sum over chunks of work(rows, P), P_nm = exp(f_n + log K_nm + g_m + log w_m): the plan over a_n.

        Where f and g are those of the last sweep, its block is used, stored or computed again with the same bits;
        without a sweep, P comes from the kernel in float64.
        """
        swept, columns = self._reference is not None, potential + self._log_weights
        if not swept:
            exponents: LogPairs | None = self._pairs.shifted(own, columns, self._temperature)
        else:
            exponents = None if self._block is not None else self._exponents()
        scaled = self._scaled(potential, slice(None)) if swept else np.empty(0)

        def chunk(rows: slice) -> NDArray[np.floating]:
            if not swept:
                assert exponents is not None
                exponent = exponents.rows(rows.start, rows.stop)
                return np.asarray(np.exp(exponent, out=exponent))
            plan = self._absorbed(rows, exponents, anew=False) * scaled
            plan *= np.exp(own[rows] + self._shift[rows]).astype(plan.dtype)[:, None]
            return np.asarray(plan)

        def partial(chunks: list[slice]) -> Floats:
            return _in_order([work(rows, chunk(rows)) for rows in chunks])

        return _in_order(self._over_spans(partial))

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
                sums, entropies = plan_rows(plan)
                log_rows[rows] = np.log(sums)
                weights = 1.0 / sums if settle else np.ones_like(sums)
                row_entropy[rows] = weights * entropies
                total += (weights * self._shares[rows]) @ plan
            return total

        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            column_mass = self._marginal * _in_order(self._over_spans(partial))
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


def _split(chunks: list[slice], parts: int) -> list[list[slice]]:
    """Consecutive groups of chunks, as even as they can be."""
    bounds = np.linspace(0, len(chunks), parts + 1).round().astype(int)
    return [chunks[low:high] for low, high in pairwise(bounds)]


def _in_order(parts: list[Floats]) -> Floats:
    total = np.zeros_like(parts[0])
    for part in parts:
        total += part
    return total
