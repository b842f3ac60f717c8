"""What rounding does to the dense evidence: errors of the covariance, and how much of them arrives."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lodekit.inference.dense.data import DenseData
from lodekit.prior.compile import Coefficients
from lodekit.prior.covariance import free_variance
from lodekit.prior.hyperparameters import Hyperparameters

__all__ = ["error_of", "error_of_added", "prior_sizes"]

Array = NDArray[np.float64]
#: The relative error of an entry of the covariance and of its factorization, in practice.
_ROUNDING = 2e-15
#: The same where an entry is a sum over many waves.
_OF_WAVES = 1e-14


def prior_sizes(data: DenseData, hyper: Hyperparameters, coefficients: Coefficients, basis: list[Array]) -> Array:
    """Return the prior variance of each measurement with all terms taken positive: what its rounding errors go with.

    Parameters
    ----------
    data : DenseData
    hyper : Hyperparameters
    coefficients : Coefficients
        Of the measured observables.
    basis : list of arrays, shape (n, r)
        Basis functions of the modes for each observable, at all times.
    """
    free = np.zeros(len(data.index))
    for number, latent in enumerate(data.latents):
        own = np.abs(coefficients.free[:, number])
        # Derivatives that are two orders apart have a negative covariance: with these signs all terms are positive.
        signs = np.array([(1.0, 1.0, -1.0, -1.0)[k % 4] for k in range(own.shape[-1])])
        ell, deviation = float(hyper.lengthscales[number]), float(hyper.deviations[number])
        free += free_variance(latent, own * signs, ell, deviation, coefficients.windows)
    variance = data.prior.mode_variance(hyper.mode_deviations)
    by_modes = [part**2 @ variance for part in basis]
    return data.pick([own + modes for own, modes in zip(free, by_modes, strict=True)])


def error_of(sizes: Array, alpha: Array, inverse: Array, missed: float | None = None) -> float:
    """Return about how large an error rounding makes in the log evidence; infinite where it is not finite.

    Entries of the covariance have errors in proportion to the roots of `sizes`; the derivative of the log evidence in
    it is half of ``alpha alpha^T - K^-1``.

    Parameters
    ----------
    sizes : array, shape (n,)
        Prior variances of the measurements.
    alpha : array, shape (n,)
        ``K^-1 (y - mu)``.
    inverse : array, shape (n,)
        The diagonal of the inverse of K, or what it cannot exceed.
    missed : float, optional
        The share of a variance that waves miss, where the covariance is a sum over these.
    """
    error = (_ROUNDING if missed is None else _OF_WAVES + missed) * (
        0.5 * float(sizes @ (alpha**2 + inverse)) + len(sizes)
    )
    return error if np.isfinite(error) else np.inf


def error_of_added(added: float, noise: Array, alpha: Array, inverse: Array) -> float:
    """Return what an addition to the diagonal can do to the log evidence at most; zero where nothing was added.

    No eigenvalue of the covariance without it is below the noise, which bounds all that the first order leaves out.

    Parameters
    ----------
    added : float
    noise : array, shape (n,)
        Variances.
    alpha, inverse : arrays, shape (n,)
        As in `error_of`, with the addition.
    """
    if not added:
        return 0.0
    return 0.5 * added * float(alpha @ alpha + inverse.sum()) * (1.0 + added / float(noise.min()))
