"""Whether residuals are independent: correlations of neighbours, their periodogram, and what known inputs tell of them.

Residuals are taken in the order of their times. Of independent ones that order says nothing, so all tests hold for
irregular times as well; correlations at a lag are those of pairs that are not much farther apart than so many typical
steps, and pairs across gaps are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, kolmogorov, ndtr

from lodekit.data.inputs import InputSignal

__all__ = [
    "FEW",
    "LAGS",
    "LEVEL",
    "Link",
    "Whiteness",
    "cumulated_periodogram",
    "judge_whiteness",
    "lag_correlations",
    "periodogram_band",
    "typical_step",
]

Array = NDArray[np.float64]
#: Fewer residuals say nothing about noise.
FEW = 10
#: Correlations are computed up to this lag, or a fifth of the residuals.
LAGS = 10
#: Of fits that miss nothing, this share is called correlated.
LEVEL = 0.05
#: Correlations below this do not matter, however sure they are.
_SMALL = 0.1
#: An input that changes at more than this share of its samples may be a curve that was sampled.
_NEARLY_ALL = 0.8
#: Pairs this many times farther apart than their typical distance are no neighbours.
_APART = 1.5
#: The 95 % quantile of the Kolmogorov distribution.
_KOLMOGOROV_95 = 1.3580986393225505


@dataclass(frozen=True)
class Link:
    """How residuals go with a known input.

    Parameters
    ----------
    correlation : float
        The one that is farthest from zero, of the input so much earlier.
    delay : float
        By how much, in the user's time.
    p_value : float
        How likely independent residuals show as much at some delay.
    restless : bool
        Whether the input is held between its samples and changes at nearly every one, as samples of a curve do.
    """

    correlation: float
    delay: float
    p_value: float
    restless: bool = False

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Link:
        """Return what ``dataclasses.asdict`` has taken apart; None stands for what is not finite."""
        plain: dict[str, Any] = {key: math.nan if value is None else value for key, value in state.items()}
        return cls(**plain)


@dataclass(frozen=True)
class Whiteness:
    """What speaks for or against independent residuals.

    Parameters
    ----------
    innovations : bool
        Whether these are innovations, each measurement minus its prediction from those before, as free functions
        demand; else measurements minus the fitted curve.
    step : float
        The typical distance of neighbours, in the user's time.
    lags : tuple of float
        Correlations at the lags 1, 2, and so on.
    ljung_box, p_value : float
        The statistic of Ljung and Box over these lags, and how likely independent residuals exceed it.
    excursion, band : float
        How far the cumulated periodogram is from a straight line, with the sign of that place, positive where slow
        changes have too much power; and how far that of independent residuals is in 95 of 100 cases.
    periodogram_p_value : float
        How likely independent residuals exceed it.
    period : float
        The period at that place, in the user's time: what is missing is slower, or faster where the sign is negative.
    links : dict of str to Link
        Correlations with known inputs, by name.
    level : float
        Below which likelihood residuals are called correlated.
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
    links: Mapping[str, Link] = field(default_factory=dict)
    level: float = LEVEL

    @property
    def is_correlated(self) -> bool:
        """Whether residuals are correlated by more than chance, and enough to matter; both tests count."""
        return self.chance < self.level and max(map(abs, self.lags), default=0.0) > _SMALL

    @property
    def chance(self) -> float:
        """How likely independent residuals look as bad in one of both tests."""
        return min(1.0, 2.0 * min(self.p_value, self.periodogram_p_value))

    @property
    def linked(self) -> list[str]:
        """The inputs that residuals go with by more than chance, and enough to matter."""
        shared = self.level / max(len(self.links), 1)
        return [n for n, link in self.links.items() if link.p_value < shared and abs(link.correlation) > _SMALL]

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Whiteness:
        """Return what ``dataclasses.asdict`` has taken apart; None stands for what is not finite.

        Parameters
        ----------
        state : dict
        """
        plain: dict[str, Any] = {key: math.nan if value is None else value for key, value in state.items()}
        links = {name: Link.from_dict(link) for name, link in state["links"].items()}
        plain |= {"lags": tuple(state["lags"]), "links": links}
        return cls(**plain)


def lag_correlations(times: Array, values: Array, count: int) -> tuple[Array, Array]:
    """Return correlations at the lags one to `count`, and how many pairs each comes from.

    Parameters
    ----------
    times, values : arrays, shape (n,)
        In the order of time; values about zero.
    count : int
        The largest lag.

    Examples
    --------
    >>> lag_correlations(np.arange(4.0), np.array([1.0, -1.0, 1.0, -1.0]), 2)[0].round(9).tolist()
    [-1.0, 1.0]
    """
    step = typical_step(times)
    found, pairs = np.zeros(count), np.zeros(count)
    for lag in range(1, count + 1):
        near = times[lag:] - times[:-lag] <= _APART * lag * step
        pairs[lag - 1] = near.sum()
        late, early = values[lag:][near], values[:-lag][near]
        size = float(np.linalg.norm(late) * np.linalg.norm(early))
        if size > 0:
            found[lag - 1] = float(late @ early) / size
    return found, pairs


def typical_step(times: Array) -> float:
    """Return the typical distance of neighbouring times, the median."""
    return float(np.median(np.diff(times))) if len(times) > 1 else 1.0


def cumulated_periodogram(values: Array) -> tuple[Array, Array]:
    """Return frequencies in cycles for each residual, up to a half, and the share of the power up to each.

    Parameters
    ----------
    values : array, shape (n,)
    """
    power = np.abs(np.fft.rfft(values)[1 : (len(values) - 1) // 2 + 1]) ** 2
    total = float(power.sum())
    share = np.cumsum(power) / total if total > 0 else np.linspace(0.0, 1.0, len(power) + 1)[1:]
    return np.arange(1, len(power) + 1) / len(values), share


def periodogram_band(count: int) -> float:
    """Return how far from a straight line the cumulated periodogram of independent values is in 95 of 100 cases.

    Parameters
    ----------
    count : int
        Number of frequencies.
    """
    return _KOLMOGOROV_95 / _sharpness(count)


def _sharpness(count: int) -> float:
    """Return by what an excursion is multiplied that follows the Kolmogorov distribution then."""
    # The shares below the last one are distributed like so many ordered uniform numbers; the rest is Stephens' formula.
    root = math.sqrt(max(count - 1, 1))
    return root + 0.12 + 0.11 / root


def judge_whiteness(
    times: Array,
    values: Array,
    *,
    innovations: bool = False,
    inputs: Mapping[str, InputSignal] | None = None,
    level: float = LEVEL,
) -> Whiteness | None:
    """Return what speaks for or against independent residuals; None where there are too few of them.

    Parameters
    ----------
    times, values : arrays, shape (n,)
        Residuals in units of the noise, in the order of their times.
    innovations : bool
        Whether these are innovations.
    inputs : dict of str to InputSignal, optional
        Known inputs.
    level : float
        Below which likelihood residuals are to be called correlated.
    """
    size = len(values)
    if size < FEW or not np.any(values):
        return None
    count = max(1, min(LAGS, size // 5))
    lags, pairs = lag_correlations(times, values, count)
    # With all pairs this is the statistic of Ljung and Box: its correlations are divided by n, and not by the pairs.
    statistic = float((size + 2) / size * np.sum(pairs * lags**2))
    used = int(np.sum(pairs > 0))
    step = typical_step(times)
    frequencies, share = cumulated_periodogram(values)
    line = np.arange(1, len(share) + 1) / len(share)
    away = share[:-1] - line[:-1] if len(share) > 1 else np.zeros(1)
    place = int(np.argmax(np.abs(away)))
    excursion = float(away[place])
    links = {name: _link(times, values, signal, step, lags) for name, signal in (inputs or {}).items() if step > 0}
    return Whiteness(
        innovations=innovations,
        step=step,
        lags=tuple(float(each) for each in lags),
        ljung_box=statistic,
        p_value=float(chdtrc(used, statistic)) if used else 1.0,
        excursion=excursion,
        band=periodogram_band(len(share)),
        periodogram_p_value=float(kolmogorov(abs(excursion) * _sharpness(len(share)))),
        period=step / float(frequencies[place]),
        links={name: link for name, link in links.items() if link is not None},
        level=level,
    )


def _link(times: Array, values: Array, known: InputSignal, step: float, lags: Array) -> Link | None:
    """Return the correlation with an input that is farthest from zero, over delays of up to some steps."""
    best, delay, count, now = 0.0, 0.0, len(lags) + 1, known.at(times)
    own = values - values.mean()
    # An input that does not change goes with nothing: what is left of it is rounding.
    least = 1e-12 * len(values) * float(np.abs(now).max() or 1.0)
    for k in range(count):
        earlier = known.at(times - k * step)
        earlier = earlier - earlier.mean()
        size = float(np.linalg.norm(earlier) * np.linalg.norm(own))
        if size <= least:
            continue
        found = float(own @ earlier) / size
        if abs(found) > abs(best):
            best, delay = found, k * step
    if not best:
        return None
    memory, _ = lag_correlations(times, now - now.mean(), len(lags))
    # Where both are slow, they resemble each other by chance.
    variance = max(1.0, 1.0 + 2.0 * float(lags @ memory)) / len(values)
    chance = 2.0 * float(ndtr(-abs(best) / math.sqrt(variance)))
    return Link(best, delay, min(1.0, count * chance), _is_restless(known, times, step))


def _is_restless(known: InputSignal, times: Array, step: float) -> bool:
    """Return whether an input is held and changes at nearly every sample, as often as residuals are there."""
    own = known.between(float(times[0]), float(times[-1]))
    if own.kind != "hold" or len(own.times) < FEW:
        return False
    # Of files that are not read into memory, samples that change nothing are not kept: those left are far apart.
    return bool(np.mean(np.diff(own.values) != 0.0) > _NEARLY_ALL and typical_step(own.times) <= _APART * step)
