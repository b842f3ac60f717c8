"""A filter that takes one row at a time: covariances are kept as roots, so that they cannot lose their sign.

What is known of the state, the noise of a step, and the noise of measurements stand below each other in one matrix;
orthogonal transformations make a triangle of it, which holds the deviations of the measurements, the gain and the root
of what is left. Nothing is subtracted, so noise may be a millionth of the signal, for ever.

Where a record ends: mean and covariance of the states there, given all of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from lodekit.data.records import Measurements
from lodekit.inference.engine import Posterior
from lodekit.inference.kalman.block_reduction import factor_semidefinite
from lodekit.inference.kalman.blocks import KalmanData
from lodekit.inference.kalman.engine import KalmanEngine
from lodekit.inference.kalman.evidence import FilterSolution
from lodekit.inference.kalman.out_of_core import OutOfCoreEngine, OutOfCorePosterior
from lodekit.inference.kalman.state_space import StateSpaceModel
from lodekit.prior.prior import Hyperparameters, Prior

Array = NDArray[np.float64]
#: Terms of the series for steps of norm 1/2 at most: the first one that is left out is below 1e-17 of the first that
#: is not zero, also in entries that begin with a high power of the step.
_N_TAYLOR_TERMS = 26
#: The numbers of these terms: each is the one before times the length of the step over its number.
_TAYLOR_ORDERS: Array = np.arange(1, _N_TAYLOR_TERMS + 1, dtype=float)


@dataclass(frozen=True, slots=True)
class DiscreteStep:
    """A step of all states.

    Phi: shape (s, s)
    Q_root_transposed: A root of the covariance of the noise, transposed: one row for each state that noise drives;
        (n, s).
    """

    Phi: Array
    Q_root_transposed: Array


class StepUpdate(NamedTuple):
    """A step, and measurements after it that are taken at once.

    predicted_mean: Of the states before the measurements; (s,).
    P_root: Of the covariance of the states after them; (s, s).
    S_root: A root of the covariance of the measurements, transposed, upper triangular; (o, o).
    normalized_gain: What a measurement error, divided by that root, adds to the mean; (o, s).
    """

    predicted_mean: Array
    P_root: Array
    S_root: Array
    normalized_gain: Array

    def update_mean(self, innovation: Array) -> Array:
        """Return the mean of the states after the measurements, which exceed what was expected by these errors."""
        if not len(innovation):
            return self.predicted_mean
        return np.asarray(
            self.predicted_mean + lapack.dtrtrs(self.S_root, innovation, trans=1)[0] @ self.normalized_gain
        )


class StepDiscretizer:
    """Steps of a linear system, one at a time: the terms of Taylor's series are made once.

    They are those of `NoisySteps`, and longer steps are doubled as there.
    """

    def __init__(self, model: StateSpaceModel) -> None:
        n, size = model.n_stochastic, model.size
        self._norm = float(np.abs(model.F).sum(axis=1).max(initial=0.0)) or 1.0
        F, B = model.F / self._norm, np.zeros((size, size))
        B[:n, :n] = model.noise_intensity / self._norm
        powers, noises = [F], [B]
        for _ in range(_N_TAYLOR_TERMS - 1):
            powers.append(powers[-1] @ F)
            half = F @ noises[-1]
            noises.append(half + half.T)
        # Noise never reaches the other states, which are modes.
        self._size, self._n_stochastic = size, n
        self._taylor_terms = np.concatenate([np.stack(powers), np.stack(noises)], axis=1).reshape(
            _N_TAYLOR_TERMS, 2 * size * size
        )

    def discretize(self, dt: float) -> DiscreteStep:
        """Return a step of some length."""
        size = dt * self._norm
        halvings = max(0, math.ceil(math.log2(max(size, 1e-300))) + 1)
        weights = np.cumprod(math.ldexp(size, -halvings) / _TAYLOR_ORDERS)
        both = (weights @ self._taylor_terms).reshape(2, self._size, self._size)
        grown, noise, unit = both[0], both[1], np.eye(self._size)
        for _ in range(halvings):
            transition = grown + unit
            noise = noise + transition @ noise @ transition.T
            # The transition without the one of its diagonal: small entries are not lost beside it.
            grown = 2.0 * grown + grown @ grown
        n, rows = self._n_stochastic, np.zeros((self._n_stochastic, self._size))
        if n:
            rows[:, :n] = factor_semidefinite(noise[None, :n, :n])[0].T
        return DiscreteStep(grown + unit, rows)


def predict_state(step: DiscreteStep | None, mean: Array, P_root: Array) -> tuple[Array, Array]:
    """Return mean and root of the covariance after a step.

    Shapes: mean (s,), P_root (s, s).
    """
    found = predict_and_update(step, mean, P_root, np.zeros((0, len(mean))), np.zeros(0))
    return found.predicted_mean, found.P_root


def predict_and_update(step: DiscreteStep | None, mean: Array, P_root: Array, H: Array, noise_std: Array) -> StepUpdate:
    """Return a step, and measurements after it.

    Shapes: mean (s,), P_root (s, s), H (o, s), noise_std (o,).
    """
    size, count, n = len(mean), len(H), 0 if step is None else len(step.Q_root_transposed)
    if not size:
        return StepUpdate(mean, P_root, np.diag(noise_std), np.zeros((count, 0)))
    # Measurements last: orthogonal transformations keep the digits of small rows that stand below large ones.
    stacked = np.zeros((size + n + count, count + size), order="F")
    if step is None:
        stacked[:size, count:] = P_root.T
    else:
        mean = step.Phi @ mean
        stacked[:size, count:] = (step.Phi @ P_root).T
        stacked[size : size + n, count:] = step.Q_root_transposed
    if count:
        known = stacked[: size + n]
        known[:, :count] = known[:, count:] @ H.T
        stacked[_diagonal_index(size + n, count)] = noise_std
    factor = lapack.dgeqrf(stacked, overwrite_a=1)[0]
    upper = factor[: count + size] * _upper_triangle_mask(count + size)
    return StepUpdate(mean, upper[count:, count:].T, upper[:count, :count], upper[:count, count:])


@lru_cache(maxsize=64)
def _upper_triangle_mask(size: int) -> Array:
    return np.asfortranarray(np.triu(np.ones((size, size))))


@lru_cache(maxsize=64)
def _diagonal_index(first_row: int, count: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the places of the deviations, below so many rows."""
    return np.arange(first_row, first_row + count), np.arange(count)


@dataclass(frozen=True)
class FinalState:
    """The states at the last time of a record.

    time: In the user's unit.
    mean: shape (s,)
    P_root: Of the covariance; (s, s).
    """

    time: float
    mean: Array
    P_root: Array


def compute_final_state(
    prior: Prior, measurements: Measurements, hyper: Hyperparameters, posterior: Posterior
) -> FinalState:
    """Return the state at the last time of a record: by blocks up to the last one, through this row by row."""
    if measurements.has_only_statistics and measurements.stored_rows is not None:
        if not isinstance(posterior, OutOfCorePosterior):
            posterior = OutOfCoreEngine(prior, measurements.stored_rows.store).posterior(hyper)
        last = posterior.get_batch_posterior(len(posterior.boundaries) - 1)
        return _filter_last_block(last.data, last.solution)
    data = KalmanData.from_series(prior, measurements.series)
    return _filter_last_block(data, KalmanEngine(data).posterior(hyper).solution)


def _filter_last_block(data: KalmanData, solution: FilterSolution) -> FinalState:
    """Return the states at the last time: through the last block row by row."""
    own, last = solution.filter, solution.filter.layout.n_blocks - 1
    layout, space, carried, smoothed = own.layout, own.model, own.covariances, solution.smoothed
    root = carried.P_root_predicted[last]
    # Before the block itself has told anything.
    mean = smoothed.updated_means[last, :, 0] - carried.gain[last] @ smoothed.innovations[last, :, 0]
    leaps = StepDiscretizer(space)
    steps = [leaps.discretize(length) if length else None for length in layout.step_lengths.tolist()]
    deviations = np.sqrt(own.noise_variance)
    for place in range(layout.rows_per_block):
        numbers = layout.measurement_index[last, place]
        there = numbers >= 0
        numbers, rows = numbers[there], space.H[layout.observable_index[last, place][there]]
        found = predict_and_update(steps[layout.step_index[last, place]], mean, root, rows, deviations[numbers])
        mean, root = found.update_mean(solution.residual[numbers] - rows @ found.predicted_mean), found.P_root
    return FinalState(float(data.times[-1]), mean, root)
