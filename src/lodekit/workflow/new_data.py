"""New data for a fitted model: records to validate it, inputs to simulate it, and monitored growing files."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from lodekit.data.follow import TableRow, follow_file, follow_pipe, follow_rows
from lodekit.data.sources import LoadedData, ReadOptions, infer_schemas, load_data
from lodekit.data.tables import read_time_list
from lodekit.data.tables.columns import resolve_columns, reuse_columns
from lodekit.data.tables.reader import TableSchema, open_table, read_all
from lodekit.data.tables.strings import prefix_errors
from lodekit.errors import DataError, LodekitError
from lodekit.model import LODEGP
from lodekit.prior.observables import table_checks
from lodekit.results.stream.stream import Stream
from lodekit.support.arguments import Array
from lodekit.support.labels import find_time_zone
from lodekit.support.units import format_duration
from lodekit.uncertainty.forecast_errors import median_step
from lodekit.workflow.pipeline import date_column


def columns_of_fit(gp: LODEGP, path: str | Path) -> dict[str, str]:
    """Return the columns of a model's channels in a file, if they are named as in the file of its fit."""
    if not gp.fit_.labels.columns or not os.path.isfile(path):
        return {}
    return reuse_columns(gp.fit_.labels.columns, open_table(path).names)


def read_options_of_fit(gp: LODEGP, timezone: str | None = None) -> dict[str, Any]:
    """Return the options for reading files for a model: time origin, time zone and units."""
    origin = gp.fit_.clock.origin
    if timezone and origin and origin.tzinfo:
        # Dates without a time zone have that of the origin.
        origin = origin.astimezone(find_time_zone(timezone))
    options = {name: value for name, value in gp.fit_.labels.read_options.items() if name != "recalled"}
    return {**options, "since": origin, "timezone": timezone, "in_shell": True}


def read_record(
    gp: LODEGP,
    path: str | Path | Sequence[str | Path],
    columns: Mapping[str, Any] | None = None,
    dt: float | None = None,
    window: tuple[Any, Any] = (None, None),
    timezone: str | None = None,
) -> LoadedData:
    """Return records from files, in the time and units of a fit; messages name options of the command line."""
    paths = [path] if isinstance(path, str | Path) else list(path)
    columns = {**columns_of_fit(gp, paths[0]), **(columns or {})} or None
    options: dict[str, Any] = {"columns": columns, "dt": dt, "window": window}
    options |= {"inputs": tuple(gp.fit_.measurements.inputs), **table_checks(gp.system)}
    options |= read_options_of_fit(gp, timezone)
    names = [str(each) for each in paths]
    return load_data(names[0] if len(names) == 1 else names, channels=gp.system.plain_channels, **options)


def read_times(gp: LODEGP, path: Path, columns: Mapping[str, str] | None = None) -> Array:
    """Return the times in a file, one per line or in a column of a table, in the time of a fit."""
    clock = gp.fit_.clock
    if (listed := read_time_list(path)) is not None:
        times, origin = listed
        if origin is None:
            return times
        start = clock.parse_time(origin, f"{path}, its first time,")
        return np.asarray(start + clock.conversion_from_seconds.convert_difference(times))
    with prefix_errors(str(path)):
        table = open_table(path)
    own = {name: column for name, column in {**columns_of_fit(gp, path), **(columns or {})}.items() if name == "t"}
    (schema,), _ = infer_schemas({str(path): table}, ReadOptions((), columns=own, **read_options_of_fit(gp)))
    with prefix_errors(str(path)):
        return read_all(table, schema, ()).times


def find_input_columns(gp: LODEGP, path: str | Path, columns: Mapping[str, str] | None = None) -> list[str]:
    """Return the known inputs of a model that have a column in a file."""
    known = list(gp.fit_.measurements.inputs)
    if not known or read_time_list(Path(path)) is not None:
        return []
    own = {**columns_of_fit(gp, path), **(columns or {})}
    columns = {name: column for name, column in own.items() if name in (*known, "t")}
    return list(resolve_columns(open_table(path).names, known, columns).values)


def read_inputs(
    gp: LODEGP, path: str | Path, columns: Mapping[str, str] | None = None, timezone: str | None = None
) -> dict[str, tuple[Any, Any]]:
    """Return times and values of the inputs of a model from a file, in the time of its fit."""
    known = list(gp.fit_.measurements.inputs)
    if not known:
        raise LodekitError("this model has no known inputs; expected one that was fitted with --input u=hold")
    of_fit = {name: column for name, column in columns_of_fit(gp, path).items() if name in (*known, "t")}
    own = of_fit | {name: column for name, column in (columns or {}).items() if name in (*known, "t")}
    options = {"columns": own or None, **read_options_of_fit(gp, timezone)}
    data = load_data(str(path), channels=known, **options).measurements
    if data.sufficient_statistics is not None:
        raise LodekitError(f"{path} has too many rows to be kept; expected fewer")
    return {item.observable: (item.times, item.values) for item in data.series if item.observable in known}


def monitor_rows(
    gp: LODEGP,
    stream: Stream,
    data: Path | IO[bytes],
    columns: Mapping[str, str] | None = None,
    timezone: str | None = None,
    *,
    horizon: float | None = None,
    once: bool = False,
    split_gaps: bool = False,
) -> Iterator[dict[str, Any] | str | None]:
    """Yield one dict for each value of each row as it arrives: time, measurement, prediction, alarm.

    Strings are messages for users. None follows all rows that have arrived so far: then output can be printed. A
    horizon, in the unit of time, adds forecasts that far ahead. With `split_gaps`, a new record starts after each gap.
    """
    #: The fit, or the resumed stream, has used rows up to this time, and this number of rows at this time.
    last_time, rows_at_time, n_skipped = stream.time, stream.filter_state.rows_at_time, 0
    steps = (median_step(item.times) for part in gp.fit_.record_fits for item in part.measurements.series)
    previous, last_step = math.nan if last_time is None else last_time, max(steps, default=0.0) or math.inf
    options = {**table_checks(gp.system), **read_options_of_fit(gp, timezone)}

    def choose_options(names: Sequence[str]) -> ReadOptions:
        places = {**reuse_columns(gp.fit_.labels.columns, names), **(columns or {})}
        return ReadOptions(gp.system.plain_channels, columns=places or None, **options)

    is_file = isinstance(data, Path)
    pieces = follow_file(data, once=once) if isinstance(data, Path) else follow_pipe(data)
    for item in follow_rows(pieces, str(data) if is_file else "standard input", choose_options):
        if isinstance(item, TableSchema):
            yield from _check_schema(gp, stream, item)
        elif isinstance(item, DataError):
            yield f"{item}; skipped"
            yield None
        elif item is None:
            yield None
        elif last_time is not None and (item[1] < last_time or (item[1] == last_time and rows_at_time > 0)):
            rows_at_time -= item[1] == last_time
            n_skipped += 1
        else:
            step, previous = item[1] - previous, item[1]
            if step > 6.0 * last_step and (split_gaps or gp.fit_.measurements.inputs):
                length = format_duration(step, gp.fit_.clock.unit, 3)
                effect = "inputs are assumed constant during the gap, which may cause alarms; try --split-gaps"
                if split_gaps:
                    effect = "a new record starts"
                    stream.start_record()
                yield f"no rows for {length} before {gp.fit_.clock.format_times(item[1])}: {effect}"
            last_step = step if step > 0.0 else last_step
            yield from _push_row(gp, stream, item, horizon)
    if n_skipped and not stream.rows:
        yield (
            f"{n_skipped} rows up to t = {last_time:g} were seen before, and there are no others; use --fresh for a "
            "new record"
        )
    yield None


def _check_schema(gp: LODEGP, stream: Stream, schema: TableSchema) -> Iterator[str]:
    """Raise if columns are missing; yield a message about unused ones."""
    present, inputs, measured = set(schema.columns.values), set(gp.fit_.measurements.inputs), set(stream.observables)
    if missing := sorted(inputs - present):
        raise LodekitError(f"{schema.table_name}: expected a column for the known input {missing[0]}; try --map")
    if not present & measured:
        expected = ", ".join(stream.observables)
        raise LodekitError(f"{schema.table_name}: expected columns measured in the fit, {expected}, got none")
    if unused := sorted(present - inputs - measured):
        yield f"not measured in the fit, and not read: {', '.join(unused)}"


def _push_row(gp: LODEGP, stream: Stream, row: TableRow, horizon: float | None) -> Iterator[dict[str, Any] | str]:
    """Filter one row; yield its values with their predictions, or a message if the row is refused."""
    line_number, time, columns, std = row
    values = {name: value for name, value in columns.items() if name in stream.observables}
    noise = {name: value for name, value in std.items() if name in stream.observables}
    inputs = {name: columns[name] for name in gp.fit_.measurements.inputs}
    try:
        results = stream.push(time, values, inputs, std=noise or None)
    except LodekitError as problem:
        yield f"line {line_number}: {problem}; skipped"
        return
    forecasts: dict[str, dict[str, float]] = {}
    if horizon is not None and results:
        names = list(results)
        mean, std_ahead = stream.predict(time + horizon, names, return_std=True)
        columns_ahead = zip(names, mean[0].tolist(), std_ahead[0].tolist(), strict=True)
        # Like `std`, for measurements: it includes noise.
        forecasts = {n: {"ahead": m, "ahead_std": math.hypot(s, gp.fit_.typical_noise(n))} for n, m, s in columns_ahead}
    date = {key: dates[0] for key, dates in date_column(gp.labels_, [time]).items()}
    for name, result in results.items():
        numbers = {key: getattr(result, key) for key in ("measured", "predicted", "std", "score")}
        alarm = {"alarm": result.alarm or None}
        yield {"t": time, **date, "observable": name, **numbers, **alarm, **forecasts.get(name, {})}
