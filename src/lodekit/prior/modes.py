"""Basis functions of the modes (solutions of ``d_i p = 0``) in terms of observables, with derivatives.

If no parameter occurs in the roots: ``s^k e^(l s)``, real and imaginary parts, as in the paper's table of base
covariances, with s counted from the start of the data for decaying modes and from the end for growing ones. Otherwise:
the fundamental system of the companion matrix at the start, which is analytic in the parameters even if roots collide
or turn from complex to real. If a characteristic polynomial would be too large, that of a state matrix.

Values support any array library, with leading batch dimensions; derivatives in the parameters need NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, perm
from typing import Any

import numpy as np

from lodekit.prior.expm import expm_action, expm_action_vjp, expm_frechet, expm_mean, exponential_moments
from lodekit.prior.input_response.hold import UniqueSteps
from lodekit.prior.kernels import match_array
from lodekit.prior.linear_recurrence import solve_recurrences
from lodekit.support.arguments import Array

#: The state matrix of a group of modes, shape (m, m), and its derivatives in the parameters, (p, m, m).
ModeMatrix = tuple[Array, Array]


@dataclass(frozen=True)
class ModeGroup:
    """Basis functions that share an amplitude: a primary factor of the autonomous part.

    root: The root in the user's time, with an imaginary part >= 0; None if it depends on parameters.
    size: Number of basis functions.
    column: Index of the mode column that the factor belongs to.
    multiplicity: Multiplicity of the factor.
    coefficients: The slice of the table with the coefficients of the factor, lowest power first; monic.
    has_state_matrix: Whether the slice contains a state matrix instead, row by row, and mode columns act on its states.
    """

    factor: int
    root: complex | None
    size: int
    column: int
    multiplicity: int
    coefficients: slice
    has_state_matrix: bool = False


def mode_group_index(groups: Sequence[ModeGroup]) -> list[int]:
    """Return the index of the group of each basis function."""
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
    at_root = []
    for q in range(multiplicity):
        monomials = [perm(k, q) * root ** (k - q) if k >= q else 0.0 for k in range(operators.shape[-1])]
        derivative = xp.asarray(np.array(monomials), dtype=xp.complex128, device=times.device)
        at_root.append(xp.sum(operators * derivative, -1)[..., None])
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


def companion_terms(xp: Any, factor: Any, multiplicity: int) -> tuple[Any, Any, Any, Any]:
    """Return the companion matrix of a monic factor to its multiplicity, this power, omega, and scales of the last row.

    The matrix, shape (..., m, m), is balanced by ``omega = (1 + a_0^2)^(1/2e)``, smooth in the parameters and about the
    size of roots that are fast compared with the window, so p and p'/omega have the same prior variance.

    Shapes: factor (..., e + 1).
    """
    degree = factor.shape[-1] - 1
    size, full = degree * multiplicity, factor
    for _ in range(multiplicity - 1):
        full = _multiply_polynomials(xp, full, factor)
    omega = (1.0 + factor[..., 0] ** 2) ** (0.5 / degree)
    scales = omega[..., None] ** match_array(xp, np.arange(size) - (size - 1.0), factor)
    above = omega[..., None, None] * match_array(xp, np.eye(size - 1, size, 1), factor)
    return xp.concat([above, -(full[..., :size] * scales)[..., None, :]], -2), full, omega, scales


def mode_matrix(xp: Any, coefficients: Any, group: ModeGroup) -> Any:
    """Return the state matrix of a group, a balanced companion matrix unless it has its own; shape (..., m, m)."""
    if group.has_state_matrix:
        return coefficients.reshape((*coefficients.shape[:-1], group.size, group.size))
    return companion_terms(xp, coefficients, group.multiplicity)[0]


def mode_matrix_with_jacobian(factor: Array, factor_jacobian: Array, group: ModeGroup) -> ModeMatrix:
    """Return the state matrix of a group in scaled time, with derivatives in the parameters.

    Shapes: factor, factor_jacobian (e + 1,) and (p, e + 1).
    """
    if group.has_state_matrix:
        return mode_matrix(np, factor, group), mode_matrix(np, factor_jacobian, group)
    multiplicity = group.multiplicity
    matrix, full, omega, scales = companion_terms(np, factor, multiplicity)
    degree, size, d_full = len(factor) - 1, len(matrix), factor_jacobian
    if multiplicity > 1:
        power = factor
        for _ in range(multiplicity - 2):
            power = _multiply_polynomials(np, power, factor)
        d_full = multiplicity * _multiply_polynomials(np, power, factor_jacobian)
    d_omega = omega / degree * factor[0] / (1.0 + factor[0] ** 2) * factor_jacobian[:, 0]
    d_scales = (np.arange(size) - (size - 1.0)) * scales / omega * d_omega[:, None]
    d_matrix = np.zeros((len(factor_jacobian), size, size))
    d_matrix[:, :-1] = d_omega[:, None, None] * np.eye(size - 1, size, 1)
    d_matrix[:, -1] = -(d_full[:, :size] * scales + full[:size] * d_scales)
    return matrix, d_matrix


def _state_rows(xp: Any, matrix: Any, count: int, group: ModeGroup) -> list[Any]:
    """Return the rows that operators act on, of shape (..., m): derivatives ``e_1^T M^k`` of a state, or all states."""
    size = matrix.shape[-1]
    if group.has_state_matrix:
        return list(match_array(xp, np.eye(size), matrix))
    first = match_array(xp, np.eye(1, size), matrix)
    rows = [xp.broadcast_to(first, (*matrix.shape[:-2], 1, size))]
    for _ in range(count - 1):
        rows.append(rows[-1] @ matrix)
    return [row[..., 0, :] for row in rows]


def _output_rows(operators: Any, rows: Sequence[Any]) -> Any:
    """Return operators as rows on all states, shape (..., o, m)."""
    return sum(operators[..., k, None] * row[..., None, :] for k, row in enumerate(rows))


def fundamental_basis(xp: Any, times: Any, operators: Any, matrix: Any, group: ModeGroup, window: float = 0.0) -> Any:
    """Return the fundamental system of a state matrix in terms of observables, shape (..., o, n, m).

    Shapes: times (..., n), operators (..., o, k), matrix (..., m, m).
    """
    weights = _output_rows(operators, _state_rows(xp, matrix, operators.shape[-1], group))
    if window:
        weights = weights @ expm_mean(matrix, np.zeros((0, *matrix.shape)), window)[0]
    if xp is np and matrix.ndim == 2:
        return expm_action(weights, np.zeros((0, *weights.shape)), matrix, np.zeros((0, *matrix.shape)), times)[0]
    if xp is np:
        return _rows_at_times(weights, matrix, times)
    scaled = matrix[..., None, :, :] * times[..., :, None, None]
    is_finite = bool(xp.isfinite(scaled).all())
    flow = xp.linalg.matrix_exp(scaled) if is_finite else xp.full_like(scaled, np.inf)
    return xp.einsum("...or,...nrm->...onm", weights, flow)


def _rows_at_times(rows: Array, matrices: Array, times: Array) -> Array:
    """Return rows times the exponentials of k finite matrices times each of n ascending times, shape (k, o, n, m).

    Shapes: rows (k, o, m), matrices (k, m, m), times (n,).
    """
    steps = UniqueSteps.from_steps(np.diff(times, prepend=0.0), 1e-14 * float(np.abs(times).max(initial=0.0)))
    scaled = matrices.swapaxes(1, 2)[:, None] * steps.distinct[:, None, None]
    across = expm_frechet(scaled.reshape(-1, *matrices.shape[1:]))[0].reshape(scaled.shape)
    return solve_recurrences(across, steps.index, rows.swapaxes(1, 2))[:, 1:].transpose(0, 3, 1, 2)


def output_rows_with_jacobian(
    operators: Array, d_operators: Array, state_matrix: ModeMatrix, group: ModeGroup, window: float
) -> tuple[Array, Array]:
    """Return operators as rows on all states, (o, m), and their derivatives, (p, o, m)."""
    matrix, d_matrix = state_matrix
    rows = _state_rows(np, matrix, operators.shape[-1], group)
    d_rows = [np.zeros(d_matrix.shape[:2])]
    for row in () if group.has_state_matrix else rows[:-1]:
        d_rows.append(d_rows[-1] @ matrix + row @ d_matrix)
    weights = _output_rows(operators, rows)
    d_weights = _output_rows(d_operators, rows) + _output_rows(operators, d_rows)
    if not window:
        return weights, d_weights
    average, d_average = expm_mean(matrix, d_matrix, window)
    return weights @ average, d_weights @ average + weights @ d_average


def fundamental_basis_vjp(
    times: Array,
    operators: Array,
    operators_jacobian: Array,
    state_matrix: ModeMatrix,
    group: ModeGroup,
    cotangents: Array,
    window: float = 0.0,
) -> Array:
    """Return derivatives in the parameters of a weighted sum of the fundamental system, shape (p,).

    Shapes: cotangents (o, n, m).
    """
    matrix, d_matrix = state_matrix
    weights, d_weights = output_rows_with_jacobian(operators, operators_jacobian, state_matrix, group, window)
    in_weights, in_matrix = expm_action_vjp(weights, matrix, times, cotangents)
    pairs = (d_weights, in_weights), (d_matrix, in_matrix)
    return np.asarray(sum(jacobian.reshape(len(jacobian), part.size) @ part.ravel() for jacobian, part in pairs))
