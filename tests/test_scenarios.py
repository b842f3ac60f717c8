"""What-if runs: against an exact simulation, against predictions, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.signal import cont2discrete

import lodekit as lk
from lodekit.data.inputs import InputSignal
from lodekit.errors import DataError, LodekitError
from lodekit.results.simulation import simulate_response
from tests.cli.command import run

A, B = np.array([[0.0, 1.0], [-2.0, -0.5]]), np.array([[0.0], [1.5]])


def simulate(u: np.ndarray, start: tuple[float, float]) -> np.ndarray:
    """An oscillator under held inputs, sample by sample, shape (n, 2)."""
    flow, push, *_ = cont2discrete((A, B, np.eye(2), np.zeros((2, 1))), 0.5)
    found = [np.array(start)]
    for value in u[:-1]:
        found.append(flow @ found[-1] + push[:, 0] * value)
    return np.array(found)


@pytest.fixture(scope="module")
def gp() -> lk.LODEGP:
    generator = np.random.default_rng(1)
    u = np.repeat(generator.normal(size=12), 10)
    times = 0.5 * np.arange(120)
    system = lk.System("x' = v; v' = -k*x - c*v + b*u", parameters={n: lk.Parameter(positive=True) for n in "kcb"})
    x = simulate(u, (1.0, 0.0))[:, 0] + 0.02 * generator.normal(size=120)
    return lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(times, {"x": x, "u": u})


def test_from_values_it_is_the_true_system_within_its_band(gp: lk.LODEGP) -> None:
    times, u = 0.5 * np.arange(30), np.sin(np.arange(30.0))
    mean, std = gp.simulate(times, {"u": (times, u)}, start={"x": -1.0, "v": 2.0}, return_std=True)
    truth = simulate(u, (-1.0, 2.0))
    assert np.abs(mean[:, :2] - truth).max() < 0.05
    assert (np.abs(mean[1:, :2] - truth[1:]) < 4 * std[1:, :2]).all()
    np.testing.assert_allclose(mean[0, :2], [-1.0, 2.0], atol=1e-12)
    np.testing.assert_array_equal(mean[:, 2], u)


def test_what_values_leave_open_is_at_rest(gp: lk.LODEGP) -> None:
    times, parts = np.linspace(0.0, 12.0, 9), gp.parameters_
    k, c = parts["k"].value, parts["c"].value
    mean = gp.simulate(times, {"u": 0.0}, start={"x": 3.0}, observable=["x", "v"])
    # The textbook's oscillator, let go from 3 without a push.
    swing = np.sqrt(k - c**2 / 4)
    wave = np.exp(-c * times / 2)
    truth = 3.0 * wave * (np.cos(swing * times) + c / (2 * swing) * np.sin(swing * times))
    np.testing.assert_allclose(mean[:, 0], truth, atol=1e-9)
    # The same in one equation, where no channel says what the slope is.
    system = lk.System("x'' + c*x' + k*x = u", parameters={"k": lk.Parameter(fixed=k), "c": lk.Parameter(fixed=c)})
    data = {"x": [1.0, 0.2, -0.4, 0.1, 0.5, 0.2], "u": [0.0, 1.0, 0.0, 1.0, 0.0, 1.0]}
    one = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(np.arange(6.0), data, noise_std={"x": 0.1})
    np.testing.assert_allclose(one.simulate(times, {"u": 0.0}, start={"x": 3.0}, observable="x"), truth, atol=1e-9)
    np.testing.assert_allclose(one.simulate([0.0], {"u": 0.0}, start={"x": 3.0}, observable="x'"), 0.0, atol=1e-9)


def test_from_rest_a_constant_input_ends_at_its_gain(gp: lk.LODEGP) -> None:
    ratio = gp.parameters_["b"].value / gp.parameters_["k"].value
    assert gp.simulate([0.0, 200.0], {"u": 3.0}, observable="x") == pytest.approx([0.0, 3 * ratio], abs=1e-9)


@pytest.mark.parametrize("kind", ["hold", "linear"])
def test_a_steady_state_is_that_of_the_first_inputs(kind: str) -> None:
    """Also with dead time and with constants in the equations; the truth is the static gain and a step response."""
    t = np.arange(60.0)
    parameters = {"tau": 4.0, "K": 2.0, "T": 3.0, "y0": 15.0}
    system = lk.System(
        "tau*y' + y - y0 = K*delay(u, T)", parameters={n: lk.Parameter(fixed=v) for n, v in parameters.items()}
    )
    gp = lk.LODEGP(system, inputs={"u": kind}, random_state=0).fit(t, {"y": 15 + np.sin(t), "u": np.cos(t)})
    times, step = np.array([0.0, 5.0, 13.0, 20.0]), (np.array([-5.0, 5.0, 10.0]), np.array([1.0, 1.0, 1.0]))
    np.testing.assert_allclose(gp.simulate(times, {"u": step}, start="steady", observable="y"), 17.0, atol=1e-9)
    jump = InputSignal([0.0, 10.0], [1.0, 3.0], "hold")
    found = gp.simulate(times, {"u": jump}, start="steady", observable="y")
    np.testing.assert_allclose(found, [17.0, 17.0, 17.0, 21 - 4 * np.exp(-7 / 4)], atol=1e-9)
    rising = lk.LODEGP(lk.System("y' = u"), inputs={"u": "hold"}).fit(t, {"y": t + np.cos(t), "u": np.ones(60)})
    with pytest.raises(LodekitError, match="integrates or grows"):
        rising.simulate(times, {"u": 1.0}, start="steady")


def test_the_old_inputs_from_the_old_begin_are_the_prediction(gp: lk.LODEGP) -> None:
    signal = gp.fit_.measurements.inputs["u"]
    times = np.linspace(0.0, 70.0, 40)
    for start in ("begin", "end"):
        inputs = {"u": signal} if start == "begin" else {}
        found = gp.simulate(times, inputs, start=start, return_std=True)
        expected = gp.predict(times, return_std=True)
        for first, second in zip(found, expected, strict=True):
            np.testing.assert_allclose(first, second, atol=1e-12)


def test_from_the_end_it_goes_on_where_the_record_ended(gp: lk.LODEGP) -> None:
    before, after = gp.predict([59.5], ["x", "v"]), gp.simulate([59.5, 59.5 + 1e-6, 300.0], {"u": 0.0}, start="end")
    np.testing.assert_allclose(after[0, :2], before[0], atol=1e-12)
    np.testing.assert_allclose(after[1, :2], before[0], atol=1e-4)
    np.testing.assert_allclose(after[2], 0.0, atol=1e-6)


def test_what_cannot_be_is_refused(gp: lk.LODEGP) -> None:
    for inputs, start, text in (
        ({"w": 1.0}, "rest", "not an input of this fit; expected one of: u"),
        ({}, "rest", "u is missing"),
        ({"u": 1.0}, "middle", "expected start as one of"),
        ({"u": 1.0}, {"x": "high"}, "expected a finite number"),
        ({"u": "hold"}, "rest", "input u: expected a number, one value for each time t, or"),
        ({"u": [1.0, 2.0]}, "rest", "input u: expected a number, .*, got 2 values"),
        ({"u": 1.0}, {"x": 1.0, "v": 0.0, "v'": 3.0}, "the start x = 1, v = 0, v' = 3 contradicts"),
        ({"u": 1.0}, {"u": 2.0}, "the start u = 2 contradicts"),
        ({"u": 1.0}, {"c": 2.0}, "got c, which is a parameter"),
    ):
        with pytest.raises(LodekitError, match=text):
            gp.simulate([0.0, 1.0], inputs, start=start)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="expected finite times, got nan"):
        gp.simulate([0.0, np.nan], {"u": 1.0})
    with pytest.raises(DataError, match="from the end of the record on"):
        gp.simulate([0.0], {"u": ([0.0, 1.0], [1.0, 2.0])}, start="end")
    plain = lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
    with pytest.raises(LodekitError, match="no known inputs"):
        plain.simulate([0.0], {"u": 1.0})


def test_on_the_command_line(gp: lk.LODEGP, tmp_path: Path) -> None:
    gp.save(tmp_path / "model.lodekit")
    (tmp_path / "inputs.csv").write_text("t,u\n0,1\n5,0\n10,0\n")
    result = run("simulate", str(tmp_path / "model.lodekit"), str(tmp_path / "inputs.csv"), "--start", "x=1,v=0")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "t,x,std(x),v,std(v),u"
    found = np.array([[float(cell) for cell in line.split(",")] for line in lines[1:]])
    expected = gp.simulate(found[:, 0], {"u": ([0.0, 5.0, 10.0], [1.0, 0.0, 0.0])}, start={"x": 1.0, "v": 0.0})
    np.testing.assert_allclose(found[:, [1, 3, 5]], expected, atol=1e-12)
    (tmp_path / "log.csv").write_text("t,push\n0,1\n5,0\n10,0\n")
    again = run("simulate", str(tmp_path / "model.lodekit"), str(tmp_path / "log.csv"), "--map", "u=push")
    assert again.returncode == 0, again.stderr
    partial = run("simulate", str(tmp_path / "model.lodekit"), str(tmp_path / "inputs.csv"), "--start", "x=1")
    assert partial.returncode == 2
    assert "expected an initial value of v as well, which x leaves open: --start x=1,v=VALUE" in partial.stderr


def test_the_command_line_refuses_what_it_would_ignore(gp: lk.LODEGP, tmp_path: Path) -> None:
    model, inputs = str(tmp_path / "model.lodekit"), str(tmp_path / "inputs.csv")
    gp.save(model)
    Path(inputs).write_text("t,u\n60,1\n65,0\n")
    assert run("simulate", model, inputs, "--start", "end", "--record", "0").returncode == 0
    for arguments, text in (
        ((), "expected a file of inputs beside the fitted model"),
        ((inputs, "--noise", "0.1"), "expected no --noise"),
        ((inputs, "--from", "70", "--to", "60"), "--from must be earlier than --to"),
        ((inputs, "--record", "b.csv"), "expected one of the records"),
        ((inputs, "--start", "middle"), "expected --start as one of rest, steady, begin, end"),
    ):
        result = run("simulate", model, *arguments)
        assert (result.returncode, text in result.stderr) == (2, True), result.stderr
    result = run("validate", model, inputs, "--plot", str(tmp_path / "run.jpg"))
    assert (result.returncode, "expected a PNG file" in result.stderr) == (2, True)


def test_inputs_may_be_values_at_the_asked_times_and_what_is_none_is_named(gp: lk.LODEGP) -> None:
    t = np.linspace(0.0, 20.0, 41)
    values = np.where(t < 5.0, 0.0, 2.0)
    expected = gp.simulate(t, {"u": (t, values)}, observable="x")
    assert gp.simulate(t, {"u": values}, observable="x") == pytest.approx(expected)
    order = np.random.default_rng(0).permutation(len(t))
    assert gp.simulate(t[order], {"u": values[order]}, observable="x") == pytest.approx(expected[order])
    with pytest.raises(LodekitError, match=r"such as inputs=\{'u': 1.0\}, got none"):
        gp.simulate(t)
    with pytest.raises(LodekitError, match=r"input u: .*, got 3 values for 41 times t"):
        gp.simulate(t, {"u": [1.0, 2.0, 3.0]})
    with pytest.raises(LodekitError, match="got a function; take its values"):
        gp.simulate(t, {"u": np.sin})


def test_the_transfer_function_of_one_input_needs_no_names_but_of_two_channels(gp: lk.LODEGP) -> None:
    with pytest.raises(LodekitError, match="outputs are x, v, inputs are u"):
        gp.transfer_function()
    assert gp.transfer_function("x").gain.value == pytest.approx(gp.transfer_function("x", "u").gain.value)


def test_from_rest_bands_are_as_wide_as_the_errors_of_the_parameters(gp: lk.LODEGP) -> None:
    """What stays in the end is b/k, by hand; `results/test_free_run_bands.py` has correlated residuals."""
    fit = gp.fit_
    _, std = simulate_response(fit, [0.0, 200.0], {"u": 1.0}, observable="x", return_std=True)
    names, values = list(fit.system.parameters), {name: each.value for name, each in gp.parameters_.items()}
    gradient = {"b": 1.0 / values["k"], "k": -values["b"] / values["k"] ** 2, "c": 0.0}
    slopes = np.array([gradient[name] for name in names])
    assert std[1] == pytest.approx(np.sqrt(slopes @ fit.parameter_covariance @ slopes), rel=0.02)


@pytest.mark.parametrize("kind", ["hold", "linear"])
@pytest.mark.parametrize("seed", range(4))
def test_a_simulation_from_the_end_is_the_prediction_with_the_same_inputs(kind: str, seed: int) -> None:
    """The log of the input goes on after the last output; the new input begins before, at or after that."""
    generator, times = np.random.default_rng(seed), 0.5 * np.arange(20)
    system = lk.System("tau*y' + y = K*delay(u, 0.3)", parameters={n: lk.Parameter(fixed=2.0) for n in ("tau", "K")})
    logged, values = np.sort(generator.choice(np.arange(-4, 80), 40, replace=False)) / 4.0, generator.normal(size=40)
    end = float(times[-1])
    if kind == "linear" or seed % 2:  # a linear input is known up to its last sample alone
        logged[np.argmin(np.abs(logged - end))] = end
    y, asked = generator.normal(size=20), np.linspace(0.0, 22.0, 45)

    def fitted(last: float) -> lk.LODEGP:
        known = logged <= last
        data = lk.Observations().add(times, "y", y, 0.1).add(logged[known], "u", values[known])
        return lk.LODEGP(system, inputs={"u": kind}, random_state=0).fit(data)

    whole = fitted(np.inf)
    expected = whole.predict(asked, "y", return_std=True)
    for model in (whole, fitted(end), fitted(end + 2.0)):
        for first in (-2.0, end - 2.0, end, end + 1.0, end + 2.0):
            if model is not whole and first > max(model.fit_.measurements.inputs["u"].times):
                continue  # what lies between is not known
            new = logged >= first
            inputs = {"u": (logged[new], values[new])}
            found = model.simulate(asked, inputs, start="end", observable="y", return_std=True)
            np.testing.assert_allclose(found, expected, atol=1e-9)
    # A number is the input from the end of the record on, whatever was logged after it.
    constant = [model.simulate(asked, {"u": 1.5}, start="end") for model in (whole, fitted(end), fitted(end + 2.0))]
    np.testing.assert_allclose(constant[1], constant[0], atol=1e-9)
    np.testing.assert_allclose(constant[2], constant[0], atol=1e-9)


def test_a_plan_without_one_of_the_inputs_is_refused_after_the_record() -> None:
    t = np.arange(40.0)
    u, v = np.where(t < 10, 0.0, 1.0), np.where(t < 20, 0.0, 1.0)
    x = np.zeros(40)
    for k in range(39):
        x[k + 1] = 0.8 * x[k] + 0.2 * (2 * u[k] - v[k])
    system = lk.System("tau*x' + x = K*u + L*v", parameters=dict.fromkeys(("tau", "K", "L"), lk.Parameter()))
    noise = 0.01 * np.random.default_rng(0).standard_normal(40)
    gp = lk.LODEGP(system, inputs=dict.fromkeys("uv", "hold"), random_state=0).fit(t, {"x": x + noise, "u": u, "v": v})
    with pytest.raises(lk.LodekitError, match="v is missing"):
        gp.simulate([45.0], {"u": 1.0}, start="end")
    assert abs(gp.simulate([60.0], {"u": 1.0, "v": 0.0}, start="end", observable="x")[0] - 2.0) < 0.1
    assert np.isfinite(gp.simulate([30.0], {"u": 1.0}, start="end")).all()
