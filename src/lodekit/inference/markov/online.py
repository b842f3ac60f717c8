"""A filter that takes one row at a time: covariances are kept as roots, so that they cannot lose their sign.

What is known of the state, the noise of a step, and the noise of measurements stand below each other in one matrix;
orthogonal transformations make a triangle of it, which holds the deviations of the measurements, the gain and the root
of what is left. Nothing is subtracted, so noise may be a millionth of the signal, for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from lodekit.inference.markov.inside import Motion
from lodekit.inference.markov.states import Space
from lodekit.inference.markov.whitening import roots_of

__all__ = ["Leap", "Taken", "advance", "make_leaps", "take"]

Array = NDArray[np.float64]


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


def make_leaps(space: Space, lengths: Array) -> list[Leap]:
    """Return steps of some lengths.

    Parameters
    ----------
    space : Space
    lengths : array, shape (k,)
        In scaled time, none negative.
    """
    motion, n, size = Motion(space, lengths), space.noisy, space.size
    transitions, noises = np.zeros((len(lengths), size, size)), np.zeros((len(lengths), n, size))
    transitions[:, :n, :n], transitions[:, n:, n:] = motion.noisy.transitions, motion.quiet.transitions
    if n:
        noises[:, :, :n] = roots_of(motion.noisy.noises).swapaxes(-1, -2)
    return [Leap(transition, noise) for transition, noise in zip(transitions, noises, strict=True)]


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


def take(leap: Leap | None, mean: Array, root: Array, rows: Array, deviations: Array) -> Taken:
    """Return a step, and measurements after it.

    Parameters
    ----------
    leap : Leap or None
        None for no step at all.
    mean : array, shape (s,)
    root : array, shape (s, s)
    rows : array, shape (o, s)
        What is measured of the state.
    deviations : array, shape (o,)
        Of the noise, positive.
    """
    size, count, n = len(mean), len(rows), 0 if leap is None else len(leap.noise)
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
        known[:, :count] = known[:, count:] @ rows.T
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
