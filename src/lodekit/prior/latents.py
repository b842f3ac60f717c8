"""Covariances of the free functions, as stacks of derivatives in scaled lag.

With ``u = tau/ell`` a stationary covariance is ``k(tau) = sigma^2 h_0(u)``, and its m-th derivative in tau is
``sigma^2 ell^-m h_m(u)``. The stack h_0 ... h_m depends on u alone; lengthscale and signal variance enter as small
coefficients. All functions follow the array API: they work on NumPy arrays and on PyTorch tensors alike.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from lodekit.errors import LodekitError

__all__ = ["Latent", "Matern", "SquaredExponential", "read_latent"]


@dataclass(frozen=True)
class SquaredExponential:
    """``exp(-u^2/2)``: infinitely differentiable."""

    name: str = "se"

    def stack(self, xp: Any, u: Any, order: int) -> list[Any]:
        """Return h_0 ... h_order by the Hermite recurrence ``h_m = -(u h_(m-1) + (m-1) h_(m-2))``."""
        stack = [xp.exp(-0.5 * u * u)]
        for m in range(1, order + 1):
            following = u * stack[m - 1]
            if m > 1:
                following = following + (m - 1) * stack[m - 2]
            stack.append(-following)
        return stack

    def check_order(self, order: int) -> None:
        """Accept any order."""

    def lengthscale_stack(self, xp: Any, u: Any, stack: list[Any], order: int) -> list[Any]:
        """Return ``d/dlog(ell)`` of ``ell^-m h_m(tau/ell)``, times ell^m, for m up to order: ``h_(m+2) + h_m``."""
        return [stack[m + 2] + stack[m] for m in range(order + 1)]

    #: How many more derivatives the gradient in the lengthscale needs.
    extra: int = 2


@dataclass(frozen=True)
class Matern:
    """Half-integer Matern covariance of smoothness p + 1/2: p times mean-square differentiable."""

    p: int

    @property
    def name(self) -> str:
        """As users write it: ``matern-7/2``."""
        return f"matern-{2 * self.p + 1}/2"

    def _polynomials(self, order: int) -> list[list[float]]:
        """Return q_m with ``h_m = kappa^m sign(u)^m exp(-r) q_m(r)``, ``r = kappa |u|``: q_(m+1) = q_m' - q_m."""
        p = self.p
        scale = math.factorial(p) / math.factorial(2 * p)
        first = [
            scale * math.factorial(p + i) / (math.factorial(i) * math.factorial(p - i)) * 2.0 ** (p - i)
            for i in range(p, -1, -1)
        ]
        polynomials = [first]
        for _ in range(order):
            last = polynomials[-1]
            slope = [(k + 1) * last[k + 1] for k in range(len(last) - 1)] + [0.0]
            polynomials.append([a - b for a, b in zip(slope, last, strict=True)])
        return polynomials

    def check_order(self, order: int) -> None:
        """Raise where the covariance has no derivative of this order."""
        if order > 2 * self.p:
            needed = (order + 1) // 2
            raise LodekitError(
                f"{self.name} is too rough: the observables need {needed} derivatives of a free function, so use "
                f"matern-{2 * needed + 1}/2 or smoother, or latent='se'"
            )

    def stack(self, xp: Any, u: Any, order: int) -> list[Any]:
        """Return h_0 ... h_order; beyond 2p they jump at zero, where only multiples of u are used."""
        kappa = math.sqrt(2 * self.p + 1)
        r = kappa * xp.abs(u)
        decay, sign = xp.exp(-r), xp.sign(u)
        stack = []
        for m, polynomial in enumerate(self._polynomials(order)):
            value = polynomial[-1] + 0 * r
            for coefficient in reversed(polynomial[:-1]):
                value = value * r + coefficient
            value = kappa**m * value * decay
            stack.append(value * sign if m % 2 else value)
        return stack

    def lengthscale_stack(self, xp: Any, u: Any, stack: list[Any], order: int) -> list[Any]:
        """Return ``d/dlog(ell)`` of ``ell^-m h_m(tau/ell)``, times ell^m: ``-m h_m - u h_(m+1)``."""
        return [-m * stack[m] - u * stack[m + 1] for m in range(order + 1)]

    @property
    def extra(self) -> int:
        """How many more derivatives the gradient in the lengthscale needs."""
        return 1


Latent = SquaredExponential | Matern

#: Smoother ones cannot be told from the squared exponential.
_SMOOTHEST = 131


def read_latent(name: str) -> Latent:
    """Return the covariance that a text names: ``se``, ``matern-5/2``.

    Examples
    --------
    >>> read_latent("matern-5/2").p
    2
    """
    if name == "se":
        return SquaredExponential()
    found = re.fullmatch(r"matern-([0-9]{1,3})/2", name) if isinstance(name, str) else None
    if not found or int(found.group(1)) % 2 == 0 or int(found.group(1)) > _SMOOTHEST:
        raise LodekitError(
            f"expected latent='se' or 'matern-p/2' with odd p up to {_SMOOTHEST}, such as 'matern-7/2', got {name!r}"
        )
    return Matern((int(found.group(1)) - 1) // 2)
