"""Streams say what the batch says at the end of all rows, for every kind of model that has finitely many states."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import expm

import lodekit as lk
from lodekit.data.observations import Observations
from lodekit.data.records import Measurements
from lodekit.inference.kalman.blocks import KalmanData
from lodekit.inference.kalman.discretize import DiscreteStep, StepDiscretizer
from lodekit.inference.kalman.engine import KalmanEngine
from lodekit.inference.kalman.posterior import KalmanPosterior
from lodekit.prior.observables import ObservableCompiler, Observables
from lodekit.results.stream.stream import Stream

Array = NDArray[np.float64]
EVEN: Array = np.arange(60.0) / 2
#: The dead time below is four of these steps, but for rounding.
BEATS: Array = 0.7 * np.arange(60.0)
UNEVEN = np.sort(np.random.default_rng(5).uniform(0.0, 30.0, 60))
STEPS = np.repeat(np.random.default_rng(6).standard_normal(12), 5)
FIRST = 25


def fixed(**values: float) -> dict[str, lk.Parameter]:
    return {name: lk.Parameter(fixed=value) for name, value in values.items()}


def lag(times: Array) -> Array:
    """A first-order lag under steps that are held, from one, with some noise."""
    y = np.ones(len(times))
    for k in range(len(times) - 1):
        decay = math.exp(-(times[k + 1] - times[k]) / 3.0)
        y[k + 1] = decay * y[k] + (1 - decay) * 2.0 * STEPS[k]
    return y + 0.02 * np.sin(70.0 * times)


LAG = lk.System("tau*y' + y = K*u", parameters=fixed(tau=2.8, K=2.1))
LATER = lk.System("tau*y' + y = K*delay(u, T)", parameters=fixed(tau=2.8, K=2.1, T=1.7))
ON_ROWS = lk.System("tau*y' + y = K*delay(u, 2.8)", parameters=fixed(tau=2.8, K=2.1))
LOADED = lk.System("tau*y' + y = K*u + d + sin(t)", parameters=fixed(tau=2.8, K=2.1))
TANK = lk.System("y' = K*u", parameters=fixed(K=2.1))
WAVE = lk.System("x'' + c*x' + k*x = 0", parameters=fixed(c=0.1, k=1.7))
GROWS = lk.System("x' = a*x", parameters=fixed(a=0.05))
FREE = lk.System("x' = -a*x + w", parameters=fixed(a=0.5))

#: Systems, times, what was measured, known inputs, and more arguments.
CASES: dict[str, tuple[lk.System, Array, dict[str, Array], dict[str, str], dict[str, Any]]] = {
    "held": (LAG, EVEN, {"y": lag(EVEN), "u": STEPS}, {"u": "hold"}, {}),
    "held, uneven": (LAG, UNEVEN, {"y": lag(UNEVEN), "u": STEPS}, {"u": "hold"}, {}),
    "linear": (LAG, UNEVEN, {"y": lag(UNEVEN), "u": STEPS}, {"u": "linear"}, {}),
    "dead time": (LATER, EVEN, {"y": lag(EVEN), "u": STEPS}, {"u": "hold"}, {}),
    "dead time, linear": (LATER, UNEVEN, {"y": lag(UNEVEN), "u": STEPS}, {"u": "linear"}, {}),
    # Slopes jump with the input, in the row itself.
    "slopes": (LAG, UNEVEN, {"y'": (2.0 * STEPS - lag(UNEVEN)) / 3.0, "u": STEPS}, {"u": "hold"}, {}),
    "dead time on rows": (ON_ROWS, BEATS, {"y'": np.sin(BEATS), "u": STEPS}, {"u": "hold"}, {}),
    "load, known function": (LOADED, EVEN, {"y": lag(EVEN), "u": STEPS}, {"u": "hold"}, {"latent": "matern-3/2"}),
    "integrator": (TANK, EVEN, {"y": np.cumsum(STEPS), "u": STEPS}, {"u": "hold"}, {}),
    "modes": (WAVE, EVEN, {"x": np.cos(1.3 * EVEN), "x'": -1.3 * np.sin(1.3 * EVEN)}, {}, {"mode_deviation": 1.0}),
    "growing": (GROWS, EVEN, {"x": np.exp(0.05 * EVEN)}, {}, {"mode_deviation": 1.0}),
    "free": (FREE, UNEVEN, {"x": np.sin(UNEVEN), "w": np.cos(UNEVEN)}, {}, {"latent": "matern-5/2"}),
}


def thinned(values: Mapping[str, Array], inputs: Mapping[str, str]) -> dict[str, Array]:
    """Measurements with holes."""
    return {
        name: v if name in inputs else np.where(np.arange(len(v)) % (5 + k) == 3, np.nan, v)
        for k, (name, v) in enumerate(values.items())
    }


@cache
def fitted(case: str, std: float = 0.05) -> lk.LODEGP:
    """Return a model of the first rows of a case."""
    system, times, values, inputs, more = CASES[case]
    some = {name: v[:FIRST] for name, v in thinned(values, inputs).items()}
    gp = lk.LODEGP(system, inputs=inputs or None, restarts=1, random_state=0, **more)
    return gp.fit(times[:FIRST], some, std)


def posterior_of(
    gp: lk.LODEGP, case: str, std: float, shift: float = 0.0, count: int | None = None
) -> tuple[KalmanPosterior, Observables]:
    """Return what the Markov engine says of many rows of a case at once, and all channels as observables."""
    _, times, values, inputs, _ = CASES[case]
    data = Observations()
    for name, own in thinned(values, inputs).items():
        data = data.add((times + shift)[:count], name, own[:count], std)
    measurements = Measurements.from_observations(data)
    measurements = measurements.with_known_inputs(inputs) if inputs else measurements
    fit = gp.fit_
    prior = fit.prior.with_time_origin(float(times[0]) + shift, measurements.inputs)
    posterior = KalmanEngine(KalmanData.from_series(prior, measurements.series)).posterior(fit.hyperparameters)
    reader = ObservableCompiler(fit.system, measurements.inputs)
    return posterior, reader.compile_unscaled(fit.system.plain_channels, prior.units)


def batch(gp: lk.LODEGP, case: str, at: Array, std: float, shift: float = 0.0) -> tuple[Array, Array]:
    """Return means and deviations of all channels, given all rows of a case at once."""
    posterior, observables = posterior_of(gp, case, std, shift)
    return posterior.mean(observables, at), np.sqrt(posterior.variance(observables, at))


def push_all(stream: Stream, case: str, rows: slice, std: float | None = None, shift: float = 0.0) -> float:
    """Return the log density of all values, each given the rows before."""
    _, times, values, inputs, _ = CASES[case]
    holes, total = thinned(values, inputs), 0.0
    for k in range(*rows.indices(len(times))):
        row = {name: float(v[k]) for name, v in holes.items() if name not in inputs}
        found = stream.push(float(times[k]) + shift, row, {name: float(values[name][k]) for name in inputs}, std=std)
        total -= sum(0.5 * own.score**2 + math.log(own.std * math.sqrt(2 * math.pi)) for own in found.values())
    return total


@pytest.mark.parametrize("case", CASES)
def test_a_stream_ends_where_the_batch_ends(case: str) -> None:
    times, gp = CASES[case][1], fitted(case)
    stream = gp.stream()
    push_all(stream, case, slice(FIRST, None), std=0.05)
    at = times[-1] + np.array([0.0, 0.3, 4.0])
    mean, std = batch(gp, case, at, 0.05)
    own, own_std = stream.predict(at, return_std=True)
    assert np.allclose(own, mean, rtol=1e-10, atol=1e-10 * np.abs(mean).max())
    assert np.allclose(own_std, std, rtol=1e-8, atol=1e-10 * np.abs(std).max())
    assert own_std.max() > 0


@pytest.mark.parametrize("case", [name for name, own in CASES.items() if len(own[2]) - len(own[3]) == 1])
def test_innovations_make_up_the_evidence(case: str) -> None:
    gp = fitted(case)
    whole, begin = (posterior_of(gp, case, 0.05, count=count)[0].value for count in (None, FIRST))
    assert push_all(gp.stream(), case, slice(FIRST, None), std=0.05) == pytest.approx(whole - begin, rel=1e-9, abs=1e-8)


@pytest.mark.parametrize("case", ["held", "dead time, linear", "modes", "free"])
def test_a_fresh_stream_is_a_record_of_its_own(case: str) -> None:
    times, gp = CASES[case][1], fitted(case)
    stream = gp.stream(fresh=True)
    assert stream.time is None
    push_all(stream, case, slice(None), std=0.05, shift=11.0)
    at = times[-1] + 11.0 + np.array([0.0, 0.7])
    mean, std = batch(gp, case, at, 0.05, shift=11.0)
    own, own_std = stream.predict(at, return_std=True)
    assert np.allclose(own, mean, rtol=1e-10, atol=1e-10 * np.abs(mean).max())
    assert np.allclose(own_std, std, rtol=1e-8, atol=1e-10 * np.abs(std).max())


def test_a_stream_goes_on_from_the_record_it_is_told() -> None:
    gp = lk.LODEGP.from_fit(fitted("modes").fit_)
    gp.update([0.0, 1.0, 2.5], {"x": [3.0, 1.0, -3.0]}, 0.05, relearn=False, record="other")
    with pytest.raises(lk.LodekitError, match="record"):
        gp.stream()
    for record in gp.records_:
        stream = gp.stream(record=record)
        at = float(stream.time or 0.0) + np.array([0.0, 1.0])
        assert np.allclose(stream.predict(at, "x"), gp.predict(at, "x", record=record), rtol=1e-9)
    assert gp.stream(fresh=True).time is None


@pytest.mark.parametrize("std", [0.0, 1e-6])
def test_tiny_noise_stays_right(std: float) -> None:
    times, gp = CASES["free"][1], fitted("free")
    stream = gp.stream(fresh=True)
    push_all(stream, "free", slice(None), std=std)
    mean, deviation = batch(gp, "free", times[-1:] + 0.2, std)
    own, own_std = stream.predict(times[-1] + 0.2, return_std=True)
    assert np.allclose(own, mean, rtol=1e-7)
    # The batch keeps three digits of deviations at this noise (docs/markov.md).
    assert np.allclose(own_std, deviation, rtol=1e-3)
    assert (np.linalg.eigvalsh(stream.covariance) >= 0).all()


def test_innovations_are_those_of_predictions_one_row_ahead() -> None:
    gp, times = fitted("held"), EVEN
    stream = gp.stream()
    noise = gp.fit_.typical_noise("y")
    for k in range(FIRST, FIRST + 5):
        # The input of the row itself acts from then on.
        mean, std = stream.predict(times[k], "y", return_std=True)
        found = stream.push(times[k], {"y": lag(EVEN)[k], "u": STEPS[k]})["y"]
        assert found.predicted == pytest.approx(mean[0], rel=1e-12)
        assert found.std == pytest.approx(math.hypot(std[0], noise), rel=1e-12)
        assert found.score == pytest.approx((lag(EVEN)[k] - mean[0]) / found.std, rel=1e-9)
        assert stream.innovations["y"] == found
    assert stream.rows == 5


@pytest.mark.parametrize("case", ["free", "load, known function", "modes", "growing"])
def test_steps_are_those_of_exponentials(case: str) -> None:
    space = fitted(case).stream().state_space
    n, root = space.n_stochastic, space.prior_P_root(0.0)
    at_rest = (root @ root.T)[:n, :n]
    for length in (1e-3, 0.03, 2.0, 40.0):
        Phi, Q_root_t = StepDiscretizer(space.F, space.noise_intensity).discretize(length)
        transition = expm(length * space.F)
        assert np.allclose(Phi, transition, rtol=1e-9, atol=1e-12)
        own = transition[:n, :n]
        # Free functions are stationary: what a step forgets is what its noise adds.
        assert np.allclose((Q_root_t.T @ Q_root_t)[:n, :n], at_rest - own @ at_rest @ own.T, rtol=1e-9, atol=1e-12)


def test_time_does_not_drift_where_clocks_are_coarse() -> None:
    # Steps of 0.1 at a time of a million differ by 1e-10: taken for equal, they would add up.
    stream, start = fitted("modes").stream(fresh=True), 1e6
    stream.push(start, {"x": 1.0, "x'": 0.0})
    end = start + 0.1 * 500
    at_once = stream.predict(end, "x")
    for k in range(1, 501):
        stream.push(start + 0.1 * k)
    assert stream.predict(end, "x") == pytest.approx(at_once, abs=3e-10)
    tank = fitted("integrator").stream(fresh=True)
    tank.push(start, {"y": 0.0}, {"u": 1.0})
    level = float(tank.predict(start, "y")[0])
    for k in range(1, 501):
        tank.push(start + 0.1 * k, {}, {"u": 1.0})
    begin = float(tank.predict(end, "y")[0]) - 2.1 * (end - start)
    assert begin == pytest.approx(level, abs=3e-9)


def test_the_same_lengths_are_not_made_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[float] = []
    make = StepDiscretizer.discretize

    def counted(self: StepDiscretizer, length: float) -> DiscreteStep:
        made.append(length)
        return make(self, length)

    monkeypatch.setattr(StepDiscretizer, "discretize", counted)
    stream = fitted("modes").stream()
    made.clear()
    start = float(stream.time or 0.0)
    for k in range(1, 400):
        stream.push(start + 0.1 * k, {"x": 0.0})
    # Rounding makes steps of a regular clock different, and they are not.
    assert len(made) <= 3


def refused(stream: Stream, match: str, *row: Any, **more: Any) -> None:
    """A row is refused, and leaves no trace."""
    before = stream.state, stream.covariance, stream.sums, stream.rows, stream.predict((stream.time or 0.0) + 3.0)
    with pytest.raises(lk.LodekitError, match=match):
        stream.push(*row, **more)
    after = stream.state, stream.covariance, stream.sums, stream.rows, stream.predict((stream.time or 0.0) + 3.0)
    for old, new in zip(before, after, strict=True):
        # Predictions are computed twice: they may round otherwise.
        assert np.allclose(old, new, rtol=1e-12, atol=1e-12) if isinstance(old, np.ndarray) else old == new


def test_rows_that_make_no_sense_are_refused_and_change_nothing() -> None:
    stream = fitted("dead time, linear").stream()
    now = float(stream.time or 0.0)
    refused(stream, "order of time", now - 0.1, {"y": 1.0}, {"u": 0.0})
    refused(stream, "finite time", math.nan, {"y": 1.0}, {"u": 0.0})
    refused(stream, "finite number for y", now + 1.0, {"y": math.inf}, {"u": 0.0})
    refused(stream, "got 'z'", now + 1.0, {"z": 1.0}, {"u": 0.0})
    refused(stream, "got 'z'", now + 1.0, {"y": 1.0}, {"u": 0.0, "z": 1.0})
    refused(stream, "known input u in every row", now + 1.0, {"y": 1.0})
    refused(stream, "linear between samples", now + 1.0, {"y": 1.0}, {"u": math.nan})
    refused(stream, "number for y, got 'high'", now + 1.0, {"y": "high"}, {"u": 0.0})
    refused(stream, "number for y, got int", now + 1.0, {"y": 10**400}, {"u": 0.0})
    refused(stream, "times", 10**400, {"y": 1.0}, {"u": 0.0})
    refused(stream, "u is given in y and in inputs", now + 1.0, {"y": 1.0, "u": 0.0}, {"u": 0.0})
    refused(stream, "zero or more", now + 1.0, {"y": 1.0}, {"u": 0.0}, std=-1.0)
    refused(stream, "dict", now + 1.0, [1.0], {"u": 0.0})
    refused(stream, "overflows", now + 1e9, {"y": 1e308}, {"u": -1e308})
    with pytest.raises(lk.LodekitError, match="from t = "):
        stream.predict(now - 1.0)


def test_missing_values_and_held_inputs_that_stay() -> None:
    one, other = fitted("held").stream(), fitted("held").stream()
    now = float(one.time or 0.0)
    assert one.push(now + 1.0, {"y": None}, {"u": 0.7}) == {}
    other.push(now + 1.0, {}, {"u": 0.7})
    one.push(now + 2.0, {"y": 1.0}, {"u": math.nan})
    other.push(now + 2.0, {"y": 1.0, "u": 0.7})
    assert np.allclose(one.predict(now + 5.0), other.predict(now + 5.0), rtol=1e-12)


def test_models_without_a_finite_state_are_refused() -> None:
    gp = lk.LODEGP(FREE, random_state=0, restarts=1).fit(EVEN[:8], {"x": np.sin(EVEN[:8])}, 0.1)
    with pytest.raises(lk.LodekitError, match="latent='matern-7/2'"):
        gp.stream()
    with pytest.raises(lk.LodekitError, match="not begun"):
        fitted("modes").stream(fresh=True).predict(1.0)


def test_memory_does_not_grow() -> None:
    stream = fitted("dead time").stream()
    start, sizes = float(stream.time or 0.0), []
    for k in range(1, 601):
        stream.push(start + 0.25 * k, {"y": 0.0}, {"u": float(k % 3)})
        if k % 200 == 0:
            samples = sum(len(own.times) for own in stream.filter_state.input_buffers.values())
            arrays = [stream.filter_state.mean, stream.filter_state.covariance_root, stream.filter_state.input_state]
            sizes.append((samples, [array.size for array in arrays]))
    assert sizes[0] == sizes[1] == sizes[2]
    # The samples of the last 1.7, at four in a unit of time, and the one before.
    assert sizes[0][0] <= 9
