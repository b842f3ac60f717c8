"""Frequencies for the channel prior: Gauss-Legendre panels, short ones around the peaks of the density.

A covariance is ``k(tau) = int S(w) cos(w tau) dw / pi``. Equidistant frequencies are exact over a window once their
period exceeds the window and the memory of the process, which is very long where a peak is narrow; panels that are
halved around a peak need some ten frequencies more for each halving, whatever the memory. On each panel the density is
looked at as a Legendre series: what its last terms say of the terms that the rule does not integrate tells whether to
halve it. A peak between the nodes leaves no term; but the logarithm of the determinant of the density has a pole there,
which no series of a few terms follows, and so tells where to look, however narrow the peak is and whatever lies under
it. Panels that cannot be halved any more say what they may miss.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

from lodekit.prior.conditioned import Conditioned
from lodekit.prior.latents import CHANNEL_LATENT
from lodekit.prior.points import Point

__all__ = ["Allowed", "Panels", "make_panels"]

Array = NDArray[np.float64]
#: Frequencies of one panel, and how far a wave may turn from its middle to its end over the window.
_ORDER, _TURN = 16, 4.0
#: The share of the variance that a panel may miss when it is made, and when it serves again at another point.
_MADE, _SERVED = 1e-14, 1e-10
#: Below the first share of the variance a panel at the end of the band is left out; below the second, nothing is looked
#: at more closely.
_NOTHING, _FAR = 1e-17, 1e-28
#: A panel whose largest value exceeds its median by more than this may hide a narrow peak; so may one where the last
#: terms of the logarithm of the determinant exceed that. A pole in the panel, on the axis, makes at least the double.
_HIDDEN, _BENT = 20.0, 0.02
#: Panels are halved so often at most: more than there are bits between the widest and the narrowest.
_HALVINGS = 60
#: No panel is narrower than this, relative to its frequencies.
_NARROWEST = 1e-13
#: Rounding of a density where waves cancel each other.
_ROUNDING = 1e-15
#: So many panels are too many; so are so many numbers of observables and channels on the free functions, at all
#: frequencies: 32 MB, of which an evaluation has some thirty at the same time.
_MOST, _NUMBERS = 5000, 2_000_000
#: The highest frequency, times the length: beyond, there would be more frequencies than anyone can wait for.
_HIGHEST = 1e5
#: Where the first panel ends at most, times the longest lengthscale: the density of a process that hardly changes in
#: the window is a peak at zero, whose logarithm is a polynomial and shows nowhere else. And the longest one there is.
_FIRST, _LONGEST = 16.0, 1e8

_NODES, _WEIGHTS = legendre.leggauss(_ORDER)
#: From values on the nodes to coefficients of a Legendre series, shape (order, order); of these the mean and the last
#: three, by which a density is looked at, and the last six, by which the logarithm of the determinant is.
_TERMS = _WEIGHTS[:, None] * legendre.legvander(_NODES, _ORDER - 1) * (np.arange(_ORDER) + 0.5)
_SERIES, _BENDS = _TERMS[:, [0, -3, -2, -1]], _TERMS[:, -6:]


@dataclass(frozen=True)
class Allowed:
    """What a rule may miss at points where it serves again.

    Parameters
    ----------
    noise : array, shape (o,)
        Variances of the noise of the observables.
    tolerance : float
        A share of these.
    least : float
        A share of the variance below which nobody looks.
    """

    noise: Array
    tolerance: float = _SERVED
    least: float = _FAR

    def share(self, variances: Array) -> float:
        """Return the share of their variance that may be missed, from the variances of the observables."""
        ratio = float(np.min(self.noise / np.where(variances > 0, variances, 1.0), initial=1.0))
        return max(min(self.tolerance * ratio, _SERVED), self.least)


@dataclass(frozen=True)
class Panels:
    """Frequencies and weights of a rule over some panels.

    Parameters
    ----------
    lows, highs : arrays, shape (p,)
        Where each panel begins and ends.
    missed : float
        The share of a variance that may lie in panels which were too narrow to be halved again.
    """

    lows: Array
    highs: Array
    missed: float = 0.0

    @classmethod
    def joined(cls, several: list[Panels]) -> Panels:
        """Return all panels in ascending order."""
        lows, highs = (np.concatenate([getattr(part, side) for part in several]) for side in ("lows", "highs"))
        order = np.argsort(lows)
        return cls(lows[order], highs[order])

    def pick(self, which: NDArray[np.bool_]) -> Panels:
        """Return some of the panels."""
        return Panels(self.lows[which], self.highs[which])

    def split(self, pieces: int) -> Panels:
        """Return equal pieces of all panels."""
        edges = self.lows + (self.highs - self.lows) * (np.arange(pieces + 1) / pieces)[:, None]
        return Panels(edges[:-1].ravel(), edges[1:].ravel())

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

    def look(self, own: Conditioned) -> Look:
        """Return what the density adds on each panel, and what is not seen of it.

        Parameters
        ----------
        own : Conditioned
            The density at the frequencies.
        """
        values = own.powers.reshape(len(own.powers), -1, _ORDER)
        series = np.abs(values @ _SERIES) * (2.0 / np.pi * self._halves)[:, None]
        energies = whole = series[..., 0]
        if own.uncancelled is not own.powers:
            # What is left where waves cancel each other is rounding; nothing smaller needs to be resolved.
            whole = own.uncancelled.reshape(values.shape) @ _WEIGHTS * (self._halves / np.pi)
            energies = energies + _ROUNDING * whole
        shares = own.shares.reshape(len(own.shares), -1, _ORDER)
        largest, middle = shares.max(axis=-1), np.partition(shares, _ORDER // 2, axis=-1)[..., _ORDER // 2]
        alone = np.exp(own.log_density[:, _ORDER // 2 :: _ORDER]) * self._halves
        is_bent = np.abs(own.log_sizes.reshape(-1, _ORDER) @ _BENDS).max(axis=-1) > _BENT
        # A peak of height h and width g has flanks h (g/d)^2 at a distance d, and the variance g h.
        bound = np.where((largest > _HIDDEN * middle) | is_bent, 0.1 * alone * np.sqrt(largest), 0.0)
        tails = series[..., 1:].max(axis=-1)
        # Below, terms are made of rounding, and halving would not end.
        tails[tails < 20.0 * _ROUNDING * whole] = 0.0
        return Look(energies, tails, alone * (shares @ _WEIGHTS) / np.pi, bound)

    def serves(self, own: Conditioned, allowed: Allowed) -> bool:
        """Return whether the rule is still accurate at another point, and not far wider than it needs to be there.

        Parameters
        ----------
        own : Conditioned
            The density at the frequencies.
        allowed : Allowed
        """
        if self.highs[0] * float(np.max(own.point.lengthscales)) > 2.0 * _FIRST:
            return False
        look = self.look(own)
        totals, _ = look.totals
        share = allowed.share(totals)
        # What comes after the last panel is less than this.
        beyond = own.powers[:, -1] * self._halves[-1]
        if not np.isfinite(totals).all() or self.missed > share or (beyond > share * totals).any():
            return False
        half = look.energies.shape[1] // 2
        is_wide = (look.energies[:, half:] <= min(_NOTHING, share * share) * totals[:, None]).all()
        return bool(not is_wide and not look.coarse(look.totals, share).any())


@dataclass(frozen=True)
class Look:
    """What a rule sees of densities on each panel.

    Parameters
    ----------
    energies : array, shape (o, p)
        The variance that each panel adds to the observables.
    tails : array, shape (o, p)
        The same for the last terms of a Legendre series.
    channels : array, shape (c, p)
        The variance that each panel adds to the channels, about.
    hidden : array, shape (c, p)
        The variance that a peak between the nodes of a panel might have, for each channel.
    """

    energies: Array
    tails: Array
    channels: Array
    hidden: Array

    @property
    def totals(self) -> tuple[Array, Array]:
        """The variances of observables and channels."""
        return self.energies.sum(axis=1), self.channels.sum(axis=1)

    def coarse(self, totals: tuple[Array, Array], eps: float) -> NDArray[np.bool_]:
        """Return which panels miss more than a share of the variance, shape (p,).

        The terms of the series beyond those that the rule integrates are about the square of the last ones that it
        sees, relative to the first.

        Parameters
        ----------
        totals : (array, array)
            Variances of all observables and channels.
        eps : float
            The share.
        """
        allowed = eps * totals[0][:, None]
        missed = self.tails**2 > allowed * (self.energies + 1e-4 * allowed)
        return np.asarray(missed.any(axis=0) | self.peaks(totals, eps))

    def peaks(self, totals: tuple[Array, Array], eps: float) -> NDArray[np.bool_]:
        """Return which panels may hide a peak of more than a share of a channel's variance, as in `coarse`."""
        return np.asarray((self.hidden > eps * totals[1][:, None]).any(axis=0))

    def missed(self, totals: tuple[Array, Array], which: NDArray[np.bool_]) -> float:
        """Return the share of a variance that some panels may miss, with `totals` as in `coarse`."""
        parts = zip((self.tails, self.hidden), totals, strict=True)
        # Channels that no free function moves have no variance, and miss none of it.
        shares = [part[:, which].sum(axis=1) / np.where(total > 0, total, 1.0) for part, total in parts]
        return float(sum(np.max(share, initial=0.0) for share in shares))


def make_panels(point: Point, length: float, share: float = _SERVED) -> Panels | None:
    """Return panels for all lags up to a length; None where the density is not finite, or takes too much memory.

    Parameters
    ----------
    point : Point
        Operators and hyperparameters.
    length : float
        In scaled time.
    share : float
        Of a variance: what may be missed where the panels serve again nearby; here it is ten thousand times less.
    """
    made, order = _MADE / _SERVED * share, max(point.free.shape[-1], point.channels.shape[-1])
    nothing, far = 1e-3 * made, min(_FAR, made * made)
    band = CHANNEL_LATENT.band(order, nothing) / float(np.min(point.lengthscales))
    longest = float(np.max(point.lengthscales))
    if not np.isfinite(band) or band * length > _HIGHEST or not longest < _LONGEST * length:
        return None
    edges = np.linspace(0.0, band, int(np.ceil(band * length / (2.0 * _TURN))) + 5)
    doublings = np.arange(max(np.ceil(np.log2(edges[1] * longest / _FIRST)), 0.0), 0.0, -1.0)
    edges = np.insert(edges, 1, edges[1] * 0.5**doublings)
    # Far beyond the band of the data nothing is looked at more closely.
    powers = Conditioned(edges, point).powers
    if not np.isfinite(powers).all():
        return None
    known = np.flatnonzero((powers > far * powers.sum(axis=1, keepdims=True)).any(axis=0))
    top = min(int(np.max(known, initial=0)) + 2, len(edges) - 1)
    todo = Panels(edges[:top], edges[1 : top + 1])
    done: list[Panels] = []
    room = _NUMBERS // (_ORDER * (len(point.free) + len(point.channels)) * point.free.shape[1])
    settled, energies, missed = (np.zeros(len(powers)), np.zeros(len(point.channels))), [], 0.0
    for _ in range(_HALVINGS):
        if len(todo.lows) > room:
            return None
        look = todo.look(Conditioned(todo.frequencies, point))
        totals = settled[0] + look.totals[0], settled[1] + look.totals[1]
        coarse, peaks = look.coarse(totals, made), look.peaks(totals, made)
        is_wide = todo.highs - todo.lows > _NARROWEST * todo.highs
        missed += look.missed(totals, coarse & ~is_wide)
        coarse &= is_wide
        done.append(todo.pick(~coarse))
        room -= len(done[-1].lows)
        energies.append(look.energies[:, ~coarse])
        settled = settled[0] + energies[-1].sum(axis=1), settled[1] + look.channels[:, ~coarse].sum(axis=1)
        # A peak between the nodes is far narrower than a half.
        todo = Panels.joined([todo.pick(coarse & ~peaks).split(2), todo.pick(coarse & peaks).split(4)])
        if not len(todo.lows):
            break
        if len(todo.lows) > _MOST:
            return None
    needed = (np.concatenate(energies, axis=1) > nothing * settled[0][:, None]).any(axis=0)
    if not np.isfinite(settled[0]).all() or not needed.any():
        return None
    highest = float(np.concatenate([part.highs for part in done])[needed].max())
    found = Panels.joined(done)
    return replace(found.pick(found.highs <= highest), missed=missed)
