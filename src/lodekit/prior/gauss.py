"""Gauss rules for a matrix of spectral densities: as few waves as a window can tell apart, whatever peaks there are.

Over a window of a length T, waves are smooth functions of their frequency: polynomials of a degree of about T times
half the band, and a few more. A rule of Gauss that has the density as its weight integrates these exactly, however
narrow the peaks of the density are, for they are in the weight. Lanczos' process finds it: with the fine rule of panels
as a sum over frequencies, the space of all polynomials times the root of the density is built step by step, orthonormal,
until the waves at the end of the window lie in it. What they still lack there bounds the error of the covariance: the
rule knows what it misses.

For several free functions the weight is a matrix, a step adds as many dimensions, and each frequency of the rule has a
vector in place of a weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["GaussRule", "make_gauss_rule"]

Array = NDArray[np.float64]
ComplexArray = NDArray[np.complex128]
#: Gradients ask for waves of the whole window, relative to their size; values for those of half of it, squared.
_SLOPES = 1e-6
#: A direction of less than this is rounding.
_NOTHING = 1e-13


@dataclass(frozen=True)
class GaussRule:
    """Frequencies of a few waves that stand for many.

    Parameters
    ----------
    frequencies : array, shape (m,)
    rotation : array, shape (q, f, m)
        From the amplitudes at the frequencies of the fine rule to those of the few waves; columns are orthonormal.
    missed : float
        A share of the variance: what the covariances over the window miss at most.
    """

    frequencies: Array
    rotation: ComplexArray
    missed: float

    def gather(self, fine: ComplexArray) -> ComplexArray:
        """Return what observables see of the few waves, shape (o, m), from what they see of the many, (o, q, f)."""
        return np.asarray(np.tensordot(fine, self.rotation, axes=2))

    def scatter(self, slope: ComplexArray) -> ComplexArray:
        """Return derivatives in what observables see of the many, shape (o, q, f), from those of the few, (o, m)."""
        return np.asarray(np.tensordot(slope, np.conj(self.rotation), axes=(1, 2)))


def make_gauss_rule(
    frequencies: Array, roots: ComplexArray, fine: ComplexArray, length: float, eps: float, most: int
) -> GaussRule | None:
    """Return a rule for all lags up to a length; None where it takes more waves than there should be.

    Parameters
    ----------
    frequencies : array, shape (f,)
        Of the fine rule.
    roots : array, shape (q, q, f)
        Of the density of the free functions, ``R R*``, times the roots of the weights.
    fine : array, shape (o, q, f)
        What the observables see of the whitened waves of the fine rule.
    length : float
        In scaled time.
    eps : float
        The share of a variance that covariances may miss.
    most : int
        How many waves there may be.
    """
    count = len(roots)
    # One free function has a real density; and lags count from the middle of the band, where they turn waves least.
    is_real = count == 1
    kind = float if is_real else complex
    start = np.conj(roots if not is_real else np.abs(roots)).transpose(1, 2, 0).reshape(-1, count).astype(kind)
    w = np.tile(frequencies, count)[:, None]
    targets = _targets(frequencies, fine, is_real, length)
    sizes = np.sqrt(np.sum(np.abs(targets) ** 2, axis=0))
    targets = targets[:, sizes > 0] / sizes[sizes > 0]
    halves = targets.shape[1] // 2
    basis = np.empty((len(w), 0), dtype=kind)
    block = start
    columns: list[Array] = []
    total = 0
    store = np.empty((len(w), min(most + count, len(w))), dtype=kind, order="F")
    rest = targets
    left = np.full(targets.shape[1], np.inf)
    while True:
        block = _orthonormal(block, store[:, :total])
        if block is None or total + block.shape[1] > store.shape[1]:
            break
        store[:, total : total + block.shape[1]] = block
        total += block.shape[1]
        rest = rest - block @ (np.conj(block.T) @ rest)
        left = np.sqrt(np.sum(np.abs(rest) ** 2, axis=0))
        if (left[:halves] ** 2 <= eps).all() and (left[halves:] <= _SLOPES).all():
            break
        block = w * block
    basis = store[:, :total]
    missed = float(np.max(left[:halves], initial=0.0)) ** 2
    if total > most or not missed <= 1.0:
        return None
    values, vectors = np.linalg.eigh(np.conj(basis.T) @ (w * basis))
    rotation = (basis @ vectors).reshape(count, -1, total).astype(complex)
    if is_real:
        rotation *= 1.0
    return GaussRule(values, rotation, missed)


def _targets(frequencies: Array, fine: ComplexArray, is_real: bool, length: float) -> ComplexArray:
    """Return waves of half the window and of all of it through each observable, shape (q f, 2 o)."""
    middle = 0.5 * (frequencies[0] + frequencies[-1])
    found = []
    for share in (0.5, 1.0):
        turned = np.exp(1j * (frequencies - middle) * (share * length))
        found.append(np.conj(fine) * turned)
    return np.asarray(np.concatenate(found).reshape(2 * len(fine), -1).T)


def _orthonormal(block: Array, basis: Array) -> Array | None:
    """Return what a block adds to a basis, orthonormal; None where that is nothing."""
    before = np.sqrt(np.sum(np.abs(block) ** 2, axis=0))
    block = block / np.where(before > 0, before, 1.0)
    for _ in range(2):
        block = block - basis @ (np.conj(basis.T) @ block)
    if block.shape[1] == 1:
        norm = float(np.sqrt(np.sum(np.abs(block) ** 2)))
        return block / norm if norm > _NOTHING else None
    Q, R = np.linalg.qr(block)
    kept = np.abs(np.diag(R)) > _NOTHING
    if not kept.any():
        return None
    Q = Q[:, kept]
    Q = Q - basis @ (np.conj(basis.T) @ Q)
    return np.asarray(np.linalg.qr(Q)[0])
