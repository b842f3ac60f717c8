"""Bayesian linear regression on Fourier features and modes: normal equations, QR factorization and the dual form.

Features are cosines and sines on the nodes of the data. A differential operator multiplies each wave by a number,
``W(i w)``, so that Gram matrices over the data do not depend on hyperparameters.

Amplitudes are standard normal. With D the design, W the weights and r the data without their mean,

    A = I + D^T W D,   mu = A^-1 D^T W r,   -2 log evidence = r^T W r - mu^T D^T W r + log|A| + constants,

and with ``G = A^-1 + mu mu^T`` every derivative is a contraction ``tr(dD^T (W D G - W r mu^T))``.

Normal equations square the condition number. If noise is low, the regression uses a QR factorization of the design.
Scaled by the noise, rows of the design can differ by many orders of magnitude, as for precise and imprecise channels.
Householder QR keeps a small relative error in every row if the largest rows come first and columns are pivoted (Cox and
Higham 1998). The effect of such errors on the deviance is its derivative in the design, ``U = D A^-1 - r mu^T`` in
units of the noise, times their size; every solution includes this estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import lapack, qr

from lodekit.inference.spectral.nodes import NodeFactor, NodeStatistics
from lodekit.prior.spectra import FourierFrequencies
from lodekit.support.arguments import Array, ComplexArray

#: The data of one observable; the index of its set of nodes; the features on these nodes, (q, 2 f); their Gram matrix
#: over the data, (2 f, 2 f), or their image under the factor, (m, 2 f); features times data, (2 f,), empty for factors.
GramTerm = tuple[NodeStatistics | NodeFactor, int, Array, Array, Array]


def fourier_basis(frequencies: Array, times: Array) -> Array:
    """Return all cosines, then all sines, at given times, shape (n, 2 f).

    Shapes: frequencies (f,), times (n,).
    """
    angle, count = np.outer(times, frequencies), len(frequencies)
    found = np.empty((len(times), 2 * count))
    np.cos(angle, out=found[:, :count])
    np.sin(angle, out=found[:, count:])
    return found


def apply_operator(basis: Array, a: Array, b: Array) -> Array:
    """Return ``W(d)`` of all waves: columns (cosines, sines) times the coefficients ``a + i b``, shape (n, 2 f).

    ``W(d) cos = a cos - b sin`` and ``W(d) sin = a sin + b cos``.

    Shapes: basis (n, 2 f), a, b (f,).
    """
    C, S = basis[:, : len(a)], basis[:, len(a) :]
    return np.concatenate([C * a - S * b, S * a + C * b], axis=1)


def to_fourier_amplitudes(amplitudes: Array, a: Array, b: Array) -> Array:
    """Return amplitudes of plain cosines and sines, given amplitudes of ``W(d)`` applied to them, shape (2 f, n)."""
    return apply_operator(amplitudes.T, a, -b).T


def compute_gram_matrices(
    frequencies: FourierFrequencies, statistics: Sequence[NodeStatistics | NodeFactor]
) -> list[GramTerm]:
    """Return the features on the nodes of the data and their Gram matrices; equal nodes and weights share them."""
    node_sets: list[tuple[Array, Array]] = []
    products: list[tuple[int, Array, Array]] = []
    terms: list[GramTerm] = []
    for item in statistics:
        number = next((i for i, (nodes, _) in enumerate(node_sets) if _is_same(nodes, item.nodes)), len(node_sets))
        if number == len(node_sets):
            node_sets.append((item.nodes, fourier_basis(frequencies.values, item.nodes)))
        F = node_sets[number][1]
        weights = item.factor if isinstance(item, NodeFactor) else item.weights
        product = next((P for place, other, P in products if place == number and _is_same(other, weights)), None)
        if product is None:
            product = item.apply(F) if isinstance(item, NodeFactor) else F.T @ (weights[:, None] * F)
            products.append((number, weights, product))
        on_data = np.zeros(0) if isinstance(item, NodeFactor) else F.T @ item.weighted_values
        terms.append((item, number, F, product, on_data))
    return terms


def _is_same(first: Array, second: Array) -> bool:
    return first is second or (first.shape == second.shape and bool(np.array_equal(first, second)))


@dataclass(frozen=True)
class RegressionTerm:
    """The contribution of one observable to the regression; q nodes or rows, f frequencies, r modes.

    observable, noise_group, count: Index of the observable and of its noise level (-1 if the noise is known), and the
        number of measurements.
    precision: Factor of the weights: one over the estimated noise variance, scaled; one if the noise is known.
    basis, modes: All cosines, then all sines; modes times their prior standard deviations; (q, 2 f), (q, r).
    target: The data without their mean, times the weights for normal equations; (q,).
    residual_ss: The weighted sum of squares of the data without their mean, or for QR the part that cannot be fitted.
    weights, gram, basis_times_data: For normal equations: (q,), (2 f, 2 f) and (2 f,).
    """

    observable: int
    noise_group: int
    count: int
    precision: float
    basis: Array
    modes: Array
    target: Array
    residual_ss: float
    weights: Any = None
    gram: Any = None
    basis_times_data: Any = None


@dataclass(frozen=True)
class DevianceGradient:
    """Derivatives of half the deviance.

    fourier_coefficients: E, so that half the deviance changes by ``Re sum conj(E) d(coefficients)``; (o, f).
    modes, means: Derivatives in the modes and in the mean on the nodes of each term; (q, r), (q,). For the QR and the
        dual form, in their images under the factor.
    noise: Derivatives in the logarithm of each noise level, including the normalization; (g,).
    """

    fourier_coefficients: ComplexArray
    modes: list[Array]
    means: list[Array]
    noise: Array


@dataclass(frozen=True)
class RegressionSolution:
    """The solved regression over its d amplitudes: cosines, sines, modes.

    deviance: -2 log evidence, without constants.
    mean: The posterior mean of the amplitudes; (d,).
    error: Estimated rounding error of the deviance.
    covariance_root: A square K with ``K^T K`` the posterior covariance; None in the dual form; (d, d).
    gradient: Computes all derivatives of half the deviance.
    """

    deviance: float
    mean: Array
    error: float
    covariance_root: Any
    gradient: Callable[[], DevianceGradient]


def solve_normal_equations(
    a: Array, b: Array, terms: Sequence[RegressionTerm], n_noise_groups: int, rounding: float
) -> RegressionSolution | None:
    """Return the solution of the normal equations; None if the matrix is not positive definite.

    Entries of the Gram matrix have errors in proportion to the roots of its diagonal; the derivative of the deviance in
    the matrix is ``A^-1 + mu mu^T``. `a + i b` are the coefficients of the observables on the whitened waves, (o, f);
    `rounding` is the relative error of sums over the data.
    """
    cut = 2 * a.shape[1]
    size = cut + terms[0].modes.shape[1]
    # One Gram matrix for each noise level; known noise comes last.
    grams, right_sides = np.zeros((n_noise_groups + 1, size, size)), np.zeros((n_noise_groups + 1, size))
    residual_ss = [0.0] * (n_noise_groups + 1)
    half_products = []
    for term in terms:
        turn, precision = (a[term.observable], b[term.observable]), term.precision
        weighted = term.weights[:, None] * term.modes
        half = np.concatenate([apply_operator(term.gram, *turn), term.basis.T @ weighted], axis=1)
        group, sums = grams[term.noise_group], right_sides[term.noise_group]
        group[cut:, cut:] += precision * (term.modes.T @ weighted)
        sums[cut:] += precision * (term.modes.T @ term.target)
        group[:cut] += precision * apply_operator(half.T, *turn).T
        sums[:cut] += precision * apply_operator(term.basis_times_data[None], *turn)[0]
        residual_ss[term.noise_group] += precision * term.residual_ss
        half_products.append(half)
    grams[:, cut:, :cut] = grams[:, :cut, cut:].transpose(0, 2, 1)
    gram, h = sum(grams[1:], grams[0]), sum(right_sides[1:], right_sides[0])
    mean, root, log_det = h, gram, 0.0
    if size:
        factor, info = lapack.dpotrf((gram + np.eye(size)).T, lower=1, clean=1)
        if info:
            return None
        root, _ = lapack.dtrtri(factor, lower=1)
        mean, _ = lapack.dpotrs(factor, h, lower=1)
        log_det = 2.0 * float(np.log(np.diag(factor)).sum())
    squares, diagonal = sum(residual_ss), np.maximum(np.einsum("ii->i", gram), 0.0)
    through_gram = float(np.sum(np.sum(root**2, axis=0) * diagonal))
    error = rounding * (through_gram + float(mean**2 @ diagonal) + squares + size)
    group_sums = grams, right_sides, residual_ss
    gradient = partial(_gradient_of_normal_equations, a, b, terms, half_products, group_sums, mean, root)
    return RegressionSolution(squares - float(h @ mean) + log_det, mean, error, root, gradient)


def _gradient_of_normal_equations(
    a: Array,
    b: Array,
    terms: Sequence[RegressionTerm],
    half_products: Sequence[Array],
    group_sums: tuple[Array, Array, list[float]],
    mean: Array,
    root: Array,
) -> DevianceGradient:
    """Return the derivatives; `half_products` are features times the weighted design, (2 f, d)."""
    count = a.shape[1]
    cut = 2 * count
    G = root.T @ root + np.outer(mean, mean)
    slope = np.zeros(a.shape, dtype=complex)
    modes, means = [], []
    dot = partial(np.einsum, "fd,fd->f")
    # Derivatives in the modes, and in the mean, whose amplitudes are the last column.
    columns = np.column_stack([G[:, cut:], mean])
    GC, GS, mC, mS = G[:count], G[count:cut], mean[:count], mean[count:cut]
    for term, half in zip(terms, half_products, strict=True):
        HC, HS, gC, gS = half[:count], half[count:], *np.split(term.basis_times_data, 2)
        in_a = dot(HC, GC) + dot(HS, GS) - gC * mC - gS * mS
        in_b = dot(HC, GS) - dot(HS, GC) - gC * mS + gS * mC
        slope[term.observable] += term.precision * (in_a + 1j * in_b)
        on_waves = to_fourier_amplitudes(columns[:cut], a[term.observable], b[term.observable])
        fitted = term.weights[:, None] * (term.basis @ on_waves + term.modes @ columns[cut:])
        fitted -= np.outer(term.target, np.append(mean[cut:], 1.0))
        modes.append(term.precision * fitted[:, :-1])
        means.append(term.precision * fitted[:, -1])
    noise = np.zeros(len(group_sums[0]) - 1)
    for group, (gram, right_side, squares) in enumerate(zip(*group_sums, strict=True)):
        if group < len(noise):
            number = sum(term.count for term in terms if term.noise_group == group)
            noise[group] = number - float(np.sum(G * gram)) + 2.0 * float(mean @ right_side) - squares
    return DevianceGradient(slope, modes, means, noise)


#: The relative error of an entry of the design and of its factorization, in practice.
_DESIGN_ROUNDING_ERROR = 2e-15


def _design_and_target(a: Array, b: Array, terms: Sequence[RegressionTerm]) -> tuple[Array, Array] | None:
    """Return design and data in units of the noise, shapes (m, d) and (m,); None if they are not finite."""
    designs = []
    for term in terms:
        design = apply_operator(term.basis, a[term.observable], b[term.observable])
        designs.append(np.sqrt(term.precision) * np.concatenate([design, term.modes], axis=1))
    design, target = np.concatenate(designs), np.concatenate([np.sqrt(term.precision) * term.target for term in terms])
    return (design, target) if np.isfinite(design).all() and np.isfinite(target).all() else None


def solve_qr(a: Array, b: Array, terms: Sequence[RegressionTerm], n_noise_groups: int) -> RegressionSolution | None:
    """Return the solution by a QR factorization of the design; None if it is not finite."""
    if (scaled := _design_and_target(a, b, terms)) is None:
        return None
    design, rows, size = scaled[0], *scaled[0].shape
    stacked, target = np.concatenate([design, np.eye(size)]), np.concatenate([scaled[1], np.zeros(size)])
    sizes = np.abs(stacked).max(axis=1, initial=0.0)
    order = np.argsort(-sizes, kind="stable")
    sorted_q, R, places = qr(stacked[order], mode="economic", pivoting=True, check_finite=False)
    diagonal = np.abs(np.diag(R))
    if not (diagonal > 0).all():
        return None
    Q = np.empty_like(sorted_q)
    Q[order] = sorted_q
    # A^-1 = root^T root, where stacked = Q R P^T and root = R^-T P^T.
    root = np.empty_like(R)
    root[:, places] = (lapack.dtrtri(R)[0] if size else R).T
    mean = np.zeros(size)
    for _ in range(3):
        # The first step solves; the others refine the solution, whose rounding errors would affect the gradient.
        mean = mean + root.T @ (Q.T @ (target - stacked @ mean))
    residual = target - stacked @ mean
    deviance = float(residual @ residual) + 2.0 * float(np.log(diagonal).sum())
    deviance += sum(term.precision * term.residual_ss for term in terms)
    design_covariance, residual = Q[:rows] @ root, residual[:rows]
    error = _rounding_error(sizes[:rows], design_covariance, residual, mean, target[:rows])
    gradient = partial(_design_gradient, a.shape, terms, n_noise_groups, design, design_covariance, residual, mean)
    return RegressionSolution(deviance, mean, error, root, gradient)


def solve_dual(a: Array, b: Array, terms: Sequence[RegressionTerm], n_noise_groups: int) -> RegressionSolution | None:
    """Return the solution over the rows of the design D, cheap if these are few; None if it is not finite.

    ``K = I + D D^T`` takes the place of A.
    """
    if (scaled := _design_and_target(a, b, terms)) is None:
        return None
    design, target = scaled
    R = np.asarray(np.linalg.qr(np.concatenate([design.T, np.eye(len(design))]), mode="r"))
    diagonal = np.abs(np.diag(R))
    if not (diagonal > 0).all():
        return None
    root = np.ascontiguousarray((lapack.dtrtri(R)[0] if len(R) else R).T)
    alpha = root.T @ (root @ target)
    for _ in range(2):
        alpha = alpha + root.T @ (root @ (target - alpha - design @ (design.T @ alpha)))
    mean, design_covariance = design.T @ alpha, root.T @ (root @ design)
    deviance = float(target @ alpha) + 2.0 * float(np.log(diagonal).sum())
    deviance += sum(term.precision * term.residual_ss for term in terms)
    # Columns correspond to measurements here: their errors also affect the identity below the design.
    sizes = np.linalg.norm(design, axis=1)
    spread = np.sqrt(np.sum(root**2, axis=0) + alpha**2 * float(alpha @ alpha))
    error = _rounding_error(sizes, design_covariance, alpha, mean, target)
    error += 2.0 * _DESIGN_ROUNDING_ERROR * float(np.linalg.norm(sizes * spread))
    gradient = partial(_design_gradient, a.shape, terms, n_noise_groups, design, design_covariance, alpha, mean)
    return RegressionSolution(deviance, mean, error, None, gradient)


def _rounding_error(sizes: Array, design_covariance: Array, residual: Array, mean: Array, target: Array) -> float:
    """Return the estimated rounding error of the deviance: twice `U` times errors of the design."""
    through_design = float(np.linalg.norm(sizes * np.linalg.norm(design_covariance - np.outer(residual, mean), axis=1)))
    total = through_design + float(np.linalg.norm(residual * target)) + float(mean @ mean)
    return 2.0 * _DESIGN_ROUNDING_ERROR * (total + float(np.sqrt(len(mean))))


def _design_gradient(
    shape: tuple[int, ...],
    terms: Sequence[RegressionTerm],
    n_noise_groups: int,
    design: Array,
    design_covariance: Array,
    residual: Array,
    mean: Array,
) -> DevianceGradient:
    """Return all derivatives of half the deviance, from the design times the posterior covariance, (m, d)."""
    count, cut = shape[1], 2 * shape[1]
    slope = np.zeros(shape, dtype=complex)
    modes, means, noise, start = list[Array](), list[Array](), np.zeros(n_noise_groups), 0
    for term in terms:
        rows = slice(start, start := start + len(term.target))
        covariance, rest = design_covariance[rows], residual[rows]
        U = np.sqrt(term.precision) * (covariance - np.outer(rest, mean))
        KC, KS, UC, US = term.basis[:, :count], term.basis[:, count:], U[:, :count], U[:, count:cut]
        in_a = np.einsum("mf,mf->f", KC, UC) + np.einsum("mf,mf->f", KS, US)
        in_b = np.einsum("mf,mf->f", KC, US) - np.einsum("mf,mf->f", KS, UC)
        slope[term.observable] += in_a + 1j * in_b
        modes.append(U[:, cut:])
        means.append(-np.sqrt(term.precision) * rest)
        if term.noise_group >= 0:
            fitted = float(np.sum(covariance * design[rows])) + float(rest @ rest)
            noise[term.noise_group] += term.count - fitted - term.precision * term.residual_ss
    return DevianceGradient(slope, modes, means, noise)
