"""Whether residuals are independent: correlations of neighbours, their periodogram, and what known inputs tell of them.

Residuals are taken in the order of their times. Of independent ones that order says nothing, so all tests hold for
irregular times as well; correlations at a lag are those of pairs that are not much farther apart than so many typical
steps, and pairs across gaps are left out.

Values that lie far from the curve, all alone: a slip of a sensor or of a table, which normal noise does not know.

What a fit leaves of measurements: measurements minus mean in units of the noise, or innovations.

What residuals say: whether they are independent, as large as the noise, and how much of the data is explained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, kolmogorov, ndtr

from lodekit.data.inputs import InputSignal
from lodekit.data.observations import TimeSeries
from lodekit.support.text import format_quantity, join_list

Array = NDArray[np.float64]
#: Fewer residuals say nothing about noise.
MIN_RESIDUALS = 10
#: Of fits that miss nothing, this share is called correlated.
SIGNIFICANCE_LEVEL = 0.05
#: Correlations below this do not matter, however sure they are.
_MIN_CORRELATION = 0.1
#: Pairs this many times farther apart than their typical distance are no neighbours.
_MAX_GAP_STEPS = 1.5


@dataclass(frozen=True)
class InputCorrelation:
    """How residuals go with a known input.

    correlation: The one that is farthest from zero, of the input so much earlier.
    delay: By how much, in the user's time.
    p_value: How likely independent residuals show as much at some delay.
    restless: Whether the input is held between its samples and changes at nearly every one, as samples of a curve do.
    """

    correlation: float
    delay: float
    p_value: float
    restless: bool = False

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> InputCorrelation:
        """Return what ``dataclasses.asdict`` has taken apart; None stands for what is not finite."""
        plain: dict[str, Any] = {key: math.nan if value is None else value for key, value in state.items()}
        return cls(**plain)


@dataclass(frozen=True)
class WhitenessTest:
    """What speaks for or against independent residuals.

    innovations: Whether these are innovations, each measurement minus its prediction from those before, as free
        functions demand; else measurements minus the fitted curve.
    step: The typical distance of neighbours, in the user's time.
    lags: Correlations at the lags 1, 2, and so on.
    ljung_box, p_value: The statistic of Ljung and Box over these lags, and how likely independent residuals exceed
        it.
    excursion, band: How far the cumulated periodogram is from a straight line, with the sign of that place, positive
        where slow changes have too much power; and how far that of independent residuals is in 95 of 100 cases.
    periodogram_p_value: How likely independent residuals exceed it.
    period: The period at that place, in the user's time: what is missing is slower, or faster where the sign is
        negative.
    links: Correlations with known inputs, by name.
    level: Below which likelihood residuals are called correlated.
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

    @property
    def is_correlated(self) -> bool:
        """Whether residuals are correlated by more than chance, and enough to matter; both tests count."""
        return self.combined_p_value < self.level and max(map(abs, self.lags), default=0.0) > _MIN_CORRELATION

    @property
    def combined_p_value(self) -> float:
        """How likely independent residuals look as bad in one of both tests."""
        return min(1.0, 2.0 * min(self.p_value, self.periodogram_p_value))

    @property
    def correlated_inputs(self) -> list[str]:
        """The inputs that residuals go with by more than chance, and enough to matter."""
        shared = self.level / max(len(self.links), 1)
        return [
            n for n, link in self.links.items() if link.p_value < shared and abs(link.correlation) > _MIN_CORRELATION
        ]

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> WhitenessTest:
        """Return what ``dataclasses.asdict`` has taken apart; None stands for what is not finite."""
        plain: dict[str, Any] = {key: math.nan if value is None else value for key, value in state.items()}
        links = {name: InputCorrelation.from_dict(link) for name, link in state["links"].items()}
        plain |= {"lags": tuple(state["lags"]), "links": links}
        return cls(**plain)


def autocorrelation_at_lags(times: Array, values: Array, max_lag: int) -> tuple[Array, Array]:
    """Return correlations at the lags one to `max_lag`, and how many pairs each comes from.

    Shapes: times, values (n,).

    Examples
    --------
    >>> autocorrelation_at_lags(np.arange(4.0), np.array([1.0, -1.0, 1.0, -1.0]), 2)[0].round(9).tolist()
    [-1.0, 1.0]
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


def median_step(times: Array) -> float:
    """Return the typical distance of neighbouring times, the median."""
    return float(np.median(np.diff(times))) if len(times) > 1 else 1.0


def cumulative_periodogram(values: Array) -> tuple[Array, Array]:
    """Return frequencies in cycles for each residual, up to a half, and the share of the power up to each.

    Shapes: values (n,).
    """
    power = np.abs(np.fft.rfft(values)[1 : (len(values) - 1) // 2 + 1]) ** 2
    total = float(power.sum())
    share = np.cumsum(power) / total if total > 0 else np.linspace(0.0, 1.0, len(power) + 1)[1:]
    return np.arange(1, len(power) + 1) / len(values), share


def cumulative_periodogram_band(count: int) -> float:
    """Return how far from a straight line the cumulated periodogram of independent values is in 95 of 100 cases."""
    # The 95 % quantile of the Kolmogorov distribution.
    return 1.3580986393225505 / _stephens_factor(count)


def _stephens_factor(count: int) -> float:
    """Return by what an excursion is multiplied that follows the Kolmogorov distribution then."""
    # The shares below the last one are distributed like so many ordered uniform numbers; the rest is Stephens' formula.
    root = math.sqrt(max(count - 1, 1))
    return root + 0.12 + 0.11 / root


def assess_whiteness(
    times: Array,
    values: Array,
    *,
    innovations: bool = False,
    inputs: Mapping[str, InputSignal] | None = None,
    significance: float = SIGNIFICANCE_LEVEL,
) -> WhitenessTest | None:
    """Return what speaks for or against independent residuals; None where there are too few of them.

    Shapes: times, values (n,).
    """
    size = len(values)
    if size < MIN_RESIDUALS or not np.any(values):
        return None
    count = max(1, min(10, size // 5))
    lags, pairs = autocorrelation_at_lags(times, values, count)
    # With all pairs this is the statistic of Ljung and Box: its correlations are divided by n, and not by the pairs.
    statistic = float((size + 2) / size * np.sum(pairs * lags**2))
    used = int(np.sum(pairs > 0))
    step = median_step(times)
    frequencies, share = cumulative_periodogram(values)
    line = np.arange(1, len(share) + 1) / len(share)
    away = share[:-1] - line[:-1] if len(share) > 1 else np.zeros(1)
    place = int(np.argmax(np.abs(away)))
    excursion = float(away[place])
    links = {
        name: _correlate_with_input(times, values, signal, step, lags)
        for name, signal in (inputs or {}).items()
        if step > 0
    }
    return WhitenessTest(
        innovations=innovations,
        step=step,
        lags=tuple(float(each) for each in lags),
        ljung_box=statistic,
        p_value=float(chdtrc(used, statistic)) if used else 1.0,
        excursion=excursion,
        band=cumulative_periodogram_band(len(share)),
        periodogram_p_value=float(kolmogorov(abs(excursion) * _stephens_factor(len(share)))),
        period=step / float(frequencies[place]),
        links={name: link for name, link in links.items() if link is not None},
        level=significance,
    )


def _correlate_with_input(
    times: Array, values: Array, signal: InputSignal, step: float, autocorrelation: Array
) -> InputCorrelation | None:
    """Return the correlation with an input that is farthest from zero, over delays of up to some steps."""
    best, delay, count, now = 0.0, 0.0, len(autocorrelation) + 1, signal.at(times)
    own = values - values.mean()
    # An input that does not change goes with nothing: what is left of it is rounding.
    least = 1e-12 * len(values) * float(np.abs(now).max() or 1.0)
    for k in range(count):
        earlier = signal.at(times - k * step)
        earlier = earlier - earlier.mean()
        size = float(np.linalg.norm(earlier) * np.linalg.norm(own))
        if size <= least:
            continue
        found = float(own @ earlier) / size
        if abs(found) > abs(best):
            best, delay = found, k * step
    if not best:
        return None
    memory, _ = autocorrelation_at_lags(times, now - now.mean(), len(autocorrelation))
    # Where both are slow, they resemble each other by chance.
    variance = max(1.0, 1.0 + 2.0 * float(autocorrelation @ memory)) / len(values)
    chance = 2.0 * float(ndtr(-abs(best) / math.sqrt(variance)))
    return InputCorrelation(best, delay, min(1.0, count * chance), _changes_every_sample(signal, times, step))


def _changes_every_sample(signal: InputSignal, times: Array, step: float) -> bool:
    """Return whether an input is held and changes at nearly every sample, as often as residuals are there."""
    own = signal.restricted_to(float(times[0]), float(times[-1]))
    if own.kind != "hold" or len(own.times) < MIN_RESIDUALS:
        return False
    # Of files that are not read into memory, samples that change nothing are not kept: those left are far apart.
    return bool(np.mean(np.diff(own.values) != 0.0) > 0.8 and median_step(own.times) <= _MAX_GAP_STEPS * step)


#: So many are named.
_MAX_LISTED_OUTLIERS = 3


def find_outliers(times: Array, values: Array, residuals: Array, noise_std: Array) -> tuple[tuple[float, float], ...]:
    """Return times and distances of values that lie far from the curve all alone, the farthest first.

    Distances are in deviations of the others, which come from the median and the 80 % quantile of the sizes: both
    hardly know a few exceptions, however far off, though the noise that was learned does.

    Shapes: times, values, residuals (n,), noise_std (n,).

    Examples
    --------
    >>> import numpy as np
    >>> t, residuals = np.arange(40.0), 0.1 * np.cos(1.7 * np.arange(40.0) ** 2)
    >>> residuals[33] = 3.0
    >>> [(time, 20 < distance < 40) for time, distance in find_outliers(t, t, residuals, np.ones(40))]
    [(33.0, True)]
    """
    count = len(residuals)
    if count < 12:
        return ()
    sizes = np.abs(residuals / noise_std)
    # The median and the 80 % quantile of the absolute value of a standard normal variable.
    scale = max(float(np.median(sizes)) / 0.6745, float(np.quantile(sizes, 0.8)) / 1.2816)
    order = np.argsort(-sizes, kind="stable")
    ordered = sizes[order]
    last = max(int(0.1 * count), 1)
    # An outlier is 8 robust standard deviations away and 2.5 times as far as the next; heavy tails have no such gap.
    gaps = (ordered[:last] > 8.0 * scale) & (ordered[:last] > 2.5 * ordered[1 : last + 1])
    if not gaps.any() or not scale > 0:
        return ()
    found, others = np.split(order, [int(np.flatnonzero(gaps)[-1]) + 1])
    # Rounding errors are no outliers.
    found = found[np.abs(residuals[found]) > 1e-3 * float(np.std(values[others]))]
    return tuple((float(times[place]), float(sizes[place] / scale)) for place in found)


def warn_outliers(outliers_by_title: Mapping[str, Sequence[tuple[float, float]]], time_unit: str = "") -> list[str]:
    """Return which values are meant, how far off they are, and what to do, in a sentence for each observable.

    Examples
    --------
    >>> print(*warn_outliers({"x": [], "y": [(3.2, 61.3)]}, "s"))
    y at t = 3.2 s lies 61 deviations of the others from the curve, which normal noise does not do: leave it out (NaN) where it is a slip, or give it a larger noise_std
    """
    return [_outlier_message(title, outliers, time_unit) for title, outliers in outliers_by_title.items() if outliers]


def _outlier_message(title: str, outliers: Sequence[tuple[float, float]], time_unit: str) -> str:
    named = sorted(time for time, _ in outliers[:_MAX_LISTED_OUTLIERS])
    places = f"{', '.join(f'{time:.6g}' for time in named)} {time_unit}".rstrip()
    more = f" and {len(outliers) - _MAX_LISTED_OUTLIERS} more times" if len(outliers) > _MAX_LISTED_OUTLIERS else ""
    them, slips = ("them", "they are slips") if len(outliers) > 1 else ("it", "it is a slip")
    ends = (float(f"{each:.2g}") for each in (outliers[-1][1], outliers[0][1]))
    how_far = " to ".join(dict.fromkeys(f"{each:g}" for each in ends))
    return (
        f"{title} at t = {places}{more} lies {how_far} deviations of the others from the curve, which normal noise "
        f"does not do: leave {them} out (NaN) where {slips}, or give {them} a larger noise_std"
    )


#: Where there are more measurements, residuals are looked at in this many runs of neighbours, each of this length.
N_SEGMENTS, SEGMENT_ROWS = 20, 1000


@dataclass(frozen=True, eq=False)
class InnovationSample:
    """What measurements of some observables add to those before them; runs of neighbours where there are many.

    times, values: Of each observable: the times, ascending, and the innovations.
    mean_square: Where disturbances are there: the mean square of measurements minus predictions, in the user's units.
    typical_std: The deviation of a prediction in the middle, in the user's units: the first ones know nothing.
    """

    times: Mapping[str, Array]
    values: Mapping[str, Array]
    mean_square: Mapping[str, float] = field(default_factory=dict)
    typical_std: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ResidualSeries:
    """What a fit leaves of the measurements of one observable, in the order of time.

    times, values: In the user's unit, and in units of what is expected: of the noise, or of a prediction from the
        measurements before; (n,).
    are_innovations: Whether it is the latter.
    rms: The root mean square of measurements minus curve, in units of the noise.
    mean_square: The mean square of measurements minus curve, in the user's units.
    variance: That of the measurements.
    prediction_mean_square: Where disturbances are there: the mean square of measurements minus predictions from those
        before.
    outliers: As in `Check`.
    """

    times: Array
    values: Array
    are_innovations: bool
    rms: float
    mean_square: float
    variance: float
    prediction_mean_square: float = math.nan
    outliers: tuple[tuple[float, float], ...] = ()


def compute_residuals(
    series: TimeSeries, mean: Callable[[Array], Array], noise_std: float, innovations: InnovationSample | None = None
) -> ResidualSeries:
    """Return what a fit leaves of the measurements of one observable; in runs of neighbours where there are many."""
    noise = series.noise_std_for_level(noise_std)
    count = len(series.times)
    starts = np.linspace(0, max(count - SEGMENT_ROWS, 0), N_SEGMENTS).astype(np.intp)
    rows = (
        np.arange(count) if count <= N_SEGMENTS * SEGMENT_ROWS else np.unique(starts[:, None] + np.arange(SEGMENT_ROWS))
    )
    plain = series.values[rows] - mean(series.times[rows])
    usable = noise[rows] > 0
    scaled = plain[usable] / noise[rows][usable]
    size = math.sqrt(float(np.mean(scaled**2))) if len(scaled) else 0.0
    others = float(np.mean(plain**2)), float(np.var(series.values[rows]))
    times = series.times[rows][usable]
    far = find_outliers(times, series.values[rows][usable], plain[usable], noise[rows][usable])
    if innovations is not None:
        own = innovations.times[series.observable], innovations.values[series.observable]
        return ResidualSeries(*own, True, size, *others, innovations.mean_square.get(series.observable, math.nan), far)
    return ResidualSeries(times, scaled, False, size, *others, outliers=far)


#: A share of the variance below this is low, unless known noise allows hardly more: so much more at least.
_LOW_EXPLAINED = 0.5
#: A factor that intervals were widened by is worth a word from here on.
_MIN_REPORTED_INFLATION = 1.05


@dataclass(frozen=True)
class ResidualCheck:
    """What the residuals of one observable say.

    name: The observable.
    count: How many measurements there are.
    looked: How many residuals with noise above zero were looked at.
    size: Their root mean square in units of the noise: about one where the noise is as it was said.
    memory: The correlation of neighbours: about zero where they are independent.
    explained: One less the variance of the residuals over that of the data; NaN where the data do not change.
    expected: The same with the known noise for the residuals, where all noise is known; NaN otherwise.
    whiteness: Whether they are independent; None where they are too few to tell.
    record: Where there are several records: which one.
    predicted: Where disturbances drive the curve to the data: what predictions from the measurements before explain.
    copied: Whether many measurements have time and value of another one.
    outliers: Times and distances of values far from the curve.
    white: Disturbances of white noise that drive the fit, without those that are best at zero.
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

    @property
    def title(self) -> str:
        """The observable, with its record where there are several."""
        return f"{self.name} of record {self.record}" if self.record else self.name

    @property
    def is_autocorrelated(self) -> bool:
        """Whether neighbours resemble each other by more than chance, and enough to matter."""
        return self.is_correlated and self._varies_slowly

    @property
    def is_correlated(self) -> bool:
        """Whether residuals depend on each other, and something is left over that is worth a word."""
        # Of data without noise, rounding is left over; where disturbances follow every value, predictions still err.
        share = self.explained if math.isnan(self.predicted) else self.predicted
        is_left = not 1.0 - share < 1e-8 and not self.is_below_noise
        return self.whiteness is not None and self.whiteness.is_correlated and is_left

    @property
    def is_below_noise(self) -> bool:
        """Whether residuals are far smaller than the noise that was said."""
        # A curve that free functions bend to the data leaves little of any noise; innovations tell nevertheless.
        follows = self.whiteness is not None and self.whiteness.innovations
        return self.size < 0.3 and not follows

    @property
    def is_suspicious(self) -> bool:
        """Whether residuals depend on each other or on a known input."""
        return self.is_correlated or (self.whiteness is not None and bool(self.whiteness.correlated_inputs))

    def message(self, time_unit: str = "", widening: float = math.nan) -> str:
        """Return the verdict on the residuals in one sentence."""
        found = self.whiteness
        if not self.looked:
            return f"residuals of {self.title} were not looked at: measurements were summed, or have no noise"
        if found is None:
            return f"residuals of {self.title} are too few to tell whether they are independent"
        kind = "innovations" if found.innovations else "residuals"
        if self.is_below_noise:
            text = f"{kind} of {self.title} are far smaller than the noise that was said ({self.size:.1g} of it)"
        elif not self.is_correlated:
            text = f"{kind} of {self.title} look like independent noise (lag 1: {self.memory:.2f})"
        elif self.is_autocorrelated:
            cause = self._describe_cause(time_unit)
            text = (
                f"{kind} of {self.title} are correlated ({self.lag_text}): {cause}; {self._describe_effect(widening)}"
            )
            if self.coloured_noise_hint:
                text += (
                    f"; try {self.coloured_noise_hint}, or another lag, and keep the fit with the larger log evidence, which "
                    "compares as long as the outputs are the same"
                )
        else:
            text = (
                f"{kind} of {self.title} swing from one side to the other ({self.lag_text}): the measurements are "
                "not independent, or the curve follows their noise; where the noise is known, give noise_std"
            )
        but = "; they go" if self.is_correlated else ", but they go"
        for name in found.correlated_inputs:
            lines = f", or inputs={{'{name}': 'auto'}} (straight lines between samples)" * found.links[name].restless
            text += (
                f"{but} {self.describe_input_correlation(name, time_unit)}; "
                f"try a dead time, delay({name}, T), {'' if lines else 'or '}another lag{lines}"
            )
        return text

    def describe_input_correlation(self, name: str, time_unit: str = "") -> str:
        """Return how residuals go with a known input, in words."""
        found = None if self.whiteness is None else self.whiteness.links.get(name)
        if found is None:
            return ""
        later = f", {format_quantity(found.delay, time_unit)} later" if found.delay else ""
        return f"with {name} ({found.correlation:.2f}{later}): it acts in another way than the equations say"

    @property
    def coloured_noise_hint(self) -> str:
        """What may last although it is taken for white noise, and how to say so; empty where nothing tells of that.

        Where residuals go with a known input, that is to be cured first: a disturbance would only take it up.
        """
        found = self.whiteness
        if not self.white or found is None or not self.is_autocorrelated or found.correlated_inputs or self.copied:
            return ""
        lasts = float(np.mean(found.lags[:3])) > 0.05
        return f'{join_list(self.white, "or")} as "matern-1/2", which lasts a while, instead of "white"' * lasts

    @property
    def _varies_slowly(self) -> bool:
        """Whether residuals stay on one side for a while: slow waves have a strong lag below zero, half a period on."""
        return self.memory > 0.0 or self._strongest_lag[1] > 0.0

    @property
    def _strongest_lag(self) -> tuple[int, float]:
        """The correlation of neighbours, or that at another lag where it is clearly stronger; and which lag."""
        if self.whiteness is None:
            return 1, self.memory
        lags = self.whiteness.lags
        place = max(range(len(lags)), key=lambda k: abs(lags[k]))
        place = place if abs(lags[place]) > abs(lags[0]) + 0.1 else 0
        return place + 1, lags[place]

    @property
    def lag_text(self) -> str:
        """The strongest of the correlations of neighbours, in words."""
        lag, value = self._strongest_lag
        return f"lag {lag}: {value:.2f}" if abs(value) < 0.995 else f"lag {lag}: {value:.4f}"

    def describe_time_scale(self, time_unit: str) -> str:
        """Return how slow or fast that is which is missing, in words."""
        found = self.whiteness
        if found is None or found.periodogram_p_value > SIGNIFICANCE_LEVEL or not found.period > 0:
            return "that lasts longer than a step"
        if found.excursion < 0 and self.coloured_noise_hint:
            # White noise that stands in for something slow is too strong from row to row, which the periodogram sees.
            return "that lasts longer than a step"
        return f"{'slower' if found.excursion > 0 else 'faster'} than {format_quantity(found.period, time_unit)}"

    def _describe_cause(self, time_unit: str) -> str:
        if self.copied:
            return "rows stand there twice, with the same time and value; leave the copies out"
        return f"the equations miss something {self.describe_time_scale(time_unit)}, or errors are not independent"

    def _describe_effect(self, widening: float) -> str:
        """Return what that does to intervals."""
        if widening >= _MIN_REPORTED_INFLATION:
            return f"intervals of parameters are widened for it, by factors of up to {widening:.1f}"
        if (
            self.whiteness is not None
            and self.whiteness.innovations
            and self.std_error_inflation < _MIN_REPORTED_INFLATION
        ):
            # Neighbours alone tell no more than that: only without free functions it is known what errors do.
            return "intervals of parameters may be too narrow"
        if widening >= 1.0:
            return "that does not touch the intervals of parameters"
        return f"intervals are too narrow, as a rule of thumb by a factor of up to {self.std_error_inflation:.1f}"

    @property
    def std_error_inflation(self) -> float:
        """By how much less certain a mean is than that of independent errors, where each resembles the last.

        Where something lasts that counts as white noise, neighbours are the least alike, and all lags count.
        """
        largest = min(max(self.memory, 0.0), 0.999)
        every = sum(self.whiteness.lags) if self.whiteness is not None and self.coloured_noise_hint else 0.0
        return math.sqrt(max((1 + largest) / (1 - largest), 1 + 2 * every))

    @property
    def exceeds_noise(self) -> bool:
        """Whether residuals are larger than the noise by more than chance, and enough to matter."""
        return self.size > 1 + max(0.25, 3.0 / math.sqrt(2 * max(self.looked, 1)))

    @property
    def explains_little(self) -> bool:
        """Whether the curve explains little of the data, though more could be explained."""
        return (
            self.count >= MIN_RESIDUALS and self.explained < _LOW_EXPLAINED and not self.expected < _LOW_EXPLAINED + 0.2
        )


def check_residuals(
    series: TimeSeries,
    residuals: ResidualSeries,
    noise_std: float,
    inputs: Mapping[str, InputSignal] | None = None,
    significance: float = SIGNIFICANCE_LEVEL,
) -> ResidualCheck:
    """Return what the residuals of one observable say."""
    noise = series.noise_std_for_level(noise_std)
    changes = residuals.variance > (1e-9 * float(np.max(np.abs(series.values)))) ** 2
    known = (
        1.0 - float(np.mean(noise**2)) / residuals.variance
        if changes and not series.has_unknown_noise.any()
        else math.nan
    )
    explained = 1.0 - residuals.mean_square / residuals.variance if changes and len(series.times) > 1 else math.nan
    whiteness = assess_whiteness(
        residuals.times,
        residuals.values,
        innovations=residuals.are_innovations,
        inputs=inputs,
        significance=significance,
    )
    memory = 0.0 if whiteness is None else whiteness.lags[0]
    predicted = (
        math.nan
        if math.isnan(residuals.prediction_mean_square) or not changes
        else 1.0 - residuals.prediction_mean_square / residuals.variance
    )
    sizes = len(series.times), len(residuals.times), residuals.rms
    copied, outliers = series.has_duplicates, residuals.outliers
    return ResidualCheck(
        series.observable, *sizes, memory, explained, known, whiteness, "", predicted, copied, outliers
    )


def warn_residuals(
    checks: Sequence[ResidualCheck], *, is_shared: bool, time_unit: str = "", widening: float = math.nan
) -> list[str]:
    """Return what speaks against a fit, in sentences that each say what to try; none where residuals look like noise."""
    found = warn_outliers({check.title: check.outliers for check in checks}, time_unit)
    found += [
        check.message(time_unit, widening)
        + "; look at the residuals for what is missing"
        * (check.is_autocorrelated and not check.copied and not check.coloured_noise_hint)
        for check in checks
        if check.is_suspicious
    ]
    loud = [f"{check.title} ({check.size:.1f} times)" for check in checks if check.exceeds_noise]
    if loud and is_shared and len({check.name for check in checks}) > 1:
        found.append(
            f"residuals are larger than the shared noise in {join_list(loud)}: "
            'noise="channel" learns one level for each'
        )
    elif loud:
        found.append(
            f"residuals are larger than the noise in {join_list(loud)}: it is set too small, or the equations miss "
            "something; leave noise_std out to learn it"
        )
    low = [f"{max(check.explained, 0.0):.0%} of {check.title}" for check in checks if check.explains_little]
    if low:
        found.append(
            f"the curves explain little of the variance of the data, {join_list(low)}; the rest counts as noise: "
            "where it is none, try start values, or other equations"
        )
    return found
