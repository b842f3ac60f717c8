"""Innovations and k-step forecast errors, by a Kalman filter in linear time or by a covariance factor."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import numpy as np

from lodekit.data.observations import TimeSeries
from lodekit.inference.dense.engine import compute_dense_innovations
from lodekit.inference.dense.evidence import DenseData
from lodekit.inference.engine import EngineFactory
from lodekit.inference.kalman.blocks import KalmanData
from lodekit.inference.kalman.engine import KalmanEngine
from lodekit.prior.prior import Hyperparameters, Prior
from lodekit.support.arguments import Array, IndexArray


class InnovationSequence(Protocol):
    """The innovations of measurements in the order of time; at the same time, in the order of names."""

    @property
    def times(self) -> Array:
        """The times of the measurements, in the user's units, shape (m,)."""

    @property
    def observables(self) -> IndexArray:
        """The number of the observable of each measurement, shape (m,)."""

    @property
    def standardized(self) -> Array:
        """Innovations divided by their standard deviations: standard normal if the model holds, shape (m,)."""

    @property
    def std(self) -> Array:
        """The standard deviations of the innovations, in the user's units, shape (m,)."""

    def prediction_errors(self, rows: IndexArray, n_known: IndexArray) -> tuple[Array, Array]:
        """Return errors of predictions from the first `n_known` measurements, and their standard deviations.

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
        """Return the first of the last batches that together have at least `min_rows` rows."""

    def first_row(self, batch: int) -> int:
        """Return the number of the first row of a batch."""

    def summarize_before(self, batch: int) -> tuple[float, float, tuple[Array | None, ...]]:
        """Return log evidence and error of all batches before one, and the arrays from which a filter continues."""


@dataclass(frozen=True)
class Horizon:
    """The horizon of predictions.

    steps: Number of rows of the observable itself.
    time: Time ahead, in the user's units, which replaces the number of rows.
    """

    steps: int = 1
    time: float | None = None

    def count_known(self, times: Array, row_times: Array) -> IndexArray:
        """Return how many measurements are known for each row of an observable.

        Shapes: times (m,), row_times (n,).
        """
        if self.time is not None:
            # A difference of times has the rounding errors of both.
            near = 4.0 * np.spacing(np.abs(times).max(initial=0.0))
            return np.asarray(np.searchsorted(times, row_times - self.time + near, side="right"), dtype=np.intp)
        found = np.zeros(len(row_times), dtype=np.intp)
        found[self.steps :] = np.searchsorted(times, row_times[: max(len(row_times) - self.steps, 0)], side="right")
        return found


def forecast_errors(
    sequence: InnovationSequence, requested: Sequence[tuple[int, Horizon]], first: int = 0
) -> list[tuple[Array, Array]]:
    """Return forecast errors of each requested observable and horizon, and their standard deviations.

    Each measurement is predicted from all measurements up to the time of the row `steps` rows before, including other
    observables at that time, or up to `time` before; the first rows are predicted from the prior. One pass over the
    measurements serves all requests.
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


#: The dense engine uses at most this many segments, of this many measurements each.
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

    They are in the order of time; None if rounding errors dominate. A standardized innovation is the difference of a
    measurement and its prediction from all earlier ones, and from those at the same time that precede it by name,
    divided by the standard deviation of this difference. If the model holds, these are independent and standard normal,
    however flexible the model is; measurements minus the posterior mean are neither.
    """
    if uses_kalman_filter(factory, prior) and not given_observables:
        return KalmanEngine(KalmanData.from_series(prior, series)).compute_innovations
    data = DenseData.from_series(prior, series)
    return partial(compute_dense_innovations, data, given_observables=given_observables)


def split_into_segments(series: Sequence[TimeSeries]) -> Iterator[Sequence[TimeSeries]]:
    """Yield all measurements, or those in a few segments of consecutive times if there are many."""
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
