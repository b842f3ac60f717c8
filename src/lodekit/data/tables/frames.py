"""Tables in memory: DataFrames of any library (through narwhals) and named arrays; typed columns of any table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from numbers import Integral, Number
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.data.tables.columns import is_time_name
from lodekit.data.tables.dates import Durations, Timestamps, is_date
from lodekit.data.tables.strings import RowLocations, StringColumn
from lodekit.errors import DataError
from lodekit.support.arguments import Array, Mask
from lodekit.support.labels import find_time_zone

ColumnValues = Array | StringColumn | Timestamps | Durations
#: Units of dates and durations, and how many are in a second.
TICKS_PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}
_MICROSECOND = timedelta(microseconds=1)


def is_missing_value(value: Any) -> bool:
    """Return whether a value of any library represents a missing one."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and value != value  # noqa: PLR0124


def timestamps_from_ticks(ticks: NDArray[np.int64], unit: str, first: datetime) -> Timestamps:
    """Return points in time from ticks since 1970.

    Shapes: ticks (n,).
    """
    seconds, rest = np.divmod(ticks, TICKS_PER_SECOND[unit])
    return Timestamps(seconds, rest * (10**9 // TICKS_PER_SECOND[unit]), first)


@dataclass(frozen=True)
class ColumnReader:
    """Converts a column, or raises an error that names it.

    name: The name of the column.
    locations: The locations of its rows.
    is_time: Whether it contains the times.
    """

    name: str
    locations: RowLocations
    is_time: bool

    def type_error(self, got: str) -> DataError:
        """Return the error about a type that cannot be used."""
        return DataError(f"expected numbers {'or dates ' if self.is_time else ''}in column {self.name}, got {got}")

    def check_complete_times(self, got: str, missing: Mask) -> None:
        """Raise unless the column is the time and no date or duration is missing.

        Shapes: missing (n,).
        """
        if not self.is_time:
            raise self.type_error(got)
        self.locations.check_complete_times(missing, self.name)

    def read_array(self, values: NDArray[Any]) -> ColumnValues:
        """Return the content of a NumPy array."""
        kind = values.dtype.kind
        if kind in "biuf":
            return np.asarray(values, dtype=float)
        if kind == "c":
            raise self.type_error("complex numbers")
        if kind not in "mM":
            return self.read_objects(values.tolist())
        self.check_complete_times("dates" if kind == "M" else "lengths of time", np.isnat(values))
        if not len(values):
            return np.empty(0)
        unit = np.datetime_data(values.dtype)[0]
        if unit not in TICKS_PER_SECOND:
            unit, values = "us", values.astype(f"{values.dtype.name.partition('[')[0]}[us]")
        ticks = values.astype(np.int64)
        if kind == "m":
            return Durations(ticks / TICKS_PER_SECOND[unit])
        first = datetime(1970, 1, 1) + int(ticks[0]) * 10**6 // TICKS_PER_SECOND[unit] * _MICROSECOND
        return timestamps_from_ticks(ticks, unit, first)

    def read_objects(self, values: Sequence[Any]) -> ColumnValues:
        """Return the content of a list of objects, all of one type or missing."""
        missing = np.array([is_missing_value(value) for value in values], dtype=bool)
        pairs = list(zip(values, missing.tolist(), strict=True))
        present = [value for value, absent in pairs if not absent]
        if any(isinstance(value, str) for value in present):
            return StringColumn.from_strings(None if absent else str(value) for value, absent in pairs)
        if all(isinstance(value, Number | np.bool_) and not isinstance(value, complex) for value in present):
            return np.array([np.nan if absent else _to_float(value) for value, absent in pairs], dtype=float)
        first = present[0]
        if all(isinstance(value, timedelta) for value in present):
            self.check_complete_times("lengths of time", missing)
            return Durations(np.array([value / _MICROSECOND for value in values]) / 10**6)
        if all(isinstance(value, date) for value in present):
            self.check_complete_times("dates", missing)
            return self._read_dates(present)
        got = "complex numbers" if isinstance(first, complex) else f"objects such as {first!r}"[:80]
        if {isinstance(value, date) for value in present if isinstance(value, date | Number)} == {True, False}:
            got = "numbers and dates"
        raise self.type_error(got)

    def _read_dates(self, values: Sequence[date]) -> Timestamps:
        kinds = {(isinstance(value, datetime), getattr(value, "tzinfo", None) is None) for value in values}
        if len(kinds) > 1:
            raise DataError(f"expected dates of one kind in column {self.name}, got a mixture")
        moments = [value if isinstance(value, datetime) else datetime(*value.timetuple()[:3]) for value in values]
        start = datetime(1970, 1, 1, tzinfo=None if moments[0].tzinfo is None else UTC)
        ticks = np.array([(moment - start) // _MICROSECOND for moment in moments], dtype=np.int64)
        return timestamps_from_ticks(ticks, "us", moments[0])


def _to_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf


#: The name of a row of a partition in messages.
PARTITION_ROW = "partition's row"
#: Rows in a block: larger blocks take more memory and are not faster, smaller ones spend more on starting transforms.
TABLE_BLOCK_ROWS = 1 << 19


@dataclass(frozen=True)
class ArrayTable:
    """Named arrays of one length, with the interface of a DataFrame.

    arrays: shape (n,)
    """

    arrays: Mapping[str, NDArray[Any]]

    @property
    def columns(self) -> list[str]:
        """The names, in order."""
        return list(self.arrays)

    def __len__(self) -> int:
        return max(map(len, self.arrays.values()), default=0)

    def __getitem__(self, key: slice | tuple[slice, int]) -> Any:
        if isinstance(key, tuple):
            return self.arrays[self.columns[key[1]]][key[0]]
        return ArrayTable({name: values[key] for name, values in self.arrays.items()})


#: Reads a block of rows, given the time column and columns known to hold numbers with a decimal point: returns the
#: columns as arrays of floats, `StringColumn`, `Timestamps` or `Durations`, and the locations of the rows.
TableBlock = Callable[[str, Collection[str]], tuple[dict[str, Any], RowLocations]]


def read_frame(
    frame: Any, names: Sequence[str], first_row: int, row_noun: str, time: str, float_columns: Collection[str] = ()
) -> tuple[dict[str, Any], RowLocations]:
    """Read columns of a DataFrame that starts at a row of its table, as a `TableBlock` does."""
    frame = _to_narwhals(frame)
    labels = [str(label) for label in frame.columns]
    places = RowLocations(row_noun, np.arange(1, len(frame) + 1) + first_row)
    columns: dict[str, ColumnValues] = {}
    for name in names:
        reader, column = ColumnReader(name, places, is_time=name == time), frame[:, labels.index(name)]
        columns[name] = reader.read_array(column) if isinstance(frame, ArrayTable) else read_series(column, reader)
    return columns, places


def is_dask_dataframe(source: object) -> bool:
    """Return whether something is a Dask DataFrame."""
    # Dask is already imported if a Dask DataFrame exists.
    return isinstance(source, getattr(sys.modules.get("dask.dataframe"), "DataFrame", ()))


@dataclass(frozen=True)
class DataFrameTable:
    """A DataFrame in memory, of any library that narwhals supports, or a Dask DataFrame."""

    frame: Any
    separator = ""
    notes = ()

    @property
    def is_distributed(self) -> bool:
        """Whether the rows are in partitions, possibly on a cluster."""
        return is_dask_dataframe(self.frame)

    @property
    def _labels(self) -> list[Any]:
        return list(self.frame.columns if self.is_distributed else _to_narwhals(self.frame).columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, in order, as texts."""
        return tuple(map(str, self._labels))

    @property
    def allows_column_numbers(self) -> bool:
        """Whether columns may be referred to by number: not if their labels are numbers."""
        return not any(isinstance(label, Integral) for label in self._labels)

    def is_numeric(self, name: str) -> bool:
        """Return whether a column is known to contain numbers."""
        label = self._labels[self.names.index(name)]
        if self.is_distributed:
            return self.frame[label].dtype.kind in "iufb"
        frame = _to_narwhals(self.frame)
        if isinstance(frame, ArrayTable):
            return frame.arrays[name].dtype.kind in "iuf"
        return bool(frame.schema[label].is_numeric())

    def count_rows(self, limit: float) -> int:
        """Return the number of rows; for a distributed table, a number above the limit."""
        return int(limit) + 1 if self.is_distributed else len(_to_narwhals(self.frame))

    def partitions(self, names: Sequence[str]) -> list[Any]:
        """Return the partitions of a distributed table with some of its columns, as delayed DataFrames."""
        return list(self.frame[[self._labels[self.names.index(name)] for name in names]].to_delayed())

    def blocks(self, names: Sequence[str], *, as_one_block: bool = False) -> Iterator[TableBlock]:
        """Yield the table in blocks, or as one."""
        if self.is_distributed:
            if as_one_block:
                raise DataError("expected a table that fits into memory, got a Dask DataFrame")
            for part in self.partitions(names):
                yield partial(read_frame, part.compute(), names, 0, PARTITION_ROW)
            return
        frame = _to_narwhals(self.frame)
        size = max(len(frame), 1) if as_one_block else TABLE_BLOCK_ROWS
        for first in range(0, len(frame), size):
            yield partial(read_frame, frame[first : first + size], names, first, "row")


def _to_narwhals(frame: Any) -> Any:
    """Return a DataFrame with the narwhals interface, which `ArrayTable` shares."""
    if isinstance(frame, ArrayTable):
        return frame
    narwhals = import_module("narwhals")
    if hasattr(frame, "collect_schema") and hasattr(frame, "collect"):
        got = type(frame).__name__
        raise DataError(f"expected a DataFrame with named columns in memory, got {got}; call collect() first")
    if getattr(getattr(frame, "columns", None), "nlevels", 1) > 1:
        raise DataError(
            "expected a DataFrame with one level of columns, got several; join their names first: "
            "df.columns = ['_'.join(map(str, labels)) for labels in df.columns]"
        )
    try:
        return narwhals.from_native(frame, eager_only=True)
    except narwhals.exceptions.DuplicateError as problem:
        twice = ", ".join(line.strip(" -") for line in str(problem).splitlines()[1:])
        raise DataError(f"expected different names of columns, got {twice}; rename them") from None
    except (TypeError, ValueError, narwhals.exceptions.NarwhalsError) as problem:
        raise DataError(f"expected a DataFrame with named columns, got {type(frame).__name__}: {problem}") from None


def index_to_column(frame: Any) -> Any:
    """Return a DataFrame whose index is a column if it may be the time; other DataFrames are unchanged.

    An index without a name becomes the time if it contains dates, durations or fractions and no column is named like a
    time; integers without a name only number the rows.
    """
    index = getattr(frame, "index", None)
    if index is None or not hasattr(frame, "reset_index") or getattr(frame.columns, "nlevels", 1) > 1:
        return frame
    labels = [str(label) for label in frame.columns]
    if getattr(index, "nlevels", 1) > 1:
        return frame if set(index.names) & set(frame.columns) else frame.reset_index()
    name = index.name
    if name is None:
        if any(map(is_time_name, labels)) or not is_time_index(index):
            return frame
        name = "time"
    if str(name) in labels:
        return frame
    found = frame.reset_index()
    return found.rename(columns={found.columns[0]: name})


def is_time_index(index: Any) -> bool:
    """Return whether the index of a DataFrame or Series contains times rather than row numbers."""
    if hasattr(index, "to_timestamp") and hasattr(index, "freq"):
        raise DataError("expected dates as the index, got periods; df.index = df.index.to_timestamp() makes them dates")
    kind = getattr(index.dtype, "kind", "")
    if kind in "mMf":
        return True
    first = index[0] if kind not in "iub" and hasattr(index, "__len__") and len(index) else None
    return isinstance(first, date | timedelta) or (isinstance(first, str) and is_date(first))


def read_series(column: Any, reader: ColumnReader) -> ColumnValues:
    """Return the content of a narwhals Series; raise if its type cannot be used."""
    narwhals = import_module("narwhals")
    kind = column.dtype
    if kind == narwhals.Boolean or kind.is_numeric():
        return np.asarray(column.cast(narwhals.Float64).to_numpy(), dtype=float)
    if kind in (narwhals.Categorical, narwhals.Enum):
        column = column.cast(narwhals.String)
        kind = column.dtype
    if kind == narwhals.String:
        return StringColumn.from_strings(None if is_missing_value(value) else value for value in column.to_list())
    if kind not in (narwhals.Date, narwhals.Datetime, narwhals.Duration):
        if kind in (narwhals.Object, narwhals.Unknown):
            return reader.read_objects(column.to_list())
        raise reader.type_error(str(kind))
    got = "lengths of time" if kind == narwhals.Duration else "dates"
    reader.check_complete_times(got, np.asarray(column.is_null().to_numpy(), dtype=bool))
    if not len(column):
        return np.empty(0)
    if kind == narwhals.Duration:
        return Durations(np.asarray(column.dt.total_nanoseconds().to_numpy(), dtype=np.int64) / 10**9)
    if kind == narwhals.Date:
        column = column.cast(narwhals.Datetime("us"))
        kind = column.dtype
    unit = kind.time_unit if kind.time_unit in TICKS_PER_SECOND else "ms"
    first = column.head(1).to_list()[0]
    zone = first.tzinfo and find_time_zone(kind.time_zone, first.tzinfo)
    fields = (first.year, first.month, first.day, first.hour, first.minute, first.second, first.microsecond)
    ticks = np.asarray(column.dt.timestamp(unit).to_numpy(), dtype=np.int64)
    return timestamps_from_ticks(ticks, unit, datetime(*fields, tzinfo=zone))


def make_frame(columns: Mapping[str, Any], library: bool | str | None) -> Any:
    """Return columns as a DataFrame of a given library, or of the first installed one.

    Examples
    --------
    >>> make_frame({"t": [0.0, 1.0]}, "polars").shape
    (2, 1)
    """
    narwhals, names = import_module("narwhals"), ("pandas", "polars", "pyarrow")
    if isinstance(library, str) and library not in names:
        raise DataError(f"expected as_frame=True or False, or one of {', '.join(names)}, got {library!r}")
    for name in (library,) if isinstance(library, str) else names:
        if find_spec(name) is not None:
            return narwhals.from_dict(dict(columns), backend=name).to_native()
    wanted = library if isinstance(library, str) else "pandas"
    raise DataError(f"expected {wanted} to be installed for DataFrames; try: pip install {wanted}, or as_frame=False")


def dataframe_library(source: Any) -> str:
    """Return the library of a DataFrame, a Series, or the first item of a list; empty for anything else."""
    first = source[0] if isinstance(source, list | tuple) and source else source
    root = type(first).__module__.partition(".")[0]
    return {"dask": "pandas", "pandas": "pandas", "polars": "polars", "pyarrow": "pyarrow"}.get(root, "")


def is_dataframe(source: Any) -> bool:
    """Return whether something is a table with named columns."""
    return hasattr(type(source), "columns") and not isinstance(source, np.ndarray)
