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

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
#: What terms that are left out of series may be beside the first one that is not zero, and the highest power of a step
#: with which entries are taken to begin.
_TAYLOR_TOLERANCE, _MAX_LEADING_ORDER = 1e-17, 17


class ProcessDiscretization:
    """Transitions and noises over steps of some lengths.

    F: Finite; (s, s).
    B: The spectral density of the white noise that drives the states; (s, s).
    lengths: None negative; (k,).

    Examples
    --------
    >>> steps = ProcessDiscretization(np.array([[-1.0]]), np.array([[2.0]]), np.array([0.0, 0.1, 30.0]))
    >>> np.allclose(steps.noises[:, 0, 0], -np.expm1([-0.0, -0.2, -60.0]), rtol=1e-14)
    True
    """

    def __init__(self, F: Array, noise_intensity: Array, dt: Array) -> None:
        self.Phi = self.Q = np.zeros((len(dt), 0, 0))
        if len(F):
            self._discretize(F, noise_intensity, dt)

    def _discretize(self, F: Array, noise_intensity: Array, dt: Array) -> None:
        self._norm = float(np.abs(F).sum(axis=1).max(initial=0.0)) or 1.0
        self._F, self._noise_intensity = F / self._norm, noise_intensity / self._norm
        sizes = dt * self._norm
        self._n_squarings = np.maximum(0, np.ceil(np.log2(np.maximum(sizes, 1e-300)))).astype(int)
        short = np.ldexp(sizes, -self._n_squarings)
        count = _count_taylor_terms(float(short.max(initial=0.0)), len(F))
        self._taylor_weights = np.cumprod(short / np.arange(1.0, count + 1.0)[:, None], axis=0)
        self._F_powers, self._Q_terms = self._taylor_terms(count)
        self._has_noise = bool(noise_intensity.any())
        size = len(F)
        grown = (self._taylor_weights.T @ self._F_powers[1:].reshape(count, size * size)).reshape(len(dt), size, size)
        noise = np.zeros_like(grown)
        if self._has_noise:
            np.matmul(
                self._taylor_weights.T, self._Q_terms.reshape(count, size * size), out=noise.reshape(-1, size * size)
            )
        self._squaring_history: list[tuple[Mask, Array, Array]] = []
        for step in range(self._n_squarings.max(initial=0)):
            active = self._n_squarings > step
            E, Q = grown[active], noise[active]
            self._squaring_history.append((active, E, Q))
            # The transition without the one of its diagonal: small entries are not lost beside it.
            Phi = E + np.eye(size)
            if self._has_noise:
                moved = Phi @ np.concatenate([E, Q], axis=2)
                noise[active] = Q + moved[:, :, size:] @ _transpose(Phi)
                grown[active] = E + moved[:, :, :size]
            else:
                grown[active] = E + Phi @ E
        self.Phi, self.Q = grown + np.eye(size), noise

    def _taylor_terms(self, count: int) -> tuple[Array, Array]:
        """Return the powers of F, from the zeroth on, and the derivatives of the noise at zero, from the first on."""
        size = len(self._F)
        powers, noises = np.empty((count + 1, size, size)), np.empty((count, size, size))
        powers[0], noises[0] = np.eye(size), self._noise_intensity
        for before, now in pairwise(powers):
            np.dot(before, self._F, out=now)
        for before, now in pairwise(noises):
            half = self._F.dot(before)
            np.add(half, half.T, out=now)
        return powers, noises

    def vjp(self, grad_Phi: Array, grad_Q: Array) -> tuple[Array, Array]:
        """Return derivatives in F and in B, shape (s, s) each, from those in all transitions and noises.

        Shapes: grad_Phi, grad_Q (k, s, s).
        """
        in_grown, in_noise = grad_Phi.copy(), grad_Q.copy()
        size = in_grown.shape[-1]
        if not size:
            return np.zeros((0, 0)), np.zeros((0, 0))
        for active, E, Q in reversed(self._squaring_history):
            G, across = in_grown[active], _transpose(E)
            in_grown[active] = 2.0 * G + G @ across + across @ G
            if self._has_noise:
                Phi, N = E + np.eye(size), in_noise[active]
                in_grown[active] += 2.0 * N @ Phi @ Q
                in_noise[active] = N + _transpose(Phi) @ N @ Phi
        back = np.ascontiguousarray(self._F.T)
        # Those in each power, and in each derivative of the noise, with what comes through all later ones.
        slopes = (self._taylor_weights @ in_grown.reshape(len(in_grown), size * size)).reshape(-1, size, size)
        for after, now in pairwise(slopes[::-1]):
            np.add(now, after.dot(back), out=now)
        in_F = self._F_powers[:-1].reshape(-1, size).T @ slopes.reshape(-1, size)
        if self._has_noise:
            slopes = (self._taylor_weights @ in_noise.reshape(len(in_noise), size * size)).reshape(-1, size, size)
            for after, now in pairwise(slopes[::-1]):
                half = back.dot(after)
                np.add(now, half, out=now)
                np.add(now, half.T, out=now)
            # Both are symmetric.
            in_F += 2.0 * slopes[1:].reshape(-1, size).T @ self._Q_terms[:-1].reshape(-1, size)
        else:
            slopes = np.zeros((1, size, size))
        # F and B were divided by the norm of F, and lengths multiplied by it: whatever it is, nothing depends on it.
        return in_F / self._norm, slopes[0] / self._norm


def _transpose(matrices: Array) -> Array:
    """Return matrices transposed: products of many small ones are faster where these are not views."""
    return np.ascontiguousarray(matrices.swapaxes(-1, -2))


def _count_taylor_terms(max_norm: float, size: int) -> int:
    """Return how many terms series of steps need, the longest of which has this norm, at most one.

    The first one that is left out is below 1e-17 of the first that is not zero, also in entries that begin with a high
    power of the step: that of the noise of the first of a chain of states is twice their number, less one.
    """
    order = min(2 * size - 1, _MAX_LEADING_ORDER)
    found, left = order, max_norm / (order + 1)
    while left > _TAYLOR_TOLERANCE:
        found += 1
        left *= max_norm / (found + 1)
    return found
