"""Validation on a record that was not used, against simulation by SciPy, and through the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from matplotlib.dates import num2date
from numpy.typing import NDArray
from scipy import signal

import lodekit as lk
from lodekit.data.inputs import InputSignal
from lodekit.diagnostics.residual_tests import WhitenessTest, ljung_box_test
from lodekit.diagnostics.validation_tests import ValidationErrors, find_validation_failures
from lodekit.inference.innovations import Horizon, InnovationSequence, create_filter
from lodekit.prior.prior import Hyperparameters
from lodekit.results import forecast, validation
from lodekit.results.forecast import calibrate_bands
from lodekit.results.summary import describe_channel_validation
from lodekit.results.validation import Ahead, ChannelValidation, Validation
from lodekit.support.html import replace_advice
from lodekit.uncertainty.forecast_errors import calibrate_error_scale
from tests.cli.command import run

Array = NDArray[np.float64]
ROWS, STEP = 150, 0.4


def record(seed: int, begin: float) -> tuple[Array, dict[str, Array]]:
    """Return a record of a plant with gain 2, time constant 3 and noise 0.05."""
    generator, times = np.random.default_rng(seed), np.linspace(0.0, STEP * (ROWS - 1), ROWS)
    u = np.repeat(generator.integers(0, 3, ROWS // 10), 10).astype(float)
    decay = np.exp(-STEP / 3.0)
    y = signal.lfilter([1.0], [1.0, -decay], np.concatenate([[begin], 2.0 * (1 - decay) * u[:-1]]))
    return times, {"y": y + 0.05 * generator.standard_normal(ROWS), "u": u}


@pytest.fixture(scope="module")
def gp() -> lk.LODEGP:
    system = lk.System("tau*y' + y = K*u", parameters={n: lk.Parameter(positive=True) for n in ("tau", "K")})
    return lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(*record(1, 0.5))


def test_a_free_run_is_the_simulation_with_the_best_initial_state(gp: lk.LODEGP) -> None:
    times, data = record(2, 3.0)
    found = gp.validate(times, data)
    tau, gain = (gp.parameters_[name].value for name in ("tau", "K"))
    decay = np.exp(-STEP / tau)
    forced = signal.lfilter([1.0], [1.0, -decay], np.concatenate([[0.0], gain * (1 - decay) * data["u"][:-1]]))
    free = decay ** np.arange(ROWS)
    begin = free @ (data["y"] - forced) / (free @ free)
    expected = forced + begin * free
    # The initial state has a prior, ten times as wide as the record; that of the fit began elsewhere.
    assert found["y"].mean == pytest.approx(expected, abs=2e-4)
    spread = np.linalg.norm(data["y"] - data["y"].mean())
    assert found["y"].fit_percent == pytest.approx(100 * (1 - np.linalg.norm(data["y"] - expected) / spread), abs=0.05)
    assert found["y"].fit_percent > 90
    assert 0.88 <= found["y"].coverage <= 1.0
    assert found["y"].rmse == pytest.approx(0.05, rel=0.25)
    assert found.given == ("u",)
    assert "from all rows" in found.start


def test_predictions_ahead_are_a_regression_on_what_was_measured_before(gp: lk.LODEGP) -> None:
    data = record(1, 0.5)[1]
    tau, gain = (gp.parameters_[name].value for name in ("tau", "K"))
    decay = np.exp(-STEP / tau)
    forced = signal.lfilter([1.0], [1.0, -decay], np.concatenate([[0.0], gain * (1 - decay) * data["u"][:-1]]))
    free, left = decay ** np.arange(ROWS), data["y"] - forced
    noise, wide = gp.noise_["y"], gp.hyperparameters_["amplitude of mode 1 (std)"]
    for step in (1, 7):
        mean, std = gp.predict(observable="y", ahead=step, return_std=True, parameters="fixed")
        # The initial state has a normal prior; each row adds to what is known of it, so many rows later.
        known = np.concatenate([np.zeros(step), np.cumsum(free**2)[:-step]]) / noise**2 + 1 / wide**2
        told = np.concatenate([np.zeros(step), np.cumsum(free * left)[:-step]]) / noise**2
        assert mean == pytest.approx(forced + free * told / known, abs=1e-6)
        assert std == pytest.approx(free / np.sqrt(known), rel=1e-3, abs=1e-5)
    once, twice = (gp.predict(observable=own, ahead=1, parameters="fixed") for own in (None, ["y", "y"]))
    assert once.shape == (ROWS, 1)
    np.testing.assert_allclose(twice, np.repeat(once, 2, axis=1), rtol=1e-9, atol=1e-12)


def test_records_without_measurements_and_steps_that_are_none_are_refused(gp: lk.LODEGP) -> None:
    times, data = record(2, 3.0)
    with pytest.raises(lk.LodekitError, match="beside those of known inputs"):
        gp.score(times, {"u": record(1, 0.5)[1]["u"]})
    for ahead, said in ((None, "ahead as"), (1.5, "ahead as"), ([1.5], "ahead as"), ("1e999", "a time ahead")):
        with pytest.raises(lk.LodekitError, match=f"expected {said}"):
            gp.validate(times, data, ahead=ahead)  # type: ignore[arg-type]
    with pytest.raises(lk.LodekitError, match="expected given= among the channels of the record"):
        gp.validate(times, data, given=3)  # type: ignore[arg-type]
    with pytest.raises(lk.LodekitError, match="expected start='all'"):
        gp.validate(times, data, start=np.array([1, 2]))  # type: ignore[arg-type]


def test_bands_ahead_count_what_is_unknown_of_the_parameters(gp: lk.LODEGP) -> None:
    """Predictions at moved parameters as a witness, by formulas; the rest is the band of the model, and its scale."""
    data, fit = record(1, 0.5)[1], gp.fit_
    band, lead = calibrate_bands(fit, ["y"], [Horizon(7)])["y"][0], 7

    def predicted(x: Array) -> Array:
        hyper = fit.layout.unpack(x)
        tau, gain = (float(hyper.theta[fit.layout.names.index(name)]) for name in ("tau", "K"))
        decay, noise = np.exp(-STEP / tau), float(hyper.noise_std[0])
        forced = signal.lfilter([1.0], [1.0, -decay], np.concatenate([[0.0], gain * (1 - decay) * data["u"][:-1]]))
        free = decay ** np.arange(ROWS)
        told = np.cumsum(free * (data["y"] - forced))[:-lead] / (np.cumsum(free**2)[:-lead] + noise**2 * 1e-12)
        return np.asarray((forced[lead:] + free[lead:] * told)[10:])

    moved = fit.parameter_uncertainty.shifted_point
    slopes = [
        (predicted(moved(0.1 * root)) - predicted(moved(-0.1 * root))) / 0.2
        for root in fit.parameter_uncertainty.covariance_root.T
    ]
    fixed, given = (
        gp.predict(observable="y", ahead=lead, return_std=True, parameters=kind)[1][lead + 10 :] ** 2
        + gp.noise_["y"] ** 2
        for kind in ("fixed", "uncertain")
    )
    parameters = np.sum(np.square(slopes), axis=0)
    assert given == pytest.approx(
        band.error_scale.scale**2 * (fixed / fit.residual_dof_fraction + parameters), rel=1e-4
    )
    assert parameters.max() > 1e-3 * fixed.min()
    # The scale comes from errors of the same predictions, from which parameters have taken as much.
    variances = fixed / fit.residual_dof_fraction
    errors = (data["y"][lead + 10 :] - predicted(fit.optimum.x)) / np.sqrt(variances)
    ones = np.ones(len(errors))
    scales = [
        calibrate_error_scale([errors], [ones], [taken], lead).scale for taken in (parameters / variances, 0.0 * ones)
    ]
    assert band.error_scale.scale == pytest.approx(scales[0], rel=1e-4)
    assert scales[0] - scales[1] > 5e-4
    assert band.error_scale.scale != pytest.approx(
        calibrate_error_scale([errors], [ones], [parameters / variances]).scale, rel=1e-4
    )


def test_predictions_ahead_of_long_records_come_in_pieces(gp: lk.LODEGP, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = gp.predict(observable="y", ahead=3)
    monkeypatch.setattr("lodekit.results.forecast._MAX_UNSPLIT_ROWS", 100)
    monkeypatch.setattr("lodekit.results.forecast._CHUNK_ROWS", 50)
    pieces = gp.predict(observable="y", ahead=3)
    assert pieces.shape == whole.shape
    assert pieces == pytest.approx(whole, abs=0.02)
    assert np.abs(pieces[:50] - whole[:50]).max() < 1e-8


def test_predictions_ahead_of_precise_records_are_not_lost_in_rounding() -> None:
    times, data = record(1, 0.5)
    decay = np.exp(-STEP / 3.0)
    exact = signal.lfilter([1.0], [1.0, -decay], np.concatenate([[0.5], 2.0 * (1 - decay) * data["u"][:-1]]))
    noise = 1e-6 * np.random.default_rng(0).standard_normal(ROWS)
    system = lk.System("tau*y' + y = K*u", parameters={"tau": lk.Parameter(fixed=3.0), "K": lk.Parameter(fixed=2.0)})
    precise = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(times, {"y": exact + noise, "u": data["u"]})
    assert precise.predict(observable="y", ahead=1)[1:] == pytest.approx(exact[1:], abs=5e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ahead": 0}, "expected ahead as a number of rows"),
        ({"ahead": 1, "t": [0.0]}, "expected no t"),
        ({"ahead": 1, "observable": "u"}, "expected measured observables for predictions ahead, y, got 'u'"),
        ({}, "expected times to predict at"),
    ],
)
def test_predictions_ahead_are_refused(gp: lk.LODEGP, options: dict[str, Any], message: str) -> None:
    with pytest.raises(lk.LodekitError, match=message):
        gp.predict(**options)


def test_a_wrong_model_is_told_by_its_fit_percentage_and_its_coverage(gp: lk.LODEGP) -> None:
    times, data = record(2, 3.0)
    found = gp.validate(times, {"y": 1.2 * data["y"], "u": data["u"]})
    assert found["y"].fit_percent < 88
    assert found["y"].coverage < 0.5
    first = repr(found).splitlines()[0]
    assert "Band too narrow: it contains " in first
    # The finding about the band states the coverage, once.
    assert first.count("of the measurements") == 1
    assert not found.holds
    right = gp.validate(times, data)
    assert f"of y explains {100 * right['y'].explained_variance:.1f} % of the variance, with errors of" in repr(right)
    # A result without its arrays.
    assert len(repr(right["y"]).splitlines()) == 1
    assert f"rmse={right['y'].rmse:.4g}" in repr(right["y"])
    assert "This record confirms the model." in repr(right).splitlines()[0]
    assert right.holds
    # Rows ahead may hold where the free run does not: its band is not praised.
    surer = replace(right, channels=(replace(right["y"], std=0.1 * right["y"].std),))
    assert "predicts the next row well, but the band of its free run is too narrow" in repr(surer).splitlines()[0]


def test_a_free_run_is_drawn_between_the_measurements(gp: lk.LODEGP) -> None:
    """Lines between distant measurements would hide steps of the input."""
    times, data = record(2, 3.0)
    gap = (times > 15.0) & (times < 45.0)
    found = gp.validate(times, {"y": np.where(gap, np.nan, data["y"]), "u": data["u"]}, ahead=())
    panel = found.plot().axes[0]
    mean, points = (next(each for each in panel.get_lines() if each.get_label() == name) for name in ("mean", "data"))
    assert len(points.get_xdata()) == len(found["y"].times) == (~gap).sum()
    drawn = np.interp(times[gap], mean.get_xdata(), mean.get_ydata())
    assert drawn == pytest.approx(gp.validate(times, data, ahead=())["y"].mean[gap], abs=0.05)
    at_rows = np.isin(found["y"].curve[0], found["y"].times)
    assert found["y"].curve[1][at_rows] == pytest.approx(found["y"].mean)
    assert found["y"].curve[2][at_rows] == pytest.approx(found["y"].std)


def test_a_record_that_varies_no_more_than_noise_cannot_show_usefulness(gp: lk.LODEGP) -> None:
    noise = 0.05 * np.random.default_rng(4).standard_normal(10)
    rest = gp.validate(STEP * np.arange(10), {"y": noise, "u": np.zeros(10)}, ahead=())
    assert "This record varies no more than the noise (0.045), so it cannot show whether" in rest.sentences[0]
    assert rest["y"].failure == "y (not shown to be useful, because it varies no more than the noise)"
    # If residuals of the fit are correlated, their size is no noise.
    item = replace(rest["y"], noise_is_misfit=True)
    assert "Not useful: the free run" in describe_channel_validation(item)
    assert item.failure == "y (not shown to be useful)"
    # A large offset is a failure at rest, too.
    shifted = replace(rest["y"], values=rest["y"].values + 1.0)
    assert "Not useful: the free run is worse than the mean of the record." in describe_channel_validation(shifted)


def test_measurements_of_the_fit_do_not_confirm_it(gp: lk.LODEGP) -> None:
    (own,) = gp.fit_.measurements.records.values()
    times, (u, y) = own.series[0].times, (own.inputs["u"], own.series[0].values)
    found = gp.validate(times, {"y": y, "u": u.at(times)}, ahead=())
    assert "However, the model was fitted to these measurements; validate it on others." in found.sentences[0]
    assert found.to_dict()["channels"]["y"]["fitted_share"] == 1.0
    assert gp.validate(*record(2, 3.0), ahead=()).to_dict()["channels"]["y"]["fitted_share"] == 0.0
    half = gp.validate(times + times[len(times) // 2], {"y": y, "u": u.at(times)}, ahead=())
    assert half["y"].fitted_share == 0.0
    mixed = {"y": np.where(times < times[len(times) // 2], y, y + 1e-6), "u": u.at(times)}
    partly = gp.validate(times, mixed, ahead=())
    assert partly["y"].fitted_share == pytest.approx(0.5, abs=0.02)
    assert "However, the model was fitted to 50" in partly.sentences[0]
    assert "confirms" not in partly.sentences[0]


def test_few_rows_give_no_verdict(gp: lk.LODEGP) -> None:
    with pytest.raises(lk.LodekitError, match="too few measurements to validate the model"):
        gp.validate(STEP * np.arange(2), {"y": [0.0, 0.1], "u": [1.0, 1.0]}, ahead=())


def test_seven_of_eight_rows_inside_a_band_are_no_sign_of_a_narrow_one(gp: lk.LODEGP) -> None:
    item = gp.validate(*record(2, 3.0), ahead=())["y"]
    few = replace(item, **{name: getattr(item, name)[-8:] for name in ("times", "values", "mean", "std")}, misses=())
    outside = replace(few, mean=few.values - np.eye(8)[0] * 3.0 * few.std, fitted_share=0.0)
    assert outside.coverage == 7 / 8
    assert "too narrow" not in describe_channel_validation(outside)


def test_a_band_much_wider_than_the_errors_is_reported_for_twenty_rows(gp: lk.LODEGP) -> None:
    times, data = record(2, 3.0)
    few = {name: values[:20] for name, values in data.items()}
    wide, right = (gp.validate(times[:20], few, std, ahead=()) for std in ({"y": 0.25}, {"y": 0.05}))
    assert wide["y"].excess_width == pytest.approx(5.0, rel=0.3)
    assert "bands are" in wide.sentences[0]
    assert wide.to_dict()["channels"]["y"]["excess_width"] == wide["y"].excess_width
    assert right["y"].excess_width == 1.0
    assert "wide as needed" not in right.sentences[0]


def test_the_width_of_a_band_is_judged_by_the_run_that_is_shown(gp: lk.LODEGP) -> None:
    times, data = record(2, 3.0)
    noisy = {name: values[:30].copy() for name, values in data.items()}
    noisy["y"][:10] += 0.4 * (-1.0) ** np.arange(10)
    every, later = (gp.validate(times[:30], noisy, {"y": 0.25}, start=start, ahead=()) for start in ("all", 10))
    assert every["y"].excess_width == 1.0
    assert later["y"].excess_width > 2.0


def slow_errors(generator: np.random.Generator, rows: int, memory: float) -> Array:
    """Return a stationary first-order autoregression of variance one."""
    drive = generator.standard_normal(rows) * np.where(np.arange(rows) == 0, 1.0, np.sqrt(1.0 - memory**2))
    return np.asarray(signal.lfilter([1.0], [1.0, -memory], drive), dtype=np.float64)


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.9])
def test_correct_bands_are_not_called_wide_if_errors_are_correlated(memory: float) -> None:
    generator, rows = np.random.default_rng(0), 20

    def is_wide(factor: float) -> bool:
        times, errors = np.linspace(0.0, 8.0, rows), slow_errors(generator, rows, memory)
        return ValidationErrors("y", times, errors, np.full(rows, factor), np.zeros((0, rows))).excess_width > 1.0

    # At most 2 % in simulations of 1000 records.
    assert sum(is_wide(1.0) for _ in range(200)) <= 10
    # Slow errors are few independent ones: their size in one record shows little about the band.
    assert sum(is_wide(5.0) for _ in range(100)) >= {0.0: 98, 0.5: 75, 0.9: 20}[memory]
    # Errors due to parameters affect all rows together.
    shifts = 3.0 * np.ones((1, rows))
    alike = ValidationErrors("y", np.arange(float(rows)), slow_errors(generator, rows, 0.0), np.ones(rows), shifts)
    assert alike.excess_width == 1.0


def test_a_run_that_continues_the_fitted_record_starts_from_its_last_state() -> None:
    """A store that settles in 200 time units is not visible in ten rows, but in the fitted record."""
    generator, times = np.random.default_rng(0), np.arange(240.0)
    u, x, w = np.repeat(generator.integers(0, 3, 24), 10).astype(float), np.zeros(240), np.zeros(240)
    x[0] = 6.0
    for k in range(239):
        w[k + 1] = w[k] + (x[k] - w[k]) / 200.0
        x[k + 1] = x[k] + (u[k] - 0.5 * (x[k] - w[k]) - 0.1 * x[k]) / 5.0 + 0.05 * generator.standard_normal()
    data = {"x": x + 0.1 * generator.standard_normal(240), "u": u}
    (first, later) = ({name: values[part] for name, values in data.items()} for part in (slice(160), slice(160, None)))
    values = {"C": 5.0, "R": 0.5, "a": 0.1}
    system = lk.System(
        "C*x' = u - R*(x - w) - a*x + v; 200*w' = x - w",
        parameters={n: lk.Parameter(fixed=v) for n, v in values.items()},
    )
    gp = lk.LODEGP(system, inputs={"u": "hold"}, disturbances={"v": "white"}, random_state=0).fit(times[:160], first)
    found, rows = gp.validate(times[160:], later, ahead=()), gp.validate(times[160:], later, start=10, ahead=())
    assert found.start.startswith(
        "the initial state is the one at the end of the fitted record; estimating it from all rows would"
    )
    assert len(found["x"].times) == 80
    mean, std = gp.simulate(times[160:], {"u": (times[160:], u[160:])}, start="end", observable="x", return_std=True)
    assert found["x"].mean == pytest.approx(mean)
    assert found["x"].std == pytest.approx(np.hypot(std, gp.noise_["x"]))
    # The state of the store is better known.
    assert found["x"].std[-1] < 0.8 * rows["x"].std[-1]
    assert found["x"].rmse < 0.9 * rows["x"].rmse
    # On another time axis, the fitted record has no state for it.
    moved = gp.validate(times[:80] + 1000.0, later, ahead=())
    assert "the first 10 rows" in moved.start
    # Nobody knows the input between the records.
    late = gp.validate(times[160:] + 50.0, later, start="end", ahead=())
    assert late.warnings == (
        "inputs are unknown between the fitted record and this one (51), and keep their last values",
    )
    assert found.warnings == ()
    with pytest.raises(lk.LodekitError, match="begins after a fitted one"):
        gp.validate(times[:80], later, start="end")


def test_sixteen_irregular_rows_do_not_confirm_a_model(gp: lk.LODEGP) -> None:
    times, data = record(2, 3.0)
    rows = np.sort(np.random.default_rng(0).choice(ROWS, 16, replace=False))
    log = lk.Observations().add(times[rows], "y", data["y"][rows]).add(times, "u", data["u"])
    found = gp.validate(log, ahead=())
    assert found["y"].adequate
    assert not found["y"].conclusive
    assert "there are too few measurements to show whether errors are independent" in found.sentences[0]
    assert "confirms" not in found.sentences[0]
    assert gp.validate(times, data, ahead=())["y"].conclusive


def test_many_records_of_a_true_model_are_not_called_correlated() -> None:
    """The level of the tests is shared: of 20 records with white errors, about one had an autocorrelation before."""
    times, n_found = np.arange(100.0), 0
    for seed in range(200):
        values = np.random.default_rng(seed).standard_normal(100)
        errors = ValidationErrors("y", times, values, np.ones(100), np.zeros((0, 100)))
        n_found += any("correlated" in text for text in find_validation_failures([errors], {}, n_records=20)["y"])
    assert n_found <= 2


def test_a_lag_that_is_missing_is_told_though_the_band_is_wide(gp: lk.LODEGP) -> None:
    """A fit that takes what it misses for noise holds every record in its band."""
    times, data = record(2, 3.0)
    late = {"y": np.interp(times - 1.0, times, data["y"]), "u": data["u"]}
    wide = gp.validate(times, late, noise_std={"y": 0.6}, ahead=())
    assert wide["y"].coverage >= 0.95
    assert wide.calibrated
    assert not wide.adequate
    assert f"of the variance, with correlated errors of {wide['y'].rmse:.2g} (RMSE)" in wide.sentences[0]
    assert "can be used" not in wide.sentences[0]
    assert "only if errors of this size are acceptable. Errors are correlated (lag 1: 0." in wide.sentences[0]
    assert wide.to_dict()["adequate"] is False
    assert wide.to_dict()["channels"]["y"]["useful"] is True
    assert wide.to_dict()["channels"]["y"]["misses"] == list(wide["y"].misses)
    doubtful = replace(gp.fit_.diagnosis.checks[0], whiteness=wide_whiteness())
    assert doubtful.is_suspicious
    fit = replace(gp.fit_, diagnosis=replace(gp.fit_.diagnosis, checks=(doubtful,)))
    carried = lk.LODEGP.from_fit(fit).validate(times, data, ahead=())
    assert carried.sentences[-1].startswith("warning of the fit: residuals of y are correlated (lag 1: 0.9")


def test_a_verdict_needs_an_effect_and_not_only_significance() -> None:
    """A free run that removes 9 % of the variance is of no use; one with 96 % may have errors that tests find."""
    generator, times = np.random.default_rng(0), np.arange(2000.0)
    wave = np.sin(times / 30.0)
    noise = generator.standard_normal(2000)
    useless = ChannelValidation("y", times, 0.45 * wave + noise, 0.45 * wave, np.ones(2000))
    assert useless.explained_variance == pytest.approx(0.09, abs=0.03)
    assert (useless.useful, useless.adequate, useless.calibrated, useless.holds) == (False, True, True, False)
    assert "Not useful: the free run explains only" in Validation((useless,), "", ()).sentences[0]
    slow = 0.03 * signal.lfilter([0.3], [1.0, -0.95], noise)
    errors = ValidationErrors("y", times, slow, np.full(2000, 0.03), np.zeros((0, 2000)))
    assert errors.is_calibrated
    found = ChannelValidation(
        "y", times, wave + slow, wave, errors.deviations, misses=find_validation_failures([errors], {})["y"]
    )
    assert found.fit_percent > 95.0
    assert (found.useful, found.adequate, found.calibrated, found.holds) == (True, False, True, True)


def wide_whiteness() -> WhitenessTest | None:
    times = np.arange(200.0)
    return ljung_box_test(times, np.sin(times / 9))


@pytest.mark.parametrize(("held", "shares"), [(1799, ("89.95 %", "90.00 %")), (1700, ("85.0 %", "90.0 %"))])
def test_a_share_that_is_too_small_is_not_rounded_up_to_the_least(held: int, shares: tuple[str, str]) -> None:
    values = np.where(np.arange(2000) < held, 0.0, 9.0)
    errors = ValidationErrors("y", np.arange(2000.0), values, np.ones(2000), np.zeros((0, 2000)))
    assert errors.min_coverage == pytest.approx(0.9)
    assert errors.coverage == held / 2000
    first, *_ = find_validation_failures([errors], {})["y"]
    expected = f"band too narrow: it contains {shares[0]} of the measurements, but should contain at least {shares[1]}"
    assert first == expected
    # Only a poor free run on other measurements suggests that the plant differs.
    first, *_ = find_validation_failures([errors], {}, unexpected=["y"])["y"]
    assert first == f"{expected}; perhaps the plant has changed since the fit, or units or columns differ"
    wave = 20.0 * np.sin(errors.times)
    free = Validation((ChannelValidation("y", errors.times, wave, wave + values, np.ones(2000)),), "", ())
    assert f"and {shares[0]} of the measurements are inside the 95 % band. The model predicts" in free.sentences[0]


def test_what_is_unknown_of_parameters_is_no_miss() -> None:
    """Estimates that are a deviation off move a free run with its input, in a true model as well."""
    generator, times = np.random.default_rng(5), np.arange(400.0)
    steps = np.repeat(generator.integers(0, 3, 20), 20).astype(float)
    noise, slope = generator.standard_normal(400), 3.0 * (steps - steps.mean())
    inputs = {"u": InputSignal(times, steps, "hold")}

    def misses(slopes: Array) -> tuple[str, ...]:
        return find_validation_failures([ValidationErrors("y", times, noise + slope, np.ones(400), slopes)], inputs)[
            "y"
        ]

    assert misses(slope[None, :]) == ()
    told = misses(0.01 * slope[None, :])
    assert "band too narrow" in told[0]
    assert any("errors are correlated with u (" in text and "delay(u, Td)" in text for text in told)
    # Errors of the parameters leave the band in a body: few rows are told apart by them.
    body = ValidationErrors("y", times, noise + slope, np.ones(400), slope[None, :])
    assert (
        1.0
        < body.effective_sample_size
        < 20.0
        < ValidationErrors("y", times, noise, np.ones(400), np.zeros((1, 400))).effective_sample_size
    )


def test_a_record_that_does_not_change_is_valid_json(gp: lk.LODEGP) -> None:
    found = gp.validate(0.4 * np.arange(8), {"y": np.ones(8), "u": np.full(8, 0.5)})
    assert np.isnan(found["y"].fit_percent)
    read = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert read["channels"]["y"]["fit_percent"] is None
    assert repr(found).startswith("The measurements of y do not change")


def test_rows_that_tell_the_initial_state_are_not_counted(gp: lk.LODEGP) -> None:
    times, data = record(2, 3.0)
    found = gp.validate(times, data, start=20, ahead=())
    assert len(found["y"].times) == ROWS - 20
    assert "first 20 rows" in found.start
    assert found["y"].ahead == {}
    # A row that is counted says nothing about the start: the mean does not change with it.
    spoilt = {**data, "y": np.where(np.arange(ROWS) == 40, 99.0, data["y"])}
    assert gp.validate(times, spoilt, start=20, ahead=())["y"].mean == pytest.approx(found["y"].mean)


def test_fits_of_forecasts_and_of_the_free_run_refer_to_the_same_spread() -> None:
    """The rows after the first ten are nearly constant, so their own spread is far smaller."""
    generator, times = np.random.default_rng(0), np.arange(120.0)
    inputs = np.where(times < 60, times // 20 % 2, 1.0)
    values = np.zeros(120)
    for k in range(119):
        values[k + 1] = values[k] + (1 - np.exp(-1 / 4)) * (2 * inputs[k] - values[k])
    data = {"y": values + 0.03 * generator.standard_normal(120), "u": inputs}
    early, late = ({name: own[part] for name, own in data.items()} for part in (slice(60), slice(60, None)))
    system = lk.System("tau*y' + y = K*u", parameters={n: lk.Parameter(positive=True) for n in ("tau", "K")})
    gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(times[:60], early)
    found = gp.validate(times[60:], late, start="end")
    free, one = found["y"], found["y"].ahead[1]
    assert free.fit_percent > 80
    for each in (free, one):
        assert each.fit_percent == pytest.approx(100 * (1 - each.rmse / np.std(late["y"])))
    assert (one.rows, free.ahead[10].rows) == (49, 40)
    assert f"{one.fit_percent:.1f} ({100 * one.coverage:.1f} %; 49)" in repr(found)
    assert gp.validate(times[60:], late)["y"].ahead == free.ahead


def test_one_row_ahead_is_better_than_ten_where_something_unknown_drives() -> None:
    generator, times = np.random.default_rng(3), np.linspace(0.0, 30.0, 120)
    system = lk.System("x' = v")
    gp = lk.LODEGP(system, random_state=0).fit(times, {"x": np.sin(times) + 0.02 * generator.standard_normal(120)})
    new = {"x": np.sin(1.1 * times + 1.0) + 0.02 * generator.standard_normal(120)}
    with pytest.raises(lk.LodekitError, match="expected given="):
        gp.validate(times, {**new, "v": np.cos(times)})
    with mock.patch.object(validation, "find_validation_failures", wraps=find_validation_failures) as judge:
        found = gp.validate(times, new, given=())
    assert found["x"].ahead[1][0] > found["x"].ahead[5][0] > found["x"].ahead[10][0]
    assert found["x"].ahead[1][0] > 90
    # The band of the verdict is the one in the table.
    (errors,) = judge.call_args.args[0]
    # It is judged on one row more.
    assert errors.coverage == pytest.approx(found["x"].ahead[1].coverage, abs=0.01)
    scale = calibrate_bands(gp.fit_, ["x"], [Horizon(1)])["x"][0].error_scale.scale
    assert errors.adaptation == pytest.approx(scale)
    assert (
        "10 rows, which are not counted; estimating it from all rows would also estimate free functions" in found.start
    )
    # Nothing is known of the rest of the record, and the band says so.
    assert found["x"].coverage > 0.8


def test_channels_that_are_given_are_conditioned_on() -> None:
    generator, times = np.random.default_rng(4), np.linspace(0.0, 20.0, 100)

    def make(phase: float) -> dict[str, Array]:
        u = np.sin(times + phase)
        # The solution of y' + y = 2 u from its stationary state.
        y = np.sin(times + phase) - np.cos(times + phase)
        return {"y": y + 0.02 * generator.standard_normal(100), "u": u + 0.02 * generator.standard_normal(100)}

    system = lk.System("tau*y' + y = K*u", parameters={n: lk.Parameter(positive=True) for n in ("tau", "K")})
    gp = lk.LODEGP(system, random_state=0).fit(times, make(0.0))
    found = gp.validate(times, make(1.0), given="u")
    assert [item.name for item in found.channels] == ["y"]
    assert found["y"].fit_percent > 95
    with pytest.raises(lk.LodekitError, match=r"such as \(y\) or \(u\)"):
        gp.validate(times, make(1.0))
    with pytest.raises(lk.LodekitError, match="among the channels of the record, y, u, got 'w'"):
        gp.validate(times, make(1.0), given="w")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": 0}, "expected start='all'"),
        ({"start": "some"}, "expected start="),
        ({"ahead": [0]}, "expected ahead"),
    ],
)
def test_options_are_checked(gp: lk.LODEGP, options: dict[str, Any], message: str) -> None:
    with pytest.raises(lk.LodekitError, match=message):
        gp.validate(*record(2, 3.0), **options)


def test_narrow_bands_of_forecasts_are_reported(gp: lk.LODEGP) -> None:
    found = gp.validate(*record(2, 3.0))
    assert "forecasts" not in found.sentences[0]
    step = next(iter(found["y"].ahead))
    narrow = replace(found["y"], ahead={step: Ahead(90.0, 0.1, 0.43, 100)})
    sentence = replace(found, channels=(narrow,)).sentences[0]
    assert step == 1
    assert sentence.endswith("95 % bands of forecasts too narrow: they contain 43.0 % 1 row ahead.")


def test_free_runs_of_records_with_dates_have_date_axes(gp: lk.LODEGP) -> None:
    times, data = record(2, 3.0)
    found = replace(gp.validate(times + 90.0, data, ahead=()), origin="2026-11-10T08:00:00", units={"t": "min"})
    panel = found.plot().axes[-1]
    first = num2date(panel.get_lines()[0].get_xdata()[0])
    assert first.replace(tzinfo=None) == datetime(2026, 11, 10, 9, 30)
    assert panel.get_xlabel() == ""


def test_columns_are_those_of_the_fit(tmp_path: Path) -> None:
    def write(name: str, seed: int, heads: str = "Zeit;Temp. 1;Power") -> str:
        times, data = record(seed, 1.0)
        rows = zip(times.tolist(), data["y"].tolist(), data["u"].tolist(), strict=True)
        (tmp_path / name).write_text(heads + "\n" + "\n".join(f"{t!r};{y!r};{u!r}" for t, y, u in rows) + "\n")
        return str(tmp_path / name)

    system = lk.System("tau*y' + y = K*u", parameters={"tau": lk.Parameter(fixed=3.0), "K": lk.Parameter(fixed=2.0)})
    places = {"t": "Zeit", "y": "Temp. 1", "u": "Power"}
    gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(write("log.csv", 1), columns=places)
    day = write("day.csv", 2)
    expected = gp.validate(*record(2, 1.0), ahead=())["y"].mean
    assert gp.validate(day, ahead=())["y"].mean == pytest.approx(expected)
    # The model is kept in the folder of its fit, and knows its columns there.
    (tmp_path / "log-fit").mkdir()
    gp.save(tmp_path / "log-fit" / "model.lodekit")
    again = lk.LODEGP.load(tmp_path / "log-fit")
    assert again.validate(day, ahead=())["y"].mean == pytest.approx(expected)
    # What is said goes before, and files that are called otherwise are read as any.
    assert again.validate(write("b.csv", 2, "t;y;Power"), ahead=())["y"].mean == pytest.approx(expected)
    other = again.validate(write("c.csv", 2, "Zeit;x;Power"), columns={"y": "x"}, ahead=())
    assert other["y"].mean == pytest.approx(expected)
    assert again.update(day, record="day", relearn=False).records_ == ("0", "day")


def test_the_command_line_says_the_same(gp: lk.LODEGP, tmp_path: Path) -> None:
    times, data = record(2, 3.0)
    gp.save(tmp_path / "plant.lodekit")
    rows = "\n".join(
        f"{t!r},{y!r},{u!r}" for t, y, u in zip(times.tolist(), data["y"].tolist(), data["u"].tolist(), strict=True)
    )
    (tmp_path / "other.csv").write_text(f"t,y,u\n{rows}\n")
    arguments = ("validate", str(tmp_path / "plant.lodekit"), str(tmp_path / "other.csv"))
    done = run(*arguments, "--json", "--plot", str(tmp_path / "run.png"))
    assert done.returncode == 0, done.stderr
    expected = gp.validate(times, data).to_dict()
    told = json.loads(done.stdout)
    assert told["holds"] is True
    assert told["channels"]["y"]["fit_percent"] == pytest.approx(expected["channels"]["y"]["fit_percent"], abs=1e-6)
    assert told["channels"]["y"]["ahead"].keys() == {"1", "5", "10"}
    assert (tmp_path / "run.png").read_bytes()[1:4] == b"PNG"
    assert told["verdict"] == replace_advice(expected["verdict"], "cli_advice.txt")
    figure = gp.validate(times, data, ahead=()).plot()
    assert [line.get_drawstyle() for line in figure.axes[1].get_lines()] == ["steps-post"]
    columns = run("predict", str(tmp_path / "plant.lodekit"), "--ahead", "2").stdout.splitlines()
    assert columns[0] == "t,y,std(y)"
    assert len(columns) == 1 + ROWS
    assert run("predict", str(tmp_path / "plant.lodekit"), "--ahead", "2", "--to", "3").returncode == 2
    printed = run(*arguments, "--start", "20", "--ahead", "2")
    assert "Free run from u; the initial state is estimated from the first 20 rows" in printed.stdout
    assert run(*arguments, "--start", "few").returncode == 2
    overlapping = run(*arguments, "--start", "end")
    assert overlapping.returncode == 2
    assert "--start end is the state at the end of a fitted record" in overlapping.stderr


@pytest.mark.parametrize("way", ["absent rows", "empty cells"])
def test_a_record_with_a_gap_in_which_the_input_changed_is_split(gp: lk.LODEGP, way: str) -> None:
    times, data = record(2, 3.0)
    gap = (np.arange(ROWS) >= 55) & (np.arange(ROWS) < 95)
    if way == "absent rows":
        times, data = times[~gap], {name: values[~gap] for name, values in data.items()}
    else:
        data = {**data, "u": np.where(gap, np.nan, data["u"])}
    found = gp.validate(times, data)
    assert not found.holds
    (warning,) = found.warnings
    assert warning.startswith("input u changed from" if way == "absent rows" else "input u has no value between")
    assert "split_gaps=True or --split-gaps" in warning
    assert found.sentences[0] == warning
    split = gp.validate(times, data, split_gaps=True)
    assert split.holds
    assert not split.warnings
    assert [(item.title, len(item.times)) for item in split.channels] == [("y of record 0", 55), ("y of record 1", 55)]
    panels = split.plot().axes
    assert [panel.get_title() for panel in panels] == ["record 0", "record 1", "", ""]
    assert [panel.get_ylabel().split("\n")[0] for panel in panels] == ["y", "y", "u", "u"]
    # The fit of a record with a gap is as good as that of its parts.
    fitted = lk.LODEGP(gp.system, inputs={"u": "hold"}, random_state=0).fit(times, data, split_gaps=True)
    # As with a list of records, numbers count from zero.
    assert fitted.records_ == ("0", "1")
    last = data["y"][-1]
    assert fitted.predict(times[-1:], "y", record=1).item() == pytest.approx(last, abs=0.1)
    lost = "40 measurements in gaps of inputs, or alone between two gaps, are left out"
    assert (lost in fitted.fit_.notes) == (way == "empty cells")
    assert fitted.parameters_["tau"].interval[0] < 3.0 < fitted.parameters_["tau"].interval[1]
    # Records are split as the fitted one was.
    assert len(fitted.validate(times, data, ahead=()).channels) == 2
    assert len(fitted.validate(times, data, ahead=(), split_gaps=False).channels) == 1
    with pytest.raises(lk.LodekitError, match="cannot be split at gaps"):
        fitted.fit(
            lk.Statistics.of(0.0, 1.0, lk.Observations().add([0.0, 1.0], "y", [1, 2]).series, 4), split_gaps=True
        )


def test_an_input_that_is_logged_when_it_changes_keeps_its_value_in_the_next_part(gp: lk.LODEGP) -> None:
    times, data = record(2, 3.0)
    kept, changes = np.r_[:55, 95:ROWS], np.flatnonzero(np.diff(data["u"], prepend=-1.0))
    log = lk.Observations().add(times[kept], "y", data["y"][kept]).add(times[changes], "u", data["u"][changes])
    found = gp.validate(log, split_gaps=True)
    assert found.holds
    assert found.inputs["u of record 1"].at([times[95]])[0] == data["u"][95]


def test_the_command_line_splits_records_and_validates_several_files(gp: lk.LODEGP, tmp_path: Path) -> None:
    for number, keep in ((2, np.arange(ROWS)), (3, np.r_[:55, 95:ROWS])):
        times, data = record(number, 3.0)
        table = np.column_stack([times, data["y"], data["u"]])[keep]
        np.savetxt(tmp_path / f"{number}.csv", table, delimiter=",", header="t,y,u", comments="")
    gp.save(tmp_path / "plant.lodekit")
    done = run("validate", "plant.lodekit", "2.csv", "3.csv", "--split-gaps", "--json", cwd=tmp_path)
    assert list(json.loads(done.stdout)["channels"]) == [
        "y of record 2.csv", "y of record 3.csv, part 1", "y of record 3.csv, part 2"
    ]  # fmt: skip
    known = ("--param", "K", "--positive", "tau")
    done = run("init", "tau*y' + y = K*u", *known, "--data", "3.csv", "--split-gaps", "-o", "plant.toml", cwd=tmp_path)
    assert lk.read_system_file(tmp_path / "plant.toml").split_gaps
    for options in (
        ("plant.toml", "3.csv"),
        ("tau*y' + y = K*u", "3.csv", *known, "--input", "u=hold", "--split-gaps"),
    ):
        done = run("fit", *options, "--no-figures", "--json", "--force", cwd=tmp_path)
        assert list(json.loads(done.stdout)["records"]) == ["0", "1"], done.stderr


def test_the_command_line_fails_where_the_model_does_not_hold(gp: lk.LODEGP, tmp_path: Path) -> None:
    times, data = record(2, 3.0)
    gp.save(tmp_path / "plant.lodekit")
    table = np.column_stack([times, 2.0 * data["y"], data["u"]])
    np.savetxt(tmp_path / "other.csv", table, delimiter=",", header="t,y,u", comments="")
    done = run("validate", str(tmp_path / "plant.lodekit"), str(tmp_path / "other.csv"), "--ahead", "1", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["holds"] is False
    assert "the model does not hold on this record" in done.stderr


def test_the_filter_runs_once_at_each_point_near_the_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors ahead for all horizons and observables, and innovations, come from the same runs of the filter."""
    calls: list[Hyperparameters] = []

    def create_counted(*arguments: Any) -> Callable[[Hyperparameters], InnovationSequence | None]:
        filter_at = create_filter(*arguments)

        def run_filter(hyper: Hyperparameters) -> InnovationSequence | None:
            calls.append(hyper)
            return filter_at(hyper)

        return run_filter

    generator, times = np.random.default_rng(0), np.linspace(0.0, 8.0, 40)
    noise = 0.02 * generator.standard_normal((2, 40))
    data = {"x": np.sin(times) + noise[0], "u": np.cos(times) + 0.5 * np.sin(times) + noise[1]}
    gp = lk.LODEGP(lk.System("x' = -a*x + u", parameters=["a"]), random_state=0).fit(times, data)
    monkeypatch.setattr(validation, "create_filter", create_counted)
    monkeypatch.setattr(forecast, "create_filter", create_counted)
    # The optimum, and one point on either side of it in each direction.
    n_points = 1 + 2 * gp.fit_.parameter_uncertainty.covariance_root.shape[1]
    assert gp.validate(times, data, given="u", ahead=(1, 5, 10))["x"].ahead
    assert 1 < len(calls) <= n_points
    calls.clear()
    assert calibrate_bands(gp.fit_, ["x", "u"], [Horizon(1), Horizon(5)])
    assert 1 < len(calls) <= n_points
