"""Tables whose columns have kinds: Parquet files, and the DataFrames of any library."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from lodekit.data.tables.dates import Moments
from lodekit.data.tables.places import Places
from lodekit.errors import DataError

__all__ = ["Frame", "FrameBlock", "ParquetFile"]

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
    """

    frame: Any
    names: tuple[str, ...]
    before: int = 0
    kind: str = "row"

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
            column = _to_polars(frame.get_column(labels[name]))
            found[name] = _plain_kind(column, name, places, is_time=name == self.names[0])
        return found, places


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

    def has_numbers(self, name: str) -> bool:
        """Return whether a column is known to hold numbers."""
        kind = _adopt(self.frame).schema.get(name)
        return kind is not None and bool(kind.is_numeric())

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
    try:
        return narwhals.from_native(frame, eager_only=True)
    except (TypeError, ValueError, narwhals.exceptions.NarwhalsError) as problem:
        raise DataError(f"expected a DataFrame with named columns, got {type(frame).__name__}: {problem}") from None


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
    return value is None or type(value).__name__ in ("NAType", "NaTType") or bool(value != value)  # noqa: PLR0124


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
    kind = column.dtype
    if kind in (pl.Boolean, pl.Null) or kind.is_numeric():
        return column.cast(pl.Float64).fill_nan(None)
    if kind in (pl.String, pl.Categorical, pl.Enum):
        return column.cast(pl.String)
    if not is_time or kind not in (pl.Date, pl.Datetime, pl.Duration):
        raise DataError(f"expected numbers {'or dates ' if is_time else ''}in column {name}, got {kind}")
    if (missing := column.is_null()).any():
        raise DataError(f"expected a time in every row, column {name} has none in {places.list(missing.to_numpy())}")
    if not len(column):
        return pl.Series([], dtype=pl.Float64)
    if kind == pl.Date:
        column = column.cast(pl.Datetime("us"))
    ticks, unit = column.to_physical().to_numpy(), column.dtype.time_unit
    return pl.Series(ticks / _TICKS[unit]) if kind == pl.Duration else _moments(ticks, unit, column[0])
