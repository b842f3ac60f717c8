"""The posterior in the form that keeps its digits.

A mean is a sum over measurements; with little noise its weights are huge and cancel, and rounding shows in the curve.
On waves the same mean has moderate weights, whatever the noise. So where rounding would show, and another engine can
take the case, that one answers; where it cannot reach, the first one does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.data.measurements import Measurements
from lodekit.errors import LodekitError
from lodekit.inference.choice import KINDS, Choice
from lodekit.inference.engine import Case, Engine, Posterior
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.observables import Observables

__all__ = ["ACCURATE", "RefinedPosterior", "accurate_posterior"]

Array = NDArray[np.float64]
#: Rounding in a mean, relative to the data, that no derivative in an equation makes visible.
ACCURATE = 1e-11


@dataclass(frozen=True)
class RefinedPosterior:
    """A posterior whose questions are answered by another engine, wherever that one can.

    Parameters
    ----------
    first : Posterior
        Of the engine that was chosen; the log evidence, its warnings and exact values are its own.
    second : Posterior
        The same distribution in a form that loses fewer digits.
    """

    first: Posterior
    second: Posterior

    @property
    def value(self) -> float:
        """The log evidence in the user's units."""
        return self.first.value

    @property
    def rounding(self) -> float:
        """About how large an error rounding makes in the mean, relative to the data."""
        return self.second.rounding

    def warnings(self) -> list[str]:
        """Return sentences that users should read about its accuracy; none where nothing is wrong."""
        return self.first.warnings()

    def check_exact_values(self) -> None:
        """Raise where values that were said to be exact are not met."""
        self.first.check_exact_values()

    def mean(self, observables: Observables, times: Array) -> Array:
        """Return the posterior mean of `observables` at `times`, in the user's units, shape (n, o)."""
        return self._ask(lambda posterior: posterior.mean(observables, times))

    def variance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior variance of `observables` at `times`, as in `mean`, shape (n, o)."""
        return self._ask(lambda posterior: posterior.variance(observables, times))

    def covariance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior covariance of `observables` at `times`, as in `mean`, shape (n, o, n, o)."""
        return self._ask(lambda posterior: posterior.covariance(observables, times))

    def sample(self, observables: Observables, times: Array, size: int, generator: np.random.Generator) -> Array:
        """Return functions drawn from the posterior, seen through observables, shape (size, n, o).

        Parameters
        ----------
        observables, times
            As in `mean`.
        size : int
            How many functions.
        generator : numpy.random.Generator
        """
        return self._ask(lambda posterior: posterior.sample(observables, times, size, generator))

    def _ask(self, question: Callable[[Posterior], Array]) -> Array:
        try:
            found = question(self.second)
        except LodekitError:
            return question(self.first)
        return found if np.isfinite(found).all() else question(self.first)


def accurate_posterior(
    engine: Engine, choice: Choice, measurements: Measurements, case: Case, hyper: Hyperparameters
) -> Posterior:
    """Return the posterior at some hyperparameters, by another engine where the chosen one loses too many digits.

    Parameters
    ----------
    engine : Engine
        The one that was chosen.
    choice : Choice
        Its kind.
    measurements : Measurements
        What it was made on.
    case : Case
        What it was chosen for.
    hyper : Hyperparameters
    """
    first = engine.posterior(hyper)
    if not first.rounding > ACCURATE:
        return first
    others = [kind for kind in KINDS.values() if kind is not choice.kind and not kind.refuses(case)]
    for kind in others:
        second = kind.make(engine.prior, measurements, case).posterior(hyper)
        try:
            with np.errstate(all="ignore"):
                at_data = second.mean(engine.prior.observables, np.asarray(measurements.window))
        except LodekitError:
            continue
        if np.isfinite(at_data).all() and second.rounding < first.rounding:
            return RefinedPosterior(first, second)
    return first
