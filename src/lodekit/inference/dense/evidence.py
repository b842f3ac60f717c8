"""The exact log evidence of a Gaussian: terms of the covariance, gradient in closed form and rounding error.

With ``K = L L^T``, ``alpha = K^-1 (y - mu)`` and ``G = (alpha alpha^T - K^-1)/2``, contract G once with the stack of
derivatives, ``S_ijm = sum G_ij o h_m``. Every gradient is then a small contraction; there is no second n x n pass for
any parameter (Rasmussen and Williams 2006, equation 5.9, with the structure of the covariance used).

No jitter is added to the diagonal to make a factorization succeed: that would be another evidence, with other optima.
The channel prior is the exception, because its covariance is an integral with an error of its own; the effect of jitter
is added to the error of the log evidence. Entries of K have rounding errors in proportion to the prior standard
deviations of both measurements; every evaluation estimates the resulting error of the log evidence, from G.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lodekit.inference.dense.covariance import CovarianceTerms, DenseData, KernelDerivatives
from lodekit.inference.engine import Evidence
from lodekit.prior.channel_prior.lag_covariance import LagCovariance
from lodekit.prior.covariance import derivative_sign_matrix, free_function_variance, pair_coefficients
from lodekit.prior.prior import Hyperparameters
from lodekit.support.arguments import Array


def measurement_prior_variance(
    data: DenseData, hyper: Hyperparameters, terms: CovarianceTerms, *, absolute: bool
) -> Array:
    """Return the prior variance of each measurement, shape (n,); with `absolute`, the sum of absolute terms."""
    coefficients, free = terms.coefficients, np.zeros(len(data.index))
    for number, latent in enumerate(data.prior.kernels):
        own = coefficients.free[:, number]
        if absolute:
            # Derivatives two orders apart have a negative covariance: with these signs all terms are positive.
            own = np.abs(own) * np.array([(1.0, 1.0, -1.0, -1.0)[k % 4] for k in range(own.shape[-1])])
        ell, deviation = float(hyper.lengthscales[number]), float(hyper.amplitudes[number])
        free += free_function_variance(latent, own, ell, deviation, coefficients.windows)
    return data.gather_rows([own + part**2 @ terms.mode_variance for own, part in zip(free, terms.basis, strict=True)])


def rounding_error(
    variances: Array, alpha: Array, inverse_diagonal: Array, truncation_error: float | None = None
) -> float:
    """Return the estimated rounding error of the log evidence; infinite if it is not finite.

    Entries of the covariance have errors in proportion to the square roots of `variances`; the derivative of the log
    evidence in the covariance is half of ``alpha alpha^T - K^-1``.

    Shapes: variances (n,), alpha (n,), inverse_diagonal (n,).
    """
    # The relative error of an entry and of its factorization, in practice; larger if it is a sum over many waves.
    relative = 2e-15 if truncation_error is None else 1e-14 + truncation_error
    error = relative * (0.5 * float(variances @ (alpha**2 + inverse_diagonal)) + len(variances))
    return error if np.isfinite(error) else np.inf


@dataclass(frozen=True)
class CovarianceFactor:
    """The Cholesky factor of the data covariance, with intermediate results.

    terms: The terms of the covariance.
    cholesky: Lower triangular; the upper triangle is not valid. Empty on a device; (n, n).
    alpha: ``K^-1 (y - mu)``; (n,).
    value: The log evidence in scaled units.
    error: The estimated error of the log evidence, from rounding and from jitter.
    kernel_derivatives: For each free function, the derivatives of its covariance over all pairs of times; empty on a
        device; (m, n, n).
    channel_covariance: The covariance over all pairs of times under the channel prior.
    jitter: The number added to the diagonal under the channel prior, in scaled units.
    """

    terms: CovarianceTerms
    cholesky: Array
    alpha: Array
    value: float
    error: float
    kernel_derivatives: list[KernelDerivatives]
    channel_covariance: LagCovariance | None = None
    jitter: float = 0.0


def build_covariance_terms(data: DenseData, hyper: Hyperparameters, *, with_gradient: bool) -> CovarianceTerms | None:
    """Return the terms of the covariance of the data; None if they are not finite."""
    found, (basis, d_basis), (means, d_means) = data.evaluate_design(hyper.theta, with_gradient=with_gradient)
    weights = []
    for number, latent in enumerate(data.prior.kernels if data.prior.channels is None else ()):
        latent.check_order(2 * (found.free.shape[-1] - 1))
        own = found.free[:, number]
        weights.append(pair_coefficients(np, own, own, hyper.lengthscales[number], hyper.amplitudes[number]))
    residual = data.values
    if data.observables.has_mean:
        residual = residual - data.gather_rows(means)
    noise = data.noise.variance(hyper.noise_std)
    # At times where an average was not measured, its interval may begin long before the record.
    measured = data.gather_rows(basis)
    # Checking the sum is cheaper than checking each number.
    if not np.isfinite(sum(float(part.sum()) for part in (found.free, residual, noise, measured) if part.size)):
        return None
    variance = data.prior.mode_variance(hyper.mode_amplitudes)
    return CovarianceTerms(found, basis, d_basis, d_means, weights, variance, residual, noise)


def gaussian_log_density(quadratic_form: float, half_log_det: float, count: int) -> float:
    """Return the log density of a normal distribution, from half the log determinant of its covariance."""
    return -(0.5 * quadratic_form + half_log_det + 0.5 * count * float(np.log(2 * np.pi)))


def assemble_gradient(
    data: DenseData,
    hyper: Hyperparameters,
    factor: CovarianceFactor,
    kernel_gradients: list[tuple[Array, Array]],
    mode_gradient: Array,
    diagonal: Array,
) -> Evidence:
    """Return the evidence with its gradient from the contractions of ``G = (alpha alpha^T - K^-1)/2``.

    Shapes: mode_gradient (n, r), diagonal (n,).
    """
    sizes = [len(part) for part in hyper.arrays]
    theta = np.zeros(sizes[0])
    lengthscales, deviations = np.zeros(sizes[1]), np.zeros(sizes[2])
    for number, (S, tilted) in enumerate(kernel_gradients):
        weight = factor.terms.pair_weights[number]
        orders = weight.shape[-1]
        deviations[number] = 2.0 * float(np.sum(weight * S[..., :orders]))
        lengthscales[number] = float(np.sum(weight * tilted))
        if sizes[0]:
            scale = hyper.amplitudes[number] ** 2 * hyper.lengthscales[number] ** -np.arange(orders, dtype=float)
            own = factor.terms.coefficients.free[:, number]
            count, length = own.shape
            # d/dW_ia = 2 sum_jb (-1)^b W_jb S_ij,a+b: unfold orders into pairs (a, b), then contract with W.
            pairs = (S[..., :orders] * scale) @ derivative_sign_matrix(length, length).T
            slope = 2.0 * np.tensordot(pairs.reshape(count, count, length, length), own, axes=([1, 3], [0, 1]))
            theta += factor.terms.coefficients.free_jacobian[:, :, number].reshape(sizes[0], -1) @ slope.ravel()
    mode_deviations = np.zeros(sizes[3])
    if data.prior.groups:
        variance = factor.terms.mode_variance
        quadratic = variance * np.sum(data.gather_rows(factor.terms.basis) * mode_gradient, axis=0)
        mode_deviations = 2.0 * data.prior.sum_over_groups(quadratic)
        if sizes[0]:
            pairs = zip(factor.terms.basis_jacobian, data.index, strict=True)
            d_stacked = np.concatenate([d[:, i] for d, i in pairs], axis=1)
            theta += 2.0 * d_stacked.reshape(sizes[0], -1) @ (mode_gradient * variance).ravel()
    if sizes[0] and data.observables.has_mean:
        d_mean = np.concatenate([d[:, i] for d, i in zip(factor.terms.means_jacobian, data.index, strict=True)], axis=1)
        theta += d_mean @ factor.alpha
    noise = data.noise.level_gradient(diagonal, hyper.noise_std)
    gradient = Hyperparameters(theta, lengthscales, deviations, mode_deviations, noise)
    return Evidence(factor.value + data.log_jacobian, gradient, factor.error)
