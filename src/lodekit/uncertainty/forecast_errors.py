"""Prediction bands that follow errors of time-varying variance: a GARCH(1,1) filter and empirical calibration.

The variance of innovations follows recent squares with a gain and returns to its mean with time (a GARCH(1,1) process,
Bollerslev 1986, for irregular times). It is fitted to the innovations by maximum likelihood, and used if the gain is
significant. As in conformal prediction, bands are then scaled until they cover the nominal fraction of the fitted
errors. These are smaller than future errors by the variance that the estimated parameters have absorbed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from lodekit.support.arguments import Array
from lodekit.uncertainty.estimates import NORMAL_QUANTILE_95

#: The nominal coverage of bands.
_COVERAGE = 0.95
#: Grid of gains, and of memory times in typical steps.
_GAIN_GRID = np.array([0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8])
_MEMORY_GRID = np.geomspace(1.0, 200.0, 12)
#: Smallest number of errors for estimating their variance over time.
_MIN_ERRORS = 50
#: Smallest number of errors for estimating a root mean square.
_MIN_FREE_RUN_ERRORS = 20
#: The model is fitted to the last rows of each record, at most this many.
_MAX_ROWS = 20_000
#: Smallest variance, as a fraction of the mean square.
_MIN_VARIANCE_RATIO = 0.05


def median_step(times: Array) -> float:
    """Return the median sampling interval."""
    return float(np.median(np.diff(times))) if len(times) > 1 else 1.0


@dataclass(frozen=True)
class GarchVariance:
    """A GARCH(1,1) model of the variance of innovations.

    gain: The weight of the last square; zero if the variance is constant.
    memory_time: The time in which a change decays to 1/e, in the user's time.
    mean_square: The mean square of all innovations.
    log_likelihood_gain: The gain in log likelihood over a constant variance, in nats.
    """

    gain: float = 0.0
    memory_time: float = 1.0
    mean_square: float = 1.0
    log_likelihood_gain: float = 0.0

    def filter_variance(self, times: Array, innovations: Array) -> Array:
        """Return the expected variance after each innovation, relative to the mean square, shape (n,).

        Shapes: times, innovations (n,).
        """
        if not self.gain:
            return np.ones(len(innovations))
        forgotten = np.exp(-np.diff(times, prepend=times[:1]) / self.memory_time)
        scaled = innovations / np.sqrt(self.mean_square)
        return _filter_variances(np.array([self.gain]), forgotten[:, None], scaled)[1][:, 0]


#: A model of constant variance.
CONSTANT_VARIANCE = GarchVariance()


@dataclass(frozen=True)
class ForecastErrorScale:
    """The size of prediction errors at a horizon, relative to the model.

    persistence: The fraction of the deviation of the variance from its mean that persists over the horizon.
    scale: The factor of the standard deviation, parameter uncertainty included; below one if bands become narrower.
    """

    persistence: float = 0.0
    scale: float = 1.0

    def forecast_std(self, variance_ratios: Array, variances: Array, parameter_variance: Array | float = 0.0) -> Array:
        """Return the standard deviations of future errors.

        Shapes: variance_ratios (n,), variances (n,), parameter_variance (n,).
        """
        expected = _expected_variance(self.persistence, variance_ratios)
        return np.asarray(self.scale * np.sqrt(expected * variances + parameter_variance))


#: Errors are as large as the model predicts.
NOMINAL_SCALE = ForecastErrorScale()


def _expected_variance(persistence: float, variance_ratios: Array) -> Array:
    """Return expected relative variances, given those at the time of prediction and their persistence."""
    return np.maximum(1.0 + persistence * (variance_ratios - 1.0), _MIN_VARIANCE_RATIO)


def _filter_variances(gains: Array, decay: Array, innovations: Array) -> tuple[Array, Array]:
    """Return relative variances before and after each innovation, (n, m), for m pairs of gain and memory."""
    size = np.ones(len(gains))
    before, after = np.empty((2, len(innovations), len(gains)))
    for row, square in enumerate((innovations**2).tolist()):
        size = 1.0 + decay[row] * (size - 1.0)
        before[row] = size
        size = size + gains * (square - size)
        after[row] = size
    return np.maximum(before, _MIN_VARIANCE_RATIO), after


def fit_garch(times: Sequence[Array], innovations: Sequence[Array]) -> GarchVariance:
    """Fit the GARCH variance model; constant variance if the gain is not significant.

    Shapes: times, innovations (n,).
    """
    kept = [(own, z) for own, z in zip(times, innovations, strict=True) if len(z)]
    if sum(len(z) for _, z in kept) < _MIN_ERRORS:
        return CONSTANT_VARIANCE
    step = float(np.median([median_step(own) for own, _ in kept]))
    level = float(np.mean(np.concatenate([z for _, z in kept]) ** 2))
    if not (step > 0.0 and 0.0 < level < np.inf):
        return CONSTANT_VARIANCE
    gains, memories = (each.ravel() for each in np.meshgrid(_GAIN_GRID, step * _MEMORY_GRID))
    total = np.zeros(len(gains))
    for own, z in kept:
        last, scaled = own[-_MAX_ROWS:], z[-_MAX_ROWS:] / np.sqrt(level)
        forgotten = np.exp(-np.diff(last, prepend=last[:1])[:, None] / memories)
        sizes, squares = _filter_variances(gains, forgotten, scaled)[0], scaled[:, None] ** 2
        total += 0.5 * np.sum(squares - squares / sizes - np.log(sizes), axis=0)
    best = int(np.argmax(total))
    # With constant variance, one in a hundred records gains seven nats.
    if not total[best] > 7.0:
        return CONSTANT_VARIANCE
    return GarchVariance(float(gains[best]), float(memories[best]), level, float(total[best]))


def calibrate_error_scale(
    errors: Sequence[Array],
    variance_ratios: Sequence[Array],
    parameter_variance: Sequence[Array] | None = None,
    horizon_rows: int = 1,
) -> ForecastErrorScale:
    """Calibrate the scale of prediction errors on fitted records.

    Shapes: errors (n,), variance_ratios (n,), parameter_variance (n,).
    """
    if parameter_variance is None:
        parameter_variance = [np.zeros(len(own)) for own in errors]
    parts = errors, variance_ratios, parameter_variance
    z, ratios, absorbed = (np.concatenate([np.zeros(0), *each]) for each in parts)
    finite = np.isfinite(z)
    if finite.sum() < _MIN_ERRORS:
        return NOMINAL_SCALE
    persistence = _estimate_persistence(z[finite], ratios[finite])
    expected = _expected_variance(persistence, ratios)
    # A larger reduction is an error of the linearisation.
    z = z / np.sqrt(np.maximum(expected - absorbed, (1.0 - 0.75) * expected))
    effective_size = effective_sample_size(np.split(z, np.cumsum([len(own) for own in errors])[:-1]), horizon_rows)
    return ForecastErrorScale(persistence, _estimate_scale(z[finite], effective_size))


def rolling_origin_scale(errors: Sequence[Array]) -> float:
    """Return the factor by which errors of free runs of one length are larger than expected, at least one.

    The quantile is that of Student's distribution with the effective number of independent errors.

    Shapes: errors (n,), standardised; NaN if unknown.
    """
    pooled = np.concatenate([np.zeros(0), *errors])
    pooled = pooled[np.isfinite(pooled)]
    if len(pooled) < _MIN_FREE_RUN_ERRORS:
        return 1.0
    effective_size = effective_sample_size(errors, max(len(own) for own in errors))
    return max(1.0, float(np.sqrt(np.mean(pooled**2)))) * _student_factor(effective_size)


def _student_factor(effective_size: float) -> float:
    """Return the 97.5 % quantile of Student's distribution divided by that of the normal distribution."""
    return float(stdtrit(max(effective_size, 4.0), 0.5 + 0.5 * _COVERAGE)) / NORMAL_QUANTILE_95


def _estimate_scale(errors: Array, effective_size: float) -> float:
    """Return the factor by which bands are too narrow, from errors equivalent to `effective_size` independent ones.

    As in conformal prediction, it is determined by an empirical quantile; bands do not become narrower than the
    standard deviation of the errors requires. The logarithm of the factor is shrunk towards zero according to the
    sampling variance of a quantile: by half if they are equal, hardly if it is much larger. Student's quantile accounts
    for the uncertainty of a standard deviation estimated from few errors.
    """
    sorted_ = np.sort(np.abs(errors))
    place = min(int(np.ceil((len(sorted_) + 1) * _COVERAGE)), len(sorted_)) - 1
    deviation = float(np.sqrt(np.mean(errors**2)))
    log_scale = np.log(max(float(sorted_[place]) / NORMAL_QUANTILE_95, min(1.0, deviation), 0.01))
    # The relative variance of the sample 95 % quantile is 0.905/n for normal errors.
    chance_variance = 0.905 / effective_size
    return float(np.exp(log_scale * log_scale**2 / (log_scale**2 + chance_variance))) * _student_factor(effective_size)


def _estimate_persistence(errors: Array, variance_ratios: Array) -> float:
    """Return the maximum-likelihood persistence of changes of the variance."""
    if not (variance_ratios != 1.0).any():
        return 0.0
    shares = np.linspace(0.0, 1.0, 21)
    level = float(np.mean(errors**2))
    expected = (_expected_variance(share, variance_ratios) for share in shares.tolist())
    heights = [-np.sum(np.log(each) + errors**2 / (level * each)) for each in expected]
    return float(shares[int(np.argmax(heights))])


def effective_sample_size(errors: Sequence[Array], horizon_rows: int) -> float:
    """Return the number of independent errors with the same information about the coverage of a band.

    With a correct model, errors are correlated over fewer rows than the horizon; if normal numbers have a correlation,
    the events of being inside a band have a correlation of about its square.
    """
    products, count = np.zeros(horizon_rows), 0
    for own in errors:
        count += int(np.isfinite(own).sum())
        filled = np.where(np.isfinite(own), own, 0.0)
        lags = min(horizon_rows, len(own))
        # Zero padding prevents circular correlation.
        power = np.abs(np.fft.rfft(filled, len(own) + lags)) ** 2
        products[:lags] += np.fft.irfft(power, len(own) + lags)[:lags]
    if not products[0] > 0.0:
        return float(count)
    return count / (1.0 + 2.0 * float(np.sum((products[1:] / products[0]) ** 2)))
