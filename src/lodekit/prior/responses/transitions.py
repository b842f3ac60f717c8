"""Exact steps of a state space: exponentials, and integrals against held and linear inputs, with derivatives.

A step of length h with the input ``v + v' tau`` is ``x(h) = P x + P0 v + P1 v'``, where ``P = e^(F h)``,
``P0 = h phi_1(F h) G`` and ``P1 = h^2 phi_2(F h) G``. All three come from the exponential of one matrix,
``[[F h, G, 0], [0, 0, 1], [0, 0, 0]]``, whose size does not grow with h beyond that of F h.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Steps", "exponentials"]

Array = NDArray[np.float64]
#: Terms of the Taylor series of a matrix of norm 1/2 at most: the next one is 2e-17.
_TERMS = 14


def exponentials(matrices: Array, slopes: Array | None = None) -> tuple[Array, Array]:
    """Return ``e^X`` of many matrices, shape (k, d, d), and derivatives in given directions, (p, k, d, d).

    Taylor's series of ``e^(X / 2^j) - 1``, then doubling by ``2 E + E^2``: the small entries that slow states have
    beside fast ones are not lost under the one of the diagonal.

    Parameters
    ----------
    matrices : array, shape (k, d, d)
        X, finite.
    slopes : array, shape (p, k, d, d), optional
        Directions.
    """
    if not len(matrices):
        return matrices.copy(), np.zeros((0 if slopes is None else len(slopes), *matrices.shape))
    norms = np.abs(matrices).sum(-1).max(-1, initial=0.0)
    halvings = np.maximum(0, np.ceil(np.log2(np.maximum(norms, 1e-300))) + 1).astype(int)
    shrink = np.ldexp(1.0, -halvings)[:, None, None]
    X = matrices * shrink
    dX = np.zeros((0, *X.shape)) if slopes is None else slopes * shrink
    unit = np.eye(matrices.shape[-1])
    tail, d_tail = np.broadcast_to(unit, X.shape), np.zeros(dX.shape)
    for order in range(_TERMS, 1, -1):
        if len(dX):
            d_tail = (dX @ tail + X @ d_tail) / order
        tail = unit + X @ tail / order
    E, dE = X @ tail, dX @ tail + X @ d_tail
    for step in range(halvings.max(initial=0)):
        active = halvings > step
        now = E[active]
        if len(dE):
            change = dE[:, active]
            dE[:, active] = 2.0 * change + change @ now + now @ change
        E[active] = 2.0 * now + now @ now
    return E + unit, dE


class Steps:
    """Steps of a state space, of any lengths.

    Parameters
    ----------
    F, G : arrays, shapes (s, s) and (s, m)
        Finite.
    orders : {1, 2}
        1 for inputs that are all held, 2 where one is linear.
    """

    def __init__(self, F: Array, G: Array, orders: int) -> None:
        self.F, self.G, self.orders = F, G, orders
        self.states, self.inputs = len(F), int(G.shape[1])
        sizes = np.abs(G).max(0, initial=0.0)
        # Powers of two: a step is linear in G, and a large G must not cost digits of F.
        self._scales = np.where(sizes > 0, np.exp2(np.ceil(np.log2(np.maximum(sizes, 1e-300)))), 1.0)

    @property
    def width(self) -> int:
        """Numbers that a step acts on: states, inputs, and their slopes where one is linear."""
        return self.states + self.orders * self.inputs

    def at(self, lengths: Array, slopes: tuple[Array, Array] | None = None) -> tuple[Array, Array]:
        """Return ``[P, P0, P1]`` of each length, shape (k, s, width), and derivatives in the parameters, (p, ...).

        Parameters
        ----------
        lengths : array, shape (k,)
        slopes : pair of arrays, shapes (p, s, s) and (p, s, m), optional
            Derivatives of F and G.
        """
        directions = None
        if slopes is not None:
            directions = np.zeros((len(slopes[0]), len(lengths), self.width, self.width))
            directions[:, :, : self.states, : self.states] = slopes[0][:, None] * lengths[:, None, None]
            columns = slice(self.states, self.states + self.inputs)
            directions[:, :, : self.states, columns] = (slopes[1] / self._scales)[:, None]
        found, changes = exponentials(self._augmented(lengths), directions)
        factors = self._factors(lengths)
        return found[:, : self.states] * factors, changes[:, :, : self.states] * factors

    def pull_back(self, lengths: Array, weights: Array) -> tuple[Array, Array]:
        """Return the derivatives of ``sum weights * at(lengths)`` in F and in G, shapes (s, s) and (s, m).

        Parameters
        ----------
        lengths : array, shape (k,)
        weights : array, shape (k, s, width)
        """
        directions = np.zeros((1, len(lengths), self.width, self.width))
        directions[0, :, : self.states] = weights * self._factors(lengths)
        # <W, L(X, dX)> = <L(X^T, W), dX> for the derivative L of the exponential.
        _, found = exponentials(self._augmented(lengths).swapaxes(-1, -2), directions)
        top = found[0][:, : self.states]
        columns = slice(self.states, self.states + self.inputs)
        of_F = np.einsum("k,kij->ij", lengths, top[..., : self.states])
        return of_F, top[..., columns].sum(0) / self._scales

    def _augmented(self, lengths: Array) -> Array:
        s, m = self.states, self.inputs
        matrix = np.zeros((len(lengths), self.width, self.width))
        matrix[:, :s, :s] = self.F * lengths[:, None, None]
        matrix[:, :s, s : s + m] = self.G / self._scales
        if self.orders == 2:
            matrix[:, s : s + m, s + m :] = np.eye(m)
        return matrix

    def _factors(self, lengths: Array) -> Array:
        """Return what the blocks of the exponential are multiplied with, shape (k, 1, width)."""
        blocks = [np.ones((len(lengths), self.states))]
        blocks += [lengths[:, None] ** order * self._scales for order in range(1, self.orders + 1)]
        return np.concatenate(blocks, axis=1)[:, None, :]
