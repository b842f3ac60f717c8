"""The spectral density of channels with their own processes, conditioned on the equations.

With ``B = B(iw)`` the channels on the free functions and S the diagonal of the channels' spectral densities, the free
functions have the density ``(B* S^-1 B)^-1 = R R*``, and the channels ``B R R* B*``: at most S, and close to S if the
equations leave a channel free. It peaks at the natural frequencies of an undamped system; the less likely its input is
there, the narrower the peak. B has full rank at all frequencies, so peaks are finite.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from lodekit.prior.kernels import CHANNEL_KERNEL
from lodekit.prior.spectra import SpectralPoint, SpectrumGradient, frequency_powers
from lodekit.support.arguments import Array, ComplexArray


class ConditionedDensity:
    """The density at some frequencies: coefficients of observables, and their derivatives.

    frequencies: Angular, in scaled time; (f,).
    point: Operators and hyperparameters.
    """

    def __init__(self, frequencies: Array, point: SpectralPoint) -> None:
        self.frequencies, self.point = frequencies, point
        channels = point.channels
        self._frequency_powers = frequency_powers(frequencies, max(channels.shape[-1], point.free.shape[-1]))
        B = _frequency_response(channels, self._frequency_powers)
        sizes = 2.0 * np.log(point.deviations)[:, None]
        self.log_density = CHANNEL_KERNEL.log_density(frequencies, point.lengthscales[:, None]) + sizes
        # Below e^-600 a density is negligible; its inverse must not overflow.
        floor = float(self.log_density.max(initial=-np.inf)) - 600.0
        self._inverse_density_root = np.exp(-0.5 * np.maximum(self.log_density, floor))
        scaled = B * self._inverse_density_root[:, None]
        #: R with ``R R* = (B* S^-1 B)^-1``, shape (q, q, f), and ``S^-1/2 B R``, with orthonormal columns, (c, q, f).
        self.density_roots, self._orthonormal_columns = _householder_qr(scaled)

    @cached_property
    def _observable_response(self) -> ComplexArray:
        found = _frequency_response(self.point.free, self._frequency_powers)
        return found if self.point.windows is None else found * self._averaging_response

    @cached_property
    def _averaging_response(self) -> ComplexArray:
        """The frequency response of the averages, shape (o, 1, f)."""
        return np.asarray(self.point.averaging_response(self.frequencies), dtype=complex)[:, None]

    @cached_property
    def coefficients(self) -> ComplexArray:
        """``W(i w) R``: coefficients of the observables on whitened waves, shape (o, q, f)."""
        return _multiply_per_frequency(self._observable_response, self.density_roots)

    @cached_property
    def observable_density(self) -> Array:
        """The spectral densities of the observables, shape (o, f)."""
        return np.asarray(np.sum(_abs2(self.coefficients), axis=1))

    @cached_property
    def absolute_density(self) -> Array:
        """The same without cancellation between waves, the scale of rounding errors, shape (o, f)."""
        if len(self.density_roots) == 1:
            return self.observable_density
        return np.asarray(np.einsum("olf,lmf->of", _abs2(self._observable_response), _abs2(self.density_roots)))

    @cached_property
    def channel_coefficients(self) -> ComplexArray:
        """``B(i w) R``: the same for the channels, shape (c, q, f)."""
        return self._orthonormal_columns / self._inverse_density_root[:, None]

    @cached_property
    def half_log_det(self) -> Array:
        """Half the logarithm of the determinant of the density of the free functions, shape (f,)."""
        return np.asarray(np.sum(np.log(np.abs(np.einsum("qqf->qf", self.density_roots))), axis=0))

    @cached_property
    def channel_density_ratio(self) -> Array:
        """The spectral densities of the channels relative to their unconditioned ones, shape (c, f)."""
        return np.asarray(np.sum(_abs2(self._orthonormal_columns), axis=1))

    def vjp(self, cotangent: ComplexArray) -> SpectrumGradient:
        """Return derivatives of E with ``dE = Re sum conj(cotangent) d(coefficients)``, if E depends only on densities.

        ``dR = -R (R* dM R) / 2`` with ``M = B* S^-1 B``, up to a unitary factor, which does not change densities.

        Shapes: cotangent (o, q, f).
        """
        free, channels = self.point.free, self.point.channels
        root, units = self.density_roots, self._orthonormal_columns
        through = _multiply_per_frequency(np.conj(cotangent), root.swapaxes(0, 1))
        if self.point.windows is not None:
            through = through * self._averaging_response
        own = (through.reshape(-1, through.shape[-1]) @ self._frequency_powers[: free.shape[-1]].T).real
        if len(root) == 1:
            Z = np.sum((np.conj(cotangent) * self.coefficients).real, axis=(0, 1))
            in_log_density = 0.5 * Z * self.channel_density_ratio
            V = np.conj(units) * (root[0, 0] * Z * self._inverse_density_root)[:, None]
        else:
            mixed = np.einsum("omf,onf->mnf", np.conj(cotangent), self.coefficients)
            mixed = 0.5 * (mixed + np.conj(mixed.swapaxes(0, 1)))
            seen = np.einsum("mnf,cnf->cmf", mixed, np.conj(units))
            in_log_density = 0.5 * np.sum((seen * units).real, axis=1)
            V = np.einsum("lmf,cmf->clf", root, seen) * self._inverse_density_root[:, None]
        in_channels = -(V.reshape(-1, V.shape[-1]) @ self._frequency_powers[: channels.shape[-1]].T).real
        tilt = CHANNEL_KERNEL.log_density_lengthscale_derivative(self.frequencies, self.point.lengthscales[:, None])
        lengthscales, amplitudes = np.sum(in_log_density * tilt, axis=1), 2.0 * in_log_density.sum(axis=1)
        return SpectrumGradient(own.reshape(free.shape), in_channels.reshape(channels.shape), lengthscales, amplitudes)


def solve_amplitudes(
    channels: Array, frequencies: Array, channel_coefficients: ComplexArray, scales: Array
) -> ComplexArray:
    """Return the amplitudes of the free functions in waves that are given by their channels, shape (q, m).

    Least squares in units of the channels' sizes: the result is a solution up to rounding, even if
    `channel_coefficients` is not.

    Shapes: channels (c, q, k), frequencies (m,), channel_coefficients (c, m), scales (c,).
    """
    scales = np.where(scales > 0, scales, 1.0)
    B = _frequency_response(channels, frequency_powers(frequencies, channels.shape[-1]))
    root, units = _householder_qr(B / scales[:, None, None])
    return np.asarray(np.einsum("lqm,cqm,cm->lm", root, np.conj(units), channel_coefficients / scales[:, None]))


def _frequency_response(operators: Array, powers: ComplexArray) -> ComplexArray:
    """Return ``W(i w)`` of operators with real coefficients, shape (o, q, f).

    Shapes: operators (o, q, k), powers (k or more, f).
    """
    count, width, length = operators.shape
    flat = operators.reshape(-1, length).astype(complex)
    return np.asarray((flat @ powers[:length]).reshape(count, width, -1))


def _abs2(values: ComplexArray) -> Array:
    return values.real**2 + values.imag**2


def _multiply_per_frequency(first: ComplexArray, second: ComplexArray) -> ComplexArray:
    """Return products of matrices at each frequency, from shapes (a, b, f) and (b, c, f)."""
    if second.shape[0] == 1:
        return np.asarray(first * second)
    return np.asarray(np.einsum("abf,bcf->acf", first, second))


def _householder_qr(scaled: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
    """Return ``R^-1`` and Q of tall matrices ``Q R``, shapes (q, q, f) and (c, q, f), by Householder reflections.

    Channels may differ by hundreds of orders of magnitude. With the largest first, each row of Q has a small relative
    error, unlike the product of the matrix with ``R^-1``, and so have derivatives in the density of a tiny channel.
    """
    width = scaled.shape[1]
    if width == 1:
        root = 1.0 / np.sqrt(np.sum(_abs2(scaled), axis=0))
        return np.asarray(root[None], dtype=complex), scaled * root
    order = np.argsort(-np.abs(scaled).max(axis=1), axis=0)[:, None]
    A = np.take_along_axis(scaled, order, axis=0)
    reflections = []
    for k in range(width):
        v = A[k:, k].copy()
        norm, first = np.sqrt(np.sum(_abs2(v), axis=0)), np.abs(v[0])
        v[0] += np.where(first > 0, v[0] / np.where(first > 0, first, 1.0), 1.0) * norm
        v /= np.sqrt(norm * (norm + first))
        A[k:, k:] -= v[:, None] * np.einsum("cf,cqf->qf", np.conj(v), A[k:, k:])
        reflections.append(v)
    Q = np.zeros_like(A)
    for k in reversed(range(width)):
        Q[k, k] = 1.0
        v = reflections[k]
        Q[k:, k:] -= v[:, None] * np.einsum("cf,cqf->qf", np.conj(v), Q[k:, k:])
    units = np.empty_like(Q)
    np.put_along_axis(units, np.broadcast_to(order, Q.shape), Q, axis=0)
    return _invert_upper_triangles(A), units


def _invert_upper_triangles(A: ComplexArray) -> ComplexArray:
    """Return the inverses of the upper triangles of matrices with q columns, shape (q, q, f)."""
    width = A.shape[1]
    found = np.zeros((width, *A.shape[1:]), dtype=complex)
    for k in reversed(range(width)):
        found[k, k] = 1.0 / A[k, k]
        for j in range(k + 1, width):
            found[k, j] = -found[k, k] * np.sum(A[k, k + 1 : j + 1] * found[k + 1 : j + 1, j], axis=0)
    return found
