"""A source agent's rows of the kernel against all its neighbours' columns, read once per round.

One sweep takes the neighbours' potentials v and gives both the rows' new potential and what the targets need for
theirs: while a chunk of rows is in cache, its row sums give u, and u gives its part of the column sums
sum_n alpha_n exp((u_n - c_nm)/eps). Everything here is in nats: f = u/eps, g = v/eps, log K = -c/eps. No messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from deot_mpi.data.samples import Floats
from deot_mpi.kernel import LogPairs, loops
from deot_mpi.kernel.base import Factors, ProductPairs
from deot_mpi.kernel.entries import Absorbed, Entries, Exponents, Layout, Numbers, Precision, Sweep, Tallies
from deot_mpi.kernel.halves import Halves, drop_spare
from deot_mpi.kernel.rows import Rows, in_order

_DRIFT: dict[Precision, float] = {"float32": 30.0, "float64": 300.0}
"""How far (in nats) a potential may move before the block is absorbed anew. Together with the floor: an entry that was
lost to it is still below 6 exp(30 - 80) of the row's sum."""
_STALE = 60.0
"""Both halves are read again when the potentials are this many times their last move away from where that was last
done: a sum is then off by a quarter (0.004 times 60) of what still changes at most, by far less where many terms count.
With 30, 14 problems took as many rounds, but for two, and up to a tenth longer; with 120, a round more here and there.
A rule that measured how many terms count, and waited longer, took more: what is mixed are small differences."""
_LIGHTEST = 1e-12
"""Columns whose weight is a smaller part of the heaviest one's than this would sink to the floor of float32."""


class RowBlock(Rows):
    """The rows of one source agent. ``sweep`` is a Sinkhorn step of its rows and its part of one for the columns.

    What is stored is S_nm = exp(log K_nm + g0_m + log w_m - shift_n), with w_m = (e_ij/e_i) beta_m, g0 the potential it
    was absorbed at and shift_n near the row's largest exponent: its largest entry lies between 1/4 and e^21, whatever
    eps is. For a potential g near g0, r_n = sum_m S_nm exp(g_m - g0_m) gives f_n = -shift_n - log r_n, and
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
        super().__init__(pairs, log_weights, columns, shares, marginal, threads)
        self._memory = memory
        rows, width = pairs.shape
        self._layout = Layout(self.columns, width)
        self._places = {j: place for place, j in enumerate(self.columns)}
        self._tops, self._shift = np.zeros(rows), np.zeros(rows)
        parts = len(self.columns)
        self._tallies = Tallies(
            shares / shares.max(), np.zeros((parts, rows)), np.ones(rows), np.ones(rows), np.zeros(parts, np.uint8)
        )
        self._column_lift = np.ones(width)
        self._reference: Floats | None = None
        self._offsets = np.zeros(width)
        """What turns the logs of column sums into those of the sums that targets are sent."""
        self._squares = np.zeros(width)
        """Of the last sweep that found them."""
        self._lifted: Floats | None = None
        self._last: Floats | None = None
        self._entries: Entries | None = None
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
        width = self._layout.blocks * loops.BLOCK if self._in_halves else width
        self.stored = rows * width * np.dtype(self.precision).itemsize <= self._memory
        self.release()

    def release(self) -> None:
        """Give the stored block back; it is computed again if it is needed."""
        self._entries, self._reference = None, None

    def take(self, pairs: LogPairs) -> None:
        """Go over to another kernel between the same rows and columns."""
        assert pairs.shape == self._pairs.shape
        self._pairs, self._reference = pairs, None

    def temper(self, temperature: float) -> None:
        """Work on log K / temperature: the kernel of a larger eps."""
        if temperature != self._temperature:
            self._temperature, self._reference = temperature, None

    def absorbed(self) -> Absorbed:
        return Absorbed(self._asked or self.precision, self._temperature, self._reference, self._lifted, self._last)

    def absorb(self, absorbed: Absorbed) -> None:
        """Store the block as it was: a run that goes on has the bits of one that was not interrupted."""
        self.use(absorbed.precision)
        self.temper(absorbed.temperature)
        self._reference, self._lifted, self._last = None, None, None
        if absorbed.reference is None:
            return
        self._refer(absorbed.reference)
        self._make_room()
        exponents = self._exponents()

        def fill(chunks: list[slice]) -> None:
            for rows in chunks:
                self._absorbed(rows, exponents, anew=True)

        self._over_spans(fill)
        if absorbed.lifted is not None:
            self._swept(absorbed.lifted, columns=True)
        self._last = absorbed.last

    def hear(self, neighbour: int, potential: Floats) -> None:
        """Row sums over one neighbour's columns, while other neighbours' potentials are still on the way."""
        columns, place = self.columns[neighbour], self._places[neighbour]
        entries = self._entries
        if entries is None or self._reference is None or self._drifted(potential, columns):
            return  # not possible before all are there; ``sweep`` does it then
        if self._in_halves:
            scaled: NDArray[np.floating] = self._layout.window(place, potential, self._reference[columns])
        else:
            scaled = self._scaled(potential, columns)

        def sums(chunks: list[slice]) -> None:
            for rows in chunks:
                self._tallies.by_part[place, rows] = entries.part(rows).hear(place, scaled)

        self._over_spans(sums)
        self._tallies.heard[place] = 1

    def sweep(self, potential: Floats) -> tuple[Floats, Floats]:
        """f and log sum_n alpha_n exp(f_n + log K_nm), for potentials g of all columns. One pass over the block."""
        sums = self._swept(potential, columns=True)
        # A column so far from all rows that its sum underflows is drawn nearer until it is seen.
        return self._row_potential(), loops.add_logs(sums, self._offsets)

    def sweep_curved(self, potential: Floats) -> tuple[Floats, Floats, Floats]:
        """As ``sweep``, and sum_n alpha_n P_nm^2 for every column, P_nm = exp(f_n + log K_nm + g_m + log w_m): how much
        of a column's mass comes back to it when it is given to the rows and these give it to columns again."""
        if self._in_halves and (self._anew(potential) or self._stale(potential)):
            self._swept(potential, columns=True)  # squares are of the upper halves alone
        sums = self._swept(potential, columns=True, curved=True)
        assert self._reference is not None
        curvature = self._shares.max() * np.exp(2.0 * (potential - self._reference)) * self._squares
        return self._row_potential(), loops.add_logs(sums, self._offsets), curvature

    def row_potential(self, potential: Floats) -> Floats:
        """f alone, to the last digit or two as ``sweep`` gives it: for kernels whose columns are the rows of all
        agents, who need no sums."""
        self._swept(potential, columns=False)
        return self._row_potential()

    def _row_potential(self) -> Floats:
        return loops.add_logs(self._tallies.scale, self._shift, sign=-1.0)

    def _anew(self, potential: Floats) -> bool:
        """Whether the block has to be absorbed at these potentials."""
        return self._reference is None or self._drifted(potential, slice(None))

    def _swept(self, potential: Floats, columns: bool, curved: bool = False) -> Floats:
        """One pass: row sums over all columns are left in the tallies, column sums given back if asked for."""
        anew = self._anew(potential)
        if anew:
            self._tallies.heard[:] = 0
            self._refer(potential.copy())
            self._make_room()
        both = self._in_halves and (not columns or self._stale(potential))
        exponents = self._exponents() if anew or self._entries is None else None
        sweep = Sweep(self._laid_out(potential, both), both, columns, curved)
        if exponents is None:
            parts = self._sweep_stored(sweep)
        elif anew and isinstance(exponents, Factors) and isinstance(self._entries, Halves):
            parts = self._put_and_sweep(self._entries, exponents, sweep)
        else:
            parts = self._over_spans(lambda chunks: self._sweep_anew(chunks, sweep, exponents, anew))
        self._tallies.heard[:] = 0
        total = in_order(parts)
        self._last = potential.copy()
        if curved:
            self._squares = total[1]
        if not self._in_halves:
            return np.asarray(total[0])
        if both:
            self._lifted = self._last if columns else None
            self._column_lift = _ratio(total[0], total[1]) if columns else self._column_lift
            return np.asarray(total[0])
        return np.asarray(total[0] * self._column_lift)

    def _refer(self, reference: Floats) -> None:
        """Absorb at these potentials from now on."""
        self._reference, self._lifted = reference, None
        self._offsets = np.log(self._shares.max()) - reference - self._log_weights

    def _stale(self, potential: Floats) -> bool:
        """Whether what the lower halves add has to be found again."""
        if self._lifted is None or self._last is None:
            return True
        away, move = (loops.largest_move(potential, since) for since in (self._lifted, self._last))
        return away > _STALE * move

    def _sweep_stored(self, sweep: Sweep) -> list[Floats]:
        """Column sums, of all rows or of every span."""
        assert self._entries is not None
        entries = self._entries
        return self._over_whole_spans(
            lambda rows, spans: entries.part(rows).sweep(sweep, self._tallies, spans, self._step)
        )

    def _put_and_sweep(self, entries: Halves, factors: Factors, sweep: Sweep) -> list[Floats]:
        """The same of entries that are made on the way."""

        def work(rows: slice, spans: Sequence[slice]) -> Floats:
            self._tops[rows], total = entries.part(rows).put_and_sweep(factors, sweep, self._tallies, spans, self._step)
            self._shift[rows] = self._tops[rows] + factors.offset[rows]
            return total

        return self._over_whole_spans(work)

    def _sweep_anew(self, chunks: list[slice], sweep: Sweep, exponents: Exponents, anew: bool) -> Floats:
        """Column sums of one span, of entries that are not there yet, or not kept."""
        tallies, step = self._tallies, self._step
        return in_order(self._absorbed(rows, exponents, anew).sweep(sweep, tallies, [rows], step) for rows in chunks)

    def _exponents(self) -> Exponents:
        """log S but for the rows' shifts."""
        assert self._reference is not None
        columns, single = self._reference + self._log_weights, self.precision == "float32"
        if self._in_halves and isinstance(self._pairs, ProductPairs):
            factors = self._pairs.factors(columns, self._temperature)
            if factors is not None:
                return factors
        return self._pairs.shifted(0.0, columns, self._temperature, single=single)

    def _absorbed(self, rows: slice, exponents: Exponents, anew: bool) -> Entries:
        """S for a chunk of rows, from its exponents (``anew``: with a new shift); stored where there is room."""
        entries = self._room(rows.stop - rows.start) if self._entries is None else self._entries.part(rows)
        self._tops[rows] = entries.put(exponents, rows, None if anew else self._tops[rows])
        self._shift[rows] = self._tops[rows] + exponents.offset[rows]
        return entries

    @property
    def _in_halves(self) -> bool:
        return self.precision == "float32" and loops.compiled is not None

    def _room(self, rows: int) -> Entries:
        if self._in_halves:
            return Halves.room(rows, self._layout)
        drop_spare()
        return Numbers(np.empty((rows, self._layout.width), dtype=self.precision), self._layout, self.precision)

    def _make_room(self) -> None:
        if self.stored and self._entries is None:
            self._entries = self._room(self._pairs.shape[0])

    def _drifted(self, potential: Floats, columns: slice) -> bool:
        assert self._reference is not None
        return loops.largest_move(potential, self._reference[columns]) > _DRIFT[self.precision]

    def _scaled(self, potential: Floats, columns: slice) -> NDArray[np.floating]:
        assert self._reference is not None
        return np.exp(potential - self._reference[columns]).astype(self.precision)

    def _laid_out(self, potential: Floats, both: bool) -> NDArray[np.floating]:
        """exp(g - g0) as a sweep takes it."""
        assert self._reference is not None
        if not self._in_halves:
            return self._scaled(potential, slice(None))
        lay_out = self._layout.padded if both else self._layout.windows
        return lay_out(potential, self._reference)

    def plan_sum(self, own: Floats, potential: Floats, work: Callable[[slice, NDArray[np.floating]], Floats]) -> Floats:
        """sum over chunks of work(rows, P), P_nm = exp(f_n + log K_nm + g_m + log w_m): the plan over a_n.

        Where f and g are those of the last sweep, its block is used, stored or computed again with the same bits;
        without a sweep, P comes from the kernel in float64.
        """
        swept, columns = self._reference is not None, potential + self._log_weights
        direct = None if swept else self._pairs.shifted(own, columns, self._temperature)
        again = self._exponents() if swept and self._entries is None else None
        scaled = self._scaled(potential, slice(None)) if swept else np.empty(0)

        def chunk(rows: slice) -> NDArray[np.floating]:
            if direct is not None:
                exponent = direct.rows(rows.start, rows.stop)
                return np.asarray(np.exp(exponent, out=exponent))
            if again is None:
                assert self._entries is not None
                entries = self._entries.part(rows)
            else:
                entries = self._absorbed(rows, again, anew=False)
            plan = entries.numbers() * scaled
            plan *= np.exp(own[rows] + self._shift[rows]).astype(plan.dtype)[:, None]
            return np.asarray(plan)

        def partial(chunks: list[slice]) -> Floats:
            return in_order(work(rows, chunk(rows)) for rows in chunks)

        return in_order(self._over_spans(partial))


def _ratio(whole: Floats, part: Floats) -> Floats:
    """whole / part; 1 where both have vanished."""
    seen = part > np.finfo(np.float32).tiny
    return np.where(seen, whole / np.where(seen, part, 1.0), 1.0)
