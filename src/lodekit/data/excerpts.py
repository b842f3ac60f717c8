"""Shorter records from long ones, to learn from first: every k-th row, or the liveliest piece."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lodekit.data.inputs import InputSignal
from lodekit.data.measurements import Measurements
from lodekit.data.observations import Series, join_series
from lodekit.data.spool import Spool

__all__ = ["decimate", "liveliest"]

Array = NDArray[np.float64]
#: So many pieces are compared.
_PIECES = 16
#: So many rows are read from disk at the same time.
_ROWS = 100_000


def decimate(measurements: Measurements, count: int) -> Measurements:
    """Return every k-th measurement of each observable, under inputs that are averages over as many samples.

    Parameters
    ----------
    measurements : Measurements
        In memory, or rows on disk.
    count : int
        About how many are left of the longest.

    Examples
    --------
    >>> from lodekit.data.observations import Observations
    >>> t = np.arange(100.0)
    >>> kept = Measurements.of(Observations().add(t, "y", t).add(t, "u", t)).given({"u": "hold"})
    >>> short = decimate(kept, 10)
    >>> short.size, short.inputs["u"].at([0.0, 10.0]).tolist()
    (10, [4.5, 14.5])
    """
    if measurements.spooled is not None:
        return _decimate_rows(measurements, measurements.spooled.spool, count)
    step = max(1, max(len(item.times) for item in measurements.series) // count)
    series = [item.take(slice(None, None, step)) for item in measurements.series]
    inputs = {name: _average(signal, step) for name, signal in measurements.inputs.items()}
    return replace(measurements, series=series, inputs=inputs)


def _average(signal: InputSignal, step: int) -> InputSignal:
    """Return a signal with fewer samples, that holds as much over time."""
    times, values = signal.times, signal.values
    if signal.kind == "linear":
        return InputSignal(times[::step], values[::step], "linear")
    edges = np.append(np.arange(0, len(times) - 1, step), len(times) - 1)
    if len(edges) < 2:
        return signal
    area = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(times))])
    means = np.diff(area[edges]) / np.diff(times[edges])
    return InputSignal(times[edges], np.append(means, values[-1]), "hold")


def _decimate_rows(measurements: Measurements, spool: Spool, count: int) -> Measurements:
    """Return every k-th row on disk; of an input only changes are kept, so its averages are taken between rows."""
    step = max(1, spool.count // count)
    most = max(1, _ROWS // step) * step
    parts = [spool.read(first, first + most, step) for first in range(0, spool.count, most)]
    series = [join_series(items) for items in zip(*parts, strict=True)]
    times = np.unique(np.concatenate([item.times for item in series]))
    inputs = {name: _average_between(signal, times) for name, signal in measurements.inputs.items()}
    return _together(series, inputs)


def _average_between(signal: InputSignal, times: Array) -> InputSignal:
    """Return a signal with samples at some times, that holds as much over time."""
    if signal.kind == "linear" or len(times) < 2:
        return InputSignal(times, signal.at(times), signal.kind)
    area = np.concatenate([[0.0], np.cumsum(signal.values[:-1] * np.diff(signal.times))])
    place = np.maximum(np.searchsorted(signal.times, times, side="right") - 1, 0)
    until = area[place] + signal.values[place] * (times - signal.times[place])
    return InputSignal(times, np.append(np.diff(until) / np.diff(times), signal.at(times[-1:])), "hold")


def liveliest(measurements: Measurements, count: int) -> Measurements:
    """Return the piece of a record in which inputs change most, with the inputs there; without inputs, measurements.

    Parameters
    ----------
    measurements : Measurements
        In memory, or rows on disk.
    count : int
        About how many measurements of the longest observable the piece has.
    """
    if measurements.spooled is not None:
        return _liveliest_rows(measurements, measurements.spooled.spool, count)
    longest = max(measurements.series, key=lambda item: len(item.times)).times
    starts = np.unique(np.linspace(0, max(len(longest) - count, 0), _PIECES).astype(int))
    windows = [(float(longest[k]), float(longest[min(k + count, len(longest)) - 1])) for k in starts]
    first, last = max(windows, key=lambda window: _activity(measurements, *window))
    series = []
    for item in measurements.series:
        part = item.take((item.times >= first) & (item.times <= last))
        series += [part] if len(part.times) else []
    inputs = {name: signal.between(first, last) for name, signal in measurements.inputs.items()}
    return replace(measurements, series=series, inputs=inputs)


def _activity(measurements: Measurements, first: float, last: float) -> float:
    """Return how much inputs change in a window, each relative to its own spread; without inputs, measurements."""
    total = 0.0
    for item in () if measurements.inputs else measurements.series:
        inside = item.values[(item.times >= first) & (item.times <= last)]
        total += float(inside.std()) / (float(item.values.std()) or 1.0) if len(inside) else 0.0
    for signal in measurements.inputs.values():
        inside = signal.values[(signal.times >= first) & (signal.times <= last)]
        total += float(np.abs(np.diff(inside)).sum()) / (float(signal.values.std()) or 1.0)
    return total


def _liveliest_rows(measurements: Measurements, spool: Spool, count: int) -> Measurements:
    """Return the liveliest piece of rows on disk, of which only pieces that are compared are read."""
    scales = {item.observable: item.spread or 1.0 for item in measurements.summaries}
    spreads = {item.observable: item.spread or 1.0 for item in measurements.input_summaries}

    def activity(first: int) -> float:
        if measurements.inputs:
            ends = spool.time(first), spool.time(min(first + count, spool.count) - 1)
            cut = {name: signal.between(*ends) for name, signal in measurements.inputs.items()}
            return sum(float(np.abs(np.diff(each.values)).sum()) / spreads[name] for name, each in cut.items())
        own = (item for item in spool.read(first, first + count) if len(item.values))
        return sum(float(item.values.std()) / scales[item.observable] for item in own)

    starts = np.unique(np.linspace(0, max(spool.count - count, 0), _PIECES).astype(int))
    first = max(starts.tolist(), key=activity)
    ends = spool.time(first), spool.time(min(first + count, spool.count) - 1)
    inputs = {name: signal.between(*ends) for name, signal in measurements.inputs.items()}
    return _together(spool.read(first, first + count), inputs)


def _together(series: list[Series], inputs: dict[str, InputSignal]) -> Measurements:
    """Return measurements in memory, of what was measured at all in these rows."""
    return Measurements([item for item in series if len(item.times)], inputs=inputs)
