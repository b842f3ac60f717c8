"""What residuals say: whether they are independent, as large as the noise, and how much of the data is explained."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lodekit.data.inputs import InputSignal
from lodekit.data.observations import Series
from lodekit.learning.diagnosis.outliers import warn_of_outliers
from lodekit.learning.diagnosis.remainder import Remainder
from lodekit.learning.diagnosis.whiteness import FEW, LEVEL, Whiteness, judge_whiteness
from lodekit.wording import amount, join_words

__all__ = ["FEW", "Check", "amount", "check_residuals", "residual_doubts"]

#: A share of the variance below this is low, unless known noise allows hardly more: so much more at least.
_LOW, _MORE = 0.5, 0.2
#: A share of the variance below this is nothing.
_NOTHING = 1e-8
#: A correlation at another lag is worth more words than that of neighbours where it is so much stronger.
_STRONGER = 0.1
#: Residuals are loud that are larger than the noise by this share, and by so many deviations of what chance makes.
_LOUD, _DEVIATIONS = 0.25, 3.0
#: A factor that intervals were widened by is worth a word from here on.
_WIDER = 1.05
#: So many lags are near; where their mean correlation is above this, something lasts that counts as white noise.
_NEAR, _LASTS = 3, 0.05
#: Residuals below this share of the noise that was said are not noise, and tell nothing of it.
_QUIET = 0.3


@dataclass(frozen=True)
class Check:
    """What the residuals of one observable say.

    Parameters
    ----------
    name : str
        The observable.
    count : int
        How many measurements there are.
    looked : int
        How many residuals with noise above zero were looked at.
    size : float
        Their root mean square in units of the noise: about one where the noise is as it was said.
    memory : float
        The correlation of neighbours: about zero where they are independent.
    explained : float
        One less the variance of the residuals over that of the data; NaN where the data do not change.
    expected : float
        The same with the known noise for the residuals, where all noise is known; NaN otherwise.
    whiteness : Whiteness, optional
        Whether they are independent; None where they are too few to tell.
    record : str
        Where there are several records: which one.
    predicted : float
        Where disturbances drive the curve to the data: what predictions from the measurements before explain.
    copied : bool
        Whether many measurements have time and value of another one.
    outliers : tuple of (float, float)
        Times and distances of values far from the curve.
    white : tuple of str
        Disturbances of white noise that drive the fit, without those that are best at zero.
    """

    name: str
    count: int
    looked: int
    size: float
    memory: float
    explained: float
    expected: float = math.nan
    whiteness: Whiteness | None = None
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
    def has_memory(self) -> bool:
        """Whether neighbours resemble each other by more than chance, and enough to matter."""
        return self.is_correlated and self._turns_slowly

    @property
    def is_correlated(self) -> bool:
        """Whether residuals depend on each other, and something is left over that is worth a word."""
        # Of data without noise, rounding is left over; where disturbances follow every value, predictions still err.
        share = self.explained if math.isnan(self.predicted) else self.predicted
        is_left = not 1.0 - share < _NOTHING and not self.is_quiet
        return self.whiteness is not None and self.whiteness.is_correlated and is_left

    @property
    def is_quiet(self) -> bool:
        """Whether residuals are far smaller than the noise that was said."""
        # A curve that free functions bend to the data leaves little of any noise; innovations tell nevertheless.
        follows = self.whiteness is not None and self.whiteness.innovations
        return self.size < _QUIET and not follows

    @property
    def is_doubtful(self) -> bool:
        """Whether residuals depend on each other or on a known input."""
        return self.is_correlated or (self.whiteness is not None and bool(self.whiteness.linked))

    def sentence(self, time_unit: str = "", widening: float = math.nan) -> str:
        """Return the verdict on the residuals in one sentence.

        Parameters
        ----------
        time_unit : str
            Of the time.
        widening : float
            The largest factor by which intervals of parameters were widened for correlated residuals; NaN where that
            is not known, as with free functions.
        """
        found = self.whiteness
        if not self.looked:
            return f"residuals of {self.title} were not looked at: measurements were summed, or have no noise"
        if found is None:
            return f"residuals of {self.title} are too few to tell whether they are independent"
        kind = "innovations" if found.innovations else "residuals"
        if self.is_quiet:
            text = f"{kind} of {self.title} are far smaller than the noise that was said ({self.size:.1g} of it)"
        elif not self.is_correlated:
            text = f"{kind} of {self.title} look like independent noise (lag 1: {self.memory:.2f})"
        elif self.has_memory:
            cause = self._cause(time_unit)
            text = f"{kind} of {self.title} are correlated ({self.lag}): {cause}; {self._effect(widening)}"
            if self.slower:
                text += (
                    f"; try {self.slower}, or another lag, and keep the fit with the larger log evidence, which "
                    "compares as long as the outputs are the same"
                )
        else:
            text = (
                f"{kind} of {self.title} swing from one side to the other ({self.lag}): the measurements are "
                "not independent, or the curve follows their noise; where the noise is known, give noise_std"
            )
        but = "; they go" if self.is_correlated else ", but they go"
        for name in found.linked:
            lines = f", or inputs={{'{name}': 'auto'}} (straight lines between samples)" * found.links[name].restless
            text += (
                f"{but} {self.link(name, time_unit)}; "
                f"try a dead time, delay({name}, T), {'' if lines else 'or '}another lag{lines}"
            )
        return text

    def link(self, name: str, time_unit: str = "") -> str:
        """Return how residuals go with a known input, in words.

        Parameters
        ----------
        name : str
            The input.
        time_unit : str
            Of the time.
        """
        found = None if self.whiteness is None else self.whiteness.links.get(name)
        if found is None:
            return ""
        later = f", {amount(found.delay, time_unit)} later" if found.delay else ""
        return f"with {name} ({found.correlation:.2f}{later}): it acts in another way than the equations say"

    @property
    def slower(self) -> str:
        """What may last although it is taken for white noise, and how to say so; empty where nothing tells of that.

        Where residuals go with a known input, that is to be cured first: a disturbance would only take it up.
        """
        found = self.whiteness
        if not self.white or found is None or not self.has_memory or found.linked or self.copied:
            return ""
        lasts = float(np.mean(found.lags[:_NEAR])) > _LASTS
        return f'{join_words(self.white, "or")} as "matern-1/2", which lasts a while, instead of "white"' * lasts

    @property
    def _turns_slowly(self) -> bool:
        """Whether residuals stay on one side for a while: slow waves have a strong lag below zero, half a period on."""
        return self.memory > 0.0 or self._strongest[1] > 0.0

    @property
    def _strongest(self) -> tuple[int, float]:
        """The correlation of neighbours, or that at another lag where it is clearly stronger; and which lag."""
        if self.whiteness is None:
            return 1, self.memory
        lags = self.whiteness.lags
        place = max(range(len(lags)), key=lambda k: abs(lags[k]))
        place = place if abs(lags[place]) > abs(lags[0]) + _STRONGER else 0
        return place + 1, lags[place]

    @property
    def lag(self) -> str:
        """The strongest of the correlations of neighbours, in words."""
        lag, value = self._strongest
        return f"lag {lag}: {value:.2f}" if abs(value) < 0.995 else f"lag {lag}: {value:.4f}"

    def pace(self, time_unit: str) -> str:
        """Return how slow or fast that is which is missing, in words."""
        found = self.whiteness
        if found is None or found.periodogram_p_value > LEVEL or not found.period > 0:
            return "that lasts longer than a step"
        if found.excursion < 0 and self.slower:
            # White noise that stands in for something slow is too strong from row to row, which the periodogram sees.
            return "that lasts longer than a step"
        return f"{'slower' if found.excursion > 0 else 'faster'} than {amount(found.period, time_unit)}"

    def _cause(self, time_unit: str) -> str:
        if self.copied:
            return "rows stand there twice, with the same time and value; leave the copies out"
        return f"the equations miss something {self.pace(time_unit)}, or errors are not independent"

    def _effect(self, widening: float) -> str:
        """Return what that does to intervals."""
        if widening >= _WIDER:
            return f"intervals of parameters are widened for it, by factors of up to {widening:.1f}"
        if self.whiteness is not None and self.whiteness.innovations and self.inflation < _WIDER:
            # Neighbours alone tell no more than that: only without free functions it is known what errors do.
            return "intervals of parameters may be too narrow"
        if widening >= 1.0:
            return "that does not touch the intervals of parameters"
        return f"intervals are too narrow, as a rule of thumb by a factor of up to {self.inflation:.1f}"

    @property
    def inflation(self) -> float:
        """By how much less certain a mean is than that of independent errors, where each resembles the last.

        Where something lasts that counts as white noise, neighbours are the least alike, and all lags count.
        """
        largest = min(max(self.memory, 0.0), 0.999)
        every = sum(self.whiteness.lags) if self.whiteness is not None and self.slower else 0.0
        return math.sqrt(max((1 + largest) / (1 - largest), 1 + 2 * every))

    @property
    def is_loud(self) -> bool:
        """Whether residuals are larger than the noise by more than chance, and enough to matter."""
        return self.size > 1 + max(_LOUD, _DEVIATIONS / math.sqrt(2 * max(self.looked, 1)))

    @property
    def is_low(self) -> bool:
        """Whether the curve explains little of the data, though more could be explained."""
        return self.count >= FEW and self.explained < _LOW and not self.expected < _LOW + _MORE


def check_residuals(
    item: Series,
    found: Remainder,
    level: float,
    inputs: Mapping[str, InputSignal] | None = None,
    chance: float = LEVEL,
) -> Check:
    """Return what the residuals of one observable say.

    Parameters
    ----------
    item : Series
        The measurements.
    found : Remainder
        What the fit leaves of them.
    level : float
        The standard deviation of noise that was learned.
    inputs : dict of str to InputSignal, optional
        Known inputs, which residuals should not go with.
    chance : float
        The likelihood below which residuals are called correlated.
    """
    noise = item.noise_with(level)
    changes = found.variance > (1e-9 * float(np.max(np.abs(item.values)))) ** 2
    known = 1.0 - float(np.mean(noise**2)) / found.variance if changes and not item.learned.any() else math.nan
    explained = 1.0 - found.left / found.variance if changes and len(item.times) > 1 else math.nan
    whiteness = judge_whiteness(found.times, found.values, innovations=found.innovations, inputs=inputs, level=chance)
    memory = 0.0 if whiteness is None else whiteness.lags[0]
    predicted = math.nan if math.isnan(found.missed) or not changes else 1.0 - found.missed / found.variance
    sizes = len(item.times), len(found.times), found.size
    copied, outliers = item.has_copies, found.outliers
    return Check(item.observable, *sizes, memory, explained, known, whiteness, "", predicted, copied, outliers)


def residual_doubts(
    checks: Sequence[Check], *, is_shared: bool, time_unit: str = "", widening: float = math.nan
) -> list[str]:
    """Return what speaks against a fit, in sentences that each say what to try; none where residuals look like noise.

    Parameters
    ----------
    checks : sequence of Check
        One for each observable.
    is_shared : bool
        Whether one level of noise was learned for all.
    time_unit : str
        Of the time.
    widening : float
        The largest factor by which intervals were widened for correlated residuals; NaN where that is not known.
    """
    found = warn_of_outliers({check.title: check.outliers for check in checks}, time_unit)
    found += [
        check.sentence(time_unit, widening)
        + "; look at the residuals for what is missing" * (check.has_memory and not check.copied and not check.slower)
        for check in checks
        if check.is_doubtful
    ]
    loud = [f"{check.title} ({check.size:.1f} times)" for check in checks if check.is_loud]
    if loud and is_shared and len({check.name for check in checks}) > 1:
        found.append(
            f"residuals are larger than the shared noise in {join_words(loud)}: "
            'noise="channel" learns one level for each'
        )
    elif loud:
        found.append(
            f"residuals are larger than the noise in {join_words(loud)}: it is set too small, or the equations miss "
            "something; leave noise_std out to learn it"
        )
    low = [f"{max(check.explained, 0.0):.0%} of {check.title}" for check in checks if check.is_low]
    if low:
        found.append(
            f"the curves explain little of the variance of the data, {join_words(low)}; the rest counts as noise: "
            "where it is none, try start values, or other equations"
        )
    return found
