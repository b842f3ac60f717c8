"""The prior of the free functions in frequency: sums of waves, each an exact solution of the equations.

By the trapezoidal rule in frequency a smooth stationary process is a sum of independent waves, exact to any tolerance
when the period is long and the band is wide enough. On a wave a differential operator is a number,
``W(d) e^(iwt) = W(iw) e^(iwt)``; so whatever is cut off, what remains solves the equations.

A spectrum turns operators into the coefficients of *whitened* waves, those of standard normal amplitudes, and pulls
derivatives in these coefficients back to derivatives in everything that is learned.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lodekit.prior.latents import CHANNEL_LATENT, Latent
from lodekit.prior.points import Point, Pulled, powers_of

__all__ = [
    "MOST_WAVES",
    "Frequencies",
    "LatentSpectrum",
    "Spectrum",
]

Array = NDArray[np.float64]
ComplexArray = NDArray[np.complex128]
#: Lengthscales, periods and bands are rounded to powers of this, so that most evaluations share their waves.
_ROUND = 2.0**0.25
#: No more waves than this in all; beyond, a window is too long for its lengthscales.
MOST_WAVES = 2000


@dataclass(frozen=True)
class Frequencies:
    """The frequencies of the waves of all processes, one process after the other.

    Parameters
    ----------
    steps : tuple of float
        The distance of frequencies, for each process; 2 pi / step is its period.
    counts : tuple of int
        How many frequencies each process has, zero included.
    reach : tuple of float
        The lag beyond which a process knows nothing of itself, to the tolerance.
    missed : float
        What covariances over the window miss, in units of the noise; zero where that is below the tolerance by a rule.
    """

    steps: tuple[float, ...]
    counts: tuple[int, ...]
    reach: tuple[float, ...]
    missed: float = 0.0

    @property
    def key(self) -> Hashable:
        """Something that is the same for the same frequencies."""
        return self.steps, self.counts

    @cached_property
    def values(self) -> Array:
        """All frequencies, in scaled time."""
        parts = [step * np.arange(count) for step, count in zip(self.steps, self.counts, strict=True)]
        return np.concatenate(parts) if parts else np.zeros(0)

    @cached_property
    def process(self) -> NDArray[np.intp]:
        """Which process each frequency belongs to."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @cached_property
    def weights(self) -> Array:
        """The share of the spectral density that each frequency stands for; those above zero stand for two."""
        parts = [
            np.where(np.arange(count) == 0, 1.0, 2.0) * step / (2.0 * np.pi)
            for step, count in zip(self.steps, self.counts, strict=True)
        ]
        return np.concatenate(parts) if parts else np.zeros(0)


class Spectrum(Protocol):
    """A prior over the free functions in frequency."""

    def band(self, order: int, eps: float) -> float:
        """Return R with all but eps of the variance of a derivative at frequencies below R / ell, for all processes.

        Parameters
        ----------
        order : int
            Of the derivative.
        eps : float
        """

    def coefficients(self, frequencies: Frequencies, point: Point) -> ComplexArray:
        """Return the coefficients of the observables on the whitened waves, shape (o, f).

        Parameters
        ----------
        frequencies : Frequencies
        point : Point
        """

    def pull(self, frequencies: Frequencies, point: Point, slope: ComplexArray) -> Pulled:
        """Return derivatives of E where ``dE = Re sum conj(slope) d(coefficients)``.

        Parameters
        ----------
        frequencies : Frequencies
        point : Point
        slope : array, shape (o, f)
        """


def _round_down(value: float) -> float:
    return float(_ROUND ** np.floor(np.log(value) / np.log(_ROUND)))


@dataclass(frozen=True)
class LatentSpectrum:
    """The paper's prior: independent processes for the free functions, of covariances with a band.

    Parameters
    ----------
    latents : tuple of Latent
        One for each free function.
    """

    latents: tuple[Latent, ...]

    def band(self, order: int, eps: float) -> float:
        """Return the widest band to an `order` and `eps` of all free functions; a channel's where there are none."""
        return max((latent.band(order, eps) for latent in self.latents), default=CHANNEL_LATENT.band(order, eps))

    def frequencies(self, point: Point, eps: float, length: float) -> Frequencies:
        """Return waves at a `point`, exact to `eps` over a `length`; each covariance knows its band and period."""
        # The gradient in the lengthscale needs one order more.
        order = point.free.shape[-1]
        steps, counts, reaches = [], [], []
        for latent, lengthscale in zip(self.latents, point.lengthscales, strict=True):
            band, reach = latent.band(order, eps), latent.reach(order, eps)
            low = _round_down(float(lengthscale))
            steps.append(2.0 * np.pi / (length + reach * low * _ROUND))
            counts.append(int(np.ceil(band / low / steps[-1])) + 1)
            reaches.append(reach * float(lengthscale))
        return Frequencies(tuple(steps), tuple(counts), tuple(reaches))

    def _processes(self, frequencies: Frequencies, point: Point) -> Iterator[tuple[Latent, Array, float]]:
        """Yield the covariance, the frequencies and the lengthscale of each process."""
        parts = zip(self.latents, frequencies.steps, frequencies.counts, point.lengthscales, strict=True)
        for latent, step, count, lengthscale in parts:
            yield latent, step * np.arange(count, dtype=float), float(lengthscale)

    def _roots(self, frequencies: Frequencies, point: Point) -> Array:
        key = frequencies.key
        if key not in point.roots:
            point.roots[key] = self._make_roots(frequencies, point)
        found: Array = point.roots[key]
        return found

    def _make_roots(self, frequencies: Frequencies, point: Point) -> Array:
        parts = [latent.log_density(w, ell) for latent, w, ell in self._processes(frequencies, point)]
        log_density = np.concatenate([np.zeros(0), *parts])
        deviations = point.deviations[frequencies.process]
        return np.asarray(np.sqrt(frequencies.weights) * deviations * np.exp(0.5 * log_density))

    def coefficients(self, frequencies: Frequencies, point: Point) -> ComplexArray:
        """Return ``W(i w) sqrt(S)`` at `frequencies` w and a `point`."""
        powers = powers_of(frequencies.values, point.free.shape[-1])
        on_waves = np.einsum("ofk,kf->of", point.free[:, frequencies.process], powers)
        return np.asarray(on_waves * self._roots(frequencies, point) * point.averages(frequencies.values))

    def pull(self, frequencies: Frequencies, point: Point, slope: ComplexArray) -> Pulled:
        """Return derivatives at a `point` by `slope`, through ``W(i w) sqrt(S)`` at `frequencies` w."""
        free, w, process, count = point.free, frequencies.values, frequencies.process, len(frequencies.counts)
        powers = powers_of(w, free.shape[-1])
        rooted = np.conj(slope) * self._roots(frequencies, point) * point.averages(w)
        terms = (rooted[:, :, None] * powers.T).real
        own = np.zeros_like(free)
        edges = np.concatenate([[0], np.cumsum(frequencies.counts)]).astype(int)
        for number in range(count):
            own[:, number] = terms[:, edges[number] : edges[number + 1]].sum(axis=1)
        on_waves = np.einsum("ofk,kf->of", free[:, process], powers)
        # Half, because the root of the density enters; d log S / d log sigma = 2.
        in_log_density = 0.5 * np.sum((rooted * on_waves).real, axis=0)
        parts = [latent.log_density_tilt(own_w, ell) for latent, own_w, ell in self._processes(frequencies, point)]
        tilt = np.concatenate([np.zeros(0), *parts])
        return Pulled(
            own,
            np.zeros_like(point.channels),
            np.bincount(process, in_log_density * tilt, minlength=count).astype(float),
            np.bincount(process, 2.0 * in_log_density, minlength=count).astype(float),
        )
