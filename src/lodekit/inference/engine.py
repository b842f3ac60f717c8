"""What an engine is: the evidence of the data with its gradient, and the posterior, at any hyperparameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lodekit.inference.problem import Hyperparameters, Prior, Rows
from lodekit.prior.compile import RowValues

__all__ = ["Engine", "Evidence", "Posterior"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Evidence:
    """The negative log evidence in the user's units, and its gradient.

    Parameters
    ----------
    value : float
    theta : array, shape (p,)
        Derivatives in the parameters.
    log_lengthscales, log_deviations : arrays, shape (q,)
    log_mode_deviations : array, shape (g,)
    log_noise : array
    """

    value: float
    theta: Array
    log_lengthscales: Array
    log_deviations: Array
    log_mode_deviations: Array
    log_noise: Array

    @classmethod
    def infinite(cls, hyper: Hyperparameters) -> Evidence:
        """Return what a search gets where nothing finite can be said."""
        parts = (hyper.theta, hyper.lengthscales, hyper.deviations, hyper.mode_deviations, hyper.noise)
        return cls(np.inf, *(np.zeros(len(part)) for part in parts))


class Posterior(Protocol):
    """A prior with data, at given hyperparameters."""

    @property
    def value(self) -> float:
        """The negative log evidence in the user's units."""

    def warnings(self) -> list[str]:
        """Return what a user should know about the accuracy of the answer."""

    def mean(self, rows: Rows, times: Array) -> Array:
        """Return the posterior mean of observables, shape (n, o)."""

    def variance(self, rows: Rows, times: Array) -> Array:
        """Return the posterior variance of observables, shape (n, o)."""

    def covariance(self, rows: Rows, times: Array) -> Array:
        """Return the posterior covariance of observables, shape (n, o, n, o)."""

    def sample(self, rows: Rows, times: Array, size: int, generator: np.random.Generator) -> Array:
        """Return functions drawn from the posterior, seen through observables, shape (size, n, o)."""


class Engine(Protocol):
    """Data and prior, and a way to compute with them."""

    @property
    def prior(self) -> Prior:
        """The prior, compiled."""

    @property
    def size(self) -> int:
        """Number of measurements."""

    @property
    def shortest(self) -> float:
        """The shortest lengthscale that can be learned, in scaled time."""

    @property
    def stride(self) -> float:
        """By what factor a lengthscale may shrink in one search."""

    def evaluate(self, hyper: Hyperparameters) -> Evidence:
        """Return the negative log evidence and its gradient; infinite where it is not finite."""

    def value(self, hyper: Hyperparameters) -> float:
        """Return the negative log evidence alone."""

    def posterior(self, hyper: Hyperparameters) -> Posterior:
        """Return the posterior; raise where it is not finite."""

    def powers(self, values: RowValues) -> tuple[Array, Array]:
        """Return the mean square of the data of each observable, and of each basis function of the modes.

        In scaled units, the particular solution taken off.
        """

    def trouble(self, hyper: Hyperparameters) -> str:
        """Return why nothing finite can be said at some hyperparameters; empty where nothing is known."""
