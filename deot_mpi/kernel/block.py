"""One block of the log-kernel as an agent uses it: log-sums along its rows, at the price of a matrix-vector product."""

from __future__ import annotations

import numpy as np

from deot_mpi.data.samples import Floats
from deot_mpi.kernel.loops import absorb

_SPAN = 300.0
"""How far (in nats) two entries of a potential may drift apart before the block is absorbed anew.

A drift of 300 can raise an entry that sank to the floor to exp(-390) of the row sum at most: far below the rounding of
the sum, so absorbed and plain log-sums agree to rounding.
"""
_FLOOR = -690.0
"""Entries below exp(this) of their row's largest are stored as exp(this)."""


class KernelBlock:
    """log K between one agent's own rows and a neighbour's, with the log-weights of the neighbour's rows.

    log_sums(g)_n = log sum_m beta_m exp(g_m + log K_nm), for a potential g in units of eps. The matrix
    exp(log K + log beta + g_ref - row maximum) is kept, and only the difference g - g_ref enters the product.
    """

    def __init__(self, log_kernel: Floats, log_shares: Floats) -> None:
        self.log_kernel = log_kernel
        self.log_shares = log_shares
        self._reference: Floats | None = None
        self._shift = np.empty(0)
        self._absorbed = np.empty((0, 0))

    def log_sums(self, potential: Floats) -> Floats:
        drift = self._drift(potential)
        top = drift.max()
        return np.asarray(self._shift + top + np.log(self._absorbed @ np.exp(drift - top)))

    def _drift(self, potential: Floats) -> Floats:
        if self._reference is not None:
            drift = potential - self._reference
            if np.ptp(drift) <= _SPAN:
                return drift
        self.absorb(potential)
        return np.zeros_like(potential)

    @property
    def absorbed_at(self) -> Floats | None:
        """g_ref, which decides the last bits of every sum."""
        return self._reference

    def absorb(self, potential: Floats) -> None:
        self._reference = potential.copy()
        exponent = self.log_kernel + (self.log_shares + potential)[None, :]
        self._shift = exponent.max(axis=1)
        absorb(exponent, self._shift, _FLOOR, exponent)
        self._absorbed = exponent
