"""The exact evidence by Cholesky, with its gradient in closed form.

With ``K = L L^T``, ``alpha = K^-1 (y - mu)`` and ``G = (alpha alpha^T - K^-1)/2``, contract G once with the stack of
derivatives, ``S_ijm = sum G_ij o h_m``. Every gradient is then a small contraction; there is no second n x n pass for
any parameter (Rasmussen and Williams 2006, equation 5.9, with the structure of the covariance used).

Nothing is added to the diagonal to make a factorization succeed: that would be another evidence, with optima of its
own. The channel prior is the exception, whose covariance is an integral with an error of its own; what was added counts
as an error of the log evidence. Entries of K have errors in proportion to the prior deviations of both measurements;
what they do to the log evidence is G times these errors, and every evaluation says how large that is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from lodekit.inference.dense.accuracy import error_of, error_of_added, prior_sizes
from lodekit.inference.dense.blocks import mirror, take_blocks
from lodekit.inference.dense.data import DenseData
from lodekit.inference.dense.stacks import Prepared, Stack, assemble, contract, make_stack
from lodekit.inference.engine import Evidence
from lodekit.prior.compile import Coefficients
from lodekit.prior.covariance import fold_matrix, pair_coefficients
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.lags import LagCovariance
from lodekit.prior.points import Pulled

__all__ = [
    "Factorization",
    "evaluate",
    "factorize",
    "finish_gradient",
    "log_evidence",
    "prepare",
]

Array = NDArray[np.float64]
#: What is added to the diagonal until a factorization succeeds, relative to its mean: under the channel prior alone.
_NONE, _JITTERS = (0.0,), (0.0, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6)
#: An error of the log evidence for each measurement that needs no closer look.
_HARMLESS = 1e-9


@dataclass(frozen=True)
class Factorization:
    """The Cholesky factor of the data covariance and what was computed on the way to it.

    Parameters
    ----------
    prepared : Prepared
    cholesky : array, shape (n, n)
        Lower triangular; the upper triangle is not meaningful. Empty where it was used up.
    alpha : array, shape (n,)
        ``K^-1 (y - mu)``.
    value : float
        The log evidence in scaled units.
    error : float
        About how large an error rounding makes in the log evidence, and what was added to the diagonal.
    stacks : list of arrays, shape (m, n, n), or of PairStacks
        For each free function, the derivatives of its covariance over all pairs of times; empty on a device.
    lagged : LagCovariance, optional
        The covariance over all pairs of times, where the prior stands on the channels.
    added : float
        What had to be added to the diagonal then, in scaled units.
    """

    prepared: Prepared
    cholesky: Array
    alpha: Array
    value: float
    error: float
    stacks: list[Stack]
    lagged: LagCovariance | None = None
    added: float = 0.0

    @property
    def coefficients(self) -> Coefficients:
        """Of the observables."""
        return self.prepared.coefficients

    @property
    def basis(self) -> list[Array]:
        """Basis functions of the modes for each observable, shape (n, r)."""
        return self.prepared.basis

    @property
    def residual(self) -> Array:
        """The data without the particular solution, in scaled units."""
        return self.prepared.residual


def prepare(data: DenseData, hyper: Hyperparameters, *, slopes: bool) -> Prepared | None:
    """Return all that the covariance of the data is made of; None where it is not finite.

    Parameters
    ----------
    data : DenseData
    hyper : Hyperparameters
    slopes : bool
        Whether derivatives in the parameters are wanted.
    """
    found, (basis, d_basis), (means, d_means) = data.design(hyper.theta, slopes=slopes)
    weights = []
    for number, latent in enumerate(data.latents if data.prior.channels is None else ()):
        latent.check_order(2 * (found.free.shape[-1] - 1))
        own = found.free[:, number]
        weights.append(pair_coefficients(np, own, own, hyper.lengthscales[number], hyper.deviations[number]))
    residual = data.values
    if data.observables.has_mean:
        residual = residual - data.pick(means)
    noise = data.noise.variance(hyper.noise)
    # An average may begin long before the record at times where it was not measured.
    measured = data.pick(basis)
    # A sum of finite numbers is finite, and cheaper than a look at each.
    if not np.isfinite(sum(float(part.sum()) for part in (found.free, residual, noise, measured) if part.size)):
        return None
    variance = data.prior.mode_variance(hyper.mode_deviations)
    return Prepared(found, basis, d_basis, d_means, weights, variance, residual, noise)


def log_evidence(square: float, half_log: float, count: int) -> float:
    """Return the log density of data at their values, in scaled units.

    Parameters
    ----------
    square : float
        ``(y - mu)^T K^-1 (y - mu)``.
    half_log : float
        Half the logarithm of the determinant of K.
    count : int
        How many data there are.
    """
    return -(0.5 * square + half_log + 0.5 * count * float(np.log(2 * np.pi)))


def factorize(data: DenseData, hyper: Hyperparameters) -> Factorization | None:
    """Return the factorization of the covariance of the data, or None where it is not finite.

    Parameters
    ----------
    data : DenseData
    hyper : Hyperparameters
    """
    # A search may try absurd values; what overflows there is noticed below.
    with np.errstate(all="ignore"):
        return _factorize(data, hyper, slopes=False)


def _factorize(data: DenseData, hyper: Hyperparameters, *, slopes: bool) -> Factorization | None:
    """Return the factorization; with slopes, all that a gradient asks for beside it."""
    prepared = prepare(data, hyper, slopes=slopes)
    if prepared is None:
        return None
    stacks: list[Stack] = []
    lagged, blocks = None, None
    if data.prior.channels is None:
        for number, latent in enumerate(data.latents):
            ell, windows = float(hyper.lengthscales[number]), prepared.coefficients.windows
            stacks.append(make_stack(data, latent, ell, prepared.order, windows, slopes=slopes))
    else:
        lagged = data.lag_covariance(prepared.coefficients, hyper, prepared.noise)
        if lagged is None:
            return None
        blocks = lagged.blocks()
    residual = prepared.residual
    for jitter in _NONE if lagged is None else _JITTERS:
        K = assemble(data, stacks, prepared, blocks)
        diagonal = np.einsum("ii->i", K)
        if not np.isfinite(diagonal).all():
            return None
        sizes = diagonal.copy()
        added = jitter * float(sizes.mean()) if jitter else 0.0
        diagonal += prepared.noise + added
        factor, info = lapack.dpotrf(K, lower=1, overwrite_a=1, clean=0)
        if info == 0:
            break
    else:
        return None
    alpha, _ = lapack.dpotrs(factor, residual, lower=1)
    value = log_evidence(float(residual @ alpha), float(np.log(np.einsum("ii->i", factor)).sum()), len(residual))
    missed = lagged.missed if lagged else None
    error = error_of(sizes, alpha, 1.0 / prepared.noise, missed)
    if added or error > _HARMLESS * max(len(residual), abs(value)):
        # The noise alone bounds the inverse from above; now it has to be known, and what has cancelled in variances.
        if blocks is None:
            sizes = prior_sizes(data, hyper, prepared.coefficients, prepared.basis)
        root, _ = lapack.dtrtri(factor, lower=1)
        inverse = np.sum(np.tril(root) ** 2, axis=0)
        error = error_of(sizes, alpha, inverse, missed)
        error += error_of_added(added, prepared.noise, alpha, inverse)
    return Factorization(prepared, factor, alpha, value, error, stacks, lagged, added)


def evaluate(data: DenseData, hyper: Hyperparameters) -> Evidence:
    """Return the log evidence and its gradient; minus infinity where the covariance is not finite.

    Parameters
    ----------
    data : DenseData
    hyper : Hyperparameters
    """
    with np.errstate(all="ignore"):
        return _evaluate(data, hyper)


def _evaluate(data: DenseData, hyper: Hyperparameters) -> Evidence:
    state = _factorize(data, hyper, slopes=True)
    if state is None:
        return Evidence.impossible(hyper)
    # A factor that was found has a positive diagonal, so it can be inverted.
    inverse, _ = lapack.dpotri(state.cholesky, lower=1, overwrite_c=1)
    # G is half of alpha alpha^T - K^-1, of which the lower triangle is known.
    G = blas.dsyr(-1.0, state.alpha, lower=1, a=inverse, overwrite_a=1)
    G *= -0.5
    mirror(G)
    blocks = take_blocks(data, G) if data.latents else G
    contracted = [
        contract(data, stack, blocks, k, float(hyper.lengthscales[k])) for k, stack in enumerate(state.stacks)
    ]
    on_modes = G @ data.pick(state.basis) if data.groups else np.zeros((len(G), 0))
    found = finish_gradient(data, hyper, state, contracted, on_modes, np.einsum("ii->i", G))
    return found if state.lagged is None else _add_channels(data, hyper, found, state.lagged.pull(blocks), state)


def _add_channels(
    data: DenseData, hyper: Hyperparameters, found: Evidence, pulled: Pulled, state: Factorization
) -> Evidence:
    """Return the evidence with the derivatives that go through the channel prior."""
    theta = found.gradient.theta + np.tensordot(state.coefficients.d_free, pulled.free, axes=3)
    channels = data.channels(hyper.theta)
    if channels is not None:
        theta += np.tensordot(channels.d_free, pulled.channels, axes=3)
    own = replace(found.gradient, theta=theta, lengthscales=pulled.log_lengthscales, deviations=pulled.log_deviations)
    return Evidence(found.value, own, found.error)


def finish_gradient(
    data: DenseData,
    hyper: Hyperparameters,
    state: Factorization,
    contracted: list[tuple[Array, Array]],
    on_modes: Array,
    diagonal: Array,
) -> Evidence:
    """Return the evidence with its gradient from the contractions of ``G = (alpha alpha^T - K^-1)/2``.

    Parameters
    ----------
    data : DenseData
    hyper : Hyperparameters
    state : Factorization
    contracted : list of (array, array)
        For each free function ``sum G_ij o h_m``, and the same with the lengthscale derivative of the stack.
    on_modes : array, shape (n, r)
        G times the basis functions of the modes.
    diagonal : array, shape (n,)
        The diagonal of G.
    """
    sizes = [len(part) for part in hyper.parts]
    theta = np.zeros(sizes[0])
    lengthscales, deviations = np.zeros(sizes[1]), np.zeros(sizes[2])
    for number, (S, tilted) in enumerate(contracted):
        weight = state.prepared.weights[number]
        orders = weight.shape[-1]
        deviations[number] = 2.0 * float(np.sum(weight * S[..., :orders]))
        lengthscales[number] = float(np.sum(weight * tilted))
        if sizes[0]:
            scale = hyper.deviations[number] ** 2 * hyper.lengthscales[number] ** -np.arange(orders, dtype=float)
            own = state.coefficients.free[:, number]
            count, length = own.shape
            # d/dW_ia = 2 sum_jb (-1)^b W_jb S_ij,a+b: unfold orders into pairs (a, b), then contract with W.
            pairs = (S[..., :orders] * scale) @ fold_matrix(length, length).T
            slope = 2.0 * np.tensordot(pairs.reshape(count, count, length, length), own, axes=([1, 3], [0, 1]))
            theta += state.coefficients.d_free[:, :, number].reshape(sizes[0], -1) @ slope.ravel()
    mode_deviations = np.zeros(sizes[3])
    if len(data.groups):
        variance = state.prepared.mode_variance
        quadratic = variance * np.sum(data.pick(state.basis) * on_modes, axis=0)
        mode_deviations = 2.0 * data.prior.sum_groups(quadratic)
        if sizes[0]:
            d_stacked = np.concatenate(
                [d[:, i] for d, i in zip(state.prepared.d_basis, data.index, strict=True)], axis=1
            )
            theta += 2.0 * d_stacked.reshape(sizes[0], -1) @ (on_modes * variance).ravel()
    if sizes[0] and data.observables.has_mean:
        d_mean = np.concatenate([d[:, i] for d, i in zip(state.prepared.d_means, data.index, strict=True)], axis=1)
        theta += d_mean @ state.alpha
    noise = data.noise.pull(diagonal, hyper.noise)
    gradient = Hyperparameters(theta, lengthscales, deviations, mode_deviations, noise)
    return Evidence(state.value + data.log_jacobian, gradient, state.error)
