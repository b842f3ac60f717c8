"""Means over intervals: states that add up an observable from the start of an interval to its end.

A mean over the interval that ends at a time is read from a state that began at zero at the start of the interval and
grew with what is averaged. Intervals that overlap need states of their own; the next interval that begins after the
end of one takes its state. Modes need none: their means are rows of numbers already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.inference.kalman.state_space import StateSpaceGradient, StateSpaceModel
from lodekit.prior.compile import Coefficients
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Hyperparameters

Array = NDArray[np.float64]
IndexArray = NDArray[np.intp]
Mask = NDArray[np.bool_]
#: So many intervals may be open at the same time.
_MAX_OPEN_INTERVALS = 64


@dataclass(frozen=True)
class AveragingStates:
    """Intervals, and which state adds up what.

    observable_index: The number of the observable that each state adds up; (c,).
    window_lengths: The lengths of its intervals, in scaled time; (c,).
    interval_starts: The starts of all intervals, in scaled time; (i,).
    state_index: The states that begin there; (i,).
    first_rows: Where the rows of each observable begin: one for each of its states, or one where it has none; (o,).
    row_index: The number of the row of each value; (m,).
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
        """Return the intervals of some values.

        Shapes: window_lengths (o,).
        """
        owners: list[int] = []
        starts, states, firsts, readings, rows = [], [], [], [], 0
        for number, (window, own) in enumerate(zip(window_lengths.tolist(), interval_ends, strict=True)):
            firsts.append(rows)
            if not window:
                readings.append(np.full(len(own), rows))
                rows += 1
                continue
            different, which = np.unique(own, return_inverse=True)
            begin = _snap_to_times(different - window, times, resolution)
            # How many intervals are open where one begins, with itself.
            depth = np.arange(1, len(begin) + 1) - np.searchsorted(different, begin, side="right")
            count = max(1, int(depth.max(initial=1)))
            turns = np.arange(len(begin)) % count
            starts.append(begin)
            states.append(len(owners) + turns)
            readings.append(rows + turns[which.reshape(-1)])
            owners += [number] * count
            rows += count
        every = [np.concatenate(part) if part else np.zeros(0) for part in (starts, states, readings)]
        if len(owners) > _MAX_OPEN_INTERVALS:
            raise LodekitError(
                f"expected intervals of which at most {_MAX_OPEN_INTERVALS} are open at the same time, got "
                f"{len(owners)}: the Markov engine needs a state for each; use engine='dense', or every second value or fewer"
            )
        numbers = np.array(owners, dtype=np.intp)
        return cls(
            numbers,
            window_lengths[numbers],
            every[0],
            every[1].astype(np.intp),
            np.array(firsts),
            every[2].astype(np.intp),
        )

    def __len__(self) -> int:
        return len(self.observable_index)

    def starts_at(self, row_times: Array) -> Mask:
        """Return which states begin anew at each place, shape (n, c).

        Shapes: row_times (n,).
        """
        found = np.zeros((len(row_times), len(self)), dtype=bool)
        # Behind all that is measured at that time.
        found[np.searchsorted(row_times, self.interval_starts, side="right") - 1, self.state_index] = True
        return found


def _snap_to_times(values: Array, times: Array, resolution: float) -> Array:
    """Return values, and times in their place where they are as close as the clock resolves."""
    if not len(times):
        return values
    right = np.clip(np.searchsorted(times, values), 0, len(times) - 1)
    left = np.maximum(right - 1, 0)
    near = np.where(np.abs(times[left] - values) < np.abs(times[right] - values), times[left], times[right])
    return np.where(np.abs(near - values) <= resolution, near, values)


@dataclass(frozen=True, kw_only=True)
class AveragedStateSpaceModel(StateSpaceModel):
    """A linear system with states that add up observables; they come last among those that noise drives.

    base_model: The model without these states.
    """

    base_model: StateSpaceModel
    averaging: AveragingStates

    def prior_P_root(self, time: float) -> Array:
        """Return a root of the prior covariance of the states at a scaled time; sums are zero."""
        own, n = self.base_model.prior_P_root(time), self.base_model.n_stochastic
        found = np.zeros((self.size, self.size))
        kept = _plain_state_index(n, self.size, len(self.averaging))
        found[np.ix_(kept, kept)] = own
        return found

    def build_observation_matrix(self, observables: Observables, coefficients: Coefficients) -> Array:
        """Return other observables as rows of all states, as if none were averaged but their modes."""
        return _insert_zero_columns(
            self.base_model.build_observation_matrix(observables, coefficients),
            self.base_model.n_stochastic,
            len(self.averaging),
        )

    def vjp(self, gradient: StateSpaceGradient, time: float) -> Hyperparameters:
        """Return derivatives as those of the system without sums."""
        n, count, sums = self.base_model.n_stochastic, len(self.averaging), self.averaging
        kept = _plain_state_index(n, self.size, count)
        in_readings = np.zeros_like(self.base_model.H)
        plain = np.ones(len(in_readings), dtype=bool)
        plain[sums.observable_index] = False
        edges = np.append(sums.first_rows, len(gradient.H))
        for number, first in enumerate(sums.first_rows):
            own = gradient.H[first : edges[number + 1], kept].sum(axis=0)
            in_readings[number, n:] = own[n:]
            if plain[number]:
                in_readings[number, :n] = own[:n]
        np.add.at(
            in_readings[:, :n], sums.observable_index, gradient.F[n : n + count, :n] / sums.window_lengths[:, None]
        )
        own = np.ix_(kept, kept)
        return self.base_model.vjp(
            StateSpaceGradient(gradient.F[own], gradient.noise_intensity[:n, :n], in_readings, gradient.P_initial[own]),
            time,
        )


def _plain_state_index(n_stochastic: int, n_states: int, n_averaging: int) -> IndexArray:
    """Return the numbers of the states that add up nothing."""
    return np.delete(np.arange(n_states), np.arange(n_stochastic, n_stochastic + n_averaging))


def _insert_zero_columns(rows: Array, n_stochastic: int, n_averaging: int) -> Array:
    """Return rows with zeros for states that add up something."""
    return np.concatenate([rows[:, :n_stochastic], np.zeros((len(rows), n_averaging)), rows[:, n_stochastic:]], axis=1)


def add_averaging_states(model: StateSpaceModel, averaging: AveragingStates | None) -> StateSpaceModel:
    """Return a system with states that add up observables."""
    if averaging is None:
        return model
    n, size, count = model.n_stochastic, model.size, len(averaging)
    kept, added = _plain_state_index(n, size + count, count), np.arange(n, n + count)
    matrix, density = np.zeros((size + count, size + count)), np.zeros((n + count, n + count))
    matrix[np.ix_(kept, kept)], density[:n, :n] = model.F, model.noise_intensity
    matrix[n : n + count, :n] = model.H[averaging.observable_index, :n] / averaging.window_lengths[:, None]
    readings = _insert_zero_columns(model.H, n, count)
    parts = []
    for number in range(len(averaging.first_rows)):
        own = added[averaging.observable_index == number]
        row = np.repeat(readings[number : number + 1], max(1, len(own)), axis=0)
        if len(own):
            row[:, : n + count] = 0.0
            row[np.arange(len(own)), own] = 1.0
        parts.append(row)
    found: dict[str, Any] = {item.name: getattr(model, item.name) for item in fields(model)}
    found |= {"F": matrix, "noise_intensity": density, "H": np.concatenate(parts) if parts else readings}
    return AveragedStateSpaceModel(**found, base_model=model, averaging=averaging)
