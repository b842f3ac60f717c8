"""Windows of a record: what is fitted to, and what is kept for validation; they never overlap."""

from __future__ import annotations

import math

__all__ = ["keep_apart", "make_room"]


def make_room(
    window: tuple[float | None, float | None], taken: tuple[float, float]
) -> tuple[float | None, float | None]:
    """Return what is left of the window of a fit, where a part of it is taken for validation.

    Where nothing is left, it is all that comes before that part.

    Parameters
    ----------
    window : (float or None, float or None)
        Of the fit; None stands for the end of the record.
    taken : (float, float)

    Examples
    --------
    >>> make_room((None, None), (7.0, 10.0)), make_room((0.0, 10.0), (1.0, 2.0))
    ((None, 7.0), (2.0, 10.0))
    >>> make_room((2.0, 5.0), (1.0, 6.0))
    (None, 1.0)
    """
    low, high = window
    first = -math.inf if low is None else low
    last = math.inf if high is None else high
    if taken[1] <= first or taken[0] >= last:
        return window
    if taken[0] <= first and last <= taken[1]:
        return (None, taken[0])
    # The longer side stays; of a window without ends it is the one before.
    if taken[0] - first >= last - taken[1] or (low is None and high is None):
        return (low, taken[0])
    return (taken[1], high)


def keep_apart(held_out: tuple[float, float] | None, fitted: tuple[float, float]) -> tuple[float, float] | None:
    """Return what is left of the window of validation, where a part of it is fitted to; None where nothing is.

    Parameters
    ----------
    held_out : (float, float) or None
    fitted : (float, float)

    Examples
    --------
    >>> keep_apart((7.0, 10.0), (0.0, 8.0)), keep_apart((7.0, 10.0), (0.0, 10.0))
    ((8.0, 10.0), None)
    """
    if held_out is None or held_out[1] <= fitted[0] or held_out[0] >= fitted[1]:
        return held_out
    before, after = (held_out[0], fitted[0]), (fitted[1], held_out[1])
    left = max(before, after, key=lambda part: part[1] - part[0])
    return left if left[0] < left[1] else None
