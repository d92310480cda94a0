"""Attacks on sketches by one who knows omega, the norms and the flip rate, and perhaps has similar rows.

All work on many victims at once. A bit says on which side of a plane through the origin a row lies, b_l = [<omega_l, y>
>= 0], so recovering a row is fitting a linear classifier without intercept to (omega_l, b_l), and scaling it to the
known norm. With rows of its own an attacker looks only where rows are likely, in the basis of their principal
components and whitened by their spectrum (MATH: How private the sketch really is).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deot_mpi.data.samples import Floats

_STEPS = 300
"""Of L-BFGS; it mostly stops long before."""
_ENOUGH = 1e-6
"""Relative decrease of a step at which it stops."""
_MARGIN_WEIGHTS = (1.0, 100.0)
"""C of the SVM: soft, and nearly hard."""
_SLOPES = (3.0, 10.0)
"""Of the logistic curve that stands for a sign, in units of a typical <omega, y>."""
_Single = NDArray[np.float32]
_Loss = Callable[[_Single], tuple[_Single, _Single]]
"""Of margins: values and slopes."""
COMPONENTS = (5, 10, 20, 50, 100, 200)
NEAREST = (30, 100)
"""Similar rows that are nearest to a guess, of which a prior for that one victim is made."""
LENGTHS = (1.0, 0.9, 0.8, 0.7, 0.5)
"""Of a guess, as shares of the known norm: one whose direction is uncertain comes nearer when it is shorter."""
_NEAR_SLOPE = 3.0


@dataclass(frozen=True)
class Seen:
    """What an attacker has of its victims."""

    omega: Floats
    """(D, Q)."""
    signs: Floats
    """(V, Q) of -1 and 1: the bits it was shown."""
    norms: Floats
    """(V,) as shown."""
    flip: float


@dataclass(frozen=True)
class Prior:
    """Rows like the victims', as an attacker may have: their mean and principal directions, each by its deviation."""

    mean: Floats
    directions: Floats
    """(D, K), in descending order of deviation, scaled by it."""

    @classmethod
    def of(cls, rows: Floats) -> Prior:
        mean = rows.mean(axis=0)
        _, deviations, directions = np.linalg.svd(rows - mean, full_matrices=False)
        large = deviations > 1e-9 * max(float(deviations.max(initial=0.0)), np.finfo(float).tiny)
        return cls(mean, directions[large].T * (deviations[large] / np.sqrt(len(rows))))

    def basis(self, components: int) -> Floats:
        """(D, k + 1): the mean as one more direction, then the first k."""
        return np.column_stack([self.mean, self.directions[:, :components]])


def relative_errors(recovered: Floats, truth: Floats) -> Floats:
    """|y^ - y| / |y| for each victim; 1 is what the origin would get."""
    lengths = np.linalg.norm(truth, axis=1)
    return np.asarray(np.linalg.norm(recovered - truth, axis=1) / np.where(lengths > 0, lengths, 1.0))


def least_squares(own: Floats, products: Floats, cutoff: float | None = None) -> Floats:
    """The paper's: from estimated distances to the attacker's own rows, i.e. <x_k, y> = |x_k| |y| cos(phi^_k), the y of
    least squares (of least norm, where the rows do not span); directions whose spread is below a share ``cutoff`` of
    the largest are left alone, where noise would drown what is known of them."""
    return np.asarray(np.linalg.lstsq(own, products.T, rcond=cutoff)[0].T)


def half_spaces(seen: Seen, basis: Floats | None = None) -> dict[str, Floats]:
    """The SVM and the maximum of the likelihood, by name; each scaled to the victim's norm. ``basis`` (D, k): look only
    there, with coordinates that are about 1 in size."""
    features = seen.omega.T if basis is None else seen.omega.T @ basis
    typical = np.sqrt((features**2).sum(axis=1).mean())
    features = features / typical
    found = {}
    for weight in _MARGIN_WEIGHTS:
        found[f"svm, C {weight:g}"] = _fit(features, seen.signs, _hinge(weight))
    for slope in _SLOPES:
        found[f"likelihood, slope {slope:g}"] = _fit(features, seen.signs, _likelihood(slope, seen.flip))
    rows = found if basis is None else {name: where @ basis.T for name, where in found.items()}
    return {name: _to_norm(recovered, seen.norms) for name, recovered in rows.items()}


def near_rows(seen: Seen, rows: Floats, guesses: Floats, number: int) -> Floats:
    """Every victim again, each in the basis of the ``number`` similar rows whose directions are nearest to its guess:
    where rows come in kinds, those of one kind lie in few dimensions. The likelihood's maximum, scaled to the norm."""
    directions = rows / np.maximum(np.linalg.norm(rows, axis=1), np.finfo(float).tiny)[:, None]
    shadows, found = rows @ seen.omega, np.zeros_like(guesses)
    for victim, guess in enumerate(guesses):
        nearest = np.argsort(-(directions @ guess), kind="stable")[:number]
        # The basis is made of the rows themselves, so what the planes see of it is made of what they see of these.
        mean, spread = rows[nearest].mean(axis=0), rows[nearest] - rows[nearest].mean(axis=0)
        left, deviations, _ = np.linalg.svd(spread, full_matrices=False)
        large = deviations > 1e-9 * max(float(deviations[0]), np.finfo(float).tiny)
        mixed = left[:, large] / np.sqrt(len(nearest))
        basis = np.column_stack([mean, spread.T @ mixed])
        seen_mean = shadows[nearest].mean(axis=0)
        features = np.column_stack([seen_mean, (shadows[nearest] - seen_mean).T @ mixed])
        typical = max(float(np.sqrt((features**2).sum(axis=1).mean())), np.finfo(float).tiny)
        where = _fit(features / typical, seen.signs[victim : victim + 1], _likelihood(_NEAR_SLOPE, seen.flip))
        found[victim] = basis @ where[0]
    return _to_norm(found, seen.norms)


def _hinge(weight: float) -> _Loss:
    """C max(0, 1 - m)^2, the linear SVM's."""

    def loss(margins: _Single) -> tuple[_Single, _Single]:
        short = np.maximum(1.0 - margins, 0.0)
        return weight * short**2, -2.0 * weight * short

    return loss


def _likelihood(slope: float, flip: float) -> _Loss:
    """-log of r + (1 - 2r) sigma(slope m): a bit that says which side, unless it was flipped."""
    from scipy.special import expit

    least = max(flip, 1e-6)

    def loss(margins: _Single) -> tuple[_Single, _Single]:
        side = expit(slope * margins)
        chance = least + (1.0 - 2.0 * least) * side
        return -np.log(chance), -(1.0 - 2.0 * least) * slope * side * (1.0 - side) / chance

    return loss


def _to_norm(rows: Floats, norms: Floats) -> Floats:
    lengths = np.linalg.norm(rows, axis=1)
    return np.asarray(rows * (norms / np.where(lengths > 0, lengths, 1.0))[:, None])


def _fit(features: Floats, signs: Floats, loss: _Loss) -> Floats:
    """min over z, for every victim at once, of sum_l loss(sign_l <features_l, z>) + |z|^2/2.

    Products in float32: a guess is off by tenths, its rounding by 1e-6 (measured: medians move by less than 0.001).
    """
    from scipy.optimize import minimize  # only where it is needed: agents start faster without

    shape = (len(signs), features.shape[1])
    planes, sides = features.astype(np.float32), signs.astype(np.float32)
    across = np.ascontiguousarray(planes.T)

    def objective(flat: Floats) -> tuple[float, Floats]:
        where = flat.reshape(shape).astype(np.float32)
        value, slope = loss(sides * (where @ across))
        gradient = (sides * slope) @ planes + where
        return float(value.sum(dtype=np.float64) + 0.5 * (flat**2).sum()), gradient.ravel().astype(np.float64)

    # The classical linear estimate to start from: the mean of omega_l, each turned to the side of its bit.
    start = signs @ features / features.shape[0]
    options = {"maxiter": _STEPS, "ftol": _ENOUGH}
    ended = minimize(objective, start.ravel(), jac=True, method="L-BFGS-B", options=options)
    return np.asarray(ended.x.reshape(shape))
