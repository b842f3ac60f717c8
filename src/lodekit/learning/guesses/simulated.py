"""Least squares of simulations: modes are projected out, and Levenberg's steps move the parameters.

What known inputs drive is a known function of the parameters plus modes, whose amplitudes are linear. So for any values
of the parameters the best amplitudes follow by a regression, and only parameters are searched (variable projection).
Levels of noise are what is left of each observable: the logarithms of these sums of squares are what is minimised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lodekit.data.observations import Series
from lodekit.learning.transforms import Layout
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Prior

__all__ = ["Chart", "Fitted", "Simulation"]

Array = NDArray[np.float64]
#: Amplitudes of modes are held back by so little, relative to the largest mode; noise is at least this share of data.
_RIDGE, _FLOOR = 1e-7, 1e-6
#: Levels of noise to begin with, as shares of the data.
_NOISE = 0.3
#: The first damping, by which factors it is changed, and how often in one step.
_DAMPING, _MORE, _LESS, _TRIES = 1e-2, 6.0, 0.2, 6
#: A step goes no farther than this on the scale of each parameter.
_LONGEST = 1.5
#: How far ahead the bend of a valley is measured, as a share of a step, and how large a correction may be.
_AHEAD, _SMALL = 0.1, 0.75
#: So far may a parameter get from the size to expect, as a logarithm.
_FAR = 8.0


@dataclass(frozen=True)
class Chart:
    """Coordinates in which steps are taken: logarithms of what is positive, multiples of the size of what may be any.

    Parameters
    ----------
    layout : Layout
        Of what is learned.
    """

    layout: Layout

    def inward(self, theta: Array) -> Array:
        """Return the coordinates of the learned parameters, from all parameters."""
        pairs = self.layout.transforms.items()
        return np.array([theta[n] / t.size if t.is_unbounded else t.inverse(float(theta[n])) for n, t in pairs])

    def outward(self, z: Array) -> Array:
        """Return all parameters at some coordinates."""
        theta = self.layout.fixed.copy()
        for point, (n, t) in zip(z.tolist(), self.layout.transforms.items(), strict=True):
            theta[n] = t.size * point if t.is_unbounded else t.forward(point)
        return theta

    def slopes(self, z: Array) -> Array:
        """Return derivatives of the learned parameters in their coordinates."""
        pairs = zip(z.tolist(), self.layout.transforms.values(), strict=True)
        return np.array([t.size if t.is_unbounded else t.slope(point) for point, t in pairs])

    def limits(self, z: Array) -> tuple[Array, Array]:
        """Return how far each coordinate may be moved at once, down and up."""
        either = np.array([t.is_unbounded for t in self.layout.transforms.values()], dtype=bool)
        most = np.where(either, 10.0 * _LONGEST * np.maximum(1.0, np.abs(z)), _LONGEST)
        centres = np.array([t.centre for t in self.layout.transforms.values()])
        low, high = np.where(either, -np.inf, centres - _FAR), np.where(either, np.inf, centres + _FAR)
        return np.maximum(-most, np.minimum(low - z, 0.0)), np.minimum(most, np.maximum(high - z, 0.0))


def _solve(held: Array, g: Array, low: Array, high: Array) -> Array:
    """Return the step that a quadratic approximation asks for within limits: what would go farther goes so far."""
    step, free = np.zeros(len(g)), np.ones(len(g), dtype=bool)
    while free.any():
        right = g[free] + held[np.ix_(free, ~free)] @ step[~free]
        step[free] = -np.linalg.solve(held[np.ix_(free, free)], right)
        beyond = free & ((step < low) | (step > high))
        if not beyond.any():
            break
        step[beyond] = np.clip(step[beyond], low[beyond], high[beyond])
        free &= ~beyond
    return step


@dataclass(frozen=True, eq=False)
class Fitted:
    """A simulation at some values of the parameters, with the best amplitudes of modes.

    Parameters
    ----------
    z : array
        Coordinates of the parameters.
    merit : float
        What is minimised: about minus the log likelihood.
    rest : array, shape (m,)
        What is left of the data, scaled.
    levels : array, shape (o,)
        The noise of each observable, scaled.
    amplitudes : array, shape (r,)
        Of the modes.
    jacobian : array, shape (m, parameters), or (m, 0)
        Derivatives of what is left, with amplitudes that follow, in the coordinates, in units of the noise; without
        columns where they were not wanted.
    """

    z: Array
    merit: float
    rest: Array
    levels: Array
    amplitudes: Array
    jacobian: Array


@dataclass(frozen=True)
class Simulation:
    """Measurements and what is simulated beside them.

    Parameters
    ----------
    prior : Prior
        Of the measured observables; it has no free functions.
    chart : Chart
    times : array, shape (n,)
        All different times, ascending.
    scaled : array, shape (n,)
        The same, scaled.
    index : list of int arrays
        For each observable, which times it was measured at.
    values : array, shape (m,)
        Measurements, scaled, observable after observable.
    known : array, shape (m,)
        Standard deviations that are known, scaled; NaN elsewhere.
    """

    prior: Prior
    chart: Chart
    times: Array
    scaled: Array
    index: list[NDArray[np.intp]]
    values: Array
    known: Array

    @classmethod
    def of(cls, prior: Prior, layout: Layout, series: Sequence[Series], most: int) -> Simulation:
        """Return measurements with their simulation, thinned to so many rows at most.

        Parameters
        ----------
        prior : Prior
        layout : Layout
        series : sequence of Series
            One for each observable of the prior.
        most : int
        """
        times = np.unique(np.concatenate([item.times for item in series]))
        kept = times[:: -(-len(times) // most)]
        some = [item.take(np.flatnonzero(np.isin(item.times, kept))) for item in series]
        scales = prior.units.scales
        return cls(
            prior,
            Chart(layout),
            kept,
            prior.units.scaled_times(kept),
            [np.searchsorted(kept, item.times) for item in some],
            np.concatenate([item.values / scale for item, scale in zip(some, scales, strict=True)]),
            np.concatenate([np.where(item.known, item.std / s, np.nan) for item, s in zip(some, scales, strict=True)]),
        )

    @property
    def observables(self) -> Observables:
        """What was measured, compiled."""
        return self.prior.observables

    def look(self, z: Array, levels: Array | None = None, *, slopes: bool) -> Fitted | None:
        """Return the simulation at some coordinates; None where something is not finite.

        Parameters
        ----------
        z : array
        levels : array, shape (o,), optional
            Of noise, scaled, by which observables are weighed against each other.
        slopes : bool
            Whether derivatives are wanted.
        """
        theta = self.chart.outward(z)
        levels = np.full(len(self.index), _NOISE) if levels is None else levels
        with np.errstate(all="ignore"):
            values = self.observables.evaluate(theta)
            if not all(np.isfinite(part).all() for part in (*values.factors, *values.columns, values.table[0])):
                return None
            means, d_means = self.observables.means(values, self.times, slopes=slopes)
            basis, d_basis = self.observables.mode_basis(values, self.prior.groups, self.scaled, slopes=slopes)
            weights = 1.0 / np.where(np.isnan(self.known), self._each(levels), self.known)
            B = self._pick(basis) * weights[:, None]
            target = (self.values - self._pick(means)) * weights
            if not (np.isfinite(B).all() and np.isfinite(target).all()):
                return None
            Q, amplitudes = _project(B, target)
            rest = (target - B @ amplitudes) / weights
            merit, levels = self._merit(rest)
            if not slopes:
                J = np.zeros((len(rest), 0))
                return Fitted(z, merit, rest, levels, amplitudes, J) if np.isfinite(merit) else None
            learned = self.chart.layout.learned
            pairs = zip(d_means, d_basis, self.index, strict=True)
            parts = [(d[learned] + e[learned] @ amplitudes)[:, i] for d, e, i in pairs]
            J = -np.concatenate(parts, axis=1).T * self.chart.slopes(z)
            fresh = 1.0 / np.where(np.isnan(self.known), self._each(levels), self.known)
            # With other weights the same modes span another plane, which hardly matters.
            J = (J * weights[:, None] - Q @ (Q.T @ (J * weights[:, None]))) * (fresh / weights)[:, None]
        if not np.isfinite(merit) or not np.isfinite(J).all():
            return None
        return Fitted(z, merit, rest, levels, amplitudes, J)

    def _each(self, levels: Array) -> Array:
        return np.repeat(levels, [len(index) for index in self.index])

    def _pick(self, functions: Sequence[Array]) -> Array:
        return np.concatenate([part[index] for part, index in zip(functions, self.index, strict=True)])

    def _merit(self, rest: Array) -> tuple[float, Array]:
        """Return what is minimised, and levels of noise."""
        total, levels, start = 0.0, np.ones(len(self.index)), 0
        for o, index in enumerate(self.index):
            own, known = rest[start : start + len(index)], self.known[start : start + len(index)]
            start += len(index)
            open_ = np.isnan(known)
            total += 0.5 * float(np.sum((own[~open_] / known[~open_]) ** 2))
            if open_.any():
                levels[o] = np.sqrt(np.mean(own[open_] ** 2) + _FLOOR**2)
                total += int(open_.sum()) * float(np.log(levels[o]))
        return total, levels

    def weigh(self, found: Fitted) -> Array:
        """Return what is left of the data in units of its noise, shape (m,)."""
        return np.asarray(found.rest / np.where(np.isnan(self.known), self._each(found.levels), self.known))

    def descend(self, z: Array, steps: int, gain: float, enough: float = -np.inf) -> Fitted | None:
        """Return where Levenberg's steps lead; None where nothing is finite at the start.

        Parameters
        ----------
        z : array
            Coordinates to start from.
        steps : int
            How many at most.
        gain : float
            What a step has to gain at least.
        enough : float
            A merit that ends the search.
        """
        here, damping = self.look(z, slopes=True), _DAMPING
        if here is None:
            return None
        for _ in range(steps):
            there, damping = self._step(here, damping)
            if there is None:
                break
            won, here = here.merit - there.merit, there
            if won < gain or here.merit < enough:
                break
        return here

    def _step(self, here: Fitted, damping: float) -> tuple[Fitted | None, float]:
        """Return where one step leads, with derivatives, and the next damping; None where none leads down."""
        H, g = here.jacobian.T @ here.jacobian, here.jacobian.T @ self.weigh(here)
        low, high = self.chart.limits(here.z)
        for attempt in range(_TRIES):
            held = H + np.diag(damping * np.maximum(np.diag(H), 1e-3))
            straight = _solve(held, g, low, high)
            z = here.z + np.clip(straight + self._bend(here, held, straight), low, high)
            # The first one is taken as a rule, and then its derivatives are wanted.
            there = self.look(z, here.levels, slopes=attempt == 0)
            if there is not None and there.merit < here.merit:
                there = there if there.jacobian.size else self.look(z, here.levels, slopes=True)
                return there, max(damping * (_LESS if attempt == 0 else 1.0), 1e-9)
            damping *= _MORE
        return None, damping

    def _bend(self, here: Fitted, held: Array, step: Array) -> Array:
        """Return what a step needs to follow a valley that bends: half of the acceleration along it (geodesic).

        Where that is no small correction, the step is too long for it to mean anything, and it is zero.
        """
        ahead = self.look(here.z + _AHEAD * step, here.levels, slopes=False)
        if ahead is None:
            return np.zeros_like(step)
        change = (self.weigh(replace(ahead, levels=here.levels)) - self.weigh(here)) / _AHEAD - here.jacobian @ step
        correction = -np.linalg.solve(held, here.jacobian.T @ change) / _AHEAD
        scale = np.sqrt(np.diag(held))
        small = np.linalg.norm(scale * correction) < _SMALL * np.linalg.norm(scale * step)
        return np.asarray(correction if small else np.zeros_like(step))


def _project(B: Array, target: Array) -> tuple[Array, Array]:
    """Return an orthonormal basis of what modes span, shape (m, r), and their best amplitudes, (r,)."""
    if not B.shape[1]:
        return B, np.zeros(0)
    U, sizes, V = np.linalg.svd(B, full_matrices=False)
    kept = sizes > _RIDGE * max(float(sizes[0]), 1e-300)
    return U[:, kept], (V[kept].T / sizes[kept]) @ (U[:, kept].T @ target)
