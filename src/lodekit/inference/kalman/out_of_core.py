"""Kalman filter and smoother for records that are larger than memory: batches of rows are read one after the other.

The forward pass propagates mean and covariance of the state from batch to batch; the backward pass its score and the
information of all later rows (two-pass fixed-interval smoother). A gradient takes both passes: the second solves each
batch again, from the state at its start. Posteriors read those batches again that contain requested times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar, NoReturn

import numpy as np

from lodekit.data.observations import TimeSeries
from lodekit.data.row_store import FilterCheckpoint, RowStore
from lodekit.errors import AccuracyError, LodekitError
from lodekit.inference.engine import BaseEngine, BasePosterior, Evidence, SearchLimits
from lodekit.inference.kalman.blocks import KalmanData, reduce_block_length
from lodekit.inference.kalman.evidence import (
    NOT_FINITE,
    FilterSolution,
    assemble_gradient,
    evidence_vjp,
    lengthscale_limits,
    solve_filter,
)
from lodekit.inference.kalman.innovations import KalmanInnovations
from lodekit.inference.kalman.posterior import KalmanPosterior
from lodekit.inference.kalman.sqrt_filter import BoundaryConditions
from lodekit.inference.kalman.state_space import StateSpaceGradient
from lodekit.inference.stacked_measurements import N_SUBSAMPLED_TIMES, mode_mean_squares
from lodekit.prior.compile import Coefficients
from lodekit.prior.input_response.mean import ChunkStates
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Hyperparameters, Prior
from lodekit.support.arguments import Array, IndexArray
from lodekit.support.recent import RecentResults

#: Number of rows in memory at the same time; irregular ones take about a kilobyte each.
ROWS_IN_MEMORY = 100_000
#: Samples that are drawn in one pass over all batches.
_DRAWS_PER_PASS = 8


@dataclass(frozen=True)
class OutOfCorePosterior(BasePosterior):
    """The posterior of rows on disk.

    boundaries: The boundary conditions of each batch.
    value, error: The log evidence in the user's units, and its estimated rounding error.
    """

    engine: OutOfCoreEngine
    hyper: Hyperparameters
    boundaries: tuple[BoundaryConditions, ...]
    value: float
    error: float
    _posteriors: RecentResults = field(default_factory=RecentResults, init=False, compare=False, repr=False)

    def check_exact_values(self) -> None:
        """Raise if the mean does not meet exact values in some batch."""
        for number in range(len(self.boundaries)):
            if self.engine.read_batch(number).noise.exact.any():
                self.get_batch_posterior(number).check_exact_values()

    def mean(self, observables: Observables, times: Array) -> Array:
        """Return the posterior mean of `observables` at `times`, in the user's units, shape (n, o)."""
        return self._evaluate_by_batch(observables, times, lambda batch, some: batch.mean(observables, some))

    def variance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior variance of `observables` at `times`, as in `mean`, shape (n, o)."""
        return self._evaluate_by_batch(observables, times, lambda batch, some: batch.variance(observables, some))

    def covariance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior covariance of `observables` at `times`, as in `mean`, shape (n, o, n, o).

        Times have to be in one batch of the record.
        """
        numbers = np.unique(self._find_batches(observables, times))
        if len(numbers) > 1:
            _raise_unsupported("covariances of times that are far apart")
        count = observables.count
        if not len(numbers):
            return np.zeros((0, count, 0, count))
        return self.get_batch_posterior(int(numbers[0])).covariance(observables, times)

    def sample(self, observables: Observables, times: Array, size: int, generator: np.random.Generator) -> Array:
        """Return samples of observables from the posterior, shape (size, n, o).

        Prior samples are drawn through all batches; in the backward pass each batch repeats its own and corrects it.
        """
        numbers = self._find_batches(observables, times)
        samples = np.zeros((size, len(times), observables.count))
        for first in range(0, size, _DRAWS_PER_PASS):
            count, seed = min(_DRAWS_PER_PASS, size - first), generator.integers(1 << 62, size=2)
            for own, drawn in self._sample_batches(observables, times, numbers, seed, count):
                samples[first : first + count, own] = drawn
        return samples

    def _sample_batches(
        self, observables: Observables, times: Array, batch_index: IndexArray, seed: IndexArray, n_draws: int
    ) -> Iterator[tuple[IndexArray, Array]]:
        """Yield the indices of the times in a batch, and samples, shape (k, a, o), from the last batch to the first."""
        # The prior sample of the state at the start of each batch, and the mean of its correction.
        starts: list[tuple[Array | None, Array | None]] = [(None, None)]
        score = None
        last = len(self.boundaries) - 1
        there, back = ((number, True) for number in range(last)), ((number, False) for number in range(last, -1, -1))
        for number, is_ahead in (*there, *back):
            own = np.flatnonzero(batch_index == number)
            batch, (state, mean) = self.get_batch_posterior(number), starts[number]
            smoother, rows = batch.smooth_at(observables, times[own])
            # The same random numbers in both directions.
            generator = np.random.default_rng([*seed.tolist(), number])
            seen, states, end = smoother.sample_prior(n_draws, generator, state)
            variance = batch.data.noise.variance(self.hyper.noise_std)
            noise = np.sqrt(variance)[:, None] * generator.standard_normal(seen.shape)
            values = batch.solution.residual[:, None] - seen - noise
            y, smoothed = smoother.smooth_values(values, BoundaryConditions(mean=mean, score=score))
            if is_ahead:
                starts.append((end, smoothed.final_mean))
                continue
            score = smoothed.scores[0]
            every = states + smoother.compute_row_means(y, smoothed)
            yield own, batch.observe_states(observables, times[own], rows, every).transpose(2, 0, 1)

    def _find_batches(self, observables: Observables, times: Array) -> IndexArray:
        """Return the batch that each time is in."""
        starts = self.engine.batch_starts
        if observables.windows is not None:
            _raise_unsupported("means and totals over intervals")
        if self.engine.checkpoints is not None and len(times) and times.min() < starts[0]:
            raise LodekitError(
                f"this model was saved without its rows before t = {starts[0]:.6g}, to keep the file small: "
                "request times from there on, or fit again with the file"
            )
        return np.maximum(np.searchsorted(starts, times, side="right") - 1, 0)

    def _evaluate_by_batch(
        self, observables: Observables, times: Array, function: Callable[[KalmanPosterior, Array], Array]
    ) -> Array:
        found, numbers = np.zeros((len(times), observables.count)), self._find_batches(observables, times)
        for number in np.unique(numbers).tolist():
            found[numbers == number] = function(self.get_batch_posterior(number), times[numbers == number])
        return found

    def get_batch_posterior(self, batch: int) -> KalmanPosterior:
        """Return the posterior in one batch; the last one is cached."""

        def compute() -> KalmanPosterior:
            data = self.engine.read_batch(batch)
            solved = self.engine.solve_batch(data, self.hyper, self.boundaries[batch])
            if solved is None:
                raise AccuracyError("the states are not finite at these values; check units and starting values")
            return KalmanPosterior(data, self.hyper, solved, self.engine.block_length)

        return self._posteriors.find(batch, compute)

    def last_series(self) -> list[TimeSeries]:
        """Return the measurements of the last batch."""
        return self.engine.read_series(len(self.boundaries) - 1)

    def last_innovations(self) -> KalmanInnovations:
        """Return the innovations of the last batch, given all batches before it."""
        last = self.get_batch_posterior(len(self.boundaries) - 1)
        return KalmanInnovations(last.data, last.solution)

    def find_tail(self, min_rows: int) -> int:
        """Return the first of the last batches that together have at least `min_rows` rows."""
        last = len(self.boundaries) - 1
        return last - 1 if last and self.engine.spool.n_rows - self.first_row(last) < min_rows else last

    def first_row(self, batch: int) -> int:
        """Return the number of the first row of a batch."""
        return batch * self.engine.rows_in_memory

    def summarize_before(self, batch: int) -> tuple[float, float, tuple[Array | None, ...]]:
        """Return log evidence and error of all batches before one, and the arrays from which a filter continues."""
        engine, hyper, value, error = self.engine, self.hyper, self.value, self.error
        for number in range(batch, len(self.boundaries)):
            solution = engine.solve_batch(engine.read_batch(number), hyper, self.boundaries[number])
            if solution is not None:
                value, error = value - solution.value, error - solution.error
        response, driven = np.zeros(0), engine.prior.observables.input_response
        if engine.input_states is not None and driven is not None:
            response = engine.input_states.state_at_start(batch, driven.evaluate(hyper.theta))
        start = self.boundaries[batch]
        return value, max(error, 0.0), (np.concatenate(hyper.arrays), start.mean, start.P_root, response)


def _raise_unsupported(request: str) -> NoReturn:
    raise LodekitError(
        f"the rows of this fit are on disk, because they exceed the memory, and {request} need all rows in memory; fit "
        "a part of the record, or request means and standard deviations at some times"
    )


@dataclass(frozen=True)
class OutOfCoreEngine(BaseEngine):
    """Log evidence and posterior of rows on disk.

    spool: The rows.
    rows_in_memory: The number of rows of a batch.
    checkpoints, n_omitted: As in `OutOfCoreRows`.
    """

    benefits_from_threads: ClassVar[bool] = False
    prior: Prior
    spool: RowStore
    # Looked up when an engine is created, since tests patch it.
    rows_in_memory: int = field(default_factory=lambda: ROWS_IN_MEMORY)
    checkpoints: tuple[FilterCheckpoint, ...] | None = None
    n_omitted: int = 0
    _block_lengths: list[int | None] = field(default_factory=lambda: [None], compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_block_lengths": [None]}

    @property
    def block_length(self) -> int | None:
        """The number of measurements of a block, if it was reduced."""
        return self._block_lengths[-1]

    @cached_property
    def size(self) -> int:
        """The number of measurements."""
        return int(self._sums_of_squares[0].sum()) + self.n_omitted

    @cached_property
    def batch_starts(self) -> Array:
        """The time of the first row of each batch, in the user's unit."""
        return np.array([self.spool.time_of_row(row) for row in range(0, self.spool.n_rows, self.rows_in_memory)])

    @cached_property
    def input_states(self) -> ChunkStates | None:
        """The states of the response to known inputs at the start of each batch; None if there are none."""
        driven = self.prior.observables.input_response
        if driven is None:
            return None
        if self.checkpoints is None:
            return ChunkStates(driven.compiled, driven.signals, [driven.start, *self.batch_starts[1:].tolist()])
        theta = len(self.prior.observables.compiled.parameters)
        heads = [arrays for _, _, arrays in self.checkpoints]
        known = [(driven.evaluate(point[:theta])[0], response) for point, _, _, response in heads]
        # No local function: models are pickled.
        find_response = partial(_find_saved_response, known)
        return ChunkStates(driven.compiled, driven.signals, self.batch_starts.tolist(), find_response)

    @property
    def search_limits(self) -> SearchLimits:
        """The bounds of lengthscales in a search."""
        return lengthscale_limits(self.spool.min_step / self.prior.units.time_scale)

    def read_series(self, batch: int) -> list[TimeSeries]:
        """Return the measurements of a batch, one series for each observable of the prior."""
        first, nothing = batch * self.rows_in_memory, np.zeros(0)
        known = {item.observable: item for item in self.spool.read_series(first, first + self.rows_in_memory)}
        names = self.prior.noise.observables
        return [known.get(name, TimeSeries(name, nothing, nothing, nothing)) for name in names]

    def read_batch(self, batch: int) -> KalmanData:
        """Read a batch from disk."""
        series, prior = self.read_series(batch), self.prior
        if self.input_states is not None:
            observables = replace(prior.observables, input_response=self.input_states.chunk(batch))
            prior = replace(prior, observables=observables)
        data = KalmanData.from_series(prior, series)
        after = self.batch_starts[batch + 1 : batch + 2]
        until = float(self.prior.units.scale_times(after)[0]) if len(after) else None
        return replace(data, next_time=until, is_continuation=batch > 0 or self.checkpoints is not None)

    def solve_batch(
        self, data: KalmanData, hyper: Hyperparameters, boundary: BoundaryConditions, *, keep_blocks: bool = False
    ) -> FilterSolution | None:
        """Solve a batch; None if something is not finite."""
        return solve_filter(data, hyper, data.layout(self.block_length), boundary, keep_blocks=keep_blocks)

    def evaluate(self, hyper: Hyperparameters) -> Evidence:
        """Return the log evidence in the user's units, and its gradient; minus infinity if it is not finite."""
        # A gradient needs all rows.
        forward = None if self.checkpoints is not None else self._filter_forward(hyper)
        if forward is None:
            return Evidence.infeasible(hyper)
        value, error, boundaries = forward
        noise, theta, gradient, n_solved = np.zeros(len(hyper.noise_std)), np.zeros(len(hyper.theta)), None, 0
        with np.errstate(all="ignore"):
            for data, solution in self._smooth_backward(hyper, boundaries, keep_blocks=True):
                gradient = gradient or StateSpaceGradient.zeros(solution.filter.model)
                in_noise, in_theta = evidence_vjp(data, hyper, solution, gradient)
                noise, theta, n_solved = noise + in_noise, theta + in_theta, n_solved + 1
            if gradient is None or n_solved < len(self.batch_starts):
                return Evidence.infeasible(hyper)
            return assemble_gradient(solution, gradient, noise, theta, value, error)

    def value_with_error(self, hyper: Hyperparameters) -> tuple[float, float]:
        """Return the log evidence, and its estimated rounding error."""
        if self.checkpoints is not None and self._find_head(hyper) is None:
            return -np.inf, 0.0
        forward = self._filter_forward(hyper)
        return (-np.inf, 0.0) if forward is None else forward[:2]

    def posterior(self, hyper: Hyperparameters) -> OutOfCorePosterior:
        """Return the posterior at given hyperparameters; raise if it is not finite."""
        forward = self._filter_forward(hyper)
        solutions = self._smooth_backward(hyper, forward[2]) if forward else ()
        boundaries = [solution.filter.boundary for _, solution in solutions]
        if forward is None or len(boundaries) < len(self.batch_starts):
            raise AccuracyError(NOT_FINITE)
        return OutOfCorePosterior(self, hyper, tuple(reversed(boundaries)), *forward[:2])

    def mean_squares(self, coefficients: Coefficients) -> tuple[Array, Array]:
        """Return scaled mean squares: of the data of each observable, (o,), and of the basis of the modes, (r,)."""
        counts, sums = self._sum_squares(coefficients) if self.prior.observables.has_mean else self._sums_of_squares
        target = np.divide(sums, counts, out=np.zeros(len(sums)), where=counts > 0)
        ends = np.array([self.spool.time_of_row(row) for row in (0, self.spool.n_rows - 1)])
        first, last = self.prior.units.scale_times(ends)
        times = np.linspace(first, last, N_SUBSAMPLED_TIMES)
        power = mode_mean_squares(self.prior, coefficients, times)
        return np.where(target > 0.0, target, 1.0), power

    @cached_property
    def _sums_of_squares(self) -> tuple[Array, Array]:
        return self._sum_squares(None)

    def _sum_squares(self, coefficients: Coefficients | None) -> tuple[Array, Array]:
        """Return the number of measurements of each observable, and the sum of their squares, minus prior means."""
        counts, sums = np.zeros((2, self.prior.observables.count))
        for number in range(len(self.batch_starts)):
            data = self.read_batch(number)
            values = data.values if coefficients is None else data.subtract_mean(coefficients)
            counts += np.diff(data.offsets)
            sums += [float(np.sum(part**2)) for part in np.split(values, data.offsets[1:-1])]
        return counts, sums

    def _filter_forward(self, hyper: Hyperparameters) -> tuple[float, float, list[BoundaryConditions]] | None:
        """Return log evidence, error and states at the starts of batches and the end; None if not finite."""
        while True:
            value, error, boundaries = 0.0, 0.0, [BoundaryConditions()]
            if self.checkpoints is not None:
                value, error, (_, mean, root, _) = self._find_head(hyper) or _raise_rows_missing()
                boundaries = [BoundaryConditions(root, mean)]
            length = None
            for number in range(len(self.batch_starts)):
                solution = self.solve_batch(self.read_batch(number), hyper, boundaries[-1])
                if solution is None:
                    return None
                value, error, own = value + solution.value, error + solution.error, solution.filter
                boundaries.append(BoundaryConditions(own.covariances.P_root_final, solution.smoothed.final_mean))
            if len(self.batch_starts):
                length = reduce_block_length(own.layout, self.size, value, error)
            if length is None:
                return value, error, boundaries
            self._block_lengths[-1] = length

    def _find_head(self, hyper: Hyperparameters) -> FilterCheckpoint | None:
        """Return the checkpoint after the omitted rows; None if it was not saved for these hyperparameters."""
        point = np.concatenate(hyper.arrays)
        return next((head for head in self.checkpoints or () if _points_agree(head[2][0], point)), None)

    def _smooth_backward(
        self, hyper: Hyperparameters, boundaries: list[BoundaryConditions], *, keep_blocks: bool = False
    ) -> Iterator[tuple[KalmanData, FilterSolution]]:
        """Yield batches with complete boundary conditions, the last one first, until something is not finite."""
        score = information = root = None
        for number in range(len(self.batch_starts) - 1, -1, -1):
            data, start = self.read_batch(number), boundaries[number]
            boundary = replace(start, score=score, information=information, backward_information_root=root)
            solution = self.solve_batch(data, hyper, boundary, keep_blocks=keep_blocks)
            if solution is None:
                return
            yield data, solution
            score, information = solution.smoothed.scores[0], solution.filter.information[0]
            root = None if keep_blocks else solution.filter.backward_information_roots[0]


def _find_saved_response(known: list[tuple[Array, Array]], table: Array) -> Array:
    """Return the saved states of the response for the coefficients of its state space."""
    state = next((state for saved, state in known if _points_agree(saved, table)), None)
    return _raise_rows_missing() if state is None else state


def _raise_rows_missing() -> NoReturn:
    raise LodekitError(
        "this model was saved without most of its rows, to keep the file small, so other values of the estimated "
        "quantities cannot be evaluated; fit again with the file"
    )


def _points_agree(first: Array, second: Array) -> bool:
    """Return whether two points agree up to rounding."""
    return first.shape == second.shape and bool(np.allclose(first, second, rtol=1e-9, atol=0.0, equal_nan=True))
