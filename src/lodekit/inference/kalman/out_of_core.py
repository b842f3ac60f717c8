"""The posterior of records that are larger than memory: pieces in which something is asked for are read again.

Records that are larger than memory: one piece after the other is read, filtered, and forgotten.

Between pieces go what goes between blocks: mean and covariance of the state forward; backward its score, and the
information of all that follows. A gradient takes two passes: the way back solves each piece again, from the state at
its start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from lodekit.data.observations import TimeSeries
from lodekit.data.row_store import FilterCheckpoint, RowStore, TruncatedHistory
from lodekit.errors import AccuracyError, LodekitError
from lodekit.inference.engine import Evidence, SearchLimits
from lodekit.inference.kalman.block_model import ModelGradient
from lodekit.inference.kalman.blocks import KalmanData, reduce_block_length
from lodekit.inference.kalman.evidence import (
    EvidenceGradient,
    FilterSolution,
    assemble_gradient,
    solve_filter,
    subtract_mean,
)
from lodekit.inference.kalman.innovations import KalmanInnovations
from lodekit.inference.kalman.posterior import KalmanPosterior
from lodekit.inference.kalman.sqrt_filter import BoundaryConditions
from lodekit.inference.stacked_measurements import N_SUBSAMPLED_TIMES, mode_mean_squares
from lodekit.prior.compile import Coefficients
from lodekit.prior.input_response.mean import ChunkStates
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Hyperparameters, Prior

Array = NDArray[np.float64]
IndexArray = NDArray[np.intp]
#: So many functions are drawn at the same time.
_DRAWS_PER_PASS = 8


@dataclass(frozen=True)
class OutOfCorePosterior:
    """The posterior of rows on disk; pieces in which something is asked for are read again.

    boundaries: What is said at both ends of each piece.
    value, error: The log evidence in the user's units, and about how large an error rounding makes in it.
    """

    engine: OutOfCoreEngine
    hyper: Hyperparameters
    boundaries: tuple[BoundaryConditions, ...]
    value: float
    error: float
    _kept: dict[int, KalmanPosterior] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": {}}

    @property
    def mean_rounding_error(self) -> float:
        """About how large an error rounding makes in the mean, relative to the data: states do not cancel."""
        return float(np.finfo(float).eps)

    def warnings(self) -> list[str]:
        """Return sentences that users should read about its accuracy; none where nothing is wrong."""
        return []

    def check_exact_values(self) -> None:
        """Raise where values that were said to be exact are not met, in any piece."""
        for number in range(len(self.boundaries)):
            if self.engine.read_batch(number).noise.exact.any():
                self.get_batch_posterior(number).check_exact_values()

    def mean(self, observables: Observables, times: Array) -> Array:
        """Return the posterior mean of `observables` at `times`, in the user's units, shape (n, o)."""
        return self._evaluate_by_batch(observables, times, lambda own, some: own.mean(observables, some))

    def variance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior variance of `observables` at `times`, as in `mean`, shape (n, o)."""
        return self._evaluate_by_batch(observables, times, lambda own, some: own.variance(observables, some))

    def covariance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior covariance of `observables` at `times`, as in `mean`, shape (n, o, n, o).

        Times have to be in one piece of the record.
        """
        numbers = np.unique(self._find_batches(observables, times))
        if len(numbers) > 1:
            _raise_unsupported("covariances of times that are far apart")
        count = observables.count
        if not len(numbers):
            return np.zeros((0, count, 0, count))
        return self.get_batch_posterior(int(numbers[0])).covariance(observables, times)

    def sample(self, observables: Observables, times: Array, size: int, generator: np.random.Generator) -> Array:
        """Return functions drawn from the posterior, seen through observables, shape (size, n, o).

        Draws from the prior go through all pieces; on the way back each piece makes its own again, to correct them.
        """
        numbers = self._find_batches(observables, times)
        found = np.zeros((size, len(times), observables.count))
        for first in range(0, size, _DRAWS_PER_PASS):
            count = min(_DRAWS_PER_PASS, size - first)
            for own, drawn in self._sample_batches(
                observables, times, numbers, generator.integers(1 << 62, size=2), count
            ):
                found[first : first + count, own] = drawn
        return found

    def _sample_batches(
        self, observables: Observables, times: Array, batch_index: IndexArray, seed: IndexArray, n_draws: int
    ) -> Iterator[tuple[IndexArray, Array]]:
        """Yield which times are in a piece, and draws there, shape (k, a, o), from the last piece to the first."""
        # The state of each draw at the start of a piece, and the mean of what corrects it.
        starts: list[tuple[Array | None, Array | None]] = [(None, None)]
        score = None
        last = len(self.boundaries) - 1
        there, back = ((number, True) for number in range(last)), ((number, False) for number in range(last, -1, -1))
        for number, is_ahead in (*there, *back):
            own = np.flatnonzero(batch_index == number)
            piece, (state, mean) = self.get_batch_posterior(number), starts[number]
            look, rows = piece.smooth_at(observables, times[own])
            # The same numbers on the way there and back.
            generator = np.random.default_rng([*seed.tolist(), number])
            seen, states, end = look.sample_prior(n_draws, generator, state)
            variance = piece.data.noise.variance(self.hyper.noise_std)
            noise = np.sqrt(variance)[:, None] * generator.standard_normal(seen.shape)
            y, smoothed = look.smooth_values(
                piece.solution.residual[:, None] - seen - noise, BoundaryConditions(mean=mean, score=score)
            )
            if is_ahead:
                starts.append((end, smoothed.final_mean))
                continue
            score = smoothed.scores[0]
            every = states + look.compute_row_means(y, smoothed)
            yield own, piece.observe_states(observables, times[own], rows, every).transpose(2, 0, 1)

    def _find_batches(self, observables: Observables, times: Array) -> IndexArray:
        """Return the piece that each time is in."""
        if observables.windows is not None:
            _raise_unsupported("means and totals over intervals")
        if self.engine.left_out is not None and len(times) and times.min() < self.engine.batch_starts[0]:
            raise LodekitError(
                f"this model was saved without its rows before t = {self.engine.batch_starts[0]:.6g}, which are too many: "
                "ask for times from there on, or fit again with the file"
            )
        return np.maximum(np.searchsorted(self.engine.batch_starts, times, side="right") - 1, 0)

    def _evaluate_by_batch(
        self, observables: Observables, times: Array, function: Callable[[KalmanPosterior, Array], Array]
    ) -> Array:
        found, numbers = np.zeros((len(times), observables.count)), self._find_batches(observables, times)
        for number in np.unique(numbers).tolist():
            found[numbers == number] = function(self.get_batch_posterior(number), times[numbers == number])
        return found

    def get_batch_posterior(self, batch: int) -> KalmanPosterior:
        """Return the posterior in one piece; the last one is kept."""
        if batch not in self._kept:
            data = self.engine.read_batch(batch)
            solved = self.engine.solve_batch(data, self.hyper, self.boundaries[batch])
            if solved is None:
                raise AccuracyError("the states are not finite at these values; check units and starting values")
            self._kept.clear()
            self._kept[batch] = KalmanPosterior(data, self.hyper, solved, self.engine.block_length)
        return self._kept[batch]

    def last_series(self) -> list[TimeSeries]:
        """Return the measurements of the last batch."""
        return self.engine.read_series(len(self.boundaries) - 1)

    def last_innovations(self) -> KalmanInnovations:
        """Return the innovations of the last batch, given all batches before it."""
        last = self.get_batch_posterior(len(self.boundaries) - 1)
        return KalmanInnovations(last.data, last.solution)

    def find_tail(self, min_rows: int) -> int:
        """Return the first batch of the last ones that have at least `min_rows` rows together."""
        last = len(self.boundaries) - 1
        return last - 1 if last and self.engine.spool.n_rows - self.first_row(last) < min_rows else last

    def first_row(self, batch: int) -> int:
        """Return the number of the first row of a batch."""
        return batch * self.engine.rows_in_memory

    def summarize_before(self, batch: int) -> tuple[float, float, tuple[Array | None, ...]]:
        """Return log evidence and error of all batches before one, and arrays that a filter continues from."""
        value, error, border, response = self.engine.summarize_earlier_batches(self, batch)
        return value, error, (np.concatenate(self.hyper.arrays), border.mean, border.P_root, response)


def _raise_unsupported(request: str) -> NoReturn:
    raise LodekitError(
        f"the rows of this fit are on disk, as they are too many for memory, and {request} are not made of them; fit a "
        "piece of the record, or ask for means and deviations at some times"
    )


#: Rows that are in memory at the same time; irregular ones take about a kilobyte each.
ROWS_IN_MEMORY = 100_000


@dataclass(frozen=True)
class OutOfCoreEngine:
    """Log evidence and posterior of rows on disk.

    prior: Of the measured observables.
    spool: The rows.
    rows_in_memory: How many of them are a piece.
    left_out: Where these are the end of longer rows: what is known of those before them.
    """

    prior: Prior
    spool: RowStore
    # Asked for when it is made: tests have shorter pieces.
    rows_in_memory: int = field(default_factory=lambda: ROWS_IN_MEMORY)
    left_out: TruncatedHistory | None = None
    _last: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": {}}

    @property
    def block_length(self) -> int | None:
        """How many measurements a block has, where it matters."""
        return self._last.get("length")

    @cached_property
    def size(self) -> int:
        """The number of measurements."""
        return int(self._sums_of_squares[0].sum()) + (self.left_out.n_measurements if self.left_out else 0)

    @cached_property
    def batch_starts(self) -> Array:
        """The time of the first row of each piece, in the user's unit."""
        return np.array([self.spool.time_of_row(row) for row in range(0, self.spool.n_rows, self.rows_in_memory)])

    @cached_property
    def _relay(self) -> ChunkStates | None:
        """What the response to known inputs hands from piece to piece; None where there are none."""
        driven = self.prior.observables.input_response
        if driven is None:
            return None
        if self.left_out is None:
            return ChunkStates(driven.compiled, driven.signals, [driven.start, *self.batch_starts[1:].tolist()])
        theta = len(self.prior.observables.compiled.parameters)
        known = [(driven.evaluate(head.log_parameters[:theta])[0], head.response) for head in self.left_out.checkpoints]
        return ChunkStates(
            driven.compiled, driven.signals, self.batch_starts.tolist(), partial(_find_input_response, known)
        )

    @property
    def search_limits(self) -> SearchLimits:
        """How far a search may take lengthscales: not far below the smallest gap; all cost the same to evaluate."""
        gap = self.spool.min_step / self.prior.units.time_scale
        return SearchLimits(max(0.3 * gap if np.isfinite(gap) else 1e-3, 1e-6))

    @property
    def benefits_from_threads(self) -> bool:
        """Whether several threads pay: never, its matrices are small."""
        return False

    def read_series(self, batch: int) -> list[TimeSeries]:
        """Return the measurements in a piece of the record, one series for each observable of the prior."""
        known = {
            item.observable: item
            for item in self.spool.read_series(batch * self.rows_in_memory, (batch + 1) * self.rows_in_memory)
        }
        names, nothing = self.prior.noise.observables, np.zeros(0)
        return [known.get(name, TimeSeries(name, nothing, nothing, nothing)) for name in names]

    def read_batch(self, batch: int) -> KalmanData:
        """Return a piece of the record, read from disk."""
        series, prior = self.read_series(batch), self.prior
        if self._relay is not None:
            prior = replace(prior, observables=replace(prior.observables, input_response=self._relay.chunk(batch)))
        data = KalmanData.from_series(prior, series)
        after = self.batch_starts[batch + 1 : batch + 2]
        until = float(self.prior.units.scale_times(after)[0]) if len(after) else None
        return replace(data, next_time=until, is_continuation=batch > 0 or self.left_out is not None)

    def solve_batch(
        self, data: KalmanData, hyper: Hyperparameters, boundary: BoundaryConditions, *, keep_blocks: bool = False
    ) -> FilterSolution | None:
        """Return a piece with its log evidence, in blocks that are short enough; None where something is not finite."""
        return solve_filter(data, hyper, data.layout(self.block_length), boundary, keep_blocks=keep_blocks)

    def evaluate(self, hyper: Hyperparameters) -> Evidence:
        """Return the log evidence in the user's units, and its gradient; minus infinity where it is not finite."""
        # A gradient needs all rows.
        found = None if self.left_out is not None else self._filter_forward(hyper)
        if found is None:
            return Evidence.infeasible(hyper)
        noise, theta, total, last = np.zeros(len(hyper.noise_std)), np.zeros(len(hyper.theta)), None, None
        left = len(self.batch_starts)
        for data, solved in self._smooth_backward(hyper, found.boundaries, keep_blocks=True):
            total = total or ModelGradient(solved.filter.model)
            with np.errstate(all="ignore"):
                pulled = EvidenceGradient.of(data, hyper, solved, total)
            noise, theta, last = noise + pulled.noise, theta + pulled.theta, (solved.filter, pulled)
            left -= 1
        if last is None or left:
            return Evidence.infeasible(hyper)
        with np.errstate(all="ignore"):
            gradient = assemble_gradient(last[0], replace(last[1], noise=noise, theta=theta))
        if not all(np.isfinite(part).all() for part in gradient.arrays):
            return Evidence.infeasible(hyper)
        return Evidence(found.value, gradient, found.error)

    def value(self, hyper: Hyperparameters) -> float:
        """Return the log evidence in the user's units alone; minus infinity where it is not finite."""
        return self.value_with_error(hyper)[0]

    def value_with_error(self, hyper: Hyperparameters) -> tuple[float, float]:
        """Return the log evidence as `value` does, and about how large an error rounding makes in it."""
        if self.left_out is not None and self._find_head(hyper) is None:
            return -np.inf, 0.0
        found = self._filter_forward(hyper)
        return (-np.inf, 0.0) if found is None else (found.value, found.error)

    def posterior(self, hyper: Hyperparameters) -> OutOfCorePosterior:
        """Return the posterior at some hyperparameters; raise where it is not finite."""
        found = self._filter_forward(hyper)
        borders = (
            [solved.filter.boundary for _, solved in self._smooth_backward(hyper, found.boundaries)] if found else []
        )
        if found is None or len(borders) < len(self.batch_starts):
            raise AccuracyError(
                "the states are not finite at these values, or their covariance is singular to rounding; check units "
                "and starting values, and give exact values a small noise_std"
            )
        return OutOfCorePosterior(self, hyper, tuple(reversed(borders)), found.value, found.error)

    def mean_squares(self, coefficients: Coefficients) -> tuple[Array, Array]:
        """Return mean squares, scaled: of the data of each observable, (o,), and of the basis of the modes, (r,)."""
        counts, sums = self._sum_squares(coefficients) if self.prior.observables.has_mean else self._sums_of_squares
        target = np.divide(sums, counts, out=np.zeros(len(sums)), where=counts > 0)
        ends = self.prior.units.scale_times(
            np.array([self.spool.time_of_row(0), self.spool.time_of_row(self.spool.n_rows - 1)])
        )
        power = mode_mean_squares(self.prior, coefficients, np.linspace(ends[0], ends[1], N_SUBSAMPLED_TIMES))
        return np.where(target > 0.0, target, 1.0), power

    def explain_failure(self, hyper: Hyperparameters) -> str:
        """Return an empty text: states that are not finite have many causes."""
        return ""

    @cached_property
    def _sums_of_squares(self) -> tuple[Array, Array]:
        return self._sum_squares(None)

    def _sum_squares(self, coefficients: Coefficients | None) -> tuple[Array, Array]:
        """Return how many measurements each observable has, and the sum of their squares, less what is known."""
        counts, sums = np.zeros((2, self.prior.observables.count))
        for number in range(len(self.batch_starts)):
            data = self.read_batch(number)
            values = data.values if coefficients is None else subtract_mean(data, coefficients)
            counts += np.diff(data.offsets)
            sums += [float(np.sum(part**2)) for part in np.split(values, data.offsets[1:-1])]
        return counts, sums

    def _filter_forward(self, hyper: Hyperparameters) -> _ForwardPass | None:
        """Return the log evidence, and what goes from piece to piece; None where something is not finite."""
        while True:
            found, layout = self._start_forward_pass(hyper), None
            for number in range(len(self.batch_starts)):
                data = self.read_batch(number)
                solved = self.solve_batch(data, hyper, found.boundaries[-1])
                if solved is None:
                    return None
                found.value, found.error = found.value + solved.value, found.error + solved.error
                layout = solved.filter.layout
                found.boundaries.append(
                    BoundaryConditions(solved.filter.covariances.P_root_final, solved.smoothed.final_mean)
                )
            length = None if layout is None else reduce_block_length(layout, self.size, found.value, found.error)
            if length is None:
                return found
            self._last["length"] = length

    def _find_head(self, hyper: Hyperparameters) -> FilterCheckpoint | None:
        """Return what rows that were left out say; None where nobody has kept that."""
        heads, point = self.left_out.checkpoints if self.left_out else (), np.concatenate(hyper.arrays)
        return next((head for head in heads if _points_agree(head.log_parameters, point)), None)

    def _start_forward_pass(self, hyper: Hyperparameters) -> _ForwardPass:
        """Return what is known before the first row."""
        if self.left_out is None:
            return _ForwardPass()
        head = self._find_head(hyper)
        if head is None:
            _raise_rows_missing()
        return _ForwardPass(head.log_evidence, head.error, [BoundaryConditions(head.covariance_root, head.mean)])

    def summarize_earlier_batches(
        self, posterior: OutOfCorePosterior, first_batch: int
    ) -> tuple[float, float, BoundaryConditions, Array]:
        """Return log evidence and error of all pieces before one, what is said at its start, and the response there."""
        hyper, value, error = posterior.hyper, posterior.value, posterior.error
        for number in range(first_batch, len(self.batch_starts)):
            solved = self.solve_batch(self.read_batch(number), hyper, posterior.boundaries[number])
            if solved is not None:
                value, error = value - solved.value, error - solved.error
        response = np.zeros(0)
        if self._relay is not None and self.prior.observables.input_response is not None:
            response = self._relay.state_at_start(
                first_batch, self.prior.observables.input_response.evaluate(hyper.theta)
            )
        return value, max(error, 0.0), posterior.boundaries[first_batch], response

    def _smooth_backward(
        self, hyper: Hyperparameters, boundaries: list[BoundaryConditions], *, keep_blocks: bool = False
    ) -> Iterator[tuple[KalmanData, FilterSolution]]:
        """Yield pieces with all that is said at both ends, the last one first, until something is not finite."""
        score = information = later = None
        for number in range(len(self.batch_starts) - 1, -1, -1):
            data, start = self.read_batch(number), boundaries[number]
            border = replace(start, score=score, information=information, backward_information_root=later)
            solved = self.solve_batch(data, hyper, border, keep_blocks=keep_blocks)
            if solved is None:
                return
            yield data, solved
            score, information = solved.smoothed.scores[0], solved.filter.propagate_information()[0]
            later = None if keep_blocks else solved.filter.compute_backward_information_roots()[0]


@dataclass
class _ForwardPass:
    """The log evidence with its error, and what goes from piece to piece.

    boundaries: What is said at the start of each piece, and at the end.
    """

    value: float = 0.0
    error: float = 0.0
    boundaries: list[BoundaryConditions] = field(default_factory=lambda: [BoundaryConditions()])


def _raise_rows_missing() -> NoReturn:
    raise LodekitError(
        "this model was saved without most of its rows, which are too many, and with them other values of what was "
        "learned cannot be tried; fit again with the file"
    )


def _find_input_response(known: Sequence[tuple[Array, Array]], table: Array) -> Array:
    """Return the states of the response that were kept for some numbers of its state space."""
    found = next((state for own, state in known if _points_agree(own, table)), None)
    if found is None:
        _raise_rows_missing()
    return found


def _points_agree(first: Array, second: Array) -> bool:
    """Return whether two points are the same to rounding."""
    return first.shape == second.shape and bool(np.allclose(first, second, rtol=1e-9, atol=0.0, equal_nan=True))
