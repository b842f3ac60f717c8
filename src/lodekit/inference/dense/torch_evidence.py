"""The dense evidence on an accelerator, with PyTorch: the formulas of the dense engine in little memory.

The derivatives of the covariance are never all in memory: each is computed from the previous two, used, and dropped.
The inverse is computed in place of the Cholesky factor, by recursive halving, so that nearly all operations are matrix
products.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from lodekit.inference.dense import evidence
from lodekit.inference.dense.evidence import DenseData
from lodekit.inference.engine import Evidence
from lodekit.prior.prior import Hyperparameters
from lodekit.support.arguments import Array

#: Below this size a triangular matrix is inverted by the library.
_MAX_LEAF_SIZE = 1024
#: Sizes of blocks are multiples of this, which makes matrix products fast.
_BLOCK_MULTIPLE = 256


def _iterate_kernel_derivatives(
    data: DenseData, hyper: Hyperparameters, kernel_index: int, order: int, device: Any
) -> Iterator[Any]:
    """Yield the derivatives of a free function's covariance over all pairs of times, lowest order first."""
    import torch

    times = torch.as_tensor(data.scaled_times, device=device)
    u = (times[:, None] - times[None, :]) / float(hyper.lengthscales[kernel_index])
    return data.prior.kernels[kernel_index].derivatives(torch, u, order)


def _select_block(data: DenseData, stack: Any, i: int, j: int) -> Any:
    """Return the part of a matrix over times that belongs to two observables."""
    import torch

    if data.is_complete_grid:
        return stack
    rows, columns = (torch.as_tensor(data.index[k], device=stack.device) for k in (i, j))
    return stack[rows][:, columns]


def _covariance(data: DenseData, hyper: Hyperparameters, terms: evidence.CovarianceTerms, device: Any) -> Any:
    """Return the covariance of the data without noise; only the lower triangle is meaningful."""
    # Not `assemble_covariance`, which needs all derivatives in memory at once.
    import torch

    edges, count = data.offsets, len(data.index)
    K = torch.zeros((data.size, data.size), dtype=torch.float64, device=device)
    for number in range(len(data.prior.kernels)):
        for m, stack in enumerate(_iterate_kernel_derivatives(data, hyper, number, terms.kernel_order, device)):
            for i in range(count):
                for j in range(i + 1):
                    weight = float(terms.pair_weights[number][i, j, m])
                    if weight:
                        block = K[edges[i] : edges[i + 1], edges[j] : edges[j + 1]]
                        block.add_(_select_block(data, stack, i, j), alpha=weight)
    if len(terms.mode_variance):
        basis = torch.as_tensor(data.gather_rows(terms.basis), device=device)
        K.addmm_(basis * torch.as_tensor(terms.mode_variance, device=device), basis.T)
    return K


def factorize_on_device(
    data: DenseData, hyper: Hyperparameters, device: Any, *, with_gradient: bool = False
) -> tuple[evidence.CovarianceFactor, Any, Any] | None:
    """Return the factorization without its matrix, the Cholesky factor and alpha on the device; None if not finite."""
    # LAPACK overwrites the covariance, PyTorch does not: the steps are those of `factorize_covariance`.
    import torch

    with np.errstate(all="ignore"), torch.no_grad():
        terms = evidence.build_covariance_terms(data, hyper, with_gradient=with_gradient)
        if terms is None:
            return None
        K = _covariance(data, hyper, terms, device)
        diagonal = K.diagonal()
        if not np.isfinite(float(diagonal.mean())):
            return None
        diagonal += torch.as_tensor(terms.noise_variance, device=device)
        factor, info = torch.linalg.cholesky_ex(K)
        # Solving copies the factor; with K there would be three matrices in memory.
        del K, diagonal
        if int(info):
            return None
        residual = torch.as_tensor(terms.residual, device=device)[:, None]
        alpha = torch.cholesky_solve(residual, factor)
        half_log_det = float(torch.log(factor.diagonal()).sum())
        value = evidence.gaussian_log_density(float((residual * alpha).sum()), half_log_det, len(residual))
        sizes = evidence.measurement_prior_variance(data, hyper, terms, absolute=True)
        # The inverse is not computed here; the noise bounds its diagonal.
        on_host = alpha[:, 0].cpu().numpy()
        error = evidence.rounding_error(sizes, on_host, 1.0 / terms.noise_variance)
        return evidence.CovarianceFactor(terms, np.zeros((0, 0)), on_host, value, error, []), factor, alpha[:, 0]


def invert_triangular(matrix: Any) -> None:
    """Replace a lower triangular matrix by its inverse, in place; the upper triangle does not change."""
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
    _multiply_left(first, corner.T, transposed=True)
    _multiply_left(second, corner)
    corner.neg_()


def form_triangular_gram(matrix: Any) -> None:
    """Replace a lower triangular M by the lower triangle of ``M^T M``, in place; the upper triangle does not change."""
    if len(matrix) <= _MAX_LEAF_SIZE:
        lower = matrix.tril()
        matrix.copy_((lower.T @ lower).tril() + matrix.triu(1))
        return
    first, corner, second = _split_triangular(matrix)
    form_triangular_gram(first)
    _add_gram(first, corner)
    _multiply_left(second, corner, transposed=True)
    form_triangular_gram(second)


def _multiply_left(triangular: Any, matrix: Any, *, transposed: bool = False) -> None:
    """Replace X by ``L X`` or ``L^T X``, in place."""
    if len(triangular) <= _MAX_LEAF_SIZE:
        lower = triangular.tril()
        matrix.copy_((lower.T if transposed else lower) @ matrix)
        return
    first, corner, second = _split_triangular(triangular)
    top, bottom = matrix[: len(first)], matrix[len(first) :]
    if transposed:
        _multiply_left(first, top, transposed=True)
        top.addmm_(corner.T, bottom)
        _multiply_left(second, bottom, transposed=True)
    else:
        _multiply_left(second, bottom)
        bottom.addmm_(corner, top)
        _multiply_left(first, top)


def _add_gram(target: Any, matrix: Any) -> None:
    """Add ``X^T X`` to the lower triangle of the target, in place; parts of the upper triangle change as well."""
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


def evaluate_on_device(data: DenseData, hyper: Hyperparameters, device: Any) -> Evidence:
    """Return the log evidence and its gradient; minus infinity if the covariance is not finite."""
    import torch

    result = factorize_on_device(data, hyper, device, with_gradient=True)
    if result is None:
        return Evidence.infeasible(hyper)
    state, G, alpha = result
    with np.errstate(all="ignore"), torch.no_grad():
        invert_triangular(G)
        form_triangular_gram(G)
        diagonal, on_modes = _form_evidence_sensitivity(data, state.terms, G, alpha)
        order = state.terms.kernel_order
        contracted = [_contract_on_device(data, hyper, G, number, order) for number in range(len(data.prior.kernels))]
        return evidence.assemble_gradient(data, hyper, state, contracted, on_modes, diagonal)


def _form_evidence_sensitivity(
    data: DenseData, terms: evidence.CovarianceTerms, G: Any, alpha: Any
) -> tuple[Array, Array]:
    """Replace the lower triangle of K^-1 by that of ``(alpha alpha^T - K^-1)/2``, in place; fill diagonal blocks.

    Returns its diagonal, and its product with the basis functions of the modes.
    """
    import torch

    basis = torch.as_tensor(data.gather_rows(terms.basis), device=G.device)
    on_modes = torch.zeros_like(basis)
    for i, rows in enumerate(data.observable_rows):
        for columns in data.observable_rows[: i + 1]:
            block = G[rows, columns]
            block.addr_(alpha[rows], alpha[columns], alpha=-1.0)
            block.mul_(-0.5)
            if rows == columns:
                upper = torch.tril(block, -1).T
                block.tril_()
                block.add_(upper)
            on_modes[rows] += block @ basis[columns]
            if rows != columns:
                on_modes[columns] += block.T @ basis[rows]
    return G.diagonal().cpu().numpy(), on_modes.cpu().numpy()


def _contract_on_device(
    data: DenseData, hyper: Hyperparameters, G: Any, kernel_index: int, order: int
) -> tuple[Array, Array]:
    """Return ``sum G_ij o h_m`` and the same with the lengthscale derivative of the stack."""
    # One derivative at a time, and the lower triangle only: the dense engine needs all of them for one matrix product.
    import torch

    latent, count = data.prior.kernels[kernel_index], len(data.index)
    order += latent.extra_derivatives
    times = torch.as_tensor(data.scaled_times, device=G.device) / float(hyper.lengthscales[kernel_index])
    sums = np.zeros((2, count, count, order + 1))
    for m, stack in enumerate(_iterate_kernel_derivatives(data, hyper, kernel_index, order, G.device)):
        stacks = [stack, (times[:, None] - times[None, :]) * stack] if latent.needs_lag_products else [stack]
        for i in range(count):
            for j in range(i + 1):
                block = G[data.observable_rows[i], data.observable_rows[j]]
                for k, matrix in enumerate(stacks):
                    sums[k, i, j, m] = float(torch.sum(block * _select_block(data, matrix, i, j)))
                    if i != j:
                        # Exchanging the observables changes the sign of the lag, and of odd derivatives.
                        sums[k, j, i, m] = (-1.0) ** (m + k) * sums[k, i, j, m]
    return sums[0], latent.lengthscale_derivative(sums[0], sums[1])
