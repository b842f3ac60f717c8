"""LODEGP as people use it: data of all kinds, predictions, scores, and scikit-learn."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold

import lodekit as lk
from tests.model.heating import HEATING, SHORT, TIMES, heating_data


def test_scikit_learn_can_clone_cross_validate_and_search() -> None:
    model = lk.LODEGP(HEATING.system, random_state=0, restarts=1)
    twin = clone(model)
    assert twin is not model
    assert twin.get_params() == model.get_params()
    grid = GridSearchCV(model, {"latent": ["matern-5/2", "se"]}, cv=KFold(3, shuffle=True, random_state=0))
    grid.fit(TIMES, heating_data())
    # The curves are smooth: a covariance that says so predicts what was left out better.
    assert grid.best_params_ == {"latent": "se"}
    assert all(grid.cv_results_[f"split{number}_test_score"][1] > 1.0 for number in range(3))
    with pytest.raises(lk.LodekitError, match="unknown argument"):
        model.set_params(colour="red")


def test_summary_is_a_table_that_fits_the_page(heated: lk.LODEGP) -> None:
    text = heated.summary()
    assert max(len(line) for line in text.splitlines()) <= 80
    for word in ("coef", "std err", "[0.025", "0.975]", "Log evidence", "Converged", "noise (f1)", "noise (u)"):
        assert word in text


def test_log_evidence_has_a_gradient(heated: lk.LODEGP) -> None:
    value, gradient = heated.log_evidence({"a": 2.8}, return_gradient=True)
    step = 1e-5
    difference = (heated.log_evidence({"a": 2.8 + step}) - heated.log_evidence({"a": 2.8 - step})) / (2 * step)
    assert gradient["a"] == pytest.approx(difference, rel=1e-6)
    assert value < heated.log_evidence() == pytest.approx(heated.log_evidence_)
    with pytest.raises(lk.LodekitError, match="unknown parameter"):
        heated.log_evidence({"z": 1})


def test_observables_may_be_any_linear_expression(heated: lk.LODEGP) -> None:
    mean = heated.predict(TIMES)
    np.testing.assert_allclose(heated.predict(TIMES, "f1 - 2*f2"), mean[:, 0] - 2 * mean[:, 1], atol=1e-12)
    balance = heated.predict(TIMES, "f1' + a*(f1 - f2) - u")
    assert np.abs(balance).max() < 1e-9
    _, covariance = heated.predict(TIMES, "f1", return_cov=True)
    assert covariance.shape == (25, 25)


def test_score_uses_known_noise(heated: lk.LODEGP) -> None:
    table = heating_data()
    known = lk.LODEGP(HEATING.system, random_state=0).fit(TIMES, table, noise_std=0.02)
    assert known.score(TIMES, table) == pytest.approx(heated.score(TIMES, table), abs=0.1)
    assert known.score(TIMES, table, noise_std=0.5) < known.score(TIMES, table)
    exact = lk.LODEGP(lk.System("x' = -x"), random_state=0).fit(SHORT, np.exp(-SHORT), noise_std=0)
    assert np.isfinite(exact.score(SHORT, np.exp(-SHORT), noise_std=0.1))


def test_arrays_dicts_frames_and_observations_are_the_same(heated: lk.LODEGP) -> None:
    table = heating_data()
    columns = {name: table[:, j] for j, name in enumerate(HEATING.system.channels)}
    data = lk.Observations()
    for name, column in columns.items():
        data = data.add(TIMES, name, column)
    records = lk.Observations(
        (t, name, v) for name, column in columns.items() for t, v in zip(TIMES, column, strict=True)
    )
    model = lk.LODEGP(HEATING.system, random_state=0)
    for forms in ((TIMES, columns), (TIMES, pl.DataFrame(columns)), (data,), (records,)):
        # Searches whose numbers differ by rounding end within 1e-6 of each other, where the evidence is flat.
        assert model.fit(*forms).log_evidence_ == pytest.approx(heated.log_evidence_, abs=1e-6)


@pytest.mark.parametrize(
    ("times", "values"),
    [
        ([1.0], [[0.3]]),
        ([1.0, 1.0], [[0.3], [0.31]]),
        ([0.0, 1.0, 2.0], [[2.0], [2.0], [2.0]]),
        ([0.0, 1.0], [[0.0], [0.0]]),
    ],
)
def test_one_point_repeated_times_and_constant_channels_give_finite_answers(
    times: list[float], values: list[list[float]]
) -> None:
    gp = lk.LODEGP(lk.System("x' = -x + u", channels=["x", "u"]), random_state=0).fit(times, {"x": np.ravel(values)})
    mean, std = gp.predict([0.5, 1.5], return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
