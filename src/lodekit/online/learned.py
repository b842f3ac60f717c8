"""What learning errs by, as alarms see it: how much larger sums of scores may be than those of the truth.

Where sums of scores vary more than they should, a threshold is crossed more often, and steeply so: a tenth more
variance makes half as many alarms again. Errors of what was learned do that, in both directions, and the mean of all is
above what the truth would give. So the threshold is one whose rate is right on average over all that data leave open.

A sum crosses a threshold h with the reference k within some h/k scores or less, so the variance of sums of that many
is what counts: scores of a filter that is slightly wrong have a memory. How it changes is read off the record itself,
taken in by filters one standard deviation beside the one that was learned: their scores are to this one's as those of
the stream are to the truth's.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from lodekit.data.observations import Series
from lodekit.errors import LodekitError
from lodekit.fitted import Fit
from lodekit.inference.markov.engine import MarkovEngine
from lodekit.inference.markov.layout import MarkovData
from lodekit.inference.turns import Turns
from lodekit.online.cusum import span_of, threshold_among, threshold_for

__all__ = ["LATEST", "draw_log_variances", "find_threshold"]

Array = NDArray[np.float64]
#: Rows of the record, its last ones, that are taken in again.
LATEST = 20_000
#: Draws of what was learned.
_DRAWS = 1024
#: Sums shorter than this share of a record tell their variance.
_SHARE = 8
#: A logarithm of a variance is taken to be no further from zero: the data leave more open than a threshold can mend.
_MOST = 1.0
_NONE = np.zeros((0, 0))
#: What was found about fits, by the length of sums.
_KNOWN: WeakKeyDictionary[Fit, dict[int, Array]] = WeakKeyDictionary()


def find_threshold(fit: Fit, series: Sequence[Series], false_alarms: float, shift: float) -> float:
    """Return the threshold of cumulative sums that makes alarms at a rate, on average over what may have been learned.

    Parameters
    ----------
    fit : Fit
        Of one record.
    series : sequence of Series
        The record, or the end of it: one series for each observable of the prior, in its order; none where no
        measurement is left, and what was learned is taken for the truth.
    false_alarms : float
        Alarms for each row.
    shift : float
        The change of scores that is found fastest.
    """
    # All observables share the rate.
    rate, reference = false_alarms / len(fit.prior.noise.observables), 0.5 * shift
    length = span_of(threshold_for(rate, reference), reference)
    known = _KNOWN.setdefault(fit, {})
    if length not in known:
        known[length] = draw_log_variances(fit, series, length) if any(len(item.times) for item in series) else _NONE
    return threshold_among(rate, reference, known[length])


def draw_log_variances(fit: Fit, series: Sequence[Series], length: int) -> Array:
    """Return logarithms of the variance of sums of scores, over what it should be, in draws of all that was learned.

    Parameters
    ----------
    fit : Fit
        Of one record.
    series : sequence of Series
        The record, or the end of it: one series for each observable of the prior, in its order.
    length : int
        Of the sums.

    Returns
    -------
    logs : array, shape (draws, o); of no draws where nothing was learned, or nothing can be told
    """
    count = len(fit.prior.noise.observables)
    roots = fit.uncertainty.roots
    engine = MarkovEngine(MarkovData.of(fit.prior, _last_rows(series)))

    def look(x: Array) -> Array | None:
        try:
            turns = engine.turns(fit.layout.unpack(x))
            return None if turns is None else _log_variances(turns, count, length)
        except (LodekitError, np.linalg.LinAlgError):
            # One deviation away nothing may be finite: nothing is told of that direction then.
            return None

    with fit.setup.threads(), np.errstate(all="ignore"):
        centre = look(fit.optimum.x)
        if centre is None or not roots.shape[1]:
            return np.zeros((0, count))
        tilts, bends = [], []
        for root in roots.T:
            sides = [look(fit.optimum.x + sign * root) for sign in (1.0, -1.0)]
            up, down = (np.zeros(count) if side is None else _bounded(side - centre) for side in sides)
            tilts.append(0.5 * (up - down))
            bends.append(0.5 * (up + down))
    drawn = np.random.default_rng(0).standard_normal((_DRAWS // 2, len(tilts)))
    drawn = np.concatenate([drawn, -drawn])
    return _bounded(drawn @ np.array(tilts) + drawn**2 @ np.array(bends))


def _bounded(logs: Array) -> Array:
    return np.clip(np.where(np.isfinite(logs), logs, 0.0), -_MOST, _MOST)


def _last_rows(series: Sequence[Series]) -> list[Series]:
    """Return the end of a record: all that was measured from some time on."""
    longest = max((item.times for item in series), key=len)
    if len(longest) <= LATEST:
        return list(series)
    return [item.take(item.times >= longest[-LATEST]) for item in series]


def _log_variances(turns: Turns, count: int, length: int) -> Array:
    """Return the logarithm of the variance of sums of scores, for each observable; NaN where there are too few."""
    found = np.full(count, np.nan)
    for number in range(count):
        scores = turns.innovations[turns.observables == number]
        own = min(length, len(scores) // _SHARE)
        if own:
            sums = np.cumsum(np.concatenate([[0.0], scores]))
            found[number] = np.log(np.mean((sums[own:] - sums[:-own]) ** 2) / own)
    return found
