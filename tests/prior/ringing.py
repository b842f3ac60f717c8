"""A covariance of one's own: the smallest one that is no squared exponential, oscillates, and needs the lag."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.prior.kernels import KernelStateSpace, SquaredExponential

Array = NDArray[np.float64]
SMOOTH = SquaredExponential()


@dataclass(frozen=True)
class Ringing:
    """``exp(-u^2/2) cos u``, the real part of ``exp(-1/2) exp(-(u - i)^2/2)``."""

    name: str = "toy"
    extra_derivatives: int = 1
    needs_lag_products: bool = True
    is_band_limited: bool = True
    smoothness: float = math.inf
    max_frequency: float = 10.0

    def check_order(self, order: int) -> None:
        """Accept any order."""

    def derivatives(self, xp: Any, u: Any, order: int) -> Iterator[Any]:
        z = u - 1j
        before, last = 0.0 * z, xp.exp(-0.5 * z * z - 0.5)
        for m in range(order + 1):
            yield xp.real(last)
            before, last = last, -(z * last + m * before)

    def lengthscale_derivative(self, contracted: Array, lagged: Array | None) -> Array:
        assert lagged is not None
        orders = contracted.shape[-1] - 1
        return np.asarray(-np.arange(orders) * contracted[..., :orders] - lagged[..., 1:])

    def log_density(self, frequencies: Array, lengthscale: float | Array) -> Array:
        x = frequencies * lengthscale
        both = np.logaddexp(-0.5 * (x - 1.0) ** 2, -0.5 * (x + 1.0) ** 2)
        return np.asarray(0.5 * np.log(0.5 * np.pi) + np.log(lengthscale) + both)

    def log_density_lengthscale_derivative(self, frequencies: Array, lengthscale: float | Array) -> Array:
        x = frequencies * lengthscale
        return np.asarray(1.0 - x * x + x * np.tanh(x))

    def bandwidth(self, order: int, eps: float) -> float:
        return SMOOTH.bandwidth(order, 1e-3 * eps) + 1.0

    def correlation_range(self, order: int, eps: float) -> float:
        return SMOOTH.correlation_range(order, 1e-3 * eps)

    def state_space(self, lengthscale: float) -> KernelStateSpace | None:
        return None
