"""Kalman filter and smoother for Gaussian process priors with finitely many states, in linear time (docs/markov.md).

- `engine`, `out_of_core`: the engine of ``engine="markov"`` (log evidence and posterior), in memory and on disk
- `evidence`: log evidence and its gradient; `innovations`: one-step and multi-step prediction errors
- `posterior`: means, covariances and samples of observables
- `sqrt_filter`, `smoother`: square-root Kalman filter and Rauch-Tung-Striebel smoother from block to block
- `blocks`, `block_reduction`: blocks of measurements, and their reduction to the dimension of the state
- `block_model`, `irregular`: models inside blocks, dense for regular and filtered for irregular ones
- `state_space`, `interval_means`: the prior as a state-space model, with states for means over intervals
- `discretize`: transition matrices and process noise over steps; `step_filter`: filter for one row at a time
"""

from lodekit.inference.kalman.engine import KalmanEngine, KalmanFactory

__all__ = ["KalmanEngine", "KalmanFactory"]
