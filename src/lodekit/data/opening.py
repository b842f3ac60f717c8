"""What `fit` is given, as tables: files, DataFrames, a Series, columns by name."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from glob import glob
from typing import Any

import numpy as np

from lodekit.data.observations import Observations
from lodekit.data.planning import Request
from lodekit.data.statistics import Statistics
from lodekit.data.streams import DaskFrame, is_dask, naming
from lodekit.data.tables.advice import Advice
from lodekit.data.tables.columns import is_time_name
from lodekit.data.tables.dates import is_date
from lodekit.data.tables.frames import Frame, with_index
from lodekit.data.tables.instants import SteppedTable, make_frame
from lodekit.data.tables.reading import open_table
from lodekit.data.tables.table import TableSource
from lodekit.errors import DataError

__all__ = ["is_frame", "open_tables"]


def is_frame(source: Any) -> bool:
    """Return whether something is a table with named columns."""
    return hasattr(type(source), "columns") and not isinstance(source, np.ndarray)


def open_tables(
    source: Any,
    Y: Any,
    request: Request,
) -> dict[str, TableSource] | None:
    """Return the tables that are meant, each by its name, in order; None where values are meant.

    Parameters
    ----------
    source, Y
        What `fit` was given.
    request : Request
        Its channel is the name of a Series without one, where there is a single channel.
    """
    items = list(source) if isinstance(source, list | tuple) and len(source) else [source]
    paths = [isinstance(item, str | os.PathLike) for item in items]
    is_path = all(paths) and not (Y is not None and all(isinstance(i, str) and is_date(i) for i in items))
    _check_list(items, paths, Y)
    own = None if is_path or Y is not None else _as_frame(source, request.channels)
    if not is_path and own is None and not (is_dask(source) or is_frame(source)):
        return None
    if Y is not None:
        if not is_path:
            return None
        raise DataError("expected files or a DataFrame alone: they hold times and values themselves")
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


def _check_list(items: Sequence[Any], paths: Sequence[bool], Y: Any) -> None:
    """Raise where a list holds several records, or files beside other things."""
    if len(items) < 2 or all(paths):
        return
    several = any(paths) or any(
        is_frame(item)
        or isinstance(item, Observations | Statistics | Mapping)
        or (isinstance(item, list | tuple) and len(item) > 1 and np.ndim(item[0]) > 0)
        for item in items[:1000]
    )
    if several and Y is None:
        raise DataError(
            "expected one record: files, a DataFrame, or times and values; got a list of several, and a fit takes one. "
            "Where they belong to one record, with times one after the other, join them first; otherwise fit each"
        )


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
    option = advice.step.split("=")[0].split()[0]
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
