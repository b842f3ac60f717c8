"""Parsing of dates (ISO 8601, German, and slashes if the order of day and month is certain) and of lists of times."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lodekit.data.tables.strings import RowLocations, StringColumn, prefix_errors
from lodekit.errors import DataError
from lodekit.support.arguments import Array, Mask

Integers = NDArray[np.int64]
_TIME_PATTERN = (
    r"(?:(?:[Tt]|,?\s+)(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9})\d*)?)?"
    r"(?:\s*(?P<half>[AaPp][Mm]))?"
    r"(?:\s*(?P<zone>[Zz]|UTC|GMT|(?P<sign>[+-])(?P<ahead>\d{2})(?::?(?P<more>\d{2}))?))?)?$"
)
_AMBIGUOUS_ORDER = "unknown"
_SLASH_DATE_PATTERN = r"^(?P<{}>\d{{1,2}})[-/](?P<{}>\d{{1,2}})[-/](?P<year>\d{{4}})"
_DATE_PATTERNS = {
    "year first": r"^(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})",
    "German": r"^(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4})",
    _AMBIGUOUS_ORDER: _SLASH_DATE_PATTERN.format("one", "two"),
    "month first": _SLASH_DATE_PATTERN.format("month", "day"),
    "day first": _SLASH_DATE_PATTERN.format("day", "month"),
}
_DATETIME_PATTERNS = {order: re.compile(pattern + _TIME_PATTERN) for order, pattern in _DATE_PATTERNS.items()}
_AMBIGUOUS_PATTERN = re.compile(_DATE_PATTERNS[_AMBIGUOUS_ORDER])
#: Maps all digits to one class, so that texts with the same layout are equal.
_DIGIT_CLASSES = np.arange(256, dtype=np.uint8)
_DIGIT_CLASSES[list(b"0123456789")] = ord("0")
_EXPECTED_FORMAT = "a date such as 2024-03-01 12:00:00"


@dataclass(frozen=True)
class Timestamps:
    """Points in time, to the nanosecond.

    seconds, nanoseconds: Since 1970, whole seconds and the rest; in UTC if there is a time zone, else in local time;
        (n,).
    first: The first date, with its time zone.
    """

    seconds: Integers
    nanoseconds: Integers
    first: datetime

    def in_zone(self, zone: tzinfo | None) -> Timestamps:
        """Return local dates as dates in a time zone; dates with a time zone are unchanged.

        In an hour that clocks repeat, dates after a step back belong to the second pass.
        """
        if zone is None or self.first.tzinfo is not None:
            return self
        # UTC offsets change at multiples of 15 minutes.
        quarters, places = np.unique(self.seconds // 900, return_inverse=True)
        moments = [datetime(1970, 1, 1, tzinfo=zone) + timedelta(seconds=900 * part) for part in quarters.tolist()]
        ahead = [
            [(each.replace(fold=fold).utcoffset() or timedelta()).total_seconds() for each in moments]
            for fold in (0, 1)
        ]
        first, second = np.array(ahead, dtype=np.int64)[:, places]
        is_repeated = first > second
        steps = np.diff(self.seconds, prepend=self.seconds[:1] - 1)
        # Hourly rows have one date twice.
        steps_back = steps < 0 if np.median(steps) < 3600 else steps <= 0
        # Steps back are counted within each repeated hour.
        n_back, begins = np.cumsum(steps_back & is_repeated), np.diff(is_repeated, prepend=False) & is_repeated
        before = np.maximum.accumulate(np.where(begins, n_back, 0))
        offsets = np.where(is_repeated & (n_back > before), second, first)
        return Timestamps(self.seconds - offsets, self.nanoseconds, self.first.replace(tzinfo=zone))

    def seconds_since(self, origin: datetime) -> Array:
        """Return seconds since a date.

        Whole seconds and fractions are added last, so that the result does not depend on how a date is written.
        """
        start = datetime(1970, 1, 1, tzinfo=None if origin.tzinfo is None else UTC)
        whole, rest = divmod(origin - start, timedelta(seconds=1))
        more = self.nanoseconds - 1000 * rest.microseconds
        return (self.seconds - whole + more // 10**9).astype(float) + (more % 10**9) / 1e9


@dataclass(frozen=True)
class Durations:
    """Durations, such as differences of dates.

    seconds: shape (n,)
    """

    seconds: Array


#: The order of day, month and year, and the first date of a column: all have a time zone if it has one.
DateFormat = tuple[str, str]


def is_date(text: str) -> bool:
    """Return whether a text has the format of a date.

    Examples
    --------
    >>> is_date("2024-03-01T12:00:00.5+01:00"), is_date("01.03.2024"), is_date("1.5")
    (True, True, False)
    """
    return _detect_order(text) is not None


def _detect_order(text: str) -> str | None:
    return next((order for order, pattern in _DATETIME_PATTERNS.items() if pattern.match(text.strip())), None)


def detect_date_format(columns: Iterable[StringColumn], others: Iterable[StringColumn] = ()) -> DateFormat | None:
    """Return the format of the dates of a table; None if its first time is not a date.

    If the order of day and month is open, columns of other tables decide.
    """
    order, first, example, one_large, two_large, same = "", "", "", False, False, True
    for column, is_own in chain(((each, True) for each in columns), ((each, False) for each in others)):
        texts = column.strip()
        texts = texts.select(~texts.is_missing)
        if not len(texts):
            continue
        if not order:
            first = texts[0]
            if (found := _detect_order(first)) is None:
                return None
            order = found
        if order != _AMBIGUOUS_ORDER or (one_large != two_large and not is_own):
            break
        parts, _ = _split_fields(texts, _AMBIGUOUS_PATTERN)
        one, two = parts["one"], parts["two"]
        one_large, two_large = one_large or bool((one > 12).any()), two_large or bool((two > 12).any())
        if same and (one != two).any():
            same, example = False, texts[int(np.argmax(one != two))]
    if not order:
        return None
    if order == _AMBIGUOUS_ORDER:
        if one_large == two_large and not same:
            raise DataError(f"dates such as {example!r} may have the day or the month first; write them as 2024-03-31")
        order = "day first" if one_large else "month first"
    return order, first


def parse_dates(column: StringColumn, locations: RowLocations, date_format: DateFormat | None = None) -> Timestamps:
    """Return the points in time given by texts."""
    column = column.strip()
    date_format = date_format or detect_date_format([column])
    if date_format is None:
        raise DataError(f"{locations.format_row(0)}: expected {_EXPECTED_FORMAT}, got {column[0]!r}")
    order, example = date_format
    parts, matched = _split_fields(column, _DATETIME_PATTERNS[order])
    if not matched.all():
        record = int(np.argmin(matched))
        raise DataError(
            f"{locations.format_row(record)}: expected {_EXPECTED_FORMAT}, in the same form as "
            f"{example!r} above, got {column[record]!r}"
        )
    whole, valid = _local_seconds(parts)
    if not valid.all():
        record = int(np.argmin(valid))
        where, got = locations.format_row(record), repr(column[record])
        raise DataError(f"{where}: expected {_EXPECTED_FORMAT}, got {got}: there is no such day or time")
    match = _DATETIME_PATTERNS[order].match(example)
    zones = _utc_offsets(parts, column, locations, match is not None and match["zone"] is not None)
    utc = whole if zones is None else whole - zones
    zone = None if zones is None else timezone(timedelta(seconds=int(zones[0])))
    first = datetime(1970, 1, 1, tzinfo=zone) + timedelta(seconds=int(whole[0]))
    return Timestamps(utc, parts["fraction"], first.replace(microsecond=int(parts["fraction"][0]) // 1000))


def _split_fields(column: StringColumn, pattern: re.Pattern[str]) -> tuple[dict[str, Integers], Mask]:
    """Return the fields of dates by name, zero if one is absent, and which texts match the pattern.

    Texts that differ only in their digits are parsed together: one match locates the digits of all of them.
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
            # Long texts, and texts of columns with many layouts, are matched one by one.
            if length > 80 or layouts > 40 or not column[rows[0]].isascii():
                alike, rows = rows[:1], rows[1:]
            else:
                alike, rows = _split_by_layout(column, rows, length)
            if match is None:
                continue
            matched[alike] = True
            for name, text in match.groupdict().items():
                if text is not None:
                    parts[name][alike] = _parse_field(column, alike, name, match)
    return parts, matched


def _split_by_layout(column: StringColumn, rows: Integers, length: int) -> tuple[Integers, Integers]:
    """Return the rows that differ from the first only in digits, and the others."""
    alike = np.ones(len(rows), dtype=bool)
    for offset in range(length):
        own = _DIGIT_CLASSES[column.data[column.starts[rows] + offset]]
        alike &= own == own[0]
    return rows[alike], rows[~alike]


def _parse_field(column: StringColumn, rows: Integers, name: str, match: re.Match[str]) -> Integers | int:
    """Return a number for each row, or a code if the field is not numeric: 1 or 2 for AM and PM, and -1 for a minus."""
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


def _local_seconds(parts: dict[str, Integers]) -> tuple[Integers, Mask]:
    """Return seconds since 1970 in local time, and whether day and time are valid."""
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


def _utc_offsets(
    parts: dict[str, Integers], column: StringColumn, places: RowLocations, is_zoned: bool
) -> Integers | None:
    """Return the offsets from UTC in seconds; None without time zones."""
    if (wrong := (parts["zone"] > 0) != is_zoned).any():
        record = int(np.argmax(wrong))
        expected = "a time zone as in other rows" if is_zoned else "no time zone, as in other rows"
        raise DataError(f"{places.format_row(record)}: expected {expected}, got {column[record]!r}")
    if not is_zoned:
        return None
    if (beyond := (parts["ahead"] > 23) | (parts["more"] > 59)).any():
        record = int(np.argmax(beyond))
        raise DataError(f"{places.format_row(record)}: expected a time zone such as +01:00, got {column[record]!r}")
    return np.asarray(parts["sign"] * (parts["ahead"] * 3600 + parts["more"] * 60), dtype=np.int64)


_DECIMAL_COMMA_PATTERN = re.compile(r"[+-]?\d+,\d+$")


def read_time_list(path: Path) -> tuple[Array, datetime | None] | None:
    """Return times from a file with one per line, optionally below a name, and the first date if they are dates.

    The result is None if the file is something else, such as a table. Empty lines and lines that start with # are
    skipped.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError):
        return None
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    lines = [(number, line) for number, line in lines if line and not line.startswith("#")]
    if lines and _parse_number(lines[0][1]) is None and not is_date(lines[0][1]):
        # Several names belong to a table, in which 40,3 is not a decimal number.
        lines = [] if re.search("[,;\t]", lines[0][1]) else lines[1:]
    if not lines:
        return None
    rows = [line for _, line in lines]
    if is_date(rows[0]):
        if not all(is_date(row) for row in rows):
            return None
        with prefix_errors(str(path)):
            places = RowLocations("line", np.array([number for number, _ in lines]))
            times = parse_dates(StringColumn.from_strings(rows), places)
        return times.seconds_since(times.first), times.first
    parsed = [_parse_number(row) for row in rows]
    if None in parsed:
        return None
    numbers = np.array(parsed, dtype=float)
    if not np.isfinite(numbers).all():
        raise DataError(f"{path}: expected finite times, got {numbers[~np.isfinite(numbers)][0]}")
    return numbers, None


def _parse_number(text: str) -> float | None:
    """Return a number with a decimal point or comma."""
    try:
        return float(text.replace(",", ".") if _DECIMAL_COMMA_PATTERN.match(text) else text)
    except ValueError:
        return None


def describe_time_type(date: datetime | None) -> str:
    """Return the type of times: numbers, or dates with or without a time zone."""
    if date is None:
        return "times as numbers"
    return f"dates with{'out' if date.tzinfo is None else ''} a time zone"
