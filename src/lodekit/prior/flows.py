"""Rows ``w exp(M s)`` at many times, with derivatives: a table of rows at equal steps, and Taylor sums between them.

The table is doubled until it is long enough, each time by one product with a power of the step; so all large products
are of rows with one small matrix, and none is a matrix for each time.
"""

from __future__ import annotations

from math import factorial

import numpy as np
from numpy.typing import NDArray

from lodekit.prior.responses.recursion import drive_through

__all__ = ["flow_of_weights", "pull_flow"]

Array = NDArray[np.float64]
#: A step of the table times the norm of the matrix, and the order of the Taylor sums: they leave out less than 2e-16.
_STEP, _TAYLOR = 1.0, 17
_FACTORIALS: Array = np.array([float(factorial(k)) for k in range(_TAYLOR + 1)])
#: A table may have so many rows, or so many for each time; with fast modes it would be longer.
_ROWS, _EACH = 64, 16


def flow_of_weights(
    weights: Array, d_weights: Array, matrix: Array, d_matrix: Array, times: Array
) -> tuple[Array, Array] | None:
    """Return ``w exp(M s)`` for rows w, shape (o, n, m), and derivatives, (p, o, n, m); None where it does not pay.

    Parameters
    ----------
    weights, d_weights : arrays, shapes (o, m) and (p, o, m)
        w, and derivatives in the parameters.
    matrix, d_matrix : arrays, shapes (m, m) and (p, m, m)
        M, and derivatives in the parameters.
    times : array, shape (n,)
        s, in any order, none negative.

    Examples
    --------
    >>> M, times = np.array([[0.0, 1.0], [-4.0, 0.0]]), np.linspace(0.0, 3.0, 50)
    >>> found, _ = flow_of_weights(np.eye(1, 2), np.zeros((0, 1, 2)), M, np.zeros((0, 2, 2)), times)
    >>> bool(np.abs(found[0, :, 0] - np.cos(2.0 * times)).max() < 1e-14)
    True
    """
    places = _places(matrix, times)
    if places is None:
        return None
    step, place, length, shares = places
    powers, d_powers = _powers(step * matrix, step * d_matrix)
    table, d_table = _table(weights, d_weights, powers, d_powers, length)
    # What is between a row of the table and a time, by Taylor sums for all times at once, in units of the step.
    size, count = len(matrix), len(d_weights)
    rest = (shares @ powers.reshape(_TAYLOR + 1, -1)).reshape(-1, size, size)
    found = np.einsum("onm,nmk->onk", table[:, place], rest)
    if not count:
        return found, np.zeros((0, *found.shape))
    d_rest = (shares @ d_powers.reshape(_TAYLOR + 1, -1)).reshape(-1, count, size, size)
    d_found = np.einsum("ponm,nmk->ponk", d_table[:, :, place], rest)
    d_found += np.einsum("onm,npmk->ponk", table[:, place], d_rest)
    return found, d_found


def pull_flow(weights: Array, matrix: Array, times: Array, slopes: Array) -> tuple[Array, Array] | None:
    """Return derivatives of ``sum slopes * (w exp(M s))`` in w, shape (o, m), and in M, (m, m); None as above.

    Parameters
    ----------
    weights, matrix, times
        As in `flow_of_weights`.
    slopes : array, shape (o, n, m)

    Examples
    --------
    >>> found = pull_flow(np.ones((1, 1)), np.full((1, 1), -2.0), np.array([0.5]), np.ones((1, 1, 1)))
    >>> [float(part[0, 0].round(6)) for part in found]  # of w e^(M / 2): e^-1 and e^-1 / 2
    [0.367879, 0.18394]
    """
    places = _places(matrix, times)
    if places is None:
        return None
    step, place, length, shares = places
    size, scaled = len(matrix), step * matrix
    powers, d_powers = _powers(scaled, np.zeros((0, *matrix.shape)))
    table = _table(weights, np.zeros((0, *weights.shape)), powers, d_powers, length)[0][:, :length]
    rest = (shares @ powers.reshape(_TAYLOR + 1, -1)).reshape(-1, size, size)
    in_powers = shares.T @ np.einsum("onm,onk->nmk", table[:, place], slopes).reshape(len(times), -1)
    in_powers = in_powers.reshape(_TAYLOR + 1, size, size)
    # What each row of the table is worth: by itself, and by the rows after it.
    own = np.einsum("onk,nmk->mon", slopes, rest)
    counted = [[np.bincount(place, line, minlength=length) for line in lines] for lines in own]
    worth = np.ascontiguousarray(np.array(counted).transpose(1, 2, 0))
    power = np.tensordot(1.0 / _FACTORIALS, powers, axes=1)
    drive_through(power.T, None, worth, np.zeros((len(weights), size)), worth, backwards=True)
    in_power = np.einsum("oki,okj->ij", table[:, :-1], worth[:, 1:])
    in_powers += in_power / _FACTORIALS[:, None, None]
    in_matrix = np.zeros_like(matrix)
    for order in range(_TAYLOR, 0, -1):
        in_matrix += powers[order - 1].T @ in_powers[order]
        in_powers[order - 1] += in_powers[order] @ scaled.T
    return worth[:, 0], step * in_matrix


def _places(matrix: Array, times: Array) -> tuple[float, NDArray[np.intp], int, Array] | None:
    """Return the step of the table, the row before each time, how many there are, and Taylor's shares from row to time.

    None where times are negative, something is not finite, or the table would be too long.
    """
    norm = float(np.max(np.sum(np.abs(matrix), axis=0)))
    longest = float(times.max(initial=0.0))
    if not np.isfinite(norm * longest) or (len(times) and times.min() < 0.0):
        return None
    needed = norm * longest / _STEP
    if needed > max(_ROWS, _EACH * len(times)):
        return None
    step = _STEP / max(norm, 1e-300)
    place = np.minimum((times / step).astype(np.intp), int(needed))
    shares = np.empty((len(times), _TAYLOR + 1))
    shares[:, 0], between = 1.0, times / step - place
    for order in range(1, _TAYLOR + 1):
        np.multiply(shares[:, order - 1], between / order, out=shares[:, order])
    return step, place, int(needed) + 1, shares


def _powers(matrix: Array, d_matrix: Array) -> tuple[Array, Array]:
    """Return the powers of a matrix up to the order of Taylor sums, (k, m, m), and derivatives, (k, p, m, m)."""
    powers, slopes = [np.eye(len(matrix))], [np.zeros_like(d_matrix)]
    for _ in range(_TAYLOR):
        slopes.append(slopes[-1] @ matrix + powers[-1] @ d_matrix if len(d_matrix) else d_matrix)
        powers.append(powers[-1] @ matrix)
    return np.stack(powers), np.stack(slopes)


def _table(weights: Array, d_weights: Array, powers: Array, d_powers: Array, length: int) -> tuple[Array, Array]:
    """Return rows at equal steps, (o, length or more, m), and derivatives, from what `_powers` returns for a step."""
    power = np.tensordot(1.0 / _FACTORIALS, powers, axes=1)
    d_power = np.tensordot(1.0 / _FACTORIALS, d_powers, axes=1)
    table, d_table = weights[:, None], d_weights[:, :, None]
    while table.shape[1] < length:
        if len(d_table):
            d_table = np.concatenate([d_table, d_table @ power + table @ d_power[:, None]], axis=2)
        table = np.concatenate([table, table @ power], axis=1)
        d_power = d_power @ power + power @ d_power if len(d_table) else d_power
        power = power @ power
    return table, d_table if len(d_table) else np.zeros((0, *table.shape))
