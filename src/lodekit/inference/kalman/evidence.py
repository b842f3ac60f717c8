"""The log evidence by blocks, and its gradient in closed form: the adjoint of the same recursions.

With r the derivative in the mean of the state at the end of a block, N the information of all that follows, P and m
covariance and mean at its start given the block itself, and everything whitened, the derivative of the log evidence in
the joint covariance of measurements and state at the end is half of ``q q' - I``, where ``q = (z - W x - G'r, r)``, x
the mean of the state at the start given everything, and I the information of both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lodekit.inference.engine import Evidence
from lodekit.inference.kalman.block_model import BlockGradient, ModelGradient
from lodekit.inference.kalman.block_reduction import (
    ReducedBlocks,
    ReducedIrregularBlocks,
    stack_by_pattern,
    unstack_by_pattern,
)
from lodekit.inference.kalman.blocks import BlockChunk, BlockLayout, KalmanData
from lodekit.inference.kalman.interval_means import add_averaging_states
from lodekit.inference.kalman.sqrt_filter import BoundaryConditions, SmoothedMeans, SquareRootFilter, run_filter
from lodekit.inference.kalman.state_space import StateSpaceGradient, build_state_space_model
from lodekit.prior.compile import Coefficients
from lodekit.prior.prior import Hyperparameters

Array = NDArray[np.float64]
#: The relative error of an entry of a covariance and of its factorization, in practice.
_ROUNDING_ERROR = 2e-15


@dataclass(frozen=True)
class FilterSolution:
    """The log evidence at some hyperparameters, and what it was made of.

    coefficients: Of the measured observables.
    residual: The measurements without all that is known, scaled; (m,).
    value: The log evidence in the user's units.
    error: About how large an error rounding makes in it.
    """

    filter: SquareRootFilter
    coefficients: Coefficients
    residual: Array
    smoothed: SmoothedMeans
    value: float
    error: float


def subtract_mean(data: KalmanData, coefficients: Coefficients) -> Array:
    """Return the measurements without all that is known, scaled, shape (m,)."""
    observables = data.prior.observables
    if not observables.has_mean:
        return data.values
    means, _ = observables.means(coefficients, data.times, with_jacobian=False)
    return np.asarray(data.values - np.concatenate([m[i] for m, i in zip(means, data.index, strict=True)]))


def solve_filter(
    data: KalmanData,
    hyper: Hyperparameters,
    layout: BlockLayout,
    boundary: BoundaryConditions | None = None,
    *,
    keep_blocks: bool = False,
) -> FilterSolution | None:
    """Return the log evidence; None where something is not finite."""
    with np.errstate(all="ignore"):
        return _solve_filter(data, hyper, layout, boundary, keep_blocks=keep_blocks)


def _solve_filter(
    data: KalmanData,
    hyper: Hyperparameters,
    layout: BlockLayout,
    boundary: BoundaryConditions | None,
    *,
    keep_blocks: bool,
) -> FilterSolution | None:
    values = data.prior.observables.evaluate(hyper.theta)
    space = add_averaging_states(build_state_space_model(data.prior, hyper, values), data.averaging)
    residual = subtract_mean(data, values)
    if not np.isfinite(residual).all():
        return None
    y = layout.to_blocks(residual, 0.0)[:, :, None]
    made = run_filter(
        space, layout, data.noise.variance(hyper.noise_std), y, keep_blocks=keep_blocks, boundary=boundary
    )
    if made is None:
        return None
    found, projected = made
    said = projected.z
    smoothed = found.smooth_means(projected)
    told = found.covariances.S_inverse_root.swapaxes(-1, -2) @ smoothed.innovations
    half_log = float((found.half_log_dets[layout.patterns] + found.covariances.half_log_det_S).sum())
    square = float(projected.residual_ss.sum()) + float(np.sum(told**2))
    value = -(0.5 * square + half_log + 0.5 * data.size * float(np.log(2.0 * np.pi))) + data.log_jacobian
    if not np.isfinite(value):
        return None
    # Whitened values err in proportion to themselves: what that does, through their derivatives.
    lost = float(np.sqrt(projected.residual_error) + np.linalg.norm(smoothed.measurement_scores * said))
    error = _ROUNDING_ERROR * (projected.covariance_error + lost + data.size)
    return FilterSolution(found, values, residual, smoothed, value, error if np.isfinite(error) else np.inf)


def evaluate_evidence(data: KalmanData, hyper: Hyperparameters, layout: BlockLayout) -> Evidence:
    """Return the log evidence and its gradient; minus infinity where something is not finite."""
    with np.errstate(all="ignore"):
        solved = _solve_filter(data, hyper, layout, None, keep_blocks=True)
        if solved is None:
            return Evidence.infeasible(hyper)
        pulled = EvidenceGradient.of(data, hyper, solved, ModelGradient(solved.filter.model))
        gradient = assemble_gradient(solved.filter, pulled)
    if not all(np.isfinite(part).all() for part in gradient.arrays):
        return Evidence.infeasible(hyper)
    return Evidence(solved.value, gradient, solved.error)


@dataclass(frozen=True)
class EvidenceGradient:
    """Derivatives of the log evidence, but for what goes through the system itself and its start.

    model_gradient: In the system; those of several pieces of a record add up in it.
    noise, theta: In the noise, and in the parameters of what is known.
    initial_score: In the mean of the state at the start; (s, 1).
    initial_information: What all data know of that state; (s, s).
    """

    model_gradient: ModelGradient
    noise: Array
    theta: Array
    initial_score: Array
    initial_information: Array

    @classmethod
    def of(
        cls, data: KalmanData, hyper: Hyperparameters, solution: FilterSolution, model_gradient: ModelGradient
    ) -> EvidenceGradient:
        """Return the derivatives; those in the system are added to what is there."""
        own, layout = solution.filter, solution.filter.layout
        information = own.propagate_information()
        y = layout.to_blocks(solution.residual, 0.0)[:, :, None]
        alpha, in_noise = np.zeros(y.shape), np.zeros(y.shape[:2])
        for number, family in enumerate(layout.chunk_groups):
            if family.is_irregular:
                blocks = family.chunks[0].blocks.ravel()
                alpha[blocks], in_noise[blocks] = _irregular_blocks_vjp(
                    solution, number, y, information, model_gradient
                )
                continue
            white, slopes = own.get_reduced_blocks(number), []
            for chunk, where in zip(family.chunks, family.chunk_slices, strict=True):
                scores, parts = _regular_blocks_vjp(
                    solution, chunk, white.select(where), stack_by_pattern(y, chunk), information
                )
                alpha[chunk.blocks] = unstack_by_pattern(scores, chunk)
                slopes.append(parts)
            both = [np.concatenate(parts) for parts in zip(*slopes, strict=True)]
            inner = BlockGradient.zeros(white.block_model.discretized)
            white.block_model.vjp(inner, *both)
            model_gradient.add_blocks(white.block_model.discretized, inner)
            # All blocks of a pattern have the same noise: the first one stands for all.
            in_noise[family.first_blocks] = np.einsum("uii->ui", both[0])
        noise = data.noise.level_gradient(layout.from_blocks(in_noise[:, :, None], data.size)[:, 0], hyper.noise_std)
        theta = np.zeros(len(hyper.theta))
        if len(theta) and data.prior.observables.has_mean:
            flat = layout.from_blocks(alpha, data.size)[:, 0]
            weights = [
                np.asarray(np.bincount(index, part, minlength=len(data.times)), dtype=float)
                for index, part in zip(data.index, np.split(flat, data.offsets[1:-1]), strict=True)
            ]
            theta = data.prior.observables.mean_vjp(solution.coefficients, data.times, weights)
        return cls(model_gradient, noise, theta, solution.smoothed.scores[0], information[0])


def assemble_gradient(kalman_filter: SquareRootFilter, gradient: EvidenceGradient) -> Hyperparameters:
    """Return the gradient, from what was pulled back to the start of a record."""
    in_start = 0.5 * (gradient.initial_score @ gradient.initial_score.T - gradient.initial_information)
    total = gradient.model_gradient
    slopes = StateSpaceGradient(total.F, total.noise_intensity, total.H, in_start)
    found = kalman_filter.model.vjp(slopes, float(kalman_filter.layout.times[0, 0]))
    return replace(found, theta=found.theta + gradient.theta, noise_std=gradient.noise)


@dataclass(frozen=True)
class _PatternSums:
    """Small matrices of a chunk, summed up over all blocks of a pattern.

    start_means, end_scores, reduced_scores: Means of the states at the start; derivatives in those at the end, and in
        what is said of those at the start; (u, s, often).
    information: The information that later blocks have of the state at the end; (u, s, s).
    information_Phi_P, information_Phi_P_Ht: That times how the state at the start moves and is uncertain: in states,
        and in the basis of the design; (u, s, s).
    minus_H_P, minus_H_P_Ht: Minus the design times the covariance of the state at the start given everything, and
        that times the design; (u, s, s).
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
        """Return the matrices of a chunk.

        Shapes: information (b + 1, s, s).
        """
        blocks, carried = chunk.blocks, solution.filter.covariances
        after, later, share = information[blocks + 1], carried.P_root_updated[blocks], carried.explained_root[blocks]
        moved = solution.filter.Phi[chunk.patterns][:, None] @ later
        ahead = after @ moved
        inner = moved.swapaxes(-1, -2) @ ahead - np.eye(later.shape[-1])
        # What the design times a covariance is: in the basis of the design, where nothing is large.
        back_later, back_share = later.swapaxes(-1, -2), share.swapaxes(-1, -2)
        return cls(
            stack_by_pattern(solution.smoothed.means, chunk),
            stack_by_pattern(solution.smoothed.scores, BlockChunk(chunk.patterns, blocks + 1)),
            stack_by_pattern(solution.smoothed.measurement_scores, chunk),
            after.sum(axis=1),
            (ahead @ back_later).sum(axis=1),
            (ahead @ back_share).sum(axis=1),
            (share @ inner @ back_later).sum(axis=1),
            (share @ inner @ back_share).sum(axis=1),
        )


def _regular_blocks_vjp(
    solution: FilterSolution, chunk: BlockChunk, reduced_blocks: ReducedBlocks, y: Array, information: Array
) -> tuple[Array, tuple[Array, ...]]:
    """Return derivatives in the values, (u, m, k), and in what the blocks of a chunk are made of, as `Inside` has them.

    Sums over all blocks of a pattern are those of small matrices.
    """
    small, n = _PatternSums.of(solution, chunk, information), reduced_blocks.noise_gain.shape[1]
    x, r, after, ahead = (
        small.start_means,
        small.end_scores,
        small.information[:, :n, :n],
        small.information_Phi_P_Ht[:, :n],
    )
    back = reduced_blocks.whitening_matrix.swapaxes(-1, -2)
    alpha = back @ reduced_blocks.measurement_scores(y, small.reduced_scores, r)
    # What is known of whitened measurements is the unit, but for a few directions: of the design, and of the gain.
    few = back @ np.concatenate(
        [reduced_blocks.basis[:, : y.shape[1]], reduced_blocks.noise_gain.swapaxes(-1, -2)], axis=2
    )
    ends = np.concatenate([ahead, after], axis=2)
    known = np.concatenate([np.concatenate([small.minus_H_P_Ht, ahead.swapaxes(-1, -2)], axis=2), ends], axis=1)
    in_covariance = alpha @ alpha.swapaxes(-1, -2) - few @ known @ few.swapaxes(-1, -2)
    in_covariance -= chunk.blocks.shape[1] * (back @ reduced_blocks.whitening_matrix)
    in_covariance *= 0.5
    in_cross = r[:, :n] @ alpha.swapaxes(-1, -2) + ends @ few.swapaxes(-1, -2)
    in_design = alpha @ x.swapaxes(-1, -2) + few @ np.concatenate(
        [small.minus_H_P, small.information_Phi_P[:, :n]], axis=1
    )
    in_transition = r @ x.swapaxes(-1, -2) - small.information_Phi_P
    in_noise = 0.5 * (r[:, :n] @ r[:, :n].swapaxes(-1, -2) - after)
    return alpha, (in_covariance, in_design, in_transition, in_noise, in_cross)


def _irregular_blocks_vjp(
    solution: FilterSolution, group_index: int, y: Array, information: Array, model_gradient: ModelGradient
) -> tuple[Array, Array]:
    """Add what blocks that share nothing have to say; return derivatives in values, (u, m, 1), and noise, (u, m)."""
    own = solution.filter
    chunk = own.layout.chunk_groups[group_index].chunks[0].as_single_blocks
    small, n = _PatternSums.of(solution, chunk, information), own.model.n_stochastic
    blocks = own.cached_irregular_blocks.pop(group_index, None) or ReducedIrregularBlocks.of(
        own.model, own.layout, group_index, own.noise_variance, y
    )
    in_transition = small.end_scores @ small.start_means.swapaxes(-1, -2) - small.information_Phi_P
    in_noise = 0.5 * (small.end_scores @ small.end_scores.swapaxes(-1, -2) - small.information)[:, :n, :n]
    in_last = np.concatenate([in_transition[:, :n], -small.end_scores[:, :n], in_noise], axis=2)
    swept, scores = (
        blocks.irregular_blocks,
        blocks.measurement_gradient(small.start_means, small.reduced_scores, small.minus_H_P),
    )
    # The basis has done its work, and the way back needs room.
    del blocks
    in_design = swept.move_blocks_last_padded(scores)
    del scores
    found = swept.vjp(model_gradient, in_design, in_last, in_transition[:, n:, n:])
    scores, in_variance = found.transpose(0, 3, 1, 2).reshape(2, len(chunk.patterns), -1)
    return -scores[:, :, None], in_variance
