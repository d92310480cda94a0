"""What of the Gromov-Wasserstein objective depends on one domain alone: S_X, S_Y, and the second moments.

S_X = sum_nn' a_n a_n' |x_n - x_n'|^4 under E's marginals, likewise S_Y, and S_XY = 4 E|x|^2 E|y|^2. From moments
(exact, in O(N D^2)) or, as the paper does, from sketches that the agents of a domain show each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deot_mpi.data.samples import Floats
from deot_mpi.exchange.within import circle, visits
from deot_mpi.kernel.bits import Cosines
from deot_mpi.kernel.gromov import BitSettings, Spaces
from deot_mpi.kinds import Kind
from deot_mpi.roles import Role
from deot_mpi.setting import Setting
from deot_mpi.sketch import Bits, sketch

_CHUNK_ENTRIES = 1 << 20
_ROUNDING = 1e-12
"""A mean cost below this share of S_X + S_Y is rounding: the two domains have no extent."""


@dataclass(frozen=True)
class SelfTerms:
    source: float
    """S_X."""
    target: float
    """S_Y."""
    source_square: float
    """E|x|^2."""
    target_square: float

    @property
    def cross(self) -> float:
        """S_XY."""
        return 4.0 * self.source_square * self.target_square

    @property
    def constant(self) -> float:
        """S_X + S_Y - S_XY."""
        return self.source + self.target - self.cross

    @property
    def mean_cost(self) -> float:
        """E (d_X^2 - d_Y^2)^2 where x and y are drawn independently: the Gromov-Wasserstein cost of no matching."""
        found = self.constant - self.cross
        return found if found > _ROUNDING * (self.source + self.target) else 0.0

    @property
    def alignment_size(self) -> float:
        """sqrt(E|x|^2 E|y|^2)/2: no P = (1/2) E[x y^T] is larger."""
        return 0.5 * float(np.sqrt(self.source_square * self.target_square))


def self_terms_from_moments(setting: Setting, spaces: Spaces) -> SelfTerms:
    """2 E|x|^4 + 2 (E|x|^2)^2 + 4 ||E x x^T||_F^2, from masked sums: exact for centred x.

    All agents learn each domain's matrix of second moments, and no agent's own part of it.
    """
    x, role = spaces.structure(setting.rows, setting.agents.role), setting.agents.role
    weights, square = _masses(setting), (x**2).sum(axis=1)
    own = np.concatenate([[weights @ square**2, weights @ square], ((weights[:, None] * x).T @ x).ravel()])
    total = _by_role(setting, role, own, {domain: 2 + spaces.of(domain) ** 2 for domain in Role})
    terms = {
        domain: 2.0 * part[0] + 2.0 * part[1] ** 2 + 4.0 * float((part[2:] ** 2).sum())
        for domain, part in total.items()
    }
    return SelfTerms(
        float(terms[Role.SOURCE]), float(terms[Role.TARGET]), float(total[Role.SOURCE][1]), float(total[Role.TARGET][1])
    )


def self_terms_from_sketches(setting: Setting, spaces: Spaces, how: BitSettings, reach: int | None) -> SelfTerms:
    """Squared distances within a domain from the sketches and norms that its agents show each other.

    Every pair of agents counts once (``reach``: only pairs that near on the circle, which stand for the others).
    """
    agents, role = setting.agents, setting.agents.role
    x, weights = spaces.structure(setting.rows, role), _masses(setting)
    bits, norms = sketch(x, how.bits, how.seed, how.orthogonal), np.linalg.norm(x, axis=1)
    marginals = setting.protocol.marginals(role)
    scale = _off_diagonal_scale(marginals, reach)
    own = Sketched(bits, norms, weights)
    total = _fourth_powers(own, own, spaces.of(role), how)
    shown = [np.ascontiguousarray(part) for part in (bits, norms, weights)]
    timeout = setting.collectives.timeout
    for _, theirs in visits(agents, setting.ledger, timeout, shown, setting.sizes.counts[role], reach):
        heard = Sketched(np.asarray(theirs[0], np.uint8), *(np.asarray(part, np.float64) for part in theirs[1:]))
        total += 2.0 * scale * _fourth_powers(own, heard, spaces.of(role), how)
    sums = _by_role(setting, role, np.array([total, weights @ norms**2]), dict.fromkeys(Role, 2))
    return SelfTerms(
        float(sums[Role.SOURCE][0]), float(sums[Role.TARGET][0]), float(sums[Role.SOURCE][1]),
        float(sums[Role.TARGET][1]),
    )  # fmt: skip


def mean_feature_cost(setting: Setting, spaces: Spaces) -> float:
    """E|f - g|^2 for f and g drawn independently, from moments; discloses the means of both domains' features."""
    role, width = setting.agents.role, spaces.features
    features, weights = spaces.shared(setting.rows, role), _masses(setting)
    own = np.append(weights @ features, weights @ (features**2).sum(axis=1))
    total = _by_role(setting, role, own, dict.fromkeys(Role, width + 1))
    f, g = total[Role.SOURCE], total[Role.TARGET]
    return float(f[-1] + g[-1] - 2.0 * (f[:-1] @ g[:-1]))


@dataclass(frozen=True)
class Sketched:
    """One agent's rows as others of its domain see them."""

    bits: Bits
    norms: Floats
    weights: Floats


def _masses(setting: Setting) -> Floats:
    """a_n = e_i alpha_n of this agent's rows."""
    marginal = float(setting.protocol.marginals(setting.agents.role)[setting.agents.index])
    return marginal * setting.samples.shares


def _by_role(setting: Setting, role: Role, own: Floats, sizes: dict[Role, int]) -> dict[Role, Floats]:
    """Sums over each domain, of an agent's own numbers at its role's place."""
    row = np.zeros(sum(sizes.values()))
    split = sizes[Role.SOURCE]
    row[:split] = own if role is Role.SOURCE else 0.0
    row[split:] = own if role is Role.TARGET else 0.0
    total = setting.collectives.masked_sum(setting.edges, row, Kind.MOMENTS)
    return {Role.SOURCE: total[:split], Role.TARGET: total[split:]}


def _off_diagonal_scale(marginals: Floats, reach: int | None) -> float:
    """What makes up for pairs of agents that do not meet: 1 where all do."""
    met = sum(
        2.0 * marginals[index] * marginals[meeting.hear_from]
        for index in range(marginals.size)
        for meeting in circle(marginals.size, index, reach)
        if meeting.hear_from is not None
    )
    wanted = float(marginals.sum() ** 2 - (marginals**2).sum())
    return wanted / float(met) if reach is not None and met > 0 else 1.0


def _fourth_powers(one: Sketched, other: Sketched, dimension: int, how: BitSettings) -> float:
    """sum a_n a_n' |x_n - x_n'|^4 between two agents' rows, from d^ = r^2 + s^2 - 2 r s cos(phi^).

    Noise in cos(phi^) adds its variance to the square, and shrinks the cosine's mean by 1 - var(phi)/2: with the
    correction, both are taken off by count.
    """
    cosines = Cosines(one.bits, other.bits, how.bits, dimension, how.estimator, how.orthogonal)
    cosine, noise = cosines.cosine, np.zeros_like(cosines.cosine)
    if how.correction:
        cosine, noise = cosine * (1.0 + 0.5 * cosines.angle_variance), cosines.variance
    step, total = max(1, _CHUNK_ENTRIES // max(len(other.norms), 1)), 0.0
    for start in range(0, len(one.norms), step):
        stop = min(start + step, len(one.norms))
        counts, r = cosines.counts(start, stop), one.norms[start:stop, None]
        product = 2.0 * r * other.norms
        square = r**2 + other.norms**2 - product * cosine[counts]
        fourth = square**2 - product**2 * noise[counts]
        total += float(one.weights[start:stop] @ fourth @ other.weights)
    return total
