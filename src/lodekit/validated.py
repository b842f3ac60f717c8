"""How well a record was predicted: free run, coverage, predictions some rows ahead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from lodekit import plotting
from lodekit.data.inputs import InputSignal
from lodekit.learning.estimates import NORMAL_95
from lodekit.quantities import find_conversion
from lodekit.wording import join_words, sentence, show_below, show_share

__all__ = ["Ahead", "ChannelValidation", "Validation", "fit_percentage"]

Array = NDArray[np.float64]
#: A free run whose 95 % band holds less than this is not to be relied on, whatever is said of single rows.
_RELIED_ON = 0.9


class Ahead(NamedTuple):
    """How good predictions some rows or time ahead are.

    Parameters
    ----------
    fit_percent, rmse : float
        As those of a free run.
    coverage : float
        The share of measurements in the 95 % band.
    """

    fit_percent: float
    rmse: float
    coverage: float

    @classmethod
    def of(cls, errors: Array, deviations: Array, values: Array) -> Self:
        """Return it for measurements.

        Parameters
        ----------
        errors, deviations, values : arrays, shape (n,)
            Measurements minus predictions, the deviations of these, and the measurements.
        """
        covered = float(np.mean(np.abs(errors) <= NORMAL_95 * deviations))
        return cls(fit_percentage(errors, values), float(np.sqrt(np.mean(errors**2))), covered)

    def to_dict(self) -> dict[str, float]:
        """Return plain values."""
        return {"fit_percent": self.fit_percent, "rmse": self.rmse, "coverage": self.coverage}


@dataclass(frozen=True, eq=False)
class ChannelValidation:
    """How well one observable of a record was predicted.

    Parameters
    ----------
    name : str
        The observable.
    times, values, mean, std : arrays, shape (n,)
        Measurements, and the free run with the standard deviation of a measurement about it.
    ahead : dict of int or str to Ahead
        For so many rows, or times, ahead: fit percentage, root mean square of the errors, and coverage.
    misses : tuple of str
        What speaks against the model here, in words: a band that holds too little, errors that are correlated or go
        with an input by more than chance.
    """

    name: str
    times: Array
    values: Array
    mean: Array
    std: Array
    ahead: Mapping[int | str, Ahead] = field(default_factory=dict)
    misses: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the free run predicts something, and nothing speaks against the model."""
        return not self.misses and not self.fit_percent <= 0

    @property
    def fit_percent(self) -> float:
        """``100 (1 - |y - yhat| / |y - mean(y)|)``, as engineers know it: 100 is perfect, zero as good as the mean."""
        return fit_percentage(self.values - self.mean, self.values)

    @property
    def rmse(self) -> float:
        """The root mean square of the errors."""
        return float(np.sqrt(np.mean((self.values - self.mean) ** 2)))

    @property
    def coverage(self) -> float:
        """The share of measurements in the 95 % band."""
        return float(np.mean(np.abs(self.values - self.mean) <= NORMAL_95 * self.std))

    @property
    def log_density(self) -> float:
        """The mean log density of a measurement."""
        error = (self.values - self.mean) / self.std
        return float(np.mean(-0.5 * error**2 - np.log(self.std) - 0.5 * np.log(2.0 * np.pi)))


@dataclass(frozen=True, eq=False)
class Validation:
    """How well a record that was not used was predicted.

    Parameters
    ----------
    channels : tuple of ChannelValidation
        Of each observable that was predicted.
    start : str
        What the initial state comes from, in words.
    given : tuple of str
        What was taken as known over the whole record.
    units : dict of str to str
        For figures and tables.
    inputs : dict of str to InputSignal
        Known inputs, for figures.
    doubts : tuple of str
        What the fit said of its own residuals, where that was no good news.
    origin : str
        The date that is time zero, where times are counted since then; empty where they are numbers.
    """

    channels: tuple[ChannelValidation, ...]
    start: str
    given: tuple[str, ...]
    units: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, InputSignal] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    origin: str = ""

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against the model on this record."""
        return all(item.holds for item in self.channels)

    @property
    def sentences(self) -> tuple[str, ...]:
        """A verdict on each observable: whether it was predicted, and what the model misses; and doubts of the fit."""
        return (*(_judge(item) for item in self.channels), *(f"the fit itself said: {text}" for text in self.doubts))

    def __getitem__(self, name: str) -> ChannelValidation:
        for item in self.channels:
            if item.name == name:
                return item
        raise KeyError(name)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON; what is no number, such as the fit percentage of a constant, is None."""
        return {
            "verdict": list(self.sentences),
            "holds": self.holds,
            "start": self.start,
            "given": list(self.given),
            "channels": {
                item.name: {
                    "count": len(item.times),
                    "fit_percent": _plain(item.fit_percent),
                    "rmse": _plain(item.rmse),
                    "coverage": item.coverage,
                    "log_density": _plain(item.log_density),
                    "misses": list(item.misses),
                    "ahead": {
                        str(step): {key: _plain(value) for key, value in each.to_dict().items()}
                        for step, each in item.ahead.items()
                    },
                }
                for item in self.channels
            },
        }

    def __repr__(self) -> str:
        known = f" from {join_words(self.given)}" if self.given else ""
        lines = [*map(sentence, self.sentences), ""]
        lines += [f"Free run{known}; {self.start}."]
        names = {item.name: plotting.name_with_unit(item.name, self.units.get(item.name, "")) for item in self.channels}
        wide = max(14, *(len(name) + 2 for name in names.values()))
        lines.append(f"{'':<{wide}}{'rows':>7}{'fit %':>9}{'RMSE':>12}{'in 95 % band':>15}{'log density':>14}")
        for item in self.channels:
            numbers = f"{item.rmse:>12.4g}{show_share(item.coverage):>15}{item.log_density:>14.3f}"
            lines.append(f"{names[item.name]:<{wide}}{len(item.times):>7}{item.fit_percent:>9.1f}{numbers}")
        steps = list(dict.fromkeys(step for item in self.channels for step in item.ahead))
        if steps:
            lines.append("Fit % so many rows, or so long, ahead from all measurements before (in 95 % band):")
            lines.append(f"{'':<{wide}}" + "".join(f"{step:>16}" for step in steps))
        for item in self.channels if steps else ():
            both = (item.ahead.get(step) for step in steps)
            cells = (f"{each.fit_percent:.1f} ({show_share(each.coverage)})" if each else "" for each in both)
            lines.append(f"{names[item.name]:<{wide}}" + "".join(f"{cell:>16}" for cell in cells))
        return "\n".join(lines)

    def plot(self, *, axes: Any = None) -> Any:
        """Draw the free run with its 95 % band and the measurements, and below them the known inputs.

        Parameters
        ----------
        axes : matplotlib axes, one for each panel, optional
            Where to draw; on a new figure by default.
        """
        names = [*(item.name for item in self.channels), *self.inputs]
        figure, panels, new = plotting.read_axes(axes, names)
        first = min(float(item.times.min()) for item in self.channels)
        last = max(float(item.times.max()) for item in self.channels)
        # A record of another day is far from the origin of the fit: it is drawn from its own beginning, with its date.
        begin, since = (first, self._date(first)) if new and self.origin else (0.0, "")
        for item, panel in zip(self.channels, panels, strict=False):
            data = (item.times - begin, item.values)
            unit, note = self.units.get(item.name, ""), f"fit {item.fit_percent:.1f} %"
            plotting.draw_channel(panel, data[0], item.mean, item.std, data=data, label=item.name, unit=unit, note=note)
        for (name, signal), panel in zip(self.inputs.items(), panels[len(self.channels) :], strict=True):
            own = signal.times[(signal.times > first) & (signal.times < last)]
            times = np.concatenate([[first], own, [last]])
            label = f"{plotting.name_with_unit(name, self.units.get(name, ''))}\n(known)"
            plotting.draw_input(panel, times - begin, signal.at(times), is_held=signal.kind == "hold", label=label)
        plotting.label_bottom(panels, plotting.name_with_unit("t", self.units.get("t", "")) + since)
        plotting.add_legend(figure, panels, outside=new)
        if new:
            figure.align_ylabels(panels)
        return figure

    def _date(self, time: float) -> str:
        """Return the date of a time in words; nothing where its unit is none of time, or where calendars end."""
        conversion = find_conversion(self.units.get("t", "s"), "s")
        if conversion is None:
            return ""
        try:
            date = datetime.fromisoformat(self.origin) + timedelta(seconds=time * conversion.times / conversion.over)
        except OverflowError:
            return ""
        return f" since {date.isoformat(' ', 'seconds')}"


def _plain(number: float) -> float | None:
    return number if np.isfinite(number) else None


def _judge(item: ChannelValidation) -> str:
    """Return how well an observable was predicted, in one sentence."""
    share, fit = item.coverage, item.fit_percent
    # Below what it should be, a share is not rounded up to it.
    shown = show_below(share, _RELIED_ON)[0] if share < _RELIED_ON else show_share(share)
    band = f"the 95 % band holds {shown} of the measurements"
    but = f"; but the model misses something: {'; '.join(item.misses)}" if item.misses else ""
    if np.isnan(fit):
        return f"the measurements of {item.name} do not change in this record; {band}{but}"
    if fit <= 0:
        return f"the free run does not predict {item.name}: its own mean would be as good; {band}{but}"
    text = f"the free run of {item.name} has a fit of {fit:.0f} %, and {band}"
    if item.misses:
        return f"{text}{but}"
    if share < _RELIED_ON:
        # Where disturbances drive, what is judged is a row ahead: a free run may err on one side for long.
        return f"{text}: the model holds from row to row, but its free run is surer than it should be here"
    return f"{text}: the model holds here"


def fit_percentage(errors: Array, values: Array) -> float:
    """Return ``100 (1 - |errors| / |values - mean|)``; NaN for values that do not change.

    Parameters
    ----------
    errors, values : arrays, shape (n,)
    """
    spread = float(np.linalg.norm(values - values.mean()))
    return 100.0 * (1.0 - float(np.linalg.norm(errors)) / spread) if spread > 0 else float("nan")
