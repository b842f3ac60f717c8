"""The posterior of the Markov engine: means, covariances and samples of any observable, strict by construction.

Everything is computed for states; observables are exact combinations of these. So the equations hold to rounding.
Samples follow Matheron's rule: a draw from the prior, corrected by the data as the mean is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.data.records import check_exact_residuals
from lodekit.errors import AccuracyError, LodekitError
from lodekit.inference.kalman.blocks import BlockLayout, KalmanData
from lodekit.inference.kalman.discretize import ProcessDiscretization
from lodekit.inference.kalman.evidence import FilterSolution
from lodekit.inference.kalman.interval_means import AveragedStateSpaceModel, AveragingStates, add_averaging_states
from lodekit.inference.kalman.smoother import StateSmoother
from lodekit.inference.kalman.sqrt_filter import run_filter
from lodekit.inference.kalman.state_space import StateSpaceModel
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Hyperparameters

Array = NDArray[np.float64]
#: Numbers that draws which are made at once may have.
_MAX_ELEMENTS = 4_000_000
#: What a block may do to a measurement, in units of its noise, squared: rounding of this leaves ten digits. Blocks that
#: may do more are cut shorter, by so much.
_MAX_NOISE_RATIO, _BLOCK_REDUCTION_FACTOR = 1e6, 4
#: So many intervals that were asked for may be open at the same time, each with a state of its own.
_MAX_OPEN_INTERVALS = 16


@dataclass(frozen=True)
class KalmanPosterior:
    """The posterior at given hyperparameters.

    data: Measurements with their prior.
    solution: At these hyperparameters.
    block_length: How many measurements a block has, where it matters.
    """

    data: KalmanData
    hyper: Hyperparameters
    solution: FilterSolution
    block_length: int | None = None
    _looks: dict[bytes, StateSmoother] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_looks": {}}

    @property
    def value(self) -> float:
        """The log evidence in the user's units."""
        return self.solution.value

    @property
    def error(self) -> float:
        """About how large an error rounding makes in the log evidence."""
        return self.solution.error

    @property
    def mean_rounding_error(self) -> float:
        """About how large an error rounding makes in the mean, relative to the data: states do not cancel."""
        return float(np.finfo(float).eps)

    def warnings(self) -> list[str]:
        """Return sentences that users should read about its accuracy; none where nothing is wrong."""
        return []

    def check_exact_values(self) -> None:
        """Raise where values that were said to be exact are not met: they contradict each other or the equations."""
        data = self.data
        exact = data.noise.exact
        if not exact.any():
            return
        numbers = np.repeat(np.arange(len(data.index)), np.diff(data.offsets))[exact]
        times = data.times[np.concatenate(data.index)[exact]]
        with np.errstate(all="ignore"):
            met = self.mean(data.prior.observables, times)[np.arange(len(times)), numbers]
        check_exact_residuals(times, met - data.values[exact])

    def mean(self, observables: Observables, times: Array) -> Array:
        """Return the posterior mean, shape (n, o).

        Shapes: times (n,).
        """
        parts = self._split_overlapping(observables, times)
        if len(parts) > 1:
            return self._scatter(parts, [self.mean(observables, times[part]) for part in parts])
        look, rows = self._build_smoother(observables, times)
        return self.observe_states(observables, times, rows, look.smooth_means(look.values))[:, :, 0]

    def variance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior variance of `observables` at `times`, as in `mean`, shape (n, o)."""
        parts = self._split_overlapping(observables, times)
        if len(parts) > 1:
            return self._scatter(parts, [self.variance(observables, times[part]) for part in parts])
        look, rows = self._build_smoother(observables, times)
        found = np.zeros((len(times), observables.count))
        for part in look.smooth_covariances():
            found[part.requested] = part.variance(rows[part.requested])
        return found

    def covariance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior covariance of `observables` at `times`, as in `mean`, shape (n, o, n, o)."""
        (look, rows), count = self.smooth_at(observables, times), observables.count
        found = np.zeros((len(times), count, len(times), count))
        carried, information = look.filter.covariances, look.information
        size, every = look.filter.model.size, np.arange(count)
        # What was asked for in earlier blocks, and its covariance with the state at the start of the next one.
        earlier, known, at = np.zeros(0, dtype=np.intp), np.zeros((0, size)), 0
        for part in look.smooth_covariances():
            here, b = part.requested, part.block
            H = rows[here]
            inner = part.covariance(H)
            found[here[:, None, None, None], every[:, None, None], here[:, None], every] = inner
            known = known @ look.propagate_cross_covariance(at, b)
            told = look.filter.H[look.filter.layout.patterns[b]]
            open_ = np.eye(size) - carried.gain[b] @ told
            start = H @ part.Phi_from_start @ open_
            end = H @ part.end_cross_covariance
            # (a, o, s): how they follow from the state at the start of this block, given everything.
            seen = start - end @ information[b + 1] @ carried.closed_loop_Phi[b]
            cross = (known @ seen.reshape(-1, size).T).reshape(len(earlier), count, len(here), count)
            found[earlier[:, None, None, None], every[:, None, None], here[:, None], every] = cross
            turned = cross.transpose(2, 3, 0, 1)
            found[here[:, None, None, None], every[:, None, None], earlier[:, None], every] = turned
            earlier = np.concatenate([earlier, here])
            known = np.concatenate([known @ carried.closed_loop_Phi[b].T, end.reshape(-1, size)])
            at = b + 1
        return found

    def sample(self, observables: Observables, times: Array, size: int, generator: np.random.Generator) -> Array:
        """Return functions drawn from the posterior, seen through observables, shape (size, n, o)."""
        (look, rows), variance = self.smooth_at(observables, times), self.data.noise.variance(self.hyper.noise_std)
        layout = look.filter.layout
        most = max(1, _MAX_ELEMENTS // (layout.n_blocks * (layout.rows_per_block + 1) * max(1, look.filter.model.size)))
        found = []
        for start in range(0, size, most):
            seen, states, _ = look.sample_prior(min(most, size - start), generator)
            noise = np.sqrt(variance)[:, None] * generator.standard_normal(seen.shape)
            found.append(states + look.smooth_means(look.values - seen - noise))
        every = np.concatenate(found, axis=2) if found else np.zeros((len(times), look.filter.model.size, 0))
        return self.observe_states(observables, times, rows, every).transpose(2, 0, 1)

    def observe_states(self, observables: Observables, times: Array, H: Array, states: Array) -> Array:
        """Return observables of states in their units, all that is known added, shape (n, o, k).

        Shapes: H (n, o, s), states (n, s, k).
        """
        values = observables.evaluate(self.hyper.theta)
        means, _ = observables.means(values, times, with_jacobian=False)
        return np.asarray(np.einsum("aoi,aik->aok", H, states) + np.stack(means, axis=1)[:, :, None])

    def _split_overlapping(self, observables: Observables, times: Array) -> list[NDArray[np.intp]]:
        """Return which times are looked at together: of intervals that end at them only a few may overlap."""
        windows, every = observables.windows, np.arange(len(times))
        if windows is None or not len(times):
            return [every]
        order = np.argsort(times, kind="stable")
        scaled = np.unique(self.data.prior.units.scale_times(times))
        open_ = np.arange(1, len(scaled) + 1)[:, None] - np.searchsorted(scaled, scaled[:, None] - windows)
        count = -(-int(open_.sum(axis=1).max()) // _MAX_OPEN_INTERVALS)
        return [order[start::count] for start in range(count)] if count > 1 else [every]

    @staticmethod
    def _scatter(parts: list[NDArray[np.intp]], found: list[Array]) -> Array:
        every = np.zeros((sum(map(len, parts)), found[0].shape[1]))
        for part, own in zip(parts, found, strict=True):
            every[part] = own
        return every

    def smooth_at(self, observables: Observables, times: Array) -> tuple[StateSmoother, Array]:
        """Return places for times among the blocks, and the rows of observables there, shape (n, o, s)."""
        if len(self._split_overlapping(observables, times)) > 1:
            raise LodekitError(
                "too many of the intervals that were asked for overlap for covariances and samples of the Markov "
                "engine; ask for fewer times, or use engine='dense'"
            )
        return self._build_smoother(observables, times)

    def _build_smoother(self, observables: Observables, times: Array) -> tuple[StateSmoother, Array]:
        """Return places for times among the blocks, and the rows of observables there, shape (n, o, s).

        The last places are kept.
        """
        data, space, sums = self.data, self.solution.filter.model, None
        values, key = observables.evaluate(self.hyper.theta), np.ascontiguousarray(times).tobytes()
        if observables.windows is None:
            rows = space.build_observation_matrix(observables, values)
        else:
            base = space.base_model if isinstance(space, AveragedStateSpaceModel) else space
            sums = self._build_averaging_states(observables.windows, times)
            own = base.build_observation_matrix(observables, values)
            space = add_averaging_states(replace(base, H=np.concatenate([base.H, own])), sums)
            rows = space.H[sums.row_index[data.size :].reshape(observables.count, len(times)).T]
            key += observables.windows.tobytes() + own.tobytes()
        rows = np.broadcast_to(rows, (len(times), observables.count, space.size))
        if key not in self._looks:
            layout, places = self._partition_times(space, data.prior.units.scale_times(times), sums)
            residual, variance = self.solution.residual[:, None], self.solution.filter.noise_variance
            with np.errstate(all="ignore"):
                spread = layout.to_blocks(residual, 0.0)
                made = run_filter(
                    space, layout, variance, spread, keep_basis=True, boundary=self.solution.filter.boundary
                )
            if made is None:
                raise AccuracyError(
                    "the states are not finite at these values and times; ask for times closer to the data"
                )
            self._looks.clear()
            self._looks[key] = StateSmoother(made[0], places, residual, made[1])
        return self._looks[key], rows

    def _partition_times(
        self, model: StateSpaceModel, times: Array, averaging: AveragingStates | None
    ) -> tuple[BlockLayout, NDArray[np.intp]]:
        """Return blocks with places for times, and these; short ones where noise is far below what a block may do.

        Covariances inside blocks are differences: they err as the signal does, and are as small as the noise.
        """
        variance, length, n = self.solution.filter.noise_variance, self.block_length, model.n_stochastic
        parts = np.split(variance, self.data.offsets[1:-1])
        quiet = min((float(np.quantile(part, 0.1)) for part in parts if len(part)), default=np.inf)
        while True:
            layout, places = self.data.with_times(times, length, averaging)
            span = float((layout.times[:, -1] - layout.times[:, 0]).max(initial=0.0))
            with np.errstate(all="ignore"):
                noise = ProcessDiscretization(model.F[:n, :n], model.noise_intensity, np.array([span])).Q[0]
                loud = np.einsum("oi,ij,oj->o", model.H[:, :n], noise, model.H[:, :n]) > _MAX_NOISE_RATIO * quiet
            if layout.rows_per_block == 1 or not loud.any():
                return layout, places
            length = max(1, layout.rows_per_block // _BLOCK_REDUCTION_FACTOR) * layout.observable_index.shape[2]

    def _build_averaging_states(self, window_lengths: Array, times: Array) -> AveragingStates:
        """Return the intervals of the measurements and of what is asked for."""
        data, asked = self.data, self.data.prior.units.scale_times(times)
        measured = data.prior.observables.windows
        ends = [data.scaled_times[index] for index in data.index] + [asked] * len(window_lengths)
        window_lengths = np.concatenate([np.zeros(len(data.index)) if measured is None else measured, window_lengths])
        every = np.unique(np.concatenate([data.scaled_times, asked]))
        return AveragingStates.of(window_lengths, ends, every, data.time_resolution)
