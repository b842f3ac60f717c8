"""Covariances of the free functions, as stacks of derivatives in scaled lag.

With ``u = tau/ell`` a stationary covariance is ``k(tau) = sigma^2 h_0(u)``, and its m-th derivative in tau is
``sigma^2 ell^-m h_m(u)``. The stack h_0 ... h_m depends on u alone; lengthscale and signal variance enter as small
coefficients. Stacks follow the array API: they work on NumPy arrays and on PyTorch tensors alike.

A new covariance is a class that keeps the protocol `Latent`, and a family in `families.py`. Those with a band serve the
spectral engine, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf, eval_hermitenorm, factorial2, gammainccinv

from lodekit.errors import LodekitError
from lodekit.wording import count

__all__ = ["CHANNEL_LATENT", "SMOOTHEST", "Latent", "Matern", "ProcessStates", "SquaredExponential"]

Array = NDArray[np.float64]
#: How many derivatives a process may have whose states are computed with: those of smoother ones cannot be told apart
#: over short steps.
SMOOTHEST = 10
#: Shares of a variance below this one are taken for it: what is asked of the tails of a Gaussian must not underflow.
_LEAST = 1e-280
#: Scaled lags among which the reach of a squared exponential is looked for: beyond the last one it is zero in floats
#: also times the polynomials of its derivatives.
_LAGS = np.linspace(0.0, 45.0, 9001)


@dataclass(frozen=True)
class ProcessStates:
    """A process as the first state of ``x' = F x + (0, ..., 0, 1) w`` with white noise w, at unit variance.

    Parameters
    ----------
    matrix : array, shape (s, s)
        F, of companion form: the states are the process and its derivatives.
    intensity : float
        The spectral density of w.
    """

    matrix: Array
    intensity: float


class Latent(Protocol):
    """A stationary covariance of unit variance, as a function of the scaled lag u."""

    @property
    def name(self) -> str:
        """As users write it."""

    @property
    def extra(self) -> int:
        """How many more derivatives the gradient in the lengthscale needs."""

    @property
    def needs_lag(self) -> bool:
        """Whether the gradient in the lengthscale needs products of the lag with the stack."""

    @property
    def has_band(self) -> bool:
        """Whether waves up to a moderate frequency are enough of its spectrum, to any tolerance."""

    @property
    def smoothness(self) -> float:
        """How many derivatives its functions have; infinite where they have all."""

    @property
    def highest(self) -> float:
        """The angular frequency, times the lengthscale, up to which its spectrum is worth looking at."""

    def check_order(self, order: int) -> None:
        """Raise where the covariance has no derivative of this order."""

    def stack(self, xp: Any, u: Any, order: int) -> Iterator[Any]:
        """Yield h_0 ... h_order, each made from the ones before it.

        Parameters
        ----------
        xp : module
            The array library of u.
        u : array
            Scaled lags, of any shape.
        order : int
        """

    def tilt(self, contracted: Array, lagged: Array | None) -> Array:
        """Return the derivative of contractions of ``ell^-m h_m`` in log ell, times ell^m.

        Parameters
        ----------
        contracted : array, shape (..., orders + extra)
            Sums of something times h_m.
        lagged : array of the same shape, or None
            Sums of the same times u h_m, where these are needed.
        """

    def density(self, frequencies: Array, lengthscale: float) -> Array:
        """Return the spectral density: the Fourier transform of the covariance, over angular frequencies.

        Parameters
        ----------
        frequencies : array
        lengthscale : float
        """

    def log_density(self, frequencies: Array, lengthscale: float | Array) -> Array:
        """Return the logarithm of the spectral density, which does not underflow.

        Parameters
        ----------
        frequencies : array
        lengthscale : float, or array that is broadcast against the frequencies
        """

    def log_density_tilt(self, frequencies: Array, lengthscale: float | Array) -> Array:
        """Return the derivative of the logarithm of the spectral density in log ell.

        Parameters
        ----------
        frequencies : array
        lengthscale : float, or array that is broadcast against the frequencies
        """

    def band(self, order: int, eps: float) -> float:
        """Return R with all but `eps` of the variance of the derivative of an `order` at frequencies below R / ell."""

    def reach(self, order: int, eps: float) -> float:
        """Return u beyond which h_0, h_2 ... up to twice the `order` are below `eps` of their values at zero."""

    def state_space(self, lengthscale: float) -> ProcessStates | None:
        """Return the process as a state space driven by white noise; None where there is none."""


@lru_cache(maxsize=512)
def _gaussian_band(order: int, eps: float) -> float:
    return float(np.sqrt(2.0 * gammainccinv(order + 0.5, max(eps, _LEAST))))


@lru_cache(maxsize=512)
def _gaussian_reach(order: int, eps: float) -> float:
    u, largest = _LAGS, np.zeros_like(_LAGS)
    for m in range(order + 1):
        size = float(factorial2(2 * m - 1)) if m else 1.0
        largest = np.maximum(largest, np.abs(eval_hermitenorm(2 * m, u)) * np.exp(-0.5 * u**2) / size)
    above = np.flatnonzero(largest > max(eps, _LEAST))
    return float(u[min(above[-1] + 1, len(u) - 1)])


@dataclass(frozen=True)
class SquaredExponential:
    """``exp(-u^2/2)``: infinitely differentiable.

    Parameters
    ----------
    name, extra, needs_lag, has_band, smoothness, highest
        As in `Latent`; no others make sense.
    """

    name: str = "se"
    extra: int = 2
    needs_lag: bool = False
    has_band: bool = True
    smoothness: float = math.inf
    highest: float = 9.0  # where its density has fallen to e^-40, below rounding

    def check_order(self, order: int) -> None:
        """Accept any order."""

    def stack(self, xp: Any, u: Any, order: int) -> Iterator[Any]:
        """Yield h_0 ... h_`order` of `u` in `xp` by Hermite's ``h_m = -(u h_(m-1) + (m-1) h_(m-2))``."""
        before, last = None, xp.exp(-0.5 * u * u)
        yield last
        for m in range(1, order + 1):
            following = u * last
            if before is not None:
                following += (m - 1) * before
            following *= -1.0
            before, last = last, following
            yield last

    def antiderivatives(self, u: Array) -> tuple[Array, Array]:
        """Return ``u h_(-1) + h_0`` and ``h_(-1) = sqrt(pi/2) erf(u / sqrt(2))`` at `u`."""
        once = math.sqrt(0.5 * math.pi) * erf(u / math.sqrt(2.0))
        return u * once + np.exp(-0.5 * u * u), once

    def tilt(self, contracted: Array, lagged: Array | None) -> Array:
        """Return ``h_(m+2) + h_m``, `contracted`; nothing `lagged` is needed."""
        return np.asarray(contracted[..., 2:] + contracted[..., :-2])

    def density(self, frequencies: Array, lengthscale: float) -> Array:
        """Return ``sqrt(2 pi) ell exp(-(w ell)^2/2)`` at `frequencies` w with `lengthscale` ell."""
        return np.asarray(math.sqrt(2.0 * math.pi) * lengthscale * np.exp(-0.5 * (frequencies * lengthscale) ** 2))

    def log_density(self, frequencies: Array, lengthscale: float | Array) -> Array:
        """Return ``log(2 pi)/2 + log ell - (w ell)^2/2`` at `frequencies` w with `lengthscale` ell."""
        return np.asarray(0.5 * np.log(2.0 * np.pi) + np.log(lengthscale) - 0.5 * (frequencies * lengthscale) ** 2)

    def log_density_tilt(self, frequencies: Array, lengthscale: float | Array) -> Array:
        """Return ``1 - (w ell)^2`` at `frequencies` w with `lengthscale` ell."""
        return np.asarray(1.0 - (frequencies * lengthscale) ** 2)

    def band(self, order: int, eps: float) -> float:
        """Return R with all but `eps` of ``int w^(2 order) exp(-w^2/2)`` below it."""
        return _gaussian_band(order, eps)

    def reach(self, order: int, eps: float) -> float:
        """Return u beyond which derivatives up to twice the `order` are below `eps` of those at zero."""
        return _gaussian_reach(order, eps)

    def state_space(self, lengthscale: float) -> ProcessStates | None:
        """Return nothing: an infinitely smooth process has no finite state."""
        return None


#: The covariance of each channel, where the prior stands on the channels.
CHANNEL_LATENT = SquaredExponential()


@dataclass(frozen=True)
class Matern:
    """Half-integer Matern covariance of smoothness p + 1/2: p times mean-square differentiable.

    Parameters
    ----------
    p : int
    extra, needs_lag, has_band
        As in `Latent`; no others make sense.
    """

    p: int
    extra: int = 1
    needs_lag: bool = True
    has_band: bool = False

    @property
    def name(self) -> str:
        """As users write it: ``matern-7/2``."""
        return f"matern-{2 * self.p + 1}/2"

    @property
    def smoothness(self) -> float:
        """How many derivatives its functions have."""
        return self.p

    @property
    def highest(self) -> float:
        """Where its spectrum, which falls by a power only, has become small: to a thousandth or less."""
        return 30.0 * self._kappa

    @property
    def _kappa(self) -> float:
        return math.sqrt(2 * self.p + 1)

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
                f"{self.name} is too rough: the observables need {count(needed, 'derivative')} of a free function, so "
                f"use matern-{2 * needed + 1}/2 or smoother, or latent='se'"
            )

    def stack(self, xp: Any, u: Any, order: int) -> Iterator[Any]:
        """Yield h_0 ... h_`order` of `u` in `xp`; beyond 2p they jump at zero, where only multiples of u are used."""
        kappa = self._kappa
        r = kappa * xp.abs(u)
        decay, sign = xp.exp(-r), xp.sign(u)
        for m, polynomial in enumerate(self._polynomials(order)):
            value = polynomial[-1] + 0 * r
            for coefficient in reversed(polynomial[:-1]):
                value = value * r + coefficient
            value = kappa**m * value * decay
            yield value * sign if m % 2 else value

    def antiderivatives(self, u: Array) -> tuple[Array, Array]:
        """Return h_(-2) and h_(-1) at `u`, both zero at zero: ``q_(m-1) = -(q_m + q_m' + q_m'' + ...)`` leads down."""
        kappa, polynomial = self._kappa, np.polynomial.Polynomial(self._polynomials(0)[0])
        downward = []
        for _ in range(2):
            sums = sum((polynomial.deriv(k) for k in range(1, polynomial.degree() + 1)), polynomial)
            polynomial = -sums
            downward.append(polynomial)
        r = kappa * np.abs(u)
        decay, (once, twice) = np.exp(-r), downward
        first = np.sign(u) * (once(r) * decay - once(0.0)) / kappa
        return (twice(r) * decay - twice(0.0) - once(0.0) * r) / kappa**2, first

    def tilt(self, contracted: Array, lagged: Array | None) -> Array:
        """Return ``-m h_m - u h_(m+1)``, `contracted` and `lagged`."""
        assert lagged is not None  # noqa: S101
        orders = contracted.shape[-1] - 1
        return np.asarray(-np.arange(orders) * contracted[..., :orders] - lagged[..., 1:])

    def density(self, frequencies: Array, lengthscale: float) -> Array:
        """Return the density for a `lengthscale`; it falls as the power 2p + 2 of the `frequencies`."""
        return np.exp(self.log_density(frequencies, lengthscale))

    def log_density(self, frequencies: Array, lengthscale: float | Array) -> Array:
        """Return ``log(scale rate^(2p+1) / (rate^2 + w^2)^(p+1))``: `frequencies` w, rate kappa / `lengthscale`."""
        nu, rate = self.p + 0.5, self._kappa / lengthscale
        log_scale = math.log(2.0) + 0.5 * math.log(math.pi) + math.lgamma(nu + 0.5) - math.lgamma(nu)
        return np.asarray(log_scale + 2.0 * nu * np.log(rate) - (nu + 0.5) * np.log(rate**2 + frequencies**2))

    def log_density_tilt(self, frequencies: Array, lengthscale: float | Array) -> Array:
        """Return ``(2p+2) rate^2 / (rate^2 + w^2) - (2p+1)``: `frequencies` w, rate kappa / `lengthscale`."""
        square = (self._kappa / lengthscale) ** 2
        return np.asarray((2 * self.p + 2) * square / (square + frequencies**2) - (2 * self.p + 1))

    def band(self, order: int, eps: float) -> float:
        """Return infinity: no moderate band is enough, whatever `order` and `eps`."""
        return math.inf

    def reach(self, order: int, eps: float) -> float:
        """Return infinity, whatever `order` and `eps`: nothing asks where there is no band."""
        return math.inf

    def state_space(self, lengthscale: float) -> ProcessStates | None:
        """Return ``(d + rate)^(p+1) z = w`` as a state space (Hartikainen and Sarkka 2010)."""
        size, rate = self.p + 1, self._kappa / lengthscale
        matrix = np.diag(np.ones(self.p), 1)
        matrix[-1] = [-math.comb(size, k) * rate ** (size - k) for k in range(size)]
        intensity = (2.0 * rate) ** (2 * self.p + 1) * math.factorial(self.p) ** 2 / math.factorial(2 * self.p)
        return ProcessStates(matrix, intensity)
