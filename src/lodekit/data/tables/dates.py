"""Dates become seconds: ISO 8601, German, and slashes where the order of day and month is certain."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
from numpy.typing import NDArray

from lodekit.data.tables.places import Places
from lodekit.data.tables.texts import Texts
from lodekit.errors import DataError

__all__ = ["DateForm", "Lengths", "Moments", "find_date_form", "is_date", "read_dates"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
_CLOCK = (
    r"(?:(?:[Tt]|,?\s+)(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9})\d*)?)?"
    r"(?:\s*(?P<half>[AaPp][Mm]))?"
    r"(?:\s*(?P<zone>[Zz]|UTC|GMT|(?P<sign>[+-])(?P<ahead>\d{2})(?::?(?P<more>\d{2}))?))?)?$"
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
_START = re.compile(_ORDERS[_UNKNOWN])
#: Columns are written in a few ways; beyond so many of them each text is looked at alone.
_MOST_LAYOUTS = 40
#: No date has more letters; what does is looked at alone, too.
_LONGEST = 80
#: Digits in one place look the same, whatever they are.
_LAYOUT = np.arange(256, dtype=np.uint8)
_LAYOUT[list(b"0123456789")] = ord("0")
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


def find_date_form(columns: Iterable[Texts]) -> DateForm | None:
    """Return how the dates of a table are written; None where its first time is no date.

    Parameters
    ----------
    columns : iterable of Texts
        The texts of the time, part by part; more than the first is looked at only where day and month are in doubt.
    """
    order, first, example, one_large, two_large, same = "", "", "", False, False, True
    for column in columns:
        texts = column.strip()
        texts = texts.select(~texts.is_missing)
        if not len(texts):
            continue
        if not order:
            first = texts[0]
            if (found := _find_order(first)) is None:
                return None
            order = found
        if order != _UNKNOWN:
            break
        parts, _ = _take_apart(texts, _START)
        one, two = parts["one"], parts["two"]
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


def read_dates(column: Texts, places: Places, form: DateForm | None = None) -> Moments:
    """Return the moments that texts name.

    Parameters
    ----------
    column : Texts
        None of them missing.
    places : Places
        Where the records stand.
    form : DateForm, optional
        How the dates are written; found out from the column itself by default.
    """
    column = column.strip()
    form = form or find_date_form([column])
    if form is None:
        raise DataError(f"{places.name(0)}: expected {_EXPECTED}, got {column[0]!r}")
    parts, matched = _take_apart(column, _PATTERNS[form.order])
    if not matched.all():
        record = int(np.argmin(matched))
        raise DataError(
            f"{places.name(record)}: expected {_EXPECTED}, in the same form as {form.example!r} above, "
            f"got {column[record]!r}"
        )
    whole, valid = _count_seconds(parts)
    if not valid.all():
        record = int(np.argmin(valid))
        raise DataError(
            f"{places.name(record)}: expected {_EXPECTED}, got {column[record]!r}: there is no such day or time"
        )
    zones = _zone_seconds(parts, column, places, form.is_zoned)
    utc = whole if zones is None else whole - zones
    zone = None if zones is None else timezone(timedelta(seconds=int(zones[0])))
    first = datetime(1970, 1, 1, tzinfo=zone) + timedelta(seconds=int(whole[0]))
    return Moments(utc, parts["fraction"], first.replace(microsecond=int(parts["fraction"][0]) // 1000))


def _take_apart(column: Texts, pattern: re.Pattern[str]) -> tuple[dict[str, Integers], NDArray[np.bool_]]:
    """Return the parts of dates by name, zero where one is absent, and which texts match the pattern.

    Texts that differ in their digits alone match alike: one match tells where the digits of all of them stand.
    """
    parts = {name: np.zeros(len(column), dtype=np.int64) for name in pattern.groupindex}
    matched = np.zeros(len(column), dtype=bool)
    lengths = column.stops - column.starts
    layouts = 0
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        while len(rows):
            layouts += 1
            match = pattern.match(column[rows[0]])
            if length > _LONGEST or layouts > _MOST_LAYOUTS or not column[rows[0]].isascii():
                alike, rows = rows[:1], rows[1:]
            else:
                alike, rows = _split_alike(column, rows, length)
            if match is None:
                continue
            matched[alike] = True
            for name, text in match.groupdict().items():
                if text is not None:
                    parts[name][alike] = _read_part(column, alike, name, match)
    return parts, matched


def _split_alike(column: Texts, rows: Integers, length: int) -> tuple[Integers, Integers]:
    """Return the rows that differ from the first in digits alone, and the others."""
    alike = np.ones(len(rows), dtype=bool)
    for offset in range(length):
        own = _LAYOUT[column.data[column.starts[rows] + offset]]
        alike &= own == own[0]
    return rows[alike], rows[~alike]


def _read_part(column: Texts, rows: Integers, name: str, match: re.Match[str]) -> Integers | int:
    """Return a number of each row, or a code for what is no number: 1 or 2 for AM and PM, and -1 for a minus."""
    if name == "half":
        return 1 + (match[name].lower() == "pm")
    if name == "sign":
        return -1 if match[name] == "-" else 1
    if name == "zone":
        return 1
    if len(rows) == 1:
        return int(match[name].ljust(9, "0") if name == "fraction" else match[name])
    found = np.zeros(len(rows), dtype=np.int64)
    for offset in range(*match.span(name)):
        found = 10 * found + column.data[column.starts[rows] + offset] - ord("0")
    return found * 10 ** (9 - len(match[name])) if name == "fraction" else found


def _count_seconds(parts: dict[str, Integers]) -> tuple[Integers, NDArray[np.bool_]]:
    """Return seconds since 1970 by the clock on the wall, and whether there are such a day and time."""
    year, month, day = parts["year"], parts["month"], parts["day"]
    hour, minute, second = parts["hour"], parts["minute"], parts["second"]
    twelve = parts["half"] > 0
    valid = (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1) & (minute < 60) & (second < 60)
    valid &= np.where(twelve, (hour >= 1) & (hour <= 12), hour < 24)
    hour = np.where(twelve, hour % 12 + 12 * (parts["half"] == 2), hour)
    months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + (day - 1)
    valid &= days.astype("datetime64[M]") == months
    return days.astype(np.int64) * 86400 + hour * 3600 + minute * 60 + second, valid


def _zone_seconds(parts: dict[str, Integers], column: Texts, places: Places, is_zoned: bool) -> Integers | None:
    """Return how far the clocks are ahead of UTC; None where no zone is given."""
    if (wrong := (parts["zone"] > 0) != is_zoned).any():
        record = int(np.argmax(wrong))
        expected = "a time zone as in other rows" if is_zoned else "no time zone, as in other rows"
        raise DataError(f"{places.name(record)}: expected {expected}, got {column[record]!r}")
    if not is_zoned:
        return None
    if (beyond := (parts["ahead"] > 23) | (parts["more"] > 59)).any():
        record = int(np.argmax(beyond))
        raise DataError(f"{places.name(record)}: expected a time zone such as +01:00, got {column[record]!r}")
    return np.asarray(parts["sign"] * (parts["ahead"] * 3600 + parts["more"] * 60), dtype=np.int64)
