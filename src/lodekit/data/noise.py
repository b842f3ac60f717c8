"""Measurement noise: known standard deviations, and levels that are estimated, per observable or shared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np

from lodekit.data.observations import TimeSeries
from lodekit.data.records import ObservableStatistics
from lodekit.errors import DataError
from lodekit.support.arguments import Array, IndexArray, Mask

#: The standard deviation that replaces zero, relative to the scale of an observable: exact values, and data that are
#: redundant under the equations, would otherwise make covariances singular.
EXACT_NOISE_RATIO = 1e-7
#: The lowest estimated noise level of an observable that is always zero, relative to its scale from the equations.
MIN_NOISE_RATIO_OF_ZEROS = 1e-2


@dataclass(frozen=True)
class NoiseModel:
    """The assignment of estimated noise levels to observables.

    shared: Whether all observables share one level; otherwise each has its own.
    learned: Whether any noise of each observable is estimated.
    scales: The units of the observables; (o,).
    zero_observables: Observables that are always zero, whose noise level has no lower bound in the data.
    """

    shared: bool
    observables: tuple[str, ...]
    learned: tuple[bool, ...]
    scales: Array
    zero_observables: tuple[str, ...] = ()

    @classmethod
    def from_statistics(cls, statistics: Sequence[ObservableStatistics], scales: Array, *, shared: bool) -> NoiseModel:
        """Return the noise model of measured observables.

        Shapes: scales (o,).
        """
        names, learned = zip(*((item.observable, item.n_unknown_noise > 0) for item in statistics), strict=True)
        return cls(shared, names, learned, scales, tuple(item.observable for item in statistics if item.is_zero))

    def restricted_to(self, observables: Sequence[str]) -> NoiseModel:
        """Return the noise of some of the observables."""
        if tuple(observables) == self.observables:
            return self
        where = [self.observables.index(name) for name in observables]
        learned = tuple(self.learned[k] for k in where)
        zeros = tuple(name for name in self.zero_observables if name in observables)
        return NoiseModel(self.shared, tuple(observables), learned, self.scales[where], zeros)

    @cached_property
    def level_indices(self) -> tuple[int, ...]:
        """The index of the level of each observable."""
        return (0,) * len(self.observables) if self.shared else tuple(range(len(self.observables)))

    @cached_property
    def level_scales(self) -> Array:
        """A unit for each level: the smallest scale among the observables that share it."""
        found = np.full(max(self.level_indices, default=-1) + 1, np.inf)
        np.minimum.at(found, np.array(self.level_indices, dtype=np.intp), self.scales)
        return found

    @cached_property
    def min_levels(self) -> Array:
        """The lower bound of each level; for observables that are always zero, a larger one.

        The evidence of zeros grows without bound as their level decreases, and would outweigh all other data.
        """
        quiet = [name in self.zero_observables and not self.shared for name in self.observables]
        lowest = np.full(len(self.level_scales), 1e-6)
        lowest[np.array(self.level_indices, dtype=np.intp)[quiet]] = MIN_NOISE_RATIO_OF_ZEROS
        return np.asarray(lowest * self.level_scales)

    @property
    def n_levels(self) -> int:
        """Number of estimated levels; zero if all noise is known."""
        return len(self.level_scales) if any(self.learned) else 0

    def level_index(self, observable: int, *, learned: bool) -> int:
        """Return the index of the level of an observable's measurements; -1 if their noise is known."""
        return self.level_indices[observable] if learned else -1

    def precision(self, observable: int, levels: Array, *, learned: bool) -> float:
        """Return the factor of the weights of measurements: one over the estimated variance, in scaled units."""
        return 1.0 / self.variance(observable, levels) if learned else 1.0

    def variance(self, observable: int, levels: Array) -> float:
        """Return the estimated noise variance of an observable in scaled units."""
        return float((levels[self.level_indices[observable]] / self.scales[observable]) ** 2)

    def level_medians(self, values: Array) -> Array:
        """Return the median over the observables of each level."""
        levels = range(max(self.level_indices) + 1)
        return np.array([np.median(values[np.equal(self.level_indices, level)]) for level in levels])

    def levels_by_name(self, levels: Array) -> dict[str, float]:
        """Return estimated levels by observable (or "shared"), in the user's units."""
        if not len(levels):
            return {}
        if self.shared:
            return {"shared": float(levels[0])}
        known = zip(self.observables, self.learned, levels, strict=True)
        return {name: float(level) for name, learned, level in known if learned}

    def transfer_levels(self, old: NoiseModel, levels: Array) -> Array:
        """Return the levels of an earlier fit for these observables; new ones start at a tenth of their scale."""
        found = 0.1 * self.level_scales[: self.n_levels]
        known = dict(zip(old.observables, old.level_indices, strict=True))
        for name, group in zip(self.observables, self.level_indices, strict=True):
            if self.n_levels and name in known and len(levels):
                found[group] = levels[known[name]]
        return found


@dataclass(frozen=True)
class MeasurementNoise:
    """The noise of each measurement, in scaled units.

    level_index: The level of each measurement; (n,).
    learned: Whether its noise is estimated; (n,).
    exact: Whether the value is specified as exact; its standard deviation is `EXACT_NOISE_RATIO`; (n,).
    known_variance: Known variances; zero if the noise is estimated; (n,).
    squared_scales: The squares of the units of the measurements; (n,).
    """

    level_index: IndexArray
    learned: Mask
    exact: Mask
    known_variance: Array
    squared_scales: Array

    @classmethod
    def from_series(cls, noise: NoiseModel, series: Sequence[TimeSeries]) -> MeasurementNoise:
        """Return the noise of measurements in memory."""
        counts = [len(item.times) for item in series]
        std = np.concatenate([item.std for item in series])
        learned, exact = np.isnan(std), np.asarray(std == 0)
        units = np.repeat(noise.scales, counts) ** 2
        group = np.repeat(np.array(noise.level_indices, dtype=np.intp), counts)
        known = np.where(learned, 0.0, std) ** 2 / units
        return cls(group, learned, exact, np.where(exact, EXACT_NOISE_RATIO**2, known), units)

    def select(self, rows: slice) -> MeasurementNoise:
        """Return the noise of some of the measurements."""
        return MeasurementNoise(*(part[rows] for part in vars(self).values()))

    @property
    def is_homoscedastic(self) -> bool:
        """Whether there are measurements, and all of them have the same noise."""
        return len(self.level_index) > 0 and all(bool((part == part[0]).all()) for part in vars(self).values())

    def variance(self, levels: Array) -> Array:
        """Return the noise variance of each measurement."""
        if not len(levels):
            return self.known_variance
        return self.known_variance + self.learned * levels[self.level_index] ** 2 / self.squared_scales

    def level_gradient(self, variance_gradient: Array, levels: Array) -> Array:
        """Return derivatives with respect to the logarithms of the levels from those with respect to the variances.

        Shapes: variance_gradient (n,).
        """
        if not len(levels):
            return np.zeros(0)
        parts = variance_gradient * self.variance(levels) * self.learned
        return np.asarray(2.0 * np.bincount(self.level_index, parts, minlength=len(levels)), dtype=float)


@dataclass(frozen=True)
class NoiseSpecification:
    """Known noise, as specified before a table is read.

    default_std: The standard deviation of all other observables.
    std_by_observable: Standard deviations; None if one is estimated.
    std_columns: Columns with the standard deviations.
    """

    default_std: float | None = None
    std_by_observable: Mapping[str, float | None] = field(default_factory=dict)
    std_columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The observables with their own specification."""
        return (*self.std_by_observable, *self.std_columns)

    def known_std(self, name: str) -> float | None:
        """Return the standard deviation of an observable; None if it is estimated or in a column."""
        return self.std_by_observable.get(name, self.default_std)


def parse_noise_std(noise_std: Any) -> NoiseSpecification:
    """Return known noise from a number, or from a dict of observable to number or column.

    Examples
    --------
    >>> noise = parse_noise_std({"x": 0.1, "y": "sigma"})
    >>> noise.known_std("x"), noise.known_std("y"), noise.std_columns
    (0.1, None, {'y': 'sigma'})
    """
    if not isinstance(noise_std, Mapping):
        return NoiseSpecification(_parse_std(noise_std, "all channels"))
    columns = {str(name): std for name, std in noise_std.items() if isinstance(std, str)}
    numbers = {str(name): _parse_std(std, str(name)) for name, std in noise_std.items() if not isinstance(std, str)}
    return NoiseSpecification(None, numbers, columns)


def _parse_std(std: Any, what: str) -> float | None:
    if std is None:
        return None
    if not isinstance(std, Real) or isinstance(std, bool | np.bool_) or not 0.0 <= float(std) < np.inf:
        raise DataError(
            f"expected a number of zero or more as noise_std of {what}, or a dict of channel to number or column, "
            f"got {std!r}"
        )
    return float(std)
