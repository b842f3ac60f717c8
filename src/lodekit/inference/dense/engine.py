"""The dense engine: log evidence and posterior by Cholesky, for data in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lodekit.data.records import Measurements
from lodekit.errors import AccuracyError
from lodekit.inference.dense.covariance import DenseData
from lodekit.inference.dense.evidence import (
    CovarianceFactor,
    build_covariance_terms,
    evaluate_dense,
    factorize_covariance,
)
from lodekit.inference.dense.posterior import ChannelPosterior, DensePosterior
from lodekit.inference.dense.torch_evidence import evaluate_on_device, factorize_on_device
from lodekit.inference.engine import (
    DENSE_CROSSOVER,
    DISTURBANCES_NEED_STATES,
    EngineTask,
    Evidence,
    SearchLimits,
    channel_search_limits,
    find_torch_device,
)
from lodekit.inference.stacked_measurements import data_mean_squares
from lodekit.prior.compile import Coefficients
from lodekit.prior.kernels import CHANNEL_KERNEL
from lodekit.prior.prior import Hyperparameters, Prior

Array = NDArray[np.float64]
#: Beyond, a dense covariance with its inverse needs tens of gigabytes.
_MAX_MEASUREMENTS = 40_000
_TOO_MANY_FREQUENCIES_MESSAGE = (
    "the channel prior takes more waves here than fit into memory, or its density is not finite: the window is very "
    "long against the lengthscales, or there are very many free functions; take a shorter window, or prior='latent'"
)


@dataclass(frozen=True)
class DenseEngine:
    """Log evidence and posterior by Cholesky.

    data: Measurements with their prior.
    device: Where PyTorch computes; NumPy does otherwise.
    """

    name: ClassVar[str] = "dense"
    uses_device: ClassVar[bool] = True
    has_states: ClassVar[bool] = False
    approximates_channel_prior: ClassVar[bool] = False
    data: DenseData
    device: str | None = None

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
        """How far a search may take lengthscales: not far below the smallest gap; all cost the same to evaluate.

        Waves cost the more the shorter a lengthscale is; one below the distance of the data is noise to them, and
        ends a search of the channel prior.
        """
        gaps = np.diff(self.data.scaled_times)
        shortest = max(0.3 * float(gaps.min()) if len(gaps) else 1e-3, 1e-6)
        if self.prior.channels is None:
            return SearchLimits(shortest)
        # A lengthscale of 0.005 takes some thousand waves.
        return channel_search_limits(max(shortest, 0.005, 1.0 / len(self.data.times)))

    @property
    def benefits_from_threads(self) -> bool:
        """Whether its matrices are so large that several threads pay."""
        return self.size >= 1000

    def evaluate(self, hyper: Hyperparameters) -> Evidence:
        """Return the log evidence in the user's units, and its gradient; minus infinity where it is not finite."""
        if self.device is None:
            return evaluate_dense(self.data, hyper)
        return evaluate_on_device(self.data, hyper, find_torch_device(self.device))

    def _factorize(self, hyper: Hyperparameters) -> CovarianceFactor | None:
        """Return the factorized covariance of the data; None where it is not finite."""
        if self.device is None:
            return factorize_covariance(self.data, hyper)
        result = factorize_on_device(self.data, hyper, find_torch_device(self.device))
        return result and replace(result[0], cholesky=np.asfortranarray(result[1].cpu().numpy()))

    def value(self, hyper: Hyperparameters) -> float:
        """Return the log evidence in the user's units alone; minus infinity where it is not finite."""
        return self.value_with_error(hyper)[0]

    def value_with_error(self, hyper: Hyperparameters) -> tuple[float, float]:
        """Return the log evidence as `value` does, and about how large an error rounding makes in it."""
        state = self._factorize(hyper)
        return (-np.inf, 0.0) if state is None else (state.value + self.data.log_jacobian, state.error)

    def posterior(self, hyper: Hyperparameters) -> DensePosterior:
        """Return the posterior at some hyperparameters; raise where it is not finite."""
        state = self._factorize(hyper)
        if state is None:
            raise AccuracyError(
                "the covariance of the data is not finite at these values, or singular to rounding; check units and "
                "starting values, and give exact values a small noise_std"
            )
        kind = DensePosterior if self.prior.channels is None else ChannelPosterior
        return kind(self.data, hyper, state)

    def mean_squares(self, coefficients: Coefficients) -> tuple[Array, Array]:
        """Return mean squares, scaled: of the data of each observable, (o,), and of the basis of the modes, (r,)."""
        data, observables = self.data, self.data.observables
        means, _ = observables.means(coefficients, data.times, with_jacobian=False)
        rest = np.split(data.values - data.gather_rows(means), data.offsets[1:-1])
        basis, _ = observables.mode_basis(coefficients, data.prior.groups, data.scaled_times, with_jacobian=False)
        measured = [part[index] if len(index) else part for part, index in zip(basis, data.index, strict=True)]
        power = np.mean([np.mean(part**2, axis=0) for part in measured], axis=0) if data.prior.groups else np.zeros(0)
        return data_mean_squares(rest), power

    def explain_failure(self, hyper: Hyperparameters) -> str:
        """Return whether the channel prior takes too much memory, as a sentence; other trouble has many causes."""
        if self.prior.channels is None:
            return ""
        with np.errstate(all="ignore"):
            prepared = build_covariance_terms(self.data, hyper, with_gradient=False)
            if (
                prepared is None
                or self.data.channel_covariance(prepared.coefficients, hyper, prepared.noise_variance) is not None
            ):
                return ""
        return _TOO_MANY_FREQUENCIES_MESSAGE

    @staticmethod
    def rejection_reason(task: EngineTask) -> str:
        """Return why the engine cannot be used for a task, and what to do; empty if it can."""
        if task.has_disturbances:
            return DISTURBANCES_NEED_STATES
        if task.channel_prior and any(latent != CHANNEL_KERNEL for latent in task.latents):
            return f"the channels have a covariance of their own; use latent={CHANNEL_KERNEL.name!r}"
        if task.channel_prior and task.device is not None:
            return "the channel prior is not made for devices; leave out device="
        if task.has_interval_means and task.device is not None:
            return "means and totals over intervals are not made for devices; leave out device="
        if not task.in_memory:
            return "the data are streamed"
        if task.size > _MAX_MEASUREMENTS and task.device is None:
            count = f"{task.size:,}".replace(",", " ")
            return f"{count} measurements are too many for a matrix (at most {_MAX_MEASUREMENTS}); take every k-th one"
        return ""

    @staticmethod
    def cost(task: EngineTask) -> float:
        """Return about how many operations an evaluation takes: the cube of the number of measurements."""
        return float(task.size) ** 3

    @staticmethod
    def selection_reason(task: EngineTask) -> str:
        """Return the reason for choosing this engine."""
        return f"exact, and fast up to {DENSE_CROSSOVER}"

    @classmethod
    def create(cls, prior: Prior, measurements: Measurements, task: EngineTask) -> DenseEngine:
        """Return an engine on measurements in memory."""
        return cls(DenseData.from_series(prior, measurements.series), task.device)
