"""Conversion of dates and durations to numbers: the origin and the unit of time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lodekit.data.tables.dates import Durations, is_date, parse_dates
from lodekit.data.tables.reader import parse_time_array
from lodekit.data.tables.strings import RowLocations, StringColumn
from lodekit.errors import DataError
from lodekit.support.arguments import Array
from lodekit.support.labels import parse_origin
from lodekit.support.text import join_list
from lodekit.support.units import UnitConversion, find_unit_conversion


@dataclass(frozen=True)
class TimeReference:
    """The date of time zero, and the unit of time.

    origin: None if times are numbers.
    unit: The unit of times; empty if it is unknown.

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
        """Return the time reference in the labels of a fit."""
        return cls(parse_origin(origin), unit or "")

    @property
    def conversion_from_seconds(self) -> UnitConversion:
        """The conversion from seconds to the unit of time."""
        found = find_unit_conversion("s", self.unit or "s")
        if found is None:
            raise DataError(f"expected a unit of time, such as s or min, for times that are dates, got {self.unit!r}")
        return found

    def parse_times(self, t: Any) -> Array | None:
        """Return dates or durations as numbers; None for other times, such as numbers."""
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
        # Dates without a time zone are in the time zone of the origin.
        return self.conversion_from_seconds.convert(times.in_zone(self.origin.tzinfo).seconds_since(self.origin))

    def check_origin(self, origin: datetime | None) -> None:
        """Raise if the dates of new data are not counted from the same origin."""
        if origin not in (None, self.origin):
            own = "times as numbers, like those of the fit" if self.origin is None else f"dates since {self.origin}"
            raise DataError(f"expected {own}, got dates since {origin}")

    def to_dates(self, times: Iterable[float]) -> list[datetime]:
        """Return the dates of times; empty if times are numbers.

        Examples
        --------
        >>> TimeReference(datetime(2026, 3, 1, 12), "min").to_dates([1.5])
        [datetime.datetime(2026, 3, 1, 12, 1, 30)]
        """
        if self.origin is None:
            return []
        if not self.has_dates:
            raise DataError(f"expected a unit of time for dates, got {self.unit!r}; label(units=) changes it")
        # Adding durations to dates in a time zone would ignore clock changes.
        zone, seconds = self.origin.tzinfo, self._unit_seconds
        start = self.origin if zone is None else self.origin.astimezone(UTC)
        try:
            dates = [start + timedelta(seconds=float(time) * seconds) for time in times]
            return dates if zone is None else [date.astimezone(zone) for date in dates]
        except OverflowError:
            raise DataError("expected times whose dates lie between the years 1 and 9999, got others") from None

    def format_times(self, *times: float) -> str:
        """Return times for messages, after "at" or "between": dates, or numbers with the unit.

        Examples
        --------
        >>> TimeReference(datetime(2026, 3, 1, 12), "h").format_times(0.5)
        '2026-03-01 12:30'
        >>> TimeReference(unit="h").format_times(0.5, 2)
        't = 0.5 and 2 h'
        """
        if not self.has_dates:
            return f"t = {join_list([f'{time:.6g}' for time in times])} {self.unit}".rstrip()
        dates = [date.replace(tzinfo=None, microsecond=0) for date in self.to_dates(times)]
        precision = "seconds" if any(date.second for date in dates) else "minutes"
        return join_list([date.isoformat(" ", precision) for date in dates])

    @property
    def has_dates(self) -> bool:
        """Whether times are dates, and their unit is a unit of time."""
        return self.origin is not None and self._unit_seconds > 0.0

    @property
    def _unit_seconds(self) -> float:
        found = find_unit_conversion(self.unit or "s", "s")
        return 0.0 if found is None else found.factor / found.divisor

    @property
    def axis_zone(self) -> tzinfo | str | None:
        """The time zone of dates, None for dates without one, and an empty text if times are numbers."""
        return "" if self.origin is None or not self.has_dates else self.origin.tzinfo

    def axis_times(self, times: ArrayLike) -> Array:
        """Return times as matplotlib draws them: days since 1970, in UTC, for dates; unchanged numbers otherwise.

        Shapes: times (n,).
        """
        numbers = np.asarray(times, dtype=float)
        if self.origin is None or not self.has_dates:
            return numbers
        start = datetime(1970, 1, 1, tzinfo=self.origin.tzinfo and UTC)
        return np.asarray((self.origin - start) / timedelta(days=1) + numbers * (self._unit_seconds / 86400.0))

    def wall_clock_times(self, times: ArrayLike) -> list[float]:
        """Return dates as Plotly draws them: milliseconds since 1970 at the origin's UTC offset; otherwise numbers.

        The offset is the same in summer and winter, because curves would jump at a clock change.

        Shapes: times (n,).
        """
        found = self.axis_times(times)
        if self.origin is not None and self.has_dates:
            ahead = self.origin.utcoffset() or timedelta()
            found = np.round(found * 86.4e6) + ahead / timedelta(milliseconds=1)
        return [float(time) for time in found]

    def from_wall_clock(self, place: str | float) -> float:
        """Return the time of a position on an axis with `wall_clock_times`, which Plotly gives as a date."""
        if self.origin is None or not self.has_dates:
            return float(place)
        milliseconds = float(np.datetime64(place, "ms").astype(np.int64)) if isinstance(place, str) else float(place)
        return (milliseconds - self.wall_clock_times([0.0])[0]) / (1000.0 * self._unit_seconds)

    def parse_time(self, time: Any, what: str, *, is_end: bool = False) -> float:
        """Return a time from a number, a date, or a text that contains one of them; at its end, a whole day is over."""
        whole_day = is_end and isinstance(time, str) and not {":", "T"} & set(time)
        if isinstance(time, str):
            try:
                time = float(time)
            except ValueError:
                if not is_date(time):
                    raise DataError(
                        f"expected a number or a date such as 2026-03-01T12:00 for {what}, got {time!r}"
                    ) from None
                place = RowLocations("line", np.ones(1, dtype=int))
                try:
                    time = parse_dates(StringColumn.from_strings([time]), place).first
                except DataError as problem:
                    raise DataError(f"{what}: {str(problem).removeprefix('line 1: ')}") from None
        if isinstance(time, datetime):
            if self.origin is None:
                raise DataError(f"{what} is a date, but the times are numbers; expected a number")
            if time.tzinfo is not None and self.origin.tzinfo is None:
                raise DataError(f"{what} is a date with a time zone, but the data have none; expected one without")
            if whole_day and time == datetime.combine(time, datetime.min.time(), time.tzinfo):
                time += timedelta(days=1)
            zone, origin = self.origin.tzinfo, self.origin
            if zone is not None:
                # Differences of dates in one time zone would ignore clock changes.
                time, origin = (each.astimezone(UTC) for each in (time.replace(tzinfo=time.tzinfo or zone), origin))
            return float(self.conversion_from_seconds.convert(np.array((time - origin).total_seconds())))
        if isinstance(time, bool) or not isinstance(time, int | float | np.number) or not np.isfinite(time):
            raise DataError(f"expected a finite time for {what}, got {time!r}")
        return float(time)
