"""What the options of several commands have in common: times, values, models, tables of numbers."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lodekit.errors import LodekitError
from lodekit.files import write_file
from lodekit.progress import waiting

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lodekit.model import LODEGP
    from lodekit.system.system import System

__all__ = [
    "MODEL",
    "add_columns",
    "check_parameters",
    "date_column",
    "deliver",
    "format_columns",
    "prediction_columns",
    "read_model",
    "read_numbers",
    "read_times",
]


#: What a fitted model is called in the folder of its fit.
MODEL = "model.lodekit"
#: How many times are predicted at once.
_BLOCK = 5000


def read_numbers(options: Sequence[str], what: str) -> dict[str, float]:
    """Return numbers by name from texts such as ``tau=10``, several in one text separated by commas."""
    found: dict[str, float] = {}
    for text in (part.strip() for option in options for part in option.split(",") if part.strip()):
        name, separator, value = (part.strip() for part in text.partition("="))
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not separator or not name or not math.isfinite(number):
            raise LodekitError(f"expected {what} NAME=NUMBER, such as {what} tau=10, got {text!r}")
        if name in found:
            raise LodekitError(f"{what} sets {name!r} twice")
        found[name] = number
    return found


def check_parameters(system: System, names: Iterable[str]) -> None:
    """Refuse names that are no parameters of a system."""
    for name in names:
        if name not in system.parameters:
            known = ", ".join(system.parameters) or "none"
            raise LodekitError(f"unknown parameter {name!r}; expected some of: {known}")


def read_model(path: Path) -> LODEGP:
    """Return a saved model; a folder that ``lodekit fit`` has written is as good as the model in it."""
    from lodekit.model import LODEGP

    if not path.is_dir():
        return LODEGP.load(path)
    if not (path / MODEL).exists():
        raise LodekitError(f"expected a folder that lodekit fit has written, {path} has no {MODEL} in it")
    return LODEGP.load(path / MODEL)


def read_times(gp: LODEGP, start: str | None, stop: str | None, count: int, at: Path | None) -> NDArray[np.float64]:
    """Return the times that ``--from``, ``--to``, ``--n`` or ``--at`` ask for; the window of the data by default."""
    import numpy as np

    if at is not None:
        if start is not None or stop is not None:
            raise LodekitError("expected --at FILE, or --from and --to, got both")
        return _read_file(gp, at)
    first, last = gp.fit_.measurements.window
    low = first if start is None else _read_time(gp, start, "--from")
    high = last if stop is None else _read_time(gp, stop, "--to")
    if not low <= high:
        raise LodekitError(f"expected --from before --to, got {start or low} and {stop or high}")
    if not math.isfinite(high - low):
        raise LodekitError(
            f"expected --from and --to within the range of numbers, got {start or low} and {stop or high}"
        )
    return np.linspace(low, high, count)


def _read_file(gp: LODEGP, path: Path) -> NDArray[np.float64]:
    from lodekit.data.tables import read_list, read_table

    found = read_list(path)
    if found is None:
        table = read_table(path, ())
        found = table.times, table.origin
    times, origin = found
    return times if origin is None else times + _seconds(gp, origin, f"{path} has dates")


def _read_time(gp: LODEGP, text: str, option: str) -> float:
    from lodekit.data.tables import read_date

    try:
        number = float(text)
    except ValueError:
        date = read_date(text)
        if date is None:
            raise LodekitError(
                f"expected a number or a date such as 2026-03-01T12:00 for {option}, got {text!r}"
            ) from None
        return _seconds(gp, date, f"{option} is a date")
    if not math.isfinite(number):
        raise LodekitError(f"expected a finite time for {option}, got {text!r}")
    return number


def _seconds(gp: LODEGP, date: datetime, reason: str) -> float:
    """Return the time of a date: seconds since that which is time zero; without a zone it is in the zone of that."""
    text = gp.labels_.get("origin", "")
    if not text:
        raise LodekitError(f"{reason}, but this model was fitted to times that are numbers; expected numbers")
    origin = datetime.fromisoformat(text)
    if date.tzinfo is not None and origin.tzinfo is None:
        raise LodekitError(f"{reason} with a time zone, but the data had none; expected dates without a zone")
    return (date if date.tzinfo is not None else date.replace(tzinfo=origin.tzinfo)).timestamp() - origin.timestamp()


def date_column(origin: str, times: Iterable[float]) -> dict[str, list[str]]:
    """Return a column of dates for times in seconds since an origin; nothing where there is none."""
    if not origin:
        return {}
    start = datetime.fromisoformat(origin)
    try:
        return {"date": [(start + timedelta(seconds=float(t))).isoformat() for t in times]}
    except OverflowError:
        raise LodekitError(
            "expected times whose dates lie between the years 1 and 9999; change --from and --to"
        ) from None


def add_columns(columns: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add columns to a table; two of one name are refused."""
    for name, values in more.items():
        if name in columns:
            raise LodekitError(
                f"two columns would be called {name!r}; ask for each observable once, and rename channels"
            )
        columns[name] = values


def prediction_columns(gp: LODEGP, times: NDArray[np.float64], names: Sequence[str]) -> dict[str, Any]:
    """Return times, dates where there are any, and means with standard deviations, as columns."""
    import numpy as np

    columns: dict[str, Any] = {"t": times.tolist(), **date_column(gp.labels_.get("origin", ""), times)}
    # In blocks, so that memory does not grow with the number of times.
    blocks = np.split(times, range(_BLOCK, len(times), _BLOCK))
    with waiting("predicting", len(blocks)) as advance:
        parts = []
        for block in blocks:
            parts.append(gp.predict(block, names, return_std=True))
            advance()
    mean, std = (np.concatenate(part) for part in zip(*parts, strict=True))
    for number, name in enumerate(names):
        add_columns(columns, {name: mean[:, number].tolist(), f"std({name})": std[:, number].tolist()})
    return columns


def format_columns(columns: Mapping[str, Sequence[Any]]) -> str:
    """Return columns as CSV; numbers in full precision."""
    import csv

    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow([repr(float(cell)) if isinstance(cell, float) else cell for cell in row])
    return target.getvalue()


def deliver(text: str, out: Path | None) -> None:
    """Write a result to a file, or to standard output."""
    if out is None:
        sys.stdout.write(text)
    else:
        write_file(out, text)
