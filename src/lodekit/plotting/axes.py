"""Figures and their axes: colours and sizes, stacked panels, labels, one legend, PNG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import tzinfo
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np

from lodekit.errors import LodekitError
from lodekit.support.arguments import Array

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

    The figure is not managed by pyplot and need not be closed. Notebooks show it; ``savefig`` works without a display.

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
    # IPython uses this method if no backend of pyplot has registered another one.
    figure._repr_png_ = partial(to_png, figure)
    return figure, axes


def to_png(figure: Any) -> bytes:
    """Return a figure as the bytes of a PNG, without metadata: the same figure gives the same bytes.

    Parameters
    ----------
    figure : matplotlib.figure.Figure

    Examples
    --------
    >>> figure, axes = make_panels(1)
    >>> to_png(figure)[1:4]
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
    if not isinstance(axes, Axes | np.ndarray | Iterable):
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
        axis.xaxis.set_major_formatter(formatter)
        axis.xaxis.get_offset_text().set_size(SMALL_FONT_SIZE)


def add_legend(figure: Any, axes: Sequence[Any], *, outside: bool) -> None:
    """Add one legend for all panels, above them or in the first one.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
    axes : sequence of matplotlib.axes.Axes
        All panels, whose labels are combined.
    outside : bool
        Whether to place it above the panels; otherwise in the first one, for axes of the user.

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
        labels, columns = list(entries), len(entries)
        # Use as many columns as fit: about 13 small letters per inch, and 6 for a handle.
        while columns > 1:
            rows = -(-len(labels) // columns)
            widths = (6 + max(map(len, labels[k : k + rows])) for k in range(0, len(labels), rows))
            if sum(widths) < 13 * figure.get_figwidth():
                break
            columns -= 1
        figure.legend(entries.values(), entries, loc="outside upper center", ncols=columns, **style)
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
    >>> draw_note(ax, "no modes: the system is controllable")
    >>> ax.texts[0].get_text()
    'no modes: the system is controllable'
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

    Shapes: points (n,).

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
    """Make axis `which` (x or y) of `ax` logarithmic if `values` span decades; otherwise use few ticks."""
    low, high = float(values.min()), float(values.max())
    if low > 0 and high > 30 * low:
        getattr(ax, f"set_{which}scale")("log")
        return
    ax.ticklabel_format(axis=which, useOffset=False, style="sci", scilimits=(-4, 5))
    ax.locator_params(axis=which, nbins=5)
