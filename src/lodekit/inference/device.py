"""The dense evidence on an accelerator, through PyTorch: the formulas of the dense engine, no larger than they must be.

The derivatives of the covariance are never all in memory: each is made from the two before it, used, and dropped. The
inverse is made in place of the Cholesky factor, by halves, so that nearly all work is matrix products.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.inference.dense import Factorization, finish_gradient, stacked_basis
from lodekit.inference.engine import Evidence
from lodekit.inference.problem import Hyperparameters, Problem
from lodekit.prior.compile import RowValues
from lodekit.prior.covariance import pair_coefficients
from lodekit.prior.latents import SquaredExponential

__all__ = ["evaluate_on", "factorize_on", "find_device"]

Array = NDArray[np.float64]
_JITTERS = (0.0, 1e-14, 1e-12, 1e-10, 1e-8, 1e-6)
#: Below this size a triangular matrix is inverted by the library.
_LEAF = 1024
#: Blocks are multiples of this.
_UNIT = 256


def find_device(name: str) -> Any:
    """Return a PyTorch device; raise where it cannot be used."""
    try:
        import torch
    except ImportError:
        raise LodekitError(f"device={name!r} needs PyTorch; try: pip install 'lodekit[gpytorch]'") from None
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise LodekitError(f"expected a device such as 'cuda', 'cuda:1' or 'cpu', got {name!r}") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise LodekitError(f"device={name!r} was asked for, but PyTorch sees no CUDA device here")
    if device.type not in ("cuda", "cpu"):
        raise LodekitError(f"device={name!r} has no double precision; expected 'cuda' or 'cpu'")
    return device


def _stacks(problem: Problem, hyper: Hyperparameters, number: int, order: int, device: Any) -> Iterator[Any]:
    """Yield the derivatives of a free function's covariance over all pairs of times, lowest order first."""
    import torch

    times = torch.as_tensor(problem.scaled_times, device=device)
    latent = problem.latents[number]
    u = (times[:, None] - times[None, :]) / float(hyper.lengthscales[number])
    if not isinstance(latent, SquaredExponential):
        yield from latent.stack(torch, u, order)
        return
    before, last = None, torch.exp(-0.5 * u * u)
    yield last
    for m in range(1, order + 1):
        following = -u * last
        if before is not None:
            following -= (m - 1) * before
        before, last = last, following
        yield last


def _pick(problem: Problem, stack: Any, i: int, j: int, device: Any) -> Any:
    """Return the part of a matrix over times that belongs to two observables."""
    import torch

    if problem.is_full:
        return stack
    rows, columns = (torch.as_tensor(problem.index[k], device=device) for k in (i, j))
    return stack[rows][:, columns]


class _State:
    """The covariance of the data, factorized on the device."""

    def __init__(self, problem: Problem, hyper: Hyperparameters, device: Any) -> None:
        self.problem, self.hyper, self.device = problem, hyper, device
        self.rows: RowValues = problem.rows.evaluate(hyper.theta)
        self.order = 2 * (self.rows.free.shape[-1] - 1)
        self.basis, self.d_basis = problem.rows.mode_basis(self.rows, problem.groups, problem.scaled_times, slopes=True)
        means, self.d_means = problem.rows.means(self.rows, problem.times)
        self.residual = problem.scaled_values - np.concatenate(
            [m[i] for m, i in zip(means, problem.index, strict=True)]
        )
        free = self.rows.free
        self.weights = [
            pair_coefficients(np, free[:, k], free[:, k], float(hyper.lengthscales[k]), float(hyper.deviations[k]))
            for k in range(len(problem.latents))
        ]
        self.noise = problem.noise_variance(hyper.noise)
        parts = (self.rows.free, self.residual, self.noise, *self.basis)
        self.finite = all(np.isfinite(part).all() for part in parts)

    @property
    def stacked_basis(self) -> Array:
        return stacked_basis(self.problem, self.basis)

    def kept(self, cholesky: Array, alpha: Any, value: float, jitter: float, added: float) -> Factorization:
        """Return what the rest of the house needs to know."""
        known = alpha.cpu().numpy()
        head = (cholesky, known, self.residual, value, jitter, added)
        return Factorization(*head, self.rows, self.basis, self.d_basis, self.d_means, [], self.weights)

    def covariance(self) -> Any:
        """Return the covariance of the data without noise; only the lower triangle is meant."""
        import torch

        problem, offsets, count = self.problem, self.problem.offsets, len(self.problem.values)
        K = torch.zeros((problem.size, problem.size), dtype=torch.float64, device=self.device)
        for number, latent in enumerate(problem.latents):
            latent.check_order(self.order)
            for m, stack in enumerate(_stacks(problem, self.hyper, number, self.order, self.device)):
                for i in range(count):
                    for j in range(i + 1):
                        weight = float(self.weights[number][i, j, m])
                        if weight:
                            block = K[offsets[i] : offsets[i + 1], offsets[j] : offsets[j + 1]]
                            block.add_(_pick(problem, stack, i, j, self.device), alpha=weight)
        variance = problem.prior.mode_variance(self.hyper.mode_deviations)
        if len(variance):
            basis = torch.as_tensor(self.stacked_basis, device=self.device)
            K.addmm_(basis * torch.as_tensor(variance, device=self.device), basis.T)
        return K

    def factorize(self) -> tuple[Any, float, float] | None:
        """Return the Cholesky factor, the jitter it took, relative and absolute; None where nothing helps."""
        import torch

        noise = torch.as_tensor(self.noise, device=self.device)
        for jitter in _JITTERS:
            K = self.covariance()
            diagonal = K.diagonal()
            mean = float(diagonal.mean())
            if not np.isfinite(mean):
                return None
            diagonal += noise + jitter * mean
            factor, info = torch.linalg.cholesky_ex(K)
            del K, diagonal
            if int(info) == 0:
                return factor, jitter, jitter * mean
        return None

    def finish(self, factor: Any) -> tuple[Any, float]:
        """Return ``K^-1 (y - mu)`` and the negative log evidence in scaled units."""
        import torch

        residual = torch.as_tensor(self.residual, device=self.device)[:, None]
        alpha = torch.cholesky_solve(residual, factor)
        half_log = float(torch.log(factor.diagonal()).sum())
        square = float((residual * alpha).sum())
        return alpha[:, 0], 0.5 * square + half_log + 0.5 * len(residual) * float(np.log(2 * np.pi))


def invert_triangular(matrix: Any) -> None:
    """Turn a lower triangular matrix into its inverse, in place; the upper triangle is not touched."""
    import torch

    size = len(matrix)
    if size <= _LEAF:
        identity = torch.eye(size, dtype=matrix.dtype, device=matrix.device)
        matrix.copy_(torch.linalg.solve_triangular(matrix, identity, upper=False) + torch.triu(matrix, 1))
        return
    first, corner, second = _parts(matrix)
    invert_triangular(first)
    invert_triangular(second)
    _from_right(corner, first)
    _from_left(second, corner)
    corner.neg_()


def square_triangular(matrix: Any) -> None:
    """Turn a lower triangular M into the lower triangle of ``M^T M``, in place; the upper triangle is not touched."""
    import torch

    if len(matrix) <= _LEAF:
        lower = torch.tril(matrix)
        matrix.copy_(torch.tril(lower.T @ lower) + torch.triu(matrix, 1))
        return
    first, corner, second = _parts(matrix)
    square_triangular(first)
    _add_square(first, corner)
    _from_left_transposed(second, corner)
    square_triangular(second)


def _from_left(triangular: Any, matrix: Any) -> None:
    """Turn X into ``L X``, in place."""
    import torch

    if len(triangular) <= _LEAF:
        matrix.copy_(torch.tril(triangular) @ matrix)
        return
    first, corner, second = _parts(triangular)
    half = len(first)
    _from_left(second, matrix[half:])
    matrix[half:].addmm_(corner, matrix[:half])
    _from_left(first, matrix[:half])


def _from_left_transposed(triangular: Any, matrix: Any) -> None:
    """Turn X into ``L^T X``, in place."""
    import torch

    if len(triangular) <= _LEAF:
        matrix.copy_(torch.tril(triangular).T @ matrix)
        return
    first, corner, second = _parts(triangular)
    half = len(first)
    _from_left_transposed(first, matrix[:half])
    matrix[:half].addmm_(corner.T, matrix[half:])
    _from_left_transposed(second, matrix[half:])


def _from_right(matrix: Any, triangular: Any) -> None:
    """Turn X into ``X L``, in place."""
    import torch

    if len(triangular) <= _LEAF:
        matrix.copy_(matrix @ torch.tril(triangular))
        return
    first, corner, second = _parts(triangular)
    half = len(first)
    _from_right(matrix[:, :half], first)
    matrix[:, :half].addmm_(matrix[:, half:], corner)
    _from_right(matrix[:, half:], second)


def _add_square(target: Any, matrix: Any) -> None:
    """Add ``X^T X`` to the lower triangle of the target, in place; parts of the upper triangle change, too."""
    if len(target) <= _LEAF:
        target.addmm_(matrix.T, matrix)
        return
    first, corner, second = _parts(target)
    half = len(first)
    _add_square(first, matrix[:, :half])
    corner.addmm_(matrix[:, half:].T, matrix[:, :half])
    _add_square(second, matrix[:, half:])


def _parts(matrix: Any) -> tuple[Any, Any, Any]:
    """Return the three blocks of a lower triangular matrix."""
    half = _split(len(matrix))
    return matrix[:half, :half], matrix[half:, :half], matrix[half:, half:]


def _split(size: int) -> int:
    """Return about half, a multiple of what matrix products like."""
    return (size // 2 + _UNIT - 1) // _UNIT * _UNIT


def factorize_on(problem: Problem, hyper: Hyperparameters, device: Any) -> Factorization | None:
    """Return the factorization for a posterior, made on the device and brought to the main memory."""
    with np.errstate(all="ignore"):
        state = _State(problem, hyper, device)
        found = state.factorize() if state.finite else None
    if found is None:
        return None
    factor, jitter, added = found
    alpha, value = state.finish(factor)
    return state.kept(np.asfortranarray(factor.cpu().numpy()), alpha, value, jitter, added)


def evaluate_on(problem: Problem, hyper: Hyperparameters, device: Any) -> Evidence:
    """Return the negative log evidence and its gradient; infinite where the covariance is not finite."""
    import torch

    with np.errstate(all="ignore"), torch.no_grad():
        state = _State(problem, hyper, device)
        found = state.factorize() if state.finite else None
        if found is None:
            return Evidence.infinite(hyper)
        G, jitter, added = found
        del found
        alpha, value = state.finish(G)
        invert_triangular(G)
        square_triangular(G)
        diagonal, on_modes = _halve(state, G, alpha)
        contracted = [_contract(state, G, number) for number in range(len(problem.latents))]
        kept = state.kept(np.zeros((0, 0)), alpha, value, jitter, added)
        return finish_gradient(problem, hyper, kept, contracted, on_modes, diagonal)


def _halve(state: _State, G: Any, alpha: Any) -> tuple[Array, Array]:
    """Turn the lower triangle of K^-1 into that of ``(K^-1 - alpha alpha^T)/2``, in place; diagonal blocks whole.

    Returns its diagonal, and its product with the basis functions of the modes.
    """
    import torch

    offsets, count = state.problem.offsets, len(state.problem.values)
    basis = torch.as_tensor(state.stacked_basis, device=state.device)
    on_modes = torch.zeros_like(basis)
    for i in range(count):
        rows = slice(offsets[i], offsets[i + 1])
        for j in range(i + 1):
            columns = slice(offsets[j], offsets[j + 1])
            block = G[rows, columns]
            block.addr_(alpha[rows], alpha[columns], alpha=-1.0)
            block.mul_(0.5)
            if i == j:
                upper = torch.tril(block, -1).T
                block.tril_()
                block.add_(upper)
            on_modes[rows] += block @ basis[columns]
            if i != j:
                on_modes[columns] += block.T @ basis[rows]
    return G.diagonal().cpu().numpy(), on_modes.cpu().numpy()


def _contract(state: _State, G: Any, number: int) -> tuple[Array, Array]:
    """Return ``sum G_ij o h_m`` and the same with the lengthscale derivative of the stack."""
    import torch

    problem, device, offsets = state.problem, state.device, state.problem.offsets
    latent, count, orders = problem.latents[number], len(problem.values), state.order + 1
    is_smooth = isinstance(latent, SquaredExponential)
    times = torch.as_tensor(problem.scaled_times, device=device) / float(state.hyper.lengthscales[number])
    S = np.zeros((count, count, orders + latent.extra))
    on_lag = np.zeros_like(S)
    for m, stack in enumerate(_stacks(problem, state.hyper, number, state.order + latent.extra, device)):
        lagged = None if is_smooth else (times[:, None] - times[None, :]) * stack
        for i in range(count):
            for j in range(i + 1):
                block = G[offsets[i] : offsets[i + 1], offsets[j] : offsets[j + 1]]
                # Transposed, the lag changes its sign, and so do odd derivatives.
                sign = (-1.0) ** m
                S[i, j, m] = float(torch.sum(block * _pick(problem, stack, i, j, device)))
                S[j, i, m] = sign * S[i, j, m] if i != j else S[i, j, m]
                if lagged is not None:
                    on_lag[i, j, m] = float(torch.sum(block * _pick(problem, lagged, i, j, device)))
                    on_lag[j, i, m] = -sign * on_lag[i, j, m] if i != j else on_lag[i, j, m]
    if is_smooth:
        return S, S[..., 2:] + S[..., :orders]
    return S, -np.arange(orders) * S[..., :orders] - on_lag[..., 1 : orders + 1]
