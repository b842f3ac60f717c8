"""Times that stand alone: one on each line of a file, or one text."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lodekit.data.tables.dates import is_date, read_dates
from lodekit.data.tables.places import Places, naming
from lodekit.data.tables.texts import Texts
from lodekit.errors import DataError

__all__ = ["read_date", "read_list"]

Array = NDArray[np.float64]
_COMMA = re.compile(r"[+-]?\d+,\d+$")


def read_list(path: Path) -> tuple[Array, datetime | None] | None:
    """Return times from a file with one on each line, below a name perhaps, and the first date where they are dates.

    None where the file is something else, such as a table. Empty lines, and those that begin with #, do not count.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError):
        return None
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    lines = [(number, line) for number, line in lines if line and not line.startswith("#")]
    if lines and _read_number(lines[0][1]) is None and not is_date(lines[0][1]):
        lines = lines[1:]
    if not lines:
        return None
    rows = [line for _, line in lines]
    if is_date(rows[0]):
        if not all(is_date(row) for row in rows):
            return None
        with naming(str(path)):
            moments = read_dates(Texts.of(rows), Places("line", np.array([number for number, _ in lines])))
        return moments.since(moments.first), moments.first
    numbers = [_read_number(row) for row in rows]
    if any(number is None for number in numbers):
        return None
    found = np.array(numbers, dtype=float)
    if not np.isfinite(found).all():
        raise DataError(f"{path}: expected finite times, got {found[~np.isfinite(found)][0]}")
    return found, None


def read_date(text: str) -> datetime | None:
    """Return the date that a text is; None where it is none.

    Examples
    --------
    >>> read_date("01.03.2026 12:00"), read_date("soon")
    (datetime.datetime(2026, 3, 1, 12, 0), None)
    """
    if not is_date(text):
        return None
    return read_dates(Texts.of([text]), Places("line", np.ones(1, dtype=int))).first


def _read_number(text: str) -> float | None:
    """Return a number with a decimal point or comma."""
    try:
        return float(text.replace(",", ".") if _COMMA.match(text) else text)
    except ValueError:
        return None
