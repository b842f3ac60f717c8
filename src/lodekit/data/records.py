"""Several records: runs of one system that share parameters and noise, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from lodekit.data.measurements import ENOUGH, Measurements, Summary, scatter_of, unit_of
from lodekit.data.observations import Series
from lodekit.errors import DataError

__all__ = ["FIRST", "Pool", "Record", "describe_records", "find_record", "padded", "parts_of"]

Array = NDArray[np.float64]
#: What the only record of a fit is called, where nothing else names it.
FIRST = "0"


@dataclass(frozen=True)
class Record:
    """The measurements of one run of a system.

    Its functions and its initial state are its own. Times of different records mean nothing to each other.

    Parameters
    ----------
    name : str
    measurements : Measurements
    """

    name: str
    measurements: Measurements


@dataclass(frozen=True)
class Pool(Measurements):
    """All records of a fit together: what can be counted over all of them. They have no course of time in common.

    Parameters
    ----------
    series, sums, spooled
        Empty: every record has its own.
    inputs : dict of str to InputSignal
        Those of the first record: which channels are known, and what they do between samples, is the same in all.
    records : tuple of Record
        Two or more, of different names.

    Examples
    --------
    >>> from lodekit.data.observations import Observations
    >>> parts = [Measurements.of(Observations().add([0.0, 1.0], "x", values)) for values in ([0.0, 2.0], [4.0, 6.0])]
    >>> pool = Pool.together([Record("a", parts[0]), Record("b", parts[1])])
    >>> pool.size, pool.names, pool.summaries[0].mean
    (4, ('x',), 3.0)
    """

    records: tuple[Record, ...] = ()

    @classmethod
    def together(cls, records: Sequence[Record]) -> Measurements:
        """Return the measurements of the only record, or all records together."""
        if len(records) == 1:
            return records[0].measurements
        first, *others = (record.measurements.inputs for record in records)
        for record, inputs in zip(records[1:], others, strict=True):
            kinds = [{name: signal.kind for name, signal in each.items()} for each in (first, inputs)]
            if kinds[0] != kinds[1]:
                raise DataError(
                    f"expected the same known inputs in all records; {records[0].name} has {kinds[0] or 'none'}, "
                    f"{record.name} has {kinds[1] or 'none'}"
                )
        return cls(inputs=first, records=tuple(records))

    def given(self, kinds: Mapping[str, str], *, required: bool = True) -> Measurements:
        """Return all records with some channels taken for known, each with its own samples.

        Parameters
        ----------
        kinds, required
            As for one record.
        """
        made = []
        for record in self.records:
            try:
                made.append(replace(record, measurements=record.measurements.given(kinds, required=required)))
            except DataError as problem:
                raise DataError(f"record {record.name}: {problem}") from None
        return Pool.together(made)

    @property
    def parts(self) -> list[Measurements]:
        """The measurements of each record."""
        return [record.measurements for record in self.records]

    def __add__(self, other: Measurements) -> Measurements:
        raise DataError("expected the record to which measurements are added, got several; say which: record=")

    @property
    def names(self) -> tuple[str, ...]:
        """What was measured, in any record."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.names))

    @property
    def size(self) -> int:
        """Number of measurements."""
        return sum(part.size for part in self.parts)

    @property
    def distinct(self) -> int:
        """Number of measurements, those of one observable at one time of a record counted once."""
        return sum(part.distinct for part in self.parts)

    @property
    def is_summed(self) -> bool:
        """Whether of some record only sums are kept."""
        return any(part.is_summed for part in self.parts)

    @property
    def window(self) -> tuple[float, float]:
        """The start of the first record, and a stop that is as far from it as the longest record is long."""
        first = self.parts[0].window[0]
        return first, first + max(stop - start for start, stop in (part.window for part in self.parts))

    @property
    def shown(self) -> NoReturn:
        """Raise: only the measurements of one record can be shown over time."""
        self._refuse()

    @cached_property
    def statistics(self) -> NoReturn:
        """Raise: sums are over the measurements of one record."""
        self._refuse()

    def times(self, count: int = 200) -> NoReturn:
        """Raise: every record has times of its own."""
        self._refuse()

    def thumbnail(self) -> NoReturn:
        """Raise: every record has neighbours of its own."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise DataError("expected a question about the measurements of one record, got several records")

    @property
    def has_exact_values(self) -> bool:
        """Whether some measurement has no noise at all."""
        return any(part.has_exact_values for part in self.parts)

    @property
    def counts(self) -> Array:
        """How many measurements of each observable each record has, shape (records, o)."""
        own = [{item.observable: item.count for item in part.summaries} for part in self.parts]
        return np.array([[counts.get(name, 0) for name in self.names] for counts in own], dtype=float)

    def scatter(self) -> Array | None:
        """Return the noise of each observable as neighbours within records suggest it; None where unknown."""
        found = []
        for name in self.names:
            parts = [item.values for part in self.parts for item in part.series if item.observable == name]
            squares = [(len(values), scatter_of(values) ** 2) for values in parts if len(values) >= ENOUGH]
            if not squares:
                return None
            counts, each = np.array(squares).T
            found.append(float(np.sqrt(np.average(each, weights=counts))))
        return np.array(found)

    @cached_property
    def summaries(self) -> list[Summary]:
        """What is known of each observable, over all records."""
        return _join_all([part.summaries for part in self.parts])

    @cached_property
    def input_summaries(self) -> list[Summary]:
        """What is known of each input, over all records."""
        return _join_all([part.input_summaries for part in self.parts])


def _join_all(records: Iterable[Iterable[Summary]]) -> list[Summary]:
    """Return what is known of each observable over all records, in order of first appearance."""
    own: dict[str, list[Summary]] = {}
    for record in records:
        for item in record:
            own.setdefault(item.observable, []).append(item)
    return [_join(name, items) for name, items in own.items()]


def _join(name: str, items: Sequence[Summary]) -> Summary:
    """Return what is known of one observable over all records."""
    counts = np.array([item.count for item in items], dtype=float)
    means = np.array([item.mean for item in items])
    mean = float(np.average(means, weights=counts))
    spreads = np.array([item.spread for item in items])
    spread = float(np.sqrt(np.average(spreads**2 + (means - mean) ** 2, weights=counts)))
    known = np.array([item.known_noise for item in items])
    told = ~np.isnan(known)
    noise = float(np.sqrt(np.average(known[told] ** 2, weights=counts[told]))) if told.any() else np.nan
    return Summary(
        name,
        unit_of(spread, float(np.max(np.hypot(means, spreads)))),
        mean,
        spread,
        int(counts.sum()),
        sum(item.learned for item in items),
        noise,
        any(item.exact for item in items),
    )


def parts_of(measurements: Measurements) -> list[Measurements]:
    """Return the measurements of each record."""
    return measurements.parts if isinstance(measurements, Pool) else [measurements]


def padded(measurements: Measurements, names: Sequence[str]) -> Measurements:
    """Return measurements with an empty series for what was not measured, so that all records look alike.

    Parameters
    ----------
    measurements : Measurements
        Of one record.
    names : sequence of str
        All observables, in order; those of the record are among them.
    """
    if measurements.names == tuple(names) or measurements.sums is not None:
        return measurements
    own = {item.observable: item for item in measurements.series}
    nothing = np.zeros(0)
    return replace(measurements, series=[own.get(name, Series(name, nothing, nothing, nothing)) for name in names])


def describe_records(records: Sequence[Record]) -> list[str]:
    """Return how many records there are, and what they are called; nothing where there is one.

    Parameters
    ----------
    records : sequence of Record
    """
    if len(records) < 2:
        return []
    names = _list_some([record.name for record in records])
    return [f"{len(records)} records, each with functions and an initial state of its own: {names}"]


def _list_some(names: Sequence[str]) -> str:
    """Return names of records for a message; many are cut short."""
    return ", ".join(names[:12]) + ", ..." * (len(names) > 12)


def find_record(names: Sequence[str], record: object) -> int:
    """Return which record is meant: by its name, or by its number counted from zero where no name is a number.

    Parameters
    ----------
    names : sequence of str
        Of all records.
    record : str, int or None
        What was asked for; None stands for the only one.

    Examples
    --------
    >>> find_record(["a.csv", "b.csv"], "b.csv"), find_record(["a.csv", "b.csv"], 0), find_record(["3", "7"], 7)
    (1, 0, 1)
    """
    listed = _list_some(names)
    if record is None:
        if len(names) > 1:
            raise DataError(f"this fit has {len(names)} records, {listed}; say which one is meant: record={names[0]!r}")
        return 0
    text = record if isinstance(record, str) else str(record)
    if text in names:
        return list(names).index(text)
    is_number = isinstance(record, int | np.integer) and not isinstance(record, bool)
    if is_number and 0 <= int(text) < len(names) and not any(name.lstrip("-").isdigit() for name in names):
        return int(text)
    raise DataError(f"expected one of the records {listed}, got {record!r}")
