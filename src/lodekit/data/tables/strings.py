"""Columns of texts, and the locations of rows for messages.

The texts of a column share one buffer: whole columns are stripped, searched and joined at once.

Decimal numbers on lines are converted to floats many at a time, after lines that are not numbers are excluded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import DataError
from lodekit.support.arguments import Array, Mask


@contextmanager
def prefix_errors(where: str) -> Iterator[None]:
    """Put the name of a table in front of its error messages."""
    try:
        yield
    except DataError as problem:
        raise DataError(f"{where}: {problem}") from None


@dataclass(frozen=True)
class RowLocations:
    """The locations of rows in a table.

    kind: "line" for text files, "row" for other tables.
    numbers: Counted from one; (n,).
    """

    kind: str
    numbers: NDArray[np.int64]

    def format_row(self, row: int) -> str:
        """Return the location of one row for a message."""
        return f"{self.kind} {self.numbers[row]}"

    def format_rows(self, chosen: Mask) -> str:
        """Return the locations of the chosen rows for a message; a long list is shortened."""
        places = self.numbers[chosen]
        text = ", ".join(map(str, places[:5]))
        more = f", ... ({len(places)} in all)" if len(places) > 5 else ""
        return f"{self.kind}{'s' if len(places) > 1 else ''} {text}{more}"

    def check_complete_times(self, missing: Mask, column: str) -> None:
        """Raise if the time column has no value in some rows."""
        if missing.any():
            raise DataError(f"expected a time in every row, column {column} has none in {self.format_rows(missing)}")


Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]
#: White space in ASCII, as Python strips it.
_IS_WHITESPACE = np.zeros(256, dtype=bool)
_IS_WHITESPACE[[9, 10, 11, 12, 13, 28, 29, 30, 31, 32]] = True
_NEWLINE, _VERTICAL_TAB = 10, 11


@dataclass(frozen=True, eq=False)
class StringColumn:
    r"""A column of texts; an empty text is a missing one.

    data: UTF-8, with at least one byte after the last text.
    starts, stops: The bounds of each text, in order, with at least one byte between two texts; (n,).

    Examples
    --------
    >>> texts = StringColumn.from_strings([" 1.5", None, "two\n"])
    >>> len(texts), texts[0], texts.strip().to_list()
    (3, ' 1.5', ['1.5', '', 'two'])
    """

    data: Bytes
    starts: Integers
    stops: Integers

    @classmethod
    def from_strings(cls, values: Iterable[str | None]) -> StringColumn:
        """Return Python strings as a column; None is missing."""
        cells = [(value or "").encode(errors="replace") for value in values]
        lengths = np.fromiter(map(len, cells), dtype=np.int64, count=len(cells))
        stops = np.cumsum(lengths + 1) - 1
        return cls(np.frombuffer(b"\n".join([*cells, b""]), dtype=np.uint8), stops - lengths, stops)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, number: int) -> str:
        return self.data[self.starts[number] : self.stops[number]].tobytes().decode()

    def to_list(self) -> list[str]:
        """Return the texts as a list."""
        if not len(self):
            return []
        first = self.starts[0]
        data = self.data[first : self.stops[-1]].tobytes()
        bounds = zip((self.starts - first).tolist(), (self.stops - first).tolist(), strict=True)
        return [data[start:stop].decode() for start, stop in bounds]

    def head(self, count: int) -> StringColumn:
        """Return the first texts."""
        return StringColumn(self.data, self.starts[:count], self.stops[:count])

    def select(self, chosen: Mask) -> StringColumn:
        """Return the chosen texts."""
        return StringColumn(self.data, self.starts[chosen], self.stops[chosen])

    def mask(self, chosen: Mask) -> StringColumn:
        """Return the column with the chosen texts missing."""
        return StringColumn(self.data, self.starts, np.where(chosen, self.starts, self.stops))

    @property
    def is_missing(self) -> Mask:
        """Whether each text is empty."""
        return np.asarray(self.starts == self.stops)

    def strip(self) -> StringColumn:
        """Return the texts without surrounding white space."""
        starts, stops = self.starts, self.stops
        while (more := _IS_WHITESPACE[self.data[starts]] & (starts < stops)).any():
            starts = starts + more
        while (more := _IS_WHITESPACE[self.data[np.maximum(stops - 1, 0)]] & (starts < stops)).any():
            stops = stops - more
        # Unicode has more white space, such as the no-break space; few columns need this check.
        edges = np.maximum(self.data[starts], self.data[np.maximum(stops - 1, 0)])
        odd = np.flatnonzero((edges > 127) & (starts < stops))
        if len(odd):
            starts, stops = starts.copy(), stops.copy()
            for number in odd.tolist():
                text = self.data[starts[number] : stops[number]].tobytes().decode()
                stops[number] -= len(text.encode()) - len(text.rstrip().encode())
                starts[number] += len(text.rstrip().encode()) - len(text.strip().encode())
        return StringColumn(self.data, starts, stops)

    def rfind(self, character: str) -> Integers:
        """Return the position in the data of the last occurrence of an ASCII character in each text; -1 if none."""
        found = np.full(len(self), -1, dtype=np.int64)
        if len(self):
            first = int(self.starts[0])
            places = np.flatnonzero(self.data[first : self.stops[-1]] == ord(character)) + first
            owners = np.searchsorted(self.starts, places, side="right") - 1
            inside = places < self.stops[owners]
            found[owners[inside]] = places[inside]
        return found

    def contains(self, character: str) -> Mask:
        """Return whether each text contains an ASCII character."""
        return np.asarray(self.rfind(character) >= 0)

    def equals_any(self, words: Iterable[str]) -> Mask:
        """Return whether each text equals one of some short lower-case ASCII words, ignoring case."""
        found, lengths = self.is_missing.copy(), self.stops - self.starts
        for word in words:
            places = np.flatnonzero(lengths == len(word))
            for offset, letter in enumerate(word):
                own = self.data[self.starts[places] + offset]
                places = places[(own == ord(letter)) | (own == ord(letter.upper()))]
            found[places] = True
        return found if "" in words else found & ~self.is_missing

    def join_lines(self) -> Bytes:
        """Return all texts, each followed by a line end."""
        lengths = self.stops - self.starts + 1
        total = int(lengths.sum())
        ends = np.cumsum(lengths) - 1
        if not total:
            return np.empty(0, dtype=np.uint8)
        first, last = int(self.starts[0]), int(self.stops[-1]) + 1
        if 8 * total < last - first:  # a narrow column of a wide table: read only its bytes
            found = self.data[np.arange(total) + np.repeat(self.starts - (ends + 1 - lengths), lengths)]
        else:
            runs = np.empty(2 * len(self), dtype=np.int64)  # bytes skipped before each text, and bytes of the text
            runs[::2], runs[1::2] = np.diff(self.starts, prepend=first), lengths
            runs[2::2] -= lengths[:-1]
            found = self.data[first:last][np.repeat(np.tile([False, True], len(self)), runs)]
        # A line end inside a text would split it; no number contains one.
        found[found == _NEWLINE] = _VERTICAL_TAB
        found[ends] = _NEWLINE
        return np.asarray(found, dtype=np.uint8)


_INFINITY_PATTERN = re.compile(rb"[+-]?inf(?:inity)?", re.IGNORECASE)
#: With fewer lines, importing SciPy's parser takes longer than it saves.
_MIN_LINES_FOR_MMREAD = 20_000
# Classes of bytes; digits are zero. Exponent signs and leading points are identified by their neighbours below.
_SIGN, _OTHER_BYTE, _LINE_END, _POINT, _EXPONENT, _EXPONENT_SIGN, _LEADING_POINT = range(1, 8)
_BYTE_CLASSES = np.full(256, _OTHER_BYTE, dtype=np.uint8)
_BYTE_CLASSES[list(b"0123456789")] = 0
_BYTE_CLASSES[list(b"+-\n.eE")] = [_SIGN, _SIGN, _LINE_END, _POINT, _EXPONENT, _EXPONENT]
_ZERO = np.uint8(ord("0"))


def _make_transitions() -> bytes:
    """Return the allowed pairs of byte classes, by [previous, current, digits between]: ``[+-] 1.5 e [+-] 3``."""
    rules = np.zeros((8, 8, 2), dtype=bool)
    rules[_LINE_END, _SIGN, 0] = rules[_EXPONENT, _EXPONENT_SIGN, 0] = True
    for before in (_LINE_END, _SIGN):
        rules[before, _POINT, 1] = rules[before, _LEADING_POINT, 0] = True
        rules[before, _EXPONENT, 1] = rules[before, _LINE_END, 1] = True
    rules[_POINT, _EXPONENT] = rules[_POINT, _LINE_END] = True
    rules[_LEADING_POINT, _EXPONENT, 1] = rules[_LEADING_POINT, _LINE_END, 1] = True
    rules[_EXPONENT, _LINE_END, 1] = rules[_EXPONENT_SIGN, _LINE_END, 1] = True
    # `bytes.translate` needs a table of 256 bytes, of which the indices below use the first half.
    return rules.tobytes() + bytes(128)


_TRANSITIONS = _make_transitions()


def parse_decimals(lines: NDArray[np.uint8], ends: Integers | None = None) -> tuple[Array, Mask]:
    r"""Return the numbers on lines (NaN if a line is not a number), and which lines are numbers with a decimal point.

    Each number is the nearest float, as in Python.

    Examples
    --------
    >>> numbers, valid = parse_decimals(np.frombuffer(b"1.5\n-2e3\n\n1.2.3\n", dtype=np.uint8))
    >>> numbers.tolist(), valid.tolist()
    ([1.5, -2000.0, nan, nan], [True, True, False, False])
    """
    ends = np.flatnonzero(lines == 10) if ends is None else ends
    valid = _are_decimal_numbers(lines, ends)
    if valid.all():
        return _parse_valid_decimals(lines.tobytes(), len(ends)), valid
    lengths = np.diff(ends, prepend=-1)
    numbers = np.full(len(ends), np.nan)
    numbers[valid] = _parse_valid_decimals(lines[np.repeat(valid, lengths)].tobytes(), int(valid.sum()))
    for line in np.flatnonzero(~valid & (lengths > 1)).tolist():
        text = lines[ends[line] - lengths[line] + 1 : ends[line]].tobytes()
        if _INFINITY_PATTERN.fullmatch(text):
            numbers[line], valid[line] = float(text), True
    return numbers, valid


def _are_decimal_numbers(lines: NDArray[np.uint8], ends: Integers) -> Mask:
    """Return which lines consist of digits, at most one point and an exponent; empty lines do not."""
    places = np.flatnonzero((lines - _ZERO) > 9)  # unsigned: bytes below "0" wrap to more than 200
    now, digits = _BYTE_CLASSES[lines[places]], np.diff(places, prepend=-1) > 1
    now[(now == _POINT) & ~digits] = _LEADING_POINT
    signs = np.flatnonzero(now == _SIGN)
    now[signs[now[signs - 1] == _EXPONENT]] = _EXPONENT_SIGN
    pairs = now << 1 | digits
    pairs[1:] |= now[:-1] << 4
    pairs[:1] |= _LINE_END << 4
    fine = np.frombuffer(pairs.tobytes().translate(_TRANSITIONS), dtype=bool)
    valid = np.ones(len(ends), dtype=bool)
    if not fine.all():
        valid[np.searchsorted(ends, places[~fine])] = False
    return valid


def _parse_valid_decimals(text: bytes, count: int) -> Array:
    """Return the numbers on lines that are known to be valid, one on each."""
    # `mmread` would divide by zero without lines.
    if count < max(_MIN_LINES_FOR_MMREAD, 1):
        return np.array(list(map(float, text.split())), dtype=float)
    # SciPy's matrix parser takes a tenth of the time of Python's. It rejects a leading plus, and ignores text that
    # follows a number.
    from scipy.io import mmread

    head = b"%%%%MatrixMarket matrix array real general\n%d 1\n" % count
    return np.asarray(mmread(BytesIO(head + text.replace(b"+", b""))), dtype=float).ravel()
