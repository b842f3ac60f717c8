"""Everything that is learned, as one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["Hyperparameters"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Hyperparameters:
    """Everything that is learned, as it is (a search may use logarithms); or derivatives, in the same places.

    Parameters
    ----------
    theta : array, shape (p,)
        Parameters of the system, in the user's units.
    lengthscales, deviations : arrays, shape (q,)
        Of the free functions, or of the channels where the prior stands on these; lengthscales in scaled time,
        deviations in the user's units.
    mode_deviations : array, shape (g,)
        One for each group of modes.
    noise : array
        Standard deviations of the levels of noise, in the user's units.
    disturbance_lengthscales : array
        Of those disturbances that have one, in scaled time.
    disturbance_deviations : array
        Of all disturbances, in the user's units; of white noise the root of its spectral density.
    """

    theta: Array
    lengthscales: Array
    deviations: Array
    mode_deviations: Array
    noise: Array
    disturbance_lengthscales: Array = field(default_factory=lambda: np.zeros(0))
    disturbance_deviations: Array = field(default_factory=lambda: np.zeros(0))

    @property
    def parts(self) -> tuple[Array, ...]:
        """All arrays, in the order in which they are listed above."""
        return (
            self.theta,
            self.lengthscales,
            self.deviations,
            self.mode_deviations,
            self.noise,
            self.disturbance_lengthscales,
            self.disturbance_deviations,
        )

    def map(self, function: Callable[[Array], Array]) -> Hyperparameters:
        """Return the same with a function applied to each array."""
        return Hyperparameters(*(function(part) for part in self.parts))
