"""Posterior of the Kalman engine: means, covariances and samples of any observable.

Observables are exact linear combinations of smoothed states, so they satisfy the equations up to rounding. Samples
follow Matheron's rule (the simulation smoother of Durbin and Koopman [1]_): a prior sample, corrected by the data.

.. [1] J. Durbin and S. J. Koopman, A simple and efficient simulation smoother for state space time series analysis,
   Biometrika 89 (2002), 603-616.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from lodekit.errors import AccuracyError, LodekitError
from lodekit.inference.kalman.blocks import BlockLayout, KalmanData, shorten_blocks
from lodekit.inference.kalman.discretize import ProcessDiscretization
from lodekit.inference.kalman.evidence import FilterSolution
from lodekit.inference.kalman.interval_means import AveragedStateSpaceModel, AveragingStates, add_averaging_states
from lodekit.inference.kalman.smoother import StateSmoother
from lodekit.inference.kalman.sqrt_filter import run_filter
from lodekit.inference.kalman.state_space import StateSpaceModel
from lodekit.inference.stacked_measurements import StackedPosterior
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Hyperparameters
from lodekit.support.arguments import Array, IndexArray
from lodekit.support.recent import RecentResults

#: Requested intervals that may overlap in one computation, each with a state of its own.
_MAX_OPEN_INTERVALS = 16


@dataclass(frozen=True)
class KalmanPosterior(StackedPosterior):
    """The posterior at given hyperparameters.

    block_length: The number of measurements of a block, if it was reduced.
    """

    data: KalmanData
    hyper: Hyperparameters
    solution: FilterSolution
    block_length: int | None = None
    _smoothers: RecentResults = field(default_factory=RecentResults, init=False, compare=False, repr=False)

    @property
    def value(self) -> float:
        """The log evidence in the user's units."""
        return self.solution.value

    @property
    def error(self) -> float:
        """The estimated rounding error of the log evidence."""
        return self.solution.error

    def mean(self, observables: Observables, times: Array) -> Array:
        """Return the posterior mean, shape (n, o)."""
        mean = np.zeros((len(times), observables.count))
        for part in self._split_overlapping(observables, times):
            smoother, H = self._build_smoother(observables, times[part])
            states = smoother.compute_row_means(*smoother.smooth_values(smoother.values))
            mean[part] = self.observe_states(observables, times[part], H, states)[:, :, 0]
        return mean

    def variance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior variance of `observables` at `times`, as in `mean`, shape (n, o)."""
        variance = np.zeros((len(times), observables.count))
        for part in self._split_overlapping(observables, times):
            smoother, H = self._build_smoother(observables, times[part])
            variance[part] = smoother.variance(H)
        return variance

    def covariance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior covariance of `observables` at `times`, as in `mean`, shape (n, o, n, o)."""
        smoother, H = self.smooth_at(observables, times)
        return smoother.covariance(H)

    def sample(self, observables: Observables, times: Array, size: int, generator: np.random.Generator) -> Array:
        """Return samples of observables from the posterior, shape (size, n, o)."""
        smoother, H = self.smooth_at(observables, times)
        layout, R = smoother.filter.layout, self.data.noise.variance(self.hyper.noise_std)
        # At most 4,000,000 elements at once.
        n_elements = layout.n_blocks * (layout.rows_per_block + 1) * max(1, smoother.filter.model.size)
        step, samples = max(1, 4_000_000 // n_elements), [np.zeros((len(times), smoother.filter.model.size, 0))]
        for start in range(0, size, step):
            y, states, _ = smoother.sample_prior(min(step, size - start), generator)
            noise = np.sqrt(R)[:, None] * generator.standard_normal(y.shape)
            corrections = smoother.smooth_values(smoother.values - y - noise)
            samples.append(states + smoother.compute_row_means(*corrections))
        return self.observe_states(observables, times, H, np.concatenate(samples, axis=2)).transpose(2, 0, 1)

    def observe_states(self, observables: Observables, times: Array, H: Array, states: Array) -> Array:
        """Return observables of states in their units, prior means included, shape (n, o, k).

        Shapes: H (n, o, s), states (n, s, k).
        """
        values = observables.evaluate(self.hyper.theta)
        means, _ = observables.means(values, times, with_jacobian=False)
        return np.asarray(np.einsum("aoi,aik->aok", H, states) + np.stack(means, axis=1)[:, :, None])

    def _split_overlapping(self, observables: Observables, times: Array) -> list[IndexArray]:
        """Return groups of times that are computed together, in which only a few averaging intervals overlap."""
        windows, every = observables.windows, np.arange(len(times))
        if windows is None or not len(times):
            return [every]
        order = np.argsort(times, kind="stable")
        scaled = np.unique(self.data.prior.units.scale_times(times))
        open_ = np.arange(1, len(scaled) + 1)[:, None] - np.searchsorted(scaled, scaled[:, None] - windows)
        count = -(-int(open_.sum(axis=1).max()) // _MAX_OPEN_INTERVALS)
        if count <= 1:
            return [every]
        parts = (order[start::count] for start in range(count))
        return [part[own] for part in parts for own in self._split_overlapping(observables, times[part])]

    def smooth_at(self, observables: Observables, times: Array) -> tuple[StateSmoother, Array]:
        """Return a smoother for some times, and the observation matrices there, shape (n, o, s)."""
        if len(self._split_overlapping(observables, times)) > 1:
            raise LodekitError(
                "too many of the requested intervals overlap for covariances and samples of the Markov "
                "engine; request fewer times, or use engine='dense'"
            )
        return self._build_smoother(observables, times)

    def _build_smoother(self, observables: Observables, times: Array) -> tuple[StateSmoother, Array]:
        """Return a smoother for some times, and the observation matrices there, shape (n, o, s); the last is cached."""
        data, own, averaging = self.data, self.solution.filter, None
        model, values = own.model, observables.evaluate(self.hyper.theta)
        key = np.ascontiguousarray(times).tobytes()
        if observables.windows is None:
            rows = model.build_observation_matrix(observables, values)
        else:
            base = model.base_model if isinstance(model, AveragedStateSpaceModel) else model
            averaging = self._build_averaging_states(observables.windows, times)
            H = base.build_observation_matrix(observables, values)
            model = add_averaging_states(replace(base, H=np.concatenate([base.H, H])), averaging)
            rows = model.H[averaging.row_index[data.size :].reshape(observables.count, len(times)).T]
            key += observables.windows.tobytes() + H.tobytes()

        def compute() -> StateSmoother:
            layout, row_index = self._partition_times(model, data.prior.units.scale_times(times), averaging)
            residual = self.solution.residual[:, None]
            y = layout.to_blocks(residual, 0.0)
            with np.errstate(all="ignore"):
                filtered = run_filter(model, layout, own.R, y, keep_basis=True, boundary=own.boundary)
            if filtered is None:
                raise AccuracyError("the states are not finite at these values and times; request times near the data")
            return StateSmoother(filtered[0], row_index, residual, filtered[1])

        return self._smoothers.find(key, compute), np.broadcast_to(rows, (len(times), observables.count, model.size))

    def _partition_times(
        self, model: StateSpaceModel, times: Array, averaging: AveragingStates | None
    ) -> tuple[BlockLayout, IndexArray]:
        """Return blocks with rows for more times, and the indices of these rows; blocks are short if noise is small.

        Covariances inside blocks are as small as the noise, but are differences with the rounding errors of the signal.
        """
        own, length, n = self.solution.filter, self.block_length, model.n_stochastic
        parts = np.split(own.R, self.data.offsets[1:-1])
        quiet = min((float(np.quantile(part, 0.1)) for part in parts if len(part)), default=np.inf)
        H = model.H[:, :n]
        while True:
            # Shorter blocks than for the evidence: covariances of all states in a block are computed.
            layout, row_index = self.data.build_layout(length or self.data.block_length or 48, times, averaging)
            span = float((layout.times[:, -1] - layout.times[:, 0]).max(initial=0.0))
            with np.errstate(all="ignore"):
                Q = ProcessDiscretization(model.F[:n, :n], model.noise_intensity, np.array([span])).Q[0]
                # At a variance ratio of 1e6, rounding errors leave ten digits.
                is_loud = bool((np.einsum("oi,ij,oj->o", H, Q, H) > 1e6 * quiet).any())
            length = shorten_blocks(layout)
            if length is None or not is_loud:
                return layout, row_index

    def _build_averaging_states(self, window_lengths: Array, times: Array) -> AveragingStates:
        """Return the averaging states of the measurements and of requested means."""
        data, requested = self.data, self.data.prior.units.scale_times(times)
        measured = data.prior.observables.windows
        ends = [data.scaled_times[index] for index in data.index] + [requested] * len(window_lengths)
        window_lengths = np.concatenate([np.zeros(len(data.index)) if measured is None else measured, window_lengths])
        every = np.unique(np.concatenate([data.scaled_times, requested]))
        return AveragingStates.of(window_lengths, ends, every, data.time_resolution)
