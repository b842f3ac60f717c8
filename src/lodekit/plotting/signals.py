"""Plots of signals and systems: channels with bands and data, equation residuals, Bode plots, step responses, poles."""

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
    OKABE_ITO,
    REFERENCE_DASHES,
    SAMPLE_COLOR,
    SHADE_GRAY,
    SMALL_FONT_SIZE,
    TRUTH_COLOR,
    escape_mathtext,
    name_with_unit,
    shade_outside,
)
from lodekit.support.arguments import Array


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
    """Draw a function of time with its uncertainty and the measurements.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    t, mean : array-like, shape (n,)
        Times in ascending order, and the function there.
    std : array-like, shape (n,), optional
        Standard deviation; the 95 % band is 1.96 of them wide on each side.
    data : (times, values), optional
        Measurements; points outside the times are omitted, and more than 2000 are thinned evenly.
    truth : array-like, shape (n,), optional
        The true function, dashed.
    samples : array-like, shape (s, n), optional
        Functions drawn from the posterior.
    window : (first, last), optional
        Times of the first and the last measurement; extrapolation outside is shaded.
    label, unit, note, data_label : str
        Label and unit of the vertical axis, with the note on a separate line; label of the points in a legend.
    is_known : bool
        Whether it is a known input, which has its own colour.

    Examples
    --------
    >>> from lodekit.plotting import make_panels
    >>> figure, (ax,) = make_panels(1)
    >>> draw_channel(ax, [0, 1, 2], [0, 1, 0], [0.1, 0.1, 0.5], data=([0, 1], [0.1, 0.9]), window=(0, 1), label="f1")
    """
    times, centre = np.asarray(t, dtype=float), np.asarray(mean, dtype=float)
    shade_outside(ax, times, window, "extrapolation")
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
    >>> from lodekit.plotting import make_panels
    >>> figure, (ax,) = make_panels(1)
    >>> draw_input(ax, [0, 1, 2], [0, 1, 1], label="u")
    >>> ax.get_lines()[0].get_drawstyle()
    'steps-post'
    """
    style = {"drawstyle": "steps-post" if is_held else "default", "color": TRUTH_COLOR, "linewidth": 1.2}
    ax.plot(np.asarray(t, dtype=float), np.asarray(values, dtype=float), label="known input", **style)
    ax.margins(x=0)
    if label:
        ax.set_ylabel(label)


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
    # Points are below the mean and wider than its line, so that both remain visible however many there are.
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
    >>> from lodekit.plotting import make_panels
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
        ax.axhline(visible, color=OKABE_ITO["orange"], linewidth=1.0, label="uncertainty of the measurement")
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
    >>> from lodekit.plotting import make_panels
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
        axis.set_xscale("log")
        axis.set_xlim(omega[0], omega[-1])
        shade_outside(axis, omega, seen, "outside the data")
    magnitude.set_yscale("log")
    # A nearly constant curve must not fill the panel, which would exaggerate its changes.
    if size.max() < 8.0 * size.min():
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
    >>> from lodekit.plotting import make_panels
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
    if label:
        ax.set_ylabel(label)


def draw_modes(ax: Any, roots: ArrayLike, counts: Sequence[int] | None = None, *, time_unit: str = "") -> None:
    """Draw exponents in the complex plane; the half-plane of decaying ones is shaded.

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
    >>> from lodekit.plotting import make_panels
    >>> figure, (ax,) = make_panels(1)
    >>> draw_modes(ax, [-1 + 2j, -1 - 2j], time_unit="s")
    >>> ax.get_xlabel()
    'real part (1/s)'
    """
    points = np.atleast_1d(np.asarray(roots, dtype=complex))
    size = 1.35 * float(np.max(np.maximum(np.abs(points.real), np.abs(points.imag)), initial=0.0)) or 1.0
    ax.axvspan(-size, 0.0, facecolor=SHADE_GRAY, edgecolor="none", zorder=0)
    for line in (ax.axhline, ax.axvline):
        line(0.0, color="0.6", linewidth=0.8, zorder=1)
    ax.plot(points.real, points.imag, "x", color=MEAN_COLOR, markersize=8, markeredgewidth=1.8, zorder=3, clip_on=False)
    for root, count in zip(points.tolist(), counts or [1] * len(points), strict=True):
        if count > 1:
            place = {"xytext": (6, 6), "textcoords": "offset points"}
            ax.annotate(f"\u00d7{count}", (root.real, root.imag), fontsize=FONT_SIZE, color=MEAN_COLOR, **place)
    for x, side, word in ((0.02, "left", "decaying"), (0.98, "right", "growing")):
        ax.text(x, 0.02, word, transform=ax.transAxes, ha=side, va="bottom", fontsize=SMALL_FONT_SIZE, color=FAINT_GRAY)
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
        Frequencies above zero, and the density there.
    label, unit : str
        Name of the quantity, and the unit of the density.

    Examples
    --------
    >>> from lodekit.plotting import make_panels
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
