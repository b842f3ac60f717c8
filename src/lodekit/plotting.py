"""Figures drawn from values, never from the estimator; readable at paper width.

Every function draws on given axes and does not change matplotlib's global state: no pyplot, no settings.
Colour-blind readers can distinguish the colours; lines also differ in their dashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import tzinfo
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lodekit.errors import LodekitError
from lodekit.support.arguments import Array
from lodekit.support.plot_limits import typical_limits as typical_limits  # noqa: PLC0414
from lodekit.support.text import round_to_error

#: Colours that colour-blind readers can distinguish (Okabe and Ito, 2008).
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
MEAN_COLOR, DATA_COLOR = OKABE_ITO["blue"], OKABE_ITO["black"]
TRUTH_COLOR, SAMPLE_COLOR = OKABE_ITO["vermillion"], OKABE_ITO["green"]
#: The style of a 95 % band in matplotlib, with its legend entry.
BAND_STYLE: Mapping[str, Any]
BAND_STYLE = {"color": OKABE_ITO["sky"], "alpha": 0.4, "linewidth": 0, "zorder": 1, "label": "95 % band"}
#: Greys for extrapolation and for secondary elements.
SHADE_GRAY, FAINT_GRAY = "0.93", "0.45"
#: Font sizes, in points.
FONT_SIZE, SMALL_FONT_SIZE = 9.0, 8.0
#: The dashes of reference curves: a true function, machine precision, a static gain.
REFERENCE_DASHES = (0, (4, 2))
#: The half-width of a 95 % band in standard deviations.
NORMAL_95 = 1.959963984540054


def import_matplotlib() -> Any:
    """Return matplotlib; raise if it is not installed.

    Examples
    --------
    >>> import_matplotlib().__name__
    'matplotlib'
    """
    try:
        import matplotlib as mpl
        import matplotlib.figure
    except ImportError:
        message = "figures are drawn with matplotlib, which is missing; try: pip install 'lodekit[plot]'"
        raise LodekitError(message) from None
    return mpl


def make_panels(
    count: int, *, width: float = WIDTH, height_each: float = 1.35, columns: int = 1, share: bool | str = True
) -> tuple[Any, list[Any]]:
    """Return a figure and its panels, stacked vertically, with a common time axis.

    The figure need not be closed. Notebooks show it; ``savefig`` works without a display.

    Parameters
    ----------
    count : int
        Number of panels.
    width, height_each : float
        Width of the figure and height of a row of panels, in inches.
    columns : int
        Number of panels in a row.
    share : bool or "col"
        Whether all panels share their horizontal axis, or only those in the same column.

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
        axis.tick_params(labelsize=SMALL_FONT_SIZE, direction="out", length=3)
        axis.xaxis.label.set_size(FONT_SIZE)
        axis.yaxis.label.set_size(FONT_SIZE)
        axis.spines[["top", "right"]].set_visible(False)
        axis.locator_params(axis="y", nbins=4)
    for axis in axes[-columns:]:
        axis.tick_params(labelbottom=True)
    # IPython uses this method if no backend of pyplot has another one.
    figure._repr_png_ = partial(to_png, figure)
    return figure, axes


def to_png(figure: Any) -> bytes:
    """Return a figure as the bytes of a PNG, without metadata: the same figure gives the same bytes.

    Parameters
    ----------
    figure : matplotlib.figure.Figure

    Examples
    --------
    >>> to_png(make_panels(1)[0])[1:4]
    b'PNG'
    """
    target = BytesIO()
    figure.savefig(target, format="png", dpi=150, metadata={"Software": None})
    return target.getvalue()


def read_axes(axes: Any, names: Sequence[str], **layout: Any) -> tuple[Any, list[Any], bool]:
    """Return the figure, one axes for each name, and whether these are new.

    Parameters
    ----------
    axes : matplotlib.axes.Axes, sequence of them, or None
        Axes of the user; None for a new figure.
    names : sequence of str
        The contents of the axes.
    **layout
        Arguments of `make_panels`.

    Examples
    --------
    >>> figure, axes, new = read_axes(None, ["f1", "f2"], columns=2)
    >>> len(axes), new
    (2, True)
    """
    if axes is None:
        return (*make_panels(len(names), **layout), True)
    import_matplotlib()
    from matplotlib.axes import Axes

    expected = "expected axes as matplotlib axes or a list of them"
    if not isinstance(axes, Axes | Iterable):
        raise LodekitError(f"{expected}, got {type(axes).__name__}")
    panels = [axes] if isinstance(axes, Axes) else list(axes.ravel() if isinstance(axes, np.ndarray) else axes)
    if wrong := [item for item in panels if not isinstance(item, Axes)]:
        raise LodekitError(f"{expected}, got {type(wrong[0]).__name__} in it")
    if len(panels) != len(names):
        raise LodekitError(
            f"expected {len(names)} axes, one for each of {', '.join(names)}, got {len(panels)}; try "
            f"figure, axes = plt.subplots({len(names)}, sharex=True)"
        )
    return panels[0].get_figure(), panels, False


def name_with_unit(name: str, unit: str = "") -> str:
    """Return the label of an axis, such as ``f1 (K)``; dollar signs are escaped.

    Parameters
    ----------
    name : str
        Name of the quantity.
    unit : str
        Its unit, in brackets; may be empty.

    Examples
    --------
    >>> name_with_unit("f1", "K"), name_with_unit("f1")
    ('f1 (K)', 'f1')
    """
    return escape_mathtext(f"{name} ({unit})" if unit else name)


def escape_mathtext(text: str) -> str:
    r"""Return text in which dollar signs are escaped, so that matplotlib draws it unchanged.

    Parameters
    ----------
    text : str

    Examples
    --------
    >>> print(escape_mathtext("3 $/h"))
    3 \$/h
    """
    return text.replace("$", r"\$")


def label_bottom(axes: Sequence[Any], text: str) -> None:
    """Label the horizontal axis of each panel, unless a panel below shares it.

    Parameters
    ----------
    axes : sequence of matplotlib.axes.Axes
        All panels.
    text : str
        The label.

    Examples
    --------
    >>> figure, axes = make_panels(2)
    >>> label_bottom(axes, "t (s)")
    >>> [ax.get_xlabel() for ax in axes]
    ['', 't (s)']
    """
    for axis in axes:
        own = axis.get_subplotspec()
        places = [other.get_subplotspec() for other in axes if axis.get_shared_x_axes().joined(axis, other)]
        column = [each for each in places if own and each and each.colspan.start == own.colspan.start]
        if not any(each.rowspan.start > own.rowspan.start for each in column):
            axis.set_xlabel(text)


def label_time(axes: Sequence[Any], unit: str = "", zone: tzinfo | str | None = "") -> None:
    """Label the time axes; with a time zone, or None for dates without one, they show dates.

    Parameters
    ----------
    axes : sequence of matplotlib.axes.Axes
        All panels.
    unit : str
        Unit of time, for times that are numbers.
    zone : tzinfo, None or ""
        Time zone of the dates; empty if times are numbers.

    Examples
    --------
    >>> figure, axes = make_panels(2)
    >>> label_time(axes, "s")
    >>> axes[1].get_xlabel()
    't (s)'
    """
    if isinstance(zone, str):
        label_bottom(axes, name_with_unit("t", unit))
        for axis in axes:
            # matplotlib expects short labels
            length = max(len(f"{edge:.1f}") for edge in axis.get_xlim())
            if length > 6:
                inches = axis.get_position().width * axis.get_figure().get_figwidth()
                axis.locator_params(axis="x", nbins=max(1, int(11 * inches / length)))
        return
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    for axis in axes:
        inches = axis.get_position().width * axis.get_figure().get_figwidth()
        locator = AutoDateLocator(tz=zone, minticks=2, maxticks=max(5, round(1.3 * inches)))
        axis.xaxis.set_major_locator(locator)
        formatter = ConciseDateFormatter(locator, tz=zone)
        formatter.formats[2] = formatter.zero_formats[2] = formatter.zero_formats[3] = "%d %b"
        offsets = ("", "%Y", "%Y", "%d %b %Y", "%d %b %Y", "%d %b %Y %H:%M")
        formatter.offset_formats = offsets if zone is None else [f"{text} %Z" for text in offsets]
        formatter.get_offset = partial(_describe_offset, axis, formatter, zone)
        axis.xaxis.set_major_formatter(formatter)
        axis.xaxis.get_offset_text().set_size(SMALL_FONT_SIZE)


def _describe_offset(axis: Any, formatter: Any, zone: tzinfo | None) -> str:
    """Return the offset of dates on an axis: if it is a year and New Year is between the ticks, both years."""
    from matplotlib.dates import num2date

    first, last = (f"{date:%Y}" for date in num2date(axis.get_xticks()[[0, -1]], zone))
    text = str(type(formatter).get_offset(formatter))
    return f"{first}\u2013{text}" if text.startswith(last) and first < last else text


def add_legend(figure: Any, axes: Sequence[Any], *, outside: bool, place: str = "upper") -> None:
    """Add one legend for all panels, above or below them, or in the first one.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
    axes : sequence of matplotlib.axes.Axes
        All panels, whose labels are combined.
    outside : bool
        Whether to place it outside the panels; otherwise in the first one, for axes of the user.
    place : {"upper", "lower"}
        Whether it is above or below the panels.

    Examples
    --------
    >>> figure, (ax,) = make_panels(1)
    >>> line = ax.plot([0, 1], [0, 1], label="mean")
    >>> add_legend(figure, [ax], outside=True)
    >>> [text.get_text() for text in figure.legends[0].get_texts()]
    ['mean']
    """
    entries: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if not entries:
        return
    entries = dict(sorted(entries.items(), key=lambda item: -item[1].get_zorder()))
    style = {"fontsize": SMALL_FONT_SIZE, "frameon": not outside, "handlelength": 1.8, "columnspacing": 1.4}
    if outside:
        # As few rows as fit: about 13 small letters per inch, and 6 for a handle.
        widths, limit = [6 + len(label) for label in entries], 13 * figure.get_figwidth()
        count = len(widths)
        rows = (n for n in range(1, count) if sum(max(widths[k : k + n]) for k in range(0, count, n)) < limit)
        columns = -(-count // next(rows, count))
        figure.legend(entries.values(), entries, loc=f"outside {place} center", ncols=columns, **style)
    else:
        axes[0].legend(entries.values(), entries, **style)


def draw_note(ax: Any, text: str) -> None:
    """Write a note into empty axes that explains why there is nothing to plot.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    text : str
        The reason.

    Examples
    --------
    >>> figure, (ax,) = make_panels(1)
    >>> draw_note(ax, "no modes")
    >>> ax.texts[0].get_text()
    'no modes'
    """
    style = {"ha": "center", "va": "center", "fontsize": FONT_SIZE, "color": FAINT_GRAY, "wrap": True}
    ax.text(0.5, 0.5, text, transform=ax.transAxes, **style)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


def frame(ax: Any, curves: Sequence[Array], margin: float = 0.5) -> None:
    """Set the limits of a panel so that curves fill it; parts outside, such as wide bands, are cut off.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    curves : sequence of arrays
        Curves that must be visible.
    margin : float
        Margin above and below, relative to the range of the curves.

    Examples
    --------
    >>> figure, (ax,) = make_panels(1)
    >>> line = ax.plot([0, 1], [-9, 9])
    >>> frame(ax, [np.array([0.0, 2.0])])
    >>> [float(limit) for limit in ax.get_ylim()]
    [-1.0, 3.0]
    """
    values = np.concatenate([np.ravel(curve) for curve in curves])
    if not len(values):
        return
    low, high = float(values.min()), float(values.max())
    bottom, top = ax.get_ylim()
    more = margin * (high - low)
    if more > 0:
        ax.set_ylim(max(bottom, low - more), min(top, high + more))


def shade_outside(ax: Any, points: Array, window: tuple[float, float] | None, label: str) -> None:
    """Shade the regions before and after a window, such as that of the data.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    points : array, shape (n,)
        Times in ascending order, which the panel shows.
    window : (first, last), optional
        Times of the first and the last measurement.
    label : str
        Label of the shaded regions in a legend.

    Examples
    --------
    >>> figure, (ax,) = make_panels(1)
    >>> shade_outside(ax, np.array([0.0, 5.0]), (1.0, 9.0), "extrapolation")
    >>> len(ax.patches)
    1
    """
    if window is None:
        return
    first, last = window
    before = [(points[0], min(first, points[-1]))] if points[0] < first else []
    behind = [(max(last, points[0]), points[-1])] if points[-1] > last else []
    for number, (left, right) in enumerate([*before, *behind]):
        own = None if number else label
        ax.axvspan(left, right, facecolor=SHADE_GRAY, edgecolor="none", zorder=0, label=own)


def set_axis_scale(ax: Any, which: str, values: Array) -> None:
    """Make an axis logarithmic if its values span decades; otherwise use few ticks.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    which : {"x", "y"}
        The axis.
    values : array, shape (n,)
        The values that it shows.

    Examples
    --------
    >>> figure, (ax,) = make_panels(1)
    >>> set_axis_scale(ax, "x", np.array([0.1, 10.0]))
    >>> ax.get_xscale()
    'log'
    """
    low, high = float(values.min()), float(values.max())
    if low > 0 and high > 30 * low:
        _set_log_scale(ax, which, high / low)
        return
    ax.ticklabel_format(axis=which, useOffset=False, style="sci", scilimits=(-4, 5))
    ax.locator_params(axis=which, nbins=5)


def _set_log_scale(ax: Any, which: str, ratio: float) -> None:
    """Make an axis logarithmic whose limits have a `ratio`, with few labels."""
    from matplotlib.ticker import LogLocator, NullFormatter

    getattr(ax, f"set_{which}scale")("log")
    axis = getattr(ax, f"{which}axis")
    if ratio < 1e3:
        axis.set_major_locator(LogLocator(subs=(1.0, 3.0) if ratio > 20.0 else (1.0, 2.0, 5.0)))
        axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


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
    note: str = "",
    data_label: str = "data",
    outside_label: str = "extrapolation",
    is_known: bool = False,
) -> None:
    """Draw a function of time with its uncertainty and the measurements.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    t, mean : array-like, shape (n,)
        Times in ascending order, and the function there.
    std : array-like, shape (n,), optional
        Standard deviation; the 95 % band is 1.96 of them wide on each side.
    data : (times, values), optional
        Measurements within the times; more than 2000 are thinned evenly.
    truth : array-like, shape (n,), optional
        The true function, dashed.
    samples : array-like, shape (s, n), optional
        Functions drawn from the posterior.
    window : (first, last), optional
        Times of the first and the last measurement; extrapolation outside is shaded.
    label, unit, note, data_label, outside_label : str
        Label and unit of the vertical axis, with the note below; legend labels of the points and the shaded times.
    is_known : bool
        Whether it is a known input, which has its own colour.

    Examples
    --------
    >>> figure, (ax,) = make_panels(1)
    >>> draw_channel(ax, [0, 1, 2], [0, 1, 0], [0.1, 0.1, 0.5], data=([0, 1], [0.1, 0.9]), window=(0, 1), label="f1")
    """
    times, centre = np.asarray(t, dtype=float), np.asarray(mean, dtype=float)
    shade_outside(ax, times, window, outside_label)
    if std is not None:
        half = NORMAL_95 * np.asarray(std, dtype=float)
        ax.fill_between(times, centre - half, centre + half, **BAND_STYLE)
    for number, drawn in enumerate([] if samples is None else np.atleast_2d(np.asarray(samples, dtype=float))):
        ax.plot(times, drawn, color=SAMPLE_COLOR, linewidth=0.6, zorder=2, label=None if number else "samples")
    if data is not None:
        _draw_points(ax, times, *data, label=data_label)
    own = {"color": TRUTH_COLOR, "label": "known input"} if is_known else {"color": MEAN_COLOR, "label": "mean"}
    ax.plot(times, centre, linewidth=1.4, zorder=4, **own)
    if truth is not None:
        true = np.asarray(truth, dtype=float)
        ax.plot(times, true, color=TRUTH_COLOR, linewidth=1.2, linestyle=REFERENCE_DASHES, zorder=5, label="truth")
    ax.margins(x=0)
    if label:
        ax.set_ylabel(name_with_unit(label, unit) + (f"\n{note}" if note else ""))


def draw_input(ax: Any, t: ArrayLike, values: ArrayLike, *, is_held: bool = True, label: str = "") -> None:
    """Draw a known input from its samples, with steps if it is held.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    t, values : array-like, shape (n,)
        Times in ascending order, and the input there.
    is_held : bool
        Whether it is held until the next sample; otherwise it is interpolated linearly.
    label : str
        Label of the vertical axis.

    Examples
    --------
    >>> figure, (ax,) = make_panels(1)
    >>> draw_input(ax, [0, 1, 2], [0, 1, 1], label="u")
    >>> ax.get_lines()[0].get_drawstyle()
    'steps-post'
    """
    style = {"drawstyle": "steps-post" if is_held else "default", "color": TRUTH_COLOR, "linewidth": 1.2}
    ax.plot(np.asarray(t, dtype=float), np.asarray(values, dtype=float), label="known input", **style)
    ax.margins(x=0)
    ax.set_ylabel(label or ax.get_ylabel())


def _draw_points(
    ax: Any, curve_times: Array, data_times: ArrayLike, data_values: ArrayLike, *, label: str, max_points: int = 2000
) -> None:
    """Draw data within the times of the curve, thinned evenly to `max_points`."""
    times, values = np.asarray(data_times, dtype=float), np.asarray(data_values, dtype=float)
    inside = (times >= curve_times[0]) & (times <= curve_times[-1])
    times, values = times[inside], values[inside]
    if not len(times):
        return
    if len(times) > max_points:
        label = f"{label} ({max_points} of {len(times)})"
        chosen = np.linspace(0, len(times) - 1, max_points).round().astype(int)
        times, values = times[chosen], values[chosen]
    # Points are below the mean and wider.
    ax.plot(times, values, "o", markeredgewidth=0, label=label, markersize=2.6, color=DATA_COLOR, zorder=3.5)


def draw_residual(
    ax: Any,
    t: ArrayLike,
    residual: ArrayLike,
    *,
    visible: float = 0.0,
    window: tuple[float, float] | None = None,
    label: str = "",
) -> None:
    """Draw the size of a relative residual on a logarithmic axis; exact zeros are at its lower end.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    t, residual : array-like, shape (n,)
        Times in ascending order, and the residual of the equation there.
    visible : float
        Error of the residual, drawn as a line; none if zero.
    window : (first, last), optional
        Times of the first and the last measurement; extrapolation outside is shaded.
    label : str
        The equation.

    Examples
    --------
    >>> figure, (ax,) = make_panels(1)
    >>> draw_residual(ax, [0, 1, 2], [0, 1e-16, -2e-16], label="x' = u")
    >>> ax.get_yscale(), ax.get_title(loc="left")
    ('log', "x' = u")
    """
    times, sizes = np.asarray(t, dtype=float), np.abs(np.asarray(residual, dtype=float))
    shade_outside(ax, times, window, "extrapolation")
    foot = 1e-19  # exact zeros are drawn at the lower end of the logarithmic axis
    zero = sizes <= foot
    style = {"color": MEAN_COLOR, "markersize": 2.2, "markeredgewidth": 0, "label": "relative residual"}
    ax.plot(times[~zero], sizes[~zero], "o", **style)
    if zero.any():
        style = {"color": OKABE_ITO["orange"], "markersize": 2.5, "markeredgewidth": 0, "label": "exactly zero"}
        ax.plot(times[zero], np.full(int(zero.sum()), 2.0 * foot), "v", **style)
    if visible > foot:
        ax.axhline(visible, color=OKABE_ITO["orange"], linewidth=1.0, label="error of evaluating the residual")
    style = {"color": TRUTH_COLOR, "linewidth": 1.0, "linestyle": REFERENCE_DASHES, "label": "machine precision"}
    ax.axhline(float(np.finfo(float).eps), **style)
    ax.set_yscale("log")
    ax.yaxis.minorticks_off()
    ax.set_ylim(foot, max(1e-13, 10.0 * float(np.max(sizes, initial=0.0))))
    ax.set_xlim(times[0], times[-1])
    if label:
        ax.set_title(label if len(label) <= 90 else f"{label[:87]}...", fontsize=SMALL_FONT_SIZE, loc="left", pad=3)


def draw_frequency_response(
    magnitude: Any,
    phase: Any,
    frequencies: ArrayLike,
    response: ArrayLike,
    errors: tuple[ArrayLike, ArrayLike],
    *,
    seen: tuple[float, float] | None = None,
) -> None:
    """Draw magnitude and phase over frequency, with bands; frequencies outside the data are shaded.

    Parameters
    ----------
    magnitude, phase : matplotlib.axes.Axes
    frequencies : array-like, shape (n,)
        In radians per unit of time, ascending.
    response : array-like of complex, shape (n,)
    errors : (array-like, array-like)
        Standard errors of the logarithm of the magnitude, and of the phase in radians.
    seen : (low, high), optional
        The frequency band of the data.

    Examples
    --------
    >>> figure, axes = make_panels(2, columns=2, share=False)
    >>> draw_frequency_response(*axes, [0.1, 1, 10], [1, 0.7 - 0.7j, -0.1j], ([0.1, 0.1, 0.1], [0.1, 0.1, 0.1]))
    >>> axes[0].get_yscale()
    'log'
    """
    omega, values = np.asarray(frequencies, dtype=float), np.asarray(response, dtype=complex)
    reach = [NORMAL_95 * np.asarray(part, dtype=float) for part in errors]
    size, angle = np.abs(values), np.degrees(np.unwrap(np.angle(values)))
    magnitude.fill_between(omega, size * np.exp(-reach[0]), size * np.exp(reach[0]), **BAND_STYLE)
    phase.fill_between(omega, angle - np.degrees(reach[1]), angle + np.degrees(reach[1]), **BAND_STYLE)
    for axis, curve in ((magnitude, size), (phase, angle)):
        axis.plot(omega, curve, color=MEAN_COLOR, linewidth=1.4, zorder=3, label="estimated")
        _set_log_scale(axis, "x", omega[-1] / omega[0])
        axis.set_xlim(omega[0], omega[-1])
        shade_outside(axis, omega, seen, "outside the data")
    ratio = float(size.max() / size.min())
    _set_log_scale(magnitude, "y", max(ratio, 9.0))
    # A nearly constant curve must not fill the panel.
    if ratio < 8.0:
        magnitude.set_ylim(size.min() / 3.0, 3.0 * size.max())
    low, high = float(angle.min()), float(angle.max())
    phase.set_yticks(_phase_ticks(low, high))
    phase.set_ylim(low - 15.0, high + 15.0)


def _phase_ticks(low: float, high: float) -> list[float]:
    """Return multiples of 45 degrees, or of a larger step if there were too many, from below `low` to above `high`."""
    step = next((each for each in (45.0, 90.0, 180.0, 360.0) if (high - low) / each <= 5), 720.0)
    return list(np.arange(np.floor(low / step), np.ceil(high / step) + 1) * step)


def draw_step(
    ax: Any, t: ArrayLike, response: ArrayLike, errors: ArrayLike, *, gain: float | None = None, label: str = ""
) -> None:
    """Draw the response to a unit step at time zero, with its band and final value.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    t, response, errors : array-like, shape (n,)
        Times in ascending order, the response, and its standard errors.
    gain : float, optional
        The static gain.
    label : str
        Label of the vertical axis.

    Examples
    --------
    >>> figure, (ax,) = make_panels(1)
    >>> draw_step(ax, [0, 1, 2], [0, 0.6, 0.9], [0, 0.1, 0.1], gain=1.0, label="y")
    >>> ax.get_ylabel()
    'y'
    """
    times, values, reach = (np.asarray(part, dtype=float) for part in (t, response, errors))
    half = NORMAL_95 * reach
    ax.fill_between(times, values - half, values + half, **BAND_STYLE)
    ax.plot(times, values, color=MEAN_COLOR, linewidth=1.4, zorder=3, label="estimated")
    ax.axhline(0.0, color=FAINT_GRAY, linewidth=0.8, zorder=0)
    if gain is not None:
        ax.axhline(gain, color=TRUTH_COLOR, linewidth=1.2, linestyle=REFERENCE_DASHES, zorder=2, label="static gain")
    ax.margins(x=0)
    ax.set_ylabel(label or ax.get_ylabel())


def draw_modes(ax: Any, roots: ArrayLike, counts: Sequence[int] | None = None, *, time_unit: str = "") -> None:
    """Draw exponents in the complex plane; the half-plane of decaying ones is shaded.

    Axes are logarithmic, except around zero, if magnitudes differ by more than a factor of 100.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    roots : array-like of complex, shape (n,)
        The exponents.
    counts : sequence of int, optional
        Multiplicity of each.
    time_unit : str
        Unit of time for the axis labels.

    Examples
    --------
    >>> figure, (ax,) = make_panels(1)
    >>> draw_modes(ax, [-1 + 2j, -1 - 2j], time_unit="s")
    >>> ax.get_xlabel()
    'real part (1/s)'
    """
    points = np.atleast_1d(np.asarray(roots, dtype=complex))
    size = 1.35 * float(np.max(np.maximum(np.abs(points.real), np.abs(points.imag)), initial=0.0)) or 1.0
    for line in (ax.axhline, ax.axvline):
        line(0.0, color="0.6", linewidth=0.8, zorder=1)
    ax.plot(points.real, points.imag, "x", color=MEAN_COLOR, markersize=8, markeredgewidth=1.8, zorder=3, clip_on=False)
    for root, count in zip(points.tolist(), counts or [1] * len(points), strict=True):
        if count > 1:
            place = {"xytext": (6, 6), "textcoords": "offset points"}
            ax.annotate(f"\u00d7{count}", (root.real, root.imag), fontsize=FONT_SIZE, color=MEAN_COLOR, **place)
    for x, side, word in ((0.02, "left", "decaying"), (0.98, "right", "growing")):
        ax.text(x, 0.02, word, transform=ax.transAxes, ha=side, va="bottom", fontsize=SMALL_FONT_SIZE, color=FAINT_GRAY)
    ax.locator_params(nbins=5)
    sizes = np.abs(points[np.abs(points) > 1e-9 * size])
    if sizes.max(initial=0.0) > 100.0 * sizes.min(initial=np.inf):
        # On linear axes, slow modes would coincide at zero.
        size *= 2.0
        for set_scale in (ax.set_xscale, ax.set_yscale):
            set_scale("symlog", linthresh=10.0 ** np.floor(np.log10(sizes.min())))
        ax.locator_params(numticks=5)
    ax.axvspan(-size, 0.0, facecolor=SHADE_GRAY, edgecolor="none", zorder=0)
    ax.set(xlim=(-size, size), ylim=(-size, size))
    ax.set_xlabel(name_with_unit("real part", f"1/{time_unit}" if time_unit else "rate"))
    ax.set_ylabel(name_with_unit("imaginary part", f"rad/{time_unit}" if time_unit else "angular frequency"))


def draw_spectrum(ax: Any, frequencies: ArrayLike, density: ArrayLike, *, label: str = "", unit: str = "") -> None:
    """Draw a spectral density on logarithmic axes, down to 1e-8 of its peak.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    frequencies, density : array-like, shape (n,)
        Frequencies above zero, and the density there.
    label, unit : str
        Name of the quantity, and the unit of the density.

    Examples
    --------
    >>> figure, (ax,) = make_panels(1)
    >>> draw_spectrum(ax, [0.1, 1, 10], [1, 0.1, 0.01], label="f1")
    >>> ax.get_ylabel()
    'density of f1'
    """
    points, heights = np.asarray(frequencies, dtype=float), np.asarray(density, dtype=float)
    peak = float(heights.max())
    seen = heights > 1e-9 * peak
    ax.plot(points[seen], heights[seen], color=MEAN_COLOR, linewidth=1.4)
    ax.set(xscale="log", yscale="log")
    ax.yaxis.minorticks_off()
    ax.set_ylim(1e-8 * peak, 4.0 * peak)
    ax.set_ylabel(escape_mathtext(f"density of {label}\n({unit})" if unit else f"density of {label}"))


#: Larger numbers of points are thinned.
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
    ax.set_ylabel(label or ax.get_ylabel())


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
    ax.set_xlabel(label or ax.get_xlabel())


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
    ax.set_xlabel(label or ax.get_xlabel())


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
    level: float = -0.5 * NORMAL_95**2,
    approximation: ArrayLike | None = None,
    truth: float | None = None,
    curve_label: str = "evidence",
    level_label: str = "95 % level",
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
    level : float
        The drop of the curve at the ends of the interval.
    approximation : array-like, shape (n,), optional
        The normal approximation on which the interval is based.
    truth : float, optional
        The true value.
    curve_label, level_label : str
        Labels of the curve and of the level in a legend.
    name, unit : str
        Name and unit of the parameter.
    note : str
        Text below the numbers in the title.

    Examples
    --------
    >>> figure, (ax,) = make_panels(1)
    >>> draw_parameter(ax, [2, 3, 4], [-2, 0, -2], estimate=3, interval=(2.02, 3.98), name="a", unit="1/s")
    >>> ax.get_title(loc="left")
    'a = 3.00 1/s  [2.02, 3.98]'
    """
    points, heights = np.asarray(values, dtype=float), np.asarray(curve, dtype=float)
    seen = np.isfinite(heights)
    ax.plot(points[seen], heights[seen], color=MEAN_COLOR, linewidth=1.4, label=curve_label)
    if approximation is not None:
        style = {"color": FAINT_GRAY, "linewidth": 1.0, "linestyle": (0, (1, 1.5))}
        ax.plot(points, np.asarray(approximation, dtype=float), label="normal approximation", **style)
    if truth is not None:
        ax.axvline(truth, color=TRUTH_COLOR, linewidth=1.2, linestyle=REFERENCE_DASHES, label="truth")
    ax.axhline(level, color=FAINT_GRAY, linewidth=0.8, zorder=0, label=level_label)
    # The estimate is at the level of its interval, or at the top.
    if interval is not None:
        style = {"color": DATA_COLOR, "linewidth": 1.2, "markersize": 7}
        ax.plot(interval, [level, level], "|-", label="95 % interval", **style)
    ax.plot([estimate], [0.0 if interval is None else level], "o", color=DATA_COLOR, markersize=4, label="estimate")
    top = float(np.max(heights[seen], initial=0.0))
    ax.set_ylim(2.5 * level, max(-0.3 * level, 1.15 * top))
    set_axis_scale(ax, "x", np.append(points[seen], estimate))
    step = 0.0 if interval is None else (interval[1] - interval[0]) / 4.0
    value, *ends = (round_to_error(each, step) for each in (estimate, *(interval or ())))
    number = escape_mathtext(f"{name} = {value}" + (f" {unit}" if unit else ""))
    number += f"  [{', '.join(ends)}]" if ends else ""
    number = number.replace("  [", "\n[") if len(number) > 40 else number
    ax.set_title(f"{number}\n{note}" if note else number, fontsize=SMALL_FONT_SIZE, loc="left", pad=4)
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
    >>> figure, (ax,) = make_panels(1, height_each=3.0)
    >>> x, y = np.mgrid[-1:1:9j, -1:1:9j]
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
        if np.ptp(values) > 0.0:
            getattr(ax, f"set_{which}lim")(values.min() - more, values.max() + more)
    bar = ax.get_figure().colorbar(surface, ax=ax, ticks=np.arange(MIN_LOG_EVIDENCE_DROP, 1.0, 1.0))
    bar.set_label(bar_label, fontsize=FONT_SIZE)
    bar.ax.tick_params(labelsize=SMALL_FONT_SIZE)
    ax.set_xlabel(labels[0])
    ax.set_ylabel(labels[1])
