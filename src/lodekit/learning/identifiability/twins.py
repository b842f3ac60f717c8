"""Twins: other values of the parameters at which all that was measured behaves exactly as at the estimate.

Two lags in a row that change places are such values; others are harder to see. What was measured obeys relations whose
coefficients are functions of the parameters, in a form that is unique. Values at which they are those of the estimate
solve as many polynomial equations: Levenberg's steps are taken from many values around the estimate, all at once, and
where they end with nothing left over is a twin. So no twin is a false one, and one far away may be missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.learning.identifiability.structure import Structure
from lodekit.learning.transforms import Layout
from lodekit.prior.compile import ScalarTable

__all__ = ["Twin", "find_twins"]

Array = NDArray[np.float64]
#: Of more parameters than this nothing is sought: a search from some starts finds too little.
_MOST = 8
#: From so many values it is sought, in so many steps; as factors they are within this of the estimate.
_STARTS, _STEPS, _AROUND = 96, 40, 1000.0
#: What is left over of coefficients, relative to them, where they are the same.
_SAME = 1e-9
#: Twins this close to each other, as logarithms, or to the estimate, are one.
_CLOSE = 1e-3
#: Below this share of their size coefficients are compared as they are, above it as logarithms.
_SMALL = 0.3
#: A step is at most this long, as a logarithm.
_LONGEST = 2.0
#: Steps that have to be damped so much lead nowhere.
_STUCK = 1e3
#: Directions with less influence on the coefficients than this, relative to others, are open: no place is isolated.
_OPEN = 1e-7


@dataclass(frozen=True, eq=False)
class Twin:
    """Other values at which all that was measured behaves as at the estimate.

    Parameters
    ----------
    theta : array, shape (p,)
        All parameters, in the user's units.
    moves : array, shape (k, k)
        By how much learned parameters move there, on the scale of the search, for a move of each at the estimate, where
        what was measured changes alike.
    """

    theta: Array
    moves: Array


def find_twins(structure: Structure, layout: Layout, theta: Array) -> list[Twin]:
    """Return other values within all bounds at which what was measured behaves exactly alike, nearest first.

    Signs that can change together are left out: there are other words for these. So are values with which all channels
    behave alike, as where p and q change places in ``p*q*y'' + (p + q)*y' + y = u``: that is the same plant. Of
    parameters that are undetermined anyway one stays where it is for each way in which they can move.

    Parameters
    ----------
    structure : Structure
    layout : Layout
        Which parameters are learned, and their bounds.
    theta : array, shape (p,)
        All parameters at the estimate, in the user's units.

    Examples
    --------
    >>> import lodekit as lk
    >>> from lodekit.learning.transforms import parameter_transforms
    >>> lags = {name: lk.Parameter(positive=True) for name in ("p", "q")}
    >>> system = lk.System("p*h' = u - h; q*y' = h - y", parameters=lags)
    >>> layout = Layout(("p", "q"), *parameter_transforms(("p", "q"), lags), 0, 0, 1)
    >>> [twin] = find_twins(Structure(system, ("y", "u")), layout, np.array([2.0, 5.0]))
    >>> [round(float(value), 6) for value in twin.theta]
    [5.0, 2.0]
    """
    pivots = {next(iter(way)) for way in structure.directions}
    free = np.array([n for n in layout.learned if layout.names[n] not in pivots], dtype=int)
    if not len(free) or len(layout.learned) > _MOST or (table := structure.behaviour) is None:
        return []
    with np.errstate(all="ignore"):
        equations = _Equations.at(table, layout, free, theta)
        if equations is None:
            return []
        found: list[Array] = []
        for end in _most_positive(equations.solve()):
            is_known = any(_is_close(np.abs(end[free]), np.abs(other[free])) for other in [theta, *found])
            if not is_known and _is_inside(layout, free, end) and equations.is_isolated(end):
                found.append(end)
        found = [end for end in found if not _is_same_plant(structure, theta, end)]
        found.sort(key=lambda end: float(np.sum(np.log(np.abs(end[free] / theta[free])) ** 2)))
        twins = [Twin(end, equations.moves(end)) for end in found]
    return [twin for twin in twins if np.isfinite(twin.moves).all()]


@dataclass(frozen=True, eq=False)
class _Equations:
    """Coefficients that should be those of the estimate, compared on a scale that is logarithmic for large ones."""

    table: ScalarTable
    layout: Layout
    free: NDArray[np.int_]
    theta: Array
    used: NDArray[np.bool_]
    values: Array
    sizes: Array

    @classmethod
    def at(cls, table: ScalarTable, layout: Layout, free: NDArray[np.int_], theta: Array) -> _Equations | None:
        """Return the equations at an estimate; None where something is not finite, or its place is not isolated."""
        values, slopes = (each[0] for each in table.evaluate_many(theta[None]))
        own = np.abs(slopes[free])
        if not np.isfinite(values).all() or not np.isfinite(slopes).all() or not theta[free].all():
            return None
        used = own.any(axis=0)
        sizes = np.where(values != 0.0, np.abs(values), own.max(axis=0))
        if np.count_nonzero(used) < len(free):
            return None
        found = cls(table, layout, free, theta, used, values[used], _SMALL * sizes[used])
        return found if found.is_isolated(theta) else None

    def is_isolated(self, theta: Array) -> bool:
        """Return whether nothing close to a point does the same: the coefficients tell all free parameters there."""
        strengths = np.linalg.svd(np.nan_to_num(self.look(theta[None])[1][0]), compute_uv=False)
        return bool(strengths[-1] > _OPEN * strengths[0])

    def look(self, theta: Array) -> tuple[Array, Array]:
        """Return what is left over at many points, shape (n, s), and its derivatives as of logarithms, (n, s, k)."""
        values, slopes = self.table.evaluate_many(theta)
        own = values[:, self.used] / self.sizes
        left = np.arcsinh(own) - np.arcsinh(self.values / self.sizes)
        rates = slopes[:, self.free][:, :, self.used]
        rates /= (self.sizes * np.sqrt(1.0 + own**2))[:, None, :]
        return left, rates.transpose(0, 2, 1)

    def starts(self) -> Array:
        """Return values around the estimate, shape (n, p), always the same; with other signs where they may be."""
        generator = np.random.default_rng(0)
        found = np.tile(self.theta, (_STARTS, 1))
        reach = np.log(_AROUND) * np.where(np.arange(_STARTS) % 2, 1.0, 0.4)
        for n in self.free:
            found[:, n] *= np.exp(reach * generator.uniform(-1.0, 1.0, _STARTS))
            transform = self.layout.transforms[int(n)]
            if transform.low < 0.0 < transform.high:
                found[: _STARTS // 3, n] *= generator.choice([-1.0, 1.0], _STARTS // 3)
        return found

    def solve(self) -> list[Array]:
        """Return where nothing is left over."""
        theta, ends = self.starts(), list[Array]()
        damping = np.full(len(theta), 1e-2)
        left, rates = self.look(theta)
        cost = np.nan_to_num(np.sum(left**2, axis=1), nan=np.inf)
        unit = np.eye(len(self.free))
        for _ in range(_STEPS):
            square = np.nan_to_num(rates.transpose(0, 2, 1) @ rates)
            bent = damping * (1e-12 + np.trace(square, axis1=1, axis2=2))
            slope = np.nan_to_num(np.einsum("nsk,ns->nk", rates, left))
            step = -np.linalg.solve(square + (bent + 1e-300)[:, None, None] * unit, slope[..., None])[..., 0]
            step /= np.maximum(1.0, np.abs(step).max(axis=1, keepdims=True) / _LONGEST)
            tried = theta.copy()
            tried[:, self.free] *= np.exp(step)
            left_there, rates_there = self.look(tried)
            cost_there = np.nan_to_num(np.sum(left_there**2, axis=1), nan=np.inf)
            better = cost_there < cost
            theta[better], left[better], rates[better] = tried[better], left_there[better], rates_there[better]
            cost = np.minimum(cost, cost_there)
            damping = np.where(better, np.maximum(0.1 * damping, 1e-14), 5.0 * damping)
            open_ = (cost > _SAME**2) & (damping < _STUCK)
            ends += [theta[k] for k in np.flatnonzero(cost <= _SAME**2)]
            if not open_.any():
                break
            theta, left, rates, cost, damping = (each[open_] for each in (theta, left, rates, cost, damping))
        return ends

    def moves(self, theta: Array) -> Array:
        """Return by how much all learned parameters move there for a move of each at the estimate: see `Twin`."""
        learned = self.layout.learned
        slopes = []
        for point in (self.theta, theta):
            _, own = (each[0] for each in self.table.evaluate_many(point[None]))
            units = [self._slope(n, float(point[n])) / float(point[n]) for n in learned]
            slopes.append((own[learned][:, self.used] * np.array(units)[:, None] / self.sizes).T)
        return np.asarray(np.linalg.pinv(slopes[1], rcond=_OPEN) @ slopes[0])

    def _slope(self, number: int, value: float) -> float:
        transform = self.layout.transforms[number]
        return transform.slope(transform.inverse(value))


def _is_same_plant(structure: Structure, theta: Array, other: Array) -> bool:
    """Return whether no channel at all behaves in another way."""
    if structure.whole is None:
        return False
    here, there = structure.whole.evaluate_many(np.stack([theta, other]))[0]
    return bool(np.all(np.abs(there - here) <= 100.0 * _SAME * np.maximum(np.abs(here), np.abs(there))))


def _is_close(first: Array, second: Array) -> bool:
    return bool(np.all(np.abs(np.log(first / second)) < _CLOSE))


def _is_inside(layout: Layout, free: NDArray[np.int_], theta: Array) -> bool:
    return all(layout.transforms[int(n)].low < theta[n] < layout.transforms[int(n)].high for n in free)


def _most_positive(ends: Sequence[Array]) -> list[Array]:
    """Return points with more positive values first, in their order otherwise."""
    return sorted(ends, key=lambda end: -int(np.count_nonzero(end > 0.0)))
