"""Checks of what users give, counts, seeds and times, and of the numbers that they get."""

from __future__ import annotations

import math
from numbers import Integral, Real

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lodekit.errors import DataError, LodekitError

__all__ = ["check_count", "check_finite", "check_positive", "check_seed", "read_times"]

Array = NDArray[np.float64]


def check_positive(name: str, value: object) -> None:
    """Raise where an argument is not a positive finite number.

    Parameters
    ----------
    name : str
        Of the argument, for the message.
    value : object
        What the user gave.
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise LodekitError(f"expected {name} as a positive finite number, got {value!r}")


def check_count(name: str, value: object) -> None:
    """Raise where an argument is not a whole number of at least one.

    Parameters
    ----------
    name : str
        Of the argument, for the message.
    value : object
        What the user gave.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise LodekitError(f"expected {name} as a whole number of at least 1, got {value!r}")


def check_seed(seed: object) -> None:
    """Raise where a random generator cannot start from a seed.

    Parameters
    ----------
    seed : object
        What the user gave as `random_state`.
    """
    try:
        np.random.default_rng(seed)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise LodekitError(f"expected random_state as a whole number of zero or more, or None, got {seed!r}") from None


def check_finite(values: Array, times: Array) -> None:
    """Raise where a prediction is not finite, and say at which time.

    Parameters
    ----------
    values : array, shape (n, ...)
        The prediction.
    times : array, shape (n,)
        Of the prediction, in the user's units.
    """
    if np.isfinite(values).all():
        return
    bad = ~np.isfinite(values.reshape(len(times), -1)).all(axis=1)
    if bad.any():
        raise DataError(f"the solution overflows at t = {times[bad][0]:g}; predict closer to the data")


def read_times(t: ArrayLike) -> Array:
    """Return times as an array of finite numbers, shape (n,); raise where that cannot be.

    Parameters
    ----------
    t : array-like, shape (n,), or a number
        What the user gave, in the user's units.
    """
    if np.asarray(t).dtype.kind in "cmM":
        raise DataError("expected times as real numbers, got complex ones or dates; convert them first")
    try:
        times = np.atleast_1d(np.asarray(t, dtype=float))
    except (TypeError, ValueError):
        raise DataError(f"expected times as numbers, got {type(t).__name__}") from None
    if times.ndim != 1 or not np.isfinite(times).all():
        raise DataError(f"expected one row of finite times, got shape {times.shape}")
    return times
