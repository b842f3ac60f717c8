"""The channel prior in frequency: equidistant waves if these are few and accurate, otherwise those of a Gauss rule.

Gauss-Legendre panels resolve the density to the tolerance, including peaks. Equidistant waves, which serve many points
of a search, are compared with them at some lags; if their error exceeds the noise, or if the memory of the system would
require many of them, the panels are condensed to the few waves of a Gauss rule. Every result reports its error.

`prior_spectral_density` evaluates the spectral density of observables under either prior.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.fft import next_fast_len, rfft

from lodekit.prior.channel_prior.quadrature import (
    FrequencyPanels,
    QuadratureTolerance,
    build_frequency_panels,
    build_gauss_rule,
)
from lodekit.prior.channel_prior.spectral_density import ConditionedDensity, solve_amplitudes
from lodekit.prior.kernels import CHANNEL_KERNEL
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Hyperparameters, Prior
from lodekit.prior.spectra import (
    MAX_FOURIER_WAVES,
    FourierFrequencies,
    SpectralPoint,
    SpectrumGradient,
    frequency_powers,
)
from lodekit.support.arguments import Array, ComplexArray

#: Errors of sums of waves, relative to the variance; correlations below the second one are rounding.
COVARIANCE_ROUNDING_TOLERANCE, MIN_CORRELATION = 1e-15, 1e-14
#: The error of equidistant waves may be this many times the tolerance.
GRID_ERROR_FACTOR = 50.0
#: The largest Gauss rule; a larger one would take too long.
MAX_GAUSS_WAVES = 1200
#: Lags, relative to the window, at which waves are compared with the panels: both ends, and a low-discrepancy set.
CHECK_LAGS = np.concatenate([[0.0, 1.0], np.modf(np.arange(1, 25) * (0.5 * (np.sqrt(5.0) - 1.0)))[0]])


@dataclass(frozen=True)
class FineDensity:
    """The density of the channels on fine panels.

    density: The density at their frequencies.
    phase_factors: Waves at the lags at which other waves are compared with these; (f, lags).
    """

    panels: FrequencyPanels
    density: ConditionedDensity
    phase_factors: ComplexArray

    @cached_property
    def variances(self) -> Array:
        """The prior variances of the observables, shape (o,)."""
        return np.asarray(self.density.observable_density @ self.panels.weights)

    @cached_property
    def covariances(self) -> Array:
        """Covariances of all pairs of observables and channels at some lags, shape (o + c, o + c, lags)."""
        return _covariance_at_lags(_stack_coefficients(self.density) * np.sqrt(self.panels.weights), self.phase_factors)

    @cached_property
    def std(self) -> Array:
        """The standard deviations of observables and channels, shape (o + c,); one if it is zero."""
        found = np.einsum("iil->il", self.covariances)[:, 0]
        return np.asarray(np.where(found > 0, np.sqrt(np.abs(found)), 1.0))

    def covariance_error(self, waves: ComplexArray, phase_factors: ComplexArray, noise_variance: Array) -> float:
        """Return the covariance error of other waves, relative to the noise; for channels, relative to themselves.

        Channels are included because they are predicted even if they are not observables.

        Shapes: waves (o + c, q, f), phase_factors (f, lags), noise_variance (o,).
        """
        sizes = np.concatenate([np.sqrt(noise_variance), self.std[len(noise_variance) :]])
        errors = np.abs(self.covariances - _covariance_at_lags(waves, phase_factors)).max(axis=-1)
        share = COVARIANCE_ROUNDING_TOLERANCE + self.panels.unresolved_share
        return float((errors / sizes[:, None] / sizes).max() + share * np.max(self.variances / noise_variance))


def _stack_coefficients(own: ConditionedDensity) -> ComplexArray:
    """Return the coefficients of observables and channels on whitened waves, shape (o + c, q, f)."""
    return np.concatenate([own.coefficients, own.channel_coefficients])


def _covariance_at_lags(waves: ComplexArray, turned: ComplexArray) -> Array:
    products = np.einsum("iqf,jqf->ijf", waves, np.conj(waves))
    return np.asarray((products @ turned).real)


@dataclass(frozen=True)
class ChannelSpectrum:
    """Independent squared-exponential processes for the channels, conditioned on the equations.

    With ``B = B(iw)`` the channels on the free functions and S the diagonal of the channels' spectral densities, the
    free functions have the spectral density ``(B* S^-1 B)^-1``, and the channels ``B (B* S^-1 B)^-1 B*``, for any basis
    of the free functions, and in the channels' own units.

    tolerance: Error tolerance of covariances, relative to the noise and to themselves.
    cache: The last results.
    """

    tolerance: float = 1e-10
    cache: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def bandwidth(self, order: int, eps: float) -> float:
        """Return the band of a channel's own covariance, to an `order` and `eps`."""
        return CHANNEL_KERNEL.bandwidth(order, eps)

    def frequencies(self, point: SpectralPoint, noise_variance: Array, length: float) -> FourierFrequencies:
        """Return waves for all lags up to a length, with their error.

        Shapes: noise_variance (o,).
        """
        key = (length, point.free.shape)
        fine = self._fine_density(key, point, noise_variance, length)
        if fine is None:
            return replace(_TOO_MANY_WAVES, truncation_error=np.inf)
        last: FourierFrequencies | None = self.cache.get(("waves", *key))
        rule = None if last is None else last.gauss_rule
        if last is not None and rule is not None:
            names = ("free", "channels", "lengthscales", "deviations", "windows")
            pairs = [(getattr(rule[3].density.point, name), getattr(point, name)) for name in names]
            if all(np.array_equal(a, b) for a, b in [*pairs, (rule[4], noise_variance)]):
                return last
        # After a Gauss rule, equidistant waves are tried at every tenth point, and always if the rule is expensive.
        tries, waves = self.cache.get(("tries", *key), 0), None
        is_expensive = _estimate_gauss_waves(fine, length) > 100.0
        if rule is None or not tries % 10 or is_expensive:
            waves = self._equidistant_frequencies(fine, last, point, noise_variance, length)
        self.cache["tries", *key] = 0 if waves is not None else tries + 1
        waves = self._gauss_frequencies(fine, point, noise_variance, length) if waves is None else waves
        self.cache["waves", *key] = waves
        return waves

    def _fine_density(
        self, key: tuple[Any, ...], point: SpectralPoint, noise: Array, length: float
    ) -> FineDensity | None:
        """Return the density on fine panels, the last ones if they are accurate; None if there are none."""
        last: FineDensity | None = self.cache.get(("fine", *key))
        allowed = QuadratureTolerance(noise, self.tolerance)
        if last is not None:
            own = ConditionedDensity(last.panels.frequencies, point)
            if last.panels.is_accurate(own, allowed):
                return FineDensity(last.panels, own, last.phase_factors)
        share, found = np.inf, last
        while (needed := allowed.share(np.ones(1) if found is None else found.variances)) < share:
            share = needed
            panels = build_frequency_panels(point, length, share)
            if panels is None:
                return None
            turned = np.exp(1j * np.outer(panels.frequencies, length * CHECK_LAGS))
            found = FineDensity(panels, ConditionedDensity(panels.frequencies, point), turned)
        self.cache["fine", *key] = found
        return found

    def _gauss_frequencies(
        self, fine: FineDensity, point: SpectralPoint, noise: Array, length: float
    ) -> FourierFrequencies:
        """Return the waves of a Gauss rule."""
        if _estimate_gauss_waves(fine, length) > MAX_GAUSS_WAVES:
            return _TOO_MANY_WAVES
        variances = np.where(fine.variances > 0, fine.variances, 1.0)
        shares = self.tolerance * np.minimum(noise / variances, 1.0)
        rule = build_gauss_rule(fine.density, fine.panels.weights, length, shares, MAX_FOURIER_WAVES)
        if rule is None:
            return _TOO_MANY_WAVES
        frequencies, rotation, errors = rule
        channels = fine.density.channel_coefficients * np.sqrt(fine.panels.weights)
        sizes = np.sqrt(np.sum(np.abs(channels) ** 2, axis=(1, 2)))
        projected = np.tensordot(channels, rotation, axes=2)
        amplitudes = solve_amplitudes(point.channels, frequencies, projected, sizes)
        error = float(np.max((errors + fine.panels.unresolved_share) * variances / noise))
        # Whether the remaining covariances beyond half the length are below the share of the variance.
        late = fine.covariances[..., CHECK_LAGS >= 0.5] / fine.std[:, None, None] / fine.std[:, None]
        reach = 0.5 * length if np.abs(late).max() <= max(float(shares.min()), MIN_CORRELATION) else np.inf
        gauss_rule = frequencies, rotation, amplitudes, fine, noise
        return FourierFrequencies((0.0,), (len(frequencies),), (reach,), error, gauss_rule)

    def _equidistant_frequencies(
        self, fine: FineDensity, last: FourierFrequencies | None, point: SpectralPoint, noise: Array, length: float
    ) -> FourierFrequencies | None:
        """Return equidistant waves, the last ones if they are accurate; None if they are inaccurate or too many."""
        # At most 128 waves, or twice those of a Gauss rule.
        most = int(max(128, 2.0 * _estimate_gauss_waves(fine, length)) / point.free.shape[1])
        share = min(self.tolerance / float(np.max(fine.variances / noise, initial=1.0)), 1e-2)
        if share < COVARIANCE_ROUNDING_TOLERANCE / GRID_ERROR_FACTOR:
            return None
        band = float(fine.panels.highs[-1])
        is_grid = last is not None and last.gauss_rule is None and last.truncation_error < np.inf
        is_reusable = is_grid and last is not None and last.steps[0] * last.counts[0] <= 2.5 * band
        for candidate in (last, None) if is_reusable else (None,):
            frequencies = candidate or self._search_equidistant(point, share, length, most)
            count = frequencies.counts[0]
            if count > most:
                continue
            waves = _stack_coefficients(self._conditioned_density(frequencies, point))
            phase_factors = np.exp(1j * np.outer(frequencies.values[:count], length * CHECK_LAGS))
            error = fine.covariance_error(waves * np.sqrt(frequencies.weights[:count]), phase_factors, noise)
            if error <= GRID_ERROR_FACTOR * self.tolerance:
                return replace(frequencies, truncation_error=error)
        return None

    def _search_equidistant(self, point: SpectralPoint, eps: float, length: float, most: int) -> FourierFrequencies:
        """Return equidistant waves with a period beyond window and memory, as far as a grid can resolve them."""
        count, longest = point.free.shape[1], float(np.max(point.lengthscales))
        limit = self.bandwidth(point.free.shape[-1], eps) / float(np.min(point.lengthscales))
        period = 2.0 * (length + 8.0 * longest)
        while True:
            step = 2.0 * np.pi / period
            number = int(np.ceil(limit / step)) + 1
            trial = FourierFrequencies((step,) * count, (min(number, 4 * most),) * count, (0.0,) * count)
            seen = _stack_coefficients(self._conditioned_density(trial, point))
            waves = seen.reshape(len(seen), -1) * np.sqrt(trial.weights)
            band, reach = _bandwidth_and_correlation_range(trial, waves, eps)
            if reach < 0.45 * period or int(band / step) > 4 * most - 2:
                break
            period *= 2.0
        # With a margin for neighbouring points, unless there are many.
        for spare in (2.0**0.25, 1.01):
            final = 2.0 * np.pi / (length + spare**2 * reach)
            number = int(np.ceil(spare * band / final)) + 1
            if number <= most:
                break
        return FourierFrequencies((final,) * count, (number,) * count, (reach,) * count)

    @staticmethod
    def _conditioned_density(frequencies: FourierFrequencies, point: SpectralPoint) -> ConditionedDensity:
        """Return the density of the channels, at the frequencies that all processes share."""
        key = frequencies.cache_key
        if key not in point.density_roots:
            point.density_roots[key] = ConditionedDensity(frequencies.values[: frequencies.counts[0]], point)
        density: ConditionedDensity = point.density_roots[key]
        return density

    def coefficients(self, frequencies: FourierFrequencies, point: SpectralPoint) -> ComplexArray:
        """Return ``W(i w) R`` at `frequencies` w and a `point`."""
        if frequencies.gauss_rule is not None:
            powers = frequency_powers(frequencies.values, point.free.shape[-1])
            on_waves = np.einsum("oqk,kf,qf->of", point.free, powers, frequencies.gauss_rule[2])
            return np.asarray(on_waves * point.averaging_response(frequencies.values))
        found = self._conditioned_density(frequencies, point).coefficients
        return np.asarray(found.reshape(len(found), -1) * np.sqrt(frequencies.weights))

    def vjp(self, frequencies: FourierFrequencies, point: SpectralPoint, cotangent: ComplexArray) -> SpectrumGradient:
        """Return derivatives at a `point` and `frequencies` from a `cotangent`."""
        if frequencies.gauss_rule is not None:
            _, rotation, _, fine, _ = frequencies.gauss_rule
            on_panels = np.tensordot(cotangent, np.conj(rotation), axes=(1, 2))
            gradient: SpectrumGradient = fine.density.vjp(on_panels * np.sqrt(fine.panels.weights))
            return gradient
        own = self._conditioned_density(frequencies, point)
        return own.vjp((cotangent * np.sqrt(frequencies.weights)).reshape(own.coefficients.shape))


#: Stands for too many waves.
_TOO_MANY_WAVES = FourierFrequencies((1.0,), (MAX_FOURIER_WAVES + 1,), (0.0,))


def _estimate_gauss_waves(fine: FineDensity, length: float) -> float:
    """Return the approximate number of waves of a Gauss rule for a length."""
    return len(fine.density.density_roots) * (0.5 * float(fine.panels.highs[-1]) * length + 12.0)


def _bandwidth_and_correlation_range(
    frequencies: FourierFrequencies, coefficients: ComplexArray, eps: float
) -> tuple[float, float]:
    """Return the highest frequency and the longest lag that are relevant to a tolerance.

    Shapes: coefficients (o, f).
    """
    count, own = len(frequencies.counts), frequencies.counts[0]
    power = (np.abs(coefficients) ** 2).reshape(len(coefficients), count, -1).sum(axis=1)
    total = power.sum(axis=1, keepdims=True)
    share = np.where(total > 0, power / np.where(total > 0, total, 1.0), 0.0)
    tail = share[:, ::-1].cumsum(axis=1)[:, ::-1].max(axis=0)
    above = np.flatnonzero(tail > eps)
    size = next_fast_len(4 * own, real=True)
    lags = np.abs(rfft(share, size, axis=1).real).max(axis=0)
    known = np.flatnonzero(lags > max(eps, MIN_CORRELATION))
    period = 2.0 * np.pi / frequencies.steps[0]
    band = (int(above[-1]) + 1 if len(above) else 1) * frequencies.steps[0]
    return band, (int(known[-1]) + 1 if len(known) else 1) * period / size


def prior_spectral_density(prior: Prior, hyper: Hyperparameters, observables: Observables) -> tuple[Array, Array]:
    """Return frequencies in cycles, shape (n,), and one-sided spectral densities, shape (o, n), in the user's units."""
    span, values, size = prior.units.time_scale, observables.evaluate(hyper.theta), observables.count
    if not prior.kernels:
        return np.ones(1), np.zeros((size, 1))
    kernels = prior.kernels if prior.channels is None else (CHANNEL_KERNEL,)
    highest = max(kernel.max_frequency for kernel in kernels) / hyper.lengthscales.min()
    # Below 0.03 over the longest lengthscale all densities of free functions are flat.
    w = np.geomspace(0.03 / hyper.lengthscales.max(), highest, 800)
    channels = None if prior.channels is None else prior.channels.evaluate(hyper.theta)
    point = SpectralPoint.from_hyperparameters(values, channels, hyper)
    if channels is None:
        total, powers = np.zeros((size, len(w))), frequency_powers(w, values.free.shape[-1])
        for number, latent in enumerate(prior.kernels):
            density = hyper.amplitudes[number] ** 2 * np.exp(latent.log_density(w, float(hyper.lengthscales[number])))
            total += np.abs(values.free[:, number] @ powers) ** 2 * density
        total *= np.abs(point.averaging_response(w)) ** 2
    else:
        total = ConditionedDensity(w, point).observable_density
    seen = (total > 1e-8 * total.max(axis=1, keepdims=True)).any(axis=0)
    return w[seen] / (2.0 * np.pi * span), 2.0 * span * total[:, seen]
