"""Scales on which the last steps of a search are taken, around the point where it ended.

A chart is what it is in geometry: coordinates around a point. Nothing is drawn here.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lodekit.learning.objective import Objective
from lodekit.learning.searches.search import Optimum, limits_around

__all__ = ["Linear", "LocalChart", "Logarithmic", "put_at_walls"]

Array = NDArray[np.float64]
#: Of the size to expect of it, a parameter this close to its bound sits there.
_WALL = 1e-9
#: One that is closer than this is put there, where the objective loses no more than that.
_BESIDE, _NOTHING = 1e-6, 1e-3


def put_at_walls(objective: Objective, optimum: Optimum) -> Optimum:
    """Return an optimum in which parameters next to their bounds sit there, all at one distance.

    On the scale of the search a bound is infinitely far away. How far a search goes towards it before it finds that
    nothing changes any more depends on rounding, and so on units; what is best at the bound does not.

    Parameters
    ----------
    objective : Objective
    optimum : Optimum
    """
    layout, best = objective.layout, optimum
    for place, number in enumerate(layout.learned):
        transform, x = layout.transforms[number], best.x.copy()
        value = transform.forward(float(x[place]))
        for bound, sign in ((transform.low, 1.0), (transform.high, -1.0)):
            if best.at_bound[place] or not abs(value - bound) < _BESIDE * transform.size:
                continue
            x[place] = transform.inverse(bound + sign * _WALL * transform.size)
            with np.errstate(all="ignore"):
                there = objective.value(x)
            if there >= best.value - _NOTHING:
                at_bound = best.at_bound.copy()
                at_bound[place] = True
                best = replace(best, x=x, value=there, at_bound=at_bound)
    return best


class LocalChart(Protocol):
    """Coordinates around a point where a search ended: the objective as a function of moves `y` from it, shape (n,)."""

    @property
    def objective(self) -> Objective:
        """What is maximised."""

    @property
    def limits(self) -> tuple[Array, Array]:
        """The smallest and largest moves, each of shape (n,)."""

    def point(self, y: Array) -> Array:
        """Return the vector of the search after a move."""

    def evaluate(self, y: Array) -> tuple[float, Array]:
        """Return the objective after a move, and its gradient in the move."""

    def walls(self, y: Array, slope: Array) -> NDArray[np.bool_]:
        """Return which entries have come to where nothing is beyond, shape (n,).

        Parameters
        ----------
        y : array, shape (n,)
            The move.
        slope : array, shape (n,)
            The gradient in the move.
        """

    def from_search(self, curvature: Array, y: Array, slope: Array) -> Array:
        """Return minus the Hessian in the move, from that on the scale of the search.

        Parameters
        ----------
        curvature : array, shape (n, n)
            To be turned.
        y : array, shape (n,)
            The move.
        slope : array, shape (n,)
            The gradient in the move.
        """

    def to_search(self, curvature: Array, y: Array, slope: Array) -> Array:
        """Return minus the Hessian on the scale of the search, from that in the move.

        Parameters
        ----------
        curvature, y, slope : arrays
            As for `from_search`.
        """


def _limits(objective: Objective, x: Array) -> tuple[Array, Array]:
    """Return the smallest and largest moves from a point on the scale of the search."""
    low, high = limits_around(objective, x)
    return low - x, high - x


def _pressed(chart: LocalChart, y: Array, slope: Array) -> NDArray[np.bool_]:
    """Return which levels of noise press against limits of their search, among all entries."""
    (low, high), noise = chart.limits, chart.objective.layout.blocks.noise
    found = np.zeros(len(y), dtype=bool)
    found[noise] = ((y <= low) & (slope < 0.0) | (y >= high) & (slope > 0.0))[noise]
    return found


class Logarithmic:
    """The scale of the search itself, on which positive parameters are logarithms, and their bounds infinitely far.

    Parameters
    ----------
    objective : Objective
    x : array, shape (n,)
        Where all moves start.
    """

    def __init__(self, objective: Objective, x: Array) -> None:
        self.objective, self.x = objective, x

    @cached_property
    def limits(self) -> tuple[Array, Array]:
        """The smallest and largest moves."""
        return _limits(self.objective, self.x)

    def point(self, y: Array) -> Array:
        """Return the vector of the search after a move."""
        return np.asarray(self.x + y)

    def evaluate(self, y: Array) -> tuple[float, Array]:
        """Return the objective after a move, and its gradient in the move."""
        return self.objective.evaluate(self.point(y))

    def walls(self, y: Array, slope: Array) -> NDArray[np.bool_]:
        """Return which entries have come to where nothing is beyond: levels of noise, at limits of their search.

        Parameters
        ----------
        y, slope : arrays
            See `LocalChart`.
        """
        return _pressed(self, y, slope)

    def from_search(self, curvature: Array, y: Array, slope: Array) -> Array:
        """Return minus the Hessian in the move, which is that of the search.

        Parameters
        ----------
        curvature, y, slope : arrays
            See `LocalChart`.
        """
        return curvature.copy()

    def to_search(self, curvature: Array, y: Array, slope: Array) -> Array:
        """Return minus the Hessian on the scale of the search, which is that in the move.

        Parameters
        ----------
        curvature, y, slope : arrays
            See `LocalChart`.
        """
        return curvature.copy()


class Linear:
    """Parameters as they are, in units of their slopes at the start or of a hundredth of the size to expect of them.

    Deviations of free functions are reciprocals: a common factor of parameters often is one of the curves that a free
    function makes, and its deviation the reciprocal of it, so this valley is straight as well. All else is as it is
    searched.

    Parameters
    ----------
    objective : Objective
    x : array, shape (n,)
        Where all moves start.
    """

    def __init__(self, objective: Objective, x: Array) -> None:
        self.objective, self.x = objective, x
        layout = objective.layout
        self.transforms = [layout.transforms[number] for number in layout.learned]
        places = list(zip(self.transforms, x.tolist(), strict=False))
        self.values = np.array([transform.forward(point) for transform, point in places])
        # On the scale of the search a parameter that has run away towards zero hardly moves any more; here it does.
        self.slopes = np.array([max(transform.slope(point), transform.scale) for transform, point in places])
        self.reciprocal = layout.blocks.deviations

    @cached_property
    def limits(self) -> tuple[Array, Array]:
        """The smallest and largest moves: parameters come as close to their bounds as counts for nothing."""
        low, high = _limits(self.objective, self.x)
        for k, transform in enumerate(self.transforms):
            gap = _WALL * transform.size
            if not transform.is_unbounded:
                low[k] = -np.inf if np.isinf(transform.low) else transform.low + gap
                high[k] = np.inf if np.isinf(transform.high) else transform.high - gap
                low[k], high[k] = ((edge - self.values[k]) / self.slopes[k] for edge in (low[k], high[k]))
                low[k], high[k] = min(low[k], 0.0), max(high[k], 0.0)
        for limit in (low, high):
            limit[self.reciprocal] = -np.expm1(-limit[self.reciprocal])
        return low, high

    def point(self, y: Array) -> Array:
        """Return the vector of the search after a move."""
        found = self.x + y
        for k, transform in enumerate(self.transforms):
            # Rounding must not move what does not move.
            found[k] = transform.inverse(self.values[k] + self.slopes[k] * y[k]) if y[k] else self.x[k]
        found[self.reciprocal] = self.x[self.reciprocal] - np.log1p(-y[self.reciprocal])
        return np.asarray(found)

    def evaluate(self, y: Array) -> tuple[float, Array]:
        """Return the objective after a move, and its gradient in the move."""
        x = self.point(y)
        value, gradient = self.objective.evaluate(x)
        return value, gradient / self._speeds(x)

    def walls(self, y: Array, slope: Array) -> NDArray[np.bool_]:
        """Return which entries have come to where nothing is beyond: levels of noise, and parameters at their bounds.

        Parameters
        ----------
        y, slope : arrays
            See `LocalChart`.
        """
        low, high = self.limits
        found = _pressed(self, y, slope)
        for k, transform in enumerate(self.transforms):
            at_wall = (y[k] <= low[k] and slope[k] <= 0.0) or (y[k] >= high[k] and slope[k] >= 0.0)
            found[k] = not transform.is_unbounded and at_wall
        return found

    def from_search(self, curvature: Array, y: Array, slope: Array) -> Array:
        """Return minus the Hessian in the move, from that on the scale of the search and the gradient in the move.

        Parameters
        ----------
        curvature, y, slope : arrays
            See `LocalChart`.
        """
        speeds, bends = self._speeds(self.point(y)), self._bends(self.point(y))
        return np.asarray((curvature + np.diag(slope * speeds * bends)) / np.outer(speeds, speeds))

    def to_search(self, curvature: Array, y: Array, slope: Array) -> Array:
        """Return minus the Hessian on the scale of the search, from the one in the move and the gradient in it.

        Parameters
        ----------
        curvature, y, slope : arrays
            See `LocalChart`.
        """
        speeds, bends = self._speeds(self.point(y)), self._bends(self.point(y))
        return np.asarray(curvature * np.outer(speeds, speeds) - np.diag(slope * speeds * bends))

    def _speeds(self, x: Array) -> Array:
        """Return how fast moves change with the vector of the search, shape (n,)."""
        found = np.ones(len(x))
        for k, transform in enumerate(self.transforms):
            found[k] = transform.slope(float(x[k])) / self.slopes[k]
        found[self.reciprocal] = np.exp(self.x[self.reciprocal] - x[self.reciprocal])
        return found

    def _bends(self, x: Array) -> Array:
        """Return how fast the logarithms of these speeds change, shape (n,)."""
        found = np.zeros(len(x))
        for k, transform in enumerate(self.transforms):
            found[k] = transform.bend(float(x[k]))
        found[self.reciprocal] = -1.0
        return found
