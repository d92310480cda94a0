"""What flips guarantee, whatever an attacker knows: local differential privacy."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from deot_mpi.privacy.noise import bit_epsilon

DELTA = 1e-6


@dataclass(frozen=True)
class Guarantee:
    """Of one sample's bits against any other sample's; norms are not covered, nor what a plan carries."""

    flip: float
    per_bit: float
    """No answer is more than e^per_bit times likelier for one bit than for the other."""
    per_sample: float
    """The same for all Q bits of a sample together (they compose)."""
    delta: float
    per_sample_delta: float | None
    """As per_sample, but for a chance of delta: smaller. None where the accountant is not installed."""


def guarantee(flip: float, bits: int) -> Guarantee | None:
    """None without flips: then nothing is guaranteed."""
    if flip == 0:
        return None
    return Guarantee(flip, bit_epsilon(flip), bits * bit_epsilon(flip), DELTA, _composed(flip, bits))


def _composed(flip: float, bits: int) -> float | None:
    """epsilon at delta for Q answers, by Google's accountant (privacy loss distributions)."""
    if find_spec("dp_accounting") is None:
        return None
    from dp_accounting.pld import privacy_loss_distribution as pld

    # A bit is kept with 1 - r: that is randomised response over two values with noise 2r.
    one = pld.from_randomized_response(2.0 * flip, 2)
    return float(one.self_compose(bits).get_epsilon_for_delta(DELTA))
