"""The command that monitors rows as they arrive."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from lodekit.cli import arguments
from lodekit.errors import LodekitError
from lodekit.support.text import format_count

if TYPE_CHECKING:
    from lodekit.results.stream.stream import Stream


_FRESH_HELP = (
    "Start a new record instead of continuing that of the fit. Its initial state is unknown, so the std of the first "
    "predictions is very large."
)
_AHEAD_HELP = (
    "Also predict measurements this far ahead: '5 s', or 5 in the unit of time. Like std, ahead_std includes noise, "
    "but not the uncertainty of the parameters."
)


def watch(
    model: arguments.ModelArgument,
    data: Annotated[str, Argument(help="A text file that grows, or - for standard input.")],
    once: Annotated[bool, Option("--once", help="Stop at the end of the file instead of waiting for more.")] = False,
    fresh: Annotated[bool, Option("--fresh", help=_FRESH_HELP)] = False,
    record: Annotated[str | None, Option("--record", help="The record to continue; the last by default.")] = None,
    ahead: Annotated[str | None, Option("--ahead", help=_AHEAD_HELP)] = None,
    false_alarms: Annotated[
        float | None, Option("--false-alarms", help="False alarms per row if the model holds; 1e-4 by default.")
    ] = None,
    shift: Annotated[float | None, Option("--shift", help="Shift of scores to detect fastest; 1 by default.")] = None,
    mapping: arguments.MapOption = None,
    split_gaps: arguments.SplitOption = False,
    timezone: arguments.TimezoneOption = None,
    alarms: Annotated[bool, Option("--alarms", help="Print only alarms.")] = False,
    save: Annotated[Path | None, Option("--save", help="File for the state, for --resume.")] = None,
    resume: Annotated[Path | None, Option("--resume", help="Continue from a saved state.")] = None,
    as_json: arguments.JsonOption = False,
) -> None:
    """Monitor rows as they arrive; print measurements, predictions, scores and alarms, as CSV or JSON lines.

    Rows that were seen before are skipped; so are invalid rows, with a message. Stop with Ctrl-C.

    Examples: lodekit watch log-fit log.csv --save now.stream; tail -f log.csv | lodekit watch log-fit - --alarms
    """
    from lodekit.results.forecast import parse_time_horizon
    from lodekit.workflow.new_data import monitor_rows
    from lodekit.workflow.pipeline import read_model

    gp = read_model(model)
    if resume is not None and (fresh or record is not None):
        raise LodekitError("--resume continues from the saved state; expected no --fresh and no --record")
    if resume is None and not fresh:
        record = arguments.choose_record(gp, record)
    stream = gp.stream(fresh=fresh, record=record, resume=resume, false_alarms=false_alarms, shift=shift)
    horizon = None if ahead is None else parse_time_horizon(ahead, gp.fit_.clock.unit)
    columns = arguments.read_mapping(mapping, gp) or None
    rows = monitor_rows(
        gp, stream, _open_stream(data), columns, timezone, horizon=horizon, once=once, split_gaps=split_gaps
    )
    _print_rows(stream, rows, save, as_json=as_json, only_alarms=alarms)


def _print_rows(
    stream: Stream, rows: Iterator[dict[str, Any] | str | None], save: Path | None, *, as_json: bool, only_alarms: bool
) -> None:
    """Print rows up to the end or an interruption; save the state every `save_interval` seconds and at the end."""
    from lodekit.workflow.pipeline import to_csv

    has_header, n_saved_rows, last_saved = False, -1, time.monotonic()

    def save_state() -> None:
        nonlocal n_saved_rows, last_saved
        if save is not None and stream.rows != n_saved_rows:
            stream.save(save)
            n_saved_rows = stream.rows
        last_saved = time.monotonic()

    # Report a path that is not writable at once, not when the state would be lost.
    save_state()
    with _interrupt_on_sigterm():
        try:
            for row in rows:
                if isinstance(row, dict):
                    if only_alarms and not row["alarm"]:
                        continue
                    if as_json:
                        sys.stdout.write(json.dumps(row) + "\n")
                        continue
                    text = to_csv({name: [cell] for name, cell in row.items()})
                    sys.stdout.write(text.partition("\n")[2] if has_header else text)
                    has_header = True
                    continue
                sys.stdout.flush()
                if row is not None:
                    arguments.print_message(row)
                elif time.monotonic() - last_saved >= 1.0:
                    save_state()
        except KeyboardInterrupt:
            pass
        finally:
            save_state()
    sys.stdout.flush()
    arguments.print_message(f"{format_count(stream.rows, 'row')}, {format_count(stream.alarms, 'alarm')}")


def _open_stream(data: str) -> Path | IO[bytes]:
    if data == "-":
        if sys.stdin is None:
            raise LodekitError("expected rows on standard input, which is closed; give a file, or a pipe into it")
        return sys.stdin.buffer
    if not os.path.exists(data):
        raise LodekitError(f"{data} was not found; expected a text file, or - for standard input")
    return Path(data)


@contextmanager
def _interrupt_on_sigterm() -> Iterator[None]:
    """Treat SIGTERM as an interruption, so that the state is saved."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
