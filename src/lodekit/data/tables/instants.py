"""Times that come as arrays of dates or of lengths of time, and tables without a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.arguments import read_numbers
from lodekit.data.tables.dates import Lengths, Moments, is_date, read_dates
from lodekit.data.tables.frames import FrameBlock, Plain, read_column
from lodekit.data.tables.kinds import Use
from lodekit.data.tables.parquet import ParquetBlock
from lodekit.data.tables.places import Places
from lodekit.data.tables.table import Block, TableSource
from lodekit.data.tables.texts import Texts
from lodekit.errors import DataError

__all__ = ["SteppedTable", "make_frame", "read_instants"]


def read_instants(t: Any) -> Moments | Lengths | None:
    """Return times that are dates or lengths of time; None where they are something else, such as numbers.

    Parameters
    ----------
    t : array-like, shape (n,) or (n, 1)
        Dates of any library, texts that are dates, or differences of dates.

    Examples
    --------
    >>> read_instants(np.array(["2026-03-01T12:00"], dtype="datetime64[m]")).first
    datetime.datetime(2026, 3, 1, 12, 0)
    >>> read_instants(np.array([1500], dtype="timedelta64[ms]")).seconds.tolist(), read_instants([1.5])
    ([1.5], None)
    """
    if _are_numbers(t):  # the common case, without an import
        return None
    narwhals = import_module("narwhals")
    if hasattr(t, "to_series") and not hasattr(t, "columns"):  # an index
        t = t.to_series()
    own = narwhals.from_native(t, series_only=True, pass_through=True)
    if isinstance(own, narwhals.Series):
        found = read_column(t, "t")
        if isinstance(found, Moments | Lengths):
            return found
        return _read_texts(found.to_list()) if isinstance(found, Texts) else None
    if isinstance(t, date | timedelta | np.datetime64 | np.timedelta64):
        t = [t]
    try:
        array = np.asarray(t)
    except (TypeError, ValueError):
        return None
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    return _read_array(array) if array.ndim == 1 and len(array) else None


def _read_array(array: NDArray[Any]) -> Moments | Lengths | None:
    use = Use("t", Places("row", np.arange(1, len(array) + 1)), is_time=True)
    if array.dtype.kind in "mM":
        return _as_instants(use.read_array(array))
    if array.dtype.kind == "U" or isinstance(array[0], str):
        return _read_texts(array.tolist())
    if array.dtype.kind != "O" or not isinstance(array[0], date | timedelta):
        return None
    if len({getattr(item, "tzinfo", None) is None for item in array.tolist()}) > 1:
        raise DataError("expected dates of one kind as times, got some with a time zone and some without")
    return _as_instants(use.read_objects(array.tolist()))


def _as_instants(found: Any) -> Moments | Lengths | None:
    return found if isinstance(found, Moments | Lengths) else None


def _are_numbers(t: Any) -> bool:
    if isinstance(t, np.ndarray):
        return t.dtype.kind in "iufb"
    return isinstance(t[0] if isinstance(t, list | tuple) and t else t, int | float)


def _read_texts(texts: Sequence[Any]) -> Moments | None:
    if not texts or not all(isinstance(text, str) for text in texts) or not is_date(texts[0]):
        return None
    return read_dates(Texts.of(texts), Places("row", np.arange(1, len(texts) + 1)))


def make_frame(columns: Mapping[Any, Any]) -> Plain:
    """Return a table from columns by name: what a dict or a structured array holds.

    Parameters
    ----------
    columns : dict of str to array-like, shape (n,)
    """
    found: dict[str, NDArray[Any]] = {}
    for name, values in columns.items():
        own = read_numbers(str(name), values) if isinstance(values, np.ma.MaskedArray) else values
        try:
            if hasattr(own, "to_list") and not isinstance(own, np.ndarray):  # a Series, with marks for what is missing
                own = own.to_list()
            array = own if isinstance(own, np.ndarray) else _as_array(list(own))
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
    return Plain(found)


def _as_array(values: list[Any]) -> NDArray[Any]:
    """Return a list as an array: of numbers where all items are some, else of the items themselves."""
    if all(type(value) in (float, bool) or (type(value) is int and abs(value) < 1 << 63) for value in values):
        return np.array(values, dtype=float)
    found = np.empty(len(values), dtype=object)
    for number, value in enumerate(values):
        found[number] = value
    return found


@dataclass(frozen=True)
class SteppedTable:
    """A table without a time, whose records are a step of time apart from each other; it comes whole.

    Parameters
    ----------
    table : TableSource
    step : float
        The time between two records; the first is at zero.
    """

    table: TableSource
    step: float
    #: What the column of the times is called.
    time = "number of the row"

    @property
    def names(self) -> tuple[str, ...]:
        """The columns in order, the times last."""
        return (*self.table.names, self.time)

    @property
    def by_number(self) -> bool:
        """Whether columns may be named by their numbers."""
        return self.table.by_number

    @property
    def separator(self) -> str:
        """What separates the cells of a text file; empty otherwise."""
        return self.table.separator

    @property
    def notes(self) -> tuple[str, ...]:
        """What was found out about the file."""
        return (*self.table.notes, f"rows are {self.step:g} apart in time")

    def has_numbers(self, name: str) -> bool:
        """Return whether a column is known to hold numbers."""
        return name == self.time or self.table.has_numbers(name)

    def count(self, limit: int) -> int:
        """Return the number of records; more than the limit are refused."""
        found = self.table.count(limit)
        if found > limit:
            raise DataError("expected a column of times: a table that is read in pieces has no numbers of rows")
        return found

    def blocks(self, names: Sequence[str], *, whole: bool = False) -> Iterator[Block]:
        """Yield the table as one, or its first block.

        Parameters
        ----------
        names : sequence of str
            The columns that are read, the time first.
        whole : bool
            Whether all records are wanted.
        """
        others = [name for name in names if name != self.time]
        block = next(self.table.blocks(others, whole=whole), None)
        if block is not None:
            inner = replace(block, timed=False) if isinstance(block, FrameBlock | ParquetBlock) else block
            yield _SteppedBlock(inner, self.time, self.step)


@dataclass(frozen=True)
class _SteppedBlock:
    block: Block
    time: str
    step: float

    def read(self, direct: Collection[str] = ()) -> tuple[dict[str, Any], Places]:
        content, places = self.block.read([name for name in direct if name != self.time])
        return {self.time: self.step * np.arange(len(places.numbers), dtype=float), **content}, places
