"""Dates as texts: ISO 8601, German, and slashes where the order of day and month is certain."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.data.tables.rows import Rows
from lodekit.errors import DataError

__all__ = ["is_date", "read_dates"]

Array = NDArray[np.float64]
_CLOCK = (
    r"(?:(?:[Tt]|,?\s+)(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9})\d*)?)?"
    r"(?:\s*(?P<half>[AaPp][Mm]))?(?:\s*(?P<zone>[Zz]|UTC|GMT|[+-]\d{2}(?::?\d{2})?))?)?$"
)
_ORDERS = {
    "year first": r"^(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})",
    "German": r"^(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4})",
    "unknown": r"^(?P<one>\d{1,2})[-/](?P<two>\d{1,2})[-/](?P<year>\d{4})",
}
_PATTERNS = {order: re.compile(pattern + _CLOCK) for order, pattern in _ORDERS.items()}
_EXPECTED = "a date such as 2024-03-01 12:00:00"


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


def read_dates(column: Any, rows: Rows) -> tuple[Array, datetime]:
    """Return seconds since the first row, and the date of that row.

    Parameters
    ----------
    column : polars.Series
        Texts without blanks around them, none of them missing.
    rows : Rows
    """
    order = _find_order(column[0])
    if order is None:
        raise DataError(f"{rows.name(0)}: expected {_EXPECTED}, got {column[0]!r}")
    parts = column.str.extract_groups((_ORDERS[order] + _CLOCK).replace("(?P<", "(?<")).struct.unnest()
    if (bad := parts["year"].is_null()).any():
        row = bad.arg_max()
        raise DataError(
            f"{rows.name(row)}: expected {_EXPECTED}, in the same form as {column[0]!r} above, got {column[row]!r}"
        )
    fields = {name: _integers(parts[name]) for name in parts.columns if name not in ("half", "zone", "fraction")}
    if order == "unknown":
        fields |= _order_days(fields.pop("one"), fields.pop("two"), column)
    whole, valid = _count_seconds(fields, parts["half"])
    if not valid.all():
        row = int(np.argmin(valid))
        raise DataError(f"{rows.name(row)}: expected {_EXPECTED}, got {column[row]!r}: there is no such day or time")
    zones = _zone_seconds(parts["zone"], column, rows)
    nanoseconds = _integers(parts["fraction"].str.pad_end(9, "0"))
    utc = whole if zones is None else whole - zones
    zone = None if zones is None else timezone(timedelta(seconds=int(zones[0])))
    first = datetime(1970, 1, 1, tzinfo=zone) + timedelta(seconds=int(whole[0]))
    seconds = (utc - utc[0]).astype(float) + (nanoseconds - nanoseconds[0]) / 1e9
    return seconds, first.replace(microsecond=int(nanoseconds[0]) // 1000)


def _integers(texts: Any) -> NDArray[np.int64]:
    import polars as pl

    return np.asarray(texts.cast(pl.Int64).fill_null(0).to_numpy(), dtype=np.int64)


def _order_days(one: NDArray[np.int64], two: NDArray[np.int64], column: Any) -> dict[str, NDArray[np.int64]]:
    """Return days and months of a column such as 3/14/2024, where one of the two orders is possible only."""
    if (one == two).all() or ((two > 12).any() and not (one > 12).any()):
        return {"month": one, "day": two}
    if (one > 12).any() and not (two > 12).any():
        return {"month": two, "day": one}
    example = column[int(np.argmax(one != two))]
    raise DataError(f"dates such as {example!r} may have the day or the month first; write them as 2024-03-31")


def _count_seconds(fields: dict[str, NDArray[np.int64]], half: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
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


def _zone_seconds(zones: Any, column: Any, rows: Rows) -> NDArray[np.int64] | None:
    """Return how far the clocks are ahead of UTC; None where no zone is given."""
    if (absent := zones.is_null()).all():
        return None
    if absent.any():
        row = absent.arg_max()
        raise DataError(f"{rows.name(row)}: expected a time zone as in other rows, got {column[row]!r}")
    digits = (
        zones.str.replace(":", "", literal=True).str.to_uppercase().replace(dict.fromkeys(("Z", "UTC", "GMT"), "+00"))
    )
    hours, minutes = _integers(digits.str.slice(1, 2)), _integers(digits.str.slice(3, 2).replace("", "0"))
    if (wrong := (hours > 23) | (minutes > 59)).any():
        row = int(np.argmax(wrong))
        raise DataError(f"{rows.name(row)}: expected a time zone such as +01:00, got {column[row]!r}")
    sign = np.where(digits.str.starts_with("-").to_numpy(), -1, 1)
    return np.asarray(sign * (hours * 3600 + minutes * 60), dtype=np.int64)
