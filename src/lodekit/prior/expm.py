"""Exact steps of a state space: exponentials, and integrals against held and linear inputs, with derivatives.

A step of length h with the input ``v + v' tau`` is ``x(h) = P x + P0 v + P1 v'``, where ``P = e^(F h)``,
``P0 = h phi_1(F h) G`` and ``P1 = h^2 phi_2(F h) G``. All three come from the exponential of one matrix,
``[[F h, G, 0], [0, 0, 1], [0, 0, 0]]``, whose size does not grow with h beyond that of F h.

What an average over the interval that ends at a time makes of exponentials: of waves, modes and known functions.

The mean of ``e^(l t)`` over ``[t - h, t]`` is ``e^(l (t - h))`` times the mean of ``e^(l v)`` over ``[0, h]``: times
are counted from the beginning of the interval, so that nothing overflows however fast a mode decays within it.

Rows ``w exp(M s)`` at many times, with derivatives: a table of rows at equal steps, and Taylor sums between them.

The table is doubled until it is long enough, each time by one product with a power of the step; so all large products
are of rows with one small matrix, and none is a matrix for each time.
"""

from __future__ import annotations

from math import factorial

import numpy as np
from numpy.typing import NDArray

from lodekit.prior.linear_recurrence import solve_constant_recurrence

Array = NDArray[np.float64]
#: Terms of the Taylor series of a matrix of norm 1/2 at most: the next one is 2e-17.
N_EXPM_TAYLOR_TERMS = 14


def expm_frechet(matrices: Array, directions: Array | None = None) -> tuple[Array, Array]:
    """Return ``e^X`` of many matrices, shape (k, d, d), and derivatives in given directions, (p, k, d, d).

    Taylor's series of ``e^(X / 2^j) - 1``, then doubling by ``2 E + E^2``: the small entries that slow states have
    beside fast ones are not lost under the one of the diagonal.

    Shapes: matrices (k, d, d), directions (p, k, d, d).
    """
    if not len(matrices):
        return matrices.copy(), np.zeros((0 if directions is None else len(directions), *matrices.shape))
    norms = np.abs(matrices).sum(-1).max(-1, initial=0.0)
    halvings = np.maximum(0, np.ceil(np.log2(np.maximum(norms, 1e-300))) + 1).astype(int)
    shrink = np.ldexp(1.0, -halvings)[:, None, None]
    X = matrices * shrink
    dX = np.zeros((0, *X.shape)) if directions is None else directions * shrink
    unit = np.eye(matrices.shape[-1])
    tail, d_tail = np.broadcast_to(unit, X.shape), np.zeros(dX.shape)
    for order in range(N_EXPM_TAYLOR_TERMS, 1, -1):
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


class HoldDiscretization:
    """Steps of a state space, of any lengths.

    F, G: Finite; (s, s) and (s, m).
    hold_order: 1 for inputs that are all held, 2 where one is linear.
    """

    def __init__(self, F: Array, G: Array, hold_order: int) -> None:
        self.F, self.G, self.hold_order = F, G, hold_order
        self.n_states, self.n_inputs = len(F), int(G.shape[1])
        sizes = np.abs(G).max(0, initial=0.0)
        # Powers of two: a step is linear in G, and a large G must not cost digits of F.
        self._input_scales = np.where(sizes > 0, np.exp2(np.ceil(np.log2(np.maximum(sizes, 1e-300)))), 1.0)

    @property
    def width(self) -> int:
        """Numbers that a step acts on: states, inputs, and their slopes where one is linear."""
        return self.n_states + self.hold_order * self.n_inputs

    def discretize(self, steps: Array, jacobians: tuple[Array, Array] | None = None) -> tuple[Array, Array]:
        """Return ``[P, P0, P1]`` of each length, shape (k, s, width), and derivatives in the parameters, (p, ...).

        Shapes: steps (k,), jacobians (p, s, s) and (p, s, m).
        """
        directions = None
        if jacobians is not None:
            directions = np.zeros((len(jacobians[0]), len(steps), self.width, self.width))
            directions[:, :, : self.n_states, : self.n_states] = jacobians[0][:, None] * steps[:, None, None]
            columns = slice(self.n_states, self.n_states + self.n_inputs)
            directions[:, :, : self.n_states, columns] = (jacobians[1] / self._input_scales)[:, None]
        found, changes = expm_frechet(self._van_loan_matrix(steps), directions)
        factors = self._column_factors(steps)
        return found[:, : self.n_states] * factors, changes[:, :, : self.n_states] * factors

    def vjp(self, steps: Array, cotangents: Array) -> tuple[Array, Array]:
        """Return the derivatives of ``sum weights * at(lengths)`` in F and in G, shapes (s, s) and (s, m).

        Shapes: steps (k,), cotangents (k, s, width).
        """
        directions = np.zeros((1, len(steps), self.width, self.width))
        directions[0, :, : self.n_states] = cotangents * self._column_factors(steps)
        # <W, L(X, dX)> = <L(X^T, W), dX> for the derivative L of the exponential.
        _, found = expm_frechet(self._van_loan_matrix(steps).swapaxes(-1, -2), directions)
        top = found[0][:, : self.n_states]
        columns = slice(self.n_states, self.n_states + self.n_inputs)
        of_F = np.einsum("k,kij->ij", steps, top[..., : self.n_states])
        return of_F, top[..., columns].sum(0) / self._input_scales

    def _van_loan_matrix(self, steps: Array) -> Array:
        s, m = self.n_states, self.n_inputs
        matrix = np.zeros((len(steps), self.width, self.width))
        matrix[:, :s, :s] = self.F * steps[:, None, None]
        matrix[:, :s, s : s + m] = self.G / self._input_scales
        if self.hold_order == 2:
            matrix[:, s : s + m, s + m :] = np.eye(m)
        return matrix

    def _column_factors(self, steps: Array) -> Array:
        """Return what the blocks of the exponential are multiplied with, shape (k, 1, width)."""
        blocks = [np.ones((len(steps), self.n_states))]
        blocks += [steps[:, None] ** order * self._input_scales for order in range(1, self.hold_order + 1)]
        return np.concatenate(blocks, axis=1)[:, None, :]


ComplexArray = NDArray[np.complex128]
#: Up to this exponent a rule of so many nodes integrates to rounding; beyond, a recurrence does.
MAX_QUADRATURE_EXPONENT, N_MOMENT_NODES = 20.0, 40
_MOMENT_NODES, _MOMENT_WEIGHTS = (part * 0.5 for part in np.polynomial.legendre.leggauss(N_MOMENT_NODES))
_MOMENT_NODES = _MOMENT_NODES + 0.5


def exponential_moments(exponent: complex, window: float, order: int) -> ComplexArray:
    """Return the means of ``v^j e^(l v)`` over ``0 <= v <= h`` for j up to an order, shape (order + 1,).

    Examples
    --------
    >>> exponential_moments(0.0, 2.0, 2).real.round(12).tolist()
    [1.0, 1.0, 1.333333333333]
    """
    z = complex(exponent) * window
    scales = float(window) ** np.arange(order + 1)
    if abs(z) <= MAX_QUADRATURE_EXPONENT:
        powers = _MOMENT_NODES[:, None] ** np.arange(order + 1)
        return np.asarray((_MOMENT_WEIGHTS * np.exp(z * _MOMENT_NODES)) @ powers * scales)
    found = np.empty(order + 1, dtype=complex)
    end = np.exp(z)
    found[0] = (end - 1.0) / z
    for j in range(1, order + 1):
        found[j] = (end - j * found[j - 1]) / z
    return np.asarray(found * scales)


def averaging_response(windows: Array, frequencies: Array) -> ComplexArray:
    """Return what averages make of waves ``e^(i w t)``: ``e^(-i w h/2) sin(w h/2) / (w h/2)``, shape (o, f).

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
    >>> found, _ = expm_mean(np.array([[0.0, 1.0], [0.0, 0.0]]), np.zeros((0, 2, 2)), 3.0)
    >>> found.round(12).tolist()
    [[1.0, 1.5], [0.0, 1.0]]
    """
    size = len(matrix)
    if not np.isfinite(matrix * window).all():
        return np.full(matrix.shape, np.inf), np.full(matrix_jacobian.shape, np.inf)
    whole, slopes = np.zeros((1, 2 * size, 2 * size)), np.zeros((len(matrix_jacobian), 1, 2 * size, 2 * size))
    whole[0, :size, :size], whole[0, :size, size:] = matrix * window, np.eye(size)
    slopes[:, 0, :size, :size] = matrix_jacobian * window
    found, changes = expm_frechet(whole, slopes)
    return found[0, :size, size:], changes[:, 0, :size, size:]


#: A step of the table times the norm of the matrix, and the order of the Taylor sums: they leave out less than 2e-16.
ACTION_STEP_NORM, ACTION_TAYLOR_ORDER = 1.0, 17
ACTION_FACTORIALS: Array = np.array([float(factorial(k)) for k in range(ACTION_TAYLOR_ORDER + 1)])
#: A table may have so many rows, or so many for each time; with fast modes it would be longer.
MIN_ACTION_ROWS, MAX_ACTION_ROWS_PER_TIME = 64, 16


def expm_action(
    rows: Array, rows_jacobian: Array, matrix: Array, matrix_jacobian: Array, times: Array
) -> tuple[Array, Array] | None:
    """Return ``w exp(M s)`` for rows w, shape (o, n, m), and derivatives, (p, o, n, m); None where it does not pay.

    Shapes: rows, rows_jacobian (o, m) and (p, o, m), matrix, matrix_jacobian (m, m) and (p, m, m), times (n,).

    Examples
    --------
    >>> M, times = np.array([[0.0, 1.0], [-4.0, 0.0]]), np.linspace(0.0, 3.0, 50)
    >>> found, _ = expm_action(np.eye(1, 2), np.zeros((0, 1, 2)), M, np.zeros((0, 2, 2)), times)
    >>> bool(np.abs(found[0, :, 0] - np.cos(2.0 * times)).max() < 1e-14)
    True
    """
    places = _locate_times(matrix, times)
    if places is None:
        return None
    step, place, length, shares = places
    powers, d_powers = _matrix_powers(step * matrix, step * matrix_jacobian)
    table, d_table = _tabulate_rows(rows, rows_jacobian, powers, d_powers, length)
    # What is between a row of the table and a time, by Taylor sums for all times at once, in units of the step.
    size, count = len(matrix), len(rows_jacobian)
    rest = (shares @ powers.reshape(ACTION_TAYLOR_ORDER + 1, -1)).reshape(-1, size, size)
    found = np.einsum("onm,nmk->onk", table[:, place], rest)
    if not count:
        return found, np.zeros((0, *found.shape))
    d_rest = (shares @ d_powers.reshape(ACTION_TAYLOR_ORDER + 1, -1)).reshape(-1, count, size, size)
    d_found = np.einsum("ponm,nmk->ponk", d_table[:, :, place], rest)
    d_found += np.einsum("onm,npmk->ponk", table[:, place], d_rest)
    return found, d_found


def expm_action_vjp(rows: Array, matrix: Array, times: Array, cotangents: Array) -> tuple[Array, Array] | None:
    """Return derivatives of ``sum slopes * (w exp(M s))`` in w, shape (o, m), and in M, (m, m); None as above.

    Shapes: cotangents (o, n, m).

    Examples
    --------
    >>> found = expm_action_vjp(np.ones((1, 1)), np.full((1, 1), -2.0), np.array([0.5]), np.ones((1, 1, 1)))
    >>> [float(part[0, 0].round(6)) for part in found]  # of w e^(M / 2): e^-1 and e^-1 / 2
    [0.367879, 0.18394]
    """
    places = _locate_times(matrix, times)
    if places is None:
        return None
    step, place, length, shares = places
    size, scaled = len(matrix), step * matrix
    powers, d_powers = _matrix_powers(scaled, np.zeros((0, *matrix.shape)))
    table = _tabulate_rows(rows, np.zeros((0, *rows.shape)), powers, d_powers, length)[0][:, :length]
    rest = (shares @ powers.reshape(ACTION_TAYLOR_ORDER + 1, -1)).reshape(-1, size, size)
    in_powers = shares.T @ np.einsum("onm,onk->nmk", table[:, place], cotangents).reshape(len(times), -1)
    in_powers = in_powers.reshape(ACTION_TAYLOR_ORDER + 1, size, size)
    # What each row of the table is worth: by itself, and by the rows after it.
    own = np.einsum("onk,nmk->mon", cotangents, rest)
    counted = [[np.bincount(place, line, minlength=length) for line in lines] for lines in own]
    worth = np.ascontiguousarray(np.array(counted).transpose(1, 2, 0))
    power = np.tensordot(1.0 / ACTION_FACTORIALS, powers, axes=1)
    solve_constant_recurrence(power.T, None, worth, np.zeros((len(rows), size)), worth, backwards=True)
    in_power = np.einsum("oki,okj->ij", table[:, :-1], worth[:, 1:])
    in_powers += in_power / ACTION_FACTORIALS[:, None, None]
    in_matrix = np.zeros_like(matrix)
    for order in range(ACTION_TAYLOR_ORDER, 0, -1):
        in_matrix += powers[order - 1].T @ in_powers[order]
        in_powers[order - 1] += in_powers[order] @ scaled.T
    return worth[:, 0], step * in_matrix


def _locate_times(matrix: Array, times: Array) -> tuple[float, NDArray[np.intp], int, Array] | None:
    """Return the step of the table, the row before each time, how many there are, and Taylor's shares from row to time.

    None where times are negative, something is not finite, or the table would be too long.
    """
    norm = float(np.max(np.sum(np.abs(matrix), axis=0)))
    longest = float(times.max(initial=0.0))
    if not np.isfinite(norm * longest) or (len(times) and times.min() < 0.0):
        return None
    needed = norm * longest / ACTION_STEP_NORM
    if needed > max(MIN_ACTION_ROWS, MAX_ACTION_ROWS_PER_TIME * len(times)):
        return None
    step = ACTION_STEP_NORM / max(norm, 1e-300)
    place = np.minimum((times / step).astype(np.intp), int(needed))
    shares = np.empty((len(times), ACTION_TAYLOR_ORDER + 1))
    shares[:, 0], between = 1.0, times / step - place
    for order in range(1, ACTION_TAYLOR_ORDER + 1):
        np.multiply(shares[:, order - 1], between / order, out=shares[:, order])
    return step, place, int(needed) + 1, shares


def _matrix_powers(matrix: Array, d_matrix: Array) -> tuple[Array, Array]:
    """Return the powers of a matrix up to the order of Taylor sums, (k, m, m), and derivatives, (k, p, m, m)."""
    powers, slopes = [np.eye(len(matrix))], [np.zeros_like(d_matrix)]
    for _ in range(ACTION_TAYLOR_ORDER):
        slopes.append(slopes[-1] @ matrix + powers[-1] @ d_matrix if len(d_matrix) else d_matrix)
        powers.append(powers[-1] @ matrix)
    return np.stack(powers), np.stack(slopes)


def _tabulate_rows(
    weights: Array, d_weights: Array, powers: Array, d_powers: Array, length: int
) -> tuple[Array, Array]:
    """Return rows at equal steps, (o, length or more, m), and derivatives, from what `_matrix_powers` returns for a
    step.
    """
    power = np.tensordot(1.0 / ACTION_FACTORIALS, powers, axes=1)
    d_power = np.tensordot(1.0 / ACTION_FACTORIALS, d_powers, axes=1)
    table, d_table = weights[:, None], d_weights[:, :, None]
    while table.shape[1] < length:
        if len(d_table):
            d_table = np.concatenate([d_table, d_table @ power + table @ d_power[:, None]], axis=2)
        table = np.concatenate([table, table @ power], axis=1)
        d_power = d_power @ power + power @ d_power if len(d_table) else d_power
        power = power @ power
    return table, d_table if len(d_table) else np.zeros((0, *table.shape))
