"""Kernels of the free functions (squared exponential, Matern), as stacks of derivatives in scaled lag.

With ``u = tau/ell`` a stationary covariance is ``k(tau) = sigma^2 h_0(u)``, and its m-th derivative in tau is
``sigma^2 ell^-m h_m(u)``. The stack h_0 ... h_m depends on u alone; lengthscale and signal variance enter as small
coefficients. Stacks follow the array API: they work on NumPy arrays and on PyTorch tensors alike.

A new kernel is a class that follows the protocol `Kernel` and an entry of `KERNEL_FAMILIES`. Band-limited kernels also
work with the spectral engine, kernels with a state space (Hartikainen and Sarkka 2010) as disturbances.

The covariance of two averages is an average of the covariance over lags: in closed form by differences of
antiderivatives for windows that are long compared with the lengthscale, and by Gauss-Legendre quadrature, split at
kinks of the kernel, for short ones, where these differences would cancel.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np
from scipy.special import erf, eval_hermitenorm, factorial2, gammainccinv

from lodekit.errors import LodekitError
from lodekit.support.arguments import Array, IndexArray
from lodekit.support.text import format_count

#: The smoothest process with a state space: states of smoother ones are numerically dependent over short steps.
MAX_MATERN_ORDER = 10
#: The largest p of ``matern-p/2``: smoother ones cannot be distinguished from the squared exponential.
MAX_MATERN_NUMERATOR = 131
#: Windows up to this many lengthscales are averaged by Gauss-Legendre quadrature, longer ones in closed form.
MAX_QUADRATURE_WINDOW = 2.0
#: Gauss-Legendre rules for windows up to half a lengthscale, and for longer ones.
_SHORT_RULE, _LONG_RULE = (np.polynomial.legendre.leggauss(count) for count in (7, 12))


def match_array(xp: Any, value: Array, like: Any) -> Any:
    """Return a constant as an array of another array's library, dtype and device."""
    # A fit makes thousands of small evaluations, so NumPy arrays are passed through.
    return value if xp is np else xp.asarray(value, dtype=like.dtype, device=like.device)


#: A process of unit variance as the first state of ``x' = F x + (0, ..., 0, 1) w`` with white noise w: F in companion
#: form, (s, s), whose states are the process and its derivatives, and the spectral density of w.
KernelStateSpace = tuple[Array, float]


class Kernel(Protocol):
    """A stationary covariance of unit variance, as a function of the scaled lag u."""

    @property
    def name(self) -> str:
        """The name that users write."""

    @property
    def extra_derivatives(self) -> int:
        """The number of additional derivatives that the gradient in the lengthscale needs."""

    @property
    def needs_lag_products(self) -> bool:
        """Whether the gradient in the lengthscale needs products of the lag with the stack."""

    @property
    def is_band_limited(self) -> bool:
        """Whether its spectrum is negligible, to any tolerance, above a moderate frequency."""

    @property
    def smoothness(self) -> float:
        """The number of derivatives of its functions; may be infinite."""

    @property
    def max_frequency(self) -> float:
        """The angular frequency, times the lengthscale, above which its spectrum is small."""

    def check_order(self, order: int) -> None:
        """Raise if the covariance has no derivative of this order."""

    def derivatives(self, xp: Any, u: Any, order: int) -> Iterator[Any]:
        """Yield h_0 ... h_order, each computed from those before it."""

    def lengthscale_derivative(self, contracted: Array, lagged: Array | None) -> Array:
        """Return the derivative of contractions of ``ell^-m h_m`` in log ell, times ell^m.

        Shapes: contracted (..., orders + extra).
        """

    def log_density(self, frequencies: Array, lengthscale: float | Array) -> Array:
        """Return the logarithm of the spectral density: the Fourier transform over angular frequencies."""

    def log_density_lengthscale_derivative(self, frequencies: Array, lengthscale: float | Array) -> Array:
        """Return the derivative of the logarithm of the spectral density in log ell."""

    def bandwidth(self, order: int, eps: float) -> float:
        """Return R with all but `eps` of the variance of the derivative of an `order` at frequencies below R / ell."""

    def correlation_range(self, order: int, eps: float) -> float:
        """Return u beyond which h_0, h_2 ... up to twice the `order` are below `eps` of their values at zero."""

    def state_space(self, lengthscale: float) -> KernelStateSpace | None:
        """Return the process as a state space driven by white noise; None if it has none."""


@dataclass(frozen=True)
class SquaredExponential:
    """``exp(-u^2/2)``: infinitely differentiable.

    Fields are constants: see `Kernel`.
    """

    name: str = "se"
    extra_derivatives: int = 2
    needs_lag_products: bool = False
    is_band_limited: bool = True
    smoothness: float = math.inf
    max_frequency: float = 9.0  # where its density has fallen to e^-40, below rounding

    def check_order(self, order: int) -> None:
        """Accept any order."""

    def derivatives(self, xp: Any, u: Any, order: int) -> Iterator[Any]:
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

    def lengthscale_derivative(self, contracted: Array, lagged: Array | None) -> Array:
        """Return ``h_(m+2) + h_m`` from `contracted`; `lagged` is not needed."""
        return np.asarray(contracted[..., 2:] + contracted[..., :-2])

    def log_density(self, frequencies: Array, lengthscale: float | Array) -> Array:
        """Return ``log(2 pi)/2 + log ell - (w ell)^2/2`` at `frequencies` w with `lengthscale` ell."""
        return np.asarray(0.5 * np.log(2.0 * np.pi) + np.log(lengthscale) - 0.5 * (frequencies * lengthscale) ** 2)

    def log_density_lengthscale_derivative(self, frequencies: Array, lengthscale: float | Array) -> Array:
        """Return ``1 - (w ell)^2`` at `frequencies` w with `lengthscale` ell."""
        return np.asarray(1.0 - (frequencies * lengthscale) ** 2)

    @staticmethod
    @lru_cache(maxsize=512)
    def bandwidth(order: int, eps: float) -> float:
        """Return R with all but `eps` of ``int w^(2 order) exp(-w^2/2)`` below it."""
        return float(np.sqrt(2.0 * gammainccinv(order + 0.5, max(eps, 1e-280))))  # the limit prevents underflow

    @staticmethod
    @lru_cache(maxsize=512)
    def correlation_range(order: int, eps: float) -> float:
        """Return u beyond which derivatives up to twice the `order` are below `eps` of those at zero."""
        # Beyond the last lag the kernel is zero in floats, even times the polynomials of its derivatives.
        u = np.linspace(0.0, 45.0, 9001)
        largest = np.zeros_like(u)
        for m in range(order + 1):
            size = float(factorial2(2 * m - 1)) if m else 1.0
            largest = np.maximum(largest, np.abs(eval_hermitenorm(2 * m, u)) * np.exp(-0.5 * u**2) / size)
        above = np.flatnonzero(largest > max(eps, 1e-280))
        return float(u[min(above[-1] + 1, len(u) - 1)])

    def state_space(self, lengthscale: float) -> KernelStateSpace | None:
        """Return nothing: an infinitely smooth process has no finite state."""
        return None


#: The covariance of each channel under the channel prior.
CHANNEL_KERNEL = SquaredExponential()


@dataclass(frozen=True)
class Matern:
    """Half-integer Matern covariance of smoothness p + 1/2: p times mean-square differentiable.

    All fields but p are constants: see `Kernel`.
    """

    p: int
    extra_derivatives: int = 1
    needs_lag_products: bool = True
    is_band_limited: bool = False

    @property
    def name(self) -> str:
        """The name that users write: ``matern-7/2``."""
        return f"matern-{2 * self.p + 1}/2"

    @property
    def smoothness(self) -> float:
        """The number of derivatives of its functions."""
        return self.p

    @property
    def max_frequency(self) -> float:
        """The frequency at which its spectrum, which decays by a power law, has dropped to a thousandth or less."""
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
            polynomials.append([k * a - b for k, (a, b) in enumerate(zip([*last[1:], 0.0], last, strict=True), 1)])
        return polynomials

    def check_order(self, order: int) -> None:
        """Raise if the covariance has no derivative of this order."""
        if order > 2 * self.p:
            needed = (order + 1) // 2
            derivatives = format_count(needed, "derivative")
            raise LodekitError(
                f"{self.name} is too rough: the observables need {derivatives} of a free function, so use "
                f"matern-{2 * needed + 1}/2 or smoother, or latent='se'"
            )

    def derivatives(self, xp: Any, u: Any, order: int) -> Iterator[Any]:
        """Yield h_0 ... h_`order` of `u` in `xp`; beyond 2p they jump at zero, and only multiples of u are used."""
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
        """Return h_(-2) and h_(-1) at `u`, both zero at zero, by ``q_(m-1) = -(q_m + q_m' + q_m'' + ...)``."""
        kappa, polynomial = self._kappa, np.polynomial.Polynomial(self._polynomials(0)[0])
        once, twice = (
            polynomial := -sum((polynomial.deriv(k) for k in range(1, polynomial.degree() + 1)), polynomial)
            for _ in range(2)
        )
        r = kappa * np.abs(u)
        decay = np.exp(-r)
        first = np.sign(u) * (once(r) * decay - once(0.0)) / kappa
        return (twice(r) * decay - twice(0.0) - once(0.0) * r) / kappa**2, first

    def lengthscale_derivative(self, contracted: Array, lagged: Array | None) -> Array:
        """Return ``-m h_m - u h_(m+1)`` from `contracted` and `lagged`."""
        assert lagged is not None  # noqa: S101
        orders = contracted.shape[-1] - 1
        return np.asarray(-np.arange(orders) * contracted[..., :orders] - lagged[..., 1:])

    def log_density(self, frequencies: Array, lengthscale: float | Array) -> Array:
        """Return ``log(scale rate^(2p+1) / (rate^2 + w^2)^(p+1))``: `frequencies` w, rate kappa / `lengthscale`."""
        nu, rate = self.p + 0.5, self._kappa / lengthscale
        log_scale = math.log(2.0) + 0.5 * math.log(math.pi) + math.lgamma(nu + 0.5) - math.lgamma(nu)
        return np.asarray(log_scale + 2.0 * nu * np.log(rate) - (nu + 0.5) * np.log(rate**2 + frequencies**2))

    def log_density_lengthscale_derivative(self, frequencies: Array, lengthscale: float | Array) -> Array:
        """Return ``(2p+2) rate^2 / (rate^2 + w^2) - (2p+1)``: `frequencies` w, rate kappa / `lengthscale`."""
        square = (self._kappa / lengthscale) ** 2
        return np.asarray((2 * self.p + 2) * square / (square + frequencies**2) - (2 * self.p + 1))

    def bandwidth(self, order: int, eps: float) -> float:
        """Return infinity: no moderate bandwidth suffices for any `order` and `eps`."""
        return math.inf

    def correlation_range(self, order: int, eps: float) -> float:
        """Return infinity for any `order` and `eps`: without a bandwidth, it is not used."""
        return math.inf

    def state_space(self, lengthscale: float) -> KernelStateSpace | None:
        """Return ``(d + rate)^(p+1) z = w`` as a state space (Hartikainen and Sarkka 2010)."""
        size, rate = self.p + 1, self._kappa / lengthscale
        matrix = np.diag(np.ones(self.p), 1)
        matrix[-1] = [-math.comb(size, k) * rate ** (size - k) for k in range(size)]
        intensity = (2.0 * rate) ** (2 * self.p + 1) * math.factorial(self.p) ** 2 / math.factorial(2 * self.p)
        return matrix, intensity


def _parse_matern(name: str) -> Kernel | None:
    match = re.fullmatch(r"matern-([0-9]{1,3})/2", name)
    numerator = int(match[1]) if match else 0
    return Matern((numerator - 1) // 2) if numerator % 2 and numerator <= MAX_MATERN_NUMERATOR else None


#: All covariances that ``latent=`` may name: their spelling in messages, and the parser, which returns None otherwise.
KERNEL_FAMILIES: dict[str, Callable[[str], Kernel | None]] = {
    "'se'": lambda name: SquaredExponential() if name == "se" else None,
    f"'matern-p/2' with odd p up to {MAX_MATERN_NUMERATOR}, such as 'matern-7/2'": _parse_matern,
}


#: Names in other libraries.
_KERNEL_ALIASES = {
    **dict.fromkeys(("se", "rbf", "gaussian", "squaredexponential", "expquad", "exponentiatedquadratic"), "se"),
    **{f"matern{p}2": f"matern-{p}/2" for p in (1, 3, 5, 7)},
}


def parse_kernel(name: str) -> Kernel:
    """Return the covariance with a given name: ``se``, ``matern-5/2``.

    Examples
    --------
    >>> parse_kernel("matern-5/2").name
    'matern-5/2'
    >>> parse_kernel("Matern 5/2")
    Traceback (most recent call last):
    lodekit.errors.LodekitError: expected latent='se' or 'matern-p/2' with odd p up to 131, such as 'matern-7/2', got
    'Matern 5/2', which is called 'matern-5/2' here
    """
    for parse in KERNEL_FAMILIES.values() if isinstance(name, str) else ():
        kernel = parse(name)
        if kernel is not None:
            return kernel
    expected = " or ".join(KERNEL_FAMILIES)
    other = _KERNEL_ALIASES.get(str(name).lower().translate(str.maketrans("", "", "-_/ ")))
    raise LodekitError(
        f"expected latent={expected}, got {name!r}{f', which is called {other!r} here' if other else ''}"
    )


@runtime_checkable
class IntegrableKernel(Protocol):
    """A covariance with known antiderivatives."""

    def antiderivatives(self, u: Array) -> tuple[Array, Array]:
        """Return h_(-2) and h_(-1) at scaled lags u: the second and first antiderivatives of h_0, even and odd."""


def group_by_window(windows: Array) -> list[tuple[float, IndexArray]]:
    """Return the distinct windows, and the indices of the observables with each.

    Shapes: windows (o,).

    Examples
    --------
    >>> [(h, rows.tolist()) for h, rows in group_by_window(np.array([0.0, 0.5, 0.0]))]
    [(0.0, [0, 2]), (0.5, [1])]
    """
    return [(float(h), np.flatnonzero(windows == h)) for h in np.unique(windows)]


def average_kernel_derivatives(
    kernel: Kernel, lag: Array, lengthscale: float, windows: tuple[float, float], order: int
) -> Array:
    """Return h_0 ... h_order, averaged over the intervals that end at two times, shape (order + 1, ...)."""
    return np.asarray(average_kernel_with_lag(kernel, lag, lengthscale, windows, order, with_lag=False)[0])


def average_kernel_with_lag(
    kernel: Kernel, lag: Array, lengthscale: float, windows: tuple[float, float], order: int, *, with_lag: bool
) -> Array:
    """Return the same, and with `with_lag` averages of ``u h_m`` (except order zero): (1 or 2, order + 1, ...)."""
    first, second = windows[0] / lengthscale, windows[1] / lengthscale
    u = lag / lengthscale
    is_long = [length > MAX_QUADRATURE_WINDOW for length in (first, second)]
    if any(is_long) and not isinstance(kernel, IntegrableKernel):
        raise LodekitError(
            f"the covariance {kernel.name} has no antiderivative, so averages over more than "
            f"{MAX_QUADRATURE_WINDOW:g} lengthscales are not supported; use latent='se' or a Matern covariance"
        )
    breaks = bool(np.isfinite(kernel.smoothness))

    def points(depth: int) -> Callable[[Array], Array]:
        return lambda at: _integrate_derivatives(kernel, at, order, depth, with_lag=with_lag)

    if all(is_long):
        twice = points(2)
        corners = ((1.0, second), (1.0, -first), (-1.0, second - first), (-1.0, 0.0))
        return np.asarray(sum(sign * twice(u + shift) for sign, shift in corners)) / (first * second)
    if is_long[0]:
        ends = (_average_by_quadrature(points(1), at, 0.0, second, has_kink=breaks) for at in (u, u - first))
    elif is_long[1]:
        ends = (_average_by_quadrature(points(1), at, first, 0.0, has_kink=breaks) for at in (u + second, u))
    else:
        return _average_by_quadrature(points(0), u, first, second, has_kink=breaks)
    late, early = ends
    return np.asarray((late - early) / max(first, second))


def _integrate_derivatives(kernel: Kernel, u: Array, order: int, depth: int, *, with_lag: bool) -> Array:
    """Return the `depth`-fold antiderivatives of h_0 ... h_order, and of u h_m."""
    # The list starts with h_(-2).
    known = list(kernel.antiderivatives(u)) if depth and isinstance(kernel, IntegrableKernel) else [u, u]
    known += list(kernel.derivatives(np, u, order))
    found = np.empty((2 if with_lag else 1, order + 1, *u.shape))
    for m in range(order + 1):
        place = m + 2 - depth
        found[0, m] = known[place]
        if with_lag and m:
            # The antiderivatives of u h_m are u h_(m-1) - h_(m-2) and u h_(m-2) - 2 h_(m-3).
            found[1, m] = u * known[place] - depth * known[place - 1] if depth else u * known[place]
        elif with_lag:
            found[1, m] = 0.0
    return found


def _average_by_quadrature(
    function: Callable[[Array], Array], u: Array, first: float, second: float, *, has_kink: bool
) -> Array:
    """Return the mean of functions of ``u - a + b`` over ``0 <= a <= first`` and ``0 <= b <= second``, both short."""
    if not first and not second:
        return function(u)
    # The density of b - a is a trapezium.
    corners = sorted([-first, min(0.0, second - first), max(0.0, second - first), second])
    points, weights = _SHORT_RULE if max(first, second) <= 0.5 else _LONG_RULE
    edges: list[Array] = [np.full(u.shape, corner) for corner in corners]
    if has_kink:
        edges = list(np.sort(np.stack([*edges, np.clip(-u, -first, second)]), axis=0))
    shares, places = [], []
    for low, high in pairwise(edges):
        width = high - low
        if not (width > 0).any():
            continue
        for point, weight in zip(points, weights, strict=True):
            s = low + width * (0.5 * (1.0 + point))
            height = 1.0 if not first or not second else np.minimum(s + first, second - s) / min(first, second)
            shares.append(0.5 * weight * width * np.minimum(1.0, height) / max(first, second))
            places.append(u + s)
    # Chunks of about 20,000 lags: with small arrays, many nodes at once.
    chunk = max(1, 20_000 // max(u.size, 1))
    parts = [slice(start, start + chunk) for start in range(0, len(places), chunk)]
    return np.asarray(sum(np.sum(function(np.stack(places[p])) * np.stack(shares[p]), axis=2) for p in parts))
