"""How a text file writes its table: separator, header and comments, found out from its first lines."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from lodekit.data.tables.cells import MISSING, is_value
from lodekit.data.tables.columns import is_time_name
from lodekit.data.tables.lines import SAMPLE
from lodekit.errors import DataError
from lodekit.quantities import is_known

__all__ = ["Dialect", "content_lines", "describe_width", "find_dialect", "read_cells", "separator_name"]

_SEPARATORS = (";", "\t", "|", ",", " ")
#: How many lines that are no comments are looked at to find out a dialect.
_SAMPLE_LINES = 300
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")


@dataclass(frozen=True)
class Dialect:
    """How a text file writes its table.

    Parameters
    ----------
    names : tuple of str
        The columns in order; whether they differ is not checked here.
    separator : str
        What separates cells; a blank stands for white space of any length.
    start : int
        How many lines stand before the first record.
    notes : tuple of str
        What was found out.
    """

    names: tuple[str, ...]
    separator: str
    start: int
    notes: tuple[str, ...]


def find_dialect(head: bytes, header: bool | None = None, *, single: bool = False) -> Dialect | None:
    r"""Return the dialect of a file; None where its first lines are empty or comments, all of them.

    Parameters
    ----------
    head : bytes
        The first lines of the file, whole, as UTF-8 with plain line ends.
    header : bool, optional
        Whether the first line that is no comment holds the names; found out by default.
    single : bool
        Whether one column is enough.

    Examples
    --------
    >>> found = find_dialect(b"# a log\nt;x\n0;1,5\n")
    >>> found.names, found.separator, found.start
    (('t', 'x'), ';', 2)
    """
    if _CONTROL.search(head[:SAMPLE]):
        raise DataError("expected a text file or Parquet, got binary data (or UTF-16 without its mark: save as UTF-8)")
    sample = _sample(head)
    if not sample:
        return None
    declared = re.fullmatch(r'"?sep=([;,|\t])"?', sample[0][1].rstrip(" "))
    if declared:  # spreadsheets write this line to say what separates
        sample = sample[1:]
    if not sample:
        raise DataError("expected lines of numbers, the file has none")
    separator = declared[1] if declared else _find_separator([line for _, line in sample], single)
    # A wrong guess may leave a quote open in the sample; the whole file is read strictly.
    raw = list(read_cells(sample, separator, strict=False))
    records = [(number, _trimmed(cells)) for number, cells in raw]
    skipped = _count_preamble([cells for _, cells in records]) if header is None else 0
    last, first = records[skipped]
    if header is None:
        header = skipped > 0 or not _is_row(first)
    if header:
        names = _header_names(first)
        if len(names) < 2 and not single and len(records) > skipped + 1:
            number, second = records[skipped + 1]
            raise DataError(describe_width(number, len(second), 1, separator))
        notes = [_describe_preamble(sample[0][1], records[skipped - 1][0])] if skipped else []
        if len(records) > skipped + 1 and (units := _read_unit_line(names, records[skipped + 1][1])):
            names, last = units, records[skipped + 1][0]
            notes.append(f"line {last} holds units")
        return Dialect(tuple(names), separator, last, tuple(notes))
    start = sample[0][0] - 1
    width = min(len(raw[0][1]), max(len(cells) for _, cells in records))
    names, note = _other_names(head, start, width, separator)
    return Dialect(tuple(names), separator, start, (note,))


def _trimmed(cells: list[str]) -> list[str]:
    """Return cells without empty ones at the end: a separator that ends a line separates nothing."""
    while cells and not cells[-1].strip():
        cells = cells[:-1]
    return cells


def _is_row(cells: Sequence[str]) -> bool:
    """Return whether cells are values, all of them, and not all missing."""
    return all(map(is_value, cells)) and any(cell.strip().lower() not in MISSING for cell in cells)


def _count_preamble(records: Sequence[Sequence[str]]) -> int:
    """Return how many records stand before the header: those above the last one without a value, above the first row.

    None where the first record may be a header itself: it names a time, or no other line looks like a header.
    """
    if any(map(is_time_name, records[0])) or _is_row(records[0]):
        return 0
    row = next((k for k, cells in enumerate(records) if len(cells) > 1 and _is_row(cells)), 0)
    if row > 1 and _read_unit_line(records[row - 2], records[row - 1]):
        row -= 1
    header = [cell.strip() for cell in records[row - 1]] if row else []
    # A row may lack its last values; a header has a name for each column, and no values among them.
    fits = len(header) >= max(2, len(records[row])) and not any(is_value(cell) for cell in header if cell)
    return row - 1 if row > 1 and fits and len(set(header)) == len(header) else 0


def _describe_preamble(line: str, last: int) -> str:
    return f"the header stands below line {last}; what is above it is not read ({line.strip()[:40]!r})"


def _read_unit_line(names: Sequence[str], cells: Sequence[str]) -> list[str]:
    """Return the names of columns with units from the line below them; empty where that holds something else."""
    texts = [cell.strip() for cell in cells]
    bare = [text[1:-1].strip() if text[:1] + text[-1:] in ("[]", "()") else text for text in texts]
    given = [own for own in bare if own not in ("", "-", "1")]
    if len(names) < 2 or len(cells) > len(names) or not given or not all(map(is_known, given)):
        return []
    bare += [""] * (len(names) - len(bare))
    pairs = zip(names, bare, strict=True)
    return [f"{name} [{own}]" if own not in ("", "-") and name[-1:] not in "])" else name for name, own in pairs]


def separator_name(separator: str) -> str:
    """Return what a separator is called in a message."""
    return {"\t": "tab", " ": "white space"}.get(separator, repr(separator))


def describe_width(number: int, got: int, width: int, separator: str) -> str:
    """Return what is wrong with a line that has too many cells, or too few.

    Parameters
    ----------
    number : int
        Of the line.
    got, width : int
        How many cells it has, and how many were expected.
    separator : str
    """
    decimal = separator == "," and got > width > 1
    remedy = "a decimal comma needs another separator, such as ;" if decimal else "put # before lines that are not data"
    return (
        f"line {number}: expected {width} cell{'s' if width > 1 else ''}, like the first line, separated by "
        f"{separator_name(separator)}, got {got}; {remedy}"
    )


def content_lines(text: str, before: int = 0, separator: str = " ") -> Iterator[tuple[int, str]]:
    """Yield the lines that are neither empty nor comments, with their numbers; so many lines stand before the text.

    Parameters
    ----------
    text : str
    before : int
        How many lines of the file stand before the text.
    separator : str
        What separates the cells: inside of a quoted cell nothing is a comment. White space knows no such cells.
    """
    is_open = False
    for number, line in enumerate(text.split("\n"), before + 1):
        stripped = line.lstrip()
        if is_open or (stripped and stripped[0] not in "#%"):
            yield number, line
            if '"' in line and separator != " ":
                is_open = _ends_in_quotes(line, separator, is_open)


def _ends_in_quotes(line: str, separator: str, is_open: bool) -> bool:
    """Return whether a line ends inside of a quoted cell, if it starts inside of one, or not."""
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


def read_cells(
    lines: Iterable[tuple[int, str]], separator: str, *, strict: bool, at_open_end: Callable[[], None] | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each record, with the number of its last line; quoted cells may hold separators.

    Parameters
    ----------
    lines : iterable of (int, str)
        Lines with their numbers.
    separator : str
    strict : bool
        Whether quotes that make no sense are an error.
    at_open_end : callable, optional
        Called where the last line ends inside a quoted cell: that record is left out. An error otherwise.
    """
    if separator == " ":
        for number, line in lines:
            quoted = '"' in line and csv.reader([line.replace("\t", " ").strip()], delimiter=" ", skipinitialspace=True)
            yield number, next(quoted) if quoted else line.split()
        return
    number, ended, closing = 0, False, re.compile(rf'" +(?={re.escape(separator)}|$)')

    def feed() -> Iterator[str]:
        nonlocal number, ended
        for number, line in lines:  # noqa: B007 - the loop below reads it
            # Blanks behind a quote are harmless; line ends inside quotes stay, lest two numbers become one.
            yield (closing.sub('"', line) if '"' in line else line) + "\n"
        ended = True

    try:
        for record in csv.reader(feed(), delimiter=separator, skipinitialspace=True, strict=strict):
            yield number, record
    except csv.Error as problem:
        if ended and at_open_end is not None:
            at_open_end()
            return
        raise DataError(f"line {number}: the cells cannot be told apart, {problem}; check the quotes") from None


def _sample(head: bytes) -> list[tuple[int, str]]:
    """Return the first lines that are neither empty nor comments, with their numbers."""
    for size in (SAMPLE, len(head)):
        text = head[:size].decode(errors="ignore")
        if len(head) > size:
            text = text.rpartition("\n")[0]
        if found := list(islice(content_lines(text), _SAMPLE_LINES)):
            return found
    return []


def _find_separator(lines: Sequence[str], single: bool) -> str:
    """Return what separates the cells: the most lines of equal width, and the most cells that can be read."""
    best, chosen = -1.0, ""
    for separator in _SEPARATORS:
        records = [record for _, record in read_cells(enumerate(lines), separator, strict=False)]
        body = records[1:] or records
        width, lines_alike = Counter(map(len, body)).most_common(1)[0]
        cells = [cell for record in body if len(record) == width for cell in record]
        # Equal widths tell where all cells are words; a header has as many cells as its table, more often than not.
        score = lines_alike / len(body) * (0.01 + sum(map(is_value, cells)) / len(cells))
        score *= 1.0 if len(records[0]) == width else 0.7
        if width > 1 and score > best:
            best, chosen = score, separator
    if single and (not chosen or chosen not in lines[0]):
        # One column: a comma is a decimal one, and nothing separates.
        return ";"
    if not chosen:
        raise DataError(
            "expected two or more columns, separated by comma, semicolon, tab, | or white space, "
            f"got lines such as {lines[-1][:60]!r}"
        )
    return chosen


def _header_names(cells: Sequence[str]) -> list[str]:
    names = [cell.strip().replace("\n", " ") for cell in cells]
    # Some programs put the mark of a comment before the first name, inside of its quotes.
    names[:1] = [name.lstrip("#% \t") or name for name in names[:1]]
    while names and not names[-1]:  # a separator at the end of the line
        names.pop()
    return [name or f"unnamed {number}" for number, name in enumerate(names, 1)]


def _other_names(head: bytes, start: int, width: int, separator: str) -> tuple[list[str], str]:
    """Return names from a comment just above the numbers, as NumPy writes it, or else numbers."""
    above = head.split(b"\n", start)[start - 1].decode().strip() if start else ""
    if above.startswith(("#", "%")):
        _, cells = next(read_cells([(start, above.lstrip("#% \t"))], separator, strict=False), (0, []))
        names = [cell.strip() for cell in cells]
        if len(names) == len(set(names)) == width and not any(map(is_value, names)):
            return names, f"the names of the columns are those in the comment in line {start}"
    return [str(number) for number in range(1, width + 1)], "no header: the columns are called by their numbers"
