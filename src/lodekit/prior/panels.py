"""Frequencies for the channel prior: Gauss-Legendre panels, short ones around the peaks of the density.

A covariance is ``k(tau) = int S(w) cos(w tau) dw / pi``. Equidistant frequencies are exact over a window once their
period exceeds the window and the memory of the process, which is very long where a peak is narrow; panels that are
halved around a peak need some ten frequencies more for each halving, whatever the memory. On each panel the density is
looked at as a Legendre series: what its last terms say of the terms that the rule does not integrate tells whether to
halve it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

from lodekit.prior.conditioned import Conditioned
from lodekit.prior.latents import CHANNEL_LATENT
from lodekit.prior.points import Point

__all__ = ["Panels", "make_panels"]

Array = NDArray[np.float64]
#: Frequencies of one panel, and how far a wave may turn from its middle to its end over the window.
_ORDER, _TURN = 16, 4.0
#: The share of the variance that a panel may miss when it is made, and when it serves again at another point.
_MADE, _SERVED = 1e-15, 1e-12
#: Below this share of the variance a panel at the end of the band is left out.
_NOTHING, _FAR = 1e-17, 1e-21
#: A panel whose largest value exceeds its median by more than this may hide a narrow peak.
_HIDDEN = 20.0
_HALVINGS = 60
#: The highest frequency, times the length: beyond, there would be more frequencies than anyone can wait for.
_HIGHEST = 1e5

_NODES, _WEIGHTS = legendre.leggauss(_ORDER)
#: The last three coefficients of a Legendre series from values on the nodes, shape (order, 3).
_LAST = (
    _WEIGHTS[:, None] * legendre.legvander(_NODES, _ORDER - 1) * (np.arange(_ORDER) + 0.5)
)[:, -3:]


@dataclass(frozen=True)
class Panels:
    """Frequencies and weights of a rule over some panels.

    Parameters
    ----------
    lows, highs : arrays, shape (p,)
        Where each panel begins and ends.
    """

    lows: Array
    highs: Array

    @classmethod
    def joined(cls, several: list[Panels]) -> Panels:
        """Return all panels in ascending order."""
        lows, highs = (np.concatenate([getattr(part, side) for part in several]) for side in ("lows", "highs"))
        order = np.argsort(lows)
        return cls(lows[order], highs[order])

    def pick(self, which: NDArray[np.bool_]) -> Panels:
        """Return some of the panels."""
        return Panels(self.lows[which], self.highs[which])

    def halved(self) -> Panels:
        """Return both halves of all panels."""
        middles = 0.5 * (self.lows + self.highs)
        return Panels(np.concatenate([self.lows, middles]), np.concatenate([middles, self.highs]))

    @cached_property
    def _halves(self) -> Array:
        return 0.5 * (self.highs - self.lows)

    @cached_property
    def frequencies(self) -> Array:
        """All frequencies, shape (16 p,)."""
        middles = 0.5 * (self.lows + self.highs)
        return (middles[:, None] + self._halves[:, None] * _NODES).ravel()

    @cached_property
    def weights(self) -> Array:
        """The share of the density that each frequency stands for, shape (16 p,)."""
        return (self._halves[:, None] * _WEIGHTS / np.pi).ravel()

    def energies(self, powers: Array) -> Array:
        """Return the variance that each panel adds, shape (k, p).

        Parameters
        ----------
        powers : array, shape (k, 16 p)
            Densities at the frequencies.
        """
        return np.asarray(powers.reshape(len(powers), -1, _ORDER) @ _WEIGHTS * (self._halves / np.pi))

    def unresolved(self, own: Conditioned, totals: Array, eps: float) -> NDArray[np.bool_]:
        """Return which panels miss more than a share of the variance, shape (p,).

        The terms of the series beyond those that the rule integrates are about the square of the last ones that it
        sees, relative to the first; a panel of a narrow peak between its nodes shows the flanks of the peak.

        Parameters
        ----------
        own : Conditioned
            The density at the frequencies.
        totals : array, shape (k,)
            Variances of the observables and channels.
        eps : float
            The share.
        """
        powers = own.powers
        values = powers.reshape(len(powers), -1, _ORDER)
        tails = np.abs(values @ _LAST).max(axis=-1) * (2.0 / np.pi * self._halves)
        energies = values @ _WEIGHTS * (self._halves / np.pi)
        missed = tails**2 > eps * totals[:, None] * energies + (0.01 * eps * totals[:, None]) ** 2
        count = len(own.limits)
        channels, limits = values[-count:], own.limits.reshape(count, -1, _ORDER)
        largest = channels.max(axis=-1)
        # A peak of height h and width g has flanks h (g/d)^2 at a distance d, and the variance g h.
        hidden = 0.1 * self._halves * np.sqrt(largest * limits.max(axis=-1))
        middle = np.partition(channels, _ORDER // 2, axis=-1)[..., _ORDER // 2]
        peaks = (largest > _HIDDEN * middle) & (hidden > eps * totals[-count:, None])
        return np.asarray((missed.any(axis=0) | peaks.any(axis=0)) & (self._halves > 1e-14 * self.highs))

    def serves(self, own: Conditioned) -> bool:
        """Return whether the rule is still accurate at another point, and no far wider than that.

        Parameters
        ----------
        own : Conditioned
            The density at the frequencies.
        """
        energies = self.energies(own.powers)
        totals = energies.sum(axis=1)
        if not np.isfinite(totals).all() or not (totals > 0).any():
            return False
        if (energies[:, -1] > _SERVED * totals).any():
            return False
        needed = np.flatnonzero((energies > _NOTHING * totals[:, None]).any(axis=0))
        return bool(needed[-1] >= 0.5 * energies.shape[1] and not self.unresolved(own, totals, _SERVED).any())


def make_panels(point: Point, length: float) -> Panels | None:
    """Return panels for all lags up to a length; None where the density is not finite.

    Parameters
    ----------
    point : Point
        Operators and hyperparameters.
    length : float
        In scaled time.
    """
    order = max(point.free.shape[-1], point.channels.shape[-1])
    band = CHANNEL_LATENT.band(order, _NOTHING) / float(np.min(point.lengthscales))
    if not np.isfinite(band) or band * length > _HIGHEST:
        return None
    edges = np.linspace(0.0, band, int(np.ceil(band * length / (2.0 * _TURN))) + 5)
    todo, done, settled = Panels(edges[:-1], edges[1:]), [], np.zeros(0)
    own = Conditioned(todo.frequencies, point)
    energies = todo.energies(own.powers)
    if not np.isfinite(energies).all():
        return None
    # Far beyond the band of the data nothing is looked at more closely.
    known = np.flatnonzero((energies > _FAR * energies.sum(axis=1, keepdims=True)).any(axis=0))
    if not len(known):
        return None
    todo = todo.pick(np.arange(len(todo.lows)) <= known[-1] + 1)
    settled = np.zeros(len(energies))
    for _ in range(_HALVINGS):
        own = Conditioned(todo.frequencies, point)
        energies = todo.energies(own.powers)
        coarse = todo.unresolved(own, settled + energies.sum(axis=1), _MADE)
        done.append(todo.pick(~coarse))
        settled += energies[:, ~coarse].sum(axis=1)
        todo = todo.pick(coarse).halved()
        if not len(todo.lows):
            break
    found = Panels.joined(done)
    energies = found.energies(Conditioned(found.frequencies, point).powers)
    needed = np.flatnonzero((energies > _NOTHING * energies.sum(axis=1, keepdims=True)).any(axis=0))
    return found.pick(np.arange(len(found.lows)) <= needed[-1]) if np.isfinite(energies).all() else None
