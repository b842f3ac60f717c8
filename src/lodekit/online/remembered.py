"""Things that belong to lengths of time, made once for all lengths that are the same to rounding."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Remembered", "resolution_at"]

T = TypeVar("T")
#: How many lengths are remembered: a stream that has more has no steps that come again.
_MOST = 256


class Remembered(Generic[T]):
    """What was made for lengths of time; the memory it takes is bounded.

    Parameters
    ----------
    make : callable
        Makes what belongs to a length.

    Examples
    --------
    >>> squares = Remembered(lambda length: length**2)
    >>> squares.find(2.0, 1e-9), squares.find(2.0 + 1e-12, 1e-9)
    ((2.0, 4.0), (2.0, 4.0))
    """

    def __init__(self, make: Callable[[float], T]) -> None:
        self._make = make
        self._lengths: list[float] = []
        self._found: list[T] = []
        self._last: tuple[float, T] | None = None

    def find(self, length: float, resolution: float) -> tuple[float, T]:
        """Return a length that is the same to a resolution, and what belongs to it.

        Parameters
        ----------
        length : float
        resolution : float
        """
        last = self._last
        if last is not None and abs(last[0] - length) <= resolution:
            return last
        place = bisect_left(self._lengths, length)
        near = [k for k in (place - 1, place) if 0 <= k < len(self._lengths)]
        best = min(near, key=lambda k: abs(self._lengths[k] - length), default=-1)
        if best < 0 or abs(self._lengths[best] - length) > resolution:
            if len(self._lengths) >= _MOST:
                self._lengths.clear()
                self._found.clear()
                place = 0
            self._lengths.insert(place, length)
            self._found.insert(place, self._make(length))
            best = place
        self._last = (self._lengths[best], self._found[best])
        return self._last


def resolution_at(time: float) -> float:
    """Return what a clock resolves at a time: some units in the last place."""
    return 4.0 * math.ulp(time)
