"""Bands of free runs include model error: a rolling origin on the fitted record tells how large it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import lfilter

import lodekit as lk
from lodekit.report import make_report
from lodekit.results.forecast import calibrate_free_run
from lodekit.uncertainty.forecast_errors import rolling_origin_scale
from lodekit.uncertainty.sandwich import estimate_from_first_rows

Array = NDArray[np.float64]
ROWS, FITTED = 400, 280


def record(seed: int, lag: float, drift: float = 0.0) -> dict[str, Array]:
    """Return a lag of 10 rows with gain 2; a second lag or a slow disturbance, of which the model knows nothing."""
    generator = np.random.default_rng(seed)
    u = np.repeat(generator.uniform(-1.0, 1.0, ROWS // 20), 20)
    drive = lfilter([1.0 - lag], [1.0, -lag], u)
    drive = drive + drift * lfilter([0.2], [1.0, -0.98], generator.standard_normal(ROWS))
    decay = np.exp(-0.1)
    y = lfilter([0.0, 2.0 * (1.0 - decay)], [1.0, -decay], drive)
    return {"y": y + 0.02 * generator.standard_normal(ROWS), "u": u}


def fit(data: dict[str, Array], **options: Any) -> lk.LODEGP:
    parameters = {"tau": lk.Parameter(positive=True), "K": lk.Parameter(), "y0": lk.Parameter()}
    system = lk.System(f"tau*y' + y - y0 = K*u{' + w' * bool(options)}", parameters=parameters)
    gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0, **options)
    return gp.fit(np.arange(float(FITTED)), {name: values[:FITTED] for name, values in data.items()})


def run_to_the_end(gp: lk.LODEGP, data: dict[str, Array]) -> tuple[Array, Array, Array]:
    times = np.arange(float(FITTED), ROWS)
    later = {"u": (np.arange(float(ROWS)), data["u"])}
    return (data["y"][FITTED:], *gp.simulate(times, later, start="end", observable="y", return_std=True))


@pytest.mark.parametrize(("seed", "lag", "drift"), [(4, 0.8, 0.0), (4, 0.0, 0.3)])
def test_bands_of_a_wrong_model_hold_what_follows(seed: int, lag: float, drift: float) -> None:
    data = record(seed, lag, drift)
    gp = fit(data)
    measured, mean, std = run_to_the_end(gp, data)
    assert np.mean(np.abs(measured - mean) <= 1.96 * std) >= 0.88
    # They are no wider than a few times the errors.
    assert np.median(std) < 5.0 * np.sqrt(np.mean((measured - mean) ** 2))
    later = {name: values[FITTED:] for name, values in data.items()}
    assert gp.validate(np.arange(float(FITTED), ROWS), later, ahead=())["y"].coverage >= 0.88
    # Parameters alone say nothing of it.
    fixed = np.sqrt(np.sum(gp.fit_.parameter_uncertainty.mean_shifts(gp.fit_.observables(["y"]), np.ones(1)) ** 2))
    assert fixed < 0.2 * np.median(std)


def test_bands_of_a_true_model_stay_as_they_are() -> None:
    data = record(5, 0.0)
    gp = fit(data)
    assert calibrate_free_run(gp.fit_) == {}
    assert gp.fit_.unexplained_std == {}
    _, _, std = run_to_the_end(gp, data)
    assert np.median(std) < 0.01


def test_a_run_from_the_end_has_the_band_of_a_prediction() -> None:
    data = record(3, 0.8)
    gp = fit(data)
    times = np.arange(float(FITTED - 1), FITTED + 40)
    held = {"u": float(data["u"][FITTED - 1])}
    run = gp.simulate(times, held, start="end", observable="y", return_std=True)
    predicted = gp.predict(times, "y", return_std=True)
    for own, other in zip(run, predicted, strict=True):
        assert own == pytest.approx(other, rel=1e-6)


@pytest.mark.parametrize(("lag", "is_wider"), [(0.8, True), (0.0, False)])
def test_figures_and_reports_explain_why_the_band_widens_after_the_data(lag: float, is_wider: bool) -> None:
    gp = fit(record(3, lag))
    labels = [text.get_text() for text in gp.plot().legends[0].get_texts()]
    assert ("extrapolation (band with forecast errors)" in labels) is is_wider
    assert ("There the band widens at once" in str(make_report(gp))) is is_wider


def test_slow_disturbances_widen_bands_with_the_horizon_where_white_ones_are_assumed() -> None:
    data = record(6, 0.0, 0.4)
    gp = fit(data, disturbances={"w": "white"})
    horizons, factors = calibrate_free_run(gp.fit_)["y"]
    assert horizons[0] == pytest.approx(1.0)
    assert factors[-1] > 1.3
    measured, mean, std = run_to_the_end(gp, data)
    assert np.mean(np.abs(measured - mean) <= 1.96 * std) >= 0.88


def test_estimates_from_the_first_rows_are_those_of_least_squares() -> None:
    generator = np.random.default_rng(0)
    design, errors = generator.standard_normal((90, 3)), generator.standard_normal(90)
    # In units of the estimates from all rows, at these estimates.
    basis, _ = np.linalg.qr(design)
    left = errors - basis @ (basis.T @ errors)
    move, covariance, variance = estimate_from_first_rows(-basis.T, left, np.zeros(90, dtype=np.intp), 40)
    expected = np.linalg.lstsq(basis[:40], left[:40], rcond=None)[0]
    # A thousandth of the information of all rows comes from elsewhere.
    assert move == pytest.approx(expected, rel=0.02, abs=0.01)
    rest = left[:40] - basis[:40] @ expected
    assert variance == pytest.approx(rest @ rest / 37, rel=0.01)
    plain = np.linalg.inv(basis[:40].T @ basis[:40])
    assert (np.diag(covariance) > 0.98 * np.diag(plain)).all()


def test_a_factor_is_at_least_one_and_that_of_student_where_errors_resemble_each_other() -> None:
    generator = np.random.default_rng(1)
    white = generator.standard_normal(3000)
    assert rolling_origin_scale([white]) == pytest.approx(1.0, abs=0.03)
    assert rolling_origin_scale([2.0 * white]) == pytest.approx(2.0, abs=0.06)
    wave = np.sqrt(2.0) * np.sin(np.arange(300) / 50)
    assert rolling_origin_scale([wave]) > 1.3
    assert rolling_origin_scale([9.0 * white[:19]]) == 1.0
