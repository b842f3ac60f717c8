"""The channel prior in frequency: equidistant waves where these are few and right, and else those of a Gauss rule.

A fine rule of panels knows the density to the tolerance, peaks included. Equidistant waves, which serve many points of
a search, are held against it at some lags; where they would miss more than the noise hides, or would have to be many
because the system remembers long, the fine rule is condensed to the few waves of a Gauss rule. So every answer says
what it misses.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.fft import next_fast_len, rfft

from lodekit.prior.conditioned import Conditioned, find_amplitudes
from lodekit.prior.gauss import GaussRule, make_gauss_rule
from lodekit.prior.latents import CHANNEL_LATENT
from lodekit.prior.panels import Allowed, Panels, make_panels
from lodekit.prior.points import Point, Pulled, powers_of
from lodekit.prior.spectra import MOST_WAVES, Frequencies

__all__ = ["ChannelSpectrum", "GaussFrequencies"]

Array = NDArray[np.float64]
ComplexArray = NDArray[np.complex128]
#: Equidistant waves have some more than needed, so that they serve the neighbourhood, too.
_SPARE = 2.0**0.25
#: Errors of sums of waves, relative to the variance; covariances below the second one are taken for rounding.
_ROUNDING, _LONGEST_LAG = 1e-15, 1e-14
#: Equidistant waves may miss so many times the tolerance, and be so many, by themselves or against those of a rule.
_HELD, _FEW, _RATIO = 50.0, 128, 2.0
#: A rule of more waves would take longer than anyone waits.
_MOST_OF_RULE = 1200
#: After so many points that needed a rule, equidistant waves are tried again; always where it would have more waves.
_AGAIN, _DEAR = 10, 100.0
#: Lags at which waves are held against the fine rule, relative to the window: both ends, and some in no order.
_LAGS = np.concatenate([[0.0, 1.0], np.modf(np.arange(1, 25) * (0.5 * (np.sqrt(5.0) - 1.0)))[0]])


@dataclass(frozen=True)
class Fine:
    """The density of the channels on a fine rule.

    Parameters
    ----------
    panels : Panels
    own : Conditioned
        The density at their frequencies.
    turned : array, shape (f, lags)
        Waves at the lags where others are held against them.
    """

    panels: Panels
    own: Conditioned
    turned: ComplexArray

    @cached_property
    def variances(self) -> Array:
        """The prior variances of the observables, shape (o,)."""
        return np.asarray(self.own.powers @ self.panels.weights)

    @cached_property
    def covariances(self) -> Array:
        """Covariances of all pairs of observables and channels at some lags, shape (o + c, o + c, lags)."""
        return _sum_waves(_seen(self.own) * np.sqrt(self.panels.weights), self.turned)

    @cached_property
    def sizes(self) -> Array:
        """The deviations of observables and channels, shape (o + c,); one where there is none."""
        found = np.einsum("iil->il", self.covariances)[:, 0]
        return np.asarray(np.where(found > 0, np.sqrt(np.abs(found)), 1.0))

    def forgets(self, share: float) -> bool:
        """Return whether a share of the variance is all that is left of covariances beyond half the length."""
        late = self.covariances[..., _LAGS >= 0.5] / self.sizes[:, None, None] / self.sizes[:, None]
        return bool(np.abs(late).max() <= share)

    def misses(self, waves: ComplexArray, turned: ComplexArray, noise: Array) -> float:
        """Return what other waves miss of covariances, in units of the noise; of channels, of themselves.

        Channels may not be among the observables, and are predicted all the same.

        Parameters
        ----------
        waves : array, shape (o + c, q, f)
            What the observables and the channels see of them.
        turned : array, shape (f, lags)
            The waves at the lags.
        noise : array, shape (o,)
            Variances.
        """
        sizes = np.concatenate([np.sqrt(noise), self.sizes[len(noise) :]])
        apart = np.abs(self.covariances - _sum_waves(waves, turned)).max(axis=-1) / sizes[:, None] / sizes
        return float(apart.max() + (_ROUNDING + self.panels.missed) * np.max(self.variances / noise))


def _seen(own: Conditioned) -> ComplexArray:
    """Return what the observables and the channels see of whitened waves, shape (o + c, q, f)."""
    return np.concatenate([own.coefficients, own.channels])


def _sum_waves(waves: ComplexArray, turned: ComplexArray) -> Array:
    products = np.einsum("iqf,jqf->ijf", waves, np.conj(waves))
    return np.asarray((products @ turned).real)


@dataclass(frozen=True)
class GaussFrequencies(Frequencies):
    """The frequencies of a Gauss rule, and amplitudes of the free functions in place of weights.

    Parameters
    ----------
    steps, counts, reach, missed
        As in `Frequencies`; one process, whose waves have no common distance.
    rule : GaussRule
    amplitudes : array, shape (q, m)
        Of the free functions in each wave.
    fine : Fine
        What the rule was made of.
    noise : array, shape (o,)
        The variances that it was made for.
    """

    rule: GaussRule = field(kw_only=True, repr=False)
    amplitudes: ComplexArray = field(kw_only=True, repr=False)
    fine: Fine = field(kw_only=True, repr=False)
    noise: Array = field(kw_only=True, repr=False)

    @property
    def key(self) -> Hashable:
        """Something that is the same for the same frequencies."""
        return self.rule.frequencies.tobytes()

    @cached_property
    def values(self) -> Array:
        """All frequencies, in scaled time."""
        return self.rule.frequencies

    def is_at(self, point: Point, noise: Array) -> bool:
        """Return whether the rule was made for a point and some variances of the noise.

        Parameters
        ----------
        point : Point
        noise : array, shape (o,)
        """
        own = self.fine.own.point
        names = ("free", "channels", "lengthscales", "deviations", "windows")
        same = all(np.array_equal(getattr(own, name), getattr(point, name)) for name in names)
        return same and np.array_equal(self.noise, noise)


@dataclass(frozen=True)
class ChannelSpectrum:
    """Independent squared-exponential processes for the channels, conditioned on the equations.

    With ``B = B(iw)`` the channels on the free functions and S the diagonal of the channels' spectral densities, the
    free functions have the spectral density ``(B* S^-1 B)^-1``, and the channels ``B (B* S^-1 B)^-1 B*``: whatever
    basis the free functions have, and in the channels' own units.

    Parameters
    ----------
    tolerance : float
        What covariances may miss, in units of the noise and of themselves.
    kept : dict
        What served last.
    """

    tolerance: float = 1e-10
    kept: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def band(self, order: int, eps: float) -> float:
        """Return the band of a channel's own covariance, to an `order` and `eps`."""
        return CHANNEL_LATENT.band(order, eps)

    def frequencies(self, point: Point, noise: Array, length: float) -> Frequencies:
        """Return waves for all lags up to a length; they say what they miss.

        Parameters
        ----------
        point : Point
        noise : array, shape (o,)
            Variances of the noise of the observables, in scaled units.
        length : float
            In scaled time.
        """
        key = (length, point.free.shape)
        fine = self._refine(key, point, noise, length)
        if fine is None:
            return replace(_TOO_MANY, missed=np.inf)
        last = self.kept.get(("waves", *key))
        if isinstance(last, GaussFrequencies) and last.is_at(point, noise):
            return last
        tries = self.kept.get(("tries", *key), 0)
        is_dear = _expected(fine, length) > _DEAR
        if isinstance(last, GaussFrequencies) and tries % _AGAIN and not is_dear:
            found = None
        else:
            found = self._equidistant(fine, last, point, noise, length)
        self.kept["tries", *key] = 0 if found is not None else tries + 1
        found = self._condensed(fine, point, noise, length) if found is None else found
        self.kept["waves", *key] = found
        return found

    def _refine(self, key: tuple[Any, ...], point: Point, noise: Array, length: float) -> Fine | None:
        """Return the density on a fine rule, on the last one where it serves; None where there is none."""
        last: Fine | None = self.kept.get(("fine", *key))
        allowed = Allowed(noise, self.tolerance)
        if last is not None:
            own = Conditioned(last.panels.frequencies, point)
            if last.panels.serves(own, allowed):
                return Fine(last.panels, own, last.turned)
        share, found = np.inf, last
        while (needed := allowed.share(np.ones(1) if found is None else found.variances)) < share:
            share = needed
            panels = make_panels(point, length, share)
            if panels is None:
                return None
            turned = np.exp(1j * np.outer(panels.frequencies, length * _LAGS))
            found = Fine(panels, Conditioned(panels.frequencies, point), turned)
        self.kept["fine", *key] = found
        return found

    def _condensed(self, fine: Fine, point: Point, noise: Array, length: float) -> Frequencies:
        """Return the waves of a Gauss rule."""
        if _expected(fine, length) > _MOST_OF_RULE:
            return _TOO_MANY
        variances = np.where(fine.variances > 0, fine.variances, 1.0)
        shares = self.tolerance * np.minimum(noise / variances, 1.0)
        rule = make_gauss_rule(fine.own, fine.panels.weights, length, shares, MOST_WAVES)
        if rule is None:
            return _TOO_MANY
        channels = fine.own.channels * np.sqrt(fine.panels.weights)
        sizes = np.sqrt(np.sum(np.abs(channels) ** 2, axis=(1, 2)))
        amplitudes = find_amplitudes(point.channels, rule.frequencies, rule.gather(channels), sizes)
        missed = float(np.max((rule.missed + fine.panels.missed) * variances / noise))
        count, reach = len(rule.frequencies), np.inf
        if fine.forgets(max(float(shares.min()), _LONGEST_LAG)):
            reach = 0.5 * length
        return GaussFrequencies(
            (0.0,), (count,), (reach,), missed, rule=rule, amplitudes=amplitudes, fine=fine, noise=noise
        )

    def _equidistant(
        self, fine: Fine, last: Frequencies | None, point: Point, noise: Array, length: float
    ) -> Frequencies | None:
        """Return equidistant waves, the last ones where they serve; None where they are wrong, or too many."""
        count = point.free.shape[1]
        band = float(fine.panels.highs[-1])
        most = int(max(_FEW, _RATIO * _expected(fine, length)) / count)
        share = min(self.tolerance / float(np.max(fine.variances / noise, initial=1.0)), 1e-2)
        if share < _ROUNDING / _HELD:
            return None
        if last is not None and not isinstance(last, GaussFrequencies) and last.missed < np.inf:
            highest = last.steps[0] * last.counts[0]
            if last.counts[0] <= most and highest <= 2.5 * band:
                missed = self._held(fine, last, point, noise, length)
                if missed <= _HELD * self.tolerance:
                    return replace(last, missed=missed)
        found = self._search(point, share, length, most)
        if found.counts[0] > most:
            return None
        missed = self._held(fine, found, point, noise, length)
        return replace(found, missed=missed) if missed <= _HELD * self.tolerance else None

    def _held(self, fine: Fine, frequencies: Frequencies, point: Point, noise: Array, length: float) -> float:
        """Return what equidistant waves miss."""
        own = self._conditioned(frequencies, point)
        count = frequencies.counts[0]
        turned = np.exp(1j * np.outer(frequencies.values[:count], length * _LAGS))
        return fine.misses(_seen(own) * np.sqrt(frequencies.weights[:count]), turned, noise)

    def _search(self, point: Point, eps: float, length: float, most: int) -> Frequencies:
        """Return equidistant waves with a period that exceeds window and memory, as far as a grid can tell."""
        count, longest = point.free.shape[1], float(np.max(point.lengthscales))
        limit = self.band(point.free.shape[-1], eps) / float(np.min(point.lengthscales))
        period = 2.0 * (length + 8.0 * longest)
        while True:
            step = 2.0 * np.pi / period
            number = int(np.ceil(limit / step)) + 1
            trial = Frequencies((step,) * count, (min(number, 4 * most),) * count, (0.0,) * count)
            seen = _seen(self._conditioned(trial, point))
            band, reach = _extent(trial, seen.reshape(len(seen), -1) * np.sqrt(trial.weights), eps)
            if reach < 0.45 * period or int(band / step) > 4 * most - 2:
                break
            period *= 2.0
        # No more than needed where they are many.
        for spare in (_SPARE, 1.01):
            final = 2.0 * np.pi / (length + spare**2 * reach)
            number = int(np.ceil(spare * band / final)) + 1
            if number <= most:
                break
        return Frequencies((final,) * count, (number,) * count, (reach,) * count)

    @staticmethod
    def _conditioned(frequencies: Frequencies, point: Point) -> Conditioned:
        """Return the density of the channels, at the frequencies that all processes share."""
        if frequencies.key not in point.roots:
            point.roots[frequencies.key] = Conditioned(frequencies.values[: frequencies.counts[0]], point)
        found: Conditioned = point.roots[frequencies.key]
        return found

    def coefficients(self, frequencies: Frequencies, point: Point) -> ComplexArray:
        """Return ``W(i w) R`` at `frequencies` w and a `point`."""
        if isinstance(frequencies, GaussFrequencies):
            powers = powers_of(frequencies.values, point.free.shape[-1])
            on_waves = np.einsum("oqk,kf,qf->of", point.free, powers, frequencies.amplitudes)
            return np.asarray(on_waves * point.averages(frequencies.values))
        found = self._conditioned(frequencies, point).coefficients
        return np.asarray(found.reshape(len(found), -1) * np.sqrt(frequencies.weights))

    def pull(self, frequencies: Frequencies, point: Point, slope: ComplexArray) -> Pulled:
        """Return derivatives at a `point` and `frequencies` by `slope`."""
        if isinstance(frequencies, GaussFrequencies):
            fine = frequencies.fine
            return fine.own.pull(frequencies.rule.scatter(slope) * np.sqrt(fine.panels.weights))
        own = self._conditioned(frequencies, point)
        return own.pull((slope * np.sqrt(frequencies.weights)).reshape(own.coefficients.shape))


#: What stands for waves that are more than there may be.
_TOO_MANY = Frequencies((1.0,), (MOST_WAVES + 1,), (0.0,))


def _expected(fine: Fine, length: float) -> float:
    """Return about how many waves a Gauss rule has, for a length."""
    return len(fine.own.roots) * (0.5 * float(fine.panels.highs[-1]) * length + 12.0)


def _extent(frequencies: Frequencies, coefficients: ComplexArray, eps: float) -> tuple[float, float]:
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
