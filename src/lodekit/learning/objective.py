"""The function that is maximised: the log evidence, plus the log prior of parameters and of levels of noise.

Parameters have the priors that users give them. Levels of noise that are learned one for each observable have a weak
one. From a handful of measurements the evidence alone often finds that one observable has no noise at all, because the
curves can pass through all of its points, and then believes these few points without limit. So a level counts as flat
in itself and not in its logarithm, which keeps it off zero and is worth one measurement, and levels, each relative to
the spread of its observable, are taken to be alike up to a factor of about three, which is worth one more. Where there
are more than a dozen measurements of each, nothing of this is seen. One level that all share has no prior.
"""

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
#: How far apart the logarithms of relative levels of noise are expected to be.
_ALIKE = 1.0


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

    @cached_property
    def _levels(self) -> tuple[NDArray[np.intp], Array] | None:
        """Where the levels of noise stand that have a prior, and the logarithms of their units; None where none has."""
        noise, where = self.engine.prior.noise, self.layout.blocks.noise
        if noise.shared or where.start == where.stop:
            return None
        # A level has its place also where all noise of its observable is known; nothing depends on it then.
        learned = np.flatnonzero(noise.learned)
        return where.start + learned, np.log(noise.units[learned])

    @property
    def has_priors(self) -> bool:
        """Whether anything that is learned has a prior."""
        return bool(self._priors) or self._levels is not None

    @property
    def name(self) -> str:
        """What it is called in figures and messages."""
        return "log evidence + log prior" if self.has_priors else "log evidence"

    @property
    def described(self) -> str:
        """What it is, in words: the evidence, and the priors that it is multiplied by."""
        priors = ["the prior of the parameters"] if self._priors else []
        priors += ["a weak prior of the levels of noise"] if self._levels is not None else []
        return " times ".join(["the evidence", *priors])

    def log_prior(self, x: Array) -> tuple[float, Array]:
        """Return the log density of all priors, and its gradient in `x`.

        Those of parameters are normalised over their bounds. That of the levels of noise, a density of their
        logarithms, cannot be normalised; it does not depend on units. What open modes give back belongs to it.
        """
        total, gradient = self._own_prior(x)
        return total + self.layout.correction(x), gradient + self.layout.correction_slope(x)

    def _own_prior(self, x: Array) -> tuple[float, Array]:
        """Return the log density of the priors of parameters and levels, and its gradient in `x`."""
        total, gradient = 0.0, np.zeros_like(x)
        if self._levels is not None:
            where, units = self._levels
            logs = x[where] - units
            apart = logs - logs.mean()
            total += float(logs.sum()) - 0.5 * float(apart @ apart) / _ALIKE**2
            gradient[where] = 1.0 - apart / _ALIKE**2
        for position, number, prior, log_mass in self._priors:
            transform, point = self.layout.transforms[number], float(x[position])
            value, slope = prior.log_density(transform.forward(point))
            total += value - log_mass
            gradient[position] += slope * transform.slope(point)
        return total, gradient

    def value(self, x: Array) -> float:
        """Return the log evidence plus the log prior at a point; minus infinity where it is not finite."""
        return self.engine.value(self.layout.unpack(x)) + self.layout.correction(x) + self._own_prior(x)[0]

    def evaluate(self, x: Array) -> tuple[float, Array]:
        """Return the log evidence plus the log prior at a point, and the gradient in `x`, shape (n,)."""
        found = self.engine.evaluate(self.layout.unpack(x))
        # The gradient of what open modes give back comes with that of their deviations.
        value, gradient = found.value + self.layout.correction(x), self.layout.gradient(x, found.gradient)
        more, slope = self._own_prior(x)
        return value + more, gradient + slope

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
