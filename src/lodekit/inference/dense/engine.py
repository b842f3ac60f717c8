"""The dense engine: log evidence, posterior and innovations by Cholesky factorization, for data in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.linalg import blas, lapack, solve_triangular

from lodekit.data.records import Measurements
from lodekit.errors import AccuracyError
from lodekit.inference.dense import evidence
from lodekit.inference.dense.evidence import DenseData
from lodekit.inference.dense.posterior import ChannelPosterior, DensePosterior
from lodekit.inference.dense.torch_evidence import evaluate_on_device, factorize_on_device
from lodekit.inference.engine import (
    DENSE_CROSSOVER,
    EngineTask,
    Evidence,
    SearchLimits,
    channel_search_limits,
    find_torch_device,
)
from lodekit.inference.stacked_measurements import StackedEngine, data_mean_squares
from lodekit.prior.compile import Coefficients
from lodekit.prior.kernels import CHANNEL_KERNEL
from lodekit.prior.prior import Hyperparameters, Prior
from lodekit.support.arguments import Array, IndexArray

#: With more measurements, a dense covariance with its inverse needs tens of gigabytes.
_MAX_MEASUREMENTS = 40_000
_TOO_MANY_FREQUENCIES_MESSAGE = (
    "the channel prior would need more Fourier features than fit into memory, or its density is not finite: the window "
    "is very long compared with the lengthscales, or there are very many free functions; use a shorter window, or "
    "prior='latent'"
)


# A search may try extreme values; overflow is detected below.
@np.errstate(all="ignore")
def factorize_covariance(
    data: DenseData, hyper: Hyperparameters, *, with_gradient: bool = False
) -> evidence.CovarianceFactor | None:
    """Return the Cholesky factor of the data covariance, with jitter under the channel prior; None if not finite."""
    prepared = evidence.build_covariance_terms(data, hyper, with_gradient=with_gradient)
    if prepared is None:
        return None
    stacks: list[evidence.KernelDerivatives] = []
    lagged, blocks = None, None
    if data.prior.channels is None:
        order, windows = prepared.kernel_order, prepared.coefficients.windows
        for latent, ell in zip(data.prior.kernels, hyper.lengthscales.tolist(), strict=True):
            stack = evidence.evaluate_kernel_derivatives(data, latent, ell, order, windows, with_gradient=with_gradient)
            stacks.append(stack)
    else:
        lagged = data.channel_covariance(prepared.coefficients, hyper, prepared.noise_variance)
        if lagged is None:
            return None
        blocks = lagged.blocks()
    residual = prepared.residual
    for jitter in (0.0,) if lagged is None else (0.0, *(10.0**k for k in range(-14, -5))):
        K = evidence.assemble_covariance(data, stacks, prepared, blocks)
        diagonal = np.einsum("ii->i", K)
        if not np.isfinite(diagonal).all():
            return None
        sizes = diagonal.copy()
        added = jitter * float(sizes.mean()) if jitter else 0.0
        diagonal += prepared.noise_variance + added
        factor, info = lapack.dpotrf(K, lower=1, overwrite_a=1, clean=0)
        if info == 0:
            break
    else:
        return None
    alpha, _ = lapack.dpotrs(factor, residual, lower=1)
    half_log_det = float(np.log(np.einsum("ii->i", factor)).sum())
    value = evidence.gaussian_log_density(float(residual @ alpha), half_log_det, len(residual))
    missed = lagged.unresolved_share if lagged else None
    error = evidence.rounding_error(sizes, alpha, 1.0 / prepared.noise_variance, missed)
    if added or error > 1e-9 * max(len(residual), abs(value)):
        # The noise only bounds the diagonal of the inverse: compute it, and variances without cancellation.
        if blocks is None:
            sizes = evidence.measurement_prior_variance(data, hyper, prepared, absolute=True)
        root, _ = lapack.dtrtri(factor, lower=1)
        inverse = np.sum(np.tril(root) ** 2, axis=0)
        error = evidence.rounding_error(sizes, alpha, inverse, missed)
        # No eigenvalue of the covariance without jitter is below the noise, which bounds the terms beyond first order.
        bound = 1.0 + added / float(prepared.noise_variance.min())
        error += 0.5 * added * float(alpha @ alpha + inverse.sum()) * bound
    return evidence.CovarianceFactor(prepared, factor, alpha, value, error, stacks, lagged, added)


@dataclass(frozen=True)
class DenseEngine(StackedEngine):
    """Log evidence and posterior by Cholesky factorization.

    data: Measurements with their prior.
    device: The PyTorch device; None for NumPy.
    """

    name: ClassVar[str] = "dense"
    uses_device: ClassVar[bool] = True
    data: DenseData
    device: str | None = None

    @property
    def search_limits(self) -> SearchLimits:
        """The bounds of a search: lengthscales not far below the smallest sampling interval.

        Under the channel prior, short lengthscales need more waves; one below the average sampling interval acts like
        noise, and bounds the search.
        """
        gaps = np.diff(self.data.scaled_times)
        shortest = max(0.3 * float(gaps.min()) if len(gaps) else 1e-3, 1e-6)
        if self.prior.channels is None:
            return SearchLimits(shortest)
        # A lengthscale of 0.005 takes some thousand waves.
        return channel_search_limits(max(shortest, 0.005, 1.0 / len(self.data.times)))

    @property
    def benefits_from_threads(self) -> bool:
        """Whether its matrices are large enough to benefit from several threads."""
        return self.size >= 1000

    @np.errstate(all="ignore")
    def evaluate(self, hyper: Hyperparameters) -> Evidence:
        """Return the log evidence in the user's units, and its gradient; minus infinity if it is not finite."""
        if self.device is not None:
            return evaluate_on_device(self.data, hyper, find_torch_device(self.device))
        state = factorize_covariance(self.data, hyper, with_gradient=True)
        if state is None:
            return Evidence.infeasible(hyper)
        # The factor has a positive diagonal, so it can be inverted.
        inverse, _ = lapack.dpotri(state.cholesky, lower=1, overwrite_c=1)
        # G is half of alpha alpha^T - K^-1, of which the lower triangle is known.
        G = blas.dsyr(-1.0, state.alpha, lower=1, a=inverse, overwrite_a=1)
        G *= -0.5
        evidence.symmetrize(G)
        data = self.data
        blocks = evidence.split_observable_pairs(data, G) if data.prior.kernels else G
        contracted = [
            evidence.contract_kernel_gradient(data, stack, blocks, k, float(hyper.lengthscales[k]))
            for k, stack in enumerate(state.kernel_derivatives)
        ]
        on_modes = G @ data.gather_rows(state.terms.basis) if data.prior.groups else np.zeros((len(G), 0))
        found = evidence.assemble_gradient(data, hyper, state, contracted, on_modes, np.einsum("ii->i", G))
        channels = data.channel_coefficients(hyper.theta)
        if state.channel_covariance is None or channels is None:
            return found
        # Derivatives through the spectral density of the channel prior.
        pulled = state.channel_covariance.vjp(blocks)
        theta = found.gradient.theta + np.tensordot(state.terms.coefficients.free_jacobian, pulled.free, axes=3)
        theta += np.tensordot(channels.free_jacobian, pulled.channels, axes=3)
        scales = {"lengthscales": pulled.log_lengthscales, "amplitudes": pulled.log_amplitudes}
        return replace(found, gradient=replace(found.gradient, theta=theta, **scales))

    def _factorize(self, hyper: Hyperparameters) -> evidence.CovarianceFactor | None:
        """Return the factorized covariance of the data; None if it is not finite."""
        if self.device is None:
            return factorize_covariance(self.data, hyper)
        result = factorize_on_device(self.data, hyper, find_torch_device(self.device))
        return result and replace(result[0], cholesky=np.asfortranarray(result[1].cpu().numpy()))

    def value_with_error(self, hyper: Hyperparameters) -> tuple[float, float]:
        """Return the log evidence as `value` does, and its estimated rounding error."""
        state = self._factorize(hyper)
        return (-np.inf, 0.0) if state is None else (state.value + self.data.log_jacobian, state.error)

    def posterior(self, hyper: Hyperparameters) -> DensePosterior:
        """Return the posterior at given hyperparameters; raise if it is not finite."""
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
        rest = np.split(data.subtract_mean(coefficients), data.offsets[1:-1])
        basis, _ = observables.mode_basis(coefficients, data.prior.groups, data.scaled_times, with_jacobian=False)
        measured = [part[index] if len(index) else part for part, index in zip(basis, data.index, strict=True)]
        power = np.mean([np.mean(part**2, axis=0) for part in measured], axis=0) if data.prior.groups else np.zeros(0)
        return data_mean_squares(rest), power

    def explain_failure(self, hyper: Hyperparameters) -> str:
        """Return a sentence if the channel prior takes too much memory; empty for other causes."""
        if self.prior.channels is None:
            return ""
        with np.errstate(all="ignore"):
            prepared = evidence.build_covariance_terms(self.data, hyper, with_gradient=False)
            if prepared is None:
                return ""
            covariance = self.data.channel_covariance(prepared.coefficients, hyper, prepared.noise_variance)
        return _TOO_MANY_FREQUENCIES_MESSAGE if covariance is None else ""

    @staticmethod
    def rejection_reason(task: EngineTask) -> str:
        """Return why the engine cannot be used for a task, and what to do; empty if it can."""
        if task.channel_prior and any(latent != CHANNEL_KERNEL for latent in task.latents):
            return f"prior='channels' has its own covariance; use latent={CHANNEL_KERNEL.name!r}"
        if task.channel_prior and task.device is not None:
            return "prior='channels' does not run on a GPU; omit device="
        if task.has_interval_means and task.device is not None:
            return "means and totals over intervals do not run on a GPU; omit device="
        if not task.in_memory:
            return "the data are streamed"
        if task.size > _MAX_MEASUREMENTS and task.device is None:
            count = f"{task.size:,}".replace(",", " ")
            return f"{count} measurements are too many for a matrix (at most {_MAX_MEASUREMENTS}); use every k-th one"
        return ""

    @staticmethod
    def cost(task: EngineTask) -> float:
        """Return the approximate number of operations of an evaluation: the cube of the number of measurements."""
        return float(task.size) ** 3

    @staticmethod
    def selection_reason(task: EngineTask) -> str:
        """Return the reason for choosing this engine."""
        return f"exact, and fast up to {DENSE_CROSSOVER}"

    @classmethod
    def create(cls, prior: Prior, measurements: Measurements, task: EngineTask) -> DenseEngine:
        """Return an engine on measurements in memory."""
        return cls(DenseData.from_series(prior, measurements.series), task.device)


@dataclass(frozen=True, eq=False)
class DenseInnovations:
    """Innovations from a triangular root of the covariance of measurements in the order of time.

    times: The times of the measurements, in this order; (n,).
    observables: The number of the observable of each measurement; (n,).
    covariance_root: Lower triangular; a row times the standardized innovations is a measurement minus its prior mean,
        in the user's units; (n, n).
    standardized: Standardized innovations, independent and standard normal if the model holds; (n,).
    """

    times: Array
    observables: IndexArray
    covariance_root: Array
    standardized: Array

    @property
    def std(self) -> Array:
        """The standard deviations of the innovations, in the user's units, shape (n,)."""
        return np.diag(self.covariance_root)

    def prediction_errors(self, rows: IndexArray, n_known: IndexArray) -> tuple[Array, Array]:
        """Return errors of predictions from the first `n_known` measurements, and their standard deviations.

        Both in the user's units, shape (k,).

        Shapes: rows, n_known (k,).
        """
        spans = [slice(first, row + 1) for row, first in zip(rows.tolist(), n_known.tolist(), strict=True)]
        later = [self.covariance_root[span.stop - 1, span] for span in spans]
        errors = [float(part @ self.standardized[span]) for part, span in zip(later, spans, strict=True)]
        return np.array(errors), np.sqrt([float(part @ part) for part in later])


def compute_dense_innovations(
    data: DenseData, hyper: Hyperparameters, given_observables: frozenset[int] = frozenset()
) -> DenseInnovations | None:
    """Return the innovations in the order of time, `given_observables` first; None if rounding errors dominate."""
    numbers = np.repeat(np.arange(len(data.index)), [len(index) for index in data.index])
    times = np.concatenate([data.times[index] for index in data.index])
    order = np.lexsort((data.filter_order[numbers], times, ~np.isin(numbers, list(given_observables))))
    if data.prior.kernels or data.prior.channels is not None:
        state = factorize_covariance(data, hyper)
        # Above this error per measurement, rounding errors dominate.
        if state is None or not state.error < 1e-4 * data.size:
            return None
        terms, root = state.terms, np.tril(state.cholesky)
    else:
        # Modes may be far larger than the noise, which would be lost in a sum of their squares.
        with np.errstate(all="ignore"):
            prepared = evidence.build_covariance_terms(data, hyper, with_gradient=False)
        if prepared is None:
            return None
        terms, modes = prepared, data.gather_rows(prepared.basis) * data.prior.mode_std(hyper.mode_amplitudes)
        root = np.hstack([modes, np.diag(np.sqrt(terms.noise_variance))])
        if not np.isfinite(root).all():
            return None
    # A QR factorization turns any root of the covariance into a triangular one, in the order of time.
    upper = np.asarray(np.linalg.qr(root[order].T, mode="r"))
    root = upper.T * np.sign(np.diag(upper))
    found = solve_triangular(root, terms.residual[order], lower=True, check_finite=False)
    if not np.isfinite(found).all():
        return None
    scales = np.asarray(data.observables.units.scales)[numbers[order]]
    return DenseInnovations(times[order], numbers[order], scales[:, None] * root, found)
