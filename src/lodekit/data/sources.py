"""Everything that `fit` accepts becomes measurements: arrays, observations, sums, files, DataFrames.

Files and DataFrames are read by one reader, with the same rules for columns and cells whatever their kind and size.
Their size alone decides what is kept: the measurements themselves up to `LARGE` records, sums over them beyond that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from glob import glob
from pathlib import Path
from typing import Any

from lodekit.data.measurements import Measurements
from lodekit.data.observations import Observations, read_observations
from lodekit.data.statistics import Statistics
from lodekit.data.streams import DaskFrame, is_dask, naming, sum_partitions, sum_tables
from lodekit.data.tables.cells import Numerals
from lodekit.data.tables.columns import find_all_columns, list_columns
from lodekit.data.tables.frames import Frame
from lodekit.data.tables.noise import KnownNoise, read_noise
from lodekit.data.tables.reading import describe_columns, describe_file, find_dates, open_table, read_whole
from lodekit.data.tables.table import Plan, TableSource
from lodekit.errors import DataError

__all__ = ["LARGE", "Source", "read_source"]

#: Where tables have more records than this, all files together, they are read in pieces and only sums are kept.
LARGE = 2_000_000


@dataclass(frozen=True)
class Source:
    """What was read, and what was found out on the way.

    Parameters
    ----------
    measurements : Measurements
    origin : datetime or None
        The date that is time zero, where there are dates: times are seconds since then.
    notes : tuple of str
        What was found out about files, in words.
    """

    measurements: Measurements
    origin: datetime | None = None
    notes: tuple[str, ...] = ()

    @property
    def labels(self) -> dict[str, Any]:
        """What a model calls things, as far as the data tell it: the unit and the origin of time where it has dates."""
        if self.origin is None:
            return {}
        return {"title": "", "units": {"t": "s"}, "origin": self.origin.isoformat()}


def read_source(
    source: Any,
    Y: Any = None,
    channels: Sequence[str] = (),
    *,
    noise_std: Any = None,
    time: str | None = None,
    columns: Mapping[str, Any] | None = None,
    header: bool | None = None,
    since: datetime | None = None,
    check: Callable[[Sequence[str]], object] | None = None,
) -> Source:
    r"""Return measurements from anything that `fit` accepts.

    Parameters
    ----------
    source : array-like, Observations, Statistics, path, pattern, list of paths, DataFrame, Dask DataFrame, or Source
        Times, or something that holds times and values itself. Files are Parquet, or text in any dialect that
        `lodekit.data.tables.read_table` describes; they count together, each once, in the order of their names.
    Y : array (n, channels), dict of observable to array, or DataFrame, optional
        The values, where `source` holds the times alone.
    channels : sequence of str
        The channels of the system.
    noise_std : number, dict or array, optional
        Known standard deviation of the noise; learned where it is absent. For tables a number, or a dict of
        observable to number or column; for arrays as in `read_observations`.
    time : str, optional
        The column of the time in a table; by default the one called t, time, timestamp, date or the like.
    columns : dict of observable to column, optional
        For columns of tables with other names: a name, or a number counted from one. ``t`` is the time, ``std(f1)``
        the known noise of f1.
    header : bool, optional
        Whether text files start with the names of their columns; found out by default.
    since : datetime, optional
        The date that is time zero; by default that of the first record of the first table.
    check : callable, optional
        Called with the names of observables before large files are read; raises where they make no sense.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "log.csv").write_text("date;T [K]\n01.03.2026 12:00;293,5\n01.03.2026 12:01;293,25\n")
    ...     found = read_source(folder + "/*.csv", channels=["T"])
    >>> found.measurements.series[0].times.tolist(), found.origin
    ([0.0, 60.0], datetime.datetime(2026, 3, 1, 12, 0))
    """
    check = check or (lambda names: None)
    tables = _open_tables(source, Y, header)
    if tables is None:
        if time is not None or columns is not None or header is not None:
            given = "time=" if time is not None else "columns=" if columns is not None else "header="
            raise DataError(f"{given} is about columns of files or of a DataFrame; expected none with arrays")
        return _read_values(source, Y, channels, noise_std, check)
    return _read_tables(tables, channels, read_noise(noise_std), time, columns, since, check)


def _read_tables(
    tables: Mapping[str, TableSource],
    channels: Sequence[str],
    noise: KnownNoise,
    time: str | None,
    columns: Mapping[str, Any] | None,
    since: datetime | None,
    check: Callable[[Sequence[str]], object],
) -> Source:
    plans = _make_plans(tables, channels, noise, time, columns)
    observed = list(dict.fromkeys(name for plan in plans for name in plan.columns.values))
    check(observed)
    if unknown := [name for name in noise.names if name not in observed and name not in channels]:
        raise DataError(f"noise_std names {unknown[0]}, which is not observed; expected some of {', '.join(observed)}")
    plans = _date_plans(tables, plans, since)
    if _is_large(tables):
        return _read_large(tables, plans, channels)
    return _read_small(tables, plans, channels)


def _read_values(
    source: Any, Y: Any, channels: Sequence[str], noise_std: Any, check: Callable[[Sequence[str]], object]
) -> Source:
    """Return measurements that come as values, not as tables."""
    for kind, what in ((Source, "a Source"), (Statistics, "Statistics")):
        if isinstance(source, kind) and (Y is not None or noise_std is not None):
            raise DataError(f"expected {what} alone: values and noise are in there")
    if isinstance(source, Source):
        check(source.measurements.names)
        return source
    if isinstance(source, Statistics):
        if not source.size:
            raise DataError("expected at least one measurement; the sums are empty")
        check(source.observables)
        return Source(Measurements(sums=source))
    observations = read_observations(channels, source, Y, noise_std)
    # A name without values is checked, too: it may be misspelt.
    check(observations.observables)
    return Source(Measurements.of(observations))


def _open_tables(source: Any, Y: Any, header: bool | None) -> dict[str, TableSource] | None:
    """Return the tables that are meant, each by its name, in order; None where values are meant."""
    items = source if isinstance(source, list | tuple) and source else [source]
    is_path = all(isinstance(item, str | os.PathLike) for item in items)
    is_frame = hasattr(type(source), "columns") and Y is None
    if not is_path and not is_frame and not is_dask(source):
        return None
    if Y is not None:
        raise DataError("expected files or a DataFrame alone: they hold times and values themselves")
    if header is not None and not is_path:
        raise DataError("header= is about text files; expected none with a DataFrame")
    if is_dask(source):
        return {"the Dask DataFrame": DaskFrame(source)}
    if is_frame:
        return {"the DataFrame": Frame(source)}
    tables: dict[str, TableSource] = {}
    for path in _find_files(items):
        with naming(path):
            tables[path] = open_table(path, header)
    return tables


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


def _make_plans(
    tables: Mapping[str, TableSource],
    channels: Sequence[str],
    noise: KnownNoise,
    time: str | None,
    columns: Mapping[str, Any] | None,
) -> list[Plan]:
    if columns is not None and not isinstance(columns, Mapping):
        raise DataError(f"expected columns as a dict of observable to column, got {type(columns).__name__}")
    mapping = {**{f"std({name})": column for name, column in noise.columns.items()}, **(columns or {})}
    found = find_all_columns({where: table.names for where, table in tables.items()}, channels, mapping, time)
    plans = []
    for (where, table), own in zip(tables.items(), found, strict=True):
        known = {name: noise.number_of(name) for name in own.values if name not in own.noise}
        numbers = {name: number for name, number in known.items() if number is not None}
        plans.append(Plan(where, own, table.separator, numbers))
    return plans


def _date_plans(tables: Mapping[str, TableSource], plans: Sequence[Plan], since: datetime | None) -> list[Plan]:
    """Return the plans with the forms of their dates, and one origin for all of them."""
    dated, firsts = [], []
    for table, plan in zip(tables.values(), plans, strict=True):
        with naming(plan.where):
            own, first = find_dates(table, plan)
        dated.append(own)
        firsts.append(first)
    origin = firsts[0] if since is None or firsts[0] is None else since
    for plan, first in zip(plans, firsts, strict=True):
        if _describe_clock(first) != _describe_clock(origin):
            raise DataError(
                f"{plan.where}: expected {_describe_clock(origin)} in column {plan.columns.time}, as elsewhere, "
                f"got {_describe_clock(first)}"
            )
    return [replace(plan, origin=origin) for plan in dated]


def _describe_clock(date: datetime | None) -> str:
    if date is None:
        return "times as numbers"
    return f"dates with{'out' if date.tzinfo is None else ''} a time zone"


def _is_large(tables: Mapping[str, TableSource]) -> bool:
    count = 0
    for where, table in tables.items():
        with naming(where):
            count += table.count(LARGE - count)
        if count > LARGE:
            return True
    return False


def _read_small(tables: Mapping[str, TableSource], plans: Sequence[Plan], channels: Sequence[str]) -> Source:
    observations, notes = Observations(), []
    for table, plan in zip(tables.values(), plans, strict=True):
        with naming(plan.where):
            found = read_whole(table, plan, channels)
            for name, values in found.values.items():
                observations = observations.add(found.times, name, values, found.noise.get(name, plan.noise.get(name)))
        notes.append(found.notes)
    if not len(observations):
        raise _nothing_measured(plans)
    return Source(Measurements.of(observations), plans[0].origin, _join_notes(plans, notes))


def _read_large(tables: Mapping[str, TableSource], plans: Sequence[Plan], channels: Sequence[str]) -> Source:
    sources, found = list(tables.values()), [Numerals()]
    if isinstance(sources[0], DaskFrame):
        sums, found[0] = sum_partitions(sources[0], plans[0])
    else:
        sums, found = sum_tables(sources, plans)
    if not sums.size:
        raise _nothing_measured(plans)
    notes = []
    for table, plan, numerals in zip(sources, plans, found, strict=True):
        with naming(plan.where):
            about = describe_file(table, numerals)
        if plan.origin is not None:
            about.append(f"times are seconds since {plan.origin}")
        empty = {name for name in plan.columns.values if name not in sums.observables}
        notes.append((*about, *describe_columns(table.names, plan.columns, channels, empty)))
    joined = _join_notes(plans, notes)
    return Source(Measurements(sums=sums), plans[0].origin, ("read in pieces; only sums were kept", *joined))


def _nothing_measured(plans: Sequence[Plan]) -> DataError:
    observed = dict.fromkeys(name for plan in plans for name in plan.columns.values)
    where = f"{plans[0].where}: " if len(plans) == 1 else ""
    return DataError(f"{where}expected at least one value of {', '.join(observed)}, every cell is missing")


def _join_notes(plans: Sequence[Plan], notes: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return notes about several files, each once, with the files where it is not about all of them."""
    about: dict[str, list[str]] = {}
    for plan, own in zip(plans, notes, strict=True):
        for note in own:
            about.setdefault(note, []).append(Path(plan.where).name)
    return tuple(
        note if len(where) == len(plans) else f"{note} ({list_columns(where)})" for note, where in about.items()
    )
