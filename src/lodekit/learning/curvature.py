"""The curvature at an optimum, and the covariance that follows from it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lodekit.learning.objective import Objective
from lodekit.learning.transforms import Layout

__all__ = ["covariance_from_curvature", "curvature_at", "share_left"]

Array = NDArray[np.float64]
#: The step of differences on the scale of the search, and the narrowest one, below which rounding is all they see.
_STEP, _NARROWEST = 1e-4, 1e-9
#: A step is narrow enough where the objective falls by less than half of this within it.
_SHARP = 0.1
#: In units of the largest eigenvalue: smaller ones, of the curvature scaled to a diagonal of one, are flat directions.
_FLAT = 1e-9
#: What a flat direction takes a larger share of than this is not determined.
_SHARE = 1e-6


def curvature_at(objective: Objective, x: Array) -> Array:
    """Return minus the Hessian of an objective, shape (n, n), by central differences of its closed-form gradient.

    Parameters
    ----------
    objective : Objective
    x : array, shape (n,)
        A point on the scale of the search.
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
        width = _STEP
        found[k] = difference(k, width)
        # Where the evidence is sharper than the step, a narrower one is needed; the first tells how narrow.
        while width > _NARROWEST and not width**2 * abs(found[k, k]) < _SHARP:
            told = 0.1 / np.sqrt(abs(found[k, k])) if np.isfinite(found[k, k]) else 0.0
            width = max(_NARROWEST, min(0.1 * width, told))
            found[k] = difference(k, width)
    return 0.5 * (found + found.T)


def share_left(layout: Layout, size: int, at_bound: NDArray[np.bool_]) -> float:
    """Return the share of the measurements that learning has not used up: variances are larger by its reciprocal.

    Learned noise is what the curves leave over; each number that bends these to the data makes it smaller. So of N
    measurements and p such numbers its variance comes out too small by the share p/N, as do variances of curves, and
    the curvature too large by as much: the same correction as in the variance of a regression. Known noise needs none.

    Parameters
    ----------
    layout : Layout
        Which entries are levels of noise.
    size : int
        Number of measurements, N.
    at_bound : array of bool, shape (n,)
        What sits at a limit of the search, and bends nothing.
    """
    if not layout.noise_levels:
        return 1.0
    noise = layout.blocks.noise
    used = int(np.sum(~at_bound[: noise.start])) + int(np.sum(~at_bound[noise.stop :]))
    return max(size - used, 1) / size


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
    usable = eigenvalues > _FLAT * max(float(eigenvalues.max()), 1e-300)
    inverse = (vectors[:, usable] / eigenvalues[usable]) @ vectors[:, usable].T
    flat = (vectors[:, ~usable] ** 2).sum(axis=1) > _SHARE
    found = inverse * np.outer(scale, scale)
    found[flat, flat] = np.inf
    total[np.ix_(inner, inner)] = found
    return total
