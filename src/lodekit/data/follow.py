"""Growing text files and pipes: rows are read as they arrive, with the rules for whole files."""

from __future__ import annotations

import codecs
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import IO

import numpy as np

from lodekit.data.sources import ReadOptions, infer_schemas
from lodekit.data.tables.reader import TableSchema, detect_decimal_mark, join_times_of_day, read_block
from lodekit.data.tables.text import (
    MAX_LINE_BYTES,
    SAMPLE_BYTES,
    TextBlock,
    TextFile,
    as_data_errors,
    read_lines,
    split_cells,
)
from lodekit.errors import DataError

#: Bytes read at once.
_CHUNK_BYTES = 1 << 20


#: The number of a line, its time in the unit of the model, and its values and known noise; NaN for missing ones.
TableRow = tuple[int, float, dict[str, float], dict[str, float]]


def follow_file(path: Path, *, once: bool) -> Iterator[bytes]:
    """Yield the content of a file and what is appended to it; empty pieces while nothing is appended."""
    with as_data_errors(), path.open("rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            # Reading a fixed number of bytes would block until all of them arrive.
            yield from follow_pipe(file)
            return
        while True:
            piece = file.read(_CHUNK_BYTES)
            yield piece
            if piece:
                continue
            if once:
                return
            if os.fstat(file.fileno()).st_size < file.tell():
                raise DataError("expected a file that grows, but it was truncated while it was read; start again")
            if not _is_same_file(path, file):
                raise DataError("expected a file that grows, but it was replaced or removed; start again")
            time.sleep(0.2)


def _is_same_file(path: Path, file: IO[bytes]) -> bool:
    """Return whether a path still refers to an open file: rotated logs are renamed and no longer grow."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def follow_pipe(pipe: IO[bytes]) -> Iterator[bytes]:
    """Yield the data of a pipe as they arrive, up to its end."""
    read = getattr(pipe, "read1", pipe.read)
    with as_data_errors():
        while piece := read(_CHUNK_BYTES):
            yield piece


def follow_rows(
    chunks: Iterator[bytes], where: str, make_options: Callable[[Sequence[str]], ReadOptions]
) -> Iterator[TableRow | DataError | TableSchema | None]:
    """Yield the schema of a table once it is known, then rows, and errors of invalid lines; None between pieces."""
    rest, before, opened = b"", 0, None
    for piece in chunks:
        rest += piece
        cut = rest.rfind(b"\n") + 1
        if len(rest) - cut > MAX_LINE_BYTES:
            raise DataError(f"{where}: expected lines of text, one is longer than {MAX_LINE_BYTES >> 20} MB")
        if opened is None:
            # Twenty lines have to be a table, and two are enough if no more arrive for a while.
            opened = _detect_table(rest[:cut], where, make_options, 20 if piece else 2) if cut else None
            if opened is None:
                yield None
                continue
            yield opened[1]
        yield from _parse_lines(rest[:cut], before, *opened)
        before, rest = before + rest.count(b"\n", 0, cut), rest[cut:]
        yield None
    if opened is None:
        opened = _detect_table(rest, where, make_options, 0)
        if opened is None:
            raise DataError(f"{where}: expected rows of numbers below a header, found none")
        yield opened[1]
    cut = max(rest.rfind(b"\n"), rest.rfind(b"\r")) + 1
    yield from _parse_lines(rest[:cut], before, *opened)
    if rest[cut:].strip():
        number = before + len(rest[:cut].splitlines()) + 1
        yield DataError(f"line {number}: expected a line break at its end, it may be incomplete; read it later")


def _detect_table(
    head: bytes, where: str, make_options: Callable[[Sequence[str]], ReadOptions], min_lines: int
) -> tuple[TextFile, TableSchema] | None:
    """Return a text file and its schema; None if too few lines have arrived to detect them."""
    if head.startswith((b"\x1f\x8b", b"PAR1", b"PK\x03\x04")):  # gzip, Parquet and zip
        raise DataError(f"{where}: expected text that grows line by line, got packed or binary data")
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(f"{where}: expected text in UTF-8, got UTF-16; try iconv -f UTF-16 -t UTF-8 before it")
    sample = head if len(head) <= SAMPLE_BYTES else head[: head.rfind(b"\n", 0, SAMPLE_BYTES) + 1]
    lines = sample.count(b"\n")
    try:
        found = TextFile.open(partial(BytesIO, sample))
        plain = b"".join(read_lines(partial(BytesIO, sample), len(sample) + 4)).split(b"\n")
        if join_times_of_day(found) is not found:
            raise DataError("expected the date and the time of day in one column, got two; join them in the log")
        start = found.dialect.header_lines
        body = [line for line in plain[start:] if _has_expected_width(line, found)]
        if not body:
            return None
        table = replace(found, open_file=partial(BytesIO, b"\n".join(plain[:start] + body)))
        (plan,), _ = infer_schemas({where: table}, make_options(table.names))
        return table, replace(plan, decimal_mark=_detect_decimal_mark(body, table, plan))
    except DataError as problem:
        # Column names may look invalid until the first row arrives.
        if lines >= min_lines:
            raise DataError(f"{where}: {problem}" if where not in str(problem) else str(problem)) from None
        return None


def _split_cells(line: bytes, table: TextFile) -> list[str]:
    """Return the cells of a line; raise if its quotes are invalid."""
    lines = [(1, line.decode(errors="replace"))]
    return [cell for _, cells in split_cells(lines, table.separator, strict=True) for cell in cells]


def _has_expected_width(line: bytes, table: TextFile) -> bool:
    """Return whether a line has one cell for each column; other lines are reported when they are read."""
    try:
        cells = _split_cells(line, table)
    except DataError:
        return False
    return bool(line.strip()) and len(cells) >= len(table.names) and not any(map(str.strip, cells[len(table.names) :]))


def _detect_decimal_mark(lines: Sequence[bytes], table: TextFile, plan: TableSchema) -> str:
    """Return the decimal mark of the first line that has one; empty if there is none."""
    with suppress(DataError):
        return detect_decimal_mark(table, plan).decimal_mark
    for line in lines:
        with suppress(DataError):
            if found := read_block(_make_block(line, 0, table, plan).read, plan).number_format.decimal_mark:
                return found
    return ""


def _make_block(data: bytes, before: int, table: TextFile, plan: TableSchema) -> TextBlock:
    chosen = tuple(dict.fromkeys(table.names.index(name) for name in plan.columns.used))
    return TextBlock(data, before, table.dialect, chosen)


def _parse_lines(data: bytes, before: int, table: TextFile, plan: TableSchema) -> Iterator[TableRow | DataError]:
    """Yield the rows of some lines; if one of them is invalid, line by line."""
    if before < table.dialect.header_lines:
        for _ in range(table.dialect.header_lines - before):
            data = data[data.find(b"\n") + 1 :]
        before = table.dialect.header_lines
    if not data.strip():
        return
    with suppress(DataError):
        yield from _parse_rows(_normalize_lines(data), before, table, plan)
        return
    lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    for number, line in enumerate(lines, before):
        try:
            yield from _parse_rows(_normalize_lines(line), number, table, plan) if line.strip() else ()
        except DataError as problem:
            if _is_repeated_header(line, number, table):
                continue
            where = f"line {number + 1}"
            yield problem if where in str(problem) else DataError(f"{where}: {problem}")


def _normalize_lines(data: bytes) -> bytes:
    """Return lines as UTF-8 with plain line ends; raise if they are not text."""
    if b"\0" in data:
        # A logger that loses power may leave zero bytes.
        raise DataError("expected text, got zero bytes")
    return b"".join(read_lines(partial(BytesIO, data), len(data) + 4))


def _is_repeated_header(line: bytes, number: int, table: TextFile) -> bool:
    """Return whether a line repeats the column names; raise if the columns change there."""
    try:
        found = [cell.strip() for cell in _split_cells(line, table)]
    except DataError:
        return False
    known = [name.casefold() for name in table.names]
    if not set(known).intersection(cell.casefold() for cell in found):
        return False
    if [cell.casefold() for cell in found] != known:
        raise DataError(
            f"line {number + 1}: the columns change there, from {', '.join(table.names)} to {', '.join(found)}; start "
            "again with a file that begins with that line"
        )
    return True


def _parse_rows(data: bytes, before: int, table: TextFile, plan: TableSchema) -> list[TableRow]:
    block = _make_block(data, before, table, plan)
    found, lines = read_block(block.read, plan), block.read(plan.columns.time)[1].numbers
    values, noise = ({n: v.tolist() for n, v in part.items()} for part in (found.values, found.noise))
    if len(lines) != len(found.times) or not np.isfinite(found.times).all():
        raise DataError("expected a time in every row")
    return [
        (line, t, {n: v[k] for n, v in values.items()}, {n: v[k] for n, v in noise.items()})
        for k, (line, t) in enumerate(zip(lines.tolist(), found.times.tolist(), strict=True))
    ]
