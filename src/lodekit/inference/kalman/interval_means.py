"""Interval means as measurements: averaging states that integrate an observable over an interval.

A mean over the interval that ends at a time is the value of a state that was reset at the start of the interval and
integrates the observable (state augmentation). Overlapping intervals need separate states; an interval that begins
after the end of another one reuses its state. Modes need none: their means are linear in the states already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lodekit.errors import LodekitError
from lodekit.inference.kalman.state_space import StateSpaceGradient, StateSpaceModel
from lodekit.prior.compile import Coefficients
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Hyperparameters
from lodekit.support.arguments import Array, IndexArray, Mask

#: Intervals that may overlap.
_MAX_OPEN_INTERVALS = 64


@dataclass(frozen=True)
class AveragingStates:
    """Averaging states and their intervals.

    observable_index, window_lengths: The observable of each state, and the scaled length of its intervals; (c,).
    interval_starts, state_index: The scaled starts of all intervals, and the states that are reset there; (i,).
    first_rows: The first row of each observable in H: one for each of its states, or one if it has none; (o,).
    row_index: The row of each value in H; (m,).
    """

    observable_index: IndexArray
    window_lengths: Array
    interval_starts: Array
    state_index: IndexArray
    first_rows: IndexArray
    row_index: IndexArray

    @classmethod
    def of(
        cls, window_lengths: Array, interval_ends: Sequence[Array], times: Array, resolution: float
    ) -> AveragingStates:
        """Assign the intervals of some values to states.

        Shapes: window_lengths (o,).
        """
        owners: list[int] = []
        none, firsts, rows, starts = np.zeros(0, dtype=np.intp), [], 0, [np.zeros(0)]
        states: list[IndexArray] = [none]
        row_index: list[IndexArray] = [none]
        for number, (window, ends) in enumerate(zip(window_lengths.tolist(), interval_ends, strict=True)):
            firsts.append(rows)
            if not window:
                row_index.append(np.full(len(ends), rows))
                rows += 1
                continue
            distinct, which = np.unique(ends, return_inverse=True)
            begin = _snap_to_times(distinct - window, times, resolution)
            # The number of open intervals at the start of each interval, including itself.
            depth = np.arange(1, len(begin) + 1) - np.searchsorted(distinct, begin, side="right")
            count = max(1, int(depth.max(initial=1)))
            state = np.arange(len(begin)) % count
            starts.append(begin)
            states.append(len(owners) + state)
            row_index.append(rows + state[which.reshape(-1)])
            owners += [number] * count
            rows += count
        if len(owners) > _MAX_OPEN_INTERVALS:
            raise LodekitError(
                f"expected intervals of which at most {_MAX_OPEN_INTERVALS} are open at the same time, got "
                f"{len(owners)}: the Markov engine needs a state for each; use engine='dense', or every second value "
                "or fewer"
            )
        index = np.array(owners, dtype=np.intp)
        state_index, rows_of = (np.concatenate(parts).astype(np.intp) for parts in (states, row_index))
        return cls(index, window_lengths[index], np.concatenate(starts), state_index, np.array(firsts), rows_of)

    def __len__(self) -> int:
        return len(self.observable_index)

    def starts_at(self, row_times: Array) -> Mask:
        """Return which states are reset in each row, shape (n, c), for rows of times (n,)."""
        is_reset = np.zeros((len(row_times), len(self)), dtype=bool)
        # After all measurements at that time.
        is_reset[np.searchsorted(row_times, self.interval_starts, side="right") - 1, self.state_index] = True
        return is_reset


def _snap_to_times(values: Array, times: Array, resolution: float) -> Array:
    """Replace values by times that agree with them up to the resolution."""
    if not len(times):
        return values
    right = np.clip(np.searchsorted(times, values), 0, len(times) - 1)
    left = np.maximum(right - 1, 0)
    near = np.where(np.abs(times[left] - values) < np.abs(times[right] - values), times[left], times[right])
    return np.where(np.abs(near - values) <= resolution, near, values)


@dataclass(frozen=True, kw_only=True)
class AveragedStateSpaceModel(StateSpaceModel):
    """A state-space model with averaging states, which are the last of the stochastic states.

    base_model: The model without these states.
    base_index: The rows and columns of the states of the base model.
    """

    base_model: StateSpaceModel
    base_index: tuple[IndexArray, ...]
    averaging: AveragingStates

    def prior_P_root(self, time: float) -> Array:
        """Return a root of the prior covariance of the states at a scaled time; averaging states are zero."""
        P_root = np.zeros((self.size, self.size))
        P_root[self.base_index] = self.base_model.prior_P_root(time)
        return P_root

    def build_observation_matrix(self, observables: Observables, coefficients: Coefficients) -> Array:
        """Return the observation matrix of other observables, in which only modes are averaged."""
        H = self.base_model.build_observation_matrix(observables, coefficients)
        return _insert_zero_columns(H, self.base_model.n_stochastic, len(self.averaging))

    def vjp(self, gradient: StateSpaceGradient, grad_P_initial: Array, time: float) -> Hyperparameters:
        """Return the derivatives of the base model."""
        n, averaging, kept = self.base_model.n_stochastic, self.averaging, self.base_index
        # One row for each observable; stochastic states act on an averaged one through its averaging states.
        grad_H = np.add.reduceat(gradient.H[:, kept[1][0]], averaging.first_rows, axis=0)
        grad_H[averaging.observable_index, :n] = 0.0
        in_rows = gradient.F[n : n + len(averaging), :n] / averaging.window_lengths[:, None]
        np.add.at(grad_H[:, :n], averaging.observable_index, in_rows)
        base_gradient = StateSpaceGradient(gradient.F[kept], gradient.noise_intensity[:n, :n], grad_H)
        return self.base_model.vjp(base_gradient, grad_P_initial[kept], time)


def _insert_zero_columns(rows: Array, n_stochastic: int, n_averaging: int) -> Array:
    """Return rows with zeros for averaging states."""
    return np.concatenate([rows[:, :n_stochastic], np.zeros((len(rows), n_averaging)), rows[:, n_stochastic:]], axis=1)


def add_averaging_states(model: StateSpaceModel, averaging: AveragingStates | None) -> StateSpaceModel:
    """Return a model with averaging states."""
    if averaging is None:
        return model
    n, size, count = model.n_stochastic, model.size, len(averaging)
    added = np.arange(n, n + count)
    kept = np.delete(np.arange(size + count), added)
    base_index = np.ix_(kept, kept)
    F, noise_intensity = np.zeros((size + count, size + count)), np.zeros((n + count, n + count))
    F[base_index], noise_intensity[:n, :n] = model.F, model.noise_intensity
    F[n : n + count, :n] = model.H[averaging.observable_index, :n] / averaging.window_lengths[:, None]
    H, rows = _insert_zero_columns(model.H, n, count), []
    for number in range(len(averaging.first_rows)):
        states = added[averaging.observable_index == number]
        rows.append(np.repeat(H[number : number + 1], max(1, len(states)), axis=0))
        if len(states):
            rows[-1][:, : n + count] = 0.0
            rows[-1][np.arange(len(states)), states] = 1.0
    first = model.prior, model.hyper, model.coefficients, model.processes, F, noise_intensity
    last = np.concatenate(rows) if rows else H, model.disturbances
    return AveragedStateSpaceModel(*first, *last, base_model=model, base_index=base_index, averaging=averaging)
