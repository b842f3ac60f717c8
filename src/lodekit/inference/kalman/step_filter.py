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
from scipy.linalg import lapack

from lodekit.data.records import Measurements
from lodekit.inference.engine import Posterior
from lodekit.inference.kalman.blocks import KalmanData
from lodekit.inference.kalman.discretize import DiscreteStep, StepDiscretizer
from lodekit.inference.kalman.engine import KalmanEngine
from lodekit.inference.kalman.out_of_core import OutOfCoreEngine, OutOfCorePosterior
from lodekit.prior.prior import Hyperparameters, Prior
from lodekit.support.arguments import Array


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


def predict_and_update(step: DiscreteStep | None, mean: Array, P_root: Array, H: Array, noise_std: Array) -> StepUpdate:
    """Predict over a step and update with the measurements after it.

    Shapes: mean (s,), P_root (s, s), H (o, s), noise_std (o,).
    """
    size, count, n = len(mean), len(H), 0 if step is None else len(step[1])
    if not size:
        return StepUpdate(mean, P_root, np.diag(noise_std), np.zeros((count, 0)))
    # Measurement noise last: Householder reflections keep the digits of small rows below large ones.
    stacked = np.zeros((size + n + count, count + size), order="F")
    if step is None:
        stacked[:size, count:] = P_root.T
    else:
        Phi, stacked[size : size + n, count:] = step
        mean, stacked[:size, count:] = Phi @ mean, (Phi @ P_root).T
    if count:
        P_root_t = stacked[: size + n]
        P_root_t[:, :count] = P_root_t[:, count:] @ H.T
        np.einsum("ii->i", stacked[size + n :, :count])[:] = noise_std
    factor = lapack.dgeqrf(stacked, overwrite_a=1)[0]
    upper = factor[: count + size] * _upper_triangle_mask(count + size)
    return StepUpdate(mean, upper[count:, count:].T, upper[:count, :count], upper[:count, count:])


@lru_cache(maxsize=64)
def _upper_triangle_mask(size: int) -> Array:
    return np.asfortranarray(np.triu(np.ones((size, size))))


def compute_final_state(
    prior: Prior, measurements: Measurements, hyper: Hyperparameters, posterior: Posterior
) -> tuple[float, Array, Array]:
    """Return the last time of a record, and mean, (s,), and covariance root, (s, s), of the states there.

    The filter runs by blocks, and row by row through the last one.
    """
    if measurements.has_only_statistics and measurements.stored_rows is not None:
        if not isinstance(posterior, OutOfCorePosterior):
            posterior = OutOfCoreEngine(prior, measurements.stored_rows.store).posterior(hyper)
        in_memory = posterior.get_batch_posterior(len(posterior.boundaries) - 1)
    else:
        in_memory = KalmanEngine(KalmanData.from_series(prior, measurements.series)).posterior(hyper)
    solution, kalman_filter = in_memory.solution, in_memory.solution.filter
    layout, model, covariances = kalman_filter.layout, kalman_filter.model, kalman_filter.covariances
    smoothed, last = solution.smoothed, layout.n_blocks - 1
    # The predicted state at the start of the block.
    P_root = covariances.P_root_predicted[last]
    mean = smoothed.updated_means[last, :, 0] - covariances.gain[last] @ smoothed.innovations[last, :, 0]
    discretizer = StepDiscretizer(model.F, model.noise_intensity)
    steps = [discretizer.discretize(length) if length else None for length in layout.step_lengths.tolist()]
    noise_std = np.sqrt(kalman_filter.R)
    for row in range(layout.rows_per_block):
        index = layout.measurement_index[last, row]
        measured = index >= 0
        y, H = solution.residual[index[measured]], model.H[layout.observable_index[last, row][measured]]
        step = steps[layout.step_index[last, row]]
        update = predict_and_update(step, mean, P_root, H, noise_std[index[measured]])
        mean, P_root = update.update_mean(y - H @ update.predicted_mean), update.P_root
    return float(in_memory.data.times[-1]), mean, P_root
