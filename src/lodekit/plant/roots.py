"""Poles and zeros as roots of matrix pencils, with derivatives in the parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eig

from lodekit.plant.uncertain import Uncertain, spreads

__all__ = ["cancel", "find_roots", "find_zeros", "order_roots", "time_constants"]

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
#: A pole and a zero this close to each other, relative to the poles, cancel.
_SAME = 1e-7
#: Below this, left and right eigenvectors are orthogonal: a repeated root, which has no derivative.
_REPEATED = 1e-7
#: Roots this many times as large as the entries of the matrix are infinite, but for rounding.
_INFINITE = 1e10
#: An imaginary part below this, relative to the root, is rounding.
_REAL = 1e-12


def find_roots(M: Array, E: Array, dM: Array, dE: Array) -> tuple[Complex, Complex]:
    """Return finite roots of ``det(M - z E)``, shape (k,), and derivatives (p, k); NaN where roots are repeated.

    Parameters
    ----------
    M, E : arrays, shape (n, n)
    dM, dE : arrays, shape (p, n, n)
        Their derivatives in the parameters.
    """
    if not len(M):
        return np.zeros(0, dtype=complex), np.zeros((len(dM), 0), dtype=complex)
    values, left, right = eig(M, E, left=True, right=True)
    size = max(float(np.abs(M).max()), 1.0)
    finite = np.isfinite(values) & (np.abs(values) < _INFINITE * size)
    roots, slopes = [], []
    for k in np.flatnonzero(finite):
        y, x = left[:, k].conj(), right[:, k]
        below = complex(y @ E @ x)
        above = np.einsum("i,pij,j->p", y, dM - values[k] * dE, x)
        sound = abs(below) > _REPEATED * float(np.linalg.norm(y) * np.linalg.norm(E @ x))
        roots.append(values[k])
        slopes.append(above / below if sound else np.full(len(dM), np.nan + 0j))
    if not roots:
        return np.zeros(0, dtype=complex), np.zeros((len(dM), 0), dtype=complex)
    return np.array(roots), np.stack(slopes, axis=1)


def find_zeros(parts: tuple[Any, ...], slopes: tuple[Any, ...]) -> tuple[Complex, Complex]:
    """Return the zeros of one output and one input, with derivatives: where the matrix of Rosenbrock is singular.

    Parameters
    ----------
    parts : (F, G, H, D, D1)
        A column of G, a row of H, and numbers D and D1.
    slopes : tuple of arrays
        Their derivatives, parameters first.
    """

    def pencil(F: Array, G: Array, H: Array, D: Any, D1: Any) -> tuple[Array, Array]:
        leading, s = F.shape[:-2], F.shape[-1]
        M, E = np.zeros((*leading, s + 1, s + 1)), np.zeros((*leading, s + 1, s + 1))
        M[..., :s, :s], M[..., :s, s], M[..., s, :s], M[..., s, s] = F, G, H, D
        E[..., s, s] = -np.asarray(D1)
        return M, E

    (M, E), (dM, dE) = pencil(*parts), pencil(*slopes)
    E[: len(M) - 1, : len(M) - 1] = np.eye(len(M) - 1)
    return find_roots(M, E, dM, dE)


def cancel(zeros: Complex, poles: Complex) -> tuple[list[int], list[int]]:
    """Return which zeros and which poles are left when equal ones cancel.

    Parameters
    ----------
    zeros, poles : arrays of complex
    """
    left = list(range(len(poles)))
    kept = []
    size = float(np.abs(poles).max(initial=0.0))
    for k, zero in enumerate(zeros):
        near = min(left, key=lambda j: abs(poles[j] - zero), default=-1)
        if near >= 0 and abs(poles[near] - zero) <= _SAME * max(size, abs(zero)):
            left.remove(near)
        else:
            kept.append(k)
    return kept, left


def time_constants(poles: Complex, slopes: Complex, covariance: Array) -> tuple[Uncertain, ...]:
    """Return ``-1/p`` of real poles and ``1/|p|`` of pairs, slowest first.

    Parameters
    ----------
    poles, slopes : arrays of complex, shapes (k,) and (p, k)
        With derivatives in the parameters.
    covariance : array, shape (p, p)
    """
    found = []
    for k, pole in enumerate(poles):
        size, is_real = abs(pole), abs(pole.imag) <= _REAL * abs(pole)
        if not is_real and pole.imag < 0:
            continue
        if not size:
            found.append(Uncertain(np.inf, np.nan))
            continue
        change = -np.real(pole.conjugate() * slopes[:, k]) / size**3
        value = 1.0 / size if not is_real or pole.real < 0 else -1.0 / size
        found.append(Uncertain(value, float(spreads(change, covariance)[0])))
    return tuple(sorted(found, key=lambda each: -abs(each.value)))


def order_roots(roots: Complex, slopes: Complex, covariance: Array) -> tuple[Uncertain, ...]:
    """Return roots with standard errors, in the order of their distance from zero.

    Parameters
    ----------
    roots, slopes : arrays of complex, shapes (k,) and (p, k)
        With derivatives in the parameters.
    covariance : array, shape (p, p)
    """
    # Both of a pair are as far from zero, but for rounding, whatever the unit of time.
    order = sorted(range(len(roots)), key=lambda k: (float(f"{abs(roots[k]):.11e}"), -roots[k].imag))
    errors = spreads(slopes, covariance)
    found = []
    for k in order:
        is_real = abs(roots[k].imag) <= _REAL * abs(roots[k])
        value = complex(roots[k].real, 0.0) if is_real else complex(roots[k])
        found.append(Uncertain(value, float(errors[0][k]), 0.0 if is_real else float(errors[1][k])))
    return tuple(found)
