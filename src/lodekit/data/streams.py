"""Measurements in files larger than memory, or on a cluster: read in pieces, kept as sums."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from glob import glob
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from lodekit.data.observations import Series
from lodekit.data.statistics import Statistics
from lodekit.errors import DataError, LodekitError
from lodekit.progress import waiting

__all__ = ["is_stream", "read_stream"]

Array = NDArray[np.float64]
_Span = tuple[float, float, int]  # first time, last time, number of rows
#: Rows in a piece: more take more memory and are no faster, fewer pay for the start of each transform.
_ROWS = 1 << 19
#: Pieces at work at the same time, however many cores there are: each takes about 80 MB.
_MOST_WORKERS = 16
_ENDINGS = (".parquet", ".csv", ".csv.gz")
_MISSING = ["NA", "N/A", "null", "NULL", "None"]


def is_stream(source: object) -> bool:
    """Return whether something is read in pieces: a path, a pattern, a list of them, or a Dask DataFrame.

    Examples
    --------
    >>> is_stream("run_*.parquet"), is_stream(["a.csv", "b.csv"]), is_stream([0.0, 1.0])
    (True, True, False)
    """
    items = source if isinstance(source, list | tuple) and source else [source]
    return _is_dask(source) or all(isinstance(item, str | os.PathLike) for item in items)


def read_stream(source: Any, channels: Sequence[str], *, time: str | None = None, noise_std: Any = None) -> Statistics:
    """Return the statistics of measurements in files or in a Dask DataFrame; memory does not grow with their number.

    Parameters
    ----------
    source : path, pattern, list of them, or Dask DataFrame
        Parquet (``.parquet``) and CSV (``.csv``, ``.csv.gz``) files; each is read once. Every file has a column for
        the time and one for each channel that it measures. Null and NaN are missing, other columns are ignored.
    channels : sequence of str
        The channels of the system.
    time : str, optional
        The column of the time; ``t`` or ``time`` by default.
    noise_std : number, or dict of channel to number or column, optional
        Known standard deviation of the noise, above zero; learned where it is absent, and where a column has null.
    """
    if not is_stream(source):
        raise DataError(f"expected a path, a list of paths or a Dask DataFrame, got {type(source).__name__}")
    noise = _known_noise(noise_std, channels)
    plans = [_plan(where, schema, channels, time, noise) for where, schema in _schemas(source).items()]
    if isinstance(noise_std, Mapping) and (absent := set(noise_std).difference(*(plan.noise for plan in plans))):
        raise DataError(f"noise_std names {', '.join(map(str, absent))}; expected channels that have a column")
    # The threads of BLAS spin while they wait, and take the cores from the transforms.
    with threadpool_limits(1, user_api="blas"):
        total = _read_dask(source, plans[0]) if _is_dask(source) else _read_files(plans)
    if total.size == 0:
        raise DataError("expected at least one measurement; every value is missing")
    return total


@dataclass(frozen=True)
class _Plan:
    """What is read of a table: the time, and each channel with its noise (a number, a column, None if learned)."""

    where: str
    time: str
    noise: Mapping[str, float | str | None]

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys([self.time, *self.noise, *(n for n in self.noise.values() if isinstance(n, str))]))


def _known_noise(noise_std: Any, channels: Sequence[str]) -> dict[str, float | str | None]:
    each = dict(noise_std) if isinstance(noise_std, Mapping) else dict.fromkeys(channels, noise_std)
    for name, std in each.items():
        number = isinstance(std, float | int | np.floating | np.integer) and not isinstance(std, bool)
        column = isinstance(std, str) and isinstance(noise_std, Mapping)
        if not (std is None or column or (number and 0 < std < np.inf)):
            raise DataError(f"expected a number above zero as noise_std of {name}, or a dict to a column, got {std!r}")
    return {name: each.get(name) for name in channels}


def _plan(where: str, schema: Any, channels: Sequence[str], time: str | None, noise: Mapping[str, Any]) -> _Plan:
    """Return which columns of a table are read, after a check that they are there and hold numbers."""
    present = "got the columns " + ", ".join([*schema][:20]) + (", ..." if len(schema) > 20 else "")
    asked = ("t", "time") if time is None else (time,)
    chosen = [name for name in asked if name in schema and name not in channels]
    if len(chosen) != 1:
        got = "got both" if chosen else present
        raise DataError(f"{where}: expected a time column {' or '.join(asked)} (no channel), {got}; name it by time=")
    found = _Plan(where, chosen[0], {name: noise[name] for name in channels if name in schema})
    if not found.noise:
        raise DataError(f"{where}: expected a column for at least one of {', '.join(channels)}, {present}")
    for name in found.columns:
        if name not in schema:
            raise DataError(f"{where}: expected a column {name}, {present}")
        # A column of a CSV file that begins with empty fields looks like text; one of nulls alone has no kind at all.
        kind, text = schema[name], where.lower().endswith(_ENDINGS[1:])
        if not (kind.is_numeric() or str(kind) == "Unknown" or (text and str(kind) == "String")):
            hint = "; convert dates to seconds" if kind.is_temporal() else ""
            raise DataError(f"{where}: expected numbers in column {name}, got {kind}{hint}")
    return found


def _numbers(table: Any, name: str) -> Array:
    narwhals = import_module("narwhals")
    column = narwhals.from_native(table, eager_only=True)[name]
    return np.asarray(column.cast(narwhals.Float64).to_numpy(), dtype=float)


def _times(table: Any, plan: _Plan) -> Array:
    times = _numbers(table, plan.time)
    if not (finite := np.isfinite(times)).all():
        raise DataError(f"{plan.where}: expected finite times in column {plan.time}, got {times[~finite][0]}")
    return times


def _hull(spans: Iterable[_Span]) -> _Span:
    starts, stops, rows = zip(*spans, strict=True)
    return min(starts), max(stops), sum(rows)


def _series(table: Any, plan: _Plan) -> list[Series]:
    """Return the measurements in a table; channels with the same rows and noise share their arrays of times."""
    times, found = _times(table, plan), []
    shared: dict[tuple[float | str | None, bytes], tuple[Array, Array]] = {}
    for channel, noise in plan.noise.items():
        values = _numbers(table, channel)
        kept = np.isfinite(values)
        whole = bool(kept.all())
        if not whole and (bad := np.isinf(values)).any():
            raise DataError(f"{plan.where}: expected finite values or null in column {channel}, got {values[bad][0]}")
        key = (noise, b"" if whole else kept.tobytes())
        if key not in shared:
            std = _numbers(table, noise) if isinstance(noise, str) else np.full(len(times), noise, dtype=float)
            if (bad := (std <= 0) | np.isinf(std)).any():
                raise DataError(f"{plan.where}: expected noise above zero or null in column {noise}, got {std[bad][0]}")
            shared[key] = (times, std) if whole else (times[kept], std[kept])
        found.append(Series(channel, shared[key][0], values if whole else values[kept], shared[key][1]))
    return found


def _statistics(table: Any, plan: _Plan, start: float, stop: float) -> Statistics:
    series = _series(table, plan)
    try:
        # Pieces run side by side, so each of them keeps to one core.
        with threadpool_limits(1, user_api="openmp"):
            return Statistics.of(start, stop, series)
    except DataError as error:
        raise DataError(f"{plan.where}: {error}") from None


def _schemas(source: Any) -> dict[str, Any]:
    """Return the names of the tables that are meant, each once, in order, with the kinds of their columns."""
    narwhals = import_module("narwhals")
    if _is_dask(source):
        return {"the Dask DataFrame": narwhals.from_native(source).collect_schema()}
    found: set[str] = set()
    for item in [source] if isinstance(source, str | os.PathLike) else source:
        path = os.path.expanduser(os.fsdecode(item))
        matches = [path] if os.path.isfile(path) else [*filter(os.path.isfile, glob(path, recursive=True))]
        if not matches:
            raise DataError(f"expected Parquet or CSV files, or a pattern like data/*.parquet, found none at {path}")
        found.update(matches)
    schemas = {}
    for path in sorted(found):
        if not path.lower().endswith(_ENDINGS):
            raise DataError(f"{path}: expected a file that ends in {', '.join(_ENDINGS)}")
        with _reading(path) as polars:
            schemas[path] = narwhals.from_native(_scan(polars, path).head(0).collect()).schema
    return schemas


def _read_files(plans: Sequence[_Plan]) -> Statistics:
    """Return the statistics of files: one look at the times for the window, then the sums, pieces side by side."""
    with waiting("looking at the times") as advance:
        spans = [(plan.where.endswith(".parquet") and _footer(plan)) or _span(plan, advance) for plan in plans]
    start, stop, rows = _hull(spans)
    total, queue = Statistics.empty(start, stop), deque[Future[Statistics]]()
    workers = min(import_module("joblib").cpu_count(), _MOST_WORKERS)
    with waiting("reading", rows) as advance, ThreadPoolExecutor(workers) as pool:
        for plan, span in zip(plans, spans, strict=True):
            left = span[2]
            for table in _tables(plan, plan.columns, advance):
                left -= len(table)
                queue.append(pool.submit(_statistics, table, plan, start, stop))
                # In order, so that the sums are the same to the last bit however the threads are scheduled.
                if len(queue) > workers:
                    total = total + queue.popleft().result()
            if left:
                raise DataError(f"{plan.where}: expected {span[2]} rows, got {span[2] - left}; did the file change?")
        return sum((piece.result() for piece in queue), total)


def _span(plan: _Plan, advance: Callable[[int], None]) -> _Span:
    pieces = (_times(table, plan) for table in _tables(plan, [plan.time], advance))
    spans = [(float(times.min()), float(times.max()), len(times)) for times in pieces]
    if not spans:
        raise DataError(f"{plan.where}: expected measurements, the file is empty")
    return _hull(spans)


def _footer(plan: _Plan) -> _Span | None:
    """Return what the footer of a Parquet file says of its times, at no cost; None where that is nothing, or odd."""
    try:
        footer = import_module("pyarrow.parquet").read_metadata(plan.where)
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        names = [groups[0].column(number).path_in_schema for number in range(footer.num_columns)]
        kept = [(group.column(names.index(plan.time)).statistics, group.num_rows) for group in groups]
        spans = [(float(item.min), float(item.max), rows) for item, rows in kept if not item.null_count]
        return _hull(spans) if len(spans) == len(groups) and np.isfinite(spans).all() else None
    except (ImportError, OSError, ValueError, TypeError, IndexError, AttributeError):
        return None


def _tables(plan: _Plan, columns: list[str], advance: Callable[[int], None]) -> Iterator[Any]:
    with _reading(plan.where) as polars:
        for table in filter(len, _scan(polars, plan.where, columns).collect_batches(chunk_size=_ROWS, lazy=True)):
            advance(len(table))
            yield table


def _scan(polars: Any, path: str, columns: Sequence[str] = ()) -> Any:
    """Return the columns of a file as a lazy table; without columns all of them, to see their kinds."""
    if path.lower().endswith(".parquet"):
        table = polars.scan_parquet(path, glob=False, hive_partitioning=False)
    else:
        kinds = dict.fromkeys(columns, polars.Float64)
        options = {"null_values": _MISSING, "schema_overrides": kinds, "try_parse_dates": not columns}
        table = polars.scan_csv(path, glob=False, **options)
    return table.select(columns) if columns else table


@contextmanager
def _reading(path: str) -> Iterator[Any]:
    """Lend polars, and turn what goes wrong inside a file into an error that names the file."""
    try:
        polars = import_module("polars")
    except ImportError:
        raise LodekitError("files are read with polars, which is missing; try: pip install polars") from None
    try:
        yield polars
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError) as error:
        raise DataError(f"{path}: cannot be read, {[*str(error).splitlines(), ''][0]}") from error


def _is_dask(source: object) -> bool:
    # Whoever holds a Dask DataFrame has imported Dask: no need to do so here.
    return isinstance(source, getattr(sys.modules.get("dask.dataframe"), "DataFrame", ()))


def _read_dask(frame: Any, plan: _Plan) -> Statistics:
    """Return the statistics of a Dask DataFrame; pure functions of partitions, so lost work is simply done again."""
    dask = import_module("dask")
    start, stop = dask.compute(frame[plan.time].min(), frame[plan.time].max())
    if not np.isfinite([start, stop]).all():
        raise DataError(f"{plan.where}: expected finite times in column {plan.time}, got {start} to {stop}")
    total = Statistics.empty(start, stop)
    count, join = dask.delayed(_statistics, pure=True), dask.delayed(partial(sum, start=total), pure=True)
    level = [count(part, plan, total.start, total.stop) for part in frame[plan.columns].to_delayed()]
    while len(level) > 1:
        level = [join(level[first : first + 8]) for first in range(0, len(level), 8)]
    piece: Statistics = level[0].compute()
    return total + piece
