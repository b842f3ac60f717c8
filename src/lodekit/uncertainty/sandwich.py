"""Sandwich estimator of standard errors under autocorrelated residuals, with an AR(p) model of the errors.

With g the Jacobian of the curve along directions in which the estimates have unit variance, the covariance is
``g^T R g``, where R are the correlations of the errors (the identity for independent ones). The autoregression is
fitted by the Yule-Walker equations, its order selected by AIC.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import matmul_toeplitz, solve_toeplitz

from lodekit.fitting.parameter_vector import ParameterLayout
from lodekit.support.arguments import Array, IndexArray


def fit_autoregression(correlations: Array, n_rows: int) -> Array:
    """Return AR coefficients from the Yule-Walker equations, with the order selected by AIC; shape (order,).

    Shapes: correlations (m + 1,).
    """
    best, found = 0.0, np.zeros(0)
    for order in range(1, len(correlations)):
        coefficients = solve_toeplitz(correlations[:order], correlations[1 : order + 1])
        left = 1.0 - float(coefficients @ correlations[1 : order + 1])
        if not 1e-4 < left <= 1.0:
            break
        criterion = n_rows * np.log(left) + 2.0 * order
        # A higher order must be better by more than rounding errors.
        if criterion < best - 1e-6:
            best, found = criterion, coefficients
    return found


def ar_autocorrelation(coefficients: Array, count: int) -> Array:
    """Return the autocorrelation of an AR process at the lags 0 to ``count - 1``.

    Shapes: coefficients (order,).
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
    for lag in range(order + 1, min(count, 100_000)):
        found[lag] = found[lag - order : lag][::-1] @ coefficients
        if np.abs(found[lag - order + 1 : lag + 1]).max() < 1e-12:
            break
    return found


def sandwich_covariance(
    jacobians: Sequence[Array], residuals: Sequence[Array], count: int | None = None
) -> tuple[Array, Array]:
    """Return ``g^T R g`` with R estimated from the residuals, and ``g^T g`` for independent errors, both (k, k).

    The correlations of residuals are smaller than those of errors, because the fit absorbs a part of the errors: this
    part is computed for an autoregression and added back, iteratively. Columns after the first k are those of initial
    states, which absorb errors as well.

    Shapes: jacobians (n, k + modes), residuals (n,).
    """
    count = jacobians[0].shape[1] if count is None else count
    correlated, plain = np.zeros((count, count)), np.zeros((count, count))
    for own, values in zip(jacobians, residuals, strict=True):
        correlations, scale = _error_correlations(own, values)
        used = own[:, :count]
        correlated += scale * used.T @ matmul_toeplitz(correlations, used)
        plain += used.T @ used
    return correlated, plain


def estimate_from_first_rows(
    shifts: Array, residuals: Array, observables: IndexArray, count: int
) -> tuple[Array, Array, float]:
    """Return the change of estimates without later rows, their sandwich covariance, and the variance of residuals.

    To first order, in units of the standard errors from all rows: ``P b`` with ``P = (I - A)^-1``, where A and b are
    information and score of the later rows.

    Shapes: shifts (k, n), residuals (n,), observables (n,); returns (k,), (k, k).
    """
    values, vectors = np.linalg.eigh(np.eye(len(shifts)) - shifts @ shifts.T)
    # Other records and the prior contribute at least some information in every direction.
    information = (vectors * np.maximum(values, 1e-3)) @ vectors.T + shifts[:, :count] @ shifts[:, :count].T
    plain = np.linalg.inv(information)
    move = plain @ (shifts[:, count:] @ residuals[count:])
    own, errors = shifts[:, :count], residuals[:count] + move @ shifts[:, :count]
    used = float(np.trace(plain @ own @ own.T))
    variance = float(errors @ errors) / max(count - used, 1.0)
    rows = [np.flatnonzero(observables[:count] == number) for number in np.unique(observables)]
    sums = [sandwich_covariance([own[:, each].T], [errors[each]]) for each in rows if len(each)]
    correlated = sum((each - alone for each, alone in sums), np.zeros_like(plain))
    inflated, directions = np.linalg.eigh(plain @ correlated @ plain)
    return move, plain + (directions * np.maximum(inflated, 0.0)) @ directions.T, variance


def _error_correlations(jacobian: Array, residuals: Array) -> tuple[Array, float]:
    """Return the correlations of errors at all lags, and their variance relative to that of independent errors."""
    # At most order 8, with ten residuals per order.
    size, lags = len(residuals), max(1, min(8, len(residuals) // 10))
    if size <= lags:
        # A single residual has no neighbours.
        return np.eye(1, size)[0], 1.0
    observed = np.array([float(residuals[lag:] @ residuals[: size - lag]) for lag in range(lags + 1)])
    basis_vectors, sizes, _ = np.linalg.svd(jacobian, full_matrices=False)
    basis = basis_vectors[:, sizes > 1e-6 * sizes.max(initial=0.0)]
    sums, scale, correlations = observed, 1.0, np.eye(1, size)[0]
    counts = size - np.arange(lags + 1)
    for _ in range(3):
        correlations = ar_autocorrelation(fit_autoregression(sums / sums[0], size), size)
        expected = _expected_residual_products(basis, correlations, lags)
        scale = float(observed[0] / max(expected[0], 0.2 * size))
        sums = observed + scale * (counts * correlations[: lags + 1] - expected)
    # Standard errors already account for the part of independent errors that the fit absorbs.
    return correlations, scale * (size - basis.shape[1]) / size


def _expected_residual_products(basis: Array, correlations: Array, lags: int) -> Array:
    """Return expected sums of products of residuals, errors minus their projection on a basis, at lags 0 to `lags`."""
    spread = matmul_toeplitz(correlations, basis)
    inner, size = basis.T @ spread, len(basis)
    found = []
    for lag in range(lags + 1):
        early, late = slice(0, size - lag), slice(lag, size)
        both = np.sum(basis[early] * spread[late]) + np.sum(spread[early] * basis[late])
        found.append((size - lag) * correlations[lag] - both + np.sum((basis[early] @ inner) * basis[late]))
    return np.array(found)


def compute_inflation_factors(
    layout: ParameterLayout, covariance_root: Array, correlated: Array, plain: Array
) -> dict[str, float]:
    """Return factors of standard errors for estimated parameters by name, at least one, under correlated residuals.

    The sandwich covariance and the plain one are in units of the columns of the covariance root.

    Shapes: covariance_root (n, k), correlated (k, k), plain (k, k).
    """
    variances = [np.diag(covariance_root @ each @ covariance_root.T) for each in (plain, correlated)]
    factors = {}
    for position, number in enumerate(layout.free_parameters):
        before, after = (float(each[position]) for each in variances)
        if before > 0.0 and np.isfinite(after):
            factors[layout.names[number]] = max(1.0, float(np.sqrt(after / before)))
    return factors
