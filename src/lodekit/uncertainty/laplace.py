"""Laplace approximation of the estimates: a normal distribution at the optimum, and its effect on predictions.

Standard errors of derived quantities follow by the delta method, with central differences along the columns of the
covariance root; other optima add a mixture term.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from lodekit.errors import LodekitError
from lodekit.fitting.lbfgs import Optimum
from lodekit.fitting.objective import Objective
from lodekit.inference.engine import Posterior
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Hyperparameters
from lodekit.support.arguments import Array, Mask

T = TypeVar("T")
#: What the data say nothing about is taken to be known to so many units of the scale of the search: a factor of 20.
UNIDENTIFIED_STD = 3.0
#: Relative to the largest one, a curvature below this is rounding.
_EIGENVALUE_TOLERANCE = 1e-9


def regularized_covariance_root(information: Array, free: Mask, prior_stds: Array) -> Array:
    """Return a root L of the regularised covariance, ``L L^T = (H + diag(prior_stds)^-2)^-1``, shape (n, k).

    The prior keeps directions finite that the data do not identify; a direction in which the evidence grows counts as
    flat. Shapes: information (n, n), free (n,), prior_stds (n,).
    """
    inner = np.flatnonzero(free & np.isfinite(information).all(axis=0) & np.isfinite(prior_stds))
    total = np.zeros((len(information), len(inner)))
    if not len(inner):
        return total
    part, alone = information[np.ix_(inner, inner)], prior_stds[inner] ** -2.0
    scale = 1.0 / np.sqrt(np.maximum(np.diag(part), 0.0) + alone)
    curvatures, vectors = np.linalg.eigh(part * np.outer(scale, scale))
    curvatures[curvatures < _EIGENVALUE_TOLERANCE * max(float(curvatures.max()), 1.0)] = 0.0
    known = (vectors * curvatures) @ vectors.T + np.diag(alone * scale**2)
    sharpness, directions = np.linalg.eigh(known)
    total[inner] = scale[:, None] * directions / np.sqrt(np.maximum(sharpness, 1e-3 * _EIGENVALUE_TOLERANCE))
    return total


def _mixture_shifts(centre: Array, values: Sequence[tuple[float, Array]]) -> list[Array]:
    """Return how other optima, each with its drop of the log evidence, shift a value, by the root of their weights."""
    weights = [math.exp(-drop) for drop, _ in values]
    total = 1.0 + sum(weights)
    return [math.sqrt(weight / total) * (value - centre) for weight, (_, value) in zip(weights, values, strict=True)]


@dataclass(frozen=True, eq=False)
class LaplaceApproximation:
    """Everything that was learned as a normal distribution around the optimum, and what follows for predictions.

    It is normal on the scale of the search, on which positive parameters, lengthscales, deviations and levels are
    logarithms; in parameters that may have either sign it is normal in these themselves, like their intervals.

    optimum: The centre.
    information: Minus the Hessian of the objective there; (n, n).
    posterior_at: From hyperparameters to the posterior there.
    alternatives: Other optima that fit about as well: points and their drops of the log evidence.
    is_single_record: Whether that is the posterior of one record among several, and the objective that of all.
    """

    objective: Objective
    optimum: Optimum
    information: Array
    posterior_at: Callable[[Hyperparameters], Posterior]
    alternatives: Sequence[tuple[Sequence[float], float]] = ()
    is_single_record: bool = False

    @cached_property
    def covariance_root(self) -> Array:
        """A root of the covariance, shape (n, k): each column is one standard deviation in its direction."""
        layout, optimum = self.objective.layout, self.optimum
        # How far from an estimate anything may be that the data say nothing about.
        stds = np.full(layout.size, UNIDENTIFIED_STD)
        for position, number in enumerate(layout.free_parameters):
            transform, point = layout.transforms[number], float(optimum.x[position])
            if transform.is_unbounded:
                # Near zero the scale of the search is arbitrarily fine.
                size = max(abs(transform.forward(point)), transform.expected_magnitude)
                stds[position] = 10.0 * size / transform.derivative(point)
        return regularized_covariance_root(self.information, ~optimum.at_bound, stds)

    @property
    def covariance(self) -> Array:
        """The covariance, shape (n, n); always finite."""
        return np.asarray(self.covariance_root @ self.covariance_root.T)

    def inflated_covariance_root(self, inflation_factors: Mapping[str, float]) -> Array:
        """Return a root of the covariance, shape (n, k), with the standard errors of parameters inflated."""
        layout, factors = self.objective.layout, np.ones(len(self.optimum.x))
        factors[layout.slices.theta] = [inflation_factors.get(layout.names[k], 1.0) for k in layout.free_parameters]
        return np.asarray(self.covariance_root * factors[:, None])

    def parameter_covariance(self, inflation_factors: Mapping[str, float]) -> Array:
        """Return the covariance of all parameters in the user's units, shape (p, p); zero for fixed ones."""
        layout, free = self.objective.layout, self.objective.layout.free_parameters
        root = self.inflated_covariance_root(inflation_factors)[layout.slices.theta]
        slopes = np.array([layout.transforms[k].derivative(float(self.optimum.x[i])) for i, k in enumerate(free)])
        covariance = np.zeros((len(layout.names),) * 2)
        covariance[np.ix_(free, free)] = (slopes[:, None] * root) @ (slopes[:, None] * root).T
        return covariance

    def shifted_point(self, shift: Array) -> Array:
        """Return the point that lies by a move, shape (n,), away from the optimum.

        Shapes: shift (n,).
        """
        layout, centre = self.objective.layout, self.optimum.x
        found = centre + shift
        for position, number in enumerate(layout.free_parameters):
            transform, point = layout.transforms[number], float(centre[position])
            if transform.is_unbounded:
                value = transform.forward(point) + transform.derivative(point) * float(shift[position])
                found[position] = transform.inverse(value)
        return np.asarray(found)

    def mean_jacobian(self, observables: Observables, times: Array) -> Array:
        """Return by how much the posterior mean moves with each column of `roots`, shape (k, n, o).

        Summed over k, their products are the covariance that the estimates add to that of the posterior. The posteriors
        at the neighbouring points are computed once; after that it takes 2 k plain means.

        Shapes: times (n,).
        """
        found = [
            (above.mean(observables, times) - below.mean(observables, times)) / (2.0 * step)
            for step, above, below in self.posterior_pairs
        ]
        return np.stack(found) if found else np.zeros((0, len(times), observables.count))

    def mean_shifts(self, observables: Observables, times: Array) -> Array:
        """Return `slopes`, and by how much the mean is elsewhere at rivals, each by the root of its share, (k, n, o).

        Summed over k, their products are the covariance that estimates and rivals add to that of the posterior.

        Shapes: times (n,).
        """
        shifts = self.mean_jacobian(observables, times)
        others = [(drop, self._posterior_or_none(np.array(point))) for point, drop in self.alternatives]
        means = [(drop, posterior.mean(observables, times)) for drop, posterior in others if posterior is not None]
        if not means:
            return shifts
        centre = self._posterior_at_point(self.optimum.x).mean(observables, times)
        return np.concatenate([shifts, np.stack(_mixture_shifts(centre, means))])

    def shifts_of(self, function: Callable[[Hyperparameters], Array | None]) -> Array:
        """Return by how much any answer moves with each column of `roots`, and at rivals, (k, ...), as `moves` does."""
        layout = self.objective.layout

        def at(point: Array) -> Array | None:
            try:
                with np.errstate(all="ignore"):
                    value = function(layout.unpack(point))
            except LodekitError:
                return None
            return value if value is not None and np.isfinite(value).all() else None

        shifts = [(above - below) / (2.0 * step) for step, above, below in self._difference_pairs(at)]
        if shifts and not self.alternatives:
            return np.stack(shifts)
        centre = at(self.optimum.x)
        if centre is None:
            return np.stack(shifts) if shifts else np.zeros(0)
        others = [(drop, at(np.array(point))) for point, drop in self.alternatives]
        shifts += _mixture_shifts(centre, [(drop, value) for drop, value in others if value is not None])
        return np.stack(shifts) if shifts else np.zeros((0, *centre.shape))

    def sample_posteriors(self, size: int, generator: np.random.Generator) -> Iterator[tuple[Array, Posterior]]:
        """Yield points drawn from the distribution, each with the posterior there.

        A point that the evidence all but rules out, though the normal distribution does not, is taken nearer to the
        optimum.
        """
        for z in generator.standard_normal((size, self.covariance_root.shape[1])):
            for number in range(8):
                step = z / 2.0**number
                point = self.shifted_point(self.covariance_root @ step)
                posterior = self._posterior_or_none(point)
                if posterior is None:
                    continue
                if self._objective_value(point, posterior) >= self._max_value - 0.5 * float(step @ step) - 3.0:
                    yield point, posterior
                    break
            else:
                yield self.optimum.x, self._posterior_at_point(self.optimum.x)

    @cached_property
    def _max_value(self) -> float:
        """The objective at the optimum; computed again, because saved models know another one from other versions."""
        return self._objective_value(self.optimum.x, self._posterior_at_point(self.optimum.x))

    def _objective_value(self, point: Array, posterior: Posterior) -> float:
        """Return the objective at a point where the posterior is known: it tells most of it, unless it is a part."""
        if self.is_single_record:
            return self.objective.value(point)
        return posterior.value + self.objective.log_prior(point)[0]

    @property
    def posterior_pairs(self) -> Iterator[tuple[float, Posterior, Posterior]]:
        """How far from the optimum neighbouring posteriors are, and those above and below, for each column of `roots`.

        Columns along which no neighbour is known are left out.
        """
        engine = self.objective.engine
        numbers = 2.0 * self.covariance_root.shape[1] * engine.size**2 if engine.benefits_from_threads else 0.0
        # Cache posteriors up to 0.8 GB.
        return iter(self._cached_pairs) if numbers < 1e8 else self._difference_pairs(self._posterior_or_none)

    @cached_property
    def _cached_pairs(self) -> list[tuple[float, Posterior, Posterior]]:
        return list(self._difference_pairs(self._posterior_or_none))

    def _difference_pairs(self, evaluate: Callable[[Array], T | None]) -> Iterator[tuple[float, T, T]]:
        """Yield a step, and values that many standard deviations above and below the optimum, for each column.

        The smaller step is used if nothing is known at the larger one.
        """
        for column in self.covariance_root.T:
            for step in (0.1, 0.01):
                above, below = (evaluate(self.shifted_point(sign * step * column)) for sign in (1.0, -1.0))
                if above is not None and below is not None:
                    yield step, above, below
                    break

    def _posterior_at_point(self, point: Array) -> Posterior:
        return self.posterior_at(self.objective.layout.unpack(point))

    def _posterior_or_none(self, point: Array) -> Posterior | None:
        """Return the posterior at a point; None where nothing finite can be said there."""
        try:
            with np.errstate(all="ignore"):
                found = self._posterior_at_point(point)
        except LodekitError:
            return None
        return found if np.isfinite(found.value) else None
