"""A filter that takes one row at a time: the covariance is kept as a root, so that it cannot lose its sign.

Over a step the root and that of the noise are turned into one by orthogonal transformations; a measurement multiplies
the root (Potter's way). Neither subtracts covariances, so noise may be a millionth of the signal, for ever.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from lodekit.inference.markov.inside import Motion
from lodekit.inference.markov.states import Space
from lodekit.inference.markov.whitening import roots_of

__all__ = ["Leap", "advance", "learn", "make_leaps"]

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


def advance(leap: Leap, mean: Array, root: Array) -> tuple[Array, Array]:
    """Return mean and root of the covariance after a step.

    Parameters
    ----------
    leap : Leap
    mean : array, shape (s,)
    root : array, shape (s, s)
    """
    size, n = len(mean), len(leap.noise)
    moved = leap.transition @ root
    mean = leap.transition @ mean
    if not n:
        return mean, moved
    stacked = np.empty((size + n, size), order="F")
    stacked[:size] = moved.T
    stacked[size:] = leap.noise
    factor = lapack.dgeqrf(stacked, overwrite_a=1)[0]
    return mean, np.tril(factor[:size].T)


def learn(mean: Array, root: Array, row: Array, error: float, variance: float) -> tuple[Array, Array]:
    """Return mean and root of the covariance, given one more measurement.

    Parameters
    ----------
    mean : array, shape (s,)
    root : array, shape (s, s)
    row : array, shape (s,)
        What is measured of the state.
    error : float
        The measurement, less what is known beside the state and what the mean says.
    variance : float
        Of its noise, positive.
    """
    seen = row @ root
    total = float(seen @ seen) + variance
    gain = (root @ seen) / total
    kept = 1.0 / (1.0 + math.sqrt(variance / total))
    return mean + gain * error, root - np.multiply.outer(gain * kept, seen)
