"""Waves at scaled times, and what differential operators make of them: each wave times a number, ``W(i w)``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["turn_back", "turn_columns", "turn_from_left", "waves_at"]

Array = NDArray[np.float64]


def waves_at(frequencies: Array, times: Array) -> Array:
    """Return all cosines, then all sines, at some times, shape (n, 2 f).

    Parameters
    ----------
    frequencies : array, shape (f,)
        Angular, in scaled time.
    times : array, shape (n,)
        Scaled.
    """
    angle, count = np.outer(times, frequencies), len(frequencies)
    found = np.empty((len(times), 2 * count))
    np.cos(angle, out=found[:, :count])
    np.sin(angle, out=found[:, count:])
    return found


def turn_columns(xp: Any, waves: Any, a: Any, b: Any) -> Any:
    """Return ``W(d)`` of all waves: columns (cosines, sines) times the coefficients ``a + i b``, shape (..., n, 2 f).

    ``W(d) cos = a cos - b sin`` and ``W(d) sin = a sin + b cos``.

    Parameters
    ----------
    xp : module
        NumPy or PyTorch.
    waves : array, shape (..., n, 2 f)
        All cosines, then all sines.
    a, b : arrays, shape (..., f)
        The coefficients of one observable on the whitened waves.
    """
    count = a.shape[-1]
    C, S = waves[..., :count], waves[..., count:]
    a, b = a[..., None, :], b[..., None, :]
    return xp.concat([C * a - S * b, S * a + C * b], axis=-1)


def turn_from_left(xp: Any, waves: Any, a: Any, b: Any) -> Any:
    """Return ``W(d)`` of all waves as `turn_columns` does, where these are rows, shape (..., 2 f, n).

    Parameters
    ----------
    xp, a, b
        As in `turn_columns`.
    waves : array, shape (..., 2 f, n)
        All cosines, then all sines.
    """
    count = a.shape[-1]
    C, S = waves[..., :count, :], waves[..., count:, :]
    a, b = a[..., :, None], b[..., :, None]
    return xp.concat([C * a - S * b, S * a + C * b], axis=-2)


def turn_back(xp: Any, amplitudes: Any, a: Any, b: Any) -> Any:
    """Return the amplitudes of plain cosines and sines from those of turned waves, shape (..., 2 f, n).

    Parameters
    ----------
    xp, a, b
        As in `turn_columns`.
    amplitudes : array, shape (..., 2 f, n)
        Of the turned waves: those of all cosines, then those of all sines.
    """
    count = a.shape[-1]
    C, S = amplitudes[..., :count, :], amplitudes[..., count:, :]
    a, b = a[..., :, None], b[..., :, None]
    return xp.concat([a * C + b * S, a * S - b * C], axis=-2)
