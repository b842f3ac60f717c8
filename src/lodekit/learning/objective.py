"""The function that is maximised: the log evidence, plus the log prior where parameters have priors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lodekit.inference.engine import Engine
from lodekit.learning.transforms import Layout
from lodekit.system.parameters import LogNormal, Normal, Parameter

__all__ = ["Objective"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Objective:
    """The log evidence plus the log prior, over the vector of a layout; searches, curvatures and samplers all use it.

    Parameters
    ----------
    engine : Engine
        For the log evidence, in the user's units.
    layout : Layout
        Where everything that is learned stands in the vector `x`.
    parameters : dict of str to Parameter
        Of the system: their priors and bounds.
    """

    engine: Engine
    layout: Layout
    parameters: Mapping[str, Parameter]

    @cached_property
    def _priors(self) -> list[tuple[int, int, Normal | LogNormal, float]]:
        """The position, the number and the prior of each learned parameter that has one, and the log of its mass."""
        found = []
        for position, number in enumerate(self.layout.learned):
            own = self.parameters[self.layout.names[number]]
            if own.prior is not None:
                found.append((position, number, own.prior, own.prior.log_mass(*own.interval)))
        return found

    @property
    def has_priors(self) -> bool:
        """Whether any learned parameter has a prior."""
        return bool(self._priors)

    @property
    def name(self) -> str:
        """What it is called in figures and messages."""
        return "log evidence + log prior" if self.has_priors else "log evidence"

    def log_prior(self, x: Array) -> tuple[float, Array]:
        """Return the log density of the parameters' priors, normalised over their bounds, and its gradient in `x`."""
        total, gradient = 0.0, np.zeros_like(x)
        for position, number, prior, log_mass in self._priors:
            transform, point = self.layout.transforms[number], float(x[position])
            value, slope = prior.log_density(transform.forward(point))
            total += value - log_mass
            gradient[position] += slope * transform.slope(point)
        return total, gradient

    def value(self, x: Array) -> float:
        """Return the log evidence plus the log prior at a point; minus infinity where it is not finite."""
        value = self.engine.value(self.layout.unpack(x))
        return value + self.log_prior(x)[0] if self._priors else value

    def evaluate(self, x: Array) -> tuple[float, Array]:
        """Return the log evidence plus the log prior at a point, and the gradient in `x`, shape (n,)."""
        found = self.engine.evaluate(self.layout.unpack(x))
        value, gradient = found.value, self.layout.gradient(x, found.gradient)
        if self._priors:
            more, slope = self.log_prior(x)
            value, gradient = value + more, gradient + slope
        return value, gradient

    def log_density(self, x: Array) -> tuple[float, Array]:
        """Return the unnormalised log density of the posterior of `x`, and its gradient, as samplers want it.

        A prior on a parameter is a density in the parameter, so the logarithm of its transform's slope is added. What
        has no prior is flat on the scale of the search: lengthscales, deviations and noise in their logarithms.
        """
        value, gradient = self.evaluate(x)
        for position, number, *_ in self._priors:
            transform, point = self.layout.transforms[number], float(x[position])
            value += transform.log_slope(point)
            gradient[position] += transform.bend(point)
        return value, gradient
