"""Least squares of simulations: modes are projected out, and Levenberg's steps move the parameters.

What known inputs drive is a known function of the parameters plus modes, whose amplitudes are linear. So for any values
of the parameters the best amplitudes follow by a regression, and only parameters are searched (variable projection).
Levels of noise are what is left of each observable: the logarithms of these sums of squares are what is minimised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lodekit.data.observations import Series
from lodekit.learning.transforms import Layout
from lodekit.prior.compile import Coefficients
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Prior

__all__ = ["Chart", "Fitted", "Run", "Simulation", "times_of"]

Array = NDArray[np.float64]
#: Amplitudes of modes are held back by so little, relative to the largest mode; noise is at least this share of data.
_RIDGE, _FLOOR = 1e-7, 1e-6
#: Levels of noise to begin with, as shares of the data.
_NOISE = 0.3
#: The first damping, by which factors it is changed, and how often in one step.
_DAMPING, _MORE, _LESS, _TRIES = 1e-2, 6.0, 0.2, 6
#: A step goes no farther than this on a logarithmic scale, and so many times the size of what may be anything.
_LONGEST, _LONGEST_UNBOUNDED = 1.5, 15.0
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
        most = np.where(either, _LONGEST_UNBOUNDED * np.maximum(1.0, np.abs(z)), _LONGEST)
        centres = np.array([t.centre for t in self.layout.transforms.values()])
        low, high = np.where(either, -np.inf, centres - _FAR), np.where(either, np.inf, centres + _FAR)
        return np.maximum(-most, np.minimum(low - z, 0.0)), np.minimum(most, np.maximum(high - z, 0.0))


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
    amplitudes : array, shape (k, r)
        Of the modes, in each record.
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
class Run:
    """Measurements of one record.

    Parameters
    ----------
    prior : Prior
        Of the measured observables, with the inputs and the start of this record; it has no free functions.
    times : array, shape (n,)
        All different times, ascending.
    index : list of int arrays
        For each observable, which times it was measured at.
    values : array, shape (m,)
        Measurements, scaled, observable after observable.
    known : array, shape (m,)
        Standard deviations that are known, scaled; NaN elsewhere.
    """

    prior: Prior
    times: Array
    index: list[NDArray[np.intp]]
    values: Array
    known: Array

    @classmethod
    def of(cls, prior: Prior, series: Sequence[Series], stride: int) -> Run:
        """Return measurements of which every so many-th row is kept.

        Parameters
        ----------
        prior : Prior
        series : sequence of Series
            One for each observable of the prior.
        stride : int
        """
        kept = times_of(series)[::stride]
        some = [item.take(np.flatnonzero(np.isin(item.times, kept))) for item in series]
        scales = prior.units.scales
        return cls(
            prior,
            kept,
            [np.searchsorted(kept, item.times) for item in some],
            np.concatenate([item.values / scale for item, scale in zip(some, scales, strict=True)]),
            np.concatenate([np.where(item.known, item.std / s, np.nan) for item, s in zip(some, scales, strict=True)]),
        )

    @cached_property
    def scaled(self) -> Array:
        """The times, scaled."""
        return self.prior.units.scaled_times(self.times)

    @cached_property
    def which(self) -> NDArray[np.intp]:
        """The observable of each measurement."""
        return np.repeat(np.arange(len(self.index)), [len(index) for index in self.index])

    def project(
        self, values: Coefficients, weights: Array, learned: Sequence[int], *, slopes: bool
    ) -> tuple[Array, Array, Array] | None:
        """Return what the best modes leave of the data, (m,), their amplitudes, (r,), and derivatives, (m, parameters).

        Parameters
        ----------
        values : Coefficients
            Of the observables at values of the parameters.
        weights : array, shape (m,)
            By which measurements are weighed; so are the derivatives.
        learned : sequence of int
            Parameters in which derivatives are wanted.
        slopes : bool
            Whether they are; there are no columns otherwise.
        """
        observables = self.prior.observables
        means, d_means = observables.means(values, self.times, slopes=slopes)
        basis, d_basis = observables.mode_basis(values, self.prior.groups, self.scaled, slopes=slopes)
        B = self._pick(basis) * weights[:, None]
        target = (self.values - self._pick(means)) * weights
        if not (np.isfinite(B).all() and np.isfinite(target).all()):
            return None
        Q, amplitudes = _project(B, target)
        rest = (target - B @ amplitudes) / weights
        if not slopes:
            return rest, amplitudes, np.zeros((len(rest), 0))
        pairs = zip(d_means, d_basis, self.index, strict=True)
        parts = [(d[learned] + e[learned] @ amplitudes)[:, i] for d, e, i in pairs]
        J = -np.concatenate(parts, axis=1).T * weights[:, None]
        return rest, amplitudes, J - Q @ (Q.T @ J)

    def _pick(self, functions: Sequence[Array]) -> Array:
        """Return functions at the measurements, observable after observable, from those at all times."""
        return np.concatenate([part[index] for part, index in zip(functions, self.index, strict=True)])


def times_of(series: Sequence[Series]) -> Array:
    """Return all different times of some series, ascending."""
    return np.unique(np.concatenate([item.times for item in series]))


@dataclass(frozen=True)
class Simulation:
    """Measurements of one record, or of several, and what is simulated beside them.

    Parameters
    ----------
    chart : Chart
    runs : tuple of Run
        One for each record.
    """

    chart: Chart
    runs: tuple[Run, ...]

    @classmethod
    def of(cls, priors: Sequence[Prior], layout: Layout, records: Sequence[Sequence[Series]], most: int) -> Simulation:
        """Return measurements with their simulation, thinned to so many rows at most.

        Parameters
        ----------
        priors : sequence of Prior
            Of each record.
        layout : Layout
        records : sequence of sequences of Series
            Of each record, one for each observable of the prior.
        most : int
        """
        stride = -(-sum(len(times_of(series)) for series in records) // most)
        pairs = zip(priors, records, strict=True)
        return cls(Chart(layout), tuple(Run.of(prior, series, stride) for prior, series in pairs))

    @property
    def observables(self) -> Observables:
        """What was measured, compiled."""
        return self.runs[0].prior.observables

    @property
    def times(self) -> Array:
        """Those of the longest record."""
        return max((run.times for run in self.runs), key=lambda times: float(np.ptp(times)))

    @cached_property
    def values(self) -> Array:
        """All measurements, scaled, shape (m,): record after record, and there observable after observable."""
        return np.concatenate([run.values for run in self.runs])

    @cached_property
    def known(self) -> Array:
        """Standard deviations that are known, scaled; NaN elsewhere."""
        return np.concatenate([run.known for run in self.runs])

    @cached_property
    def which(self) -> NDArray[np.intp]:
        """The observable of each measurement."""
        return np.concatenate([run.which for run in self.runs])

    @cached_property
    def counts(self) -> NDArray[np.intp]:
        """How many measurements there are of each observable."""
        return np.bincount(self.which, minlength=self.observables.count)

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
        theta, learned = self.chart.outward(z), self.chart.layout.learned
        levels = np.full(self.observables.count, _NOISE) if levels is None else levels
        with np.errstate(all="ignore"):
            values = self.observables.evaluate(theta)
            if not all(np.isfinite(part).all() for part in (*values.factors, *values.columns, values.table[0])):
                return None
            weights = self._weights(levels)
            found = []
            for run, own in zip(self.runs, self._split(weights), strict=True):
                part = run.project(values, own, learned, slopes=slopes)
                if part is None:
                    return None
                found.append(part)
            rest, J = (np.concatenate([part[k] for part in found]) for k in (0, 2))
            merit, levels = self._merit(rest)
            if slopes:
                # With other weights the same modes span another plane, which hardly matters.
                J = J * self.chart.slopes(z) * (self._weights(levels) / weights)[:, None]
        if not np.isfinite(merit) or not np.isfinite(J).all():
            return None
        return Fitted(z, merit, rest, levels, np.stack([part[1] for part in found]), J)

    def _split(self, values: Array) -> list[Array]:
        """Return the parts of values at all measurements that belong to each record."""
        return np.split(values, np.cumsum([len(run.values) for run in self.runs])[:-1])

    def _weights(self, levels: Array) -> Array:
        """Return one over the noise of each measurement."""
        return np.asarray(1.0 / np.where(np.isnan(self.known), levels[self.which], self.known))

    def _merit(self, rest: Array) -> tuple[float, Array]:
        """Return what is minimised, and levels of noise."""
        learned = np.isnan(self.known)
        total, levels = 0.5 * float(np.sum((rest[~learned] / self.known[~learned]) ** 2)), np.ones(len(self.counts))
        squares = np.bincount(self.which[learned], rest[learned] ** 2, minlength=len(levels))
        counts = np.bincount(self.which[learned], minlength=len(levels))
        some = counts > 0
        levels[some] = np.sqrt(squares[some] / counts[some] + _FLOOR**2)
        return total + float(counts[some] @ np.log(levels[some])), levels

    def weigh(self, found: Fitted) -> Array:
        """Return what is left of the data in units of its noise, shape (m,)."""
        return found.rest * self._weights(found.levels)

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
