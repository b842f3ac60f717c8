"""Parsing of numeric cells: decimal point or comma, missing values; ambiguous thousands separators are rejected."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from lodekit.data.tables.dates import is_date
from lodekit.data.tables.strings import RowLocations, StringColumn, parse_decimals
from lodekit.errors import DataError
from lodekit.support.arguments import Array, Mask
from lodekit.support.text import format_count

_StringColumns = Mapping[str, StringColumn]
_IS_DIGIT = np.isin(np.arange(256), list(b"0123456789"))
_SWAP_POINT_AND_COMMA = np.arange(256, dtype=np.uint8)
_SWAP_POINT_AND_COMMA[[ord("."), ord(",")]] = ord(","), ord(".")
#: Cells without a value, in lower case.
MISSING_MARKERS = ("", "na", "n/a", "nan", "-nan", "null", "none", "-", "--", "---", "?")
#: Errors of spreadsheets (in English and German) and of loggers, in lower case; notes count them.
FAILURE_MARKERS = (
    *("#n/a", "#nv", "#value!", "#wert!", "#div/0!", "#ref!", "#bezug!", "#num!", "#zahl!", "#name?", "1.#qnan"),
    *("err", "error", "bad", "bad input", "fault", "fail", "failed", "failure", "invalid", "missing", "no data"),
    *("nodata", "offline", "overflow", "underflow", "overrange", "timeout", "i/o timeout", "ol", "***", "nan(ind)"),
)
#: Numbers that loggers write for failures, and their negatives.
_FAILURE_VALUES = (99, 99.9, 999, 999.9, 9999, 9999.9, 99999, 999999, 6999, 7999, 32767, 32768, 65535, 1e30)
#: The first rows of a block answer most questions.
_SAMPLE_ROWS = 1000
_NUMBER_PATTERN = re.compile(r"[+-]?(?:(?:\d+(?:\.\d*|,\d+)?|[.,]\d+)(?:e[+-]?\d+)?|inf(?:inity)?)", re.IGNORECASE)
_TIME_OF_DAY_PATTERN = re.compile(r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?")
_THOUSANDS_PATTERN = re.compile(r"[+-]?\d{1,3}(?:([.,' \u00a0\u202f])\d{3})(?:\1\d{3})*(?:[.,]\d+)?")


def is_data_cell(text: str) -> bool:
    """Return whether a cell looks like data: a number, a date, a time of day, or a mark for a missing value.

    Examples
    --------
    >>> [is_data_cell(text) for text in ("1.5", "1,5", "-2e-3", "NA", "2024-03-01", "T1")]
    [True, True, True, True, True, False]
    """
    text = text.strip()
    number = any(form.fullmatch(text) for form in (_NUMBER_PATTERN, _THOUSANDS_PATTERN, _TIME_OF_DAY_PATTERN))
    return number or is_missing(text) or is_date(text) or (text[:1] == "#" and text.lower() in FAILURE_MARKERS)


def is_missing(text: str) -> bool:
    """Return whether a cell marks a missing value.

    Examples
    --------
    >>> is_missing(" N/A"), is_missing("0")
    (True, False)
    """
    return text.strip().lower() in MISSING_MARKERS


def normalize_missing(column: StringColumn) -> StringColumn:
    """Return the texts of a column without surrounding white space; those that mark missing values become empty."""
    texts = column.strip()
    return texts.mask(texts.equals_any((*MISSING_MARKERS, *FAILURE_MARKERS)))


def find_failure_values(values: Array) -> tuple[float, ...]:
    """Return the repeated values that loggers write for failures, if they are far from all other values.

    Shapes: values (n,).

    Examples
    --------
    >>> find_failure_values(np.array([20.1, -999.0, 20.3, 20.2, 9999.0, 20.4, -999.0, 9999.0]))
    (-999.0, 9999.0)
    """
    numbers, counts = np.unique(values[np.isfinite(values)], return_counts=True)
    is_suspect = np.isin(np.abs(numbers), _FAILURE_VALUES)
    others = numbers[~is_suspect]
    if len(others) < 3:
        return ()
    distance = np.maximum(others[0] - numbers, numbers - others[-1])
    return tuple(numbers[is_suspect & (counts > 1) & (distance > others[-1] - others[0])].tolist())


@dataclass(frozen=True)
class NumberFormat:
    """The number format of a table, as far as the cells read so far determine it; formats of parts of a table add.

    decimal_mark: The decimal mark; empty if no number has one.
    column_types: By column: "number", or "truth" for true and false.
    is_unambiguous: Whether some number shows that the mark does not separate thousands.
    ambiguous_cells: By column: a cell that may contain thousands (empty if there is none), and whether other cells
        have no mark.
    example_rows: The row of the first cell with the mark, under ``""``, and of the first number of each column, by
        its name.
    failures: The number of cells by column and text that mark failures.
    """

    decimal_mark: str = ""
    column_types: Mapping[str, str] = field(default_factory=dict)
    is_unambiguous: bool = False
    ambiguous_cells: Mapping[str, tuple[str, bool]] = field(default_factory=dict)
    example_rows: Mapping[str, str] = field(default_factory=dict)
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __add__(self, other: NumberFormat) -> NumberFormat:
        if self.decimal_mark and other.decimal_mark and self.decimal_mark != other.decimal_mark:
            point, comma = (self, other) if self.decimal_mark == "." else (other, self)
            places = point.example_rows[""], comma.example_rows[""]
            raise DataError(
                f"some numbers have a decimal point ({places[0]}), others a decimal comma ({places[1]}); write all of "
                "them in the same way"
            )
        for name, kind in other.column_types.items():
            if self.column_types.get(name, kind) != kind:
                raise DataError(
                    f"column {name}: expected numbers, or true and false, got both ({self.example_rows[name]} and "
                    f"{other.example_rows[name]}); write one of them"
                )
        ambiguous = dict(self.ambiguous_cells)
        for name, (cell, bare) in other.ambiguous_cells.items():
            own_cell, own_bare = ambiguous.get(name, ("", False))
            ambiguous[name] = (own_cell or cell, own_bare or bare)
        mark, unambiguous = self.decimal_mark or other.decimal_mark, self.is_unambiguous or other.is_unambiguous
        types, examples = {**self.column_types, **other.column_types}, {**other.example_rows, **self.example_rows}
        return NumberFormat(mark, types, unambiguous, ambiguous, examples, self.failures + other.failures)

    def describe(self, separator: str) -> list[str]:
        """Return notes about the number format after all cells are read; raise if 1,234 probably means 1234.

        Any other number with the mark, such as 1,5 or 0,125, proves that it is the decimal mark. Numbers look like
        thousands if some of a column have three digits after the mark and the others have no mark.
        """
        notes = [f"decimal {'comma' if self.decimal_mark == ',' else 'point'}"]
        for name in dict.fromkeys(name for name, _ in self.failures):
            own = {text: count for (column, text), count in self.failures.items() if column == name}
            notes.append(
                f"column {name}: {format_count(sum(own.values()), 'text cell')} read as missing ({', '.join(own)})"
            )
        if self.is_unambiguous:
            return notes
        for name, (cell, bare) in self.ambiguous_cells.items():
            if cell and (bare or (self.decimal_mark == "," and separator == ",")):
                readings = " or ".join(cell.replace(self.decimal_mark, mark) for mark in ("", "."))
                raise DataError(
                    f"column {name}: {cell!r} may be {readings}; remove separators between thousands, or write all "
                    "numbers with the same number of decimals"
                )
            if cell and self.decimal_mark == ",":
                notes.append(f"{cell!r} in column {name} is read as {cell.replace(',', '.')}")
        return notes


def parse_number_columns(
    columns: Mapping[str, StringColumn], locations: RowLocations, separator: str, decimal_mark: str = ""
) -> tuple[dict[str, Array], NumberFormat]:
    """Return the numbers in columns of texts, NaN for missing ones, and their format."""
    texts, found, decimal_mark = _parse_with_decimal_mark(columns, locations, decimal_mark)
    kinds = {}
    for name, numbers in found.items():
        if (infinite := np.isinf(numbers)).any():
            record = int(np.argmax(infinite))
            raise DataError(
                f"{locations.format_row(record)}, column {name}: expected a finite number, got "
                f"{texts[name][record]!r}; leave the cell empty if the value is missing"
            )
        if np.isfinite(numbers).any():
            first_cell = texts[name][int(np.argmin(texts[name].is_missing))]
            kinds[name] = "truth" if first_cell.lower() in ("true", "false") else "number"
    # The first rows of most columns already contain the mark.
    parts = {name: (column.head(_SAMPLE_ROWS), column) for name, column in texts.items()}
    marked = {name: pair[1] for name, pair in parts.items() if any(x.contains(decimal_mark).any() for x in pair)}
    where = {name: locations.format_row(int(np.argmax(np.isfinite(found[name])))) for name in kinds}
    if marked:
        rows = [int(np.argmax(column.contains(decimal_mark))) for column in marked.values()]
        where[""] = locations.format_row(min(rows))
    decimal_mark = decimal_mark if marked else ""
    unambiguous, ambiguous = _detect_thousands(texts, decimal_mark, separator)
    raw = {name: column.strip() for name, column in columns.items() if texts is not columns}
    failed = {name: column.select(column.equals_any(FAILURE_MARKERS)).to_list() for name, column in raw.items()}
    failures = Counter((name, cell) for name, cells in failed.items() for cell in cells)
    return dict(found), NumberFormat(decimal_mark, kinds, unambiguous, ambiguous, where, failures)


def parse_mostly_numbers(column: StringColumn) -> Array | None:
    """Return the numbers in a column of texts, NaN for other cells; None unless at least half of them are numbers."""
    texts = normalize_missing(column)
    plain = StringColumn.from_strings(map(_remove_thousands, texts.to_list()))
    found = [_parse_columns({"": own}, mark)[""] for own in (texts, plain) for mark in ".,"]
    numbers = max(found, key=lambda values: int(np.isfinite(values).sum()))
    return numbers if 2 * np.isfinite(numbers).sum() >= (~texts.is_missing).sum() else None


def _remove_thousands(cell: str) -> str:
    """Return a number without separators between thousands, and other texts unchanged."""
    found = _THOUSANDS_PATTERN.fullmatch(cell)
    return cell.replace(found[1], "") if found else cell


def _parse_with_decimal_mark(
    columns: _StringColumns, places: RowLocations, mark: str
) -> tuple[_StringColumns, Mapping[str, Array], str]:
    """Return texts, their numbers, and the decimal mark with which all of them are numbers; raise if there is none."""
    # The first rows suggest the mark; the other one is tried only if it fails.
    sample = {name: normalize_missing(texts.head(_SAMPLE_ROWS)) for name, texts in columns.items()}
    marks = [mark] if mark else sorted(".,", key=lambda one: _count_invalid(sample, _parse_columns(sample, one)))
    numbers = _parse_columns(columns, marks[0])
    if not _count_invalid(columns, numbers):
        return columns, numbers, marks[0]
    cleaned = {name: normalize_missing(texts) for name, texts in columns.items()}
    attempts: list[tuple[int, int, dict[str, Array], str]] = []
    for one in marks:
        numbers = _parse_columns(cleaned, one)
        attempts.append((_count_invalid(cleaned, numbers), len(attempts), numbers, one))
        if not attempts[-1][0]:
            return cleaned, numbers, one
    raise _invalid_cell_error(cleaned, *min(attempts)[2:], places)


def _parse_columns(columns: _StringColumns, mark: str) -> dict[str, Array]:
    """Return columns as numbers, NaN for cells that are not numbers."""
    parsed = {}
    for name, texts in columns.items():
        lines = texts.join_lines()
        # With a decimal comma, a cell with a point is not a number.
        numbers, valid = parse_decimals(_SWAP_POINT_AND_COMMA[lines] if mark == "," else lines)
        if not valid.any() and not texts.is_missing.all():
            numbers[texts.equals_any(("true",))] = 1.0
            numbers[texts.equals_any(("false",))] = 0.0
        parsed[name] = numbers
    return parsed


def _invalid_cells(texts: StringColumn, numbers: Array) -> Mask:
    return np.isnan(numbers) & ~texts.is_missing


def _count_invalid(columns: _StringColumns, numbers: Mapping[str, Array]) -> int:
    return sum(int(_invalid_cells(texts, numbers[name]).sum()) for name, texts in columns.items())


def _invalid_cell_error(
    columns: _StringColumns, numbers: Mapping[str, Array], mark: str, places: RowLocations
) -> DataError:
    """Return the error about the first cell that is not a number."""
    bad = {name: _invalid_cells(texts, numbers[name]) for name, texts in columns.items()}
    record, name = min((int(np.argmax(mask)), name) for name, mask in bad.items() if mask.any())
    cell = columns[name][record]
    if _THOUSANDS_PATTERN.fullmatch(cell):
        remedy = f"remove the separators between thousands, as in {_remove_thousands(cell)}"
    elif _NUMBER_PATTERN.fullmatch(cell):
        remedy = f"other cells have a decimal {'comma' if mark == ',' else 'point'}; write all of them in one way"
    elif _TIME_OF_DAY_PATTERN.fullmatch(cell):
        remedy = (
            "a time of day needs its date: add a column of dates, such as 2024-03-01, or write times as numbers, such "
            "as minutes"
        )
    elif is_date(cell):
        remedy = "dates are read in the time column only"
    elif record == 0 and places.kind == "line":
        remedy = "put # before lines with units or remarks"
    elif (number := _NUMBER_PATTERN.match(cell)) and re.match(r"\s*([^\W\d]|[%°])", cell[number.end() :]):
        remedy = "write the number without its unit, which can be in the name of the column"
    elif name == "t":
        remedy = "leave out rows without a time"
    else:
        remedy = "leave the cell empty if the value is missing"
    return DataError(f"{places.format_row(record)}, column {name}: expected a number, got {cell[:60]!r}; {remedy}")


def _detect_thousands(columns: _StringColumns, mark: str, separator: str) -> tuple[bool, dict[str, tuple[str, bool]]]:
    """Return whether no cell can contain thousands, and else the ambiguous cells: see `NumberFormat`."""
    if mark == "." and separator != ";":
        return True, {}
    if not mark:
        return False, {name: ("", not texts.is_missing.all()) for name, texts in columns.items()}
    doubtful = {}
    for size in (_SAMPLE_ROWS, None):  # most files are decided by the first rows
        for name, texts in columns.items():
            some = texts if size is None else texts.head(size)
            some = some.select(~some.is_missing)
            marked = some.select(some.contains(mark))
            if not _look_like_thousands(marked, mark):
                return True, {}
            doubtful[name] = (marked[0] if len(marked) else "", len(marked) < len(some))
    return False, doubtful


def _look_like_thousands(texts: StringColumn, mark: str) -> bool:
    """Return whether all texts look like 1,234: up to three digits, the mark, and three more digits."""
    if not len(texts):
        return True
    data, places = texts.data, texts.rfind(mark)
    signed = np.isin(data[texts.starts], list(b"+-"))
    first = texts.starts + signed
    before = places - first
    fine = (texts.stops - places == 4) & (before >= 1) & (before <= 3) & (data[first] != ord("0"))
    if not fine.all():
        return False
    return all((_IS_DIGIT[data[places + offset]]).all() for offset in (1, 2, 3))
