"""Loading of all data that `fit` accepts: arrays, Observations, Statistics, files, DataFrames.

One reader with the same rules for columns and cells reads files and DataFrames of any kind and size. Up to
`MAX_ROWS_IN_MEMORY` rows are kept in memory; beyond that, only sufficient statistics are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain, pairwise
from typing import Any

import numpy as np

from lodekit.data.noise import NoiseSpecification, parse_noise_std
from lodekit.data.observations import Observations, parse_observations
from lodekit.data.preview import find_unix_times, holds_dates
from lodekit.data.records import DEFAULT_RECORD_NAME, Measurements, RecordSet, describe_records, split_at_gaps
from lodekit.data.row_store import OutOfCoreRows
from lodekit.data.statistics import Statistics
from lodekit.data.streams import accumulate_dask_statistics, accumulate_statistics, iterate_rows
from lodekit.data.tables.cells import NumberFormat, find_failure_values, is_data_cell
from lodekit.data.tables.columns import (
    ArgumentSyntax,
    ColumnMapping,
    check_mapping_names,
    check_mapping_order,
    find_column_conversions,
    is_time_name,
    resolve_columns_of_tables,
    reuse_columns,
    unit_from_name,
)
from lodekit.data.tables.dates import Timestamps, describe_time_type, is_date
from lodekit.data.tables.frames import DataFrameTable, index_to_column, is_dask_dataframe, is_dataframe
from lodekit.data.tables.reader import (
    CLOCK_CHANGE,
    TableSchema,
    TableSource,
    TimeOrder,
    UniformlySampledTable,
    describe_columns,
    describe_file,
    describe_times,
    detect_dates,
    expand_paths,
    merge_notes,
    open_table,
    parse_time_array,
    read_all,
    read_dataframe_columns,
    to_dataframe,
    with_uniform_times,
)
from lodekit.data.tables.strings import prefix_errors
from lodekit.data.time_reference import TimeReference
from lodekit.errors import DataError, EquationError
from lodekit.support.arguments import Array, as_float_array
from lodekit.support.labels import Labels, find_time_zone, format_origin
from lodekit.support.text import join_list
from lodekit.support.units import unix_time_unit


@dataclass(frozen=True)
class ReadOptions:
    """Options of reading tables.

    channels: The channels of the system.
    time: The column of the time in a table; by default the one called t, time, timestamp, date or the like.
    columns: Columns of observables whose names differ: a name, or a number counted from one (the label itself if a
        DataFrame labels its columns with numbers). ``t`` is the time, ``std(f1)`` the known noise of f1.
    recalled: Columns that were used for earlier files: `columns` has priority, and absent columns are ignored.
    header: Whether text files start with the names of their columns; detected by default.
    dt: The sampling interval of a table without times; the first row is at zero.
    default_dt: The same, but ignored if a column is the time.
    records: The column that contains the record of each row: a name, or a number counted from one.
    split_gaps: Whether a record is split at gaps of its rows, or of known inputs.
    inputs: The known inputs, for their gaps.
    timezone: The time zone of dates without one, such as Europe/Berlin.
    missing: Numbers that mark missing values.
    since: The date that is time zero; by default the first date of the first table.
    is_dated: Whether the times of a fitted model are dates; None for a new fit.
    units: The units of channels and of the time ``t`` in the model: columns with another unit in their names are
        converted, or refused.
    window: The first and last time to read, as numbers or dates; None means no limit.
    in_shell: Whether messages name options of the command line instead of Python arguments.
    never: Channels that are never measured, such as disturbances: no column is expected for them.
    check: Called with the names of observables before large files are read; raises if a name is invalid.
    check_units: Called with the units found in column names; raises if a unit is invalid.
    """

    channels: Sequence[str]
    noise: NoiseSpecification = field(default_factory=NoiseSpecification)
    time: str | None = None
    columns: Mapping[str, Any] | None = None
    recalled: Mapping[str, str] = field(default_factory=dict)
    header: bool | None = None
    dt: float | None = None
    default_dt: float | None = None
    records: str | None = None
    split_gaps: bool = False
    inputs: Collection[str] = ()
    timezone: str | None = None
    missing: Any = None
    since: datetime | None = None
    is_dated: bool | None = None
    units: Mapping[str, str] = field(default_factory=dict)
    window: tuple[Any, Any] = (None, None)
    in_shell: bool = False
    never: Sequence[str] = ()
    check: Callable[[Sequence[str]], object] | None = None
    check_units: Callable[[Mapping[str, str]], object] | None = None

    @property
    def measurable_channels(self) -> list[str]:
        """The channels that may be measured."""
        return [name for name in self.channels if name not in self.never]

    @property
    def argument_syntax(self) -> ArgumentSyntax:
        """How messages write arguments: in Python or on the command line."""
        return ArgumentSyntax(in_shell=self.in_shell)

    def check_names(self, names: Sequence[str]) -> None:
        """Raise if a name is not a valid observable."""
        if self.check is None:
            return
        try:
            self.check(names)
        except EquationError as problem:
            # The equations are valid; the name in the data is wrong.
            raise DataError(f"measurements: {problem}") from None


def infer_schemas(tables: Mapping[str, TableSource], options: ReadOptions) -> tuple[list[TableSchema], dict[str, str]]:
    """Return a schema for each table, and the units found in the names of their columns."""
    plans, missing = [], () if options.missing is None else tuple(as_float_array("missing", options.missing).tolist())
    for (where, table), columns in zip(tables.items(), _resolve_all_columns(tables, options), strict=True):
        known = {name: options.noise.known_std(name) for name in columns.values if name not in columns.noise}
        stds = {name: std for name, std in known.items() if std is not None}
        plans.append(TableSchema(where, columns, table.separator, stds, missing=missing))
    observed = list(dict.fromkeys(name for plan in plans for name in plan.columns.values))
    options.check_names(observed)
    for name in options.noise.names:
        if name not in observed and name not in options.channels:
            raise DataError(f"noise_std names {name}, which is not observed; expected one of: {', '.join(observed)}")
    plans = _infer_dates(tables, plans, options)
    plans, units = _infer_units(plans, options.units)
    if options.check_units is not None and units:
        options.check_units(units)
    return _apply_window(plans, options, units.get("t", "")), units


def _apply_window(plans: Sequence[TableSchema], request: ReadOptions, unit: str) -> list[TableSchema]:
    """Return the schemas with the requested time window."""
    clock = TimeReference(plans[0].origin, request.units.get("t") or unit)
    edges = list(plans[0].window)
    names = ("--from", "--to") if request.in_shell else ("the first time", "the last time")
    for number, (edge, what) in enumerate(zip(request.window, names, strict=True)):
        if edge is not None:
            edges[number] = clock.parse_time(edge, what, is_end=number == 1)
            if number and edges[number] != clock.parse_time(edge, what):
                # The last day ends before midnight.
                edges[number] = np.nextafter(edges[number], -np.inf)
    if not edges[0] <= edges[1]:
        raise DataError(f"expected the first time before the last, got {' and '.join(map(str, request.window))}")
    return [replace(plan, window=(edges[0], edges[1])) for plan in plans]


def _requested_columns(tables: Mapping[str, TableSource], request: ReadOptions) -> dict[str, Any]:
    """Return the requested columns, and those used for earlier files if all tables have them."""
    found = {**request.recalled}
    for table in tables.values():
        found = reuse_columns(found, [str(name) for name in table.names])
    if request.time is not None or any(isinstance(table, UniformlySampledTable) for table in tables.values()):
        found.pop("t", None)
    asked = dict(request.columns or {})
    taken = {str(column) for column in asked.values()}
    return {name: column for name, column in found.items() if column not in taken} | asked


def _resolve_all_columns(tables: Mapping[str, TableSource], request: ReadOptions) -> list[ColumnMapping]:
    """Return the columns to read from each table: requested columns, and columns found by name."""
    noise = request.noise
    if request.columns is not None and not isinstance(request.columns, Mapping):
        raise DataError(f"expected columns as a dict of observable to column, got {type(request.columns).__name__}")
    columns = _requested_columns(tables, request)
    mapping = {f"std({name})": column for name, column in noise.std_columns.items()}
    for key, column in columns.items():
        if mapping.setdefault(key, column) != column:
            raise DataError(f"{key} is assigned to column {mapping[key]} and to column {column}; choose one")
    present = chain(*(table.names for table in tables.values()))
    check_mapping_order(columns, present, request.channels, request.argument_syntax)
    if request.check is not None:
        check_mapping_names(columns, request.channels, request.argument_syntax)
    # Report an invalid observable before a missing column.
    request.check_names([key for key in columns if key != "t" and not str(key).startswith("std(")])
    time = request.time
    if any(isinstance(table, UniformlySampledTable) for table in tables.values()):
        if time is not None or "t" in mapping:
            raise DataError("the time is given both by a column and by a sampling interval; choose one")
        time = UniformlySampledTable.time
    names = {where: table.names for where, table in tables.items()}
    if time is None and "t" not in mapping and not any(map(is_time_name, chain(*names.values()))):
        # If only one column contains dates, it is the time, whatever its name.
        dates = [[name for name in table.names if holds_dates(table, name)] for table in tables.values()]
        time = dates[0][0] if len(dates[0]) == 1 and dates.count(dates[0]) == len(dates) else None
    by_number = all(table.allows_column_numbers for table in tables.values())
    how: dict[str, Any] = {"allow_numbers": by_number}
    found = resolve_columns_of_tables(names, request.channels, mapping, time, syntax=request.argument_syntax, **how)
    if (record := request.records) is not None:
        pairs = zip(found, names.values(), strict=True)
        found = [columns.with_record(each, str(record), **how) for columns, each in pairs]
    for name, column in (item for columns in found for item in columns.noise.items()):
        if (number := noise.known_std(name)) is not None:
            raise DataError(
                f"the noise of {name} is given as {number:g} (noise_std, or [noise] in the system file), and in "
                f"column {column}; remove one of them"
            )
    return found


def _infer_dates(
    tables: Mapping[str, TableSource], plans: Sequence[TableSchema], options: ReadOptions
) -> list[TableSchema]:
    """Return the schemas with the formats of their dates and one common origin."""
    dated, firsts, since = [], [], options.since
    zone = find_time_zone(options.timezone) if options.timezone else since.tzinfo if since else None
    others = [(table, plan.columns.time) for table, plan in zip(tables.values(), plans, strict=True)]
    for table, plan in zip(tables.values(), plans, strict=True):
        with prefix_errors(plan.table_name):
            own, first = detect_dates(table, plan, others)
            if unix := None if own.time_unit else find_unix_times(table, plan.columns.time):
                unit, seconds, start = unix
                if options.is_dated is not False:
                    note = f"times in column {plan.columns.time} are Unix times in {unit}"
                    own = replace(own, unix_seconds=seconds, time_unit="s", notes=(note,))
                    first = start.astimezone(zone or UTC)
                elif unix_time_unit(1.5e9 / seconds, options.units.get("t", "")):
                    raise DataError(f"expected times as numbers, like those of the fit, got Unix times in {unit}")
            if first is not None and options.is_dated is False:
                raise DataError("expected times as numbers, like those of the fit, got dates")
        dated.append(own)
        # Dates without a time zone use the given zone, or that of the origin.
        firsts.append(first.replace(tzinfo=zone) if first is not None and first.tzinfo is None else first)
    origin = firsts[0] if since is None or firsts[0] is None else since
    for plan, first in zip(dated, firsts, strict=True):
        if describe_time_type(first) != describe_time_type(origin):
            expected, got = describe_time_type(origin), describe_time_type(first)
            where = f"in column {plan.columns.time}, as elsewhere"
            if plan.unix_seconds:
                got = "Unix times, which are dates in UTC; give the time zone of the dates for the fit (--timezone)"
            raise DataError(f"{plan.table_name}: expected {expected} {where}, got {got}")
    return [replace(plan, origin=origin) for plan in dated]


def _infer_units(plans: Sequence[TableSchema], declared: Mapping[str, str]) -> tuple[list[TableSchema], dict[str, str]]:
    """Return the schemas with their unit conversions, and the undeclared units found in column names."""
    declared = {name: unit.strip() for name, unit in declared.items() if unit.strip()}
    converted, from_headers = [], dict[str, str]()
    for plan in plans:
        time_unit = plan.time_unit or unit_from_name(plan.columns.time, is_time=True)
        with prefix_errors(plan.table_name):
            conversions, notes = find_column_conversions(plan.columns, time_unit, declared, from_headers)
        converted.append(replace(plan, conversions=conversions, notes=(*plan.notes, *notes)))
    return converted, from_headers


def check_time_order(
    schemas: Sequence[TableSchema], orders: Sequence[TimeOrder], syntax: ArgumentSyntax
) -> list[list[str]]:
    """Return notes about the times of each table; raise if a column is not a time, or if files overlap in time."""
    notes = []
    for plan, order in zip(schemas, orders, strict=True):
        mapping = syntax.column_mapping({"t": "COLUMN"})
        remedy = f"specify the time column, {mapping}, or {syntax.time_step} if there is none"
        with prefix_errors(plan.table_name):
            notes.append(order.check(plan.columns.time, remedy, syntax.record_column))
    filled = [(order, plan) for order, plan in zip(orders, schemas, strict=True) if order.count]
    for name in dict.fromkeys(name for plan in schemas for name in plan.columns.values):
        own = sorted((order.low, order.high, plan.table_name) for order, plan in filled if name in plan.columns.values)
        for (_, high, first), (low, _, second) in pairwise(own):
            if low < high:
                raise DataError(
                    f"{second}: expected files one after the other in time, and {name} is measured in {first} at the "
                    f"same time. Only pieces of one record are read together ({syntax.file_group}); separate "
                    f"records are listed one by one, or distinguished by a column, {syntax.record_column}"
                )
    return notes


#: The name of a record, and the tables that belong to it, by their names in messages.
NamedTables = tuple[str, Mapping[str, TableSource]]


def merge_complementary_files(
    groups: Sequence[NamedTables], schemas: Sequence[TableSchema]
) -> tuple[list[NamedTables], list[str]]:
    """Return the records, joined into one if their files measure different channels, and a note if they were joined.

    Files without a common channel belong to one record: a single one of them would identify few parameters.
    """
    seen = [name for plan in schemas for name in plan.columns.values]
    if len(groups) < 2 or len(set(seen)) < len(seen):
        return list(groups), []
    joined = {where: table for _, tables in groups for where, table in tables.items()}
    names = join_list([f"record {name}" if name.isdigit() else name for name, _ in groups])
    note = f"{names} measure different channels, so they are read as one record"
    return [(DEFAULT_RECORD_NAME, joined)], [note]


def read_records(
    groups: Sequence[NamedTables], schemas: Sequence[TableSchema], options: ReadOptions, *, large: bool
) -> tuple[dict[str, Measurements], tuple[str, ...]]:
    """Return the measurements of each record, and notes about the files."""
    if options.records is not None:
        if large:
            raise DataError(
                "expected one record in each file, as files of this size are read in pieces, got "
                f"{options.argument_syntax.record_column}; write a file for each record"
            )
        return _read_records_by_label({w: table for _, own in groups for w, table in own.items()}, schemas, options)
    records, notes, first = dict[str, Measurements](), [], 0
    for name, tables in groups:
        own = schemas[first : first + len(tables)]
        first += len(tables)
        read = _read_out_of_core if large else _read_in_memory
        records[name], orders, found = read(tables, own, options)
        for said, more in zip(found, check_time_order(own, orders, options.argument_syntax), strict=True):
            said.extend(more)
        notes += found
    pieces = ["read in pieces, as there are too many rows to keep all of them in memory"] if large else []
    return records, (*pieces, *merge_notes(schemas, notes))


def _read_records_by_label(
    tables: Mapping[str, TableSource], plans: Sequence[TableSchema], request: ReadOptions
) -> tuple[dict[str, Measurements], tuple[str, ...]]:
    """Return the records that the values of a column distinguish; a record may continue in the next table."""
    found: dict[str, Observations] = {}
    pieces: dict[str, list[tuple[TableSchema, TimeOrder]]] = {}
    notes = []
    for table, plan in zip(tables.values(), plans, strict=True):
        with prefix_errors(plan.table_name):
            content = read_all(table, plan, request.measurable_channels)
            labels = np.zeros(0, dtype=object) if content.labels is None else content.labels
            for label in dict.fromkeys(labels.tolist()):
                rows = labels == label
                own = found.get(label, Observations())
                for name, values in content.values.items():
                    std = content.noise[name][rows] if name in content.noise else plan.known_noise.get(name)
                    own = own.add(content.times[rows], name, values[rows], std)
                found[label] = own
                part = replace(plan, table_name=f"{plan.table_name}, record {label}")
                pieces.setdefault(label, []).append((part, TimeOrder.from_times(content.times[rows], plan)))
        notes.append(list(content.notes))
    for own_pieces in pieces.values():
        own_plans, own_orders = zip(*own_pieces, strict=True)
        notes[-1] += [note for own in check_time_order(own_plans, own_orders, request.argument_syntax) for note in own]
    filled = {label: own for label, own in found.items() if len(own)}
    if not filled:
        raise _no_values_error(plans, [order for own_pieces in pieces.values() for _, order in own_pieces], request)
    records = {label: Measurements.from_observations(own) for label, own in filled.items()}
    return records, merge_notes(plans, notes)


_ReadResult = tuple[Measurements, list[TimeOrder], list[list[str]]]


def _read_in_memory(
    tables: Mapping[str, TableSource], plans: Sequence[TableSchema], request: ReadOptions
) -> _ReadResult:
    observations, notes, orders = Observations(), [], []
    for table, plan in zip(tables.values(), plans, strict=True):
        with prefix_errors(plan.table_name):
            table_data = read_all(table, plan, request.measurable_channels)
            for name, values in table_data.values.items():
                std = table_data.noise.get(name, plan.known_noise.get(name))
                observations = observations.add(table_data.times, name, values, std)
        notes.append(list(table_data.notes))
        orders.append(TimeOrder.from_times(table_data.times, plan))
    notes[-1] += _describe_empty_channels(observations)
    if not len(observations):
        whole = [replace(plan, window=(-np.inf, np.inf)) for plan in plans]
        times = [read_all(table, plan, ()).times for table, plan in zip(tables.values(), whole, strict=True)]
        raise _no_values_error(plans, orders, request, np.concatenate(times))
    return Measurements.from_observations(observations), orders, notes


def _read_out_of_core(
    tables: Mapping[str, TableSource], plans: Sequence[TableSchema], request: ReadOptions
) -> _ReadResult:
    sources, found, spooled = list(tables.values()), [NumberFormat()], None
    if isinstance(sources[0], DataFrameTable) and sources[0].is_distributed:
        sums, found[0], order = accumulate_dask_statistics(sources[0], plans[0])
        orders = [order]
    else:
        sums, found, orders = accumulate_statistics(sources, plans)
        noisy = tuple(name for name in sums.observables if any(name in plan.columns.noise for plan in plans))
        # A file may contain channels that earlier files do not have.
        known = {name: std for plan in plans for name, std in plan.known_noise.items()}
        spooled = OutOfCoreRows(sums.observables, known, noisy, partial(iterate_rows, sources, plans))
    if not sums.size:
        raise _no_values_error(plans, orders, request)
    notes = []
    for table, plan, numerals in zip(sources, plans, found, strict=True):
        with prefix_errors(plan.table_name):
            about = describe_file(table, numerals)
        empty = {name for name in plan.columns.values if name not in sums.observables}
        own = describe_columns(table.names, plan.columns, request.measurable_channels, empty)
        notes.append([*about, *describe_times(plan), *own])
    return Measurements(sufficient_statistics=sums, stored_rows=spooled), orders, notes


def _no_values_error(
    plans: Sequence[TableSchema], orders: Sequence[TimeOrder], request: ReadOptions, times: Array | None = None
) -> DataError:
    observed = dict.fromkeys(name for plan in plans for name in plan.columns.values)
    where = f"{plans[0].table_name}: " if len(plans) == 1 else ""
    if plans[0].has_window and not any(order.count for order in orders):
        clock = TimeReference(plans[0].origin, request.units.get("t") or plans[0].time_unit)
        first, last = (clock.format_times(edge) if np.isfinite(edge) else "" for edge in plans[0].window)
        window = " ".join([*(["from", first] if first else []), *(["until", last] if last else [])])
        covered = "" if times is None else f"; the rows are between {clock.format_times(times.min(), times.max())}"
        return DataError(f"{where}expected rows {window}, found none{covered}")
    return DataError(f"{where}expected at least one value of {', '.join(observed)}, every cell is missing")


def list_records(source: Any, Y: Any) -> list[Any] | None:
    """Return the records of a list: files, tables, or times with values; None if the source is not such a list."""
    if Y is not None or not isinstance(source, list | tuple) or not len(source) or not _item_type(source[0]):
        return None
    kinds = [_item_type(item) for item in source]
    if "" in kinds or ("values" in kinds and len(set(kinds)) > 1):
        number = kinds.index("") if "" in kinds else next(k for k, kind in enumerate(kinds) if kind != kinds[0])
        raise DataError(
            "expected a list of records that are all files and tables, or all times with values, as (t, Y) or "
            f"Observations; got {type(source[number]).__name__} as number {number} of the list, counted from zero"
        )
    return list(source)


def _item_type(item: Any) -> str:
    """Return the type of a list item: "table" (or a list of its files), "values", or "" if it is neither."""
    if isinstance(item, str | os.PathLike):
        return "table"
    if isinstance(item, Observations | Statistics):
        return "values"
    if isinstance(item, list | tuple) and len(item):
        if all(isinstance(each, str | os.PathLike) for each in item):
            return "table"
        return "values" if 2 <= len(item) <= 3 and np.ndim(item[0]) > 0 else ""
    is_table = is_dask_dataframe(item) or is_dataframe(item) or isinstance(item, Mapping)
    is_table |= isinstance(item, np.ndarray) and item.dtype.names is not None
    is_table |= hasattr(item, "to_dataframe") or (hasattr(item, "to_frame") and hasattr(item, "index"))
    return "table" if is_table else ""


def open_records(items: Sequence[Any], options: ReadOptions) -> list[tuple[str, dict[str, TableSource]]] | None:
    """Return the tables of several records, each with its name; None if the items are times with values."""
    if _item_type(items[0]) == "values":
        return None
    paths = [isinstance(item, str | os.PathLike) for item in items]
    short = [os.path.basename(os.fsdecode(item)) if is_path else "" for item, is_path in zip(items, paths, strict=True)]
    found, seen = [], set[str]()
    for number, (item, is_path) in enumerate(zip(items, paths, strict=True)):
        tables = open_tables(item, None, options) or {}
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


def open_tables(source: Any, Y: Any, options: ReadOptions) -> dict[str, TableSource] | None:
    """Return the tables of one record by name, in order; None if the source is not a table."""
    items = list(source) if isinstance(source, list | tuple) and len(source) else [source]
    is_path = all(isinstance(item, str | os.PathLike) for item in items)
    if Y is not None:
        # Strings beside values are times if they are dates.
        if not is_path or all(isinstance(item, str) and is_date(item) for item in items):
            return None
        if is_data_cell(str(items[0])):
            raise DataError(f"expected times as numbers or dates, got texts such as {items[0]!r}; convert them first")
        raise DataError("expected files or a DataFrame alone: they already contain times and values")
    is_table = not is_path and not isinstance(source, Observations | Statistics)
    own = to_dataframe(source, options.channels) if is_table else None
    if not is_path and own is None and not is_dask_dataframe(source):
        return None
    if options.header is not None and not is_path:
        raise DataError("header= is about text files; expected none with a DataFrame")
    tables: dict[str, TableSource] = {}
    if is_dask_dataframe(source):
        tables["the Dask DataFrame"] = DataFrameTable(index_to_column(source))
    elif not is_path:
        tables["the DataFrame"] = DataFrameTable(own)
    for path in expand_paths(items) if is_path else ():
        with prefix_errors(path):
            single = options.dt is not None or options.default_dt is not None
            tables[path] = open_table(path, options.header, single_column=single)
    has_times = "t" in (options.columns or {}) or any(is_time_name(n) for own in tables.values() for n in own.names)
    dt = options.default_dt if options.dt is None and not has_times else options.dt
    return tables if dt is None else with_uniform_times(tables, dt, options.argument_syntax)


#: With more rows than this in all files together, tables are read in blocks and only sums are kept.
MAX_ROWS_IN_MEMORY = 2_000_000


@dataclass(frozen=True)
class LoadedData:
    """Measurements, and information about the source that was read.

    origin: The date of time zero; None if times are numbers.
    notes: Findings about the files, as sentences.
    units: Units of channels and of the time ``t``, if the data contain them.
    requested_columns: Requested columns of channels and of the time ``t``.
    reading: Options for other files of this kind: ``default_dt``, ``missing`` and ``split_gaps``.
    warnings: Those of the notes that are warnings of a fit.
    """

    measurements: Measurements
    origin: datetime | None = None
    notes: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    requested_columns: Mapping[str, str] = field(default_factory=dict)
    reading: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def plain_notes(self) -> tuple[str, ...]:
        """The notes that are not warnings."""
        return tuple(note for note in self.notes if note not in self.warnings)

    @property
    def labels(self) -> dict[str, Any]:
        """Labels of the model that follow from the data: units, columns, and the origin of time if there are dates."""
        texts = format_origin(self.origin), self.requested_columns, self.reading, "\n".join(self.warnings)
        labels = Labels("", self.units, *texts)
        return labels.to_dict() if labels != Labels() else {}


def load_data(
    source: Any, Y: Any = None, channels: Sequence[str] = (), *, noise_std: Any = None, **how: Any
) -> LoadedData:
    r"""Return measurements from anything that `fit` accepts.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "log.csv").write_text("date;T [K]\n01.03.2026 12:00;293,5\n01.03.2026 12:01;293,25\n")
    ...     found = load_data(folder + "/*.csv", channels=["T"])
    >>> found.measurements.series[0].times.tolist(), found.origin
    ([0.0, 60.0], datetime.datetime(2026, 3, 1, 12, 0))
    """
    request = ReadOptions(channels, **how)
    if not isinstance(request.split_gaps, bool):
        raise DataError(f"expected split_gaps=True or False, got {request.split_gaps!r}")
    found = _load(source, Y, noise_std, request)
    if not request.split_gaps:
        return found
    parts = split_at_gaps(found.measurements.records, request.inputs)
    notes, whole = [note for note in describe_records(parts) if note not in found.notes], RecordSet.from_records(parts)
    if (lost := _count_outputs(found.measurements, request.inputs) - _count_outputs(whole, request.inputs)) > 0:
        notes.append(f"{lost} measurements in gaps of inputs, or alone between two gaps, are left out")
    reading = {**found.reading, "split_gaps": True}
    return replace(found, measurements=whole, notes=(*notes, *found.notes), reading=reading)


def _count_outputs(measurements: Measurements, inputs: Collection[str]) -> int:
    parts = measurements.records.values()
    return sum(len(item.times) for part in parts for item in part.series if item.observable not in inputs)


def _load(source: Any, Y: Any, noise_std: Any, request: ReadOptions) -> LoadedData:
    """Return measurements from anything that `fit` accepts, grouped into records."""
    channels = request.channels
    if (items := list_records(source, Y)) is not None:
        groups = open_records(items, request)
    else:
        tables = open_tables(source, Y, request)
        groups = None if tables is None else [(DEFAULT_RECORD_NAME, tables)]
    if groups is None:
        # A fitted model remembers the marks of missing values for further files.
        marks = ("missing",) * (request.is_dated is None)
        about = ("time", "columns", "header", "dt", "records", "timezone", *marks)
        if absent := [name for name in about if getattr(request, name) is not None]:
            raise DataError(f"{absent[0]}= is about columns of files or of a DataFrame; expected none with arrays")
        if items is not None:
            return _load_record_list(items, noise_std, request)
        return _load_values(source, Y, noise_std, request)
    request = replace(request, noise=parse_noise_std(noise_std))
    tables = {where: table for _, own in groups for where, table in own.items()}
    plans, told = infer_schemas(tables, request)
    joined, remarks = merge_complementary_files(groups, plans) if request.records is None else (groups, [])
    # If records were joined, a channel without a column in one of them is measured in another.
    elsewhere = [name for plan in plans for name in plan.columns.values] if remarks else []
    options = replace(request, never=(*request.never, *elsewhere))
    records, notes = read_records(joined, plans, options, large=_exceeds_memory_limit(tables))
    kept = {name: unit for name, unit in {**request.units, **told}.items() if name in channels or name == "t"}
    asked = {**({} if request.time is None else {"t": request.time}), **(request.columns or {})}
    places = {name: str(column) for name, column in asked.items()}
    notes = (*remarks, *describe_records(records), *_describe_failures(records, request.argument_syntax), *notes)
    warnings = tuple(note for note in notes if CLOCK_CHANGE in note or FAILED_SENSOR in note)
    steps = [("default_dt", table.step) for table in tables.values() if isinstance(table, UniformlySampledTable)]
    reading = dict([*steps, *[("missing", list(plan.missing)) for plan in plans if plan.missing]])
    return LoadedData(RecordSet.from_records(records), plans[0].origin, notes, kept, places, reading, warnings)


FAILED_SENSOR = "as if a sensor failed"


def _describe_failures(records: Mapping[str, Measurements], syntax: ArgumentSyntax) -> Iterator[str]:
    """Yield a note for each channel with numbers that loggers write for failures."""
    channels = dict[str, dict[str, Array]]()
    for record, part in records.items():
        for item in part.series:
            channels.setdefault(item.observable, {})[record] = item.values
    for channel, parts in channels.items():
        if found := find_failure_values(np.concatenate([*parts.values()])):
            counts = {record: n for record, values in parts.items() if (n := int(np.isin(values, found).sum()))}
            where = f" of record{'s' * (len(counts) > 1)} {join_list([*counts])}" if len(records) > 1 else ""
            yield (
                f"the channel {channel} is {' or '.join(f'{value:g}' for value in found)} in {sum(counts.values())} "
                f"rows{where}, {FAILED_SENSOR}; "
                f"{syntax.missing_values(found)} reads them as missing; correct this first, because other warnings may "
                "follow from it"
            )


def _load_record_list(items: Sequence[Any], noise_std: Any, request: ReadOptions) -> LoadedData:
    """Return records given as values: times and values, Observations, or Statistics."""
    records, first = dict[str, Measurements](), LoadedData(Measurements())
    for number, item in enumerate(items):
        is_pair = isinstance(item, list | tuple)
        t, Y, *own = item if is_pair else (item, None)
        if own and noise_std is not None:
            raise DataError(f"record {number} has its own noise, (t, Y, noise_std); expected no noise_std for all then")
        is_plain = noise_std is None or isinstance(noise_std, Mapping)
        if not is_plain and as_float_array("noise_std", noise_std).size > 1:
            raise DataError("expected one noise_std for several records, or (t, Y, noise_std) for each, got an array")
        with prefix_errors(f"record {number}"):
            found = _load_values(t, Y, own[0] if own else noise_std, request)
        if number and (found.origin, found.units) != (first.origin, first.units):
            raise DataError(f"record {number}: expected times as in the first record: all numbers, or all dates")
        if not number:
            first = found
            # Times of all records have the same origin.
            request = replace(request, since=found.origin, units={**request.units, **found.units})
        records[str(number)] = found.measurements
    return LoadedData(RecordSet.from_records(records), first.origin, tuple(describe_records(records)), first.units)


def _load_values(source: Any, Y: Any, noise_std: Any, request: ReadOptions) -> LoadedData:
    """Return measurements given as values, not as tables."""
    for kind, what in ((LoadedData, "a Source"), (Statistics, "Statistics")):
        if isinstance(source, kind) and (Y is not None or noise_std is not None):
            raise DataError(f"expected {what} alone, which already contains values and noise")
    if isinstance(source, LoadedData):
        request.check_names(source.measurements.names)
        return source
    if isinstance(source, Statistics):
        if not source.size:
            raise DataError("expected at least one measurement; the sums are empty")
        request.check_names(source.observables)
        return LoadedData(Measurements(sufficient_statistics=source))
    clock = TimeReference(request.since, request.units.get("t", ""))
    observations, own = load_arrays(request.channels, source, Y, noise_std, clock, infer_reference=clock.origin is None)
    # A name without values is checked as well: it may be misspelt.
    request.check_names(observations.observables)
    notes, units = _describe_empty_channels(observations), {"t": own.unit} if own.unit else {}
    latest = max((float(item.times.max(initial=0.0)) for item in observations.series), default=0.0)
    if unix := unix_time_unit(latest, own.unit):
        advice = f"pass t as dates, such as pandas.to_datetime(t, unit={unix!r}), or convert it to {own.unit}"
        notes.append(f"times such as {latest:.0f} look like Unix times in {unix}, but are read in {own.unit}; {advice}")
    return LoadedData(Measurements.from_observations(observations), own.origin, tuple(notes), units)


def _describe_empty_channels(observations: Observations) -> list[str]:
    """Return a note for each channel whose values are all missing."""
    measured = {item.observable for item in observations.series if len(item.times)}
    empty = [name for name in observations.observables if name not in measured]
    return [f"all values of {name} are missing: it is treated as not measured" for name in empty]


def load_arrays(
    channels: Sequence[str], t: Any, Y: Any, noise_std: Any, clock: TimeReference, infer_reference: bool = False
) -> tuple[Observations, TimeReference]:
    """Return observations from times and values, and the origin and unit of the times.

    Shapes: t (n,).
    """
    if not isinstance(t, Observations):
        if Y is None:
            got = type(t).__name__
            raise DataError(f"expected values beside the times, fit(t, Y), or a table of both, got {got} alone")
        if isinstance(t, Mapping):
            raise DataError("expected the times first and the values second, (t, Y), got a dict first; exchange them")
        for name, values in Y.items() if isinstance(Y, Mapping) else ():
            index = getattr(values, "index", None)
            if index is not None and type(index) is type(t) and not index.equals(t):
                raise DataError(f"expected {name} with the index t, got another one; align it, or pass an array")
        instants = parse_time_array(t)
        if instants is not None and infer_reference:
            origin = instants.first if isinstance(instants, Timestamps) else None
            clock = TimeReference(origin, clock.unit or "s")
        t = t if instants is None else clock.parse_times(t)
        Y = read_dataframe_columns(Y, channels) if is_dataframe(Y) else Y
    return parse_observations(channels, t, Y, noise_std), clock


def _exceeds_memory_limit(tables: Mapping[str, TableSource]) -> bool:
    count = 0
    for where, table in tables.items():
        with prefix_errors(where):
            count += table.count_rows(MAX_ROWS_IN_MEMORY - count)
        if count > MAX_ROWS_IN_MEMORY:
            return True
    return False
