"""Distances between measurements in time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["gaps_between"]

Array = NDArray[np.float64]
#: Times are the same whose distance is less than this share of their record, or so many rounding errors.
_SAME, _ROUNDINGS = 1e-9, 8.0


def gaps_between(records: Sequence[Array]) -> Array:
    """Return the distances between neighbouring times in each record, one after the other.

    Two channels may have been measured at the same times but for rounding, and these are one.

    Parameters
    ----------
    records : sequence of arrays
        All times of each.

    Examples
    --------
    >>> gaps_between([np.array([0.0, 0.3, 3 * 0.1, 0.5]), np.array([7.0])]).round(9).tolist()
    [0.3, 0.2]
    """
    found = [np.zeros(0)]
    for times in records:
        gaps = np.diff(np.sort(times))
        rounding = _ROUNDINGS * float(np.spacing(np.max(np.abs(times), initial=0.0)))
        found.append(gaps[gaps > max(_SAME * float(gaps.sum()), rounding)])
    return np.concatenate(found)
