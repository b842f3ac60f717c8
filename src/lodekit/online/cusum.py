"""Alarms at a stated rate: cumulative sums of standard scores, and the threshold that their run length asks for.

With independent standard normal scores z, ``S = max(0, S + z - k)`` crosses a threshold h after ``L`` rows on average,
where ``L(s) = 1 + L(0) Phi(k - s) + int_0^h L(x) phi(x + k - s) dx`` and s is where it begins. The integral equation is
solved on the nodes of a Gauss rule. A sum in each direction, begun again after each alarm, gives twice as many alarms.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr

from lodekit.errors import LodekitError

__all__ = ["HIGH", "LOW", "check_rate", "run_length", "span_of", "threshold_among", "threshold_for", "update"]

Array = NDArray[np.float64]

HIGH, LOW = "high", "low"
#: The rates and the shifts that make sense: rarer alarms than these can be had by not looking.
_RAREST, _MOST_OFTEN = 1e-9, 0.1
_SMALLEST, _LARGEST = 0.1, 6.0
#: Nodes of the Gauss rule: the kernel is a normal density, and thresholds stay below some tens.
_NODES = 96
#: The share of h/k scores in which a sum goes up to its threshold, where it does so by chance.
_CLIMB = 0.75
#: Variances at which rates are computed, for a polynomial through their logarithms.
_GRID = 7
#: How far a threshold is looked for at a time, and how closely: a thousandth of it is a thousandth of the rate.
_FURTHER, _CLOSE = 0.5, 1e-4


def check_rate(false_alarms: object, shift: object) -> None:
    """Raise where alarms cannot be had at such a rate, or for such a shift.

    Parameters
    ----------
    false_alarms, shift : object
        What the user gave.
    """
    bounds = {"false_alarms": (false_alarms, _RAREST, _MOST_OFTEN), "shift": (shift, _SMALLEST, _LARGEST)}
    for name, (value, low, high) in bounds.items():
        if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not low <= value <= high:
            raise LodekitError(f"expected {name} as a number between {low:g} and {high:g}, got {value!r}")


@lru_cache(maxsize=1)
def _rule() -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(_NODES)


def run_length(threshold: float, reference: float) -> float:
    """Return after how many standard normal scores a sum in one direction crosses a threshold, on average.

    Parameters
    ----------
    threshold : float
        h.
    reference : float
        k, what is taken off each score.

    Examples
    --------
    >>> round(run_length(4.0, 0.5))
    335
    """
    nodes, weights = _rule()
    x, w = 0.5 * threshold * (nodes + 1.0), 0.5 * threshold * weights
    begin = np.append(0.0, x)
    kernel = np.empty((len(begin), len(begin)))
    kernel[:, 0] = ndtr(reference - begin)
    kernel[:, 1:] = w * np.exp(-0.5 * (x + reference - begin[:, None]) ** 2) / math.sqrt(2.0 * math.pi)
    return float(np.linalg.solve(np.eye(len(begin)) - kernel, np.ones(len(begin)))[0])


@lru_cache(maxsize=64)
def threshold_for(rate: float, reference: float) -> float:
    """Return the threshold of sums in both directions that cross it at a rate, where nothing is wrong.

    Parameters
    ----------
    rate : float
        Alarms for each score.
    reference : float
        k.
    """

    def excess(threshold: float) -> float:
        return math.log(0.5 * run_length(threshold, reference) * rate)

    high = 1.0
    while excess(high) < 0:
        high *= 2.0
    return float(brentq(excess, 0.0, high, xtol=1e-10)) if excess(0.0) < 0 else 0.0


def span_of(threshold: float, reference: float) -> int:
    """Return about how many scores a sum has gone up for when it crosses a threshold by chance.

    Parameters
    ----------
    threshold, reference : float
        h and k.
    """
    return max(1, round(_CLIMB * threshold / reference))


def threshold_among(rate: float, reference: float, logs: Array) -> float:
    """Return the threshold that is crossed at a rate on average, where scores have other variances than one.

    Parameters
    ----------
    rate : float
        Alarms for each score.
    reference : float
        k.
    logs : array
        Logarithms of variances, each as likely as any other.

    Examples
    --------
    >>> sure, unsure = threshold_for(1e-3, 0.5), threshold_among(1e-3, 0.5, np.array([-0.1, 0.1]))
    >>> round(sure, 2), round(unsure, 2)
    (5.76, 5.87)
    """
    plain = threshold_for(rate, reference)
    if not logs.size:
        return plain
    low, high = float(logs.min()), max(float(logs.max()), float(logs.min()) + 1e-6)
    middle, half = 0.5 * (high + low), 0.5 * (high - low)
    some = np.polynomial.chebyshev.chebpts1(_GRID)
    scales = np.exp(0.5 * (middle + half * some))

    def excess(threshold: float) -> float:
        told = [math.log(run_length(threshold / scale, reference / scale)) for scale in scales]
        series = np.polynomial.chebyshev.chebfit(some, told, _GRID - 1)
        rates = np.exp(-np.polynomial.chebyshev.chebval((logs - middle) / half, series))
        return math.log(2.0 * float(rates.mean()) / rate)

    below, above = plain, plain
    while excess(above) > 0:
        above += _FURTHER
    while below > 0 and excess(below) < 0:
        below = max(0.0, below - _FURTHER)
    return float(brentq(excess, below, above, xtol=_CLOSE)) if below < above else plain


def update(sums: tuple[float, float], score: float, reference: float, threshold: float) -> tuple[float, float, str]:
    """Return both sums after one more score, and which one has crossed the threshold: it begins again then.

    Parameters
    ----------
    sums : (float, float)
        Of what is too high, and of what is too low.
    score : float
    reference, threshold : float
        k and h.
    """
    high, low = max(0.0, sums[0] + score - reference), max(0.0, sums[1] - score - reference)
    if high > threshold:
        return 0.0, 0.0, HIGH
    if low > threshold:
        return 0.0, 0.0, LOW
    return high, low, ""
