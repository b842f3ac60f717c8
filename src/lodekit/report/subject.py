"""The subject of a report: a fitted model with units and truth, and the points and curves that are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from lodekit.data.observations import Series
from lodekit.errors import LodekitError
from lodekit.intervals import unit_of_observable
from lodekit.model import LODEGP
from lodekit.page import plot_text
from lodekit.rounding import digits

__all__ = [
    "BAND_COLOUR",
    "DATA_COLOUR",
    "DRAWN",
    "MEAN_COLOUR",
    "TRUTH_COLOUR",
    "Subject",
    "Truth",
    "plain",
    "read_span",
    "read_truth",
    "thin",
]

Array = NDArray[np.float64]
Truth = Mapping[str, float | Callable[[Array], Array]]
#: More points than this only make a plot slow.
DRAWN = 5000
# Okabe and Ito's colours, which everyone can tell apart.
DATA_COLOUR, MEAN_COLOUR, BAND_COLOUR, TRUTH_COLOUR = "#4a4a4a", "#0072b2", "rgba(0,114,178,0.2)", "#d55e00"
#: The steps of a curve: doubled until straight lines between them are as good.
_STEPS = (400, 800, 1600, 3200)


@dataclass(frozen=True)
class Subject:
    """A fitted model, and what the user said about it.

    Parameters
    ----------
    gp : LODEGP
        Fitted.
    units : dict of str to str
        Units of channels, parameters and the time ``t``, by name.
    source : str
        The name of the data file; empty where it is not known.
    truth : dict of str to float or function
        True values of parameters, and true channels as functions of times, where they are known.
    span : (float, float)
        From when to when curves are drawn, in the user's units.
    record : str
        Where this is one record of several: its name.
    """

    gp: LODEGP
    units: Mapping[str, str]
    source: str
    truth: Truth
    span: tuple[float, float]
    record: str = ""

    def heading(self, text: str) -> str:
        """Return the heading of a section, with the record that it is about where there are several."""
        if not self.record:
            return text
        return f"{text} Record {self.record}" if text.endswith("?") else f"{text}, record {self.record}"

    def unit(self, name: str) -> str:
        """Return the unit of a channel, a parameter or ``t`` with a space before it; empty where none is known."""
        found = unit_of_observable(self.units, name).strip()
        return f" {found}" if found else ""

    @cached_property
    def series(self) -> dict[str, Series]:
        """The measurements by observable, or averages where only sums were kept."""
        return {item.observable: item for part in self.gp.fit_.parts for item in part.measurements.shown}

    @property
    def names(self) -> list[str]:
        """The channels, and whatever else was measured."""
        channels = self.gp.fit_.setup.channels
        return [*channels, *(name for name in self.series if name not in channels)]

    @property
    def time_digits(self) -> int:
        """How many digits tell the times of a plot apart: ten where the time is that of Unix."""
        return digits(max(map(abs, self.span)), (self.span[1] - self.span[0]) / 100, 6)

    @cached_property
    def times(self) -> Array:
        """Times of the curves, so many that straight lines between them are as good."""
        for steps in _STEPS:
            times = np.array(plain(np.linspace(*self.span, steps + 1), 12))
            # Inputs that jump are drawn from their samples.
            known = self.gp.fit_.measurements.inputs
            mean = self.gp.predict(times, [name for name in self.names if name not in known])
            bend = np.abs(mean[1:-1:2] - (mean[:-2:2] + mean[2::2]) / 2).max(axis=0)
            if (bend <= 0.01 * np.ptp(mean, axis=0)).all():
                break
        return times

    @property
    def hover_time(self) -> str:
        """The time of a point, in the words of Plotly's hover template."""
        return f"<br>t = %{{x:.{self.time_digits}~g}}{plot_text(self.unit('t'))}<extra></extra>"

    @property
    def time_label(self) -> str:
        """The label of the time axis."""
        unit = self.unit("t")
        return plot_text(f"t in{unit}" if unit else "t")


def read_span(span: Sequence[float] | None, surroundings: tuple[float, float]) -> tuple[float, float]:
    """Return from when to when curves are drawn; raise where these are not two finite, ascending numbers.

    Parameters
    ----------
    span : sequence of two floats, or None
        What the user asked for.
    surroundings : (float, float)
        What is drawn otherwise.
    """
    if span is None:
        return surroundings
    try:
        start, stop = (float(value) for value in span)
    except (TypeError, ValueError):
        raise LodekitError(f"expected span=(from, to), two numbers, got {span!r}") from None
    if not (math.isfinite(start) and math.isfinite(stop) and start < stop):
        raise LodekitError(f"expected span=(from, to) with from < to, got ({start:g}, {stop:g})")
    return start, stop


def read_truth(truth: Truth | None) -> Truth:
    """Return true values and functions by name; raise where they are something else.

    Parameters
    ----------
    truth : dict of str to float or function, or None
        What the user gave.
    """
    known = {} if truth is None else truth
    if not isinstance(known, Mapping) or not all(callable(each) or isinstance(each, Real) for each in known.values()):
        raise LodekitError(
            f"expected truth as a dict of names to numbers (parameters) or functions of times (channels), got {truth!r}"
        )
    return dict(known)


def plain(values: Array, places: int = 10) -> list[float]:
    """Return floats that are short as text.

    Parameters
    ----------
    values : array, shape (n,)
    places : int
        How many significant digits are kept.
    """
    return [float(f"{value:.{places}g}") for value in values.tolist()]


def thin(count: int) -> NDArray[np.intp]:
    """Return which of `count` points are drawn: all, or `DRAWN` of them, evenly chosen."""
    return np.arange(count) if count <= DRAWN else np.linspace(0, count - 1, DRAWN).astype(np.intp)
