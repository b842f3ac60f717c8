"""Functions of time: channels with their uncertainty and data, and residuals of the equations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lodekit.plotting.axes import name_with_unit, shade_outside
from lodekit.plotting.style import BAND_STYLE, DASHES, DATA, FAINT, MEAN, NORMAL_95, OKABE_ITO, SAMPLE, SMALL, TRUTH

__all__ = ["draw_channel", "draw_input", "draw_residual"]

Array = NDArray[np.float64]
#: More points than this only make a figure slow and black.
_MOST_POINTS = 2000
#: So many points are drawn small and pale.
_MANY = 200
_EPSILON = float(np.finfo(float).eps)
#: Where residuals that are exactly zero are drawn on a logarithmic axis.
_FLOOR = 1e-19


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
    is_known: bool = False,
) -> None:
    """Draw a function of time with its uncertainty and what was measured.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    t, mean : array-like, shape (n,)
        Times in ascending order, and the function there.
    std : array-like, shape (n,), optional
        Standard deviation; the band reaches 1.96 of them to either side: 95 %.
    data : (times, values), optional
        Points beyond the times are left out; of more than 2000 an even choice is drawn.
    truth : array-like, shape (n,), optional
        The true function, dashed.
    samples : array-like, shape (s, n), optional
        Functions drawn from the posterior.
    window : (first, last), optional
        Times of the first and the last measurement; what lies outside is shaded as extrapolation.
    label, unit, note, data_label : str
        Of the vertical axis, the note on a line of its own; what the points are called in a legend.
    is_known : bool
        Whether it is a known input, which has a colour of its own.

    Examples
    --------
    >>> from lodekit.plotting import make_panels
    >>> figure, (ax,) = make_panels(1)
    >>> draw_channel(ax, [0, 1, 2], [0, 1, 0], [0.1, 0.1, 0.5], data=([0, 1], [0.1, 0.9]), window=(0, 1), label="f1")
    """
    times, centre = np.asarray(t, dtype=float), np.asarray(mean, dtype=float)
    shade_outside(ax, times, window, "extrapolation")
    if std is not None:
        _draw_band(ax, times, centre, NORMAL_95 * np.asarray(std, dtype=float))
    for number, drawn in enumerate([] if samples is None else np.atleast_2d(np.asarray(samples, dtype=float))):
        ax.plot(times, drawn, color=SAMPLE, linewidth=0.6, zorder=2, label=None if number else "samples")
    if data is not None:
        _draw_points(ax, times, *data, label=data_label)
    own = {"color": TRUTH, "label": "known input"} if is_known else {"color": MEAN, "label": "mean"}
    ax.plot(times, centre, linewidth=1.4, zorder=4, **own)
    if truth is not None:
        true = np.asarray(truth, dtype=float)
        ax.plot(times, true, color=TRUTH, linewidth=1.2, linestyle=DASHES, zorder=5, label="truth")
    ax.margins(x=0)
    if label:
        ax.set_ylabel(name_with_unit(label, unit) + (f"\n{note}" if note else ""))


def draw_input(ax: Any, t: ArrayLike, values: ArrayLike, *, is_held: bool = True, label: str = "") -> None:
    """Draw a known input from its samples, with upright jumps where it is held.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    t, values : array-like, shape (n,)
        Times in ascending order, and the input there.
    is_held : bool
        Whether it keeps its value until the next sample; otherwise it runs straight there.
    label : str
        Of the vertical axis.

    Examples
    --------
    >>> from lodekit.plotting import make_panels
    >>> figure, (ax,) = make_panels(1)
    >>> draw_input(ax, [0, 1, 2], [0, 1, 1], label="u")
    >>> ax.get_lines()[0].get_drawstyle()
    'steps-post'
    """
    style = {"drawstyle": "steps-post" if is_held else "default", "color": TRUTH, "linewidth": 1.2}
    ax.plot(np.asarray(t, dtype=float), np.asarray(values, dtype=float), label="known input", **style)
    ax.margins(x=0)
    if label:
        ax.set_ylabel(label)


def _draw_band(ax: Any, times: Array, centre: Array, half: Array) -> None:
    ax.fill_between(times, centre - half, centre + half, **BAND_STYLE)


def _draw_points(ax: Any, t: Array, at: ArrayLike, found: ArrayLike, *, label: str) -> None:
    """Draw what was `found` at some times, as far as these lie within those of the curve, `t`."""
    times, values = np.asarray(at, dtype=float), np.asarray(found, dtype=float)
    inside = (times >= t[0]) & (times <= t[-1])
    times, values = times[inside], values[inside]
    if not len(times):
        return
    if len(times) > _MOST_POINTS:
        label = f"{label} ({_MOST_POINTS} of {len(times)})"
        chosen = np.linspace(0, len(times) - 1, _MOST_POINTS).round().astype(int)
        times, values = times[chosen], values[chosen]
    many = len(times) > _MANY
    # Many points lie below the mean, so that it can be seen; few lie above it, so that they can.
    style = {"markersize": 1.5 if many else 3.0, "color": FAINT if many else DATA, "zorder": 1.5 if many else 4.5}
    ax.plot(times, values, "o", markeredgewidth=0, label=label, **style)


def draw_residual(
    ax: Any,
    t: ArrayLike,
    residual: ArrayLike,
    *,
    visible: float = 0.0,
    window: tuple[float, float] | None = None,
    label: str = "",
) -> None:
    """Draw the size of a relative residual on a logarithmic axis; exact zeros lie at its foot.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    t, residual : array-like, shape (n,)
        Times in ascending order, and what is left of the equation there.
    visible : float
        How far the residual can be wrong; zero draws no line for it.
    window : (first, last), optional
        Times of the first and the last measurement; what lies outside is shaded as extrapolation.
    label : str
        The equation.

    Examples
    --------
    >>> from lodekit.plotting import make_panels
    >>> figure, (ax,) = make_panels(1)
    >>> draw_residual(ax, [0, 1, 2], [0, 1e-16, -2e-16], label="x' = u")
    >>> ax.get_yscale(), ax.get_title(loc="left")
    ('log', "x' = u")
    """
    times, sizes = np.asarray(t, dtype=float), np.abs(np.asarray(residual, dtype=float))
    shade_outside(ax, times, window, "extrapolation")
    zero = sizes <= _FLOOR
    ax.plot(times[~zero], sizes[~zero], "o", color=MEAN, markersize=2.2, markeredgewidth=0, label="relative residual")
    if zero.any():
        style = {"color": OKABE_ITO["orange"], "markersize": 2.5, "markeredgewidth": 0, "label": "exactly zero"}
        ax.plot(times[zero], np.full(int(zero.sum()), 2.0 * _FLOOR), "v", **style)
    if visible > _FLOOR:
        ax.axhline(visible, color=OKABE_ITO["orange"], linewidth=1.0, label="uncertainty of the measurement")
    ax.axhline(_EPSILON, color=TRUTH, linewidth=1.0, linestyle=DASHES, label="machine precision")
    ax.set_yscale("log")
    ax.yaxis.minorticks_off()
    ax.set_ylim(_FLOOR, max(1e-13, 10.0 * float(np.max(sizes, initial=0.0))))
    ax.set_xlim(times[0], times[-1])
    if label:
        ax.set_title(label if len(label) <= 90 else f"{label[:87]}...", fontsize=SMALL, loc="left", pad=3)
