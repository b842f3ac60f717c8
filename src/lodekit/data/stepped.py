"""Columns that somebody set: they jump, and are held, or take two values; smooth and quantised sensors do not."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["find_rest", "find_steps", "is_stepped"]

Array = NDArray[np.float64]
#: With fewer rows nothing can be told.
_FEWEST = 8
#: A jump is this share of the range at least; one that is not exact has neighbours that change by less than this share
#: of it, and what is between jumps wanders by less than this share of the range.
_JUMP, _CALM, _WANDER = 0.15, 0.2, 0.1
#: Noise about two levels is at most this share of their distance.
_NARROW = 0.05
#: Held exactly: this share of the rows is equal to the row before, jumps make up this share of all changes (squared),
#: and this share of the changes passes over some other value that occurs.
_EQUAL, _MOST, _OVER = 0.5, 0.8, 0.2
#: Switched off: this share of the rows is exactly zero, in so many runs at least, each of so many rows; half of the
#: others exceed this share of the largest.
_OFF, _RUNS, _LONG, _ON = 0.2, 3, 3, 0.1


def is_stepped(values: Array) -> bool:
    """Return whether a series looks like one that somebody set: held between jumps, or switched between two levels.

    Parameters
    ----------
    values : array, shape (n,)
        Measurements in the order of time, none missing.

    Examples
    --------
    >>> is_stepped(np.repeat([0.0, 50.0, 20.0, 80.0], 10)), is_stepped(np.sin(np.arange(40.0)))
    (True, False)
    """
    return bool(find_steps(values))


def find_steps(values: Array) -> str:
    """Return what makes a series look as if somebody had set it, in words; empty where nothing does.

    Parameters
    ----------
    values : array, shape (n,)
        Measurements in the order of time, none missing.

    Examples
    --------
    >>> find_steps(np.array([0.0, 1.5, 1.5, 0.0, 1.5, 0.0, 0.0, 1.5, 0.0]))
    'takes two values only, 0 and 1.5'
    >>> find_steps(np.repeat([20.0, 35.0, 25.0, 30.0], 3))
    'is held for about 3 rows at a time between jumps'
    >>> find_steps(np.round(np.sin(np.arange(0, 6, 0.01)), 1))  # a sensor with a coarse display
    ''
    """
    if len(values) < _FEWEST:
        return ""
    span = float(np.ptp(values))
    if not span > 1e-9 * float(np.max(np.abs(values))):
        return ""
    return _binary(values, span) or _held(values, span) or _switched(values, span) or _isolated_jumps(values, span)


def find_rest(values: Array) -> str:
    """Return, in words, that a series is often switched off, as powers, flows and sunshine are; empty where it is not.

    Parameters
    ----------
    values : array, shape (n,)
        Measurements in the order of time, none missing.

    Examples
    --------
    >>> find_rest(np.array([0.0, 0.0, 0.0, 5.1, 4.2, 0.0, 0.0, 0.0, 3.9, 4.4, 0.0, 0.0, 0.0]))
    'is exactly zero in 69 % of the rows, again and again'
    """
    off = values == 0
    if not len(values) or not _OFF <= np.mean(off) < 1 or (values.min() < 0 < values.max()):
        return ""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], off.astype(int), [0]])))
    if np.sum(edges[1::2] - edges[::2] >= _LONG) < _RUNS:
        return ""
    # What passes through zero, or comes to rest there, is small before and after.
    others = np.abs(values[~off])
    if np.median(others) < _ON * others.max():
        return ""
    return f"is exactly zero in {100 * np.mean(off):.0f} % of the rows, again and again"


def _binary(values: Array, span: float) -> str:
    """Two values and no other, switched as often as one likes, from row to row even."""
    high = values > values.min() + 0.5 * span
    if np.ptp(values[high]) > 0 or np.ptp(values[~high]) > 0 or min(np.sum(high), np.sum(~high)) < 2:
        return ""
    return f"takes two values only, {values.min():.6g} and {values.max():.6g}"


def _switched(values: Array, span: float) -> str:
    """Two levels with a little noise; a single passage between them may be a quick response as well."""
    high = values > values.min() + 0.5 * span
    below, above = values[~high], values[high]
    if np.sum(high[1:] != high[:-1]) < 3 or min(len(below), len(above)) < 2:
        return ""
    lower, upper = float(np.mean(below)), float(np.mean(above))
    if max(float(np.std(below)), float(np.std(above))) > _NARROW * (upper - lower):
        return ""
    return f"switches between two levels, about {lower:.3g} and {upper:.3g}"


def _held(values: Array, span: float) -> str:
    """Exactly equal from row to row, then a jump, then equal again.

    A sensor with a coarse display is held, too, but goes from one value to the next one that there is; one that is
    slower than its log goes in small steps; and a quick response has several changes in a row.
    """
    changes = np.abs(np.diff(values))
    moved = changes > 0
    if np.mean(~moved) < _EQUAL:
        return ""
    padded = np.pad(moved, 1)
    lonely = moved & ~padded[:-2] & ~padded[2:]
    large = lonely & (changes > _JUMP * span)
    if np.sum(changes[large] ** 2) < _MOST * np.sum(changes**2):
        return ""
    ranks = np.unique(values, return_inverse=True)[1]
    over = np.abs(np.diff(ranks))[moved] > 1
    if np.mean(over) < _OVER:
        return ""
    return _holding(len(values), int(np.sum(moved)))


def _isolated_jumps(values: Array, span: float) -> str:
    """Jumps that are far larger than all changes around them; noise in between does no harm."""
    changes = np.abs(np.diff(values))
    # A change with the two before and the two after it.
    inner = changes[2:-2]
    around = np.max([changes[:-4], changes[1:-3], changes[3:-1], changes[4:]], axis=0)
    found = (inner > _JUMP * span) & (around < _CALM * inner)
    jumps = inner[found]
    if not len(jumps) or np.sum(jumps**2) <= 0.5 * np.sum(changes**2) or jumps.min() <= 10 * np.median(changes):
        return ""
    # What drifts as far as it jumps is a sensor that something has hit.
    pieces = np.split(values, np.flatnonzero(found) + 3)
    drift = np.sqrt(np.mean(np.concatenate([piece - np.median(piece) for piece in pieces]) ** 2))
    return _holding(len(values), len(jumps)) if drift < _WANDER * span else ""


def _holding(count: int, jumps: int) -> str:
    return f"is held for about {round(count / (jumps + 1))} rows at a time between jumps"
