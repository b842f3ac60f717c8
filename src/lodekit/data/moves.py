"""Gaps in the log of an input in which it moved: who knows when it did? Samples are looked at once, as they come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["GapWatch", "Moved", "is_logged_together"]

Array = NDArray[np.float64]
#: A gap in a log lasts so many times as long as three quarters of its steps, and as a step beside it: where rows become
#: rarer and rarer there is none. An input has moved in it by this share of its range.
_GAP, _BESIDE, _MOVED = 6.0, 3.0, 0.1
#: An input is logged row by row that has a value at this share of the times of measurements; others are written where
#: they change.
_TOGETHER = 0.5
#: Straight lines serve where an input goes by no more than so many times its usual slope.
_STEEP = 3.0
#: Of so many gaps at most, the longest ones, something is known.
_MOST = 10_000
#: Sizes are told apart by the leading bits of numbers, all but so many: to a thousandth.
_BITS = 42


class Moved(NamedTuple):
    """A gap in the log of an input in which it moved, the one in which it moved most.

    Parameters
    ----------
    first, last : float
        The times of the samples beside the gap.
    before, after : float
        Their values.
    gaps : int
        How many such gaps there are.
    """

    first: float
    last: float
    before: float
    after: float
    gaps: int


def is_logged_together(measured: int, together: int) -> bool:
    """Return whether an input is logged row by row, and not written where it changes only.

    Parameters
    ----------
    measured : int
        At how many times something was measured.
    together : int
        At how many of them the input has a value.
    """
    return together >= _TOGETHER * measured


@dataclass
class _Sizes:
    """How often numbers of each size have come: all that quantiles need, however many numbers there are.

    Examples
    --------
    >>> sizes = _Sizes()
    >>> sizes.take(np.array([1.0, 1.0, 1.0, 2.0]))
    >>> sizes.take(np.array([8.0, 0.0]))
    >>> [round(sizes.quantile(share), 2) for share in (0.1, 0.5, 0.75, 1.0)]
    [0.0, 1.0, 2.0, 8.01]
    """

    counts: dict[int, int] = field(default_factory=dict)

    def take(self, numbers: Array) -> None:
        """Count some numbers; none is negative."""
        keys, counts = np.unique(np.ascontiguousarray(numbers).view(np.int64) >> _BITS, return_counts=True)
        for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
            self.counts[key] = self.counts.get(key, 0) + count

    def quantile(self, share: float) -> float:
        """Return a number that this share of all numbers does not exceed, to a thousandth."""
        keys = np.array(sorted(self.counts), dtype=np.int64)
        total = np.cumsum([self.counts[key] for key in keys.tolist()])
        place = int(np.searchsorted(total, share * total[-1]))
        return float(((keys[place : place + 1] + 1) << _BITS).view(np.float64)[0])


@dataclass
class GapWatch:
    """Looks at the samples of one input as they are read, and keeps those beside gaps.

    Parameters
    ----------
    kind : {"hold", "linear"}
        What the input does between its samples.

    Examples
    --------
    >>> watch, times = GapWatch("hold"), np.array([0.0, 1.0, 2.0, 3.0, 30.0, 31.0, 32.0, 33.0, 34.0])
    >>> for first in range(0, 9, 2):
    ...     watch.take(times[first : first + 2], np.where(times < 5, 1.0, 4.0)[first : first + 2])
    >>> watch.moved
    Moved(first=3.0, last=30.0, before=1.0, after=4.0, gaps=1)
    """

    kind: str
    _steps: _Sizes = field(default_factory=_Sizes)
    _slopes: _Sizes = field(default_factory=_Sizes)
    _low: float = np.inf
    _high: float = -np.inf
    #: Times and values of the last two samples, and how long the step before these was.
    _last: Array = field(default_factory=lambda: np.zeros((2, 0)))
    _before: float = np.inf
    #: Times before and after gaps, and values, shape (4, k).
    _gaps: Array = field(default_factory=lambda: np.zeros((4, 0)))

    def take(self, times: Array, values: Array) -> None:
        """Look at some samples.

        Parameters
        ----------
        times, values : arrays, shape (n,)
            In the order of time, each time once; none is missing.
        """
        if not len(times):
            return
        self._low, self._high = min(self._low, float(values.min())), max(self._high, float(values.max()))
        known = max(self._last.shape[1] - 1, 0)
        every = np.concatenate([self._last, [times, values]], axis=1)
        steps, changes = np.diff(every[0]), np.abs(np.diff(every[1]))
        self._steps.take(steps[known:])
        if self.kind == "linear":
            self._slopes.take((changes / steps)[known:])
        if len(steps) > 1:
            # What comes after the last step is not known yet.
            beside = np.minimum(np.append(self._before, steps[:-2]), steps[1:])
            self._gaps = self._keep(every[:, :-1], beside)
            self._before = float(steps[-2])
        self._last = every[:, -2:].copy()

    def _keep(self, samples: Array, beside: Array) -> Array:
        """Return gaps that may be long enough, those of some more samples among them; `beside` has shorter steps."""
        new = np.concatenate([samples[:, :-1], samples[:, 1:]])[[0, 2, 1, 3]]
        new = new[:, new[1] - new[0] > _BESIDE * beside]
        every = np.concatenate([self._gaps, new], axis=1)
        every = every[:, np.abs(every[3] - every[2]) > _MOVED * (self._high - self._low)]
        if every.shape[1] <= _MOST:
            return every
        return every[:, np.sort(np.argsort(every[1] - every[0])[-_MOST:])]

    @property
    def moved(self) -> Moved | None:
        """The gap in which the input moved most; None where it moved in none."""
        if self._last.shape[1] < 2 or not np.isfinite(self._before):
            return None
        gaps = self._keep(self._last, np.array([self._before]))
        steps, changes = gaps[1] - gaps[0], np.abs(gaps[3] - gaps[2])
        found = steps > _GAP * self._steps.quantile(0.75)
        if self.kind == "linear":
            found &= changes > _STEEP * self._slopes.quantile(0.5) * steps
        if not found.any():
            return None
        place = int(np.argmax(np.where(found, changes, -1.0)))
        first, last, before, after = gaps[:, place].tolist()
        return Moved(first, last, before, after, int(found.sum()))
