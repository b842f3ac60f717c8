"""Limits of the vertical axis of a curve with a band, for all plots."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lodekit.support.arguments import Array


def typical_limits(times: Array, mean: Array, band: Array, window: Sequence[float], *others: Array) -> Sequence[float]:
    """Return limits of a curve and its band within a window; the band is cut at three times its median width.

    Parameters
    ----------
    times, mean, band : array, shape (n,)
        Times in ascending order, the curve, and the half-width of its band.
    window : (first, last)
        The window; if no times are in it, all are used.
    *others : array
        Other values to include.

    Examples
    --------
    >>> typical_limits(np.arange(5.0), np.zeros(5), np.array([90.0, 1.0, 1.0, 1.0, 9.0]), (0, 3))
    (-3.0, 3.0)
    """
    inside = (times >= window[0]) & (times <= window[1])
    inside |= not inside.any()
    centre, half = mean[inside], np.minimum(band[inside], 3.0 * np.median(band[inside]))
    shown = np.concatenate([centre - half, centre + half, *others])
    return float(shown.min()), float(shown.max())
