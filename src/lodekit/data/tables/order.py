"""Whether the times of a table are times: nearly in order, and more than two."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import DataError

__all__ = ["Order"]

#: Times that go back by more than this share of their span, up and down, are no times of one record.
_SHARE = 0.1
#: With fewer records nothing can be told.
_FEWEST = 8


@dataclass(frozen=True)
class Order:
    """How the times of a table follow each other; parts of a table add, in order.

    Parameters
    ----------
    count : int
    low, high : float
        The least and the greatest time.
    drop, rise : float
        The greatest fall from some time to a later record, and the greatest rise.
    values : frozenset of float
        Up to three different times.

    Examples
    --------
    >>> whole = Order.of(np.array([0.0, 1.0, 2.0])) + Order.of(np.array([1.5, 3.0]))
    >>> whole.drop, whole.rise, whole.count
    (0.5, 3.0, 5)
    """

    count: int = 0
    low: float = np.inf
    high: float = -np.inf
    drop: float = 0.0
    rise: float = 0.0
    values: frozenset[float] = frozenset()

    @classmethod
    def of(cls, times: NDArray[np.float64]) -> Order:
        """Return the order of some times."""
        if not len(times):
            return cls()
        low, high = float(times.min()), float(times.max())
        between = times[len(times) // 2 : len(times) // 2 + 1]
        if (between == low) | (between == high):
            between = times[(times != low) & (times != high)]
        drop, rise = 0.0, high - low
        if not (times[1:] >= times[:-1]).all():  # most tables are in order, and need no more than a look
            drop = float(np.max(np.maximum.accumulate(times) - times))
            rise = float(np.max(times - np.minimum.accumulate(times)))
        return cls(len(times), low, high, drop, rise, frozenset({low, high, *between[:1].tolist()}))

    def __add__(self, other: Order) -> Order:
        if not (self.count and other.count):
            return self if self.count else other
        return Order(
            self.count + other.count,
            min(self.low, other.low),
            max(self.high, other.high),
            max(self.drop, other.drop, self.high - other.low),
            max(self.rise, other.rise, other.high - self.low),
            frozenset(sorted(self.values | other.values)[:3]),
        )

    def check(self, column: str, remedy: str, records: str) -> list[str]:
        """Return what there is to say about the times; raise where they are none.

        Parameters
        ----------
        column : str
            That of the times.
        remedy : str
            What to do where the table has no times.
        records : str
            How to say which column tells records apart.
        """
        if self.count < _FEWEST:
            return []
        if len(self.values) < 3:
            raise DataError(
                f"expected times in column {column}, got {len(self.values)} different number"
                f"{'s' if len(self.values) > 1 else ''} in {self.count} rows; {remedy}"
            )
        back = min(self.drop, self.rise)
        if back > _SHARE * (self.high - self.low):
            raise DataError(
                f"expected times in column {column}, nearly in order, got numbers that go up and down ({self.low:g} to "
                f"{self.high:g}, and back by {back:g}). Where it is the time, sort the rows by it; where it starts "
                f"anew, these are several records: say which column numbers them, {records}, or give a file for each. "
                f"Otherwise {remedy}"
            )
        return [f"times in column {column} go back by up to {back:g}"] if back else []
