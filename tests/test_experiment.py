"""Errors of planned experiments: against Jacobians by hand, the scatter of another program's fits, and in use."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import least_squares

import lodekit as lk
from lodekit.errors import LodekitError, ParameterError
from lodekit.results import experiment_design
from lodekit.results.experiment_design import Experiment

DECAY = lk.System("x' = -a*x", parameters={"a": lk.Parameter(positive=True)})
PLANT = lk.System("tau*y' + y - y0 = K*u", parameters=["tau", "K", "y0"])
HEATING = lk.catalog.heating().system
ASSUMED = {"tau": 4.0, "K": 2.0, "y0": 1.0}
TIMES, NOISE = np.arange(0.0, 30.0), 0.1
#: The values that `respond` takes: those that are assumed, and the start.
TRUTH = np.array([4.0, 2.0, 1.0, 1.0])
PULSE = {"u": ([0.0, 5.0, 15.0], [0.0, 3.0, 0.0])}


def respond(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the response to the pulse in closed form, for a time constant, a gain, an offset and a start."""
    tau, gain, offset, begin = values

    def step(start: float) -> NDArray[np.float64]:
        return np.where(start > TIMES, 0.0, 1.0 - np.exp(-np.maximum(TIMES - start, 0.0) / tau))

    found = offset + (begin - offset) * np.exp(-TIMES / tau) + 3.0 * gain * (step(5.0) - step(15.0))
    return np.asarray(found)


@pytest.fixture(scope="module")
def planned() -> Experiment:
    return lk.plan_experiment(PLANT, TIMES, ASSUMED, noise={"y": NOISE}, inputs=PULSE, start={"y": 1.0})


def test_errors_are_those_of_the_jacobian_with_the_initial_value_unknown() -> None:
    t, a = np.arange(0.0, 10.0, 0.5), 0.3
    jacobian = np.stack([-2.0 * t * np.exp(-a * t), np.exp(-a * t)], axis=1)
    expected = 0.02 * np.sqrt(np.linalg.inv(jacobian.T @ jacobian)[0, 0])
    found = lk.plan_experiment(DECAY, t, {"a": a}, noise={"x": 0.02}, start={"x": 2.0})
    assert found.std_errors["a"] == pytest.approx(expected, rel=1e-3)
    assert found.relative["a"] == pytest.approx(expected / a, rel=1e-3)


def test_errors_are_the_scatter_of_fits_by_another_program(planned: Experiment) -> None:
    generator = np.random.default_rng(0)
    fits = [
        least_squares(lambda x, y: respond(x) - y, TRUTH, args=(respond(TRUTH) + NOISE * noise,)).x[:3]
        for noise in generator.standard_normal((200, len(TIMES)))
    ]
    # The scatter of 200 fits is known to five percent.
    assert list(planned.std_errors.values()) == pytest.approx(np.std(fits, axis=0, ddof=4), rel=0.15)


def test_a_fit_to_such_a_record_says_the_same(planned: Experiment) -> None:
    y = respond(TRUTH) + NOISE * np.random.default_rng(1).standard_normal(len(TIMES))
    u = np.where((TIMES >= 5.0) & (TIMES < 15.0), 3.0, 0.0)
    gp = lk.LODEGP(PLANT, inputs={"u": "hold"}, random_state=0).fit(TIMES, {"y": y, "u": u})
    # The learned level of noise, and with it all errors, is known to nine percent.
    assert list(planned.std_errors.values()) == pytest.approx(list(gp.bse.values()), rel=0.25)
    again = gp.plan_experiment(TIMES, inputs=PULSE, start={"y": 1.0})
    assert list(again.std_errors.values()) == pytest.approx(list(gp.bse.values()), rel=0.1)
    twice = gp.plan_experiment(np.arange(0.0, 30.0, 0.25), inputs=PULSE, start={"y": 1.0})
    assert twice.std_errors["tau"] == pytest.approx(again.std_errors["tau"] / 2.0, rel=0.05)
    with pytest.raises(LodekitError, match="expected all inputs, u is missing"):
        gp.plan_experiment(TIMES)


def test_a_longer_record_is_needed_for_a_smaller_error(planned: Experiment) -> None:
    target = 1.2 * max(planned.relative.values())
    needed = planned.duration(target)
    assert 10.0 < needed <= TIMES[-1]
    kept = TIMES[needed >= TIMES]
    assumed: dict[str, Any] = {"noise": {"y": NOISE}, "inputs": PULSE, "start": {"y": 1.0}}
    assert max(lk.plan_experiment(PLANT, kept, ASSUMED, **assumed).relative.values()) <= 1.01 * target
    shorter = lk.plan_experiment(PLANT, kept[:-1], ASSUMED, **assumed)
    assert max(shorter.relative.values()) >= 0.99 * target
    assert planned.duration(1e-6) == math.inf


def test_so_many_records_are_needed_as_errors_fall_with_their_root(planned: Experiment) -> None:
    worst = max(planned.relative.values())
    assert planned.records(worst / 3.0) == pytest.approx(9.0, abs=1.0)
    assert planned.records(2.0 * worst) == 1.0
    with pytest.raises(LodekitError, match="unknown parameter 'b'"):
        planned.records(0.01, ["b"])


def test_sensors_that_cannot_tell_are_told_from_those_that_can() -> None:
    t, noise = np.linspace(0.0, 10.0, 25), {"f1": 0.05, "f2": 0.05, "u": 0.05}
    found = lk.plan_experiment(HEATING, t, {"a": 3.0, "b": 1.0}, noise=noise, lengthscale=2.0, draws=5)
    every = found.sensors()
    assert len(every) == 7
    # Without the heat that goes in, the equation that holds a says nothing.
    assert every["f1", "f2"]["a"] == math.inf
    assert every["f1", "f2"]["b"] < 0.2
    assert every["f1", "f2", "u"] == found.relative
    assert max(found.relative.values()) < 0.2
    text = repr(lk.plan_experiment(HEATING, t, {"a": 3.0, "b": 1.0}, noise={"f1": 0.05, "f2": 0.05}, draws=3))
    assert "not identified" in text
    assert "%" in found._repr_html_()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"noise": {}}, "expected noise as a dict of what would be measured"),
        ({"noise": {"y": 0.0}}, "expected the noise of y as a positive"),
        ({"noise": {"z": 0.1}}, "unknown name 'z'"),
        ({"inputs": {"q": 1.0}}, "'q', which is not a channel"),
        ({"inputs": {"u": [1.0, 2.0]}}, "input u: expected a number, one value for each time t, or"),
        ({"inputs": None}, "omit start="),
        ({"values": {"taw": 1.0}}, "unknown parameter 'taw'"),
        ({"values": {"K": 1.0}}, "expected a value for the parameter 'tau'"),
        ({"values": {"tau": "ten"}}, "expected a finite number for 'tau', got 'ten'"),
        ({"t": []}, "expected at least one time"),
        ({"t": {"x": TIMES}}, "got none for y"),
        ({"inputs": ["u"]}, "expected inputs as a dict"),
        ({"values": ASSUMED | {"tau": -0.01}}, "the solution overflows at t ="),
        ({"start": 1.0}, "expected start as a dict of observables to values"),
        ({"start": {"y": "hot"}}, "expected a finite number for the start of y"),
        ({"start": {"y": 1.0, "y'": 77.0}}, "the start y = 1, y' = 77 contradicts"),
    ],
)
def test_questions_that_make_no_sense_are_refused(more: dict[str, Any], said: str) -> None:
    asked: dict[str, Any] = {"t": TIMES, "values": ASSUMED, "noise": {"y": 0.1}}
    with pytest.raises(LodekitError, match=said):
        lk.plan_experiment(PLANT, **asked | {"inputs": {"u": 1.0}, "start": {"y": 0.0}} | more)


@pytest.mark.parametrize(
    ("own", "value", "said"),
    [
        (lk.Parameter(positive=True), -5.0, "expected a value of a above zero, as the system has it, got -5"),
        (lk.Parameter(positive=True), 0.0, "above zero"),
        (lk.Parameter(bounds=(1, 3)), 4.0, "within 1 to 3"),
        # The curves would be those of one value, and their errors those of the other.
        (lk.Parameter(fixed=4.0), 8.0, "a is fixed at 4 in the system, got 8"),
    ],
)
def test_values_that_no_fit_could_find_are_refused(own: lk.Parameter, value: float, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        lk.plan_experiment(
            lk.System("x' = -a*x", parameters={"a": own}), TIMES, {"a": value}, noise={"x": 0.1}, start={"x": 1.0}
        )


def test_inputs_that_nobody_gives_are_named_where_they_leave_parameters_open(planned: Experiment) -> None:
    t = np.linspace(0.0, 10.0, 8)
    swing = lk.System("x' = v; v' = -k*x + F + G", parameters=["k"])
    for noise, inputs, said in (
        ({"x": 0.1}, None, "F and G are neither known nor measured; add inputs={'F': ..., 'G'"),
        ({"2*x'": 0.1}, {"G": 1.0}, "F is neither known nor measured"),
    ):
        found = lk.plan_experiment(swing, t, {"k": 1.0}, noise=noise, inputs=inputs, draws=2)
        assert found.std_errors["k"] == math.inf
        assert said in found.notes[0]
        assert found.notes[0] in repr(found)
        assert "neither known nor measured" in found._repr_html_()
    assert planned.notes == ()
    # Whoever measures them knows what they do.
    told = lk.plan_experiment(swing, t, {"k": 1.0}, noise={"x": 0.1, "F + G": 0.1}, draws=2)
    assert told.notes == ()


def test_an_experiment_in_which_nothing_moves_is_refused() -> None:
    with pytest.raises(LodekitError, match="nothing moves from rest"):
        lk.plan_experiment(DECAY, TIMES, {"a": 1.0}, noise={"x": 0.1})


def test_what_a_start_leaves_open_is_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A swing is let go, and is not pushed."""
    drawn = list[dict[str, np.ndarray]]()
    evaluate = experiment_design.evaluate_design

    def record_curves(*arguments: Any) -> Any:
        drawn.extend(arguments[6])
        return evaluate(*arguments)

    monkeypatch.setattr(experiment_design, "evaluate_design", record_curves)
    swing = lk.System("x' = v; v' = -k*x - c*v + u", parameters=["k", "c"])
    k, c = 4.0, 1.2
    times = np.linspace(0.0, 5.0, 11)
    noise = {"x": 0.1, "v": 0.1}
    # In any order, as values at these times belong to them.
    back = times[::-1]
    lk.plan_experiment(swing, back, {"k": k, "c": c}, noise=noise, start={"x": 3.0}, inputs={"u": np.zeros(11)})
    (curves,) = drawn
    own = np.sqrt(k - c**2 / 4)
    truth = 3.0 * np.exp(-c * back / 2) * (np.cos(own * back) + c / (2 * own) * np.sin(own * back))
    np.testing.assert_allclose(curves["x"], truth, atol=1e-9)
    assert curves["v"][-1] == pytest.approx(0.0, abs=1e-9)
