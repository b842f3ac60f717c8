"""Text tables: decoding into lines of UTF-8, detection of the dialect, and reading in blocks of whole rows."""

from __future__ import annotations

import codecs
import csv
import gzip
import os
import re
import stat
import time
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from lodekit.data.tables.cells import MISSING_MARKERS, is_data_cell, is_missing
from lodekit.data.tables.columns import is_time_name
from lodekit.data.tables.frames import TableBlock
from lodekit.data.tables.strings import RowLocations, StringColumn, parse_decimals
from lodekit.errors import DataError
from lodekit.support.files import describe_read_error
from lodekit.support.units import is_known_unit

#: Opens a file for reading, from its start each time.
FileOpener = Callable[[], IO[bytes]]
#: The number of bytes from which the dialect is detected; the first piece of a file is not longer.
SAMPLE_BYTES = 1 << 18
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_BINARY_MESSAGE = "expected a text file or Parquet, got binary data"
#: A file without a line end in so many bytes is not a table.
MAX_LINE_BYTES = 16 << 20
#: Tables are compressed by less than this factor, empty lines by a thousand.
_MAX_EXPANSION = 200
#: A pipe can be read only once, so its whole content is kept.
_MAX_PIPE_BYTES = 128 << 20
#: How long to wait for a process that writes to a pipe.
_PIPE_TIMEOUT_SECONDS = 1.0


def read_lines(open_file: FileOpener, size: int, notes: list[str] | None = None) -> Iterator[bytes]:
    r"""Yield a text file in pieces of whole lines: decompressed, as UTF-8, with plain line ends.

    Examples
    --------
    >>> from io import BytesIO
    >>> list(read_lines(lambda: BytesIO(b"t,x\r\n0,1\r\n1,2"), 6))
    [b't,x\n', b'0,1\n1,2']
    """
    notes = [] if notes is None else notes
    held = rest = b""
    for piece in _read_bytes(open_file, size, notes):
        rest += piece
        # A carriage return at the end may be half of a line end; if there are line feeds, they end the lines.
        if cut := rest.rfind(b"\n") + 1 or rest.rfind(b"\r", 0, -1) + 1:
            if held:
                yield _normalize_encoding(held, notes)
            held, rest = rest[:cut], rest[cut:]
        if len(rest) > MAX_LINE_BYTES:
            too_long = f"expected lines of text, one is longer than {MAX_LINE_BYTES >> 20} MB"
            raise DataError(_BINARY_MESSAGE if b"\0" in rest else too_long)
    # A last line without its end is added to the piece before it, so that sums do not depend on a missing line end.
    if held := held + rest.rstrip(b"\x1a"):  # end mark of texts on old systems
        yield _normalize_encoding(held, notes)


def read_pipe(place: Path) -> bytes:
    """Return the content of a pipe; devices, and pipes without a writer, are refused."""
    kind = place.stat().st_mode
    if stat.S_ISDIR(kind):
        raise IsADirectoryError
    if not stat.S_ISFIFO(kind):
        raise DataError("expected a file or a pipe, got a device; save the data in a file")
    # A blocking open may wait forever for a writer; this one returns at once, and the loop waits for a limited time.
    handle = os.open(place, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(handle, "rb", buffering=0) as pipe:
        content, end = bytearray(), time.monotonic() + _PIPE_TIMEOUT_SECONDS
        # A read returns b"" without a writer, and None if the writer has not written yet.
        while (piece := pipe.read(1 << 20)) == b"":
            if time.monotonic() > end:
                raise DataError("expected data from the pipe, no process writes to it; start one, or save a file")
            time.sleep(0.02)
        content += piece or b""
        os.set_blocking(handle, True)
        while piece := pipe.read(1 << 20):
            content += piece
            if len(content) > _MAX_PIPE_BYTES:
                most = _MAX_PIPE_BYTES >> 20
                raise DataError(f"expected at most {most} MB from a pipe; save the data in a file, of any size")
    return bytes(content)


@contextmanager
def as_data_errors() -> Iterator[None]:
    """Convert errors that occur while a file is read to `DataError`."""
    try:
        yield
    except IsADirectoryError:
        raise DataError("expected a file, got a folder") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
        raise DataError(f"cannot be unpacked, {problem}") from None
    except UnicodeError:
        raise DataError(_BINARY_MESSAGE) from None
    except (OSError, ValueError) as problem:
        raise DataError(f"cannot be read, {describe_read_error(problem)}") from None


def _read_bytes(open_file: FileOpener, size: int, notes: list[str]) -> Iterator[bytes]:
    """Yield the bytes of a file: decompressed, without a byte order mark, and converted from UTF-16 to UTF-8."""
    with as_data_errors(), open_file() as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        stream = gzip.GzipFile(fileobj=file) if packed else file
        n_unpacked = start = 0

        def read(count: int) -> bytes:
            nonlocal n_unpacked, start
            piece = stream.read(count)
            n_unpacked += len(piece)
            if packed and n_unpacked > MAX_LINE_BYTES:
                if n_unpacked > _MAX_EXPANSION * (file.tell() - start):
                    raise DataError(
                        f"expected a table, got compressed data that become more than {_MAX_EXPANSION} times as large, "
                        "such as empty lines; unpack the file and check it"
                    )
                n_unpacked, start = 0, file.tell()
            return piece

        first = read(max(4, min(size, SAMPLE_BYTES)))
        if first.startswith(b"PK\x03\x04"):
            raise DataError("expected a text file or Parquet, got a spreadsheet or zip archive; save the table as CSV")
        if not first.startswith(_UTF16_MARKS):
            yield first.removeprefix(codecs.BOM_UTF8)
            while piece := read(size):
                yield piece
            return
        notes.append("encoding UTF-16")
        decoder, piece = codecs.getincrementaldecoder("utf-16")(), first
        while piece:
            yield decoder.decode(piece).encode()
            piece = read(size)
        decoder.decode(b"", final=True)


def _normalize_encoding(lines: bytes, notes: list[str]) -> bytes:
    if b"\0" in lines:
        raise DataError(f"{_BINARY_MESSAGE} (or UTF-16 without its mark: save as UTF-8)")
    if not lines.isascii():
        try:
            lines.decode()
        except UnicodeDecodeError:
            lines = lines.decode("latin-1").encode()
            if "encoding Latin-1" not in notes:
                notes.append("encoding Latin-1")
    return lines.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in lines else lines


_SEPARATORS = (";", "\t", "|", ",", " ")
_CONTROL_PATTERN = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_DATA_LINE_PATTERN = re.compile(rb"^[^\S\n]*[^\s#%]", re.MULTILINE)


@dataclass(frozen=True)
class TextDialect:
    """The dialect of a text table.

    names: The columns in order; duplicates are not checked here.
    separator: The separator of cells; a blank means white space of any length.
    header_lines: The number of lines before the first row.
    notes: What was detected, in words.
    first_rows: The cells of the first rows.
    """

    names: tuple[str, ...]
    separator: str
    header_lines: int
    notes: tuple[str, ...]
    first_rows: tuple[list[str], ...] = ()


def detect_dialect(head: bytes, header: bool | None = None, *, single_column: bool = False) -> TextDialect | None:
    r"""Return the dialect of a file; None if its first lines are all empty or comments.

    Examples
    --------
    >>> found = detect_dialect(b"# a log\nt;x\n0;1,5\n")
    >>> found.names, found.separator, found.header_lines
    (('t', 'x'), ';', 2)
    """
    if _CONTROL_PATTERN.search(head[:SAMPLE_BYTES]):
        raise DataError(f"{_BINARY_MESSAGE} (or UTF-16 without its mark: save as UTF-8)")
    sample = _sample_lines(head)
    if not sample:
        return None
    declared = re.fullmatch(r'"?sep=([;,|\t])"?', sample[0][1].rstrip(" "))
    if declared:  # spreadsheets declare the separator in this line
        sample = sample[1:]
    if not sample:
        raise DataError("expected lines of numbers, the file has none")
    separator = declared[1] if declared else _detect_separator([line for _, line in sample], single_column)
    # A wrong guess may leave a quote open in the sample; the whole file is read strictly.
    raw = list(split_cells(sample, separator, strict=False))
    records = []
    for number, cells in raw:
        # Empty cells at the end of a line follow a trailing separator.
        width = max((k for k, cell in enumerate(cells, 1) if cell.strip()), default=0)
        records.append((number, cells[:width]))
    skipped = _count_preamble([cells for _, cells in records]) if header is None else 0
    last, first = records[skipped]
    if header is None:
        header = skipped > 0 or not _is_data_row(first)
    if header:
        names = _header_names(first)
        if len(names) < 2 and not single_column and len(records) > skipped + 1:
            number, second = records[skipped + 1]
            raise DataError(describe_wrong_width(number, len(second), 1, separator))
        notes = []
        if skipped:
            above, ignored = records[skipped - 1][0], repr(sample[0][1].strip()[:40])
            skipped_lines, verb = (f"lines 1 to {above}", "were") if above > 1 else ("line 1", "was")
            notes = [f"{skipped_lines} above the header {verb} skipped ({ignored})"]
        if len(records) > skipped + 1 and (units := _names_with_units(names, records[skipped + 1][1])):
            names, last = units, records[skipped + 1][0]
            notes.append(f"line {last} contains units")
        first_rows = tuple(cells for number, cells in records if number > last)[:3]
        return TextDialect(tuple(names), separator, last, tuple(notes), first_rows)
    start = sample[0][0] - 1
    width = min(len(raw[0][1]), max(len(cells) for _, cells in records))
    names, note = _names_without_header(head, start, width, separator)
    return TextDialect(tuple(names), separator, start, (note,))


def _is_data_row(cells: Sequence[str]) -> bool:
    """Return whether all cells are values, and not all of them missing."""
    return all(map(is_data_cell, cells)) and any(cell.strip().lower() not in MISSING_MARKERS for cell in cells)


def _count_preamble(records: Sequence[Sequence[str]]) -> int:
    """Return the number of rows before the header, the row without values above the first data row and any units.

    It is zero if the first row names a time or contains data, or if no other row looks like a header.
    """
    if any(map(is_time_name, records[0])) or _is_data_row(records[0]):
        return 0
    row = next((k for k, cells in enumerate(records) if len(cells) > 1 and _is_data_row(cells)), 0)
    if row > 1 and _names_with_units(records[row - 2], records[row - 1]):
        row -= 1
    header = [cell.strip() for cell in records[row - 1]] if row else []
    # A row may lack its last values; a header names each column and contains no values.
    fits = len(header) >= max(2, len(records[row])) and not any(is_data_cell(cell) for cell in header if cell)
    return row - 1 if row > 1 and fits and len(set(header)) == len(header) else 0


def _names_with_units(names: Sequence[str], cells: Sequence[str]) -> list[str]:
    """Return the names of columns with the units from the row below; empty if that row is not one of units."""
    texts = [cell.strip() for cell in cells]
    bare = [text[1:-1].strip() if text[:1] + text[-1:] in ("[]", "()") else text for text in texts]
    given = [own for own in bare if own not in ("", "-", "1")]
    if len(names) < 2 or len(cells) > len(names) or not given or not all(map(is_known_unit, given)):
        return []
    bare += [""] * (len(names) - len(bare))
    pairs = zip(names, bare, strict=True)
    return [f"{name} [{own}]" if own not in ("", "-") and name[-1:] not in "])" else name for name, own in pairs]


def separator_name(separator: str) -> str:
    """Return the name of a separator in messages."""
    return {"\t": "tab", " ": "white space"}.get(separator, repr(separator))


def describe_wrong_width(number: int, got: int, width: int, separator: str) -> str:
    """Return the message about a line with too many or too few cells."""
    decimal = separator == "," and got > width > 1
    remedy = "a decimal comma needs another separator, such as ;" if decimal else "put # before lines that are not data"
    return (
        f"line {number}: expected {width} cell{'s' if width > 1 else ''}, like the first line, separated by "
        f"{separator_name(separator)}, got {got}; {remedy}"
    )


def iterate_data_lines(text: str, lines_before: int = 0, separator: str = " ") -> Iterator[tuple[int, str]]:
    """Yield the lines that are neither empty nor comments, with their numbers, counted after `lines_before` lines."""
    is_open = False
    for number, line in enumerate(text.split("\n"), lines_before + 1):
        stripped = line.lstrip()
        if is_open or (stripped and stripped[0] not in "#%"):
            yield number, line
            if '"' in line and separator != " ":
                is_open = _ends_in_quotes(line, separator, is_open)


def _ends_in_quotes(line: str, separator: str, is_open: bool) -> bool:
    """Return whether a line ends inside a quoted cell, given whether it starts inside one."""
    at_start, place = not is_open, 0
    while place < len(line):
        character = line[place]
        if is_open and character == '"':
            doubled = line[place + 1 : place + 2] == '"'
            is_open, place = doubled, place + doubled
        elif character == '"' and at_start:
            is_open = True
        at_start = not is_open and (character == separator or (at_start and character in " \t"))
        place += 1
    return is_open


def split_cells(
    lines: Iterable[tuple[int, str]], separator: str, *, strict: bool, at_open_end: Callable[[], None] | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each row, with the number of its last line; quoted cells may contain separators."""
    if separator == " ":
        for number, line in lines:
            quoted = '"' in line and csv.reader([line.replace("\t", " ").strip()], delimiter=" ", skipinitialspace=True)
            yield number, next(quoted) if quoted else line.split()
        return
    number, ended, closing = 0, False, re.compile(rf'" +(?={re.escape(separator)}|$)')

    def feed() -> Iterator[str]:
        nonlocal number, ended
        for number, line in lines:  # noqa: B007 - the loop below reads it
            # Remove blanks after a closing quote; keep line ends inside quotes, so that two numbers stay separate.
            yield (closing.sub('"', line) if '"' in line else line) + "\n"
        ended = True

    try:
        for record in csv.reader(feed(), delimiter=separator, skipinitialspace=True, strict=strict):
            yield number, record
    except csv.Error as problem:
        if ended and at_open_end is not None:
            at_open_end()
            return
        raise DataError(f"line {number}: the cells cannot be separated, {problem}; check the quotes") from None


def _sample_lines(head: bytes) -> list[tuple[int, str]]:
    """Return the first lines that are neither empty nor comments, with their numbers."""
    if (match := _DATA_LINE_PATTERN.search(head)) is None:
        return []
    start, lines_before = match.start(), head.count(b"\n", 0, match.start())
    for size in (SAMPLE_BYTES, len(head)):
        text = head[start:size].decode(errors="ignore")
        if len(head) > size:
            text = text.rpartition("\n")[0]
        if found := list(islice(iterate_data_lines(text, lines_before), 300)):
            return found
    return []


def _detect_separator(lines: Sequence[str], single: bool) -> str:
    """Return the separator with the most lines of equal width and the most cells that look like data."""
    best, chosen = -1.0, ""
    for separator in _SEPARATORS:
        records = [record for _, record in split_cells(enumerate(lines), separator, strict=False)]
        body = records[1:] or records
        width, lines_alike = Counter(map(len, body)).most_common(1)[0]
        cells = [cell for record in body if len(record) == width for cell in record]
        # Equal widths decide if all cells are words; a header usually has as many cells as its table.
        score = lines_alike / len(body) * (0.01 + sum(map(is_data_cell, cells)) / len(cells))
        score *= 1.0 if len(records[0]) == width else 0.7
        if width > 1 and score > best:
            best, chosen = score, separator
    if single and (not chosen or chosen not in lines[0]):
        # In a single column nothing separates, and a comma is a decimal comma.
        return ";"
    if not chosen:
        raise DataError(
            "expected two or more columns, separated by comma, semicolon, tab, | or white space, "
            f"got lines such as {lines[-1][:60]!r}"
        )
    return chosen


def _header_names(cells: Sequence[str]) -> list[str]:
    names = [cell.strip().replace("\n", " ") for cell in cells]
    # Some programs put a comment mark before the first name, inside its quotes.
    names[:1] = [name.lstrip("#% \t") or name for name in names[:1]]
    while names and not names[-1]:  # a separator at the end of the line
        names.pop()
    return [name or f"unnamed {number}" for number, name in enumerate(names, 1)]


def _names_without_header(head: bytes, start: int, width: int, separator: str) -> tuple[list[str], str]:
    """Return names from a comment directly above the numbers, as NumPy writes it, or else column numbers."""
    above = head.split(b"\n", start)[start - 1].decode().strip() if start else ""
    if above.startswith(("#", "%")):
        _, cells = next(split_cells([(start, above.lstrip("#% \t"))], separator, strict=False), (0, []))
        names = [cell.strip() for cell in cells]
        if len(names) == len(set(names)) == width and not any(map(is_data_cell, names)):
            return names, f"the names of the columns are those in the comment in line {start}"
    return [str(number) for number in range(1, width + 1)], "no header: columns are identified by their numbers"


#: Bytes in a block: larger blocks take more memory and are not faster.
BLOCK_BYTES = 1 << 24
#: Larger files are read in blocks and only sums are kept, as for tables with many rows.
MAX_BYTES_IN_MEMORY = 1 << 27
#: Comment lines start with # or %.
_COMMENT_PATTERN = re.compile(rb"(?:\A|\n)[ \t\v\f]*[#%]")
#: Columns by index, and the line of each row.
_ColumnsAndLines = tuple[dict[int, Any], NDArray[np.int64]]
_CellBounds = tuple[NDArray[np.uint8], NDArray[np.int64]]  # bytes; ends of cells, shape (rows, columns)


@dataclass(frozen=True)
class TextFile:
    """A text file with its dialect.

    open_file: Opens the file, from its start each time.
    encoding: Notes about its encoding.
    """

    open_file: FileOpener
    dialect: TextDialect
    encoding: tuple[str, ...] = ()
    allows_column_numbers = True

    @classmethod
    def open(cls, open_file: FileOpener, header: bool | None = None, *, single_column: bool = False) -> TextFile:
        """Detect the dialect of a file from its first lines."""
        head, has_data, notes = b"", False, list[str]()
        detect = partial(detect_dialect, header=header, single_column=single_column)
        for piece in read_lines(open_file, SAMPLE_BYTES, notes):
            head, has_data = head + piece, has_data or bool(_DATA_LINE_PATTERN.search(piece))
            if not has_data and len(head) > MAX_LINE_BYTES:
                most = MAX_LINE_BYTES >> 20
                raise DataError(f"expected a table of numbers, the first {most} MB are empty lines and comments")
            # Collect more than the sample, so that it does not depend on the bounds of pieces.
            if has_data and len(head) > SAMPLE_BYTES and (dialect := detect(head)):
                break
        else:
            if not (dialect := detect(head)):
                raise DataError("expected a table of numbers, the file is empty")
        return cls(open_file, dialect, tuple(notes))

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, in order."""
        return self.dialect.names

    @property
    def separator(self) -> str:
        """The separator of the cells."""
        return self.dialect.separator

    @property
    def notes(self) -> tuple[str, ...]:
        """What was detected about the file, the separator first."""
        return (f"separator {separator_name(self.separator)}", *self.encoding, *self.dialect.notes)

    def is_numeric(self, name: str) -> bool:
        """Return whether a column is known to contain numbers: never, as all cells are texts."""
        return False

    def count_rows(self, limit: float) -> int:
        """Return the number of lines below the header; above the limit, or if the file is large, any larger number."""
        found, size = -self.dialect.header_lines, 0
        for piece in read_lines(self.open_file, BLOCK_BYTES):
            found, size = found + _count_lines(piece), size + len(piece)
            if size > MAX_BYTES_IN_MEMORY and limit < np.inf:
                # In memory it would take several times its size, however few lines it has.
                return max(found, int(limit) + 1)
            if found > limit:
                break
        return found

    def blocks(self, names: Sequence[str], *, as_one_block: bool = False) -> Iterator[TableBlock]:
        """Yield the file in blocks of whole rows, without the header lines."""
        chosen = tuple(dict.fromkeys(self.names.index(name) for name in names))
        pieces: Iterable[bytes] = read_lines(self.open_file, BLOCK_BYTES)
        if as_one_block:
            pieces = [b"".join(pieces)]
        rest, before, left = b"", 0, self.dialect.header_lines
        for piece, following in pairwise(chain(pieces, [b""])):
            data = rest + piece
            if left:
                skipped = min(left, _count_lines(data))
                data, before, left = data[_line_start(data, skipped) :], before + skipped, left - skipped
            block = TextBlock(data, before, self.dialect, chosen, is_last=not following)
            rest = b""
            # Only quotes can hide a line end inside a row, so these blocks are parsed to find their end.
            if b'"' in data and self.separator != " ":
                rest = data[block.end :]
            before += _count_lines(data) - _count_lines(rest)
            if len(rest) < len(data):
                yield block.read


@dataclass(frozen=True)
class TextBlock:
    """Whole rows of a text file.

    data: Lines, the last of which may belong to a row that continues in the next block.
    lines_before: The number of lines of the file before these.
    column_indices: The columns to read, counted from zero, the time first.
    is_last: Whether the file ends here.
    """

    data: bytes
    lines_before: int
    dialect: TextDialect
    column_indices: tuple[int, ...]
    is_last: bool = True

    def read(self, time: str, float_columns: Collection[str] = ()) -> tuple[dict[str, Any], RowLocations]:
        """Read the chosen columns, as a `TableBlock` does."""
        if (bounds := _find_cell_bounds(self)) is None:
            columns, lines = self._parsed_records[:2]
        else:
            floats = _read_float_columns(self, bounds, float_columns) if float_columns else None
            columns, lines = floats or _read_string_columns(self, bounds)
        return {self.dialect.names[k]: columns[k] for k in self.column_indices}, RowLocations("line", lines)

    @property
    def end(self) -> int:
        """Start of the first line that belongs to the next block."""
        return self._parsed_records[2]

    @cached_property
    def _parsed_records(self) -> tuple[dict[int, Any], NDArray[np.int64], int]:
        """The columns of a block, parsed row by row, the line of each row, and the end of the last whole row."""
        width, separator = len(self.dialect.names), self.dialect.separator
        rows, numbers = list[list[str]](), list[int]()
        last, open_ends = self.lines_before, list[bool]()
        lines = iterate_data_lines(self.data.decode(), self.lines_before, separator)
        at_open_end = None if self.is_last else partial(open_ends.append, True)
        for number, cells in split_cells(lines, separator, strict=True, at_open_end=at_open_end):
            last = number
            while len(cells) > width and not cells[-1].strip():
                cells.pop()
            blank = not any(map(str.strip, cells))
            if len(cells) != width and not blank:
                raise DataError(describe_wrong_width(number, len(cells), width, separator))
            if not blank:
                rows.append(cells)
                numbers.append(number)
        columns = {k: StringColumn.from_strings(row[k] for row in rows) for k in self.column_indices}
        end = _line_start(self.data, last - self.lines_before) if open_ends else len(self.data)
        return columns, np.array(numbers, dtype=np.int64), end


def _count_lines(data: bytes) -> int:
    """Return the number of lines; the last one may lack its line end."""
    return data.count(b"\n") + (bool(data) and not data.endswith(b"\n"))


def _line_start(data: bytes, lines: int) -> int:
    """Return the position after a number of lines."""
    position = 0
    for _ in range(lines):
        position = data.find(b"\n", position) + 1 or len(data)
    return position


def _find_cell_bounds(block: TextBlock) -> _CellBounds | None:
    """Return the bytes and the ends of their cells; None if there are quotes, comments, empty or ragged lines."""
    data, width, separator = block.data, len(block.dialect.names), block.dialect.separator
    if not data or width < 2 or b'"' in data:
        return None
    if (b"#" in data or b"%" in data) and (not data.isascii() or _COMMENT_PATTERN.search(data)):
        return None
    if separator == " ":
        data, separator = _whitespace_to_tabs(data), "\t"
    characters = np.frombuffer(data if data.endswith(b"\n") else data + b"\n", dtype=np.uint8)
    is_end = characters == ord("\n")
    count = int(np.count_nonzero(is_end))
    found = np.flatnonzero(is_end | (characters == ord(separator)))
    if len(found) != count * width:
        return None
    stops = found.reshape(count, width)
    # The total number of cells is right; if one line has too few, another has too many.
    return (characters, stops) if (characters[stops[:, -1]] == ord("\n")).all() else None


def _string_column(bounds: _CellBounds, number: int) -> StringColumn:
    characters, stops = bounds
    if number:
        return StringColumn(characters, stops[:, number - 1] + 1, stops[:, number])
    return StringColumn(characters, np.concatenate(([0], stops[:-1, -1] + 1)), stops[:, 0])


def _read_string_columns(block: TextBlock, bounds: _CellBounds) -> _ColumnsAndLines:
    """Return the chosen columns as texts."""
    columns = {number: _string_column(bounds, number) for number in block.column_indices}
    lines = np.arange(len(bounds[1]), dtype=np.int64) + block.lines_before + 1
    empty = columns[block.column_indices[0]].strip().is_missing
    if empty.any():  # spreadsheets leave rows of separators behind
        for number in range(len(block.dialect.names)):
            empty = empty & _string_column(bounds, number).strip().is_missing
        columns = {number: texts.select(~empty) for number, texts in columns.items()}
        lines = lines[~empty]
    return columns, lines


def _read_float_columns(
    block: TextBlock, bounds: _CellBounds, float_columns: Collection[str]
) -> _ColumnsAndLines | None:
    """Return the chosen columns, numeric ones as floats; None if a cell is neither number nor missing, or a time is."""
    characters, stops = bounds
    columns: dict[int, Any] = {number: _string_column(bounds, number) for number in block.column_indices}
    if columns[block.column_indices[0]].is_missing.any():
        return None
    lines = np.arange(len(stops), dtype=np.int64) + block.lines_before + 1
    wanted = [number for number in sorted(columns) if block.dialect.names[number] in float_columns]
    if not wanted:
        return columns, lines
    # Parse all of these columns at once: one number on each line, in the order of the file.
    ends = stops.ravel()
    if len(wanted) < stops.shape[1]:
        kept = np.isin(np.arange(stops.shape[1]), wanted)
        lengths = np.diff(ends, prepend=-1)
        characters = characters[np.repeat(np.tile(kept, len(stops)), lengths)]
        ends = np.cumsum(lengths.reshape(stops.shape)[:, kept].ravel()) - 1
    separator = "\t" if block.dialect.separator == " " else block.dialect.separator
    content = characters.tobytes().replace(separator.encode(), b"\n")
    numbers, valid = parse_decimals(np.frombuffer(content, dtype=np.uint8), ends)
    if not valid.all():
        lengths = np.diff(ends, prepend=-1)
        for place in np.flatnonzero(~valid & (lengths > 1)).tolist():
            record, column = divmod(place, len(wanted))
            if not is_missing(columns[wanted[column]][record]) or wanted[column] == block.column_indices[0]:
                return None
    return columns | dict(zip(wanted, numbers.reshape(len(stops), len(wanted)).T, strict=True)), lines


def _whitespace_to_tabs(body: bytes) -> bytes:
    """Return lines with each run of blanks replaced by one tab, and none at their ends."""
    for at_start in (True, False):
        characters = np.frombuffer(body, dtype=np.uint8)
        blank, newline = (characters == 9) | (characters == 32), characters == 10
        before, after = np.append(True, (blank | newline)[:-1]), np.append(newline[1:], True)
        body = characters[~(blank & (before if at_start else after))].tobytes()
    return body.replace(b" ", b"\t")
