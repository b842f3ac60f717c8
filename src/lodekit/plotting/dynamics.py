"""How a channel responds to an input: over frequency, and to a step."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lodekit.plotting.axes import shade_outside
from lodekit.plotting.style import BAND_STYLE, DASHES, FAINT, MEAN, NORMAL_95, TRUTH

__all__ = ["draw_frequency_response", "draw_step"]


def draw_frequency_response(
    magnitude: Any,
    phase: Any,
    frequencies: ArrayLike,
    response: ArrayLike,
    errors: tuple[ArrayLike, ArrayLike],
    *,
    seen: tuple[float, float] | None = None,
) -> None:
    """Draw magnitude and phase over frequency, with bands; what the data do not show is shaded.

    Parameters
    ----------
    magnitude, phase : matplotlib.axes.Axes
    frequencies : array-like, shape (n,)
        In radians per unit of time, ascending.
    response : array-like of complex, shape (n,)
    errors : (array-like, array-like)
        Standard errors of the logarithm of the magnitude, and of the phase in radians.
    seen : (low, high), optional
        The frequencies that measurements show.

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
        axis.plot(omega, curve, color=MEAN, linewidth=1.4, zorder=3, label="learned")
        axis.set_xscale("log")
        axis.set_xlim(omega[0], omega[-1])
        shade_outside(axis, omega, seen, "not in the data")
    magnitude.set_yscale("log")
    # What hardly changes is not to fill the panel: it would look as if it did.
    if size.max() < 8.0 * size.min():
        magnitude.set_ylim(size.min() / 3.0, 3.0 * size.max())
    low, high = float(angle.min()), float(angle.max())
    phase.set_yticks(_right_angles(low, high))
    phase.set_ylim(low - 15.0, high + 15.0)


def _right_angles(low: float, high: float) -> list[float]:
    """Return multiples of 45 degrees, or of more where there would be many, from below `low` to above `high`."""
    step = next((each for each in (45.0, 90.0, 180.0, 360.0) if (high - low) / each <= 5), 720.0)
    return list(np.arange(np.floor(low / step), np.ceil(high / step) + 1) * step)


def draw_step(
    ax: Any, t: ArrayLike, response: ArrayLike, errors: ArrayLike, *, gain: float | None = None, label: str = ""
) -> None:
    """Draw the response to a unit step at zero, with its band and where it leads to.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    t, response, errors : array-like, shape (n,)
        Times in ascending order, the response, and its standard errors.
    gain : float, optional
        The static gain.
    label : str
        Of the vertical axis.

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
    ax.plot(times, values, color=MEAN, linewidth=1.4, zorder=3, label="learned")
    ax.axhline(0.0, color=FAINT, linewidth=0.8, zorder=0)
    if gain is not None:
        ax.axhline(gain, color=TRUTH, linewidth=1.2, linestyle=DASHES, zorder=2, label="static gain")
    ax.margins(x=0)
    if label:
        ax.set_ylabel(label)
