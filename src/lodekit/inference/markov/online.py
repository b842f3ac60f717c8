"""A filter that takes one row at a time: covariances are kept as roots, so that they cannot lose their sign.

What is known of the state, the noise of a step, and the noise of measurements stand below each other in one matrix;
orthogonal transformations make a triangle of it, which holds the deviations of the measurements, the gain and the root
of what is left. Nothing is subtracted, so noise may be a millionth of the signal, for ever.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from lodekit.inference.markov.states import Space
from lodekit.inference.markov.whitening import roots_of

__all__ = ["Leap", "Leaps", "Taken", "advance", "take"]

Array = NDArray[np.float64]
#: Terms of the series for steps of norm 1/2 at most: the first one that is left out is below 1e-17 of the first that
#: is not zero, also in entries that begin with a high power of the step.
_TERMS = 26
#: The numbers of these terms: each is the one before times the length of the step over its number.
_ORDERS: Array = np.arange(1, _TERMS + 1, dtype=float)


@dataclass(frozen=True, slots=True)
class Leap:
    """A step of all states.

    Parameters
    ----------
    transition : array, shape (s, s)
    noise : array, shape (n, s)
        A root of the covariance of the noise, transposed: one row for each state that noise drives.
    """

    transition: Array
    noise: Array


class Taken(NamedTuple):
    """A step, and measurements after it that are taken at once.

    Parameters
    ----------
    mean : array, shape (s,)
        Of the states before the measurements.
    root : array, shape (s, s)
        Of the covariance of the states after them.
    deviations : array, shape (o, o)
        A root of the covariance of the measurements, transposed, upper triangular.
    cross : array, shape (o, s)
        What a measurement error, divided by that root, adds to the mean.
    """

    mean: Array
    root: Array
    deviations: Array
    cross: Array

    def updated(self, errors: Array) -> Array:
        """Return the mean of the states after the measurements, which exceed what was expected by these errors."""
        if not len(errors):
            return self.mean
        return np.asarray(self.mean + lapack.dtrtrs(self.deviations, errors, trans=1)[0] @ self.cross)


class Leaps:
    """Steps of a linear system, one at a time: the terms of Taylor's series are made once.

    They are those of `NoisySteps`, and longer steps are doubled as there.

    Parameters
    ----------
    space : Space
    """

    def __init__(self, space: Space) -> None:
        n, size = space.noisy, space.size
        self._norm = float(np.abs(space.matrix).sum(axis=1).max(initial=0.0)) or 1.0
        F, B = space.matrix / self._norm, np.zeros((size, size))
        B[:n, :n] = space.density / self._norm
        powers, noises = [F], [B]
        for _ in range(_TERMS - 1):
            powers.append(powers[-1] @ F)
            half = F @ noises[-1]
            noises.append(half + half.T)
        # Noise never reaches the other states, which are modes.
        self._size, self._noisy = size, n
        self._terms = np.concatenate([np.stack(powers), np.stack(noises)], axis=1).reshape(_TERMS, 2 * size * size)

    def make(self, length: float) -> Leap:
        """Return a step of some length.

        Parameters
        ----------
        length : float
            In scaled time, not negative.
        """
        size = length * self._norm
        halvings = max(0, math.ceil(math.log2(max(size, 1e-300))) + 1)
        weights = np.cumprod(math.ldexp(size, -halvings) / _ORDERS)
        both = (weights @ self._terms).reshape(2, self._size, self._size)
        grown, noise, unit = both[0], both[1], np.eye(self._size)
        for _ in range(halvings):
            transition = grown + unit
            noise = noise + transition @ noise @ transition.T
            # The transition without the one of its diagonal: small entries are not lost beside it.
            grown = 2.0 * grown + grown @ grown
        n, rows = self._noisy, np.zeros((self._noisy, self._size))
        if n:
            rows[:, :n] = roots_of(noise[None, :n, :n])[0].T
        return Leap(grown + unit, rows)


def advance(leap: Leap | None, mean: Array, root: Array) -> tuple[Array, Array]:
    """Return mean and root of the covariance after a step.

    Parameters
    ----------
    leap : Leap or None
        None for no step at all.
    mean : array, shape (s,)
    root : array, shape (s, s)
    """
    found = take(leap, mean, root, np.zeros((0, len(mean))), np.zeros(0))
    return found.mean, found.root


def take(leap: Leap | None, mean: Array, root: Array, readings: Array, deviations: Array) -> Taken:
    """Return a step, and measurements after it.

    Parameters
    ----------
    leap : Leap or None
        None for no step at all.
    mean : array, shape (s,)
    root : array, shape (s, s)
    readings : array, shape (o, s)
        What is measured of the state.
    deviations : array, shape (o,)
        Of the noise, positive.
    """
    size, count, n = len(mean), len(readings), 0 if leap is None else len(leap.noise)
    if not size:
        return Taken(mean, root, np.diag(deviations), np.zeros((count, 0)))
    # Measurements last: orthogonal transformations keep the digits of small rows that stand below large ones.
    stacked = np.zeros((size + n + count, count + size), order="F")
    if leap is None:
        stacked[:size, count:] = root.T
    else:
        mean = leap.transition @ mean
        stacked[:size, count:] = (leap.transition @ root).T
        stacked[size : size + n, count:] = leap.noise
    if count:
        known = stacked[: size + n]
        known[:, :count] = known[:, count:] @ readings.T
        stacked[_places(size + n, count)] = deviations
    factor = lapack.dgeqrf(stacked, overwrite_a=1)[0]
    upper = factor[: count + size] * _upper(count + size)
    return Taken(mean, upper[count:, count:].T, upper[:count, :count], upper[:count, count:])


@lru_cache(maxsize=64)
def _upper(size: int) -> Array:
    return np.asfortranarray(np.triu(np.ones((size, size))))


@lru_cache(maxsize=64)
def _places(before: int, count: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the places of the deviations, below so many rows."""
    return np.arange(before, before + count), np.arange(count)
