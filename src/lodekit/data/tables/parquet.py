"""Parquet files, read by DuckDB in blocks, with the time zones and durations of their Arrow schema.

DuckDB does not expose the Arrow schema, so the few fields needed are read from its FlatBuffers encoding.
"""

from __future__ import annotations

import base64
import binascii
import os
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from importlib import import_module
from io import BytesIO
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from lodekit.data.tables import frames
from lodekit.data.tables.dates import Durations
from lodekit.data.tables.frames import TICKS_PER_SECOND, ColumnReader, ColumnValues, TableBlock, timestamps_from_ticks
from lodekit.data.tables.strings import RowLocations, StringColumn
from lodekit.errors import DataError
from lodekit.support.labels import find_time_zone


def read_arrow_metadata(packed: bytes) -> dict[str, tuple[str, str]]:
    """Return ("length", unit) of durations and ("zone", name) of dates with a time zone, by column.

    The result is empty if the schema is absent or damaged.

    Examples
    --------
    >>> read_arrow_metadata(b"no message")
    {}
    """
    try:
        data = base64.b64decode(packed, validate=True)
        # A marker and a length precede the message.
        schema = _FlatbufferTable(data, _follow_offset(data, 8)).table(2)  # entry 2 of a message is its header
        metadata = {}
        for field in schema.tables(1):  # entries of a field: 0 name, 2 type number, 3 type
            kind, content = field.number(2, "B"), field.table(3)
            if kind == 18:  # a duration
                metadata[field.text(0)] = ("length", ("s", "ms", "us", "ns")[content.number(0, "h", 1)])
            elif kind == 10 and (zone := content.text(1)):  # a timestamp
                metadata[field.text(0)] = ("zone", zone)
        return metadata
    except (binascii.Error, struct.error, ValueError, IndexError):
        return {}


def _follow_offset(data: bytes, place: int) -> int:
    """Return the position to which an offset points; FlatBuffers offsets point forward."""
    return place + int(struct.unpack_from("<I", data, place)[0])


@dataclass(frozen=True)
class _FlatbufferTable:
    """A FlatBuffers table: optional entries by number."""

    data: bytes
    position: int

    def _entry(self, number: int) -> int:
        """Return the position of an entry; zero if it is absent."""
        start = self.position - int(struct.unpack_from("<i", self.data, self.position)[0])
        if start < 0:
            raise ValueError
        is_listed = 4 + 2 * number < struct.unpack_from("<H", self.data, start)[0]
        offset = struct.unpack_from("<H", self.data, start + 4 + 2 * number)[0] if is_listed else 0
        return self.position + int(offset) if offset else 0

    def number(self, entry: int, form: str, default: int = 0) -> int:
        found = self._entry(entry)
        return int(struct.unpack_from(f"<{form}", self.data, found)[0]) if found else default

    def table(self, entry: int) -> _FlatbufferTable:
        if not (found := self._entry(entry)):
            raise ValueError
        return _FlatbufferTable(self.data, _follow_offset(self.data, found))

    def _vector(self, entry: int) -> tuple[int, int]:
        """Return the position of the first item of a vector, and the number of items."""
        if not (found := self._entry(entry)):
            return 0, 0
        start = _follow_offset(self.data, found)
        return start + 4, int(struct.unpack_from("<I", self.data, start)[0])

    def tables(self, entry: int) -> list[_FlatbufferTable]:
        start, count = self._vector(entry)
        if count > 100_000:  # a damaged count
            raise ValueError
        places = range(start, start + 4 * count, 4)
        return [_FlatbufferTable(self.data, _follow_offset(self.data, place)) for place in places]

    def text(self, entry: int) -> str:
        start, size = self._vector(entry)
        return self.data[start : start + size].decode()


_INTEGER_TYPES = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_NUMERIC_TYPES = (*_INTEGER_TYPES, *(f"U{kind}" for kind in _INTEGER_TYPES), "FLOAT", "DOUBLE", "DECIMAL")
#: Types of dates, the unit that keeps all their digits, and whether they have a time zone.
_DATE_TYPES = dict.fromkeys(("DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS"), ("us", False)) | {
    "TIMESTAMP_NS": ("ns", False), "TIMESTAMP WITH TIME ZONE": ("us", True), "TIMESTAMPTZ_NS": ("ns", True),
}  # fmt: skip
#: Extensions are never downloaded, whatever a file requires.
_DUCKDB_SETTINGS = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false", "threads": "1"}
_ROW_NUMBER_COLUMN = "file_row_number"
#: The type of integers that the Arrow schema marks as durations.
_DURATION = "DURATION"
#: The name in queries, which differs if two names differ only in case; the type in DuckDB, or `_DURATION`; and the time
#: zone of dates or the unit of durations, if the Arrow schema contains one.
ParquetColumn = tuple[str, str, str]


def _is_number(kind: str) -> bool:
    return kind.partition("(")[0] in _NUMERIC_TYPES


def _is_text(kind: str) -> bool:
    return kind == "VARCHAR" or kind.startswith("ENUM(")


def _column_expression(column: ParquetColumn) -> str | None:
    """Return the query of a column: numbers, texts, or ticks of dates and durations; None if it cannot hold data."""
    name, kind, _ = column
    quoted = '"' + name.replace('"', '""') + '"'
    if _is_number(kind) or kind in ("BOOLEAN", '"NULL"'):
        return f"coalesce(CAST({quoted} AS DOUBLE), 'nan'::DOUBLE)"
    if kind in _DATE_TYPES:
        date = f"CAST({quoted} AS TIMESTAMP)" if kind == "DATE" else quoted
        return f"epoch_{_DATE_TYPES[kind][0]}({date})"
    if _is_text(kind):
        return f"CAST({quoted} AS VARCHAR)"
    return quoted if kind == _DURATION else None


def _read_column(column: ParquetColumn, cells: Any, reader: ColumnReader) -> ColumnValues:
    """Return the content of a column from the result of its query.

    Shapes: cells (n,).
    """
    _, kind, detail = column
    if _is_text(kind):
        return StringColumn.from_strings(np.ma.filled(cells, None).tolist())
    if kind != _DURATION and kind not in _DATE_TYPES:
        return np.array(cells, dtype=float)
    reader.check_complete_times("lengths of time" if kind == _DURATION else "dates", np.ma.getmaskarray(cells))
    ticks = np.asarray(cells, dtype=np.int64)
    if kind == _DURATION:
        return Durations(ticks / TICKS_PER_SECOND.get(detail, 1))
    if not len(ticks):
        return np.empty(0)
    unit, is_zoned = _DATE_TYPES[kind]
    microseconds = int(ticks[0]) * 10**6 // TICKS_PER_SECOND[unit]
    first = datetime(1970, 1, 1, tzinfo=UTC if is_zoned else None) + timedelta(microseconds=microseconds)
    return timestamps_from_ticks(ticks, unit, first.astimezone(find_time_zone(detail, UTC)) if is_zoned else first)


def _read_cells(
    cells: Mapping[str, Any],
    columns: Mapping[str, ParquetColumn],
    locations: RowLocations,
    time: str,
    float_columns: Collection[str] = (),
) -> tuple[dict[str, ColumnValues], RowLocations]:
    """Return the content of cells by column, as a `TableBlock` does; cells of unsupported types are None."""
    content: dict[str, ColumnValues] = {}
    for name, values in cells.items():
        reader, kind = ColumnReader(name, locations, is_time=name == time), columns[name][1]
        if values is None:
            raise reader.type_error("List" if kind.endswith("]") else kind.partition("(")[0].capitalize())
        content[name] = _read_column(columns[name], values, reader)
    return content, locations


@dataclass(frozen=True)
class ParquetFile:
    """A Parquet file.

    source: A path, or a file in memory.
    columns: The columns, in order.
    """

    source: str | BytesIO
    columns: Mapping[str, ParquetColumn]
    allows_column_numbers = True
    separator = ""
    notes = ()

    @classmethod
    def open(cls, source: str | BytesIO) -> ParquetFile:
        """Read the columns of a file."""
        with _open_duckdb(source) as (ask, path):
            tree = ask("SELECT name, num_children FROM parquet_schema(?)", path).fetchall()
            own = ask("DESCRIBE SELECT * FROM read_parquet(?, hive_partitioning=false)", path).fetchall()
            packed = ask("SELECT value FROM parquet_kv_metadata(?) WHERE key = 'ARROW:schema'::BLOB", path).fetchall()
        names, hints = _top_level_names(tree), read_arrow_metadata(packed[0][0] if packed else b"")
        if len(names) != len(own) or len(set(names)) < len(names):
            twice = next((name for name in names if names.count(name) > 1), "none")
            raise DataError(f"cannot be read as Parquet, expected different names of columns, got {twice} twice")
        columns = {}
        for name, (stored_name, kind, *_) in zip(names, own, strict=True):
            what, detail = hints.get(name, ("", ""))
            columns[name] = stored_name, _DURATION if (what, kind) == ("length", "BIGINT") else kind, detail
        return cls(source, columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, in order."""
        return tuple(self.columns)

    def is_numeric(self, name: str) -> bool:
        """Return whether a column is known to contain numbers."""
        return _is_number(self.columns[name][1])

    def count_rows(self, limit: float) -> int:
        """Return the number of rows, which is in the footer of the file."""
        with _open_duckdb(self.source) as (ask, path):
            return _count_rows(ask, path)

    def blocks(self, names: Sequence[str], *, as_one_block: bool = False) -> Iterator[TableBlock]:
        """Yield the table in blocks, or as one."""
        chosen = {name: self.columns[name] for name in names}
        wanted = {name: query for name, column in chosen.items() if (query := _column_expression(column)) is not None}
        # Select something in any case, to check that the rows exist.
        listed = ", ".join(f'{text} AS "{number}"' for number, text in enumerate(wanted.values())) or "1"
        with _open_duckdb(self.source) as (ask, path):
            total = _count_rows(ask, path)
            size = max(total, 1) if as_one_block else frames.TABLE_BLOCK_ROWS
            for first in range(0, total, size):
                cells = list(ask(self._query(listed, first, size, as_one_block), path).fetchnumpy().values())
                if len(cells[0]) != min(size, total - first):
                    raise DataError(f"cannot be read as Parquet, expected {total} rows; did the file change meanwhile?")
                read = dict(zip(wanted, cells, strict=False))
                places = RowLocations("row", np.arange(1, len(cells[0]) + 1) + first)
                yield partial(_read_cells, {name: read.get(name) for name in names}, chosen, places)

    def _query(self, listed: str, first: int, size: int, whole: bool) -> str:
        if whole:
            return f"SELECT {listed} FROM read_parquet(?, hive_partitioning=false)"  # noqa: S608 - names are quoted
        if any(name.lower() == _ROW_NUMBER_COLUMN for name, _, _ in self.columns.values()):
            return f"SELECT {listed} FROM read_parquet(?, hive_partitioning=false) LIMIT {size} OFFSET {first}"  # noqa: S608
        table = f"read_parquet(?, hive_partitioning=false, {_ROW_NUMBER_COLUMN}=true)"
        bounds = f"{_ROW_NUMBER_COLUMN} >= {first} AND {_ROW_NUMBER_COLUMN} < {first + size}"
        return f"SELECT {listed} FROM {table} WHERE {bounds}"  # noqa: S608

    def column_range(self, name: str) -> tuple[float, float, int] | None:
        """Return the smallest and largest number of a column, and the number of rows, from the footer of the file.

        None if the footer lacks them, or if they are not consistent.
        """
        if not self.is_numeric(name):
            return None
        query = (
            "SELECT stats_min_value, stats_max_value, stats_null_count, row_group_num_rows "
            "FROM parquet_metadata(?) WHERE path_in_schema = ?"
        )
        with _open_duckdb(self.source) as (ask, path):
            groups, count = ask(query, path, name).fetchall(), _count_rows(ask, path)
        try:
            spans = [(float(low), float(high), int(rows)) for low, high, absent, rows in groups if absent == 0]
        except (TypeError, ValueError):
            return None
        if len(spans) < len(groups) or not spans or not np.isfinite(spans).all():
            return None
        starts, stops, counts = zip(*spans, strict=True)
        return (min(starts), max(stops), sum(counts)) if sum(counts) == count else None


def _count_rows(ask: Any, path: str) -> int:
    return int(ask("SELECT num_rows FROM parquet_file_metadata(?)", path).fetchone()[0])


def _top_level_names(tree: Sequence[tuple[str, int | None]]) -> list[str]:
    """Return the top-level columns from the flattened schema, whose first entry is the file itself."""
    found, inner = [], 0
    for name, children in tree[1:]:
        if inner == 0:
            found.append(name)
        else:
            inner -= 1
        inner += children or 0
    return found


@cache
def _database(process: int) -> Any:
    """Return an empty database, cached for each process: creating one takes longer than a query."""
    return import_module("duckdb").connect(":memory:", config=_DUCKDB_SETTINGS)


@contextmanager
def _open_duckdb(source: str | BytesIO) -> Iterator[tuple[Any, str]]:
    """Yield a function that runs queries, and the path of the file; failures become a `DataError`."""
    duckdb, place = import_module("duckdb"), ""
    try:
        with TemporaryDirectory() if not isinstance(source, str) else nullcontext("") as folder:
            if not isinstance(source, str):
                with open(os.path.join(folder, "data.parquet"), "wb") as file:
                    file.write(source.getbuffer())
            place = os.path.abspath(source) if isinstance(source, str) else file.name
            # Escape characters that would form a pattern.
            plain = "".join(f"[{letter}]" if letter in "*?[" else letter for letter in place)
            with _database(os.getpid()).cursor() as cursor:
                yield lambda query, *values: cursor.execute(query, list(values)), plain
    except (duckdb.Error, OSError) as error:
        told = [*str(error).splitlines(), ""][0].replace(f"'{place}'", "").replace(f'"{place}"', "").strip()
        raise DataError(f"cannot be read as Parquet, {told}") from None
