"""The regression on waves and modes by a QR factorization of its design: no digits are lost where noise is low.

With rows scaled by the noise, rows of the design can differ by many decades: a precise channel beside a poor one, or
one level of noise for volts and kilovolts. Householder's QR keeps a relative error in every row by itself when the
largest rows come first and columns are exchanged (Cox and Higham 1998), so that a large row does not wash out a small
one. What such relative errors do to the deviance is its derivative in the design, ``U = D A^-1 - r mu^T`` in units of
the noise, times their size: every solution says how large that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, qr

from lodekit.inference.spectral.regression import Slopes, Solved
from lodekit.inference.spectral.waves import turn_columns

__all__ = ["Dual", "RootEquations", "RootTerm"]

Array = NDArray[np.float64]
#: The relative error of an entry of the design and of its factorization, in practice.
_ROUNDING = 2e-15


@dataclass(frozen=True)
class RootTerm:
    """What the measurements of one observable add to the design; m rows of it, f frequencies, r modes.

    Parameters
    ----------
    observable, group, count, precision
        As in `Term`.
    waves : array, shape (m, 2 f)
        The root's images of the waves.
    modes : array, shape (m, r)
        The root's images of the modes, scaled by their prior deviations.
    target : array, shape (m,)
        The root's image of the data without their mean.
    rest : float
        The weighted sum of squares that no function reaches.
    """

    observable: int
    group: int
    count: int
    precision: float
    waves: Array
    modes: Array
    target: Array
    rest: float


@dataclass(frozen=True)
class Dual:
    """A regression solved over the m rows of its design.

    Parameters
    ----------
    deviance : float
        -2 log evidence, without constants.
    mean : array, shape (d,)
        The posterior mean of the amplitudes.
    alpha : array, shape (m,)
        ``K^-1 r``, which is also what the mean leaves of the data.
    covered : array, shape (m, d)
        ``K^-1 D``, which is also the design times the covariance of the amplitudes.
    error : float
        About how large an error rounding makes in the deviance.
    """

    deviance: float
    mean: Array
    alpha: Array
    covered: Array
    error: float


class RootEquations:
    """The regression by a QR factorization of its design.

    Parameters
    ----------
    a, b : arrays, shape (o, f)
        The coefficients of the observables on the whitened waves, ``a + i b``.
    terms : sequence of RootTerm
        What the measurements of each observable add.
    noises : int
        How many levels are learned.
    """

    def __init__(self, a: Array, b: Array, terms: Sequence[RootTerm], noises: int) -> None:
        self.a, self.b, self.terms, self.noises = a, b, terms, noises
        self.cut = 2 * a.shape[1]
        self.size = self.cut + (terms[0].modes.shape[1] if terms else 0)
        self.designs = []
        for term in terms:
            design = turn_columns(np, term.waves, a[term.observable], b[term.observable])
            self.designs.append(np.sqrt(term.precision) * np.concatenate([design, term.modes], axis=1))
        self.targets = [np.sqrt(term.precision) * term.target for term in terms]

    @property
    def _beyond(self) -> float:
        """The weighted sum of squares that no function reaches."""
        return sum(term.precision * term.rest for term in self.terms)

    def solve(self) -> Solved | None:
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
        deviance = float(rest @ rest) + self._beyond + 2.0 * float(np.log(diagonal).sum())
        rows = len(stacked) - self.size
        covered = Q[:rows] @ root
        error = self._error(sizes[:rows], covered, rest[:rows], mean, target[:rows])
        return Solved(deviance, mean, root, covered, error)

    def solve_dual(self) -> Dual | None:
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
        deviance = float(target @ alpha) + self._beyond + 2.0 * float(np.log(diagonal).sum())
        # Here columns stand for measurements: their errors reach the identity below the design, too.
        sizes = np.linalg.norm(design, axis=1)
        spread = np.sqrt(np.sum(root**2, axis=0) + alpha**2 * float(alpha @ alpha))
        error = self._error(sizes, covered, alpha, mean, target) + 2.0 * _ROUNDING * float(
            np.linalg.norm(sizes * spread)
        )
        return Dual(deviance, mean, alpha, covered, error)

    @staticmethod
    def _error(sizes: Array, covered: Array, rest: Array, mean: Array, target: Array) -> float:
        """Return about how large an error rounding makes in the deviance: twice `U` times errors of the design."""
        through_design = sizes * np.linalg.norm(covered - np.outer(rest, mean), axis=1)
        through_data = rest * target
        total = float(np.linalg.norm(through_design)) + float(np.linalg.norm(through_data))
        return 2.0 * _ROUNDING * (total + float(mean @ mean) + float(np.sqrt(len(mean))))

    def slopes(self, solved: Solved | Dual) -> Slopes:
        """Return all derivatives of half the deviance; those in modes and means are in the root's images of these."""
        count, cut, mean = self.cut // 2, self.cut, solved.mean
        slope = np.zeros(self.a.shape, dtype=complex)
        modes, means, noise = [], [], np.zeros(self.noises)
        edges = np.cumsum([0, *(len(design) for design in self.designs)])
        for number, (term, design) in enumerate(zip(self.terms, self.designs, strict=True)):
            rows = slice(edges[number], edges[number + 1])
            covered = solved.covered[rows]
            rest = solved.alpha[rows] if isinstance(solved, Dual) else self.targets[number] - design @ mean
            U = np.sqrt(term.precision) * (covered - np.outer(rest, mean))
            KC, KS, UC, US = term.waves[:, :count], term.waves[:, count:], U[:, :count], U[:, count:cut]
            in_a = np.einsum("mf,mf->f", KC, UC) + np.einsum("mf,mf->f", KS, US)
            in_b = np.einsum("mf,mf->f", KC, US) - np.einsum("mf,mf->f", KS, UC)
            slope[term.observable] += in_a + 1j * in_b
            modes.append(U[:, cut:])
            means.append(-np.sqrt(term.precision) * rest)
            if term.group >= 0:
                fitted = float(np.sum(covered * design)) + float(rest @ rest)
                noise[term.group] += term.count - fitted - term.precision * term.rest
        return Slopes(slope, modes, means, noise)
