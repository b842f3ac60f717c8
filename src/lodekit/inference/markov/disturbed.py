"""Disturbances as states: those of coloured ones, and those of the system that they drive, from rest at the start.

States of the system have units of their own. Each is divided by a size that it may well reach, which is made of the
magnitudes of F and G in such a way that rows of F stay as small as its eigenvalues allow, whatever the units are.
Nothing depends on these sizes, so that derivatives take them for constants.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lodekit.inference.markov.steps import NoisySteps
from lodekit.inference.markov.unit import Unit, put_together
from lodekit.prior.compile import Coefficients
from lodekit.prior.disturbed import Disturbed, DisturbedArrays, need
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.observables import Observables

__all__ = ["DisturbedStates", "response_variance", "unit_powers"]

Array = NDArray[np.float64]
#: The window is looked at so many times to tell how far disturbances take observables.
_PIECES = 32


@dataclass(frozen=True)
class DisturbedStates:
    """States of disturbances and of what they drive, at some hyperparameters, in scaled time.

    Parameters
    ----------
    observables : Observables
        What was measured; its response to disturbances is there.
    coefficients : Coefficients
        Of these.
    hyper : Hyperparameters
    """

    observables: Observables
    coefficients: Coefficients
    hyper: Hyperparameters

    @property
    def own(self) -> Disturbed:
        """The response to disturbances."""
        return need(self.observables.disturbed)

    @cached_property
    def units(self) -> tuple[Unit | None, ...]:
        """The states of each disturbance, None for white noise."""
        return tuple(None if latent is None else Unit.of(latent) for latent in self.own.latents)

    @cached_property
    def lengthscales(self) -> dict[int, float]:
        """The lengthscales of those that have one, by their numbers."""
        return dict(zip(self.own.coloured, self.hyper.disturbance_lengthscales.tolist(), strict=True))

    @cached_property
    def _edges(self) -> list[int]:
        sizes = [0 if unit is None else len(unit.matrix) for unit in self.units]
        return [int(edge) for edge in np.cumsum([0, *sizes])]

    @property
    def places(self) -> list[slice]:
        """Where the states of each disturbance stand; the rest are those of the system."""
        return [slice(start, stop) for start, stop in pairwise(self._edges)]

    @property
    def _system(self) -> slice:
        return slice(self._edges[-1], self.size)

    @property
    def size(self) -> int:
        """How many states there are."""
        return self._edges[-1] + self.own.shapes[0][0]

    @cached_property
    def _arrays(self) -> tuple[DisturbedArrays, DisturbedArrays]:
        """The numbers, and their derivatives in the parameters."""
        return _take_apart(self.own, self.coefficients)

    @cached_property
    def _reach(self) -> Array:
        """About what each disturbance adds up to in unit scaled time, shape (d,)."""
        span = self.observables.units.span
        lengths = np.array([np.sqrt(span) if unit is None else span for unit in self.units])
        return np.asarray(lengths * self.hyper.disturbance_deviations)

    @cached_property
    def scales(self) -> Array:
        """What the states of the system are divided by, shape (s,)."""
        own = self._arrays[0]
        A = np.abs(own.F) * self.observables.units.span
        push = np.abs(own.G) @ self._reach
        if not len(A) or not (np.isfinite(A).all() and np.isfinite(push).all()):
            return np.ones(len(A))
        # The spectral radius of the magnitudes does not depend on units; rows of A, scaled, add up to twice it at most.
        rate = 2.0 * max(1.0, float(np.abs(np.linalg.eigvals(A)).max()))
        found = np.linalg.solve(np.eye(len(A)) - A / rate, push)
        return np.where(found > 0.0, found, 1.0)

    @cached_property
    def matrix(self) -> Array:
        """F of all states, shape (n, n); those of a disturbance are in units of its deviation."""
        own, x, span = self._arrays[0], self._system, self.observables.units.span
        found = np.zeros((self.size, self.size))
        found[x, x] = span * own.F * self.scales / self.scales[:, None]
        for k, (unit, place) in enumerate(zip(self.units, self.places, strict=True)):
            if unit is not None:
                found[place, place] = unit.matrix / self.lengthscales[k]
                found[x, place.start] = self._pushes[:, k]
        return found

    @cached_property
    def _pushes(self) -> Array:
        """How much each disturbance moves the states of the system, shape (s, d)."""
        return np.asarray(self._arrays[0].G * self._reach / self.scales[:, None])

    @cached_property
    def _densities(self) -> list[Array]:
        """What each disturbance adds to the spectral density of the noise."""
        found = []
        for k, (unit, place) in enumerate(zip(self.units, self.places, strict=True)):
            own = np.zeros((self.size, self.size))
            if unit is None:
                own[self._system, self._system] = np.outer(self._pushes[:, k], self._pushes[:, k])
            else:
                own[place.stop - 1, place.stop - 1] = unit.density / self.lengthscales[k]
            found.append(own)
        return found

    @property
    def density(self) -> Array:
        """The spectral density of the noise that drives all states, shape (n, n)."""
        return np.asarray(sum(self._densities, np.zeros((self.size, self.size))))

    @property
    def root(self) -> Array:
        """A root of the covariance at the start: coloured disturbances are there, the system is at rest."""
        parts = [unit.root for unit in self.units if unit is not None]
        return put_together([*parts, np.zeros((self.own.shapes[0][0],) * 2)])

    def readings(self, observables: Observables, coefficients: Coefficients) -> Array:
        """Return observables as rows of numbers for the states, shape (o, n).

        Parameters
        ----------
        observables : Observables
        coefficients : Coefficients
            Of the observables, at the same values of the parameters.
        """
        values, _ = _take_apart(need(observables.disturbed), coefficients)
        return self._read(values, observables.units.scales)

    def _read(self, own: DisturbedArrays, scales: Array) -> Array:
        """Return rows from numbers, or derivatives of rows from theirs, shape (..., o, n)."""
        found = np.zeros((*own.readings.shape[:-1], self.size))
        found[..., self._system] = own.readings * self.scales / scales[:, None]
        for k, (unit, place) in enumerate(zip(self.units, self.places, strict=True)):
            if unit is not None:
                length = min(place.stop - place.start, own.direct.shape[-3])
                parts = np.moveaxis(own.direct[..., :length, :, k], -2, -1)
                found[..., place.start : place.start + length] = parts * self._factors(k)[:length] / scales[:, None]
        return found

    def _factors(self, k: int) -> Array:
        """Return what the derivatives of a disturbance are in its states, shape (s,)."""
        unit, place = need(self.units[k]), self.places[k]
        rate = unit.rate / (self.lengthscales[k] * self.observables.units.span)
        return np.asarray(self.hyper.disturbance_deviations[k] * rate ** np.arange(place.stop - place.start))

    def pull(
        self, in_matrix: Array, in_density: Array, in_start: Array, in_readings: Array, readings: Array
    ) -> tuple[Array, Array, Array]:
        """Return derivatives in the parameters, and in the logarithms of lengthscales and deviations.

        Parameters
        ----------
        in_matrix, in_density, in_start : arrays, shape (n, n)
            In F, in the spectral density, and in the covariance at the start.
        in_readings, readings : arrays, shape (o, n)
            In the rows of the measured observables; and these.
        """
        _, slopes = self._arrays
        x, span, scales = self._system, self.observables.units.span, self.scales
        theta = np.tensordot(slopes.F * (span * scales / scales[:, None]), in_matrix[x, x], 2)
        theta += np.tensordot(self._read(slopes, self.observables.units.scales), in_readings, 2)
        in_pushes = np.zeros_like(self._pushes)
        lengthscales, deviations = {}, np.zeros(len(self.units))
        for k, (unit, place) in enumerate(zip(self.units, self.places, strict=True)):
            of_density = float(np.sum(in_density * self._densities[k]))
            if unit is None:
                in_pushes[:, k] = 2.0 * in_density[x, x] @ self._pushes[:, k]
                deviations[k] = 2.0 * of_density
                continue
            in_pushes[:, k] = in_matrix[x, place.start]
            deviations[k] = 2.0 * (of_density + float(np.sum(in_start[place, place] * unit.covariance)))
            orders = np.arange(len(unit.matrix))
            of_rows = float(np.sum(in_readings[:, place] * readings[:, place] * orders))
            of_matrix = float(np.sum(in_matrix[place, place] * self.matrix[place, place]))
            lengthscales[k] = -of_matrix - of_density - of_rows
        theta += np.tensordot(slopes.G * (self._reach / scales[:, None]), in_pushes, 2)
        return theta, np.array([lengthscales[k] for k in self.own.coloured]), deviations


def _take_apart(own: Disturbed, coefficients: Coefficients) -> tuple[DisturbedArrays, DisturbedArrays]:
    values, slopes = need(coefficients.disturbed)
    return own.take_apart(values), own.take_apart(slopes)


def unit_powers(observables: Observables, coefficients: Coefficients, theta: Array, lengthscale: float) -> Array:
    """Return the mean squares of observables over the window, for each disturbance at unit deviation, shape (d, o).

    Parameters
    ----------
    observables : Observables
        With disturbances.
    coefficients : Coefficients
        Of these.
    theta : array, shape (p,)
        Values of the parameters.
    lengthscale : float
        Of all disturbances that have one, in scaled time.
    """
    disturbed, none = need(observables.disturbed), np.zeros(0)
    count, lengths = len(disturbed.names), np.full(len(disturbed.coloured), lengthscale)
    found = np.zeros((count, observables.count))
    for k in range(count):
        hyper = Hyperparameters(theta, none, none, none, none, lengths, np.eye(count)[k])
        own = DisturbedStates(observables, coefficients, hyper)
        rows, P = own.readings(observables, coefficients), own.root @ own.root.T
        if not (np.isfinite(own.matrix).all() and np.isfinite(own.density).all()):
            continue
        steps = NoisySteps(own.matrix, own.density, np.array([1.0 / _PIECES]))
        for _ in range(_PIECES):
            P = steps.transitions[0] @ P @ steps.transitions[0].T + steps.noises[0]
            found[k] += np.einsum("oi,ij,oj->o", rows, P, rows) / _PIECES
    return found


def response_variance(observables: Observables, hyper: Hyperparameters, times: Array) -> Array:
    """Return the variance that disturbances give to observables, from rest at time zero, shape (n, o).

    Parameters
    ----------
    observables : Observables
        With disturbances.
    hyper : Hyperparameters
    times : array, shape (n,)
        Scaled, none negative, in any order.
    """
    coefficients = observables.evaluate(hyper.theta)
    own = DisturbedStates(observables, coefficients, hyper)
    rows, P = own.readings(observables, coefficients), own.root @ own.root.T
    ordered, places = np.unique(times, return_inverse=True)
    lengths, which = np.unique(np.diff(ordered, prepend=0.0), return_inverse=True)
    steps, found = NoisySteps(own.matrix, own.density, lengths), np.zeros((len(ordered), observables.count))
    for number, step in enumerate(which):
        P = steps.transitions[step] @ P @ steps.transitions[step].T + steps.noises[step]
        found[number] = np.einsum("oi,ij,oj->o", rows, P, rows)
    return np.maximum(found, 0.0)[places]
