"""A Bayesian linear regression on turned waves and modes, by normal equations; `roots.py` does it where noise is low.

Amplitudes are standard normal. With D the design, W the weights and r the data without their mean,

    A = I + D^T W D,   mu = A^-1 D^T W r,   -2 log evidence = r^T W r - mu^T D^T W r + log|A| + constants,

and with ``G = A^-1 + mu mu^T`` every derivative is a contraction ``tr(dD^T (W D G - W r mu^T))``. Arrays may have
leading dimensions: many regressions at once, on NumPy or on PyTorch and its devices.

The regression on waves and modes by a QR factorization of its design: no digits are lost where noise is low.

With rows scaled by the noise, rows of the design can differ by many decades: a precise channel beside a poor one, or
one level of noise for volts and kilovolts. Householder's QR keeps a relative error in every row by itself when the
largest rows come first and columns are exchanged (Cox and Higham 1998), so that a large row does not wash out a small
one. What such relative errors do to the deviance is its derivative in the design, ``U = D A^-1 - r mu^T`` in units of
the noise, times their size: every solution says how large that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, qr

from lodekit.inference.spectral.fourier import apply_operator_to_columns, apply_operator_to_rows, to_fourier_amplitudes

Array = NDArray[np.float64]


@dataclass(frozen=True)
class NormalTerm:
    """What the measurements of one observable add to the normal equations; q nodes, f frequencies, r modes.

    observable, noise_group, count: The number of the observable, that of its level (-1 where noise is known), the
        number of measurements.
    precision: What the weights are multiplied by: one over the learned noise variance, scaled; one where noise is
        known.
    basis: On the nodes: all cosines, then all sines; (q, 2 f).
    gram: Waves times weights times waves; (2 f, 2 f).
    basis_times_data: Waves times weights times the data without their mean; (2 f,).
    weights, weighted_residual: On the nodes; `weighted_residual` stands for weights times data without their mean;
        (q,).
    modes: Scaled by their prior deviations; (q, r).
    residual_ss: The weighted sum of squares of the data without their mean.
    """

    observable: int
    noise_group: int
    count: int
    precision: Any
    basis: Any
    gram: Any
    basis_times_data: Any
    weights: Any
    weighted_residual: Any
    modes: Any
    residual_ss: Any


@dataclass(frozen=True)
class NormalSolution:
    """A regression solved over its d amplitudes: cosines, sines, modes.

    deviance: -2 log evidence, without constants.
    mean: The posterior mean of the amplitudes; (..., d).
    covariance_root: A square K with ``K^T K`` their posterior covariance; (..., d, d).
    design_covariance: The design times their posterior covariance, where it is known from a QR factorization; (m, d).
    error: About how large an error rounding makes in the deviance; infinite where nobody has asked.
    """

    deviance: Any
    mean: Any
    covariance_root: Any
    design_covariance: Any = None
    error: float = np.inf


@dataclass(frozen=True)
class DevianceGradient:
    """Derivatives of half the deviance.

    fourier_coefficients: E, so that half the deviance changes by ``Re sum conj(E) d(coefficients)``; (o, f).
    modes: In the modes on the nodes of each term; (q, r).
    means: In the mean on the nodes of each term; (q,).
    noise: In the logarithm of each level, the constants included; (g,).
    """

    fourier_coefficients: Any
    modes: list[Any]
    means: list[Any]
    noise: Any


def _solve_positive_definite(xp: Any, A: Any, h: Any) -> tuple[Any, Any, Any] | None:
    """Return ``A^-1 h``, ``log |A|`` and the inverse of the Cholesky factor; None where A is not positive."""
    size = A.shape[-1]
    if not size:
        return h, 0.0 * h.sum(-1), A
    if xp is np and A.ndim == 2:
        factor, info = lapack.dpotrf(A.T, lower=1, clean=1)
        if info:
            return None
        root, _ = lapack.dtrtri(factor, lower=1)
        mean, _ = lapack.dpotrs(factor, h, lower=1)
        return mean, 2.0 * float(np.log(np.diag(factor)).sum()), root
    identity = xp.eye(size, dtype=A.dtype, device=A.device)
    factor, _ = xp.linalg.cholesky_ex(A)
    root = xp.linalg.solve_triangular(factor, identity.expand(A.shape), upper=False)
    mean = (root.mT @ (root @ h[..., None]))[..., 0]
    return mean, 2.0 * xp.log(xp.diagonal(factor, dim1=-2, dim2=-1)).sum(-1), root


class NormalEquations:
    """The regression by its normal equations.

    xp: NumPy or PyTorch.
    a, b: The coefficients of the observables on the whitened waves, ``a + i b``; (o, f).
    terms: What the measurements of each observable add.
    n_noise_groups: How many levels are learned.
    """

    def __init__(self, xp: Any, a: Any, b: Any, terms: Sequence[NormalTerm], n_noise_groups: int) -> None:
        self.xp, self.a, self.b, self.terms, self.n_noise_groups = xp, a, b, terms, n_noise_groups
        cut = 2 * a.shape[-1]
        self.n_fourier, self.size = cut, cut + (terms[0].modes.shape[-1] if terms else 0)
        shape, kind = a.shape[:-2], {"dtype": a.dtype, "device": a.device}
        # By level, what belongs to it; known noise comes last.
        self.grams = [xp.zeros((*shape, self.size, self.size), **kind) for _ in range(n_noise_groups + 1)]
        self.right_sides = [xp.zeros((*shape, self.size), **kind) for _ in range(n_noise_groups + 1)]
        self.residual_ss: list[Any] = [0.0] * (n_noise_groups + 1)
        self.half_products = [self._add_term(term) for term in terms]
        for gram in self.grams:
            if self.size > cut:
                gram[..., cut:, :cut] = gram[..., :cut, cut:].mT
        self.gram = sum(self.grams[1:], self.grams[0])

    def rounding_error(self, solution: NormalSolution, rounding: float) -> float:
        """Return about how large an error rounding makes in the deviance, one regression at a time.

        Entries of the Gram matrix have errors in proportion to the roots of their diagonal; the derivative of the
        deviance in it is ``A^-1 + mu mu^T``.
        """
        diagonal = np.maximum(np.einsum("ii->i", self.gram), 0.0)
        through_gram = float(np.sum(np.sum(solution.covariance_root**2, axis=0) * diagonal))
        through_mean = float(solution.mean**2 @ diagonal) + float(sum(self.residual_ss))
        return float(rounding * (through_gram + through_mean + self.size))

    @property
    def max_diagonal(self) -> Any:
        """The largest element of the Gram matrix: how much the data say about the best known direction."""
        diagonal = self.xp.einsum("...ii->...i", self.gram)
        return self.xp.amax(diagonal, -1) if self.size else 0.0

    def _add_term(self, term: NormalTerm) -> Any:
        """Add a term; return the waves times the weighted design, shape (2 f, d)."""
        xp, cut, a, b = self.xp, self.n_fourier, self.a[..., term.observable, :], self.b[..., term.observable, :]
        precision = _append_axes(term.precision, 2)
        half = apply_operator_to_columns(xp, term.gram, a, b)
        weighted = term.weights[..., None] * term.modes
        gram, sums = self.grams[term.noise_group], self.right_sides[term.noise_group]
        if self.size > cut:
            mixed = term.basis.mT @ weighted
            half = xp.concat([half, xp.broadcast_to(mixed, (*half.shape[:-1], mixed.shape[-1]))], axis=-1)
            gram[..., cut:, cut:] += precision * (term.modes.mT @ weighted)
            sums[..., cut:] += (
                _append_axes(term.precision, 1) * (term.modes.mT @ term.weighted_residual[..., None])[..., 0]
            )
        gram[..., :cut, :] += precision * apply_operator_to_rows(xp, half, a, b)
        sums[..., :cut] += (precision * apply_operator_to_rows(xp, term.basis_times_data[..., None], a, b))[..., 0]
        self.residual_ss[term.noise_group] = self.residual_ss[term.noise_group] + term.precision * term.residual_ss
        return half

    def solve(self) -> NormalSolution | None:
        """Return the solution; None where it does not exist."""
        h = sum(self.right_sides[1:], self.right_sides[0])
        A = self.gram + self.xp.eye(self.size, dtype=self.gram.dtype, device=self.gram.device)
        found = _solve_positive_definite(self.xp, A, h)
        if found is None:
            return None
        mean, log_determinant, root = found
        return NormalSolution(sum(self.residual_ss) - (h * mean).sum(-1) + log_determinant, mean, root)

    def gradient(self, solution: NormalSolution) -> DevianceGradient:
        """Return all derivatives of half the deviance, from what `solve` has returned."""
        xp, cut, count, mean = self.xp, self.n_fourier, self.n_fourier // 2, solution.mean
        G = solution.covariance_root.mT @ solution.covariance_root + mean[..., :, None] * mean[..., None, :]
        on_a, on_b = xp.zeros_like(self.a), xp.zeros_like(self.b)
        modes, means = [], []
        GC, GS, mC, mS = G[..., :count, :], G[..., count:cut, :], mean[..., :count], mean[..., count:cut]
        for term, half in zip(self.terms, self.half_products, strict=True):
            HC, HS = half[..., :count, :], half[..., count:, :]
            gC, gS = term.basis_times_data[..., :count], term.basis_times_data[..., count:]
            in_a = _rowwise_dot(xp, HC, GC) + _rowwise_dot(xp, HS, GS) - gC * mC - gS * mS
            in_b = _rowwise_dot(xp, HC, GS) - _rowwise_dot(xp, HS, GC) - gC * mS + gS * mC
            on_a[..., term.observable, :] += _append_axes(term.precision, 1) * in_a
            on_b[..., term.observable, :] += _append_axes(term.precision, 1) * in_b
            a, b = self.a[..., term.observable, :], self.b[..., term.observable, :]
            seen = term.basis @ to_fourier_amplitudes(xp, G[..., :cut, cut:], a, b) + term.modes @ G[..., cut:, cut:]
            in_modes = term.weights[..., None] * seen - term.weighted_residual[..., :, None] * mean[..., None, cut:]
            modes.append(_append_axes(term.precision, 2) * in_modes)
            fitted = (
                term.basis @ to_fourier_amplitudes(xp, mean[..., :cut, None], a, b) + term.modes @ mean[..., cut:, None]
            )
            means.append(_append_axes(term.precision, 1) * (term.weights * fitted[..., 0] - term.weighted_residual))
        noise = []
        for group in range(self.n_noise_groups):
            number = sum(term.count for term in self.terms if term.noise_group == group)
            through_gram = xp.einsum("...ij,...ij->...", G, self.grams[group])
            through_sums = (mean * self.right_sides[group]).sum(-1)
            noise.append(number - through_gram + 2.0 * through_sums - self.residual_ss[group])
        return DevianceGradient(on_a + 1j * on_b, modes, means, noise)


def _rowwise_dot(xp: Any, first: Any, second: Any) -> Any:
    """Return the scalar products of each row of one matrix with the same row of another."""
    return xp.einsum("...fd,...fd->...f", first, second)


def _append_axes(number: Any, dimensions: int) -> Any:
    """Return a number, or an array of numbers, ready to multiply arrays with so many dimensions more."""
    return number.reshape(*number.shape, *[1] * dimensions) if getattr(number, "ndim", 0) else number


#: The relative error of an entry of the design and of its factorization, in practice.
_RELATIVE_ROUNDING_ERROR = 2e-15


@dataclass(frozen=True)
class DesignTerm:
    """What the measurements of one observable add to the design; m rows of it, f frequencies, r modes.

    observable, group, count, precision: As in `Term`.
    basis: The root's images of the waves; (m, 2 f).
    modes: The root's images of the modes, scaled by their prior deviations; (m, r).
    target: The root's image of the data without their mean; (m,).
    residual_ss: The weighted sum of squares that no function reaches.
    """

    observable: int
    noise_group: int
    count: int
    precision: float
    basis: Array
    modes: Array
    target: Array
    residual_ss: float


@dataclass(frozen=True)
class DualSolution:
    """A regression solved over the m rows of its design.

    deviance: -2 log evidence, without constants.
    mean: The posterior mean of the amplitudes; (d,).
    alpha: ``K^-1 r``, which is also what the mean leaves of the data; (m,).
    design_covariance: ``K^-1 D``, which is also the design times the covariance of the amplitudes; (m, d).
    error: About how large an error rounding makes in the deviance.
    """

    deviance: float
    mean: Array
    alpha: Array
    design_covariance: Array
    error: float


class QRLeastSquares:
    """The regression by a QR factorization of its design.

    a, b: The coefficients of the observables on the whitened waves, ``a + i b``; (o, f).
    terms: What the measurements of each observable add.
    n_noise_groups: How many levels are learned.
    """

    def __init__(self, a: Array, b: Array, terms: Sequence[DesignTerm], n_noise_groups: int) -> None:
        self.a, self.b, self.terms, self.n_noise_groups = a, b, terms, n_noise_groups
        self.n_fourier = 2 * a.shape[1]
        self.size = self.n_fourier + (terms[0].modes.shape[1] if terms else 0)
        self.designs = []
        for term in terms:
            design = apply_operator_to_columns(np, term.basis, a[term.observable], b[term.observable])
            self.designs.append(np.sqrt(term.precision) * np.concatenate([design, term.modes], axis=1))
        self.targets = [np.sqrt(term.precision) * term.target for term in terms]

    @property
    def _residual_ss(self) -> float:
        """The weighted sum of squares that no function reaches."""
        return sum(term.precision * term.residual_ss for term in self.terms)

    def solve(self) -> NormalSolution | None:
        """Return the solution; None where it does not exist."""
        stacked = np.concatenate([*self.designs, np.eye(self.size)])
        target = np.concatenate([*self.targets, np.zeros(self.size)])
        if not np.isfinite(stacked).all() or not np.isfinite(target).all():
            return None
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
        root[:, places] = (lapack.dtrtri(R)[0] if self.size else R).T
        mean = np.zeros(self.size)
        for _ in range(3):
            # The first step solves; the others take away what rounding has left, which the gradient would feel.
            mean = mean + root.T @ (Q.T @ (target - stacked @ mean))
        rest = target - stacked @ mean
        deviance = float(rest @ rest) + self._residual_ss + 2.0 * float(np.log(diagonal).sum())
        rows = len(stacked) - self.size
        covered = Q[:rows] @ root
        error = self._rounding_error(sizes[:rows], covered, rest[:rows], mean, target[:rows])
        return NormalSolution(deviance, mean, root, covered, error)

    def solve_dual(self) -> DualSolution | None:
        """Return the solution over the rows of the design D, cheap where these are few; None where it does not exist.

        ``K = I + D D^T`` takes the place of A.
        """
        design, target = np.concatenate(self.designs), np.concatenate(self.targets)
        if not np.isfinite(design).all() or not np.isfinite(target).all():
            return None
        R = np.asarray(np.linalg.qr(np.concatenate([design.T, np.eye(len(design))]), mode="r"))
        diagonal = np.abs(np.diag(R))
        if not (diagonal > 0).all():
            return None
        inverse = lapack.dtrtri(R)[0] if len(R) else R
        root = np.ascontiguousarray(inverse.T)
        alpha = root.T @ (root @ target)
        for _ in range(2):
            alpha = alpha + root.T @ (root @ (target - alpha - design @ (design.T @ alpha)))
        mean, covered = design.T @ alpha, root.T @ (root @ design)
        deviance = float(target @ alpha) + self._residual_ss + 2.0 * float(np.log(diagonal).sum())
        # Here columns stand for measurements: their errors reach the identity below the design, too.
        sizes = np.linalg.norm(design, axis=1)
        spread = np.sqrt(np.sum(root**2, axis=0) + alpha**2 * float(alpha @ alpha))
        error = self._rounding_error(sizes, covered, alpha, mean, target) + 2.0 * _RELATIVE_ROUNDING_ERROR * float(
            np.linalg.norm(sizes * spread)
        )
        return DualSolution(deviance, mean, alpha, covered, error)

    @staticmethod
    def _rounding_error(sizes: Array, covered: Array, rest: Array, mean: Array, target: Array) -> float:
        """Return about how large an error rounding makes in the deviance: twice `U` times errors of the design."""
        through_design = sizes * np.linalg.norm(covered - np.outer(rest, mean), axis=1)
        through_data = rest * target
        total = float(np.linalg.norm(through_design)) + float(np.linalg.norm(through_data))
        return 2.0 * _RELATIVE_ROUNDING_ERROR * (total + float(mean @ mean) + float(np.sqrt(len(mean))))

    def gradient(self, solution: NormalSolution | DualSolution) -> DevianceGradient:
        """Return all derivatives of half the deviance; those in modes and means are in the root's images of these."""
        count, cut, mean = self.n_fourier // 2, self.n_fourier, solution.mean
        slope = np.zeros(self.a.shape, dtype=complex)
        modes, means, noise = [], [], np.zeros(self.n_noise_groups)
        edges = np.cumsum([0, *(len(design) for design in self.designs)])
        for number, (term, design) in enumerate(zip(self.terms, self.designs, strict=True)):
            rows = slice(edges[number], edges[number + 1])
            covered = solution.design_covariance[rows]
            rest = solution.alpha[rows] if isinstance(solution, DualSolution) else self.targets[number] - design @ mean
            U = np.sqrt(term.precision) * (covered - np.outer(rest, mean))
            KC, KS, UC, US = term.basis[:, :count], term.basis[:, count:], U[:, :count], U[:, count:cut]
            in_a = np.einsum("mf,mf->f", KC, UC) + np.einsum("mf,mf->f", KS, US)
            in_b = np.einsum("mf,mf->f", KC, US) - np.einsum("mf,mf->f", KS, UC)
            slope[term.observable] += in_a + 1j * in_b
            modes.append(U[:, cut:])
            means.append(-np.sqrt(term.precision) * rest)
            if term.noise_group >= 0:
                fitted = float(np.sum(covered * design)) + float(rest @ rest)
                noise[term.noise_group] += term.count - fitted - term.precision * term.residual_ss
        return DevianceGradient(slope, modes, means, noise)
