"""Reading of tables (text, Parquet, DataFrames) into arrays: times, and the values of each observable."""

from __future__ import annotations

import gzip
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from functools import partial
from glob import glob
from importlib import import_module
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.data.tables.cells import NumberFormat, is_missing, normalize_missing, parse_number_columns
from lodekit.data.tables.columns import (
    ArgumentSyntax,
    ColumnMapping,
    format_column_list,
    have_number_names,
    is_time_name,
    resolve_columns,
)
from lodekit.data.tables.dates import DateFormat, Durations, Timestamps, detect_date_format, is_date, parse_dates
from lodekit.data.tables.frames import (
    ArrayTable,
    ColumnReader,
    DataFrameTable,
    TableBlock,
    index_to_column,
    is_dask_dataframe,
    is_dataframe,
    is_time_index,
    read_series,
)
from lodekit.data.tables.parquet import ParquetFile
from lodekit.data.tables.strings import RowLocations, StringColumn, prefix_errors
from lodekit.data.tables.text import FileOpener, TextFile, as_data_errors, read_pipe
from lodekit.errors import DataError
from lodekit.support.arguments import Array, as_float_array
from lodekit.support.interval_means import parse_interval
from lodekit.support.units import UnitConversion

#: The name of a column of times of day, after they are joined with their dates.
TIME_OF_DAY = "time of day"
#: Part of the note about local times at a clock change.
CLOCK_CHANGE = "jump by an hour at"


@dataclass(frozen=True)
class TimeOrder:
    """Summary of the order of the times of a table; the summaries of consecutive blocks add.

    low, high: The smallest and the largest time.
    max_drop, max_rise: The largest decrease from a time to a later row, and the largest increase.
    distinct_times: Up to three different times.
    clock_changes: Dates at which local times jump by an hour, and whether they repeat an hour.

    Examples
    --------
    >>> whole = TimeOrder.from_times(np.array([0.0, 1.0, 2.0])) + TimeOrder.from_times(np.array([1.5, 3.0]))
    >>> whole.max_drop, whole.max_rise, whole.count
    (0.5, 3.0, 5)
    """

    count: int = 0
    low: float = np.inf
    high: float = -np.inf
    max_drop: float = 0.0
    max_rise: float = 0.0
    distinct_times: frozenset[float] = frozenset()
    clock_changes: tuple[tuple[str, bool], ...] = ()

    @classmethod
    def from_times(cls, times: Array, schema: TableSchema | None = None) -> TimeOrder:
        """Return the order of some times; with a schema, also the dates at which clocks seem to change."""
        if not len(times):
            return cls()
        low, high = float(times.min()), float(times.max())
        between = times[len(times) // 2 : len(times) // 2 + 1]
        if (between == low) | (between == high):
            between = times[(times != low) & (times != high)]
        drop, rise = 0.0, high - low
        if not (times[1:] >= times[:-1]).all():  # most tables are in order
            drop = float(np.max(np.maximum.accumulate(times) - times))
            rise = float(np.max(times - np.minimum.accumulate(times)))
        changes = () if schema is None else _find_clock_changes(times, schema)
        return cls(len(times), low, high, drop, rise, frozenset({low, high, *between[:1].tolist()}), changes)

    def __add__(self, other: TimeOrder) -> TimeOrder:
        if not (self.count and other.count):
            return self if self.count else other
        return TimeOrder(
            self.count + other.count,
            min(self.low, other.low),
            max(self.high, other.high),
            max(self.max_drop, other.max_drop, self.high - other.low),
            max(self.max_rise, other.max_rise, other.high - self.low),
            frozenset(sorted(self.distinct_times | other.distinct_times)[:3]),
            self.clock_changes + other.clock_changes,
        )

    def check(self, column: str, remedy: str, records: str) -> list[str]:
        """Return notes about the times; raise if they are not the times of one record."""
        if self.count < 8:
            return []
        if len(self.distinct_times) < 3:
            number = f"{len(self.distinct_times)} different number{'s' * (len(self.distinct_times) > 1)}"
            raise DataError(f"expected times in column {column}, got {number} in {self.count} rows; {remedy}")
        back = min(self.max_drop, self.max_rise)
        hint = (
            f"the local times in column {column} {CLOCK_CHANGE} {self.clock_changes[0][0]}, as clocks do when "
            "daylight-saving time begins or ends; give the time zone, such as timezone='Europe/Berlin' or --timezone "
            "Europe/Berlin, or write times in UTC or with their offset, such as 2024-10-27 02:30+01"
            if self.clock_changes
            else ""
        )
        n_repeated = sum(is_repeated for _, is_repeated in self.clock_changes)
        goes_far_back = back > 0.1 * (self.high - self.low)
        if n_repeated == 1 or (n_repeated and not goes_far_back):
            # Rows of the two hours would be mixed.
            raise DataError(f"expected times in order, but {hint}")
        if goes_far_back:
            raise DataError(
                f"expected times in column {column}, nearly in order, got numbers that go up and down ({self.low:g} to "
                f"{self.high:g}, and back by {back:g}). If it is the time, sort the rows by it; if it starts "
                f"again, these are several records: specify the column of the record, {records}, or a file for each. "
                f"Otherwise {remedy}{f'. Or {hint}' * (n_repeated > 0)}"
            )
        return [f"times in column {column} go back by up to {back:g}"] if back else [hint] if hint else []


def _find_clock_changes(times: Array, schema: TableSchema) -> tuple[tuple[str, bool], ...]:
    """Return dates at which local times go back by about an hour, or jump by one on a Sunday before 4:00.

    None if there are more than two in a year.
    Each date is paired with whether an hour is repeated.
    """
    if schema.origin is None or schema.origin.tzinfo is not None or len(times) < 3:
        return ()
    hours = times / schema.conversions.get("t", UnitConversion()).convert_difference(np.array(3600.0))
    # Some logs begin with the newest row.
    hours = hours if hours[-1] > hours[0] else hours[::-1]
    steps = np.diff(hours)
    typical = min(float(np.median(steps)), 1.0)
    goes_back = (steps >= -1.0) & (steps <= -0.5)
    is_jump = goes_back | (np.abs(np.abs(steps - typical) - 1.0) <= 0.5 * max(typical, 0.0))
    places = np.flatnonzero(is_jump)[:100]
    dates = [(k, schema.origin + timedelta(hours=float(hours[k + 1]))) for k in places]
    found = tuple(
        (f"{date:%Y-%m-%d %H:%M}", bool(steps[k] <= 0.0))
        for k, date in dates
        if goes_back[k] or (date.weekday() == 6 and date.hour < 4)
    )
    # Clocks change twice a year; rows in disorder jump more often.
    return found if len(found) <= 2 + float(np.ptp(hours)) / 4380.0 else ()


@dataclass(frozen=True)
class TableSchema:
    """The columns to read from a table, and the format of its cells as far as it is known.

    table_name: The name of the table in messages.
    separator: The separator of the cells of a text file; empty otherwise.
    known_noise: Known standard deviations that are the same for all rows.
    date_format: The format of dates in texts; None if times are numbers, or have a date type.
    decimal_mark: The decimal mark of texts; empty if it is unknown.
    origin: The date of time zero.
    time_unit: The unit of the times, if the table defines it: seconds for dates.
    unix_seconds: The unit of Unix times, which are dates, in seconds; zero for other times.
    conversions: Unit conversions to the units of the model, by observable, ``t`` and ``std(x)``; those without effect
        are omitted.
    window: Rows with times outside are left out.
    missing: Numbers that mark missing values.
    notes: Notes about units.
    """

    table_name: str
    columns: ColumnMapping
    separator: str = ""
    known_noise: Mapping[str, float] = field(default_factory=dict)
    date_format: DateFormat | None = None
    decimal_mark: str = ""
    origin: datetime | None = None
    time_unit: str = ""
    unix_seconds: float = 0.0
    conversions: Mapping[str, UnitConversion] = field(default_factory=dict)
    window: tuple[float, float] = (-np.inf, np.inf)
    missing: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def has_window(self) -> bool:
        """Whether rows may be left out."""
        return self.window != (-np.inf, np.inf)

    @property
    def float_columns(self) -> tuple[str, ...]:
        """Text columns of numbers with a decimal point, none if a point may separate thousands."""
        if self.decimal_mark != "." or self.separator == ";":
            return ()
        return tuple(name for name in self.columns.numeric if self.date_format is None or name != self.columns.time)


@dataclass(frozen=True)
class TableData:
    """Measurements from a table, or from a block of its rows.

    times: In the unit of the table; seconds since `origin` for dates; (n,).
    values: NaN for missing values; (n,).
    noise: Known standard deviations of columns that were mapped by ``std(T1)``; NaN for missing ones; (n,).
    number_format: How the numbers are written.
    labels: The record of each row, if a column names it; (n,).
    origin: The date that is time zero; None if times are numbers.
    notes: What was detected about a whole table, in words.
    """

    times: Array
    values: dict[str, Array]
    noise: dict[str, Array]
    number_format: NumberFormat
    labels: NDArray[Any] | None = None
    origin: datetime | None = None
    notes: tuple[str, ...] = ()


def parse_time_array(t: Any) -> Timestamps | Durations | None:
    """Return times that are dates or durations; None for other times, such as numbers.

    Shapes: t (n,).

    Examples
    --------
    >>> parse_time_array(np.array(["2026-03-01T12:00"], dtype="datetime64[m]")).first
    datetime.datetime(2026, 3, 1, 12, 0)
    >>> parse_time_array(np.array([1500], dtype="timedelta64[ms]")).seconds.tolist(), parse_time_array([1.5])
    ([1.5], None)
    """
    first = t[0] if isinstance(t, list | tuple) and t else t
    if t.dtype.kind in "iufb" if isinstance(t, np.ndarray) else isinstance(first, int | float):
        return None  # the common case, without an import
    narwhals = import_module("narwhals")
    if hasattr(t, "to_series") and not hasattr(t, "columns"):  # an index
        t = t.to_series()
    series = narwhals.from_native(t, series_only=True, pass_through=True)
    if isinstance(series, narwhals.Series):
        return _as_times(read_series(series, _time_reader(len(series))))
    if isinstance(t, str | date | timedelta | np.datetime64 | np.timedelta64):
        t = [t]
    try:
        array = np.asarray(t)
    except (TypeError, ValueError):
        return None
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or not len(array):
        return None
    items = array.tolist()
    if array.dtype.kind == "U" or isinstance(array[0], str):
        return _as_times(StringColumn.from_strings(items)) if all(isinstance(item, str) for item in items) else None
    if array.dtype.kind in "mM":
        return _as_times(_time_reader(len(array)).read_array(array))
    if array.dtype.kind != "O" or not isinstance(array[0], date | timedelta):
        return None
    if len({getattr(item, "tzinfo", None) is None for item in items}) > 1:
        raise DataError("expected dates of one kind as times, got some with a time zone and some without")
    return _as_times(_time_reader(len(array)).read_objects(items))


def _time_reader(n_rows: int) -> ColumnReader:
    return ColumnReader("t", RowLocations("row", np.arange(1, n_rows + 1)), is_time=True)


def _as_times(column: Any) -> Timestamps | Durations | None:
    if isinstance(column, StringColumn) and len(column) and is_date(column[0]):
        return parse_dates(column, _time_reader(len(column)).locations)
    return column if isinstance(column, Timestamps | Durations) else None


def table_from_columns(columns: Mapping[Any, Any]) -> ArrayTable:
    """Return a table from columns by name, as in a dict or a structured array; an index common to all is the time.

    Shapes: columns (n,).
    """
    indices = [own.index for own in columns.values() if hasattr(own, "index") and hasattr(own, "to_frame")]
    is_timed = any(is_time_name(str(name)) for name in columns)
    if indices and len(indices) == len(columns) and not is_timed and is_time_index(indices[0]):
        if not all(index.equals(indices[0]) for index in indices):
            raise DataError(
                "expected Series with the same index, or a column t, got different indices; join the Series in one "
                "DataFrame first: pandas.concat(series, axis=1)"
            )
        columns = {indices[0].name or "time": indices[0], **columns}
    found: dict[str, NDArray[Any]] = {}
    for name, values in columns.items():
        own = as_float_array(str(name), values) if isinstance(values, np.ma.MaskedArray) else values
        try:
            if hasattr(own, "to_list") and not isinstance(own, np.ndarray):  # a Series with missing values
                own = own.to_list()
            array = own if isinstance(own, np.ndarray) else _column_to_array(list(own))
        except (TypeError, ValueError) as problem:
            if np.ndim(own) == 0:
                raise DataError(
                    f"expected a column of numbers or dates as {name!r}, got one {type(own).__name__}; a dict is a "
                    "table: make one of all rows, such as {name: [row[name] for row in rows] for name in rows[0]}"
                ) from None
            got = f"{type(values).__name__}: {problem}"
            raise DataError(f"expected a column of numbers or dates as {name!r}, got {got}") from None
        if array.ndim != 1:
            raise DataError(f"expected a column of numbers or dates as {name!r}, got an array of {array.ndim} axes")
        found[str(name)] = array
    lengths = {name: len(array) for name, array in found.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"expected columns of one length, got {', '.join(f'{n}: {k}' for n, k in lengths.items())}")
    return ArrayTable(found)


def _column_to_array(values: list[Any]) -> NDArray[Any]:
    """Return a list as an array: of floats if all items are numbers, else of objects."""
    if all(type(value) in (float, bool) or (type(value) is int and abs(value) < 1 << 63) for value in values):
        return np.array(values, dtype=float)
    found = np.empty(len(values), dtype=object)
    for number, value in enumerate(values):
        found[number] = value
    return found


@dataclass(frozen=True)
class UniformlySampledTable:
    """A table without times, sampled at a constant interval; it is read as one block.

    step: The sampling interval; the first row is at zero.
    """

    table: TableSource
    step: float
    #: The name of the time column.
    time = "row number"

    @property
    def names(self) -> tuple[str, ...]:
        """The columns in order, the times last."""
        return (*self.table.names, self.time)

    @property
    def allows_column_numbers(self) -> bool:
        """Whether columns may be referred to by number."""
        return self.table.allows_column_numbers

    @property
    def separator(self) -> str:
        """The separator of the cells of a text file; empty otherwise."""
        return self.table.separator

    @property
    def notes(self) -> tuple[str, ...]:
        """What was detected about the file."""
        return (*self.table.notes, f"rows are {self.step:g} apart in time")

    def is_numeric(self, name: str) -> bool:
        """Return whether a column is known to contain numbers."""
        return name == self.time or self.table.is_numeric(name)

    def count_rows(self, limit: float) -> int:
        """Return the number of rows; raise if there are more than the limit."""
        found = self.table.count_rows(limit)
        if found > limit:
            raise DataError("expected a column of times: a table that is read in pieces has no row numbers")
        return found

    def blocks(self, names: Sequence[str], *, as_one_block: bool = False) -> Iterator[TableBlock]:
        """Yield the table as one, or its first block."""
        others = [name for name in names if name != self.time]
        for block in islice(self.table.blocks(others, as_one_block=as_one_block), 1):
            yield partial(self._read, block)

    def _read(
        self, block: TableBlock, time: str, float_columns: Collection[str]
    ) -> tuple[dict[str, Any], RowLocations]:
        content, places = block(time, [name for name in float_columns if name != time])
        return {time: self.step * np.arange(len(places.numbers), dtype=float), **content}, places


@dataclass(frozen=True)
class JoinedTimesTable:
    """A text file with dates and times of day in two columns; the column of dates contains both here.

    date, time_of_day: The two columns.
    """

    table: TextFile
    date: str
    time_of_day: str

    @property
    def names(self) -> tuple[str, ...]:
        """The columns in order; the times of day have another name, as they are no times."""
        return tuple(TIME_OF_DAY if name == self.time_of_day else name for name in self.table.names)

    @property
    def allows_column_numbers(self) -> bool:
        """Whether columns may be referred to by number."""
        return self.table.allows_column_numbers

    @property
    def separator(self) -> str:
        """The separator of the cells."""
        return self.table.separator

    @property
    def notes(self) -> tuple[str, ...]:
        """What was detected about the file."""
        return (*self.table.notes, f"times are joined from the columns {self.date} and {self.time_of_day}")

    def is_numeric(self, name: str) -> bool:
        """Return whether a column is known to contain numbers: never, as all cells are texts."""
        return False

    def count_rows(self, limit: float) -> int:
        """Return the number of rows, as `TextFile` does."""
        return self.table.count_rows(limit)

    def blocks(self, names: Sequence[str], *, as_one_block: bool = False) -> Iterator[TableBlock]:
        """Yield the table in blocks, or as one."""
        own = dict(zip(self.names, self.table.names, strict=True))
        needed = dict.fromkeys([*(own[name] for name in names), self.date, self.time_of_day])
        for block in self.table.blocks([*needed], as_one_block=as_one_block):
            yield partial(self._read, block)

    def _read(
        self, block: TableBlock, time: str, float_columns: Collection[str]
    ) -> tuple[dict[str, Any], RowLocations]:
        content, places = block(time, float_columns)
        pairs = zip(content[self.date].to_list(), content[self.time_of_day].to_list(), strict=True)
        joined = StringColumn.from_strings(f"{date.strip()} {clock.strip()}" for date, clock in pairs)
        return {**content, self.date: joined, TIME_OF_DAY: content[self.time_of_day]}, places


def join_times_of_day(table: TextFile) -> TextFile | JoinedTimesTable:
    """Return a file whose times are complete if dates and times of day are in two columns, whatever their names."""
    rows = table.dialect.first_rows
    if not rows or have_number_names(table.names) or TIME_OF_DAY in table.names:
        return table
    cells = {name: [row[k].strip() for row in rows if k < len(row)] for k, name in enumerate(table.names)}
    clocks = [
        name
        for name, own in cells.items()
        if own and all(":" in cell and is_date(f"2000-01-01 {cell}") for cell in own)
    ]
    dates = [name for name, own in cells.items() if own and all(is_date(f"{cell} 00:00") for cell in own)]
    # Among several columns, such as those of a delivery, the time has the name of one.
    pair = [own if len(own) == 1 else [name for name in own if is_time_name(name)] for own in (dates, clocks)]
    return JoinedTimesTable(table, pair[0][0], pair[1][0]) if list(map(len, pair)) == [1, 1] else table


#: A table that is read in blocks.
TableSource = TextFile | ParquetFile | DataFrameTable | UniformlySampledTable | JoinedTimesTable


def with_uniform_times(tables: dict[str, TableSource], dt: Any, advice: ArgumentSyntax) -> dict[str, TableSource]:
    """Return tables without times as tables with a constant sampling interval."""
    option = advice.time_step_name
    if isinstance(dt, bool) or not isinstance(dt, int | float | np.number) or not 0 < float(dt) < np.inf:
        raise DataError(f"expected {option} as a positive number, the time between two rows, got {dt!r}")
    if len(tables) > 1:
        raise DataError(f"expected one table with {option}, got {len(tables)}: other start times are unknown")
    for where, table in tables.items():
        if isinstance(table, DataFrameTable) and table.is_distributed:
            raise DataError(f"expected a column of times in a Dask DataFrame; {option} is for tables in memory")
        if times := [name for name in table.names if is_time_name(name)]:
            raise DataError(f"{where}: the table has a column {times[0]}; leave out {option}, or rename the column")
    return {where: UniformlySampledTable(table, float(dt)) for where, table in tables.items()}


def expand_paths(items: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return the files that paths and patterns match, without duplicates, sorted."""
    found: dict[str, str] = {}
    for item in items:
        path = os.path.expanduser(os.fsdecode(item))
        if os.path.isdir(path):
            raise DataError(f"{path}: expected a file, got a folder; a pattern such as {path}/*.csv names its files")
        matches = [path]
        if any(mark in path for mark in "*?[") and not os.path.exists(path):
            matches = [*filter(os.path.isfile, glob(path, recursive=True))]
            if not matches:
                raise DataError(f"expected files, or a pattern like data/*.parquet, found none at {path[:200]}")
        for match in matches:
            # Two names of one file, such as a link, are one file.
            found.setdefault(os.path.realpath(match), match)
    return sorted(found.values())


def open_table(path: str | Path, header: bool | None = None, *, single_column: bool = False) -> TableSource:
    """Return a file as a table: text in any dialect, also with gzip, or Parquet."""
    place = Path(path)
    with as_data_errors():
        content = None if place.is_file() else read_pipe(place)
        open_file: FileOpener = (lambda: place.open("rb")) if content is None else partial(BytesIO, content)
        with open_file() as file:
            first = file.read(4)
        if first.startswith(b"\x1f\x8b"):
            with open_file() as file, gzip.GzipFile(fileobj=file) as unpacked:
                if unpacked.read(4) == b"PAR1":
                    # Parquet is read from its end, so the whole file is decompressed.
                    content = b"PAR1" + unpacked.read(128 << 20)
                    if len(content) > 128 << 20:
                        raise DataError("expected at most 128 MB of Parquet inside gzip; unpack the file first")
                    return ParquetFile.open(BytesIO(content))
    if first == b"PAR1":
        return ParquetFile.open(os.fspath(place) if content is None else BytesIO(content))
    if place.suffix.lower() in (".parquet", ".pq"):
        raise DataError("expected a Parquet file, got something else; give text files the ending .csv")
    return join_times_of_day(TextFile.open(open_file, header, single_column=single_column))


def detect_dates(
    table: TableSource, schema: TableSchema, others: Iterable[tuple[TableSource, str]] = ()
) -> tuple[TableSchema, datetime | None]:
    """Return the schema with its date format, and the first date; None if times are not dates.

    Time columns of other tables decide the order of day and month if it is open.
    """
    name = schema.columns.time
    if table.is_numeric(name):
        return schema, None
    blocks = table.blocks([name])
    for block in blocks:
        columns, places = block(name, ())
        if not len(places.numbers):
            continue
        column = columns[name]
        if isinstance(column, Durations | Timestamps):
            return replace(schema, time_unit="s"), column.first if isinstance(column, Timestamps) else None
        if not isinstance(column, StringColumn):
            return schema, None
        with prefix_errors(f"column {name}"):
            every = (part(name, ())[0][name] for part in chain([block], blocks))
            more = (part(time, ())[0][time] for other, time in others for part in other.blocks([time]))
            texts = (each for each in more if isinstance(each, StringColumn))
            form = detect_date_format(map(normalize_missing, every), map(normalize_missing, texts))
        if form is None:
            return schema, None
        schema = replace(schema, date_format=form, time_unit="s")
        return schema, _parse_time_column(column, places, schema).first
    raise _no_rows_error(table)


def _no_rows_error(table: TableSource) -> DataError:
    header = f" below the header ({format_column_list(table.names)})" if table.separator else ""
    return DataError(f"expected rows of numbers{header}, found none")


def detect_decimal_mark(table: TableSource, schema: TableSchema) -> TableSchema:
    """Return the schema with the decimal mark of a text file, detected in its first block.

    Later blocks are then parsed directly, and a line with another mark can be reported.
    """
    block = next(table.blocks(schema.columns.used), None) if schema.separator else None
    mark = schema.decimal_mark if block is None else read_block(block, schema).number_format.decimal_mark
    return replace(schema, decimal_mark=mark)


def read_block(block: TableBlock, schema: TableSchema) -> TableData:
    """Return the rows of a block as arrays."""
    columns, numerals = schema.columns, NumberFormat()
    content, places = block(columns.time, schema.float_columns)
    numbers: dict[str, Array] = {}
    if not len(places.numbers):
        numbers = {name: np.empty(0) for name in columns.numeric}
    elif isinstance(content[columns.time], Timestamps) or schema.date_format is not None:
        if schema.origin is None:
            raise DataError(f"expected numbers in column {columns.time}, as in other tables, got dates")
        times = _parse_time_column(content[columns.time], places, schema).in_zone(schema.origin.tzinfo)
        numbers[columns.time] = times.seconds_since(schema.origin)
    elif isinstance(content[columns.time], Durations):
        numbers[columns.time] = content[columns.time].seconds
    unread = {name: content[name] for name in columns.numeric if name not in numbers}
    if texts := {name: column for name, column in unread.items() if isinstance(column, StringColumn)}:
        parsed, numerals = parse_number_columns(texts, places, schema.separator, schema.decimal_mark)
        numbers |= parsed
    for name in unread.keys() - texts:
        numbers[name] = np.array(content[name], dtype=float)
        if (infinite := np.isinf(numbers[name])).any():
            where, value = places.format_row(int(np.argmax(infinite))), numbers[name][np.argmax(infinite)]
            raise DataError(f"{where}, column {name}: expected a finite number, got {value}")
    places.check_complete_times(np.isnan(numbers[columns.time]), columns.time)
    if schema.unix_seconds and schema.origin is not None:
        numbers[columns.time] = numbers[columns.time] * schema.unix_seconds - schema.origin.timestamp()
    values = {name: numbers[column] for name, column in columns.values.items()}
    if schema.missing:
        values = {name: np.where(np.isin(own, schema.missing), np.nan, own) for name, own in values.items()}
    noise = {name: _check_noise_column(column, numbers[column], places) for name, column in columns.noise.items()}
    labels = _parse_record_labels(content[columns.record], columns.record, places) if columns.record else None
    return _convert_and_crop(TableData(numbers[columns.time], values, noise, numerals, labels, schema.origin), schema)


def _convert_and_crop(records: TableData, plan: TableSchema) -> TableData:
    """Return rows in the units of the model, without those outside the window."""
    conversions, same, labels = plan.conversions, UnitConversion(), records.labels
    times = conversions.get("t", same).convert(records.times)
    inside: Any = (times >= plan.window[0]) & (times <= plan.window[1]) if plan.has_window else slice(None)
    values = {n: conversions.get(n, same).convert(v)[inside] for n, v in records.values.items()}
    noise = {n: conversions.get(f"std({n})", same).convert_difference(v)[inside] for n, v in records.noise.items()}
    labels = None if labels is None else labels[inside]
    return replace(records, times=times[inside], values=values, noise=noise, labels=labels)


def _parse_record_labels(column: Any, name: str, places: RowLocations) -> NDArray[Any]:
    """Return the record names in a column, one for each row; integers have no decimal point."""
    texts = column.strip().to_list() if isinstance(column, StringColumn) else column.tolist()
    absent = np.array([cell is None or is_missing(str(cell)) for cell in texts], dtype=bool)
    if absent.any():
        raise DataError(f"expected a record in every row, column {name} has none in {places.format_rows(absent)}")
    return np.array([str(int(c)) if isinstance(c, float) and c.is_integer() else str(c) for c in texts], dtype=object)


def read_table(
    path: str | Path,
    channels: Sequence[str],
    *,
    mapping: Mapping[str, str] | None = None,
    time: str | None = None,
    header: bool | None = None,
) -> TableData:
    r"""Read measurements from a text file (CSV and its relatives, also with gzip) or from Parquet.

    Separator, decimal mark, header and encoding are detected; `TableData.notes` lists them. Lines that start with # or
    % are comments. Empty cells, NA, N/A, NaN, null, None, - and ? are missing values.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "tank.csv")
    ...     _ = file.write_text("Time;Level [m];remark\n0;1,5;\n1;;valve open\n2;1,25;\n")
    ...     table = read_table(file, ["level", "inflow"])
    >>> table.values["level"].tolist()
    [1.5, nan, 1.25]
    >>> for note in table.notes:
    ...     print(note)
    separator ';', decimal comma
    level is in column Level [m]
    no column for inflow: not measured (columns not used: remark)
    """
    if not isinstance(path, str | Path):
        raise DataError(f"expected the path of a measurement file, got {type(path).__name__}")
    place = Path(path).expanduser()
    with prefix_errors(str(place)):
        source = open_table(place, header)
        columns = resolve_columns(source.names, channels, mapping, time)
        plan, origin = detect_dates(source, TableSchema(str(place), columns, source.separator))
        table = read_all(source, replace(plan, origin=origin), channels)
        if table.values and all(np.isnan(series).all() for series in table.values.values()):
            raise DataError(f"expected at least one value of {', '.join(table.values)}, every cell is missing")
        return table


def read_all(source: TableSource, schema: TableSchema, channels: Sequence[str]) -> TableData:
    """Return all rows of a table, in memory."""
    block = next(source.blocks(schema.columns.used, as_one_block=True), None)
    if block is None:
        raise _no_rows_error(source)
    records = read_block(block, detect_decimal_mark(source, schema))
    notes = describe_file(source, records.number_format) + describe_times(schema)
    empty = {name for name, values in records.values.items() if np.isnan(values).all()}
    notes += describe_columns(source.names, schema.columns, channels, empty)
    return replace(records, notes=tuple(notes))


def describe_times(schema: TableSchema) -> list[str]:
    """Return notes about the origin and unit of times, and about conversions."""
    if schema.origin is None:
        return list(schema.notes)
    converted = "t is converted from s to "
    units = [text.removeprefix(converted) for text in schema.notes if text.startswith(converted)]
    advice = '; for hours, use fit(..., units={"t": "h"}) (or t = "h" under [units] in a system file)'
    counted = f"counted in {units[0]} since {schema.origin}" if units else f"seconds since {schema.origin}{advice}"
    return [f"times are {counted}", *(text for text in schema.notes if not text.startswith(converted))]


def describe_file(source: TableSource, number_format: NumberFormat) -> list[str]:
    """Return notes about the format of a file after all of it is read; raise if it is ambiguous."""
    remarks = number_format.describe(source.separator)
    if not source.separator:
        return [*source.notes, *remarks[1:]]
    notes = [f"{source.notes[0]}, {remarks[0]}", *source.notes[1:], *remarks[1:]]
    return notes[1:] if notes[0] == "separator ',', decimal point" else notes


def describe_columns(
    names: Sequence[str], columns: ColumnMapping, channels: Sequence[str], empty: set[str]
) -> list[str]:
    """Return notes about columns with other names, columns without values, and channels without a column."""
    notes = [f"{name} is in column {column}" for name, column in columns.values.items() if name != column]
    notes += [f"column {columns.values[name]} has no values" for name in columns.values if name in empty]
    unused = [name for name in names if name not in (*columns.used, TIME_OF_DAY)]
    rest = f"columns not used: {format_column_list(unused)}" if unused else ""
    known = {*columns.values, *(interval[0] for name in columns.values if (interval := parse_interval(name)))}
    if absent := [name for name in channels if name not in known]:
        notes.append(f"no column for {', '.join(absent)}: not measured{f' ({rest})' if rest else ''}")
    elif rest:
        notes.append(rest)
    return notes


def _parse_time_column(column: Any, places: RowLocations, plan: TableSchema) -> Timestamps:
    if isinstance(column, Timestamps):
        return column
    texts = normalize_missing(column)
    places.check_complete_times(texts.is_missing, plan.columns.time)
    try:
        return parse_dates(texts, places, plan.date_format)
    except DataError as problem:
        raise DataError(f"column {plan.columns.time}, {problem}") from None


def _check_noise_column(column: str, noise: Array, places: RowLocations) -> Array:
    if (negative := noise < 0).any():
        record = int(np.argmax(negative))
        where, got = f"{places.format_row(record)}, column {column}", f"{noise[record]:g}"
        raise DataError(f"{where}: expected a standard deviation of zero or more, got {got}")
    return noise


def read_dataframe_columns(frame: Any, channels: Sequence[str]) -> dict[str, Any]:
    """Return the columns of a DataFrame whose times are given separately."""
    table = UniformlySampledTable(DataFrameTable(frame), 1.0)
    names = table.table.names
    called = dict(zip(names, names, strict=True))
    if not table.allows_column_numbers:
        if [*names] != [str(number) for number in range(len(channels))]:
            expected, got = ", ".join(channels), format_column_list(names)
            raise DataError(f"expected columns called like channels, {expected}, got the numbers {got}; rename them")
        # Numbered columns come from an array that was converted to a DataFrame.
        called = dict(zip(names, channels, strict=True))
    if times := [name for name in names if is_time_name(name)]:
        raise DataError(
            f"expected values alone beside the times, got a column {times[0]} as well; leave it out, or give the "
            "DataFrame alone, without t"
        )
    if len(set(names)) < len(names):
        raise DataError(f"expected different names of columns, got {format_column_list(names)}")
    columns = ColumnMapping(table.time, {name: column for column, name in called.items()}, {})
    plan = TableSchema("the DataFrame", columns)
    with prefix_errors(plan.table_name):
        return dict(read_all(table, plan, ()).values)


def to_dataframe(source: Any, channels: Sequence[str]) -> Any:
    """Return a table in memory as a DataFrame; None if the source is not a table."""
    if is_dask_dataframe(source):
        return None
    if is_dataframe(source):
        return index_to_column(source)
    if isinstance(source, Mapping):
        return table_from_columns(source)
    if isinstance(source, np.ndarray) and source.dtype.names:
        return table_from_columns({name: source[name] for name in source.dtype.names})
    if hasattr(source, "to_dataframe"):  # xarray objects
        try:
            return index_to_column(source.to_dataframe())
        except (TypeError, ValueError) as problem:
            raise DataError(f"expected something like a table, got {type(source).__name__}: {problem}") from None
    if hasattr(source, "to_frame") and hasattr(source, "index") and not hasattr(source, "levels"):
        name = channels[0] if source.name is None and len(channels) == 1 else source.name
        if name is None:
            raise DataError(f"expected a Series with a name, one of {', '.join(channels)}; rename it so")
        return index_to_column(source.to_frame(name=name))
    return None


def merge_notes(plans: Sequence[TableSchema], notes: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return notes about several files without repetition; each names its files unless it applies to all."""
    about: dict[str, list[str]] = {}
    for plan, own in zip(plans, notes, strict=True):
        for note in own:
            about.setdefault(note, []).append(Path(plan.table_name).name)
    suffix = {note: "" if len(w) == len(plans) else f" ({format_column_list(w)})" for note, w in about.items()}
    return tuple(note + suffix[note] for note in about)
