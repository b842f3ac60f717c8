"""Starts of searches: hyperparameters that match the size of the data, at parameters that are guessed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from lodekit.data.observations import Series
from lodekit.inference.engine import Engine
from lodekit.learning.guesses.gather import Guess
from lodekit.learning.objective import Objective
from lodekit.learning.searches.disturbance_sizes import add_disturbances
from lodekit.learning.transforms import Layout
from lodekit.prior.compile import Coefficients
from lodekit.prior.covariance import free_variance
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.latents import CHANNEL_LATENT

__all__ = ["Sizes", "Start", "data_lengthscale", "find_trouble", "match_sizes", "starting_points"]

Array = NDArray[np.float64]

#: Lengthscales that are tried, as shares of the window, and those that are enough to compare values of parameters.
_LENGTHSCALES, _SOME = (0.08, 0.2, 0.5), (0.08, 0.3)
#: A lengthscale that the data show is tried where it is this much shorter than all others.
_SHORTER = 0.7
#: Levels of noise that are tried, as shares of the spread of the data, and the least one that neighbours may suggest.
_NOISES, _QUIETEST = (0.03, 0.3), 1e-3
#: Variances that differ by more than this ask for a second look.
_SPREAD = 1e3
#: How many values of the parameters are looked at closely.
_CLOSELY = 2
#: Similarity of values at the distance of one lengthscale; and so many over the root of their number is what noise has.
_HALFWAY, _ALIKE = float(np.exp(-0.5)), 3.0
#: In how many ways the gaps of a guess are filled, and how many blind guesses there are.
_FILLS, _BLIND = 3, 6
#: Starts closer to each other than this lead to the same place.
_APART = 0.7


@dataclass(frozen=True, eq=False)
class Start:
    """A point to start from.

    Parameters
    ----------
    value : float
        The log evidence there.
    x : array, shape (n,)
        A vector of the layout.
    family : str
        The way in which its parameters were guessed.
    is_trusted : bool
        Whether the data themselves suggest all of its parameters.
    """

    value: float
    x: Array
    family: str
    is_trusted: bool


def starting_points(
    objective: Objective,
    guesses: Sequence[Guess],
    series: Sequence[Series],
    count: int,
    generator: np.random.Generator,
    scatter: Array | None = None,
) -> list[Start]:
    """Return the most promising starts, best first; but the second is the best of another family than the first.

    All guesses are compared at few hyperparameters; the best ones, and the best of another family, at many.

    Parameters
    ----------
    objective : Objective
    guesses : sequence of Guess
        Start values of the parameters. Gaps are filled with values around the size to expect, over two decades.
    series : sequence of Series
        Measurements, or averages of them: they show how fast things change.
    count : int
        How many starts are wanted.
    generator : numpy.random.Generator
        For parameters without a guess.
    scatter : array, optional
        What neighbouring measurements suggest for each level, in the user's units.
    """
    engine, layout = objective.engine, objective.layout
    units, learned = engine.prior.noise.units, layout.noise_levels
    levels = [level * units[:learned] for level in _NOISES]
    if scatter is not None and learned:
        levels.insert(0, np.clip(scatter, _QUIETEST * units, None)[:learned])
    shortest = max(data_lengthscale(series) / engine.prior.units.span, 1.01 * engine.limits.shortest)
    short = (shortest,) if shortest < _SHORTER * _LENGTHSCALES[0] else ()
    if not layout.processes:
        lengthscales, some = _LENGTHSCALES[-1:], _LENGTHSCALES[-1:]
    else:
        lengthscales, some = (*short, *_LENGTHSCALES), (*short, *_SOME)
    with np.errstate(all="ignore"):
        filled = list(_fill(layout, guesses, generator))
        rough = [_around(engine, layout, item, product(some, levels[:1], (False,))) for item in filled]
        best = sorted((starts for starts in rough if starts), key=lambda starts: -starts[0].value)
        closely = best[:_CLOSELY]
        closely += [starts for starts in best if starts[0].family != best[0][0].family][:1]
        found = [start for starts in best for start in starts]
        grid = [each for each in product(lengthscales, levels[:1], (False, True)) if each[2] or each[0] not in some]
        for starts in {id(starts): starts for starts in closely}.values():
            own = _around(engine, layout, (layout.unpack(starts[0].x).theta, starts[0]), grid)
            promising = max([*starts, *own], key=lambda start: start.value)
            found += [*own, *_at_levels(engine, layout, promising, levels[1:])]
    return _choose(found, count)


def _at_levels(engine: Engine, layout: Layout, start: Start, levels: Iterable[Array]) -> list[Start]:
    """Return a start with other levels of noise."""
    several = [replace(layout.unpack(start.x), noise=noise) for noise in levels]
    values = [(engine.value(hyper), layout.pack(hyper)) for hyper in several]
    return [replace(start, value=value, x=x) for value, x in values if np.isfinite(value)]


def _around(
    engine: Engine,
    layout: Layout,
    item: tuple[Array, Guess | Start],
    grid: Iterable[tuple[float, Array, bool]],
) -> list[Start]:
    """Return starts at some values of the parameters with the hyperparameters of a grid, best first."""
    theta, origin = item
    is_trusted = origin.is_trusted if isinstance(origin, Start) else not np.isnan(origin.theta[layout.learned]).any()
    sizes, found = Sizes.at(engine, theta), []
    matched: dict[tuple[float, bool], Hyperparameters | None] = {}
    for lengthscale, noise, generous in grid:
        if (lengthscale, generous) not in matched:
            # Deviations do not depend on the noise.
            matched[lengthscale, generous] = match_sizes(engine, layout, sizes, lengthscale, noise, generous=generous)
        hyper = matched[lengthscale, generous]
        if hyper is None:
            continue
        hyper = replace(hyper, noise=noise)
        x = layout.pack(hyper)
        value = engine.value(hyper) if np.isfinite(x).all() else -np.inf
        if np.isfinite(value):
            found.append(Start(value, x, origin.family, is_trusted and origin.family != "given"))
    return sorted(found, key=lambda start: -start.value)


def _choose(starts: Sequence[Start], count: int) -> list[Start]:
    """Return the best starts that differ from each other, best first; the second is of another family."""
    ranked = sorted(starts, key=lambda start: -start.value)
    chosen = ranked[:1]
    chosen += [start for start in ranked[1:] if start.family != chosen[0].family and _differs(start, chosen)][:1]
    for start in ranked:
        # Starts that differ in nothing but the noise lead to the same place.
        if len(chosen) < count and _differs(start, chosen):
            chosen.append(start)
    return chosen[:count]


def _differs(start: Start, others: Sequence[Start]) -> bool:
    """Return whether a start is far enough from others to lead elsewhere."""
    return all(np.max(np.abs(start.x - other.x), initial=0.0) > _APART for other in others)


def data_lengthscale(series: Sequence[Series]) -> float:
    """Return about how soon the fastest of some series forgets its values, in the user's time; infinite if unknown.

    Where a squared exponential has fallen to exp(-1/2), the distance is its lengthscale; an oscillation gets there
    before a sixth of its period.

    Parameters
    ----------
    series : sequence of Series

    Examples
    --------
    >>> t = np.linspace(0.0, 10.0, 200)
    >>> slow = Series("x", t, np.sin(t), np.full(200, np.nan))
    >>> fast = Series("y", t, np.sin(20.0 * t), np.full(200, np.nan))
    >>> bool(abs(data_lengthscale([slow, fast]) - 0.92 / 20.0) < 0.005)
    True
    """
    found = np.inf
    for item in series:
        y = item.values - item.values.mean()
        total = float(np.mean(y**2))
        if len(y) < 8 or not total > 0:
            continue
        before = 0.0, 1.0
        for lag in range(1, len(y) // 2):
            apart = float(np.mean(item.times[lag:] - item.times[:-lag]))
            similar = float(np.mean(y[lag:] * y[:-lag])) / total
            if similar < _HALFWAY:
                if lag == 1 and _is_white(y):
                    break
                share = (before[1] - _HALFWAY) / (before[1] - similar)
                found = min(found, before[0] + share * (apart - before[0]))
                break
            before = apart, similar
    return found


def _is_white(values: Array) -> bool:
    """Return whether values, of mean zero, are no more alike at any distance than noise is."""
    count = len(values)
    alike = [float(np.mean(values[lag:] * values[:-lag])) for lag in range(1, max(count // 2, 2))]
    return max(map(abs, alike)) < _ALIKE / math.sqrt(count) * float(np.mean(values**2))


def find_trouble(objective: Objective, guess: Array, generator: np.random.Generator) -> str:
    """Return why a guess gives no finite log evidence, as a sentence; empty where nothing is known.

    Parameters
    ----------
    objective : Objective
    guess : array, shape (p,)
        Values of the parameters, NaN where there are none.
    generator : numpy.random.Generator
        For parameters without a guess.
    """
    engine, layout = objective.engine, objective.layout
    theta, _ = next(_fill(layout, [Guess("blind", guess)], generator))
    with np.errstate(all="ignore"):
        noise = _NOISES[-1] * engine.prior.noise.units[: layout.noise_levels]
        hyper = match_sizes(engine, layout, Sizes.at(engine, theta), _LENGTHSCALES[-1], noise)
    return "" if hyper is None else engine.trouble(hyper)


def _fill(layout: Layout, guesses: Sequence[Guess], generator: np.random.Generator) -> Iterator[tuple[Array, Guess]]:
    """Yield complete parameter vectors with their guesses, each gap filled in several ways."""
    for guess in guesses:
        known = np.where(np.isnan(layout.fixed), guess.theta, layout.fixed)
        gaps = [number for number in layout.learned if np.isnan(known[number])]
        for attempt in range((_BLIND if guess.family == "blind" else _FILLS) if gaps else 1):
            theta = known.copy()
            for number in gaps:
                theta[number] = layout.guess(number, attempt, generator)
            yield theta, guess


@dataclass(frozen=True)
class Sizes:
    """The sizes of the data, and of what the prior is made of, at some values of the parameters.

    Parameters
    ----------
    theta : array, shape (p,)
        Values of all parameters.
    coefficients : Coefficients
        Of the measured observables on free functions and modes, in scaled units.
    target : array, shape (o,)
        The mean square of the data of each observable, scaled.
    power : array, shape (r,)
        The mean square of each basis function of the modes, scaled, over all observables.
    """

    theta: Array
    coefficients: Coefficients
    target: Array
    power: Array

    @classmethod
    def at(cls, engine: Engine, theta: Array) -> Sizes:
        """Return the sizes at some values of the parameters.

        Parameters
        ----------
        engine : Engine
        theta : array, shape (p,)
            Values of all parameters.
        """
        coefficients = engine.prior.observables.evaluate(theta)
        return cls(theta, coefficients, *engine.powers(coefficients))


def match_sizes(
    engine: Engine, layout: Layout, sizes: Sizes, lengthscale: float, noise: Array, *, generous: bool = False
) -> Hyperparameters | None:
    """Return hyperparameters whose prior has about the variance of the data; None where they would be no new ones.

    A free function moves some observables more than others: it is given the deviation that suits them on average, or,
    generously, the one that the least moved asks for; where these are about the same, the latter is no new start.

    Parameters
    ----------
    engine : Engine
    layout : Layout
    sizes : Sizes
        At the values of the parameters.
    lengthscale : float
        Of all processes, in scaled time.
    noise : array
        Levels, in the user's units.
    generous : bool
        Whether deviations suit the observable that is moved least.
    """
    prior, free, target = engine.prior, sizes.coefficients.free, sizes.target
    lengthscales = np.full(layout.processes, lengthscale)
    deviations = np.ones(len(prior.latents))
    different = False
    for number, latent in enumerate(prior.latents):
        variance = free_variance(latent, free[:, number], lengthscale, 1.0, prior.observables.windows)
        ratio = target[variance > 0] / variance[variance > 0]
        if len(ratio):
            logs = np.log(ratio)
            different |= float(np.ptp(logs)) > np.log(_SPREAD)
            deviations[number] = float(np.exp(0.5 * (logs.max() if generous else logs.mean())))
    if generous and not different:
        return None
    if prior.channels is not None and layout.processes:
        channels = prior.channels.evaluate(sizes.theta).free
        variance = np.zeros(layout.processes)
        for number, deviation in enumerate(deviations):
            variance += free_variance(CHANNEL_LATENT, channels[:, number], lengthscale, float(deviation))
        deviations = np.sqrt(np.where(variance > 0, variance, 1.0))
    ends = np.cumsum([group.size for group in prior.groups])[:-1]
    pieces = np.split(sizes.power, ends) if prior.groups else []
    modes = np.array([np.sqrt(float(target.mean()) / max(float(piece.sum()), 1e-300)) for piece in pieces])
    found = Hyperparameters(sizes.theta, lengthscales, deviations, layout.fix_modes(modes, sizes.theta), noise)
    return add_disturbances(engine, layout, found) if layout.disturbances else found
