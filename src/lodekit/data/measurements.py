"""All that is known of the data: the measurements themselves, or sums over them where there are too many to keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lodekit.data.inputs import InputSignal
from lodekit.data.observations import Observations, Series, join_series, samples_of
from lodekit.data.sampled import take_inputs
from lodekit.data.spool import Spooled, Spread
from lodekit.data.statistics import Statistics
from lodekit.errors import DataError
from lodekit.intervals import window_of

__all__ = [
    "ENOUGH",
    "Measurements",
    "Summary",
    "merge",
    "scatter_of",
    "typical_noise",
    "unit_of",
]

Array = NDArray[np.float64]
#: Where more measurements than this are in memory, averages serve for a first look.
_THUMBNAIL = 4096
#: So many neighbours at least, and at most, tell the noise.
ENOUGH, _SOME = 8, 1 << 16


@dataclass(frozen=True)
class Summary:
    """What is known of an observable before any model: its size, its mean, and how many measurements there are.

    Parameters
    ----------
    observable : str
    scale : float
        The unit it is measured in inside: its spread, or its size where it does not change.
    mean, spread : float
    count : int
    learned : int
        How many measurements have noise that is learned.
    known_noise : float
        The root mean square of its known noise; NaN where none is known.
    exact : bool
        Whether a value other than zero has no noise at all.
    """

    observable: str
    scale: float
    mean: float
    spread: float
    count: int
    learned: int
    known_noise: float
    exact: bool

    @property
    def is_zero(self) -> bool:
        """Whether all values are zero: they show neither the size of the observable nor that of its noise."""
        return self.mean == 0.0 and self.spread == 0.0


def merge(observations: Observations) -> list[Series]:
    """Return one series for each observable, ordered by time."""
    found = []
    for name in observations.observables:
        parts = [series for series in observations.series if series.observable == name and len(series.times)]
        if parts:
            whole = join_series(parts)
            if not (np.diff(whole.times) > 0).all():
                whole = replace(whole.take(np.lexsort((whole.values, whole.times))), missing=whole.missing)
            found.append(whole)
    return found


@dataclass(frozen=True)
class Measurements:
    """Measurements in memory, or sums over them.

    Parameters
    ----------
    series : list of Series
        One for each observable, ordered by time; empty where there are only sums.
    sums : Statistics or None
        Sums over measurements that are not in memory.
    inputs : dict of str to InputSignal
        Channels that are known for all times, by name; they are no measurements.
    spooled : Spooled or None
        Where there are only sums, the rows that these are over, if they can be read again.
    """

    series: Sequence[Series] = ()
    sums: Statistics | None = None
    inputs: Mapping[str, InputSignal] = field(default_factory=dict)
    spooled: Spooled | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, observations: Observations) -> Measurements:
        """Return measurements in memory."""
        return cls(merge(observations))

    def __add__(self, other: Measurements) -> Measurements:
        inputs = self.inputs_with(other)
        if self.sums is None and other.sums is None:
            joined = Observations()
            for item in (*self.series, *other.series):
                joined = joined.add(item.times, item.observable, item.values, item.std)
            return replace(Measurements.of(joined), inputs=inputs)
        start = min(self.window[0], other.window[0])
        stop = max(self.window[1], other.window[1])
        return Measurements(sums=self._summed(start, stop) + other._summed(start, stop), inputs=inputs)

    def inputs_with(self, other: Measurements) -> dict[str, InputSignal]:
        """Return the inputs with the samples that other measurements add to them.

        Parameters
        ----------
        other : Measurements
            Of the same record.
        """
        inputs = dict(self.inputs)
        for name, more in other.inputs.items():
            inputs[name] = _join(name, inputs[name], more) if name in inputs else more
        return inputs

    def given(self, kinds: Mapping[str, str], *, required: bool = True) -> Measurements:
        """Return the measurements with some channels taken for known: their samples become inputs.

        Parameters
        ----------
        kinds : dict of str to {"hold", "linear"}
            What each input does between its samples.
        required : bool
            Whether each of them needs samples.
        """
        new = {name: kind for name, kind in kinds.items() if name not in self.inputs}
        inputs = {name: self.inputs[name].taken_as(kind) for name, kind in kinds.items() if name in self.inputs}
        if not new:
            return replace(self, inputs=inputs) if inputs else self
        if self.sums is not None:
            return self._given_on_disk(self.sums, new, inputs, required=required)
        used = set()
        for name, kind in new.items():
            if (found := samples_of(self.series, name, kind)) is not None:
                used.add(found[0])
                inputs[name] = _signal(name, found[1].times, found[1].values, kind, found[1].missing)
            elif required:
                known = ", ".join(self.names)
                raise DataError(f"expected samples of the input {name}; the data have {known}")
        rest = [item for item in self.series if item.observable not in used]
        if not rest and required:
            raise DataError("expected measurements of what responds to the inputs; the data have the inputs alone")
        return Measurements(rest, inputs=inputs)

    def _given_on_disk(
        self, sums: Statistics, new: Mapping[str, str], inputs: dict[str, InputSignal], *, required: bool
    ) -> Measurements:
        """Return measurements of which only sums are in memory, with the samples of inputs, from the rows on disk."""
        if self.spooled is None:
            raise DataError(
                "the data are too many to be kept, and sums over them do not hold what an input does: known inputs "
                "need rows that can be read again; give a CSV or Parquet file, or fewer rows, such as every k-th one"
            )
        for name in (name for name in new if name not in sums.observables and required):
            raise DataError(f"expected samples of the input {name}; the data have {', '.join(self.names)}")
        spooled, signals = take_inputs(self.spooled, {name: k for name, k in new.items() if name in sums.observables})
        left = {key: cell for key, cell in sums.cells.items() if key[0] not in signals}
        return Measurements(sums=replace(sums, cells=left), inputs={**inputs, **signals}, spooled=spooled)

    def _summed(self, start: float, stop: float) -> Statistics:
        return Statistics.of(start, stop, self.series) if self.sums is None else self.sums

    @cached_property
    def statistics(self) -> Statistics:
        """Sums over all measurements."""
        return self._summed(*self.window)

    @property
    def names(self) -> tuple[str, ...]:
        """What was measured."""
        return tuple(item.observable for item in self.series) if self.sums is None else self.sums.observables

    @property
    def size(self) -> int:
        """Number of measurements."""
        return sum(len(item.times) for item in self.series) if self.sums is None else self.sums.size

    @property
    def distinct(self) -> int:
        """Number of measurements, those of one observable at one time counted once."""
        return self.size if self.sums is not None else sum(len(np.unique(item.times)) for item in self.series)

    @property
    def window(self) -> tuple[float, float]:
        """The first and the last time of which measurements say something: averages begin before their first time."""
        if self.sums is not None:
            told = None if self.spooled is None else self.spooled.window
            return told or (self.sums.start, self.sums.stop)
        filled = [item for item in self.series if len(item.times)]
        first = min(float(item.times[0]) - window_of(item.observable) for item in filled)
        return first, max(float(item.times[-1]) for item in filled)

    @property
    def is_summed(self) -> bool:
        """Whether only sums are kept."""
        return self.sums is not None

    @property
    def shown(self) -> list[Series]:
        """The measurements, or averages of them where only sums are kept."""
        return list(self.series) if self.sums is None else self.thumbnail()

    @property
    def surroundings(self) -> tuple[float, float]:
        """The window and a tenth more on either side: what is shown where nobody says otherwise.

        Before a record with known inputs nobody knows these, so nothing is shown there.
        """
        first, last = self.known
        more = 0.1 * (last - first) or 1.0
        return first if self.inputs or first > self.window[0] else first - more, last + more

    @property
    def known(self) -> tuple[float, float]:
        """The window, without what was left out of it when the model was saved."""
        first, last = self.window
        if self.spooled is not None and self.spooled.left_out is not None:
            first = self.spooled.spool.time(0)
        return first, last

    @property
    def has_exact_values(self) -> bool:
        """Whether some measurement has no noise at all."""
        return any(item.exact.any() for item in self.series)

    def need_whole_record(self, what: str) -> None:
        """Raise where most rows were left out when a model was saved.

        Parameters
        ----------
        what : str
            What needs them.
        """
        if self.spooled is not None and self.spooled.left_out is not None:
            raise DataError(
                f"this model was saved without most of its rows, which are too many, and {what} need all of them; "
                "fit again with the file"
            )

    def times(self, count: int = 200) -> Array:
        """Return the times of the measurements, or a grid where there are many."""
        if self.sums is None and self.size <= _THUMBNAIL:
            return np.unique(np.concatenate([item.times for item in self.series]))
        return np.linspace(*self.known, count)

    def thumbnail(self) -> list[Series]:
        """Return the measurements, or averages of neighbours where there are many."""
        if self.sums is None and self.size <= _THUMBNAIL:
            return list(self.series)
        return self.statistics.thumbnail()

    def scatter(self) -> Array | None:
        """Return the noise of each observable as third differences of neighbours suggest it; None where unknown."""
        if self.sums is not None or any(len(item.values) < ENOUGH for item in self.series):
            return None
        return np.array([scatter_of(item.values[:_SOME]) for item in self.series])

    @cached_property
    def input_series(self) -> list[Series]:
        """The samples of the inputs, as series without noise."""
        return [
            Series(name, signal.times, signal.values, np.zeros(len(signal.times)))
            for name, signal in self.inputs.items()
        ]

    @cached_property
    def input_summaries(self) -> list[Summary]:
        """What is known of each input."""
        if self.spooled is not None:
            return [_summarize_samples(name, each) for name, each in self.spooled.samples.items()]
        with np.errstate(all="ignore"):
            return [_summarize(item) for item in self.input_series]

    @cached_property
    def summaries(self) -> list[Summary]:
        """What is known of each observable."""
        if self.sums is not None:
            return [_summarize_sums(self.sums, name) for name in self.sums.observables]
        with np.errstate(all="ignore"):
            return [_summarize(item) for item in self.series]


def _signal(name: str, times: Array, values: Array, kind: str, missing: int) -> InputSignal:
    """Return an input from its samples, in the order of time; raise where one time has two values."""
    if (np.diff(times) > 0).all():
        return InputSignal(times, values, kind, missing)  # type: ignore[arg-type]
    places, first = np.unique(times, return_index=True)
    again = np.setdiff1d(np.arange(len(times)), first)
    for row in again:
        if values[row] != values[first[np.searchsorted(places, times[row])]]:
            raise DataError(f"the input {name} has two different values at t = {times[row]:g}; expected one")
    return InputSignal(places, values[first], kind, missing)  # type: ignore[arg-type]


def _join(name: str, first: InputSignal, second: InputSignal) -> InputSignal:
    """Return an input with more samples."""
    times, values = (np.concatenate([getattr(part, key) for part in (first, second)]) for key in ("times", "values"))
    order = np.argsort(times, kind="stable")
    return _signal(name, times[order], values[order], first.kind, first.missing + second.missing)


def scatter_of(values: Array) -> float:
    """Return the deviation of the noise of a series as third differences of neighbours suggest it."""
    # The third difference of white noise has twenty times its variance.
    return float(np.sqrt(np.mean(np.diff(values, 3) ** 2) / 20.0))


def unit_of(spread: float, size: float) -> float:
    """Return the unit of an observable: its spread, or its size where it does not change.

    Parameters
    ----------
    spread, size : float
    """
    return spread if spread > 1e-12 * size and spread > 0 else size or 1.0


def _summarize(item: Series) -> Summary:
    if not len(item.values):
        return Summary(item.observable, 1.0, 0.0, 0.0, 0, 0, np.nan, False)
    known = item.std[item.known]
    spread = float(np.std(item.values))
    return Summary(
        item.observable,
        unit_of(spread, float(np.max(np.abs(item.values)))),
        float(item.values.mean()),
        spread,
        len(item.values),
        len(item.std) - len(known),
        float(np.sqrt(np.mean(known**2))) if len(known) else np.nan,
        bool((item.values[item.exact] != 0).any()),
    )


def _summarize_samples(name: str, told: Spread) -> Summary:
    """Return what is known of an input that lies on disk."""
    mean, spread = told.mean, told.spread
    return Summary(
        name, unit_of(spread, told.largest), mean, spread, told.samples, 0, 0.0, mean != 0.0 or spread != 0.0
    )


def _summarize_sums(sums: Statistics, name: str) -> Summary:
    cells = {known: cell for (other, known), cell in sums.cells.items() if other == name}
    weight = sum(float(cell.moments[0]) for cell in cells.values())
    reference = next(iter(cells.values())).reference
    about = [cell.about(reference) for cell in cells.values()]
    shift = sum(float(cell.products[0]) for cell in about) / weight
    mean, size = reference + shift, abs(reference + shift)
    spread = float(np.sqrt(max(sum(cell.square for cell in about) / weight - shift**2, 0.0)))
    # Below this the difference of two sums is rounding.
    spread = spread if spread > 1e-7 * abs(shift) else 0.0
    known = cells.get(True)
    noise = np.nan if known is None else float(np.sqrt(known.count / known.moments[0]))
    count = sum(cell.count for cell in cells.values())
    learned = cells[False].count if False in cells else 0
    return Summary(name, unit_of(spread, float(np.hypot(size, spread))), mean, spread, count, learned, noise, False)


def typical_noise(summaries: Sequence[Summary], observable: str) -> float:
    """Return the root mean square of known noise of an observable, or of all where it has none; NaN where none is.

    Parameters
    ----------
    summaries : sequence of Summary
    observable : str
    """
    own = [item.known_noise for item in summaries if item.observable == observable and not np.isnan(item.known_noise)]
    every = own or [item.known_noise for item in summaries if not np.isnan(item.known_noise)]
    return float(np.sqrt(np.mean(np.square(every)))) if every else np.nan
