"""Discretization of linear systems driven by white noise: transition matrices and process noise covariances.

``Phi(h) = e^(F h)`` and ``Q(h) = int_0^h e^(F s) B e^(F' s) ds``, the quantities of Van Loan's method [1]_, by Taylor
series with scaling and squaring: the terms are the same for all steps, so that any number of different steps costs one
product. Long steps are doubled, ``Q(2h) = Q(h) + Phi Q Phi'``, which never subtracts, so that small entries keep their
digits. Derivatives are the adjoint of the same recursion.

The general `prior.expm.expm_frechet` cannot replace the series: transitions of 3,000 steps with their gradient take 17
times as long for two or four states, since nothing is shared between steps. Noise from Van Loan's block exponential
takes 2.0 to 2.5 times as long, and its relative error is 7e-8 (three states) to 1e-3 (six states) over 15 time
constants, instead of 1e-15.

.. [1] C. F. Van Loan, Computing integrals involving the matrix exponential, IEEE Transactions on Automatic Control 23
   (1978), 395-404.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from lodekit.support.arguments import Array, Mask

#: Transition matrix Phi of a step, (s, s), and the transposed root of its noise covariance Q, (n, s).
DiscreteStep = tuple[Array, Array]


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
        if not (size := len(F)):
            return
        self._norm = float(np.abs(F).sum(axis=1).max()) or 1.0
        self._F, self._has_noise = F / self._norm, bool(noise_intensity.any())
        step_norms = dt * self._norm
        n_squarings = np.maximum(0, np.ceil(np.log2(np.maximum(step_norms, 1e-300)))).astype(int)
        short = np.ldexp(step_norms, -n_squarings)
        count = _count_taylor_terms(float(short.max(initial=0.0)), size)
        self._taylor_weights = np.cumprod(short / np.arange(1.0, count + 1.0)[:, None], axis=0)
        self._F_powers, self._Q_terms = _taylor_terms(self._F, noise_intensity / self._norm, count)
        weights, shape = self._taylor_weights.T, (len(dt), size, size)
        # E = Phi - 1: small entries on the diagonal keep their digits.
        E = (weights @ self._F_powers[1:].reshape(count, size * size)).reshape(shape)
        Q = np.zeros(shape)
        if self._has_noise:
            np.matmul(weights, self._Q_terms.reshape(count, size * size), out=Q.reshape(-1, size * size))
        self._squaring_history: list[tuple[Mask, Array, Array]] = []
        for step in range(n_squarings.max(initial=0)):
            active = n_squarings > step
            E_half, Q_half = E[active], Q[active]
            self._squaring_history.append((active, E_half, Q_half))
            Phi = E_half + np.eye(size)
            if self._has_noise:
                product = Phi @ np.concatenate([E_half, Q_half], axis=2)
                Q[active] = Q_half + product[:, :, size:] @ _transpose(Phi)
                E[active] = E_half + product[:, :, :size]
            else:
                E[active] = E_half + Phi @ E_half
        self.Phi, self.Q = E + np.eye(size), Q

    def vjp(self, grad_Phi: Array, grad_Q: Array) -> tuple[Array, Array]:
        """Return derivatives in F and in the noise intensity, shape (s, s) each, from those in all Phi and Q.

        Shapes: grad_Phi, grad_Q (k, s, s).
        """
        size = grad_Phi.shape[-1]
        if not size:
            return np.zeros((0, 0)), np.zeros((0, 0))
        grad_Phi, grad_Q = grad_Phi.copy(), grad_Q.copy()
        for active, E, Q in reversed(self._squaring_history):
            in_Phi, E_t = grad_Phi[active], _transpose(E)
            grad_Phi[active] = 2.0 * in_Phi + in_Phi @ E_t + E_t @ in_Phi
            if self._has_noise:
                Phi, in_Q = E + np.eye(size), grad_Q[active]
                grad_Phi[active] += 2.0 * in_Q @ Phi @ Q
                grad_Q[active] = in_Q + _transpose(Phi) @ in_Q @ Phi
        F_t = np.ascontiguousarray(self._F.T)
        # Derivatives in each power of F, and in each term of Q, include those through all later ones.
        in_terms = (self._taylor_weights @ grad_Phi.reshape(len(grad_Phi), size * size)).reshape(-1, size, size)
        for after, now in pairwise(in_terms[::-1]):
            np.add(now, after.dot(F_t), out=now)
        grad_F = self._F_powers[:-1].reshape(-1, size).T @ in_terms.reshape(-1, size)
        if not self._has_noise:
            return grad_F / self._norm, np.zeros((size, size))
        in_terms = (self._taylor_weights @ grad_Q.reshape(len(grad_Q), size * size)).reshape(-1, size, size)
        for after, now in pairwise(in_terms[::-1]):
            half = F_t.dot(after)
            np.add(now, half, out=now)
            np.add(now, half.T, out=now)
        # Both factors are symmetric.
        grad_F += 2.0 * in_terms[1:].reshape(-1, size).T @ self._Q_terms[:-1].reshape(-1, size)
        # Nothing depends on the norm that F and B were divided by and steps multiplied by.
        return grad_F / self._norm, in_terms[0] / self._norm


def _taylor_terms(F: Array, noise_intensity: Array, count: int) -> tuple[Array, Array]:
    """Return the powers of F, from the zeroth on, and the derivatives of Q at zero, from the first on."""
    size = len(F)
    powers, Q_terms = np.empty((count + 1, size, size)), np.empty((count, size, size))
    powers[0], Q_terms[0] = np.eye(size), noise_intensity
    for before, now in pairwise(powers):
        np.dot(before, F, out=now)
    for before, now in pairwise(Q_terms):
        half = F.dot(before)
        np.add(half, half.T, out=now)
    return powers, Q_terms


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
        B = np.zeros((size, size))
        B[:n, :n] = noise_intensity / self._norm
        powers, Q_terms = _taylor_terms(F / self._norm, B, self._TERMS)
        self._orders = np.arange(1.0, self._TERMS + 1.0)
        self._terms = np.concatenate([powers[1:], Q_terms], axis=1).reshape(self._TERMS, 2 * size * size)

    def discretize(self, dt: float) -> DiscreteStep:
        """Return the transition and the noise of a step."""
        norm = dt * self._norm
        halvings = max(0, math.ceil(math.log2(max(norm, 1e-300))) + 1)
        weights = np.cumprod(math.ldexp(norm, -halvings) / self._orders)
        (E, Q), unit = (weights @ self._terms).reshape(2, self._size, self._size), np.eye(self._size)
        for _ in range(halvings):
            Phi = E + unit
            Q = Q + Phi @ Q @ Phi.T
            E = 2.0 * E + E @ E
        n, Q_root_t = self._n_stochastic, np.zeros((self._n_stochastic, self._size))
        if n:
            Q_root_t[:, :n] = factor_semidefinite(Q[None, :n, :n])[0].T
        return E + unit, Q_root_t


def factor_semidefinite(covariances: Array) -> Array:
    """Return roots of covariances that may be singular, by eigenvalues after scaling to unit diagonal, (u, n, n)."""
    scales = np.sqrt(np.maximum(np.einsum("uii->ui", covariances), 0.0))
    safe = np.where(scales > 0, scales, 1.0)
    values, vectors = np.linalg.eigh(covariances / (safe[:, :, None] * safe[:, None, :]))
    return np.asarray(scales[:, :, None] * vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :])
