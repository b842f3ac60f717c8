"""Bayesian linear regression on Fourier features and modes: normal equations, QR factorization and the dual form.

Amplitudes are standard normal. With D the design, W the weights and r the data without their mean,

    A = I + D^T W D,   mu = A^-1 D^T W r,   -2 log evidence = r^T W r - mu^T D^T W r + log|A| + constants,

and with ``G = A^-1 + mu mu^T`` every derivative is a contraction ``tr(dD^T (W D G - W r mu^T))``.

Normal equations square the condition number. If noise is low, the regression uses a QR factorization of the design.
With rows scaled by the noise, rows of the design can differ by many decades: a precise channel beside a poor one.
Householder QR keeps a small relative error in every row if the largest rows come first and columns are pivoted (Cox and
Higham 1998). The effect of such errors on the deviance is its derivative in the design, ``U = D A^-1 - r mu^T`` in
units of the noise, times their size; every solution includes this estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, qr

from lodekit.inference.spectral.fourier import apply_operator, to_fourier_amplitudes

Array = NDArray[np.float64]


@dataclass(frozen=True)
class RegressionTerm:
    """The contribution of one observable to the regression; q nodes or rows, f frequencies, r modes.

    observable, noise_group, count: Index of the observable and of its noise level (-1 if the noise is known), and the
        number of measurements.
    precision: Factor of the weights: one over the learned noise variance, scaled; one if the noise is known.
    basis, modes: All cosines, then all sines; modes times their prior standard deviations; (q, 2 f), (q, r).
    target: The data without their mean, times the weights for normal equations; (q,).
    residual_ss: The weighted sum of squares of the data without their mean, or for QR of what no function can fit.
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
class RegressionSolution:
    """The solved regression over its d amplitudes: cosines, sines, modes.

    deviance: -2 log evidence, without constants.
    mean: The posterior mean of the amplitudes; (d,).
    error: Estimated rounding error of the deviance.
    covariance_root: A square K with ``K^T K`` the posterior covariance; None in the dual form; (d, d).
    design_covariance, residual: The design times the posterior covariance, (m, d), and the data minus the fit, (m,);
        not for normal equations.
    """

    deviance: float
    mean: Array
    error: float
    covariance_root: Any = None
    design_covariance: Any = None
    residual: Any = None


@dataclass(frozen=True)
class DevianceGradient:
    """Derivatives of half the deviance.

    fourier_coefficients: E, so that half the deviance changes by ``Re sum conj(E) d(coefficients)``; (o, f).
    modes, means: In the modes and in the mean on the nodes of each term; (q, r), (q,).
    noise: In the logarithm of each noise level, the constants included; (g,).
    """

    fourier_coefficients: NDArray[np.complex128]
    modes: list[Array]
    means: list[Array]
    noise: Array


class NormalEquations:
    """The regression by its normal equations.

    a, b: The coefficients of the observables on the whitened waves, ``a + i b``; (o, f).
    n_noise_groups: The number of learned noise levels.
    rounding: The relative error of sums over the data.
    """

    def __init__(
        self, a: Array, b: Array, terms: Sequence[RegressionTerm], n_noise_groups: int, rounding: float
    ) -> None:
        self.a, self.b, self.terms, self.n_noise_groups, self.rounding = a, b, terms, n_noise_groups, rounding
        cut = 2 * a.shape[1]
        self.n_fourier, self.size = cut, cut + (terms[0].modes.shape[1] if terms else 0)
        # One for each noise level; known noise comes last.
        self.grams = np.zeros((n_noise_groups + 1, self.size, self.size))
        self.right_sides = np.zeros((n_noise_groups + 1, self.size))
        self.residual_ss = [0.0] * (n_noise_groups + 1)
        self.half_products = [self._add_term(term) for term in terms]
        self.grams[:, cut:, :cut] = self.grams[:, :cut, cut:].transpose(0, 2, 1)
        self.gram = sum(self.grams[1:], self.grams[0])

    def _add_term(self, term: RegressionTerm) -> Array:
        """Add a term; return the waves times the weighted design, shape (2 f, d)."""
        cut, a, b, precision = self.n_fourier, self.a[term.observable], self.b[term.observable], term.precision
        weighted = term.weights[:, None] * term.modes
        half = np.concatenate([apply_operator(term.gram, a, b), term.basis.T @ weighted], axis=1)
        gram, sums = self.grams[term.noise_group], self.right_sides[term.noise_group]
        gram[cut:, cut:] += precision * (term.modes.T @ weighted)
        sums[cut:] += precision * (term.modes.T @ term.target)
        gram[:cut] += precision * apply_operator(half.T, a, b).T
        sums[:cut] += precision * apply_operator(term.basis_times_data[None], a, b)[0]
        self.residual_ss[term.noise_group] += precision * term.residual_ss
        return half

    def solve(self, *, dual: bool = False) -> RegressionSolution | None:
        """Return the solution; None if the matrix is not positive definite. There is no dual form of it.

        Entries of the Gram matrix have errors in proportion to the roots of its diagonal; the derivative of the
        deviance in the matrix is ``A^-1 + mu mu^T``.
        """
        h = sum(self.right_sides[1:], self.right_sides[0])
        mean, root, log_det = h, self.gram, 0.0
        if self.size:
            factor, info = lapack.dpotrf((self.gram + np.eye(self.size)).T, lower=1, clean=1)
            if info:
                return None
            root, _ = lapack.dtrtri(factor, lower=1)
            mean, _ = lapack.dpotrs(factor, h, lower=1)
            log_det = 2.0 * float(np.log(np.diag(factor)).sum())
        squares = sum(self.residual_ss)
        diagonal = np.maximum(np.einsum("ii->i", self.gram), 0.0)
        through_gram = float(np.sum(np.sum(root**2, axis=0) * diagonal))
        error = self.rounding * (through_gram + float(mean**2 @ diagonal) + squares + self.size)
        return RegressionSolution(squares - float(h @ mean) + log_det, mean, error, root)

    def gradient(self, solution: RegressionSolution) -> DevianceGradient:
        """Return all derivatives of half the deviance."""
        cut, count, mean = self.n_fourier, self.n_fourier // 2, solution.mean
        G = solution.covariance_root.T @ solution.covariance_root + np.outer(mean, mean)
        slope = np.zeros(self.a.shape, dtype=complex)
        modes, means = [], []
        dot = partial(np.einsum, "fd,fd->f")
        # Derivatives in the modes, and in the mean, whose amplitudes are the last column.
        columns = np.column_stack([G[:, cut:], mean])
        GC, GS, mC, mS = G[:count], G[count:cut], mean[:count], mean[count:cut]
        for term, half in zip(self.terms, self.half_products, strict=True):
            HC, HS, gC, gS = half[:count], half[count:], *np.split(term.basis_times_data, 2)
            in_a = dot(HC, GC) + dot(HS, GS) - gC * mC - gS * mS
            in_b = dot(HC, GS) - dot(HS, GC) - gC * mS + gS * mC
            slope[term.observable] += term.precision * (in_a + 1j * in_b)
            on_waves = to_fourier_amplitudes(columns[:cut], self.a[term.observable], self.b[term.observable])
            fitted = term.weights[:, None] * (term.basis @ on_waves + term.modes @ columns[cut:])
            fitted -= np.outer(term.target, np.append(mean[cut:], 1.0))
            modes.append(term.precision * fitted[:, :-1])
            means.append(term.precision * fitted[:, -1])
        noise = np.zeros(self.n_noise_groups)
        for group in range(self.n_noise_groups):
            number = sum(term.count for term in self.terms if term.noise_group == group)
            through_sums = 2.0 * float(mean @ self.right_sides[group])
            noise[group] = number - float(np.sum(G * self.grams[group])) + through_sums - self.residual_ss[group]
        return DevianceGradient(slope, modes, means, noise)


class QRLeastSquares:
    """The regression by a QR factorization of its design; arguments as in `NormalEquations`."""

    #: The relative error of an entry of the design and of its factorization, in practice.
    RELATIVE_ROUNDING_ERROR = 2e-15

    def __init__(self, a: Array, b: Array, terms: Sequence[RegressionTerm], n_noise_groups: int) -> None:
        self.a, self.b, self.terms, self.n_noise_groups = a, b, terms, n_noise_groups
        self.n_fourier = 2 * a.shape[1]
        self.size = self.n_fourier + (terms[0].modes.shape[1] if terms else 0)
        self.designs = []
        for term in terms:
            design = apply_operator(term.basis, a[term.observable], b[term.observable])
            self.designs.append(np.sqrt(term.precision) * np.concatenate([design, term.modes], axis=1))
        self.targets = [np.sqrt(term.precision) * term.target for term in terms]
        self.residual_ss = sum(term.precision * term.residual_ss for term in terms)

    def solve(self, *, dual: bool = False) -> RegressionSolution | None:
        """Return the solution, over the rows of the design if `dual`; None if it is not finite."""
        if dual:
            return self._solve_dual()
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
        deviance = float(rest @ rest) + self.residual_ss + 2.0 * float(np.log(diagonal).sum())
        rows = len(stacked) - self.size
        covered = Q[:rows] @ root
        error = self._rounding_error(sizes[:rows], covered, rest[:rows], mean, target[:rows])
        return RegressionSolution(deviance, mean, error, root, covered, rest[:rows])

    def _solve_dual(self) -> RegressionSolution | None:
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
        deviance = float(target @ alpha) + self.residual_ss + 2.0 * float(np.log(diagonal).sum())
        # Here columns stand for measurements: their errors reach the identity below the design, too.
        sizes = np.linalg.norm(design, axis=1)
        spread = np.sqrt(np.sum(root**2, axis=0) + alpha**2 * float(alpha @ alpha))
        error = self._rounding_error(sizes, covered, alpha, mean, target)
        error += 2.0 * self.RELATIVE_ROUNDING_ERROR * float(np.linalg.norm(sizes * spread))
        return RegressionSolution(deviance, mean, error, None, covered, alpha)

    def _rounding_error(self, sizes: Array, covered: Array, rest: Array, mean: Array, target: Array) -> float:
        """Return about how large an error rounding makes in the deviance: twice `U` times errors of the design."""
        through_design = sizes * np.linalg.norm(covered - np.outer(rest, mean), axis=1)
        through_data = rest * target
        total = float(np.linalg.norm(through_design)) + float(np.linalg.norm(through_data))
        return 2.0 * self.RELATIVE_ROUNDING_ERROR * (total + float(mean @ mean) + float(np.sqrt(len(mean))))

    def gradient(self, solution: RegressionSolution) -> DevianceGradient:
        """Return all derivatives of half the deviance; those in modes and means are in the root's images of these."""
        count, cut, mean = self.n_fourier // 2, self.n_fourier, solution.mean
        slope = np.zeros(self.a.shape, dtype=complex)
        modes, means, noise = [], [], np.zeros(self.n_noise_groups)
        edges = np.cumsum([0, *(len(design) for design in self.designs)])
        for number, (term, design) in enumerate(zip(self.terms, self.designs, strict=True)):
            rows = slice(edges[number], edges[number + 1])
            covered = solution.design_covariance[rows]
            rest = solution.residual[rows]
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
