"""Cells as texts become numbers: decimal points or commas, missing values, and no guess about thousands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lodekit.data.tables.dates import is_date
from lodekit.data.tables.decimals import read_decimals
from lodekit.data.tables.places import Places
from lodekit.data.tables.texts import Texts
from lodekit.errors import DataError

__all__ = ["MISSING", "Numerals", "clean", "is_missing", "is_value", "read_numbers"]

Array = NDArray[np.float64]
_Columns = Mapping[str, Texts]
_DIGIT = np.isin(np.arange(256), list(b"0123456789"))
_SWAPPED = np.arange(256, dtype=np.uint8)
_SWAPPED[[ord("."), ord(",")]] = ord(","), ord(".")
#: Cells without a value, in small letters.
MISSING = ("", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "-", "?")
#: So many records at the start of a block tell most of what there is to tell.
_SAMPLE = 1000
_NUMBER = re.compile(r"[+-]?(?:(?:\d+(?:\.\d*|,\d+)?|[.,]\d+)(?:e[+-]?\d+)?|inf(?:inity)?)", re.IGNORECASE)
_CLOCK = re.compile(r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?")
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
    return bool(number) or is_missing(text) or is_date(text)


def is_missing(text: str) -> bool:
    """Return whether a cell says that its value is missing.

    Examples
    --------
    >>> is_missing(" N/A"), is_missing("0")
    (True, False)
    """
    return text.strip().lower() in MISSING


def clean(column: Texts) -> Texts:
    """Return the texts of a column without blanks around them, and empty where a word says that they are missing."""
    texts = column.strip()
    return texts.blank_where(texts.equals_any(MISSING))


@dataclass(frozen=True)
class Numerals:
    """How the numbers of a table are written, as far as the cells that were seen tell; parts of a table add.

    Parameters
    ----------
    mark : {"", ".", ","}
        The decimal mark; empty where no number had one.
    kinds : dict of str to str
        Columns, and whether they hold numbers, or true and false.
    settled : bool
        Whether some number tells that the mark does not separate thousands.
    doubtful : dict of str to (str, bool)
        Columns: a cell that may be thousands (empty where there is none), and whether others have no mark at all.
    places : dict of str to str
        Where the first cell stands that has the mark, under ``""``, and the first of each column, by its name.
    """

    mark: str = ""
    kinds: Mapping[str, str] = field(default_factory=dict)
    settled: bool = False
    doubtful: Mapping[str, tuple[str, bool]] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)

    def __add__(self, other: Numerals) -> Numerals:
        if self.mark and other.mark and self.mark != other.mark:
            point, comma = (self, other) if self.mark == "." else (other, self)
            raise DataError(
                f"some numbers have a decimal point ({point.places['']}), others a decimal comma ({comma.places['']}); "
                "write all of them in one way"
            )
        for name, kind in other.kinds.items():
            if self.kinds.get(name, kind) != kind:
                raise DataError(
                    f"column {name}: expected numbers, or true and false, got both ({self.places[name]} and "
                    f"{other.places[name]}); write one of them"
                )
        doubtful = dict(self.doubtful)
        for name, (cell, bare) in other.doubtful.items():
            own_cell, own_bare = doubtful.get(name, ("", False))
            doubtful[name] = (own_cell or cell, own_bare or bare)
        settled = self.settled or other.settled
        places = {**other.places, **self.places}
        return Numerals(self.mark or other.mark, {**self.kinds, **other.kinds}, settled, doubtful, places)

    def conclude(self, separator: str) -> list[str]:
        """Return what was found out, once all cells were seen; raise where 1,234 is probably one thousand and more.

        Any other number with the mark, such as 1,5 or 0,125, settles that it is the decimal mark. A column where some
        numbers have three digits behind the mark and the others have no mark at all looks like thousands.

        Parameters
        ----------
        separator : str
            What separates the cells; it says which decimal mark is likely.
        """
        notes = [f"decimal {'comma' if self.mark == ',' else 'point'}"]
        if self.settled:
            return notes
        for name, (cell, bare) in self.doubtful.items():
            if cell and (bare or (self.mark == "," and separator == ",")):
                raise DataError(
                    f"column {name}: {cell!r} may be {cell.replace(self.mark, '')} or {cell.replace(self.mark, '.')}; "
                    "remove separators between thousands, or write all numbers with the same number of decimals"
                )
            if cell and self.mark == ",":
                notes.append(f"{cell!r} in column {name} is read as {cell.replace(',', '.')}")
        return notes


def read_numbers(
    columns: Mapping[str, Texts], places: Places, separator: str, mark: str = ""
) -> tuple[dict[str, Array], Numerals]:
    """Return the numbers in columns of texts, NaN where they are missing, and how they are written.

    Parameters
    ----------
    columns : dict of name to Texts
        All of them have the same decimal mark.
    places : Places
        Where the records stand.
    separator : str
        What separates the cells; a point between thousands comes with semicolons.
    mark : str
        The decimal mark, where other parts of the table have told it.
    """
    texts, found, mark = _find_numbers(columns, places, mark)
    kinds = {}
    for name, numbers in found.items():
        if (infinite := np.isinf(numbers)).any():
            record = int(np.argmax(infinite))
            raise DataError(
                f"{places.name(record)}, column {name}: expected a finite number, got {texts[name][record]!r}; "
                "leave the cell empty where the value is missing"
            )
        if np.isfinite(numbers).any():
            kinds[name] = "truth" if _is_truth(texts[name]) else "number"
    marked = {name: column for name, column in texts.items() if _contains(column, mark)}
    where = {name: places.name(int(np.argmax(np.isfinite(found[name])))) for name in kinds}
    if marked:
        where[""] = places.name(min(int(np.argmax(column.contains(mark))) for column in marked.values()))
    settled, doubtful = _find_thousands(texts, mark if marked else "", separator)
    return dict(found), Numerals(mark if marked else "", kinds, settled, doubtful, where)


def _find_numbers(columns: _Columns, places: Places, mark: str) -> tuple[_Columns, Mapping[str, Array], str]:
    """Return texts, their numbers, and the decimal mark with which all of them are numbers."""
    # The first records say which mark is likely; the other one is tried only where that fails.
    sample = {name: clean(texts.head(_SAMPLE)) for name, texts in columns.items()}
    marks = [mark] if mark else sorted(".,", key=lambda one: _count_bad(sample, _cast_all(sample, one)))
    numbers = _cast_all(columns, marks[0])
    if not _count_bad(columns, numbers):
        return columns, numbers, marks[0]
    cleaned = {name: clean(texts) for name, texts in columns.items()}
    attempts = {}
    for one in marks:
        attempts[one] = _cast_all(cleaned, one)
        if not _count_bad(cleaned, attempts[one]):
            return cleaned, attempts[one], one
    best = min(marks, key=lambda one: _count_bad(cleaned, attempts[one]))
    raise _bad_cell(cleaned, attempts[best], best, places)


def _cast_all(columns: _Columns, mark: str) -> dict[str, Array]:
    return {name: _cast(texts, mark) for name, texts in columns.items()}


def _cast(texts: Texts, mark: str) -> Array:
    """Return a column as numbers, NaN where that is impossible."""
    lines = texts.join()
    if mark == ",":
        # What has a point is no number then, and of two commas one is too many.
        lines = _SWAPPED[lines]
    numbers, valid = read_decimals(lines)
    if not valid.any() and not texts.is_missing.all():
        numbers[texts.equals_any(("true",))] = 1.0
        numbers[texts.equals_any(("false",))] = 0.0
    return numbers


def _is_truth(texts: Texts) -> bool:
    return texts[int(np.argmin(texts.is_missing))].lower() in ("true", "false")


def _contains(texts: Texts, mark: str) -> bool:
    """Return whether some text has a mark; most columns tell at once."""
    return any(part.contains(mark).any() for part in (texts.head(_SAMPLE), texts))


def _find_bad(texts: Texts, numbers: Array) -> NDArray[np.bool_]:
    return np.isnan(numbers) & ~texts.is_missing


def _count_bad(columns: _Columns, numbers: Mapping[str, Array]) -> int:
    return sum(int(_find_bad(texts, numbers[name]).sum()) for name, texts in columns.items())


def _bad_cell(columns: _Columns, numbers: Mapping[str, Array], mark: str, places: Places) -> DataError:
    """Return the error about the first cell that holds no number."""
    bad = {name: _find_bad(texts, numbers[name]) for name, texts in columns.items()}
    record, name = min((int(np.argmax(mask)), name) for name, mask in bad.items() if mask.any())
    cell = columns[name][record]
    if _THOUSANDS.fullmatch(cell):
        remedy = "separators between thousands are not read, remove them"
    elif _NUMBER.fullmatch(cell):
        remedy = f"other cells have a decimal {'comma' if mark == ',' else 'point'}; write all of them in one way"
    elif _CLOCK.fullmatch(cell):
        remedy = "a time of day needs its date, such as 2024-03-01 12:00:00"
    elif is_date(cell):
        remedy = "dates are read in the time column only"
    elif record == 0 and places.kind == "line":
        remedy = "put # before lines with units or remarks"
    else:
        remedy = "leave the cell empty where the value is missing"
    return DataError(f"{places.name(record)}, column {name}: expected a number, got {cell[:60]!r}; {remedy}")


def _find_thousands(columns: _Columns, mark: str, separator: str) -> tuple[bool, dict[str, tuple[str, bool]]]:
    """Return whether no cell can be thousands, and what may be: see `Numerals`."""
    if mark == "." and separator != ";":
        return True, {}
    if not mark:
        return False, {name: ("", not texts.is_missing.all()) for name, texts in columns.items()}
    doubtful = {}
    for size in (_SAMPLE, None):  # most files settle it at once
        for name, texts in columns.items():
            some = texts if size is None else texts.head(size)
            some = some.select(~some.is_missing)
            marked = some.select(some.contains(mark))
            if not _are_grouped(marked, mark):
                return True, {}
            doubtful[name] = (marked[0] if len(marked) else "", len(marked) < len(some))
    return False, doubtful


def _are_grouped(texts: Texts, mark: str) -> bool:
    """Return whether all of some numbers look like 1,234: up to three digits, the mark, and three more."""
    if not len(texts):
        return True
    data, places = texts.data, texts.find(mark)
    signed = np.isin(data[texts.starts], list(b"+-"))
    first = texts.starts + signed
    before = places - first
    fine = (texts.stops - places == 4) & (before >= 1) & (before <= 3) & (data[first] != ord("0"))
    if not fine.all():
        return False
    return all((_DIGIT[data[places + offset]]).all() for offset in (1, 2, 3))
