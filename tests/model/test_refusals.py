"""Bad data, arguments and requests are refused with a reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lodekit as lk
from lodekit.errors import DataError
from lodekit.report import make_report
from lodekit.support.text import with_suggestions
from tests.model.heating import HEATING, SHORT, TIMES, WIGGLE, heating_data

BAD_DATA: dict[str, tuple[Any, Any, str]] = {
    "wrong shape": (TIMES, np.zeros((25, 2)), "one column for each channel"),
    "wrong length": (TIMES, np.zeros((24, 3)), "as many values"),
    "unknown channel": (TIMES, {"zz": np.zeros(25)}, "unknown name 'zz'"),
    "infinity": (TIMES, np.full((25, 3), np.inf), "expected finite values"),
    "all missing": (TIMES, np.full((25, 3), np.nan), "every value is missing"),
    "no points": ([], np.zeros((0, 3)), "at least one measurement"),
    "texts as times": (
        ["0.0", "1.0"],
        {"f1": [0.0, 1.0]},
        "expected times as numbers or dates, got texts such as '0.0'",
    ),
    "infinite time": (np.full(25, np.inf), np.zeros((25, 3)), "finite times"),
    "text": (TIMES, "hello", "expected Y as an array"),
    "text in an array": (TIMES, [["a", "b", "c"]] * 25, "expected Y as an array"),
    "nonlinear observable": (TIMES, {"f1*f2": np.zeros(25)}, "not linear"),
    "nested times": (np.zeros((5, 5)), np.zeros((25, 3)), "one-dimensional array for t, got"),
    "transposed": (TIMES, np.zeros((3, 25)), r"got shape \(3, 25\); transpose it, Y.T"),
    "one column of several": (TIMES, np.zeros(25), r"got shape \(25,\); if only .*, pass a dict: {'f1': values}"),
    "exchanged": ({"f1": np.zeros(25)}, TIMES, r"the times first and the values second, .*; exchange them"),
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
        ({"noise": 0.02}, r"got 0\.02; for known noise, use fit\(\.\.\., noise_std=0\.02\)"),
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
    data = lk.Observations([(0.1 + 0.2, "x", 1.0, 0.0), (0.1 + 0.2, "x", 2.0, 0.0)])
    with pytest.raises(lk.LodekitError, match=r"two different exact values at t = 0\.3: 1 and 2"):
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
        (lambda: heated.predict([0.0, np.nan]), "finite times, got nan at index 1"),
        (
            lambda: heated.predict("f1"),
            "expected numbers for times, got texts such as f1; did you mean observable='f1'?",
        ),
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
        (lambda: heated.sample([1e9], 1), "too many Fourier features"),
        (lambda: heated.save(None), "path of a file"),  # type: ignore[arg-type]
        (lambda: lk.LODEGP.load(None), "path of a file"),  # type: ignore[arg-type]
    ]
    for request, match in requests:
        with pytest.raises(lk.LodekitError, match=match):
            request()


LAG = lk.System("tau*y' + y = K*u + y0", parameters={n: lk.Parameter(positive=n == "tau") for n in ("tau", "K", "y0")})


def call(function: Any, *values: Any, **arguments: Any) -> Any:
    """Call a function with arguments that it may not have."""
    return function(*values, **arguments)


@pytest.mark.parametrize(
    ("attempt", "match"),
    [
        (lambda: call(lk.LODEGP, LAG, nois="shared"), r"LODEGP\(\) has no .*; did you mean 'noise'\?"),
        (lambda: call(lk.LODEGP, LAG, noise_std=0.1), r"LODEGP\(\) has no argument 'noise_std'; pass it to fit\(\)"),
        (lambda: call(lk.LODEGP, LAG, depth=3), "expected one of system, latent, .*, disturbances"),
        (lambda: call(lk.LODEGP(LAG).fit, [0, 1], {"y": [0, 1]}, nois_std=1), r"fit\(\) .* did you mean 'noise_std'\?"),
        (
            lambda: call(lk.LODEGP(lk.System("x' = v")).fit([0, 1], {"x": [1, 2]}).simulate, [0.0], input={}),
            r"simulate\(\) has no argument 'input'; did you mean 'inputs'\?",
        ),
        (lambda: call(lk.fit_file, LAG, "a.csv"), "expected the path of a system file, or a SystemFile, got System"),
        (lambda: lk.LODEGP(LAG).set_params(restart=1), r"unknown argument 'restart'; did you mean 'restarts'\?"),
        (lambda: call(lk.LODEGP(LAG).fit, [0, 1], {"y": [0, 1]}, nosie=0.1), r"fit\(\) .* did you mean 'noise_std'\?"),
        (lambda: call(lk.Parameter, lower=0.1), r"Parameter\(\) .*; did you mean 'bounds'\?"),
        (lambda: lk.LODEGP(LAG, inputs={"u": "zoh"}), r"got 'zoh'; did you mean 'hold'\?"),
        (
            lambda: call(lk.LODEGP, LAG, inputs={"u": SHORT}),
            r'"hold"}, got ndarray for u; .*: fit\(t, {"u": u, \.\.\.}\)$',
        ),
        (lambda: call(lk.LODEGP, LAG, inputs={"u": (SHORT, SHORT)}), "got tuple for u; pass samples to fit"),
        (
            lambda: lk.LODEGP(LAG, inputs={"u": "hold"}).fit(SHORT, {"y": np.nan * SHORT, "u": SHORT}),
            r"got only u; all values of y are missing: .*; add its values to the dict, {'y': values}$",
        ),
        (lambda: lk.LODEGP(LAG).fit(SHORT, {"y": SHORT}, units={"t": "K"}), "a unit of time for t, such as .* got 'K'"),
        (lambda: call(lk.Parameter, positiv=True), r"Parameter\(\) .*; did you mean 'positive'\?"),
        (lambda: call(lk.Parameter, value=3.0), r"has no argument .value.; expected one of positive, bounds"),
        (lambda: call(lk.Parameter, True, None, 3.0, None, None, 1), r"too many .*; expected Parameter\(positive"),
        (lambda: call(lk.LODEGP), "missing a required argument: 'system'; expected LODEGP"),
        (lambda: call(lk.LODEGP.load), r"load\(\): missing a required argument: 'path'"),
        (lambda: call(make_report, lk.LODEGP(LAG), "a.html"), r"too many .*; expected make_report\(gp, \*, title='', "),
        (lambda: call(make_report, "a.html"), r"expected a fitted model, LODEGP\(system\).fit\(t, Y\), got str"),
        (lambda: call(lk.System, "x' = a*x", parameter=["a"]), r"System\(\) .*; did you mean 'parameters'\?"),
        (lambda: call(lk.System, "x' = m*x", parameters={"m": 2.0}), r"\(fixed=2.0\) if .*\(start=2.0\) as"),
        (
            lambda: call(lk.LODEGP(lk.System("x' = v")).fit([0, 1, 2], {"x": [1, 2, 3]}).predict, [4], returnstd=True),
            r"predict\(\) has no argument 'returnstd'; did you mean 'return_std'\?",
        ),
        (
            lambda: lk.LODEGP(lk.System("x' = v")).fit([0, 1, 2], {"x": [1j, 2, 3]}),
            "got complex numbers; pass the real and the imaginary part as two channels",
        ),
        (
            lambda: lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0, 1, 2], {"x": [1, 2, 3]}).simulate([4]),
            r"no known inputs to simulate with; use predict\(\)",
        ),
    ],
)
def test_errors_tell_what_may_be_meant(attempt: Callable[[], object], match: str) -> None:
    with pytest.raises(lk.LodekitError, match=match):
        attempt()


def test_errors_inside_of_functions_stay_as_they_are() -> None:
    def fail(value: int) -> None:
        raise TypeError("an error of its own")

    with pytest.raises(TypeError, match="an error of its own"):
        with_suggestions(fail)(1)


def test_a_channel_without_values_is_told() -> None:
    t, z = np.arange(30) / 10, np.full(30, np.nan)
    x = np.exp(-t) + 0.01 * np.sin(50 * t)
    system = lk.System("x' = -a*x; z' = x - z", parameters={"a": lk.Parameter(positive=True)})
    gp = lk.LODEGP(system, random_state=0, restarts=1).fit(t, {"x": x, "z": z})
    assert "Note: all values of z are missing: it is treated as not measured" in gp.summary()
    # No measured channel shows the mode of z.
    assert "not determined" in gp.summary()
    assert "e+" not in gp.summary()


def test_two_rows_are_too_few() -> None:
    system = lk.System("x' = -a*x", parameters={"a": lk.Parameter(positive=True)})
    gp = lk.LODEGP(system, random_state=0).fit([0.0, 1.0], {"x": [1.0, 0.4]})
    few = "3 unknowns (parameters, initial values and noise levels) need more than 2 measurements"
    assert any(few in text for text in gp.warnings_)


@pytest.mark.parametrize("rows", [3, 4])
def test_no_interval_is_given_if_nothing_is_left_for_the_noise(rows: int) -> None:
    """The intervals were (0.687, 1.035) for a time constant of 2 and (1.3, 1.6) for a gain of 3."""
    t = 0.2 * np.arange(rows)
    y = 3.0 * (1.0 - np.exp(-t / 2.0)) + 0.03 * np.random.default_rng(1).standard_normal(rows)
    free = lk.Parameter(positive=True)
    system = lk.System("tau*y' + y = K*u", parameters={"tau": free, "K": free})
    gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(t, {"y": y, "u": np.ones(rows)})
    assert not any(estimate.identified for estimate in gp.parameters_.values())
    assert any(
        f"4 unknowns (parameters, initial values and noise levels) need more than {rows}" in text
        for text in gp.warnings_
    )


def test_a_constant_record_tells_nothing_and_prints_no_nan() -> None:
    t, u = np.arange(30) / 10, np.arange(30) // 5 % 2
    gp = lk.LODEGP(LAG, inputs={"u": "hold"}, random_state=0).fit(t, {"y": np.full(30, 2.0), "u": u})
    assert not any(estimate.identified for estimate in gp.parameters_.values())
    assert "nan" not in str(gp.summary()).lower()
    assert "nan" not in repr(gp.validate(t + 3, {"y": np.full(30, 2.0), "u": u}))


def test_an_unknown_kernel_is_refused_even_if_there_is_no_free_function() -> None:
    with pytest.raises(lk.LodekitError, match=r"expected .*matern.* got 'foo'"):
        lk.LODEGP(lk.System("x' = -x"), latent="foo").fit([0.0, 1.0, 2.0], [1.0, 0.4, 0.1])
