"""Simulated plants on which searches are judged: random truths, random units, nothing told to the search."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm

import lodekit as lk
from lodekit.results.simulation import simulate

Array = NDArray[np.float64]
Column = tuple[Array, str, Array, float | None]
Generator = np.random.Generator


@dataclass(frozen=True)
class Plant:
    """A system with data, and the values of its parameters that nobody knows.

    Parameters
    ----------
    text : str
        The equations.
    truth : dict of str to float
        Values of all parameters.
    data : list of (times, observable, values, std or None)
    positive : bool
        Whether all parameters are known to be positive.
    fixed : sequence of str
        Parameters that are known.
    """

    text: str
    truth: Mapping[str, float]
    data: Sequence[Column]
    positive: bool = False
    fixed: tuple[str, ...] = ()

    def system(self, *, told: bool = False) -> lk.System:
        """Return the system; where told, searches start at the truth."""
        parameters = {}
        for name, value in self.truth.items():
            known = value if name in self.fixed else None
            start = value if told and known is None else None
            parameters[name] = lk.Parameter(positive=self.positive, fixed=known, start=start)
        return lk.System(self.text, parameters=parameters)

    def observations(self) -> lk.Observations:
        """Return the data as a fit takes them."""
        found = lk.Observations()
        for times, name, values, std in self.data:
            found = found.add(times, name, values, std)
        return found

    def in_units(self, generator: Generator) -> Plant:
        """Return the same plant in random units of time and of its channels."""
        dimensions = self.system().dimensions()
        scales = {"t": 10.0 ** generator.uniform(-4, 4)}
        for name, powers in dimensions.channels.items():
            free = powers == {name: 1}
            scales[name] = 10.0 ** generator.uniform(-4, 4) if free else _product(powers, scales)
        truth = {name: value * _product(dimensions[name], scales) for name, value in self.truth.items()}
        data: list[Column] = []
        for times, name, values, std in self.data:
            factor = scales[name.rstrip("'")] / scales["t"] ** name.count("'")
            data.append((times * scales["t"], name, values * factor, None if std is None else std * factor))
        return Plant(self.text, truth, data, self.positive, self.fixed)


def _product(powers: Mapping[str, Fraction], scales: Mapping[str, float]) -> float:
    total = 1.0
    for name, power in powers.items():
        total *= scales.get(name, 1.0) ** float(power)
    return total


def _around(generator: Generator, value: float, factor: float = 3.0) -> float:
    """Return a random value within a factor."""
    return value * float(np.exp(generator.uniform(-np.log(factor), np.log(factor))))


def _noisy(generator: Generator, values: Array, share: float) -> Array:
    noise: Array = generator.standard_normal(values.shape)
    return np.asarray(values + share * values.std() * noise, dtype=float)


def _columns(generator: Generator, times: Array, channels: tuple[str, ...], curves: Array) -> list[Column]:
    """Return all channels with 5 % noise."""
    return [(times, name, _noisy(generator, curves[:, i], 0.05), None) for i, name in enumerate(channels)]


def _held(A: Array, B: Array, x0: Array, step: float, inputs: Array) -> Array:
    """Return the states of x' = A x + B u at the samples of an input that is held between them, shape (n, states)."""
    size = len(A)
    both = expm(step * np.block([[A, B[:, None]], [np.zeros((1, size + 1))]]))
    states = [x0]
    for u in inputs[:-1]:
        states.append(both[:size, :size] @ states[-1] + both[:size, size] * u)
    return np.array(states)


def _steps(generator: Generator, n: int, shortest: int, *, binary: bool) -> Array:
    """Return an input that jumps at random times."""
    found: list[float] = []
    level = 1.0
    while len(found) < n:
        level = -level if binary else float(generator.uniform(-1, 1))
        found += [level] * (shortest * int(generator.integers(1, 6)))
    return np.array(found[:n])


def quarter_car(generator: Generator) -> Plant:
    """Return a quarter of a car on a random road: 30 times, 5 % noise."""
    example = lk.catalog.quarter_car()
    truth = {name: float(value) for name, value in example.values.items()}
    times = np.linspace(0.0, 2.0, 30)
    seed = int(generator.integers(2**31))
    curves = simulate(example.system, times, truth, lengthscale=generator.uniform(0.1, 0.4), random_state=seed)[0]
    data = _columns(generator, times, example.system.channels, curves)
    text = "ms*zs'' = -ks*(zs - zu) - cs*(zs' - zu'); mu*zu'' = ks*(zs - zu) + cs*(zs' - zu') - kt*(zu - zr)"
    return Plant(text, truth, data, positive=True, fixed=("ms",))


def rlc(generator: Generator) -> Plant:
    """Return a series circuit driven by a square wave; voltage and current are measured, the capacitor is not."""
    R, L, C = (_around(generator, 1.0) for _ in range(3))
    n, step = 200, 0.1
    half = int(generator.integers(20, 60))
    u = np.where(np.arange(n) // half % 2 == 0, 1.0, -1.0)
    states = _held(np.array([[-R / L, -1 / L], [1 / C, 0.0]]), np.array([1 / L, 0.0]), np.zeros(2), step, u)
    times = np.arange(n, dtype=float) * step
    data: list[Column] = [
        (times, "u", _noisy(generator, u, 0.005), None),
        (times, "i", _noisy(generator, states[:, 0], 0.02), None),
    ]
    return Plant("L*i' + R*i + v = u; C*v' = i", {"L": L, "R": R, "C": C}, data, positive=True)


def two_room(generator: Generator) -> Plant:
    """Return two rooms, one of them heated, in a random winter."""
    example = lk.catalog.two_room()
    truth = {name: _around(generator, float(value), 2.0) for name, value in example.values.items()}
    times = np.linspace(0.0, 40.0, 30)
    seed = int(generator.integers(2**31))
    curves = simulate(example.system, times, truth, lengthscale=generator.uniform(4, 12), random_state=seed)[0]
    data = _columns(generator, times, example.system.channels, curves)
    return Plant("; ".join(str(line) for line in example.system.equations), truth, data, positive=True)


def double_integrator(generator: Generator) -> Plant:
    """Return a mass that is pushed: 1000 rows over 100 s, push and place measured."""
    K, c = _around(generator, 4.45), float(generator.normal() * 0.3)
    n, step = 1000, 0.1
    u = 0.3 + np.repeat(generator.uniform(-1, 1, n // 20), 20)
    u -= (u.mean() + c / K) * 0.98
    y = _held(np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([0.0, 1.0]), np.zeros(2), step, K * u + c)[:, 0]
    times = np.arange(n, dtype=float) * step
    data: list[Column] = [
        (times, "y", _noisy(generator, y, 0.01), None),
        (times, "u", _noisy(generator, u, 0.02), None),
    ]
    return Plant("y'' = K*u + c", {"K": K, "c": c}, data)


def binary_plant(generator: Generator) -> Plant:
    """Return a plant of second order with a pseudo-random binary input, 700 rows."""
    w, z = _around(generator, 1.0), generator.uniform(0.2, 1.2)
    a0, a1, b, c = w * w, 2 * z * w, _around(generator, 2.0) * w * w, float(generator.normal()) * w * w
    n, step = 700, 0.1
    u = _steps(generator, n, 5, binary=True)
    A, B = np.array([[0.0, 1.0], [-a0, -a1]]), np.array([0.0, 1.0])
    y = _held(A, B, np.array([c / a0, 0.0]), step, b * u + c)[:, 0]
    times = np.arange(n, dtype=float) * step
    data: list[Column] = [
        (times, "y", _noisy(generator, y, 0.03), None),
        (times, "u", _noisy(generator, u, 0.01), None),
    ]
    return Plant("y'' + a1*y' + a0*y = b*u + c", {"a1": a1, "a0": a0, "b": b, "c": c}, data)


def decay(generator: Generator) -> Plant:
    """Return a free oscillation over 3 to 100 periods, with 3.5 to 12 points in each, 5 % noise."""
    periods = float(np.exp(generator.uniform(np.log(3), np.log(100))))
    points = int(min(max(20, periods * generator.uniform(3.5, 12)), 400))
    omega = 2 * np.pi
    c = 2 * generator.uniform(0.2, 3.0) / periods
    times = np.linspace(0, periods, points)
    if generator.random() < 0.5:
        times = np.sort(generator.uniform(0, periods, points))
    x = np.exp(-0.5 * c * times) * np.sin(omega * times + generator.uniform(0, 6))
    k = omega**2 + c * c / 4
    return Plant("x'' + c*x' + k*x = 0", {"c": c, "k": k}, [(times, "x", _noisy(generator, x, 0.05), None)])


def accelerometer(generator: Generator) -> Plant:
    """Return a shaken mass that rings: its acceleration is measured, and its place once."""
    w2, c = _around(generator, 40.0, 2.0), generator.uniform(0.1, 1.5)
    w = np.sqrt(w2 - c * c / 4)
    duration = generator.uniform(1.0, 20.0)
    times, phase = np.linspace(0, duration, int(generator.integers(60, 200))), generator.uniform(0, 6)
    rate = -0.5 * c + 1j * w
    curve = np.exp(rate * times + 1j * phase)
    acceleration = (rate**2 * curve).imag
    x0 = float(curve[0].imag)
    data: list[Column] = [
        (times, "x''", _noisy(generator, acceleration, 0.05), None),
        (times[:1], "x", np.array([x0 + 0.02 * generator.normal()]), 0.02),
    ]
    return Plant("x'' + c*x' + w2*x = 0", {"c": c, "w2": w2}, data)


def fast(generator: Generator) -> Plant:
    """Return a lightly damped oscillator, pushed at random: 60 to 200 oscillations in 1000 rows."""
    periods = generator.uniform(60, 200)
    w, z = 2 * np.pi * periods / 100.0, generator.uniform(0.02, 0.1)
    n, step = 1000, 0.1
    u = generator.normal(size=n)
    A, B = np.array([[0.0, 1.0], [-w * w, -2 * z * w]]), np.array([0.0, 1.0])
    y = _held(A, B, np.zeros(2), step, w * w * u)[:, 0]
    times = np.arange(n, dtype=float) * step
    data: list[Column] = [
        (times, "y", _noisy(generator, y, 0.03), None),
        (times, "u", _noisy(generator, u, 0.01), None),
    ]
    return Plant("y'' + a1*y' + a0*y = b*u", {"a1": 2 * z * w, "a0": w * w, "b": w * w}, data)


PLANTS: dict[str, Callable[[Generator], Plant]] = {
    plant.__name__: plant
    for plant in (quarter_car, rlc, two_room, double_integrator, binary_plant, decay, accelerometer, fast)
}


def make(name: str, seed: int, *, units: bool = True) -> Plant:
    """Return a plant with its data; the same for the same seed."""
    generator: Any = np.random.default_rng([seed, sum(name.encode())])
    plant = PLANTS[name](generator)
    return plant.in_units(generator) if units else plant
