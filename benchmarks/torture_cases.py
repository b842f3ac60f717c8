"""Systems and data made to break arithmetic, for `trust_numerics.py`: each must come out right, or be refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import lodekit as lk
from lodekit.results.simulation import simulate

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Torture:
    """A system, and data, made to break arithmetic."""

    system: Callable[[], lk.System]
    times: Array
    values: Callable[[Array], dict[str, Array]]
    options: dict[str, Any]
    noise_std: Any = None


def _texts(text: str, **parameters: lk.Parameter) -> Callable[[], lk.System]:
    return lambda: lk.System(text, parameters=parameters)


def _wiggle(values: dict[str, Array], share: float) -> dict[str, Array]:
    """Return data with noise that is a share of the spread of each channel."""
    generator = np.random.default_rng(0)
    return {
        name: column + share * (column.std() or 1.0) * generator.standard_normal(len(column))
        for name, column in values.items()
    }


def _heating(share: float, unit: float = 1.0) -> Callable[[Array], dict[str, Array]]:
    def make(t: Array) -> dict[str, Array]:
        table = lk.catalog.heating().solution_at((t - t[0]) / unit)
        return _wiggle(dict(zip(("f1", "f2", "u"), table.T, strict=True)), share)

    return make


def _chain(count: int) -> str:
    return "; ".join(["x1' = u - x1", *(f"x{k}' = x{k - 1} - x{k}" for k in range(2, count))])


def _chain_data(count: int) -> Callable[[Array], dict[str, Array]]:
    def make(t: Array) -> dict[str, Array]:
        found = {f"x{k}": np.sin(0.5 * t - 0.46 * k) / 1.118**k for k in range(1, count)}
        return _wiggle({"u": np.sin(0.5 * t), **found}, 0.01)

    return make


def _wave(a: float, b: float) -> Callable[[Array], dict[str, Array]]:
    """Return data of x' = -a x + u, y' = -b y + u for a fast and a slow rate."""

    def make(t: Array) -> dict[str, Array]:
        return _wiggle(
            {
                "u": np.sin(t),
                "x": (a * np.sin(t) - np.cos(t)) / (a * a + 1),
                "y": (b * np.sin(t) - np.cos(t)) / (b * b + 1),
            },
            0.01,
        )

    return make


def _tanks(t: Array) -> dict[str, Array]:
    example = lk.catalog.three_tank()
    return _wiggle(dict(zip(example.system.channels, example.solution_at(t + 1).T, strict=True)), 0.01)


def _masses(t: Array) -> dict[str, Array]:
    system = lk.catalog.mass_chain().system
    table = simulate(system, t, {}, lengthscale=0.1, random_state=0)[0]
    return _wiggle(dict(zip(system.channels, table.T, strict=True)), 0.01)


def _pairs(t: Array) -> dict[str, Array]:
    """Return sines of five paces, each through two lags with rates and gains of their own, once they have settled."""
    found: dict[str, Array] = {}
    for k in range(5):
        pace, a, c = 0.5 + 0.1 * k, 1.0 + 0.2 * k, 0.7 + 0.1 * k
        first, second = a + 1j * pace, c + 1j * pace
        wave = np.exp(1j * pace * t)
        found |= {f"u{k}": wave.imag, f"x{k}": (wave / first).imag, f"y{k}": (2 * wave / first / second).imag}
    return _wiggle(found, 0.01)


HEATING = lk.catalog.heating
LINE = np.linspace(0.0, 10.0, 14)
RATES = {"a": lk.Parameter(positive=True), "b": lk.Parameter(positive=True)}
BY_START = {"a": lk.Parameter(positive=True, start=1e6), "b": lk.Parameter(positive=True, start=1e-6)}
CASES: dict[str, Torture] = {
    "stiff rates, driven": Torture(
        _texts("x' = -1000000*x + u; y' = -0.000001*y + u"), LINE, _wave(1e6, 1e-6), {"noise": "channel"}
    ),
    "stiff rates, one noise": Torture(
        _texts("x' = -1000000*x + u; y' = -0.000001*y + u"), LINE, _wave(1e6, 1e-6), {"noise": "shared"}
    ),
    "stiff rates, learned": Torture(_texts("x' = -a*x + u; y' = -b*y + u", **BY_START), LINE, _wave(1e6, 1e-6), {}),
    "stiff modes": Torture(
        _texts("x' = -1000000*x; y' = -0.000001*y"),
        LINE,
        lambda t: {"x": np.exp(-1e6 * t), "y": np.exp(-1e-6 * t) + 0.01 * np.cos(9 * t)},
        {},
    ),
    "stiff modes, learned": Torture(
        _texts("x' = -a*x; y' = -b*y", **BY_START),
        np.linspace(0, 1e-5, 14),
        lambda t: _wiggle({"x": np.exp(-1e6 * t), "y": np.exp(-1e-6 * t)}, 0.01),
        {},
    ),
    "unstable mode": Torture(
        _texts("x'' = 4*x"), LINE, lambda t: _wiggle({"x": np.exp(2 * t - 20) + np.exp(-2 * t)}, 0.01), {}
    ),
    "unstable and driven": Torture(
        _texts("x' = 3*x + u"), LINE, lambda t: _wiggle({"x": np.sin(t), "u": np.cos(t) - 3 * np.sin(t)}, 0.01), {}
    ),
    "unstable, learned": Torture(
        _texts("x' = a*x", a=lk.Parameter()), LINE, lambda t: _wiggle({"x": np.exp(1.5 * (t - 10))}, 0.01), {}
    ),
    "growth by e^300": Torture(_texts("x' = 30*x"), LINE, lambda t: _wiggle({"x": np.exp(30 * (t - 10))}, 0.01), {}),
    "noise of 1e-12": Torture(lambda: HEATING().system, LINE, _heating(0.0), {}, 1e-12),
    "noise of 1e-9": Torture(lambda: HEATING().system, LINE, _heating(0.0), {}, 1e-9),
    "noise of 1e-6": Torture(lambda: HEATING().system, LINE, _heating(0.0), {}, 1e-6),
    "no noise, exact": Torture(lambda: HEATING().system, LINE, _heating(0.0), {}, 0.0),
    "no noise, learned": Torture(lambda: HEATING().system, LINE, _heating(0.0), {}),
    "no noise, one level": Torture(lambda: HEATING().system, LINE, _heating(0.0), {"noise": "shared"}),
    "channels of 1e-9 and 1e9": Torture(
        _texts("x' = -x + u/1000000000000000000"),
        LINE,
        lambda t: _wiggle({"x": 1e-9 * np.sin(t), "u": 1e9 * (np.cos(t) + np.sin(t))}, 0.01),
        {},
    ),
    "channels of 1e-9 and 1e9, one noise": Torture(
        _texts("x' = -x + u/1000000000000000000"),
        LINE,
        lambda t: _wiggle({"x": 1e-9 * np.sin(t), "u": 1e9 * (np.cos(t) + np.sin(t))}, 0.01),
        {"noise": "shared"},
    ),
    "nanoseconds": Torture(
        _texts("f1' = -a*(f1 - f2) + u; f2' = -b*(f2 - f1)", **RATES), LINE * 1e-9, _heating(0.02, 1e-9), {}
    ),
    "Unix times": Torture(
        _texts("f1' = -a*(f1 - f2) + u; f2' = -b*(f2 - f1)", **RATES), 1.7e9 + LINE, _heating(0.02), {}
    ),
    "Unix times in nanoseconds": Torture(
        _texts("x' = -x/1000000000 + u/1000000000"),
        1.7e18 + 1e9 * LINE,
        lambda t: _wiggle({"x": np.sin((t - t[0]) / 1e9), "u": np.sin((t - t[0]) / 1e9)}, 0.1),
        {},
    ),
    "triple root": Torture(
        _texts("x''' + 3*x'' + 3*x' + x = 0"), LINE, lambda t: _wiggle({"x": (1 + t + t**2) * np.exp(-t)}, 0.01), {}
    ),
    "roots a millionth apart": Torture(
        _texts("x'' + 2.000001*x' + 1.000001*x = 0"), LINE, lambda t: _wiggle({"x": (1 + t) * np.exp(-t)}, 0.01), {}
    ),
    "four roots that collide": Torture(
        _texts("x'''' + a*x''' + 6*x'' + 4*x' + x = 0", a=lk.Parameter(positive=True, start=4.0001)),
        LINE,
        lambda t: _wiggle({"x": (1 + t + t**3) * np.exp(-t)}, 0.01),
        {},
    ),
    "at a degeneracy": Torture(
        lambda: lk.catalog.bipendulum(1, 1).system,
        LINE,
        lambda t: _wiggle({"f1": np.sin(t), "f2": np.sin(t), "u": (9.81 - 1) * np.sin(t)}, 0.01),
        {},
    ),
    "next to a degeneracy": Torture(
        lambda: lk.catalog.bipendulum(1, "1.000000001").system,
        LINE,
        lambda t: _wiggle({"f1": np.sin(t), "f2": np.sin(t), "u": (9.81 - 1) * np.sin(t)}, 0.01),
        {},
    ),
    "a mass chain, one noise": Torture(
        lambda: lk.catalog.mass_chain().system, np.linspace(0, 0.5, 10), _masses, {"noise": "shared"}
    ),
    "diffuse modes": Torture(lambda: lk.catalog.three_tank().system, LINE, _tanks, {"mode_deviation": 1e9}),
    "thirty channels": Torture(_texts(_chain(30)), np.linspace(0, 10, 4), _chain_data(30), {"restarts": 1}),
    "twenty parameters": Torture(
        _texts(
            "; ".join(f"x{k}' = -a{k}*x{k} + b{k}*u{k}; y{k}' = -c{k}*y{k} + d{k}*x{k}" for k in range(5)),
            **{f"{letter}{k}": lk.Parameter(positive=True, start=1.0) for letter in "abcd" for k in range(5)},
        ),
        np.linspace(0, 10, 12),
        _pairs,
        {"restarts": 1},
    ),
}
