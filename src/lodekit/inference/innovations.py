"""Innovations and k-step forecast errors, by a Kalman filter in linear time or by a covariance factor."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import numpy as np

from lodekit.data.observations import TimeSeries
from lodekit.inference.dense.covariance import DenseData
from lodekit.inference.dense.engine import compute_dense_innovations
from lodekit.inference.engine import EngineFactory
from lodekit.inference.kalman.blocks import KalmanData
from lodekit.inference.kalman.engine import KalmanEngine
from lodekit.prior.prior import Hyperparameters, Prior
from lodekit.support.arguments import Array, IndexArray


class InnovationSequence(Protocol):
    """Measurements one after the other, in the order of time; at one time, in the order of names."""

    @property
    def times(self) -> Array:
        """When they were made, in the user's units, shape (m,)."""

    @property
    def observables(self) -> IndexArray:
        """The number of the observable of each, shape (m,)."""

    @property
    def standardized(self) -> Array:
        """Each minus its prediction from those before, over the deviation of that: standard normal, shape (m,)."""

    @property
    def std(self) -> Array:
        """The deviation of each from that prediction, in the user's units, shape (m,)."""

    def prediction_errors(self, rows: IndexArray, n_known: IndexArray) -> tuple[Array, Array]:
        """Return some measurements minus predictions of them from the first ones, and the deviations of that.

        Both in the user's units, shape (k,).

        Shapes: rows (k,), n_known (k,).
        """


@runtime_checkable
class BatchedPosterior(Protocol):
    """The posterior of a record that is read from disk in batches of rows."""

    def last_series(self) -> list[TimeSeries]:
        """Return the measurements of the last batch."""

    def last_innovations(self) -> InnovationSequence:
        """Return the innovations of the last batch, given all batches before it."""

    def find_tail(self, min_rows: int) -> int:
        """Return the first batch of the last ones that have at least `min_rows` rows together."""

    def first_row(self, batch: int) -> int:
        """Return the number of the first row of a batch."""

    def summarize_before(self, batch: int) -> tuple[float, float, tuple[Array | None, ...]]:
        """Return log evidence and error of all batches before one, and arrays that a filter continues from."""


@dataclass(frozen=True)
class Horizon:
    """How far ahead predictions are.

    steps: So many rows of the observable itself.
    time: So much time in place of that, in the user's units.
    """

    steps: int = 1
    time: float | None = None

    def count_known(self, times: Array, row_times: Array) -> IndexArray:
        """Return how many measurements are known for each row of an observable.

        Shapes: times (m,), row_times (n,).
        """
        if self.time is not None:
            # A difference of times has the errors of both.
            near = 4.0 * np.spacing(np.abs(times).max(initial=0.0))
            return np.asarray(np.searchsorted(times, row_times - self.time + near, side="right"), dtype=np.intp)
        found = np.zeros(len(row_times), dtype=np.intp)
        found[self.steps :] = np.searchsorted(times, row_times[: max(len(row_times) - self.steps, 0)], side="right")
        return found


def forecast_errors(
    sequence: InnovationSequence, requested: Sequence[tuple[int, Horizon]], first: int = 0
) -> list[tuple[Array, Array]]:
    """Return measurements minus predictions some rows or time ahead, and the deviations of these.

    For each requested observable and horizon. Each measurement is predicted from all that was measured up to the time
    of the row so many rows before, other observables at that time included, or up to so long before; the first rows
    from the prior. One pass over the measurements serves all requests.
    """
    rows = [np.flatnonzero(sequence.observables == observable) for observable, _ in requested]
    if not rows:
        return []
    known = [
        np.minimum(first + horizon.count_known(sequence.times[first:], sequence.times[own]), own)
        for own, (_, horizon) in zip(rows, requested, strict=True)
    ]
    edges = np.cumsum([len(own) for own in rows])[:-1]
    errors, deviations = sequence.prediction_errors(np.concatenate(rows), np.concatenate(known))
    return list(zip(np.split(errors, edges), np.split(deviations, edges), strict=True))


#: A matrix takes so many runs of so many measurements at most.
_N_SEGMENTS, _SEGMENT_ROWS = 6, 500


def uses_kalman_filter(factory: EngineFactory, prior: Prior) -> bool:
    """Return whether innovations come from a Kalman filter, for any number of rows; otherwise from a covariance factor.

    Interval means use the covariance factor as well, unless there are disturbances, which it cannot represent.
    """
    observables = prior.observables
    return factory.has_states and (observables.windows is None or observables.disturbances is not None)


def create_filter(
    factory: EngineFactory, prior: Prior, series: Sequence[TimeSeries], given_observables: frozenset[int] = frozenset()
) -> Callable[[Hyperparameters], InnovationSequence | None]:
    """Return a function that computes the innovations of measurements at given hyperparameters.

    They are in the order of time; None if rounding hides what each measurement adds. The innovation of a measurement is
    its difference from the prediction from all that were made before, and from those at the same time whose names are
    before its own, divided by the standard deviation of that prediction. If the model holds, innovations are
    independent and standard normal, however flexible it is; measurements minus the posterior mean are neither.
    """
    if uses_kalman_filter(factory, prior) and not given_observables:
        return KalmanEngine(KalmanData.from_series(prior, series)).compute_innovations
    data = DenseData.from_series(prior, series)
    return partial(compute_dense_innovations, data, given_observables=given_observables)


def split_into_segments(series: Sequence[TimeSeries]) -> Iterator[Sequence[TimeSeries]]:
    """Yield all measurements, or those in a few runs of neighbouring times where there are many."""
    # Each series ascends: a stable sort merges them.
    times = np.sort(np.concatenate([item.times for item in series]), kind="stable")
    if len(times) <= _SEGMENT_ROWS:
        yield series
        return
    after = -math.inf
    for first in np.linspace(0, len(times) - _SEGMENT_ROWS, _N_SEGMENTS).astype(int).tolist():
        low, high = float(times[first]), float(times[first + _SEGMENT_ROWS - 1])
        run = []
        for item in series:
            start = max(int(np.searchsorted(item.times, low)), int(np.searchsorted(item.times, after, side="right")))
            run.append(item.select(slice(start, int(np.searchsorted(item.times, high, side="right")))))
        after = high
        if all(len(item.times) for item, whole in zip(run, series, strict=True) if len(whole.times)):
            yield run
