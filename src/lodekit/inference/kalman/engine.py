"""The Markov engine: log evidence and posterior in time that grows as the data do, for priors with finite states."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.data.records import Measurements
from lodekit.errors import AccuracyError
from lodekit.inference.engine import EngineTask, Evidence, SearchLimits
from lodekit.inference.kalman.blocks import BlockLayout, KalmanData, reduce_block_length
from lodekit.inference.kalman.evidence import FilterSolution, evaluate_evidence, solve_filter, subtract_mean
from lodekit.inference.kalman.innovations import KalmanInnovations
from lodekit.inference.kalman.out_of_core import OutOfCoreEngine
from lodekit.inference.kalman.posterior import KalmanPosterior
from lodekit.inference.stacked_measurements import data_mean_squares, mode_mean_squares
from lodekit.prior.compile import Coefficients
from lodekit.prior.kernels import MAX_MATERN_ORDER
from lodekit.prior.prior import Hyperparameters, Prior

Array = NDArray[np.float64]
#: About how many operations an evaluation takes, for each measurement and in any case, as the dense engine counts them.
_OPERATIONS_PER_MEASUREMENT, _FIXED_OPERATIONS = 1.0e4, 1.2e8


@dataclass(frozen=True)
class KalmanEngine:
    """Log evidence and posterior by blocks.

    data: Measurements with their prior.
    """

    data: KalmanData
    _last: dict[str, int | None] = field(default_factory=dict, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": {}}

    @property
    def prior(self) -> Prior:
        """The prior, compiled."""
        return self.data.prior

    @property
    def size(self) -> int:
        """The number of measurements."""
        return self.data.size

    @property
    def search_limits(self) -> SearchLimits:
        """How far a search may take lengthscales: not far below the smallest gap; all cost the same to evaluate."""
        gaps = np.diff(self.data.scaled_times)
        return SearchLimits(max(0.3 * float(gaps.min()) if len(gaps) else 1e-3, 1e-6))

    @property
    def benefits_from_threads(self) -> bool:
        """Whether several threads pay: never, its matrices are small."""
        return False

    def evaluate(self, hyper: Hyperparameters) -> Evidence:
        """Return the log evidence in the user's units, and its gradient; minus infinity where it is not finite."""
        while True:
            found = evaluate_evidence(self.data, hyper, self._layout())
            if not self._reduce_block_length(found.value, found.error):
                return found

    def value(self, hyper: Hyperparameters) -> float:
        """Return the log evidence in the user's units alone; minus infinity where it is not finite."""
        return self.value_with_error(hyper)[0]

    def value_with_error(self, hyper: Hyperparameters) -> tuple[float, float]:
        """Return the log evidence as `value` does, and about how large an error rounding makes in it."""
        found = self._solve(hyper)
        return (-np.inf, 0.0) if found is None else (found.value, found.error)

    def posterior(self, hyper: Hyperparameters) -> KalmanPosterior:
        """Return the posterior at some hyperparameters; raise where it is not finite."""
        found = self._solve(hyper)
        if found is None:
            raise AccuracyError(
                "the states are not finite at these values, or their covariance is singular to rounding; check units "
                "and starting values, and give exact values a small noise_std"
            )
        return KalmanPosterior(self.data, hyper, found, self._last.get("length"))

    def compute_innovations(self, hyper: Hyperparameters) -> KalmanInnovations | None:
        """Return measurements in their turn, with their innovations; None where something is not finite."""
        found = self._solve(hyper)
        return None if found is None else KalmanInnovations(self.data, found)

    def mean_squares(self, coefficients: Coefficients) -> tuple[Array, Array]:
        """Return mean squares, scaled: of the data of each observable, (o,), and of the basis of the modes, (r,)."""
        parts = np.split(subtract_mean(self.data, coefficients), self.data.offsets[1:-1])
        return data_mean_squares(parts), mode_mean_squares(self.prior, coefficients, self.data.subsampled_times)

    def explain_failure(self, hyper: Hyperparameters) -> str:
        """Return an empty text: states that are not finite have many causes."""
        return ""

    def _layout(self) -> BlockLayout:
        return self.data.layout(self._last.get("length"))

    def _solve(self, hyper: Hyperparameters) -> FilterSolution | None:
        while True:
            found = solve_filter(self.data, hyper, self._layout())
            if found is None or not self._reduce_block_length(found.value, found.error):
                return found

    def _reduce_block_length(self, value: float, error: float) -> bool:
        """Cut blocks shorter where rounding inside them can be seen; return whether that was done."""
        length = reduce_block_length(self._layout(), self.size, value, error)
        if length is None:
            return False
        self._last["length"] = length
        return True


@dataclass(frozen=True)
class KalmanFactory:
    """The kind of the Markov engine: free functions with finitely many states, any number of measurements.

    name: As users write it.
    uses_device: Whether it computes where ``device=`` says.
    """

    name: str = "markov"
    uses_device: bool = False
    has_states: bool = True
    approximates_channel_prior: bool = False

    def rejection_reason(self, task: EngineTask) -> str:
        """Return why it cannot take a case, and what to do; empty where it can."""
        if task.channel_prior:
            return "a prior on the channels has no finite state; use prior='latent'"
        smooth = next((latent.name for latent in task.latents if latent.state_space(1.0) is None), None)
        if smooth:
            return f"{smooth} has no finite state; use latent='matern-7/2', or another one that is rough enough"
        finest = next((latent.name for latent in task.latents if latent.smoothness > MAX_MATERN_ORDER), None)
        if finest:
            return f"{finest} has too many states; use latent='matern-{2 * MAX_MATERN_ORDER + 1}/2' or rougher"
        if not task.in_memory and not task.on_disk:
            return "the data are streamed, and cannot be read again; give it a CSV or Parquet file"
        if not task.in_memory and task.has_interval_means:
            return "means and totals over intervals need all rows in memory; take pieces of the record"
        return ""

    def cost(self, task: EngineTask) -> float:
        """Return about how many operations an evaluation takes; modes alone are for those who ask."""
        return (
            _FIXED_OPERATIONS + _OPERATIONS_PER_MEASUREMENT * task.size
            if task.latents or task.has_disturbances
            else np.inf
        )

    def selection_reason(self, task: EngineTask) -> str:
        """Return what speaks for it, where others could have taken the case as well."""
        return "linear in time"

    def create(self, prior: Prior, measurements: Measurements, task: EngineTask) -> KalmanEngine | OutOfCoreEngine:
        """Return an engine on measurements in memory, or on rows that are read from disk piece by piece."""
        if measurements.has_only_statistics and measurements.stored_rows is not None:
            return OutOfCoreEngine(prior, measurements.stored_rows.store, left_out=measurements.stored_rows.truncated)
        return KalmanEngine(KalmanData.from_series(prior, measurements.series))
