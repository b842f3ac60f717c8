"""A first look at a data file: what its columns hold, which one is the time, and which ones somebody set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lodekit.data.stepped import find_rest, find_steps
from lodekit.data.tables.cells import clean, read_numbers
from lodekit.data.tables.columns import are_numbered, is_time_name, list_columns
from lodekit.data.tables.dates import Lengths, Moments, is_date
from lodekit.data.tables.headers import find_unit
from lodekit.data.tables.places import naming
from lodekit.data.tables.reading import open_table
from lodekit.data.tables.table import TableSource
from lodekit.data.tables.texts import Texts
from lodekit.errors import DataError

__all__ = ["Column", "Look", "look_at"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Column:
    """What one column holds.

    Parameters
    ----------
    name : str
        As the file has it; a number where there is no header.
    number : int
        Counted from one.
    unit : str
        As the name tells it; empty where it does not.
    stepped : str
        What makes it look as if somebody had set it, in words; empty where nothing does.
    is_constant : bool
        Whether all its values are the same.
    """

    name: str
    number: int
    unit: str = ""
    stepped: str = ""
    is_constant: bool = False


@dataclass(frozen=True)
class Look:
    """What a table holds.

    Parameters
    ----------
    names : tuple of str
        All columns.
    columns : tuple of Column
        Those of numbers that are no times.
    time : Column or None
        None where no column can be the time.
    why : str
        What tells that it is the time, in words.
    has_header : bool
        Whether columns have names of their own.
    count : int
        How many rows were looked at.
    record : str
        A column that changes where times start anew; empty where none does.
    left_out : dict of str to str
        Other columns, and what they hold.
    """

    names: tuple[str, ...]
    columns: tuple[Column, ...]
    time: Column | None
    why: str
    has_header: bool
    count: int
    record: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)


def look_at(path: str | Path, header: bool | None = None) -> Look:
    r"""Return what the first rows of a file tell about its columns; the first half a million or so.

    Parameters
    ----------
    path : str or Path
        CSV and its relatives, or Parquet.
    header : bool, optional
        Whether a text file starts with the names of its columns; found out by default.

    Examples
    --------
    >>> import tempfile
    >>> rows = [f"{k},{k // 5 % 2},{k * k % 7}.5,ok" for k in range(20)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "log.csv").write_text("\n".join(["time [s],valve,level [m],state", *rows]))
    ...     look = look_at(Path(folder, "log.csv"))
    >>> look.time.name, [(column.name, column.unit, column.stepped) for column in look.columns]
    ('time [s]', [('valve', '', 'takes two values only, 0 and 1'), ('level [m]', 'm', '')])
    >>> look.left_out
    {'state': 'holds no numbers'}
    """
    place = Path(path).expanduser()
    with naming(str(place)):
        source = open_table(place, header)
        found = {name: _read(source, name) for name in source.names}
        if not any(len(values) for values in found.values() if values is not None):
            raise DataError(f"expected columns of numbers, got {list_columns(source.names)}")
    time, why = _find_time(source, found)
    record = "" if time is None else _find_record(source, found, time)
    columns, left_out = [], {}
    for number, (name, values) in enumerate(found.items(), 1):
        if name in (time, record):
            continue
        if values is None or not np.isfinite(values).any():
            left_out[name] = "holds no numbers" if values is None else "holds no values"
            continue
        own = values[np.isfinite(values)]
        columns.append(Column(name, number, find_unit(name), find_steps(own) or find_rest(own), bool(np.ptp(own) == 0)))
    count = max(len(values) for values in found.values() if values is not None)
    unit = ""
    if time is not None:
        unit = find_unit(time, is_time=True) or ("s" if _holds_dates(source, time) else "")
    own_time = None if time is None else Column(time, source.names.index(time) + 1, unit)
    return Look(
        tuple(source.names), tuple(columns), own_time, why, not are_numbered(source.names), count, record, left_out
    )


def _read(source: TableSource, name: str) -> Array | None:
    """Return the numbers of a column, seconds where it holds dates; None where it holds something else."""
    block = next(source.blocks([name]), None)
    if block is None:
        return None
    content, places = block.read()
    column = content[name]
    if isinstance(column, Lengths):
        return column.seconds
    if isinstance(column, Moments):
        return column.since(column.first)
    try:
        if isinstance(column, Texts):
            return read_numbers({name: column}, places, source.separator)[0][name]
        return np.array(column, dtype=float)
    except DataError:
        return None


def _find_time(source: TableSource, found: Mapping[str, Array | None]) -> tuple[str | None, str]:
    """Return the column of the time, and what tells; dates and names before numbers that increase."""
    named = [name for name in source.names if is_time_name(name)]
    if len(named) == 1:
        return named[0], "it is called so"
    dated = [name for name in named or source.names if _holds_dates(source, name)]
    if dated:
        return dated[0], "its cells are dates"
    for name in named or source.names:
        values = found[name]
        if values is not None and len(values) > 2 and (np.diff(values) > 0).all():
            return name, "its numbers increase all the way"
    return None, ""


def _holds_dates(source: TableSource, name: str) -> bool:
    block = next(source.blocks([name]), None)
    if block is None:
        return False
    column = block.read()[0][name]
    if isinstance(column, Moments):
        return True
    if not isinstance(column, Texts):
        return False
    cells = clean(column)
    texts = cells.select(~cells.is_missing).head(3).to_list()
    return bool(texts) and all(is_date(text) for text in texts)


def _find_record(source: TableSource, found: Mapping[str, Array | None], time: str) -> str:
    """Return a column that changes exactly where times go back; empty where there is none."""
    times = found[time]
    if times is None:
        return ""
    back = np.diff(times) < 0
    if not back.any():
        return ""
    for name, values in found.items():
        own = _read_texts(source, name) if values is None else values
        if name != time and len(own) == len(times) and ((own[1:] != own[:-1]) == back).all():
            return name
    return ""


def _read_texts(source: TableSource, name: str) -> NDArray[np.object_]:
    """Return the cells of a column that holds no numbers; none where it holds no texts."""
    block = next(source.blocks([name]), None)
    column = None if block is None else block.read()[0][name]
    return np.array(clean(column).to_list() if isinstance(column, Texts) else [], dtype=object)
