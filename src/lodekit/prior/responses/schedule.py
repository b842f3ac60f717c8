"""Where rows, samples and start meet: the steps from row to row, and what the inputs do on each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.data.inputs import InputSignal
from lodekit.prior.responses.lengths import Lengths

__all__ = ["Events", "Schedule", "lay_out"]

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]
#: An interval between rows with more samples than this gets rows at all of them: long sums of jumps lose digits.
_CROWD = 4


@dataclass(frozen=True, eq=False)
class _Pieces:
    """A signal in the time of a schedule: piece i lies between breaks i - 1 and i; the outer ones have no end."""

    breaks: Array
    levels: Array | None  # of held pieces
    values: Array | None  # at the breaks, of a linear signal
    slopes: Array

    def at(self, times: Array, side: str) -> tuple[Array, Array]:
        """Return value and slope, from the right or from the left."""
        place = np.searchsorted(self.breaks, times, side=side)  # type: ignore[call-overload]
        if self.levels is not None:
            return self.levels[place], np.zeros(len(times))
        return np.interp(times, self.breaks, self.values), self.slopes[place]  # type: ignore[arg-type]


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
    changes : array, shape (orders * m, e)
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
    at : array, shape (k,)
        The rows, counted from the start as row 0, at which somebody asks.
    steps : Lengths
        From row to row, n steps.
    drive : array, shape (orders * m, n)
        Values of the inputs at the start of each step, and their slopes.
    jumps : array, shape (m, n)
        Jumps of held inputs exactly at the start of each step.
    events : Events
        Between the rows.
    feed : array, shape (2, m, k)
        Values of the inputs where somebody asks, from the right, and their slopes there, in the user's time.
    """

    sign: float
    at: Numbers
    steps: Lengths
    drive: Array
    jumps: Array
    events: Events
    feed: Array


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
    rows = np.unique(np.concatenate([[0.0], asked]))
    pieces = [_snap(piece, rows, tolerance) for piece in pieces]
    rows = _fill(rows, pieces)
    at = np.searchsorted(rows, asked)
    count, m = len(rows) - 1, len(signals)
    drive, jumps, feed = np.zeros((orders * m, count)), np.zeros((m, count)), np.zeros((2, m, len(asked)))
    found: list[tuple[Numbers, Array, int, Array]] = []
    for column, piece in enumerate(pieces):
        value, slope = piece.at(rows, "right")
        drive[column] = value[:-1]
        if piece.levels is None:
            drive[m + column] = slope[:-1]
            changes, place = np.diff(piece.slopes), m + column
        else:
            jumps[column] = (value - piece.at(rows, "left")[0])[:-1]
            changes, place = np.diff(piece.levels), column
        feed[0, column], feed[1, column] = piece.at(asked, "right" if sign > 0 else "left")
        feed[1, column] *= sign
        step = np.searchsorted(rows, piece.breaks, side="right") - 1
        inside = (changes != 0) & (step >= 0) & (step < count) & (rows[np.maximum(step, 0)] != piece.breaks)
        if inside.any():
            step = step[inside]
            found.append((step, rows[step + 1] - piece.breaks[inside], place, changes[inside]))
    events = _gather(found, orders * m, m, tolerance)
    return Schedule(sign, at, Lengths.of(np.diff(rows), tolerance), drive, jumps, events, feed)


def _cut(signal: InputSignal, origin: float, sign: float) -> _Pieces:
    breaks, values = sign * (signal.times - origin), signal.values
    if sign < 0:
        breaks, values = breaks[::-1], values[::-1]
    if signal.kind == "linear":
        slopes = np.concatenate([[0.0], np.diff(values) / np.diff(breaks), [0.0]])
        return _Pieces(breaks, None, values, slopes)
    levels = np.concatenate([values[:1], values]) if sign > 0 else np.concatenate([values, values[-1:]])
    return _Pieces(breaks, levels, None, np.zeros(len(levels)))


def _snap(piece: _Pieces, rows: Array, tolerance: float) -> _Pieces:
    """Move breaks onto rows that they miss by rounding only."""
    place = np.searchsorted(rows, piece.breaks)
    above, below = rows[np.minimum(place, len(rows) - 1)], rows[np.maximum(place - 1, 0)]
    breaks = np.where(np.abs(piece.breaks - above) <= tolerance, above, piece.breaks)
    breaks = np.where(np.abs(breaks - below) <= tolerance, below, breaks)
    return _Pieces(breaks, piece.levels, piece.values, piece.slopes)


def _fill(rows: Array, pieces: Sequence[_Pieces]) -> Array:
    """Add rows at the breaks wherever many lie between two rows."""
    breaks = np.concatenate([piece.breaks for piece in pieces]) if pieces else np.zeros(0)
    breaks = breaks[(breaks > 0.0) & (breaks < rows[-1])]
    step = np.searchsorted(rows, breaks) - 1
    crowded = np.bincount(step, minlength=len(rows)) > _CROWD
    return np.unique(np.concatenate([rows, breaks[crowded[step]]])) if crowded.any() else rows


def _gather(found: list[tuple[Numbers, Array, int, Array]], width: int, m: int, tolerance: float) -> Events:
    sizes = [len(step) for step, _, _, _ in found]
    total = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
    changes = np.zeros((width, total[-1]))
    column = np.zeros(total[-1], dtype=np.intp)
    for first, last, (_, _, place, change) in zip(total[:-1], total[1:], found, strict=True):
        changes[place, first:last] = change
        column[first:last] = place % m
    step = np.concatenate([np.zeros(0, dtype=np.intp), *(step for step, _, _, _ in found)])
    lags = np.concatenate([np.zeros(0), *(lag for _, lag, _, _ in found)])
    return Events(step, Lengths.of(lags, tolerance), column, changes)
