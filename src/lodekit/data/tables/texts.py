"""Columns of texts as pieces of one buffer: whole columns are stripped, searched and joined at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Texts"]

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
#: White space in ASCII, as Python strips it.
_BLANK = np.zeros(256, dtype=bool)
_BLANK[[9, 10, 11, 12, 13, 28, 29, 30, 31, 32]] = True
_NEWLINE, _VERTICAL_TAB = 10, 11


@dataclass(frozen=True, eq=False)
class Texts:
    r"""A column of texts; an empty one is missing.

    Parameters
    ----------
    data : array of bytes
        UTF-8, and one byte more than the last text needs.
    starts, stops : arrays of int, shape (n,)
        Where each text begins and ends. They are in order, with a byte between two of them at least.

    Examples
    --------
    >>> texts = Texts.of([" 1.5", None, "two\n"])
    >>> len(texts), texts[0], texts.strip().to_list()
    (3, ' 1.5', ['1.5', '', 'two'])
    """

    data: Bytes
    starts: Integers
    stops: Integers

    @classmethod
    def of(cls, values: Iterable[str | None]) -> Texts:
        """Return texts of Python as a column; None is missing."""
        cells = [(value or "").encode(errors="replace") for value in values]
        lengths = np.fromiter(map(len, cells), dtype=np.int64, count=len(cells))
        stops = np.cumsum(lengths + 1) - 1
        return cls(np.frombuffer(b"\n".join([*cells, b""]), dtype=np.uint8), stops - lengths, stops)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, number: int) -> str:
        return self.data[self.starts[number] : self.stops[number]].tobytes().decode()

    def to_list(self) -> list[str]:
        """Return the texts one by one."""
        if not len(self):
            return []
        first = self.starts[0]
        data = self.data[first : self.stops[-1]].tobytes()
        bounds = zip((self.starts - first).tolist(), (self.stops - first).tolist(), strict=True)
        return [data[start:stop].decode() for start, stop in bounds]

    def head(self, count: int) -> Texts:
        """Return the first of them."""
        return Texts(self.data, self.starts[:count], self.stops[:count])

    def select(self, chosen: Mask) -> Texts:
        """Return some of them."""
        return Texts(self.data, self.starts[chosen], self.stops[chosen])

    def blank_where(self, chosen: Mask) -> Texts:
        """Return the column with some texts missing."""
        return Texts(self.data, self.starts, np.where(chosen, self.starts, self.stops))

    @property
    def is_missing(self) -> Mask:
        """Whether a text is empty, for each of them."""
        return np.asarray(self.starts == self.stops)

    def strip(self) -> Texts:
        """Return the texts without blanks around them."""
        starts, stops = self.starts, self.stops
        while (more := _BLANK[self.data[starts]] & (starts < stops)).any():
            starts = starts + more
        while (more := _BLANK[self.data[np.maximum(stops - 1, 0)]] & (starts < stops)).any():
            stops = stops - more
        # Unicode has more blanks, such as the one that does not break a line; few columns need a closer look.
        edges = np.maximum(self.data[starts], self.data[np.maximum(stops - 1, 0)])
        odd = np.flatnonzero((edges > 127) & (starts < stops))
        if len(odd):
            starts, stops = starts.copy(), stops.copy()
            for number in odd.tolist():
                text = self.data[starts[number] : stops[number]].tobytes().decode()
                stops[number] -= len(text.encode()) - len(text.rstrip().encode())
                starts[number] += len(text.rstrip().encode()) - len(text.strip().encode())
        return Texts(self.data, starts, stops)

    def find(self, mark: str) -> Integers:
        """Return where in the data the last of a certain ASCII character is, for each text; -1 where it has none."""
        found = np.full(len(self), -1, dtype=np.int64)
        if len(self):
            first = int(self.starts[0])
            places = np.flatnonzero(self.data[first : self.stops[-1]] == ord(mark)) + first
            owners = np.searchsorted(self.starts, places, side="right") - 1
            inside = places < self.stops[owners]
            found[owners[inside]] = places[inside]
        return found

    def contains(self, mark: str) -> Mask:
        """Return whether a text has a certain ASCII character, for each of them."""
        return np.asarray(self.find(mark) >= 0)

    def equals_any(self, words: Iterable[str]) -> Mask:
        """Return whether a text is one of some short ASCII words in small letters, whatever its case."""
        found, lengths = self.is_missing.copy(), self.stops - self.starts
        for word in words:
            places = np.flatnonzero(lengths == len(word))
            for offset, letter in enumerate(word):
                own = self.data[self.starts[places] + offset]
                places = places[(own == ord(letter)) | (own == ord(letter.upper()))]
            found[places] = True
        return found if "" in words else found & ~self.is_missing

    def join(self) -> Bytes:
        """Return all texts with a line end behind each."""
        lengths = self.stops - self.starts + 1
        total = int(lengths.sum())
        ends = np.cumsum(lengths) - 1
        if not total:
            return np.empty(0, dtype=np.uint8)
        first, last = int(self.starts[0]), int(self.stops[-1]) + 1
        if 8 * total < last - first:  # a narrow column of a wide table: its bytes alone are touched
            found = self.data[np.arange(total) + np.repeat(self.starts - (ends + 1 - lengths), lengths)]
        else:
            runs = np.empty(2 * len(self), dtype=np.int64)  # what is left out before each text, and the text
            runs[::2], runs[1::2] = np.diff(self.starts, prepend=first), lengths
            runs[2::2] -= lengths[:-1]
            found = self.data[first:last][np.repeat(np.tile([False, True], len(self)), runs)]
        # A line end inside of a text would make two of it; no number has one.
        found[found == _NEWLINE] = _VERTICAL_TAB
        found[ends] = _NEWLINE
        return np.asarray(found, dtype=np.uint8)
