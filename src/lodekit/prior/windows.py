"""Covariances of averages: stacks of derivatives of a covariance, averaged over the intervals of two observables.

The covariance of two averages is an average of the covariance over lags. Intervals that are long against the
lengthscale are done in closed form, by differences of antiderivatives; in short ones these would cancel, and a rule of
Gauss and Legendre is exact to rounding, broken where the covariance has a kink.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.prior.latents import Latent

__all__ = ["Averageable", "distinct_windows", "window_stack", "window_stacks"]

Array = NDArray[np.float64]
#: Intervals up to so many lengthscales are short, and how many nodes a piece of one needs; of very short ones, fewer.
_SHORT, _NODES = 2.0, 12
_VERY_SHORT, _FEW = 0.5, 7
#: So many lags are looked at together.
_LARGE = 20_000
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


def window_stack(latent: Latent, lag: Array, lengthscale: float, windows: tuple[float, float], order: int) -> Array:
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
    """
    return np.asarray(window_stacks(latent, lag, lengthscale, windows, order, lagged=False)[0])


def window_stacks(
    latent: Latent, lag: Array, lengthscale: float, windows: tuple[float, float], order: int, *, lagged: bool
) -> Array:
    """Return the same, and where it is wanted averages of ``u h_m`` (not of order zero): (1 or 2, order + 1, ...).

    Parameters
    ----------
    latent, lag, lengthscale, windows, order
        As in `window_stack`.
    lagged : bool
        Whether products with the scaled lag u are wanted.
    """
    first, second = windows[0] / lengthscale, windows[1] / lengthscale
    u = lag / lengthscale
    is_long = [length > _SHORT for length in (first, second)]
    if any(is_long) and not isinstance(latent, Averageable):
        raise LodekitError(
            f"the covariance {latent.name} has no antiderivative, so averages over more than {_SHORT:g} lengthscales "
            "are out of reach; use latent='se' or a Matern covariance"
        )
    breaks = bool(np.isfinite(latent.smoothness))

    def points(depth: int) -> Callable[[Array], Array]:
        return lambda at: _antiderived(latent, at, order, depth, lagged=lagged)

    if all(is_long):
        twice = points(2)
        corners = ((1.0, second), (1.0, -first), (-1.0, second - first), (-1.0, 0.0))
        return np.asarray(sum(sign * twice(u + shift) for sign, shift in corners)) / (first * second)
    if is_long[0]:
        ends = (_average(points(1), at, 0.0, second, breaks=breaks) for at in (u, u - first))
    elif is_long[1]:
        ends = (_average(points(1), at, first, 0.0, breaks=breaks) for at in (u + second, u))
    else:
        return _average(points(0), u, first, second, breaks=breaks)
    late, early = ends
    return np.asarray((late - early) / max(first, second))


def _antiderived(latent: Latent, u: Array, order: int, depth: int, *, lagged: bool) -> Array:
    """Return antiderivatives of h_0 ... h_order, and of u h_m, as many-fold as the depth."""
    # Listed from h_(-2) on.
    known = list(latent.antiderivatives(u)) if depth and isinstance(latent, Averageable) else [u, u]
    known += list(latent.stack(np, u, order))
    found = np.empty((2 if lagged else 1, order + 1, *u.shape))
    for m in range(order + 1):
        place = m + 2 - depth
        found[0, m] = known[place]
        if lagged and m:
            # The antiderivatives of u h_m are u h_(m-1) - h_(m-2) and u h_(m-2) - 2 h_(m-3).
            found[1, m] = u * known[place] - depth * known[place - 1] if depth else u * known[place]
        elif lagged:
            found[1, m] = 0.0
    return found


def _average(at: Callable[[Array], Array], u: Array, first: float, second: float, *, breaks: bool) -> Array:
    """Return the mean of functions of ``u - a + b`` over ``0 <= a <= first`` and ``0 <= b <= second``, both short."""
    if not first and not second:
        return at(u)
    # The density of b - a is a trapezium.
    corners = sorted([-first, min(0.0, second - first), max(0.0, second - first), second])
    points, weights = _RULES[_FEW if max(first, second) <= _VERY_SHORT else _NODES]
    edges: list[Array] = [np.full(u.shape, corner) for corner in corners]
    if breaks:
        edges = list(np.sort(np.stack([*edges, np.clip(-u, -first, second)]), axis=0))
    shares, places = [], []
    for low, high in pairwise(edges):
        width = high - low
        if not (width > 0).any():
            continue
        for point, weight in zip(points, weights, strict=True):
            s = low + width * (0.5 * (1.0 + point))
            height = 1.0 if not first or not second else np.minimum(s + first, second - s) / min(first, second)
            shares.append(0.5 * weight * width * np.minimum(1.0, height) / max(first, second))
            places.append(u + s)
    # Many nodes at once where arrays are small.
    several, total = max(1, _LARGE // max(u.size, 1)), None
    for start in range(0, len(places), several):
        part = slice(start, start + several)
        found = np.sum(at(np.stack(places[part])) * np.stack(shares[part]), axis=2)
        total = found if total is None else total + found
    return np.asarray(total)
