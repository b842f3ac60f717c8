"""The covariance of the channel prior over all pairs of times, with derivatives, by Chebyshev interpolation.

As a function of the lag it is band-limited, so it is a short Chebyshev series: waves are summed at a few dozen lags,
and one matrix product, which depends on no hyperparameter, gives the covariance at all pairs of times. The cost hardly
depends on the number of waves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from lodekit.prior.channel_prior.quadrature import FrequencyPanels, QuadratureTolerance, build_frequency_panels
from lodekit.prior.channel_prior.spectral_density import ConditionedDensity
from lodekit.prior.input_response.hold import chebyshev_basis, chebyshev_order, chebyshev_transform
from lodekit.prior.spectra import SpectralPoint, SpectrumGradient
from lodekit.support.arguments import Array, IndexArray

#: A basis over all pairs of times is cached up to the first number of entries, larger ones are computed in pieces.
#: All cached bases together have at most the second number of entries, 128 MB.
MAX_CACHED_BASIS_ENTRIES, MAX_CACHE_ENTRIES = 8_000_000, 16_000_000
#: Panels, size of the series, cosines and sines at its points above zero times quadrature weights, (size / 2, f), and
#: the matrices from values there to terms of even and of odd order, (size / 2, size / 2).
_Waves = tuple[FrequencyPanels, int, Array, Array, Array, Array]


@dataclass(frozen=True)
class TimeLags:
    """All pairs of some times.

    times: Scaled; (n,).
    max_window: The longest averaging interval before a time.
    """

    times: Array
    max_window: float = 0.0
    #: The waves of the last point; empty before the first.
    _last: list[_Waves] = field(default_factory=list, init=False, compare=False, repr=False)
    #: Even and odd terms of series by size, least recently used first.
    _bases: dict[int, tuple[Array, Array]] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": [], "_bases": {}}

    @property
    def length(self) -> float:
        """The longest lag."""
        return max(float(np.ptp(self.times)), 1e-6)

    def covariance(self, point: SpectralPoint, noise_variance: Array) -> LagCovariance | None:
        """Return the covariance at a point, with the last waves if accurate; None if it is not finite or too large.

        Shapes: noise_variance (o,).
        """
        # Errors of reused waves, relative to the noise; below the second tolerance, all is rounding error.
        allowed = QuadratureTolerance(noise_variance, 1e-7, 1e-14)
        for waves in self._last:
            density = ConditionedDensity(waves[0].frequencies, point)
            if waves[0].is_accurate(density, allowed):
                return LagCovariance(self, density, waves)
        share, variances = np.inf, np.ones(1)
        while (needed := allowed.share(variances)) < 0.1 * share:
            share = needed
            panels = build_frequency_panels(point, self.length + self.max_window, share)
            if panels is None:
                return None
            density = ConditionedDensity(panels.frequencies, point)
            variances = density.observable_density @ panels.weights
        assert panels is not None  # noqa: S101  # the first share is finite
        size = chebyshev_order(float(panels.highs[-1]) * self.length)
        if size * max(size, len(panels.frequencies)) > 40_000_000:  # some 300 MB
            return None
        self._last[:] = [self._build_waves(panels, size)]
        return LagCovariance(self, density, self._last[0])

    def _build_waves(self, panels: FrequencyPanels, size: int) -> _Waves:
        points, matrix = chebyshev_transform(size)
        # Cosines are even and sines are odd, so the points above zero are enough.
        half = size // 2
        angle = np.outer(self.length * points[:half], panels.frequencies)
        cosines, sines = np.cos(angle), np.sin(angle)
        cosines *= panels.weights
        sines *= panels.weights
        return panels, size, cosines, sines, 2.0 * matrix[0::2, :half], -2.0 * matrix[1::2, :half]

    def iterate_basis(self, size: int) -> Iterator[tuple[slice, Array, Array]]:
        """Yield pieces of all pairs of times, and the even and odd terms of a series there, shape (size / 2, pairs)."""
        n = len(self.times)
        rows = max(1, int(MAX_CACHED_BASIS_ENTRIES // max(size * n, 1)))
        if rows < n:
            for start in range(0, n, rows):
                stop = min(start + rows, n)
                yield slice(start * n, stop * n), *self._basis_terms(size, start, stop)
            return
        terms = self._bases.pop(size, None) or self._basis_terms(size, 0, n)
        while self._bases and (sum(self._bases) + size) * n * n > MAX_CACHE_ENTRIES:
            self._bases.pop(next(iter(self._bases)))
        self._bases[size] = terms
        yield slice(0, n * n), *terms

    def _basis_terms(self, size: int, start: int, stop: int) -> tuple[Array, Array]:
        """Return the even and odd terms of a series for pairs of the times from `start` to `stop` with all times."""
        lag = (self.times[start:stop, None] - self.times[None, :]).ravel() / self.length
        basis = chebyshev_basis(np.clip(lag, -1.0, 1.0), size)
        return np.ascontiguousarray(basis[0::2]), np.ascontiguousarray(basis[1::2])


@lru_cache(maxsize=64)
def _lower_triangle_index(count: int) -> tuple[IndexArray, IndexArray]:
    return np.tril_indices(count)


@dataclass(frozen=True)
class LagCovariance:
    """The covariance of observables over all pairs of times.

    density: The density at the frequencies of the waves.
    """

    lags: TimeLags
    density: ConditionedDensity
    waves: _Waves

    @property
    def unresolved_share(self) -> float:
        """The share of a variance that may be in peaks too narrow to be resolved."""
        return self.waves[0].unresolved_share

    def blocks(self) -> Array:
        """Return the covariance, one row for each pair of observables, shape (o o, n n)."""
        X, n = self.density.coefficients, len(self.lags.times)
        _, size, cosines, sines, to_even, to_odd = self.waves
        first, second = _lower_triangle_index(len(X))
        P = np.sum(X[first] * np.conj(X[second]), axis=1)
        even, odd = P.real @ cosines.T @ to_even.T, P.imag @ sines.T @ to_odd.T
        lower = np.empty((len(first), n * n))
        for part, on_even, on_odd in self.lags.iterate_basis(size):
            lower[:, part] = even @ on_even + odd @ on_odd
        total = np.empty((len(X), len(X), n, n))
        for number, (i, j) in enumerate(zip(first, second, strict=True)):
            total[i, j] = lower[number].reshape(n, n)
            if i != j:
                total[j, i] = total[i, j].T
        return total.reshape(len(X) ** 2, n * n)

    def vjp(self, cotangents: Array) -> SpectrumGradient:
        """Return derivatives of E with ``dE = sum cotangents d(blocks)``.

        Shapes: cotangents (o o, n n).
        """
        X = self.density.coefficients
        _, size, cosines, sines, to_even, to_odd = self.waves
        count, (first, second) = len(X), _lower_triangle_index(len(X))
        # Each pair of different observables occurs in both orders.
        lower = cotangents[first * count + second] * np.where(first == second, 1.0, 2.0)[:, None]
        even, odd = np.zeros((2, len(first), size // 2))
        for part, on_even, on_odd in self.lags.iterate_basis(size):
            even += lower[:, part] @ on_even.T
            odd += lower[:, part] @ on_odd.T
        gamma = even @ to_even @ cosines + 1j * (odd @ to_odd @ sines)
        slope = np.zeros_like(X)
        for number, (i, j) in enumerate(zip(first, second, strict=True)):
            slope[i] += gamma[number] * X[j]
            slope[j] += np.conj(gamma[number]) * X[i]
        return self.density.vjp(slope)
