"""The spectral density of observables under the prior."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lodekit.prior.conditioned import Conditioned
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.latents import CHANNEL_LATENT
from lodekit.prior.observables import Observables
from lodekit.prior.points import Point, powers_of
from lodekit.prior.prior import Prior

__all__ = ["prior_density"]

Array = NDArray[np.float64]
#: The lowest angular frequency, times the longest lengthscale: below, all densities of free functions are flat. And how
#: many frequencies there are.
_LOWEST, _FREQUENCIES = 0.03, 800
#: Frequencies at which all densities are below this share of their largest value are left out.
_SEEN = 1e-8


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
    w = np.geomspace(_LOWEST / hyper.lengthscales.max(), highest / hyper.lengthscales.min(), _FREQUENCIES)
    channels = None if prior.channels is None else prior.channels.evaluate(hyper.theta)
    point = Point.at(values, channels, hyper)
    if channels is None:
        total, powers = np.zeros((size, len(w))), powers_of(w, values.free.shape[-1])
        for number, latent in enumerate(prior.latents):
            density = hyper.deviations[number] ** 2 * latent.density(w, float(hyper.lengthscales[number]))
            total += np.abs(values.free[:, number] @ powers) ** 2 * density
        total *= np.abs(point.averages(w)) ** 2
    else:
        total = Conditioned(w, point).powers
    seen = (total > _SEEN * total.max(axis=1, keepdims=True)).any(axis=0)
    return w[seen] / (2.0 * np.pi * span), 2.0 * span * total[:, seen]
