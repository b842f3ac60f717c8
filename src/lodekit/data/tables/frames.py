"""Tables whose columns have kinds: Parquet files, and the DataFrames of any library."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from importlib import import_module
from numbers import Integral
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from lodekit.data.tables.columns import is_time_name
from lodekit.data.tables.dates import Lengths, Moments, is_date
from lodekit.data.tables.places import Places
from lodekit.errors import DataError

__all__ = ["Frame", "FrameBlock", "ParquetFile", "read_column", "with_index"]

Array = NDArray[np.float64]
#: Records in a block: more take more memory and are no faster, fewer pay for the start of each transform.
BLOCK_RECORDS = 1 << 19
_TICKS = {"ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True)
class FrameBlock:
    """Records of a DataFrame of any library.

    Parameters
    ----------
    frame : DataFrame
    names : tuple of str
        The columns that are read, the time first.
    before : int
        How many records of the table stand before these.
    kind : str
        What a record is called in messages.
    timed : bool
        Whether the first column holds the times.
    """

    frame: Any
    names: tuple[str, ...]
    before: int = 0
    kind: str = "row"
    timed: bool = True

    def read(self, direct: Collection[str] = ()) -> tuple[dict[str, Any], Places]:
        """Return columns as polars Series of floats or texts, or as `Moments`, and where the records stand.

        Parameters
        ----------
        direct : collection of str
            Nothing here: columns have kinds.
        """
        frame = _adopt(self.frame)
        labels = {str(label): label for label in frame.columns}
        places = Places(self.kind, np.arange(1, len(frame) + 1) + self.before)
        found = {}
        for name in self.names:
            column = _to_polars(frame[:, frame.columns.index(labels[name])])
            found[name] = _plain_kind(column, name, places, is_time=name == self.time)
        return found, places

    @property
    def time(self) -> str | None:
        """The column of the times."""
        return self.names[0] if self.timed else None


@dataclass(frozen=True)
class Frame:
    """A DataFrame in memory, of any library that narwhals knows.

    Parameters
    ----------
    frame : DataFrame
    separator, notes
        Nothing: those of text files.
    """

    frame: Any
    separator: str = ""
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, in order; names that are no texts are written as such."""
        return tuple(map(str, _adopt(self.frame).columns))

    @property
    def positions(self) -> bool:
        """Whether columns may be named by their numbers: not where they are called by numbers themselves."""
        return not any(isinstance(label, Integral) for label in _adopt(self.frame).columns)

    def has_numbers(self, name: str) -> bool:
        """Return whether a column is known to hold numbers."""
        frame = _adopt(self.frame)
        kind = frame.schema[frame.columns[self.names.index(name)]]
        return bool(kind.is_numeric())

    def count(self, limit: int) -> int:
        """Return the number of records."""
        return len(_adopt(self.frame))

    def blocks(self, names: Sequence[str], *, whole: bool = False) -> Iterator[FrameBlock]:
        """Yield the table in blocks, or as one.

        Parameters
        ----------
        names : sequence of str
            The columns that are read, the time first.
        whole : bool
            Whether the table is one block.
        """
        frame = _adopt(self.frame)
        size = max(len(frame), 1) if whole else BLOCK_RECORDS
        for first in range(0, len(frame), size):
            yield FrameBlock(frame[first : first + size], tuple(names), first)


@dataclass(frozen=True)
class ParquetFile:
    """A Parquet file.

    Parameters
    ----------
    source : str or file
        A path, or a file in memory.
    kinds : dict of str to polars.DataType
        The columns, in order.
    separator, notes
        Nothing: those of text files.
    """

    source: str | IO[bytes]
    kinds: Mapping[str, Any]
    separator: str = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def open(cls, source: str | IO[bytes]) -> ParquetFile:
        """Read which columns a file has."""
        with _reading() as polars:
            return cls(source, dict(polars.read_parquet_schema(source)))

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, in order."""
        return tuple(self.kinds)

    def has_numbers(self, name: str) -> bool:
        """Return whether a column is known to hold numbers."""
        return bool(self.kinds[name].is_numeric())

    def count(self, limit: int) -> int:
        """Return the number of records, which the file tells at its end."""
        with _reading() as polars:
            return int(self._scan(polars).select(polars.len()).collect().item())

    def blocks(self, names: Sequence[str], *, whole: bool = False) -> Iterator[FrameBlock]:
        """Yield the table in blocks, or as one.

        Parameters
        ----------
        names : sequence of str
            The columns that are read, the time first.
        whole : bool
            Whether the table is one block.
        """
        with _reading() as polars:
            scanned, before = self._scan(polars).select(names), 0
            frames = [scanned.collect()] if whole else scanned.collect_batches(chunk_size=BLOCK_RECORDS, lazy=True)
            for frame in filter(len, frames):
                yield FrameBlock(frame, tuple(names), before)
                before += len(frame)

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
        try:
            footer = import_module("pyarrow.parquet").read_metadata(self.source)
            groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
            names = [groups[0].column(number).path_in_schema for number in range(footer.num_columns)]
            kept = [(group.column(names.index(name)).statistics, group.num_rows) for group in groups]
            spans = [(float(item.min), float(item.max), rows) for item, rows in kept if not item.null_count]
            if len(spans) < len(groups) or not np.isfinite(spans).all():
                return None
        except (ImportError, OSError, ValueError, TypeError, IndexError, AttributeError):
            return None
        starts, stops, counts = zip(*spans, strict=True)
        return min(starts), max(stops), sum(counts)

    def _scan(self, polars: Any) -> Any:
        options = {} if not isinstance(self.source, str) else {"glob": False}
        return polars.scan_parquet(self.source, hive_partitioning=False, **options)


@contextmanager
def _reading() -> Iterator[Any]:
    """Lend polars, and turn what goes wrong inside a file into an error of data."""
    polars = import_module("polars")
    try:
        yield polars
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError) as error:
        raise DataError(f"cannot be read as Parquet, {[*str(error).splitlines(), ''][0]}") from None


def _adopt(frame: Any) -> Any:
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


def with_index(frame: Any) -> Any:
    """Return a DataFrame whose index is a column where that may be the time; others as they are.

    An index without a name is one where it holds dates, lengths of time or fractions, and no column is called like a
    time: whole numbers without a name number the rows.

    Parameters
    ----------
    frame : DataFrame
        Of pandas, or of a library that does as pandas does.
    """
    index = getattr(frame, "index", None)
    if index is None or not hasattr(frame, "reset_index") or getattr(frame.columns, "nlevels", 1) > 1:
        return frame
    labels = [str(label) for label in frame.columns]
    if getattr(index, "nlevels", 1) > 1:
        return frame if set(index.names) & set(frame.columns) else frame.reset_index()
    name = index.name
    if name is None:
        if any(map(is_time_name, labels)) or not _is_time_index(index):
            return frame
        name = "time"
    if str(name) in labels:
        return frame
    found = frame.reset_index()
    return found.rename(columns={found.columns[0]: name})


def _is_time_index(index: Any) -> bool:
    if hasattr(index, "to_timestamp") and hasattr(index, "freq"):
        raise DataError("expected dates as the index, got periods; df.index = df.index.to_timestamp() makes them dates")
    kind = getattr(index.dtype, "kind", "")
    if kind in "mMf":
        return True
    first = index[0] if kind not in "iub" and hasattr(index, "__len__") and len(index) else None
    return isinstance(first, date | timedelta) or (isinstance(first, str) and is_date(first))


def read_column(column: Any, name: str) -> Any:
    """Return a Series of any library as polars Series of floats or texts, as `Moments`, or as `Lengths`.

    Parameters
    ----------
    column : Series
        Times.
    name : str
        What it is called in messages.
    """
    narwhals = import_module("narwhals")
    own = narwhals.from_native(column, series_only=True)
    return _plain_kind(_to_polars(own), name, Places("row", np.arange(1, len(own) + 1)), is_time=True)


def _to_polars(column: Any) -> Any:
    """Return a column of any library as a polars Series, or as `Moments` where it holds dates."""
    narwhals, polars = import_module("narwhals"), import_module("polars")
    if column.implementation.is_polars():
        return column.to_native()
    kind = column.dtype
    if kind == narwhals.Boolean or kind.is_numeric():
        return polars.Series(np.asarray(column.cast(narwhals.Float64).to_numpy(), dtype=float))
    if kind == narwhals.Date:
        column = column.cast(narwhals.Datetime("us"))
        kind = column.dtype
    if kind == narwhals.Datetime and len(column) and not column.is_null().any():
        unit = kind.time_unit if kind.time_unit in _TICKS else "ms"
        first = column.head(1).to_list()[0]
        fields = (first.year, first.month, first.day, first.hour, first.minute, first.second, first.microsecond)
        ticks = np.asarray(column.dt.timestamp(unit).to_numpy(), dtype=np.int64)
        return _moments(ticks, unit, datetime(*fields, tzinfo=first.tzinfo))
    if kind == narwhals.Duration and not column.is_null().any():
        nanoseconds = np.asarray(column.dt.total_nanoseconds().to_numpy(), dtype=np.int64)
        return polars.Series(nanoseconds).cast(polars.Duration("ns"))
    if kind in (narwhals.Categorical, narwhals.Enum):
        column = column.cast(narwhals.String)
    values = [None if _is_missing(value) else value for value in column.to_list()]
    if any(isinstance(value, str) for value in values):
        return polars.Series([None if value is None else str(value) for value in values], dtype=polars.String)
    return polars.Series(values, strict=False)


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and value != value  # noqa: PLR0124


def _name_objects(column: Any) -> str:
    first = next((value for value in column.to_list() if value is not None), None)
    return "complex numbers" if isinstance(first, complex) else f"objects such as {first!r}"[:80]


def _moments(ticks: NDArray[np.int64], unit: str, first: datetime) -> Moments:
    seconds, rest = np.divmod(ticks, _TICKS[unit])
    return Moments(seconds, rest * (10**9 // _TICKS[unit]), first)


def _plain_kind(column: Any, name: str, places: Places, *, is_time: bool) -> Any:
    """Return a column as floats, as texts, or as moments; other kinds cannot be used."""
    import polars as pl

    if isinstance(column, Moments):
        if not is_time:
            raise DataError(f"expected numbers in column {name}, got dates")
        return column
    kind, expected = column.dtype, f"expected numbers {'or dates ' if is_time else ''}in column {name}"
    if kind == pl.Object:
        raise DataError(f"{expected}, got {_name_objects(column)}")
    if kind in (pl.Boolean, pl.Null) or kind.is_numeric():
        return column.cast(pl.Float64).fill_nan(None)
    if kind in (pl.String, pl.Categorical, pl.Enum):
        return column.cast(pl.String)
    if not is_time or kind not in (pl.Date, pl.Datetime, pl.Duration):
        got = "dates" if kind in (pl.Date, pl.Datetime) else "lengths of time" if kind == pl.Duration else kind
        raise DataError(f"{expected}, got {got}")
    if (missing := column.is_null()).any():
        raise DataError(f"expected a time in every row, column {name} has none in {places.list(missing.to_numpy())}")
    if not len(column):
        return pl.Series([], dtype=pl.Float64)
    if kind == pl.Date:
        column = column.cast(pl.Datetime("us"))
    ticks, unit = column.to_physical().to_numpy(), column.dtype.time_unit
    return Lengths(ticks / _TICKS[unit]) if kind == pl.Duration else _moments(ticks, unit, column[0])
