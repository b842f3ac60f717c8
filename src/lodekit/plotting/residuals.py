"""Residuals: over time, their correlations, and their cumulated periodogram."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lodekit.plotting.style import BAND_STYLE, DASHES, DATA, FAINT, MEAN, NORMAL_95, TRUTH

__all__ = ["draw_correlations", "draw_cumulated", "draw_scatter"]

#: So many points are drawn small and pale.
_MANY = 300
#: More points than this are thinned out: nobody sees more, and pages would not hold them.
_DRAWN = 20_000


def draw_scatter(ax: Any, t: ArrayLike, residuals: ArrayLike, *, label: str = "") -> None:
    """Draw residuals in units of what is expected of them over time; 95 % of independent ones lie in the band.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    t, residuals : array-like, shape (n,)
    label : str
        Of the vertical axis.

    Examples
    --------
    >>> from lodekit.plotting import make_panels
    >>> figure, (ax,) = make_panels(1)
    >>> draw_scatter(ax, [0, 1, 2], [0.5, -1, 2.5], label="residual of y")
    >>> ax.get_ylabel()
    'residual of y'
    """
    times, values = np.asarray(t, dtype=float), np.asarray(residuals, dtype=float)
    many = len(times) > _MANY
    ax.axhspan(-NORMAL_95, NORMAL_95, **BAND_STYLE)
    ax.axhline(0.0, color=FAINT, linewidth=0.8, zorder=2)
    style = {"color": FAINT if many else DATA, "markersize": 1.5 if many else 3.0, "markeredgewidth": 0}
    some = slice(None, None, max(1, -(-len(times) // _DRAWN)))
    ax.plot(times[some], values[some], "o", zorder=3, label="data", **style)
    reach = 1.1 * max(3.0, float(np.abs(values).max(initial=0.0)))
    ax.set_ylim(-reach, reach)
    ax.margins(x=0.02)
    if label:
        ax.set_ylabel(label)


def draw_correlations(ax: Any, correlations: ArrayLike, count: int, *, label: str = "") -> None:
    """Draw correlations at the lags one, two, and so on, with the band of independent residuals.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    correlations : array-like, shape (m,)
    count : int
        How many residuals they come from.
    label : str
        Of the horizontal axis.

    Examples
    --------
    >>> from lodekit.plotting import make_panels
    >>> figure, (ax,) = make_panels(1)
    >>> draw_correlations(ax, [0.6, 0.3, 0.1], 100, label="lag")
    >>> ax.get_xlabel()
    'lag'
    """
    values = np.asarray(correlations, dtype=float)
    lags = np.arange(1, len(values) + 1)
    half = NORMAL_95 / np.sqrt(max(count, 1))
    ax.axhspan(-half, half, **BAND_STYLE)
    ax.axhline(0.0, color=FAINT, linewidth=0.8, zorder=2)
    ax.vlines(lags, 0.0, values, color=MEAN, linewidth=2.0, zorder=3)
    ax.plot(lags, values, "o", color=MEAN, markersize=4.0, markeredgewidth=0, zorder=4)
    low = min(-0.35, 1.15 * float(values.min(initial=0.0)), -1.3 * half)
    ax.set_ylim(low, max(0.35, 1.15 * float(values.max(initial=0.0)), 1.3 * half))
    ax.set_xlim(0.4, len(values) + 0.6)
    ax.locator_params(axis="x", integer=True, nbins=6)
    if label:
        ax.set_xlabel(label)


def draw_cumulated(ax: Any, frequencies: ArrayLike, share: ArrayLike, band: float, *, label: str = "") -> None:
    """Draw a cumulated periodogram: a straight line for independent residuals, but for the band.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    frequencies, share : array-like, shape (n,)
        The share of the power up to each frequency.
    band : float
        How far from the line independent residuals may be.
    label : str
        Of the horizontal axis.

    Examples
    --------
    >>> from lodekit.plotting import make_panels
    >>> figure, (ax,) = make_panels(1)
    >>> draw_cumulated(ax, [0.1, 0.2, 0.3], [0.8, 0.9, 1.0], 0.3, label="frequency")
    >>> ax.get_xlabel()
    'frequency'
    """
    points, shares = np.asarray(frequencies, dtype=float), np.asarray(share, dtype=float)
    line = np.arange(1, len(points) + 1) / max(len(points), 1)
    some = slice(None, None, max(1, -(-len(points) // _DRAWN)))
    points, shares, line = points[some], shares[some], line[some]
    ax.fill_between(points, np.maximum(line - band, 0.0), np.minimum(line + band, 1.0), **BAND_STYLE)
    ax.plot(points, line, color=TRUTH, linewidth=1.2, linestyle=DASHES, zorder=2, label="independent")
    ax.plot(points, shares, color=MEAN, linewidth=1.4, zorder=3)
    ax.set_ylim(0.0, 1.02)
    ax.margins(x=0)
    ax.locator_params(axis="x", nbins=4)
    if label:
        ax.set_xlabel(label)
