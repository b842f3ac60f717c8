"""Tables in memory: the DataFrames of any library, and arrays with names."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from importlib import import_module
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.data.tables.columns import is_time_name
from lodekit.data.tables.dates import Lengths, is_date
from lodekit.data.tables.kinds import TICKS, Content, Use, is_absent, make_moments
from lodekit.data.tables.places import Places
from lodekit.data.tables.texts import Texts
from lodekit.errors import DataError

__all__ = ["BLOCK_RECORDS", "Frame", "FrameBlock", "Plain", "read_column", "with_index"]

#: Records in a block: more take more memory and are no faster, fewer pay for the start of each transform.
BLOCK_RECORDS = 1 << 19


@dataclass(frozen=True)
class Plain:
    """Arrays of one length with names, taken for a DataFrame.

    Parameters
    ----------
    content : dict of str to array, shape (n,)
    """

    content: Mapping[str, NDArray[Any]]

    @property
    def columns(self) -> list[str]:
        """The names, in order."""
        return list(self.content)

    def __len__(self) -> int:
        return max(map(len, self.content.values()), default=0)

    def __getitem__(self, key: slice | tuple[slice, int]) -> Any:
        if isinstance(key, tuple):
            return self.content[self.columns[key[1]]][key[0]]
        return Plain({name: values[key] for name, values in self.content.items()})


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
        """Return columns as arrays of floats, `Texts`, `Moments` or `Lengths`, and where the records stand.

        Parameters
        ----------
        direct : collection of str
            Nothing here: columns have kinds.
        """
        frame = _adopt(self.frame)
        labels = {str(label): label for label in frame.columns}
        places = Places(self.kind, np.arange(1, len(frame) + 1) + self.before)
        found: dict[str, Content] = {}
        for name in self.names:
            use = Use(name, places, is_time=name == self.time)
            column = frame[:, frame.columns.index(labels[name])]
            found[name] = use.read_array(column) if isinstance(frame, Plain) else _read_series(column, use)
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
    def by_number(self) -> bool:
        """Whether columns may be named by their numbers: not where they are called by numbers themselves."""
        return not any(isinstance(label, Integral) for label in _adopt(self.frame).columns)

    def has_numbers(self, name: str) -> bool:
        """Return whether a column is known to hold numbers."""
        frame = _adopt(self.frame)
        if isinstance(frame, Plain):
            return frame.content[name].dtype.kind in "iuf"
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


def _adopt(frame: Any) -> Any:
    """Return a DataFrame behind the one interface that narwhals gives to all of them; `Plain` has the same."""
    if isinstance(frame, Plain):
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


def read_column(column: Any, name: str) -> Content:
    """Return a Series of any library as floats, texts, moments, or lengths of time.

    Parameters
    ----------
    column : Series
        Times.
    name : str
        What it is called in messages.
    """
    own = import_module("narwhals").from_native(column, series_only=True)
    return _read_series(own, Use(name, Places("row", np.arange(1, len(own) + 1)), is_time=True))


def _read_series(column: Any, use: Use) -> Content:
    """Return a column of any library as what it holds; other kinds cannot be used."""
    narwhals = import_module("narwhals")
    kind = column.dtype
    if kind == narwhals.Boolean or kind.is_numeric():
        return np.asarray(column.cast(narwhals.Float64).to_numpy(), dtype=float)
    if kind in (narwhals.Categorical, narwhals.Enum):
        column = column.cast(narwhals.String)
        kind = column.dtype
    if kind == narwhals.String:
        return Texts.of(None if is_absent(value) else value for value in column.to_list())
    if kind not in (narwhals.Date, narwhals.Datetime, narwhals.Duration):
        if kind in (narwhals.Object, narwhals.Unknown):
            return use.read_objects(column.to_list())
        raise use.refuse(str(kind))
    got = "lengths of time" if kind == narwhals.Duration else "dates"
    use.check_times(got, np.asarray(column.is_null().to_numpy(), dtype=bool))
    if not len(column):
        return np.empty(0)
    if kind == narwhals.Duration:
        return Lengths(np.asarray(column.dt.total_nanoseconds().to_numpy(), dtype=np.int64) / 10**9)
    if kind == narwhals.Date:
        column = column.cast(narwhals.Datetime("us"))
        kind = column.dtype
    unit = kind.time_unit if kind.time_unit in TICKS else "ms"
    first = column.head(1).to_list()[0]
    fields = (first.year, first.month, first.day, first.hour, first.minute, first.second, first.microsecond)
    ticks = np.asarray(column.dt.timestamp(unit).to_numpy(), dtype=np.int64)
    return make_moments(ticks, unit, datetime(*fields, tzinfo=first.tzinfo))
