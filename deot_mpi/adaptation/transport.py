"""Domain adaptation in the shape of scikit-learn, with the names that users of POT's ``ot.da`` know."""

from __future__ import annotations

from inspect import signature
from typing import Any, Self

import numpy as np
from mpi4py import MPI
from numpy.typing import ArrayLike, NDArray

from deot_mpi.adapt import adapt
from deot_mpi.adaptation.nearest import nearest, nearest_labels
from deot_mpi.data.samples import Floats, check_samples
from deot_mpi.data.scaling import scaled
from deot_mpi.errors import InputError
from deot_mpi.exchange.join import agree, counted
from deot_mpi.options import AdaptOptions
from deot_mpi.result import AdaptResult
from deot_mpi.roles import Role


class DistributedTransport:
    """Fit on every rank with its own rows, then map source rows or predict target rows, each where they are.

    ``fit`` and ``score`` are collective over ``comm``; ``transform`` and ``predict`` send nothing. ``reg_e`` is eps in
    cost units (or ``eps_scale`` a share of the mean cost, or ``choose_eps``), ``reg_cl`` the weight of the class
    penalty, ``max_iter`` the rounds; other options of ``adapt`` go into ``options``. With ``scaling``, mapped rows are
    scaled ones, too.
    After ``fit``: ``result_``, ``role_``, ``classes_``.

    A search of scikit-learn over the parameters works if every rank makes it, with all rows in the one split and one
    job: ``GridSearchCV(model, grid, cv=[(every, every)]).fit(X, y, role=role)``. It chooses by targets' labels.
    """

    def __init__(
        self,
        comm: MPI.Intracomm | None = None,
        *,
        method: str = "1nn",
        reg_e: float | None = None,
        eps_scale: float | None = None,
        reg_cl: float | None = None,
        max_iter: int = 1000,
        tol: float = 1e-6,
        kernel: str = "sketch",
        bits: int = 1024,
        scaling: str = "none",
        choose_eps: bool = False,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.comm, self.method, self.reg_e, self.eps_scale = comm, method, reg_e, eps_scale
        self.reg_cl, self.max_iter, self.tol, self.kernel, self.bits = reg_cl, max_iter, tol, kernel, bits
        self.scaling, self.choose_eps, self.options = scaling, choose_eps, options

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All parameters by name, as scikit-learn wants them."""
        return {name: getattr(self, name) for name in signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise InputError(f"'{name}' is not a parameter; parameters are {', '.join(known)}.")
            setattr(self, name, value)
        return self

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, role: str = "source") -> Self:
        """This rank's own rows, and their labels: needed from sources, at targets only counted. Collective."""
        penalised = self.method == "class-regularised"  # a search over methods has one reg_cl for all
        self.result_: AdaptResult = adapt(
            self._agents, X, role, labels=y, method=self.method, eps=self.reg_e, eps_scale=self.eps_scale,
            class_weight=self.reg_cl if penalised else None, rounds=self.max_iter, tol=self.tol, kernel=self.kernel,
            bits=self.bits, scaling=self.scaling, choose_eps=self.choose_eps, **(self.options or {}),
        )  # fmt: skip
        self.rows_ = scaled(check_samples(X, None, "fitted rows").rows, self.scaling, "fitted rows")
        self.role_ = self.result_.role
        self.classes_ = np.array(self.result_.classes)
        return self

    def transform(self, X: ArrayLike | None = None) -> Floats:
        """Source rows mapped to the target domain (where labels are read by 1nn): the fitted ones, or new ones.

        A new row moves as the nearest fitted row of this agent did, as with POT's out_of_sample_map="ferradans":
        x^_k + x - x_k. Nothing is sent for it.
        """
        mapped = self._fitted().result_.mapped
        if self.role_ is Role.TARGET:
            raise InputError("this is a target agent; transform is for sources, whose rows are mapped.")
        if not len(mapped):
            raise InputError(
                "nothing was mapped at this source agent: it has no edge, or labels were read off class sums (method "
                f"'{self.result_.method}'); transform needs method '1nn' or 'class-regularised' as it is by default."
            )
        if X is None:
            return mapped
        new = self._new(X)
        place = nearest(self.rows_, new)
        return np.asarray(mapped[place] + new - self.rows_[place])

    def predict(self, X: ArrayLike | None = None) -> NDArray[np.int64]:
        """Labels of the fitted target rows, or of new ones.

        With 1nn, a new row's is that of the nearest mapped source row; otherwise that of the nearest fitted row.
        """
        result = self._fitted().result_
        if not len(result.predictions):
            raise InputError(f"this is a {self.role_.value} agent; predict is for targets, which hold the rows.")
        if X is None:
            return result.predictions
        new = self._new(X)
        if len(result.received):
            return nearest_labels(result.received, result.received_labels, new)
        return nearest_labels(self.rows_, result.predictions, new)

    def score(self, X: ArrayLike | None = None, y: ArrayLike | None = None) -> float:
        """The share of right predictions over all target agents that give labels: the same on every rank, so that
        searches go the same way everywhere. Collective; what a source gives counts for nothing."""
        comm, error, own, timeout = self._agents, None, np.zeros(2, dtype=np.int64), self._timeout
        try:
            if self._fitted().role_ is Role.TARGET and y is not None:
                own[:] = self._hits(X, np.asarray(y))
        except InputError as caught:
            error = str(caught)
        agree(comm, error, timeout)
        right, known = counted(comm, own, timeout)
        if not known:
            raise InputError("no target agent has given labels; score needs those of one or more.")
        return float(right / known)

    def _hits(self, X: ArrayLike | None, y: NDArray[np.generic]) -> tuple[int, int]:
        predicted = self.predict(X)
        if y.shape != predicted.shape:
            raise InputError(
                f"target agent {self.result_.index}: {predicted.size} rows but labels of shape {y.shape}; score takes "
                "one for each row."
            )
        return int((predicted == y).sum()), predicted.size

    @property
    def _agents(self) -> MPI.Intracomm:
        if self.comm is None:
            raise InputError("comm is None; give the communicator of all agents, such as MPI.COMM_WORLD.")
        return self.comm

    @property
    def _timeout(self) -> float:
        return float((self.options or {}).get("timeout", AdaptOptions.timeout))

    def __sklearn_clone__(self) -> Self:
        """scikit-learn would copy the communicator, which is one for all."""
        return type(self)(**self.get_params())

    def __sklearn_tags__(self) -> Any:
        """Called by scikit-learn alone."""
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))

    def _fitted(self) -> Self:
        if not hasattr(self, "result_"):
            raise InputError("not fitted yet; call fit on every rank first.")
        return self

    def _new(self, X: ArrayLike) -> Floats:
        new = check_samples(X, None, "new rows").rows
        if new.shape[1] != self.rows_.shape[1]:
            raise InputError(f"new rows have {new.shape[1]} columns, the fitted ones {self.rows_.shape[1]}.")
        return scaled(new, self.scaling, "new rows")
