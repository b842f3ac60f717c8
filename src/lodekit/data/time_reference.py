"""Conversion of dates and durations to numbers: the origin and the unit of time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from lodekit.data.tables.dates import Durations, is_date, parse_dates
from lodekit.data.tables.reader import parse_time_array
from lodekit.data.tables.strings import RowLocations, StringColumn
from lodekit.errors import DataError
from lodekit.support.arguments import Array
from lodekit.support.units import UnitConversion, find_unit_conversion


@dataclass(frozen=True)
class TimeReference:
    """The date of time zero, and the unit of time.

    origin: None where times are numbers.
    unit: Of times; empty where nothing tells.

    Examples
    --------
    >>> noon = TimeReference(datetime(2026, 3, 1, 12), "min")
    >>> noon.parse_times(np.array(["2026-03-01T12:30"], dtype="datetime64[m]")).tolist()
    [30.0]
    """

    origin: datetime | None = None
    unit: str = ""

    @classmethod
    def from_labels(cls, origin: str, unit: str | None) -> TimeReference:
        """Return the clock of a fit."""
        return cls(datetime.fromisoformat(origin) if origin else None, unit or "")

    @property
    def conversion_from_seconds(self) -> UnitConversion:
        """How seconds become the unit of time."""
        found = find_unit_conversion("s", self.unit or "s")
        if found is None:
            raise DataError(f"expected a unit of time, such as s or min, for times that are dates, got {self.unit!r}")
        return found

    def parse_times(self, t: Any) -> Array | None:
        """Return dates or lengths of time as numbers; None where times are something else, such as numbers."""
        times = parse_time_array(t)
        if times is None:
            return None
        if isinstance(times, Durations):
            if not self.unit:
                raise DataError(
                    "expected times as numbers, like those of the fit, got lengths of time: the unit of the former is "
                    "not known; set it with label(units={'t': 's'})"
                )
            return self.conversion_from_seconds.convert(times.seconds)
        if self.origin is None:
            raise DataError("expected times as numbers, like those of the fit, got dates")
        if times.first.tzinfo is not None and self.origin.tzinfo is None:
            raise DataError("expected dates without a time zone, like those of the fit, got dates with one")
        # Dates without a time zone are in that of the origin.
        origin = self.origin if times.first.tzinfo is not None else self.origin.replace(tzinfo=None)
        return self.conversion_from_seconds.convert(times.seconds_since(origin))

    def to_dates(self, times: Iterable[float]) -> list[datetime]:
        """Return the dates of times; empty where times are numbers.

        Examples
        --------
        >>> TimeReference(datetime(2026, 3, 1, 12), "min").to_dates([1.5])
        [datetime.datetime(2026, 3, 1, 12, 1, 30)]
        """
        if self.origin is None:
            return []
        conversion = find_unit_conversion(self.unit or "s", "s")
        if conversion is None:
            raise DataError(f"expected a unit of time for dates, got {self.unit!r}; label(units=) changes it")
        seconds = conversion.factor / conversion.divisor
        try:
            return [self.origin + timedelta(seconds=float(time) * seconds) for time in times]
        except OverflowError:
            raise DataError("expected times whose dates lie between the years 1 and 9999, got others") from None

    def parse_time(self, time: Any, what: str) -> float:
        """Return one time: a number, a date, or a text that is one of them."""
        if isinstance(time, str):
            try:
                time = float(time)
            except ValueError:
                if not is_date(time):
                    raise DataError(
                        f"expected a number or a date such as 2026-03-01T12:00 for {what}, got {time!r}"
                    ) from None
                place = RowLocations("line", np.ones(1, dtype=int))
                time = parse_dates(StringColumn.from_strings([time]), place).first
        if isinstance(time, datetime):
            if self.origin is None:
                raise DataError(f"{what} is a date, but the times are numbers; expected a number")
            if time.tzinfo is not None and self.origin.tzinfo is None:
                raise DataError(f"{what} is a date with a time zone, but the data have none; expected one without")
            origin = self.origin if time.tzinfo is not None else self.origin.replace(tzinfo=None)
            return float(self.conversion_from_seconds.convert(np.array((time - origin).total_seconds())))
        if isinstance(time, bool) or not isinstance(time, int | float | np.number) or not np.isfinite(time):
            raise DataError(f"expected a finite time for {what}, got {time!r}")
        return float(time)
