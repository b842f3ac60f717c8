"""Basis functions of the modes: solutions of d_i p = 0, seen through observables.

Where no parameter stands inside the roots: ``s^k e^(l s)``, real and imaginary parts, as in the paper's table of base
covariances, with s counted from the start of the data for decaying modes and from the end for growing ones. Where
parameters do: the fundamental system of the companion matrix at the start, analytic in the parameters also where roots
collide or turn from complex to real.

Values are for any array library, with leading dimensions for batches; derivatives in the parameters are NumPy's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, factorial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.prior.compile import CompiledObservables, match_array
from lodekit.prior.expm import expm_action, expm_action_vjp, expm_frechet, expm_mean, exponential_moments

Array = NDArray[np.float64]
#: The order of Taylor sums for matrices of norm one at most: they leave out less than 1e-17.
TAYLOR_ORDER = 18
TAYLOR_EXPONENTS: Array = np.arange(TAYLOR_ORDER + 1, dtype=float)
TAYLOR_FACTORIALS: Array = np.array([float(factorial(k)) for k in range(TAYLOR_ORDER + 1)])


@dataclass(frozen=True)
class ModeGroup:
    """Basis functions that share a signal variance: a primary factor of the autonomous part.

    factor: Which compiled factor.
    root: In the user's time; None where parameters stand inside.
    size: Number of basis functions.
    """

    factor: int
    root: complex | None
    size: int


def list_mode_groups(compiled: CompiledObservables) -> tuple[ModeGroup, ...]:
    """Return the groups in order."""
    groups = []
    for index, factor in enumerate(compiled.factors):
        if factor.roots is None:
            degree = factor.coefficients.stop - factor.coefficients.start - 1
            groups.append(ModeGroup(index, None, degree * factor.multiplicity))
        else:
            groups += [ModeGroup(index, root, factor.multiplicity * (2 if root.imag else 1)) for root in factor.roots]
    return tuple(groups)


def mode_group_index(groups: Sequence[ModeGroup]) -> list[int]:
    """Return for each basis function the number of its group."""
    return [number for number, group in enumerate(groups) for _ in range(group.size)]


def exponential_basis(
    xp: Any, times: Any, operators: Any, root: complex, multiplicity: int, window: float = 0.0
) -> Any:
    """Return ``W(d) s^k e^(l s)``, real and imaginary parts, shape (..., o, n, basis); linear in the operators W.

    ``W(d) s^k e^(l s) = sum_q binom(k, q) W^(q)(l) s^(k-q) e^(l s)``, W^(q) the q-th derivative of the polynomial W.
    An average multiplies W by the mean of ``e^(l v)`` over an interval, whose derivatives in l are the means of
    ``v^j e^(l v)``.

    Shapes: times (..., n), operators (..., o, k).
    """
    s = times - (0.0 if root.real <= 0 else 1.0)
    wave = xp.exp(xp.asarray(root, dtype=xp.complex128, device=times.device) * s)[..., None, :]
    length = operators.shape[-1]
    powers = root ** np.arange(length)
    at_root = []
    for q in range(multiplicity):
        falling = np.array([factorial(k) / factorial(k - q) if k >= q else 0.0 for k in range(length)])
        shifted = np.concatenate([np.zeros(min(q, length)), powers[: max(length - q, 0)]])
        of_root = xp.asarray(shifted, dtype=xp.complex128, device=times.device)
        terms = operators * match_array(xp, falling, operators) * of_root
        at_root.append(xp.sum(terms, -1)[..., None])
    if window:
        means = exponential_moments(root, window, multiplicity - 1)
        at_root = [sum(comb(q, j) * means[j] * at_root[q - j] for j in range(q + 1)) for q in range(multiplicity)]
    columns = []
    for k in range(multiplicity):
        total = sum(comb(k, q) * at_root[q] * (s ** (k - q))[..., None, :] for q in range(k + 1)) * wave
        columns += [xp.real(total), xp.imag(total)] if root.imag else [xp.real(total)]
    return xp.stack(columns, -1)


def _multiply_polynomials(xp: Any, first: Any, second: Any) -> Any:
    """Return the product of polynomials, lowest power first, shape (..., k)."""
    rows, columns = first.shape[-1], second.shape[-1]
    parts = []
    for k in range(rows + columns - 1):
        pairs = range(max(0, k - columns + 1), min(k, rows - 1) + 1)
        parts.append(sum(first[..., i] * second[..., k - i] for i in pairs))
    return xp.stack(parts, -1)


def companion_matrix(xp: Any, factor: Any, multiplicity: int) -> Any:
    """Return the companion matrix of a monic factor to its multiplicity, shape (..., m, m).

    It is balanced by ``omega = (1 + a_0^2)^(1/2e)``, smooth in the parameters, about the size of the roots where they
    are fast against the window: so p and p'/omega have the same prior variance.

    Shapes: factor (..., e + 1).
    """
    degree = factor.shape[-1] - 1
    size, full = degree * multiplicity, factor
    for _ in range(multiplicity - 1):
        full = _multiply_polynomials(xp, full, factor)
    omega = (1.0 + factor[..., 0] ** 2) ** (0.5 / degree)
    scales = omega[..., None] ** match_array(xp, np.arange(size) - (size - 1.0), factor)
    above = omega[..., None, None] * match_array(xp, np.eye(size - 1, size, 1), factor)
    return xp.concat([above, -(full[..., :size] * scales)[..., None, :]], -2)


@dataclass(frozen=True)
class CompanionMatrix:
    """The balanced companion matrix of a factor to its multiplicity, with derivatives.

    matrix: shape (m, m)
    jacobian: shape (p, m, m)
    """

    matrix: Array
    jacobian: Array


def balance_companion(factor: Array, factor_jacobian: Array, multiplicity: int) -> CompanionMatrix:
    """Return the companion matrix of a monic factor to its multiplicity, in scaled time, with derivatives.

    Shapes: factor, factor_jacobian (e + 1,) and (p, e + 1).
    """
    degree = len(factor) - 1
    size, full, d_full = degree * multiplicity, factor, factor_jacobian
    for count in range(1, multiplicity):
        d_full = (count + 1) * _multiply_polynomials(np, full, factor_jacobian)
        full = _multiply_polynomials(np, full, factor)
    omega = (1.0 + factor[0] ** 2) ** (0.5 / degree)
    d_omega = omega / degree * factor[0] / (1.0 + factor[0] ** 2) * factor_jacobian[:, 0]
    exponents = np.arange(size) - (size - 1.0)
    scales = omega**exponents
    d_scales = exponents * scales / omega * d_omega[:, None]
    d_matrix = np.zeros((len(factor_jacobian), size, size))
    d_matrix[:, :-1] = d_omega[:, None, None] * np.eye(size - 1, size, 1)
    d_matrix[:, -1] = -(d_full[:, :size] * scales + full[:size] * d_scales)
    return CompanionMatrix(companion_matrix(np, factor, multiplicity), d_matrix)


def expm_at_times(xp: Any, matrix: Any, times: Any) -> Any:
    """Return ``exp(M s)`` for many s, shape (..., n, m, m): one Taylor sum, then repeated squaring for all at once.

    Shapes: matrix (..., m, m), times (..., n).
    """
    size, count = matrix.shape[-1], times.shape[-1]
    longest = xp.max(xp.abs(times)).item() if count else 0.0
    norm = longest * xp.max(xp.sum(xp.abs(matrix), -2)).item()
    if not np.isfinite(norm):
        shape = np.broadcast_shapes(tuple(matrix.shape[:-2]), tuple(times.shape[:-1]))
        return xp.full((*shape, count, size, size), np.inf, dtype=matrix.dtype, device=matrix.device)
    if size == 1:
        return xp.exp(matrix[..., None, :, :] * times[..., :, None, None])
    squarings = max(0, int(np.ceil(np.log2(max(norm, 1e-300)))))
    powers = [xp.broadcast_to(match_array(xp, np.eye(size), matrix), matrix.shape)]
    for _ in range(TAYLOR_ORDER):
        powers.append(powers[-1] @ matrix)
    scaled = times / 2.0**squarings
    weights = scaled[..., None] ** match_array(xp, TAYLOR_EXPONENTS, matrix) / match_array(
        xp, TAYLOR_FACTORIALS, matrix
    )
    flat = weights @ xp.reshape(xp.stack(powers, -3), (*matrix.shape[:-2], TAYLOR_ORDER + 1, size * size))
    total = xp.reshape(flat, (*flat.shape[:-1], size, size))
    for _ in range(squarings):
        total = total @ total
    return total


def _krylov_rows(xp: Any, matrix: Any, count: int) -> list[Any]:
    """Return ``e_1^T M^k`` for k below a count, each of shape (..., m): the derivatives of the first state."""
    size = matrix.shape[-1]
    first = match_array(xp, np.eye(1, size), matrix)
    rows = [xp.broadcast_to(first, (*matrix.shape[:-2], 1, size))]
    for _ in range(count - 1):
        rows.append(rows[-1] @ matrix)
    return [row[..., 0, :] for row in rows]


def _output_rows(operators: Any, rows: Sequence[Any]) -> Any:
    """Return operators of the first state as weights of all states, shape (..., o, m)."""
    return sum(operators[..., k, None] * row[..., None, :] for k, row in enumerate(rows))


def _apply_rows(xp: Any, weights: Any, flow: Any) -> Any:
    """Return ``weights exp(M s)``, shape (..., o, n, m)."""
    return xp.einsum("...or,...nrm->...onm", weights, flow)


def fundamental_basis(xp: Any, times: Any, operators: Any, matrix: Any, window: float = 0.0) -> Any:
    """Return the fundamental system of a companion matrix, seen through observables, shape (..., o, n, m).

    Shapes: times (..., n), operators (..., o, k), matrix (..., m, m).
    """
    weights = _output_rows(operators, _krylov_rows(xp, matrix, operators.shape[-1]))
    if window:
        weights = weights @ expm_mean(matrix, np.zeros((0, *matrix.shape)), window)[0]
    if xp is np and matrix.ndim == 2 and times.ndim == 1 and len(matrix) > 1:
        none = np.zeros((0, *weights.shape)), np.zeros((0, *matrix.shape))
        fast = expm_action(weights, none[0], matrix, none[1], times)
        if fast is not None:
            return fast[0]
    return _apply_rows(xp, weights, expm_at_times(xp, matrix, times))


def _output_rows_with_jacobian(
    operators: Array, d_operators: Array, system: CompanionMatrix, window: float
) -> tuple[Array, Array]:
    """Return operators of the first state as weights of all states, (o, m), and their derivatives, (p, o, m)."""
    size, count = len(system.matrix), len(system.jacobian)
    rows = _krylov_rows(np, system.matrix, operators.shape[-1])
    d_rows = [np.zeros((count, size))]
    for row in rows[:-1]:
        d_rows.append(d_rows[-1] @ system.matrix + np.einsum("i,pij->pj", row, system.jacobian))
    weights, d_weights = (
        _output_rows(operators, rows),
        _output_rows(d_operators, rows) + _output_rows(operators, d_rows),
    )
    if not window:
        return weights, d_weights
    average, d_average = expm_mean(system.matrix, system.jacobian, window)
    return weights @ average, d_weights @ average + weights @ d_average


def fundamental_basis_vjp(
    times: Array,
    operators: Array,
    operators_jacobian: Array,
    companion: CompanionMatrix,
    cotangents: Array,
    window: float = 0.0,
) -> Array:
    """Return derivatives in the parameters of a weighted sum of the fundamental system, shape (p,).

    One derivative of each exponential is enough for all parameters: that in the direction of its own weights.

    Shapes: cotangents (o, n, m).
    """
    weights, d_weights = _output_rows_with_jacobian(operators, operators_jacobian, companion, window)
    fast = expm_action_vjp(weights, companion.matrix, times, cotangents) if len(companion.matrix) > 1 else None
    if fast is not None:
        return np.asarray(np.tensordot(d_weights, fast[0], 2) + np.tensordot(companion.jacobian, fast[1], 2))
    scaled = companion.matrix.T * times[:, None, None]
    if not np.isfinite(scaled).all():
        return np.full(len(companion.jacobian), np.nan)
    in_flow = np.einsum("or,onm->nrm", weights, cotangents)
    # <W, L(X, dX)> = <L(X^T, W), dX> for the derivative L of the exponential.
    flow, changes = expm_frechet(scaled, in_flow[None])
    in_weights = np.einsum("nmr,onm->or", flow, cotangents)
    in_matrix = np.einsum("n,nij->ij", times, changes[0])
    return np.asarray(np.tensordot(d_weights, in_weights, 2) + np.tensordot(companion.jacobian, in_matrix, 2))


def fundamental_basis_with_jacobian(
    times: Array, operators: Array, operators_jacobian: Array, companion: CompanionMatrix, window: float = 0.0
) -> tuple[Array, Array]:
    """Return the fundamental system, (o, n, m), and its derivatives in the parameters, (p, o, n, m).

    Shapes: times (n,), operators, operators_jacobian (o, k) and (p, o, k).
    """
    size = len(companion.matrix)
    weights, d_weights = _output_rows_with_jacobian(operators, operators_jacobian, companion, window)
    fast = expm_action(weights, d_weights, companion.matrix, companion.jacobian, times) if size > 1 else None
    if fast is not None:
        return fast
    flow = expm_at_times(np, companion.matrix, times)
    found, slopes = _apply_rows(np, weights, flow), _apply_rows(np, d_weights, flow)
    if size == 1:
        slopes += (times[:, None] * found) * companion.jacobian[:, None]
        return found, slopes
    moving = np.flatnonzero(companion.jacobian.any(axis=(1, 2)))
    slopes[moving] += _apply_rows(
        np, weights, _expm_at_times_frechet(companion.matrix, companion.jacobian[moving], times)
    )
    return found, slopes


def _expm_at_times_frechet(matrix: Array, d_matrix: Array, times: Array) -> Array:
    """Return derivatives of ``exp(M s)`` along some directions of M, shape (p, n, m, m).

    Taylor sum and squarings are differentiated as they stand: ``d(E E) = dE E + E dE``.
    """
    count, size = d_matrix.shape[:2]
    norm = float(np.max(np.abs(times), initial=0.0)) * float(np.max(np.sum(np.abs(matrix), axis=0)))
    if not np.isfinite(norm):
        return np.full((count, len(times), size, size), np.inf)
    # Derivatives are linear in the directions, whose units are the user's: at the size of one they cost no digits.
    units = np.max(np.abs(d_matrix), axis=(1, 2))[:, None, None, None]
    directions = d_matrix / units[:, 0]
    squarings = max(0, int(np.ceil(np.log2(max(norm, 1e-300)))))
    powers, slopes = [np.eye(size)], [np.zeros_like(directions)]
    for _ in range(TAYLOR_ORDER):
        slopes.append(slopes[-1] @ matrix + powers[-1] @ directions)
        powers.append(powers[-1] @ matrix)
    weights = (times / 2.0**squarings)[:, None] ** TAYLOR_EXPONENTS / TAYLOR_FACTORIALS
    flow = (weights @ np.stack(powers).reshape(TAYLOR_ORDER + 1, -1)).reshape(-1, size, size)
    found = (weights @ np.stack(slopes, axis=1).reshape(count, TAYLOR_ORDER + 1, -1)).reshape(count, -1, size, size)
    for _ in range(squarings):
        found = found @ flow + flow @ found
        flow = flow @ flow
    return np.asarray(units * found)
