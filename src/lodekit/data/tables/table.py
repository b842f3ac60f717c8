"""What a table is before and after it is read: blocks of records, a plan of what is read, arrays."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lodekit.data.tables.cells import Numerals
from lodekit.data.tables.columns import Columns
from lodekit.data.tables.dates import DateForm
from lodekit.data.tables.places import Places
from lodekit.quantities import Conversion

__all__ = ["Block", "Plan", "Records", "Table", "TableSource"]

Array = NDArray[np.float64]


class Block(Protocol):
    """Some records of a table."""

    def read(self, direct: Collection[str] = ()) -> tuple[dict[str, Any], Places]:
        """Return columns as arrays of floats, `Texts`, `Moments` or `Lengths`, and where the records stand.

        Columns that hold numbers with a decimal point, as far as is known, may be parsed directly.
        """


class TableSource(Protocol):
    """A table that is read in blocks: a text file, a Parquet file, a DataFrame."""

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, in order."""

    @property
    def by_number(self) -> bool:
        """Whether columns may be named by their numbers: not where they are called by numbers themselves."""

    @property
    def separator(self) -> str:
        """What separates the cells of a text file; empty otherwise."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was found out about the file; of a text file the separator first."""

    def has_numbers(self, name: str) -> bool:
        """Return whether a column is known to hold numbers, without a look at its cells."""

    def count(self, limit: int) -> int:
        """Return the number of records; it may stop to count beyond the limit."""

    def blocks(self, names: Sequence[str], *, whole: bool = False) -> Iterator[Block]:
        """Yield the columns of these names, the time first, in blocks or as one.

        Parameters
        ----------
        names : sequence of str
        whole : bool
            Whether all records come in one block.
        """


@dataclass(frozen=True)
class Plan:
    """What is read of a table, and how its cells are written, as far as that is known beforehand.

    Parameters
    ----------
    where : str
        What the table is called in messages.
    columns : Columns
    separator : str
        What separates the cells of a text file; empty otherwise.
    noise : dict of observable to float
        Known standard deviations that are the same for all records.
    form : DateForm or None
        How dates are written as texts; None where times are numbers, or have a kind of their own.
    mark : str
        The decimal mark of texts; empty where it is not known.
    origin : datetime or None
        The date from which times are counted.
    time_unit : str
        The unit of the times, as far as the table tells: seconds where they are dates.
    conversions : dict of str to Conversion
        To the units of the model, by observable, ``t`` and ``std(x)``; nothing where there is nothing to convert.
    window : (float, float)
        Records with other times are left out.
    notes : tuple of str
        What was found out about units.
    """

    where: str
    columns: Columns
    separator: str = ""
    noise: Mapping[str, float] = field(default_factory=dict)
    form: DateForm | None = None
    mark: str = ""
    origin: datetime | None = None
    time_unit: str = ""
    conversions: Mapping[str, Conversion] = field(default_factory=dict)
    window: tuple[float, float] = (-np.inf, np.inf)
    notes: tuple[str, ...] = ()

    @property
    def has_window(self) -> bool:
        """Whether some records may be left out."""
        return self.window != (-np.inf, np.inf)

    @property
    def direct(self) -> tuple[str, ...]:
        """Columns of texts that are numbers with a decimal point: not where a point may separate thousands."""
        if self.mark != "." or self.separator == ";":
            return ()
        return tuple(name for name in self.columns.numbers if self.form is None or name != self.columns.time)


@dataclass(frozen=True)
class Records:
    """The content of a block.

    Parameters
    ----------
    times : array, shape (n,)
        Seconds since the origin of the plan where there are dates.
    values, noise : dict of observable to array, shape (n,)
        NaN where something is missing; noise only where it has a column.
    numerals : Numerals
        How the numbers are written.
    labels : array of str, shape (n,), optional
        The record that each line belongs to, where a column says so.
    """

    times: Array
    values: dict[str, Array]
    noise: dict[str, Array]
    numerals: Numerals
    labels: NDArray[Any] | None = None


@dataclass(frozen=True)
class Table:
    """Measurements from a table.

    Parameters
    ----------
    times : array, shape (n,)
        In the unit of the table; seconds since `origin` where it has dates.
    values : dict of observable to array, shape (n,)
        NaN where a value is missing.
    noise : dict of observable to array, shape (n,)
        Known standard deviations; NaN where they are missing. Only of columns that were mapped by ``std(T1)``.
    time_name : str
        The column of the times.
    origin : datetime or None
        The date that is time zero: that of the first record.
    unused : tuple of str
        Columns that were not read.
    notes : tuple of str
        What was found out about the table, in words.
    labels : array of str, shape (n,), optional
        The record that each line belongs to, where a column says so.
    """

    times: Array
    values: dict[str, Array]
    noise: dict[str, Array]
    time_name: str
    origin: datetime | None
    unused: tuple[str, ...]
    notes: tuple[str, ...]
    labels: NDArray[Any] | None = None
