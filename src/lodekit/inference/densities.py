"""The spectral density of observables under the prior."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lodekit.inference.evaluation import point_of
from lodekit.inference.problem import Hyperparameters, Prior, Rows
from lodekit.prior.latents import Latent, Matern
from lodekit.prior.spectra import ChannelSpectrum, Waves

__all__ = ["prior_density"]

Array = NDArray[np.float64]


def prior_density(prior: Prior, hyper: Hyperparameters, rows: Rows) -> tuple[Array, Array]:
    """Return frequencies in cycles, shape (n,), and one-sided spectral densities, shape (o, n), in the user's units.

    Parameters
    ----------
    prior : Prior
    hyper : Hyperparameters
    rows : Rows
        The observables, in units of one.
    """
    scaling, values, size = prior.rows.scaling, rows.evaluate(hyper.theta), len(rows.scales)
    if not prior.latents:
        return np.ones(1), np.zeros((size, 1))
    rough = max(
        (30.0 * math.sqrt(2 * latent.p + 1) for latent in prior.latents if isinstance(latent, Matern)), default=9
    )
    w = np.geomspace(0.03 / hyper.lengthscales.max(), rough / hyper.lengthscales.min(), 800)
    total = np.zeros((size, len(w)))
    if prior.channels is None:
        powers = (1j * w)[:, None] ** np.arange(values.free.shape[-1])
        for number, latent in enumerate(prior.latents):
            density = hyper.deviations[number] ** 2 * _density(latent, w, float(hyper.lengthscales[number]))
            total += np.abs(values.free[:, number] @ powers.T) ** 2 * density
    else:
        point, count = point_of(values, prior.channels.evaluate(hyper.theta), hyper), len(prior.latents)
        for k, step in enumerate(w.tolist()):
            waves = Waves((step,) * count, (2,) * count, (0.0,) * count)
            power = np.abs(ChannelSpectrum().coefficients(waves, point)) ** 2 / waves.weights
            total[:, k] = power.reshape(size, count, 2)[:, :, 1].sum(axis=1)
    seen = (total > 1e-8 * total.max(axis=1, keepdims=True)).any(axis=0)
    return w[seen] / (2.0 * np.pi * scaling.span), 2.0 * scaling.span * total[:, seen]


def _density(latent: Latent, w: Array, lengthscale: float) -> Array:
    """Return the spectral density of a covariance with unit variance: its Fourier transform."""
    if isinstance(latent, Matern):
        nu, rate = latent.p + 0.5, math.sqrt(2 * latent.p + 1) / lengthscale
        log_scale = math.log(2.0) + 0.5 * math.log(math.pi) + math.lgamma(nu + 0.5) - math.lgamma(nu)
        return np.exp(log_scale + 2.0 * nu * math.log(rate) - (nu + 0.5) * np.log(rate**2 + w**2))
    return math.sqrt(2.0 * math.pi) * lengthscale * np.exp(-0.5 * (w * lengthscale) ** 2)
