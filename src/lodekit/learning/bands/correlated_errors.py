"""What correlated residuals do to standard errors: an autoregression of the residuals, and a sandwich.

A curve that was fitted as if errors were independent still ends near the truth where they are not; how near, they
tell themselves. With g the slopes of the curve along directions in which the estimates have unit variance, that is
``g^T R g`` where R are the correlations of the errors, and the identity for independent ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import matmul_toeplitz, solve_toeplitz

__all__ = ["autocorrelation", "inflate", "select_autoregression"]

Array = NDArray[np.float64]
#: The highest order of an autoregression, chosen by Akaike's criterion, and how many residuals each order takes.
_ORDERS, _EACH = 8, 10
#: How often the correlations of errors are corrected for what the fit has taken from them.
_ROUNDS = 3
#: Of its last step, the variance that an autoregression leaves at least.
_LEFT = 1e-4
#: The share of errors that residuals hold at least: where it is less, nothing is known.
_KNOWN = 0.2
#: Correlations at longer lags are left out.
_LONGEST = 100_000


def select_autoregression(correlations: Array, size: int) -> Array:
    """Return the coefficients of an autoregression, by Yule and Walker, its order by Akaike; shape (order,).

    Parameters
    ----------
    correlations : array, shape (m + 1,)
        At the lags zero to m, the highest order.
    size : int
        How many residuals they come from.

    Examples
    --------
    >>> select_autoregression(0.8 ** np.arange(4), 200).round(6).tolist()
    [0.8]
    """
    best, found = 0.0, np.zeros(0)
    for order in range(1, len(correlations)):
        coefficients = solve_toeplitz(correlations[:order], correlations[1 : order + 1])
        left = 1.0 - float(coefficients @ correlations[1 : order + 1])
        if not _LEFT < left <= 1.0:
            break
        criterion = size * np.log(left) + 2.0 * order
        # A higher order has to be better by more than rounding.
        if criterion < best - 1e-6:
            best, found = criterion, coefficients
    return found


def autocorrelation(coefficients: Array, count: int) -> Array:
    """Return the correlations of an autoregression at the lags zero to ``count - 1``.

    Parameters
    ----------
    coefficients : array, shape (order,)
    count : int

    Examples
    --------
    >>> autocorrelation(np.array([0.5]), 4).tolist()
    [1.0, 0.5, 0.25, 0.125]
    """
    order = len(coefficients)
    if not order:
        return np.asarray(np.eye(1, count)[0])
    equations, known = np.eye(order + 1), np.eye(order + 1)[0]
    for lag in range(order + 1):
        for back, value in enumerate(coefficients, 1):
            equations[lag, abs(lag - back)] -= value
    start = np.linalg.solve(equations, known)
    found = np.zeros(count)
    head = min(order + 1, count)
    found[:head] = (start / start[0])[:head]
    for lag in range(order + 1, min(count, _LONGEST)):
        found[lag] = found[lag - order : lag][::-1] @ coefficients
        if np.abs(found[lag - order + 1 : lag + 1]).max() < 1e-12:
            break
    return found


def inflate(slopes: Sequence[Array], residuals: Sequence[Array]) -> tuple[Array, Array]:
    """Return ``g^T R g`` for the errors that residuals tell of, and ``g^T g`` for independent ones, both (k, k).

    The correlations of residuals are smaller than those of errors, because the fit has taken its share of them: what
    it takes from an autoregression is computed and given back, a few times.

    Parameters
    ----------
    slopes : sequence of arrays, shape (n, k)
        g: for each series of residuals the slopes of the curve, in units of the noise.
    residuals : sequence of arrays, shape (n,)
        In units of the noise, in the order of time, at equal steps.
    """
    count = slopes[0].shape[1]
    correlated, plain = np.zeros((count, count)), np.zeros((count, count))
    for own, values in zip(slopes, residuals, strict=True):
        correlations, scale = _errors(own, values)
        correlated += scale * own.T @ matmul_toeplitz(correlations, own)
        plain += own.T @ own
    return correlated, plain


def _errors(slopes: Array, residuals: Array) -> tuple[Array, float]:
    """Return the correlations of errors at all lags, and their variance against that of independent ones."""
    size, lags = len(residuals), max(1, min(_ORDERS, len(residuals) // _EACH))
    if size <= lags:
        # One residual resembles nothing.
        return np.eye(1, size)[0], 1.0
    observed = np.array([float(residuals[lag:] @ residuals[: size - lag]) for lag in range(lags + 1)])
    left, sizes, _ = np.linalg.svd(slopes, full_matrices=False)
    basis = left[:, sizes > 1e-6 * sizes.max(initial=0.0)]
    sums, scale, correlations = observed, 1.0, np.eye(1, size)[0]
    counts = size - np.arange(lags + 1)
    for _ in range(_ROUNDS):
        correlations = autocorrelation(select_autoregression(sums / sums[0], size), size)
        expected = _left_over(basis, correlations, lags)
        scale = float(observed[0] / max(expected[0], _KNOWN * size))
        sums = observed + scale * (counts * correlations[: lags + 1] - expected)
    # That a fit takes its share of independent errors, too, is known already.
    return correlations, scale * (size - basis.shape[1]) / size


def _left_over(basis: Array, correlations: Array, lags: int) -> Array:
    """Return sums of products at some lags to be expected of residuals: of errors less their part in a basis."""
    spread = matmul_toeplitz(correlations, basis)
    inner, size = basis.T @ spread, len(basis)
    found = []
    for lag in range(lags + 1):
        early, late = slice(0, size - lag), slice(lag, size)
        both = np.sum(basis[early] * spread[late]) + np.sum(spread[early] * basis[late])
        found.append((size - lag) * correlations[lag] - both + np.sum((basis[early] @ inner) * basis[late]))
    return np.array(found)
