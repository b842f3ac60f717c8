"""What the options of several commands have in common: numbers, times, and where results go."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lodekit.errors import LodekitError
from lodekit.files import write_file

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lodekit.model import LODEGP

__all__ = ["deliver", "read_lead", "read_numbers", "read_pairs", "read_times"]


def read_numbers(options: Sequence[str], what: str) -> dict[str, float]:
    """Return numbers by name from texts such as ``tau=10``, several in one text separated by commas.

    Parameters
    ----------
    options : sequence of str
    what : str
        The option, for messages.
    """
    found: dict[str, float] = {}
    for name, value in read_pairs(options, what, f"NAME=NUMBER, such as {what} tau=10").items():
        try:
            found[name] = float(value)
        except ValueError:
            found[name] = math.nan
        if not math.isfinite(found[name]):
            raise LodekitError(f"expected {what} NAME=NUMBER, such as {what} tau=10, got '{name}={value}'")
    return found


def read_pairs(options: Sequence[str], what: str, expected: str) -> dict[str, str]:
    """Return words by name from texts such as ``u=hold``, several in one text separated by commas.

    Parameters
    ----------
    options : sequence of str
    what : str
        The option, for messages.
    expected : str
        What follows the option, for messages.
    """
    found: dict[str, str] = {}
    for text in (part.strip() for option in options for part in option.split(",") if part.strip()):
        name, _, word = (part.strip() for part in text.partition("="))
        if not name or not word:
            raise LodekitError(f"expected {what} {expected}, got {text!r}")
        if name in found:
            raise LodekitError(f"{what} names {name!r} twice")
        found[name] = word
    return found


def read_lead(text: str) -> int | str:
    """Return how far ahead an option says: a plain number counts rows, anything else is a time such as ``24 h``."""
    return int(text) if text.isdecimal() else text


def read_times(
    gp: LODEGP, start: str | None, stop: str | None, count: int, at: Path | None, record: str | None = None
) -> dict[str, NDArray[np.float64]]:
    """Return the times that ``--from``, ``--to``, ``--n`` or ``--at`` ask for, by record; its window by default.

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
    record : str or None
        The record that is asked for; None for all.
    """
    names = gp.records_ if record is None else gp.fit_.part(record).records
    if at is not None:
        if start is not None or stop is not None:
            raise LodekitError("expected --at FILE, or --from and --to, got both")
        return dict.fromkeys(names, _read_file(gp, at))
    return {name: _read_grid(gp, name, start, stop, count) for name in names}


def _read_grid(gp: LODEGP, record: str, start: str | None, stop: str | None, count: int) -> NDArray[np.float64]:
    import numpy as np

    first, last = gp.fit_.part(record).measurements.window
    clock = gp.fit_.clock
    low = first if start is None else clock.read_edge(start, "--from")
    high = last if stop is None else clock.read_edge(stop, "--to")
    if not low <= high:
        raise LodekitError(f"expected --from before --to, got {start or low} and {stop or high}")
    if not math.isfinite(high - low):
        raise LodekitError(
            f"expected --from and --to within the range of numbers, got {start or low} and {stop or high}"
        )
    return np.linspace(low, high, count)


def _read_file(gp: LODEGP, path: Path) -> NDArray[np.float64]:
    import numpy as np

    from lodekit.data.tables import read_list, read_table

    found = read_list(path)
    if found is None:
        table = read_table(path, ())
        found = table.times, table.origin
    times, origin = found
    if origin is None:
        return times
    clock = gp.fit_.clock
    return np.asarray(clock.read_edge(origin, f"{path}, its first time,") + clock.seconds.stretch(times))


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
