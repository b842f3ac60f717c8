"""Starts of searches: hyperparameters that match the size of the data, at parameters that are guessed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from lodekit.inference.engine import Engine
from lodekit.learning.objective import Objective
from lodekit.learning.transforms import Layout
from lodekit.prior.compile import Coefficients
from lodekit.prior.covariance import free_variance
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.latents import CHANNEL_LATENT

__all__ = ["Sizes", "find_trouble", "match_sizes", "starting_points"]

Array = NDArray[np.float64]

_LENGTHSCALES = (0.08, 0.2, 0.5)
#: A lengthscale that only long records can show, and how many measurements of each observable make a record long.
_SHORT, _LONG = 0.03, 60
_NOISES = (0.03, 0.3)
#: Variances that differ by more than this ask for a second look.
_SPREAD = 1e3


def starting_points(
    objective: Objective,
    guesses: Sequence[Array],
    count: int,
    generator: np.random.Generator,
    scatter: Array | None = None,
) -> list[tuple[float, Array]]:
    """Return the most promising starts with their log evidence, best first.

    Parameters
    ----------
    objective : Objective
    guesses : sequence of arrays, shape (p,)
        Start values of the parameters, NaN where there are none: these are drawn around the size to
        expect, over two decades.
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
        levels.append(np.clip(scatter, 1e-3 * units, None)[:learned])
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
    """Return the best starts over several lengthscales and levels, best first; of neighbours only the best."""
    candidates: list[tuple[float, int, Array]] = []
    is_long = engine.size >= _LONG * engine.prior.observables.count
    lengthscales = (_SHORT, *_LENGTHSCALES) if is_long else _LENGTHSCALES
    for theta in _fill(layout, guesses, count, generator):
        sizes = Sizes.at(engine, theta)
        for lengthscale, noise, generous in product(lengthscales, levels, (False, True)):
            hyper = match_sizes(engine, layout, sizes, lengthscale, noise, generous=generous)
            if hyper is None or not np.isfinite(layout.pack(hyper)).all():
                continue
            value = engine.value(hyper)
            if np.isfinite(value):
                candidates.append((value, len(candidates), layout.pack(hyper)))
    candidates.sort(key=lambda item: (-item[0], item[1]))
    chosen: list[tuple[float, Array]] = []
    for value, _, x in candidates:
        # Starts that differ in nothing but the noise lead to the same place.
        if all(np.max(np.abs(x - other), initial=0.0) > 0.7 for _, other in chosen):
            chosen.append((value, x))
        if len(chosen) == count:
            break
    return chosen


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
    theta = next(_fill(layout, [guess], 1, generator))
    with np.errstate(all="ignore"):
        noise = _NOISES[-1] * engine.prior.noise.units[: layout.noise_levels]
        hyper = match_sizes(engine, layout, Sizes.at(engine, theta), _LENGTHSCALES[-1], noise)
    return "" if hyper is None else engine.trouble(hyper)


def _fill(layout: Layout, guesses: Sequence[Array], count: int, generator: np.random.Generator) -> Iterator[Array]:
    """Yield complete parameter vectors: each guess, its gaps filled in several ways."""
    for guess in guesses:
        known = np.where(np.isnan(layout.fixed), guess, layout.fixed)
        gaps = [number for number in layout.learned if np.isnan(known[number])]
        for attempt in range(max(8, 2 * count) if gaps else 1):
            theta = known.copy()
            for number in gaps:
                theta[number] = layout.guess(number, attempt, generator)
            yield theta


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
        variance = free_variance(latent, free[:, number], lengthscale, 1.0)
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
    return Hyperparameters(sizes.theta, lengthscales, deviations, layout.fix_modes(modes), noise)
