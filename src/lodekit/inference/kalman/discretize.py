"""Discretization of linear systems driven by white noise: transition matrices and process noise covariances.

``Phi(h) = e^(F h)`` and ``Q(h) = int_0^h e^(F s) B e^(F' s) ds``, the quantities of Van Loan's method [1]_, by Taylor
series with scaling and squaring: the terms are the same for all steps, so that any number of different steps costs one
product. Long steps are doubled, ``Q(2h) = Q(h) + Phi Q Phi'``, which never subtracts, so that small entries keep their
digits (Van Loan's block exponential would lose them). Derivatives are the adjoint of the same recursion.

.. [1] C. F. Van Loan, Computing integrals involving the matrix exponential, IEEE Transactions on Automatic Control 23
   (1978), 395-404.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


class ProcessDiscretization:
    """Transition matrices `Phi` and noise covariances `Q` over steps of several lengths, shapes (k, s, s).

    F, noise_intensity: Finite; the spectral density B of the white noise; (s, s).
    dt: Not negative; (k,).

    Examples
    --------
    >>> steps = ProcessDiscretization(np.array([[-1.0]]), np.array([[2.0]]), np.array([0.0, 0.1, 30.0]))
    >>> np.allclose(steps.Q[:, 0, 0], -np.expm1([-0.0, -0.2, -60.0]), rtol=1e-14)
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
            terms = self._Q_terms.reshape(count, size * size)
            np.matmul(self._taylor_weights.T, terms, out=noise.reshape(-1, size * size))
        self._squaring_history: list[tuple[Mask, Array, Array]] = []
        for step in range(self._n_squarings.max(initial=0)):
            active = self._n_squarings > step
            E, Q = grown[active], noise[active]
            self._squaring_history.append((active, E, Q))
            # E = Phi - 1: small entries on the diagonal keep their digits.
            Phi = E + np.eye(size)
            if self._has_noise:
                moved = Phi @ np.concatenate([E, Q], axis=2)
                noise[active] = Q + moved[:, :, size:] @ _transpose(Phi)
                grown[active] = E + moved[:, :, :size]
            else:
                grown[active] = E + Phi @ E
        self.Phi, self.Q = grown + np.eye(size), noise

    def _taylor_terms(self, count: int) -> tuple[Array, Array]:
        """Return the powers of F, from the zeroth on, and the derivatives of Q at zero, from the first on."""
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
        """Return derivatives in F and in the noise intensity, shape (s, s) each, from those in all Phi and Q.

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
        # Derivatives in each power of F, and in each term of Q, include those through all later ones.
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
            # Both factors are symmetric.
            in_F += 2.0 * slopes[1:].reshape(-1, size).T @ self._Q_terms[:-1].reshape(-1, size)
        else:
            slopes = np.zeros((1, size, size))
        # Nothing depends on the norm that F and B were divided by and steps multiplied by.
        return in_F / self._norm, slopes[0] / self._norm


def _transpose(matrices: Array) -> Array:
    """Return transposed copies: products of many small matrices are slower with views."""
    return np.ascontiguousarray(matrices.swapaxes(-1, -2))


def _count_taylor_terms(max_norm: float, size: int) -> int:
    """Return the number of Taylor terms for steps of at most this norm, which is at most one.

    The first omitted term is below 1e-17 of the first nonzero one, also in entries that begin with a high power of the
    step: for the noise of the first of a chain of states it is twice their number, less one.
    """
    terms = min(2 * size - 1, 17)
    omitted = max_norm / (terms + 1)
    while omitted > 1e-17:
        terms += 1
        omitted *= max_norm / (terms + 1)
    return terms


class DiscreteStep(NamedTuple):
    """Transition matrix of a step, (s, s), and the transposed root of its noise covariance, (n, s)."""

    Phi: Array
    Q_root_transposed: Array


class StepDiscretizer:
    """Discretizes single steps as `ProcessDiscretization` does, with Taylor terms that are computed once.

    F: shape (s, s)
    noise_intensity: Of the first n states; the others are modes, which noise never reaches; (n, n).
    """

    #: Number of terms for steps of norm 1/2 at most: the first omitted one is below 1e-17 of the first nonzero one.
    _TERMS = 26

    def __init__(self, F: Array, noise_intensity: Array) -> None:
        self._size, self._n_stochastic = size, n = len(F), len(noise_intensity)
        self._norm = float(np.abs(F).sum(axis=1).max(initial=0.0)) or 1.0
        F, B = F / self._norm, np.zeros((size, size))
        B[:n, :n] = noise_intensity / self._norm
        powers, noises = [F], [B]
        for _ in range(self._TERMS - 1):
            powers.append(powers[-1] @ F)
            half = F @ noises[-1]
            noises.append(half + half.T)
        self._orders = np.arange(1.0, self._TERMS + 1.0)
        self._taylor_terms = np.concatenate([powers, noises], axis=1).reshape(self._TERMS, 2 * size * size)

    def discretize(self, dt: float) -> DiscreteStep:
        """Return the transition and the noise of a step."""
        norm = dt * self._norm
        halvings = max(0, math.ceil(math.log2(max(norm, 1e-300))) + 1)
        weights = np.cumprod(math.ldexp(norm, -halvings) / self._orders)
        (E, Q), unit = (weights @ self._taylor_terms).reshape(2, self._size, self._size), np.eye(self._size)
        for _ in range(halvings):
            Phi = E + unit
            Q = Q + Phi @ Q @ Phi.T
            E = 2.0 * E + E @ E
        n, rows = self._n_stochastic, np.zeros((self._n_stochastic, self._size))
        if n:
            rows[:, :n] = factor_semidefinite(Q[None, :n, :n])[0].T
        return DiscreteStep(E + unit, rows)


def factor_semidefinite(covariances: Array) -> Array:
    """Return roots of covariances that may be singular, by eigenvalues after scaling to unit diagonal, (u, n, n)."""
    scales = np.sqrt(np.maximum(np.einsum("uii->ui", covariances), 0.0))
    safe = np.where(scales > 0, scales, 1.0)
    values, vectors = np.linalg.eigh(covariances / (safe[:, :, None] * safe[:, None, :]))
    return np.asarray(scales[:, :, None] * vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :])
