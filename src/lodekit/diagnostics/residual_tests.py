"""Residual tests: Ljung-Box test, cumulative periodogram (Bartlett), correlation with inputs, and outliers.

Residuals are ordered by time. The order of independent residuals carries no information, so all tests are valid for
irregular times as well; the autocorrelation at a lag uses pairs that are not much farther apart than that many typical
steps, and leaves out pairs across gaps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy.special import chdtrc, chdtri, chndtr, kolmogorov, ndtr

from lodekit.data.inputs import InputSignal
from lodekit.data.observations import TimeSeries
from lodekit.data.records import Measurements, ObservableStatistics, with_empty_series
from lodekit.fitting.lbfgs import Optimum
from lodekit.fitting.parameter_vector import ParameterLayout
from lodekit.fitting.setup import FitSetup
from lodekit.inference.engine import Posterior
from lodekit.inference.innovations import (
    BatchedPosterior,
    InnovationSequence,
    create_filter,
    split_into_segments,
    uses_kalman_filter,
)
from lodekit.prior.disturbances import WHITE_NOISE
from lodekit.prior.observables import ObservableCompiler
from lodekit.prior.prior import Hyperparameters, Prior
from lodekit.support.arguments import Array
from lodekit.uncertainty.forecast_errors import median_step

#: The smallest number of residuals for a test.
MIN_RESIDUALS = 10
#: Significance level: the fraction of correct models whose residuals are reported as correlated.
SIGNIFICANCE_LEVEL = 0.05
#: Smaller correlations do not matter, even if they are significant.
MIN_CORRELATION = 0.1
#: A test that detects `_REFERENCE_CORRELATION` of neighbours with less than this power cannot confirm independence. The
#: power is that of large samples; in simulations with 20 to 30 residuals it is about 0.75 if this is 0.9.
_MIN_POWER, _REFERENCE_CORRELATION = 0.9, 0.7
#: What tests of residuals may find, beginning with the most important result.
VERDICTS = ("correlated", "below noise", "too few to test", "independent", "not tested")
#: Pairs farther apart than this many times their typical distance are left out.
_MAX_GAP_STEPS = 1.5


@dataclass(frozen=True)
class InputCorrelation:
    """The correlation of residuals with a known input.

    correlation: The strongest correlation, with the delayed input.
    delay: The delay, in the user's time.
    p_value: Probability of a correlation as strong at some delay if residuals are independent.
    restless: Whether the input has a zero-order hold and changes at nearly every sample, as a sampled curve does.
    """

    correlation: float
    delay: float
    p_value: float
    restless: bool = False


@dataclass(frozen=True)
class WhitenessTest:
    """Results of whiteness tests of residuals.

    innovations: Whether the residuals are innovations, each measurement minus its prediction from previous ones, as
        needed with free functions; otherwise measurements minus the fitted curve.
    step: The typical sampling interval, in the user's time.
    lags: Autocorrelations at the lags 1, 2, and so on.
    ljung_box, p_value: The Ljung-Box statistic over these lags, and its p-value.
    excursion, band: The largest deviation of the cumulative periodogram from a straight line, positive if low
        frequencies have too much power; and the half-width of its 95 % band for white noise.
    periodogram_p_value: The p-value of this deviation.
    period: The period at this deviation, in the user's time: the missing dynamics are slower, or faster if the
        deviation is negative.
    links: Correlations with known inputs, by name.
    level: The significance level below which residuals are called correlated.
    is_conclusive: Whether there are enough pairs of residuals to detect a correlation; see `can_detect_correlation`.
    """

    innovations: bool
    step: float
    lags: tuple[float, ...]
    ljung_box: float
    p_value: float
    excursion: float
    band: float
    periodogram_p_value: float
    period: float
    links: Mapping[str, InputCorrelation] = field(default_factory=dict)
    level: float = SIGNIFICANCE_LEVEL
    is_conclusive: bool = True

    @property
    def is_correlated(self) -> bool:
        """Whether the autocorrelation of residuals is significant, by either test, and large enough to matter."""
        return self.combined_p_value < self.level and max(map(abs, self.lags), default=0.0) > MIN_CORRELATION

    @property
    def combined_p_value(self) -> float:
        """The p-value of both tests together (Bonferroni correction)."""
        return min(1.0, 2.0 * min(self.p_value, self.periodogram_p_value))

    @property
    def correlated_inputs(self) -> list[str]:
        """The inputs with a significant correlation with residuals that is large enough to matter."""
        level = self.level / max(len(self.links), 1)
        strong = {name: link for name, link in self.links.items() if abs(link.correlation) > MIN_CORRELATION}
        return [name for name, link in strong.items() if link.p_value < level]

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Invert ``dataclasses.asdict``; None represents NaN."""
        links = {name: InputCorrelation(**none_to_nan(link)) for name, link in state["links"].items()}
        return cls(**none_to_nan(state) | {"lags": tuple(state["lags"]), "links": links})


def none_to_nan(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dict with NaN in place of None, which represents it in JSON."""
    return {key: math.nan if value is None else value for key, value in state.items()}


def autocorrelation_at_lags(times: Array, values: Array, max_lag: int) -> tuple[Array, Array]:
    """Return the autocorrelation at the lags 1 to `max_lag`, and the number of pairs at each.

    Shapes: times, values (n,).
    """
    step = median_step(times)
    found, pairs = np.zeros(max_lag), np.zeros(max_lag)
    for lag in range(1, max_lag + 1):
        near = times[lag:] - times[:-lag] <= _MAX_GAP_STEPS * lag * step
        pairs[lag - 1] = near.sum()
        late, early = values[lag:][near], values[:-lag][near]
        size = float(np.linalg.norm(late) * np.linalg.norm(early))
        if size > 0:
            found[lag - 1] = float(late @ early) / size
    return found, pairs


def cumulative_periodogram(values: Array) -> tuple[Array, Array]:
    """Return frequencies in cycles per residual, below one half, and the fraction of the power up to each.

    Shapes: values (n,).
    """
    power = np.abs(np.fft.rfft(values)[1 : (len(values) - 1) // 2 + 1]) ** 2
    total = float(power.sum())
    share = np.cumsum(power) / total if total > 0 else np.linspace(0.0, 1.0, len(power) + 1)[1:]
    return np.arange(1, len(power) + 1) / len(values), share


def cumulative_periodogram_band(count: int) -> float:
    """Return the half-width of the 95 % band of the cumulative periodogram of white noise."""
    # The 95 % quantile of the Kolmogorov distribution.
    return 1.3580986393225505 / _stephens_factor(count)


def _stephens_factor(count: int) -> float:
    """Return Stephens' factor, by which an excursion is multiplied to follow the Kolmogorov distribution."""
    # The fractions except the last are distributed like ordered uniform numbers.
    root = math.sqrt(max(count - 1, 1))
    return root + 0.12 + 0.11 / root


def ljung_box_test(
    times: Array,
    values: Array,
    *,
    innovations: bool = False,
    inputs: Mapping[str, InputSignal] | None = None,
    significance: float = SIGNIFICANCE_LEVEL,
) -> WhitenessTest | None:
    """Test residuals for whiteness; None if there are too few of them.

    Shapes: times, values (n,).
    """
    size = len(values)
    if size < MIN_RESIDUALS or not np.any(values):
        return None
    lags, pairs = autocorrelation_at_lags(times, values, _n_lags(size))
    # With all pairs this is the Ljung-Box statistic, in which correlations are divided by n and not by the pairs.
    statistic = float((size + 2) / size * np.sum(pairs * lags**2))
    used, step = int(np.sum(pairs > 0)), median_step(times)
    frequencies, share = cumulative_periodogram(values)
    away = (share - np.arange(1, len(share) + 1) / len(share))[:-1] if len(share) > 1 else np.zeros(1)
    place = int(np.argmax(np.abs(away)))
    excursion = float(away[place])
    signals = (inputs or {}).items() if step > 0 else ()
    links = {name: _correlate_with_input(times, values, signal, step, lags) for name, signal in signals}
    return WhitenessTest(
        innovations=innovations,
        step=step,
        lags=tuple(lags.tolist()),
        ljung_box=statistic,
        p_value=float(chdtrc(used, statistic)) if used else 1.0,
        excursion=excursion,
        band=cumulative_periodogram_band(len(share)),
        periodogram_p_value=float(kolmogorov(abs(excursion) * _stephens_factor(len(share)))),
        period=step / float(frequencies[place]),
        links={name: link for name, link in links.items() if link is not None},
        level=significance,
        is_conclusive=can_detect_correlation(times, significance),
    )


def _n_lags(count: int) -> int:
    return max(1, min(10, count // 5))


def can_detect_correlation(times: Array, significance: float = SIGNIFICANCE_LEVEL) -> bool:
    """Return whether residuals at these times are enough to detect a first-order autoregression.

    Under an autoregression with coefficient r, the Ljung-Box statistic is noncentral chi-squared, with the sum of
    m_k r^(2k) over all lags k as its noncentrality, for m_k pairs at lag k.
    """
    size = len(times)
    if size < MIN_RESIDUALS:
        return False
    _, pairs = autocorrelation_at_lags(times, times, _n_lags(size))
    strength = float(pairs @ _REFERENCE_CORRELATION ** (2.0 * np.arange(1, len(pairs) + 1))) * (size + 2) / size
    used = int(np.sum(pairs > 0))
    # Half of the level is that of the periodogram. A power of one needs no more than a strength of 200.
    return used > 0 and float(chndtr(chdtri(used, 0.5 * significance), used, min(strength, 200.0))) <= 1.0 - _MIN_POWER


def _correlate_with_input(
    times: Array, values: Array, signal: InputSignal, step: float, autocorrelation: Array
) -> InputCorrelation | None:
    """Return the strongest correlation with an input over delays of a few steps; None if there is none."""
    best, delay, count, now = 0.0, 0.0, len(autocorrelation) + 1, signal.at(times)
    for k in range(count):
        # The centred values of a constant input are rounding errors.
        limit = 1e-12 * len(values) * float(np.abs(now).max() or 1.0)
        # Just after the sample: rounding errors, and so the unit of time, must not affect the value of a held input.
        correlation = correlate(values, signal.at(times - (k - 1e-6) * step), limit)
        if abs(correlation) > abs(best):
            best, delay = correlation, k * step
    if not best:
        return None
    memory, _ = autocorrelation_at_lags(times, now - now.mean(), len(autocorrelation))
    chance = 2.0 * float(ndtr(-abs(best) / chance_correlation(autocorrelation, memory, len(values))))
    return InputCorrelation(best, delay, min(1.0, count * chance), _changes_every_sample(signal, times, step))


def correlate(first: Array, second: Array, limit: float = 0.0) -> float:
    """Return the correlation of two series; zero if the product of their norms is at most a limit."""
    first, second = first - first.mean(), second - second.mean()
    size = float(np.linalg.norm(second) * np.linalg.norm(first))
    return float(first @ second) / size if size > limit else 0.0


def chance_correlation(first: Array, second: Array, count: int) -> float:
    """Return the standard deviation of the correlation of independent series with these autocorrelations.

    Slow series are correlated by chance (Bartlett's formula).
    """
    return math.sqrt(max(1.0, 1.0 + 2.0 * float(first @ second)) / count)


def _changes_every_sample(signal: InputSignal, times: Array, step: float) -> bool:
    """Return whether an input is held and changes at nearly every sample, about as often as residuals are sampled."""
    own = signal.restricted_to(float(times[0]), float(times[-1]))
    if own.kind != "hold" or len(own.times) < MIN_RESIDUALS:
        return False
    # For files on disk, samples without a change are not kept: the remaining ones may be far apart.
    return bool(np.mean(np.diff(own.values) != 0.0) > 0.8 and median_step(own.times) <= _MAX_GAP_STEPS * step)


def constant_noise_test(curve: Array, residuals: Array) -> tuple[float, float]:
    """Test whether the size of residuals depends on the curve; return the p-value and the ratio of sizes, or NaN.

    The score test of Breusch and Pagan in Koenker's form with ranks, which is robust to outliers: ranks of absolute
    residuals are regressed on the curve and its square, and (n - 1) R^2 is chi-squared with two degrees of freedom. The
    ratio is that of root mean squares in the thirds with the largest and the smallest fitted ranks.

    Shapes: curve, residuals (n,).
    """
    count, spread = len(residuals), float(np.std(curve)) if len(curve) else 0.0
    if count < 3 * MIN_RESIDUALS or not spread > 1e-9 * float(np.abs(curve).max()):
        return math.nan, math.nan
    scaled = (curve - curve.mean()) / spread
    ranks = np.argsort(np.argsort(np.abs(residuals), kind="stable")) - 0.5 * (count - 1)
    basis, _ = np.linalg.qr(np.stack([np.ones(count), scaled, scaled**2], axis=1))
    fitted = basis @ (basis.T @ ranks)
    share = float(fitted @ fitted / (ranks @ ranks))
    order, third = np.argsort(fitted, kind="stable"), count // 3
    low, high = (float(np.sqrt(np.mean(residuals[rows] ** 2))) for rows in (order[:third], order[-third:]))
    return float(chdtrc(2, (count - 1) * share)), high / low if low > 0.0 else math.nan


def find_outliers(times: Array, values: Array, residuals: Array, noise_std: Array) -> tuple[tuple[float, float], ...]:
    """Return times and distances of isolated values far from the curve, the farthest first.

    Distances are in robust standard deviations of the others, from the median and the 80 % quantile of the absolute
    values, which a few outliers hardly change.

    Shapes: times, values, residuals (n,), noise_std (n,).
    """
    count = len(residuals)
    if count < 12:
        return ()
    sizes = np.abs(residuals / noise_std)
    # Divided by the median and the 80 % quantile of the absolute value of a standard normal variable.
    scale = max(float(np.median(sizes)) / 0.6745, float(np.quantile(sizes, 0.8)) / 1.2816)
    order = np.argsort(-sizes, kind="stable")
    ordered = sizes[order]
    last = max(int(0.1 * count), 1)
    # An outlier is 8 robust standard deviations away and 2.5 times as far as the next; heavy tails have no such gap.
    gaps = (ordered[:last] > 8.0 * scale) & (ordered[:last] > 2.5 * ordered[1 : last + 1])
    if not gaps.any() or not scale > 0:
        return ()
    found, others = np.split(order, [int(np.flatnonzero(gaps)[-1]) + 1])
    # Rounding errors are not outliers.
    found = found[np.abs(residuals[found]) > 1e-3 * float(np.std(values[others]))]
    return tuple((float(times[place]), float(sizes[place] / scale)) for place in found)


#: If there are more measurements, residuals are tested in this many segments of consecutive rows, of this length.
N_SEGMENTS, SEGMENT_ROWS = 20, 1000


@dataclass(frozen=True, eq=False)
class ResidualSeries:
    """The standardized residuals of one observable, in the order of time.

    times, values: Times in the user's unit, and residuals divided by the noise standard deviation, or innovations
        divided by their standard deviation; (n,).
    are_innovations: Whether the values are innovations.
    rms: The root mean square of measurements minus curve, in units of the noise.
    mean_square: The mean square of measurements minus curve, in the user's units.
    variance: The variance of the measurements.
    prediction_mean_square: The mean square of one-step prediction errors if there are disturbances; otherwise NaN.
    outliers: As in `ResidualCheck`.
    curve: The fitted curve at these times, in the user's units; (n,).
    """

    times: Array
    values: Array
    are_innovations: bool
    rms: float
    mean_square: float
    variance: float
    prediction_mean_square: float = math.nan
    outliers: tuple[tuple[float, float], ...] = ()
    curve: Array = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class ResidualCheck:
    """Results of the residual tests of one observable.

    name: The observable.
    count: Number of measurements.
    looked: Number of tested residuals, those with noise above zero.
    size: Their root mean square in units of the noise: about one if the noise level is correct.
    memory: Their lag-1 autocorrelation: about zero if they are independent.
    explained: One minus the residual variance divided by the variance of the data; NaN if the data are constant.
    expected: The same with the known noise variance for that of the residuals; NaN if some noise is unknown.
    whiteness: The whiteness tests; None if there are too few residuals.
    record: The name of the record if there are several.
    predicted: With disturbances: the fraction of the variance explained by one-step predictions; otherwise NaN.
    copied: Whether many measurements have the time and value of another one.
    outliers: Times and distances of values far from the curve.
    white: Disturbances of white noise that drive the fit, without those estimated as zero.
    delayed: Inputs that have a dead time in the equations.
    noise_p_value: The p-value of the test for noise that does not depend on the curve; NaN if there are too few.
    noise_ratio: The noise where this test expects the largest, divided by that where it expects the smallest.
    """

    name: str
    count: int
    looked: int
    size: float
    memory: float
    explained: float
    expected: float = math.nan
    whiteness: WhitenessTest | None = None
    record: str = ""
    predicted: float = math.nan
    copied: bool = False
    outliers: tuple[tuple[float, float], ...] = ()
    white: tuple[str, ...] = ()
    delayed: tuple[str, ...] = ()
    noise_p_value: float = math.nan
    noise_ratio: float = math.nan

    @property
    def has_dependent_noise(self) -> bool:
        """Whether the noise depends significantly on the signal, and enough to matter."""
        # Unmodelled dynamics have larger residuals if the signal is large, and outliers bend curves: these come first.
        # Constant measurements have no noise.
        level = SIGNIFICANCE_LEVEL if self.whiteness is None else self.whiteness.level
        is_explained = self.is_correlated or bool(self.outliers) or math.isnan(self.explained)
        return self.noise_p_value < level and self.noise_ratio > 1.5 and not is_explained

    @property
    def title(self) -> str:
        """The observable, with its record if there are several."""
        return f"{self.name} of record {self.record}" if self.record else self.name

    @property
    def subject(self) -> str:
        """What is tested, in words: residuals, or innovations, of the observable."""
        kind = "innovations" if self.whiteness is not None and self.whiteness.innovations else "residuals"
        return f"{kind} of {self.title}"

    @property
    def is_autocorrelated(self) -> bool:
        """Whether residuals are significantly and positively correlated over time, and enough to matter."""
        # Slow oscillations have a strong negative autocorrelation at half a period.
        return self.is_correlated and (self.memory > 0.0 or self.strongest_lag[1] > 0.0)

    @property
    def is_correlated(self) -> bool:
        """Whether residuals are autocorrelated, and are neither rounding errors nor far below the noise."""
        return self._is_significant and not self.is_below_noise

    @property
    def has_inflated_noise(self) -> bool:
        """Whether correlated residuals are far below a noise level that other residuals have increased."""
        # Constant data have no explained variance.
        is_learned = math.isnan(self.expected) and not math.isnan(self.explained)
        return self._is_significant and self.is_below_noise and is_learned

    @property
    def _is_significant(self) -> bool:
        # Residuals of noise-free data are rounding errors; if disturbances fit all values, predictions are used.
        share = self.explained if math.isnan(self.predicted) else self.predicted
        return self.whiteness is not None and self.whiteness.is_correlated and not 1.0 - share < 1e-8

    @property
    def is_below_noise(self) -> bool:
        """Whether residuals are far smaller than the noise level."""
        # Curves with free functions absorb most of the noise; innovations do not.
        follows = self.whiteness is not None and self.whiteness.innovations
        return self.size < 0.3 and not follows

    @property
    def verdict(self) -> str:
        """The result of the tests of independence in a few words: one of `VERDICTS`."""
        if not self.looked:
            return "not tested"
        if self.is_below_noise or self.is_suspicious:
            return "below noise" if self.is_below_noise else "correlated"
        return "independent" if self.whiteness is not None and self.whiteness.is_conclusive else "too few to test"

    @property
    def is_suspicious(self) -> bool:
        """Whether residuals are correlated with each other or with a known input."""
        return self.is_correlated or (self.whiteness is not None and bool(self.whiteness.correlated_inputs))

    @property
    def suggests_coloured_noise(self) -> bool:
        """Whether a disturbance that is modelled as white noise seems to be coloured.

        A correlation with a known input has to be fixed first: a disturbance would only absorb it.
        """
        found = self.whiteness
        if not self.white or found is None or not self.is_autocorrelated or found.correlated_inputs or self.copied:
            return False
        return float(np.mean(found.lags[:3])) > 0.05

    @property
    def strongest_lag(self) -> tuple[int, float]:
        """The lag of the strongest autocorrelation, lag 1 unless another one is clearly stronger, and its value."""
        if self.whiteness is None:
            return 1, self.memory
        lags = self.whiteness.lags
        place = max(range(len(lags)), key=lambda k: abs(lags[k]))
        place = 0 if abs(lags[0]) > max(abs(lags[place]) - 0.1, MIN_CORRELATION) else place
        return place + 1, lags[place]

    @property
    def std_error_inflation(self) -> float:
        """The factor by which autocorrelation increases the standard error of a mean, as in an AR(1) process.

        If a disturbance modelled as white seems to be coloured, the sum of all autocorrelations is used as well.
        """
        largest = min(max(self.memory, 0.0), 0.999)
        every = sum(self.whiteness.lags) if self.whiteness is not None and self.suggests_coloured_noise else 0.0
        return math.sqrt(max((1 + largest) / (1 - largest), 1 + 2 * every))

    @property
    def exceeds_noise(self) -> bool:
        """Whether residuals are significantly larger than the noise, and enough to matter."""
        return self.size > 1 + max(0.25, 3.0 / math.sqrt(2 * max(self.looked, 1)))

    @property
    def explains_little(self) -> bool:
        """Whether the curve explains little of the data, though more could be explained."""
        return self.count >= MIN_RESIDUALS and self.explained < 0.5 and not self.expected < 0.5 + 0.2


#: Innovations by observable: times, ascending, and standardized values; with disturbances also the mean square of the
#: prediction errors and the median standard deviation of predictions, in the user's units, NaN otherwise.
Innovations = dict[str, tuple[Array, Array, float, float]]


@dataclass(frozen=True, eq=False)
class FittedRecord:
    """The measurements of one record with the fitted curves, their residuals and innovations.

    noise_std_of: Function that returns the noise standard deviation of an observable.
    last_innovations: The innovations, if the measurements are the last batch of a record on disk.
    """

    setup: FitSetup
    optimum: Optimum
    posterior: Posterior
    measurements: Measurements
    noise_std_of: Callable[[str], float]
    last_innovations: InnovationSequence | None = None

    @property
    def prior(self) -> Prior:
        """The prior, compiled."""
        return self.setup.prior

    @cached_property
    def hyperparameters(self) -> Hyperparameters:
        """The hyperparameters at the optimum."""
        return self.setup.layout.unpack(self.optimum.x)

    @property
    def times(self) -> Array:
        """All times of measurements in memory, shape (n,); a time array shared by several series occurs once."""
        return np.concatenate([*{id(item.times): item.times for item in self.measurements.series}.values()])

    @cached_property
    def _curves_by_times(self) -> dict[bytes, Array]:
        return {}

    def curves(self, times: Array) -> Array:
        """Return the fitted curves of all observables in the user's units, shape (n, o); cached.

        Shapes: times (n,).
        """
        cache, key = self._curves_by_times, times.tobytes()
        if key not in cache:
            cache[key] = self.posterior.mean(self.prior.observables, times) * self.prior.units.scales
        return cache[key]

    def residual_checks(self, n_series: int) -> list[ResidualCheck]:
        """Return the residual checks; on disk the last rows are tested, of sums only the explained variance is known.

        All `n_series` series of a fit, over all its records, share the significance level.
        """
        measurements = self.measurements
        if measurements.sufficient_statistics is not None:
            checks = [] if self.tested_rows is self else self.tested_rows.residual_checks(n_series)
            last, statistics = {check.name: check for check in checks}, measurements.observable_statistics
            return [self._check_statistics(each, last.get(each.observable)) for each in statistics]
        return [self._check_residuals(item, SIGNIFICANCE_LEVEL / max(n_series, 1)) for item in measurements.series]

    def _check_residuals(self, series: TimeSeries, significance: float) -> ResidualCheck:
        """Return the residual check of one observable in memory."""
        residuals, is_learned = self.residuals(series), bool(series.has_unknown_noise.any())
        is_varying = residuals.variance > (1e-9 * float(np.max(np.abs(series.values)))) ** 2

        def explained(mean_square: float, is_known: bool = True) -> float:
            # NaN is always the same object, so that equal checks compare equal.
            return 1.0 - mean_square / residuals.variance if is_varying and is_known else math.nan

        whiteness = ljung_box_test(
            residuals.times,
            residuals.values,
            innovations=residuals.are_innovations,
            inputs=self.measurements.inputs,
            significance=significance,
        )
        noise_p_value, noise_ratio = constant_noise_test(residuals.curve, residuals.values)
        return ResidualCheck(
            series.observable,
            len(series.times),
            len(residuals.times),
            residuals.rms,
            0.0 if whiteness is None else whiteness.lags[0],
            explained(residuals.mean_square, len(series.times) > 1),
            math.nan if is_learned else explained(float(np.mean(series.std**2))),
            whiteness,
            predicted=explained(residuals.prediction_mean_square, not math.isnan(residuals.prediction_mean_square)),
            copied=series.has_duplicates,
            outliers=residuals.outliers,
            white=self.white_disturbances,
            delayed=tuple({name.channel: None for name in self.setup.system.delayed_channels}),
            noise_p_value=noise_p_value,
            noise_ratio=noise_ratio,
        )

    def _check_statistics(self, data: ObservableStatistics, last: ResidualCheck | None) -> ResidualCheck:
        explained = 1.0 - (self.noise_std_of(data.observable) / data.std) ** 2 if data.std > 0 else math.nan
        if last is None:
            return ResidualCheck(data.observable, data.count, 0, 1.0, 0.0, explained)
        # The last rows alone do not determine the explained fraction of all rows.
        return replace(last, count=data.count, explained=explained, expected=math.nan, predicted=math.nan)

    @property
    def white_disturbances(self) -> tuple[str, ...]:
        """Disturbances of white noise, without those estimated as zero."""
        disturbances, stds = self.prior.observables.disturbances, self.setup.layout.slices.disturbance_deviations
        if disturbances is None:
            return ()
        rows = zip(disturbances.names, disturbances.kinds, self.optimum.at_bound[stds], strict=True)
        return tuple(name for name, kind, at_bound in rows if kind == WHITE_NOISE and not at_bound)

    def residuals(self, series: TimeSeries) -> ResidualSeries:
        """Return the residuals of one observable in memory; of some segments if there are many measurements."""
        name, tested = series.observable, series
        if len(series.times) > N_SEGMENTS * SEGMENT_ROWS:
            starts = np.linspace(0, len(series.times) - SEGMENT_ROWS, N_SEGMENTS).astype(np.intp)
            tested = series.select(np.unique(starts[:, None] + np.arange(SEGMENT_ROWS)))
        times, values, noise = tested.times, tested.values, tested.noise_std_for_level(self.noise_std_of(name))
        others = [each.times for each in self.measurements.series if each.times is not series.times]
        if all(np.array_equal(series.times, other) for other in others):
            mean = self.curves(times)[:, self.prior.noise.observables.index(name)]
        else:
            reader = ObservableCompiler(self.setup.system, self.measurements.inputs, self.prior.disturbances)
            mean = self.posterior.mean(reader.compile_unscaled([name], self.prior.units), times)[:, 0]
        plain, usable = values - mean, noise > 0
        scaled, times = plain[usable] / noise[usable], times[usable]
        size = math.sqrt(float(np.mean(scaled**2))) if len(scaled) else 0.0
        moments = size, float(np.mean(plain**2)), float(np.var(values))
        outliers = find_outliers(times, values[usable], plain[usable], noise[usable])
        if self.innovations is not None:
            own, standardized, mean_square, _ = self.innovations[name]
            near = mean[np.minimum(np.searchsorted(tested.times, own), len(mean) - 1)] if len(mean) else mean
            return ResidualSeries(own, standardized, True, *moments, mean_square, outliers, near)
        return ResidualSeries(times, scaled, False, *moments, outliers=outliers, curve=mean[usable])

    @cached_property
    def innovations(self) -> Innovations | None:
        """The innovations; with the dense engine, of a few segments if there are many measurements.

        None without processes, if exact measurements are not filtered, or if rounding errors dominate.
        """
        factory, prior = self.setup.engine_choice.factory, self.prior
        is_filtered = uses_kalman_filter(factory, prior)
        if not prior.has_process or (self.measurements.has_exact_values and not is_filtered):
            return None
        every = with_empty_series(self.measurements, prior.noise.observables).series
        found: Innovations = {item.observable: (np.zeros(0), np.zeros(0), math.nan, math.nan) for item in every}
        runs = [every] if is_filtered else list(split_into_segments(every))
        for run in runs:
            sequence = self.last_innovations
            if sequence is None:
                sequence = create_filter(factory, prior, run)(self.hyperparameters)
            if sequence is None:
                return None
            for number, item in enumerate(run):
                times, values, *moments = found[item.observable]
                rows = sequence.observables == number
                standardized, std = sequence.standardized[rows], sequence.std[rows]
                # Exact values have no noise.
                times = np.concatenate([times, item.times[~item.is_exact]])
                values = np.concatenate([values, standardized[~item.is_exact]])
                if prior.disturbances and len(item.times):
                    moments = [float(np.mean((standardized * std) ** 2)), float(np.median(std))]
                found[item.observable] = times, values, moments[0], moments[1]
        return found if runs else None

    @cached_property
    def tested_rows(self) -> FittedRecord:
        """The record with the rows whose residuals are tested: all rows in memory, the last rows on disk."""
        if not isinstance(self.posterior, BatchedPosterior):
            return self
        series = [item for item in self.posterior.last_series() if len(item.times)]
        rows = Measurements(series, inputs=self.measurements.inputs)
        return replace(self, measurements=rows, last_innovations=self.posterior.last_innovations())

    @property
    def restricted_likelihood_correction(self) -> float:
        """The difference in log evidence between a proper prior of diffuse modes and the width used in the search."""
        modes = self.setup.layout.diffuse_modes
        if modes is None:
            return 0.0
        record = self.tested_rows
        found = record.innovations if self.prior.disturbances and record.measurements.series else None
        typical = {name: own[3] for name, own in (found or {}).items() if not math.isnan(own[3])}
        errors = [typical.get(name, self.noise_std_of(name)) for name in self.measurements.names]
        return modes.proper_prior_offset(self.hyperparameters.theta, np.array(errors) / self.prior.units.scales)


def inflate_all(layout: ParameterLayout, checks: Sequence[ResidualCheck]) -> dict[str, float]:
    """Return factors of standard errors by parameter name in a fit with free functions.

    How much of the residuals free functions would absorb is unknown, so the factor is that of the mean of equally
    autocorrelated errors, the largest of all observables: a rule of thumb.
    """
    largest = max((check.std_error_inflation for check in checks if check.is_autocorrelated), default=1.0)
    return {layout.names[number]: largest for number in layout.free_parameters} if largest > 1.0 else {}


def estimate_unexplained_std(
    checks: Sequence[ResidualCheck], total_std: Callable[[str], float], noise_std: Mapping[str, float]
) -> dict[str, float]:
    """Return the standard deviation of residuals beyond noise, by observable.

    If a motion is so unlikely under the prior that it is attributed to noise, innovations are correlated, and
    neighbours differ by less than the noise level. Bands include this part.
    """
    found: dict[str, float] = {}
    for check in checks:
        whole = total_std(check.name) if check.is_autocorrelated else 0.0
        noise = min(noise_std.get(check.name, math.sqrt(max(1.0 - check.memory, 0.0)) * whole), whole)
        if whole**2 - noise**2 > 0.0:
            found[check.name] = max(found.get(check.name, 0.0), math.sqrt(whole**2 - noise**2))
    return found
