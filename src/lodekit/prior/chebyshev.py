"""Chebyshev series: smooth functions on an interval, from values at a few points of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["chebyshev_basis", "chebyshev_size", "chebyshev_transform"]

Array = NDArray[np.float64]


def chebyshev_size(turns: float) -> int:
    """Return how many terms a series needs for waves up to a frequency, an even number.

    Sizes are rounded up to eighths of an octave, so that neighbours in a search share the matrices of one size.

    Parameters
    ----------
    turns : float
        The highest frequency times half the length of the interval.
    """
    # The terms of a wave are Bessel functions J_k(turns), which fall to rounding a little beyond k = turns.
    needed = turns + 6.0 * turns ** (1 / 3) + 14.0
    return 2 * int(np.ceil(2.0 ** (np.ceil(8.0 * np.log2(needed)) / 8.0) / 2.0))


def chebyshev_basis(x: Array, size: int) -> Array:
    """Return ``T_0 ... T_(size - 1)`` at points in [-1, 1], shape (size, n), by their recurrence.

    Parameters
    ----------
    x : array, shape (n,)
    size : int
    """
    found = np.empty((size, len(x)))
    found[0] = 1.0
    if size > 1:
        found[1] = x
    twice = 2.0 * x
    for k in range(2, size):
        np.multiply(twice, found[k - 1], out=found[k])
        found[k] -= found[k - 2]
    return found


def chebyshev_transform(size: int) -> tuple[Array, Array]:
    """Return the points of a series, shape (size,), and the matrix from values there to its terms, (size, size).

    Parameters
    ----------
    size : int
    """
    angles = (np.arange(size) + 0.5) * (np.pi / size)
    matrix = np.cos(np.outer(np.arange(size), angles)) * (2.0 / size)
    matrix[0] *= 0.5
    return np.cos(angles), matrix
