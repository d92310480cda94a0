"""Domain adaptation in the shape of scikit-learn, against POT's and scikit-learn itself. Real ranks."""

from __future__ import annotations

import numpy as np
import pytest
from domains import Domains, nearest
from mpi4py import MPI
from problems import squared_distances

import deot_mpi
from deot_mpi import InputError


@pytest.mark.mpi(min_size=2, max_size=4)
def test_the_estimator_maps_new_rows_as_pot_does(comm: MPI.Intracomm) -> None:
    """Fitted rows as ``adapt`` maps them, new ones as POT's out-of-sample transform does with one source agent."""
    domains, rng = Domains(comm), np.random.default_rng(9)
    new = rng.normal(size=(7, 4)) + 7.0
    model = deot_mpi.DistributedTransport(comm, reg_e=0.4, kernel="raw", tol=1e-11, max_iter=50_000)
    model.fit(domains.own(domains.x, domains.y), domains.own(domains.labels, domains.truth), domains.role)
    mapped = domains.mapped(domains.plan())
    if domains.is_source:
        rows, ours = domains.own(domains.x, domains.y), domains.own(mapped, domains.y)
        np.testing.assert_allclose(model.transform(), ours, atol=1e-6)
        place = squared_distances(new, rows).argmin(axis=1)
        np.testing.assert_allclose(model.transform(new), ours[place] + new - rows[place], atol=1e-6)
        with pytest.raises(InputError, match="predict is for targets"):
            model.predict()
        if comm.size == 2:
            import ot

            peer = ot.da.SinkhornTransport(
                reg_e=0.4, max_iter=100_000, tol=1e-13, out_of_sample_map="ferradans", method="sinkhorn_log"
            ).fit(Xs=domains.x, Xt=domains.y)
            np.testing.assert_allclose(model.transform(new), peer.transform(Xs=new), atol=1e-6)
    else:
        np.testing.assert_array_equal(
            model.predict(), nearest(mapped, domains.labels, domains.own(domains.x, domains.y))
        )
        np.testing.assert_array_equal(model.predict(new), nearest(mapped, domains.labels, new))
        with pytest.raises(InputError, match="transform is for sources"):
            model.transform()


@pytest.mark.mpi(min_size=2, max_size=2)
def test_the_estimators_parameters_are_those_of_scikit_learn(comm: MPI.Intracomm) -> None:
    model = deot_mpi.DistributedTransport(comm, reg_e=0.5)
    assert type(model)(**model.get_params()).get_params() == model.get_params()
    assert model.set_params(reg_e=2.0, method="labels").reg_e == 2.0
    with pytest.raises(InputError, match="'rge_e' is not a parameter"):
        model.set_params(rge_e=1.0)
    with pytest.raises(InputError, match="not fitted yet"):
        model.predict()
    with pytest.raises(InputError, match="not fitted yet"):
        model.score()
    domains = Domains(comm)
    rows, labels = domains.own(domains.x, domains.y), domains.own(domains.labels, domains.truth)
    model.fit(rows, labels, domains.role)
    near = rows + 1e-9
    with pytest.raises(InputError, match="read off class sums" if domains.is_source else "this is a target agent"):
        model.transform()
    if not domains.is_source:
        np.testing.assert_array_equal(model.predict(near), model.predict())
    assert model.score(near, labels) == pytest.approx(model.result_.accuracy)
    with pytest.raises(InputError, match=r"target agent 0: 26 rows but labels of shape \(25,\)"):
        model.score(rows, labels[1:])
    with pytest.raises(InputError, match="no target agent has given labels"):
        model.score(rows, labels if domains.is_source else None)


@pytest.mark.mpi(min_size=4, max_size=4)
def test_scikit_learn_searches_its_parameters(comm: MPI.Intracomm) -> None:
    """Every rank makes the same search, and finds what runs one by one find."""
    from sklearn.model_selection import GridSearchCV

    domains, scales = Domains(comm), [0.02, 0.3, 1.5]
    rows, labels = domains.own(domains.x, domains.y), domains.own(domains.labels, domains.truth)
    every = np.arange(len(rows))
    model = deot_mpi.DistributedTransport(comm, kernel="raw")
    search = GridSearchCV(model, {"eps_scale": scales, "method": ["1nn", "labels"]}, cv=[(every, every)])
    search.fit(rows, labels, role=domains.role)
    singly = [
        domains.run(eps=None, eps_scale=scale, method=method, tol=1e-6).accuracy
        for scale in scales
        for method in ("1nn", "labels")
    ]
    assert list(search.cv_results_["mean_test_score"]) == pytest.approx(singly)
    assert search.best_score_ == pytest.approx(max(one for one in singly if one is not None))
    assert comm.allgather(search.best_params_) == [search.best_params_] * comm.size
    assert search.best_estimator_.result_.accuracy == pytest.approx(search.best_score_)
