"""Measurements in memory with their prior: all distinct times, and which observable was measured at which."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np

from lodekit.data.noise import MeasurementNoise
from lodekit.data.observations import TimeSeries
from lodekit.data.records import check_exact_residuals
from lodekit.inference.engine import BaseEngine, BasePosterior
from lodekit.prior.compile import Coefficients
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Prior
from lodekit.support.arguments import Array, IndexArray

#: Number of times from which the mean squares of modes are estimated, about.
N_SUBSAMPLED_TIMES = 400


@dataclass(frozen=True)
class StackedMeasurements:
    """Measurements in memory with their prior.

    prior: The prior of the measured observables.
    times: All distinct times, in the user's units, ascending; (n,).
    index: For each observable, the indices of its times; repeated measurements repeat an index.
    values: All measurements, scaled, ordered by observable; (m,).
    noise: The noise of all measurements.
    log_jacobian: The number that converts a log density from scaled units to the user's, by addition.
    """

    prior: Prior
    times: Array
    index: list[IndexArray]
    values: Array
    noise: MeasurementNoise
    log_jacobian: float

    @classmethod
    def from_series(cls, prior: Prior, series: Sequence[TimeSeries]) -> Self:
        """Return measurements in memory with their prior."""
        times = series[0].times
        index = [np.arange(len(times))] * len(series)
        if not (np.diff(times) > 0).all() or any(not np.array_equal(item.times, times) for item in series):
            times = np.unique(np.concatenate([item.times for item in series]))
            index = [np.searchsorted(times, item.times) for item in series]
        scaled = [item.values / scale for item, scale in zip(series, prior.units.scales, strict=True)]
        jacobian = prior.units.log_jacobian([len(item.times) for item in series])
        noise = MeasurementNoise.from_series(prior.noise, series)
        return cls(prior, times, index, np.concatenate(scaled), noise, jacobian)

    @property
    def observables(self) -> Observables:
        """The measured observables, compiled and scaled."""
        return self.prior.observables

    @property
    def size(self) -> int:
        """The number of measurements."""
        return len(self.values)

    @cached_property
    def scaled_times(self) -> Array:
        """All distinct times, scaled."""
        return self.prior.units.scale_times(self.times)

    @cached_property
    def offsets(self) -> IndexArray:
        """The first row of each observable among all measurements, and the number of all."""
        return np.cumsum([0, *(len(index) for index in self.index)]).astype(np.intp)

    @cached_property
    def filter_order(self) -> IndexArray:
        """The order in which a filter processes observables measured at the same time: by name."""
        return np.argsort(np.argsort(self.prior.noise.observables))

    @cached_property
    def observable_rows(self) -> list[slice]:
        """The rows of each observable among all measurements."""
        return [slice(start, stop) for start, stop in pairwise(self.offsets.tolist())]

    def gather_rows(self, parts: Sequence[Array]) -> Array:
        """Return arrays of each observable at all times, (n, ...), at the times of its measurements: shape (m, ...)."""
        return np.concatenate([part[index] for part, index in zip(parts, self.index, strict=True)])

    def subtract_mean(self, coefficients: Coefficients) -> Array:
        """Return the scaled measurements minus their prior mean, shape (m,)."""
        if not self.observables.has_mean:
            return self.values
        means, _ = self.observables.means(coefficients, self.times, with_jacobian=False)
        return np.asarray(self.values - self.gather_rows(means))


class StackedPosterior(BasePosterior):
    """The posterior of measurements in memory.

    data: Measurements with their prior.
    """

    data: StackedMeasurements

    @abstractmethod
    def mean(self, observables: Observables, times: Array) -> Array:
        """Return the posterior mean, shape (n, o)."""

    def check_exact_values(self) -> None:
        """Raise if the mean does not meet exact values: they contradict each other or the equations."""
        data, exact = self.data, self.data.noise.exact
        if exact.any():
            numbers = np.repeat(np.arange(len(data.index)), np.diff(data.offsets))[exact]
            times = data.times[np.concatenate(data.index)[exact]]
            with np.errstate(all="ignore"):
                means = self.mean(data.observables, times)[np.arange(len(times)), numbers]
            check_exact_residuals(times, means - data.values[exact])


@dataclass(frozen=True)
class StackedEngine(BaseEngine):
    """An engine on measurements in memory.

    data: Measurements with their prior.
    """

    data: StackedMeasurements

    @property
    def prior(self) -> Prior:
        """The prior, compiled."""
        return self.data.prior

    @property
    def size(self) -> int:
        """The number of measurements."""
        return self.data.size

    def mean_squares(self, coefficients: Coefficients) -> tuple[Array, Array]:
        """Return scaled mean squares: of the data of each observable, (o,), and of the basis of the modes, (r,)."""
        parts = np.split(self.data.subtract_mean(coefficients), self.data.offsets[1:-1])
        times = self.data.scaled_times[:: len(self.data.times) // N_SUBSAMPLED_TIMES + 1]
        return data_mean_squares(parts), mode_mean_squares(self.prior, coefficients, times)


def data_mean_squares(parts: Sequence[Array]) -> Array:
    """Return the mean square of the data of each observable, shape (o,); one if there are none or all are zero."""
    return np.array([(float(np.mean(part**2)) if len(part) else 0.0) or 1.0 for part in parts])


def mode_mean_squares(prior: Prior, coefficients: Coefficients, times: Array) -> Array:
    """Return the mean square of each basis function of the modes, over all observables, shape (r,).

    Shapes: times (n,).
    """
    basis, _ = prior.observables.mode_basis(coefficients, prior.groups, times, with_jacobian=False)
    return np.mean([np.mean(part**2, axis=0) for part in basis], axis=0) if prior.groups else np.zeros(0)
