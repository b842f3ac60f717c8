"""Log evidence by the prediction error decomposition, and its gradient by the adjoint of the Kalman filter.

With r the score of the state at the end of a block, N its information, and all measurements z of the block whitened,
the derivative of the log evidence in the joint covariance of measurements and final state is half of ``q q' - I``. Here
``q = (z - W x - G'r, r)``, W is the whitened observation matrix, G the noise gain, x the smoothed mean of the state at
the start, and I the information on both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lodekit.inference.engine import Evidence, SearchLimits
from lodekit.inference.kalman.block_reduction import ReducedBlocks, stack_by_pattern, unstack_by_pattern
from lodekit.inference.kalman.blocks import BlockChunk, BlockLayout, KalmanData
from lodekit.inference.kalman.interval_means import add_averaging_states
from lodekit.inference.kalman.irregular import IrregularBlocks
from lodekit.inference.kalman.smoother import SmoothedMeans, smooth_means
from lodekit.inference.kalman.sqrt_filter import BoundaryConditions, SquareRootFilter, run_filter
from lodekit.inference.kalman.state_space import StateSpaceGradient, build_state_space_model
from lodekit.prior.compile import Coefficients
from lodekit.prior.prior import Hyperparameters
from lodekit.support.arguments import Array

NOT_FINITE = (
    "the states are not finite at these values, or their covariance is singular to rounding; check units and starting "
    "values, and give exact values a small noise_std"
)


@dataclass(frozen=True)
class FilterSolution:
    """The log evidence at given hyperparameters, with the filter and smoother behind it.

    coefficients: Coefficients of the measured observables.
    residual: Scaled measurements minus their prior mean; (m,).
    value: The log evidence in the user's units.
    error: The estimated rounding error of the value.
    block_error: The part of the error that may be smaller in shorter blocks.
    """

    filter: SquareRootFilter
    coefficients: Coefficients
    residual: Array
    smoothed: SmoothedMeans
    value: float
    error: float
    block_error: float


@np.errstate(all="ignore")
def solve_filter(
    data: KalmanData,
    hyper: Hyperparameters,
    layout: BlockLayout,
    boundary: BoundaryConditions | None = None,
    *,
    keep_blocks: bool = False,
) -> FilterSolution | None:
    """Run filter and smoother and compute the log evidence; None if something is not finite."""
    coefficients = data.prior.observables.evaluate(hyper.theta)
    model = add_averaging_states(build_state_space_model(data.prior, hyper, coefficients), data.averaging)
    residual = data.subtract_mean(coefficients)
    if not np.isfinite(residual).all():
        return None
    y, R = layout.to_blocks(residual, 0.0)[:, :, None], data.noise.variance(hyper.noise_std)
    filtered = run_filter(model, layout, R, y, keep_blocks=keep_blocks, boundary=boundary)
    if filtered is None:
        return None
    kalman_filter, reduced = filtered
    smoothed = smooth_means(kalman_filter, reduced)
    whitened_v = kalman_filter.covariances.S_inverse_root.swapaxes(-1, -2) @ smoothed.innovations
    square = float(reduced.residual_ss.sum()) + float(np.sum(whitened_v**2))
    half_log_dets = kalman_filter.half_log_dets[layout.patterns] + kalman_filter.covariances.half_log_det_S
    half_log_det = float(half_log_dets.sum()) + 0.5 * data.size * float(np.log(2.0 * np.pi))
    value = -(0.5 * square + half_log_det) + data.log_jacobian
    if not np.isfinite(value):
        return None
    # Errors of whitened values are proportional to them; their effect follows from the scores.
    of_values = float(np.sqrt(reduced.residual_error) + np.linalg.norm(smoothed.measurement_scores * reduced.z))
    # In practice the relative error of an entry of a covariance and of its factorization is 2e-15.
    of_noise, of_roots = _propagation_errors(kalman_filter, smoothed)
    block_error = 2e-15 * (reduced.covariance_error + of_values + of_noise + data.size)
    errors = [each if np.isfinite(each) else np.inf for each in (block_error + 2e-15 * of_roots, block_error)]
    return FilterSolution(kalman_filter, coefficients, residual, smoothed, value, *errors)


def _propagation_errors(kalman_filter: SquareRootFilter, smoothed: SmoothedMeans) -> tuple[float, float]:
    """Return the effects of relative errors of process noise, and of roots of covariances, on the log evidence.

    Process noise is computed as a covariance, whose errors are proportional to variances. Those of roots are
    proportional to standard deviations; rows of modes with almost equal roots are almost parallel. In an update, errors
    of H times a root are proportional to those of its columns, and act through the derivative of the log evidence.
    """
    covariances, patterns, N = kalman_filter.covariances, kalman_filter.layout.patterns, kalman_filter.information
    n, r = kalman_filter.model.n_stochastic, smoothed.scores[1:]
    std = kalman_filter.noise_std[patterns]
    of_noise = np.einsum("bi,bij,bj->", std, np.abs(N[1:, :n, :n]), std)
    of_noise += np.sum(np.einsum("bi,bi->b", std, np.abs(r[:, :n, 0])) ** 2)
    root, explained, update = covariances.P_root_predicted, covariances.explained_root, covariances.update_root
    Phi_root = kalman_filter.Phi[patterns] @ covariances.P_root_updated
    Phi_root_t, unit = Phi_root.swapaxes(-1, -2), np.eye(root.shape[-1])
    means = update @ (explained.swapaxes(-1, -2) @ smoothed.innovations + Phi_root_t @ r)
    gradient = smoothed.measurement_scores @ means.swapaxes(-1, -2)
    gradient -= explained @ (unit - Phi_root_t @ N[1:] @ Phi_root) @ update.swapaxes(-1, -2)
    columns = np.linalg.norm(np.abs(kalman_filter.H[patterns]) @ np.abs(root), axis=1)
    of_updates = np.einsum("bij,bj->b", np.abs(gradient), columns)
    std, scores = np.linalg.norm(root, axis=2), smoothed.scores[:-1]
    of_values = np.linalg.norm(root.swapaxes(-1, -2) @ scores, axis=(1, 2))
    of_values *= np.einsum("bi,bik->b", std, np.abs(scores))
    of_roots = np.sqrt(np.einsum("bi,bij,bj->", std, np.abs(N[:-1]), std))
    of_roots += np.linalg.norm(of_updates) + np.linalg.norm(of_values)
    return float(of_noise), float(of_roots)


@np.errstate(all="ignore")
def evaluate_evidence(data: KalmanData, hyper: Hyperparameters, solution: FilterSolution) -> Evidence:
    """Return the log evidence and its gradient; minus infinity if something is not finite."""
    gradient = StateSpaceGradient.zeros(solution.filter.model)
    noise, theta = evidence_vjp(data, hyper, solution, gradient)
    return assemble_gradient(solution, gradient, noise, theta, solution.value, solution.error)


def evidence_vjp(
    data: KalmanData, hyper: Hyperparameters, solution: FilterSolution, gradient: StateSpaceGradient
) -> tuple[Array, Array]:
    """Add derivatives in the state-space model; return those in noise levels and, by prior means, in parameters."""
    kalman_filter, layout = solution.filter, solution.filter.layout
    y = layout.to_blocks(solution.residual, 0.0)[:, :, None]
    alpha, grad_R = np.zeros(y.shape), np.zeros(y.shape[:2])
    for number, group in enumerate(layout.chunk_groups):
        if group.is_irregular:
            blocks = group.single_blocks.blocks.ravel()
            alpha[blocks], grad_R[blocks] = _irregular_blocks_vjp(solution, number, y, gradient)
            continue
        reduced, chunk_gradients = kalman_filter.get_reduced_blocks(number), []
        for chunk, where in zip(group.chunks, group.chunk_slices, strict=True):
            scores, parts = _regular_blocks_vjp(solution, chunk, reduced.select(where), stack_by_pattern(y, chunk))
            alpha[chunk.blocks] = unstack_by_pattern(scores, chunk)
            chunk_gradients.append(parts)
        block_gradients = [np.concatenate(parts) for parts in zip(*chunk_gradients, strict=True)]
        reduced.block_model.vjp(gradient, block_gradients)
        # All blocks of a pattern have the same noise: the first one receives the derivatives of all.
        grad_R[group.first_blocks] = np.einsum("uii->ui", block_gradients[0])
    noise = data.noise.level_gradient(layout.from_blocks(grad_R[:, :, None], data.size)[:, 0], hyper.noise_std)
    theta = np.zeros(len(hyper.theta))
    if len(theta) and data.prior.observables.has_mean:
        flat = layout.from_blocks(alpha, data.size)[:, 0]
        weights = [
            np.asarray(np.bincount(index, part, minlength=len(data.times)), dtype=float)
            for index, part in zip(data.index, np.split(flat, data.offsets[1:-1]), strict=True)
        ]
        theta = data.prior.observables.mean_vjp(solution.coefficients, data.times, weights)
    return noise, theta


def assemble_gradient(
    solution: FilterSolution, gradient: StateSpaceGradient, noise: Array, theta: Array, value: float, error: float
) -> Evidence:
    """Return the log evidence with its gradient, from derivatives that go back to the start of a record."""
    score, kalman_filter = solution.smoothed.scores[0], solution.filter
    grad_P = 0.5 * (score @ score.T - kalman_filter.information[0])
    hyper_gradient = kalman_filter.model.vjp(gradient, grad_P, float(kalman_filter.layout.times[0, 0]))
    hyper_gradient = replace(hyper_gradient, theta=hyper_gradient.theta + theta, noise_std=noise)
    if not all(np.isfinite(part).all() for part in hyper_gradient.arrays):
        return Evidence.infeasible(kalman_filter.model.hyper)
    return Evidence(value, hyper_gradient, error)


@dataclass(frozen=True)
class _PatternSums:
    """Matrices of a chunk, summed over all blocks of a pattern, with P the smoothed covariance at the start.

    start_means, end_scores, reduced_scores: Smoothed means of the states at the start; scores of those at the end, and
        of the reduced measurements; (u, s, often).
    information: Information on the state at the end, N; (u, s, s).
    information_Phi_P, information_Phi_P_Ht: ``N Phi P``, and the same times the transposed H; (u, s, s).
    minus_H_P, minus_H_P_Ht: ``-H P`` and ``-H P H'``; (u, s, s).
    """

    start_means: Array
    end_scores: Array
    reduced_scores: Array
    information: Array
    information_Phi_P: Array
    information_Phi_P_Ht: Array
    minus_H_P: Array
    minus_H_P_Ht: Array

    @classmethod
    def of(cls, solution: FilterSolution, chunk: BlockChunk) -> _PatternSums:
        """Return the matrices of a chunk."""
        blocks, covariances, smoothed = chunk.blocks, solution.filter.covariances, solution.smoothed
        N, P_root = solution.filter.information[blocks + 1], covariances.P_root_updated[blocks]
        explained = covariances.explained_root[blocks]
        Phi_P_root = solution.filter.Phi[chunk.patterns][:, None] @ P_root
        N_Phi_P_root = N @ Phi_P_root
        inner = Phi_P_root.swapaxes(-1, -2) @ N_Phi_P_root - np.eye(P_root.shape[-1])
        # H P is computed in the basis of the reduction, in which all entries are of moderate size.
        P_root_t, explained_t = P_root.swapaxes(-1, -2), explained.swapaxes(-1, -2)
        return cls(
            stack_by_pattern(smoothed.means, chunk),
            stack_by_pattern(smoothed.scores, BlockChunk(chunk.patterns, blocks + 1)),
            stack_by_pattern(smoothed.measurement_scores, chunk),
            N.sum(axis=1),
            (N_Phi_P_root @ P_root_t).sum(axis=1),
            (N_Phi_P_root @ explained_t).sum(axis=1),
            (explained @ inner @ P_root_t).sum(axis=1),
            (explained @ inner @ explained_t).sum(axis=1),
        )


def _regular_blocks_vjp(
    solution: FilterSolution, chunk: BlockChunk, reduced: ReducedBlocks, y: Array
) -> tuple[Array, tuple[Array, ...]]:
    """Return derivatives in the values, (u, m, k), and in the arrays of the blocks, as `BlockModel.vjp` expects them.

    Sums over all blocks of a pattern are those of small matrices.
    """
    sums, n = _PatternSums.of(solution, chunk), reduced.noise_gain.shape[1]
    x, r, N, N_Phi_P_Ht = sums.start_means, sums.end_scores, sums.information, sums.information_Phi_P_Ht[:, :n]
    x_t, whitening_t = x.swapaxes(-1, -2), reduced.whitening_matrix.swapaxes(-1, -2)
    alpha = whitening_t @ reduced.measurement_scores(y, sums.reduced_scores, r)
    alpha_t = alpha.swapaxes(-1, -2)
    # The information on whitened measurements is the identity, except in the directions of H and of the noise gain.
    directions = np.concatenate([reduced.basis[:, : y.shape[1]], reduced.noise_gain.swapaxes(-1, -2)], axis=2)
    directions = whitening_t @ directions
    directions_t = directions.swapaxes(-1, -2)
    ends = np.concatenate([N_Phi_P_Ht, N[:, :n, :n]], axis=2)
    known = np.concatenate([sums.minus_H_P_Ht, N_Phi_P_Ht.swapaxes(-1, -2)], axis=2)
    grad_covariance = alpha @ alpha_t - directions @ np.concatenate([known, ends], axis=1) @ directions_t
    grad_covariance -= chunk.blocks.shape[1] * (whitening_t @ reduced.whitening_matrix)
    grad_covariance *= 0.5
    grad_cross = r[:, :n] @ alpha_t + ends @ directions_t
    grad_H = alpha @ x_t + directions @ np.concatenate([sums.minus_H_P, sums.information_Phi_P[:, :n]], axis=1)
    grad_Phi = r @ x_t - sums.information_Phi_P
    grad_Q = 0.5 * (r[:, :n] @ r[:, :n].swapaxes(-1, -2) - N[:, :n, :n])
    return alpha, (grad_covariance, grad_H, grad_Phi, grad_Q, grad_cross)


def _irregular_blocks_vjp(
    solution: FilterSolution, group_index: int, y: Array, gradient: StateSpaceGradient
) -> tuple[Array, Array]:
    """Add derivatives of irregular blocks in the model; return those in values, (u, m, 1), and R, (u, m)."""
    kalman_filter, n = solution.filter, solution.filter.model.n_stochastic
    chunk = kalman_filter.layout.chunk_groups[group_index].single_blocks
    sums = _PatternSums.of(solution, chunk)
    blocks = kalman_filter.cached_irregular_blocks.pop(group_index, None) or IrregularBlocks(
        kalman_filter.model, kalman_filter.layout, group_index, kalman_filter.R, y
    )
    x, r = sums.start_means, sums.end_scores
    grad_Phi = r @ x.swapaxes(-1, -2) - sums.information_Phi_P
    grad_Q = 0.5 * (r @ r.swapaxes(-1, -2) - sums.information)[:, :n, :n]
    grad_moments = np.concatenate([grad_Phi[:, :n], -r[:, :n], grad_Q], axis=2)
    grad_whitened = blocks.measurement_gradient(x, sums.reduced_scores, sums.minus_H_P)
    both = blocks.vjp(gradient, grad_whitened, grad_moments, grad_Phi[:, n:, n:])
    grad_y, grad_R = both.transpose(0, 3, 1, 2).reshape(2, len(chunk.patterns), -1)
    return -grad_y[:, :, None], grad_R


def lengthscale_limits(min_step: float) -> SearchLimits:
    """Return the bounds of a search: lengthscales not far below the smallest step; all cost the same to evaluate."""
    return SearchLimits(max(0.3 * min_step if np.isfinite(min_step) else 1e-3, 1e-6))
