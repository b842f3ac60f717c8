"""The modal engine: log evidence and posterior of systems without free functions, in linear time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lodekit.data.records import Measurements
from lodekit.errors import AccuracyError
from lodekit.inference.engine import DISTURBANCES_NEED_STATES, EngineTask, Evidence, SearchLimits
from lodekit.inference.modal.regression import ModalData, ModalRegression, evaluate_modal, solve_modal
from lodekit.inference.stacked_measurements import data_mean_squares, mode_mean_squares
from lodekit.prior.compile import Coefficients
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Hyperparameters, Prior

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ModalPosterior:
    """The posterior at given hyperparameters, as a normal distribution of the amplitudes of modes.

    data: Measurements with their prior.
    regression: At these hyperparameters.
    """

    data: ModalData
    hyper: Hyperparameters
    regression: ModalRegression

    @property
    def value(self) -> float:
        """The log evidence in the user's units."""
        return self.regression.value

    @property
    def error(self) -> float:
        """About how large an error rounding makes in the log evidence."""
        return self.regression.error

    @property
    def mean_rounding_error(self) -> float:
        """About how large an error rounding makes in the mean, relative to the data: amplitudes do not cancel."""
        return float(np.finfo(float).eps)

    def warnings(self) -> list[str]:
        """Return sentences that users should read about its accuracy: none."""
        return []

    def check_exact_values(self) -> None:
        """Raise where values that were said to be exact are not met; there are none."""

    def mean(self, observables: Observables, times: Array) -> Array:
        """Return the posterior mean, shape (n, o).

        Shapes: times (n,).
        """
        values = observables.evaluate(self.hyper.theta)
        return self._evaluate_observables(observables, values, times, self.regression.mean[:, None])[:, :, 0]

    def variance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior variance of `observables` at `times`, as in `mean`, shape (n, o)."""
        inverse = self.regression.covariance_root
        found = [np.sum((part @ inverse) ** 2, axis=2) for part in self._iterate_mode_blocks(observables, times)]
        return np.concatenate(found) if found else np.zeros((0, observables.count))

    def covariance(self, observables: Observables, times: Array) -> Array:
        """Return the posterior covariance of `observables` at `times`, as in `mean`, shape (n, o, n, o)."""
        inverse, count = self.regression.covariance_root, observables.count
        parts = [part @ inverse for part in self._iterate_mode_blocks(observables, times)]
        reduced = np.concatenate([np.zeros((0, count, len(inverse))), *parts]).reshape(len(times) * count, len(inverse))
        return np.asarray((reduced @ reduced.T).reshape(len(times), count, len(times), count))

    def sample(self, observables: Observables, times: Array, size: int, generator: np.random.Generator) -> Array:
        """Return functions drawn from the posterior, seen through observables, shape (size, n, o)."""
        mean, values = self.regression.mean, observables.evaluate(self.hyper.theta)
        drawn = mean[:, None] + self.regression.covariance_root @ generator.standard_normal((len(mean), size))
        return self._evaluate_observables(observables, values, times, drawn).transpose(2, 0, 1)

    def _evaluate_observables(
        self, observables: Observables, coefficients: Coefficients, times: Array, amplitudes: Array
    ) -> Array:
        """Return observables of functions in their units, all that is known added, shape (n, o, s)."""
        means, _ = observables.means(coefficients, times, with_jacobian=False)
        parts = [part @ amplitudes for part in self._iterate_mode_blocks(observables, times)]
        total = np.concatenate(parts) if parts else np.zeros((0, observables.count, amplitudes.shape[1]))
        return total + np.stack(means, axis=1)[:, :, None]

    def _iterate_mode_blocks(self, observables: Observables, times: Array) -> Iterator[Array]:
        """Yield the modes times their prior deviations, seen through the observables, shape (n, o, r), in blocks."""
        prior = self.data.prior
        values, roots = observables.evaluate(self.hyper.theta), prior.mode_std(self.hyper.mode_amplitudes)
        # In chunks, because modes at all times may not fit into memory.
        for start in range(0, len(times), chunk := 8192):
            scaled = observables.units.scale_times(times[start : start + chunk])
            basis, _ = observables.mode_basis(values, prior.groups, scaled, with_jacobian=False)
            yield np.stack(basis, axis=1) * roots


@dataclass(frozen=True)
class ModalEngine:
    """Log evidence and posterior of modes beside known functions.

    data: Measurements with their prior.
    """

    name: ClassVar[str] = "modal"
    uses_device: ClassVar[bool] = False
    has_states: ClassVar[bool] = False
    approximates_channel_prior: ClassVar[bool] = False
    data: ModalData

    @property
    def prior(self) -> Prior:
        """The prior, compiled."""
        return self.data.prior

    @property
    def size(self) -> int:
        """The number of measurements."""
        return len(self.data.values)

    @property
    def search_limits(self) -> SearchLimits:
        """How far a search may take lengthscales; there are none."""
        return SearchLimits(1e-3)

    @property
    def benefits_from_threads(self) -> bool:
        """Whether several threads pay: never, its matrices are small."""
        return False

    def evaluate(self, hyper: Hyperparameters) -> Evidence:
        """Return the log evidence in the user's units, and its gradient; minus infinity where it is not finite."""
        return evaluate_modal(self.data, hyper)

    def value(self, hyper: Hyperparameters) -> float:
        """Return the log evidence in the user's units alone; minus infinity where it is not finite."""
        return self.value_with_error(hyper)[0]

    def value_with_error(self, hyper: Hyperparameters) -> tuple[float, float]:
        """Return the log evidence as `value` does, and about how large an error rounding makes in it."""
        found = solve_modal(self.data, hyper)
        return (-np.inf, 0.0) if found is None else (found.value, found.error)

    def posterior(self, hyper: Hyperparameters) -> ModalPosterior:
        """Return the posterior at some hyperparameters; raise where it is not finite."""
        found = solve_modal(self.data, hyper)
        if found is None:
            raise AccuracyError("the modes are not finite at these values; check units and starting values")
        return ModalPosterior(self.data, hyper, found)

    def mean_squares(self, coefficients: Coefficients) -> tuple[Array, Array]:
        """Return mean squares, scaled: of the data of each observable, (o,), and of the basis of the modes, (r,)."""
        data = self.data
        means, _ = self.prior.observables.means(coefficients, data.times, with_jacobian=False)
        left = [
            data.values[rows] - part for rows, part in zip(data.observable_rows, data.gather_rows(means), strict=True)
        ]
        return data_mean_squares(left), mode_mean_squares(self.prior, coefficients, data.subsampled_times)

    def explain_failure(self, hyper: Hyperparameters) -> str:
        """Return an empty text: a prior that is not finite has many causes."""
        return ""

    @staticmethod
    def rejection_reason(task: EngineTask) -> str:
        """Return why the engine cannot be used for a task, and what to do; empty if it can."""
        if task.has_disturbances:
            return DISTURBANCES_NEED_STATES
        if task.latents:
            return "free functions remain, and it has modes alone"
        if not task.in_memory:
            return "the data are streamed"
        if task.has_exact_values:
            return "exact values need the dense engine; give exact values a small noise_std"
        return ""

    @staticmethod
    def cost(task: EngineTask) -> float:
        """Return about how many operations an evaluation takes; without known inputs only those who ask get it."""
        return float(task.size) if task.has_inputs else np.inf

    @staticmethod
    def selection_reason(task: EngineTask) -> str:
        """Return the reason for choosing this engine."""
        return "inputs are known, and no free function remains"

    @classmethod
    def create(cls, prior: Prior, measurements: Measurements, task: EngineTask) -> ModalEngine:
        """Return an engine on measurements in memory."""
        return cls(ModalData.from_series(prior, measurements.series))
