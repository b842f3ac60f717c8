"""Measurements in their turn by the engine that suits: a filter in linear time, or a matrix."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from lodekit.data.observations import Series
from lodekit.inference.dense.data import DenseData
from lodekit.inference.dense.innovations import take_in_turn
from lodekit.inference.markov.engine import MarkovEngine
from lodekit.inference.markov.layout import MarkovData
from lodekit.inference.turns import Turns
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.prior import Prior

__all__ = ["is_filtered", "runs_of", "take_turns"]

#: A matrix takes so many runs of so many measurements at most.
_RUNS, _RUN = 6, 500


def is_filtered(engine: str, prior: Prior) -> bool:
    """Return whether measurements of an engine are taken in turn by a filter, however many there are; else by a matrix.

    A matrix takes means and totals over intervals, too, unless there are disturbances, of which it knows nothing.

    Parameters
    ----------
    engine : str
        The one of the fit.
    prior : Prior
    """
    own = prior.observables
    return engine == "markov" and (own.windows is None or own.disturbed is not None)


def take_turns(
    engine: str, prior: Prior, series: Sequence[Series], hyper: Hyperparameters, first: frozenset[int] = frozenset()
) -> Turns | None:
    """Return measurements in the order of time; None where rounding hides what each one adds.

    A measurement minus its prediction from all that were made before, and from those of observables before it at the
    same time, divided by the standard deviation of that prediction, is its innovation. Where the model holds these are
    independent and standard normal, however flexible it is; measurements minus the posterior mean are neither.

    Parameters
    ----------
    engine : str
        The one of the fit.
    prior : Prior
    series : sequence of Series
        The measurements, noise above zero, those of each observable in the order of time.
    hyper : Hyperparameters
    first : set of int
        Numbers of observables whose measurements all come before the others, which a filter does not know.
    """
    if is_filtered(engine, prior) and not first:
        return MarkovEngine(MarkovData.of(prior, series)).turns(hyper)
    return take_in_turn(DenseData.of(prior, series), hyper, first)


def runs_of(series: Sequence[Series]) -> Iterator[Sequence[Series]]:
    """Yield all measurements, or those in a few runs of neighbouring times where there are many.

    Parameters
    ----------
    series : sequence of Series
        Of each observable.
    """
    times = np.sort(np.concatenate([item.times for item in series]))
    if len(times) <= _RUN:
        yield series
        return
    after = -math.inf
    for first in np.linspace(0, len(times) - _RUN, _RUNS).astype(int).tolist():
        low, high = float(times[first]), float(times[first + _RUN - 1])
        run = [item.take((item.times >= low) & (item.times <= high) & (item.times > after)) for item in series]
        after = high
        if all(len(item.times) for item, whole in zip(run, series, strict=True) if len(whole.times)):
            yield run
