"""Where rows, samples and start meet: the steps from row to row, and what the inputs do on each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lodekit.data.inputs import InputSignal
from lodekit.prior.responses.lengths import Lengths

__all__ = ["Events", "Schedule", "Side"]

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]
#: An interval between rows with more samples than this gets rows at all of them: long sums of jumps lose digits.
_CROWD = 4
#: So does one longer than a piece of a linear input by such a factor: its slope would act for long, and be taken back.
_STEEP = 1e3
#: So many kinds of events get columns of their own beside the inputs.
_KINDS = 4
#: Rows that are this near to equal steps, in shares of a step, are found by counting.
_NEAR = 0.25


@dataclass(frozen=True, eq=False)
class _Pieces:
    """A signal in the time of a schedule: piece i lies between breaks i - 1 and i; the outer ones have no end."""

    breaks: Array
    levels: Array  # of held pieces; of linear ones, at the breaks
    slopes: Array
    is_held: bool

    @classmethod
    def of(cls, signal: InputSignal, start: float, sign: float) -> _Pieces:
        breaks, values = sign * (signal.times - start), signal.values
        if sign < 0:
            breaks, values = breaks[::-1], values[::-1]
        if signal.kind == "linear":
            slopes = np.concatenate([[0.0], np.diff(values) / np.diff(breaks), [0.0]])
            return cls(breaks, values, slopes, False)
        levels = np.concatenate([values[:1], values]) if sign > 0 else np.concatenate([values, values[-1:]])
        # Samples that change nothing are no breaks.
        moved = np.diff(levels) != 0
        return cls(breaks[moved], np.concatenate([levels[:1], levels[1:][moved]]), np.zeros(moved.sum() + 1), True)

    @cached_property
    def changes(self) -> Array:
        """At each break: jumps of held pieces, kinks of linear ones."""
        return np.diff(self.levels if self.is_held else self.slopes)

    @cached_property
    def shortest(self) -> Array:
        """At each break, the length of the shorter piece beside it; infinite where slopes are zero, as in held ones."""
        gaps = np.full(len(self.slopes), np.inf)
        gaps[1:-1] = np.where(self.slopes[1:-1] != 0, np.diff(self.breaks), np.inf)
        return np.asarray(np.minimum(gaps[:-1], gaps[1:]))

    def at(self, times: Array, first: Numbers) -> tuple[Array, Array]:
        """Return value and slope at rows, where `first` holds the first row of each piece but the outermost."""
        counts = np.diff(first, prepend=0, append=len(times))
        if self.is_held:
            return np.repeat(self.levels, counts), np.zeros(len(times))
        return np.interp(times, self.breaks, self.levels), np.repeat(self.slopes, counts)

    def most_in(self, length: float) -> int:
        """Return how many breaks lie in any interval of a length at most, or one more than is too many."""
        for count in range(_CROWD + 1):
            if len(self.breaks) <= count or (count and (self.breaks[count:] - self.breaks[:-count]).min() > length):
                return count
        return _CROWD + 1


@dataclass(frozen=True, eq=False)
class Events:
    """Jumps of held inputs and kinks of linear ones that happen between rows.

    Parameters
    ----------
    step : array, shape (e,)
        During which step.
    lags : Lengths
        Time from the event to the end of the step.
    place : array, shape (e,)
        Of which input, or m more where its slope changes.
    sizes : array, shape (e,)
        By how much.
    width : int
        m, or 2 m where slopes count.
    """

    step: Numbers
    lags: Lengths
    place: Numbers
    sizes: Array
    width: int

    @cached_property
    def changes(self) -> Array:
        """Of values and of slopes, shape (e, width); zero but for one entry of each event."""
        found = np.zeros((len(self.step), self.width))
        found[np.arange(len(found)), self.place] = self.sizes
        return found

    @cached_property
    def ascend(self) -> bool:
        """Whether no step has two."""
        return bool((np.diff(self.step) > 0).all())


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows of a side, ascending from the start, which is row zero at time zero.

    `at` tells which of them are asked for.
    """

    times: Array
    at: Numbers | slice
    steps: Lengths

    @cached_property
    def pace(self) -> float:
        """The step, where all are equal or nearly so; zero otherwise."""
        last = len(self.times) - 1
        pace = float(self.times[-1]) / last if last else 0.0
        is_even = pace > 0 and np.abs(self.times - pace * np.arange(last + 1)).max() < _NEAR * pace
        return pace if is_even else 0.0

    def find(self, points: Array) -> Numbers:
        """Return the first row at or after each point, the number of rows where there is none."""
        if not self.pace or not len(points):
            return np.searchsorted(self.times, points)
        count = len(self.times)
        found = np.clip(np.ceil(points * (1.0 / self.pace)), 0, count).astype(np.intp)
        # Counting misses by one at most.
        found -= (found > 0) & (self.times[found - 1] >= points)
        found += (found < count) & (self.times[np.minimum(found, count - 1)] < points)
        return found


@dataclass(frozen=True, eq=False)
class Schedule:
    """Steps forwards from the start, or backwards from it, in the time ``sign * (t - start)``.

    Parameters
    ----------
    sign : float
        1 forwards, -1 backwards.
    at : array, shape (k,), or slice
        The rows, counted from the start as row 0, at which somebody asks; a slice where that is all of them.
    steps : Lengths
        From row to row, n steps.
    drive : array, shape (n, orders * m)
        Values of the inputs at the start of each step, and their slopes.
    jumps : array, shape (n, m), or None
        Jumps of held inputs exactly at the start of each step; None where there are none.
    events : Events
        Between the rows.
    feed : array, shape (2, m, k)
        Values of the inputs where somebody asks, from the right, and their slopes there, in the user's time.
    """

    sign: float
    at: Numbers | slice
    steps: Lengths
    drive: Array
    jumps: Array | None
    events: Events
    feed: Array

    @cached_property
    def even_inputs(self) -> tuple[Array, Numbers, Numbers] | None:
        """All that acts in each step, shape (n, c), where all are equal and events of few kinds; None elsewhere.

        The first columns are `drive`; each other one has the events of one length, which come beside, and of one input.
        """
        events, (count, width) = self.events, self.drive.shape
        if len(self.steps.distinct) != 1 or len(events.lags.distinct) > _KINDS:
            return None
        kinds = events.lags.which * width + events.place
        lags, places = np.divmod(np.flatnonzero(np.bincount(kinds)), width)
        if not len(lags):
            return self.drive, lags, places
        if len(lags) > _KINDS:
            return None
        found = np.zeros((count, width + len(lags)))
        found[:, :width] = self.drive
        for number, kind in enumerate((lags * width + places).tolist()):
            own = kinds == kind if len(lags) > 1 else slice(None)
            step, sizes, column = events.step[own], events.sizes[own], found[:, width + number]
            if events.ascend:
                column[step] = sizes
            else:
                column += np.bincount(step, sizes, minlength=count)
        return found, lags, places


class Side:
    """All times on one side of the start, with the inputs there: what does not depend on delays.

    Parameters
    ----------
    signals : sequence of InputSignal
        m inputs.
    start : float
        Where the states rest.
    times : array, shape (k,)
        Ascending where `sign` is 1, descending where it is -1; none beyond the start.
    sign : float
        1 or -1.
    """

    def __init__(self, signals: Sequence[InputSignal], start: float, times: Array, sign: float) -> None:
        self.sign, self._asked = sign, sign * (times - start)
        largest = max([abs(start), *np.abs(times[-1:]), *(abs(signal.times[[0, -1]]).max() for signal in signals)])
        self._tolerance = 4.0 * float(np.finfo(float).eps * largest)
        self._pieces = [_Pieces.of(signal, start, sign) for signal in signals]
        self._rows = _plain_rows(self._asked, self._tolerance)
        longest = 1.001 * float(self._rows.steps.distinct.max(initial=0.0))
        self._is_calm = sum(piece.most_in(longest) for piece in self._pieces) <= _CROWD and not any(
            _STEEP * piece.shortest.min(initial=np.inf) < longest for piece in self._pieces
        )

    def lay_out(self, delays: Array, orders: int) -> Schedule:
        """Return the schedule with some delays.

        Parameters
        ----------
        delays : array, shape (m,)
            How much later each input acts.
        orders : {1, 2}
            Whether slopes are needed.
        """
        tolerance = max(self._tolerance, 4.0 * float(np.finfo(float).eps * np.abs(delays).max(initial=0.0)))
        pairs = zip(self._pieces, delays.tolist(), strict=True)
        pieces = [replace(piece, breaks=piece.breaks + self.sign * delay) for piece, delay in pairs]
        rows = self._rows if self._is_calm else _crowded_rows(self._rows, self._asked, pieces, tolerance)
        count, m = len(rows.times) - 1, len(pieces)
        drive, feed = np.zeros((count, orders * m)), np.zeros((2, m, len(self._asked)))
        jumps: Array | None = None
        found: list[tuple[Numbers, Array, int, Array]] = []
        for column, piece in enumerate(pieces):
            # The first row at or after each break; breaks that miss a row by rounding only lie on it.
            row = rows.find(piece.breaks - tolerance)
            ahead = rows.times[np.minimum(row, count)] - piece.breaks
            on = np.abs(ahead) <= tolerance
            value, slope = piece.at(rows.times, row)
            earlier = piece.at(rows.times, np.minimum(row + on, count + 1)) if on.any() else (value, slope)
            drive[:, column] = value[:-1]
            if not piece.is_held:
                drive[:, m + column] = slope[:-1]
            elif on.any():
                jumps = np.zeros((count, m)) if jumps is None else jumps
                jumps[:, column] = (value - earlier[0])[:-1]
            place = column if piece.is_held else m + column
            seen = (value, slope) if self.sign > 0 else earlier
            feed[0, column], feed[1, column] = seen[0][rows.at], self.sign * seen[1][rows.at]
            inside = (piece.changes != 0) & (row > 0) & (row <= count) & ~on
            if inside.any():
                found.append((row[inside] - 1, ahead[inside], place, piece.changes[inside]))
        return Schedule(self.sign, rows.at, rows.steps, drive, jumps, _gather(found, orders * m, tolerance), feed)


def _plain_rows(asked: Array, tolerance: float) -> _Rows:
    """Return the start and all times as rows."""
    numbers = np.cumsum(np.concatenate([[0.0], asked[:-1]]) < asked, dtype=np.intp)
    times = np.zeros(numbers[-1] + 1 if len(asked) else 1)
    times[numbers] = asked
    at: Numbers | slice = numbers
    if len(numbers) == len(times) and numbers[0] == 0:
        at = slice(0, None)
    elif len(numbers) == len(times) - 1:
        at = slice(1, None)
    return _Rows(times, at, Lengths.of(np.diff(times), tolerance))


def _crowded_rows(plain: _Rows, asked: Array, pieces: Sequence[_Pieces], tolerance: float) -> _Rows:
    """Return the rows with more of them at breaks, where many of these lie together, or two of them very near."""
    rows = plain.times
    breaks = np.concatenate([np.zeros(0), *(piece.breaks for piece in pieces)])
    shortest = np.concatenate([np.zeros(0), *(piece.shortest for piece in pieces)])
    inside = (breaks > tolerance) & (breaks < rows[-1] - tolerance)
    breaks, shortest = breaks[inside], shortest[inside]
    if not len(breaks):
        return plain
    step = plain.find(breaks) - 1
    crowded = np.bincount(step, minlength=len(rows)) > _CROWD
    steep = _STEEP * shortest < np.diff(rows)[step]
    chosen = np.flatnonzero(crowded[step] | steep)
    if not len(chosen):
        return plain
    chosen = chosen[np.argsort(breaks[chosen], kind="stable")]
    # Both ends of a jump that is a piece must stay, however short it is.
    extra, apart = breaks[chosen], np.where(steep[chosen], 0.0, tolerance)
    step = plain.find(extra)
    extra = extra[
        (np.minimum(rows[step] - extra, extra - rows[step - 1]) > apart) & (np.diff(extra, prepend=-1.0) > apart)
    ]
    rows = np.sort(np.concatenate([rows, extra]))
    return _Rows(rows, np.searchsorted(rows, asked), Lengths.of(np.diff(rows), tolerance))


def _gather(found: list[tuple[Numbers, Array, int, Array]], width: int, tolerance: float) -> Events:
    if not found:
        none = np.zeros(0, dtype=np.intp)
        return Events(none, Lengths.of(np.zeros(0), tolerance), none, np.zeros(0), width)
    place = np.repeat([place for _, _, place, _ in found], [len(step) for step, _, _, _ in found])
    step, lags, sizes = (np.concatenate([item[k] for item in found]) for k in (0, 1, 3))
    return Events(step, Lengths.of(lags, tolerance), place.astype(np.intp), sizes, width)
