"""LODEGP as people use it: data of all kinds, predictions, scores, and scikit-learn."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import narwhals
import numpy as np
import pandas as pd
import polars as pl
import pytest
from matplotlib.dates import num2date
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


def test_score_accepts_tables_of_times_and_values() -> None:
    table = pd.DataFrame({"t": [0.0, 1.0, 2.0, 3.0], "x": [0.0, 0.9, 2.1, 3.0]})
    gp = lk.LODEGP(lk.System("x' = v"), random_state=0).fit(table)
    assert gp.score(table) == pytest.approx(gp.score(table["t"], {"x": table["x"]}))


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


@pytest.fixture(scope="module", params=["pandas", "polars", "arrays"])
def plant(request: pytest.FixtureRequest) -> tuple[lk.LODEGP, str]:
    """A lag with dates, fitted to a DataFrame of a library, or to arrays; and what its answers are."""
    rows = np.arange(60)
    y, u = np.zeros(60), rows // 10 % 2
    for k in rows[:-1]:
        y[k + 1] = y[k] + (1 - np.exp(-0.2)) * (2 * u[k] - y[k])
    dates = [datetime(2024, 3, 1) + timedelta(hours=int(k)) for k in rows]
    columns = {"time": dates, "y": y + 0.02 * np.sin(50 * rows), "u": u}
    system = lk.System("tau*y' + y = K*u", parameters={n: lk.Parameter(positive=True) for n in ("tau", "K")})
    gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0)
    if request.param == "arrays":
        return gp.fit(np.array(dates, dtype="datetime64[s]"), {"y": columns["y"], "u": u}), "pandas"
    return gp.fit(pytest.importorskip(request.param).DataFrame(columns)), request.param


def test_answers_are_dataframes_if_asked_for_or_if_the_data_were(plant: tuple[lk.LODEGP, str]) -> None:
    gp, library = plant
    by_default = gp.fit_.frame_library != ""
    options: dict[str, Any] = {} if by_default else {"as_frame": "pandas"}
    when = "2024-03-02 12:00"
    mean, std = gp.predict([when, "2024-03-02 13:00"], return_std=True, as_frame=False)
    found = gp.predict([when, "2024-03-02 13:00"], return_std=True, **options)
    assert type(found).__module__.startswith(library)
    assert list(found.columns) == ["t", "y", "std(y)", "u", "std(u)"]
    assert np.array_equal(found["y"].to_numpy(), mean[:, 0])
    assert np.array_equal(found["std(y)"].to_numpy(), std[:, 0])
    assert found["t"].to_list() == [datetime(2024, 3, 2, 12), datetime(2024, 3, 2, 13)]
    # One date alone is a time as well, and covariances stay arrays.
    assert gp.predict(when, "y", **options)["y"].to_list() == [mean[0, 0]]
    assert isinstance(gp.predict(when, "y", return_cov=True, **options), tuple)
    ahead = gp.predict(ahead=2, **options)
    assert (list(ahead.columns), len(ahead)) == (["t", "y"], 60)
    assert list(gp.simulate([when], {"u": 1.0}, "end", return_std=True, **options).columns) == list(found.columns)
    left = gp.residuals(**options)
    assert (list(left.columns), len(left)) == (["t", "y"], 60)
    assert np.array_equal(left["y"].to_numpy(), gp.residuals(as_frame=False)["y"][1])
    intervals = gp.conf_int(**options)
    assert intervals["parameter"].to_list() == ["tau", "K"]
    assert intervals["upper"].to_list() == [high for _, high in gp.conf_int(as_frame=False).values()]
    assert isinstance(gp.predict(when), np.ndarray) != by_default


def test_residuals_of_channels_with_other_times_share_a_table() -> None:
    data = lk.Observations().add([0.0, 1.0, 2.0], "x", [0.0, 1.1, 2.0]).add([1.0, 3.0], "v", [1.0, 0.9])
    found = lk.LODEGP(lk.System("x' = v"), random_state=0).fit(data).residuals(as_frame="polars")
    assert found["t"].to_list() == [0.0, 1.0, 2.0, 3.0]
    assert np.isnan(found["x"].to_numpy()).tolist() == [False, False, False, True]


def test_a_library_that_is_not_known_is_refused() -> None:
    gp = lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
    with pytest.raises(lk.LodekitError, match="one of pandas, polars, pyarrow, got 'panda'"):
        gp.predict([1.0], as_frame="panda")


#: The clocks of this zone are set forward by an hour on 31 March.
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture(scope="module")
def in_berlin() -> lk.LODEGP:
    """A line over the change to summer time, with dates that have a named time zone."""
    pandas = pytest.importorskip("pandas")
    dates = pandas.date_range("2024-03-30", periods=60, freq="h", tz="Europe/Berlin")
    x = 0.1 * np.arange(60) + 0.01 * np.sin(9.0 * np.arange(60))
    return lk.LODEGP(lk.System("x' = v; v' = 0"), random_state=0).fit(pandas.DataFrame({"x": x}, index=dates))


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_time_zones_are_kept(in_berlin: lk.LODEGP, library: str, tmp_path: Path) -> None:
    in_berlin.save(tmp_path / "line.lodekit")
    for gp in (in_berlin, lk.LODEGP.load(tmp_path / "line.lodekit")):
        # Noon of the next day is 35 hours after midnight, because one hour is left out.
        noons: list[Any] = ["2024-03-31 12:00", "2024-03-31T10:00Z", datetime(2024, 3, 31, 12)]
        for noon in (*noons, noons[2:]):
            assert gp.predict(noon, "x", as_frame=False)[0] == pytest.approx(3.5, abs=0.02)
        found = narwhals.from_native(gp.predict(["2024-03-30 12:00", "2024-03-31 12:00"], as_frame=library))
        assert found.schema["t"].time_zone == "Europe/Berlin"
        assert found["t"].to_list()[1] == datetime(2024, 3, 31, 12, tzinfo=BERLIN)


def test_figures_of_data_with_dates_have_date_axes(in_berlin: lk.LODEGP) -> None:
    for figure in (in_berlin.plot(), in_berlin.plot_residuals(), in_berlin.plot_residual()):
        figure.draw_without_rendering()
        axis = figure.axes[0]
        first, last = num2date(axis.get_xlim(), tz=BERLIN)
        assert datetime(2024, 3, 29, tzinfo=BERLIN) < first <= datetime(2024, 3, 30, tzinfo=BERLIN)
        assert datetime(2024, 4, 1, 12, tzinfo=BERLIN) <= last < datetime(2024, 4, 2, tzinfo=BERLIN)
        assert "31 Mar" in [label.get_text() for each in figure.axes for label in each.get_xticklabels()]
    # Of the first panel alone: the other panels of residuals are not over time.
    assert in_berlin.plot_residuals().axes[1].get_xlim()[1] < 100


def test_residuals_of_several_records_are_labelled_on_two_lines() -> None:
    t, x = np.arange(20.0), np.exp(-0.2 * np.arange(20.0)) + 0.01 * np.sin(9.0 * np.arange(20.0))
    system = lk.System("temperature' = -a*temperature", parameters={"a": lk.Parameter(positive=True)})
    figure = lk.LODEGP(system, random_state=0).fit([(t, x), (t, 2.0 * x)]).plot_residuals()
    figure.draw_without_rendering()
    extents = [axis.yaxis.label.get_window_extent() for axis in figure.axes[::3]]
    assert extents[1].y1 < extents[0].y0


def test_a_series_is_an_input_with_the_times_of_its_index(plant: tuple[lk.LODEGP, str]) -> None:
    pandas, (gp, _) = pytest.importorskip("pandas"), plant
    dates = pandas.date_range("2024-03-04", periods=6, freq="h")
    values = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 1.0])
    expected = gp.simulate(dates, {"u": (dates, values)}, as_frame=False)
    series = pandas.Series(values, index=dates)
    for given in (series, pl.Series(values)):
        assert np.array_equal(gp.simulate(dates, {"u": given}, as_frame=False), expected)
    # Before its first time an input has its first value.
    assert not np.allclose(gp.simulate(dates, {"u": series[2:]}, as_frame=False), expected)


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ("tomorrow", "got texts such as tomorrow"),
        (pl.DataFrame({"t": [1.0], "u": [2.0]}), "got a DataFrame; pass its index"),
    ],
)
def test_other_things_than_times_are_refused(plant: tuple[lk.LODEGP, str], times: Any, message: str) -> None:
    with pytest.raises(lk.LodekitError, match=message):
        plant[0].predict(times)


def test_no_dates_are_no_times(plant: tuple[lk.LODEGP, str]) -> None:
    assert plant[0].predict(np.array([], dtype="datetime64[s]"), as_frame=False).shape == (0, 2)


def test_a_series_with_another_order_than_the_times_is_refused() -> None:
    pandas = pytest.importorskip("pandas")
    dates = pandas.date_range("2024-03-04", periods=20, freq="h")
    values = pandas.Series(np.exp(-0.2 * np.arange(20.0)), index=dates)
    system = lk.System("x' = -a*x", parameters={"a": lk.Parameter(positive=True)})
    with pytest.raises(lk.LodekitError, match="expected x with the index t"):
        lk.LODEGP(system).fit(dates, {"x": values[::-1]})


def test_true_is_a_dataframe_of_the_library_that_was_passed() -> None:
    data = pl.DataFrame({"t": [0.0, 1.0, 2.0, 3.0], "x": [0.0, 0.9, 2.1, 3.0]})
    gp = lk.LODEGP(lk.System("x' = v"), random_state=0).fit(data)
    assert isinstance(gp.predict([1.0], as_frame=True), pl.DataFrame)
