"""The rule that no interval, bound or verdict excludes values that are about as likely as the estimate.

Small random systems leave parameters open in many ways: symmetries, proportional or constant inputs, lags that can be
exchanged, hidden states in any unit, one frequency, several optima. Each is fitted with the defaults. A global search
that shares nothing with the fit but its objective then looks for points within 1.92 of the maximum of the log evidence,
which is where a 95 % interval ends (Wilks' theorem), and compares them with all that was reported.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm
from scipy.optimize import differential_evolution, minimize
from threadpoolctl import threadpool_limits

import lodekit as lk
from lodekit.errors import AccuracyError
from lodekit.fitting.lbfgs import search_bounds
from lodekit.results.fit import Fit

Array = NDArray[np.float64]
#: Half the 95 % quantile of chi-squared with one degree of freedom.
DROP = 1.9207
#: An interval counts as too short if it would have to be longer by this share on one side: ends of profiles are
#: interpolated.
SHARE = 0.05


@dataclass(frozen=True)
class OpenCase:
    """A system and data that leave some of its parameters open, or not.

    options: Arguments of the estimator.
    """

    name: str
    system: lk.System
    times: Array
    data: Mapping[str, Array]
    options: Mapping[str, Any]

    def fit(self) -> Fit:
        """Fit the system with the defaults."""
        return lk.LODEGP(self.system, random_state=0, **self.options).fit(self.times, dict(self.data)).fit_


@dataclass(frozen=True)
class Plant:
    """Equations with a state space for given values: dx/dt = A x + B u, of which the first states are measured.

    A parameter T is a dead time of all inputs.

    inputs: How the inputs look: "steps", "random", "constant", "sine", or a combination of those before.
    is_steady: Whether the output is a sine, too, and the input is measured with noise.
    outputs: The names of the measured states.
    """

    equations: str
    matrices: Callable[..., tuple[Any, Any]]
    inputs: tuple[str, ...] = ("steps",)
    options: Mapping[str, Any] = field(default_factory=dict)
    is_steady: bool = False
    outputs: str = "y"


def second_order(a: float, b: float, c: float) -> tuple[Any, Any]:
    """Return the state space of a mass a, a damper b and a spring c."""
    return [[0, 1], [-c / a, -b / a]], [[0], [1 / a]]


PLANTS = {
    "square": Plant("y' = -a^2*y + b*u", lambda a, b: ([[-a * a]], [[b]])),
    "product": Plant("y' = -c*y + a*b*u", lambda c, a, b: ([[-c]], [[a * b]])),
    "ratio": Plant("a*y' = -c*y + b*u", lambda a, c, b: ([[-c / a]], [[b / a]])),
    "two inputs": Plant("y' = -c*y + a*u + b*v", lambda c, a, b: ([[-c]], [[a, b]]), ("steps", "same")),
    "two alike": Plant("y' = -c*y + a*u + b*v", lambda c, a, b: ([[-c]], [[a, b]]), ("steps", "alike")),
    "three inputs": Plant(
        "y' = -c*y + a*u + b*v + d*w", lambda c, a, b, d: ([[-c]], [[a, b, d]]), ("steps", "random", "same")
    ),
    "constant": Plant("a*y' + y - c = b*u", lambda a, c, b: ([[-1 / a]], [[b / a, c / a]]), ("constant",)),
    "constant beside": Plant("y' = -c*y + a*u + b*v", lambda c, a, b: ([[-c]], [[a, b]]), ("steps", "constant")),
    "two constants": Plant("y' = -c*y + a*u + b*v", lambda c, a, b: ([[-c]], [[a, b]]), ("constant", "same")),
    "oscillator": Plant("y'' + 2*a*b*y' + b^2*y = c*u", lambda a, b, c: ([[0, 1], [-b * b, -2 * a * b]], [[0], [c]])),
    "one sine": Plant("a*y'' + b*y' + c*y = u", second_order, ("sine",)),
    "one sine, measured": Plant("a*y'' + b*y' + c*y = u", second_order, is_steady=True),
    "swapped lags": Plant(
        "a*h' = c*u - h; b*y' = h - y", lambda a, c, b: ([[-1 / b, 1 / b], [0, -1 / a]], [[0], [c / a]])
    ),
    "hidden gain": Plant("h' = -a*h + b*u; y' = -c*y + d*h", lambda a, b, c, d: ([[-c, d], [0, -a]], [[0], [b]])),
    "similarity": Plant(
        "y' = -a*y + b*z + u; z' = c*y - d*z", lambda a, b, c, d: ([[-a, b], [c, -d - b * c / a]], [[1], [0]])
    ),
    "exchange": Plant(
        "y' = -a*(y - z) + c*u; z' = a*(y - z) - b*z", lambda a, c, b: ([[-a, a], [a, -a - b]], [[c], [0]])
    ),
    "weak": Plant("y' = -a*y + b*u", lambda a, b: ([[-a]], [[0.02 * b]])),
    "slow": Plant("a*y' + y = b*u", lambda a, b: ([[-0.02 / a]], [[0.02 * b / a]])),
    "fast": Plant("a*y' + y = b*u", lambda a, b: ([[-20 / a]], [[20 * b / a]])),
    "no input": Plant("y'' + a*y' + b*y = 0", lambda a, b: ([[-min(a, b) / 2, 0], [0, -1]], np.zeros((2, 0))), ()),
    "disturbed": Plant(
        "y' = -a*(y - z) + w; z' = a*(y - z) - b*z + c*u",
        lambda a, b, c: ([[-a, a], [a, -a - b]], [[0], [c]]),
        options={"disturbances": {"w": "white"}},
    ),
}


def draw_cases(seed: int, only: str = "") -> Iterator[OpenCase]:
    """Yield one random case of each kind, with values, signs, inputs, noise and times of its own."""
    for number, (name, plant) in enumerate(PLANTS.items()):
        if only in name:
            yield draw_case(name, plant, np.random.default_rng([seed, number]))


def draw_case(name: str, plant: Plant, generator: np.random.Generator) -> OpenCase:
    """Return a case with random values of the parameters, all positive or of either sign."""
    names = plant.matrices.__code__.co_varnames[: plant.matrices.__code__.co_argcount]
    values = {key: float(2.0 ** generator.uniform(-1.0, 1.0)) for key in names}
    rows, step = int(generator.integers(20, 41 if plant.options else 61)), float(generator.choice([0.1, 0.2, 0.4]))
    times: Array = step * np.arange(float(rows))
    positive = bool(generator.integers(2))
    inputs = draw_inputs(plant.inputs, times, generator)
    A, B = (np.asarray(part, dtype=float) for part in plant.matrices(**values))
    driven = np.vstack([inputs, np.ones((B.shape[1] - len(inputs), rows))])
    if late := round(4.0 * values.get("T", 0.0) / step):
        driven = np.hstack([np.repeat(driven[:, :1], late, axis=1), np.repeat(driven, 4, axis=1)])[:, : 4 * rows]
    state = generator.standard_normal(len(A)) * (1.0 if generator.integers(2) else 0.0)
    path = respond(A, B, driven, step * rows / driven.shape[1], state)[:: driven.shape[1] // rows]
    if plant.is_steady:
        turns = float(generator.uniform(0.7, 2.0)) * times
        gain = np.linalg.solve(1j * turns[1] / step * np.eye(len(A)) - A, B)[0, 0]
        inputs, path = np.sin(turns)[None], abs(gain) * np.sin(turns + np.angle(gain))[:, None]
    noise = float(generator.choice([0.01, 0.05, 0.15])) * max(float(np.std(path[:, 0])), 1e-2)
    data = {name: path[:, k] + noise * generator.standard_normal(rows) for k, name in enumerate(plant.outputs)}
    known = {key: u for key, u in zip("uvw", inputs, strict=False) if key not in plant.options.get("disturbances", ())}
    data |= known
    parameters = {key: lk.Parameter(positive=positive) for key in names}
    options = dict(plant.options)
    if plant.is_steady:
        data["u"] = data["u"] + noise * generator.standard_normal(rows)
    elif known:
        options["inputs"] = dict.fromkeys(known, "hold")
    label = f"{name}{', positive' if positive else ''}"
    return OpenCase(label, lk.System(plant.equations, parameters=parameters), times, data, options)


def draw_inputs(kinds: tuple[str, ...], times: Array, generator: np.random.Generator) -> Array:
    """Return inputs at the times of the samples, shape (inputs, rows)."""
    found: list[Array] = []
    for kind in kinds:
        if kind == "steps":
            levels = generator.standard_normal(len(times) // 4 + 1)
            found.append(np.repeat(levels, 4)[: len(times)] if generator.integers(2) else (times > times[4]) * 1.0)
        elif kind == "random":
            found.append(generator.standard_normal(len(times)))
        elif kind == "constant":
            found.append(np.full(len(times), float(generator.uniform(0.5, 2.0))))
        elif kind == "sine":
            found.append(np.sin(float(generator.uniform(0.7, 2.0)) * times))
        else:
            mixed = np.tensordot(generator.choice([-1.0, 1.0, 2.0], len(found)), np.array(found), 1)
            found.append(mixed + (0.02 * generator.standard_normal(len(times)) if kind == "alike" else 0.0))
    return np.array(found).reshape(len(kinds), len(times))


def respond(A: Array, B: Array, inputs: Array, step: float, state: Array) -> Array:
    """Return the states at the samples, (rows, n), exactly, if the inputs are held between them."""
    n = len(A)
    whole = np.zeros((n + B.shape[1],) * 2)
    whole[:n, :n], whole[:n, n:] = A, B
    across, found = expm(step * whole)[:n], []
    for held in inputs.T:
        found.append(state)
        state = across @ np.concatenate([state, held])
    return np.array(found)


class Watched:
    """The objective of a fit with a record of all points that were evaluated."""

    def __init__(self, fit: Fit) -> None:
        self.objective, self.best = fit.setup.objective, fit.optimum.x.copy()
        self.low, self.high = self._box(fit)
        self.points: list[Array] = [fit.optimum.x]
        self.values: list[float] = [fit.setup.objective.value(fit.optimum.x)]

    def _box(self, fit: Fit) -> tuple[Array, Array]:
        """Return where is searched: parameters within a factor of 1000 of the estimate or of their expected size."""
        low, high = search_bounds(self.objective, fit.optimum.x, fit.optimum.x)
        for place, transform in enumerate(self.objective.layout.transforms.values()):
            size = max(transform.expected_magnitude, abs(transform.forward(float(fit.optimum.x[place]))))
            top = transform.inverse(1000.0 * size)
            low[place] = -top if transform.is_unbounded else min(top - 14.0, float(fit.optimum.x[place]) - 7.0)
            high[place] = top
        return low, high

    def value(self, x: Array) -> float:
        """Return the objective at a point, minus infinity if it is not finite."""
        with np.errstate(all="ignore"):
            found = float(self.objective.value(x))
        return self._keep(x, found if math.isfinite(found) else -math.inf)

    def evaluate(self, x: Array) -> tuple[float, Array]:
        """Return the objective and its gradient at a point."""
        with np.errstate(all="ignore"):
            found, slope = self.objective.evaluate(x)
        if not math.isfinite(found) or not np.isfinite(slope).all():
            return -1e12, np.zeros_like(x)
        return self._keep(x, float(found)), slope

    def _keep(self, x: Array, value: float) -> float:
        if value > max(self.values) - 50.0:
            self.points.append(x.copy())
            self.values.append(value)
        return value

    def climb(self, x: Array, axes: Array, steps: int = 30) -> float:
        """Search for a maximum from a point along the columns of `axes`, and return its height; shapes (n,), (n, k)."""

        def descend(z: Array) -> tuple[float, Array]:
            point = x + axes @ z
            value, slope = self.evaluate(np.clip(point, self.low, self.high))
            return -value, -axes.T @ np.where((point < self.low) | (point > self.high), 0.0, slope)

        options = {"maxiter": steps, "maxfun": 2 * steps, "ftol": 1e-10}
        return -float(minimize(descend, np.zeros(axes.shape[1]), jac=True, method="L-BFGS-B", options=options).fun)


def search_globally(fit: Fit, seed: int, starts: int = 5, generations: int = 6) -> Watched:
    """Return all points of differential evolution, and of local searches from the best of many random points."""
    watched, generator = Watched(fit), np.random.default_rng(seed)
    limits = list(zip(watched.low, watched.high, strict=True))
    differential_evolution(
        lambda x: min(-watched.value(x), 1e12),
        limits,
        maxiter=generations,
        popsize=4,
        polish=False,
        rng=generator,
        init="sobol",
    )
    theta = fit.layout.slices.theta
    drawn = np.tile(fit.optimum.x, (25 * starts, 1))
    for k in range(theta.stop):
        drawn[:, k] = generator.uniform(watched.low[k], watched.high[k], len(drawn))
        near = generator.random(len(drawn)) < 0.7
        drawn[near, k] = fit.optimum.x[k] + generator.normal(0.0, 1.5, int(near.sum()))
        if fit.layout.transforms[fit.layout.free_parameters[k]].is_unbounded:
            drawn[:, k] *= generator.choice([-1.0, 1.0], len(drawn))
    heights = np.array([watched.value(x) for x in drawn])
    for k in np.argsort(-heights)[:starts]:
        watched.climb(drawn[k], np.eye(len(drawn[k])))
    return watched


def reported(fit: Fit) -> dict[str, tuple[float, float]]:
    """Return what is said of each learned parameter: between which values it lies."""
    names = [fit.layout.names[number] for number in fit.layout.free_parameters]
    return {name: fit.estimates[name].interval for name in names}


def find_excluded(
    fit: Fit, watched: Watched, intervals: Mapping[str, tuple[float, float]]
) -> dict[str, dict[str, Any]]:
    """Return for each parameter the likeliest value outside its interval, if it is within 1.92 of the maximum.

    Beyond each end of an interval, the rest of the vector is searched from the nearest good points.
    """
    layout, found = fit.layout, {}
    for name, (low, high) in intervals.items():
        place, transform = layout.index_of(name), layout.transform_of(name)
        assert transform is not None
        value = transform.forward(float(fit.optimum.x[place]))
        for edge in (low, high):
            limit = edge + SHARE * (edge - value)
            if not math.isfinite(edge) or edge == value or not transform.low < limit < transform.high:
                continue
            for target in (limit + 0.01 * (limit - value), limit + (limit - value)):
                if transform.low < target < transform.high:
                    height = _search_beyond(fit, watched, place, transform.inverse(target))
                    # Excluded already, or so much less likely that nothing is to be expected farther away.
                    if not -6.0 * DROP < height < -DROP:
                        break
        values = np.array([transform.forward(float(x[place])) for x in watched.points])
        heights = np.array(watched.values) - max(watched.values)
        outside = (values < low + SHARE * (low - value)) | (values > high + SHARE * (high - value))
        heights[~outside] = -math.inf
        best = int(np.argmax(heights))
        if heights[best] > -DROP:
            found[name] = {"value": float(values[best]), "height": float(heights[best]), "interval": (low, high)}
    return found


def _search_beyond(fit: Fit, watched: Watched, place: int, target: float) -> float:
    """Search with one parameter held at a value, from a good point that is near and from the optimum.

    Returns the height that was reached, relative to the maximum.
    """
    points, values, n = np.array(watched.points), np.array(watched.values), len(fit.optimum.x)
    cost = (max(watched.values) - values) + 3.0 * np.abs(points[:, place] - target)
    others = np.setdiff1d(np.arange(n), [place])
    information = np.where(np.isfinite(fit.observed_information), fit.observed_information, 0.0)
    curvatures, vectors = np.linalg.eigh(information[np.ix_(others, others)])
    # Steps of at most one, as flat directions would have any length.
    axes, along = np.zeros((n, n - 1)), np.zeros(n)
    axes[others] = vectors / np.sqrt(np.maximum(np.abs(curvatures), 1.0))
    along[place], along[others] = 1.0, -axes[others] @ (axes[others].T @ information[others, place])
    length, height = target - float(fit.optimum.x[place]), -math.inf
    near = points[int(np.argmin(cost))]
    for start in (near.copy(), move_straight(fit, near, along, place, target), fit.optimum.x + length * along):
        start[place] = target
        if height < -DROP:
            height = max(
                height, watched.climb(np.clip(start, watched.low, watched.high), axes, 20) - max(watched.values)
            )
    return height


def move_straight(fit: Fit, x: Array, along: Array, place: int, target: float) -> Array:
    """Return a point with one parameter moved, and the others along a straight line in the units of the user."""
    transforms, found = [fit.layout.transforms[n] for n in fit.layout.free_parameters], x.copy()
    slopes = [each.derivative(float(fit.optimum.x[k])) for k, each in enumerate(transforms)]
    length = (transforms[place].forward(target) - transforms[place].forward(float(x[place]))) / slopes[place]
    for k, transform in enumerate(transforms):
        moved = transform.forward(float(x[k])) + length * along[k] * slopes[k]
        if transform.low < moved < transform.high:
            found[k] = transform.inverse(moved)
    return found


def check_case(case: OpenCase, seed: int) -> dict[str, Any]:
    """Return what was reported of a case and what of it is wrong."""
    start = time.process_time()
    try:
        with threadpool_limits(1, user_api="blas"):
            fit = case.fit()
    except AccuracyError as error:
        # Rounding leaves no result, which is no wrong one.
        return {"case": case.name, "seed": seed, "gain": 0.0, "excluded": {}, "refused": str(error)}
    intervals = reported(fit)
    watched = search_globally(fit, seed)
    excluded = find_excluded(fit, watched, intervals)
    return {
        "case": case.name,
        "seed": seed,
        "converged": fit.converged,
        "gain": max(watched.values) - watched.values[0],
        "notes": {name: fit.estimates[name].note for name in intervals},
        "reasons": {name: each.reason for name, each in fit.identifiability.items()},
        "evaluations": len(watched.values),
        "excluded": excluded,
        "seconds": time.process_time() - start,
    }
