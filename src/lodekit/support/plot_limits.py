"""Limits of the vertical axis of a curve with a band, for all plots."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lodekit.support.arguments import Array


def typical_limits(
    times: Array, mean: Array, band: Array, window: Sequence[float], *others: Array, has_process: bool = False
) -> Sequence[float]:
    """Return limits of a curve and its band within a window; the band is cut at three times its median width.

    Unless a process drives the system, a band is left out if it is more than a hundred times as large as the curve: it
    shows that the data do not determine the curve. Curves of rounding errors have no size.

    Parameters
    ----------
    times, mean, band : array, shape (n,)
        Times in ascending order, the curve, and the half-width of its band.
    window : (first, last)
        The window; if no times are in it, all are used.
    *others : array
        Other values to include.
    has_process : bool
        Whether a free function or a disturbance drives the system, so that curves near zero may have wide bands.

    Examples
    --------
    >>> typical_limits(np.arange(5.0), np.zeros(5), np.array([90.0, 1.0, 1.0, 1.0, 9.0]), (0, 3))
    (-3.0, 3.0)
    >>> typical_limits(np.arange(3.0), np.array([4.0, 5.0, 6.0]), np.array([8e6, 9e6, 8e6]), (0, 2))
    (3.4, 6.6)
    """
    inside = (times >= window[0]) & (times <= window[1])
    inside |= not inside.any()
    centre, half = mean[inside], np.minimum(band[inside], 3.0 * np.median(band[inside]))
    size, width = float(np.abs(np.concatenate([centre, *others])).max()), float(np.median(half))
    if 1e-9 * width < size < 1e-2 * width and not has_process:
        half = np.full(len(half), 0.1 * size)
    shown = np.concatenate([centre - half, centre + half, *others])
    return float(shown.min()), float(shown.max())


def describe_cut_band(band: Array, limits: Sequence[float]) -> str:
    """Return a remark on a band that is wider than the limits nearly everywhere; empty if it is not.

    Examples
    --------
    >>> describe_cut_band(np.array([8e6, 9e6, 8e6]), (3.4, 6.6))
    '95 % band of ± 8e+06 cut off'
    """
    width = float(np.median(band))
    return f"95 % band of ± {width:.2g} cut off" if width > limits[1] - limits[0] else ""
