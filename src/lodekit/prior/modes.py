"""Basis functions of the modes: solutions of d_i p = 0, seen through observables.

Where no parameter stands inside the roots: ``s^k e^(l s)``, real and imaginary parts, as in the paper's table of base
covariances, with s counted from the start of the data for decaying modes and from the end for growing ones. Where
parameters do: the fundamental system of the companion matrix at the start, analytic in the parameters also where roots
collide or turn from complex to real.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, factorial

import numpy as np
from numpy.typing import NDArray

from lodekit.prior.compile import CompiledObservables

__all__ = [
    "Companion",
    "ModeGroup",
    "companion",
    "companion_basis",
    "exponential_basis",
    "exponentials_of_matrix",
    "mode_groups",
]

Array = NDArray[np.float64]
_TAYLOR = 18


@dataclass(frozen=True)
class ModeGroup:
    """Basis functions that share a signal variance: a primary factor of the autonomous part.

    Parameters
    ----------
    factor : int
        Which compiled factor.
    root : complex or None
        In the user's time; None where parameters stand inside.
    size : int
        Number of basis functions.
    """

    factor: int
    root: complex | None
    size: int


def mode_groups(compiled: CompiledObservables) -> tuple[ModeGroup, ...]:
    """Return the groups in order."""
    groups = []
    for index, factor in enumerate(compiled.factors):
        if factor.roots is None:
            degree = factor.coefficients.stop - factor.coefficients.start - 1
            groups.append(ModeGroup(index, None, degree * factor.multiplicity))
        else:
            groups += [ModeGroup(index, root, factor.multiplicity * (2 if root.imag else 1)) for root in factor.roots]
    return tuple(groups)


def exponential_basis(times: Array, operator: Array, root: complex, multiplicity: int) -> Array:
    """Return ``W(d) s^k e^(l s)``, real and imaginary parts, shape (n, basis); linear in the operator W.

    ``W(d) s^k e^(l s) = sum_q binom(k, q) W^(q)(l) s^(k-q) e^(l s)``, W^(q) the q-th derivative of the polynomial W.
    """
    origin = 0.0 if root.real <= 0 else 1.0
    s = times - origin
    wave = np.exp(root * s)
    powers = root ** np.arange(len(operator))
    at_root = []
    for q in range(multiplicity):
        falling = np.array([factorial(k) / factorial(k - q) if k >= q else 0.0 for k in range(len(operator))])
        shifted = np.concatenate([np.zeros(q), powers[: len(operator) - q]])
        at_root.append(np.sum(operator * falling * shifted))
    columns = []
    for k in range(multiplicity):
        total = sum(comb(k, q) * at_root[q] * s ** (k - q) for q in range(k + 1)) * wave
        columns.append(total.real)
        if root.imag:
            columns.append(total.imag)
    return np.stack(columns, axis=1)


@dataclass(frozen=True)
class Companion:
    """The balanced companion matrix of a factor to its multiplicity, with derivatives; shapes (m, m), (p, m, m)."""

    matrix: Array
    d_matrix: Array


def companion(factor: Array, d_factor: Array, multiplicity: int) -> Companion:
    """Return the companion matrix of a monic factor to its multiplicity, in scaled time.

    It is balanced by ``omega = (1 + a_0^2)^(1/2e)``, smooth in the parameters, about the size of the roots where they
    are fast against the window: so p and p'/omega have the same prior variance.
    """
    degree = len(factor) - 1
    power = np.array([1.0])
    for _ in range(multiplicity - 1):
        power = np.convolve(power, factor)
    full = np.convolve(power, factor)
    d_full = np.stack([multiplicity * np.convolve(power, slope) for slope in d_factor]) if len(d_factor) else None
    size = degree * multiplicity
    omega = (1.0 + factor[0] ** 2) ** (0.5 / degree)
    d_omega = omega / degree * factor[0] / (1.0 + factor[0] ** 2) * d_factor[:, 0]
    matrix = np.diag(np.full(size - 1, omega), 1)
    scales = omega ** (np.arange(size) - (size - 1.0))
    matrix[-1] -= full[:size] * scales
    d_matrix = np.zeros((len(d_factor), size, size))
    for p in range(len(d_factor)):
        d_matrix[p] = np.diag(np.full(size - 1, d_omega[p]), 1)
        d_scales = (np.arange(size) - (size - 1.0)) * scales / omega * d_omega[p]
        if d_full is not None:
            d_matrix[p, -1] -= d_full[p, :size] * scales + full[:size] * d_scales
    return Companion(matrix, d_matrix)


def exponentials_of_matrix(matrix: Array, times: Array) -> Array:
    """Return ``exp(M s)`` for many s, shape (n, m, m): one Taylor sum, then repeated squaring for all at once."""
    size = float(np.max(np.abs(times), initial=0.0) * np.linalg.norm(matrix, 1))
    if not np.isfinite(size):
        return np.full((len(times), *matrix.shape), np.inf)
    squarings = max(0, int(np.ceil(np.log2(max(size, 1e-300)))))
    powers = [np.eye(len(matrix))]
    for _ in range(_TAYLOR):
        powers.append(powers[-1] @ matrix)
    scaled = times / 2.0**squarings
    weights = scaled[:, None] ** np.arange(_TAYLOR + 1) / np.array([float(factorial(k)) for k in range(_TAYLOR + 1)])
    total = np.tensordot(weights, np.stack(powers), axes=1)
    for _ in range(squarings):
        total = total @ total
    return np.asarray(total)


def companion_basis(
    times: Array, operators: Sequence[Array], d_operators: Sequence[Array], system: Companion
) -> tuple[list[Array], list[Array]]:
    """Return for each observable the basis functions, (n, m), and their derivatives in the parameters, (p, n, m).

    Parameters
    ----------
    times : array, shape (n,)
        Scaled times, shared by all observables.
    operators : sequence of arrays, shape (k,)
        Coefficients of W in scaled time, for each observable.
    d_operators : sequence of arrays, shape (p, k)
        Their derivatives in the parameters.
    system : Companion
    """
    size, count = len(system.matrix), len(system.d_matrix)
    flow = exponentials_of_matrix(system.matrix, times)
    d_flow = []
    for slope in system.d_matrix:
        if not slope.any():
            d_flow.append(np.zeros_like(flow))
            continue
        block = np.zeros((2 * size, 2 * size))
        block[:size, :size] = block[size:, size:] = system.matrix
        block[:size, size:] = slope
        d_flow.append(exponentials_of_matrix(block, times)[:, :size, size:])
    longest = max((len(operator) for operator in operators), default=1)
    rows = [np.eye(size)[0]]
    d_rows = [np.zeros((count, size))]
    for _ in range(longest - 1):
        d_rows.append(d_rows[-1] @ system.matrix + np.einsum("i,pij->pj", rows[-1], system.d_matrix))
        rows.append(rows[-1] @ system.matrix)
    values, slopes = [], []
    for operator, d_operator in zip(operators, d_operators, strict=True):
        weight = sum(c * row for c, row in zip(operator, rows, strict=False))
        d_weight = (
            np.stack(
                [
                    sum(
                        (d_operator[p, k] * rows[k] + operator[k] * d_rows[k][p] for k in range(len(operator))),
                        np.zeros(size),
                    )
                    for p in range(count)
                ]
            )
            if count
            else np.zeros((0, size))
        )
        values.append(np.einsum("i,nij->nj", weight, flow))
        slopes.append(
            np.stack(
                [
                    np.einsum("i,nij->nj", d_weight[p], flow) + np.einsum("i,nij->nj", weight, d_flow[p])
                    for p in range(count)
                ]
            )
            if count
            else np.zeros((0, len(times), size))
        )
    return values, slopes
