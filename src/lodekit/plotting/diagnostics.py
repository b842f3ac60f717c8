"""Diagnostic plots: residuals over time, their correlations and cumulative periodogram, and likelihood profiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lodekit.plotting.axes import (
    BAND_STYLE,
    DATA_COLOR,
    FAINT_GRAY,
    FONT_SIZE,
    MEAN_COLOR,
    NORMAL_95,
    REFERENCE_DASHES,
    SMALL_FONT_SIZE,
    TRUTH_COLOR,
    draw_note,
    escape_mathtext,
    import_matplotlib,
    name_with_unit,
    set_axis_scale,
)
from lodekit.support.arguments import Array

#: Larger numbers of points are thinned: they would overlap, and pages would be too large.
MAX_RESIDUAL_POINTS = 20_000


def draw_scatter(ax: Any, t: ArrayLike, residuals: ArrayLike, *, label: str = "") -> None:
    """Draw standardised residuals over time; 95 % of independent ones are in the band.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    t, residuals : array-like, shape (n,)
    label : str
        Label of the vertical axis.

    Examples
    --------
    >>> from lodekit.plotting import make_panels
    >>> figure, (ax,) = make_panels(1)
    >>> draw_scatter(ax, [0, 1, 2], [0.5, -1, 2.5], label="residual of y")
    >>> ax.get_ylabel()
    'residual of y'
    """
    times, values = np.asarray(t, dtype=float), np.asarray(residuals, dtype=float)
    many = len(times) > 300
    ax.axhspan(-NORMAL_95, NORMAL_95, **BAND_STYLE)
    ax.axhline(0.0, color=FAINT_GRAY, linewidth=0.8, zorder=2)
    style = {"color": FAINT_GRAY if many else DATA_COLOR, "markersize": 1.5 if many else 3.0, "markeredgewidth": 0}
    some = slice(None, None, max(1, -(-len(times) // MAX_RESIDUAL_POINTS)))
    ax.plot(times[some], values[some], "o", zorder=3, label="data", **style)
    reach = 1.1 * max(3.0, float(np.abs(values).max(initial=0.0)))
    ax.set_ylim(-reach, reach)
    ax.margins(x=0.02)
    if label:
        ax.set_ylabel(label)


def draw_correlations(ax: Any, correlations: ArrayLike, count: int, *, label: str = "") -> None:
    """Draw autocorrelations at lags 1, 2, ..., with the band of independent residuals.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    correlations : array-like, shape (m,)
    count : int
        Number of residuals.
    label : str
        Label of the horizontal axis.

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
    ax.axhline(0.0, color=FAINT_GRAY, linewidth=0.8, zorder=2)
    ax.vlines(lags, 0.0, values, color=MEAN_COLOR, linewidth=2.0, zorder=3)
    ax.plot(lags, values, "o", color=MEAN_COLOR, markersize=4.0, markeredgewidth=0, zorder=4)
    low = min(-0.35, 1.15 * float(values.min(initial=0.0)), -1.3 * half)
    ax.set_ylim(low, max(0.35, 1.15 * float(values.max(initial=0.0)), 1.3 * half))
    ax.set_xlim(0.4, len(values) + 0.6)
    ax.locator_params(axis="x", integer=True, nbins=6)
    if label:
        ax.set_xlabel(label)


def draw_cumulated(ax: Any, frequencies: ArrayLike, share: ArrayLike, band: float, *, label: str = "") -> None:
    """Draw a cumulative periodogram: for independent residuals a straight line, within the band.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    frequencies, share : array-like, shape (n,)
        Frequencies, and the share of the power up to each.
    band : float
        Half-width of the band around the line for independent residuals.
    label : str
        Label of the horizontal axis.

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
    some = slice(None, None, max(1, -(-len(points) // MAX_RESIDUAL_POINTS)))
    points, shares, line = points[some], shares[some], line[some]
    ax.fill_between(points, np.maximum(line - band, 0.0), np.minimum(line + band, 1.0), **BAND_STYLE)
    ax.plot(points, line, color=TRUTH_COLOR, linewidth=1.2, linestyle=REFERENCE_DASHES, zorder=2, label="independent")
    ax.plot(points, shares, color=MEAN_COLOR, linewidth=1.4, zorder=3)
    ax.set_ylim(0.0, 1.02)
    ax.margins(x=0)
    ax.locator_params(axis="x", nbins=4)
    if label:
        ax.set_xlabel(label)


#: Half the chi-square quantiles with two degrees of freedom: the drop of the log evidence at the edge of a region.
CONFIDENCE_REGION_LEVELS = {-float(np.log(20.0)): "95 %", -float(np.log(2.0)): "50 %"}
#: The colour scale ends at this drop of the log evidence.
MIN_LOG_EVIDENCE_DROP = -6.0


def draw_parameter(
    ax: Any,
    values: ArrayLike,
    curve: ArrayLike,
    *,
    estimate: float,
    interval: tuple[float, float] | None = None,
    approximation: ArrayLike | None = None,
    truth: float | None = None,
    curve_label: str = "evidence",
    name: str = "",
    unit: str = "",
    note: str = "",
) -> None:
    """Draw the log evidence around an estimate, with the 95 % interval at the level of its ends.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    values, curve : array-like, shape (n,)
        Parameter values, and the log evidence relative to that at the estimate.
    estimate : float
        The estimate.
    interval : (float, float), optional
        Its 95 % interval.
    approximation : array-like, shape (n,), optional
        The normal approximation on which the interval is based.
    truth : float, optional
        The true value.
    curve_label : str
        Label of the curve in a legend.
    name, unit : str
        Name and unit of the parameter.
    note : str
        Text after the numbers in the title.

    Examples
    --------
    >>> from lodekit.plotting import make_panels
    >>> figure, (ax,) = make_panels(1)
    >>> draw_parameter(ax, [2, 3, 4], [-2, 0, -2], estimate=3, interval=(2.02, 3.98), name="a", unit="1/s")
    >>> ax.get_title(loc="left")
    'a = 3 1/s  [2.02, 3.98]'
    """
    points, heights = np.asarray(values, dtype=float), np.asarray(curve, dtype=float)
    seen = np.isfinite(heights)
    ax.plot(points[seen], heights[seen], color=MEAN_COLOR, linewidth=1.4, label=curve_label)
    if approximation is not None:
        style = {"color": FAINT_GRAY, "linewidth": 1.0, "linestyle": (0, (1, 1.5))}
        ax.plot(points, np.asarray(approximation, dtype=float), label="normal approximation", **style)
    if truth is not None:
        ax.axvline(truth, color=TRUTH_COLOR, linewidth=1.2, linestyle=REFERENCE_DASHES, label="truth")
    # The estimate is drawn at the level where its interval ends, or at the top without one.
    level = 0.0 if interval is None else -0.5 * NORMAL_95**2
    if interval is not None:
        style = {"color": DATA_COLOR, "linewidth": 1.2, "markersize": 7}
        ax.plot(interval, [level, level], "|-", label="95 % interval (others estimated)", **style)
    ax.plot([estimate], [level], "o", color=DATA_COLOR, markersize=4, label="estimate")
    top = float(np.max(heights[seen], initial=0.0))
    ax.set_ylim(-4.8, max(0.6, 1.15 * top))
    set_axis_scale(ax, "x", np.append(points[seen], estimate))
    number = escape_mathtext(f"{name} = {estimate:.5g}" + (f" {unit}" if unit else ""))
    number += "" if interval is None else f"  [{interval[0]:.5g}, {interval[1]:.5g}]"
    ax.set_title(f"{number}, {note}" if note else number, fontsize=SMALL_FONT_SIZE, loc="left", pad=4)
    ax.set_xlabel(name_with_unit(name, unit))


def draw_evidence(
    ax: Any,
    first: Array,
    second: Array,
    heights: Array,
    *,
    estimate: Sequence[float],
    truth: Sequence[float] | None = None,
    labels: Sequence[str] = ("", ""),
    bar_label: str = "log evidence, difference to its maximum",
) -> None:
    """Draw the log evidence over two parameters, with contours of its 50 % and 95 % regions.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    first, second, heights : arrays, shape (n, m)
        Parameter values on a grid, rectangular or sheared, and the log evidence there.
    estimate : (float, float)
        The estimates.
    truth : (float, float), optional
        The true values.
    labels : (str, str)
        Labels of the two axes.
    bar_label : str
        Label of the colour bar.

    Examples
    --------
    >>> from lodekit.plotting import make_panels
    >>> figure, (ax,) = make_panels(1, height_each=3.0)
    >>> x, y = np.meshgrid(np.linspace(-1, 1, 9), np.linspace(-1, 1, 9))
    >>> draw_evidence(ax, x, y, -5 * (x**2 + y**2), estimate=(0.0, 0.0), labels=("a", "b"))
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('a', 'b')
    """
    finite = heights[np.isfinite(heights)]
    if not len(finite):
        draw_note(ax, "the evidence is not finite around the estimate")
        return
    drop = np.ma.masked_invalid(np.where(np.isfinite(heights), heights, np.nan) - finite.max())
    filled = np.maximum(drop, 1.5 * MIN_LOG_EVIDENCE_DROP)
    colours = import_matplotlib().colormaps["Blues"].with_extremes(under="white")
    levels = np.linspace(MIN_LOG_EVIDENCE_DROP, 0.0, 25)
    surface = ax.contourf(first, second, filled, levels=levels, cmap=colours, extend="min")
    lines = [level for level in CONFIDENCE_REGION_LEVELS if float(drop.min()) < level]
    if lines:
        edges = ax.contour(first, second, drop, levels=lines, colors=DATA_COLOR, linewidths=1.0, linestyles="solid")
        ax.clabel(edges, fmt={level: CONFIDENCE_REGION_LEVELS[level] for level in lines}, fontsize=SMALL_FONT_SIZE)
    ax.plot(*estimate, "o", color=DATA_COLOR, markersize=4, label="estimate", linestyle="none")
    if truth is not None:
        ax.plot(*truth, "X", color=TRUTH_COLOR, markersize=7, markeredgecolor="white", label="truth", linestyle="none")
    seen = drop.filled(-np.inf) > MIN_LOG_EVIDENCE_DROP
    for which, grid, marks in zip("xy", (first, second), zip(estimate, truth or estimate, strict=True), strict=True):
        values = np.concatenate([grid[seen], np.array(marks)])
        set_axis_scale(ax, which, values)
        # A true value far outside must not lie on the frame.
        more = 0.05 * np.ptp(values) if values.min() in marks or values.max() in marks else 0.0
        getattr(ax, f"set_{which}lim")(values.min() - more, values.max() + more)
    bar = ax.get_figure().colorbar(surface, ax=ax, ticks=np.arange(MIN_LOG_EVIDENCE_DROP, 1.0, 1.0))
    bar.set_label(bar_label, fontsize=FONT_SIZE)
    bar.ax.tick_params(labelsize=SMALL_FONT_SIZE)
    ax.set_xlabel(labels[0])
    ax.set_ylabel(labels[1])
