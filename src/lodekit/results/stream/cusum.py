"""CUSUM alarms at a stated false-alarm rate.

With independent standard normal scores z, ``S = max(0, S + z - k)`` crosses a threshold h after ``L`` rows on average,
where ``L(s) = 1 + L(0) Phi(k - s) + int_0^h L(x) phi(x + k - s) dx`` for the start s (Page 1954); the integral equation
is solved by Gauss-Legendre quadrature. Two sums, one per direction, give twice as many alarms.

Errors of the estimates make the variance of sums of scores larger or smaller, and the alarm rate is convex in it: 10 %
more variance causes 50 % more alarms. So the threshold is chosen such that the rate is correct on average over the
posterior of the parameters. A sum crosses h within about h/k scores; the change of the variance of sums of that length
is estimated on the fitted record, with filters one standard deviation from the estimate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from weakref import WeakKeyDictionary

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from lodekit.data.observations import TimeSeries
from lodekit.errors import LodekitError
from lodekit.inference.innovations import InnovationSequence
from lodekit.inference.kalman.blocks import KalmanData
from lodekit.inference.kalman.engine import KalmanEngine
from lodekit.results.fit import Fit
from lodekit.support.arguments import Array

HIGH, LOW = "high", "low"


def check_alarm_options(false_alarms: object, shift: object) -> None:
    """Raise if the false-alarm rate or the shift is invalid."""
    bounds = {"false_alarms": (false_alarms, 1e-9, 0.1), "shift": (shift, 0.1, 6.0)}
    for name, (value, low, high) in bounds.items():
        if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not low <= value <= high:
            raise LodekitError(f"expected {name} as a number between {low:g} and {high:g}, got {value!r}")


@lru_cache(maxsize=1)
def _gauss_legendre_rule() -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(96)


def average_run_length(threshold: float, reference: float) -> float:
    """Return the mean number of standard normal scores until a sum in one direction crosses a threshold.

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
    """Return the threshold of two-sided sums with a given false-alarm rate."""

    def excess(threshold: float) -> float:
        return math.log(0.5 * average_run_length(threshold, reference) * rate)

    high = 1.0
    while excess(high) < 0:
        high *= 2.0
    return float(brentq(excess, 0.0, high, xtol=1e-10)) if excess(0.0) < 0 else 0.0


def averaged_cusum_threshold(rate: float, reference: float, log_variances: Array) -> float:
    """Return the threshold with a given mean false-alarm rate if the variances of scores differ from one.

    Examples
    --------
    >>> sure, unsure = cusum_threshold(1e-3, 0.5), averaged_cusum_threshold(1e-3, 0.5, np.array([-0.1, 0.1]))
    >>> round(sure, 2), round(unsure, 2)
    (5.76, 5.87)
    """
    nominal = cusum_threshold(rate, reference)
    if not log_variances.size:
        return nominal
    low, high = float(log_variances.min()), max(float(log_variances.max()), float(log_variances.min()) + 1e-6)
    middle, half = 0.5 * (high + low), 0.5 * (high - low)
    # Rates are interpolated by a polynomial in the logarithm of the variance.
    nodes = np.polynomial.chebyshev.chebpts1(7)
    scales = np.exp(0.5 * (middle + half * nodes))

    def excess(threshold: float) -> float:
        log_run_lengths = [math.log(average_run_length(threshold / scale, reference / scale)) for scale in scales]
        series = np.polynomial.chebyshev.chebfit(nodes, log_run_lengths, len(nodes) - 1)
        rates = np.exp(-np.polynomial.chebyshev.chebval((log_variances - middle) / half, series))
        return math.log(2.0 * float(rates.mean()) / rate)

    below, above = nominal, nominal
    while excess(above) > 0:
        above += 0.5
    while below > 0 and excess(below) < 0:
        below = max(0.0, below - 0.5)
    return float(brentq(excess, below, above, xtol=1e-4)) if below < above else nominal


def update_cusum(
    cusum: tuple[float, float], score: float, reference: float, threshold: float
) -> tuple[float, float, str]:
    """Return both sums after one more score, and which one has crossed the threshold and restarts."""
    high, low = max(0.0, cusum[0] + score - reference), max(0.0, cusum[1] - score - reference)
    if high > threshold:
        return 0.0, 0.0, HIGH
    if low > threshold:
        return 0.0, 0.0, LOW
    return high, low, ""


#: Largest number of rows, the last ones of the record, that are filtered again for calibration.
MAX_CALIBRATION_ROWS = 20_000
#: Log variances of fits by the length of sums.
_VARIANCE_CACHE: WeakKeyDictionary[Fit, dict[int, Array]] = WeakKeyDictionary()


def calibrate_threshold(fit: Fit, series: Sequence[TimeSeries], false_alarms: float, shift: float) -> float:
    """Return the CUSUM threshold with a given false-alarm rate, averaged over the uncertainty of the estimates."""
    # All observables share the rate.
    rate, reference = false_alarms / len(fit.prior.noise.observables), 0.5 * shift
    # The approximate number of scores over which a sum increases until it crosses its threshold by chance.
    length = max(1, round(0.75 * cusum_threshold(rate, reference) / reference))
    known = _VARIANCE_CACHE.setdefault(fit, {})
    if length not in known:
        is_measured = any(len(item.times) for item in series)
        known[length] = sample_log_variances(fit, series, length) if is_measured else np.zeros((0, 0))
    return averaged_cusum_threshold(rate, reference, known[length])


def sample_log_variances(fit: Fit, series: Sequence[TimeSeries], length: int) -> Array:
    """Return log variances of sums of scores, relative to that at the estimates, for draws of all estimates.

    Returns logs (draws, o).
    """
    count = len(fit.prior.noise.observables)
    roots = fit.parameter_uncertainty.covariance_root
    innovations_at = KalmanEngine(KalmanData.from_series(fit.prior, _last_rows(series))).compute_innovations

    def log_variances_at(x: Array) -> Array | None:
        try:
            innovations = innovations_at(fit.layout.unpack(x))
            return None if innovations is None else _window_log_variances(innovations, count, length)
        except (LodekitError, np.linalg.LinAlgError):
            # The filter may not be finite one standard deviation away: the direction is ignored then.
            return None

    with fit.setup.limit_threads(), np.errstate(all="ignore"):
        centre = log_variances_at(fit.optimum.x)
        if centre is None or not roots.shape[1]:
            return np.zeros((0, count))
        tilts, bends = [], []
        for root in roots.T:
            sides = [log_variances_at(fit.optimum.x + sign * root) for sign in (1.0, -1.0)]
            up, down = (np.zeros(count) if side is None else _clip_log_variances(side - centre) for side in sides)
            tilts.append(0.5 * (up - down))
            bends.append(0.5 * (up + down))
    drawn = np.random.default_rng(0).standard_normal((1024 // 2, len(tilts)))
    drawn = np.concatenate([drawn, -drawn])
    return _clip_log_variances(drawn @ np.array(tilts) + drawn**2 @ np.array(bends))


def _clip_log_variances(logs: Array) -> Array:
    # A threshold cannot correct for larger changes.
    return np.clip(np.where(np.isfinite(logs), logs, 0.0), -1.0, 1.0)


def _last_rows(series: Sequence[TimeSeries]) -> list[TimeSeries]:
    """Return the end of a record: all measurements from some time on."""
    longest = max((item.times for item in series), key=len)
    if len(longest) <= MAX_CALIBRATION_ROWS:
        return list(series)
    return [item.select(item.times >= longest[-MAX_CALIBRATION_ROWS]) for item in series]


def _window_log_variances(innovations: InnovationSequence, count: int, length: int) -> Array:
    """Return the logarithm of the variance of sums of scores of each observable; NaN if there are too few."""
    found = np.full(count, np.nan)
    for number in range(count):
        scores = innovations.standardized[innovations.observables == number]
        own = min(length, len(scores) // 8)
        if own:
            sums = np.cumsum(np.concatenate([[0.0], scores]))
            found[number] = np.log(np.mean((sums[own:] - sums[:-own]) ** 2) / own)
    return found
