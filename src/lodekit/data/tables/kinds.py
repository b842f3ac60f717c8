"""What a column of a typed table holds: numbers, texts, dates or lengths of time; other kinds are refused in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.data.tables.dates import Lengths, Moments
from lodekit.data.tables.places import Places
from lodekit.data.tables.texts import Texts
from lodekit.errors import DataError

__all__ = ["TICKS", "Content", "Use", "is_absent", "make_moments"]

Array = NDArray[np.float64]
Content = Array | Texts | Moments | Lengths
#: Units of dates and lengths of time, and how many are in a second.
TICKS = {"ms": 10**3, "us": 10**6, "ns": 10**9}
_MICROSECOND = timedelta(microseconds=1)


def is_absent(value: Any) -> bool:
    """Return whether a value of some library stands for a missing one."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and value != value  # noqa: PLR0124


def make_moments(ticks: NDArray[np.int64], unit: str, first: datetime) -> Moments:
    """Return points in time from numbers since 1970.

    Parameters
    ----------
    ticks : array of int, shape (n,)
    unit : {"ms", "us", "ns"}
    first : datetime
        The first of them, with its zone.
    """
    seconds, rest = np.divmod(ticks, TICKS[unit])
    return Moments(seconds, rest * (10**9 // TICKS[unit]), first)


@dataclass(frozen=True)
class Use:
    """What a column is needed for.

    Parameters
    ----------
    name : str
        Of the column.
    places : Places
        Where its records stand.
    is_time : bool
        Whether it holds the times.
    """

    name: str
    places: Places
    is_time: bool

    def refuse(self, got: str) -> DataError:
        """Return the error about a kind that cannot be used."""
        return DataError(f"expected numbers {'or dates ' if self.is_time else ''}in column {self.name}, got {got}")

    def check_times(self, got: str, missing: NDArray[np.bool_]) -> None:
        """Raise unless dates or lengths of time are wanted, and all of them are there.

        Parameters
        ----------
        got : str
            What the column holds.
        missing : array of bool, shape (n,)
        """
        if not self.is_time:
            raise self.refuse(got)
        if missing.any():
            where = self.places.list(missing)
            raise DataError(f"expected a time in every row, column {self.name} has none in {where}")

    def read_array(self, values: NDArray[Any]) -> Content:
        """Return what an array of NumPy holds."""
        kind = values.dtype.kind
        if kind in "biuf":
            return np.asarray(values, dtype=float)
        if kind == "c":
            raise self.refuse("complex numbers")
        if kind not in "mM":
            return self.read_objects(values.tolist())
        self.check_times("dates" if kind == "M" else "lengths of time", np.isnat(values))
        if not len(values):
            return np.empty(0)
        unit = np.datetime_data(values.dtype)[0]
        if unit not in TICKS:
            unit, values = "us", values.astype(f"{values.dtype.name.partition('[')[0]}[us]")
        ticks = values.astype(np.int64)
        if kind == "m":
            return Lengths(ticks / TICKS[unit])
        return make_moments(ticks, unit, datetime(1970, 1, 1) + int(ticks[0]) * 10**6 // TICKS[unit] * _MICROSECOND)

    def read_objects(self, values: Sequence[Any]) -> Content:
        """Return what a list of objects holds, all of one kind, or missing."""
        missing = np.array([is_absent(value) for value in values], dtype=bool)
        present = [value for value, absent in zip(values, missing.tolist(), strict=True) if not absent]
        if any(isinstance(value, str) for value in present):
            return Texts.of(None if absent else str(value) for value, absent in zip(values, missing, strict=True))
        if all(isinstance(value, Number | np.bool_) and not isinstance(value, complex) for value in present):
            return np.array([np.nan if is_absent(value) else _to_float(value) for value in values], dtype=float)
        first = present[0]
        if all(isinstance(value, timedelta) for value in present):
            self.check_times("lengths of time", missing)
            return Lengths(np.array([value / _MICROSECOND for value in values]) / 10**6)
        if all(isinstance(value, date) for value in present):
            self.check_times("dates", missing)
            return self._read_dates(present)
        raise self.refuse("complex numbers" if isinstance(first, complex) else f"objects such as {first!r}"[:80])

    def _read_dates(self, values: Sequence[date]) -> Moments:
        kinds = {(isinstance(value, datetime), getattr(value, "tzinfo", None) is None) for value in values}
        if len(kinds) > 1:
            raise DataError(f"expected dates of one kind in column {self.name}, got a mixture")
        moments = [value if isinstance(value, datetime) else datetime(*value.timetuple()[:3]) for value in values]
        start = datetime(1970, 1, 1, tzinfo=None if moments[0].tzinfo is None else UTC)
        ticks = np.array([(moment - start) // _MICROSECOND for moment in moments], dtype=np.int64)
        return make_moments(ticks, "us", moments[0])


def _to_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf
