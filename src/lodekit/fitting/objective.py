"""The objective (maximum a posteriori estimation): the log evidence plus the log prior of parameters and noise levels.

Parameters have the priors that users give them. Noise levels that are estimated for each observable have a weak prior:
with a handful of measurements the evidence alone is often maximal at zero noise of one observable, because the curves
can pass through all of its points. So the prior is flat in a level and not in its logarithm, which keeps it away from
zero and is worth one measurement; and levels, relative to the spread of their observables, agree up to a factor of
about three, which is worth one more. With more than a dozen measurements of each observable this makes no difference.
One level shared by all observables has no prior.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lodekit.fitting.parameter_vector import ParameterLayout
from lodekit.inference.engine import Engine
from lodekit.prior.prior import Hyperparameters
from lodekit.support.arguments import Array, IndexArray
from lodekit.support.text import join_list
from lodekit.system.parameters import LogNormal, Normal, Parameter

if TYPE_CHECKING:
    from lodekit.fitting.output_error import VariableProjection


@dataclass(frozen=True)
class Objective:
    """The log evidence plus the log prior as a function of the parameter vector, for searches and Hessians.

    engine: Computes the log evidence, in the user's units.
    layout: The layout of the parameter vector `x`.
    parameters: The parameters of the system, with their priors and bounds.
    regression: The measurements with their simulation, if known inputs and initial states determine them all.
    pull: Weight of a quadratic penalty, ``pull/2`` times the squared log distances of parameters from their expected
        magnitudes; zero except in a search along a ridge.
    """

    engine: Engine
    layout: ParameterLayout
    parameters: Mapping[str, Parameter]
    regression: VariableProjection | None = None
    pull: float = 0.0

    @cached_property
    def _parameter_priors(self) -> list[tuple[int, int, Normal | LogNormal, float]]:
        """Position, number, prior and log prior mass inside the bounds of each estimated parameter with a prior."""
        found = []
        for position, number in enumerate(self.layout.free_parameters):
            own = self.parameters[self.layout.names[number]]
            if own.prior is not None:
                found.append((position, number, own.prior, own.prior.log_mass(*own.interval)))
        return found

    @cached_property
    def _noise_prior_entries(self) -> tuple[IndexArray, Array] | None:
        """The positions of noise levels with a prior, and the logarithms of their units; None if there are none."""
        noise, where = self.engine.prior.noise, self.layout.slices.noise
        if noise.shared or where.start == where.stop:
            return None
        # A level has an entry even if all noise of its observable is known; nothing depends on it then.
        learned = np.flatnonzero(noise.learned)
        return where.start + learned, np.log(noise.level_scales[learned])

    @property
    def name(self) -> str:
        """The name of the objective in figures and messages."""
        has_priors = bool(self._parameter_priors) or self._noise_prior_entries is not None
        return "log evidence + log prior" if has_priors else "log evidence"

    @property
    def description(self) -> str:
        """The objective in words: the evidence, and the priors that it is combined with."""
        priors = ["the prior of the parameters"] if self._parameter_priors else []
        priors += ["a weak prior on the noise levels"] if self._noise_prior_entries is not None else []
        return "the evidence" + f", combined with {join_list(priors)}" * bool(priors)

    def log_prior(self, x: Array) -> tuple[float, Array]:
        """Return the log density of all priors, and its gradient in `x`.

        Priors of parameters are normalised over their bounds. The prior of noise levels, a density of their logarithms,
        is improper; it does not depend on units. The restricted-likelihood correction of diffuse modes is included.
        """
        (total, gradient), layout = self._explicit_log_prior(x), self.layout
        nothing = Hyperparameters(*(np.zeros_like(each) for each in layout.unpack(x).arrays))
        return total + layout.restricted_likelihood_correction(x), gradient + layout.gradient(x, nothing)

    def _explicit_log_prior(self, x: Array) -> tuple[float, Array]:
        """Return the log density of the priors of parameters and noise levels, and its gradient in `x`."""
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
        """Return the log evidence plus the log prior at a point; minus infinity if it is not finite."""
        value, _ = self.engine.value_with_error(self.layout.unpack(x))
        value += self.layout.restricted_likelihood_correction(x)
        return value + self._explicit_log_prior(x)[0]

    def evaluate(self, x: Array) -> tuple[float, Array]:
        """Return the log evidence plus the log prior at a point, and the gradient in `x`, shape (n,)."""
        found = self.engine.evaluate(self.layout.unpack(x))
        # `layout.gradient` includes the gradient of this correction.
        value = found.value + self.layout.restricted_likelihood_correction(x)
        gradient = self.layout.gradient(x, found.gradient)
        more, slope = self._explicit_log_prior(x)
        return value + more, gradient + slope
