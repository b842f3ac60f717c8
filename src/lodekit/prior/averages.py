"""What an average over the interval that ends at a time makes of exponentials: of waves, modes and known functions.

The mean of ``e^(l t)`` over ``[t - h, t]`` is ``e^(l (t - h))`` times the mean of ``e^(l v)`` over ``[0, h]``: times
are counted from the beginning of the interval, so that nothing overflows however fast a mode decays within it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lodekit.prior.responses.transitions import exponentials

__all__ = ["average_matrix", "moments", "wave_factors"]

Array = NDArray[np.float64]
ComplexArray = NDArray[np.complex128]
#: Up to this exponent a rule of so many nodes integrates to rounding; beyond, a recurrence does.
_SMALL, _NODES = 20.0, 40
_POINTS, _WEIGHTS = (part * 0.5 for part in np.polynomial.legendre.leggauss(_NODES))
_POINTS = _POINTS + 0.5


def moments(exponent: complex, window: float, order: int) -> ComplexArray:
    """Return the means of ``v^j e^(l v)`` over ``0 <= v <= h`` for j up to an order, shape (order + 1,).

    Parameters
    ----------
    exponent : complex
        l.
    window : float
        h; for zero, only the first is not zero.
    order : int

    Examples
    --------
    >>> moments(0.0, 2.0, 2).real.round(12).tolist()
    [1.0, 1.0, 1.333333333333]
    """
    z = complex(exponent) * window
    scales = float(window) ** np.arange(order + 1)
    if abs(z) <= _SMALL:
        powers = _POINTS[:, None] ** np.arange(order + 1)
        return np.asarray((_WEIGHTS * np.exp(z * _POINTS)) @ powers * scales)
    found = np.empty(order + 1, dtype=complex)
    end = np.exp(z)
    found[0] = (end - 1.0) / z
    for j in range(1, order + 1):
        found[j] = (end - j * found[j - 1]) / z
    return np.asarray(found * scales)


def wave_factors(windows: Array, frequencies: Array) -> ComplexArray:
    """Return what averages make of waves ``e^(i w t)``: ``e^(-i w h/2) sin(w h/2) / (w h/2)``, shape (o, f).

    Parameters
    ----------
    windows : array, shape (o,)
        h of each observable; zero for values at one time.
    frequencies : array, shape (f,)
        w.
    """
    half = 0.5 * np.multiply.outer(windows, frequencies)
    return np.asarray(np.sinc(half / np.pi) * np.exp(-1j * half))


def average_matrix(matrix: Array, d_matrix: Array, window: float) -> tuple[Array, Array]:
    """Return the mean of ``e^(M v)`` over ``0 <= v <= h``, shape (m, m), and derivatives in the parameters, (p, m, m).

    M may be singular: the mean is a block of the exponential of ``[[M h, 1], [0, 0]]``.

    Parameters
    ----------
    matrix, d_matrix : arrays, shapes (m, m) and (p, m, m)
    window : float
        h.

    Examples
    --------
    >>> found, _ = average_matrix(np.array([[0.0, 1.0], [0.0, 0.0]]), np.zeros((0, 2, 2)), 3.0)
    >>> found.round(12).tolist()
    [[1.0, 1.5], [0.0, 1.0]]
    """
    size = len(matrix)
    if not np.isfinite(matrix * window).all():
        return np.full(matrix.shape, np.inf), np.full(d_matrix.shape, np.inf)
    whole, slopes = np.zeros((1, 2 * size, 2 * size)), np.zeros((len(d_matrix), 1, 2 * size, 2 * size))
    whole[0, :size, :size], whole[0, :size, size:] = matrix * window, np.eye(size)
    slopes[:, 0, :size, :size] = d_matrix * window
    found, changes = exponentials(whole, slopes)
    return found[0, :size, size:], changes[:, 0, :size, size:]
