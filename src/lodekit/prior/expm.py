"""Matrix exponential with its Frechet derivative, and functions that use it.

`expm_frechet` evaluates many exponentials by scaling and squaring of a Taylor series (Higham 2008, ch. 10).
`HoldDiscretization` (input_response/hold.py) uses it to discretize ``x' = F x + G v`` under a hold by Van Loan's
augmented matrix (Van Loan 1978): with ``v + v' tau`` during a step h, ``x(h) = P x + P0 v + P1 v'`` where
``P = e^(F h)``, ``P0 = h phi_1(F h) G`` and ``P1 = h^2 phi_2(F h) G``.

`expm_action` evaluates rows ``w exp(M s)`` at many times from a table of rows at equal steps and Taylor sums between
them; all large products are of rows with one small matrix. This second implementation is faster than one exponential
for each time: with 3 states, 4 parameters and 2000 times, values with derivatives take 16 ms instead of 99 ms, and
gradients 4 ms instead of 46 ms; with 50 times, there is no difference. The errors of both, compared with mpmath, are
below 1e-15.

`expm_mean` and `exponential_moments` average exponentials over an interval ``[t - h, t]``. Time starts at the beginning
of the interval, so nothing overflows, however fast a mode decays within it.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from lodekit.prior.linear_recurrence import solve_constant_recurrence
from lodekit.support.arguments import Array, ComplexArray, IndexArray

#: Taylor coefficients 1/k!; the norm of a step of a table is one, so the truncation error is below 2e-16.
_TAYLOR: Array = np.array([1.0 / math.factorial(k) for k in range(18)])


def expm_frechet(matrices: Array, directions: Array | None = None) -> tuple[Array, Array]:
    """Return ``e^X`` of many matrices, shape (k, d, d), and derivatives in given directions, (p, k, d, d).

    The Taylor series gives ``E = e^(X / 2^j) - 1``, and doubling uses ``2 E + E^2``: adding the identity only at the
    end preserves the small entries of slow states beside fast ones.

    Shapes: matrices (k, d, d), directions (p, k, d, d).
    """
    if not len(matrices):
        return matrices.copy(), np.zeros((0 if directions is None else len(directions), *matrices.shape))
    if matrices.shape[-1] == 1:
        flow = np.exp(matrices)
        return flow, np.zeros((0, *flow.shape)) if directions is None else directions * flow
    count = 0 if directions is None else len(directions)
    if len(matrices) == 1 and count <= 1 and np.isfinite(matrices).all():
        return _single_expm_frechet(matrices[0], directions[0, 0] if directions is not None and count else None)
    norms = np.abs(matrices).sum(-1).max(-1, initial=0.0)
    halvings = np.maximum(0, np.ceil(np.log2(np.maximum(norms, 1e-300))) + 1).astype(int)
    shrink = np.ldexp(1.0, -halvings)[:, None, None]
    X = matrices * shrink
    dX = np.zeros((0, *X.shape)) if directions is None else directions * shrink
    unit = np.eye(matrices.shape[-1])
    tail, d_tail = np.broadcast_to(unit, X.shape), np.zeros(dX.shape)
    for order in range(14, 1, -1):  # the norm is at most 1/2, so the first omitted term is 2e-17
        if len(dX):
            d_tail = (dX @ tail + X @ d_tail) / order
        tail = unit + X @ tail / order
    E, dE = X @ tail, dX @ tail + X @ d_tail
    for step in range(halvings.max(initial=0)):
        active = halvings > step
        now = E[active]
        if len(dE):
            change = dE[:, active]
            dE[:, active] = 2.0 * change + change @ now + now @ change
        E[active] = 2.0 * now + now @ now
    return E + unit, dE


def _single_expm_frechet(matrix: Array, direction: Array | None) -> tuple[Array, Array]:
    """Return the same for one matrix, five times as fast: the derivative is a block of one exponential."""
    size = len(matrix)
    halvings = max(0, math.ceil(math.log2(max(float(np.abs(matrix).sum(-1).max()), 1e-300))) + 1)
    X = matrix
    if direction is not None:
        X = np.zeros((2 * size, 2 * size))
        X[:size, :size] = X[size:, size:] = matrix
        X[:size, size:] = direction
    powers = np.empty((14, *X.shape))
    np.multiply(X, math.ldexp(1.0, -halvings), out=powers[0])
    for before, now in pairwise(powers):
        np.dot(before, powers[0], out=now)
    E = _TAYLOR[1:15].dot(powers.reshape(14, -1)).reshape(X.shape)
    for _ in range(halvings):
        E = 2.0 * E + E.dot(E)
    flow = E[None, :size, :size] + np.eye(size)
    return flow, E[None, None, :size, size:] if direction is not None else np.zeros((0, *flow.shape))


#: Gauss-Legendre rule on [0, 1].
_MOMENT_NODES, _MOMENT_WEIGHTS = (
    0.5 * part + shift for part, shift in zip(np.polynomial.legendre.leggauss(40), (0.5, 0.0), strict=True)
)


def exponential_moments(exponent: complex, window: float, order: int) -> ComplexArray:
    """Return the means of ``v^j e^(l v)`` over ``0 <= v <= h`` for j up to an order, shape (order + 1,).

    Examples
    --------
    >>> exponential_moments(0.0, 2.0, 2).real.round(12).tolist()
    [1.0, 1.0, 1.333333333333]
    """
    z = complex(exponent) * window
    scales = float(window) ** np.arange(order + 1)
    if abs(z) <= 20.0:  # 40 nodes integrate to rounding; beyond, the recurrence is stable
        powers = _MOMENT_NODES[:, None] ** np.arange(order + 1)
        return np.asarray((_MOMENT_WEIGHTS * np.exp(z * _MOMENT_NODES)) @ powers * scales)
    end = np.exp(z)
    moments = [(end - 1.0) / z]
    for j in range(1, order + 1):
        moments.append((end - j * moments[-1]) / z)
    return np.asarray(np.array(moments) * scales)


def averaging_response(windows: Array, frequencies: Array) -> ComplexArray:
    """Return the frequency response of averages over windows h, ``e^(-i w h/2) sinc(w h/2)``, shape (o, f).

    Shapes: windows (o,), frequencies (f,).
    """
    half = 0.5 * np.multiply.outer(windows, frequencies)
    return np.asarray(np.sinc(half / np.pi) * np.exp(-1j * half))


def expm_mean(matrix: Array, matrix_jacobian: Array, window: float) -> tuple[Array, Array]:
    """Return the mean of ``e^(M v)`` over ``0 <= v <= h``, shape (m, m), and derivatives in the parameters, (p, m, m).

    M may be singular: the mean is a block of the exponential of ``[[M h, 1], [0, 0]]``.

    Shapes: matrix, matrix_jacobian (m, m) and (p, m, m).

    Examples
    --------
    >>> mean, _ = expm_mean(np.array([[0.0, 1.0], [0.0, 0.0]]), np.zeros((0, 2, 2)), 3.0)
    >>> mean.round(12).tolist()
    [[1.0, 1.5], [0.0, 1.0]]
    """
    size = len(matrix)
    if not np.isfinite(matrix * window).all():
        return np.full(matrix.shape, np.inf), np.full(matrix_jacobian.shape, np.inf)
    augmented, directions = np.zeros((1, 2 * size, 2 * size)), np.zeros((len(matrix_jacobian), 1, 2 * size, 2 * size))
    augmented[0, :size, :size], augmented[0, :size, size:] = matrix * window, np.eye(size)
    directions[:, 0, :size, :size] = matrix_jacobian * window
    values, jacobian = expm_frechet(augmented, directions)
    return values[0, :size, size:], jacobian[:, 0, :size, size:]


def expm_action(
    rows: Array, rows_jacobian: Array, matrix: Array, matrix_jacobian: Array, times: Array
) -> tuple[Array, Array]:
    """Return ``w exp(M s)`` for rows w, shape (o, n, m), and derivatives, (p, o, n, m); infinite if M s is not finite.

    Shapes: rows, rows_jacobian (o, m) and (p, o, m), matrix, matrix_jacobian (m, m) and (p, m, m), times (n,).

    Examples
    --------
    >>> M, times = np.array([[0.0, 1.0], [-4.0, 0.0]]), np.linspace(0.0, 3.0, 50)
    >>> values, _ = expm_action(np.eye(1, 2), np.zeros((0, 1, 2)), M, np.zeros((0, 2, 2)), times)
    >>> bool(np.abs(values[0, :, 0] - np.cos(2.0 * times)).max() < 1e-14)
    True
    """
    if not times.any():
        # At time zero the exponential is the identity.
        values, jacobian = (np.repeat(part[..., None, :], len(times), axis=-2) for part in (rows, rows_jacobian))
        return values, jacobian
    located = _locate_times(matrix, times)
    if located is None:
        return _act_by_exponentials(rows, rows_jacobian, matrix, matrix_jacobian, times)
    step, unit, place, shares = located
    powers, d_powers = _matrix_powers(unit * matrix, unit * matrix_jacobian)
    table, d_table = _tabulate_rows(rows, rows_jacobian, step * matrix, step * matrix_jacobian, int(place.max()) + 1)
    # Taylor sums lead from a row of the table to each time, for all times at once.
    remainder = _weighted_sums(shares, powers)
    values = np.einsum("onm,nmk->onk", table[:, place], remainder)
    if not len(rows_jacobian):
        return values, np.zeros((0, *values.shape))
    jacobian = np.einsum("ponm,nmk->ponk", d_table[:, :, place], remainder)
    jacobian += np.einsum("onm,npmk->ponk", table[:, place], _weighted_sums(shares, d_powers))
    return values, jacobian


def _act_by_exponentials(
    rows: Array, rows_jacobian: Array, matrix: Array, matrix_jacobian: Array, times: Array
) -> tuple[Array, Array]:
    """Return the same by one exponential for each time."""
    is_varying = matrix_jacobian.any(axis=(1, 2))
    with np.errstate(all="ignore"):
        scaled = matrix * times[:, None, None]
        if not np.isfinite(scaled).all():
            values = np.einsum("or,nrm->onm", rows, np.full(scaled.shape, np.inf))
            return values, np.full((len(rows_jacobian), *values.shape), np.inf)
    flow, d_flow = expm_frechet(scaled, matrix_jacobian[is_varying, None] * times[:, None, None])
    values, jacobian = (np.einsum("...or,nrm->...onm", part, flow) for part in (rows, rows_jacobian))
    jacobian[is_varying] += np.einsum("or,pnrm->ponm", rows, d_flow)
    return values, jacobian


def expm_action_vjp(rows: Array, matrix: Array, times: Array, cotangents: Array) -> tuple[Array, Array]:
    """Return derivatives of ``sum cotangents * (w exp(M s))`` in w, shape (o, m), and in M, (m, m).

    Shapes: cotangents (o, n, m).

    Examples
    --------
    >>> gradients = expm_action_vjp(np.ones((1, 1)), np.full((1, 1), -2.0), np.array([0.5]), np.ones((1, 1, 1)))
    >>> [float(part[0, 0].round(6)) for part in gradients]  # of w e^(M / 2): e^-1 and e^-1 / 2
    [0.367879, 0.18394]
    """
    if not times.any():
        return cotangents.sum(axis=1), np.zeros_like(matrix)
    located = _locate_times(matrix, times)
    if located is None:
        scaled = matrix.T * times[:, None, None]
        if not np.isfinite(scaled).all():
            return np.full(rows.shape, np.nan), np.full(matrix.shape, np.nan)
        # One Frechet derivative is enough: <W, L(X, dX)> = <L(X^T, W), dX> for the derivative L of the exponential.
        flow, adjoint_flow = expm_frechet(scaled, np.einsum("or,onm->nrm", rows, cotangents)[None])
        return np.einsum("nmr,onm->or", flow, cotangents), np.einsum("n,nij->ij", times, adjoint_flow[0])
    step, unit, place, shares = located
    scaled, length, none = unit * matrix, int(place.max()) + 1, np.zeros((0, *matrix.shape))
    powers, _ = _matrix_powers(scaled, none)
    table = _tabulate_rows(rows, np.zeros((0, *rows.shape)), step * matrix, none, length)[0][:, :length]
    remainder = _weighted_sums(shares, powers)
    in_powers = _weighted_sums(shares.T, np.einsum("onm,onk->nmk", table[:, place], cotangents))
    # The adjoint of each row of the table: its direct effect plus that of later rows.
    direct = np.einsum("onk,nmk->mon", cotangents, remainder)
    sums = [[np.bincount(place, line, minlength=length) for line in lines] for lines in direct]
    adjoint = np.ascontiguousarray(np.array(sums).transpose(1, 2, 0))
    transition = expm_frechet(step * matrix[None])[0][0]
    solve_constant_recurrence(transition.T, None, adjoint, np.zeros(rows.shape), adjoint, backwards=True)
    in_transition = np.einsum("oki,okj->ij", table[:, :-1], adjoint[:, 1:])
    in_step = expm_frechet(step * matrix.T[None], in_transition[None, None])[1][0, 0]
    in_matrix = np.zeros_like(matrix)
    for order in range(len(_TAYLOR) - 1, 0, -1):
        in_matrix += powers[order - 1].T @ in_powers[order]
        in_powers[order - 1] += in_powers[order] @ scaled.T
    return adjoint[:, 0], unit * in_matrix + step * in_step


def _weighted_sums(weights: Array, matrices: Array) -> Array:
    """Return weighted sums of matrices, shape (n, ...), from weights (n, k) and matrices (k, ...)."""
    return (weights @ matrices.reshape(len(matrices), -1)).reshape(len(weights), *matrices.shape[1:])


def _locate_times(matrix: Array, times: Array) -> tuple[float, float, IndexArray, Array] | None:
    """Return the step of the table, the unit of Taylor sums, the row near each time, and Taylor weights from there.

    None if M is a number, times are negative, an entry is not finite, or fast modes need a table of more than 16 rows
    for each time, unless all times are multiples of one step: then one exponential for each time is faster.
    """
    norm, last = float(np.max(np.sum(np.abs(matrix), axis=0))), float(times.max(initial=0.0))
    if len(matrix) == 1 or not np.isfinite(norm * last) or times.min(initial=0.0) < 0.0:
        return None
    step = unit = 1.0 / max(norm, 1e-300)
    place = times / step
    if norm * last > max(64, 16 * len(times)):
        gaps = np.diff(times)
        step = float(gaps.min(initial=last, where=gaps > 0.0))
        # The last time determines the step more accurately.
        step = last / np.rint(last / step)
        place = np.rint(times / step)
        if place.max() > 64 * len(times) or np.abs(times - step * place).max() > unit:
            return None
    rows = place.astype(np.intp)
    shares = np.empty((len(times), len(_TAYLOR)))
    shares[:, 0], between = 1.0, (times - step * rows) / unit
    for order in range(1, len(_TAYLOR)):
        np.multiply(shares[:, order - 1], between / order, out=shares[:, order])
    return step, unit, rows, shares


def _matrix_powers(matrix: Array, d_matrix: Array) -> tuple[Array, Array]:
    """Return the powers of a matrix up to the order of Taylor sums, (k, m, m), and derivatives, (k, p, m, m)."""
    powers, d_powers = np.empty((len(_TAYLOR), *matrix.shape)), np.zeros((len(_TAYLOR), *d_matrix.shape))
    powers[0] = np.eye(len(matrix))
    for k in range(1, len(_TAYLOR)):
        np.matmul(powers[k - 1], matrix, out=powers[k])
        if len(d_matrix):
            d_powers[k] = d_powers[k - 1] @ matrix + powers[k - 1] @ d_matrix
    return powers, d_powers


def _tabulate_rows(
    weights: Array, d_weights: Array, matrix: Array, d_matrix: Array, length: int
) -> tuple[Array, Array]:
    """Return rows ``w exp(M k)`` for k = 0, 1, ..., (o, length or more, m), and derivatives, by doubling the table."""
    flow, d_flow = expm_frechet(matrix[None], d_matrix[:, None])
    power, d_power = flow[0], d_flow[:, 0]
    table, d_table = weights[:, None], d_weights[:, :, None]
    while table.shape[1] < length:
        if len(d_table):
            d_table = np.concatenate([d_table, d_table @ power + table @ d_power[:, None]], axis=2)
        table = np.concatenate([table, table @ power], axis=1)
        d_power = d_power @ power + power @ d_power if len(d_table) else d_power
        power = power @ power
    return table, d_table if len(d_table) else np.zeros((0, *table.shape))
