"""Bad data, arguments and requests are refused with a reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lodekit as lk
from lodekit.errors import DataError
from tests.model.heating import HEATING, SHORT, TIMES, WIGGLE, heating_data

BAD_DATA: dict[str, tuple[Any, Any, str]] = {
    "wrong shape": (TIMES, np.zeros((25, 2)), "one column for each channel"),
    "wrong length": (TIMES, np.zeros((24, 3)), "as many values"),
    "unknown channel": (TIMES, {"zz": np.zeros(25)}, "unknown name 'zz'"),
    "infinity": (TIMES, np.full((25, 3), np.inf), "expected finite values"),
    "all missing": (TIMES, np.full((25, 3), np.nan), "every value is missing"),
    "no points": ([], np.zeros((0, 3)), "at least one measurement"),
    "infinite time": (np.full(25, np.inf), np.zeros((25, 3)), "finite times"),
    "text": (TIMES, "hello", "expected Y as an array"),
    "text in an array": (TIMES, [["a", "b", "c"]] * 25, "expected Y as an array"),
    "nonlinear observable": (TIMES, {"f1*f2": np.zeros(25)}, "not linear"),
    "nested times": (np.zeros((5, 5)), np.zeros((25, 3)), "one row of numbers"),
}


@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_data_are_refused_with_a_reason(name: str) -> None:
    times, table, match = BAD_DATA[name]
    with pytest.raises(lk.LodekitError, match=match):
        lk.LODEGP(HEATING.system).fit(times, table)


def test_names_that_data_have_wrong_are_mistakes_of_data() -> None:
    with pytest.raises(DataError, match="unknown name 'zz'"):
        lk.LODEGP(HEATING.system).fit(TIMES, {"zz": np.zeros(25)})


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"noise": "pink"}, "noise='channel' or 'shared'"),
        ({"latent": "cubic"}, "latent='se'"),
        ({"latent": "matern-4/2"}, "odd p"),
        ({"latent": ["se", "se"]}, "one latent for each of the 1"),
        ({"restarts": 0}, "at least 1"),
    ],
)
def test_bad_arguments_are_refused_when_fitting(arguments: dict[str, object], match: str) -> None:
    with pytest.raises(lk.LodekitError, match=match):
        lk.LODEGP(HEATING.system, **arguments).fit(TIMES, heating_data())  # type: ignore[arg-type]


def test_an_unfitted_model_says_so() -> None:
    with pytest.raises(lk.LodekitError, match="call fit"):
        lk.LODEGP(HEATING.system).predict([0.0])
    with pytest.raises(lk.LodekitError, match="expected a System"):
        lk.LODEGP("x' = u").fit([0.0], [[1.0]])  # type: ignore[arg-type]


def test_contradicting_exact_values_are_refused() -> None:
    data = lk.Observations([(0.0, "x", 1.0, 0.0), (0.0, "x", 2.0, 0.0)])
    with pytest.raises(lk.LodekitError, match="two different exact values"):
        lk.LODEGP(lk.System("x' = u")).fit(data)


def test_a_channel_that_the_equations_force_to_zero_is_refused_where_the_data_are_not() -> None:
    system = lk.System("x = 0*y; y' = -y + u", channels=["x", "y", "u"])
    times = np.linspace(0, 3, 10)
    with pytest.raises(lk.LodekitError, match="force x to be zero"):
        lk.LODEGP(system).fit(times, {"x": np.ones(10), "y": np.exp(-times)})
    gp = lk.LODEGP(system, random_state=0).fit(times, {"x": 0.01 * np.sin(99 * times), "y": np.exp(-times)})
    assert np.abs(gp.predict(times, "x")).max() == 0.0


def test_bad_prediction_requests_are_refused(heated: lk.LODEGP) -> None:
    request: Callable[[], object]
    for request, match in (
        (lambda: heated.predict([np.nan]), "finite times"),
        (lambda: heated.predict("soon"), "expected numbers for times, got texts"),
        (lambda: heated.predict([0.0], "f1*f1"), "not linear"),
        (lambda: heated.predict([0.0], "zz"), "unknown name"),
        (lambda: heated.sample([0.0], 0), "at least 1"),
    ):
        with pytest.raises(lk.LodekitError, match=match):
            request()


def test_sizes_that_floats_cannot_square_are_refused() -> None:
    for factor in (1e200, 1e-150):
        with pytest.raises(lk.LodekitError, match="change their units"):
            lk.LODEGP(lk.System("x'' + x = u")).fit(TIMES, {"x": factor * np.cos(TIMES)})


@pytest.mark.parametrize(
    ("system", "data"),
    [
        ("x'' + x = u", lk.Observations([(0.0, "x", 1.0, 0.0), (0.0, "2*x", 7.0, 0.0)])),
        ("x' = -x", lk.Observations().add(SHORT, "x", np.sin(SHORT), 0.0)),
    ],
)
def test_exact_values_that_contradict_the_equations_are_refused(system: str, data: lk.Observations) -> None:
    with pytest.raises(lk.LodekitError, match="contradict"):
        lk.LODEGP(lk.System(system), random_state=0).fit(data)


def test_predictions_that_overflow_are_refused() -> None:
    times = np.linspace(0, 200, 20)
    gp = lk.LODEGP(lk.System("x' = -5*x"), random_state=0).fit(times, np.exp(-times))
    with pytest.raises(lk.LodekitError, match="overflows at t = -200"):
        gp.predict([-200.0], return_std=True)


def test_derivatives_that_a_matern_process_does_not_have_are_refused() -> None:
    gp = lk.LODEGP(lk.System("x' = -x + u"), latent="matern-5/2", random_state=0)
    gp.fit(SHORT, {"x": np.sin(SHORT) + 0.01 * WIGGLE})
    request: Callable[[], object]
    for request in (lambda: gp.predict(SHORT, "D(x, 5)"), lambda: gp.sample(SHORT, 1, 0, "D(x, 5)")):
        with pytest.raises(lk.LodekitError, match="too rough"):
            request()


def test_a_process_too_rough_for_channels_that_are_not_measured_is_refused_by_the_fit() -> None:
    system, data = lk.System("x'' + x' + 4*x = u"), {"x": np.sin(SHORT)}
    with pytest.raises(lk.LodekitError, match="use matern-5/2 or smoother"):
        lk.LODEGP(system, latent="matern-3/2", random_state=0).fit(SHORT, data)
    gp = lk.LODEGP(system, latent="matern-5/2", random_state=0).fit(SHORT, data)
    assert np.isfinite(gp.predict(SHORT)).all()


def test_more_bad_input_is_refused(heated: lk.LODEGP, tmp_path: Path) -> None:
    table = heating_data()
    requests: list[tuple[Any, str]] = [
        (lambda: lk.LODEGP(HEATING.system).fit(TIMES, table, noise_std=[0.1, 0.1]), "one noise_std for f1"),
        (lambda: lk.LODEGP(HEATING.system).fit(TIMES, table, noise_std=np.ones((25, 1))), "noise_std of shape"),
        (lambda: lk.LODEGP(HEATING.system).fit(TIMES, table, noise_std=-1), "zero or more"),
        (lambda: lk.LODEGP(HEATING.system).fit(TIMES, table, noise_std=[[1.0], [2.0, 3.0]]), "different lengths"),
        (lambda: lk.LODEGP(HEATING.system).fit([(TIMES, table)] * 2, noise_std=[[1.0], [2.0, 3.0]]), "noise_std"),
        (lambda: lk.LODEGP(HEATING.system).fit(TIMES, table.astype("datetime64[s]")), "got dates"),
        (lambda: heated.predict(TIMES.astype("datetime64[s]")), "times as numbers, like those of the fit, got dates"),
        (lambda: lk.LODEGP(HEATING.system).fit(TIMES, table + 1j), "complex"),
        (lambda: lk.LODEGP(HEATING.system).fit(TIMES, {"f1": table[:, 0], "zz": np.full(25, np.nan)}), "unknown name"),
        (lambda: lk.LODEGP(HEATING.system, latent=5).fit(TIMES, table), "latent as a text"),  # type: ignore[arg-type]
        (lambda: lk.LODEGP(HEATING.system, latent="matern-999/2").fit(TIMES, table), "odd p up to"),
        (lambda: lk.LODEGP(HEATING.system, random_state=-1).fit(TIMES, table), "random_state"),
        (lambda: lk.LODEGP(HEATING.system, n_jobs=0).fit(TIMES, table), "n_jobs"),
        (lambda: lk.LODEGP(HEATING.system, engine="fast").fit(TIMES, table), "engine='auto'"),
        (lambda: lk.Observations([3]), "record 1"),  # type: ignore[list-item]
        (lambda: lk.Observations(None), "expected records"),  # type: ignore[arg-type]
        (lambda: lk.Observations(np.array(3.0)), "expected records"),
        (lambda: lk.Statistics.empty("a", 1.0), "window of time as two numbers"),  # type: ignore[arg-type]
        (lambda: heated.predict(TIMES, 5), "observable as text"),  # type: ignore[arg-type]
        (lambda: heated.predict(TIMES, []), "at least one observable"),
        (lambda: heated.log_evidence({"a": np.nan}), "finite number"),
        (lambda: heated.log_evidence(["a"]), "as a dict"),  # type: ignore[arg-type]
        (lambda: heated.sample(TIMES, True), "whole number"),
        (lambda: heated.sample([1e9], 1), "too many waves"),
        (lambda: heated.save(None), "path of a file"),  # type: ignore[arg-type]
        (lambda: lk.LODEGP.load(None), "path of a file"),  # type: ignore[arg-type]
    ]
    for request, match in requests:
        with pytest.raises(lk.LodekitError, match=match):
            request()
