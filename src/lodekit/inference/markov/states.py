"""The prior as a linear system that white noise drives: free functions with their derivatives, and modes.

A free function z with a Matern covariance has the states ``z^(k)``, each divided by the k-th power of its rate; white
noise drives the last one. Modes are states that nothing drives: weights of their basis functions, moved to the time
that is looked at. Every observable is then one row of numbers, whatever the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lodekit.inference.markov.disturbed import DisturbedStates
from lodekit.inference.markov.unit import Unit, put_together
from lodekit.prior.compile import Coefficients
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.modes import ModeGroup, companion
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Prior
from lodekit.prior.responses.transitions import exponentials

__all__ = ["Slopes", "Space", "make_space", "readings_of"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Slopes:
    """Derivatives of a number in all that a linear system is made of.

    Parameters
    ----------
    matrix : array, shape (s, s)
        In F.
    density : array, shape (n, n)
        In the spectral density of the noise.
    readings : array, shape (o, s)
        In the rows of the observables.
    start : array, shape (s, s)
        In the covariance at the start, symmetric.
    """

    matrix: Array
    density: Array
    readings: Array
    start: Array


@dataclass(frozen=True)
class Space:
    """The prior of some observables as a linear system, at some hyperparameters.

    Parameters
    ----------
    prior : Prior
    hyper : Hyperparameters
    coefficients : Coefficients
        Of the measured observables.
    units : tuple of Unit
        One for each free function.
    matrix : array, shape (s, s)
        F; the states that noise drives come first.
    density : array, shape (n, n)
        The spectral density of the noise that drives the first n states.
    readings : array, shape (o, s)
        The measured observables.
    disturbed : DisturbedStates, optional
        The states of disturbances and of what they drive; they stand between free functions and modes.
    """

    prior: Prior
    hyper: Hyperparameters
    coefficients: Coefficients
    units: tuple[Unit, ...]
    matrix: Array
    density: Array
    readings: Array
    disturbed: DisturbedStates | None = None

    @property
    def noisy(self) -> int:
        """How many states noise drives."""
        return len(self.density)

    @property
    def size(self) -> int:
        """How many states there are."""
        return len(self.matrix)

    @cached_property
    def is_finite(self) -> bool:
        """Whether all numbers are."""
        return all(bool(np.isfinite(part).all()) for part in (self.matrix, self.density, self.readings))

    @cached_property
    def places(self) -> list[slice]:
        """Where the states of each free function, of all disturbances, and of each group of modes stand."""
        more = 0 if self.disturbed is None else self.disturbed.size
        return _places([*(len(unit.matrix) for unit in self.units), more, *(group.size for group in self.prior.groups)])

    @property
    def mode_places(self) -> list[tuple[ModeGroup, slice]]:
        """The groups of modes, and where their states stand."""
        return list(zip(self.prior.groups, self.places[len(self.units) + 1 :], strict=True))

    def root_at(self, time: float) -> Array:
        """Return a root of the prior covariance of the states at a scaled time, shape (s, s)."""
        parts = []
        for unit, deviation in zip(self.units, self.hyper.deviations, strict=True):
            parts.append(deviation * unit.root)
        parts += [] if self.disturbed is None else [self.disturbed.root]
        roots = self.prior.mode_roots(self.hyper.mode_deviations)
        offset = self.noisy
        for group, place in self.mode_places:
            own = roots[place.start - offset : place.stop - offset]
            parts.append(_flow(self.matrix[place, place], time - _origin(group)) * own)
        return put_together(parts)

    def readings_of(self, observables: Observables, coefficients: Coefficients) -> Array:
        """Return other observables as rows, shape (o, s).

        Parameters
        ----------
        observables : Observables
        coefficients : Coefficients
            At the same values of the parameters.
        """
        return readings_of(self.prior, self.hyper, self.units, observables, coefficients, self.disturbed)

    def pull(self, slopes: Slopes, time: float) -> Hyperparameters:
        """Return derivatives in the parameters and in the logarithms of all hyperparameters but the noise.

        Parameters
        ----------
        slopes : Slopes
        time : float
            The scaled time of the start.
        """
        own, values = self.prior.observables, self.coefficients
        theta = np.zeros(len(self.hyper.theta))
        lengthscales, deviations = np.zeros(len(self.units)), np.zeros(len(self.units))
        for k, (unit, place) in enumerate(zip(self.units, self.places, strict=False)):
            in_density = float(np.sum(slopes.density[place, place] * self.density[place, place]))
            in_start = float(np.sum(slopes.start[place, place] * unit.covariance)) * self.hyper.deviations[k] ** 2
            deviations[k] = 2.0 * (in_density + in_start)
            orders = np.arange(len(unit.matrix))
            in_rows = float(np.sum(slopes.readings[:, place] * self.readings[:, place] * orders))
            in_matrix = float(np.sum(slopes.matrix[place, place] * self.matrix[place, place]))
            lengthscales[k] = -in_matrix - in_density - in_rows
            length = min(values.free.shape[-1], len(orders))
            scale = (unit.rate / self.hyper.lengthscales[k]) ** orders[:length]
            weights = slopes.readings[:, place][:, :length] * scale
            theta += np.tensordot(values.d_free[:, :, k, :length], weights, 2)
        mode_deviations = np.zeros(len(self.prior.groups))
        for number, (group, place) in enumerate(self.mode_places):
            span, deviation = time - _origin(group), self.hyper.mode_deviations[number]
            flow = _flow(self.matrix[place, place], span)
            in_root = 2.0 * slopes.start[place, place] @ flow * deviation**2
            mode_deviations[number] = float(np.sum(in_root * flow))
            if not len(theta):
                continue
            weights = [row[None, place] for row in slopes.readings]
            theta += own.pull_modes(values, (group,), np.array([_origin(group)]), weights)
            if group.root is None:
                _, back = exponentials(span * self.matrix[place, place].T[None], in_root[None, None])
                in_matrix_of = slopes.matrix[place, place] + span * back[0, 0]
                theta += np.tensordot(_companion_slopes(own, values, group), in_matrix_of, 2)
        found = Hyperparameters(theta, lengthscales, deviations, mode_deviations, np.zeros(0))
        return found if self.disturbed is None else self._pull_disturbed(self.disturbed, found, slopes)

    def _pull_disturbed(self, own: DisturbedStates, found: Hyperparameters, slopes: Slopes) -> Hyperparameters:
        """Return derivatives with those that disturbances add."""
        place = self.places[len(self.units)]
        inner = slopes.matrix[place, place], slopes.density[place, place], slopes.start[place, place]
        theta, lengthscales, deviations = own.pull(*inner, slopes.readings[:, place], self.readings[:, place])
        return replace(
            found,
            theta=found.theta + theta,
            disturbance_lengthscales=lengthscales,
            disturbance_deviations=deviations,
        )


def make_space(prior: Prior, hyper: Hyperparameters, coefficients: Coefficients) -> Space:
    """Return the prior of what was measured as a linear system.

    Parameters
    ----------
    prior : Prior
        Its free functions have finitely many states.
    hyper : Hyperparameters
    coefficients : Coefficients
        Of the measured observables.
    """
    units = tuple(Unit.of(latent) for latent in prior.latents)
    matrices, densities = [], []
    for unit, ell, deviation in zip(units, hyper.lengthscales, hyper.deviations, strict=True):
        matrices.append(unit.matrix / ell)
        density = np.zeros_like(unit.matrix)
        density[-1, -1] = deviation**2 * unit.density / ell
        densities.append(density)
    disturbed = None
    if prior.observables.disturbed is not None:
        disturbed = DisturbedStates(prior.observables, coefficients, hyper)
        matrices.append(disturbed.matrix)
        densities.append(disturbed.density)
    matrices += [_mode_matrix(prior.observables, coefficients, group) for group in prior.groups]
    rows = readings_of(prior, hyper, units, prior.observables, coefficients, disturbed)
    return Space(prior, hyper, coefficients, units, put_together(matrices), put_together(densities), rows, disturbed)


def readings_of(
    prior: Prior,
    hyper: Hyperparameters,
    units: Sequence[Unit],
    observables: Observables,
    coefficients: Coefficients,
    disturbed: DisturbedStates | None = None,
) -> Array:
    """Return observables as rows of numbers for the states, shape (o, s).

    Parameters
    ----------
    prior : Prior
    hyper : Hyperparameters
    units : sequence of Unit
        The free functions.
    observables : Observables
    coefficients : Coefficients
        Of the observables.
    disturbed : DisturbedStates, optional
        Where there are disturbances.
    """
    parts = []
    for k, (latent, unit) in enumerate(zip(prior.latents, units, strict=True)):
        own = coefficients.free[:, k]
        latent.check_order(2 * (own.shape[-1] - 1))
        block = np.zeros((len(own), len(unit.matrix)))
        block[:, : own.shape[-1]] = own * (unit.rate / hyper.lengthscales[k]) ** np.arange(own.shape[-1])
        parts.append(block)
    if disturbed is not None:
        parts.append(disturbed.readings(observables, coefficients))
    for group in prior.groups:
        found, _ = observables.mode_basis(coefficients, (group,), np.array([_origin(group)]), slopes=False)
        parts.append(np.concatenate(found))
    return np.concatenate(parts, axis=1) if parts else np.zeros((observables.count, 0))


def _places(sizes: Sequence[int]) -> list[slice]:
    edges = np.cumsum([0, *sizes]).tolist()
    return [slice(start, stop) for start, stop in pairwise(edges)]


def _origin(group: ModeGroup) -> float:
    """Return the scaled time at which the states of a group are the weights of its basis functions."""
    return 1.0 if group.root is not None and group.root.real > 0 else 0.0


def _flow(matrix: Array, span: float) -> Array:
    """Return ``e^(F span)``."""
    if span == 0.0:
        return np.eye(len(matrix))
    if not np.isfinite(matrix * span).all():
        return np.full(matrix.shape, np.inf)
    return np.asarray(exponentials((matrix * span)[None])[0][0])


def _mode_matrix(observables: Observables, coefficients: Coefficients, group: ModeGroup) -> Array:
    """Return how the weights of basis functions move when time does, shape (r, r)."""
    factor = observables.compiled.factors[group.factor]
    if group.root is None:
        none = coefficients.slopes.factors[group.factor][:0]
        return companion(coefficients.factors[group.factor], none, factor.multiplicity).matrix
    root = group.root * observables.units.span
    own = np.array([[root.real, root.imag], [-root.imag, root.real]]) if root.imag else np.array([[root.real]])
    shift = np.diag(np.arange(1.0, factor.multiplicity), 1)
    return np.asarray(np.kron(np.eye(factor.multiplicity), own) + np.kron(shift, np.eye(len(own))))


def _companion_slopes(observables: Observables, coefficients: Coefficients, group: ModeGroup) -> Array:
    """Return derivatives of the companion matrix of a group in the parameters, shape (p, r, r)."""
    factor = observables.compiled.factors[group.factor]
    own = coefficients.factors[group.factor], coefficients.slopes.factors[group.factor]
    return companion(*own, factor.multiplicity).d_matrix
