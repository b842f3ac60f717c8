"""Modes that are left open: deviations so wide that data alone tell initial states, and that favour no parameters.

Where known inputs drive all that was measured, modes are what initial states make. A deviation that is learned for them
says that states begin near rest, which nobody has said. A fixed one would, by the determinant of the evidence, favour
parameters at which modes are seen less, or look alike. So deviations follow the parameters: each mode may make many
times the data, and what the determinant would say of the parameters is taken back. In the limit of wide deviations this
is the restricted likelihood of a regression, with a prior that is flat on the functions that modes make of the record,
whatever basis they have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.prior.compile import Coefficients
from lodekit.prior.modes import ModeGroup, group_of_each
from lodekit.prior.observables import Observables

__all__ = ["OpenModes"]

Array = NDArray[np.float64]
#: How many times larger than the data modes may be.
_WIDE = 30.0
#: How many times of a record tell what modes make of it: so many at its start, and so many of all others.
_FIRST, _OTHERS = 48, 96
#: Modes that are closer to each other than this look alike for ever.
_ALIKE = 1e-12


def _some(times: Array) -> tuple[Array, Array]:
    """Return some times, closer to each other at the start, and for how many of all each stands."""
    count = len(times)
    later = np.geomspace(_FIRST, max(count, _FIRST + 1), _OTHERS).astype(int)
    places = np.unique(np.concatenate([np.arange(min(count, _FIRST)), np.minimum(later, count - 1)]))
    edges = np.concatenate([[0.0], 0.5 * (places[1:] + places[:-1] + 1), [float(count)]])
    return times[places], np.diff(edges)


@dataclass(frozen=True)
class OpenModes:
    """Deviations of modes that follow the parameters.

    Parameters
    ----------
    observables : Observables
        What was measured.
    groups : tuple of ModeGroup
    times : tuple of arrays
        Some times of each record, scaled, from its start on.
    weights : tuple of arrays
        For how many measurements each of them stands.
    """

    observables: Observables
    groups: tuple[ModeGroup, ...]
    times: tuple[Array, ...]
    weights: tuple[Array, ...]

    @classmethod
    def of(cls, observables: Observables, groups: tuple[ModeGroup, ...], times: Sequence[Array]) -> OpenModes:
        """Return the deviations for what was measured at some times.

        Parameters
        ----------
        observables : Observables
        groups : tuple of ModeGroup
        times : sequence of arrays
            All different times of each record, scaled, from its start on, ascending.
        """
        chosen = [_some(each) for each in times]
        return cls(observables, groups, tuple(each for each, _ in chosen), tuple(each for _, each in chosen))

    def evaluate(self, theta: Array, *, slopes: bool) -> tuple[Array, Array]:
        """Return the logarithms of the deviations, shape (g,), and derivatives in the parameters, (p, g).

        Parameters
        ----------
        theta : array, shape (p,)
        slopes : bool
            Whether derivatives are wanted; they are zero otherwise.
        """
        with np.errstate(all="ignore"):
            values = self.observables.evaluate(theta)
            found = [self._gram(values, number, slopes=slopes) for number in range(len(self.times))]
            grams, d_grams = np.stack([each for each, _ in found]), np.stack([each for _, each in found])
            return self._match(grams, d_grams)

    def _gram(self, values: Coefficients, number: int, *, slopes: bool) -> tuple[Array, Array]:
        """Return mean products of the basis functions over a record, (r, r), and their derivatives, (p, r, r)."""
        basis, d_basis = self.observables.mode_basis(values, self.groups, self.times[number], slopes=slopes)
        weights = self.weights[number] / (self.weights[number].sum() * len(basis))
        size = basis[0].shape[1]
        gram, d_gram = np.zeros((size, size)), np.zeros((len(values.table[1]), size, size))
        for part, d_part in zip(basis, d_basis, strict=True):
            weighed = part.T * weights
            gram += weighed @ part
            if slopes:
                half = weighed @ d_part
                d_gram += half + half.swapaxes(1, 2)
        return gram, d_gram

    def _match(self, grams: Array, d_grams: Array) -> tuple[Array, Array]:
        """Return what `evaluate` does, from mean products in each record, (k, r, r), and derivatives, (k, p, r, r)."""
        each = np.array(group_of_each(self.groups))
        count, width = len(self.groups), d_grams.shape[1]
        squares, d_squares = np.zeros(count), np.zeros((width, count))
        for g in range(count):
            own = np.flatnonzero(each == g)
            squares[g] = np.mean(grams[:, own, own])
            d_squares[:, g] = np.mean(d_grams[:, :, own, own], axis=(0, 2))
        seen = squares > 0.0
        # What no measurement shows has no size of its own.
        squares[~seen], d_squares[:, ~seen] = 1.0, 0.0
        d_logs = d_squares / squares
        logs, d_found = np.log(_WIDE) - 0.5 * np.log(squares), -0.5 * d_logs
        kept = np.flatnonzero(seen[each])
        if not len(kept):
            return logs, d_found
        scale = 1.0 / np.sqrt(squares[each[kept]])
        d_scale = -0.5 * d_logs[:, each[kept]]
        part = np.ix_(kept, kept)
        for gram, d_gram in zip(grams, d_grams, strict=True):
            alike = gram[part] * np.outer(scale, scale)
            held = alike + _ALIKE * np.eye(len(kept))
            # Half the logarithm of the determinant, shared by all modes, so that the evidence does not know of it.
            share = 0.5 / (len(kept) * len(grams))
            logs -= share * np.linalg.slogdet(held)[1]
            d_alike = d_gram[:, kept][:, :, kept] * np.outer(scale, scale)
            d_alike += alike * (d_scale[:, :, None] + d_scale[:, None, :])
            d_found -= share * np.einsum("ij,pji->p", np.linalg.inv(held), d_alike)[:, None]
        return logs, d_found
