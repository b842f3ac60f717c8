"""Maximum marginal likelihood: starts from the data, quasi-Newton steps, the best of several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize

from lodekit.inference.engine import Engine
from lodekit.inference.problem import Hyperparameters
from lodekit.learning.transforms import Layout
from lodekit.prior.compile import RowValues
from lodekit.prior.covariance import free_variance
from lodekit.prior.latents import SquaredExponential

__all__ = ["AGREE", "Optimum", "hessian", "search", "starting_points", "trouble"]

Array = NDArray[np.float64]

_LENGTHSCALES = (0.08, 0.2, 0.5)
#: A lengthscale that only long records can show, and how many measurements of each observable make a record long.
_SHORT, _LONG = 0.03, 60
_NOISES = (0.03, 0.3)
#: Two searches that end this close to each other in evidence have found the same optimum.
AGREE = 1e-2
#: A point this close to an optimum on the scale of the search, and as likely, leads there.
_NEAR = 0.3
#: How far parameters may get from their start, and how far one search may take them, on the scale of the search.
_FAR, _STRIDE = 40.0, 2.0
#: Variances that differ by more than this ask for a second look.
_SPREAD = 1e3


@dataclass(frozen=True)
class Optimum:
    """Where a search ended.

    Parameters
    ----------
    x : array
        The vector of the layout.
    value : float
        The negative log evidence.
    converged : bool
    message : str
    evaluations : int
    at_bound : array of bool
    """

    x: Array
    value: float
    converged: bool
    message: str
    evaluations: int
    at_bound: NDArray[np.bool_]

    def is_met(self, x: Array, value: float, layout: Layout) -> bool:
        """Whether a search that has come to a point is on its last steps to this optimum.

        Deviations do not count: that of a free function or a mode which the data do without goes on shrinking for ever.
        """
        apart = np.abs(x - self.x)
        start = len(layout.free) + layout.sources
        apart[start : start + layout.sources + layout.groups] = 0.0
        return bool(abs(value - self.value) < AGREE and np.max(apart, initial=0.0) < _NEAR)


def bounds(engine: Engine, layout: Layout, x0: Array, centre: Array) -> list[tuple[float, float]]:
    """Return limits for a search: wide enough for every sensible answer, narrow enough for floats.

    Deviations have no unit of their own: their limits lie around the start, which matches the data. Parameters move in
    strides, because a first step that is too long ends on a plateau where they mean nothing; what may be negative can
    always change its sign.

    Parameters
    ----------
    x0, centre : array
        Where this search starts, and where the first one did.
    """
    limits = []
    for number, x, middle in zip(layout.free, x0, centre, strict=False):
        low, high = float(x) - _STRIDE, float(x) + _STRIDE
        if layout.transforms[number].is_unbounded:
            # Around zero the scale of the search is fine: from there to one may be many strides.
            reach = max(abs(float(x)), abs(layout.transforms[number].inverse(1.0)))
            low, high = min(low, -reach), max(high, reach)
        limits.append((max(float(middle) - _FAR, low), min(float(middle) + _FAR, high)))
    start = len(limits)
    floors = np.maximum(np.log(engine.shortest), x0[start : start + layout.sources] - np.log(engine.stride))
    limits += [(float(floor), float(np.log(100.0))) for floor in floors]
    start = len(limits)
    limits += [(float(x) - 30.0, float(x) + 30.0) for x in x0[start : start + layout.sources + layout.groups]]
    limits += [
        (float(np.log(1e-6 * unit)), float(np.log(1e2 * unit))) for unit in engine.prior.noise_units[: layout.noises]
    ]
    return limits


def starting_points(
    engine: Engine,
    layout: Layout,
    guesses: Sequence[Array],
    count: int,
    generator: np.random.Generator,
    scatter: Array | None = None,
) -> list[tuple[float, Array]]:
    """Return the most promising starts with their negative log evidence, best first.

    Parameters
    ----------
    guesses : sequence of arrays, shape (p,)
        Start values of the parameters, NaN where there are none: these are drawn around one, over two decades.
    scatter : array, optional
        What neighbouring measurements suggest for each noise parameter.
    """
    levels = [level * engine.prior.noise_units[: layout.noises] for level in _NOISES]
    if scatter is not None and layout.noises:
        levels.append(np.clip(scatter, 1e-3 * engine.prior.noise_units, None)[: layout.noises])
    with np.errstate(all="ignore"):
        return _ranked(engine, layout, guesses, count, generator, levels)


def _ranked(
    engine: Engine,
    layout: Layout,
    guesses: Sequence[Array],
    count: int,
    generator: np.random.Generator,
    levels: Sequence[Array],
) -> list[tuple[float, Array]]:
    candidates: list[tuple[float, int, Array]] = []
    is_long = engine.size >= _LONG * len(engine.prior.rows.scales)
    lengthscales = (_SHORT, *_LENGTHSCALES) if is_long else _LENGTHSCALES
    for theta in _fill(layout, guesses, count, generator):
        sizes = _Sizes.at(engine, theta)
        for lengthscale, noise, generous in product(lengthscales, levels, (False, True)):
            hyper = _matched(engine, layout, sizes, lengthscale, noise, generous=generous)
            if hyper is None or not np.isfinite(layout.pack(hyper)).all():
                continue
            value = engine.value(hyper)
            if np.isfinite(value):
                candidates.append((value, len(candidates), layout.pack(hyper)))
    candidates.sort(key=lambda item: item[:2])
    chosen: list[tuple[float, Array]] = []
    for value, _, x in candidates:
        # Starts that differ in nothing but the noise lead to the same place.
        if all(np.max(np.abs(x - other), initial=0.0) > 0.7 for _, other in chosen):
            chosen.append((value, x))
        if len(chosen) == count:
            break
    return chosen


def trouble(engine: Engine, layout: Layout, guess: Array, generator: np.random.Generator) -> str:
    """Return why a guess gives no finite evidence; empty where nothing is known."""
    theta = next(_fill(layout, [guess], 1, generator))
    with np.errstate(all="ignore"):
        noise = _NOISES[-1] * engine.prior.noise_units[: layout.noises]
        hyper = _matched(engine, layout, _Sizes.at(engine, theta), _LENGTHSCALES[-1], noise)
    return "" if hyper is None else engine.trouble(hyper)


def _fill(layout: Layout, guesses: Sequence[Array], count: int, generator: np.random.Generator) -> Iterator[Array]:
    """Yield complete parameter vectors: each guess, its gaps filled in several ways."""
    for guess in guesses:
        known = np.where(np.isnan(layout.fixed), guess, layout.fixed)
        gaps = [number for number in layout.free if np.isnan(known[number])]
        for attempt in range(max(8, 2 * count) if gaps else 1):
            theta = known.copy()
            for number in gaps:
                theta[number] = layout.guess(number, attempt, generator)
            yield theta


@dataclass(frozen=True)
class _Sizes:
    """What the data and the prior amount to at some values of the parameters.

    Parameters
    ----------
    theta : array
    rows : RowValues
    target, power : array
        Mean squares of the data, and of the basis functions of the modes.
    """

    theta: Array
    rows: RowValues
    target: Array
    power: Array

    @classmethod
    def at(cls, engine: Engine, theta: Array) -> _Sizes:
        rows = engine.prior.rows.evaluate(theta)
        return cls(theta, rows, *engine.powers(rows))


def _matched(
    engine: Engine, layout: Layout, sizes: _Sizes, lengthscale: float, noise: Array, *, generous: bool = False
) -> Hyperparameters | None:
    """Return hyperparameters whose prior has about the variance of the data.

    A free function moves some observables more than others: it is given the deviation that suits them on average, or,
    generously, the one that the least moved asks for; None where that is the same.
    """
    prior, rows, target = engine.prior, sizes.rows, sizes.target
    lengthscales = np.full(layout.sources, lengthscale)
    deviations = np.ones(len(prior.latents))
    different = False
    for number, latent in enumerate(prior.latents):
        variance = free_variance(latent, rows.free[:, number], lengthscale, 1.0)
        ratio = target[variance > 0] / variance[variance > 0]
        if len(ratio):
            logs = np.log(ratio)
            different |= float(np.ptp(logs)) > np.log(_SPREAD)
            deviations[number] = float(np.exp(0.5 * (logs.max() if generous else logs.mean())))
    if generous and not different:
        return None
    if prior.channels is not None and layout.sources:
        channels = prior.channels.evaluate(sizes.theta).free
        variance = np.zeros(layout.sources)
        for number, deviation in enumerate(deviations):
            variance += free_variance(SquaredExponential(), channels[:, number], lengthscale, float(deviation))
        deviations = np.sqrt(np.where(variance > 0, variance, 1.0))
    ends = np.cumsum([group.size for group in prior.groups])[:-1]
    pieces = np.split(sizes.power, ends) if prior.groups else []
    modes = np.array([np.sqrt(float(target.mean()) / max(float(piece.sum()), 1e-12)) for piece in pieces])
    return Hyperparameters(sizes.theta, lengthscales, deviations, modes, noise)


def search(
    engine: Engine,
    layout: Layout,
    x0: Array,
    *,
    penalty: Callable[[Array], tuple[float, Array]] | None = None,
    iterations: int = 500,
    tolerance: float = 1e-7,
    rival: Optimum | None = None,
    trusted: bool = False,
) -> Optimum:
    """Run L-BFGS from one start, until a step gains less than the tolerance, or a rival is met.

    Parameters that start near the truth, because the data suggested them, are trusted: steps change them less than the
    rest, and half as many steps are needed.

    Parameters, and lengthscales where short ones make evaluations dear, are reached in strides: a search that ends at
    the limit of its stride goes on from there, as long as that gains something.
    """
    scale = _scales(layout, trusted=trusted)
    found = _search(engine, layout, x0, x0, penalty, iterations, tolerance, rival, scale)
    evaluations = found.evaluations
    while _stuck(engine, layout, found, x0).any():
        following = _search(engine, layout, found.x, x0, penalty, iterations, tolerance, rival, scale)
        evaluations += following.evaluations
        gain, found = found.value - following.value, following
        if gain < AGREE:
            found = replace(found, at_bound=found.at_bound & ~_stuck(engine, layout, found, x0))
            break
    return replace(found, evaluations=evaluations)


def _stuck(engine: Engine, layout: Layout, found: Optimum, centre: Array) -> NDArray[np.bool_]:
    """Return what ended at the limit of its stride, and could go farther."""
    free, sources = len(layout.free), layout.sources
    inner = np.zeros(layout.size, dtype=bool)
    inner[:free] = np.abs(found.x[:free] - centre[:free]) < _FAR - 1e-6
    lengthscales = found.x[free : free + sources]
    shortest = float(np.log(engine.shortest)) + 1e-6
    inner[free : free + sources] = (lengthscales > shortest) & (lengthscales < np.log(99.0))
    return found.at_bound & inner


def _search(
    engine: Engine,
    layout: Layout,
    x0: Array,
    centre: Array,
    penalty: Callable[[Array], tuple[float, Array]] | None,
    iterations: int,
    tolerance: float,
    rival: Optimum | None,
    scale: Array,
) -> Optimum:
    limits = bounds(engine, layout, x0, centre)
    low, high = np.array(limits).T if limits else (np.zeros(0), np.zeros(0))
    start = np.clip(x0, low, high)

    def objective(z: Array) -> tuple[float, Array]:
        x = start + scale * z
        found = engine.evaluate(layout.unpack(x))
        value, gradient = found.value, layout.gradient(x, found)
        if penalty is not None:
            extra, slope = penalty(x)
            value, gradient = value + extra, gradient + slope
        if not np.isfinite(value) or not np.isfinite(gradient).all():
            return 1e12, np.zeros_like(x)
        return value, scale * gradient

    values: list[float] = []

    def watch(intermediate_result: OptimizeResult) -> None:
        x, value = start + scale * intermediate_result.x, float(intermediate_result.fun)
        values.append(value)
        # The gain of a step counts in the unit of the evidence, not relative to it, down to its rounding errors.
        if len(values) > 1 and values[-2] - value < max(tolerance, 1e-13 * abs(value)):
            raise StopIteration
        if rival is not None and rival.is_met(x, value, layout):
            raise StopIteration

    box = np.stack([(low - start) / scale, (high - start) / scale], axis=1)
    options = {"maxiter": iterations, "maxcor": 20, "ftol": 0.0, "gtol": 1e-5, "maxls": 30}
    found = minimize(
        objective, np.zeros_like(start), jac=True, method="L-BFGS-B", bounds=box, options=options, callback=watch
    )
    x = np.clip(start + scale * found.x, low, high)
    at_bound = (x <= low + 1e-6) | (x >= high - 1e-6)
    gradient = np.where(at_bound, 0.0, found.jac / scale)
    flat = float(np.max(np.abs(gradient), initial=0.0)) < 1e-3 * max(1.0, abs(float(found.fun)))
    message = "the evidence does not grow any more" if "StopIteration" in str(found.message) else str(found.message)
    converged = bool(found.success or flat or "StopIteration" in str(found.message))
    return Optimum(x, float(found.fun), converged, message, int(found.nfev), at_bound)


def _scales(layout: Layout, *, trusted: bool) -> Array:
    """Return how far a step may well go in each direction."""
    return np.concatenate(
        [
            np.full(len(layout.free), 0.1 if trusted else 1.0),
            np.full(layout.sources, 0.5),
            np.ones(layout.sources + layout.groups),
            np.full(layout.noises, 0.5),
        ]
    )


def hessian(
    engine: Engine,
    layout: Layout,
    x: Array,
    *,
    penalty: Callable[[Array], tuple[float, Array]] | None = None,
    step: float = 1e-4,
) -> Array:
    """Return the Hessian of the negative log evidence by central differences of its closed-form gradient."""
    size = len(x)
    found = np.zeros((size, size))

    def difference(k: int, width: float) -> Array:
        sides = []
        for sign in (1.0, -1.0):
            moved = x.copy()
            moved[k] += sign * width
            gradient = layout.gradient(moved, engine.evaluate(layout.unpack(moved)))
            sides.append(gradient if penalty is None else gradient + penalty(moved)[1])
        return (sides[0] - sides[1]) / (2 * width)

    for k in range(size):
        width = step
        found[k] = difference(k, width)
        # Where the evidence is sharper than the step, a narrower one is needed; the first tells how narrow.
        while width > 1e-9 and not width**2 * abs(found[k, k]) < 0.1:
            width = max(1e-9, min(0.1 * width, 0.1 / np.sqrt(abs(found[k, k])) if np.isfinite(found[k, k]) else 0.0))
            found[k] = difference(k, width)
    return 0.5 * (found + found.T)
