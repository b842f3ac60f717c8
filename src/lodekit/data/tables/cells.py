"""Cells as texts become numbers: decimal points or commas, missing values, and no guess about thousands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.data.tables.dates import is_date
from lodekit.data.tables.rows import Rows
from lodekit.errors import DataError

__all__ = ["MISSING", "clean", "is_value", "read_numbers"]

Array = NDArray[np.float64]
#: Cells without a value, in small letters.
MISSING = ("", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "-", "?")
_SAMPLE = 1000
_NUMBER = re.compile(r"[+-]?(?:(?:\d+(?:\.\d*|,\d+)?|[.,]\d+)(?:e[+-]?\d+)?|inf(?:inity)?)", re.IGNORECASE)
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:([.,' \u00a0\u202f])\d{3})(?:\1\d{3})*(?:[.,]\d+)?")


def is_value(text: str) -> bool:
    """Return whether a cell looks like data: a number, a date, or a mark for a missing value.

    Examples
    --------
    >>> [is_value(text) for text in ("1.5", "1,5", "-2e-3", "NA", "2024-03-01", "T1")]
    [True, True, True, True, True, False]
    """
    text = text.strip()
    number = _NUMBER.fullmatch(text) or _THOUSANDS.fullmatch(text)
    return bool(number) or text.lower() in MISSING or is_date(text)


def clean(column: Any) -> Any:
    """Return the texts of a column without blanks around them, and null where they are missing."""
    texts = column.str.strip_chars()
    return texts.set(texts.str.to_lowercase().is_in(MISSING), None)


def read_numbers(columns: Mapping[str, Any], rows: Rows, separator: str) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Return the numbers in columns of texts, NaN where they are missing, and what was found out about them.

    Parameters
    ----------
    columns : dict of name to polars.Series
        Cleaned texts; all of them have the same decimal mark.
    rows : Rows
    separator : str
        What separates the cells; it says which decimal mark is likely.
    """
    # The first rows say which mark is likely; the other one is tried only where that fails.
    sample = {name: texts.head(_SAMPLE) for name, texts in columns.items()}
    marks = sorted(".,", key=lambda mark: _count_bad(sample, _cast_all(sample, mark)))
    attempts = {}
    for mark in marks:
        numbers = attempts[mark] = _cast_all(columns, mark)
        if not _count_bad(columns, numbers):
            break
    else:
        mark = min(marks, key=lambda mark: _count_bad(columns, attempts[mark]))
        raise _bad_cell(columns, attempts[mark], mark, rows)
    notes = [f"decimal {'point' if mark == '.' else 'comma'}", *_check_thousands(columns, mark, separator)]
    found = {}
    for name, series in numbers.items():
        found[name] = np.array(series.fill_null(np.nan).to_numpy(), dtype=float)
        if (infinite := np.isinf(found[name])).any():
            row = int(np.argmax(infinite))
            raise DataError(
                f"{rows.name(row)}, column {name}: expected a finite number, got {columns[name][row]!r}; "
                "leave the cell empty where the value is missing"
            )
    return found, tuple(notes)


def _cast_all(columns: Mapping[str, Any], mark: str) -> dict[str, Any]:
    return {name: _cast(texts, mark) for name, texts in columns.items()}


def _cast(texts: Any, mark: str) -> Any:
    """Return a column as numbers, null where that is impossible."""
    import polars as pl

    if mark == ",":
        texts = texts.set(texts.str.contains(".", literal=True), None).str.replace(",", ".", literal=True)
    numbers = texts.cast(pl.Float64, strict=False)
    if len(texts) and numbers.null_count() == len(texts) > texts.null_count():
        truth = texts.str.to_lowercase().replace_strict({"true": 1.0, "false": 0.0}, default=None)
        return truth.cast(pl.Float64)
    return numbers


def _count_bad(columns: Mapping[str, Any], numbers: Mapping[str, Any]) -> int:
    return sum(numbers[name].null_count() - texts.null_count() for name, texts in columns.items())


def _bad_cell(columns: Mapping[str, Any], numbers: Mapping[str, Any], mark: str, rows: Rows) -> DataError:
    """Return the error about the first cell that holds no number."""
    bad = {name: (numbers[name].is_null() & texts.is_not_null()) for name, texts in columns.items()}
    row, name = min((mask.arg_max(), name) for name, mask in bad.items() if mask.any())
    cell = columns[name][row]
    if _THOUSANDS.fullmatch(cell):
        remedy = "separators between thousands are not read, remove them"
    elif mark == "," and "." in cell:
        remedy = "other cells have a decimal comma; write all of them in one way"
    elif is_date(cell):
        remedy = "dates are read in the time column only"
    elif row == 0:
        remedy = "put # before lines with units or remarks"
    else:
        remedy = "leave the cell empty where the value is missing"
    return DataError(f"{rows.name(row)}, column {name}: expected a number, got {cell[:60]!r}; {remedy}")


def _check_thousands(columns: Mapping[str, Any], mark: str, separator: str) -> list[str]:
    """Raise where 1,234 is probably one thousand and more; return a note where it is probably below two.

    Any other number with the mark, such as 1,5 or 0,125, settles that it is the decimal mark. A column where some
    numbers have three digits behind the mark and the others have no mark at all looks like thousands.
    """
    if mark == "." and separator != ";":  # a point between thousands comes with semicolons
        return []
    grouped = rf"^[+-]?[1-9]\d{{0,2}}(?:\{mark}\d{{3}})+$"
    doubtful = {}
    for size in (_SAMPLE, None):  # most files settle it at once
        for name, texts in columns.items():
            some = (texts if size is None else texts.head(size)).drop_nulls()
            marked = some.filter(some.str.contains(mark, literal=True))
            if not marked.str.contains(grouped).all():
                return []
            if len(marked):
                doubtful[name] = (marked[0], len(marked) < len(some))
    for name, (cell, mixed) in doubtful.items():
        if mixed or (mark == "," and separator == ","):
            raise DataError(
                f"column {name}: {cell!r} may be {cell.replace(mark, '')} or {cell.replace(mark, '.')}; "
                "remove separators between thousands, or write all numbers with the same number of decimals"
            )
    if mark == ".":
        return []
    return [f"{cell!r} in column {name} is read as {cell.replace(mark, '.')}" for name, (cell, _) in doubtful.items()]
