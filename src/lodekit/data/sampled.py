"""Known inputs of rows that are on disk: samples that change something are in memory, all others stay there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lodekit.data.inputs import InputSignal
from lodekit.data.moves import GapWatch, is_logged_together
from lodekit.data.spool import Spooled, Spread
from lodekit.errors import DataError

__all__ = ["take_inputs"]

Array = NDArray[np.float64]
#: So many rows are read at the same time.
_ROWS = 200_000
#: Samples of an input that are kept at most, of 16 bytes each.
_MOST = 20_000_000


@dataclass
class _Samples:
    """The samples of one input, as they are read.

    Parameters
    ----------
    name : str
    kind : {"hold", "linear"}
    parts : list of (array, array)
        Times and values of the samples that are kept, block by block.
    count, missing, kept : int
        How many samples there were, how many without a value, and how many are kept.
    sums : list of two floats
        Of the values less the reference, and of their squares.
    reference : float
        The first value: a large offset does not cost digits then.
    largest : float
        Of all absolute values.
    last : (float, float), optional
        Time and value of the last sample so far, kept or not.
    measured, together : int
        At how many times something was measured, and the input has a value as well.
    """

    name: str
    kind: str
    parts: list[tuple[Array, Array]] = field(default_factory=list)
    count: int = 0
    missing: int = 0
    kept: int = 0
    sums: list[float] = field(default_factory=lambda: [0.0, 0.0])
    reference: float = math.nan
    largest: float = 0.0
    last: tuple[float, float] | None = None
    measured: int = 0
    together: int = 0

    @cached_property
    def watch(self) -> GapWatch:
        """Gaps between the samples."""
        return GapWatch(self.kind)

    def take(self, times: Array, values: Array, measured: NDArray[np.bool_]) -> None:
        """Add some samples, in the order of time; keep those that change something.

        Parameters
        ----------
        times, values : arrays, shape (n,)
            NaN where a value is missing.
        measured : array of bool, shape (n,)
            Whether a row has a value of something that is no input.
        """
        there = ~np.isnan(values)
        # Rows of one time count once; those in two blocks, of which there are few, twice.
        begins = np.flatnonzero(np.append(True, np.diff(times) > 0))
        at, sampled = (np.logical_or.reduceat(own, begins) for own in (measured, there))
        self.measured, self.together = self.measured + int(at.sum()), self.together + int((at & sampled).sum())
        self.missing += int((~there).sum())
        times, values = times[there], values[there]
        if not len(times):
            return
        self._count(values)
        if self.last is not None:
            times, values = np.append(self.last[0], times), np.append(self.last[1], values)
        again = np.diff(times) == 0
        if (again & (np.diff(values) != 0)).any():
            when = times[1:][again & (np.diff(values) != 0)][0]
            raise DataError(f"the input {self.name} has two different values at t = {when:g}; expected one")
        first = np.append(True, ~again)
        times, values = times[first], values[first]
        self.watch.take(*(own if self.last is None else own[1:] for own in (times, values)))
        moves = np.diff(values) != 0
        # A line needs both ends of a stretch in which nothing changes, a level its beginning alone.
        kept = np.append(self.last is None, moves)
        if self.kind == "linear":
            kept[1:-1] |= moves[1:]
            kept[-1] |= len(kept) > 1
        self.parts.append((times[kept], values[kept]))
        self.kept += int(kept.sum())
        self.last = float(times[-1]), float(values[-1])
        if self.kept > _MOST:
            raise DataError(
                f"the input {self.name} changes in more than {_MOST} rows, and what it does is kept in memory; take "
                "every k-th row, or a piece of the record"
            )

    def _count(self, values: Array) -> None:
        if math.isnan(self.reference):
            self.reference = float(values[0])
        away = values - self.reference
        self.count += len(values)
        self.sums = [self.sums[0] + float(away.sum()), self.sums[1] + float(away @ away)]
        self.largest = max(self.largest, float(np.abs(values).max()))

    @property
    def spread(self) -> Spread:
        """What is known of all samples."""
        shift = self.sums[0] / self.count
        return Spread(
            self.count,
            self.reference + shift,
            math.sqrt(max(self.sums[1] / self.count - shift**2, 0.0)),
            self.largest,
            self.watch.moved if is_logged_together(self.measured, self.together) else None,
        )

    @property
    def signal(self) -> InputSignal:
        """What the input does."""
        if not self.count:
            raise DataError(f"expected samples of the input {self.name}, every cell is missing")
        times, values = (np.concatenate([part[k] for part in self.parts]) for k in (0, 1))
        return InputSignal(times, values, self.kind, self.missing)  # type: ignore[arg-type]


def take_inputs(spooled: Spooled, kinds: Mapping[str, str]) -> tuple[Spooled, dict[str, InputSignal]]:
    """Return rows without some columns, and what these say of known inputs.

    Of a held input only samples at which it changes are kept; of one that is linear between its samples, all but those
    within stretches in which it does not change.

    Parameters
    ----------
    spooled : Spooled
        All rows.
    kinds : dict of str to {"hold", "linear"}
        The inputs, which have columns.

    Examples
    --------
    >>> from lodekit.data.tables.cells import Numerals
    >>> from lodekit.data.tables.table import Records
    >>> values = {"x": np.arange(4.0), "u": np.array([1.0, 1.0, 1.0, 2.0])}
    >>> rows = Spooled(("x", "u"), {}, (), lambda: iter([Records(np.arange(4.0), values, {}, Numerals())]))
    >>> left, inputs = take_inputs(rows, {"u": "hold"})
    >>> left.names, inputs["u"].times.tolist()
    (('x',), [0.0, 3.0])
    """
    if not kinds:
        return spooled, {}
    names = tuple(name for name in spooled.names if name not in kinds)
    if not names:
        raise DataError("expected measurements of what responds to the inputs; the data have the inputs alone")
    every, found = spooled.spool, {name: _Samples(name, kind) for name, kind in kinds.items()}
    places = {name: 1 + every.columns.index(name) for name in every.names}
    for first in range(0, every.count, _ROWS):
        rows = every.table(first, first + _ROWS)
        some = np.asarray(~np.isnan(rows[:, [places[name] for name in names]]).all(axis=1))
        for name, own in found.items():
            own.take(rows[:, 0], rows[:, places[name]], some)
    signals = {name: own.signal for name, own in found.items()}
    spreads = {**spooled.samples, **{name: own.spread for name, own in found.items()}}
    spool = every.only(names, _ROWS)
    noisy = tuple(name for name in spooled.noisy if name in names)
    window = spool.time(0), spool.time(spool.count - 1)
    left = replace(spooled, names=names, noisy=noisy, ready=spool, window=window, samples=spreads)
    return left, signals
