"""Values that lie far from the curve, all alone: a slip of a sensor or of a table, which normal noise does not know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["find_outliers", "warn_of_outliers"]

Array = NDArray[np.float64]
#: From so many deviations of the others on, and so many times as far as all others, a value is no example of noise.
#: The second keeps still where tails are heavy, or where curves miss a whole stretch: there sizes have no such gap.
_FAR, _GAP = 8.0, 2.5
#: Of fewer residuals than this no scale is known; no more than this share of them can be exceptions.
_FEW, _SHARE = 12, 0.1
#: The share of residuals that tells the scale of the others, and where it ends for normal noise, in deviations.
_MOST, _MOST_AT = 0.8, 1.2816
#: The median of the sizes of normal noise, in deviations.
_MEDIAN_AT = 0.6745
#: What is off by less than this share of the spread of the others is too small to matter, as rounding is.
_MATTERS = 1e-3
#: So many are named.
_NAMED = 3


def find_outliers(times: Array, values: Array, residuals: Array, noise: Array) -> tuple[tuple[float, float], ...]:
    """Return times and distances of values that lie far from the curve all alone, the farthest first.

    Distances are in deviations of the others, which come from the median and the 80 % quantile of the sizes: both
    hardly know a few exceptions, however far off, though the noise that was learned does.

    Parameters
    ----------
    times, values, residuals : arrays, shape (n,)
        When, what was measured, and what the curve leaves of it.
    noise : array, shape (n,)
        The standard deviation of the noise of each, above zero.

    Examples
    --------
    >>> import numpy as np
    >>> t, residuals = np.arange(40.0), 0.1 * np.cos(1.7 * np.arange(40.0) ** 2)
    >>> residuals[33] = 3.0
    >>> [(time, 20 < distance < 40) for time, distance in find_outliers(t, t, residuals, np.ones(40))]
    [(33.0, True)]
    """
    count = len(residuals)
    if count < _FEW:
        return ()
    sizes = np.abs(residuals / noise)
    scale = max(float(np.median(sizes)) / _MEDIAN_AT, float(np.quantile(sizes, _MOST)) / _MOST_AT)
    order = np.argsort(-sizes, kind="stable")
    ordered = sizes[order]
    last = max(int(_SHARE * count), 1)
    gaps = (ordered[:last] > _FAR * scale) & (ordered[:last] > _GAP * ordered[1 : last + 1])
    if not gaps.any() or not scale > 0:
        return ()
    found, others = np.split(order, [int(np.flatnonzero(gaps)[-1]) + 1])
    found = found[np.abs(residuals[found]) > _MATTERS * float(np.std(values[others]))]
    return tuple((float(times[place]), float(sizes[place] / scale)) for place in found)


def warn_of_outliers(found: Mapping[str, Sequence[tuple[float, float]]], time_unit: str = "") -> list[str]:
    """Return which values are meant, how far off they are, and what to do, in a sentence for each observable.

    Parameters
    ----------
    found : dict of str to sequence of (float, float)
        Of each observable: times and distances, the farthest first.
    time_unit : str
        Of the time.

    Examples
    --------
    >>> print(*warn_of_outliers({"x": [], "y": [(3.2, 61.3)]}, "s"))
    y at t = 3.2 s lies 61 deviations of the others from the curve, which normal noise does not do: leave it out (NaN) \
where it is a slip, or give it a larger noise_std
    """
    return [_sentence(title, outliers, time_unit) for title, outliers in found.items() if outliers]


def _sentence(title: str, outliers: Sequence[tuple[float, float]], time_unit: str) -> str:
    named = sorted(time for time, _ in outliers[:_NAMED])
    places = f"{', '.join(f'{time:.6g}' for time in named)} {time_unit}".rstrip()
    more = f" and {len(outliers) - _NAMED} more times" if len(outliers) > _NAMED else ""
    them, slips = ("them", "they are slips") if len(outliers) > 1 else ("it", "it is a slip")
    ends = (float(f"{each:.2g}") for each in (outliers[-1][1], outliers[0][1]))
    how_far = " to ".join(dict.fromkeys(f"{each:g}" for each in ends))
    return (
        f"{title} at t = {places}{more} lies {how_far} deviations of the others from the curve, which normal noise "
        f"does not do: leave {them} out (NaN) where {slips}, or give {them} a larger noise_std"
    )
