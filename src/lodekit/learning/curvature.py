"""The curvature at an optimum, and the covariance that follows from it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lodekit.learning.objective import Objective

__all__ = ["covariance_from_curvature", "curvature_at"]

Array = NDArray[np.float64]


def curvature_at(objective: Objective, x: Array, *, step: float = 1e-4) -> Array:
    """Return minus the Hessian of an objective, shape (n, n), by central differences of its closed-form gradient.

    Parameters
    ----------
    objective : Objective
    x : array, shape (n,)
        A point on the scale of the search.
    step : float
        Of the differences, on the same scale; narrower ones are taken where the objective is sharper.
    """
    size = len(x)
    found = np.zeros((size, size))

    def difference(k: int, width: float) -> Array:
        sides = []
        for sign in (1.0, -1.0):
            moved = x.copy()
            moved[k] += sign * width
            sides.append(objective.evaluate(moved)[1])
        return (sides[1] - sides[0]) / (2 * width)

    for k in range(size):
        width = step
        found[k] = difference(k, width)
        # Where the evidence is sharper than the step, a narrower one is needed; the first tells how narrow.
        while width > 1e-9 and not width**2 * abs(found[k, k]) < 0.1:
            width = max(1e-9, min(0.1 * width, 0.1 / np.sqrt(abs(found[k, k])) if np.isfinite(found[k, k]) else 0.0))
            found[k] = difference(k, width)
    return 0.5 * (found + found.T)


def covariance_from_curvature(curvature: Array, keep: NDArray[np.bool_]) -> Array:
    """Return the covariance of what was learned, shape (n, n); directions without curvature get an infinite variance.

    Parameters
    ----------
    curvature : array, shape (n, n)
        Minus the Hessian at the optimum.
    keep : array of bool, shape (n,)
        What does not sit at a bound; all else gets a variance of zero.
    """
    size = len(curvature)
    total = np.zeros((size, size))
    inner = np.flatnonzero(keep)
    if not len(inner):
        return total
    part = curvature[np.ix_(inner, inner)]
    if not np.isfinite(part).all():
        total[inner, inner] = np.inf
        return total
    scale = 1.0 / np.sqrt(np.maximum(np.abs(np.diag(part)), 1e-12))
    eigenvalues, vectors = np.linalg.eigh(part * np.outer(scale, scale))
    usable = eigenvalues > 1e-9 * max(float(eigenvalues.max()), 1e-300)
    inverse = (vectors[:, usable] / eigenvalues[usable]) @ vectors[:, usable].T
    flat = (vectors[:, ~usable] ** 2).sum(axis=1) > 1e-6
    found = inverse * np.outer(scale, scale)
    found[flat, flat] = np.inf
    total[np.ix_(inner, inner)] = found
    return total
