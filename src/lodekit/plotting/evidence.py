"""The log evidence around an estimate, over one parameter or two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lodekit.plotting.axes import draw_note, import_matplotlib, literal, name_with_unit, spread_axis
from lodekit.plotting.style import DASHES, DATA, FAINT, MEAN, NORMAL_95, SMALL, TEXT, TRUTH

__all__ = ["draw_evidence", "draw_parameter"]

Array = NDArray[np.float64]
#: Half the chi-square quantiles with two degrees of freedom: how far the log evidence falls at the edge of a region.
_REGIONS = {-float(np.log(20.0)): "95 %", -float(np.log(2.0)): "50 %"}
#: Beyond this drop of the log evidence nothing is coloured.
_DEEPEST = -6.0


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
    """Draw how the log evidence falls off around an estimate, with its 95 % interval at the level where that ends.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    values, curve : array-like, shape (n,)
        Parameter values, and the log evidence there less that at the estimate.
    estimate : float
        The value that was found.
    interval : (float, float), optional
        Its 95 % interval.
    approximation : array-like, shape (n,), optional
        What the normal approximation behind the interval says.
    truth : float, optional
        The true value.
    curve_label : str
        What the curve is called in a legend.
    name, unit : str
        Of the parameter.
    note : str
        What the title says behind the numbers.

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
    ax.plot(points[seen], heights[seen], color=MEAN, linewidth=1.4, label=curve_label)
    if approximation is not None:
        style = {"color": FAINT, "linewidth": 1.0, "linestyle": (0, (1, 1.5))}
        ax.plot(points, np.asarray(approximation, dtype=float), label="normal approximation", **style)
    if truth is not None:
        ax.axvline(truth, color=TRUTH, linewidth=1.2, linestyle=DASHES, label="truth")
    _draw_estimate(ax, estimate, interval)
    top = float(np.max(heights[seen], initial=0.0))
    ax.set_ylim(-4.8, max(0.6, 1.15 * top))
    spread_axis(ax, "x", np.append(points[seen], estimate))
    number = literal(f"{name} = {estimate:.5g}" + (f" {unit}" if unit else ""))
    number += "" if interval is None else f"  [{interval[0]:.5g}, {interval[1]:.5g}]"
    ax.set_title(f"{number}, {note}" if note else number, fontsize=SMALL, loc="left", pad=4)
    ax.set_xlabel(name_with_unit(name, unit))


def _draw_estimate(ax: Any, estimate: float, interval: tuple[float, float] | None) -> None:
    """Draw the estimate where its interval ends, or at the top where it has none."""
    level = 0.0 if interval is None else -0.5 * NORMAL_95**2
    if interval is not None:
        ax.plot(
            interval,
            [level, level],
            "|-",
            color=DATA,
            linewidth=1.2,
            markersize=7,
            label="95 % interval (counts all else)",
        )
    ax.plot([estimate], [level], "o", color=DATA, markersize=4, label="estimate")


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
    """Draw the log evidence over two parameters, with the edges of its 50 % and 95 % regions.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    first, second, heights : arrays, shape (n, m)
        Parameter values on a grid, straight or oblique, and the log evidence there.
    estimate : (float, float)
        The values that were found.
    truth : (float, float), optional
        The true values.
    labels : (str, str)
        Of the two axes.
    bar_label : str
        Of the scale of colours.

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
    surface = _draw_surface(ax, first, second, drop)
    ax.plot(*estimate, "o", color=DATA, markersize=4, label="estimate", linestyle="none")
    if truth is not None:
        ax.plot(*truth, "X", color=TRUTH, markersize=7, markeredgecolor="white", label="truth", linestyle="none")
    seen = drop.filled(-np.inf) > _DEEPEST
    for which, grid, marks in zip("xy", (first, second), zip(estimate, truth or estimate, strict=True), strict=True):
        values = np.concatenate([grid[seen], np.array(marks)])
        spread_axis(ax, which, values)
        # A truth far outside is not to lie on the frame.
        more = 0.05 * np.ptp(values) if values.min() in marks or values.max() in marks else 0.0
        getattr(ax, f"set_{which}lim")(values.min() - more, values.max() + more)
    bar = ax.get_figure().colorbar(surface, ax=ax, ticks=np.arange(_DEEPEST, 1.0, 1.0))
    bar.set_label(bar_label, fontsize=TEXT)
    bar.ax.tick_params(labelsize=SMALL)
    ax.set_xlabel(labels[0])
    ax.set_ylabel(labels[1])


def _draw_surface(ax: Any, first: Array, second: Array, drop: Any) -> Any:
    """Draw how far the log evidence has dropped, and return what the scale of colours is for."""
    filled = np.maximum(drop, 1.5 * _DEEPEST)
    colours = import_matplotlib().colormaps["Blues"].with_extremes(under="white")
    surface = ax.contourf(first, second, filled, levels=np.linspace(_DEEPEST, 0.0, 25), cmap=colours, extend="min")
    lines = [level for level in _REGIONS if float(drop.min()) < level]
    if lines:
        edges = ax.contour(first, second, drop, levels=lines, colors=DATA, linewidths=1.0, linestyles="solid")
        ax.clabel(edges, fmt={level: _REGIONS[level] for level in lines}, fontsize=SMALL)
    return surface
