"""Estimates of parameters with standard errors and intervals, and a note where the data say nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from lodekit.learning.curvature import covariance_from_curvature
from lodekit.learning.transforms import Layout, Transform
from lodekit.rounding import format_number, format_uncertain

__all__ = ["AT_BOUND", "NORMAL_95", "NOT_IDENTIFIED", "Estimate", "estimate_parameters", "find_quantile", "find_reach"]

Array = NDArray[np.float64]
#: A 95 % interval reaches this many standard deviations to either side.
NORMAL_95 = 1.959963984540054
#: What is said of a parameter that the data do not determine, and of one that would go farther.
NOT_IDENTIFIED, AT_BOUND = "not identified by these data", "at its bound"
#: A standard error beyond this on the unconstrained scale means that the data say nothing about the parameter; so does
#: one of so many times the size of a parameter that may be anything.
_FLAT, _FLAT_UNBOUNDED = 3.0, 10.0
#: A parameter this close to one of two bounds, as a share of their distance, sits there.
_AT_BOUND = 1e-3
#: With more degrees of freedom than this, Student's distribution is normal.
_MANY = 1e6
#: Fewer say no more than that the standard error is hardly known.
_FEWEST = 3.0


@dataclass(frozen=True)
class Estimate:
    """A parameter of the system as the data tell it, in the user's units.

    Parameters
    ----------
    value : float
        The estimate, or the fixed value.
    std_error : float
        From the curvature at the optimum; zero for a fixed parameter, infinite where the data do not identify it.
    interval : (float, float)
        95 %; positive parameters have positive intervals, bounded ones stay inside their bounds.
    identified : bool
        Whether the data determine it; also true for a fixed parameter.
    note : str
        Why there is no interval, such as "fixed" or "at its bound"; empty otherwise.

    Examples
    --------
    >>> found = Estimate(2.97161234567, 0.0421234567, (2.88911234567, 3.05411234567))
    >>> found
    Estimate(value=2.972, std_error=0.042, interval=(2.889, 3.054))
    >>> print(found)
    2.972 ± 0.042 (95 % interval: 2.889 to 3.054)
    >>> found.value
    2.97161234567
    """

    value: float
    std_error: float
    interval: tuple[float, float]
    identified: bool = True
    note: str = ""

    @property
    def has_interval(self) -> bool:
        """Whether there is an interval that data have told: not where it is fixed, at its bound, or not identified."""
        return self.identified and self.std_error > 0.0 and math.isfinite(self.std_error)

    def __repr__(self) -> str:
        # Digits beyond the error say nothing; `value` has them all.
        low, high = (format_number(edge, self.std_error) for edge in self.interval)
        shown = f"value={format_number(self.value, self.std_error)}, std_error={self.std_error:.2g}"
        more = f", note={self.note!r}" if self.note else ""
        return f"Estimate({shown}, interval=({low}, {high}){more})"

    def __str__(self) -> str:
        if not self.has_interval:
            return f"{self.value:.5g}" + (f" ({self.note})" if self.note else "")
        low, high = (format_number(edge, self.std_error) for edge in self.interval)
        return f"{format_uncertain(self.value, self.std_error)} (95 % interval: {low} to {high})"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON; what is infinite is None."""

        def finite(value: float) -> float | None:
            return value if math.isfinite(value) else None

        return {
            "value": self.value,
            "std_error": finite(self.std_error),
            "interval": [finite(edge) for edge in self.interval],
            "identified": self.identified,
            "note": self.note,
        }


def estimate_parameters(
    layout: Layout,
    x: Array,
    curvature: Array,
    at_bound: NDArray[np.bool_],
    points: int | None = None,
    freedom: Array | None = None,
    widening: Array | None = None,
    share: float = 0.95,
) -> dict[str, Estimate]:
    """Return the parameters of the system by name, with standard errors and intervals.

    Parameters
    ----------
    layout : Layout
    x : array, shape (n,)
        The optimum, a vector of the layout.
    curvature : array, shape (n, n)
        Minus the Hessian of the objective there.
    at_bound : array of bool, shape (n,)
        What sits at a limit of the search.
    points : int, optional
        How many measurements there are at different times. Fewer than what is learned determine nothing: something
        fits them exactly, and its curvature says nothing of the rest. None stands for enough.
    freedom : array, shape (p,), optional
        Degrees of freedom of the standard errors of learned parameters; None stands for so many that they do not count.
    widening : array, shape (p,), optional
        Factors of the standard errors of learned parameters, for residuals that are correlated: so many fewer are the
        measurements that count, and the degrees of freedom with them.
    share : float
        How often intervals should hold the truth.
    """
    enough = points is None or points >= layout.size
    covariance = covariance_from_curvature(curvature, ~at_bound)
    theta = layout.unpack(x).theta
    found = {}
    for number, name in enumerate(layout.names):
        value = float(theta[number])
        if number not in layout.transforms:
            found[name] = Estimate(value, 0.0, (value, value), note="fixed")
            continue
        position, transform = layout.learned.index(number), layout.transforms[number]
        width = transform.high - transform.low
        close = math.isfinite(width) and min(value - transform.low, transform.high - value) < _AT_BOUND * width
        if at_bound[position] or close:
            found[name] = Estimate(value, math.inf, (transform.low, transform.high), False, AT_BOUND)
            continue
        point, wider = float(x[position]), 1.0 if widening is None else float(widening[position])
        plain = math.sqrt(max(float(covariance[position, position]), 0.0))
        spread = wider * plain
        error = abs(transform.slope(point)) * spread
        # What may be anything is judged in its own unit: near zero the scale of the search is arbitrarily fine.
        size = max(abs(value), transform.size)
        flat = error > _FLAT_UNBOUNDED * size if transform.is_unbounded else spread > _FLAT
        if not math.isfinite(error) or spread == 0.0 or flat or not enough:
            found[name] = Estimate(value, math.inf, (transform.low, transform.high), False, NOT_IDENTIFIED)
            continue
        reach = plain * find_reach(share, math.inf if freedom is None else float(freedom[position]), wider)
        found[name] = Estimate(value, error, _interval(transform, point, reach))
    return found


def _interval(transform: Transform, point: float, reach: float) -> tuple[float, float]:
    """Return an interval that reaches so far on the scale of the search, or linearly where there are no limits."""
    if not transform.is_unbounded:
        low, high = sorted((transform.forward(point - reach), transform.forward(point + reach)))
        return low, high
    # The scale of the search is only a means there: it knows zero, which the data need not know.
    linear = abs(transform.slope(point)) * reach
    return transform.forward(point) - linear, transform.forward(point) + linear


def find_quantile(share: float, freedom: float = math.inf) -> float:
    """Return how many standard errors an interval reaches to either side.

    Parameters
    ----------
    share : float
        How often it should hold the truth.
    freedom : float
        Degrees of freedom of the standard error.

    Examples
    --------
    >>> round(find_quantile(0.95), 3), round(find_quantile(0.95, 10.0), 3)
    (1.96, 2.228)
    """
    return float(stdtrit(freedom, 0.5 + 0.5 * share)) if freedom < _MANY else float(ndtri(0.5 + 0.5 * share))


def find_reach(share: float, freedom: float, widening: float = 1.0) -> float:
    """Return how many standard errors an interval reaches to either side where residuals are correlated.

    Parameters
    ----------
    share : float
        How often it should hold the truth.
    freedom : float
        Degrees of freedom of the standard error, if residuals were independent.
    widening : float
        By what factor it is larger: so many fewer are the measurements that count, and the degrees of freedom with
        them.

    Examples
    --------
    >>> round(find_reach(0.95, 40.0), 3), round(find_reach(0.95, 40.0, 2.0), 3)
    (2.021, 4.456)
    """
    return float(widening) * find_quantile(share, max(float(freedom) / widening**2, _FEWEST))
