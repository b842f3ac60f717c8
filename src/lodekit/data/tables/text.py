"""Text files with columns: encoding, separator, header and comments are found out; cells stay texts."""

from __future__ import annotations

import codecs
import csv
import gzip
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.data.tables.cells import MISSING, is_value
from lodekit.errors import DataError

__all__ = ["Cells", "read_bytes", "read_text", "separator_name"]

SEPARATORS = (";", "\t", "|", ",", " ")
#: How much of a file is looked at to find out its separator and header.
_SAMPLE_BYTES, _SAMPLE_LINES = 1 << 18, 300
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_HINT = "put # before lines that are not data"


@dataclass(frozen=True)
class Cells:
    """The cells of a file as texts.

    Parameters
    ----------
    names : tuple of str
        The columns in order; whether they differ is not checked here.
    frame : polars.DataFrame
        The texts, in columns called "1", "2", ...; empty cells are null or empty.
    lines : array of int, shape (n,)
        Where each row stands in the file, counted from one.
    separator : str
    notes : tuple of str
        What was found out.
    """

    names: tuple[str, ...]
    frame: Any
    lines: NDArray[np.int64]
    separator: str
    notes: tuple[str, ...]

    def column(self, name: str) -> Any:
        """Return the texts of a column as a polars Series."""
        return self.frame[str(self.names.index(name) + 1)]


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, unpacked where it is compressed."""
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    except IsADirectoryError:
        raise DataError("expected a file, got a folder") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
        raise DataError(f"cannot be unpacked, {problem}") from None
    except (OSError, ValueError) as problem:
        raise DataError(f"cannot be read, {getattr(problem, 'strerror', None) or problem}") from None


def read_text(data: bytes, header: bool | None = None) -> Cells:
    """Return the cells of a text file.

    Parameters
    ----------
    data : bytes
    header : bool, optional
        Whether the first line that is no comment holds the names; found out by default.
    """
    data, notes = _decode(data)
    sample = _sample(data)
    declared = re.fullmatch(r'"?sep=([;,|\t])"?', sample[0][1].rstrip(" "))
    if declared:  # spreadsheets write this line to say what separates
        sample = sample[1:]
    if not sample:
        raise DataError("expected lines of numbers, the file has none")
    separator = declared[1] if declared else _find_separator([line for _, line in sample])
    # A wrong guess may leave a quote open in the sample; the whole file is read strictly.
    last, first = next(_records(sample, separator, strict=False))
    if header is None:
        header = not (all(map(is_value, first)) and any(cell.strip().lower() not in MISSING for cell in first))
    start = last if header else sample[0][0] - 1
    if header:
        names = _header_names(first)
    else:
        names, note = _other_names(data, start, len(first), separator)
        notes.append(note)
    frame, lines = _read_fast(data, start, len(names), separator) or _read_careful(data, start, len(names), separator)
    if not len(lines):
        raise DataError(f"expected rows of numbers below the header ({', '.join(names)}), found none")
    return Cells(tuple(names), frame, lines, separator, tuple(notes))


def separator_name(separator: str) -> str:
    """Return what a separator is called in a message."""
    return {"\t": "tab", " ": "white space"}.get(separator, repr(separator))


def _decode(data: bytes) -> tuple[bytes, list[str]]:
    """Return the text as UTF-8 with plain line ends, and what there is to say about its encoding."""
    notes = []
    if data.startswith(b"PK\x03\x04"):
        raise DataError("expected a text file or Parquet, got a spreadsheet or zip archive; save the table as CSV")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            data = data.decode("utf-16").encode()
        except UnicodeError:
            raise DataError("expected a text file, got binary data") from None
        notes.append("encoding UTF-16")
    data = data.removeprefix(codecs.BOM_UTF8).rstrip(b"\x1a")
    if b"\0" in data or _CONTROL.search(data[:_SAMPLE_BYTES]):
        raise DataError("expected a text file or Parquet, got binary data (or UTF-16 without its mark: save as UTF-8)")
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError:
            data = data.decode("latin-1").encode()
            notes.append("encoding Latin-1")
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data, notes


def _sample(data: bytes) -> list[tuple[int, str]]:
    """Return the first lines that are neither empty nor comments, with their numbers."""
    for size in (_SAMPLE_BYTES, len(data)):
        text = data[:size].decode(errors="ignore")
        if len(data) > size:
            text = text.rpartition("\n")[0]
        if found := list(islice(_content(text), _SAMPLE_LINES)):
            return found
    raise DataError("expected a table of numbers, the file is empty")


def _content(text: str, start: int = 0) -> Iterator[tuple[int, str]]:
    """Yield the lines after the first ones that are neither empty nor comments, with their numbers."""
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.lstrip()
        if number > start and stripped and stripped[0] not in "#%":
            yield number, line


def _records(lines: Iterable[tuple[int, str]], separator: str, *, strict: bool) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each row, with the number of its last line; quoted cells may hold separators."""
    if separator == " ":
        for number, line in lines:
            quoted = '"' in line and csv.reader([line.replace("\t", " ").strip()], delimiter=" ", skipinitialspace=True)
            yield number, next(quoted) if quoted else line.split()
        return
    number, closing = 0, re.compile(rf'" +(?={re.escape(separator)}|$)')

    def feed() -> Iterator[str]:
        nonlocal number
        for number, line in lines:  # noqa: B007 - the loop below reads it
            # Blanks behind a quote are harmless; line ends inside quotes stay, lest two numbers become one.
            yield (closing.sub('"', line) if '"' in line else line) + "\n"

    try:
        for record in csv.reader(feed(), delimiter=separator, skipinitialspace=True, strict=strict):
            yield number, record
    except csv.Error as problem:
        raise DataError(f"line {number}: the cells cannot be told apart, {problem}; check the quotes") from None


def _find_separator(lines: Sequence[str]) -> str:
    """Return what separates the cells: the most lines of equal width, and the most cells that can be read."""
    best, chosen = -1.0, ""
    for separator in SEPARATORS:
        records = [record for _, record in _records(enumerate(lines), separator, strict=False)]
        body = records[1:] or records
        width, lines_alike = Counter(map(len, body)).most_common(1)[0]
        cells = [cell for record in body if len(record) == width for cell in record]
        score = lines_alike / len(body) * (0.01 + sum(map(is_value, cells)) / len(cells))
        score *= 1.0 if len(records[0]) == width else 0.7
        if width > 1 and score > best:
            best, chosen = score, separator
    if not chosen:
        raise DataError(
            "expected two or more columns, separated by comma, semicolon, tab, | or white space, "
            f"got lines such as {lines[-1][:60]!r}"
        )
    return chosen


def _header_names(cells: Sequence[str]) -> list[str]:
    names = [cell.strip().replace("\n", " ") for cell in cells]
    while names and not names[-1]:  # a separator at the end of the line
        names.pop()
    return [name or f"unnamed {number}" for number, name in enumerate(names, 1)]


def _other_names(data: bytes, start: int, width: int, separator: str) -> tuple[list[str], str]:
    """Return names from a comment just above the numbers, as NumPy writes it, or else numbers."""
    above = data.split(b"\n", start)[start - 1].decode().strip() if start else ""
    if above.startswith(("#", "%")):
        _, cells = next(_records([(start, above.lstrip("#% \t"))], separator, strict=False), (0, []))
        names = [cell.strip() for cell in cells]
        if len(names) == len(set(names)) == width and not any(map(is_value, names)):
            return names, f"the names of the columns are those in the comment in line {start}"
    return [str(number) for number in range(1, width + 1)], "no header: the columns are called by their numbers"


def _read_fast(data: bytes, start: int, width: int, separator: str) -> tuple[Any, NDArray[np.int64]] | None:
    """Return the cells of a file without quotes, comments, gaps and ragged lines; None where it is not so plain."""
    import polars as pl

    position = 0
    for _ in range(start):
        position = data.find(b"\n", position) + 1 or len(data)
    body = data[position:]
    if not body or width < 2 or body.startswith(b"\n") or any(mark in body for mark in (b'"', b"#", b"%", b"\n\n")):
        return None
    if separator == " ":
        body, separator = _single_tabs(body), "\t"
    rows = body.count(b"\n") + (not body.endswith(b"\n"))
    if body.count(separator.encode()) != (width - 1) * rows:
        return None
    schema = {str(number): pl.String for number in range(1, width + 1)}
    try:
        frame = pl.read_csv(body, has_header=False, separator=separator, quote_char=None, schema=schema)
    except pl.exceptions.PolarsError:
        return None
    if len(frame) != rows:
        return None
    lines = np.arange(rows, dtype=np.int64) + start + 1
    if frame["1"].str.strip_chars().fill_null("").eq("").any():  # spreadsheets leave rows of separators behind
        empty = frame.select(pl.all_horizontal(pl.all().str.strip_chars().fill_null("") == ""))["1"]
        frame, lines = frame.filter(~empty), lines[~empty.to_numpy()]
    return frame, lines


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


def _read_careful(data: bytes, start: int, width: int, separator: str) -> tuple[Any, NDArray[np.int64]]:
    """Return the cells of any file, row by row, or name the first line that does not fit."""
    import polars as pl

    rows, numbers = [], []
    for number, cells in _records(_content(data.decode(), start), separator, strict=True):
        while len(cells) > width and not cells[-1].strip():
            cells.pop()
        if len(cells) != width:
            if not any(map(str.strip, cells)):
                continue
            decimal = separator == "," and len(cells) > width > 1
            remedy = "a decimal comma needs another separator, such as ;" if decimal else _HINT
            raise DataError(
                f"line {number}: expected {width} cell{'s' if width > 1 else ''}, like the first line, separated by "
                f"{separator_name(separator)}, got {len(cells)}; {remedy}"
            )
        if any(map(str.strip, cells)):
            rows.append(cells)
            numbers.append(number)
    columns = zip(*rows, strict=True) if rows else [()] * width
    frame = {str(place): pl.Series(cells, dtype=pl.String) for place, cells in enumerate(columns, 1)}
    return pl.DataFrame(frame), np.array(numbers, dtype=np.int64)
