"""Files for a model that is fitted: records to hold it against, and inputs to try, laid out like those of its fit.

From rows that arrive to predictions and alarms: a model watches a file that grows, or a pipe.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from lodekit.data.follow import InvalidRow, TableRow, follow_file, follow_pipe, follow_rows
from lodekit.data.sources import LoadedData, ReadOptions, load_data
from lodekit.data.tables.columns import reuse_columns as recall_known
from lodekit.data.tables.reader import TableSchema, open_table
from lodekit.errors import LodekitError
from lodekit.model import LODEGP
from lodekit.prior.observables import table_checks
from lodekit.results.forecast import parse_time_horizon
from lodekit.results.stream.stream import Stream
from lodekit.workflow.pipeline import date_column


def columns_of_fit(gp: LODEGP, path: str | Path) -> dict[str, str]:
    """Return where a file has the channels of a model, as that of its fit had them; nothing where it looks different."""
    if not gp.fit_.labels.columns or not os.path.isfile(path):
        return {}
    return match_names_of_fit(gp, open_table(path).names)


def match_names_of_fit(gp: LODEGP, names: Sequence[str]) -> dict[str, str]:
    """Return which of some columns hold the channels of a model, as in the file of its fit; nothing where none does."""
    return recall_known(gp.fit_.labels.columns, names)


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
    """Return a record from a file, counted and measured in the units of a fit; messages speak of options."""
    system = gp.system
    how = {"columns": {**columns_of_fit(gp, path), **(columns or {})} or None, "dt": dt, "window": window}
    return load_data(
        str(path), channels=system.plain_channels, **how, **table_checks(system), **read_options_of_fit(gp)
    )


def read_inputs(gp: LODEGP, path: str | Path) -> dict[str, tuple[Any, Any]]:
    """Return times and values of the inputs of a model from a file, counted as those of its fit."""
    known = list(gp.fit_.measurements.inputs)
    if not known:
        raise LodekitError("this model has no known inputs; expected one that was fitted with --input u=hold")
    columns = {name: column for name, column in columns_of_fit(gp, path).items() if name in (*known, "t")}
    found = load_data(str(path), channels=known, columns=columns or None, **read_options_of_fit(gp)).measurements
    if found.sufficient_statistics is not None:
        raise LodekitError(f"{path} has too many rows to be kept; expected fewer")
    return {item.observable: (item.times, item.values) for item in found.series if item.observable in known}


class StreamMonitor:
    """A stream that is fed from a file or a pipe.

    gp: Fitted.
    stream: Of the model.
    horizon: How far ahead observables are predicted as well: a time such as ``"5 s"``, or ``"5"`` in the unit of
        time.
    """

    def __init__(self, gp: LODEGP, stream: Stream, horizon: str | None = None) -> None:
        self.horizon = None if horizon is None else parse_time_horizon(horizon, gp.fit_.clock.unit)
        self.gp, self.stream = gp, stream
        #: Rows up to this time have been seen by the model, or by the stream that was resumed.
        self.last_time = stream.time
        #: Sentences for whoever watches; taken away once they were said.
        self.messages: list[str] = []
        self.n_skipped = 0

    def process_rows(
        self, data: Path | IO[bytes], columns: Mapping[str, str] | None = None, *, once: bool = False
    ) -> Iterator[dict[str, Any] | None]:
        """Yield one dict for each value of each row as it arrives: time, what was measured and expected, alarm.

        None stands for all that has arrived so far: who prints should do so then.
        """
        system = self.gp.system
        checks = table_checks(system)

        def ask(names: Sequence[str]) -> ReadOptions:
            places = {**match_names_of_fit(self.gp, names), **(columns or {})}
            return ReadOptions(system.plain_channels, columns=places or None, **checks, **read_options_of_fit(self.gp))

        is_file = isinstance(data, Path)
        pieces = follow_file(data, once=once) if isinstance(data, Path) else follow_pipe(data)
        for item in follow_rows(pieces, str(data) if is_file else "standard input", ask):
            if isinstance(item, TableSchema):
                self._check_schema(item)
            elif isinstance(item, InvalidRow):
                self.messages.append(f"{item.message}; skipped")
                yield None
            elif item is None:
                yield None
            else:
                yield from self._push(item)
        if self.n_skipped and not self.stream.rows:
            self.messages.append(
                f"{self.n_skipped} rows up to t = {self.last_time:g} were seen before, and no others came; a record that "
                "begins anew is watched with --fresh"
            )
        yield None

    def _check_schema(self, schema: TableSchema) -> None:
        """Raise where columns are missing; note those that say nothing."""
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

    def _push(self, row: TableRow) -> Iterator[dict[str, Any]]:
        if self.last_time is not None and row.time <= self.last_time:
            self.n_skipped += 1
            return
        stream, known = self.stream, self.gp.fit_.measurements.inputs
        values = {name: value for name, value in row.values.items() if name in stream.observables}
        noise = {name: value for name, value in row.noise.items() if name in stream.observables}
        try:
            found = stream.push(row.time, values, {name: row.values[name] for name in known}, std=noise or None)
        except LodekitError as problem:
            self.messages.append(f"line {row.line_number}: {problem}; skipped")
            return
        later = self._forecast(row.time, list(found))
        date = {key: dates[0] for key, dates in date_column(self.gp.labels_, [row.time]).items()}
        for name, own in found.items():
            numbers = {"measured": own.measured, "predicted": own.predicted, "std": own.std, "score": own.score}
            alarm = {"alarm": own.alarm or None}
            yield {"t": row.time, **date, "observable": name, **numbers, **alarm, **later.get(name, {})}

    def _forecast(self, time: float, names: list[str]) -> dict[str, dict[str, float]]:
        if self.horizon is None or not names:
            return {}
        mean, std = self.stream.predict(time + self.horizon, names, return_std=True)
        return {n: {"ahead": float(m), "ahead_std": float(s)} for n, m, s in zip(names, mean[0], std[0], strict=True)}

    def pop_messages(self) -> list[str]:
        """Return what there is to say, once."""
        found, self.messages = self.messages, []
        return found
