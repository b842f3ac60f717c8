"""Irregularly sampled data: series of times, values and noise, one for each observable; missing values are dropped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lodekit.errors import DataError
from lodekit.support.arguments import Array, Mask, as_float_array
from lodekit.support.html import html_table, notebook_card
from lodekit.support.interval_means import averaging_time, parse_interval


@dataclass(frozen=True)
class TimeSeries:
    """The measurements of one observable.

    observable: A channel, or any linear differential expression of channels: ``f1'``, ``f1 - f2``.
    times, values: shape (n,)
    std: Known standard deviations of the noise; NaN if it is to be estimated, zero if the value is exact; (n,).
    missing: Number of missing values, which are omitted.
    """

    observable: str
    times: Array
    values: Array
    std: Array
    missing: int = field(default=0, kw_only=True)

    @property
    def has_unknown_noise(self) -> Mask:
        """Mask of the measurements with estimated noise."""
        return np.isnan(self.std)

    @property
    def has_known_noise(self) -> Mask:
        """Mask of the measurements with known noise, including zero."""
        return ~self.has_unknown_noise

    @property
    def is_exact(self) -> Mask:
        """Mask of the exact measurements."""
        return np.asarray(self.std == 0)

    @property
    def has_duplicates(self) -> bool:
        """Whether many measurements repeat the time and value of the previous one."""
        later = np.flatnonzero(self.times[1:] == self.times[:-1]) + 1
        again = int(np.count_nonzero(self.values[later] == self.values[later - 1]))
        return again >= max(0.4 * len(self.times), 1)

    def noise_std_for_level(self, level: float) -> Array:
        """Return the noise standard deviation of each measurement, shape (n,), given a `level` for unknown noise."""
        return np.where(self.has_unknown_noise, level, self.std)

    def select(self, rows: slice | NDArray[Any]) -> TimeSeries:
        """Return some of the measurements."""
        return TimeSeries(self.observable, self.times[rows], self.values[rows], self.std[rows])

    def at_midpoints(self) -> TimeSeries:
        """Return interval means as values at the midpoints of their intervals, an approximation for start values.

        Examples
        --------
        >>> TimeSeries("mean(x, 2)", np.array([3.0]), np.zeros(1), np.zeros(1)).at_midpoints().times.tolist()
        [2.0]
        """
        window = averaging_time(self.observable)
        return replace(self, times=self.times - 0.5 * window) if window else self

    def split_by_noise(self) -> list[tuple[bool, TimeSeries]]:
        """Return the non-empty parts with estimated noise (True) and with known noise (False)."""
        learned = self.has_unknown_noise
        if learned.all() or not learned.any():
            return [(bool(learned[0]), self)] if len(learned) else []
        return [(True, self.select(learned)), (False, self.select(~learned))]


def concatenate_series(parts: Sequence[TimeSeries]) -> TimeSeries:
    """Return several series of one observable as one, in the given order, regardless of their times.

    Examples
    --------
    >>> one = TimeSeries("x", np.array([0.0]), np.array([5.0]), np.zeros(1), missing=2)
    >>> both = concatenate_series([one, one])
    >>> both.values.tolist(), both.missing
    ([5.0, 5.0], 4)
    """
    if len(parts) == 1:
        return parts[0]
    columns = (np.concatenate([getattr(part, name) for part in parts]) for name in ("times", "values", "std"))
    return TimeSeries(parts[0].observable, *columns, missing=sum(part.missing for part in parts))


def find_input_samples(series: Sequence[TimeSeries], name: str, hold_type: str) -> tuple[str, TimeSeries] | None:
    """Return the samples of an input, and the name of their observable; None if there are none.

    If there are no samples, interval means are used: the input was held over each interval.

    Examples
    --------
    >>> means = TimeSeries("total(u, 2)", np.array([2.0, 4.0]), np.array([6.0, 8.0]), np.zeros(2))
    >>> called, found = find_input_samples([means], "u", "hold")
    >>> called, found.times.tolist(), found.values.tolist()
    ('total(u, 2)', [0.0, 2.0], [3.0, 4.0])
    """
    for item in series:
        if item.observable == name:
            return name, item
    for item in series:
        expression, window, is_total = parse_interval(item.observable) or ("", 0, False)
        if expression != name:
            continue
        if hold_type != "hold":
            raise DataError(
                f"{item.observable} contains means of the input {name}, not how it changed; expected "
                f'inputs={{"{name}": "hold"}}, or samples of {name}'
            )
        closest = float(np.min(np.diff(np.unique(item.times)), initial=np.inf))
        if closest < 0.9 * window:  # clocks are not exact
            raise DataError(
                f"{item.observable} was logged every {closest:g}, so its intervals overlap, and the held values of "
                f"the input {name} are not determined; expected adjacent intervals, or samples of {name}"
            )
        times, values = item.times - float(window), item.values / (float(window) if is_total else 1.0)
        return item.observable, replace(item, observable=name, times=times, values=values)
    return None


class Observations:
    """Irregularly sampled data: separate times for each observable, measured derivatives, known noise.

    Parameters
    ----------
    records : iterable of (time, observable, value) or (time, observable, value, std), optional

    Examples
    --------
    >>> data = Observations([(0.0, "x", 1.0, 0.0), (0.0, "x'", 0.0, 0.0)])
    >>> data = data.add([0.5, 1.0, 1.5], "x", [0.9, 0.6, 0.1])
    >>> len(data), data.observables
    (5, ('x', "x'"))
    >>> data
    <Observations: 4 of x, 1 of x'; t from 0 to 1.5>
    """

    def __init__(self, records: Iterable[Sequence[Any]] = ()) -> None:
        self._series: tuple[TimeSeries, ...] = ()
        grouped: dict[str, list[tuple[float, float, float]]] = {}
        try:
            given = iter(records)
        except TypeError:
            raise DataError(f"expected records (time, observable, value), got {type(records).__name__}") from None
        for number, record in enumerate(given, 1):
            fields = tuple(record) if isinstance(record, Sequence) else (record,)
            if len(fields) not in (3, 4) or not isinstance(fields[1], str):
                raise DataError(f"record {number}: expected (time, observable, value) or with a std, got {fields!r}")
            std = fields[3] if len(fields) == 4 and fields[3] is not None else np.nan
            grouped.setdefault(fields[1], []).append((fields[0], fields[2], std))
        for observable, rows in grouped.items():
            times, values, stds = zip(*rows, strict=True)
            self._series += (_make_series(observable, _parse_vector("times", times), values, stds),)

    def add(self, times: ArrayLike, observable: str, values: ArrayLike, std: ArrayLike | None = None) -> Observations:
        """Return the observations with further measurements of one observable; NaN values are omitted.

        Parameters
        ----------
        times, values : array-like, shape (n,)
        observable : str
            A channel, or any linear differential expression of channels.
        std : number, or array-like, shape (n,), optional
            Known standard deviation of the noise; zero makes values exact. Estimated if not given.

        Examples
        --------
        >>> len(Observations().add([0.0, 1.0, 2.0], "x'", [1.0, float("nan"), 0.5], std=0.1))
        2
        """
        total = Observations()
        total._series = (*self._series, _make_series(observable, _parse_vector("times", times), values, std))
        return total

    @property
    def series(self) -> tuple[TimeSeries, ...]:
        """The data, one series for each call of `add` and each observable of the records."""
        return self._series

    @property
    def observables(self) -> tuple[str, ...]:
        """The measured observables, in order of first appearance."""
        return tuple(dict.fromkeys(series.observable for series in self._series))

    def __len__(self) -> int:
        return sum(len(series.times) for series in self._series)

    def __repr__(self) -> str:
        if not self:
            return "<Observations: none yet; add(times, observable, values) adds some>"
        joined = {name: self._concatenated(name) for name in self.observables}
        first, last = _time_range(joined.values())
        listed = ", ".join(f"{len(item.times)} of {name}" for name, item in joined.items())
        return f"<Observations: {listed}; t from {first:.6g} to {last:.6g}>"

    def _repr_html_(self) -> str:
        if not self:
            return notebook_card("Observations", "none yet; add(times, observable, values) adds some")
        joined = [self._concatenated(name) for name in self.observables]
        lines = []
        for item in joined:
            times = "{:.6g} to {:.6g}".format(*_time_range([item]))
            values = f"{item.values.min():.5g} to {item.values.max():.5g}" if len(item.values) else ""
            counts = str(len(item.times)), str(item.missing or "")
            lines.append([item.observable, *counts, times, values, _describe_noise(item)])
        head = ["observable", "measurements", "missing", "times", "values", "noise"]
        return notebook_card("Observations", f"{len(self)} measurements", [html_table(head, lines, text_columns=(5,))])

    def _concatenated(self, observable: str) -> TimeSeries:
        """Return all measurements of one observable."""
        return concatenate_series([item for item in self._series if item.observable == observable])


def _time_range(series: Iterable[TimeSeries]) -> tuple[float, float]:
    """Return the first and the last of all times; NaN without times."""
    times = np.concatenate([item.times for item in series])
    return (float(times.min()), float(times.max())) if len(times) else (np.nan, np.nan)


def _describe_noise(item: TimeSeries) -> str:
    """Return a short description of the noise."""
    known = item.std[item.has_known_noise]
    if not len(known):
        return "to be learned"
    some = "" if len(known) == len(item.std) else ", in part to be learned"
    size = "none, exact" if not known.any() else f"{np.sqrt(np.mean(known**2)):.3g}, known"
    return size + some


def _parse_vector(name: str, values: ArrayLike) -> Array:
    """Return numbers, shape (n,), also from one column, as in scikit-learn."""
    array = as_float_array(name, values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(f"expected a one-dimensional array for {name}, got shape {array.shape}")
    return array


def _make_series(observable: str, t: Array, values: ArrayLike, std: ArrayLike | None) -> TimeSeries:
    """Return the checked measurements of one observable without missing values; `t` is kept if none is missing.

    Shapes: t (n,).
    """
    y = _parse_vector(f"the values of {observable}", values)
    if len(t) != len(y):
        raise DataError(f"expected as many values of {observable} as times ({len(t)}), got {len(y)}")
    s = np.full(len(t), np.nan)
    if std is not None:
        given = _parse_vector("noise_std", std)
        if len(given) not in (1, len(t)):
            raise DataError(f"expected one noise_std for {observable}, or {len(t)}, got {len(given)}")
        s = np.broadcast_to(given, t.shape).astype(float)
    keep = ~np.isnan(y)
    if missing := len(keep) - int(np.count_nonzero(keep)):
        t, y, s = t[keep], y[keep], s[keep]
    if not np.isfinite(t).all():
        index = np.flatnonzero(keep)[~np.isfinite(t)][0]
        raise DataError(
            f"expected finite times, got {t[~np.isfinite(t)][0]} at index {index} of the times of {observable}"
        )
    if not np.isfinite(y).all():
        row = int(np.flatnonzero(~np.isfinite(y))[0])
        raise DataError(f"expected finite values, got {y[row]} for {observable} at t = {t[row]:g}; use NaN for missing")
    if std is not None and ((s < 0).any() or np.isinf(s).any()):
        raise DataError(f"expected noise_std of zero or more for {observable}, got {s[(s < 0) | np.isinf(s)][0]}")
    return TimeSeries(observable, t, y, s, missing=missing)


def parse_observations(channels: Sequence[str], t: Any, Y: Any, noise_std: Any = None) -> Observations:
    """Return observations from the forms that `fit` accepts.

    Shapes: t (n,).
    """
    if isinstance(t, Observations):
        if Y is not None or noise_std is not None:
            raise DataError("expected Observations alone: they already contain values and noise")
        found = t
    else:
        times = _parse_vector("t", t)
        columns = _split_channels(channels, Y)
        noise = _parse_noise_std(noise_std, list(columns), len(times))
        found = Observations()
        # Series without missing values share their times, so that they are compared without a pass over the rows.
        found._series = tuple(_make_series(name, times, values, noise.get(name)) for name, values in columns.items())
    if len(found) == 0:
        raise DataError("expected at least one measurement; there are no rows, or every value is missing")
    return found


def _parse_noise_std(noise_std: Any, names: Sequence[str], count: int) -> Mapping[str, Any]:
    """Return the known noise of observables, given the number of times; empty if it is estimated."""
    if noise_std is None:
        return {}
    if isinstance(noise_std, Mapping):
        if unknown := [str(name) for name in noise_std if name not in names]:
            observed = ", ".join(map(str, names))
            raise DataError(
                f"noise_std names {', '.join(sorted(unknown))}, which is not observed; expected names from: {observed}"
            )
        return noise_std
    given = as_float_array("noise_std", noise_std)
    if given.ndim != 2:
        return dict.fromkeys(names, given)
    if given.shape != (count, len(names)):
        raise DataError(f"expected noise_std of shape {(count, len(names))}, like Y, got {given.shape}")
    return dict(zip(names, given.T, strict=True))


def _split_channels(channels: Sequence[str], Y: Any) -> dict[str, Any]:
    """Return the values of each observable by name, unchanged."""
    if isinstance(Y, Mapping):
        return dict(Y)
    if hasattr(Y, "columns") and not isinstance(Y, np.ndarray):
        raise DataError(f"expected Y as an array, a dict of channels or a DataFrame, got {type(Y).__name__}")
    try:
        array = as_float_array("Y", Y)
    except DataError as problem:
        raise DataError(f"expected Y as an array, a dict of channels or a DataFrame: {problem}") from None
    if array.ndim == 1 and len(channels) == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] != len(channels):
        remedy = f"if only some channels are measured, pass a dict: {{'{channels[0]}': values}}"
        remedy = "transpose it, Y.T" if array.ndim == 2 and len(array) == len(channels) else remedy
        raise DataError(
            f"expected Y with one column for each channel ({', '.join(channels)}), got shape {array.shape}; {remedy}"
        )
    return {name: array[:, i] for i, name in enumerate(channels)}
