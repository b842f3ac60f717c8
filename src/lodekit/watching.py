"""From rows that arrive to predictions and alarms: a model watches a file that grows, or a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from lodekit.ahead import read_time_ahead
from lodekit.columns import date_column
from lodekit.data.following import BadLine, Line, follow_file, follow_pipe, follow_table
from lodekit.data.planning import Request
from lodekit.data.tables.table import Plan
from lodekit.errors import LodekitError
from lodekit.model import LODEGP
from lodekit.online import Stream
from lodekit.reading import column_checks
from lodekit.rereading import file_options, recall_names

__all__ = ["Watch"]


class Watch:
    """A stream that is fed from a file or a pipe.

    Parameters
    ----------
    gp : LODEGP
        Fitted.
    stream : Stream
        Of the model.
    ahead : str, optional
        How far ahead observables are predicted as well: a time such as ``"5 s"``, or ``"5"`` in the unit of time.
    """

    def __init__(self, gp: LODEGP, stream: Stream, ahead: str | None = None) -> None:
        self.ahead = None if ahead is None else read_time_ahead(ahead, gp.fit_.clock.unit)
        self.gp, self.stream = gp, stream
        #: Rows up to this time have been seen by the model, or by the stream that was resumed.
        self.seen = stream.time
        #: Sentences for whoever watches; taken away once they were said.
        self.notes: list[str] = []
        self.skipped = 0

    def rows(
        self, data: Path | IO[bytes], columns: Mapping[str, str] | None = None, *, once: bool = False
    ) -> Iterator[dict[str, Any] | None]:
        """Yield one dict for each value of each row as it arrives: time, what was measured and expected, alarm.

        None stands for all that has arrived so far: who prints should do so then.

        Parameters
        ----------
        data : Path or binary file
            A text file, or a pipe such as standard input.
        columns : dict of observable to column, optional
            Where they differ from those of the fit.
        once : bool
            Whether the end of a file is the end; pipes have an end of their own.
        """
        system = self.gp.system
        checks = column_checks(system)

        def ask(names: Sequence[str]) -> Request:
            places = {**recall_names(self.gp, names), **(columns or {})}
            return Request(system.plain_channels, columns=places or None, **checks, **file_options(self.gp))

        is_file = isinstance(data, Path)
        pieces = follow_file(data, once=once) if isinstance(data, Path) else follow_pipe(data)
        for item in follow_table(pieces, str(data) if is_file else "standard input", ask):
            if isinstance(item, Plan):
                self._check(item)
            elif isinstance(item, BadLine):
                self.notes.append(f"{item.words}; skipped")
                yield None
            elif item is None:
                yield None
            else:
                yield from self._push(item)
        if self.skipped and not self.stream.rows:
            self.notes.append(
                f"{self.skipped} rows up to t = {self.seen:g} were seen before, and no others came; a record that "
                "begins anew is watched with --fresh"
            )
        yield None

    def _check(self, plan: Plan) -> None:
        """Raise where columns are missing; note those that say nothing."""
        found, inputs = set(plan.columns.values), set(self.gp.fit_.measurements.inputs)
        if missing := sorted(inputs - found):
            raise LodekitError(f"{plan.where}: expected a column for the known input {missing[0]}; try --map")
        if not found & set(self.stream.observables):
            expected = ", ".join(self.stream.observables)
            raise LodekitError(f"{plan.where}: expected columns of what was measured in the fit, {expected}, got none")
        if others := sorted(found - inputs - set(self.stream.observables)):
            self.notes.append(f"not measured in the fit, and not read: {', '.join(others)}")

    def _push(self, row: Line) -> Iterator[dict[str, Any]]:
        if self.seen is not None and row.time <= self.seen:
            self.skipped += 1
            return
        stream, known = self.stream, self.gp.fit_.measurements.inputs
        values = {name: value for name, value in row.values.items() if name in stream.observables}
        noise = {name: value for name, value in row.noise.items() if name in stream.observables}
        try:
            found = stream.push(row.time, values, {name: row.values[name] for name in known}, std=noise or None)
        except LodekitError as problem:
            self.notes.append(f"line {row.number}: {problem}; skipped")
            return
        later = self._later(row.time, list(found))
        date = {key: dates[0] for key, dates in date_column(self.gp.labels_, [row.time]).items()}
        for name, own in found.items():
            numbers = {"measured": own.measured, "predicted": own.predicted, "std": own.std, "score": own.score}
            alarm = {"alarm": own.alarm or None}
            yield {"t": row.time, **date, "observable": name, **numbers, **alarm, **later.get(name, {})}

    def _later(self, time: float, names: list[str]) -> dict[str, dict[str, float]]:
        if self.ahead is None or not names:
            return {}
        mean, std = self.stream.predict(time + self.ahead, names, return_std=True)
        return {n: {"ahead": float(m), "ahead_std": float(s)} for n, m, s in zip(names, mean[0], std[0], strict=True)}

    def take_notes(self) -> list[str]:
        """Return what there is to say, once."""
        found, self.notes = self.notes, []
        return found
