"""The spectral density of observables under the prior."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lodekit.prior.averages import wave_factors
from lodekit.prior.conditioned import Conditioned
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.latents import CHANNEL_LATENT
from lodekit.prior.observables import Observables
from lodekit.prior.points import Point
from lodekit.prior.prior import Prior

__all__ = ["prior_density"]

Array = NDArray[np.float64]


def prior_density(prior: Prior, hyper: Hyperparameters, observables: Observables) -> tuple[Array, Array]:
    """Return frequencies in cycles, shape (n,), and one-sided spectral densities, shape (o, n), in the user's units.

    Parameters
    ----------
    prior : Prior
    hyper : Hyperparameters
    observables : Observables
        In the user's own units.
    """
    span, values, size = prior.units.span, observables.evaluate(hyper.theta), observables.count
    if not prior.latents:
        return np.ones(1), np.zeros((size, 1))
    highest = max(latent.highest for latent in prior.latents) if prior.channels is None else CHANNEL_LATENT.highest
    w = np.geomspace(0.03 / hyper.lengthscales.max(), highest / hyper.lengthscales.min(), 800)
    total = np.zeros((size, len(w)))
    if prior.channels is None:
        powers = (1j * w)[:, None] ** np.arange(values.free.shape[-1])
        for number, latent in enumerate(prior.latents):
            density = hyper.deviations[number] ** 2 * latent.density(w, float(hyper.lengthscales[number]))
            total += np.abs(values.free[:, number] @ powers.T) ** 2 * density
        if values.windows is not None:
            total *= np.abs(wave_factors(values.windows, w)) ** 2
    else:
        own = Conditioned(w, Point.at(values, prior.channels.evaluate(hyper.theta), hyper))
        total = np.sum(np.abs(own.coefficients) ** 2, axis=1)
    seen = (total > 1e-8 * total.max(axis=1, keepdims=True)).any(axis=0)
    return w[seen] / (2.0 * np.pi * span), 2.0 * span * total[:, seen]
