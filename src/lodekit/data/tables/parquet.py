"""Parquet files, read by DuckDB: the columns that are asked for, in blocks."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import import_module
from io import BytesIO
from tempfile import TemporaryDirectory
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from lodekit.data.tables import frames
from lodekit.data.tables.arrow import Hint, read_hints
from lodekit.data.tables.dates import Lengths
from lodekit.data.tables.kinds import TICKS, Content, Use, make_moments
from lodekit.data.tables.places import Places
from lodekit.data.tables.texts import Texts
from lodekit.errors import DataError

__all__ = ["ParquetBlock", "ParquetFile"]

_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_NUMBERS = (*_INTEGERS, *(f"U{kind}" for kind in _INTEGERS), "FLOAT", "DOUBLE", "DECIMAL")
#: Kinds of dates, the unit that keeps all their digits, and whether they have a zone.
_DATES = {
    "DATE": ("us", False),
    "TIMESTAMP": ("us", False),
    "TIMESTAMP_S": ("us", False),
    "TIMESTAMP_MS": ("us", False),
    "TIMESTAMP_NS": ("ns", False),
    "TIMESTAMP WITH TIME ZONE": ("us", True),
    "TIMESTAMPTZ_NS": ("ns", True),
}
#: Nothing is fetched, whatever a file asks for.
_SETTINGS = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false", "threads": "1"}
_NUMBER_OF_ROW = "file_row_number"


@dataclass(frozen=True)
class Column:
    """A column of a Parquet file.

    Parameters
    ----------
    own : str
        Its name in queries, which differs where two names differ in their case alone.
    kind : str
        As DuckDB calls it.
    hint : Hint or None
        What Arrow has noted about it.
    """

    own: str
    kind: str
    hint: Hint | None = None

    @property
    def is_number(self) -> bool:
        """Whether it holds numbers."""
        return self.kind.partition("(")[0] in _NUMBERS and not self.is_length

    @property
    def is_length(self) -> bool:
        """Whether it holds lengths of time."""
        return self.hint is not None and self.hint.kind == "length" and self.kind == "BIGINT"

    @property
    def expression(self) -> str:
        """What is asked for: numbers, texts, or dates and lengths as numbers of ticks."""
        quoted = '"' + self.own.replace('"', '""') + '"'
        if self.is_number or self.kind in ("BOOLEAN", '"NULL"'):
            return f"coalesce(CAST({quoted} AS DOUBLE), 'nan'::DOUBLE)"
        if self.kind in _DATES:
            date = f"CAST({quoted} AS TIMESTAMP)" if self.kind == "DATE" else quoted
            return f"epoch_{_DATES[self.kind][0]}({date})"
        return f"CAST({quoted} AS VARCHAR)" if self.is_text else quoted

    @property
    def is_text(self) -> bool:
        """Whether it holds texts."""
        return self.kind == "VARCHAR" or self.kind.startswith("ENUM(")

    @property
    def is_usable(self) -> bool:
        """Whether it can hold times or measurements."""
        plain = self.is_number or self.is_text or self.is_length
        return plain or self.kind in ("BOOLEAN", '"NULL"') or self.kind in _DATES

    def read(self, cells: Any, use: Use) -> Content:
        """Return the content from what the expression gave.

        Parameters
        ----------
        cells : array, shape (n,)
            Masked where something is missing.
        use : Use
        """
        if self.is_text:
            return Texts.of(np.ma.filled(cells, None).tolist())
        if not (self.is_length or self.kind in _DATES):
            return np.array(cells, dtype=float)
        use.check_times("lengths of time" if self.is_length else "dates", np.ma.getmaskarray(cells))
        ticks = np.asarray(cells, dtype=np.int64)
        if self.hint is not None and self.is_length:
            return Lengths(ticks / TICKS.get(self.hint.text, 1))
        if not len(ticks):
            return np.empty(0)
        unit, is_zoned = _DATES[self.kind]
        microseconds = int(ticks[0]) * 10**6 // TICKS[unit]
        first = datetime(1970, 1, 1, tzinfo=UTC if is_zoned else None) + timedelta(microseconds=microseconds)
        return make_moments(ticks, unit, first.astimezone(self._zone) if is_zoned else first)

    @property
    def _zone(self) -> Any:
        try:
            return ZoneInfo(self.hint.text) if self.hint is not None else UTC
        except (KeyError, ValueError, OSError):  # a zone that this machine does not know
            return UTC


@dataclass(frozen=True)
class ParquetBlock:
    """Some records of a Parquet file.

    Parameters
    ----------
    cells : dict of str to array, shape (n,)
        What the expressions of columns gave, by name, the time first; None for a column that cannot be used.
    columns : dict of str to Column
    before : int
        How many records of the file stand before these.
    size : int
        The number of records.
    timed : bool
        Whether the first column holds the times.
    """

    cells: Mapping[str, Any]
    columns: Mapping[str, Column]
    before: int
    size: int
    timed: bool = True

    def read(self, direct: Collection[str] = ()) -> tuple[dict[str, Any], Places]:
        """Return columns as arrays of floats, `Texts`, `Moments` or `Lengths`, and where the records stand.

        Parameters
        ----------
        direct : collection of str
            Nothing here: columns have kinds.
        """
        places = Places("row", np.arange(1, self.size + 1) + self.before)
        found: dict[str, Content] = {}
        for number, (name, cells) in enumerate(self.cells.items()):
            column, use = self.columns[name], Use(name, places, is_time=self.timed and not number)
            if cells is None:
                raise use.refuse("List" if column.kind.endswith("]") else column.kind.partition("(")[0].capitalize())
            found[name] = column.read(cells, use)
        return found, places


@dataclass(frozen=True)
class ParquetFile:
    """A Parquet file.

    Parameters
    ----------
    source : str or file
        A path, or a file in memory.
    columns : dict of str to Column
        In order.
    separator, notes
        Nothing: those of text files.
    """

    source: str | BytesIO
    columns: Mapping[str, Column]
    separator: str = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def open(cls, source: str | BytesIO) -> ParquetFile:
        """Read which columns a file has."""
        with _opened(source) as (ask, path):
            tree = ask("SELECT name, num_children FROM parquet_schema(?)", path).fetchall()
            own = ask("DESCRIBE SELECT * FROM read_parquet(?, hive_partitioning=false)", path).fetchall()
            packed = ask("SELECT value FROM parquet_kv_metadata(?) WHERE key = 'ARROW:schema'::BLOB", path).fetchall()
        names, hints = _find_names(tree), read_hints(packed[0][0] if packed else b"")
        if len(names) != len(own) or len(set(names)) < len(names):
            twice = next((name for name in names if names.count(name) > 1), "none")
            raise DataError(f"cannot be read as Parquet, expected different names of columns, got {twice} twice")
        found = {name: Column(row[0], row[1], hints.get(name)) for name, row in zip(names, own, strict=True)}
        return cls(source, found)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, in order."""
        return tuple(self.columns)

    @property
    def by_number(self) -> bool:
        """Whether columns may be named by their numbers: always, as names are texts."""
        return True

    def has_numbers(self, name: str) -> bool:
        """Return whether a column is known to hold numbers."""
        return self.columns[name].is_number

    def count(self, limit: int) -> int:
        """Return the number of records, which the file tells at its end."""
        with _opened(self.source) as (ask, path):
            return _count(ask, path)

    def blocks(self, names: Sequence[str], *, whole: bool = False) -> Iterator[ParquetBlock]:
        """Yield the table in blocks, or as one.

        Parameters
        ----------
        names : sequence of str
            The columns that are read, the time first.
        whole : bool
            Whether the table is one block.
        """
        chosen = {name: self.columns[name] for name in names}
        wanted = {name: column.expression for name, column in chosen.items() if column.is_usable}
        # Something is asked for in any case, so that it is known that the rows are there.
        listed = ", ".join(f'{text} AS "{number}"' for number, text in enumerate(wanted.values())) or "1"
        with _opened(self.source) as (ask, path):
            total = _count(ask, path)
            size = max(total, 1) if whole else frames.BLOCK_RECORDS
            for first in range(0, total, size):
                cells = list(ask(self._query(listed, first, size, whole), path).fetchnumpy().values())
                if len(cells[0]) != min(size, total - first):
                    raise DataError(f"cannot be read as Parquet, expected {total} rows; did the file change meanwhile?")
                read = dict(zip(wanted, cells, strict=False))
                yield ParquetBlock({name: read.get(name) for name in names}, chosen, first, len(cells[0]))

    def _query(self, listed: str, first: int, size: int, whole: bool) -> str:
        if whole:
            return f"SELECT {listed} FROM read_parquet(?, hive_partitioning=false)"  # noqa: S608 - names are quoted
        if any(column.own.lower() == _NUMBER_OF_ROW for column in self.columns.values()):
            return f"SELECT {listed} FROM read_parquet(?, hive_partitioning=false) LIMIT {size} OFFSET {first}"  # noqa: S608
        table = f"read_parquet(?, hive_partitioning=false, {_NUMBER_OF_ROW}=true)"
        bounds = f"{_NUMBER_OF_ROW} >= {first} AND {_NUMBER_OF_ROW} < {first + size}"
        return f"SELECT {listed} FROM {table} WHERE {bounds}"  # noqa: S608

    def span(self, name: str) -> tuple[float, float, int] | None:
        """Return the least and the greatest number of a column, and the number of records, as the file's end tells.

        None where it tells nothing, or something odd.

        Parameters
        ----------
        name : str
            The column.
        """
        if not self.has_numbers(name):
            return None
        query = (
            "SELECT stats_min_value, stats_max_value, stats_null_count, row_group_num_rows "
            "FROM parquet_metadata(?) WHERE path_in_schema = ?"
        )
        with _opened(self.source) as (ask, path):
            groups, count = ask(query, path, name).fetchall(), _count(ask, path)
        try:
            spans = [(float(low), float(high), int(rows)) for low, high, absent, rows in groups if absent == 0]
        except (TypeError, ValueError):
            return None
        if len(spans) < len(groups) or not spans or not np.isfinite(spans).all():
            return None
        starts, stops, counts = zip(*spans, strict=True)
        return (min(starts), max(stops), sum(counts)) if sum(counts) == count else None


def _count(ask: Any, path: str) -> int:
    return int(ask("SELECT num_rows FROM parquet_file_metadata(?)", path).fetchone()[0])


def _find_names(tree: Sequence[tuple[str, int | None]]) -> list[str]:
    """Return the columns from a list of all parts of all columns, the file itself first."""
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
    """Return an empty database, one for each process: it takes longer to make than to ask."""
    return import_module("duckdb").connect(":memory:", config=_SETTINGS)


@contextmanager
def _opened(source: str | BytesIO) -> Iterator[tuple[Any, str]]:
    """Lend a function that asks DuckDB, and the file's place; what goes wrong inside a file is an error of data."""
    duckdb, place = import_module("duckdb"), ""
    try:
        with TemporaryDirectory() if not isinstance(source, str) else nullcontext("") as folder:
            if not isinstance(source, str):
                with open(os.path.join(folder, "data.parquet"), "wb") as file:
                    file.write(source.getbuffer())
            place = os.path.abspath(source) if isinstance(source, str) else file.name
            # A name may hold what a pattern would be made of.
            plain = "".join(f"[{letter}]" if letter in "*?[" else letter for letter in place)
            with _database(os.getpid()).cursor() as cursor:
                yield lambda query, *values: cursor.execute(query, list(values)), plain
    except (duckdb.Error, OSError) as error:
        told = [*str(error).splitlines(), ""][0].replace(f"'{place}'", "").replace(f'"{place}"', "").strip()
        raise DataError(f"cannot be read as Parquet, {told}") from None
