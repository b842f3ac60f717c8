"""Steps of a linear system that white noise drives: transition and covariance of the noise, and derivatives.

``Phi(h) = e^(F h)`` and ``Q(h) = int_0^h e^(F s) B e^(F' s) ds``. Taylor's series serve short steps: their terms are
the same for all lengths, so that any number of different lengths costs one product. Longer steps are doubled,
``Q(2h) = Q(h) + Phi Q Phi'``, which never subtracts; entries that are small for short steps keep all their digits.
Derivatives go the same way back.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

__all__ = ["ORDERS", "TERMS", "NoisySteps"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
#: Terms of the series for steps of norm 1/2 at most: the first one that is left out is below 1e-17 of the first that
#: is not zero, also in entries that begin with a high power of the step.
TERMS = 26
#: The numbers of these terms: each is the one before times the length of the step over its number.
ORDERS: Array = np.arange(1, TERMS + 1, dtype=float)


class NoisySteps:
    """Transitions and noises over steps of some lengths.

    Parameters
    ----------
    F : array, shape (s, s)
        Finite.
    B : array, shape (s, s)
        The spectral density of the white noise that drives the states.
    lengths : array, shape (k,)
        None negative.

    Examples
    --------
    >>> steps = NoisySteps(np.array([[-1.0]]), np.array([[2.0]]), np.array([0.0, 0.1, 30.0]))
    >>> np.allclose(steps.noises[:, 0, 0], -np.expm1([-0.0, -0.2, -60.0]), rtol=1e-14)
    True
    """

    def __init__(self, F: Array, B: Array, lengths: Array) -> None:
        self.transitions = self.noises = np.zeros((len(lengths), 0, 0))
        if len(F):
            self._make(F, B, lengths)

    def _make(self, F: Array, B: Array, lengths: Array) -> None:
        self._norm = float(np.abs(F).sum(axis=1).max(initial=0.0)) or 1.0
        self._F, self._B = F / self._norm, B / self._norm
        sizes = lengths * self._norm
        self._halvings = np.maximum(0, np.ceil(np.log2(np.maximum(sizes, 1e-300))) + 1).astype(int)
        self._weights = np.cumprod(np.ldexp(sizes, -self._halvings) / ORDERS[:, None], axis=0)
        self._powers, self._noises = self._terms()
        self._is_driven = bool(B.any())
        size = len(F)
        grown = (self._weights.T @ self._powers[1:].reshape(TERMS, size * size)).reshape(len(lengths), size, size)
        noise = np.zeros_like(grown)
        if self._is_driven:
            np.matmul(self._weights.T, self._noises.reshape(TERMS, size * size), out=noise.reshape(-1, size * size))
        self._past: list[tuple[Mask, Array, Array]] = []
        for step in range(self._halvings.max(initial=0)):
            active = self._halvings > step
            E, Q = grown[active], noise[active]
            self._past.append((active, E, Q))
            if self._is_driven:
                Phi = E + np.eye(size)
                noise[active] = Q + Phi @ Q @ Phi.swapaxes(-1, -2)
            # The transition without the one of its diagonal: small entries are not lost beside it.
            grown[active] = 2.0 * E + E @ E
        self.transitions, self.noises = grown + np.eye(size), noise

    def _terms(self) -> tuple[Array, Array]:
        """Return the powers of F, from the zeroth on, and the derivatives of the noise at zero, from the first on."""
        size = len(self._F)
        powers, noises = np.empty((TERMS + 1, size, size)), np.empty((TERMS, size, size))
        powers[0], noises[0] = np.eye(size), self._B
        for before, now in pairwise(powers):
            np.dot(before, self._F, out=now)
        for before, now in pairwise(noises):
            half = self._F.dot(before)
            np.add(half, half.T, out=now)
        return powers, noises

    def pull(self, in_transitions: Array, in_noises: Array) -> tuple[Array, Array]:
        """Return derivatives in F and in B, shape (s, s) each, from those in all transitions and noises.

        Parameters
        ----------
        in_transitions, in_noises : arrays, shape (k, s, s)
            Those in the noises are symmetric; where nothing drives the states, they are zeros.
        """
        in_grown, in_noise = in_transitions.copy(), in_noises.copy()
        size = in_grown.shape[-1]
        if not size:
            return np.zeros((0, 0)), np.zeros((0, 0))
        for active, E, Q in reversed(self._past):
            G, across = in_grown[active], E.swapaxes(-1, -2)
            in_grown[active] = 2.0 * G + G @ across + across @ G
            if self._is_driven:
                Phi, N = E + np.eye(size), in_noise[active]
                in_grown[active] += 2.0 * N @ Phi @ Q
                in_noise[active] = N + Phi.swapaxes(-1, -2) @ N @ Phi
        in_powers = (self._weights @ in_grown.reshape(len(in_grown), size * size)).reshape(TERMS, size, size)
        in_terms = (self._weights @ in_noise.reshape(len(in_noise), size * size)).reshape(TERMS, size, size)
        in_F = np.zeros((size, size))
        slope = np.zeros((size, size))
        for k in range(TERMS, 0, -1):
            slope = slope + in_powers[k - 1]
            in_F += self._powers[k - 1].T @ slope
            slope = slope @ self._F.T
        slope = in_terms[-1]
        for k in range(TERMS - 1, 0, -1):
            in_F += 2.0 * slope @ self._noises[k - 1]
            half = self._F.T @ slope
            slope = half + half.T + in_terms[k - 1]
        # F and B were divided by the norm of F, and lengths multiplied by it: whatever it is, nothing depends on it.
        return in_F / self._norm, slope / self._norm
