"""What a fit leaves of measurements: measurements minus mean in units of the noise, or innovations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lodekit.data.observations import Series
from lodekit.learning.diagnosis.outliers import find_outliers

__all__ = ["RUN", "RUNS", "Innovations", "Remainder", "find_remainder"]

Array = NDArray[np.float64]
#: Where there are more measurements, residuals are looked at in this many runs of neighbours, each of this length.
RUNS, RUN = 20, 1000


@dataclass(frozen=True, eq=False)
class Innovations:
    """What measurements of some observables add to those before them; runs of neighbours where there are many.

    Parameters
    ----------
    times, values : dict of str to array
        Of each observable: the times, ascending, and the innovations.
    left : dict of str to float
        Where disturbances are there: the mean square of measurements minus predictions, in the user's units.
    typical : dict of str to float
        The deviation of a prediction in the middle, in the user's units: the first ones know nothing.
    """

    times: Mapping[str, Array]
    values: Mapping[str, Array]
    left: Mapping[str, float] = field(default_factory=dict)
    typical: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Remainder:
    """What a fit leaves of the measurements of one observable, in the order of time.

    Parameters
    ----------
    times, values : arrays, shape (n,)
        In the user's unit, and in units of what is expected: of the noise, or of a prediction from the measurements
        before.
    innovations : bool
        Whether it is the latter.
    size : float
        The root mean square of measurements minus curve, in units of the noise.
    left : float
        The mean square of measurements minus curve, in the user's units.
    variance : float
        That of the measurements.
    missed : float
        Where disturbances are there: the mean square of measurements minus predictions from those before.
    outliers : tuple of (float, float)
        As in `Check`.
    """

    times: Array
    values: Array
    innovations: bool
    size: float
    left: float
    variance: float
    missed: float = math.nan
    outliers: tuple[tuple[float, float], ...] = ()


def find_remainder(
    item: Series, mean: Callable[[Array], Array], level: float, innovations: Innovations | None = None
) -> Remainder:
    """Return what a fit leaves of the measurements of one observable; in runs of neighbours where there are many.

    Parameters
    ----------
    item : Series
        The measurements.
    mean : function
        From times to the fitted curve there, in the user's units.
    level : float
        The standard deviation of noise that was learned.
    innovations : Innovations, optional
        Where free functions remain: the curve follows the measurements then, and what it leaves is smaller than the
        noise and correlated even where nothing is missing.
    """
    noise = item.noise_with(level)
    count = len(item.times)
    starts = np.linspace(0, max(count - RUN, 0), RUNS).astype(np.intp)
    rows = np.arange(count) if count <= RUNS * RUN else np.unique(starts[:, None] + np.arange(RUN))
    plain = item.values[rows] - mean(item.times[rows])
    usable = noise[rows] > 0
    scaled = plain[usable] / noise[rows][usable]
    size = math.sqrt(float(np.mean(scaled**2))) if len(scaled) else 0.0
    others = float(np.mean(plain**2)), float(np.var(item.values[rows]))
    times = item.times[rows][usable]
    far = find_outliers(times, item.values[rows][usable], plain[usable], noise[rows][usable])
    if innovations is not None:
        own = innovations.times[item.observable], innovations.values[item.observable]
        return Remainder(*own, True, size, *others, innovations.left.get(item.observable, math.nan), far)
    return Remainder(times, scaled, False, size, *others, outliers=far)
