"""The spectral engine: exact to a tolerance, at a cost that does not depend on the number of measurements.

Waves and nodes are chosen from the tolerance and the hyperparameters; products of waves over the data are kept, so
that most evaluations of a search touch small matrices only. Where noise is so low that normal equations would lose the
digits, the same regression is done on a QR factorization of the design.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lodekit.data.records import Measurements
from lodekit.inference.engine import DENSE_CROSSOVER, DISTURBANCES_NEED_STATES, EngineTask, Evidence, SearchLimits
from lodekit.inference.spectral.evidence import SpectralEvaluation, evaluate_spectral
from lodekit.inference.spectral.fourier import SpectralToleranceError, SpectralWorkspace
from lodekit.inference.spectral.nodes import ChebyshevData, PointData, SpectralData
from lodekit.inference.spectral.posterior import SpectralPosterior
from lodekit.prior.compile import Coefficients
from lodekit.prior.kernels import CHANNEL_KERNEL
from lodekit.prior.prior import Hyperparameters, Prior

Array = NDArray[np.float64]
#: Up to this many measurements every one is a node of its own; sums over them would be no shorter.
_MAX_POINT_MEASUREMENTS = 4096
#: Under known inputs all are: the response is no sum of waves, so every evaluation passes over them.
_MAX_INPUT_MEASUREMENTS = 100_000


@dataclass(frozen=True)
class SpectralEngine:
    """Log evidence and posterior on waves.

    workspace: Prior and data.
    """

    name: ClassVar[str] = "spectral"
    uses_device: ClassVar[bool] = False
    has_states: ClassVar[bool] = False
    approximates_channel_prior: ClassVar[bool] = True
    workspace: SpectralWorkspace

    @classmethod
    def from_measurements(cls, prior: Prior, measurements: Measurements, tolerance: float) -> SpectralEngine:
        """Return an engine on measurements in memory, or on sums over them."""
        units = prior.units
        start, stop = measurements.window
        data: SpectralData
        few = measurements.size <= (_MAX_INPUT_MEASUREMENTS if measurements.inputs else _MAX_POINT_MEASUREMENTS)
        if measurements.sufficient_statistics is None and (few or start == stop):
            data = PointData(measurements.series, units)
        else:
            data = ChebyshevData(measurements.statistics, units, prior.noise.observables)
        counts = {item.observable: item.count for item in measurements.observable_statistics}
        jacobian = units.log_jacobian([counts.get(name, 0) for name in prior.noise.observables])
        return cls(SpectralWorkspace(prior, data, measurements.size, jacobian, tolerance))

    @property
    def prior(self) -> Prior:
        """The prior, compiled."""
        return self.workspace.prior

    @property
    def size(self) -> int:
        """The number of measurements."""
        return self.workspace.size

    @property
    def search_limits(self) -> SearchLimits:
        """How far a search may take lengthscales."""
        return self.workspace.search_limits

    @property
    def benefits_from_threads(self) -> bool:
        """Whether several threads pay: never, its matrices are small."""
        return False

    def evaluate(self, hyper: Hyperparameters) -> Evidence:
        """Return the log evidence in the user's units, and its gradient; minus infinity where it is not finite."""
        solution = evaluate_spectral(self.workspace, hyper, with_gradient=True)
        if solution is None or solution.gradient is None:
            return Evidence.infeasible(hyper)
        return Evidence(solution.value, solution.gradient, solution.error)

    def value(self, hyper: Hyperparameters) -> float:
        """Return the log evidence in the user's units alone; minus infinity where it is not finite."""
        return self.value_with_error(hyper)[0]

    def value_with_error(self, hyper: Hyperparameters) -> tuple[float, float]:
        """Return the log evidence as `value` does, and about how large an error rounding makes in it."""
        solution = evaluate_spectral(self.workspace, hyper)
        return (-np.inf, 0.0) if solution is None else (solution.value, solution.error)

    def posterior(self, hyper: Hyperparameters) -> SpectralPosterior:
        """Return the posterior at some hyperparameters; it raises at the first question where it is not finite."""
        return SpectralPosterior(self.workspace, hyper)

    def mean_squares(self, coefficients: Coefficients) -> tuple[Array, Array]:
        """Return mean squares, scaled: of the data of each observable, (o,), and of the basis of the modes, (r,)."""
        prior, observables = self.prior, self.prior.observables
        total, weight = np.zeros(observables.count), np.zeros(observables.count)
        modes: dict[int, Array] = {}
        try:
            nodes = self.workspace.count_nodes(coefficients, 0.0)
        except SpectralToleranceError:
            # Rough sizes are enough here, and so are nodes that do not resolve everything.
            nodes = 1024
        for item in self.workspace.data.node_statistics(nodes):
            times = prior.units.unscale_times(item.nodes) if item.times is None else item.times
            means, _ = observables.means(coefficients, times, with_jacobian=False)
            m = means[item.observable]
            total[item.observable] += (
                item.sum_of_squares - 2.0 * float(item.weighted_values @ m) + float(item.weights @ m**2)
            )
            weight[item.observable] += float(item.weights.sum())
            basis, _ = observables.mode_basis(coefficients, prior.groups, item.nodes, with_jacobian=False)
            modes[item.observable] = np.mean(basis[item.observable] ** 2, axis=0)
        target = np.maximum(total, 0.0) / np.where(weight > 0, weight, 1.0)
        power = np.mean(list(modes.values()), axis=0) if prior.groups else np.zeros(0)
        return np.where(target > 0, target, 1.0), power

    def explain_failure(self, hyper: Hyperparameters) -> str:
        """Return why some hyperparameters are out of reach, as a sentence; empty where they are not."""
        try:
            with np.errstate(all="ignore"):
                SpectralEvaluation(self.workspace, hyper).choose_resolution()
        except SpectralToleranceError as problem:
            return str(problem)
        return ""

    @staticmethod
    def rejection_reason(task: EngineTask) -> str:
        """Return why the engine cannot be used for a task, and what to do; empty if it can."""
        if task.has_disturbances:
            return DISTURBANCES_NEED_STATES
        if task.channel_prior and any(latent != CHANNEL_KERNEL for latent in task.latents):
            return f"the channels have a covariance of their own; use latent={CHANNEL_KERNEL.name!r}"
        rough = next((latent.name for latent in task.latents if not latent.is_band_limited), None)
        if rough:
            return f"{rough} has a spectrum too wide for waves; use latent='se'"
        if task.has_inputs and not task.in_memory:
            return "responses to known inputs are no sums of waves, and need all rows in memory"
        if task.has_inputs and task.size > _MAX_INPUT_MEASUREMENTS:
            count = f"{task.size:,}".replace(",", " ")
            return (
                f"responses to known inputs are no sums of waves, so all {count} measurements would be in memory (at "
                f"most {_MAX_INPUT_MEASUREMENTS}); take engine='auto', which is the modal engine where no free "
                "function remains, or every k-th measurement, or a piece of the record"
            )
        if task.has_exact_values:
            return "exact values need the dense engine; give exact values a small noise_std"
        return ""

    @staticmethod
    def cost(task: EngineTask) -> float:
        """Return about how many operations an evaluation takes: the same for any number of measurements."""
        return (DENSE_CROSSOVER + 0.5) ** 3

    @staticmethod
    def selection_reason(task: EngineTask) -> str:
        """Return the reason for choosing this engine."""
        return f"more than {DENSE_CROSSOVER}"

    @classmethod
    def create(cls, prior: Prior, measurements: Measurements, task: EngineTask) -> SpectralEngine:
        """Return an engine on measurements in memory, or on sums over them."""
        return cls.from_measurements(prior, measurements, task.tolerance)
