"""Text files with columns, read in blocks of whole records; cells stay texts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lodekit.data.tables.dialect import (
    Dialect,
    content_lines,
    describe_width,
    find_dialect,
    read_records,
    separator_name,
)
from lodekit.data.tables.lines import SAMPLE, Opener, read_lines
from lodekit.data.tables.places import Places
from lodekit.errors import DataError

__all__ = ["TextBlock", "TextFile"]

#: Bytes in a block: more take more memory and are no faster.
BLOCK_BYTES = 1 << 24
#: Files with more are read in pieces, and only sums are kept, as if they had many records.
LARGE_BYTES = 1 << 27
#: Comments are told from cells by what a line begins with.
_COMMENT = re.compile(rb"(?:\A|\n)[ \t\v\f]*[#%]")
_Cells = tuple[Any, NDArray[np.int64]]  # texts in columns called "1", "2", ...; the line of each record
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
        """Return the chosen columns as polars Series of texts, and where the records stand.

        Parameters
        ----------
        direct : collection of str
            Columns that hold numbers with a decimal point, as far as is known: they come as floats where all do.
        """
        frame, lines = (direct and _read_fast(self, direct)) or _read_fast(self) or self._careful[:2]
        names = self.dialect.names
        return {names[k]: frame[str(k + 1)] for k in self.chosen}, Places("line", lines)

    @property
    def end(self) -> int:
        """Where the first line starts that belongs to the next block."""
        return self._careful[2]

    @cached_property
    def _careful(self) -> tuple[Any, NDArray[np.int64], int]:
        """The cells of any block, record by record, and where it ends; or the first line that does not fit."""
        import polars as pl

        width, separator = len(self.dialect.names), self.dialect.separator
        rows: list[list[str]] = []
        numbers: list[int] = []
        last, is_open = self.before, False

        def leave_open() -> None:
            nonlocal is_open
            is_open = True

        lines = content_lines(self.data.decode(), self.before, separator)
        at_open_end = None if self.is_last else leave_open
        for number, cells in read_records(lines, separator, strict=True, at_open_end=at_open_end):
            last = number
            while len(cells) > width and not cells[-1].strip():
                cells.pop()
            blank = not any(map(str.strip, cells))
            if len(cells) != width and not blank:
                raise DataError(describe_width(number, len(cells), width, separator))
            if not blank:
                rows.append(cells)
                numbers.append(number)
        columns = zip(*rows, strict=True) if rows else [()] * width
        frame = {str(place): pl.Series(cells, dtype=pl.String) for place, cells in enumerate(columns, 1)}
        end = _line_start(self.data, last - self.before) if is_open else len(self.data)
        return pl.DataFrame(frame), np.array(numbers, dtype=np.int64), end


def _mark_last(items: Iterable[_Item]) -> Iterator[tuple[_Item, bool]]:
    """Yield items, each with whether it is the last."""
    iterator = iter(items)
    for item in iterator:
        current = item
        for following in iterator:
            yield current, False
            current = following
        yield current, True


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


def _read_fast(block: TextBlock, direct: Collection[str] = ()) -> _Cells | None:
    """Return the cells of a block without quotes, comments, gaps and ragged lines; None where it is not so plain.

    Columns of numbers are parsed at once where each of their cells is a number or empty, and there are no gaps.
    """
    import polars as pl

    data, width, separator = block.data, len(block.dialect.names), block.dialect.separator
    if not data or width < 2 or b'"' in data or _has_comments(data):
        return None
    if separator == " ":
        data, separator = _single_tabs(data), "\t"
    times_alone = bool(direct) and len(block.chosen) == 1
    if (count := _count_records(data, width, separator, block.chosen, times_alone)) is None:
        return None

    def read(chosen: Sequence[int]) -> Any:
        kinds = (pl.Float64 if name in direct else pl.String for name in block.dialect.names)
        schema = {str(number): kind for number, kind in enumerate(kinds, 1)}
        options = {"has_header": False, "separator": separator, "quote_char": None, "schema": schema}
        return pl.read_csv(data, columns=list(chosen), **options)

    try:
        frame = read(block.chosen)
        if len(frame) != count:
            return None
        lines = np.arange(count, dtype=np.int64) + block.before + 1
        if direct:
            return (frame, lines) if not frame[str(block.chosen[0] + 1)].null_count() else None
        if _is_blank(frame[str(block.chosen[0] + 1)]).any():  # spreadsheets leave records of separators behind
            everything = read(range(width))
            empty = everything.select(pl.all_horizontal(pl.all().str.strip_chars().fill_null("") == ""))[:, 0]
            frame, lines = frame.filter(~empty), lines[~empty.to_numpy()]
    except pl.exceptions.PolarsError:
        return None
    return frame, lines


def _is_blank(texts: Any) -> Any:
    return texts.str.strip_chars().fill_null("").eq("")


def _has_comments(data: bytes) -> bool:
    if b"#" not in data and b"%" not in data:
        return False
    return not data.isascii() or _COMMENT.search(data) is not None


def _count_records(data: bytes, width: int, separator: str, chosen: Sequence[int], times_alone: bool) -> int | None:
    """Return the number of lines; None unless each of them has the same number of cells.

    A cell too few among the times is a gap, and one too many does no harm there: the sums will see them.
    """
    characters = np.frombuffer(data, dtype=np.uint8)
    is_end, is_separator = characters == 10, characters == ord(separator)
    lines = int(np.count_nonzero(is_end)) + (not data.endswith(b"\n"))
    if times_alone:
        return lines
    if np.count_nonzero(is_separator) != lines * (width - 1):
        return None
    if width - 1 in chosen:
        # Where one line has too few, another has too many, which polars notices when it reads the last column.
        return lines
    ends = characters[is_end | is_separator] == 10
    return lines if ends[width - 1 :: width].all() else None


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
