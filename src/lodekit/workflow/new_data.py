"""New data for a fitted model: records to validate it, inputs to simulate it, and monitored growing files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from lodekit.data.follow import follow_file, follow_pipe, follow_rows
from lodekit.data.sources import LoadedData, ReadOptions, load_data
from lodekit.data.tables.columns import reuse_columns
from lodekit.data.tables.reader import TableSchema, open_table
from lodekit.errors import DataError, LodekitError
from lodekit.model import LODEGP
from lodekit.prior.observables import table_checks
from lodekit.results.forecast import parse_time_horizon
from lodekit.results.stream.stream import Stream
from lodekit.workflow.pipeline import date_column


def columns_of_fit(gp: LODEGP, path: str | Path) -> dict[str, str]:
    """Return the columns of a model's channels in a file, if they are named as in the file of its fit."""
    if not gp.fit_.labels.columns or not os.path.isfile(path):
        return {}
    return reuse_columns(gp.fit_.labels.columns, open_table(path).names)


def read_options_of_fit(gp: LODEGP) -> dict[str, Any]:
    """Return how files for a model are read: from when times are counted, and in which units."""
    return {"since": gp.fit_.clock.origin, "units": gp.fit_.labels.units, "in_shell": True}


def read_record(
    gp: LODEGP,
    path: str | Path,
    columns: Mapping[str, Any] | None = None,
    dt: float | None = None,
    window: tuple[Any, Any] = (None, None),
) -> LoadedData:
    """Return a record from a file, in the time and units of a fit; messages name options of the command line."""
    columns = {**columns_of_fit(gp, path), **(columns or {})} or None
    options = {"columns": columns, "dt": dt, "window": window, **table_checks(gp.system), **read_options_of_fit(gp)}
    return load_data(str(path), channels=gp.system.plain_channels, **options)


def read_inputs(gp: LODEGP, path: str | Path) -> dict[str, tuple[Any, Any]]:
    """Return times and values of the inputs of a model from a file, in the time of its fit."""
    known = list(gp.fit_.measurements.inputs)
    if not known:
        raise LodekitError("this model has no known inputs; expected one that was fitted with --input u=hold")
    columns = {name: column for name, column in columns_of_fit(gp, path).items() if name in (*known, "t")}
    data = load_data(str(path), channels=known, columns=columns or None, **read_options_of_fit(gp)).measurements
    if data.sufficient_statistics is not None:
        raise LodekitError(f"{path} has too many rows to be kept; expected fewer")
    return {item.observable: (item.times, item.values) for item in data.series if item.observable in known}


class StreamMonitor:
    """A stream that reads rows from a file or a pipe.

    gp: Fitted.
    stream: Of the model.
    horizon: The lead time of additional forecasts, such as ``"5 s"``, or ``"5"`` in the unit of time.
    """

    def __init__(self, gp: LODEGP, stream: Stream, horizon: str | None = None) -> None:
        self.horizon = None if horizon is None else parse_time_horizon(horizon, gp.fit_.clock.unit)
        self.gp, self.stream = gp, stream
        #: Rows up to this time were used by the fit, or by the resumed stream.
        self.last_time = stream.time
        #: Messages for users that were not printed yet.
        self.messages: list[str] = []
        self.n_skipped = 0

    def process_rows(
        self, data: Path | IO[bytes], columns: Mapping[str, str] | None = None, *, once: bool = False
    ) -> Iterator[dict[str, Any] | None]:
        """Yield one dict for each value of each row as it arrives: time, measurement, prediction, alarm.

        None follows all rows that have arrived so far: then is the time to print.
        """
        system = self.gp.system
        options = {**table_checks(system), **read_options_of_fit(self.gp)}

        def choose_options(names: Sequence[str]) -> ReadOptions:
            places = {**reuse_columns(self.gp.fit_.labels.columns, names), **(columns or {})}
            return ReadOptions(system.plain_channels, columns=places or None, **options)

        is_file = isinstance(data, Path)
        pieces = follow_file(data, once=once) if isinstance(data, Path) else follow_pipe(data)
        for item in follow_rows(pieces, str(data) if is_file else "standard input", choose_options):
            if isinstance(item, TableSchema):
                self._check_schema(item)
            elif isinstance(item, DataError):
                self.messages.append(f"{item}; skipped")
                yield None
            elif item is None:
                yield None
            else:
                yield from self._push(*item)
        if self.n_skipped and not self.stream.rows:
            self.messages.append(
                f"{self.n_skipped} rows up to t = {self.last_time:g} were seen before, and no others came; a record "
                "that begins anew is watched with --fresh"
            )
        yield None

    def _check_schema(self, schema: TableSchema) -> None:
        """Raise if columns are missing; report unused ones."""
        found, inputs = set(schema.columns.values), set(self.gp.fit_.measurements.inputs)
        if missing := sorted(inputs - found):
            raise LodekitError(f"{schema.table_name}: expected a column for the known input {missing[0]}; try --map")
        if not found & set(self.stream.observables):
            expected = ", ".join(self.stream.observables)
            raise LodekitError(
                f"{schema.table_name}: expected columns of what was measured in the fit, {expected}, got none"
            )
        if others := sorted(found - inputs - set(self.stream.observables)):
            self.messages.append(f"not measured in the fit, and not read: {', '.join(others)}")

    def _push(
        self, line_number: int, time: float, values: Mapping[str, float], noise: Mapping[str, float]
    ) -> Iterator[dict[str, Any]]:
        if self.last_time is not None and time <= self.last_time:
            self.n_skipped += 1
            return
        stream, known = self.stream, self.gp.fit_.measurements.inputs
        measured = {name: value for name, value in values.items() if name in stream.observables}
        noise_std = {name: value for name, value in noise.items() if name in stream.observables}
        try:
            results = stream.push(time, measured, {name: values[name] for name in known}, std=noise_std or None)
        except LodekitError as problem:
            self.messages.append(f"line {line_number}: {problem}; skipped")
            return
        forecasts: dict[str, dict[str, float]] = {}
        if self.horizon is not None and results:
            names = list(results)
            mean, std = stream.predict(time + self.horizon, names, return_std=True)
            forecasts = {
                n: {"ahead": float(m), "ahead_std": float(s)} for n, m, s in zip(names, mean[0], std[0], strict=True)
            }
        date = {key: dates[0] for key, dates in date_column(self.gp.labels_, [time]).items()}
        for name, result in results.items():
            numbers = {key: getattr(result, key) for key in ("measured", "predicted", "std", "score")}
            alarm = {"alarm": result.alarm or None}
            yield {"t": time, **date, "observable": name, **numbers, **alarm, **forecasts.get(name, {})}

    def pop_messages(self) -> list[str]:
        """Return and clear the messages."""
        messages, self.messages = self.messages, []
        return messages
