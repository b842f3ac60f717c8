"""Known inputs: all engines say the same, gradients are those of differences, and curves are exact solutions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

import lodekit as lk
from lodekit.data.observations import Observations
from lodekit.data.records import Measurements
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import FitSetup, build_setup
from lodekit.inference.engine import Engine, EngineTask as EngineCase
from lodekit.inference.selection import ENGINES
from lodekit.prior.prior import Hyperparameters
from tests.inference.fitted import gradient_vector, shifted

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """A system with inputs, and values of its parameters in the order of their names."""

    equations: str
    inputs: dict[str, str]
    outputs: tuple[str, ...]
    values: dict[str, float]
    engines: tuple[str, ...] = ("dense", "modal", "markov")
    latent: str = "se"


CASES = {
    "hidden channels and feedthrough": Case(
        "x' = -a*x + b*u; z' = -c*(z - x) + g*w; y = z + e*u",
        {"u": "hold", "w": "linear"},
        ("y", "x"),
        {"a": 0.7, "b": 1.3, "c": 0.4, "g": -2.0, "e": 0.5},
    ),
    "an offset and complex roots": Case(
        "x'' + c*x' + k*x = b*u + o", {"u": "hold"}, ("x",), {"c": 0.3, "k": 4.0, "b": 2.0, "o": 1.5}
    ),
    "the slope of an input": Case(
        "x'' + c*x' + k*x = b*u' + 2*u", {"u": "linear"}, ("x",), {"c": 0.3, "k": 4.0, "b": 2.0}
    ),
    "an integrator": Case("x'' = b*u", {"u": "hold"}, ("x",), {"b": 1.3}),
    "a dead time": Case(
        "x'' + c*x' + k*x = b*delay(u, T) + w",
        {"u": "hold", "w": "linear"},
        ("x",),
        {"c": 0.3, "k": 4.0, "b": 2.0, "T": 0.7313},
    ),
    "a free function beside the input": Case(
        "x'' + c*x' + k*x = b*u + f; y = x + f",
        {"u": "hold"},
        ("x", "y"),
        {"c": 0.3, "k": 4.0, "b": 2.0},
        ("dense", "spectral"),
    ),
    "a rough free function beside the input": Case(
        "x'' + c*x' + k*x = b*u + f; y = x + f",
        {"u": "hold"},
        ("x", "y"),
        {"c": 0.3, "k": 4.0, "b": 2.0},
        ("dense", "markov"),
        "matern-7/2",
    ),
}


def make(case: Case, engine: str, count: int = 40) -> tuple[FitSetup, Hyperparameters]:
    """Measurements that are noise, at irregular times, and inputs with times of their own."""
    generator = np.random.default_rng(3)
    data, times = Observations(), np.sort(generator.uniform(0.0, 10.0, count))
    for name in case.outputs:
        data = data.add(times, name, generator.normal(size=count))
    for name in case.inputs:
        data = data.add(np.sort(generator.uniform(-1.0, 9.0, 15)), name, generator.normal(size=15))
    system = lk.System(case.equations, parameters=list(case.values))
    arguments = FitSettings(inputs=case.inputs, engine=engine, latent=case.latent)
    setup = build_setup(system, arguments, Measurements.from_observations(data))
    theta = np.array([case.values[name] for name in setup.layout.names])
    sizes = setup.prior.n_processes, len(setup.prior.groups), setup.prior.noise.n_levels
    hyper = Hyperparameters(
        theta, np.full(sizes[0], 0.3), np.full(sizes[0], 0.7), np.linspace(0.5, 1.5, sizes[1]), np.full(sizes[2], 0.3)
    )
    return setup, hyper


def engine_of(setup: FitSetup) -> Engine:
    """The engine itself, and not the one that takes over where it loses digits."""
    return setup.engine.primary  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("name", CASES)
def test_engines_agree(name: str) -> None:
    """Tolerance: rounding times the condition number, below 1e5 here."""
    case = CASES[name]
    found = []
    for engine in case.engines:
        setup, hyper = make(case, engine)
        evidence, posterior = engine_of(setup).evaluate(hyper), engine_of(setup).posterior(hyper)
        assert engine_of(setup).value(hyper) == pytest.approx(evidence.value, rel=1e-12)
        assert posterior.value == pytest.approx(evidence.value, rel=1e-12)
        observables = setup.observable_compiler.compile_unscaled(
            [*setup.system.plain_channels, f"{case.outputs[0]}'"], setup.prior.units
        )
        times = np.linspace(-0.5, 11.0, 23)
        answers = posterior.mean(observables, times), posterior.variance(observables, times)
        found.append((evidence.value, gradient_vector(evidence), *answers))
    for first, *others in zip(*found, strict=True):
        for second in others:
            np.testing.assert_allclose(second, first, rtol=1e-8, atol=1e-9 * np.abs(first).max())


def test_waves_take_many_measurements_under_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums over measurements would not see jumps, so these stay nodes of their own however many they are."""
    monkeypatch.setattr("lodekit.inference.spectral.engine._MAX_POINT_MEASUREMENTS", 10)
    test_engines_agree("a free function beside the input")
    kind = ENGINES["spectral"]
    assert kind.rejection_reason(EngineCase(50_000, (), has_inputs=True)) == ""
    assert "the modal engine if there are no free functions" in kind.rejection_reason(
        EngineCase(200_000, (), has_inputs=True)
    )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("number", [0, 1])
def test_gradients_are_those_of_differences(name: str, number: int) -> None:
    """Tolerance: central differences with steps of 1e-5 err by about 1e-9 of the largest entry."""
    case = CASES[name]
    setup, hyper = make(case, case.engines[number])
    engine = engine_of(setup)
    found = gradient_vector(engine.evaluate(hyper))
    for place in range(len(found)):
        ends = [engine.value(shifted(hyper, place, sign * 1e-5)) for sign in (1.0, -1.0)]
        assert found[place] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5, abs=1e-7 * np.abs(found).max())


def test_modes_that_are_interpolated_are_as_the_dense_engine_says() -> None:
    """The modal engine takes modes as they are at each of 40 times, and interpolates them at 400."""
    case, found = CASES["an offset and complex roots"], []
    for engine in ("dense", "modal"):
        setup, hyper = make(case, engine, 400)
        found.append(engine_of(setup).evaluate(hyper))
    assert found[1].value == pytest.approx(found[0].value, rel=1e-12)
    np.testing.assert_allclose(found[1].gradient.theta, found[0].gradient.theta, rtol=1e-9)


def test_curves_solve_the_equations_as_an_integrator_does() -> None:
    """From a start that exact values pin, the mean is what SciPy integrates, to its tolerance."""
    system = lk.System("x' = v; v' = -4*x - 0.5*v + 2*u")
    times, values = np.array([0.0, 1.0, 2.5, 4.0]), np.array([1.0, -2.0, 0.5, 3.0])
    data = Observations().add([0.0], "x", [1.0], 1e-5).add([0.0], "v", [-1.0], 1e-5)
    gp = lk.LODEGP(system, inputs={"u": "hold"}, mode_deviation=10.0).fit(data.add(times, "u", values))

    def slope(t: float, state: Array) -> list[float]:
        u = values[np.searchsorted(times, t, side="right") - 1]
        return [state[1], -4 * state[0] - 0.5 * state[1] + 2 * u]

    state, expected, asked = np.array([1.0, -1.0]), [], []
    for start, stop in zip(times, [*times[1:], 6.0], strict=True):
        grid = np.linspace(start, stop, 7)
        solved = solve_ivp(slope, (start, stop - 1e-12), state, t_eval=grid[:-1], rtol=1e-10, atol=1e-12)
        expected.append(solved.y.T)
        asked.append(grid[:-1])
        state = solve_ivp(slope, (start, stop - 1e-12), state, rtol=1e-10, atol=1e-12).y[:, -1]
    found = gp.predict(np.concatenate(asked))
    np.testing.assert_allclose(found[:, :2], np.concatenate(expected), atol=1e-7)
    np.testing.assert_array_equal(found[:, 2], values[np.searchsorted(times, np.concatenate(asked), side="right") - 1])
