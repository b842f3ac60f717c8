"""Preview of a data file: its columns, the time column, and columns that look like inputs (piecewise constant)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from lodekit.data.records import find_gaps
from lodekit.data.tables.cells import find_failure_values, normalize_missing, parse_mostly_numbers, parse_number_columns
from lodekit.data.tables.columns import (
    IGNORED_COLUMN,
    ColumnMapping,
    format_column_list,
    have_number_names,
    is_time_name,
    unit_from_name,
)
from lodekit.data.tables.dates import Durations, Timestamps, detect_date_format, is_date, parse_dates
from lodekit.data.tables.reader import (
    TIME_OF_DAY,
    TableSchema,
    TableSource,
    TimeOrder,
    UniformlySampledTable,
    open_table,
)
from lodekit.data.tables.strings import RowLocations, StringColumn, prefix_errors
from lodekit.errors import DataError
from lodekit.support.arguments import Array
from lodekit.support.units import format_duration, unix_time_unit


def describe_steps(values: Array) -> str:
    """Return why a series looks like an input (held between jumps, or switched), in words; empty if it does not.

    Shapes: values (n,).

    Examples
    --------
    >>> describe_steps(np.array([0.0, 1.5, 1.5, 0.0, 1.5, 0.0, 0.0, 1.5, 0.0]))
    'takes two values only, 0 and 1.5'
    >>> describe_steps(np.repeat([20.0, 35.0, 25.0, 30.0], 3))
    'keeps each value for about 3 rows'
    >>> describe_steps(np.round(np.sin(np.arange(0, 6, 0.01)), 1))  # a sensor with a coarse display
    ''
    """
    if len(values) < 8 or not (span := float(np.ptp(values))) > 1e-9 * float(np.max(np.abs(values))):
        return ""
    return (
        _describe_two_values(values, span)
        or _describe_piecewise_constant(values, span)
        or _describe_two_levels(values, span)
        or _describe_isolated_jumps(values, span)
    )


def describe_off_periods(values: Array) -> str:
    """Return that a series is often exactly zero, as powers, flows and solar radiation are; empty if it is not.

    Shapes: values (n,).

    Examples
    --------
    >>> describe_off_periods(np.array([0.0, 0.0, 0.0, 5.1, 4.2, 0.0, 0.0, 0.0, 3.9, 4.4, 0.0, 0.0, 0.0]))
    'is switched off repeatedly (zero in 69 % of the rows)'
    """
    off = values == 0
    if not len(values) or not 0.2 <= np.mean(off) < 1 or (values.min() < 0 < values.max()):
        return ""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], off.astype(int), [0]])))
    if np.sum(edges[1::2] - edges[::2] >= 3) < 3:  # three runs of three rows
        return ""
    # A signal that crosses zero, or settles there, has small values before and after.
    others = np.abs(values[~off])
    if np.median(others) < 0.1 * others.max():
        return ""
    return f"is switched off repeatedly (zero in {100 * np.mean(off):.0f} % of the rows)"


def _describe_two_values(values: Array, span: float) -> str:
    """Detect exactly two values, with any number of switches."""
    high = values > values.min() + 0.5 * span
    if np.ptp(values[high]) > 0 or np.ptp(values[~high]) > 0 or min(np.sum(high), np.sum(~high)) < 2:
        return ""
    return f"takes two values only, {values.min():.6g} and {values.max():.6g}"


def _describe_two_levels(values: Array, span: float) -> str:
    """Detect two levels with little noise and at least three switches: a quick response may pass between them once."""
    high = values > values.min() + 0.5 * span
    below, above = values[~high], values[high]
    if np.sum(high[1:] != high[:-1]) < 3 or min(len(below), len(above)) < 2:
        return ""
    lower, upper = float(np.mean(below)), float(np.mean(above))
    if max(float(np.std(below)), float(np.std(above))) > 0.05 * (upper - lower):
        return ""
    return f"switches between two levels, about {lower:.3g} and {upper:.3g}"


def _describe_piecewise_constant(values: Array, span: float) -> str:
    """Detect constant stretches separated by single jumps.

    A coarsely quantised sensor is constant as well, but moves to the next value that occurs; a sensor that is slower
    than its log moves in small steps; and a quick response changes in several consecutive rows.
    """
    changes = np.abs(np.diff(values))
    moved = changes > 0
    if np.mean(~moved) < 0.5:
        return ""
    padded = np.pad(moved, 1)
    lonely = moved & ~padded[:-2] & ~padded[2:]
    large = lonely & (changes > 0.15 * span)
    if np.sum(changes[large] ** 2) < 0.8 * np.sum(changes**2):
        return ""
    ranks = np.unique(values, return_inverse=True)[1]
    if np.mean(np.abs(np.diff(ranks))[moved] > 1) < 0.2:  # few changes skip a value that occurs
        return ""
    return _describe_hold_length(len(values), int(np.sum(moved)))


def _describe_isolated_jumps(values: Array, span: float) -> str:
    """Detect jumps that are far larger than the changes around them, with noise in between."""
    changes = np.abs(np.diff(values))
    # Compare each change with the two before and the two after it.
    inner = changes[2:-2]
    around = np.max([changes[:-4], changes[1:-3], changes[3:-1], changes[4:]], axis=0)
    found = (inner > 0.15 * span) & (around < 0.2 * inner)
    jumps = inner[found]
    if not len(jumps) or np.sum(jumps**2) <= 0.5 * np.sum(changes**2) or jumps.min() <= 10 * np.median(changes):
        return ""
    # A signal that drifts as much as it jumps is a disturbed sensor, not an input.
    pieces = np.split(values, np.flatnonzero(found) + 3)
    drift = np.sqrt(np.mean(np.concatenate([piece - np.median(piece) for piece in pieces]) ** 2))
    return _describe_hold_length(len(values), len(jumps)) if drift < 0.1 * span else ""


def _describe_hold_length(count: int, jumps: int) -> str:
    return f"keeps each value for about {round(count / (jumps + 1))} rows"


@dataclass(frozen=True)
class ColumnPreview:
    """Preview of one column.

    name: The name in the file; a number without a header.
    number: Counted from one.
    unit: The unit in the name; empty if there is none.
    input_evidence: Why the column looks like an input, in words; empty if it does not.
    is_constant: Whether all its values are the same.
    problem: Why it cannot be read although most cells are numbers, in words.
    failures: Repeated numbers that loggers write for failures.
    """

    name: str
    number: int
    unit: str = ""
    input_evidence: str = ""
    is_constant: bool = False
    problem: str = ""
    failures: tuple[float, ...] = ()


@dataclass(frozen=True)
class TablePreview:
    """Preview of a table.

    names: All columns.
    columns: Numeric columns other than the time and the record.
    time: None if no column can be the time.
    time_reason: Why this column is the time, in words.
    has_header: Whether columns have names of their own.
    n_rows: How many rows the file has.
    record_column: A column that changes where times restart; empty if there is none.
    skipped_columns: Other columns, and what they contain.
    clock_change: The first date at which local times jump by an hour; empty if there is none.
    gaps: The number of gaps and the longest one, in words; empty if there are none.
    """

    names: tuple[str, ...]
    columns: tuple[ColumnPreview, ...]
    time: ColumnPreview | None
    time_reason: str
    has_header: bool
    n_rows: int
    record_column: str = ""
    skipped_columns: Mapping[str, str] = field(default_factory=dict)
    clock_change: str = ""
    gaps: str = ""


def preview_table(path: str | Path, header: bool | None = None, time_column: str = "") -> TablePreview:
    r"""Return a preview of the columns of a file from its first rows; the time column is found if it is not given.

    Examples
    --------
    >>> import tempfile
    >>> rows = [f"{k},{k // 5 % 2},{k * k % 7}.5,ok" for k in range(20)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "log.csv").write_text("\n".join(["time [s],valve,level [m],state", *rows]))
    ...     look = preview_table(Path(folder, "log.csv"))
    >>> look.time.name, [(column.name, column.unit, column.input_evidence) for column in look.columns]
    ('time [s]', [('valve', '', 'takes two values only, 0 and 1'), ('level [m]', 'm', '')])
    >>> look.skipped_columns
    {'state': 'contains no numbers'}
    """
    place = Path(path).expanduser()
    with prefix_errors(str(place)):
        source = open_table(place, header)
        read = {name: read_numeric_column(source, name) for name in source.names}
        found = {name: values for name, (values, _) in read.items()}
        if not any(len(values) for values in found.values() if values is not None):
            what = "the columns" if source.count_rows(1) else "no rows below the header"
            raise DataError(f"expected columns of numbers, got {what} {format_column_list(source.names)}")
        time, why = _detect_time_column(source, found)
        if time_column in (IGNORED_COLUMN, *source.names):
            time, why = None if time_column == IGNORED_COLUMN else time_column, "chosen by you"
        if time is not None and found[time] is None:
            # Ambiguous dates are rejected here as they are by a fit.
            with prefix_errors(f"column {time}"):
                detect_date_format(normalize_missing(block(time, ())[0][time]) for block in source.blocks([time]))
    record = "" if time is None else _detect_record_column(source, found, time)
    columns, left_out = [], {}
    for number, (name, values) in enumerate(found.items(), 1):
        if name in (time, record, TIME_OF_DAY):
            continue
        if values is None or not np.isfinite(values).any():
            empty = "contains dates" if holds_dates(source, name) else "contains no numbers"
            left_out[name] = empty if values is None else "contains no values"
            continue
        failures = find_failure_values(values)
        known = values[np.isfinite(values) & ~np.isin(values, failures)]
        evidence = describe_steps(known) or describe_off_periods(known)
        same = bool(np.ptp(known) == 0)
        columns.append(ColumnPreview(name, number, unit_from_name(name), evidence, same, read[name][1], failures))
    count = max(len(values) for values in found.values() if values is not None)
    described, change, gaps = None, "", ""
    if time is not None:
        unit, change, gaps = _describe_times(source, time)
        problem = "" if found[time] is not None or holds_dates(source, time) else read[time][1]
        described = ColumnPreview(time, source.names.index(time) + 1, unit, problem=problem)
    if sum(1 for _ in islice(source.blocks(source.names[:1]), 2)) > 1:
        # Records of such a size are not split at gaps.
        count, gaps = source.count_rows(np.inf), ""
    names, has_header = tuple(source.names), not have_number_names(source.names)
    return TablePreview(names, tuple(columns), described, why, has_header, count, record, left_out, change, gaps)


def _read_column(source: TableSource, name: str) -> tuple[Any, RowLocations]:
    """Return the first block of a column, and the locations of its rows."""
    block = next(source.blocks([name]), None)
    if block is None:
        return np.empty(0), RowLocations("row", np.empty(0, dtype=np.int64))
    content, locations = block(name, ())
    return content[name], locations


def read_numeric_column(source: TableSource, name: str) -> tuple[Array | None, str]:
    """Return the first numbers of a column (seconds for dates), None if there are none, and why it cannot be read."""
    column, places = _read_column(source, name)
    if isinstance(column, Durations):
        return column.seconds, ""
    if isinstance(column, Timestamps):
        return column.seconds_since(column.first), ""
    if not isinstance(column, StringColumn):
        return np.array(column, dtype=float), ""
    try:
        return parse_number_columns({name: column}, places, source.separator)[0][name], ""
    except DataError as problem:
        return parse_mostly_numbers(column), str(problem)


def _detect_time_column(source: TableSource, found: Mapping[str, Array | None]) -> tuple[str | None, str]:
    """Return the time column and the reason; its name is tried first, then dates, then increasing numbers."""
    named = [name for name in source.names if is_time_name(name)]
    if len(named) == 1:
        return named[0], "recognised by its name"
    dated = [name for name in named or source.names if holds_dates(source, name)]
    if dated:
        return dated[0], "its cells are dates"
    for name in named or source.names:
        values = found[name]
        if values is not None and len(values) > 2 and (np.diff(values) > 0).all():
            return name, "its numbers always increase"
    return None, ""


def _describe_times(source: TableSource, name: str) -> tuple[str, str, str]:
    """Return the unit of times, where local times jump, and their gaps; the last two are empty if there are none.

    The unit of dates is hours if rows are a minute or more apart.
    """
    unit, change, unix = unit_from_name(name, is_time=True), "", find_unix_times(source, name)
    times, _ = read_numeric_column(source, name)
    if is_dated := holds_dates(source, name):
        column, places = _read_column(source, name)
        dates = parse_dates(normalize_missing(column), places) if isinstance(column, StringColumn) else column
        times = dates.seconds_since(dates.first)
        schema = TableSchema("", ColumnMapping(name, {}, {}), origin=dates.first)
        change = next((found[0] for found in TimeOrder.from_times(times, schema).clock_changes), "")
    if times is None:
        return unit, change, ""
    times, unit = (times * unix[1], "s") if unix else (times, "s" if is_dated else unit)
    gaps = np.diff(find_gaps(np.unique(times[np.isfinite(times)]))).ravel()
    many = f"{len(gaps)} gaps, the longest of" if len(gaps) > 1 else "a gap of"
    described = f"{many} {format_duration(float(gaps.max()), unit)}" if len(gaps) else ""
    is_slow = (is_dated or unix) and len(times) > 1 and np.median(np.diff(times)) >= 60
    return "h" if is_slow else unit, change, described


def find_unix_times(source: TableSource, name: str) -> tuple[str, float, datetime] | None:
    """Return the unit of Unix times as text and in seconds, and the first date; None for other times."""
    unit, sizes = unit_from_name(name, is_time=True), {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
    if isinstance(source, UniformlySampledTable) or holds_dates(source, name) or unit not in ("", *sizes):
        return None
    numbers, _ = read_numeric_column(source, name)
    if numbers is None or not len(numbers) or not np.isfinite(numbers).all():
        return None
    found = {unix_time_unit(edge, "h") for edge in (numbers.min(), numbers.max())}
    if "" in found or len(found) > 1 or unit not in ("", *found):
        return None
    size = sizes[own := found.pop()]
    return own, size, datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=float(numbers[0] * size))


def holds_dates(source: TableSource, name: str) -> bool:
    """Return whether a column contains dates, judged by its first cells."""
    column, _ = _read_column(source, name)
    if not isinstance(column, StringColumn):
        return isinstance(column, Timestamps)
    cells = normalize_missing(column)
    texts = cells.select(~cells.is_missing).head(3).to_list()
    return bool(texts) and all(is_date(text) for text in texts)


def _detect_record_column(source: TableSource, found: Mapping[str, Array | None], time: str) -> str:
    """Return a column that changes exactly where times decrease; empty if there is none."""
    times = found[time]
    # Times that decrease in most rows are those of a record with the newest row first.
    if times is None or not 0.0 < (back := np.diff(times) < 0).mean() < 0.5:
        return ""
    for name, values in found.items():
        labels: Any = values
        if values is None:
            column, _ = _read_column(source, name)
            texts = normalize_missing(column).to_list() if isinstance(column, StringColumn) else []
            labels = np.array(texts, dtype=object)
        if name != time and len(labels) == len(times) and ((labels[1:] != labels[:-1]) == back).all():
            return name
    return ""
