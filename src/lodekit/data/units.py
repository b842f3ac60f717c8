"""The units of the scaled problem, and every way back to the user's.

Time is shifted to the start of the data and divided by their span, every observable by its own scale, so that what is
computed inside is of the size of one whatever the user measures in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lodekit.data.measurements import Measurements
from lodekit.errors import DataError

__all__ = ["Units"]

Array = NDArray[np.float64]
#: Units outside these cannot be squared in floats.
_SMALLEST, _LARGEST = 1e-100, 1e100


@dataclass(frozen=True)
class Units:
    """The unit of time with its origin, and the unit of each observable.

    Parameters
    ----------
    start, span : float
        Time zero and the unit of time of the scaled problem, in the user's time.
    scales : array, shape (o,)
        The units of the observables, in the user's.

    Examples
    --------
    >>> units = Units(10.0, 5.0, np.array([2.0]))
    >>> units.scaled_times(np.array([10.0, 15.0])).tolist(), units.user_lengths(0.5)
    ([0.0, 1.0], 2.5)
    """

    start: float
    span: float
    scales: Array

    @classmethod
    def of(
        cls, measurements: Measurements, *, time: Units | None = None, scales: Mapping[str, float] | None = None
    ) -> Units:
        """Return the units that measurements suggest.

        Parameters
        ----------
        measurements : Measurements
        time : Units, optional
            Whose unit of time is kept, from an earlier fit.
        scales : dict of str to float, optional
            Units of observables that are kept, from an earlier fit.
        """
        start, stop = measurements.window
        kept = scales or {}
        own = np.array([kept.get(item.observable, item.scale) for item in measurements.summaries])
        found = cls(start, stop - start or 1.0, own) if time is None else replace(time, scales=own)
        sizes = np.append(own, found.span)
        if not np.isfinite(sizes).all() or (sizes <= _SMALLEST).any() or (sizes >= _LARGEST).any():
            raise DataError("expected times and values of a size that floats can square; change their units")
        return found

    def plain(self, count: int) -> Units:
        """Return the same unit of time for so many observables in the user's own units."""
        return replace(self, scales=np.ones(count))

    def scaled_times(self, times: Array) -> Array:
        """Return times of the user in the unit of the scaled problem."""
        return (times - self.start) / self.span

    def user_times(self, scaled: Array) -> Array:
        """Return scaled times in the user's unit."""
        return np.asarray(self.start + self.span * scaled)

    def user_lengths(self, scaled: float) -> float:
        """Return scaled lengths of time, such as lengthscales, in the user's unit."""
        return scaled * self.span

    def log_jacobian(self, counts: Sequence[int]) -> float:
        """Return what is added to a log density in scaled units to have it in the user's.

        Parameters
        ----------
        counts : sequence of int
            How many measurements there are of each observable.
        """
        return -sum(count * float(np.log(scale)) for count, scale in zip(counts, self.scales, strict=True))
