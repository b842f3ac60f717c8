"""Figures from values (times, means, bands, data), never from the estimator; readable at paper width.

Every function draws on given axes and leaves matplotlib's global state alone: no pyplot, no settings. The colours are
those of Okabe and Ito, which colour-blind readers can tell apart; lines differ in their dashes, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lodekit.errors import LodekitError

__all__ = [
    "OKABE_ITO",
    "WIDTH",
    "add_legend",
    "draw_channel",
    "draw_evidence",
    "draw_modes",
    "draw_note",
    "draw_parameter",
    "draw_residual",
    "draw_spectrum",
    "frame",
    "import_matplotlib",
    "label_bottom",
    "make_panels",
    "name_with_unit",
    "read_axes",
    "to_png",
]

Array = NDArray[np.float64]
#: Colours that everyone can tell apart (Okabe and Ito, 2008).
OKABE_ITO: Mapping[str, str] = {
    "black": "#000000",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "green": "#009E73",
    "yellow": "#F0E442",
    "blue": "#0072B2",
    "vermillion": "#D55E00",
    "purple": "#CC79A7",
}
#: The text width of a paper, in inches.
WIDTH = 6.5
_MEAN, _BAND, _DATA = OKABE_ITO["blue"], OKABE_ITO["sky"], OKABE_ITO["black"]
_TRUTH, _SAMPLE = OKABE_ITO["vermillion"], OKABE_ITO["green"]
_SHADE, _FAINT = "0.93", "0.45"
_TEXT, _SMALL = 9.0, 8.0
_NORMAL_95 = 1.959963984540054
#: More points than this only make a figure slow and black.
_MOST_POINTS = 2000
_EPSILON = float(np.finfo(float).eps)
#: Where residuals that are exactly zero are drawn on a logarithmic axis.
_FLOOR = 1e-19
#: Half the chi-square quantiles with two degrees of freedom: how far the log evidence falls at the edge of a region.
_REGIONS = {-float(np.log(20.0)): "95 %", -float(np.log(2.0)): "50 %"}
#: Beyond this drop of the log evidence nothing is coloured.
_DEEPEST = -6.0


def import_matplotlib() -> Any:
    """Return matplotlib, or say what to install."""
    try:
        import matplotlib as mpl
        import matplotlib.figure
    except ImportError:
        raise LodekitError(
            "figures are drawn with matplotlib, which is missing; try: pip install 'lodekit[plot]'"
        ) from None
    return mpl


def make_panels(
    count: int, *, width: float = WIDTH, height_each: float = 1.35, columns: int = 1, share: bool = True
) -> tuple[Any, list[Any]]:
    """Return a figure and its panels, one above the other, that share the time axis.

    The figure is not pyplot's: nothing has to be closed. Notebooks show it, and ``savefig`` works without a display.

    Parameters
    ----------
    count : int
        How many panels.
    width, height_each : float
        Of the figure and of a row of panels, in inches.
    columns : int
    share : bool
        Whether the panels share their horizontal axis.

    Returns
    -------
    figure : matplotlib.figure.Figure
    axes : list of matplotlib.axes.Axes

    Examples
    --------
    >>> figure, axes = make_panels(3)
    >>> len(axes)
    3
    """
    mpl = import_matplotlib()
    if count < 1 or columns < 1:
        raise LodekitError(f"expected at least one panel and one column, got {count} and {columns}")
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = mpl.figure.Figure(figsize=(width, rows * height_each + 0.75), layout="constrained")
    figure.get_layout_engine().set(hspace=0.04, wspace=0.04)
    grid = figure.subplots(rows, columns, sharex=share, squeeze=False).ravel()
    for axis in grid[count:]:
        axis.remove()
    axes = list(grid[:count])
    for axis in axes:
        axis.tick_params(labelsize=_SMALL, direction="out", length=3)
        axis.xaxis.label.set_size(_TEXT)
        axis.yaxis.label.set_size(_TEXT)
        axis.spines[["top", "right"]].set_visible(False)
        axis.locator_params(axis="y", nbins=4)
    for axis in axes[-columns:]:
        axis.tick_params(labelbottom=True)
    # IPython asks a figure for this where no backend of pyplot has told it how to show one.
    figure._repr_png_ = partial(to_png, figure)
    return figure, axes


def to_png(figure: Any) -> bytes:
    """Return a figure as the bytes of a PNG; without metadata, so that the same figure gives the same bytes."""
    target = BytesIO()
    figure.savefig(target, format="png", dpi=150, metadata={"Software": None})
    return target.getvalue()


def read_axes(axes: Any, names: Sequence[str], **layout: Any) -> tuple[Any, list[Any], bool]:
    """Return the figure, one axes for each name, and whether they are new: the user's axes, or a fresh figure's."""
    if axes is None:
        return (*make_panels(len(names), **layout), True)
    import_matplotlib()
    from matplotlib.axes import Axes

    if isinstance(axes, Axes):
        found = [axes]
    elif isinstance(axes, np.ndarray | Iterable):
        found = list(axes.ravel()) if isinstance(axes, np.ndarray) else list(axes)
    else:
        raise LodekitError(f"expected axes as matplotlib axes or a list of them, got {type(axes).__name__}")
    wrong = [item for item in found if not isinstance(item, Axes)]
    if wrong:
        raise LodekitError(f"expected axes as matplotlib axes or a list of them, got {type(wrong[0]).__name__} in it")
    if len(found) != len(names):
        raise LodekitError(
            f"expected {len(names)} axes, one for each of {', '.join(names)}, got {len(found)}; try "
            f"figure, axes = plt.subplots({len(names)}, sharex=True)"
        )
    return found[0].get_figure(), found, False


def name_with_unit(name: str, unit: str = "") -> str:
    """Return the label of an axis: ``f1 (K)``; a dollar is a dollar and begins no formula."""
    return (f"{name} ({unit})" if unit else name).replace("$", r"\$")


def label_bottom(axes: Sequence[Any], text: str) -> None:
    """Label the horizontal axis of panels that have none below which shares it."""
    for axis in axes:
        spec = axis.get_subplotspec()
        below = spec is not None and any(
            other.get_subplotspec() is not None
            and axis.get_shared_x_axes().joined(axis, other)
            and other.get_subplotspec().colspan.start == spec.colspan.start
            and other.get_subplotspec().rowspan.start > spec.rowspan.start
            for other in axes
        )
        if not below:
            axis.set_xlabel(text)


def add_legend(figure: Any, axes: Sequence[Any], *, outside: bool) -> None:
    """Put one legend for all panels above them, or into the first one where the figure is not ours."""
    entries: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if not entries:
        return
    entries = dict(sorted(entries.items(), key=lambda item: -item[1].get_zorder()))
    style = {"fontsize": _SMALL, "frameon": not outside, "handlelength": 1.8, "columnspacing": 1.4}
    if outside:
        place = {"loc": "outside upper center", "ncols": _legend_columns(list(entries), figure.get_figwidth())}
        figure.legend(entries.values(), entries, **place, **style)
    else:
        axes[0].legend(entries.values(), entries, **style)


def _legend_columns(labels: Sequence[str], width: float) -> int:
    """Return in how many columns a legend fits: about 16 small letters an inch, 6 for a handle."""
    for columns in range(len(labels), 1, -1):
        rows = -(-len(labels) // columns)
        if sum(6 + max(map(len, labels[k : k + rows])) for k in range(0, len(labels), rows)) < 16 * width:
            return columns
    return 1


def draw_note(ax: Any, text: str) -> None:
    """Write into empty axes why there is nothing to draw."""
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", fontsize=_TEXT, color=_FAINT, wrap=True)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


def _shade_outside(ax: Any, t: Array, window: tuple[float, float] | None) -> None:
    """Shade the times before the first and after the last measurement."""
    if window is None:
        return
    first, last = window
    parts = []
    if t[0] < first:
        parts.append((t[0], min(first, t[-1])))
    if t[-1] > last:
        parts.append((max(last, t[0]), t[-1]))
    for number, (left, right) in enumerate(parts):
        label = None if number else "extrapolation"
        ax.axvspan(left, right, facecolor=_SHADE, edgecolor="none", zorder=0, label=label)


def frame(ax: Any, curves: Sequence[Array], margin: float = 0.5) -> None:
    """Let curves fill a panel, with a margin relative to their range; what is farther out, as bands may be, is cut."""
    values = np.concatenate([np.ravel(curve) for curve in curves])
    low, high = float(values.min()), float(values.max())
    bottom, top = ax.get_ylim()
    more = margin * (high - low)
    if more > 0:
        ax.set_ylim(max(bottom, low - more), min(top, high + more))


def draw_channel(
    ax: Any,
    t: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike | None = None,
    *,
    data: tuple[ArrayLike, ArrayLike] | None = None,
    truth: ArrayLike | None = None,
    samples: ArrayLike | None = None,
    window: tuple[float, float] | None = None,
    label: str = "",
    unit: str = "",
    data_label: str = "data",
) -> None:
    """Draw a function of time with its uncertainty and what was measured.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    t, mean : array-like, shape (n,)
        Times in ascending order.
    std : array-like, shape (n,), optional
        Standard deviation; the band reaches 1.96 of them to either side: 95 %.
    data : (times, values), optional
        Points beyond the times are left out; of more than 2000 an even choice is drawn.
    truth : array-like, shape (n,), optional
    samples : array-like, shape (s, n), optional
    window : (first, last), optional
        Times of the first and the last measurement; what lies outside is shaded as extrapolation.
    label, unit : str
        Of the vertical axis.
    data_label : str
        What the points are called in a legend.

    Examples
    --------
    >>> figure, (ax,) = make_panels(1)
    >>> draw_channel(ax, [0, 1, 2], [0, 1, 0], [0.1, 0.1, 0.5], data=([0, 1], [0.1, 0.9]), window=(0, 1), label="f1")
    >>> ax.get_ylabel()
    'f1'
    """
    times, centre = np.asarray(t, dtype=float), np.asarray(mean, dtype=float)
    _shade_outside(ax, times, window)
    if std is not None:
        half = _NORMAL_95 * np.asarray(std, dtype=float)
        ax.fill_between(
            times, centre - half, centre + half, color=_BAND, alpha=0.4, linewidth=0, zorder=1, label="95 % band"
        )
    for number, drawn in enumerate([] if samples is None else np.atleast_2d(np.asarray(samples, dtype=float))):
        ax.plot(times, drawn, color=_SAMPLE, linewidth=0.6, zorder=2, label=None if number else "samples")
    if data is not None:
        _draw_points(ax, times, *data, label=data_label)
    ax.plot(times, centre, color=_MEAN, linewidth=1.4, zorder=4, label="mean")
    if truth is not None:
        style = {"color": _TRUTH, "linewidth": 1.2, "linestyle": (0, (4, 2)), "zorder": 5}
        ax.plot(times, np.asarray(truth, dtype=float), label="truth", **style)
    ax.margins(x=0)
    if label:
        ax.set_ylabel(name_with_unit(label, unit))


def _draw_points(ax: Any, t: Array, at: ArrayLike, found: ArrayLike, *, label: str) -> None:
    times, values = np.asarray(at, dtype=float), np.asarray(found, dtype=float)
    inside = (times >= t[0]) & (times <= t[-1])
    times, values = times[inside], values[inside]
    if not len(times):
        return
    if len(times) > _MOST_POINTS:
        label = f"{label} ({_MOST_POINTS} of {len(times)})"
        chosen = np.linspace(0, len(times) - 1, _MOST_POINTS).round().astype(int)
        times, values = times[chosen], values[chosen]
    many = len(times) > 200
    # Many points lie below the mean, so that it can be seen; few lie above it, so that they can.
    style = {"markersize": 1.5 if many else 3.0, "color": _FAINT if many else _DATA, "zorder": 1.5 if many else 4.5}
    ax.plot(times, values, "o", markeredgewidth=0, label=label, **style)


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
    approximation : array-like, shape (n,), optional
        What the normal approximation behind the interval says.
    """
    points, heights = np.asarray(values, dtype=float), np.asarray(curve, dtype=float)
    seen = np.isfinite(heights)
    ax.plot(points[seen], heights[seen], color=_MEAN, linewidth=1.4, label=curve_label)
    if approximation is not None:
        style = {"color": _FAINT, "linewidth": 1.0, "linestyle": (0, (1, 1.5))}
        ax.plot(points, np.asarray(approximation, dtype=float), label="normal approximation", **style)
    if truth is not None:
        ax.axvline(truth, color=_TRUTH, linewidth=1.2, linestyle=(0, (4, 2)), label="truth")
    level = -0.5 * _NORMAL_95**2
    if interval is not None:
        ax.plot(interval, [level, level], "|-", color=_DATA, linewidth=1.2, markersize=7, label="95 % interval")
        ax.plot([estimate], [level], "o", color=_DATA, markersize=4, label="estimate")
    else:
        ax.plot([estimate], [0.0], "o", color=_DATA, markersize=4, label="estimate")
    top = float(np.max(heights[seen], initial=0.0))
    ax.set_ylim(-4.8, max(0.6, 1.15 * top))
    _spread_axis(ax, "x", np.append(points[seen], estimate))
    number = f"{name} = {estimate:.5g}" + (f" {unit}" if unit else "")
    if interval is not None:
        number += f"  [{interval[0]:.5g}, {interval[1]:.5g}]"
    ax.set_title(f"{number}, {note}" if note else number, fontsize=_SMALL, loc="left", pad=4)
    ax.set_xlabel(name_with_unit(name, unit))


def _spread_axis(ax: Any, which: str, values: Array) -> None:
    """Choose a logarithmic axis for values over decades; else a few full numbers, without an offset."""
    low, high = float(values.min()), float(values.max())
    if low > 0 and high > 30 * low:
        getattr(ax, f"set_{which}scale")("log")
        return
    ax.ticklabel_format(axis=which, useOffset=False, style="sci", scilimits=(-4, 5))
    ax.locator_params(axis=which, nbins=5)


def draw_residual(
    ax: Any, t: ArrayLike, residual: ArrayLike, *, window: tuple[float, float] | None = None, label: str = ""
) -> None:
    """Draw the size of a relative residual on a logarithmic axis; exact zeros lie at its foot.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    t, residual : array-like, shape (n,)
    label : str
        The equation.
    """
    times, sizes = np.asarray(t, dtype=float), np.abs(np.asarray(residual, dtype=float))
    _shade_outside(ax, times, window)
    zero = sizes <= _FLOOR
    ax.plot(times[~zero], sizes[~zero], "o", color=_MEAN, markersize=2.2, markeredgewidth=0, label="relative residual")
    if zero.any():
        style = {"color": OKABE_ITO["orange"], "markersize": 2.5, "markeredgewidth": 0, "label": "exactly zero"}
        ax.plot(times[zero], np.full(int(zero.sum()), 2.0 * _FLOOR), "v", **style)
    ax.axhline(_EPSILON, color=_TRUTH, linewidth=1.0, linestyle=(0, (4, 2)), label="machine precision")
    ax.set_yscale("log")
    ax.yaxis.minorticks_off()
    ax.set_ylim(_FLOOR, max(1e-13, 10.0 * float(np.max(sizes, initial=0.0))))
    ax.set_xlim(times[0], times[-1])
    if label:
        ax.set_title(label if len(label) <= 90 else f"{label[:87]}...", fontsize=_SMALL, loc="left", pad=3)


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
    """
    finite = heights[np.isfinite(heights)]
    if not len(finite):
        draw_note(ax, "the evidence is not finite around the estimate")
        return
    drop = np.ma.masked_invalid(np.where(np.isfinite(heights), heights, np.nan) - finite.max())
    filled = np.maximum(drop, 1.5 * _DEEPEST)
    colours = import_matplotlib().colormaps["Blues"].with_extremes(under="white")
    surface = ax.contourf(first, second, filled, levels=np.linspace(_DEEPEST, 0.0, 25), cmap=colours, extend="min")
    lines = [level for level in _REGIONS if float(drop.min()) < level]
    if lines:
        edges = ax.contour(first, second, drop, levels=lines, colors=_DATA, linewidths=1.0, linestyles="solid")
        ax.clabel(edges, fmt={level: _REGIONS[level] for level in lines}, fontsize=_SMALL)
    ax.plot(*estimate, "o", color=_DATA, markersize=4, label="estimate", linestyle="none")
    if truth is not None:
        ax.plot(*truth, "X", color=_TRUTH, markersize=7, markeredgecolor="white", label="truth", linestyle="none")
    seen = drop.filled(-np.inf) > _DEEPEST
    for which, grid, marks in zip("xy", (first, second), zip(estimate, truth or estimate, strict=True), strict=True):
        values = np.concatenate([grid[seen], np.array(marks)])
        _spread_axis(ax, which, values)
        # A truth far outside is not to lie on the frame.
        more = 0.05 * np.ptp(values) if values.min() in marks or values.max() in marks else 0.0
        getattr(ax, f"set_{which}lim")(values.min() - more, values.max() + more)
    bar = ax.get_figure().colorbar(surface, ax=ax, ticks=np.arange(_DEEPEST, 1.0, 1.0))
    bar.set_label(bar_label, fontsize=_TEXT)
    bar.ax.tick_params(labelsize=_SMALL)
    ax.set_xlabel(labels[0])
    ax.set_ylabel(labels[1])


def draw_modes(ax: Any, roots: ArrayLike, counts: Sequence[int] | None = None, *, time_unit: str = "") -> None:
    """Draw exponents in the complex plane; those that decay lie in the shaded half.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    roots : array-like of complex, shape (n,)
    counts : sequence of int, optional
        How often each counts.
    """
    points = np.atleast_1d(np.asarray(roots, dtype=complex))
    size = 1.35 * float(np.max(np.maximum(np.abs(points.real), np.abs(points.imag)), initial=0.0)) or 1.0
    ax.axvspan(-size, 0.0, facecolor=_SHADE, edgecolor="none", zorder=0)
    for line in (ax.axhline, ax.axvline):
        line(0.0, color="0.6", linewidth=0.8, zorder=1)
    ax.plot(points.real, points.imag, "x", color=_MEAN, markersize=8, markeredgewidth=1.8, zorder=3, clip_on=False)
    for root, count in zip(points.tolist(), counts or [1] * len(points), strict=True):
        if count > 1:
            place = {"xytext": (6, 6), "textcoords": "offset points"}
            ax.annotate(f"\u00d7{count}", (root.real, root.imag), fontsize=_TEXT, color=_MEAN, **place)
    for x, side, word in ((0.02, "left", "decaying"), (0.98, "right", "growing")):
        ax.text(x, 0.02, word, transform=ax.transAxes, ha=side, va="bottom", fontsize=_SMALL, color=_FAINT)
    ax.set(xlim=(-size, size), ylim=(-size, size))
    ax.locator_params(nbins=5)
    ax.set_xlabel(name_with_unit("real part", f"1/{time_unit}" if time_unit else "rate"))
    ax.set_ylabel(name_with_unit("imaginary part", f"rad/{time_unit}" if time_unit else "angular frequency"))


def draw_spectrum(ax: Any, frequencies: ArrayLike, density: ArrayLike, *, label: str = "", unit: str = "") -> None:
    """Draw a spectral density on logarithmic axes, down to 1e-8 of its peak.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    frequencies, density : array-like, shape (n,)
    unit : str
        Of the density.
    """
    points, heights = np.asarray(frequencies, dtype=float), np.asarray(density, dtype=float)
    peak = float(heights.max())
    seen = heights > 1e-9 * peak
    ax.plot(points[seen], heights[seen], color=_MEAN, linewidth=1.4)
    ax.set(xscale="log", yscale="log")
    ax.yaxis.minorticks_off()
    ax.set_ylim(1e-8 * peak, 4.0 * peak)
    ax.set_ylabel(f"density of {label}\n({unit})" if unit else f"density of {label}")
