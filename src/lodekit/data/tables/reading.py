"""Tables become arrays: the times, and the values of each observable."""

from __future__ import annotations

import gzip
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.data.tables.cells import Numerals, clean, read_numbers
from lodekit.data.tables.columns import Columns, find_columns, list_columns
from lodekit.data.tables.dates import Lengths, Moments, find_date_form, read_dates
from lodekit.data.tables.lines import Opener, read_pipe, reading
from lodekit.data.tables.parquet import ParquetFile
from lodekit.data.tables.places import Places, naming
from lodekit.data.tables.table import Block, Plan, Records, Table, TableSource
from lodekit.data.tables.text import TextFile
from lodekit.data.tables.texts import Texts
from lodekit.errors import DataError
from lodekit.intervals import read_interval
from lodekit.quantities import Conversion

__all__ = [
    "describe_columns",
    "describe_file",
    "describe_times",
    "find_dates",
    "find_mark",
    "open_table",
    "read_block",
    "read_table",
    "read_whole",
]

Array = NDArray[np.float64]
#: What is unpacked is kept in memory.
_MOST_UNPACKED = 128 << 20
#: What nobody needs to be told.
_PLAIN = "separator ',', decimal point"


def open_table(path: str | Path, header: bool | None = None, *, single: bool = False) -> TableSource:
    """Return a file as a table: text in any dialect, also with gzip, or Parquet.

    Parameters
    ----------
    path : str or Path
        What is no plain file, such as a pipe, is read into memory at once.
    header : bool, optional
        Whether a text file starts with the names of its columns; found out by default.
    single : bool
        Whether one column is enough, as there need be no time.
    """
    place = Path(path)
    with reading():
        content = None if place.is_file() else read_pipe(place)
        open_file: Opener = (lambda: place.open("rb")) if content is None else partial(BytesIO, content)
        with open_file() as file:
            first = file.read(4)
        if first.startswith(b"\x1f\x8b"):
            with open_file() as file, gzip.GzipFile(fileobj=file) as unpacked:
                if unpacked.read(4) == b"PAR1":
                    # Parquet is read from its end, so it is unpacked as a whole.
                    content = b"PAR1" + unpacked.read(_MOST_UNPACKED)
                    if len(content) > _MOST_UNPACKED:
                        raise DataError(
                            f"expected at most {_MOST_UNPACKED >> 20} MB of Parquet inside gzip; unpack the file first"
                        )
                    return ParquetFile.open(BytesIO(content))
    if first == b"PAR1":
        return ParquetFile.open(os.fspath(place) if content is None else BytesIO(content))
    if place.suffix.lower() in (".parquet", ".pq"):
        raise DataError("expected a Parquet file, got something else; give text files the ending .csv")
    return TextFile.open(open_file, header, single=single)


def find_dates(table: TableSource, plan: Plan) -> tuple[Plan, datetime | None]:
    """Return the plan with the form of its dates, and the first date; None where times are numbers.

    Parameters
    ----------
    table : TableSource
    plan : Plan
    """
    name = plan.columns.time
    if table.has_numbers(name):
        return plan, None
    blocks = table.blocks([name])
    for block in blocks:
        columns, places = block.read()
        if not len(places.numbers):
            continue
        if isinstance(columns[name], Lengths):
            return replace(plan, time_unit="s"), None
        if isinstance(columns[name], Moments):
            return replace(plan, time_unit="s"), columns[name].first
        if not isinstance(columns[name], Texts):
            return plan, None
        with naming(f"column {name}"):
            form = find_date_form(clean(part.read()[0][name]) for part in chain([block], blocks))
        if form is None:
            return plan, None
        plan = replace(plan, form=form, time_unit="s")
        return plan, _read_dates(columns[name], places, plan).first
    raise _no_records(table)


def _no_records(table: TableSource) -> DataError:
    header = f" below the header ({list_columns(table.names)})" if table.separator else ""
    return DataError(f"expected rows of numbers{header}, found none")


def find_mark(table: TableSource, plan: Plan) -> Plan:
    """Return the plan with the decimal mark of a text file, as its first block tells it.

    Numbers can be parsed at once then, and a line that has another mark can be named.

    Parameters
    ----------
    table : TableSource
    plan : Plan
    """
    first = next(table.blocks(plan.columns.used), None) if plan.separator else None
    return plan if first is None else replace(plan, mark=read_block(first, plan).numerals.mark)


def read_block(block: Block, plan: Plan) -> Records:
    """Return the records of a block as arrays.

    Parameters
    ----------
    block : Block
    plan : Plan
        Of the table the block belongs to.
    """
    columns, numerals = plan.columns, Numerals()
    content, places = block.read(plan.direct)
    numbers: dict[str, Array] = {}
    if not len(places.numbers):
        numbers = {name: np.empty(0) for name in columns.numbers}
    elif isinstance(content[columns.time], Moments) or plan.form is not None:
        if plan.origin is None:
            raise DataError(f"expected numbers in column {columns.time}, as in other tables, got dates")
        numbers[columns.time] = _read_dates(content[columns.time], places, plan).since(plan.origin)
    elif isinstance(content[columns.time], Lengths):
        numbers[columns.time] = content[columns.time].seconds
    texts = {
        name: content[name] for name in columns.numbers if name not in numbers and isinstance(content[name], Texts)
    }
    if texts:
        found, numerals = read_numbers(texts, places, plan.separator, plan.mark)
        numbers |= found
    for name in columns.numbers:
        if name not in numbers:
            numbers[name] = _finite(content[name], name, places)
    _check_every_time(np.isnan(numbers[columns.time]), columns.time, places)
    values = {name: numbers[column] for name, column in columns.values.items()}
    noise = {name: _check_noise(column, numbers[column], places) for name, column in columns.noise.items()}
    labels = _read_labels(content[columns.record], columns.record, places) if columns.record else None
    return _finish(Records(numbers[columns.time], values, noise, numerals, labels), plan)


def _finish(records: Records, plan: Plan) -> Records:
    """Return records in the units of the model, and without those that are outside of the window."""
    own, same = plan.conversions, Conversion()
    times = own.get("t", same).apply(records.times)
    values = {name: own.get(name, same).apply(numbers) for name, numbers in records.values.items()}
    noise = {name: own.get(f"std({name})", same).stretch(numbers) for name, numbers in records.noise.items()}
    labels = records.labels
    if plan.has_window:
        inside = (times >= plan.window[0]) & (times <= plan.window[1])
        times = times[inside]
        values = {name: numbers[inside] for name, numbers in values.items()}
        noise = {name: numbers[inside] for name, numbers in noise.items()}
        labels = None if labels is None else labels[inside]
    return Records(times, values, noise, records.numerals, labels)


def _read_labels(column: Any, name: str, places: Places) -> NDArray[Any]:
    """Return the names of records that a column holds, one for each line; whole numbers without a decimal point."""
    texts = clean(column).to_list() if isinstance(column, Texts) else column.tolist()
    absent = np.array([cell is None or str(cell) in ("nan", "") for cell in texts], dtype=bool)
    if absent.any():
        raise DataError(f"expected a record in every row, column {name} has none in {places.list(absent)}")
    return np.array([str(int(c)) if isinstance(c, float) and c.is_integer() else str(c) for c in texts], dtype=object)


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
    with naming(str(place)):
        source = open_table(place, header)
        columns = find_columns(source.names, channels, mapping, time)
        plan, origin = find_dates(source, Plan(str(place), columns, source.separator))
        table = read_whole(source, replace(plan, origin=origin), channels)
        if table.values and all(np.isnan(series).all() for series in table.values.values()):
            raise DataError(f"expected at least one value of {', '.join(table.values)}, every cell is missing")
        return table


def read_whole(source: TableSource, plan: Plan, channels: Sequence[str]) -> Table:
    """Return all records of a table, in memory.

    Parameters
    ----------
    source : TableSource
    plan : Plan
        With the form of its dates, and their origin.
    channels : sequence of str
        Those that have no column are named in the notes.
    """
    block = next(source.blocks(plan.columns.used, whole=True), None)
    if block is None:
        raise _no_records(source)
    records = read_block(block, find_mark(source, plan))
    notes = describe_file(source, records.numerals)
    notes += describe_times(plan)
    empty = {name for name, values in records.values.items() if np.isnan(values).all()}
    notes += describe_columns(source.names, plan.columns, channels, empty)
    unused = tuple(name for name in source.names if name not in plan.columns.used)
    found = records.times, records.values, records.noise
    return Table(*found, plan.columns.time, plan.origin, unused, tuple(notes), records.labels)


def describe_times(plan: Plan) -> list[str]:
    """Return from when and in which unit times are counted, and what was converted.

    Parameters
    ----------
    plan : Plan
    """
    if plan.origin is None:
        return list(plan.notes)
    seconds = "seconds" if "t" not in plan.conversions else "counted"
    return [f"times are {seconds} since {plan.origin}", *plan.notes]


def describe_file(source: TableSource, numerals: Numerals) -> list[str]:
    """Return how a file is written, once all of it was read; raise where that leaves a doubt.

    Parameters
    ----------
    source : TableSource
    numerals : Numerals
        Of all blocks together.
    """
    remarks = numerals.conclude(source.separator)
    if not source.separator:
        return [*source.notes, *remarks[1:]]
    notes = [f"{source.notes[0]}, {remarks[0]}", *source.notes[1:], *remarks[1:]]
    return notes[1:] if notes[0] == _PLAIN else notes


def describe_columns(names: Sequence[str], columns: Columns, channels: Sequence[str], empty: set[str]) -> list[str]:
    """Return what there is to say about columns with other names, without values, and channels without a column.

    Parameters
    ----------
    names : sequence of str
        All columns of the table.
    columns : Columns
        Those that are read.
    channels : sequence of str
    empty : set of str
        Observables whose column has no values.
    """
    notes = [f"{name} is in column {column}" for name, column in columns.values.items() if name != column]
    notes += [f"column {columns.values[name]} has no values" for name in columns.values if name in empty]
    unused = [name for name in names if name not in columns.used]
    rest = f"columns not used: {list_columns(unused)}" if unused else ""
    known = {*columns.values, *(average.expression for name in columns.values if (average := read_interval(name)))}
    if absent := [name for name in channels if name not in known]:
        notes.append(f"no column for {', '.join(absent)}: not measured{f' ({rest})' if rest else ''}")
    elif rest:
        notes.append(rest)
    return notes


def _read_dates(column: Any, places: Places, plan: Plan) -> Moments:
    if isinstance(column, Moments):
        return column
    texts = clean(column)
    _check_every_time(texts.is_missing, plan.columns.time, places)
    try:
        return read_dates(texts, places, plan.form)
    except DataError as problem:
        raise DataError(f"column {plan.columns.time}, {problem}") from None


def _check_every_time(missing: NDArray[np.bool_], name: str, places: Places) -> None:
    if missing.any():
        raise DataError(f"expected a time in every row, column {name} has none in {places.list(missing)}")


def _finite(column: Any, name: str, places: Places) -> Array:
    numbers = np.array(column, dtype=float)
    if (infinite := np.isinf(numbers)).any():
        record = int(np.argmax(infinite))
        raise DataError(f"{places.name(record)}, column {name}: expected a finite number, got {numbers[record]}")
    return numbers


def _check_noise(column: str, noise: Array, places: Places) -> Array:
    if (negative := noise < 0).any():
        record = int(np.argmax(negative))
        raise DataError(
            f"{places.name(record)}, column {column}: expected a standard deviation of zero or more, "
            f"got {noise[record]:g}"
        )
    return noise
