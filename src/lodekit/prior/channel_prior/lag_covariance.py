"""The covariance of the channel prior over all pairs of some times, and derivatives through it.

As a function of the lag it has a band, so it is a short Chebyshev series: it is summed from waves at a few dozen lags,
and known at all pairs of times by one product of matrices, which depends on no hyperparameter. So an evaluation hardly
notices how many waves there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.prior.channel_prior.quadrature import FrequencyPanels, QuadratureTolerance, build_frequency_panels
from lodekit.prior.channel_prior.spectral_density import ConditionedDensity
from lodekit.prior.input_response.hold import chebyshev_basis, chebyshev_order, chebyshev_transform
from lodekit.prior.spectra import SpectralPoint, SpectrumGradient

Array = NDArray[np.float64]
#: Numbers of waves at all points of a series at most, some 300 MB.
MAX_WAVE_ENTRIES = 40_000_000
#: A basis over all pairs of times is kept up to so many numbers; of larger ones, pieces are made when they are needed.
#: A search comes across a dozen sizes of series: of all bases together so many numbers, 128 MB, are kept.
MAX_CACHED_BASIS_ENTRIES, MAX_CACHE_ENTRIES = 8_000_000, 16_000_000
#: What may be missed where waves serve again: a share of the noise; below a share of the variance all is rounding.
REUSE_TOLERANCE, MIN_VARIANCE_TOLERANCE = 1e-7, 1e-14


@dataclass(frozen=True)
class _ChebyshevWaves:
    """Waves of some panels at the lags where the covariance is summed, in the terms of its series."""

    panels: FrequencyPanels
    size: int
    #: Cosines and sines at the points of the series above zero, times the weights of the rule, shape (size / 2, f).
    cosines: Array
    sines: Array
    #: From values there to terms of even and of odd order, shape (size / 2, size / 2).
    to_even: Array
    to_odd: Array


@dataclass(frozen=True)
class TimeLags:
    """All pairs of some times.

    times: Scaled; (n,).
    max_window: How far averages reach back before their times.
    """

    times: Array
    max_window: float = 0.0
    #: The waves of the last point; none before the first.
    _last: list[_ChebyshevWaves] = field(default_factory=list, init=False, compare=False, repr=False)
    #: Even and odd terms of series of some sizes; whatever was asked for last stands last.
    _bases: dict[int, tuple[Array, Array]] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": [], "_bases": {}}

    @property
    def length(self) -> float:
        """The longest lag."""
        return max(float(np.ptp(self.times)), 1e-6)

    def covariance(self, point: SpectralPoint, noise_variance: Array) -> LagCovariance | None:
        """Return the covariance at a point; None where it is not finite. Waves of the last point serve again.

        Shapes: noise_variance (o,).
        """
        allowed = QuadratureTolerance(noise_variance, REUSE_TOLERANCE, MIN_VARIANCE_TOLERANCE)
        for waves in self._last:
            own = ConditionedDensity(waves.panels.frequencies, point)
            if waves.panels.is_accurate(own, allowed):
                return LagCovariance(self, own, waves)
        share = allowed.share(np.ones(1))
        panels = build_frequency_panels(point, self.length + self.max_window, share)
        if panels is None:
            return None
        own = ConditionedDensity(panels.frequencies, point)
        needed = allowed.share(own.observable_density @ panels.weights)
        if needed < 0.1 * share:
            panels = build_frequency_panels(point, self.length + self.max_window, needed)
            if panels is None:
                return None
            own = ConditionedDensity(panels.frequencies, point)
        size = chebyshev_order(float(panels.highs[-1]) * self.length)
        if size * max(size, len(panels.frequencies)) > MAX_WAVE_ENTRIES:
            # A window of very many lengthscales does not fit into memory so.
            return None
        self._last[:] = [self._build_waves(panels, size)]
        return LagCovariance(self, own, self._last[0])

    def _build_waves(self, panels: FrequencyPanels, size: int) -> _ChebyshevWaves:
        points, matrix = chebyshev_transform(size)
        # Cosines are even and sines are odd, so the points above zero are enough.
        half = size // 2
        angle = np.outer(self.length * points[:half], panels.frequencies)
        cosines, sines = np.cos(angle), np.sin(angle)
        cosines *= panels.weights
        sines *= panels.weights
        return _ChebyshevWaves(panels, size, cosines, sines, 2.0 * matrix[0::2, :half], -2.0 * matrix[1::2, :half])

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
        """Return the even and odd terms of a series for pairs of some times, from `start` to `stop`, with all."""
        lag = (self.times[start:stop, None] - self.times[None, :]).ravel() / self.length
        basis = chebyshev_basis(np.clip(lag, -1.0, 1.0), size)
        return np.ascontiguousarray(basis[0::2]), np.ascontiguousarray(basis[1::2])


@lru_cache(maxsize=64)
def _lower_triangle_index(count: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    return np.tril_indices(count)


@dataclass(frozen=True)
class LagCovariance:
    """The covariance of observables over all pairs of times.

    density: The density at the frequencies of the waves.
    """

    lags: TimeLags
    density: ConditionedDensity
    waves: _ChebyshevWaves

    @property
    def unresolved_share(self) -> float:
        """The share of a variance that may lie in peaks too narrow to be resolved."""
        return self.waves.panels.unresolved_share

    def blocks(self) -> Array:
        """Return the covariance, one row for each pair of observables, shape (o o, n n)."""
        X, waves, n = self.density.coefficients, self.waves, len(self.lags.times)
        first, second = _lower_triangle_index(len(X))
        P = np.sum(X[first] * np.conj(X[second]), axis=1)
        even, odd = P.real @ waves.cosines.T @ waves.to_even.T, P.imag @ waves.sines.T @ waves.to_odd.T
        lower = np.empty((len(first), n * n))
        for part, on_even, on_odd in self.lags.iterate_basis(waves.size):
            lower[:, part] = even @ on_even + odd @ on_odd
        total = np.empty((len(X), len(X), n, n))
        for number, (i, j) in enumerate(zip(first, second, strict=True)):
            block = lower[number].reshape(n, n)
            total[i, j] = block
            if i != j:
                total[j, i] = block.T
        return total.reshape(len(X) ** 2, n * n)

    def vjp(self, cotangents: Array) -> SpectrumGradient:
        """Return derivatives of E where ``dE = sum slopes d(blocks)``.

        Shapes: cotangents (o o, n n).
        """
        X, waves = self.density.coefficients, self.waves
        count, (first, second) = len(X), _lower_triangle_index(len(X))
        # Both orders of two observables count.
        lower = cotangents[first * count + second] * np.where(first == second, 1.0, 2.0)[:, None]
        even, odd = (np.zeros((len(first), waves.size // 2)) for _ in range(2))
        for part, on_even, on_odd in self.lags.iterate_basis(waves.size):
            even += lower[:, part] @ on_even.T
            odd += lower[:, part] @ on_odd.T
        gamma = even @ waves.to_even @ waves.cosines + 1j * (odd @ waves.to_odd @ waves.sines)
        slope = np.zeros_like(X)
        for number, (i, j) in enumerate(zip(first, second, strict=True)):
            slope[i] += gamma[number] * X[j]
            slope[j] += np.conj(gamma[number]) * X[i]
        return self.density.vjp(slope)
