"""The prior of the free functions in frequency: sums of waves, each an exact solution of the equations.

By the trapezoidal rule in frequency a smooth stationary process is a sum of independent waves, exact to any tolerance
when the period is long and the band is wide enough. On a wave a differential operator is a number,
``W(d) e^(iwt) = W(iw) e^(iwt)``; so whatever is cut off, what remains solves the equations.

A spectrum turns operators into the coefficients of *whitened* waves, those of standard normal amplitudes, and pulls
derivatives in these coefficients back to derivatives in everything that is learned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.fft import next_fast_len, rfft

from lodekit.prior.conditioned import Conditioned
from lodekit.prior.latents import CHANNEL_LATENT, Latent
from lodekit.prior.points import Point, Pulled, powers_of

__all__ = [
    "MOST_WAVES",
    "ChannelSpectrum",
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
#: The channel prior is made of waves; beyond lags where it forgets itself to this, its period need not reach.
_LONGEST_LAG = 1e-11


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
    """

    steps: tuple[float, ...]
    counts: tuple[int, ...]
    reach: tuple[float, ...]

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

    def frequencies(self, point: Point, eps: float, length: float) -> Frequencies:
        """Return waves that are exact to a tolerance over a window.

        Parameters
        ----------
        point : Point
        eps : float
            The tolerance.
        length : float
            Of the window, in scaled time.
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
        key = (frequencies.steps, frequencies.counts)
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
        on_waves = np.einsum("ofk,fk->of", point.free[:, frequencies.process], powers)
        return np.asarray(on_waves * self._roots(frequencies, point) * point.averages(frequencies.values))

    def pull(self, frequencies: Frequencies, point: Point, slope: ComplexArray) -> Pulled:
        """Return derivatives at a `point` by `slope`, through ``W(i w) sqrt(S)`` at `frequencies` w."""
        free, w, process, count = point.free, frequencies.values, frequencies.process, len(frequencies.counts)
        powers = powers_of(w, free.shape[-1])
        rooted = np.conj(slope) * self._roots(frequencies, point) * point.averages(w)
        terms = (rooted[:, :, None] * powers).real
        own = np.zeros_like(free)
        edges = np.concatenate([[0], np.cumsum(frequencies.counts)]).astype(int)
        for number in range(count):
            own[:, number] = terms[:, edges[number] : edges[number + 1]].sum(axis=1)
        on_waves = np.einsum("ofk,fk->of", free[:, process], powers)
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


@dataclass(frozen=True)
class ChannelSpectrum:
    """Independent squared-exponential processes for the channels, conditioned on the equations.

    With ``B = B(iw)`` the channels on the free functions and S the diagonal of the channels' spectral densities, the
    free functions have the spectral density ``(B* S^-1 B)^-1``, and the channels ``B (B* S^-1 B)^-1 B*``: whatever
    basis the free functions have, and in the channels' own units.
    """

    def band(self, order: int, eps: float) -> float:
        """Return the band of a channel's own covariance, to an `order` and `eps`."""
        return CHANNEL_LATENT.band(order, eps)

    def frequencies(self, point: Point, eps: float, length: float) -> Frequencies:
        """Return waves at a `point`, exact to `eps` over a `length`; the covariance itself is measured for them."""
        count, longest = point.free.shape[1], float(np.max(point.lengthscales))
        most = max(2, MOST_WAVES // max(count, 1))
        limit = self.band(point.free.shape[-1], eps) / float(np.min(point.lengthscales))
        period = 2.0 * (length + 8.0 * longest)
        while True:
            step = 2.0 * np.pi / period
            number = int(np.ceil(limit / step)) + 1
            trial = Frequencies((step,) * count, (min(number, 4 * most),) * count, (0.0,) * count)
            found = self.coefficients(trial, point)
            band, reach = self.extent(trial, found, eps)
            if reach < 0.45 * period or int(band / step) > 4 * most - 2:
                break
            period *= 2.0
        # A little more than needed, so that the waves serve the neighbourhood, too; no more where they are many.
        for spare in (_ROUND, 1.01):
            final = 2.0 * np.pi / (length + spare**2 * reach)
            number = int(np.ceil(spare * band / final)) + 1
            if number <= most:
                break
        return Frequencies((final,) * count, (number,) * count, (reach,) * count)

    @staticmethod
    def extent(frequencies: Frequencies, coefficients: ComplexArray, eps: float) -> tuple[float, float]:
        """Return the highest frequency and the longest lag that matter, to a tolerance.

        Parameters
        ----------
        frequencies : Frequencies
        coefficients : array, shape (o, f)
            Of the observables on the whitened waves.
        eps : float
            The tolerance.
        """
        count, own = len(frequencies.counts), frequencies.counts[0]
        power = (np.abs(coefficients) ** 2).reshape(len(coefficients), count, -1).sum(axis=1)
        total = power.sum(axis=1, keepdims=True)
        share = np.where(total > 0, power / np.where(total > 0, total, 1.0), 0.0)
        tail = share[:, ::-1].cumsum(axis=1)[:, ::-1].max(axis=0)
        above = np.flatnonzero(tail > eps)
        size = next_fast_len(4 * own, real=True)
        lags = np.abs(rfft(share, size, axis=1).real).max(axis=0)
        known = np.flatnonzero(lags > max(eps, _LONGEST_LAG))
        period = 2.0 * np.pi / frequencies.steps[0]
        band = (int(above[-1]) + 1 if len(above) else 1) * frequencies.steps[0]
        return band, (int(known[-1]) + 1 if len(known) else 1) * period / size

    def serves(self, frequencies: Frequencies, point: Point, eps: float, length: float) -> bool:
        """Whether waves are exact to a tolerance, and not far more than that.

        Parameters
        ----------
        frequencies : Frequencies
        point : Point
        eps : float
            The tolerance.
        length : float
            Of the window, in scaled time.
        """
        # With half the step, lags up to the whole period can be seen.
        finer = Frequencies(
            tuple(0.5 * step for step in frequencies.steps),
            tuple(2 * count - 1 for count in frequencies.counts),
            frequencies.reach,
        )
        coefficients = self.coefficients(finer, point)
        if not np.isfinite(coefficients).all():
            return False
        band, reach = self.extent(finer, coefficients, eps)
        period, highest = 2.0 * np.pi / frequencies.steps[0], frequencies.steps[0] * frequencies.counts[0]
        return bool(length + reach <= period <= 2.0 * (length + reach) and band < 0.99 * highest <= 2.5 * band)

    @staticmethod
    def _conditioned(frequencies: Frequencies, point: Point) -> Conditioned:
        """Return the density of the channels, at the frequencies that all processes share."""
        key = (frequencies.steps[0], frequencies.counts[0])
        if key not in point.roots:
            point.roots[key] = Conditioned(frequencies.steps[0] * np.arange(frequencies.counts[0], dtype=float), point)
        found: Conditioned = point.roots[key]
        return found

    def coefficients(self, frequencies: Frequencies, point: Point) -> ComplexArray:
        """Return ``W(i w) R`` at `frequencies` w and a `point`."""
        found = self._conditioned(frequencies, point).coefficients
        return np.asarray(found.reshape(len(found), -1) * np.sqrt(frequencies.weights))

    def pull(self, frequencies: Frequencies, point: Point, slope: ComplexArray) -> Pulled:
        """Return derivatives at a `point` and `frequencies` by `slope`."""
        own = self._conditioned(frequencies, point)
        return own.pull((slope * np.sqrt(frequencies.weights)).reshape(own.coefficients.shape))
