"""Where a record ends: mean and covariance of the states there, given all of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.data.observations import Series
from lodekit.inference.markov.engine import MarkovEngine
from lodekit.inference.markov.evaluation import Solved
from lodekit.inference.markov.layout import MarkovData
from lodekit.inference.markov.online import Leaps, take
from lodekit.inference.markov.piecewise import PiecesPosterior
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.prior import Prior

__all__ = ["Ending", "end_of", "end_of_pieces"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Ending:
    """The states at the last time of a record.

    Parameters
    ----------
    time : float
        In the user's unit.
    mean : array, shape (s,)
    root : array, shape (s, s)
        Of the covariance.
    """

    time: float
    mean: Array
    root: Array


def end_of(prior: Prior, series: Sequence[Series], hyper: Hyperparameters) -> Ending:
    """Return the states at the last time of a record: by blocks up to the last one, through this row by row.

    Parameters
    ----------
    prior : Prior
        Its free functions have finitely many states.
    series : sequence of Series
        One for each observable of the prior, in its order; none of them is averaged over intervals.
    hyper : Hyperparameters
    """
    data = MarkovData.of(prior, series)
    return _walk(data, MarkovEngine(data).posterior(hyper).solved)


def end_of_pieces(posterior: PiecesPosterior) -> Ending:
    """Return the states at the last time of a record on disk.

    Parameters
    ----------
    posterior : PiecesPosterior
    """
    last = posterior.piece(len(posterior.borders) - 1)
    return _walk(last.data, last.solved)


def _walk(data: MarkovData, solved: Solved) -> Ending:
    """Return the states at the last time: through the last block row by row."""
    own, last = solved.filter, solved.filter.layout.blocks - 1
    layout, space, carried, smoothed = own.layout, own.space, own.carried, solved.smoothed
    root = carried.root[last]
    # Before the block itself has told anything.
    mean = smoothed.updated[last, :, 0] - carried.gain[last] @ smoothed.seen[last, :, 0]
    leaps = Leaps(space)
    steps = [leaps.make(length) if length else None for length in layout.lengths.tolist()]
    deviations = np.sqrt(own.variance)
    for place in range(layout.places):
        numbers = layout.numbers[last, place]
        there = numbers >= 0
        numbers, rows = numbers[there], space.readings[layout.observed[last, place][there]]
        found = take(steps[layout.steps[last, place]], mean, root, rows, deviations[numbers])
        mean, root = found.updated(solved.residual[numbers] - rows @ found.mean), found.root
    return Ending(float(data.times[-1]), mean, root)
