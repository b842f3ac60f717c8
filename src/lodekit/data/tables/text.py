"""Text files with columns, read in blocks of whole records; cells stay texts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lodekit.data.tables.cells import is_missing
from lodekit.data.tables.decimals import read_decimals
from lodekit.data.tables.dialect import (
    Dialect,
    content_lines,
    describe_width,
    find_dialect,
    read_cells,
    separator_name,
)
from lodekit.data.tables.lines import SAMPLE, Opener, read_lines
from lodekit.data.tables.places import Places
from lodekit.data.tables.texts import Texts
from lodekit.errors import DataError

__all__ = ["TextBlock", "TextFile"]

#: Bytes in a block: more take more memory and are no faster.
BLOCK_BYTES = 1 << 24
#: Files with more are read in pieces, and only sums are kept, as if they had many records.
LARGE_BYTES = 1 << 27
#: Comments are told from cells by what a line begins with.
_COMMENT = re.compile(rb"(?:\A|\n)[ \t\v\f]*[#%]")
_Cells = tuple[dict[int, Any], NDArray[np.int64]]  # columns by number, counted from zero; the line of each record
_Plain = tuple[NDArray[np.uint8], NDArray[np.int64]]  # bytes; where cells end, shape (records, columns)
_NEWLINE = 10
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class TextFile:
    """A text file whose dialect is known.

    Parameters
    ----------
    open_file : callable
        Opens the file, from its start each time.
    dialect : Dialect
    encoding : tuple of str
        What there is to say about its encoding.
    """

    open_file: Opener
    dialect: Dialect
    encoding: tuple[str, ...] = ()

    @classmethod
    def open(cls, open_file: Opener, header: bool | None = None, *, single: bool = False) -> TextFile:
        """Find out the dialect of a file from its first lines.

        Parameters
        ----------
        open_file : callable
            Opens the file, from its start each time.
        header : bool, optional
            Whether the first line that is no comment holds the names; found out by default.
        single : bool
            Whether one column is enough.
        """
        notes: list[str] = []
        head = b""
        for piece in read_lines(open_file, SAMPLE, notes):
            head += piece
            # A little more than is looked at, so that the sample does not depend on where pieces end.
            if len(head) > SAMPLE and (dialect := find_dialect(head, header, single=single)):
                break
        else:
            if not (dialect := find_dialect(head, header, single=single)):
                raise DataError("expected a table of numbers, the file is empty")
        return cls(open_file, dialect, tuple(notes))

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, in order."""
        return self.dialect.names

    @property
    def by_number(self) -> bool:
        """Whether columns may be named by their numbers: always, as names are texts."""
        return True

    @property
    def separator(self) -> str:
        """What separates the cells."""
        return self.dialect.separator

    @property
    def notes(self) -> tuple[str, ...]:
        """What was found out about the file, the separator first."""
        return (f"separator {separator_name(self.separator)}", *self.encoding, *self.dialect.notes)

    def has_numbers(self, name: str) -> bool:
        """Return whether a column is known to hold numbers: never, as all cells are texts."""
        return False

    def count(self, limit: int) -> int:
        """Return the number of lines below the header; it stops to count beyond the limit, or where they are long."""
        found, size = -self.dialect.start, 0
        for piece in read_lines(self.open_file, BLOCK_BYTES):
            found, size = found + _count_lines(piece), size + len(piece)
            if size > LARGE_BYTES:
                # As a whole it would take several times its size, however few lines it has.
                return max(found, limit + 1)
            if found > limit:
                break
        return found

    def blocks(self, names: Sequence[str], *, whole: bool = False) -> Iterator[TextBlock]:
        """Yield the file in blocks of whole records, without the lines of the header.

        Parameters
        ----------
        names : sequence of str
            The columns that are read, the time first.
        whole : bool
            Whether the file is one block.
        """
        chosen = tuple(dict.fromkeys(self.names.index(name) for name in names))
        pieces: Iterable[bytes] = read_lines(self.open_file, BLOCK_BYTES)
        if whole:
            pieces = [b"".join(pieces)]
        rest, before, left = b"", 0, self.dialect.start
        for piece, is_last in _mark_last(pieces):
            data = rest + piece
            if left:
                skipped = min(left, _count_lines(data))
                data, before, left = data[_line_start(data, skipped) :], before + skipped, left - skipped
            block = TextBlock(data, before, self.dialect, chosen, is_last)
            rest = b""
            # Only quotes can hide a line end inside of a record, and only reading them tells.
            if b'"' in data and self.separator != " ":
                rest = data[block.end :]
            before += _count_lines(data) - _count_lines(rest)
            if len(rest) < len(data):
                yield block


@dataclass(frozen=True)
class TextBlock:
    """Whole records of a text file.

    Parameters
    ----------
    data : bytes
        Lines, the last of which may belong to a record that goes on in the next block.
    before : int
        How many lines of the file stand before these.
    dialect : Dialect
    chosen : tuple of int
        The columns that are read, counted from zero, the time first.
    is_last : bool
        Whether the file ends here.
    """

    data: bytes
    before: int
    dialect: Dialect
    chosen: tuple[int, ...]
    is_last: bool = True

    def read(self, direct: Collection[str] = ()) -> tuple[dict[str, Any], Places]:
        """Return the chosen columns as `Texts`, and where the records stand.

        Parameters
        ----------
        direct : collection of str
            Columns that hold numbers with a decimal point, as far as is known: they come as floats where all do.
        """
        if (plain := _find_cells(self)) is None:
            columns, lines = self._careful[:2]
        else:
            columns, lines = (direct and _read_numbers(self, plain, direct)) or _read_texts(self, plain)
        return {self.dialect.names[k]: columns[k] for k in self.chosen}, Places("line", lines)

    @property
    def end(self) -> int:
        """Where the first line starts that belongs to the next block."""
        return self._careful[2]

    @cached_property
    def _careful(self) -> tuple[dict[int, Any], NDArray[np.int64], int]:
        """The cells of any block, record by record, and where it ends; or the first line that does not fit."""
        width, separator = len(self.dialect.names), self.dialect.separator
        rows: list[list[str]] = []
        numbers: list[int] = []
        last, is_open = self.before, False

        def leave_open() -> None:
            nonlocal is_open
            is_open = True

        lines = content_lines(self.data.decode(), self.before, separator)
        at_open_end = None if self.is_last else leave_open
        for number, cells in read_cells(lines, separator, strict=True, at_open_end=at_open_end):
            last = number
            while len(cells) > width and not cells[-1].strip():
                cells.pop()
            blank = not any(map(str.strip, cells))
            if len(cells) != width and not blank:
                raise DataError(describe_width(number, len(cells), width, separator))
            if not blank:
                rows.append(cells)
                numbers.append(number)
        columns = {k: Texts.of(row[k] for row in rows) for k in self.chosen}
        end = _line_start(self.data, last - self.before) if is_open else len(self.data)
        return columns, np.array(numbers, dtype=np.int64), end


def _mark_last(items: Iterable[_Item]) -> Iterator[tuple[_Item, bool]]:
    """Yield items, each with whether it is the last."""
    held = list[_Item]()
    for item in items:
        if held:
            yield held.pop(), False
        held.append(item)
    if held:
        yield held.pop(), True


def _count_lines(data: bytes) -> int:
    """Return the number of lines; the last one may lack its line end."""
    ends = int(np.count_nonzero(np.frombuffer(data, dtype=np.uint8) == 10))
    return ends + (bool(data) and not data.endswith(b"\n"))


def _line_start(data: bytes, lines: int) -> int:
    """Return where the text goes on after so many lines."""
    position = 0
    for _ in range(lines):
        position = data.find(b"\n", position) + 1 or len(data)
    return position


def _find_cells(block: TextBlock) -> _Plain | None:
    """Return where the cells of a block are; None where it has quotes, comments, gaps or ragged lines."""
    data, width, separator = block.data, len(block.dialect.names), block.dialect.separator
    if not data or width < 2 or b'"' in data or _has_comments(data):
        return None
    if separator == " ":
        data, separator = _single_tabs(data), "\t"
    characters = np.frombuffer(data if data.endswith(b"\n") else data + b"\n", dtype=np.uint8)
    is_end = characters == _NEWLINE
    count = int(np.count_nonzero(is_end))
    found = np.flatnonzero(is_end | (characters == ord(separator)))
    if len(found) != count * width:
        return None
    stops = found.reshape(count, width)
    # As many cells as there should be; where one line has too few, another has too many.
    return (characters, stops) if (characters[stops[:, -1]] == _NEWLINE).all() else None


def _column(plain: _Plain, number: int) -> Texts:
    characters, stops = plain
    if number:
        return Texts(characters, stops[:, number - 1] + 1, stops[:, number])
    return Texts(characters, np.concatenate(([0], stops[:-1, -1] + 1)), stops[:, 0])


def _read_texts(block: TextBlock, plain: _Plain) -> _Cells:
    """Return the chosen columns as texts."""
    columns = {number: _column(plain, number) for number in block.chosen}
    lines = np.arange(len(plain[1]), dtype=np.int64) + block.before + 1
    empty = columns[block.chosen[0]].strip().is_missing
    if empty.any():  # spreadsheets leave records of separators behind
        for number in range(len(block.dialect.names)):
            empty = empty & _column(plain, number).strip().is_missing
        columns = {number: texts.select(~empty) for number, texts in columns.items()}
        lines = lines[~empty]
    return columns, lines


def _read_numbers(block: TextBlock, plain: _Plain, direct: Collection[str]) -> _Cells | None:
    """Return the chosen columns, numbers as floats; None unless their cells are numbers or missing, and no time is."""
    characters, stops = plain
    columns: dict[int, Any] = {number: _column(plain, number) for number in block.chosen}
    if columns[block.chosen[0]].is_missing.any():
        return None
    lines = np.arange(len(stops), dtype=np.int64) + block.before + 1
    wanted = [number for number in sorted(columns) if block.dialect.names[number] in direct]
    if not wanted:
        return columns, lines
    # All of these columns at once: one number on each line, in the order of the file.
    ends = stops.ravel()
    if len(wanted) < stops.shape[1]:
        kept = np.isin(np.arange(stops.shape[1]), wanted)
        lengths = np.diff(ends, prepend=-1)
        characters = characters[np.repeat(np.tile(kept, len(stops)), lengths)]
        ends = np.cumsum(lengths.reshape(stops.shape)[:, kept].ravel()) - 1
    separator = "\t" if block.dialect.separator == " " else block.dialect.separator
    content = characters.tobytes().replace(separator.encode(), b"\n")
    numbers, valid = read_decimals(np.frombuffer(content, dtype=np.uint8), ends)
    if not valid.all():
        lengths = np.diff(ends, prepend=-1)
        for place in np.flatnonzero(~valid & (lengths > 1)).tolist():
            record, column = divmod(place, len(wanted))
            if not is_missing(columns[wanted[column]][record]) or wanted[column] == block.chosen[0]:
                return None
    return columns | dict(zip(wanted, numbers.reshape(len(stops), len(wanted)).T, strict=True)), lines


def _has_comments(data: bytes) -> bool:
    if b"#" not in data and b"%" not in data:
        return False
    return not data.isascii() or _COMMENT.search(data) is not None


def _single_tabs(body: bytes) -> bytes:
    """Return lines with one tab in the place of each run of blanks, and none at their ends."""
    for at_start in (True, False):
        characters = np.frombuffer(body, dtype=np.uint8)
        blank, newline = (characters == 9) | (characters == 32), characters == 10
        if at_start:
            neighbour = np.concatenate(([True], (blank | newline)[:-1]))
        else:
            neighbour = np.concatenate((newline[1:], [True]))
        body = characters[~(blank & neighbour)].tobytes()
    return body.replace(b" ", b"\t")
