"""The objective (maximum a posteriori estimation): the log evidence plus the log prior of parameters and noise levels.

Parameters have the priors that users give them. Noise levels that are estimated for each observable have a weak prior:
from a handful of measurements the evidence alone often finds that one observable has no noise at all, because the
curves can pass through all of its points. So a level has a flat prior in itself and not in its logarithm, which keeps
it off zero and is worth one measurement; and levels, relative to the spread of their observables, agree up to a factor
of about three, which is worth one more. With more than a dozen measurements of each this makes no difference. One
level shared by all observables has no prior.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lodekit.fitting.parameter_vector import ParameterLayout
from lodekit.inference.engine import Engine
from lodekit.prior.prior import Hyperparameters
from lodekit.support.arguments import Array, IndexArray
from lodekit.system.parameters import LogNormal, Normal, Parameter


@dataclass(frozen=True)
class Objective:
    """The log evidence plus the log prior, over the vector of a layout; searches, curvatures and samplers all use it.

    engine: For the log evidence, in the user's units.
    layout: Where everything that is learned stands in the vector `x`.
    parameters: Of the system: their priors and bounds.
    pull: By how much the objective falls with the squares of the distances of parameters from their expected
        magnitudes, twice; zero but for a search along a ridge.
    """

    engine: Engine
    layout: ParameterLayout
    parameters: Mapping[str, Parameter]
    pull: float = 0.0

    @cached_property
    def _parameter_priors(self) -> list[tuple[int, int, Normal | LogNormal, float]]:
        """The position, the number and the prior of each learned parameter that has one, and the log of its mass."""
        found = []
        for position, number in enumerate(self.layout.free_parameters):
            own = self.parameters[self.layout.names[number]]
            if own.prior is not None:
                found.append((position, number, own.prior, own.prior.log_mass(*own.interval)))
        return found

    @cached_property
    def _noise_prior_entries(self) -> tuple[IndexArray, Array] | None:
        """Where the levels of noise stand that have a prior, and the logarithms of their units; None where none has."""
        noise, where = self.engine.prior.noise, self.layout.slices.noise
        if noise.shared or where.start == where.stop:
            return None
        # A level has its place also where all noise of its observable is known; nothing depends on it then.
        learned = np.flatnonzero(noise.learned)
        return where.start + learned, np.log(noise.level_scales[learned])

    @property
    def name(self) -> str:
        """What it is called in figures and messages."""
        has_priors = bool(self._parameter_priors) or self._noise_prior_entries is not None
        return "log evidence + log prior" if has_priors else "log evidence"

    @property
    def description(self) -> str:
        """What it is, in words: the evidence, and the priors that it is multiplied by."""
        priors = ["the prior of the parameters"] if self._parameter_priors else []
        priors += ["a weak prior on the noise levels"] if self._noise_prior_entries is not None else []
        return " times ".join(["the evidence", *priors])

    def log_prior(self, x: Array) -> tuple[float, Array]:
        """Return the log density of all priors, and its gradient in `x`.

        Those of parameters are normalised over their bounds. That of the levels of noise, a density of their
        logarithms, cannot be normalised; it does not depend on units. What open modes give back belongs to it.
        """
        (total, gradient), layout = self._explicit_log_prior(x), self.layout
        nothing = Hyperparameters(*(np.zeros_like(each) for each in layout.unpack(x).arrays))
        return total + layout.restricted_likelihood_correction(x), gradient + layout.gradient(x, nothing)

    def _explicit_log_prior(self, x: Array) -> tuple[float, Array]:
        """Return the log density of the priors of parameters and levels, and its gradient in `x`."""
        total, gradient = 0.0, np.zeros_like(x)
        if self._noise_prior_entries is not None:
            where, units = self._noise_prior_entries
            logs = x[where] - units
            apart = logs - logs.mean()
            total += float(logs.sum()) - 0.5 * float(apart @ apart)
            gradient[where] = 1.0 - apart
        for position, number, prior, log_mass in self._parameter_priors:
            transform, point = self.layout.transforms[number], float(x[position])
            value, slope = prior.log_density(transform.forward(point))
            total += value - log_mass
            gradient[position] += slope * transform.derivative(point)
        for position, transform in enumerate(self.layout.transforms.values() if self.pull else ()):
            distance, slope = transform.log_distance(float(x[position]))
            total -= 0.5 * self.pull * distance**2
            gradient[position] -= self.pull * distance * slope
        return total, gradient

    def value(self, x: Array) -> float:
        """Return the log evidence plus the log prior at a point; minus infinity where it is not finite."""
        value, _ = self.engine.value_with_error(self.layout.unpack(x))
        value += self.layout.restricted_likelihood_correction(x)
        return value + self._explicit_log_prior(x)[0]

    def evaluate(self, x: Array) -> tuple[float, Array]:
        """Return the log evidence plus the log prior at a point, and the gradient in `x`, shape (n,)."""
        found = self.engine.evaluate(self.layout.unpack(x))
        # The gradient of what open modes give back comes with that of their deviations.
        value = found.value + self.layout.restricted_likelihood_correction(x)
        gradient = self.layout.gradient(x, found.gradient)
        more, slope = self._explicit_log_prior(x)
        return value + more, gradient + slope

    def log_density(self, x: Array) -> tuple[float, Array]:
        """Return the unnormalised log density of the posterior of `x`, and its gradient, as samplers want it.

        A prior on a parameter is a density in the parameter, so the logarithm of its transform's slope is added. What
        has no prior is flat on the scale of the search: lengthscales, deviations and noise in their logarithms.
        """
        value, gradient = self.evaluate(x)
        for position, number, *_ in self._parameter_priors:
            transform, point = self.layout.transforms[number], float(x[position])
            value += transform.log_jacobian(point)
            gradient[position] += transform.log_jacobian_gradient(point)
        return value, gradient
