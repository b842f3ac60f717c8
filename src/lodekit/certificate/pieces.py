"""Derivatives of curves that are only known by their values: Chebyshev polynomials on pieces of the time axis.

Every derivative is taken twice, from two sets of nodes that have no time in common. What the two disagree about shows
what was cut off and what rounding did, so each length of pieces tells how far it can be trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

__all__ = ["DEGREES", "Pieces", "make_pieces"]

Array = NDArray[np.float64]
#: Of the two polynomials on a piece.
DEGREES = (20, 31)
_PROBES = 5


@dataclass(frozen=True)
class Pieces:
    """Pieces of the time axis that hold some times, each piece around the times that it is asked for.

    Parameters
    ----------
    times : array, shape (n,)
        Where derivatives are wanted.
    owner : array of int, shape (n,)
        The piece that each time belongs to.
    low, high : arrays, shape (p,)
        The ends of the pieces.
    """

    times: Array
    owner: NDArray[np.int64]
    low: Array
    high: Array

    @property
    def nodes(self) -> Array:
        """All times at which the curve must be known, those of the lower degree first."""
        return np.concatenate([self._nodes(degree).ravel() for degree in DEGREES])

    def split(self, values: Array) -> list[Array]:
        """Return values at all nodes piece by piece, shapes (p, degree + 1, channels), for each degree.

        Parameters
        ----------
        values : array, shape (nodes, channels)
        """
        parts = np.split(values, [len(self.low) * (DEGREES[0] + 1)])
        return [own.reshape(len(self.low), n + 1, values.shape[-1]) for own, n in zip(parts, DEGREES, strict=True)]

    def with_probes(self) -> Pieces:
        """Return the same pieces with a few more times in each, behind all others."""
        parts = np.linspace(0.25, 0.75, _PROBES)
        probes = self.low[:, None] + (self.high - self.low)[:, None] * parts
        owner = np.repeat(np.arange(len(self.low)), _PROBES)
        return replace(
            self, times=np.concatenate([self.times, probes.ravel()]), owner=np.concatenate([self.owner, owner])
        )

    def _nodes(self, degree: int) -> Array:
        points = np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
        middle, half = 0.5 * (self.high + self.low), 0.5 * (self.high - self.low)
        return np.asarray(middle[:, None] + half[:, None] * points)

    def derivatives(self, values: Array, order: int) -> tuple[Array, Array]:
        """Return all derivatives up to an order, twice, both of shape (order + 1, s, n, channels).

        Parameters
        ----------
        values : array, shape (s, nodes, channels)
            Of s functions at all nodes.
        order : int
        """
        found, start = [], 0
        for degree in DEGREES:
            stop = start + len(self.low) * (degree + 1)
            found.append(self._differentiate(values[:, start:stop], degree, order))
            start = stop
        return found[0], found[1]

    def _differentiate(self, values: Array, degree: int, order: int) -> Array:
        size, channels, count = len(values), values.shape[-1], len(self.low)
        middle, half = 0.5 * (self.high + self.low), 0.5 * (self.high - self.low)
        # Far from time zero nodes are rounded to where floats are; the polynomial goes through where they really are.
        points = (self._nodes(degree) - middle[:, None]) / half[:, None]
        shaped = values.reshape(size, count, degree + 1, channels).transpose(1, 2, 0, 3).reshape(count, degree + 1, -1)
        solved = np.linalg.solve(chebyshev.chebvander(points, degree), shaped)
        # Coefficients first: (degree + 1, s, pieces, channels).
        coefficients = solved.reshape(count, degree + 1, size, channels).transpose(1, 2, 0, 3)
        position = (self.times - middle[self.owner]) / half[self.owner]
        vander = chebyshev.chebvander(position, degree)
        found = []
        for k in range(order + 1):
            own = coefficients[:, :, self.owner]
            value = np.einsum("nk,ksnc->snc", vander[:, : len(own)], own)
            found.append(value * half[self.owner][:, None] ** -k)
            coefficients = chebyshev.chebder(coefficients)
        return np.stack(found)


def make_pieces(times: Array, length: float, breaks: Sequence[float] | Array = ()) -> Pieces:
    """Return pieces for all times: of about one length, and each within two neighbouring breaks.

    Without breaks a piece reaches beyond its share on both sides, because a polynomial is best in its middle.

    Parameters
    ----------
    times : array, shape (n,)
    length : float
        Of a share.
    breaks : sequence of float
        Times at which the curve may be less smooth than between them.
    """
    inner = np.unique(np.asarray(breaks, dtype=float))
    if not len(inner):
        index = np.floor((times - times.min()) / length).astype(np.int64)
        numbers, owner = np.unique(index, return_inverse=True)
        low = times.min() + (numbers - 0.5) * length
        return Pieces(times, owner, low, low + 2.0 * length)
    edges = np.concatenate([[min(times.min(), inner[0]) - length], inner, [max(times.max(), inner[-1]) + length]])
    gap = np.searchsorted(edges, times, side="right") - 1
    parts = np.maximum(np.ceil((edges[gap + 1] - edges[gap]) / length), 1.0)
    share = (edges[gap + 1] - edges[gap]) / parts
    index = np.minimum(np.floor((times - edges[gap]) / share), parts - 1.0)
    (low, high), owner = _unique_pairs(edges[gap] + index * share, edges[gap] + (index + 1) * share)
    return Pieces(times, owner, low, high)


def _unique_pairs(low: Array, high: Array) -> tuple[Array, NDArray[np.int64]]:
    pairs, owner = np.unique(np.stack([low, high]), axis=1, return_inverse=True)
    return pairs, owner.ravel()
