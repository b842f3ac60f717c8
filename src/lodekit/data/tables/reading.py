"""Measurement files become arrays: the times, and the values of each channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.data.tables.cells import clean, read_numbers
from lodekit.data.tables.columns import Columns, find_columns, list_columns
from lodekit.data.tables.dates import is_date, read_dates
from lodekit.data.tables.rows import Rows
from lodekit.data.tables.text import read_bytes, read_text, separator_name
from lodekit.errors import DataError, LodekitError

__all__ = ["Table", "read_table"]

Array = NDArray[np.float64]
_TICKS = {"ms": 1e3, "us": 1e6, "ns": 1e9}
#: What nobody needs to be told.
_PLAIN = "separator ',', decimal point"


@dataclass(frozen=True)
class Table:
    """Measurements from a file.

    Parameters
    ----------
    times : array, shape (n,)
        In the unit of the file; seconds since `origin` where the file has dates.
    values : dict of observable to array, shape (n,)
        NaN where a value is missing.
    noise : dict of observable to array, shape (n,)
        Known standard deviations; NaN where they are missing. Only of columns that were mapped by ``std(T1)``.
    time_name : str
        The column of the times.
    origin : datetime or None
        The date of the first row.
    unused : tuple of str
        Columns that were not read.
    notes : tuple of str
        What was found out about the file, in words.
    """

    times: Array
    values: dict[str, Array]
    noise: dict[str, Array]
    time_name: str
    origin: datetime | None
    unused: tuple[str, ...]
    notes: tuple[str, ...]


def read_table(
    path: str | Path,
    channels: Sequence[str],
    *,
    mapping: Mapping[str, str] | None = None,
    time: str | None = None,
    header: bool | None = None,
) -> Table:
    r"""Read measurements from a text file (CSV and its relatives, also with gzip) or from Parquet.

    Separator, decimal mark, header and encoding are found out, and told in `Table.notes`. Lines that start with # or
    % are comments. Empty cells, NA, N/A, NaN, null, None, - and ? are missing values.

    Parameters
    ----------
    path : str or Path
    channels : sequence of str
        The channels of the system; each takes the column of its name. Case and a unit in brackets may differ.
    mapping : dict of observable to column, optional
        For columns with other names: a name, or a number counted from one. ``t`` is the time, ``f1'`` the derivative
        of f1, ``std(f1)`` the known standard deviation of its noise.
    time : str, optional
        The column of the time; by default the one called t, time, timestamp, date or the like.
    header : bool, optional
        Whether a text file starts with the names of its columns; found out by default.

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
    try:
        data = read_bytes(place)
        if data.startswith(b"PAR1"):
            table = _read_parquet(data, channels, mapping, time)
        elif place.suffix.lower() in (".parquet", ".pq"):
            raise DataError("expected a Parquet file, got something else; give text files the ending .csv")
        else:
            table = _read_separated(data, channels, mapping, time, header)
    except LodekitError as problem:
        raise type(problem)(f"{place}: {problem}") from None
    return table


def _read_separated(
    data: bytes, channels: Sequence[str], mapping: Mapping[str, str] | None, time: str | None, header: bool | None
) -> Table:
    cells = read_text(data, header)
    columns = find_columns(cells.names, channels, mapping, time)
    texts = {name: clean(cells.column(name)) for name in columns.used}
    notes = [f"separator {separator_name(cells.separator)}", *cells.notes]
    return _assemble(columns, cells.names, channels, texts, Rows("line", cells.lines), cells.separator, notes)


def _read_parquet(data: bytes, channels: Sequence[str], mapping: Mapping[str, str] | None, time: str | None) -> Table:
    import polars as pl

    try:
        names = list(pl.read_parquet_schema(BytesIO(data)))
        columns = find_columns(names, channels, mapping, time)
        frame = pl.read_parquet(BytesIO(data), columns=columns.used, use_statistics=False)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as problem:
        raise DataError(f"cannot be read as Parquet, {[*str(problem).splitlines(), ''][0]}") from None
    if not len(frame):
        raise DataError("expected rows of measurements, the file has none")
    found = {name: _plain_kind(frame[name], is_time=name == columns.time) for name in columns.used}
    rows = Rows("row", np.arange(1, len(frame) + 1))
    return _assemble(columns, names, channels, found, rows, "", [])


def _plain_kind(column: Any, *, is_time: bool) -> Any:
    """Return a column of Parquet as floats, as cleaned texts, or as times; other kinds cannot be used."""
    import polars as pl

    kind = column.dtype
    if kind == pl.Boolean or kind.is_numeric() or kind == pl.Null:
        return column.cast(pl.Float64).fill_nan(None)
    if kind in (pl.String, pl.Categorical, pl.Enum):
        return clean(column.cast(pl.String))
    if is_time and kind == pl.Date:
        return column.cast(pl.Datetime("us"))
    if is_time and kind in (pl.Datetime, pl.Duration):
        return column
    raise DataError(f"expected numbers {'or dates ' if is_time else ''}in column {column.name}, got {kind}")


def _assemble(
    columns: Columns,
    names: Sequence[str],
    channels: Sequence[str],
    content: Mapping[str, Any],
    rows: Rows,
    separator: str,
    notes: list[str],
) -> Table:
    """Return the table from columns of floats, texts and times."""
    import polars as pl

    if (missing := content[columns.time].is_null()).any():
        places = rows.list(missing.to_numpy())
        raise DataError(f"expected a time in every row, column {columns.time} has none in {places}")
    numbers: dict[str, Array] = {}
    origin = None
    times = content[columns.time]
    if times.dtype in (pl.Datetime, pl.Duration):
        numbers[columns.time], origin = _read_ticks(times)
    elif times.dtype == pl.String and is_date(times[0]):
        try:
            numbers[columns.time], origin = read_dates(times, rows)
        except DataError as problem:
            raise DataError(f"column {columns.time}, {problem}") from None
    texts = {name: content[name] for name in columns.used if content[name].dtype == pl.String}
    found, remarks = read_numbers({k: v for k, v in texts.items() if k not in numbers}, rows, separator)
    numbers |= found
    for name in columns.used:
        if name not in numbers:
            numbers[name] = _finite(content[name], rows)
    if separator:
        notes = [f"{notes[0]}, {remarks[0]}", *notes[1:], *remarks[1:]]
    values = {name: numbers[column] for name, column in columns.values.items()}
    noise = {name: _check_noise(column, numbers[column], rows) for name, column in columns.noise.items()}
    if values and all(np.isnan(series).all() for series in values.values()):
        raise DataError(f"expected at least one value of {', '.join(values)}, every cell is missing")
    if notes and notes[0] == _PLAIN:
        notes = notes[1:]
    unused = tuple(name for name in names if name not in columns.used)
    notes += _describe(columns, channels, values, origin, unused)
    return Table(numbers[columns.time], values, noise, columns.time, origin, unused, tuple(notes))


def _read_ticks(times: Any) -> tuple[Array, datetime | None]:
    """Return dates or durations of polars in seconds, and the first date."""
    ticks = times.to_physical().to_numpy()
    per_second = _TICKS[times.dtype.time_unit]
    first = times[0]
    if isinstance(first, datetime):
        return np.asarray((ticks - ticks[0]) / per_second), first
    return np.asarray(ticks / per_second), None


def _finite(column: Any, rows: Rows) -> Array:
    numbers = np.array(column.fill_null(np.nan).to_numpy(), dtype=float)
    if (infinite := np.isinf(numbers)).any():
        row = int(np.argmax(infinite))
        raise DataError(f"{rows.name(row)}, column {column.name}: expected a finite number, got {numbers[row]}")
    return numbers


def _check_noise(column: str, noise: Array, rows: Rows) -> Array:
    if (negative := noise < 0).any():
        row = int(np.argmax(negative))
        raise DataError(
            f"{rows.name(row)}, column {column}: expected a standard deviation of zero or more, got {noise[row]:g}"
        )
    return noise


def _describe(
    columns: Columns,
    channels: Sequence[str],
    values: Mapping[str, Array],
    origin: datetime | None,
    unused: Sequence[str],
) -> list[str]:
    notes = []
    if origin is not None:
        notes.append(f"times are seconds since {origin}")
    notes += [f"{name} is in column {column}" for name, column in columns.values.items() if name != column]
    notes += [f"column {columns.values[name]} has no values" for name in values if np.isnan(values[name]).all()]
    absent = [name for name in channels if name not in values]
    if absent:
        rest = f" (columns not used: {list_columns(unused)})" if unused else ""
        notes.append(f"no column for {', '.join(absent)}: not measured{rest}")
    return notes
