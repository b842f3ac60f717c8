"""Simulated plants whose truth is random: parameter values, initial states and inputs; nothing here knows the prior.

Each system of the catalog is brought into the form x' = A x + B u + b(t), for parameters drawn around those of the
catalog; inputs are sums of many sines around a random mean, which makes smooth Gaussian noise of a random pace, and a
Runge-Kutta method integrates from a random state.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import solve_ivp
from scipy.linalg import solve_continuous_are

import lodekit as lk
from lodekit.prior.compile import ScalarFunctions, SignalFunctions
from lodekit.prior.observables import EquationResiduals

Array = NDArray[np.float64]
#: What drives each system; all other channels follow.
INPUTS = {
    "bipendulum": ("u",),
    "heating": ("u",),
    "three_tank": ("u1", "u2"),
    "spring_mass_damper": ("F",),
    "free_decay": (),
    "shaken_oscillator": (),
    "two_mass": ("F",),
    "mass_chain": ("F",),
    "rlc_circuit": ("V",),
    "dc_motor": ("V",),
    "cart_pendulum": ("F",),
    "quarter_car": ("zr",),
    "coupled_tanks": ("q",),
    "compartments": ("dose",),
    "two_room": ("q",),
}
#: Parameters vary around those of the catalog by this, as logarithms.
SPREAD = 0.3
#: How many sines there are in an input, and the correlation lengths of inputs, in windows.
SINES, SHORTEST, LONGEST = 50, 0.12, 0.3
#: How long a plant has been running when it is first measured, in windows; without an input it is released then.
AHEAD = 0.5


def draw_values(example: lk.catalog.Example, generator: np.random.Generator) -> dict[str, float]:
    """Return random values of the parameters around those of the catalog."""
    return {key: float(value) * float(generator.lognormal(0.0, SPREAD)) for key, value in example.values.items()}


class _StateSpace:
    """The equations solved for the highest derivatives of all channels that are no inputs."""

    def __init__(self, example: lk.catalog.Example, values: dict[str, float]) -> None:
        system = example.system
        self.channels = system.channels
        self.inputs = [self.channels.index(name) for name in INPUTS[example.name]]
        self.outputs = [j for j in range(len(self.channels)) if j not in self.inputs]
        terms, ring = EquationResiduals(system), system.operator.ring
        theta = np.array([values[name] for name in ring.parameters])
        numbers, _ = ScalarFunctions(ring, [value for *_, value in terms.terms]).evaluate(theta)
        self.signals, self.theta = SignalFunctions(ring, system.forcing), theta
        self.orders = {j: max(k for i, k in terms.derivatives if i == j) for j in self.outputs}
        states = [(j, k) for j in self.outputs for k in range(self.orders[j])]
        count, size = len(system.equations), len(states)
        leading, rest = np.zeros((count, len(self.outputs))), np.zeros((count, size))
        push = np.zeros((count, len(self.inputs)))
        for (i, position, _), number in zip(terms.terms, numbers, strict=True):
            j, k = terms.derivatives[position]
            if j in self.inputs:
                assert k == 0, "derivatives of inputs"
                push[i, self.inputs.index(j)] += number
            elif k == self.orders[j]:
                leading[i, self.outputs.index(j)] += number
            else:
                rest[i, states.index((j, k))] += number
        self.states, tops = states, [states.index((j, self.orders[j] - 1)) for j in self.outputs]
        self.A, self.B, self.C = np.zeros((size, size)), np.zeros((size, len(self.inputs))), np.zeros((size, count))
        for number, (j, k) in enumerate(states):
            if k + 1 < self.orders[j]:
                self.A[number, states.index((j, k + 1))] = 1.0
        solved = np.linalg.inv(leading)
        self.A[tops], self.B[tops], self.C[tops] = -solved @ rest, -solved @ push, solved

    def forcing(self, t: float) -> Array:
        """Return the right-hand sides of all equations at a time."""
        return np.array([side[0] for side, _ in self.signals.evaluate(self.theta, np.array([t]))])

    def feedback(self) -> Array:
        """Return a feedback that keeps an unstable plant in place; zero for others."""
        if not len(self.inputs) or np.max(np.linalg.eigvals(self.A).real) < 1e-6:
            return np.zeros((len(self.inputs), len(self.states)))
        P = solve_continuous_are(self.A, self.B, np.eye(len(self.A)), np.eye(len(self.inputs)))
        return np.asarray(self.B.T @ P)


def run_plant(
    example: lk.catalog.Example, times: Array, window: tuple[float, float], generator: np.random.Generator
) -> tuple[dict[str, float], Array]:
    """Return the true parameters of a random plant, and all channels in a random experiment, shape (n, channels).

    Parameters
    ----------
    example : Example
    times : array, shape (n,)
        When it is looked at; none before the window.
    window : (float, float)
        When it is measured.
    generator : numpy.random.Generator
    """
    own = draw_values(example, generator)
    plant, span = _StateSpace(example, own), window[1] - window[0]
    count = len(plant.inputs)
    pace = span * np.exp(generator.uniform(np.log(SHORTEST), np.log(LONGEST)))
    speeds = generator.standard_normal((count, SINES)) / pace
    sizes = generator.standard_normal((count, SINES)) / np.sqrt(SINES / 2)
    phases = generator.uniform(0.0, 2 * np.pi, (count, SINES))
    means = generator.standard_normal(count)
    K = plant.feedback()

    def drive(t: float) -> Array:
        return np.asarray(means + (sizes * np.sin(speeds * t + phases)).sum(axis=1))

    def slope(t: float, x: Array) -> Array:
        return np.asarray(plant.A @ x + plant.B @ (drive(t) - K @ x) + plant.C @ plant.forcing(t))

    start = window[0] - (AHEAD * span if count else 0.0)
    points = np.unique(times)

    def integrate(state: Array) -> Array:
        options = {"rtol": 1e-9, "atol": 1e-12 * max(1.0, float(np.max(np.abs(state), initial=0.0)))}
        found = solve_ivp(slope, (start, points[-1]), state, "DOP853", t_eval=points, **options)
        return np.asarray(found.y.T)

    # The size of the initial state is that of what the input does to it; without one, it is one.
    sizes_of_states = integrate(np.zeros(len(plant.states))).std(axis=0) if count else np.ones(len(plant.states))
    path = integrate(sizes_of_states * generator.standard_normal(len(plant.states)))
    found = np.zeros((len(points), len(plant.channels)))
    for j in plant.outputs:
        found[:, j] = path[:, plant.states.index((j, 0))]
    for number, j in enumerate(plant.inputs):
        found[:, j] = [(drive(t) - K @ x)[number] for t, x in zip(points, path, strict=True)]
    return own, found[np.searchsorted(points, times)]
