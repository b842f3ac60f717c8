"""Dates become seconds: ISO 8601, German, and slashes where the order of day and month is certain."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.data.tables.places import Places
from lodekit.errors import DataError

__all__ = ["DateForm", "Lengths", "Moments", "find_date_form", "is_date", "read_dates"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
_CLOCK = (
    r"(?:(?:[Tt]|,?\s+)(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9})\d*)?)?"
    r"(?:\s*(?P<half>[AaPp][Mm]))?(?:\s*(?P<zone>[Zz]|UTC|GMT|[+-]\d{2}(?::?\d{2})?))?)?$"
)
_UNKNOWN = "unknown"
_SLASHES = r"^(?P<{}>\d{{1,2}})[-/](?P<{}>\d{{1,2}})[-/](?P<year>\d{{4}})"
_ORDERS = {
    "year first": r"^(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})",
    "German": r"^(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4})",
    _UNKNOWN: _SLASHES.format("one", "two"),
    "month first": _SLASHES.format("month", "day"),
    "day first": _SLASHES.format("day", "month"),
}
_PATTERNS = {order: re.compile(pattern + _CLOCK) for order, pattern in _ORDERS.items()}
_EXPECTED = "a date such as 2024-03-01 12:00:00"


@dataclass(frozen=True)
class Moments:
    """Points in time, to the nanosecond.

    Parameters
    ----------
    seconds, nanoseconds : arrays of int, shape (n,)
        Since 1970, whole seconds and the rest; by UTC where there is a zone, else by the clock on the wall.
    first : datetime
        The first of them, with its zone.
    """

    seconds: Integers
    nanoseconds: Integers
    first: datetime

    def since(self, origin: datetime) -> Array:
        """Return seconds since a date.

        Whole seconds and the rest are joined last, so that a date gives the same number however it was written.
        """
        start = datetime(1970, 1, 1, tzinfo=None if origin.tzinfo is None else UTC)
        whole, rest = divmod(origin - start, timedelta(seconds=1))
        more = self.nanoseconds - 1000 * rest.microseconds
        return (self.seconds - whole + more // 10**9).astype(float) + (more % 10**9) / 1e9


@dataclass(frozen=True)
class Lengths:
    """Lengths of time, such as differences of dates.

    Parameters
    ----------
    seconds : array, shape (n,)
    """

    seconds: Array


@dataclass(frozen=True)
class DateForm:
    """How the dates of a column are written; one form for all of them.

    Parameters
    ----------
    order : str
        Of day, month and year.
    is_zoned : bool
        Whether each date has a time zone.
    example : str
        The first of them, for messages.
    """

    order: str
    is_zoned: bool
    example: str


def is_date(text: str) -> bool:
    """Return whether a text has the form of a date.

    Examples
    --------
    >>> is_date("2024-03-01T12:00:00.5+01:00"), is_date("01.03.2024"), is_date("1.5")
    (True, True, False)
    """
    return _find_order(text) is not None


def _find_order(text: str) -> str | None:
    return next((order for order, pattern in _PATTERNS.items() if pattern.match(text.strip())), None)


def find_date_form(columns: Iterable[Any]) -> DateForm | None:
    """Return how the dates of a table are written; None where its first time is no date.

    Parameters
    ----------
    columns : iterable of polars.Series
        The texts of the time, part by part; more than the first is looked at only where day and month are in doubt.
    """
    order, first, example, one_large, two_large, same = "", "", "", False, False, True
    for column in columns:
        texts = column.str.strip_chars().drop_nulls()
        if not len(texts):
            continue
        if not order:
            first = texts[0]
            if (found := _find_order(first)) is None:
                return None
            order = found
        if order != _UNKNOWN:
            break
        parts = texts.str.extract_groups(_rust(_ORDERS[_UNKNOWN])).struct.unnest()
        one, two = _integers(parts["one"]), _integers(parts["two"])
        one_large, two_large = one_large or bool((one > 12).any()), two_large or bool((two > 12).any())
        if same and (one != two).any():
            same, example = False, texts[int(np.argmax(one != two))]
    if not order:
        return None
    if order == _UNKNOWN:
        if one_large == two_large and not same:
            raise DataError(f"dates such as {example!r} may have the day or the month first; write them as 2024-03-31")
        order = "day first" if one_large else "month first"
    match = _PATTERNS[order].match(first)
    return DateForm(order, match is not None and match["zone"] is not None, first)


def read_dates(column: Any, places: Places, form: DateForm | None = None) -> Moments:
    """Return the moments that texts name.

    Parameters
    ----------
    column : polars.Series
        Texts, none of them missing.
    places : Places
        Where the records stand.
    form : DateForm, optional
        How the dates are written; found out from the column itself by default.
    """
    column = column.str.strip_chars()
    form = form or find_date_form([column])
    if form is None:
        raise DataError(f"{places.name(0)}: expected {_EXPECTED}, got {column[0]!r}")
    parts = column.str.extract_groups(_rust(_ORDERS[form.order] + _CLOCK)).struct.unnest()
    if (bad := parts["year"].is_null()).any():
        record = bad.arg_max()
        raise DataError(
            f"{places.name(record)}: expected {_EXPECTED}, in the same form as {form.example!r} above, "
            f"got {column[record]!r}"
        )
    fields = {name: _integers(parts[name]) for name in parts.columns if name not in ("half", "zone", "fraction")}
    whole, valid = _count_seconds(fields, parts["half"])
    if not valid.all():
        record = int(np.argmin(valid))
        raise DataError(
            f"{places.name(record)}: expected {_EXPECTED}, got {column[record]!r}: there is no such day or time"
        )
    zones = _zone_seconds(parts["zone"], column, places, form.is_zoned)
    nanoseconds = _integers(parts["fraction"].str.pad_end(9, "0"))
    utc = whole if zones is None else whole - zones
    zone = None if zones is None else timezone(timedelta(seconds=int(zones[0])))
    first = datetime(1970, 1, 1, tzinfo=zone) + timedelta(seconds=int(whole[0]))
    return Moments(utc, nanoseconds, first.replace(microsecond=int(nanoseconds[0]) // 1000))


def _rust(pattern: str) -> str:
    return pattern.replace("(?P<", "(?<")


def _integers(texts: Any) -> Integers:
    import polars as pl

    return np.asarray(texts.cast(pl.Int64).fill_null(0).to_numpy(), dtype=np.int64)


def _count_seconds(fields: dict[str, Integers], half: Any) -> tuple[Integers, NDArray[np.bool_]]:
    """Return seconds since 1970 by the clock on the wall, and whether there are such a day and time."""
    year, month, day = fields["year"], fields["month"], fields["day"]
    hour, minute, second = fields["hour"], fields["minute"], fields["second"]
    twelve = half.is_not_null().to_numpy()
    afternoon = half.str.to_lowercase().eq_missing("pm").to_numpy()
    valid = (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1) & (minute < 60) & (second < 60)
    valid &= np.where(twelve, (hour >= 1) & (hour <= 12), hour < 24)
    hour = np.where(twelve, hour % 12 + 12 * afternoon, hour)
    months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + (day - 1)
    valid &= days.astype("datetime64[M]") == months
    return days.astype(np.int64) * 86400 + hour * 3600 + minute * 60 + second, valid


def _zone_seconds(zones: Any, column: Any, places: Places, is_zoned: bool) -> Integers | None:
    """Return how far the clocks are ahead of UTC; None where no zone is given."""
    absent = zones.is_null()
    if (wrong := absent if is_zoned else ~absent).any():
        record = wrong.arg_max()
        expected = "a time zone as in other rows" if is_zoned else "no time zone, as in other rows"
        raise DataError(f"{places.name(record)}: expected {expected}, got {column[record]!r}")
    if not is_zoned:
        return None
    digits = (
        zones.str.replace(":", "", literal=True).str.to_uppercase().replace(dict.fromkeys(("Z", "UTC", "GMT"), "+00"))
    )
    hours, minutes = _integers(digits.str.slice(1, 2)), _integers(digits.str.slice(3, 2).replace("", "0"))
    if (beyond := (hours > 23) | (minutes > 59)).any():
        record = int(np.argmax(beyond))
        raise DataError(f"{places.name(record)}: expected a time zone such as +01:00, got {column[record]!r}")
    sign = np.where(digits.str.starts_with("-").to_numpy(), -1, 1)
    return np.asarray(sign * (hours * 3600 + minutes * 60), dtype=np.int64)
