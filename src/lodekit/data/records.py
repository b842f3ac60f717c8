"""Measurements of one or several records: in memory, on disk, or as sufficient statistics.

The module merges and checks measurements, summarises observables (scale, mean, noise), estimates noise from third
differences (Gasser, Sroka and Jennen-Steinmetz, 1986), decimates long records, and scales time and observables to the
order of one for all computations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import NoReturn

import numpy as np

from lodekit.data.inputs import GAP_RATIO, InputSignal, is_logged_every_row
from lodekit.data.observations import Observations, TimeSeries, concatenate_series, find_input_samples
from lodekit.data.row_store import OutOfCoreRows, extract_inputs, missing_outputs_error, two_values_error
from lodekit.data.statistics import Statistics
from lodekit.errors import DataError
from lodekit.support.arguments import Array
from lodekit.support.interval_means import averaging_time

#: Series with fewer rows give no noise estimate from differences.
_MIN_DIFFERENCE_ROWS = 8


@dataclass(frozen=True)
class ObservableStatistics:
    """Summary statistics of an observable: scale, mean, standard deviation and counts.

    scale: Its internal unit: the standard deviation of its values, or their size if they are constant.
    n_unknown_noise: The number of measurements whose noise is estimated.
    known_noise: The root mean square of its known noise; NaN if none is known.
    has_exact_values: Whether a nonzero value has no noise at all.
    """

    observable: str
    scale: float
    mean: float
    std: float
    count: int
    n_unknown_noise: int
    known_noise: float
    has_exact_values: bool

    @property
    def is_zero(self) -> bool:
        """Whether all values are zero, so that scale and noise are unknown."""
        return self.mean == 0.0 and self.std == 0.0

    @property
    def is_constant(self) -> bool:
        """Whether several values are equal up to rounding, so that they cannot identify dynamics."""
        return self.count > 1 and not self.std > 1e-12 * abs(self.mean)


def merge_observations(observations: Observations) -> list[TimeSeries]:
    """Return one series for each observable, ordered by time."""
    found = []
    for name in observations.observables:
        parts = [series for series in observations.series if series.observable == name and len(series.times)]
        if parts:
            whole = concatenate_series(parts)
            if not (whole.times[1:] > whole.times[:-1]).all():
                whole = replace(whole.select(np.lexsort((whole.values, whole.times))), missing=whole.missing)
            found.append(whole)
    return found


@dataclass(frozen=True)
class Measurements:
    """Measurements of one record in memory, or their sufficient statistics.

    series: One for each observable, ordered by time; empty if only sums are kept.
    sufficient_statistics: Sums over measurements that are not in memory.
    inputs: Channels that are known for all times, by name; they are not measurements.
    stored_rows: If only sums are kept: the rows behind them, if these can be read again.
    """

    series: Sequence[TimeSeries] = ()
    sufficient_statistics: Statistics | None = None
    inputs: Mapping[str, InputSignal] = field(default_factory=dict)
    stored_rows: OutOfCoreRows | None = field(default=None, compare=False, repr=False)

    @classmethod
    def from_observations(cls, observations: Observations) -> Measurements:
        """Return measurements in memory."""
        return cls(merge_observations(observations))

    @property
    def records(self) -> Mapping[str, Measurements]:
        """The measurements of each record, by name."""
        return {DEFAULT_RECORD_NAME: self}

    def __add__(self, other: Measurements) -> Measurements:
        inputs = self.merge_inputs(other)
        if self.sufficient_statistics is None and other.sufficient_statistics is None:
            joined = Observations()
            for item in (*self.series, *other.series):
                joined = joined.add(item.times, item.observable, item.values, item.std)
            return replace(Measurements.from_observations(joined), inputs=inputs)
        (start, stop), (other_start, other_stop) = self.window, other.window
        window = min(start, other_start), max(stop, other_stop)
        total = self._statistics_over(*window) + other._statistics_over(*window)
        return Measurements(sufficient_statistics=total, inputs=inputs)

    def merge_inputs(self, other: Measurements) -> dict[str, InputSignal]:
        """Return the inputs with the samples of other measurements added."""
        inputs = dict(self.inputs)
        for name, new in other.inputs.items():
            if (old := inputs.setdefault(name, new)) is not new:
                times, values = np.append(old.times, new.times), np.append(old.values, new.values)
                order, missing = np.argsort(times, kind="stable"), old.missing + new.missing
                inputs[name] = _input_from_samples(name, times[order], values[order], old.kind, missing)
        return inputs

    def with_known_inputs(self, hold_types: Mapping[str, str], *, required: bool = True) -> Measurements:
        """Return the measurements with some channels as known inputs: their samples become inputs."""
        new = {name: kind for name, kind in hold_types.items() if name not in self.inputs}
        inputs = {name: self.inputs[name].with_hold_type(hold_types[name]) for name in hold_types if name not in new}
        if not new:
            return replace(self, inputs=inputs) if inputs else self
        if (sums := self.sufficient_statistics) is not None:
            if self.stored_rows is None:
                raise DataError(
                    "there are too many data to keep in memory, and sums over them do not contain the inputs: known "
                    "inputs need rows that can be read again; give a CSV or Parquet file, or fewer rows, such as every "
                    "k-th one"
                )
            present = {name: kind for name, kind in new.items() if name in sums.observables}
            if required and (absent := [name for name in new if name not in present]):
                raise DataError(f"expected samples of the input {absent[0]}; the data have {', '.join(self.names)}")
            rows, signals = extract_inputs(self.stored_rows, present)
            sums = replace(sums, cells={key: cell for key, cell in sums.cells.items() if key[0] not in signals})
            return Measurements(sufficient_statistics=sums, inputs={**inputs, **signals}, stored_rows=rows)
        used = set()
        for name, kind in new.items():
            if (found := find_input_samples(self.series, name, kind)) is not None:
                used.add(found[0])
                inputs[name] = _input_from_samples(name, found[1].times, found[1].values, kind, found[1].missing)
            elif required:
                raise DataError(
                    f"expected values of the input {name}, got none: it has no column, or all of its values are "
                    f"missing; the data have {', '.join(self.names)}. If its column has another name, map it: "
                    f"columns={{'{name}': 'COLUMN'}} or --map {name}=COLUMN"
                )
        measured = [item for item in self.series if item.observable not in used]
        if not measured and required:
            raise missing_outputs_error(self.names)
        return Measurements(measured, inputs=inputs)

    def _statistics_over(self, start: float, stop: float) -> Statistics:
        return self.sufficient_statistics or Statistics.of(start, stop, self.series)

    @cached_property
    def statistics(self) -> Statistics:
        """Sufficient statistics of all measurements."""
        return self._statistics_over(*self.window)

    @property
    def names(self) -> tuple[str, ...]:
        """The observables."""
        sums = self.sufficient_statistics
        return tuple(item.observable for item in self.series) if sums is None else sums.observables

    @property
    def counts_by_record(self) -> Array:
        """Number of measurements of each observable in each record, shape (records, o)."""
        statistics = (part.observable_statistics for part in self.records.values())
        counts = [{item.observable: item.count for item in record} for record in statistics]
        return np.array([[record.get(name, 0) for name in self.names] for record in counts], dtype=float)

    @property
    def size(self) -> int:
        """Number of measurements."""
        sums = self.sufficient_statistics
        return sum(len(item.times) for item in self.series) if sums is None else sums.size

    @property
    def n_distinct(self) -> int:
        """Number of measurements; those of one observable at one time count once."""
        sums = self.sufficient_statistics
        return sum(len(np.unique(item.times)) for item in self.series) if sums is None else sums.size

    @property
    def window(self) -> tuple[float, float]:
        """The first and last time that measurements cover; an average covers the interval before its time."""
        if self.sufficient_statistics is not None:
            stored = None if self.stored_rows is None else self.stored_rows.window
            return stored or (self.sufficient_statistics.start, self.sufficient_statistics.stop)
        filled = [item for item in self.series if len(item.times)]
        first = min(float(item.times[0]) - averaging_time(item.observable) for item in filled)
        return first, max(float(item.times[-1]) for item in filled)

    @property
    def has_only_statistics(self) -> bool:
        """Whether only sufficient statistics are kept."""
        return self.sufficient_statistics is not None

    @property
    def plotted_series(self) -> list[TimeSeries]:
        """The measurements, or their averages if only sums are kept."""
        return self.decimated_series() if self.has_only_statistics else list(self.series)

    @property
    def extended_window(self) -> tuple[float, float]:
        """The window extended by a tenth of its length on both sides: the default range of curves.

        It is not extended before a record with known inputs, which are unknown there, or with exact initial values.
        """
        first, last = self.available_window
        more = 0.1 * (last - first) or 1.0
        has_start = first > self.window[0] or any(item.is_exact[item.times == first].any() for item in self.series)
        return first if self.inputs or has_start else first - more, last + more

    @property
    def available_window(self) -> tuple[float, float]:
        """The window without the rows that the saved model omits."""
        first, last = self.window
        if self.stored_rows is not None and self.is_truncated:
            first = self.stored_rows.store.time_of_row(0)
        return first, last

    @property
    def has_exact_values(self) -> bool:
        """Whether a measurement has no noise at all."""
        return any(item.is_exact.any() for item in self.series)

    @property
    def is_truncated(self) -> bool:
        """Whether the saved model lacks most of its rows."""
        return self.stored_rows is not None and self.stored_rows.checkpoints is not None

    def _has_few_rows(self) -> bool:
        return self.sufficient_statistics is None and self.size <= 4096

    def time_grid(self, count: int = 200) -> Array:
        """Return the times of the measurements, or a regular grid if there are many."""
        if self._has_few_rows():
            return np.unique(np.concatenate([item.times for item in self.series]))
        return np.linspace(*self.available_window, count)

    def decimated_series(self) -> list[TimeSeries]:
        """Return the measurements, or averages of neighbours if there are many."""
        return list(self.series) if self._has_few_rows() else self.statistics.thumbnail()

    def difference_noise_std(self) -> Array | None:
        """Return the noise of each observable estimated from third differences; None if unknown."""
        if self.has_only_statistics or any(len(item.values) < _MIN_DIFFERENCE_ROWS for item in self.series):
            return None
        return np.array([estimate_noise_std(item.values[: 1 << 16]) for item in self.series])

    @cached_property
    def input_statistics(self) -> list[ObservableStatistics]:
        """Summary statistics of each input."""
        if self.stored_rows is None:
            with np.errstate(all="ignore"):
                signals = self.inputs.items()
                return [_array_statistics(name, each.values, np.zeros(len(each.values))) for name, each in signals]
        found = []
        for name, (count, mean, std, max_abs, *_) in self.stored_rows.input_statistics.items():
            scale, has_exact = natural_scale(std, max_abs), mean != 0.0 or std != 0.0
            found.append(ObservableStatistics(name, scale, mean, std, count, 0, 0.0, has_exact))
        return found

    @cached_property
    def observable_statistics(self) -> list[ObservableStatistics]:
        """Summary statistics of each observable."""
        if (sums := self.sufficient_statistics) is not None:
            return [_moment_statistics(sums, name) for name in sums.observables]
        with np.errstate(all="ignore"):
            return [_array_statistics(item.observable, item.values, item.std) for item in self.series]


def _input_from_samples(name: str, times: Array, values: Array, kind: str, missing: int) -> InputSignal:
    """Return an input from samples ordered by time; raise if it has two values at one time."""
    if (np.diff(times) > 0).all():
        return InputSignal(times, values, kind, missing)  # type: ignore[arg-type]
    places, first = np.unique(times, return_index=True)
    again = np.setdiff1d(np.arange(len(times)), first)
    for row in again:
        if values[row] != values[first[np.searchsorted(places, times[row])]]:
            raise two_values_error(name, float(times[row]))
    return InputSignal(places, values[first], kind, missing)  # type: ignore[arg-type]


def estimate_noise_std(values: Array) -> float:
    """Return the noise standard deviation estimated from third differences."""
    # The third difference of white noise has twenty times its variance.
    return float(np.sqrt(np.mean(np.diff(values, 3) ** 2) / 20.0))


def natural_scale(std: float, max_abs: float) -> float:
    """Return the scale of an observable: its standard deviation, or its size if it is constant."""
    return std if std > 1e-12 * max_abs and std > 0 else max_abs or 1.0


def _array_statistics(name: str, values: Array, noise: Array) -> ObservableStatistics:
    if not len(values):
        return ObservableStatistics(name, 1.0, 0.0, 0.0, 0, 0, np.nan, False)
    known, spread = noise[~np.isnan(noise)], float(np.std(values))
    scale = natural_scale(spread, float(np.max(np.abs(values))))
    rms = float(np.sqrt(np.mean(known**2))) if len(known) else np.nan
    has_exact, n_unknown = bool((values[noise == 0] != 0).any()), len(noise) - len(known)
    return ObservableStatistics(name, scale, float(values.mean()), spread, len(values), n_unknown, rms, has_exact)


def _moment_statistics(sums: Statistics, name: str) -> ObservableStatistics:
    cells = {known: cell for (other, known), cell in sums.cells.items() if other == name}
    weight = sum(float(cell.weight_moments[0]) for cell in cells.values())
    reference = next(iter(cells.values())).reference
    about = [cell.with_reference(reference) for cell in cells.values()]
    shift = sum(float(cell.value_moments[0]) for cell in about) / weight
    mean, size = reference + shift, abs(reference + shift)
    spread = float(np.sqrt(max(sum(cell.sum_of_squares for cell in about) / weight - shift**2, 0.0)))
    # Below this limit, the difference of two sums is rounding error.
    spread = spread if spread > 1e-7 * abs(shift) else 0.0
    known = cells.get(True)
    noise = np.nan if known is None else float(np.sqrt(known.count / known.weight_moments[0]))
    count = sum(cell.count for cell in cells.values())
    learned = cells[False].count if False in cells else 0
    return ObservableStatistics(
        name, natural_scale(spread, float(np.hypot(size, spread))), mean, spread, count, learned, noise, False
    )


def check_no_overlap(old: Measurements, new: Measurements) -> None:
    """Raise if new measurements of an observable lie among old ones: another record, or the same data again.

    Other observables may be measured at the same times, and gaps in time may be filled.

    Examples
    --------
    >>> from lodekit.data.observations import Observations
    >>> old = Observations().add([0.0, 1.0, 2.0], "x", [1.0, 2.0, 3.0])
    >>> new = Observations().add([2.0, 3.0], "x", [2.9, 4.0])
    >>> check_no_overlap(Measurements.from_observations(old), Measurements.from_observations(new))
    """
    known = {item.observable: item for item in old.plotted_series}
    for item in new.plotted_series:
        before = known.get(item.observable)
        if before is None or not len(item.times):
            continue
        first, last = float(item.times[0]), float(item.times[-1])
        among = (before.times > first) & (before.times < last)
        again = set(zip(before.times.tolist(), before.values.tolist(), strict=True)) & set(
            zip(item.times.tolist(), item.values.tolist(), strict=True)
        )
        if among.any() or again:
            shown = f"t = {min(again)[0]:g}, with the same value" if again else f"t = {before.times[among][0]:g}"
            raise DataError(
                f"expected new measurements: {item.observable} was measured before between t = {first:g} and {last:g}, "
                f"for example at {shown}. Omit measurements of the fit; if these are further values of the same "
                "record in between, call fit with all measurements; another record, whose time starts again, is added "
                "under its own name: record=NAME"
            )


def check_consistent_exact_values(series: Sequence[TimeSeries]) -> None:
    """Raise if exact values contradict each other."""
    for item in series:
        exact = item.select(item.is_exact)
        seen: dict[float, float] = {}
        for time, value in zip(exact.times.tolist(), exact.values.tolist(), strict=True):
            if seen.setdefault(time, value) != value:
                raise DataError(
                    f"{item.observable} has two different exact values at t = {time:g}: {seen[time]:g} and "
                    f"{value:g}; give them a noise_std above zero"
                )


def check_exact_residuals(times: Array, residuals: Array) -> None:
    """Raise if curves miss exact values, which then contradict each other or the equations.

    Shapes: times (m,), residuals (m,).

    Examples
    --------
    >>> check_exact_residuals(np.array([0.0, 1.0]), np.array([1e-9, 1e-8]))
    """
    residuals = np.where(np.isfinite(residuals), np.abs(residuals), np.inf)
    if len(residuals) and residuals.max() >= 1e-3:
        raise DataError(
            f"the exact values contradict each other or the equations, for example at t = "
            f"{times[int(np.argmax(residuals))]:g}; give them a noise_std above zero"
        )


#: The default name of the only record of a fit.
DEFAULT_RECORD_NAME = "0"


@dataclass(frozen=True)
class RecordSet(Measurements):
    """Two or more records of a fit, with pooled statistics; they have no time axis in common.

    Each record has its own functions and its own initial state. Fields of single records other than `inputs` are empty.
    inputs: Those of the first record; all records have the same known inputs with the same hold types.
    parts: The measurements of each record, by name.

    Examples
    --------
    >>> from lodekit.data.observations import Observations
    >>> data = [Observations().add([0.0, 1.0], "x", values) for values in ([0.0, 2.0], [4.0, 6.0])]
    >>> records = RecordSet.from_records(dict(zip("ab", map(Measurements.from_observations, data))))
    >>> records.size, records.names, records.observable_statistics[0].mean
    (4, ('x',), 3.0)
    """

    parts: Mapping[str, Measurements] = field(default_factory=dict)

    @classmethod
    def from_records(cls, records: Mapping[str, Measurements]) -> Measurements:
        """Return the measurements of the only record, or all records together."""
        first, *others = records
        if not others:
            return records[first]
        kinds = {name: {n: signal.kind for n, signal in part.inputs.items()} for name, part in records.items()}
        for name in others:
            if kinds[name] != kinds[first]:
                raise DataError(
                    f"expected the same known inputs in all records; {first} has {kinds[first] or 'none'}, "
                    f"{name} has {kinds[name] or 'none'}"
                )
        return cls(inputs=records[first].inputs, parts=records)

    @property
    def records(self) -> Mapping[str, Measurements]:
        """The measurements of each record, by name."""
        return self.parts

    def with_known_inputs(self, hold_types: Mapping[str, str], *, required: bool = True) -> Measurements:
        """Return all records with some channels as known inputs, each with its own samples."""
        records = {}
        for name, part in self.parts.items():
            try:
                records[name] = part.with_known_inputs(hold_types, required=required)
            except DataError as problem:
                raise DataError(f"record {name}: {problem}") from None
        return RecordSet.from_records(records)

    def __add__(self, other: Measurements) -> Measurements:
        raise DataError("expected the record to which measurements are added, got several; specify record=")

    @property
    def names(self) -> tuple[str, ...]:
        """The observables of all records."""
        return tuple(dict.fromkeys(name for part in self.parts.values() for name in part.names))

    @property
    def size(self) -> int:
        """Number of measurements."""
        return sum(part.size for part in self.parts.values())

    @property
    def n_distinct(self) -> int:
        """Number of measurements; those of one observable at one time of a record count once."""
        return sum(part.n_distinct for part in self.parts.values())

    @property
    def has_only_statistics(self) -> bool:
        """Whether only sums are kept for any record."""
        return any(part.has_only_statistics for part in self.parts.values())

    @property
    def window(self) -> tuple[float, float]:
        """The start of the first record, and this start plus the duration of the longest record."""
        first = next(iter(self.parts.values())).window[0]
        return first, first + max(stop - start for start, stop in (part.window for part in self.parts.values()))

    def _raise_several_records(self, *_: object, **__: object) -> NoReturn:
        """Raise: every record has its own time axis."""
        raise DataError("expected the measurements of one record, got several records")

    plotted_series = statistics = property(_raise_several_records)
    time_grid = decimated_series = _raise_several_records

    @property
    def has_exact_values(self) -> bool:
        """Whether a measurement has no noise at all."""
        return any(part.has_exact_values for part in self.parts.values())

    def difference_noise_std(self) -> Array | None:
        """Return the noise of each observable estimated from third differences within records; None if unknown."""
        found = []
        for name in self.names:
            parts = [item.values for part in self.parts.values() for item in part.series if item.observable == name]
            if not (parts := [values for values in parts if len(values) >= _MIN_DIFFERENCE_ROWS]):
                return None
            variances = np.square([estimate_noise_std(values) for values in parts])
            found.append(float(np.sqrt(np.average(variances, weights=[float(len(values)) for values in parts]))))
        return np.array(found)

    @cached_property
    def observable_statistics(self) -> list[ObservableStatistics]:
        """Pooled statistics of each observable."""
        return _pool_statistics([part.observable_statistics for part in self.parts.values()])

    @cached_property
    def input_statistics(self) -> list[ObservableStatistics]:
        """Pooled statistics of each input."""
        return _pool_statistics([part.input_statistics for part in self.parts.values()])


def _pool_statistics(records: Iterable[Iterable[ObservableStatistics]]) -> list[ObservableStatistics]:
    """Return the pooled statistics of each observable over all records, in order of first appearance."""
    by_name: dict[str, list[ObservableStatistics]] = {}
    for item in chain.from_iterable(records):
        by_name.setdefault(item.observable, []).append(item)
    found = []
    for name, items in by_name.items():
        columns = [(item.count, item.mean, item.std, item.known_noise) for item in items]
        counts, means, spreads, known = np.array(columns, dtype=float).T
        mean = float(np.average(means, weights=counts))
        spread = float(np.sqrt(np.average(spreads**2 + (means - mean) ** 2, weights=counts)))
        has_noise = ~np.isnan(known)
        noise = np.sqrt(np.average(known[has_noise] ** 2, weights=counts[has_noise])) if has_noise.any() else np.nan
        scale = natural_scale(spread, float(np.max(np.hypot(means, spreads))))
        n_unknown, has_exact = sum(item.n_unknown_noise for item in items), any(item.has_exact_values for item in items)
        pooled = name, scale, mean, spread, int(counts.sum()), n_unknown, float(noise), has_exact
        found.append(ObservableStatistics(*pooled))
    return found


def with_empty_series(measurements: Measurements, names: Sequence[str]) -> Measurements:
    """Return measurements with an empty series for each missing observable, so that all records have the same ones."""
    if measurements.names == tuple(names) or measurements.sufficient_statistics is not None:
        return measurements
    own = {item.observable: item for item in measurements.series}
    nothing = np.zeros(0)
    return replace(measurements, series=[own.get(name, TimeSeries(name, nothing, nothing, nothing)) for name in names])


def split_at_gaps(records: Mapping[str, Measurements], inputs: Collection[str] = ()) -> dict[str, Measurements]:
    """Return records split at gaps of their rows, or of inputs that are logged with every row.

    A gap is a step longer than six times the upper quartile of the steps. Rows in gaps of inputs, and single rows
    between two gaps, are left out.

    Examples
    --------
    >>> from lodekit.data.observations import Observations
    >>> times = [0.0, 1.0, 2.0, 30.0, 31.0, 32.0]
    >>> record = Measurements.from_observations(Observations().add(times, "x", times))
    >>> {name: part.window for name, part in split_at_gaps({"log": record}).items()}
    {'log, part 1': (0.0, 2.0), 'log, part 2': (30.0, 32.0)}
    """
    found = dict[str, Measurements]()
    for name, part in records.items():
        if part.has_only_statistics:
            raise DataError("a record with so many rows cannot be split at gaps; expected fewer rows, or split files")
        times = np.unique(np.concatenate([item.times for item in part.series]))
        samples = [item.times for item in part.series if item.observable in inputs]
        gaps = [find_gaps(own) for own in (times, *samples) if is_logged_every_row(len(times), len(own))]
        starts, stops = np.unique(np.concatenate([[(-np.inf, -np.inf)], *gaps, [(np.inf, np.inf)]]), axis=0).T
        pieces = []
        for low, high in zip(np.maximum.accumulate(stops)[:-1], starts[1:], strict=True):
            inside = times[(times >= low) & (times <= high)]
            if len(inside) > 1:
                series = [_select_window(item, inside, len(times), item.observable in inputs) for item in part.series]
                pieces.append(replace(part, series=[item for item in series if len(item.times)]))
        # Parts of a record without a name are called by numbers from zero, as the records of a list are.
        title = "" if [*records] == [DEFAULT_RECORD_NAME] else f"{name}, part "
        parts = {f"{title}{k}": own for k, own in enumerate(pieces, bool(title))}
        found |= parts if len(pieces) > 1 else {name: part}
    return found


def _select_window(item: TimeSeries, times: Array, n_times: int, is_input: bool) -> TimeSeries:
    """Return the measurements between the first and the last of some times.

    An input that is logged only when it changes starts with its last value before.

    Shapes: times (n,).
    """
    rows = (item.times >= times[0]) & (item.times <= times[-1])
    before = int(np.searchsorted(item.times, times[0], side="right")) - 1
    if is_input and before >= 0 and not is_logged_every_row(n_times, len(item.times)):
        rows[before] = True
    found = item.select(rows)
    return replace(found, times=np.maximum(found.times, times[0]))


def find_gaps(times: Array) -> Array:
    """Return the start and stop of each gap, shape (gaps, 2).

    Shapes: times (n,).
    """
    steps = np.diff(times)
    places = np.flatnonzero(steps > GAP_RATIO * np.quantile(steps, 0.75)) if len(steps) else np.zeros(0, dtype=int)
    return np.column_stack([times[places], times[places + 1]])


def describe_records(names: Collection[str]) -> list[str]:
    """Return the number and the names of several records for a message; nothing if there is one."""
    listed = _format_record_names(list(names))
    text = f"{len(names)} records, each with its own initial state: {listed}"
    return [text] if len(names) > 1 else []


def _format_record_names(names: Sequence[str]) -> str:
    """Return names of records for a message; many are cut short."""
    return ", ".join(names[:12]) + ", ..." * (len(names) > 12)


def find_record_index(names: Sequence[str], record: object) -> int:
    """Return the index of a record given by name, or by number counted from zero if no name is a number.

    Examples
    --------
    >>> [find_record_index(["a.csv", "b.csv"], record) for record in ("b.csv", 0)], find_record_index(["3", "7"], 7)
    ([1, 0], 1)
    """
    listed = _format_record_names(names)
    if record is None:
        if len(names) > 1:
            raise DataError(f"this fit has {len(names)} records, {listed}; specify one of them: record={names[0]!r}")
        return 0
    text = record if isinstance(record, str) else str(record)
    if text in names:
        return list(names).index(text)
    is_number = isinstance(record, int | np.integer) and not isinstance(record, bool)
    if is_number and 0 <= int(text) < len(names) and not any(name.lstrip("-").isdigit() for name in names):
        return int(text)
    raise DataError(f"expected one of the records {listed}, got {record!r}")


def decimate_record(measurements: Measurements, n_rows: int) -> Measurements:
    """Return every k-th measurement of each observable, and inputs averaged over as many samples.

    Examples
    --------
    >>> from lodekit.data.observations import Observations
    >>> t = np.arange(100.0)
    >>> whole = Measurements.from_observations(Observations().add(t, "y", t).add(t, "u", t))
    >>> short = decimate_record(whole.with_known_inputs({"u": "hold"}), 10)
    >>> short.size, short.inputs["u"].at([0.0, 10.0]).tolist()
    (10, [4.5, 14.5])
    """
    if measurements.stored_rows is not None:
        # Only changes of an input are kept, so it is averaged between the times of the rows.
        store = measurements.stored_rows.store
        step = max(1, store.n_rows // n_rows)
        most = max(1, 100_000 // step) * step
        parts = [store.read_series(first, first + most, step) for first in range(0, store.n_rows, most)]
        series = [concatenate_series(items) for items in zip(*parts, strict=True)]
        times = np.unique(np.concatenate([item.times for item in series]))
        inputs = {name: _average_between_times(signal, times) for name, signal in measurements.inputs.items()}
        return Measurements([item for item in series if len(item.times)], inputs=inputs)
    step = max(1, max(len(item.times) for item in measurements.series) // n_rows)
    series = [item.select(slice(None, None, step)) for item in measurements.series]
    inputs = {}
    for name, signal in measurements.inputs.items():
        last = len(signal.times) - 1
        kept = np.arange(0, last + 1, step) if signal.kind == "linear" else np.append(np.arange(0, last, step), last)
        inputs[name] = _average_between_times(signal, signal.times[kept])
    return replace(measurements, series=series, inputs=inputs)


def _average_between_times(signal: InputSignal, times: Array) -> InputSignal:
    """Return a signal with samples at given times and the same integral over time."""
    if signal.kind == "linear" or len(times) < 2:
        return InputSignal(times, signal.at(times), signal.kind)
    area = np.concatenate([[0.0], np.cumsum(signal.values[:-1] * np.diff(signal.times))])
    place = np.maximum(np.searchsorted(signal.times, times, side="right") - 1, 0)
    until = area[place] + signal.values[place] * (times - signal.times[place])
    return InputSignal(times, np.append(np.diff(until) / np.diff(times), signal.at(times[-1:])), "hold")


def most_active_segment(measurements: Measurements, n_rows: int) -> Measurements:
    """Return the segment in which the inputs, or without inputs the measurements, vary most relative to their spread.

    Up to 16 segments are compared; only these rows are read from disk.
    """
    store = None if measurements.stored_rows is None else measurements.stored_rows.store
    times = np.zeros(0) if store else max(measurements.series, key=lambda item: len(item.times)).times
    total = store.n_rows if store else len(times)
    statistics = (*measurements.observable_statistics, *measurements.input_statistics)
    spreads = {item.observable: item.std or 1.0 for item in statistics}

    def read_segment(start: int) -> Measurements:
        ends = start, min(start + n_rows, total) - 1
        first, last = map(store.time_of_row, ends) if store else times[list(ends)].tolist()
        inputs = {name: signal.restricted_to(first, last) for name, signal in measurements.inputs.items()}
        if store:
            series = store.read_series(start, start + n_rows)
        else:
            series = [item.select((item.times >= first) & (item.times <= last)) for item in measurements.series]
        return Measurements([item for item in series if len(item.times)], inputs=inputs)

    def activity(segment: Measurements) -> float:
        changes = {name: float(np.abs(np.diff(each.values)).sum()) for name, each in segment.inputs.items()}
        changes = changes or {item.observable: float(item.values.std()) for item in segment.series}
        return sum(change / spreads[name] for name, change in changes.items())

    starts = np.unique(np.linspace(0, max(total - n_rows, 0), 16).astype(int)).tolist()
    return max(map(read_segment, starts), key=activity)


@dataclass(frozen=True)
class Scaling:
    """The unit of time with its origin, and the unit of each observable.

    start, time_scale: Time zero and the unit of time of the scaled problem, in the user's unit.
    scales: The units of the observables, in the user's units; (o,).

    Examples
    --------
    >>> scaling = Scaling(10.0, 5.0, np.array([2.0]))
    >>> scaling.scale_times(np.array([10.0, 15.0])).tolist(), scaling.unscale_durations(0.5)
    ([0.0, 1.0], 2.5)
    """

    start: float
    time_scale: float
    scales: Array

    @classmethod
    def from_measurements(
        cls, measurements: Measurements, *, time: Scaling | None = None, scales: Mapping[str, float] | None = None
    ) -> Scaling:
        """Return the scaling for measurements, optionally with a given time scaling or given scales."""
        start, stop = measurements.window
        kept = scales or {}
        own = np.array([kept.get(item.observable, item.scale) for item in measurements.observable_statistics])
        found = cls(start, stop - start or 1.0, own) if time is None else replace(time, scales=own)
        sizes = np.append(own, found.time_scale)
        if not ((sizes > 1e-100) & (sizes < 1e100)).all():
            raise DataError("expected times and values whose squares are finite floats; change their units")
        return found

    def unscaled(self, count: int) -> Scaling:
        """Return a scaling with the same unit of time, and `count` observables in the user's units."""
        return replace(self, scales=np.ones(count))

    def scale_times(self, times: Array) -> Array:
        """Return the user's times as scaled times."""
        return (times - self.start) / self.time_scale

    def unscale_times(self, scaled: Array) -> Array:
        """Return scaled times in the user's unit."""
        return np.asarray(self.start + self.time_scale * scaled)

    def unscale_durations(self, scaled: float) -> float:
        """Return scaled durations, such as lengthscales, in the user's unit."""
        return scaled * self.time_scale

    def log_jacobian(self, counts: Sequence[int]) -> float:
        """Return the term that converts a log density from scaled units to the user's."""
        return -sum(count * float(np.log(scale)) for count, scale in zip(counts, self.scales, strict=True))
