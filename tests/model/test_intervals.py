"""Fits of interval means and totals: what loggers and meters deliver."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

import lodekit as lk
from lodekit.data.records import Measurements
from lodekit.data.sources import load_data
from lodekit.data.statistics import Statistics
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import build_setup
from lodekit.prior.prior import Hyperparameters

Array = NDArray[np.float64]
ROOM = lk.System(
    "tau*T' = -(T - T0) + K*u", parameters={name: lk.Parameter(positive=True) for name in ("tau", "T0", "K")}
)
TRUTH = {"tau": 0.4, "T0": 10.0, "K": 8.0}
STEP = 0.5
NAME = "mean(T, 1)"


def simulate() -> tuple[Array, Array, Array, Array, Array]:
    """Times and values of an input that is held for half hours; hourly times, means and values, by exact steps."""
    generator = np.random.default_rng(2)
    starts: Array = STEP * np.arange(50.0)
    u = (generator.random(50) > 0.5).astype(float)
    rest = TRUTH["T0"] + TRUTH["K"] * u
    decay, T, sums = np.exp(-STEP / TRUTH["tau"]), np.full(51, 15.0), np.zeros(51)
    for k in range(50):
        T[k + 1] = rest[k] + (T[k] - rest[k]) * decay
        sums[k + 1] = sums[k] + rest[k] * STEP + (T[k] - rest[k]) * TRUTH["tau"] * (1.0 - decay)
    hours: Array = np.arange(1.0, 26.0)
    return starts, u, hours, np.diff(sums[::2]), T[2::2]


STARTS, U, TIMES, MEANS, VALUES = simulate()
NOISY = MEANS + 0.05 * np.random.default_rng(3).standard_normal(25)


@pytest.fixture(scope="module")
def hourly() -> lk.LODEGP:
    data = lk.Observations().add(TIMES, NAME, NOISY).add(STARTS, "u", U)
    return lk.LODEGP(ROOM, inputs={"u": "hold"}, random_state=0).fit(data)


def test_hourly_means_tell_a_time_constant_below_an_hour(hourly: lk.LODEGP) -> None:
    for name, true in TRUTH.items():
        found = hourly.parameters_[name]
        assert abs(found.value - true) < 4.0 * found.std_error < 0.15 * true


def test_means_that_are_taken_for_values_mislead() -> None:
    """The same numbers, called T: time constant and gain are far from the truth, for all their small errors."""
    data = lk.Observations().add(TIMES, "T", NOISY).add(STARTS, "u", U)
    parameters = lk.LODEGP(ROOM, inputs={"u": "hold"}, random_state=0, restarts=1).fit(data).parameters_
    assert parameters["tau"].value > 2.0 * TRUTH["tau"]


def test_predictions_are_the_true_means_and_values(hourly: lk.LODEGP) -> None:
    found, std = hourly.predict(TIMES, [NAME, "T", "total(T, 1)", "mean(u, 1)", "mean(T', 1)"], return_std=True)
    assert np.abs(found[:, 0] - MEANS).max() < 4.0 * std[:, 0].max() < 0.3
    assert np.abs(found[:, 1] - VALUES).max() < 4.0 * std[:, 1].max() < 1.5
    np.testing.assert_allclose(found[:, 2], found[:, 0], rtol=1e-12)
    np.testing.assert_allclose(found[:, 3], 0.5 * (U[0::2] + U[1::2]), rtol=0, atol=1e-12)
    assert (std[:, 3] == 0).all()
    ends = hourly.predict(np.concatenate([[0.0], TIMES]), "T")
    np.testing.assert_allclose(found[:, 4], np.diff(ends.ravel()), rtol=0, atol=1e-10)


def test_a_saved_model_a_report_and_a_figure_know_them(hourly: lk.LODEGP, tmp_path: Path) -> None:
    hourly.save(tmp_path / "room.lodekit")
    again = lk.LODEGP.load(tmp_path / "room.lodekit")
    np.testing.assert_allclose(again.predict(TIMES, "mean(T,1.0)"), hourly.predict(TIMES, NAME), rtol=1e-12)
    assert NAME in hourly.summary()
    figure = hourly.plot(observable="mean(T,1)", units={"T": "degC", "t": "h"})
    assert figure.axes[0].get_ylabel() == "mean(T,1) (degC)"
    assert len(figure.axes[0].collections) + len(figure.axes[0].lines) >= 3  # curve, band, and the measurements


def test_files_and_tables_name_them_in_their_header(tmp_path: Path) -> None:
    """Units behind the names are those of the channel; a column that says nothing of a channel is left alone."""
    table = pl.DataFrame({"time [h]": TIMES, f"{NAME} [degC]": NOISY, "mean(Q, 1)": NOISY, "u": U[1::2]})
    table.write_csv(tmp_path / "log.csv")
    for source in (table, tmp_path / "log.csv"):
        found = load_data(source, None, ROOM.plain_channels)
        assert set(found.measurements.names) == {NAME, "u"}
        assert dict(found.units) == {"t": "h", "T": "degC"}
        assert any("columns not used: mean(Q, 1)" in note for note in found.notes)
        assert not any("no column for" in note for note in found.notes)
    meter = pl.DataFrame({"t": TIMES, "total(Q, 1) [kWh]": TIMES})
    found = load_data(meter, None, ["Q"], units={"Q": "W", "t": "h"})
    np.testing.assert_allclose(found.measurements.series[0].values, 1000.0 * TIMES)
    with pytest.raises(lk.LodekitError, match=r"column mean.T, 0.: expected a number above zero"):
        load_data(table.rename({"mean(Q, 1)": "mean(T, 0)"}), None, ROOM.plain_channels)


def test_an_input_may_be_known_by_its_means() -> None:
    """Half-hourly totals of a held input are its samples, half an hour earlier."""
    data = lk.Observations().add(TIMES, NAME, NOISY).add(STARTS + STEP, "total(u, 0.5)", U * STEP)
    setup = build_setup(ROOM, FitSettings(inputs={"u": "hold"}), Measurements.from_observations(data))
    np.testing.assert_allclose(setup.measurements.inputs["u"].times, STARTS, rtol=0, atol=1e-12)
    np.testing.assert_allclose(setup.measurements.inputs["u"].values, U)
    assert setup.measurements.names == (NAME,)
    with pytest.raises(lk.LodekitError, match="contains means of the input u"):
        build_setup(ROOM, FitSettings(inputs={"u": "linear"}), Measurements.from_observations(data))


def test_an_exact_mean_is_met() -> None:
    """As initial values are; a mean of a derivative ties two values to each other."""
    system = lk.System("x'' + 4*x = u")
    t = np.linspace(0.0, 6.0, 15)
    data = lk.Observations([(1.0, "mean(x, 1)", 0.3, 0.0), (2.0, "mean(x', 2)", 0.0, 0.0)])
    data = data.add(t, "x", np.sin(t), std=0.1).add(t, "u", 3.0 * np.sin(t), std=0.1)
    gp = lk.LODEGP(system, random_state=0, restarts=1).fit(data)
    assert gp.predict([1.0], "mean(x, 1)").item() == pytest.approx(0.3, abs=1e-6)
    x = gp.predict([0.0, 2.0], "x").ravel()
    assert x[0] == pytest.approx(x[1], abs=1e-6)


def test_sums_over_means_say_what_the_means_say() -> None:
    """Data that are not kept: tolerance of sums, which lose some digits."""
    generator = np.random.default_rng(0)
    system = lk.System("x'' + c*x' + k*x = 0; y' = x - u", parameters=["c", "k"])
    t = np.sort(generator.uniform(2.0, 10.0, 300))
    data = lk.Observations().add(t, "mean(x, 1.5)", generator.normal(size=300))
    data = data.add(t, "total(u, 0.4)", generator.normal(size=300))
    kept = Measurements.from_observations(data)
    values = []
    for measurements in (kept, Measurements(sufficient_statistics=Statistics.of(*kept.window, kept.series))):
        setup = build_setup(system, FitSettings(engine="spectral"), measurements)
        hyper = Hyperparameters(
            np.array([0.3, 4.0]), np.ones(1), np.ones(1), np.ones(len(setup.prior.groups)), np.ones(2)
        )
        values.append(setup.engine.value(hyper))
    assert values[0] == pytest.approx(values[1], rel=1e-8)


def test_records_are_averaged_each_in_its_own_time() -> None:
    """Two records of one decay, the second a hundred hours later: the same as both at the same time."""
    decay = lk.System("T' = -k*T", parameters={"k": lk.Parameter(positive=True)})
    t = np.arange(1.0, 9.0)
    y = (np.exp(-0.5 * (t - 1.0)) - np.exp(-0.5 * t)) / 0.5
    records = [(t, {NAME: y}), (t + 100.0, {NAME: 2.0 * y})]
    gp = lk.LODEGP(decay, random_state=0, restarts=1).fit(records, noise_std=1e-4)
    assert gp.parameters_["k"].value == pytest.approx(0.5, abs=1e-3)
    assert gp.predict([100.0], "T", record=1).item() == pytest.approx(2.0, abs=1e-2)
