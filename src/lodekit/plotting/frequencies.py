"""Exponents in the complex plane, and densities over frequency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lodekit.plotting.axes import literal, name_with_unit
from lodekit.plotting.style import FAINT, MEAN, SHADE, SMALL, TEXT

__all__ = ["draw_modes", "draw_spectrum"]


def draw_modes(ax: Any, roots: ArrayLike, counts: Sequence[int] | None = None, *, time_unit: str = "") -> None:
    """Draw exponents in the complex plane; those that decay lie in the shaded half.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    roots : array-like of complex, shape (n,)
        The exponents.
    counts : sequence of int, optional
        How often each counts.
    time_unit : str
        For the labels of the axes.

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
    ax.axvspan(-size, 0.0, facecolor=SHADE, edgecolor="none", zorder=0)
    for line in (ax.axhline, ax.axvline):
        line(0.0, color="0.6", linewidth=0.8, zorder=1)
    ax.plot(points.real, points.imag, "x", color=MEAN, markersize=8, markeredgewidth=1.8, zorder=3, clip_on=False)
    for root, count in zip(points.tolist(), counts or [1] * len(points), strict=True):
        if count > 1:
            place = {"xytext": (6, 6), "textcoords": "offset points"}
            ax.annotate(f"\u00d7{count}", (root.real, root.imag), fontsize=TEXT, color=MEAN, **place)
    for x, side, word in ((0.02, "left", "decaying"), (0.98, "right", "growing")):
        ax.text(x, 0.02, word, transform=ax.transAxes, ha=side, va="bottom", fontsize=SMALL, color=FAINT)
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
        What has the density, and the unit of the density.

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
    ax.plot(points[seen], heights[seen], color=MEAN, linewidth=1.4)
    ax.set(xscale="log", yscale="log")
    ax.yaxis.minorticks_off()
    ax.set_ylim(1e-8 * peak, 4.0 * peak)
    ax.set_ylabel(literal(f"density of {label}\n({unit})" if unit else f"density of {label}"))
