"""Data files of the studio: their columns and points, the matching of channels, and simulated data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from lodekit.data.preview import TablePreview, preview_table
from lodekit.data.sources import FAILED_SENSOR, load_data
from lodekit.data.tables.columns import IGNORED_COLUMN, resolve_columns
from lodekit.data.time_reference import TimeReference
from lodekit.errors import DataError, LodekitError
from lodekit.results.simulation import simulate
from lodekit.studio.session import PROPOSED_KIND, ColumnAssignment
from lodekit.support.arguments import Array
from lodekit.system.catalog import Example
from lodekit.system.system import System
from lodekit.workflow.pipeline import to_csv
from lodekit.workflow.system_proposal import ColumnRole, guess_column_roles


@dataclass(frozen=True, eq=False)
class DataFile:
    """The contents of a data file.

    preview: The contents of its columns.
    records: The points of each drawn column, by record; a single record has an empty name.
    window: The first and the last time.
    clock: The unit of time, and the date of time zero if times are dates.
    notes: Notes on the file, as sentences.
    error: Why its points cannot be read; empty if they can.
    """

    path: Path
    preview: TablePreview
    records: Mapping[str, Mapping[str, tuple[Array, Array]]]
    window: tuple[float, float]
    clock: TimeReference = field(default_factory=TimeReference)
    notes: tuple[str, ...] = ()
    error: str = ""

    def points(self, record: str = "") -> Mapping[str, tuple[Array, Array]]:
        """Return the points of each column in a record; in the first record if none has this name."""
        return self.records.get(record, next(iter(self.records.values()), {}))

    @property
    def has_one_time_axis(self) -> bool:
        """Whether all records are parts of one log, so that windows mean the same in each."""
        return not self.preview.record_column

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns of numbers except the time, drawn or not."""
        return tuple(own.name for own in self.preview.columns)

    def span(self, record: str = "") -> tuple[float, float]:
        """Return the first and the last time of a record."""
        every = [times for times, _ in self.points(record).values() if len(times)]
        if not every or len(self.records) < 2:
            return self.window
        return min(float(own.min()) for own in every), max(float(own.max()) for own in every)

    def include_neighbors(self, window: tuple[float, float]) -> tuple[float, float]:
        """Return a window that begins at the previous row if a row is at its start, and ends at the next one."""
        every = (times for part in self.records.values() for times, _ in part.values())
        rows = np.unique(np.concatenate([np.zeros(0), *every]))
        edges = np.searchsorted(rows, window)
        moves = zip(edges, window, (-1, 1), strict=True)
        first, last = (rows[i + by] if 0 <= i + by < len(rows) and rows[i] == edge else edge for i, edge, by in moves)
        return float(first), float(last)

    def unit(self, column: str) -> str:
        """Return the unit in the name of a column; empty if there is none."""
        return next((own.unit for own in self.preview.columns if own.name == column), "")


@dataclass(frozen=True)
class ColumnMatch:
    """The column of a channel, and the reason for it.

    reason: The reason in words.
    is_user_choice: Whether the user chose it.
    evidence: The property of the column that supports it, as in `ColumnRole.reason`; empty if the user chose it, or if
        there is none.
    """

    assignment: ColumnAssignment
    reason: str
    is_user_choice: bool = False
    evidence: str = ""


def open_data_file(
    path: Path,
    dt: float | None = None,
    time_column: str = "",
    split: Sequence[ColumnAssignment] = (),
    max_columns: int = 40,
) -> DataFile:
    """Return the contents of a data file, with the points of at most `max_columns` columns.

    time_column: The time column that the user chose; empty if none was chosen.
    split: The columns of a fit; if there are any, the log is split at their gaps, and only these are drawn.
    """
    preview = preview_table(path, time_column=time_column)
    used = [column.name for column in preview.columns[:max_columns]]
    used = [item.column for item in split] or used
    names = {f"c{number}": column for number, column in enumerate(used, 1)}
    if not names:
        unused = "; ".join(f"{name} {why}" for name, why in preview.skipped_columns.items()) or "there is no other"
        raise DataError(f"{path.name}: expected a column of numbers beside the time, got none ({unused}); add one")
    if preview.time is None and dt is None:
        return DataFile(path, preview, {}, (0.0, 0.0))
    columns = dict(names) if preview.time is None else {**names, "t": preview.time.name}
    options: dict[str, Any] = {"channels": list(names), "columns": columns, "dt": dt, "split_gaps": bool(split)}
    unit = "" if preview.time is None else preview.time.unit
    options["units"] = {"t": unit} if unit else {}
    # The system file of a fit declares the same numbers as missing.
    failures = {column.name: column.failures for column in preview.columns if column.name in used and column.failures}
    options["missing"] = sorted({value for values in failures.values() for value in values})
    inputs = tuple(f"c{number}" for number, item in enumerate(split, 1) if item.kind)
    try:
        data = load_data(path, records=preview.record_column or None, inputs=inputs, **options)
    except DataError as problem:
        # The page still offers another time column.
        return DataFile(path, preview, {}, (0.0, 0.0), error=str(problem))
    kept = data.measurements
    parts = kept.records if len(kept.records) > 1 else {"": kept}
    records = {}
    for record, part in parts.items():
        drawn = [item for item in part.plotted_series if item.observable in names]
        records[record] = {names[item.observable]: (item.times, item.values) for item in drawn}
    window = min(part.window[0] for part in parts.values()), max(part.window[1] for part in parts.values())
    notes = [note for note in data.notes if " is in column " not in note]
    for column, values in failures.items():
        shown = " or ".join(f"{value:g}" for value in values)
        notes.append(f"the column {column} is {shown} in some rows, {FAILED_SENSOR}: read as missing")
    if len(preview.columns) > max_columns:
        notes.append(f"the first {max_columns} of {len(preview.columns)} columns are drawn")
    return DataFile(path, preview, records, window, TimeReference(data.origin, unit), tuple(notes))


def match_channels(
    preview: TablePreview, system: System, user_choices: Sequence[ColumnAssignment]
) -> list[ColumnMatch]:
    """Return the column of each channel of a system: the choice of the user, otherwise by name."""
    columns = {column.name: column for column in preview.columns}
    choices = {item.channel: item for item in user_choices if item.channel in system.plain_channels}
    mapping = {name: item.column for name, item in choices.items() if item.column in columns}
    found = {name: _find_column(preview, name) for name in system.plain_channels if name not in mapping}
    used = [*mapping.values(), *(column for column, _ in found.values())]
    names = [*mapping, *(name for name, (column, _) in found.items() if column and used.count(column) == 1)]
    try:
        guesses = {guess.channel: guess for guess in guess_column_roles(preview, names, mapping or None)}
    except DataError:
        # No column looks like a time.
        guesses = {}
    matches = []
    for name in system.plain_channels:
        choice, guess = choices.get(name), guesses.get(name)
        role = "" if guess is None else "known input" if guess.input_kind else "measured"
        if guess is not None and choice == ColumnAssignment(name, guess.column.name, PROPOSED_KIND):
            choice = replace(choice, kind=guess.input_kind)
            matches.append(ColumnMatch(choice, f"chosen by you; {role}: it {guess.reason}", True, guess.reason))
        elif choice is not None and (choice.column in columns or not choice.column):
            reason = "chosen by you" if choice.column or choice.kind else "not measured: chosen by you"
            choice = replace(choice, kind="") if choice.kind == PROPOSED_KIND else choice
            matches.append(ColumnMatch(choice, reason, is_user_choice=True))
        elif guess is not None:
            choice = ColumnAssignment(name, guess.column.name, guess.input_kind)
            matches.append(ColumnMatch(choice, f"{role}: it {guess.reason}", evidence=guess.reason))
        else:
            matches.append(ColumnMatch(ColumnAssignment(name), found[name][1]))
    return matches


def _find_column(preview: TablePreview, channel: str) -> tuple[str, str]:
    """Return the column with the name of a channel, empty if there is none, and the reason if it is not used."""
    time = None if preview.time is None else preview.time.name
    try:
        column = resolve_columns(preview.names, [channel], None, time).values[channel]
    except (DataError, KeyError) as problem:
        columns = str(problem).partition(" may be in any of ")[2].partition(";")[0]
        return "", f"ambiguous: {columns} have this name" if columns else "no column has this name"
    return column, f"{column} {preview.skipped_columns.get(column, 'may belong to another channel')}"


def to_column_roles(
    preview: TablePreview, matches: Sequence[ColumnMatch]
) -> tuple[list[ColumnRole], dict[str, dict[str, str]]]:
    """Return the entries of a system file: roles of used columns, a mapping of changed ones, and disturbances."""
    there = {column.name: column for column in preview.columns}
    guesses, mapping, disturbances = [], dict[str, str](), dict[str, str]()
    for item in matches:
        own = item.assignment
        if own.column:
            guesses.append(ColumnRole(own.channel, there[own.column], own.kind, item.evidence or "is known"))
        elif own.kind:
            disturbances[own.channel] = own.kind
        elif item.is_user_choice:
            mapping[own.channel] = IGNORED_COLUMN
    return guesses, {"mapping": mapping, "disturbances": disturbances}


#: The largest number of simulated times.
MAX_SIMULATION_TIMES = 20_000


def simulate_csv(
    system: System,
    values: Mapping[str, float],
    example: Example | None = None,
    *,
    start: float = 0.0,
    stop: float = 10.0,
    count: int = 60,
    noise: float = 0.02,
    missing_fraction: float = 0.0,
    hidden: Sequence[str] = (),
    seed: int = 0,
) -> str:
    """Return simulated measurements as the text of a CSV file.

    noise: The standard deviation of the noise, as a fraction of that of each channel.
    hidden: Unmeasured channels.

    Examples
    --------
    >>> from lodekit.system import catalog
    >>> example = catalog.heating()
    >>> text = simulate_csv(example.system, {}, example, count=3, noise=0.0, hidden=("u",))
    >>> text.splitlines()[0], len(text.splitlines())
    ('t,f1,f2', 4)
    """
    if not 2 <= count <= MAX_SIMULATION_TIMES:
        raise LodekitError(f"expected 2 to {MAX_SIMULATION_TIMES} times, got {count}")
    if not start < stop:
        raise LodekitError(f"expected a first time before the last, got {start:g} and {stop:g}")
    shown = [name for name in system.plain_channels if name not in hidden]
    if not shown:
        raise LodekitError("expected at least one channel to be measured, got none")
    times = np.linspace(start, stop, count)
    if example is None:
        table = np.asarray(simulate(system, times, values, random_state=seed)[0])
    else:
        order = [list(example.system.channels).index(name) for name in system.plain_channels]
        table = np.asarray(example.solution_at(times)[:, order])
    generator = np.random.default_rng(seed)
    errors = generator.standard_normal(table.shape) * noise * np.std(table, axis=0)
    missing = generator.random(table.shape) < missing_fraction
    made = np.where(missing, np.nan, table + errors)
    columns = {name: made[:, i].tolist() for i, name in enumerate(system.plain_channels) if name in shown}
    return to_csv({"t": times.tolist(), **columns})
