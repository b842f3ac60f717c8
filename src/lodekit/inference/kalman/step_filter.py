"""Square-root Kalman filter for one row at a time, in array form [1]_.

The root of the predicted covariance, the process noise of a step, and the measurement noise are stacked in one matrix;
its QR factorization contains the root of the innovation covariance, the gain and the root of the updated covariance.
Nothing is subtracted, so noise may be a millionth of the signal for any number of rows.

.. [1] T. Kailath, A. H. Sayed and B. Hassibi, Linear Estimation, Prentice Hall, 2000, chapter 12.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from lodekit.data.records import Measurements
from lodekit.inference.engine import Posterior
from lodekit.inference.kalman.blocks import KalmanData
from lodekit.inference.kalman.discretize import DiscreteStep, StepDiscretizer
from lodekit.inference.kalman.engine import KalmanEngine
from lodekit.inference.kalman.evidence import FilterSolution
from lodekit.inference.kalman.out_of_core import OutOfCoreEngine, OutOfCorePosterior
from lodekit.prior.prior import Hyperparameters, Prior

Array = NDArray[np.float64]


class StepUpdate(NamedTuple):
    """Prediction over a step, and update with the measurements after it.

    predicted_mean: Mean of the states before the measurements; (s,).
    P_root: Root of the covariance of the states after them; (s, s).
    S_root: Transposed root of the innovation covariance, upper triangular; (o, o).
    normalized_gain: Gain of the whitened innovations; (o, s).
    """

    predicted_mean: Array
    P_root: Array
    S_root: Array
    normalized_gain: Array

    def update_mean(self, innovation: Array) -> Array:
        """Return the mean of the states after the measurements, from their innovations."""
        if not len(innovation):
            return self.predicted_mean
        whitened = lapack.dtrtrs(self.S_root, innovation, trans=1)[0]
        return np.asarray(self.predicted_mean + whitened @ self.normalized_gain)


def predict_state(step: DiscreteStep | None, mean: Array, P_root: Array) -> tuple[Array, Array]:
    """Predict mean and covariance root over a step.

    Shapes: mean (s,), P_root (s, s).
    """
    found = predict_and_update(step, mean, P_root, np.zeros((0, len(mean))), np.zeros(0))
    return found.predicted_mean, found.P_root


def predict_and_update(step: DiscreteStep | None, mean: Array, P_root: Array, H: Array, noise_std: Array) -> StepUpdate:
    """Predict over a step and update with the measurements after it.

    Shapes: mean (s,), P_root (s, s), H (o, s), noise_std (o,).
    """
    size, count, n = len(mean), len(H), 0 if step is None else len(step.Q_root_transposed)
    if not size:
        return StepUpdate(mean, P_root, np.diag(noise_std), np.zeros((count, 0)))
    # Measurement noise last: Householder reflections keep the digits of small rows below large ones.
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
        np.einsum("ii->i", stacked[size + n :, :count])[:] = noise_std
    factor = lapack.dgeqrf(stacked, overwrite_a=1)[0]
    upper = factor[: count + size] * _upper_triangle_mask(count + size)
    return StepUpdate(mean, upper[count:, count:].T, upper[:count, :count], upper[:count, count:])


@lru_cache(maxsize=64)
def _upper_triangle_mask(size: int) -> Array:
    return np.asfortranarray(np.triu(np.ones((size, size))))


class FinalState(NamedTuple):
    """The states at the last time of a record, in the user's time unit: mean, (s,), and covariance root, (s, s)."""

    time: float
    mean: Array
    P_root: Array


def compute_final_state(
    prior: Prior, measurements: Measurements, hyper: Hyperparameters, posterior: Posterior
) -> FinalState:
    """Filter a record to its last time: by blocks, and through the last block row by row."""
    if measurements.has_only_statistics and measurements.stored_rows is not None:
        if not isinstance(posterior, OutOfCorePosterior):
            posterior = OutOfCoreEngine(prior, measurements.stored_rows.store).posterior(hyper)
        last = posterior.get_batch_posterior(len(posterior.boundaries) - 1)
        return _filter_last_block(last.data, last.solution)
    data = KalmanData.from_series(prior, measurements.series)
    return _filter_last_block(data, KalmanEngine(data).posterior(hyper).solution)


def _filter_last_block(data: KalmanData, solution: FilterSolution) -> FinalState:
    """Run through the last block row by row."""
    kalman_filter, smoothed, last = solution.filter, solution.smoothed, solution.filter.layout.n_blocks - 1
    layout, model, covariances = kalman_filter.layout, kalman_filter.model, kalman_filter.covariances
    root = covariances.P_root_predicted[last]
    # The predicted mean at the start of the block.
    mean = smoothed.updated_means[last, :, 0] - covariances.gain[last] @ smoothed.innovations[last, :, 0]
    discretizer = StepDiscretizer(model.F, model.noise_intensity)
    steps = [discretizer.discretize(length) if length else None for length in layout.step_lengths.tolist()]
    noise_std = np.sqrt(kalman_filter.noise_variance)
    for row in range(layout.rows_per_block):
        measured = layout.measurement_index[last, row]
        numbers, H = measured[measured >= 0], model.H[layout.observable_index[last, row][measured >= 0]]
        update = predict_and_update(steps[layout.step_index[last, row]], mean, root, H, noise_std[numbers])
        mean, root = update.update_mean(solution.residual[numbers] - H @ update.predicted_mean), update.P_root
    return FinalState(float(data.times[-1]), mean, root)
