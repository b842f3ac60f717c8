"""Covariances of averages: stacks of derivatives of a covariance, averaged over the intervals of two observables.

The covariance of two averages is an average of the covariance over lags. Intervals that are long against the lengthscale
are done in closed form, by differences of antiderivatives; in short ones these would cancel, and a rule of
Gauss and Legendre is exact to rounding, broken where the covariance has a kink.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.prior.latents import Latent

__all__ = ["Averageable", "distinct_windows", "window_stack"]

Array = NDArray[np.float64]
#: Intervals up to so many lengthscales are short, and how many nodes a piece of one needs; of very short ones, fewer.
_SHORT, _NODES = 2.0, 12
_VERY_SHORT, _FEW = 0.5, 7
_RULES = {count: np.polynomial.legendre.leggauss(count) for count in (_NODES, _FEW)}


@runtime_checkable
class Averageable(Protocol):
    """A covariance whose antiderivatives are known."""

    def antiderivatives(self, u: Array) -> tuple[Array, Array]:
        """Return h_(-2) and h_(-1) at scaled lags u: twofold and onefold antiderivatives of h_0, even and odd."""


def distinct_windows(windows: Array) -> list[tuple[float, NDArray[np.intp]]]:
    """Return the different windows, and which observables have each.

    Parameters
    ----------
    windows : array, shape (o,)

    Examples
    --------
    >>> [(h, rows.tolist()) for h, rows in distinct_windows(np.array([0.0, 0.5, 0.0]))]
    [(0.0, [0, 2]), (0.5, [1])]
    """
    return [(float(h), np.flatnonzero(windows == h)) for h in np.unique(windows)]


def window_stack(
    latent: Latent, lag: Array, lengthscale: float, windows: tuple[float, float], order: int, *, lagged: bool = False
) -> Array:
    """Return h_0 ... h_order, averaged over the intervals that end at two times, shape (order + 1, ...).

    Parameters
    ----------
    latent : Latent
    lag : array
        The first time minus the second, in scaled time.
    lengthscale : float
    windows : (float, float)
        The lengths of the intervals, in scaled time; zero for values at one time.
    order : int
    lagged : bool
        Whether averages of ``u h_m`` are wanted instead; that of order zero is not made.
    """
    first, second = windows[0] / lengthscale, windows[1] / lengthscale
    u = lag / lengthscale
    breaks = bool(np.isfinite(latent.smoothness))
    is_long = [length > _SHORT for length in (first, second)]
    if any(is_long) and not isinstance(latent, Averageable):
        raise LodekitError(
            f"the covariance {latent.name} has no antiderivative, so averages over more than {_SHORT:g} lengthscales "
            "are out of reach; use latent='se' or a Matern covariance"
        )

    def points(depth: int) -> Callable[[Array], Array]:
        return lambda at: _antiderived(latent, at, order, depth, lagged=lagged)

    if all(is_long):
        total, twice = np.zeros((order + 1, *u.shape)), points(2)
        for sign, shift in ((1.0, second), (1.0, -first), (-1.0, second - first), (-1.0, 0.0)):
            total += sign * twice(u + shift)
        return total / (first * second)
    if is_long[0]:
        once, length = points(1), first
        corners = [(1.0, u), (-1.0, u - first)]
        short, sign = second, 1.0
    elif is_long[1]:
        once, length = points(1), second
        corners = [(1.0, u + second), (-1.0, u)]
        short, sign = first, -1.0
    else:
        return _both_short(points(0), u, first, second, breaks=breaks)
    parts = [weight * _both_short(once, at, *_side(sign, short), breaks=breaks) for weight, at in corners]
    return (parts[0] + parts[1]) / length


def _side(sign: float, short: float) -> tuple[float, float]:
    return (0.0, short) if sign > 0 else (short, 0.0)


def _antiderived(latent: Latent, u: Array, order: int, depth: int, *, lagged: bool) -> Array:
    """Return antiderivatives of h_0 ... h_order, or of u h_m, as many-fold as the depth."""
    # Listed from h_(-2) on.
    known: list[Array] = []
    if depth or lagged:
        known = list(latent.antiderivatives(u)) if isinstance(latent, Averageable) else [np.zeros_like(u)] * 2
    known = known or [u, u]
    known += list(latent.stack(np, u, order))
    found = np.empty((order + 1, *u.shape))
    for m in range(order + 1):
        place = m + 2 - depth
        if not lagged:
            found[m] = known[place]
        elif m == 0:
            found[m] = 0.0
        else:
            # The antiderivatives of u h_m are u h_(m-1) - h_(m-2) and u h_(m-2) - 2 h_(m-3).
            found[m] = u * known[place] - (depth * known[place - 1] if depth else 0.0)
    return found


def _both_short(at: Callable[[Array], Array], u: Array, first: float, second: float, *, breaks: bool) -> Array:
    """Return the mean of a function of ``u - a + b`` over ``0 <= a <= first`` and ``0 <= b <= second``."""
    if not first and not second:
        return at(u)
    # The density of b - a is a trapezium.
    corners = sorted([-first, min(0.0, second - first), max(0.0, second - first), second])
    height = 1.0 / max(first, second)
    slope = 1.0 / (first * second) if first and second else np.inf
    count = _FEW if max(first, second) <= _VERY_SHORT else _NODES
    points, weights = _RULES[count]
    total: Array | float = 0.0
    edges: list[Array | float] = list(corners)
    if breaks:
        kink = np.clip(-u, -first, second)
        edges = list(np.sort(np.stack(np.broadcast_arrays(*corners, kink)), axis=0))
    for low, high in zip(edges[:-1], edges[1:], strict=True):
        width = high - low
        if not np.any(width > 0):
            continue
        for point, weight in zip(points, weights, strict=True):
            s = low + width * (0.5 * (1.0 + point))
            share = height if not np.isfinite(slope) else np.minimum(height, slope * np.minimum(s + first, second - s))
            total = total + (0.5 * weight * width * share) * at(u + s)
    return np.asarray(total)
