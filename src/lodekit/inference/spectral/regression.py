"""A Bayesian linear regression on turned waves and modes: by normal equations, or by QR where noise is low.

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
    "Dual",
    "NormalEquations",
    "RootEquations",
    "RootTerm",
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
        A triangular K with ``K^T K`` their posterior covariance.
    """

    deviance: Any
    mean: Any
    root: Any


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
    """

    deviance: float
    mean: Array
    alpha: Array
    covered: Array


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


class RootEquations:
    """The regression by a QR factorization of its design: no digits are lost where noise is low.

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

    def solve(self) -> Solved | None:
        """Return the solution; None where it does not exist."""
        stacked = np.concatenate([*self.designs, np.eye(self.size)])
        target = np.concatenate([*self.targets, np.zeros(self.size)])
        if not np.isfinite(stacked).all() or not np.isfinite(target).all():
            return None
        # Observables of very different size: largest first keeps the factorization accurate.
        order = np.argsort(-np.abs(stacked).max(axis=1, initial=0.0), kind="stable")
        Q, R = np.linalg.qr(stacked[order])
        diagonal = np.abs(np.diag(R))
        if not (diagonal > 0).all():
            return None
        inverse = lapack.dtrtri(R)[0] if self.size else R
        mean = inverse @ (Q.T @ target[order])
        for _ in range(2):
            # The gradient relies on D^T (r - D mu) = mu; rounding leaves a little, which the inverse takes away.
            left = sum((D.T @ rest for D, rest in zip(self.designs, self._rests(mean), strict=True)), -mean)
            mean = mean + inverse @ (inverse.T @ left)
        rests = self._rests(mean)
        square = sum(float(rest @ rest) for rest in rests) + float(mean @ mean)
        square += sum(term.precision * term.rest for term in self.terms)
        return Solved(square + 2.0 * float(np.log(diagonal).sum()), mean, np.ascontiguousarray(inverse.T))

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
        square = float(target @ alpha) + sum(term.precision * term.rest for term in self.terms)
        return Dual(square + 2.0 * float(np.log(diagonal).sum()), design.T @ alpha, alpha, root.T @ (root @ design))

    def _rests(self, mean: Array) -> list[Array]:
        """Return what the mean of the amplitudes leaves of the data, for each term."""
        return [target - design @ mean for design, target in zip(self.designs, self.targets, strict=True)]

    def slopes(self, solved: Solved | Dual) -> Slopes:
        """Return all derivatives of half the deviance; those in modes and means are in the root's images of these."""
        count, cut, mean = self.cut // 2, self.cut, solved.mean
        slope = np.zeros(self.a.shape, dtype=complex)
        modes, means, noise = [], [], np.zeros(self.noises)
        edges = np.cumsum([0, *(len(design) for design in self.designs)])
        rests = self._rests(mean) if isinstance(solved, Solved) else np.split(solved.alpha, edges[1:-1])
        for number, (term, design, rest) in enumerate(zip(self.terms, self.designs, rests, strict=True)):
            if isinstance(solved, Dual):
                covered = solved.covered[edges[number] : edges[number + 1]]
            else:
                covered = (design @ solved.root.T) @ solved.root
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
