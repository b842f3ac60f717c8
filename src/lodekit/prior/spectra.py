"""The prior of the free functions in frequency: sums of waves, each an exact solution of the equations.

By the trapezoidal rule in frequency a smooth stationary process is a sum of independent waves (its spectral
representation), exact to any tolerance if the period is long and the band wide enough. On a wave a differential
operator is a number, ``W(d) e^(iwt) = W(iw) e^(iwt)``, so a truncated sum still solves the equations.

A spectrum turns operators into the coefficients of *whitened* waves, those with standard normal amplitudes, and maps
derivatives in these coefficients back to derivatives in the hyperparameters.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from lodekit.prior.compile import Coefficients
from lodekit.prior.expm import averaging_response
from lodekit.prior.kernels import CHANNEL_KERNEL, Kernel
from lodekit.prior.prior import Hyperparameters
from lodekit.support.arguments import Array, ComplexArray, IndexArray


@dataclass(frozen=True)
class SpectrumGradient:
    """Derivatives of a scalar in the operators and hyperparameters of a spectrum.

    free, channels: In the coefficients of the observables, and of the channels; (o, q, k) and (c, q, k).
    log_lengthscales, log_amplitudes: In the logarithms of the hyperparameters; (q,).
    """

    free: Array
    channels: Array
    log_lengthscales: Array
    log_amplitudes: Array


@dataclass(frozen=True)
class SpectralPoint:
    """Operators and hyperparameters that determine a spectrum.

    free: Coefficients of the observables on the free functions; (o, q, k).
    channels: The same for all channels with the channel prior; empty otherwise; (c, q, k).
    lengthscales, deviations: Lengthscales and amplitudes of the free functions, or of the channels.
    windows: The intervals over which the observables are averaged; None if none is; (o,).
    """

    free: Array
    channels: Array
    lengthscales: Array
    deviations: Array
    windows: Array | None = None
    #: Roots of densities, shared by coefficients and derivatives.
    density_roots: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    @classmethod
    def from_hyperparameters(
        cls, coefficients: Coefficients, channels: Coefficients | None, hyper: Hyperparameters
    ) -> SpectralPoint:
        """Return the operators and hyperparameters of some observables."""
        on_channels = np.zeros((0, 0, 0)) if channels is None else channels.free
        return cls(coefficients.free, on_channels, hyper.lengthscales, hyper.amplitudes, coefficients.windows)

    def averaging_response(self, frequencies: Array) -> ComplexArray | float:
        """Return the frequency response of the averages, shape (o, f), or one without averages."""
        return 1.0 if self.windows is None else averaging_response(self.windows, frequencies)


def frequency_powers(frequencies: Array, count: int) -> ComplexArray:
    """Return ``(i w)^k``, shape (length, f): by products, so that even powers are real and odd ones imaginary.

    Shapes: frequencies (f,).

    Examples
    --------
    >>> frequency_powers(np.array([0.0, 3.0]), 3).tolist()
    [[(1+0j), (1+0j)], [0j, 3j], [0j, (-9+0j)]]
    """
    found = np.ones((count, len(frequencies)), dtype=complex)
    for k in range(1, count):
        np.multiply(found[k - 1], 1j * frequencies, out=found[k])
    return found


#: The largest number of waves; beyond, the window is too long for its lengthscales.
MAX_FOURIER_WAVES = 2000


#: Frequencies, (m,); rotation from amplitudes at the frequencies of the panels to those of the waves, (q, f, m);
#: amplitudes of the free functions in each wave, (q, m); the `FineDensity` on the panels; and the noise variances for
#: which the rule was built, (o,).
GaussRule = tuple[Array, ComplexArray, ComplexArray, Any, Array]


@dataclass(frozen=True)
class FourierFrequencies:
    """The frequencies of the waves of all processes, one process after the other.

    steps: The spacing of the frequencies of each process; 2 pi / step is its period.
    counts: The number of frequencies of each process, zero included.
    correlation_range: The lag beyond which a process is uncorrelated, to the tolerance.
    truncation_error: Error of covariances over the window, in units of the noise; zero if it is below the tolerance
        by construction.
    gauss_rule: The Gauss rule of the channel prior, with amplitudes of the free functions in place of weights; then
        there is one process, whose frequencies are not equidistant. None for equidistant frequencies.
    """

    steps: tuple[float, ...]
    counts: tuple[int, ...]
    correlation_range: tuple[float, ...]
    truncation_error: float = 0.0
    gauss_rule: GaussRule | None = field(default=None, compare=False, repr=False)

    @property
    def cache_key(self) -> Hashable:
        """A key that is equal for equal frequencies."""
        return (self.steps, self.counts) if self.gauss_rule is None else self.gauss_rule[0].tobytes()

    @cached_property
    def values(self) -> Array:
        """All frequencies, in scaled time."""
        if self.gauss_rule is not None:
            return self.gauss_rule[0]
        parts = [step * np.arange(count) for step, count in zip(self.steps, self.counts, strict=True)]
        return np.concatenate([np.zeros(0), *parts])

    @cached_property
    def process_index(self) -> IndexArray:
        """The index of the process of each frequency."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @cached_property
    def weights(self) -> Array:
        """The quadrature weight of each frequency; those above zero count twice, for their negatives."""
        steps = np.repeat(np.array(self.steps), self.counts)
        return np.asarray(np.where(self.values == 0, 1.0, 2.0) * steps / (2.0 * np.pi))


@dataclass(frozen=True)
class FreeFunctionSpectrum:
    """The paper's prior: independent processes for the free functions, with band-limited covariances.

    kernels: One for each free function.
    """

    kernels: tuple[Kernel, ...]

    def bandwidth(self, order: int, eps: float) -> float:
        """Return the largest bandwidth of the free functions for an `order` and `eps`; without any, a channel's."""
        return max(latent.bandwidth(order, eps) for latent in self.kernels or (CHANNEL_KERNEL,))

    def frequencies(self, point: SpectralPoint, eps: float, length: float) -> FourierFrequencies:
        """Return waves at a `point`, exact to `eps` over a `length`; each covariance has its own band and period."""
        # The gradient in the lengthscale needs one more order.
        order = point.free.shape[-1]
        steps, counts, reaches = [], [], []
        for latent, lengthscale in zip(self.kernels, point.lengthscales, strict=True):
            band, reach = latent.bandwidth(order, eps), latent.correlation_range(order, eps)
            # Rounded down to a power of 2^(1/4), so that most evaluations share their waves.
            ratio = 2.0**0.25
            low = float(ratio ** np.floor(np.log(float(lengthscale)) / np.log(ratio)))
            steps.append(2.0 * np.pi / (length + reach * low * ratio))
            counts.append(int(np.ceil(band / low / steps[-1])) + 1)
            reaches.append(reach * float(lengthscale))
        return FourierFrequencies(tuple(steps), tuple(counts), tuple(reaches))

    def _processes(
        self, frequencies: FourierFrequencies, point: SpectralPoint
    ) -> Iterator[tuple[Kernel, Array, float]]:
        """Yield the covariance, the frequencies and the lengthscale of each process."""
        parts = zip(self.kernels, frequencies.steps, frequencies.counts, point.lengthscales, strict=True)
        for latent, step, count, lengthscale in parts:
            yield latent, step * np.arange(count, dtype=float), float(lengthscale)

    def _density_roots(self, frequencies: FourierFrequencies, point: SpectralPoint) -> Array:
        key = frequencies.cache_key
        if key not in point.density_roots:
            parts = [latent.log_density(w, ell) for latent, w, ell in self._processes(frequencies, point)]
            log_density = np.concatenate([np.zeros(0), *parts])
            deviations = point.deviations[frequencies.process_index]
            point.density_roots[key] = np.sqrt(frequencies.weights) * deviations * np.exp(0.5 * log_density)
        return np.asarray(point.density_roots[key])

    def coefficients(self, frequencies: FourierFrequencies, point: SpectralPoint) -> ComplexArray:
        """Return ``W(i w) sqrt(S)`` at `frequencies` w and a `point`."""
        powers = frequency_powers(frequencies.values, point.free.shape[-1])
        on_waves = np.einsum("ofk,kf->of", point.free[:, frequencies.process_index], powers)
        roots = self._density_roots(frequencies, point)
        return np.asarray(on_waves * roots * point.averaging_response(frequencies.values))

    def vjp(self, frequencies: FourierFrequencies, point: SpectralPoint, cotangent: ComplexArray) -> SpectrumGradient:
        """Return derivatives at a `point` by `cotangent`, through ``W(i w) sqrt(S)`` at `frequencies` w."""
        free, w, process, count = point.free, frequencies.values, frequencies.process_index, len(frequencies.counts)
        powers = frequency_powers(w, free.shape[-1])
        rooted = np.conj(cotangent) * self._density_roots(frequencies, point) * point.averaging_response(w)
        terms = (rooted[:, :, None] * powers.T).real
        in_free = np.zeros_like(free)
        for number, part in enumerate(np.split(terms, np.cumsum(frequencies.counts)[:-1], axis=1)[:count]):
            in_free[:, number] = part.sum(axis=1)
        on_waves = np.einsum("ofk,kf->of", free[:, process], powers)
        # The factor 1/2 is from the root of the density; d log S / d log sigma = 2.
        in_log_density = 0.5 * np.sum((rooted * on_waves).real, axis=0)
        processes = self._processes(frequencies, point)
        parts = [latent.log_density_lengthscale_derivative(own_w, ell) for latent, own_w, ell in processes]
        tilt = np.concatenate([np.zeros(0), *parts])
        lengthscales, amplitudes = (
            np.bincount(process, values, minlength=count).astype(float)
            for values in (in_log_density * tilt, 2.0 * in_log_density)
        )
        return SpectrumGradient(in_free, np.zeros_like(point.channels), lengthscales, amplitudes)
