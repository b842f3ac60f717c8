"""Covariance of any two observables, in the array API: the same code for NumPy arrays and PyTorch tensors.

``cov = sum_l sum_m c_ijm h_m(tau / ell_l)`` with ``c_ijm = sigma_l^2 ell_l^-m sum_(a+b=m) (-1)^b W_ila W_jlb``, plus
the modes ``Phi_i(t1) diag(variance) Phi_j(t2)^T``. Leading dimensions are batches, and are broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from lodekit.prior.kernels import Kernel, average_kernel_derivatives, group_by_window, match_array
from lodekit.support.arguments import Array


@lru_cache(maxsize=64)
def derivative_sign_matrix(first: int, second: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the signs that fold products W_a W_b into orders m = a + b, shape (first * second, first + second - 1)."""
    fold = np.zeros((first, second, first + second - 1))
    for a in range(first):
        for b in range(second):
            fold[a, b, a + b] = (-1.0) ** b
    return fold.reshape(first * second, -1)


def _append_axes(value: Any, count: int) -> Any:
    """Return a batch of numbers with additional dimensions; a single number is unchanged."""
    return value[(..., *(None,) * count)] if getattr(value, "ndim", 0) else value


def pair_coefficients(xp: Any, first: Any, second: Any, lengthscale: Any, amplitude: Any) -> Any:
    """Return c_ijm for one free function, shape (..., i, j, m).

    Shapes: first, second (..., i, a) and (..., j, b), lengthscale, amplitude (...).
    """
    (i, a), (j, b) = first.shape[-2:], second.shape[-2:]
    fold = match_array(xp, derivative_sign_matrix(a, b), first)
    outer = first[..., :, None, :, None] * second[..., None, :, None, :]
    leading = outer.shape[:-4]
    folded = xp.reshape(xp.reshape(outer, (*leading, i * j, a * b)) @ fold, (*leading, i, j, a + b - 1))
    orders = match_array(xp, np.arange(a + b - 1, dtype=float), first)
    return folded * _append_axes(amplitude**2, 3) * _append_axes(lengthscale, 3) ** (-orders)


def free_function_covariance(
    xp: Any,
    kernel: Kernel,
    times1: Any,
    times2: Any,
    first: Any,
    second: Any,
    lengthscale: Any,
    amplitude: Any,
    windows: tuple[Array | None, Array | None] = (None, None),
) -> Any:
    """Return the covariance of observables at two sets of times due to one free function, shape (..., i, n1, j, n2).

    Shapes: times1, times2 (..., n1) and (..., n2), first, second (..., i, a) and (..., j, b), lengthscale, amplitude
    (...), windows (i,) and (j,).
    """
    order = first.shape[-1] + second.shape[-1] - 2
    kernel.check_order(order)
    coefficients = pair_coefficients(xp, first, second, lengthscale, amplitude)
    if windows[0] is not None or windows[1] is not None:
        lag, ell = times1[:, None] - times2[None, :], float(lengthscale)
        average = np.empty((len(first), len(times1), len(second), len(times2)))
        spans = [np.zeros(len(part)) if w is None else w for part, w in zip((first, second), windows, strict=True)]
        for h1, rows in group_by_window(spans[0]):
            for h2, columns in group_by_window(spans[1]):
                stack = average_kernel_derivatives(kernel, lag, ell, (h1, h2), order)
                part = np.tensordot(coefficients[np.ix_(rows, columns)], stack, axes=1)
                average[rows[:, None], :, columns[None, :]] = part
        return average
    u = (times1[..., :, None] - times2[..., None, :]) / _append_axes(lengthscale, 2)
    stack = xp.stack(list(kernel.derivatives(xp, u, order)), axis=-3)
    *leading, i, j, m = coefficients.shape
    n1, n2 = u.shape[-2:]
    block = xp.reshape(coefficients, (*leading, i * j, m)) @ xp.reshape(stack, (*stack.shape[:-3], m, n1 * n2))
    return xp.moveaxis(xp.reshape(block, (*block.shape[:-2], i, j, n1, n2)), -2, -3)


@dataclass(frozen=True)
class ObservationPoints:
    """Observables at some times, as needed for covariances.

    times: Scaled times; (..., n).
    free: Coefficients on the free functions; (..., o, q, k).
    basis: Basis functions of the modes; (..., o, n, r).
    windows: The intervals over which the observables are averaged; None if none is; (o,).
    """

    times: Any
    free: Any
    basis: Any
    windows: Array | None = None


def prior_covariance(
    xp: Any, kernels: Sequence[Kernel], first: ObservationPoints, second: ObservationPoints, scales: Sequence[Any]
) -> Any:
    """Return the prior covariance of two sets of observables, shape (..., i, n1, j, n2).

    Shapes: lengthscales, amplitudes (..., q), mode_std (..., r).
    """
    lengthscales, amplitudes, mode_std = scales
    sizes = [(part.free.shape[-3], part.times.shape[-1]) for part in (first, second)]
    parts = []
    for k, latent in enumerate(kernels):
        own = first.free[..., k, :], second.free[..., k, :]
        ell, deviation = lengthscales[..., k], amplitudes[..., k]
        windows = first.windows, second.windows
        parts.append(free_function_covariance(xp, latent, first.times, second.times, *own, ell, deviation, windows))
    if mode_std.shape[-1]:
        # Times before observables, so that sums over both in a gradient read memory contiguously.
        scaled = [xp.moveaxis(part.basis, -3, -2) * mode_std[..., None, None, :] for part in (first, second)]
        block = xp.einsum("...air,...bjr->...aibj", *scaled)
        parts.append(xp.moveaxis(xp.moveaxis(block, -4, -3), -2, -1))
    if not parts:
        leading = np.broadcast_shapes(*(tuple(part.shape[:-1]) for part in (first.times, second.times, mode_std)))
        return xp.zeros((*leading, *sizes[0], *sizes[1]), dtype=first.times.dtype, device=first.times.device)
    return sum(parts[1:], parts[0])


def free_function_variance(
    kernel: Kernel, operators: Array, lengthscale: float, amplitude: float, windows: Array | None = None
) -> Array:
    """Return the prior variance of observables due to one free function, shape (i,); the same at all times.

    Shapes: operators (i, a), windows (i,).
    """
    weight = np.einsum("iim->im", pair_coefficients(np, operators, operators, lengthscale, amplitude))
    total = np.zeros(len(operators))
    for h, rows in group_by_window(np.zeros(len(operators)) if windows is None else windows):
        stack = average_kernel_derivatives(kernel, np.zeros(1), lengthscale, (h, h), weight.shape[-1] - 1)[:, 0]
        total[rows] = weight[rows][:, ::2] @ stack[::2]  # odd orders vanish at zero lag
    return total
