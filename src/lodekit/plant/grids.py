"""Times and frequencies at which responses of a fitted plant are worth looking at."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lodekit.fitted import Fit
from lodekit.plant.space import FittedStateSpace

__all__ = ["find_band", "frequency_grid", "step_grid"]

Array = NDArray[np.float64]
#: So many points has a curve.
_POINTS = 240


def find_band(fit: Fit) -> tuple[float, float]:
    """Return the frequencies between which measurements show something, in radians per unit of time.

    Periods are no longer than the record, and no shorter than two steps of it.
    """
    first, last = fit.measurements.window
    steps = np.concatenate([np.diff(part.measurements.times()) for part in fit.parts])
    step = float(np.median(steps)) if len(steps) else 1.0
    return 2.0 * np.pi / max(last - first, 1e-300), np.pi / step


def frequency_grid(fit: Fit, space: FittedStateSpace) -> Array:
    """Return frequencies around the poles, in radians per unit of time.

    Parameters
    ----------
    fit : Fit
        Whose band is taken where there are no poles.
    space : FittedStateSpace
    """
    sizes = [abs(pole.value) for pole in space.poles if abs(pole.value) > 0] or list(find_band(fit))
    return np.geomspace(0.03 * min(sizes), 30.0 * max(sizes), _POINTS)


def step_grid(fit: Fit, space: FittedStateSpace) -> Array:
    """Return times after a step: six of the slowest time constants, or the length of the record.

    Parameters
    ----------
    fit : Fit
    space : FittedStateSpace
    """
    first, last = fit.measurements.window
    rates = [-complex(pole.value).real for pole in space.poles]
    slow = [1.0 / rate for rate in rates if rate > 0]
    long = 6.0 * max(slow) if slow and min(rates) > 0 else last - first
    return np.linspace(0.0, long + 1.2 * float(space.delays.max(initial=0.0)), _POINTS)
