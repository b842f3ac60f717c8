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

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lodekit.model import LODEGP

__all__ = ["date_column", "deliver", "format_columns", "read_model", "read_numbers", "read_times"]


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


def read_model(path: Path) -> LODEGP:
    """Return a saved model; a folder that ``lodekit fit`` has written is as good as the model in it."""
    from lodekit.model import LODEGP

    return LODEGP.load(path / "model.lodekit" if path.is_dir() else path)


def read_times(gp: LODEGP, start: str | None, stop: str | None, count: int, at: Path | None) -> NDArray[np.float64]:
    """Return the times that ``--from``, ``--to``, ``--n`` or ``--at`` ask for; the window of the data by default."""
    import numpy as np

    if at is not None:
        if start is not None or stop is not None:
            raise LodekitError("expected --at FILE, or --from and --to, got both")
        return _read_file(gp, at)
    first, last = gp._measurements.window
    low = first if start is None else _read_time(gp, start, "--from")
    high = last if stop is None else _read_time(gp, stop, "--to")
    if not low <= high:
        raise LodekitError(f"expected --from before --to, got {start or low} and {stop or high}")
    return np.linspace(low, high, count)


def _read_file(gp: LODEGP, path: Path) -> NDArray[np.float64]:
    import numpy as np

    from lodekit.tables import read_table

    plain = _read_list(path)
    if plain is not None:
        return np.array(plain)
    table = read_table(path, ())
    if table.origin is None:
        return table.times
    return table.times + (table.origin.replace(tzinfo=None) - _origin(gp, f"{path} has dates")).total_seconds()


def _read_list(path: Path) -> list[float] | None:
    """Return numbers that stand alone on their lines, below a name perhaps; None where a file is something else."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
        rows = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        first = rows[1:] if rows and not rows[0][:1].isdigit() and rows[0][:1] not in "+-." else rows
        found = [float(row) for row in first]
    except (OSError, ValueError):
        return None
    return found if found and all(math.isfinite(number) for number in found) else None


def _read_time(gp: LODEGP, text: str, option: str) -> float:
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        if math.isfinite(number):
            return number
        raise LodekitError(f"expected a finite time for {option}, got {text!r}")
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        raise LodekitError(f"expected a number or a date such as 2026-03-01T12:00 for {option}, got {text!r}") from None
    return (date.replace(tzinfo=None) - _origin(gp, f"{option} is a date")).total_seconds()


def _origin(gp: LODEGP, reason: str) -> datetime:
    text = gp.labels_.get("origin", "")
    if not text:
        raise LodekitError(f"{reason}, but this model was fitted to times that are numbers; expected numbers")
    return datetime.fromisoformat(text).replace(tzinfo=None)


def date_column(origin: str, times: Iterable[float]) -> dict[str, list[str]]:
    """Return a column of dates for times in seconds since an origin; nothing where there is none."""
    if not origin:
        return {}
    start = datetime.fromisoformat(origin)
    return {"date": [(start + timedelta(seconds=float(t))).isoformat() for t in times]}


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
