"""Covariance of any two observables, in the array API: the same code for NumPy arrays and PyTorch tensors.

``cov = sum_l sum_m c_ijm h_m(tau / ell_l)`` with ``c_ijm = sigma_l^2 ell_l^-m sum_(a+b=m) (-1)^b W_ila W_jlb``, plus
the modes ``Phi_i(t1) diag(variance) Phi_j(t2)^T``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.prior.latents import Latent

__all__ = ["fold_matrix", "free_block", "free_variance", "pair_coefficients"]

Array = NDArray[np.float64]


@lru_cache(maxsize=64)
def fold_matrix(first: int, second: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the signs that fold products W_a W_b into orders m = a + b, shape (first * second, first + second - 1)."""
    fold = np.zeros((first, second, first + second - 1))
    for a in range(first):
        for b in range(second):
            fold[a, b, a + b] = (-1.0) ** b
    return fold.reshape(first * second, -1)


def pair_coefficients(xp: Any, first: Any, second: Any, lengthscale: Any, deviation: Any) -> Any:
    """Return c_ijm for one free function, shape (i, j, m).

    Parameters
    ----------
    first, second : arrays, shape (i, a) and (j, b)
        Coefficients of the observables on the free function.
    lengthscale, deviation : scalars
    """
    i, a = first.shape
    j, b = second.shape
    fold = xp.asarray(fold_matrix(a, b), dtype=first.dtype, device=first.device)
    outer = xp.reshape(first, (i, 1, a, 1)) * xp.reshape(second, (1, j, 1, b))
    folded = xp.reshape(outer, (i * j, a * b)) @ fold
    orders = xp.arange(a + b - 1, dtype=first.dtype, device=first.device)
    return xp.reshape(folded, (i, j, a + b - 1)) * deviation**2 * lengthscale ** (-orders)


def free_block(
    xp: Any, latent: Latent, times1: Any, times2: Any, first: Any, second: Any, lengthscale: Any, deviation: Any
) -> Any:
    """Return the covariance of observables at two sets of times due to one free function, shape (i, n1, j, n2)."""
    order = first.shape[1] + second.shape[1] - 2
    latent.check_order(order)
    u = (times1[:, None] - times2[None, :]) / lengthscale
    stack = xp.stack(list(latent.stack(xp, u, order)))
    coefficients = pair_coefficients(xp, first, second, lengthscale, deviation)
    i, j, m = coefficients.shape
    block = xp.reshape(coefficients, (i * j, m)) @ xp.reshape(stack, (m, -1))
    block = xp.reshape(block, (i, j, times1.shape[0], times2.shape[0]))
    return xp.permute_dims(block, (0, 2, 1, 3))


def free_variance(latent: Latent, rows: Array, lengthscale: float, deviation: float) -> Array:
    """Return the prior variance of observables due to one free function, shape (i,); the same at all times."""
    weight = pair_coefficients(np, rows, rows, lengthscale, deviation)
    at_zero = np.array([part[0] for part in latent.stack(np, np.zeros(1), weight.shape[-1] - 1)])
    # Odd orders vanish at zero lag.
    return np.asarray(np.einsum("iim->im", weight)[:, ::2] @ at_zero[::2])
