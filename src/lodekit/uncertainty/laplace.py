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
#: Standard deviation on the search scale, a factor of 20, that is assumed for entries that the data do not identify.
UNIDENTIFIED_STD = 3.0
#: Curvatures below this, relative to the largest one, are rounding errors.
_EIGENVALUE_TOLERANCE = 1e-9


def regularized_covariance_root(information: Array, free: Mask, prior_stds: Array) -> Array:
    """Return a root L of the regularised covariance, ``L L^T = (H + diag(prior_stds)^-2)^-1``, shape (n, k).

    The prior keeps unidentified directions finite; directions of negative curvature are treated as flat. Shapes:
    information (n, n), free (n,), prior_stds (n,).
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
    """Return differences of a value at other optima, given with their drop of the objective, times root weights."""
    weights = [math.exp(-drop) for drop, _ in values]
    total = 1.0 + sum(weights)
    return [math.sqrt(weight / total) * (value - centre) for weight, (_, value) in zip(weights, values, strict=True)]


@dataclass(frozen=True, eq=False)
class LaplaceApproximation:
    """A normal distribution of all estimates around the optimum, and its effect on predictions.

    It is normal on the search scale, on which positive parameters, lengthscales, standard deviations and noise levels
    are logarithms; for unbounded parameters it is normal in the parameters themselves, like their intervals.

    optimum: The centre.
    information: Minus the Hessian of the objective there; (n, n).
    posterior_at: Function that returns the posterior at given hyperparameters.
    alternatives: Other optima that fit about as well: points and their drops of the objective.
    is_single_record: Whether the posterior is that of one of several records, and the objective that of all.
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
        # Prior standard deviations of entries that the data do not identify.
        stds = np.full(layout.size, UNIDENTIFIED_STD)
        for position, number in enumerate(layout.free_parameters):
            transform, point = layout.transforms[number], float(optimum.x[position])
            if transform.is_unbounded:
                # Near zero the search scale is arbitrarily fine.
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
        """Return the point at a shift, shape (n,), from the optimum; shifts of unbounded parameters are linear.

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
        """Return the change of the posterior mean along each column of `covariance_root`, shape (k, n, o).

        Summed over k, their products are the covariance due to parameter uncertainty. The posteriors at the
        neighbouring points are cached if they are small; then this takes 2 k posterior means.

        Shapes: times (n,).
        """
        found = [
            (above.mean(observables, times) - below.mean(observables, times)) / (2.0 * step)
            for step, above, below in self.posterior_pairs
        ]
        return np.stack(found) if found else np.zeros((0, len(times), observables.count))

    def mean_shifts(self, observables: Observables, times: Array) -> Array:
        """Return `mean_jacobian`, and differences of the mean at other optima times root weights, shape (k, n, o).

        Summed over k, their products are the covariance that estimates and other optima add to that of the posterior.

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
        """Return the changes of any function of the hyperparameters, (k, ...), as `mean_shifts` does for the mean."""
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

    def sample_posteriors(
        self, size: int, generator: np.random.Generator, inflation_root: Array | None = None
    ) -> Iterator[tuple[Array, Posterior]]:
        """Yield points drawn from the distribution, each with the posterior there.

        A point at which the objective is far below its normal approximation is moved closer to the optimum. If
        residuals are correlated, the deviations of estimates, in their own units, are multiplied by a root of their
        covariance.

        Shapes: inflation_root (k, k).
        """
        for z in generator.standard_normal((size, self.covariance_root.shape[1])):
            own = z if inflation_root is None else inflation_root @ z
            growth = float(own @ own) / max(float(z @ z), 1e-300)
            for number in range(8):
                step = own / 2.0**number
                point = self.shifted_point(self.covariance_root @ step)
                posterior = self._posterior_or_none(point)
                if posterior is None:
                    continue
                least = self._max_value - 0.5 * float(step @ step) - 3.0 * max(growth, 1.0)
                if self._objective_value(point, posterior) >= least:
                    yield point, posterior
                    break
            else:
                yield self.optimum.x, self._posterior_at_point(self.optimum.x)

    @cached_property
    def _max_value(self) -> float:
        """The objective at the optimum, recomputed because models saved by other versions may have another value."""
        return self._objective_value(self.optimum.x, self._posterior_at_point(self.optimum.x))

    def _objective_value(self, point: Array, posterior: Posterior) -> float:
        """Return the objective at a point with a known posterior, whose log evidence is used if it is that of all."""
        if self.is_single_record:
            return self.objective.value(point)
        return posterior.value + self.objective.log_prior(point)[0]

    @property
    def posterior_pairs(self) -> Iterator[tuple[float, Posterior, Posterior]]:
        """The step and the posteriors at both sides of the optimum, for each column of `covariance_root`.

        Columns without a finite posterior on both sides are left out.
        """
        engine = self.objective.engine
        numbers = 2.0 * self.covariance_root.shape[1] * engine.size**2 if engine.benefits_from_threads else 0.0
        # Cache posteriors up to 0.8 GB.
        return iter(self._cached_pairs) if numbers < 1e8 else self._difference_pairs(self._posterior_or_none)

    @cached_property
    def _cached_pairs(self) -> list[tuple[float, Posterior, Posterior]]:
        return list(self._difference_pairs(self._posterior_or_none))

    def _difference_pairs(self, evaluate: Callable[[Array], T | None]) -> Iterator[tuple[float, T, T]]:
        """Yield a step in standard deviations, and values above and below the optimum, for each column.

        The smaller step is used if a value at the larger one is None.
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
        """Return the posterior at a point; None if it is not finite."""
        try:
            with np.errstate(all="ignore"):
                found = self._posterior_at_point(point)
        except LodekitError:
            return None
        return found if np.isfinite(found.value) else None
