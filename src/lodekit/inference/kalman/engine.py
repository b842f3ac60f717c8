"""The Kalman engine (``engine="markov"``): log evidence and posterior in linear time, for finite-dimensional states."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from lodekit.data.records import Measurements
from lodekit.errors import AccuracyError
from lodekit.inference.engine import EngineTask, Evidence, SearchLimits
from lodekit.inference.kalman.blocks import KalmanData, reduce_block_length
from lodekit.inference.kalman.evidence import (
    NOT_FINITE,
    FilterSolution,
    evaluate_evidence,
    lengthscale_limits,
    solve_filter,
)
from lodekit.inference.kalman.innovations import KalmanInnovations
from lodekit.inference.kalman.out_of_core import OutOfCoreEngine
from lodekit.inference.kalman.posterior import KalmanPosterior
from lodekit.inference.stacked_measurements import StackedEngine
from lodekit.prior.kernels import MAX_MATERN_ORDER
from lodekit.prior.prior import Hyperparameters, Prior


@dataclass(frozen=True)
class KalmanEngine(StackedEngine):
    """Log evidence and posterior of measurements in memory.

    For latent functions with finitely many states, and any number of measurements.
    """

    name: ClassVar[str] = "markov"
    has_states: ClassVar[bool] = True
    benefits_from_threads: ClassVar[bool] = False
    data: KalmanData
    _block_lengths: list[int | None] = field(default_factory=lambda: [None], compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_block_lengths": [None]}

    @property
    def search_limits(self) -> SearchLimits:
        """The bounds of lengthscales in a search."""
        return lengthscale_limits(float(np.diff(self.data.scaled_times).min(initial=np.inf)))

    def evaluate(self, hyper: Hyperparameters) -> Evidence:
        """Return the log evidence in the user's units, and its gradient; minus infinity if it is not finite."""
        solution = self._solve(hyper, keep_blocks=True)
        return Evidence.infeasible(hyper) if solution is None else evaluate_evidence(self.data, hyper, solution)

    def value_with_error(self, hyper: Hyperparameters) -> tuple[float, float]:
        """Return the log evidence, and its estimated rounding error."""
        solution = self._solve(hyper)
        return (-np.inf, 0.0) if solution is None else (solution.value, solution.error)

    def posterior(self, hyper: Hyperparameters) -> KalmanPosterior:
        """Return the posterior at given hyperparameters; raise if it is not finite."""
        solution = self._solve(hyper)
        if solution is None:
            raise AccuracyError(NOT_FINITE)
        return KalmanPosterior(self.data, hyper, solution, self._block_lengths[-1])

    def compute_innovations(self, hyper: Hyperparameters) -> KalmanInnovations | None:
        """Return the innovations of all measurements; None if something is not finite."""
        solution = self._solve(hyper)
        return None if solution is None else KalmanInnovations(self.data, solution)

    @staticmethod
    def rejection_reason(task: EngineTask) -> str:
        """Return why the engine cannot be used for a task, and what to do; empty if it can."""
        if task.channel_prior:
            return "a prior on the channels has no finite state; use prior='latent'"
        smooth = next((latent.name for latent in task.latents if latent.state_space(1.0) is None), None)
        if smooth:
            return f"{smooth} has no finite state; use latent='matern-7/2', or another Matern covariance"
        finest = next((latent.name for latent in task.latents if latent.smoothness > MAX_MATERN_ORDER), None)
        if finest:
            return f"{finest} has too many states; use latent='matern-{2 * MAX_MATERN_ORDER + 1}/2' or rougher"
        if not task.in_memory and not task.on_disk:
            return "the data are streamed, and cannot be read again; use a CSV or Parquet file"
        if not task.in_memory and task.has_interval_means:
            return "means and totals over intervals need all rows in memory; use parts of the record"
        return ""

    @staticmethod
    def cost(task: EngineTask) -> float:
        """Return the approximate number of operations of an evaluation; infinite without latent functions."""
        return 1.2e8 + 1.0e4 * task.size if task.latents or task.has_disturbances else np.inf

    @staticmethod
    def selection_reason(task: EngineTask) -> str:
        """Return the reason for choosing this engine."""
        return "linear in time"

    @classmethod
    def create(cls, prior: Prior, measurements: Measurements, task: EngineTask) -> KalmanEngine | OutOfCoreEngine:
        """Return an engine on measurements in memory, or on rows that are read from disk in batches."""
        rows = measurements.stored_rows
        if measurements.has_only_statistics and rows is not None:
            return OutOfCoreEngine(prior, rows.store, checkpoints=rows.checkpoints, n_omitted=rows.n_omitted)
        return cls(KalmanData.from_series(prior, measurements.series))

    def _solve(self, hyper: Hyperparameters, *, keep_blocks: bool = False) -> FilterSolution | None:
        """Run filter and smoother; shorten blocks while rounding inside them affects the log evidence."""
        length, best = self._block_lengths[-1], None
        while True:
            layout = self.data.layout(length)
            solution = solve_filter(self.data, hyper, layout, keep_blocks=keep_blocks)
            if solution is None:
                return best
            if best is None or solution.error < best.error:
                best = solution
                # At points far from any fit short blocks are not accurate either: later points keep longer ones.
                if solution.error <= 1e-7 * max(self.size, abs(solution.value)):
                    self._block_lengths[-1] = length
            length = reduce_block_length(layout, self.size, solution.value, solution.block_error)
            if length is None:
                return best
