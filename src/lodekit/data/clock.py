"""From when and in which unit times are counted, so that dates and lengths of time become numbers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.data.tables.dates import Lengths, Moments
from lodekit.data.tables.instants import read_instants
from lodekit.data.tables.lists import read_date
from lodekit.errors import DataError
from lodekit.quantities import Conversion, find_conversion

__all__ = ["Clock"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Clock:
    """The date of time zero, and the unit of time.

    Parameters
    ----------
    origin : datetime or None
        None where times are numbers.
    unit : str
        Of times; empty where nothing tells.

    Examples
    --------
    >>> Clock(datetime(2026, 3, 1, 12), "min").read(np.array(["2026-03-01T12:30"], dtype="datetime64[m]")).tolist()
    [30.0]
    """

    origin: datetime | None = None
    unit: str = ""

    @classmethod
    def of_labels(cls, origin: str, unit: str | None) -> Clock:
        """Return the clock of a fit.

        Parameters
        ----------
        origin : str
            A date in ISO form, or nothing.
        unit : str or None
            Of the times.
        """
        return cls(datetime.fromisoformat(origin) if origin else None, unit or "")

    @property
    def seconds(self) -> Conversion:
        """How seconds become the unit of time."""
        found = find_conversion("s", self.unit or "s")
        if found is None:
            raise DataError(f"expected a unit of time, such as s or min, for times that are dates, got {self.unit!r}")
        return found

    def read(self, t: Any) -> Array | None:
        """Return dates or lengths of time as numbers; None where times are something else, such as numbers."""
        found = read_instants(t)
        if found is None:
            return None
        if isinstance(found, Lengths):
            if not self.unit:
                raise DataError(
                    "expected times as numbers, like those of the fit, got lengths of time: the unit of the former is "
                    "not known; label(units={'t': 's'}) tells it"
                )
            return self.seconds.apply(found.seconds)
        return self.count(found)

    def count(self, moments: Moments) -> Array:
        """Return dates as numbers; those without a zone are in that of time zero."""
        if self.origin is None:
            raise DataError("expected times as numbers, like those of the fit, got dates")
        if moments.first.tzinfo is not None and self.origin.tzinfo is None:
            raise DataError("expected dates without a time zone, like those of the fit, got dates with one")
        origin = self.origin if moments.first.tzinfo is not None else _on_the_wall(self.origin)
        return self.seconds.apply(moments.since(origin))

    def read_edge(self, edge: Any, what: str) -> float:
        """Return one time: a number, a date, or a text that is one of them.

        Parameters
        ----------
        edge : float, datetime or str
        what : str
            What it is called in messages.
        """
        if isinstance(edge, str):
            try:
                edge = float(edge)
            except ValueError:
                if (found := read_date(edge)) is None:
                    raise DataError(
                        f"expected a number or a date such as 2026-03-01T12:00 for {what}, got {edge!r}"
                    ) from None
                edge = found
        if isinstance(edge, datetime):
            if self.origin is None:
                raise DataError(f"{what} is a date, but the times are numbers; expected a number")
            if edge.tzinfo is not None and self.origin.tzinfo is None:
                raise DataError(f"{what} is a date with a time zone, but the data have none; expected one without")
            origin = self.origin if edge.tzinfo is not None else _on_the_wall(self.origin)
            return float(self.seconds.apply(np.array((edge - origin).total_seconds())))
        if isinstance(edge, bool) or not isinstance(edge, int | float | np.number) or not np.isfinite(edge):
            raise DataError(f"expected a finite time for {what}, got {edge!r}")
        return float(edge)


def _on_the_wall(date: datetime) -> datetime:
    """Return a date by the clock on the wall, without its zone."""
    return date.replace(tzinfo=None)
