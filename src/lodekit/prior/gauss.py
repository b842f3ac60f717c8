"""Gauss rules for a matrix of spectral densities: as few waves as a window can tell apart, whatever peaks there are.

Over a window of a length T, waves are smooth functions of their frequency: polynomials of a degree of about T times
half the band, and a few more. A rule of Gauss that has the density as its weight integrates these exactly, however
narrow the peaks of the density are, for they are in the weight. Lanczos' process finds it: with the fine rule of panels
as a sum over frequencies, the space of all polynomials times the root of the density is built step by step,
orthonormal, until the waves at the end of the window lie in it. What they still lack there bounds the error of the
covariance: the rule knows what it misses.

For several free functions the weight is a matrix, a step adds as many dimensions, and each frequency of the rule has a
vector in place of a weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.prior.conditioned import Conditioned

__all__ = ["GaussRule", "make_gauss_rule"]

Array = NDArray[np.float64]
ComplexArray = NDArray[np.complex128]
#: Numbers of all vectors at most, some 300 MB.
_NUMBERS = 20_000_000
#: What may be missed of waves of the whole window, which gradients ask for, and of channels over half the window:
#: relative to their size. Covariances ask for waves of half the window, and miss the square of what these lack.
_SLOPES, _UNSEEN = 1e-6, 1e-6
#: After so many steps what is left of the waves is looked at: so many at once cost little more than one.
_LOOK = 4
#: So many steps without gain are too many; gains count once less than the second share is left of all waves.
_PATIENCE, _TURNING = 12, 0.05
#: A direction of less than this is rounding.
_NOTHING = 1e-14


@dataclass(frozen=True)
class GaussRule:
    """Frequencies of a few waves that stand for many.

    Parameters
    ----------
    frequencies : array, shape (m,)
    rotation : array, shape (q, f, m)
        From the amplitudes at the frequencies of the fine rule to those of the few waves; columns are orthonormal.
    missed : array, shape (o,)
        For each observable the share of its variance that covariances over the window miss at most.
    """

    frequencies: Array
    rotation: Array | ComplexArray
    missed: Array

    def gather(self, fine: ComplexArray) -> ComplexArray:
        """Return what observables see of the few waves, shape (o, m), from what they see of the many, (o, q, f)."""
        return np.asarray(np.tensordot(fine, self.rotation, axes=2))

    def scatter(self, slope: ComplexArray) -> ComplexArray:
        """Return derivatives in what observables see of the many, shape (o, q, f), from those of the few, (o, m)."""
        return np.asarray(np.tensordot(slope, np.conj(self.rotation), axes=(1, 2)))


def make_gauss_rule(own: Conditioned, weights: Array, length: float, shares: Array, most: int) -> GaussRule | None:
    """Return a rule for all lags up to a length; None where it would take too many waves.

    Parameters
    ----------
    own : Conditioned
        The density at the frequencies of a fine rule.
    weights : array, shape (f,)
        Of the fine rule.
    length : float
        In scaled time.
    shares : array, shape (o,)
        Of the variances of the observables: what covariances may miss.
    most : int
        How many waves there may be.
    """
    count, roots = len(own.roots), np.sqrt(weights)
    # The density of one free function is a number, and the basis is real.
    start = np.abs(own.roots) if count == 1 else np.conj(own.roots)
    block = (start * roots).transpose(1, 2, 0).reshape(-1, count)
    w = np.tile(own.frequencies, count)[:, None]
    rest, allowed = _targets(own, roots, length, shares)
    if count == 1:
        rest = np.concatenate([rest.real, rest.imag], axis=1)
    # What does not fit into memory is refused, as what needs too many waves is.
    most = min(most, _NUMBERS // len(w))
    store = np.empty((len(w), most + count), dtype=block.dtype, order="F")
    total, taken, worst, steps, gained = 0, 0, np.inf, 0, 0
    # Where rounding keeps the basis from what it must hold, more steps do not help; what is missed tells.
    while (worst > 1.0 and steps - gained < _PATIENCE) or steps < own.point.channels.shape[-1]:
        found = _orthonormal(block, store[:, :total])
        if found is None:
            break
        if total + found.shape[1] > min(most, len(w)):
            return None
        store[:, total : total + found.shape[1]] = found
        total += found.shape[1]
        steps, block = steps + 1, w * found
        if steps % _LOOK:
            continue
        rest, taken = _without(rest, store[:, taken:total]), total
        left = _left(rest, len(allowed))
        ratio = float(np.max(left / allowed))
        # As long as waves turn more than polynomials of the degree can, nothing is gained yet.
        if not ratio > 0.5 * worst or ratio <= 1.0 or left.max() > _TURNING:
            worst, gained = ratio, steps
    basis = store[:, :total]
    left = _left(_without(rest, store[:, taken:total]), len(allowed))
    if not total or not np.isfinite(left).all():
        return None
    values, vectors = np.linalg.eigh(_adjoint(basis) @ (w * basis))
    return GaussRule(values, (basis @ vectors).reshape(count, -1, total), left[: len(shares)] ** 2)


def _targets(own: Conditioned, roots: Array, length: float, shares: Array) -> tuple[ComplexArray, Array]:
    """Return what the basis must hold, relative to its size, shape (q f, ...), and what may be missed of each."""
    seen, channels = (np.conj(part) * roots for part in (own.coefficients, own.channels))
    middle = 0.5 * (own.frequencies[0] + own.frequencies[-1])
    half = np.exp(1j * (own.frequencies - middle) * (0.5 * length))
    parts = [seen * half, seen * half**2, channels * half]
    found = np.concatenate(parts).reshape(sum(map(len, parts)), -1).T
    sizes = _norms(found)
    others = zip(parts[1:], (_SLOPES, _UNSEEN), strict=True)
    limits = [np.sqrt(shares), *(np.full(len(part), limit) for part, limit in others)]
    return np.asarray(found / np.where(sizes > 0, sizes, 1.0)), np.concatenate(limits)


def _without(columns: ComplexArray, basis: ComplexArray) -> ComplexArray:
    return np.asarray(columns - basis @ (_adjoint(basis) @ columns))


def _left(rest: ComplexArray, count: int) -> Array:
    """Return the sizes of targets, (count,), of which real and imaginary parts may be columns of their own."""
    return np.asarray(np.sqrt(np.sum(_norms(rest).reshape(-1, count) ** 2, axis=0)))


def _norms(columns: ComplexArray) -> Array:
    if np.isrealobj(columns):
        return np.asarray(np.sqrt(np.einsum("ij,ij->j", columns, columns)))
    return np.asarray(np.sqrt(np.sum(columns.real**2 + columns.imag**2, axis=0)))


def _adjoint(matrix: ComplexArray) -> ComplexArray:
    # The conjugate of real numbers would be a copy.
    return np.conj(matrix.T) if np.iscomplexobj(matrix) else matrix.T


def _orthonormal(block: ComplexArray, basis: ComplexArray) -> ComplexArray | None:
    """Return what a block adds to a basis, orthonormal; None where that is nothing but rounding."""
    sizes = _norms(block)
    block = block / np.where(sizes > 0, sizes, 1.0)
    for _ in range(2):
        block = _without(block, basis)
    if block.shape[1] == 1:
        norm = float(_norms(block)[0])
        return block / norm if norm > _NOTHING else None
    Q, R = np.linalg.qr(block)
    Q = Q[:, np.abs(np.diag(R)) > _NOTHING]
    if not Q.shape[1]:
        return None
    return np.asarray(np.linalg.qr(_without(Q, basis))[0])
