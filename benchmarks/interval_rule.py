"""The rule that no interval, bound or verdict excludes values that are about as likely as the estimate.

Small random systems leave parameters open in many ways: symmetries, proportional or constant inputs, lags that can be
exchanged, hidden states in any unit, one frequency, several optima. Each is fitted with the defaults. A global search
then looks for points within 1.92 of the maximum of the log evidence, which is where a 95 % interval ends (Wilks'
theorem), and compares them with all that was reported.

The search consists of differential evolution and of 200 local searches from random points. If the equations determine
the channels, it does not use the library: `RestrictedLikelihood` computes the evidence from the matrices of the state
space, for hundreds of points at once. A value counts as excluded if the objective of the fit confirms it.
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
from lodekit.diagnostics.equivalent_parameters import is_beyond_nyquist
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
    plant: The equations with their state space.
    driven: All inputs of the state space at the times, ones for constants; (inputs, rows).
    """

    name: str
    system: lk.System
    times: Array
    data: Mapping[str, Array]
    options: Mapping[str, Any]
    plant: Plant | None = None
    driven: Array | None = None

    def fit(self) -> Fit:
        """Fit the system with the defaults."""
        return lk.LODEGP(self.system, random_state=0, **self.options).fit(self.times, dict(self.data)).fit_


@dataclass(frozen=True)
class Plant:
    """Equations with a state space for given values: dx/dt = A x + B u, of which the first states are measured.

    A parameter T is a dead time of all inputs.

    matrices: A and B of the plant that is simulated.
    model: A and B of the equations, if these are not the same; arrays of values give arrays as entries.
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
    model: Callable[..., tuple[Any, Any]] | None = None

    @property
    def is_determined(self) -> bool:
        """Whether the parameters, known inputs and a diffuse initial state determine the measured channel."""
        return bool(self.inputs) and not self.is_steady and not self.options and len(self.outputs) == 1


def second_order(a: float, b: float, c: float) -> tuple[Any, Any]:
    """Return the state space of a mass a, a damper b and a spring c."""
    return [[0, 1], [-c / a, -b / a]], [[0], [1 / a]]


def first_order(a: float, b: float) -> tuple[Any, Any]:
    """Return the state space of a time constant a and a gain b."""
    return [[-1 / a]], [[b / a]]


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
        "y' = -a*y + b*z + u; z' = c*y - d*z",
        lambda a, b, c, d: ([[-a, b], [c, -d - b * c / a]], [[1], [0]]),
        model=lambda a, b, c, d: ([[-a, b], [c, -d]], [[1], [0]]),
    ),
    "exchange": Plant(
        "y' = -a*(y - z) + c*u; z' = a*(y - z) - b*z", lambda a, c, b: ([[-a, a], [a, -a - b]], [[c], [0]])
    ),
    "weak": Plant("y' = -a*y + b*u", lambda a, b: ([[-a]], [[0.02 * b]]), model=lambda a, b: ([[-a]], [[b]])),
    "slow": Plant("a*y' + y = b*u", lambda a, b: ([[-0.02 / a]], [[0.02 * b / a]]), model=first_order),
    "fast": Plant("a*y' + y = b*u", lambda a, b: ([[-20 / a]], [[20 * b / a]]), model=first_order),
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
    sampled = driven = np.vstack([inputs, np.ones((B.shape[1] - len(inputs), rows))])
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
    return OpenCase(label, lk.System(plant.equations, parameters=parameters), times, data, options, plant, sampled)


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


def exponentials(matrices: Array) -> Array:
    """Return the exponential of each matrix, (k, n, n), by a Taylor series of halved matrices and squaring."""
    norms = np.abs(matrices).sum(axis=2).max(axis=1)
    halvings = np.ceil(np.log2(np.maximum(norms, 1e-300) / 0.5)).clip(0, 60).astype(int)
    scaled, unit = matrices / 2.0 ** halvings[:, None, None], np.eye(matrices.shape[1])
    found = np.broadcast_to(unit, matrices.shape)
    for order in range(15, 0, -1):
        found = unit + scaled @ found / order
    for number in range(halvings.max(initial=0)):
        rest = halvings > number
        found[rest] = found[rest] @ found[rest]
    return found


class RestrictedLikelihood:
    """The log evidence of a case at many points at once, from textbook formulas, up to a constant.

    With a diffuse initial state and noise of the best size under its weak prior, it is -(N - n - 1)/2 log |r|^2 for N
    measurements, n states and
    the residuals r of a regression of the measurements, without the response from rest, on the free decays.
    """

    def __init__(self, case: OpenCase, fit: Fit) -> None:
        assert case.plant is not None
        assert case.driven is not None
        self.matrices, self.driven = case.plant.model or case.plant.matrices, case.driven
        self.step, self.y = float(case.times[1] - case.times[0]), np.asarray(case.data["y"])
        self.transforms = [fit.layout.transforms[number] for number in fit.layout.free_parameters]

    def values(self, x: Array) -> list[Array]:
        """Return the parameters at points of the search, shape (k, p), each of shape (k,)."""
        return [
            each.scale * np.sinh(column) if each.is_unbounded else np.exp(column)
            for each, column in zip(self.transforms, x.T, strict=True)
        ]

    @np.errstate(all="ignore")
    def residuals(self, x: Array) -> Array:
        """Return the residuals at points of the search, shapes (k, p) and (k, N); infinite if there are none."""
        A, B = self.matrices(*self.values(x))
        n, m, count = len(A), len(self.driven), len(x)
        whole = np.zeros((count, n + m, n + m))
        for i in range(n):
            for j, entry in enumerate([*A[i], *B[i]]):
                whole[:, i, j] = entry
        whole = exponentials(self.step * whole)
        across, inflow = whole[:, :n, :n], whole[:, :n, n:] @ self.driven
        # The response from rest, and the free decay of each state.
        states, outputs = np.zeros((count, n, n + 1)), np.empty((len(self.y), count, n + 1))
        states[:, :, 1:] = np.eye(n)
        for row in range(len(self.y)):
            outputs[row] = states[:, 0]
            states = across @ states
            states[:, :, 0] += inflow[:, :, row]
        outputs = np.moveaxis(outputs, 0, 1)
        regular = np.isfinite(outputs).all(axis=(1, 2))
        decays, rest = outputs[regular, :, 1:], self.y - outputs[regular, :, 0]
        Q = np.linalg.qr(decays / np.maximum(np.abs(decays).max(axis=1, keepdims=True), 1e-300))[0]
        found = np.full((count, len(self.y)), 1e150)
        found[regular] = rest - np.squeeze(Q @ (np.swapaxes(Q, 1, 2) @ rest[:, :, None]), 2)
        return found

    def heights(self, x: Array) -> Array:
        """Return the log evidence at points of the search, shapes (k, p) and (k,)."""
        return self._heights(self.residuals(x), len(self.matrices(*self.values(x[:1]))[0]))

    def _heights(self, residuals: Array, n: int) -> Array:
        heights: Array = -0.5 * (len(self.y) - n - 1) * np.log(np.sum(residuals**2, axis=1))
        return heights

    @np.errstate(all="ignore")
    def maximize(self, x: Array, low: Array, high: Array, held: int | None = None, steps: int = 40) -> Array:
        """Return the ends of Levenberg-Marquardt searches from many points, with one parameter held or none; (k, p)."""
        x, p, free = x.clip(low, high), x.shape[1], [k for k in range(x.shape[1]) if k != held]
        if not free:
            return x
        damping, residuals, running = np.full(len(x), 1e-2), self.residuals(x), np.arange(len(x))
        for _ in range(steps):
            part, rest, weight = x[running], residuals[running], damping[running]
            before = np.sum(rest**2, axis=1)
            moved = np.repeat(part[:, None, :], len(free), axis=1)
            moved[:, range(len(free)), free] += 1e-6
            slopes = (self.residuals(moved.reshape(-1, p)).reshape(len(part), len(free), -1) - rest[:, None]) / 1e-6
            # Relative to the size of each column, so that the damped matrix is regular.
            sizes = np.maximum(np.sqrt(np.sum(slopes**2, axis=2)), 3e-5 * np.sqrt(before)[:, None])
            slopes = np.nan_to_num(slopes / sizes[:, :, None], posinf=0.0, neginf=0.0)
            normal = slopes @ np.swapaxes(slopes, 1, 2) + np.maximum(weight, 1e-9)[:, None, None] * np.eye(len(free))
            tried = part.copy()
            tried[:, free] -= (np.linalg.solve(normal, slopes @ rest[:, :, None])[:, :, 0] / sizes).clip(-2.0, 2.0)
            tried = tried.clip(low, high)
            new = self.residuals(tried)
            after = np.sum(new**2, axis=1)
            better = after < before
            x[running[better]], residuals[running[better]] = tried[better], new[better]
            damping[running] = np.where(better, weight / 5.0, weight * 4.0)
            # A step that gains less than a thousandth of a nat is the last one.
            running = running[np.where(better, after < before * (1.0 - 1e-4), weight < 1e6)]
            if not len(running):
                break
        return x


class Watched:
    """The objective of a fit with a record of all points that were evaluated."""

    def __init__(self, fit: Fit, likelihood: RestrictedLikelihood | None = None) -> None:
        self.objective, self.best, self.likelihood = fit.setup.objective, fit.optimum.x.copy(), likelihood
        self.low, self.high = self._box(fit)
        self.points: list[Array] = [fit.optimum.x]
        self.values: list[float] = [fit.setup.objective.value(fit.optimum.x)]
        self.times = [part.fitted_record.times for part in fit.record_fits]

    def _box(self, fit: Fit) -> tuple[Array, Array]:
        """Return where is searched: parameters within a factor of 1000 of the estimate or of their expected size."""
        low, high = search_bounds(self.objective, fit.optimum.x, fit.optimum.x)
        for place, transform in enumerate(self.objective.layout.transforms.values()):
            size = max(transform.expected_magnitude, abs(transform.forward(float(fit.optimum.x[place]))))
            top = transform.inverse(1000.0 * size)
            low[place] = -top if transform.is_unbounded else min(top - 14.0, float(fit.optimum.x[place]) - 7.0)
            high[place] = top
        return low, high

    def is_alias(self, x: Array) -> bool:
        """Return whether a mode oscillates beyond the Nyquist frequency at a point."""
        return is_beyond_nyquist(self.objective, x, self.times)

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

    @np.errstate(all="ignore")
    def search(self, points: Array, held: int | None = None) -> float:
        """Search with the restricted likelihood from many points, (k, p), and keep the best ends.

        Returns the largest value of the objective that they have, relative to the maximum.
        """
        assert self.likelihood is not None
        count, top = points.shape[1], -math.inf
        ends = self.likelihood.maximize(points, self.low[:count], self.high[:count], held)
        residuals = self.likelihood.residuals(np.concatenate([self.best[None, :count], ends]))
        squares = np.sum(residuals**2, axis=1)
        order = np.argsort(squares[1:], kind="stable")
        for k in order[: 40 if held is None else 3]:
            noise = self.best[count:] + 0.5 * math.log(squares[k + 1] / squares[0])
            top = max(top, self.value(np.concatenate([ends[k], noise])))
        return top - max(self.values)

    def climb(self, x: Array, axes: Array, steps: int = 30) -> float:
        """Search for a maximum from a point along the columns of `axes`, and return its height; shapes (n,), (n, k)."""

        def descend(z: Array) -> tuple[float, Array]:
            point = x + axes @ z
            value, slope = self.evaluate(np.clip(point, self.low, self.high))
            return -value, -axes.T @ np.where((point < self.low) | (point > self.high), 0.0, slope)

        options = {"maxiter": steps, "maxfun": 2 * steps, "ftol": 1e-10}
        return -float(minimize(descend, np.zeros(axes.shape[1]), jac=True, method="L-BFGS-B", options=options).fun)


def draw_points(watched: Watched, fit: Fit, generator: np.random.Generator, count: int) -> Array:
    """Return random points of the search, (k, n): most of them around the estimate, of either sign if it is free."""
    drawn = np.tile(fit.optimum.x, (count, 1))
    for k, number in enumerate(fit.layout.free_parameters):
        drawn[:, k] = generator.uniform(watched.low[k], watched.high[k], count)
        near = generator.random(count) < 0.7
        drawn[near, k] = fit.optimum.x[k] + generator.normal(0.0, 1.5, int(near.sum()))
        if fit.layout.transforms[number].is_unbounded:
            drawn[:, k] *= generator.choice([-1.0, 1.0], count)
    return drawn


def search_globally(
    fit: Fit, seed: int, likelihood: RestrictedLikelihood | None = None, starts: int = 5, generations: int = 6
) -> Watched:
    """Return all points of differential evolution, and of local searches from random points.

    With a restricted likelihood, these are 200 searches and 60 generations; without, searches from the best of many
    random points.
    """
    watched, generator = Watched(fit, likelihood), np.random.default_rng(seed)
    limits = list(zip(watched.low, watched.high, strict=True))
    if likelihood:
        count = len(likelihood.transforms)
        ends = differential_evolution(
            lambda x: np.minimum(-likelihood.heights(x.T), 1e12),
            limits[:count],
            maxiter=60,
            popsize=10,
            polish=False,
            rng=generator,
            init="sobol",
            updating="deferred",
            vectorized=True,
        ).population
        watched.search(np.concatenate([ends, draw_points(watched, fit, generator, 200)[:, :count]]))
        return watched
    differential_evolution(
        lambda x: min(-watched.value(x), 1e12),
        limits,
        maxiter=generations,
        popsize=4,
        polish=False,
        rng=generator,
        init="sobol",
    )
    drawn = draw_points(watched, fit, generator, 25 * starts)
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

    Beyond each end of an interval, the rest of the vector is searched from the nearest good points. Aliases are not
    excluded wrongly: an estimate below the Nyquist frequency relies on the sampling theorem, as without inputs every
    oscillation has the same samples as infinitely many faster ones.
    """
    layout, found = fit.layout, {}
    is_slow = not watched.is_alias(fit.optimum.x)
    for name, (low, high) in intervals.items():
        place, transform = layout.index_of(name), layout.transform_of(name)
        assert transform is not None
        value = transform.forward(float(fit.optimum.x[place]))
        for edge in (low, high):
            limit = edge + SHARE * (edge - value)
            if not math.isfinite(edge) or edge == value or not transform.low < limit < transform.high:
                continue
            if watched.likelihood:
                _search_all_beyond(fit, watched, place, transform.inverse(limit + 0.01 * (limit - value)), edge > value)
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
        likely = np.flatnonzero(outside & (heights > -DROP))
        for k in likely[np.argsort(-heights[likely])]:
            if not (is_slow and watched.is_alias(watched.points[k])):
                found[name] = {"value": float(values[k]), "height": float(heights[k]), "interval": (low, high)}
                break
    return found


def _search_all_beyond(fit: Fit, watched: Watched, place: int, first: float, is_upper: bool) -> None:
    """Search with one parameter held at values beyond an end of its interval, from good and from random points."""
    last, count = (watched.high if is_upper else watched.low)[place], len(fit.layout.free_parameters)
    points, values = np.array(watched.points)[:, :count], np.array(watched.values)
    generator = np.random.default_rng(place)
    for target in first + (last - first) * np.array([0.0, 0.01, 0.05, 0.3]):
        if (last - first) * (1.0 if is_upper else -1.0) < 0.0:
            break
        near = points[np.argsort((max(values) - values) + 3.0 * np.abs(points[:, place] - target))[:20]]
        starts = np.concatenate([near, draw_points(watched, fit, generator, 40)[:, :count]])
        starts[:, place] = target
        watched.search(starts, place)


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
    is_determined = case.plant is not None and case.plant.is_determined
    watched = search_globally(fit, seed, RestrictedLikelihood(case, fit) if is_determined else None)
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
