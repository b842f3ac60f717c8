"""Log evidence by the prediction error decomposition, and its gradient by the adjoint of the Kalman filter.

With r the score of the state at the end of a block, N its information, and all measurements z of the block whitened,
the derivative of the log evidence in the joint covariance of measurements and final state is half of ``q q' - I``. Here
``q = (z - W x - G'r, r)``, W is the whitened observation matrix, G the noise gain, x the smoothed mean of the state at
the start, and I the information on both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lodekit.inference.engine import Evidence, SearchLimits
from lodekit.inference.kalman.block_model import ModelGradient
from lodekit.inference.kalman.block_reduction import (
    ReducedBlocks,
    ReducedIrregularBlocks,
    stack_by_pattern,
    unstack_by_pattern,
)
from lodekit.inference.kalman.blocks import BlockChunk, BlockLayout, KalmanData
from lodekit.inference.kalman.interval_means import add_averaging_states
from lodekit.inference.kalman.smoother import SmoothedMeans, propagate_information, smooth_means
from lodekit.inference.kalman.sqrt_filter import BoundaryConditions, SquareRootFilter, run_filter
from lodekit.inference.kalman.state_space import StateSpaceGradient, build_state_space_model
from lodekit.prior.compile import Coefficients
from lodekit.prior.prior import Hyperparameters

Array = NDArray[np.float64]
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
    error: Estimated rounding error of it.
    """

    filter: SquareRootFilter
    coefficients: Coefficients
    residual: Array
    smoothed: SmoothedMeans
    value: float
    error: float

    @cached_property
    def information(self) -> Array:
        """See `propagate_information`."""
        return propagate_information(self.filter)


def subtract_mean(data: KalmanData, coefficients: Coefficients) -> Array:
    """Return the scaled measurements minus their prior mean, shape (m,)."""
    observables = data.prior.observables
    if not observables.has_mean:
        return data.values
    means, _ = observables.means(coefficients, data.times, with_jacobian=False)
    return np.asarray(data.values - np.concatenate([m[i] for m, i in zip(means, data.index, strict=True)]))


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
    residual = subtract_mean(data, coefficients)
    if not np.isfinite(residual).all():
        return None
    y, variance = layout.to_blocks(residual, 0.0)[:, :, None], data.noise.variance(hyper.noise_std)
    filtered = run_filter(model, layout, variance, y, keep_blocks=keep_blocks, boundary=boundary)
    if filtered is None:
        return None
    kalman_filter, reduced = filtered
    smoothed = smooth_means(kalman_filter, reduced)
    whitened = kalman_filter.covariances.S_inverse_root.swapaxes(-1, -2) @ smoothed.innovations
    half_log_dets = kalman_filter.half_log_dets[layout.patterns] + kalman_filter.covariances.half_log_det_S
    square, half_log_det = float(reduced.residual_ss.sum()) + float(np.sum(whitened**2)), float(half_log_dets.sum())
    value = -(0.5 * square + half_log_det + 0.5 * data.size * float(np.log(2.0 * np.pi))) + data.log_jacobian
    if not np.isfinite(value):
        return None
    # Errors of whitened values are proportional to them; their effect follows from the scores.
    of_values = float(np.sqrt(reduced.residual_error) + np.linalg.norm(smoothed.measurement_scores * reduced.z))
    # In practice the relative error of an entry of a covariance and of its factorization is 2e-15.
    error = 2e-15 * (reduced.covariance_error + of_values + data.size)
    error = error if np.isfinite(error) else np.inf
    return FilterSolution(kalman_filter, coefficients, residual, smoothed, value, error)


def evaluate_evidence(data: KalmanData, hyper: Hyperparameters, layout: BlockLayout) -> Evidence:
    """Return the log evidence and its gradient; minus infinity if something is not finite."""
    with np.errstate(all="ignore"):
        solution = solve_filter(data, hyper, layout, keep_blocks=True)
        if solution is None:
            return Evidence.infeasible(hyper)
        model_gradient = ModelGradient(solution.filter.model)
        noise, theta = evidence_vjp(data, hyper, solution, model_gradient)
        return assemble_gradient(solution, model_gradient, noise, theta, (solution.value, solution.error))


def evidence_vjp(
    data: KalmanData, hyper: Hyperparameters, solution: FilterSolution, gradient: ModelGradient
) -> tuple[Array, Array]:
    """Add derivatives in the state-space model; return those in noise levels and, by prior means, in parameters."""
    kalman_filter, layout, information = solution.filter, solution.filter.layout, solution.information
    y = layout.to_blocks(solution.residual, 0.0)[:, :, None]
    alpha, in_noise = np.zeros(y.shape), np.zeros(y.shape[:2])
    for number, group in enumerate(layout.chunk_groups):
        if group.is_irregular:
            blocks = group.single_blocks.blocks.ravel()
            alpha[blocks], in_noise[blocks] = _irregular_blocks_vjp(solution, number, y, information, gradient)
            continue
        reduced, slopes = kalman_filter.get_reduced_blocks(number), []
        for chunk, where in zip(group.chunks, group.chunk_slices, strict=True):
            own = reduced.select(where), stack_by_pattern(y, chunk)
            scores, parts = _regular_blocks_vjp(solution, chunk, *own, information)
            alpha[chunk.blocks] = unstack_by_pattern(scores, chunk)
            slopes.append(parts)
        all_slopes = [np.concatenate(parts) for parts in zip(*slopes, strict=True)]
        reduced.block_model.vjp(gradient, *all_slopes)
        # All blocks of a pattern have the same noise: the first one receives the derivatives of all.
        in_noise[group.first_blocks] = np.einsum("uii->ui", all_slopes[0])
    noise = data.noise.level_gradient(layout.from_blocks(in_noise[:, :, None], data.size)[:, 0], hyper.noise_std)
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
    solution: FilterSolution, gradient: ModelGradient, noise: Array, theta: Array, value_and_error: tuple[float, float]
) -> Evidence:
    """Return the log evidence with its gradient, from derivatives that go back to the start of a record."""
    score, kalman_filter = solution.smoothed.scores[0], solution.filter
    in_P = 0.5 * (score @ score.T - solution.information[0])
    slopes = StateSpaceGradient(gradient.F, gradient.noise_intensity, gradient.H, in_P)
    found = kalman_filter.model.vjp(slopes, float(kalman_filter.layout.times[0, 0]))
    found = replace(found, theta=found.theta + theta, noise_std=noise)
    if not all(np.isfinite(part).all() for part in found.arrays):
        return Evidence.infeasible(solution.filter.model.hyper)
    return Evidence(value_and_error[0], found, value_and_error[1])


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
    def of(cls, solution: FilterSolution, chunk: BlockChunk, information: Array) -> _PatternSums:
        """Return the matrices of a chunk, with `information` of shape (b + 1, s, s)."""
        blocks, covariances, smoothed = chunk.blocks, solution.filter.covariances, solution.smoothed
        after, updated = information[blocks + 1], covariances.P_root_updated[blocks]
        explained = covariances.explained_root[blocks]
        moved = solution.filter.Phi[chunk.patterns][:, None] @ updated
        ahead = after @ moved
        inner = moved.swapaxes(-1, -2) @ ahead - np.eye(updated.shape[-1])
        # H P is computed in the basis of the reduction, where nothing is large.
        updated_t, explained_t = updated.swapaxes(-1, -2), explained.swapaxes(-1, -2)
        return cls(
            stack_by_pattern(smoothed.means, chunk),
            stack_by_pattern(smoothed.scores, BlockChunk(chunk.patterns, blocks + 1)),
            stack_by_pattern(smoothed.measurement_scores, chunk),
            after.sum(axis=1),
            (ahead @ updated_t).sum(axis=1),
            (ahead @ explained_t).sum(axis=1),
            (explained @ inner @ updated_t).sum(axis=1),
            (explained @ inner @ explained_t).sum(axis=1),
        )


def _regular_blocks_vjp(
    solution: FilterSolution, chunk: BlockChunk, reduced: ReducedBlocks, y: Array, information: Array
) -> tuple[Array, tuple[Array, ...]]:
    """Return derivatives in the values, (u, m, k), and in the arrays of the blocks, as `BlockModel.vjp` expects them.

    Sums over all blocks of a pattern are those of small matrices.
    """
    sums, n = _PatternSums.of(solution, chunk, information), reduced.noise_gain.shape[1]
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
    in_covariance = alpha @ alpha_t - directions @ np.concatenate([known, ends], axis=1) @ directions_t
    in_covariance -= chunk.blocks.shape[1] * (whitening_t @ reduced.whitening_matrix)
    in_covariance *= 0.5
    in_cross = r[:, :n] @ alpha_t + ends @ directions_t
    in_H = alpha @ x_t + directions @ np.concatenate([sums.minus_H_P, sums.information_Phi_P[:, :n]], axis=1)
    in_Phi = r @ x_t - sums.information_Phi_P
    in_Q = 0.5 * (r[:, :n] @ r[:, :n].swapaxes(-1, -2) - N[:, :n, :n])
    return alpha, (in_covariance, in_H, in_Phi, in_Q, in_cross)


def _irregular_blocks_vjp(
    solution: FilterSolution, group_index: int, y: Array, information: Array, gradient: ModelGradient
) -> tuple[Array, Array]:
    """Add derivatives of irregular blocks in the model; return those in values, (u, m, 1), and noise, (u, m)."""
    own = solution.filter
    chunk = own.layout.chunk_groups[group_index].single_blocks
    sums, n = _PatternSums.of(solution, chunk, information), own.model.n_stochastic
    reduced = own.cached_irregular_blocks.pop(group_index, None) or ReducedIrregularBlocks.of(
        own.model, own.layout, group_index, own.noise_variance, y
    )
    x, r = sums.start_means, sums.end_scores
    in_Phi = r @ x.swapaxes(-1, -2) - sums.information_Phi_P
    in_Q = 0.5 * (r @ r.swapaxes(-1, -2) - sums.information)[:, :n, :n]
    in_last = np.concatenate([in_Phi[:, :n], -r[:, :n], in_Q], axis=2)
    blocks, scores = reduced.irregular_blocks, reduced.measurement_gradient(x, sums.reduced_scores, sums.minus_H_P)
    # Free the basis, and the scores: the adjoint needs memory.
    del reduced
    in_whitened = blocks.move_blocks_last_padded(scores)
    del scores
    found = blocks.vjp(gradient, in_whitened, in_last, in_Phi[:, n:, n:])
    scores, in_variance = found.transpose(0, 3, 1, 2).reshape(2, len(chunk.patterns), -1)
    return -scores[:, :, None], in_variance


def lengthscale_limits(min_step: float) -> SearchLimits:
    """Return how far a search may take lengthscales: not far below the smallest step; all cost the same to evaluate."""
    return SearchLimits(max(0.3 * min_step if np.isfinite(min_step) else 1e-3, 1e-6))
