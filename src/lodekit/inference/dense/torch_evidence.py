"""The dense evidence on an accelerator, through PyTorch: the formulas of the dense engine, no larger than they must be.

The derivatives of the covariance are never all in memory: each is made from the two before it, used, and dropped. The
inverse is made in place of the Cholesky factor, by halves, so that nearly all work is matrix products.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.inference.dense.covariance import CovarianceTerms, DenseData
from lodekit.inference.dense.evidence import (
    CovarianceFactor,
    assemble_gradient,
    build_covariance_terms,
    gaussian_log_density,
    measurement_prior_variance,
    rounding_error,
)
from lodekit.inference.engine import Evidence
from lodekit.prior.prior import Hyperparameters

Array = NDArray[np.float64]
#: Below this size a triangular matrix is inverted by the library.
_MAX_LEAF_SIZE = 1024
#: Blocks are multiples of this, which matrix products like.
_BLOCK_MULTIPLE = 256


def _iterate_kernel_derivatives(
    data: DenseData, hyper: Hyperparameters, kernel_index: int, order: int, device: Any
) -> Iterator[Any]:
    """Return the derivatives of a free function's covariance over all pairs of times, lowest order first."""
    import torch

    times = torch.as_tensor(data.scaled_times, device=device)
    u = (times[:, None] - times[None, :]) / float(hyper.lengthscales[kernel_index])
    return data.prior.kernels[kernel_index].derivatives(torch, u, order)


def _select_block(data: DenseData, stack: Any, i: int, j: int, device: Any) -> Any:
    """Return the part of a matrix over times that belongs to two observables."""
    import torch

    if data.is_complete_grid:
        return stack
    rows, columns = (torch.as_tensor(data.index[k], device=device) for k in (i, j))
    return stack[rows][:, columns]


class _DeviceCovariance:
    """The covariance of the data, factorized on the device."""

    def __init__(self, data: DenseData, hyper: Hyperparameters, terms: CovarianceTerms, device: Any) -> None:
        self.data, self.hyper, self.terms, self.device = data, hyper, terms, device

    @property
    def stacked_basis(self) -> Array:
        """The basis functions of the modes at all measurements, shape (n, r)."""
        return self.data.gather_rows(self.terms.basis)

    def to_covariance_factor(self, cholesky: Array, alpha: Any, value: float) -> CovarianceFactor:
        """Return the factorization as the posterior and the gradient take it."""
        own = alpha.cpu().numpy()
        sizes = measurement_prior_variance(self.data, self.hyper, self.terms, absolute=True)
        # The inverse stays on the device; the noise bounds it.
        error = rounding_error(sizes, own, 1.0 / self.terms.noise_variance)
        return CovarianceFactor(self.terms, cholesky, own, value, error, [])

    def covariance(self) -> Any:
        """Return the covariance of the data without noise; only the lower triangle is meant."""
        # Not `assemble`, which wants all derivatives in memory at once.
        import torch

        data, edges, count = self.data, self.data.offsets, len(self.data.index)
        K = torch.zeros((data.size, data.size), dtype=torch.float64, device=self.device)
        for number in range(len(data.prior.kernels)):
            for m, stack in enumerate(
                _iterate_kernel_derivatives(data, self.hyper, number, self.terms.kernel_order, self.device)
            ):
                for i in range(count):
                    for j in range(i + 1):
                        weight = float(self.terms.pair_weights[number][i, j, m])
                        if weight:
                            block = K[edges[i] : edges[i + 1], edges[j] : edges[j + 1]]
                            block.add_(_select_block(data, stack, i, j, self.device), alpha=weight)
        variance = self.terms.mode_variance
        if len(variance):
            basis = torch.as_tensor(self.stacked_basis, device=self.device)
            K.addmm_(basis * torch.as_tensor(variance, device=self.device), basis.T)
        return K

    def factorize(self) -> Any:
        """Return the Cholesky factor; None where the covariance is not positive."""
        # LAPACK overwrites the covariance, PyTorch does not: so the steps are those of `factorize`, but not its calls.
        import torch

        noise = torch.as_tensor(self.terms.noise_variance, device=self.device)
        K = self.covariance()
        diagonal = K.diagonal()
        if not np.isfinite(float(diagonal.mean())):
            return None
        diagonal += noise
        factor, info = torch.linalg.cholesky_ex(K)
        return factor if int(info) == 0 else None

    def solve(self, factor: Any) -> tuple[Any, float]:
        """Return ``K^-1 (y - mu)`` and the log evidence in scaled units."""
        import torch

        residual = torch.as_tensor(self.terms.residual, device=self.device)[:, None]
        alpha = torch.cholesky_solve(residual, factor)
        half_log = float(torch.log(factor.diagonal()).sum())
        square = float((residual * alpha).sum())
        return alpha[:, 0], gaussian_log_density(square, half_log, len(residual))


def invert_triangular(matrix: Any) -> None:
    """Turn a lower triangular matrix into its inverse, in place; the upper triangle is not touched."""
    import torch

    size = len(matrix)
    if size <= _MAX_LEAF_SIZE:
        identity = torch.eye(size, dtype=matrix.dtype, device=matrix.device)
        matrix.copy_(torch.linalg.solve_triangular(matrix, identity, upper=False) + torch.triu(matrix, 1))
        return
    first, corner, second = _split_triangular(matrix)
    invert_triangular(first)
    invert_triangular(second)
    # X L is the transpose of L^T X^T.
    _multiply_left_transposed(first, corner.T)
    _multiply_left(second, corner)
    corner.neg_()


def form_triangular_gram(matrix: Any) -> None:
    """Turn a lower triangular M into the lower triangle of ``M^T M``, in place; the upper triangle is not touched."""
    import torch

    if len(matrix) <= _MAX_LEAF_SIZE:
        lower = torch.tril(matrix)
        matrix.copy_(torch.tril(lower.T @ lower) + torch.triu(matrix, 1))
        return
    first, corner, second = _split_triangular(matrix)
    form_triangular_gram(first)
    _add_gram(first, corner)
    _multiply_left_transposed(second, corner)
    form_triangular_gram(second)


def _multiply_left(triangular: Any, matrix: Any) -> None:
    """Turn X into ``L X``, in place."""
    import torch

    if len(triangular) <= _MAX_LEAF_SIZE:
        matrix.copy_(torch.tril(triangular) @ matrix)
        return
    first, corner, second = _split_triangular(triangular)
    half = len(first)
    _multiply_left(second, matrix[half:])
    matrix[half:].addmm_(corner, matrix[:half])
    _multiply_left(first, matrix[:half])


def _multiply_left_transposed(triangular: Any, matrix: Any) -> None:
    """Turn X into ``L^T X``, in place."""
    import torch

    if len(triangular) <= _MAX_LEAF_SIZE:
        matrix.copy_(torch.tril(triangular).T @ matrix)
        return
    first, corner, second = _split_triangular(triangular)
    half = len(first)
    _multiply_left_transposed(first, matrix[:half])
    matrix[:half].addmm_(corner.T, matrix[half:])
    _multiply_left_transposed(second, matrix[half:])


def _add_gram(target: Any, matrix: Any) -> None:
    """Add ``X^T X`` to the lower triangle of the target, in place; parts of the upper triangle change, too."""
    if len(target) <= _MAX_LEAF_SIZE:
        target.addmm_(matrix.T, matrix)
        return
    first, corner, second = _split_triangular(target)
    half = len(first)
    _add_gram(first, matrix[:, :half])
    corner.addmm_(matrix[:, half:].T, matrix[:, :half])
    _add_gram(second, matrix[:, half:])


def _split_triangular(matrix: Any) -> tuple[Any, Any, Any]:
    """Return the three blocks of a lower triangular matrix."""
    # About half, rounded up.
    half = (len(matrix) // 2 + _BLOCK_MULTIPLE - 1) // _BLOCK_MULTIPLE * _BLOCK_MULTIPLE
    return matrix[:half, :half], matrix[half:, :half], matrix[half:, half:]


def factorize_on_device(data: DenseData, hyper: Hyperparameters, device: Any) -> CovarianceFactor | None:
    """Return the factorization for a posterior, made on the device and brought to the main memory."""
    with np.errstate(all="ignore"):
        prepared = build_covariance_terms(data, hyper, with_gradient=False)
        if prepared is None:
            return None
        state = _DeviceCovariance(data, hyper, prepared, device)
        found = state.factorize()
    if found is None:
        return None
    alpha, value = state.solve(found)
    return state.to_covariance_factor(np.asfortranarray(found.cpu().numpy()), alpha, value)


def evaluate_on_device(data: DenseData, hyper: Hyperparameters, device: Any) -> Evidence:
    """Return the log evidence and its gradient; minus infinity where the covariance is not finite."""
    import torch

    with np.errstate(all="ignore"), torch.no_grad():
        prepared = build_covariance_terms(data, hyper, with_gradient=True)
        if prepared is None:
            return Evidence.infeasible(hyper)
        state = _DeviceCovariance(data, hyper, prepared, device)
        G = state.factorize()
        if G is None:
            return Evidence.infeasible(hyper)
        alpha, value = state.solve(G)
        invert_triangular(G)
        form_triangular_gram(G)
        diagonal, on_modes = _form_evidence_sensitivity(state, G, alpha)
        contracted = [_contract_on_device(state, G, number) for number in range(len(data.prior.kernels))]
        kept = state.to_covariance_factor(np.zeros((0, 0)), alpha, value)
        return assemble_gradient(data, hyper, kept, contracted, on_modes, diagonal)


def _form_evidence_sensitivity(state: _DeviceCovariance, G: Any, alpha: Any) -> tuple[Array, Array]:
    """Turn the lower triangle of K^-1 into that of ``(alpha alpha^T - K^-1)/2``, in place; diagonal blocks whole.

    Returns its diagonal, and its product with the basis functions of the modes.
    """
    import torch

    edges, count = state.data.offsets, len(state.data.index)
    basis = torch.as_tensor(state.stacked_basis, device=state.device)
    on_modes = torch.zeros_like(basis)
    for i in range(count):
        rows = slice(edges[i], edges[i + 1])
        for j in range(i + 1):
            columns = slice(edges[j], edges[j + 1])
            block = G[rows, columns]
            block.addr_(alpha[rows], alpha[columns], alpha=-1.0)
            block.mul_(-0.5)
            if i == j:
                upper = torch.tril(block, -1).T
                block.tril_()
                block.add_(upper)
            on_modes[rows] += block @ basis[columns]
            if i != j:
                on_modes[columns] += block.T @ basis[rows]
    return G.diagonal().cpu().numpy(), on_modes.cpu().numpy()


def _contract_on_device(state: _DeviceCovariance, G: Any, kernel_index: int) -> tuple[Array, Array]:
    """Return ``sum G_ij o h_m`` and the same with the lengthscale derivative of the stack."""
    # One derivative at a time, and the lower triangle only: the dense engine's product of two matrices wants all.
    import torch

    data, device, edges = state.data, state.device, state.data.offsets
    latent, count = data.prior.kernels[kernel_index], len(data.index)
    times = torch.as_tensor(data.scaled_times, device=device) / float(state.hyper.lengthscales[kernel_index])
    S = np.zeros((count, count, state.terms.kernel_order + 1 + latent.extra_derivatives))
    on_lag = np.zeros_like(S)
    for m, stack in enumerate(
        _iterate_kernel_derivatives(
            data, state.hyper, kernel_index, state.terms.kernel_order + latent.extra_derivatives, device
        )
    ):
        lagged = None if not latent.needs_lag_products else (times[:, None] - times[None, :]) * stack
        for i in range(count):
            for j in range(i + 1):
                block = G[edges[i] : edges[i + 1], edges[j] : edges[j + 1]]
                # Transposed, the lag changes its sign, and so do odd derivatives.
                sign = (-1.0) ** m
                S[i, j, m] = float(torch.sum(block * _select_block(data, stack, i, j, device)))
                S[j, i, m] = sign * S[i, j, m] if i != j else S[i, j, m]
                if lagged is not None:
                    on_lag[i, j, m] = float(torch.sum(block * _select_block(data, lagged, i, j, device)))
                    on_lag[j, i, m] = -sign * on_lag[i, j, m] if i != j else on_lag[i, j, m]
    return S, latent.lengthscale_derivative(S, on_lag)
