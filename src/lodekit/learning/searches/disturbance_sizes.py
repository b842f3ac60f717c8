"""Deviations of disturbances, and of modes beside them, that suit the data: where searches begin."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lodekit.inference.engine import Engine
from lodekit.inference.markov.disturbed import unit_powers
from lodekit.learning.transforms import Layout
from lodekit.prior.compile import Coefficients
from lodekit.prior.hyperparameters import Hyperparameters

__all__ = ["add_disturbances", "raise_modes"]

Array = NDArray[np.float64]
#: What disturbances are taken to do where nothing is known of it: their share of the data, and their lengthscale as a
#: share of the window.
_USUAL, _LENGTH = 0.1, 0.1
#: Initial states are taken to make this share of the data at least, where a search begins: none begins from nothing.
_SEEN = 0.1


def add_disturbances(
    engine: Engine, layout: Layout, hyper: Hyperparameters, share: float = _USUAL, length: float = _LENGTH
) -> Hyperparameters:
    """Return hyperparameters with disturbances that move observables by about a share of their data.

    Parameters
    ----------
    engine : Engine
    layout : Layout
    hyper : Hyperparameters
        Whatever it says of disturbances is forgotten.
    share : float
        Of the data.
    length : float
        The lengthscale of all that have one, in scaled time.
    """
    coefficients = engine.prior.observables.evaluate(hyper.theta)
    target, _ = engine.powers(coefficients)
    deviations = share * _match_deviations(engine, coefficients, hyper.theta, target, length)
    lengths = np.full(layout.coloured, length)
    return replace(hyper, disturbance_lengthscales=lengths, disturbance_deviations=deviations)


def _match_deviations(engine: Engine, coefficients: Coefficients, theta: Array, target: Array, length: float) -> Array:
    """Return deviations with which each disturbance alone would move observables as much as their data, shape (d,).

    The target is the mean square of the data of each observable, scaled; where they differ, their mean counts, as
    logarithms.
    """
    with np.errstate(all="ignore"):
        powers = unit_powers(engine.prior.observables, coefficients, theta, length)
        logs = np.log(target) - np.log(powers)
    found = [float(np.mean(row[np.isfinite(row)])) if np.isfinite(row).any() else 0.0 for row in logs]
    return np.exp(np.clip(0.5 * np.array(found), -300.0, 300.0))


def raise_modes(engine: Engine, layout: Layout, hyper: Hyperparameters) -> Hyperparameters:
    """Return hyperparameters in which modes may make a share of the data at least, where their deviations are learned.

    Parameters
    ----------
    engine : Engine
    layout : Layout
    hyper : Hyperparameters
    """
    groups = engine.prior.groups
    if not groups:
        return hyper
    target, power = engine.powers(engine.prior.observables.evaluate(hyper.theta))
    pieces = np.split(power, np.cumsum([group.size for group in groups])[:-1])
    least = [_SEEN * np.sqrt(float(target.mean()) / max(float(piece.sum()), 1e-300)) for piece in pieces]
    found = np.maximum(hyper.mode_deviations, least)
    return replace(hyper, mode_deviations=layout.fix_modes(found, hyper.theta))
