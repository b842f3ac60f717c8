"""Measurements in memory as the dense engine sees them: all different times, and which observable at which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lodekit.data.contradictions import check_exact_values
from lodekit.data.observations import Series
from lodekit.errors import LodekitError
from lodekit.inference.measured import Measured
from lodekit.prior.compile import Coefficients
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.lags import LagCovariance, Lags
from lodekit.prior.latents import Latent
from lodekit.prior.modes import ModeGroup
from lodekit.prior.points import Point
from lodekit.prior.prior import Prior

__all__ = ["DenseData"]

Array = NDArray[np.float64]

#: Coefficients; basis functions of the modes and means, each with derivatives in the parameters.
Design = tuple[Coefficients, tuple[list[Array], list[Array]], tuple[list[Array], list[Array]]]


@dataclass(frozen=True)
class DenseData(Measured):
    """Measurements in memory with their prior, as the dense engine sees them.

    `prior`, `times`, `index`, `values`, `noise` and `log_jacobian` are those of `Measured`.
    """

    @classmethod
    def of(cls, prior: Prior, series: Sequence[Series]) -> Self:
        """Return measurements in memory with their prior.

        Parameters
        ----------
        prior : Prior
            Of the measured observables.
        series : sequence of Series
            One for each observable of the prior, in its order.
        """
        if prior.disturbances:
            raise LodekitError("a matrix has no disturbances, which are processes with states; use engine='markov'")
        check_exact_values(series)
        return super().of(prior, series)

    @property
    def latents(self) -> tuple[Latent, ...]:
        """The covariances of the free functions."""
        return self.prior.latents

    @property
    def groups(self) -> tuple[ModeGroup, ...]:
        """The groups of basis functions of the modes that share a variance."""
        return self.prior.groups

    def pick(self, parts: Sequence[Array]) -> Array:
        """Return what each observable has at all times, (n, ...), at the times of its measurements: shape (m, ...)."""
        return np.concatenate([part[index] for part, index in zip(parts, self.index, strict=True)])

    def place(self, values: Array) -> Array:
        """Return values of all measurements, (m, s), added up at the times of each observable: shape (o, n, s)."""
        found = np.zeros((len(self.index), len(self.times), values.shape[1]))
        for o, index in enumerate(self.index):
            np.add.at(found[o], index, values[self.edges[o] : self.edges[o + 1]])
        return found

    @cached_property
    def is_full(self) -> bool:
        """Whether every observable was measured exactly once at every time."""
        every = np.arange(len(self.times))
        return all(np.array_equal(index, every) for index in self.index)

    @cached_property
    def lag(self) -> Array:
        """Differences of scaled times, shape (n, n)."""
        return self.scaled_times[:, None] - self.scaled_times[None, :]

    @cached_property
    def different_lags(self) -> tuple[Array, NDArray[np.intp]]:
        """The different lags, shape (k,), and which one each pair of times has, (n, n): few where times are regular."""
        found, places = np.unique(self.lag, return_inverse=True)
        return found, places.reshape(self.lag.shape)

    @cached_property
    def lags(self) -> Lags:
        """All pairs of times, for the channel prior."""
        return Lags(self.scaled_times, self.observables.longest_window)

    def lag_covariance(self, coefficients: Coefficients, hyper: Hyperparameters, noise: Array) -> LagCovariance | None:
        """Return the covariance of the channel prior over all pairs of times; None where it is not finite.

        Parameters
        ----------
        coefficients : Coefficients
            Of the measured observables.
        hyper : Hyperparameters
        noise : array, shape (n,)
            Variances of all measurements, in scaled units.
        """
        parts = np.split(noise, self.edges[1:-1])
        least = np.array([np.min(part, initial=np.inf) for part in parts])
        return self.lags.covariance(Point.at(coefficients, self.channels(hyper.theta), hyper), least)

    def channels(self, theta: Array) -> Coefficients | None:
        """Return the coefficients of all channels, where the prior stands on these; the last answer is kept.

        Parameters
        ----------
        theta : array, shape (p,)
            Values of the parameters.
        """
        if self.prior.channels is None:
            return None
        key = theta.tobytes()
        kept = self._kept_channels.get("last")
        if kept is None or kept[0] != key:
            kept = self._kept_channels["last"] = (key, self.prior.channels.evaluate(theta))
        return kept[1]

    @cached_property
    def _kept_channels(self) -> dict[str, tuple[bytes, Coefficients]]:
        return {}

    def design(self, theta: Array, *, slopes: bool) -> Design:
        """Return coefficients, basis functions of the modes, and means at all times, scaled, with derivatives.

        The last answer is kept: many evaluations after each other change hyperparameters only.

        Parameters
        ----------
        theta : array, shape (p,)
            Values of the parameters, in which derivatives are taken.
        slopes : bool
            Whether derivatives of the basis functions are wanted.
        """
        key = (theta.tobytes(), slopes)
        kept = self._kept.get("last")
        if kept is None or kept[0] != key:
            found = self.observables.evaluate(theta)
            basis = self.observables.mode_basis(found, self.groups, self.scaled_times, slopes=slopes)
            kept = self._kept["last"] = (key, (found, basis, self.observables.means(found, self.times, slopes=slopes)))
        return kept[1]

    @cached_property
    def _kept(self) -> dict[str, tuple[tuple[bytes, bool], Design]]:
        return {}
