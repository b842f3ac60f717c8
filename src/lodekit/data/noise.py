"""Noise: standard deviations that are known, and levels that are learned and shared by many measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lodekit.data.measurements import Summary
from lodekit.data.observations import Series

__all__ = ["EXACT", "LOWEST", "LOWEST_OF_ZEROS", "MeasurementNoise", "Noise"]

Array = NDArray[np.float64]
#: The standard deviation that stands for none, relative to the spread of an observable: exact values, and data that
#: repeat each other by the equations, would make covariances singular otherwise.
EXACT = 1e-7
#: The lowest level of noise that is learned, relative to the spread of an observable, and for one that is zero
#: throughout, relative to what the equations make of the others.
LOWEST, LOWEST_OF_ZEROS = 1e-6, 1e-2


@dataclass(frozen=True)
class Noise:
    """Which level of noise belongs to which observable.

    Parameters
    ----------
    shared : bool
        Whether all observables share one level; otherwise each has its own.
    observables : tuple of str
    learned : tuple of bool
        Whether some of the noise of each observable is learned.
    scales : array, shape (o,)
        The units of the observables.
    silent : tuple of str
        Observables that are zero throughout: no level of noise is too low for them.
    """

    shared: bool
    observables: tuple[str, ...]
    learned: tuple[bool, ...]
    scales: Array
    silent: tuple[str, ...] = ()

    @classmethod
    def of(cls, summaries: Sequence[Summary], scales: Array, *, shared: bool) -> Noise:
        """Return the noise of what was measured.

        Parameters
        ----------
        summaries : sequence of Summary
        scales : array, shape (o,)
        shared : bool
        """
        names, learned = zip(*((item.observable, item.learned > 0) for item in summaries), strict=True)
        return cls(shared, names, learned, scales, tuple(item.observable for item in summaries if item.is_zero))

    def of_some(self, observables: Sequence[str]) -> Noise:
        """Return the noise of some of the observables.

        Parameters
        ----------
        observables : sequence of str
            Each is there.
        """
        if tuple(observables) == self.observables:
            return self
        where = [self.observables.index(name) for name in observables]
        learned, silent = tuple(self.learned[k] for k in where), tuple(n for n in self.silent if n in observables)
        return Noise(self.shared, tuple(observables), learned, self.scales[where], silent)

    @cached_property
    def groups(self) -> tuple[int, ...]:
        """The number of the level that belongs to each observable."""
        return (0,) * len(self.observables) if self.shared else tuple(range(len(self.observables)))

    @cached_property
    def units(self) -> Array:
        """A unit for each level: the smallest scale among the observables that share it."""
        found = np.full(max(self.groups, default=-1) + 1, np.inf)
        np.minimum.at(found, np.array(self.groups, dtype=np.intp), self.scales)
        return found

    @cached_property
    def floors(self) -> Array:
        """The lowest level that a search tries, for each: of what is zero throughout, a share that can be noise.

        The evidence of zeros grows without limit as their level falls, and then outweighs all other data.
        """
        quiet = [name in self.silent and not self.shared for name in self.observables]
        lowest = np.full(len(self.units), LOWEST)
        lowest[np.array(self.groups, dtype=np.intp)[quiet]] = LOWEST_OF_ZEROS
        return np.asarray(lowest * self.units)

    @property
    def count(self) -> int:
        """How many levels are learned; none where all noise is known."""
        return len(self.units) if any(self.learned) else 0

    def group_of(self, observable: int, *, learned: bool) -> int:
        """Return the level of measurements of an observable; -1 where their noise is known.

        Parameters
        ----------
        observable : int
            Its number.
        learned : bool
            Whether the noise of these measurements is learned.
        """
        return self.groups[observable] if learned else -1

    def precision(self, observable: int, levels: Array, *, learned: bool) -> float:
        """Return what the weights of measurements are multiplied by: one over the learned variance, in scaled units.

        Parameters
        ----------
        observable : int
            The number of the observable.
        levels : array
            Standard deviations in the user's units.
        learned : bool
            Whether the noise is learned; known noise stands in the weights already.
        """
        return 1.0 / self.variance(observable, levels) if learned else 1.0

    def variance(self, observable: int, levels: Array) -> float:
        """Return the learned noise variance of an observable in scaled units.

        Parameters
        ----------
        observable : int
            Its number.
        levels : array
            Standard deviations in the user's units.
        """
        return float((levels[self.groups[observable]] / self.scales[observable]) ** 2)

    def medians(self, values: Array) -> Array:
        """Return the median over the observables of each level."""
        return np.array([np.median(values[np.equal(self.groups, group)]) for group in range(max(self.groups) + 1)])

    def describe(self, levels: Array) -> dict[str, float]:
        """Return learned levels by the names that users know, in their units."""
        if not len(levels):
            return {}
        if self.shared:
            return {"shared": float(levels[0])}
        known = zip(self.observables, self.learned, levels, strict=True)
        return {name: float(level) for name, learned, level in known if learned}

    def carried_over(self, old: Noise, levels: Array) -> Array:
        """Return learned levels of an earlier fit for these observables; new ones start at a tenth of their size.

        Parameters
        ----------
        old : Noise
        levels : array
            Of the earlier fit.
        """
        found = 0.1 * self.units[: self.count]
        known = dict(zip(old.observables, old.groups, strict=True))
        for name, group in zip(self.observables, self.groups, strict=True):
            if self.count and name in known and len(levels):
                found[group] = levels[known[name]]
        return found


@dataclass(frozen=True)
class MeasurementNoise:
    """The noise of every single measurement, in scaled units.

    Parameters
    ----------
    group : int array, shape (n,)
        The level of each measurement.
    learned : bool array, shape (n,)
    exact : bool array, shape (n,)
        Whether a value is said to have no noise at all; `EXACT` is what it has.
    known : array, shape (n,)
        Known variances; zero where noise is learned.
    units : array, shape (n,)
        The squares of the units of the measurements.
    """

    group: NDArray[np.intp]
    learned: NDArray[np.bool_]
    exact: NDArray[np.bool_]
    known: Array
    units: Array

    @classmethod
    def of(cls, noise: Noise, series: Sequence[Series]) -> MeasurementNoise:
        """Return the noise of measurements in memory.

        Parameters
        ----------
        noise : Noise
        series : sequence of Series
            One for each observable, in the order of the noise.
        """
        counts = [len(item.times) for item in series]
        std, learned = np.concatenate([item.std for item in series]), np.concatenate([item.learned for item in series])
        units = np.repeat(noise.scales, counts) ** 2
        group = np.repeat(np.array(noise.groups, dtype=np.intp), counts)
        exact = np.concatenate([item.exact for item in series])
        known = np.where(learned, 0.0, std) ** 2 / units
        return cls(group, learned, exact, np.where(exact, EXACT**2, known), units)

    def part(self, where: slice) -> MeasurementNoise:
        """Return the noise of some of the measurements.

        Parameters
        ----------
        where : slice
        """
        return MeasurementNoise(*(part[where] for part in vars(self).values()))

    @property
    def is_even(self) -> bool:
        """Whether all measurements have the same noise, and there are some."""
        return len(self.group) > 0 and all(bool((part == part[0]).all()) for part in vars(self).values())

    def variance(self, levels: Array) -> Array:
        """Return the noise variance of every measurement.

        Parameters
        ----------
        levels : array
            The learned standard deviations in the user's units; empty where none is learned.
        """
        if not len(levels):
            return self.known
        return self.known + self.learned * levels[self.group] ** 2 / self.units

    def pull(self, slopes: Array, levels: Array) -> Array:
        """Return derivatives in the logarithms of the levels, from those in the variances of the measurements.

        Parameters
        ----------
        slopes : array, shape (n,)
            Derivatives in the variances.
        levels : array
            Standard deviations in the user's units.
        """
        if not len(levels):
            return np.zeros(0)
        parts = slopes * self.variance(levels) * self.learned
        return np.asarray(2.0 * np.bincount(self.group, parts, minlength=len(levels)), dtype=float)
