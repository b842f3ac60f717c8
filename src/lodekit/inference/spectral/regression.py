"""A Bayesian linear regression on turned waves and modes, by normal equations; `roots.py` does it where noise is low.

Amplitudes are standard normal. With D the design, W the weights and r the data without their mean,

    A = I + D^T W D,   mu = A^-1 D^T W r,   -2 log evidence = r^T W r - mu^T D^T W r + log|A| + constants,

and with ``G = A^-1 + mu mu^T`` every derivative is a contraction ``tr(dD^T (W D G - W r mu^T))``. Arrays may have
leading dimensions: many regressions at once, on NumPy or on PyTorch and its devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from lodekit.inference.spectral.waves import turn_back, turn_columns, turn_from_left

__all__ = [
    "NormalEquations",
    "Slopes",
    "Solved",
    "Term",
]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Term:
    """What the measurements of one observable add to the normal equations; q nodes, f frequencies, r modes.

    Parameters
    ----------
    observable, group, count : int
        The number of the observable, that of its level (-1 where noise is known), the number of measurements.
    precision : number, or array (...)
        What the weights are multiplied by: one over the learned noise variance, scaled; one where noise is known.
    waves : array, shape (q, 2 f)
        On the nodes: all cosines, then all sines.
    gram : array, shape (2 f, 2 f)
        Waves times weights times waves.
    on_waves : array, shape (2 f,)
        Waves times weights times the data without their mean.
    weights, rest : arrays, shape (q,)
        On the nodes; `rest` stands for weights times data without their mean.
    modes : array, shape (q, r)
        Scaled by their prior deviations.
    square : number, or array (...)
        The weighted sum of squares of the data without their mean.
    """

    observable: int
    group: int
    count: int
    precision: Any
    waves: Any
    gram: Any
    on_waves: Any
    weights: Any
    rest: Any
    modes: Any
    square: Any


@dataclass(frozen=True)
class Solved:
    """A regression solved over its d amplitudes: cosines, sines, modes.

    Parameters
    ----------
    deviance : number, or array (...)
        -2 log evidence, without constants.
    mean : array, shape (..., d)
        The posterior mean of the amplitudes.
    root : array, shape (..., d, d)
        A square K with ``K^T K`` their posterior covariance.
    covered : array, shape (m, d), optional
        The design times their posterior covariance, where it is known from a QR factorization.
    error : float
        About how large an error rounding makes in the deviance; infinite where nobody has asked.
    """

    deviance: Any
    mean: Any
    root: Any
    covered: Any = None
    error: float = np.inf


@dataclass(frozen=True)
class Slopes:
    """Derivatives of half the deviance.

    Parameters
    ----------
    waves : array, shape (o, f), complex
        E, so that half the deviance changes by ``Re sum conj(E) d(coefficients)``.
    modes : list of arrays, shape (q, r)
        In the modes on the nodes of each term.
    means : list of arrays, shape (q,)
        In the mean on the nodes of each term.
    noise : array, shape (g,)
        In the logarithm of each level, the constants included.
    """

    waves: Any
    modes: list[Any]
    means: list[Any]
    noise: Any


def _invert(xp: Any, A: Any, h: Any) -> tuple[Any, Any, Any] | None:
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

    Parameters
    ----------
    xp : module
        NumPy or PyTorch.
    a, b : arrays, shape (o, f)
        The coefficients of the observables on the whitened waves, ``a + i b``.
    terms : sequence of Term
        What the measurements of each observable add.
    noises : int
        How many levels are learned.
    """

    def __init__(self, xp: Any, a: Any, b: Any, terms: Sequence[Term], noises: int) -> None:
        self.xp, self.a, self.b, self.terms, self.noises = xp, a, b, terms, noises
        cut = 2 * a.shape[-1]
        self.cut, self.size = cut, cut + (terms[0].modes.shape[-1] if terms else 0)
        shape, kind = a.shape[:-2], {"dtype": a.dtype, "device": a.device}
        # By level, what belongs to it; known noise comes last.
        self.grams = [xp.zeros((*shape, self.size, self.size), **kind) for _ in range(noises + 1)]
        self.sums = [xp.zeros((*shape, self.size), **kind) for _ in range(noises + 1)]
        self.squares: list[Any] = [0.0] * (noises + 1)
        self.halves = [self._add(term) for term in terms]
        for gram in self.grams:
            if self.size > cut:
                gram[..., cut:, :cut] = gram[..., :cut, cut:].mT
        self.gram = sum(self.grams[1:], self.grams[0])

    def error(self, solved: Solved, rounding: float) -> float:
        """Return about how large an error rounding makes in the deviance, one regression at a time.

        Entries of the Gram matrix have errors in proportion to the roots of their diagonal; the derivative of the
        deviance in it is ``A^-1 + mu mu^T``.

        Parameters
        ----------
        solved : Solved
            What `solve` has returned.
        rounding : float
            The relative error of sums over the data.
        """
        diagonal = np.maximum(np.einsum("ii->i", self.gram), 0.0)
        through_gram = float(np.sum(np.sum(solved.root**2, axis=0) * diagonal))
        through_mean = float(solved.mean**2 @ diagonal) + float(sum(self.squares))
        return float(rounding * (through_gram + through_mean + self.size))

    @property
    def largest(self) -> Any:
        """The largest element of the Gram matrix: how much the data say about the best known direction."""
        diagonal = self.xp.einsum("...ii->...i", self.gram)
        return self.xp.amax(diagonal, -1) if self.size else 0.0

    def _add(self, term: Term) -> Any:
        """Add a term; return the waves times the weighted design, shape (2 f, d)."""
        xp, cut, a, b = self.xp, self.cut, self.a[..., term.observable, :], self.b[..., term.observable, :]
        precision = _aligned(term.precision, 2)
        half = turn_columns(xp, term.gram, a, b)
        weighted = term.weights[..., None] * term.modes
        gram, sums = self.grams[term.group], self.sums[term.group]
        if self.size > cut:
            mixed = term.waves.mT @ weighted
            half = xp.concat([half, xp.broadcast_to(mixed, (*half.shape[:-1], mixed.shape[-1]))], axis=-1)
            gram[..., cut:, cut:] += precision * (term.modes.mT @ weighted)
            sums[..., cut:] += _aligned(term.precision, 1) * (term.modes.mT @ term.rest[..., None])[..., 0]
        gram[..., :cut, :] += precision * turn_from_left(xp, half, a, b)
        sums[..., :cut] += (precision * turn_from_left(xp, term.on_waves[..., None], a, b))[..., 0]
        self.squares[term.group] = self.squares[term.group] + term.precision * term.square
        return half

    def solve(self) -> Solved | None:
        """Return the solution; None where it does not exist."""
        h = sum(self.sums[1:], self.sums[0])
        A = self.gram + self.xp.eye(self.size, dtype=self.gram.dtype, device=self.gram.device)
        found = _invert(self.xp, A, h)
        if found is None:
            return None
        mean, log_determinant, root = found
        return Solved(sum(self.squares) - (h * mean).sum(-1) + log_determinant, mean, root)

    def slopes(self, solved: Solved) -> Slopes:
        """Return all derivatives of half the deviance, from what `solve` has returned."""
        xp, cut, count, mean = self.xp, self.cut, self.cut // 2, solved.mean
        G = solved.root.mT @ solved.root + mean[..., :, None] * mean[..., None, :]
        on_a, on_b = xp.zeros_like(self.a), xp.zeros_like(self.b)
        modes, means = [], []
        GC, GS, mC, mS = G[..., :count, :], G[..., count:cut, :], mean[..., :count], mean[..., count:cut]
        for term, half in zip(self.terms, self.halves, strict=True):
            HC, HS = half[..., :count, :], half[..., count:, :]
            gC, gS = term.on_waves[..., :count], term.on_waves[..., count:]
            in_a = _dot(xp, HC, GC) + _dot(xp, HS, GS) - gC * mC - gS * mS
            in_b = _dot(xp, HC, GS) - _dot(xp, HS, GC) - gC * mS + gS * mC
            on_a[..., term.observable, :] += _aligned(term.precision, 1) * in_a
            on_b[..., term.observable, :] += _aligned(term.precision, 1) * in_b
            a, b = self.a[..., term.observable, :], self.b[..., term.observable, :]
            seen = term.waves @ turn_back(xp, G[..., :cut, cut:], a, b) + term.modes @ G[..., cut:, cut:]
            in_modes = term.weights[..., None] * seen - term.rest[..., :, None] * mean[..., None, cut:]
            modes.append(_aligned(term.precision, 2) * in_modes)
            fitted = term.waves @ turn_back(xp, mean[..., :cut, None], a, b) + term.modes @ mean[..., cut:, None]
            means.append(_aligned(term.precision, 1) * (term.weights * fitted[..., 0] - term.rest))
        noise = []
        for group in range(self.noises):
            number = sum(term.count for term in self.terms if term.group == group)
            through_gram = xp.einsum("...ij,...ij->...", G, self.grams[group])
            through_sums = (mean * self.sums[group]).sum(-1)
            noise.append(number - through_gram + 2.0 * through_sums - self.squares[group])
        return Slopes(on_a + 1j * on_b, modes, means, noise)


def _dot(xp: Any, first: Any, second: Any) -> Any:
    """Return the scalar products of each row of one matrix with the same row of another."""
    return xp.einsum("...fd,...fd->...f", first, second)


def _aligned(number: Any, dimensions: int) -> Any:
    """Return a number, or an array of numbers, ready to multiply arrays with so many dimensions more."""
    return number.reshape(*number.shape, *[1] * dimensions) if getattr(number, "ndim", 0) else number
