"""Where rows, samples and start meet: the steps from row to row, and what the inputs do on each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lodekit.data.inputs import InputSignal
from lodekit.prior.responses.lengths import Lengths

__all__ = ["Events", "Schedule", "lay_out"]

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]
#: An interval between rows with more samples than this gets rows at all of them: long sums of jumps lose digits.
_CROWD = 4
#: So many kinds of events get columns of their own beside the inputs.
_KINDS = 4


@dataclass(frozen=True, eq=False)
class _Pieces:
    """A signal in the time of a schedule: piece i lies between breaks i - 1 and i; the outer ones have no end."""

    breaks: Array
    levels: Array  # of held pieces; of linear ones, at the breaks
    slopes: Array
    is_held: bool

    def at(self, times: Array, place: Numbers) -> tuple[Array, Array]:
        """Return value and slope at times that lie in given pieces."""
        if self.is_held:
            return self.levels[place], np.zeros(len(times))
        return np.interp(times, self.breaks, self.levels), self.slopes[place]


@dataclass(frozen=True, eq=False)
class Events:
    """Jumps of held inputs and kinks of linear ones that happen between rows.

    Parameters
    ----------
    step : array, shape (e,)
        During which step.
    lags : Lengths
        Time from the event to the end of the step.
    column : array, shape (e,)
        Of which input.
    changes : array, shape (e, orders * m)
        Of values and of slopes; zero but for one entry of each event.
    """

    step: Numbers
    lags: Lengths
    column: Numbers
    changes: Array


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
    jumps : array, shape (n, m)
        Jumps of held inputs exactly at the start of each step.
    events : Events
        Between the rows.
    feed : array, shape (2, m, k)
        Values of the inputs where somebody asks, from the right, and their slopes there, in the user's time.
    """

    sign: float
    at: Numbers | slice
    steps: Lengths
    drive: Array
    jumps: Array
    events: Events
    feed: Array

    @cached_property
    def even_inputs(self) -> tuple[Array, Numbers, Numbers] | None:
        """All that acts in each step, shape (n, c), where events are alike; None where they are of too many kinds.

        The first columns are `drive`; each other one has the events of one length and one input, which come beside.
        """
        events, width = self.events, self.drive.shape[1]
        lags, columns = np.divmod(np.unique(events.lags.which * width + np.argmax(events.changes != 0, axis=1)), width)
        if len(lags) > _KINDS:
            return None
        if not len(lags):
            return self.drive, lags, columns
        found = np.zeros((len(self.drive), width + len(lags)))
        found[:, :width] = self.drive
        for number, (lag, column) in enumerate(zip(lags.tolist(), columns.tolist(), strict=True)):
            own = (events.lags.which == lag) & (events.changes[:, column] != 0)
            np.add.at(found[:, width + number], events.step[own], events.changes[own, column])
        return found, lags, columns


def lay_out(
    signals: Sequence[InputSignal], delays: Array, start: float, times: Array, sign: float, orders: int
) -> Schedule:
    """Return the schedule of all times on one side of the start.

    Parameters
    ----------
    signals : sequence of InputSignal
        m inputs.
    delays : array, shape (m,)
        How much later each acts.
    start : float
        Where the states rest.
    times : array, shape (k,)
        Ascending where `sign` is 1, descending where it is -1; none beyond the start.
    sign : float
        1 or -1.
    orders : {1, 2}
        Whether slopes are needed.
    """
    asked = sign * (times - start)
    largest = max([abs(start), *np.abs(times[-1:]), *(abs(signal.times[[0, -1]]).max() for signal in signals)])
    tolerance = 4.0 * np.finfo(float).eps * max(largest, np.abs(delays).max(initial=0.0))
    pieces = [_cut(signal, start - delay, sign) for signal, delay in zip(signals, delays, strict=True)]
    rows, at = _make_rows(asked, pieces, tolerance)
    count, m = len(rows) - 1, len(signals)
    drive, jumps, feed = np.zeros((count, orders * m)), np.zeros((count, m)), np.zeros((2, m, len(asked)))
    found: list[tuple[Numbers, Array, int, Array]] = []
    for column, piece in enumerate(pieces):
        # The first row at or after each break; breaks that miss a row by rounding only lie on it.
        row = np.searchsorted(rows, piece.breaks - tolerance)
        on = np.abs(rows[np.minimum(row, count)] - piece.breaks) <= tolerance
        after = np.cumsum(np.bincount(row, minlength=count + 2))[: count + 1]
        value, slope = piece.at(rows, after)
        before = np.cumsum(np.bincount(row + on, minlength=count + 2))[: count + 1]
        earlier = piece.at(rows, before)
        drive[:, column] = value[:-1]
        place, changes = column, np.diff(piece.levels)
        if piece.is_held:
            jumps[:, column] = (value - earlier[0])[:-1]
        else:
            drive[:, m + column] = slope[:-1]
            place, changes = m + column, np.diff(piece.slopes)
        feed[:, column] = [part[at] for part in ((value, slope) if sign > 0 else earlier)]
        feed[1, column] *= sign
        inside = (changes != 0) & (row > 0) & (row <= count) & ~on
        if inside.any():
            found.append((row[inside] - 1, rows[row[inside]] - piece.breaks[inside], place, changes[inside]))
    events = _gather(found, orders * m, m, tolerance)
    return Schedule(sign, at, Lengths.of(np.diff(rows), tolerance), drive, jumps, events, feed)


def _cut(signal: InputSignal, origin: float, sign: float) -> _Pieces:
    breaks, values = sign * (signal.times - origin), signal.values
    if sign < 0:
        breaks, values = breaks[::-1], values[::-1]
    if signal.kind == "linear":
        slopes = np.concatenate([[0.0], np.diff(values) / np.diff(breaks), [0.0]])
        return _Pieces(breaks, values, slopes, False)
    levels = np.concatenate([values[:1], values]) if sign > 0 else np.concatenate([values, values[-1:]])
    return _Pieces(breaks, levels, np.zeros(len(levels)), True)


def _make_rows(asked: Array, pieces: Sequence[_Pieces], tolerance: float) -> tuple[Array, Numbers | slice]:
    """Return the rows, and which of them are asked for: the start, all times, and breaks where many lie together."""
    numbers = np.cumsum(np.concatenate([[0.0], asked[:-1]]) < asked, dtype=np.intp)
    rows = np.zeros(numbers[-1] + 1 if len(asked) else 1)
    rows[numbers] = asked
    breaks = np.concatenate([np.zeros(0), *(piece.breaks for piece in pieces)])
    breaks = breaks[(breaks > tolerance) & (breaks < rows[-1] - tolerance)]
    if len(breaks) > _CROWD:
        step = np.searchsorted(rows, breaks) - 1
        crowded = np.bincount(step, minlength=len(rows)) > _CROWD
        if crowded.any():
            extra = np.sort(breaks[crowded[step]])
            step = np.searchsorted(rows, extra)
            apart = np.minimum(rows[step] - extra, extra - rows[step - 1]) > tolerance
            extra = extra[apart]
            extra = extra[np.diff(extra, prepend=-1.0) > tolerance]
            rows = np.sort(np.concatenate([rows, extra]))
            return rows, np.searchsorted(rows, asked)
    if len(numbers) == len(rows) and numbers[0] == 0:
        return rows, slice(0, None)
    return rows, slice(1, None) if len(numbers) == len(rows) - 1 else numbers


def _gather(found: list[tuple[Numbers, Array, int, Array]], width: int, m: int, tolerance: float) -> Events:
    sizes = [len(step) for step, _, _, _ in found]
    total = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
    changes = np.zeros((total[-1], width))
    column = np.zeros(total[-1], dtype=np.intp)
    for first, last, (_, _, place, change) in zip(total[:-1], total[1:], found, strict=True):
        changes[first:last, place] = change
        column[first:last] = place % m
    step = np.concatenate([np.zeros(0, dtype=np.intp), *(step for step, _, _, _ in found)])
    lags = np.concatenate([np.zeros(0), *(lag for _, lag, _, _ in found)])
    return Events(step, Lengths.of(lags, tolerance), column, changes)
