"""What the options of several commands have in common: numbers, times, and where results go."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from lodekit.errors import LodekitError
from lodekit.files import write_file

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lodekit.model import LODEGP

__all__ = ["deliver", "read_numbers", "read_times"]


def read_numbers(options: Sequence[str], what: str) -> dict[str, float]:
    """Return numbers by name from texts such as ``tau=10``, several in one text separated by commas.

    Parameters
    ----------
    options : sequence of str
    what : str
        The option, for messages.
    """
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


def read_times(gp: LODEGP, start: str | None, stop: str | None, count: int, at: Path | None) -> NDArray[np.float64]:
    """Return the times that ``--from``, ``--to``, ``--n`` or ``--at`` ask for; the window of the data by default.

    Parameters
    ----------
    gp : LODEGP
        Fitted.
    start, stop : str or None
        Numbers or dates.
    count : int
        How many times, evenly spaced.
    at : Path or None
        A file of times.
    """
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


def deliver(text: str, out: Path | None) -> None:
    """Write a result to a file, or to standard output.

    Parameters
    ----------
    text : str
    out : Path or None
    """
    if out is None:
        sys.stdout.write(text)
    else:
        write_file(out, text)
