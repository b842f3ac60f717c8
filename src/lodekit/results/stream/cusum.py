"""Alarms at a stated rate: cumulative sums of standard scores, and the threshold that their run length asks for.

With independent standard normal scores z, ``S = max(0, S + z - k)`` crosses a threshold h after ``L`` rows on average,
where ``L(s) = 1 + L(0) Phi(k - s) + int_0^h L(x) phi(x + k - s) dx`` and s is where it begins. The integral equation is
solved on the nodes of a Gauss rule. A sum in each direction, begun again after each alarm, gives twice as many alarms.

What learning errs by, as alarms see it: how much larger sums of scores may be than those of the truth.

Where sums of scores vary more than they should, a threshold is crossed more often, and steeply so: a tenth more
variance makes half as many alarms again. Errors of what was learned do that, in both directions, and the mean of all is
above what the truth would give. So the threshold is one whose rate is right on average over all that data leave open.

A sum crosses a threshold h with the reference k within some h/k scores or less, so the variance of sums of that many
is what counts: scores of a filter that is slightly wrong have a memory. How it changes is read off the record itself,
taken in by filters one standard deviation beside the one that was learned: their scores are to this one's as those of
the stream are to the truth's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr

from lodekit.data.observations import TimeSeries
from lodekit.errors import LodekitError
from lodekit.inference.innovations import InnovationSequence, create_filter
from lodekit.results.fit import Fit

Array = NDArray[np.float64]

HIGH, LOW = "high", "low"
#: The rates and the shifts that make sense: rarer alarms than these can be had by not looking.
_MIN_ALARM_RATE, _MAX_ALARM_RATE = 1e-9, 0.1
_MIN_SHIFT, _MAX_SHIFT = 0.1, 6.0
#: Nodes of the Gauss rule: the kernel is a normal density, and thresholds stay below some tens.
_N_QUADRATURE_NODES = 96
#: The share of h/k scores in which a sum goes up to its threshold, where it does so by chance.
_EXCURSION_FRACTION = 0.75
#: Variances at which rates are computed, for a polynomial through their logarithms.
_N_CHEBYSHEV_NODES = 7
#: How far a threshold is looked for at a time, and how closely: a thousandth of it is a thousandth of the rate.
_BRACKET_STEP, _THRESHOLD_TOLERANCE = 0.5, 1e-4


def check_alarm_options(false_alarms: object, shift: object) -> None:
    """Raise where alarms cannot be had at such a rate, or for such a shift."""
    bounds = {
        "false_alarms": (false_alarms, _MIN_ALARM_RATE, _MAX_ALARM_RATE),
        "shift": (shift, _MIN_SHIFT, _MAX_SHIFT),
    }
    for name, (value, low, high) in bounds.items():
        if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not low <= value <= high:
            raise LodekitError(f"expected {name} as a number between {low:g} and {high:g}, got {value!r}")


@lru_cache(maxsize=1)
def _gauss_legendre_rule() -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(_N_QUADRATURE_NODES)


def average_run_length(threshold: float, reference: float) -> float:
    """Return after how many standard normal scores a sum in one direction crosses a threshold, on average.

    Examples
    --------
    >>> round(average_run_length(4.0, 0.5))
    335
    """
    nodes, weights = _gauss_legendre_rule()
    x, w = 0.5 * threshold * (nodes + 1.0), 0.5 * threshold * weights
    begin = np.append(0.0, x)
    kernel = np.empty((len(begin), len(begin)))
    kernel[:, 0] = ndtr(reference - begin)
    kernel[:, 1:] = w * np.exp(-0.5 * (x + reference - begin[:, None]) ** 2) / math.sqrt(2.0 * math.pi)
    return float(np.linalg.solve(np.eye(len(begin)) - kernel, np.ones(len(begin)))[0])


@lru_cache(maxsize=64)
def cusum_threshold(rate: float, reference: float) -> float:
    """Return the threshold of sums in both directions that cross it at a rate, where nothing is wrong."""

    def excess(threshold: float) -> float:
        return math.log(0.5 * average_run_length(threshold, reference) * rate)

    high = 1.0
    while excess(high) < 0:
        high *= 2.0
    return float(brentq(excess, 0.0, high, xtol=1e-10)) if excess(0.0) < 0 else 0.0


def excursion_length(threshold: float, reference: float) -> int:
    """Return about how many scores a sum has gone up for when it crosses a threshold by chance."""
    return max(1, round(_EXCURSION_FRACTION * threshold / reference))


def averaged_cusum_threshold(rate: float, reference: float, log_variances: Array) -> float:
    """Return the threshold that is crossed at a rate on average, where scores have other variances than one.

    Examples
    --------
    >>> sure, unsure = cusum_threshold(1e-3, 0.5), averaged_cusum_threshold(1e-3, 0.5, np.array([-0.1, 0.1]))
    >>> round(sure, 2), round(unsure, 2)
    (5.76, 5.87)
    """
    plain = cusum_threshold(rate, reference)
    if not log_variances.size:
        return plain
    low, high = float(log_variances.min()), max(float(log_variances.max()), float(log_variances.min()) + 1e-6)
    middle, half = 0.5 * (high + low), 0.5 * (high - low)
    some = np.polynomial.chebyshev.chebpts1(_N_CHEBYSHEV_NODES)
    scales = np.exp(0.5 * (middle + half * some))

    def excess(threshold: float) -> float:
        told = [math.log(average_run_length(threshold / scale, reference / scale)) for scale in scales]
        series = np.polynomial.chebyshev.chebfit(some, told, _N_CHEBYSHEV_NODES - 1)
        rates = np.exp(-np.polynomial.chebyshev.chebval((log_variances - middle) / half, series))
        return math.log(2.0 * float(rates.mean()) / rate)

    below, above = plain, plain
    while excess(above) > 0:
        above += _BRACKET_STEP
    while below > 0 and excess(below) < 0:
        below = max(0.0, below - _BRACKET_STEP)
    return float(brentq(excess, below, above, xtol=_THRESHOLD_TOLERANCE)) if below < above else plain


def update_cusum(
    cusum: tuple[float, float], score: float, reference: float, threshold: float
) -> tuple[float, float, str]:
    """Return both sums after one more score, and which one has crossed the threshold: it begins again then."""
    high, low = max(0.0, cusum[0] + score - reference), max(0.0, cusum[1] - score - reference)
    if high > threshold:
        return 0.0, 0.0, HIGH
    if low > threshold:
        return 0.0, 0.0, LOW
    return high, low, ""


#: Rows of the record, its last ones, that are taken in again.
MAX_CALIBRATION_ROWS = 20_000
#: Draws of what was learned.
_N_DRAWS = 1024
#: Sums shorter than this share of a record tell their variance.
_MIN_WINDOWS = 8
#: A logarithm of a variance is taken to be no further from zero: the data leave more open than a threshold can mend.
_MAX_LOG_VARIANCE = 1.0
_NO_VARIANCES = np.zeros((0, 0))
#: What was found about fits, by the length of sums.
_VARIANCE_CACHE: WeakKeyDictionary[Fit, dict[int, Array]] = WeakKeyDictionary()


def calibrate_threshold(fit: Fit, series: Sequence[TimeSeries], false_alarms: float, shift: float) -> float:
    """Return the threshold of cumulative sums that makes alarms at a rate, on average over what may have been learned."""
    # All observables share the rate.
    rate, reference = false_alarms / len(fit.prior.noise.observables), 0.5 * shift
    length = excursion_length(cusum_threshold(rate, reference), reference)
    known = _VARIANCE_CACHE.setdefault(fit, {})
    if length not in known:
        known[length] = (
            sample_log_variances(fit, series, length) if any(len(item.times) for item in series) else _NO_VARIANCES
        )
    return averaged_cusum_threshold(rate, reference, known[length])


def sample_log_variances(fit: Fit, series: Sequence[TimeSeries], length: int) -> Array:
    """Return logarithms of the variance of sums of scores, over what it should be, in draws of all that was learned.

    Returns logs (draws, o).
    """
    count = len(fit.prior.noise.observables)
    roots = fit.parameter_uncertainty.covariance_root
    innovations_at = create_filter(fit.prior, _last_rows(series))

    def look(x: Array) -> Array | None:
        try:
            turns = innovations_at(fit.layout.unpack(x))
            return None if turns is None else _window_log_variances(turns, count, length)
        except (LodekitError, np.linalg.LinAlgError):
            # One deviation away nothing may be finite: nothing is told of that direction then.
            return None

    with fit.setup.limit_threads(), np.errstate(all="ignore"):
        centre = look(fit.optimum.x)
        if centre is None or not roots.shape[1]:
            return np.zeros((0, count))
        tilts, bends = [], []
        for root in roots.T:
            sides = [look(fit.optimum.x + sign * root) for sign in (1.0, -1.0)]
            up, down = (np.zeros(count) if side is None else _clip_log_variances(side - centre) for side in sides)
            tilts.append(0.5 * (up - down))
            bends.append(0.5 * (up + down))
    drawn = np.random.default_rng(0).standard_normal((_N_DRAWS // 2, len(tilts)))
    drawn = np.concatenate([drawn, -drawn])
    return _clip_log_variances(drawn @ np.array(tilts) + drawn**2 @ np.array(bends))


def _clip_log_variances(logs: Array) -> Array:
    return np.clip(np.where(np.isfinite(logs), logs, 0.0), -_MAX_LOG_VARIANCE, _MAX_LOG_VARIANCE)


def _last_rows(series: Sequence[TimeSeries]) -> list[TimeSeries]:
    """Return the end of a record: all that was measured from some time on."""
    longest = max((item.times for item in series), key=len)
    if len(longest) <= MAX_CALIBRATION_ROWS:
        return list(series)
    return [item.select(item.times >= longest[-MAX_CALIBRATION_ROWS]) for item in series]


def _window_log_variances(innovations: InnovationSequence, count: int, length: int) -> Array:
    """Return the logarithm of the variance of sums of scores, for each observable; NaN where there are too few."""
    found = np.full(count, np.nan)
    for number in range(count):
        scores = innovations.standardized[innovations.observables == number]
        own = min(length, len(scores) // _MIN_WINDOWS)
        if own:
            sums = np.cumsum(np.concatenate([[0.0], scores]))
            found[number] = np.log(np.mean((sums[own:] - sums[:-own]) ** 2) / own)
    return found
