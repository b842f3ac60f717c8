"""What `fit` is given, as tables: files, DataFrames, a Series, columns by name; one record, or a list of several."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from glob import glob
from typing import Any

import numpy as np

from lodekit.data.observations import Observations
from lodekit.data.planning import Request
from lodekit.data.statistics import Statistics
from lodekit.data.streams import DaskFrame, is_dask
from lodekit.data.tables.advice import Advice
from lodekit.data.tables.columns import is_time_name
from lodekit.data.tables.dates import is_date
from lodekit.data.tables.frames import Frame, with_index
from lodekit.data.tables.instants import SteppedTable, make_frame
from lodekit.data.tables.places import naming
from lodekit.data.tables.reading import open_table
from lodekit.data.tables.table import TableSource
from lodekit.errors import DataError

__all__ = ["is_frame", "open_records", "open_tables", "split_records"]


def is_frame(source: Any) -> bool:
    """Return whether something is a table with named columns."""
    return hasattr(type(source), "columns") and not isinstance(source, np.ndarray)


def split_records(source: Any, Y: Any) -> list[Any] | None:
    """Return the records of a list of several: files, tables, or times with values; None where it is no such list.

    Parameters
    ----------
    source, Y
        What `fit` was given; with values beside it, a list holds times.
    """
    if Y is not None or not isinstance(source, list | tuple) or not len(source) or not _kind(source[0]):
        return None
    kinds = [_kind(item) for item in source]
    if "" in kinds or ("values" in kinds and len(set(kinds)) > 1):
        number = kinds.index("") if "" in kinds else next(k for k, kind in enumerate(kinds) if kind != kinds[0])
        raise DataError(
            "expected a list of records that are all files and tables, or all times with values, as (t, Y) or "
            f"Observations; got {type(source[number]).__name__} as number {number} of the list, counted from zero"
        )
    return list(source)


def _kind(item: Any) -> str:
    """Return what an item of a list is: a table (or several files that are pieces of one), values, or nothing."""
    if isinstance(item, str | os.PathLike):
        return "table"
    if isinstance(item, Observations | Statistics):
        return "values"
    if isinstance(item, list | tuple) and len(item):
        if all(isinstance(each, str | os.PathLike) for each in item):
            return "table"
        return "values" if 2 <= len(item) <= 3 and np.ndim(item[0]) > 0 else ""
    is_table = is_dask(item) or is_frame(item) or isinstance(item, Mapping)
    is_table |= isinstance(item, np.ndarray) and item.dtype.names is not None
    is_table |= hasattr(item, "to_dataframe") or (hasattr(item, "to_frame") and hasattr(item, "index"))
    return "table" if is_table else ""


def open_records(items: Sequence[Any], request: Request) -> list[tuple[str, dict[str, TableSource]]] | None:
    """Return the tables of several records, each under its name; None where the list holds times with values.

    Parameters
    ----------
    items : sequence
        As `split_records` returns it.
    request : Request
    """
    if _kind(items[0]) == "values":
        return None
    paths = [isinstance(item, str | os.PathLike) for item in items]
    short = [os.path.basename(os.fsdecode(item)) if is_path else "" for item, is_path in zip(items, paths, strict=True)]
    found, seen = [], set[str]()
    for number, (item, is_path) in enumerate(zip(items, paths, strict=True)):
        tables = open_tables(item, None, request) or {}
        name = str(number)
        if is_path or isinstance(item, list | tuple):
            first = next(iter(tables))
            name = first if not is_path else short[number] if short.count(short[number]) == 1 else os.fsdecode(item)
            for path in tables:
                if os.path.realpath(path) in seen:
                    raise DataError(f"expected different files for different records, got {path} twice")
            seen |= {os.path.realpath(path) for path in tables}
        else:
            tables = {f"record {number}": table for table in tables.values()}
        found.append((name, tables))
    return found


def open_tables(source: Any, Y: Any, request: Request) -> dict[str, TableSource] | None:
    """Return the tables of one record, each by its name, in order; None where values are meant.

    Parameters
    ----------
    source, Y
        What `fit` was given, or one record of it.
    request : Request
        Its channel is the name of a Series without one, where there is a single channel.
    """
    items = list(source) if isinstance(source, list | tuple) and len(source) else [source]
    is_path = all(isinstance(item, str | os.PathLike) for item in items)
    if Y is not None:
        # Texts beside values are times where they are dates.
        if not is_path or all(isinstance(item, str) and is_date(item) for item in items):
            return None
        raise DataError("expected files or a DataFrame alone: they hold times and values themselves")
    own = None if is_path else _as_frame(source, request.channels)
    if not is_path and own is None and not is_dask(source):
        return None
    if request.header is not None and not is_path:
        raise DataError("header= is about text files; expected none with a DataFrame")
    tables: dict[str, TableSource] = {}
    if is_dask(source):
        tables["the Dask DataFrame"] = DaskFrame(with_index(source))
    elif not is_path:
        tables["the DataFrame"] = Frame(own)
    for path in _find_files(items) if is_path else ():
        with naming(path):
            tables[path] = open_table(path, request.header, single=request.dt is not None)
    return tables if request.dt is None else _step_tables(tables, request.dt, request.advice)


def _as_frame(source: Any, channels: Sequence[str]) -> Any:
    """Return a table in memory as a DataFrame; None where there is none."""
    if is_dask(source) or isinstance(source, Observations | Statistics):
        return None
    if is_frame(source):
        return with_index(source)
    if isinstance(source, Mapping):
        return make_frame(source)
    if isinstance(source, np.ndarray) and source.dtype.names:
        return make_frame({name: source[name] for name in source.dtype.names})
    if hasattr(source, "to_dataframe"):  # as xarray has it
        try:
            return with_index(source.to_dataframe())
        except (TypeError, ValueError) as problem:
            raise DataError(f"expected something like a table, got {type(source).__name__}: {problem}") from None
    if hasattr(source, "to_frame") and hasattr(source, "index") and not hasattr(source, "levels"):
        name = source.name
        if name is None and len(channels) == 1:
            name = channels[0]
        if name is None:
            raise DataError(f"expected a Series with a name, one of {', '.join(channels)}; rename it so")
        return with_index(source.to_frame(name=name))
    return None


def _step_tables(tables: dict[str, TableSource], dt: Any, advice: Advice) -> dict[str, TableSource]:
    option = advice.step_name
    if isinstance(dt, bool) or not isinstance(dt, int | float | np.number) or not 0 < float(dt) < np.inf:
        raise DataError(f"expected {option} as a positive number, the time between two rows, got {dt!r}")
    if len(tables) > 1:
        raise DataError(f"expected one table with {option}, got {len(tables)}: where does the second begin?")
    for where, table in tables.items():
        if isinstance(table, DaskFrame):
            raise DataError(f"expected a column of times in a Dask DataFrame; {option} is for tables in memory")
        if times := [name for name in table.names if is_time_name(name)]:
            raise DataError(f"{where}: the table has a column {times[0]}; leave out {option}, or rename the column")
    return {where: SteppedTable(table, float(dt)) for where, table in tables.items()}


def _find_files(items: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return the files that paths and patterns mean, each once, in order."""
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
            # One file by two names, a link or ./, is one file.
            found.setdefault(os.path.realpath(match), match)
    return sorted(found.values())
