"""Kalman filter and smoother for Gaussian process priors with finitely many states, in linear time (docs/markov.md).

- `engine`, `out_of_core`: the engine of ``engine="markov"`` (log evidence and posterior), in memory and on disk
- `evidence`: log evidence and its gradient; `innovations`: one-step and multi-step prediction errors
- `posterior`: means, covariances and samples of observables
- `sqrt_filter`, `smoother`: square-root Kalman filter and Rauch-Tung-Striebel smoother from block to block
- `blocks`: blocks of measurements; `block_model`, `block_reduction`: dense models of regular blocks, and their
  reduction to the dimension of the state; `irregular`: irregular blocks, which are filtered row by row
- `state_space`, `interval_means`: the prior as a state-space model, with states for means over intervals
- `discretize`: transition matrices and process noise over steps; `step_filter`: filter for one row at a time

Notation, as in Särkkä (2013), with Phi for the transition matrix: over a step, ``x <- Phi x + q`` with noise covariance
Q; a measurement is ``y = H x + r`` with noise covariance R, which is diagonal and stored as variances. The state has
mean m and covariance P, predicted or updated. The innovation ``v = y - H m`` has the covariance ``S = H P H' + R``, and
the gain is ``P H' S^-1``. ``X_root`` is a square root of X: ``P = P_root P_root'``. ``X_t`` is the transpose of X, and
``grad_X`` or ``in_X`` the derivative of the log evidence in X. The smoother adds the score r, the derivative in m, and
its covariance, the information N. There are s states, of which noise drives the first n (stochastic states) and never
the other q (deterministic states, the modes). In continuous time ``x' = F x + w`` with white noise w of intensity B.
"""

from lodekit.inference.kalman.engine import KalmanEngine

__all__ = ["KalmanEngine"]
