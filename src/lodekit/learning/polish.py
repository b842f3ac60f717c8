"""The last digits of an optimum: Newton steps with the curvature that standard errors need anyway."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lodekit.learning.objective import Objective
from lodekit.learning.search import Optimum, limits_around

__all__ = ["polish"]

Array = NDArray[np.float64]
#: How many steps there are at most, and how long each may be on the scale of the search.
_STEPS, _LONGEST = 8, 1.0
#: A step that promises less than this in the objective, relative to its size or not, is the last one.
_GAIN, _ROUNDING = 1e-15, 1e-18
#: A search has converged where nothing promises more than this.
_SETTLED = 1e-3
#: What the objective may lose, relative to its size, where its gradient says that a step gains.
_DIGITS = 1e-9
#: Gains above this, relative to the size of the objective, are clear of its rounding errors.
_CLEAR = 1e-10
#: A step of more standard errors than this asks for the curvature where it ends.
_FAR = 0.03
#: Curvatures that differ by more than this, after each entry was scaled, are measured again in their own directions.
_NARROW = 1e-2
#: Differences go so far in standard errors, and no farther than that on the scale of the search.
_SHARE, _REACH = 0.03, 3e-4
#: Rounding errors of the gradient that ask for wider differences: so many times wider, up to that on the scale of the
#: search. They show in a step of so many standard errors.
_QUIET, _CLEAR_OF, _WIDEST, _NEXT = 1e-5, 100.0, 0.3, 1e-7
#: Directions with less curvature than this, relative to the sharpest, cannot be told from flat ones.
_FLAT = 1e-9


def polish(objective: Objective, optimum: Optimum, curvature: Array) -> tuple[Optimum, Array]:
    """Return an optimum with more digits, and minus the Hessian of the objective there, shape (n, n).

    A search ends where a step gains next to nothing. In a narrow valley that may be far from the end of it; and where
    it is not, rounding decides about the last digits. Newton's steps end where the gradient vanishes.

    Parameters
    ----------
    objective : Objective
    optimum : Optimum
        Where a search ended.
    curvature : array, shape (n, n)
        Minus the Hessian of the objective there.
    """
    inner = np.flatnonzero(~optimum.at_bound)
    if not len(inner) or not np.isfinite(curvature[np.ix_(inner, inner)]).all():
        return optimum, curvature
    with np.errstate(all="ignore"):
        return _polish(objective, optimum, curvature, inner)


def _polish(objective: Objective, optimum: Optimum, curvature: Array, inner: NDArray[np.intp]) -> tuple[Optimum, Array]:
    """Return the same for entries of the vector that sit at no limit."""
    low, high = limits_around(objective, optimum.x)
    best, slope = optimum, objective.evaluate(optimum.x)[1]
    part = curvature[np.ix_(inner, inner)]
    roots, is_narrow = _axes(part)
    noise = _noise(objective, best.x, slope, inner, roots)
    for _ in range(3 if noise > _QUIET else int(is_narrow)):
        # Where gradients have few digits, the first curvature may be far off, and so are axes made from it.
        old, (part, roots) = roots, _measure(objective, best.x, part, inner, roots, noise)
        if np.allclose(old.T @ part @ old, np.eye(len(inner)), atol=0.2):
            break
        noise = _noise(objective, best.x, slope, inner, roots)
    for _ in range(_STEPS):
        z = roots.T @ slope[inner]
        promise = 0.5 * float(z @ z)
        if not np.isfinite(promise) or promise < max(_GAIN, _ROUNDING * abs(best.value)):
            break
        found = _climb(objective, best, z, roots, inner, (low, high))
        if found is None:
            break
        gain = found[0].value - best.value
        best, slope = found
        # Where a step does not gain what it has promised, the curvature has changed.
        surprise = abs(gain - promise) > 0.3 * promise and promise > _CLEAR * (1.0 + abs(best.value))
        if surprise or float(np.max(np.abs(z))) > _FAR:
            part, roots = _measure(objective, best.x, part, inner, roots, noise)
    curvature = curvature.copy()
    curvature[np.ix_(inner, inner)] = part
    z = roots.T @ slope[inner]
    if not best.converged and 0.5 * float(z @ z) < _SETTLED + 10.0 * len(z) * noise**2:
        # Next to no noise makes gradients large that a search takes for a sign that it has not ended.
        best = replace(best, converged=True, message="the evidence does not grow any more")
    return best, curvature


def _axes(part: Array) -> tuple[Array, bool]:
    """Return directions that change the objective alike, as columns, and whether some are hard to tell from flat."""
    scale = 1.0 / np.sqrt(np.maximum(np.abs(np.diag(part)), 1e-12))
    eigenvalues, vectors = np.linalg.eigh(part * np.outer(scale, scale))
    largest = max(float(eigenvalues.max()), 1e-300)
    sizes = np.maximum(np.abs(eigenvalues), _FLAT * largest)
    return scale[:, None] * vectors / np.sqrt(sizes), float(eigenvalues.min()) < _NARROW * largest


def _noise(objective: Objective, x: Array, slope: Array, inner: NDArray[np.intp], roots: Array) -> float:
    """Return how much rounding errors change the gradient along axes, in which standard errors have length one."""
    moved = x.copy()
    moved[inner] += _NEXT * roots.sum(axis=1)
    change = np.abs(roots.T @ (objective.evaluate(moved)[1] - slope)[inner])
    return max(0.0, float(np.max(change)) - 10.0 * _NEXT) if np.isfinite(change).all() else 0.0


def _measure(
    objective: Objective, x: Array, part: Array, inner: NDArray[np.intp], roots: Array, noise: float
) -> tuple[Array, Array]:
    """Return minus the Hessian at a point, and its axes; what was known before where it is not finite.

    Differences are taken along given directions, in which it is about the identity: so the curvature along a narrow
    valley is measured along it, and is no difference of large numbers. Where the data have next to no noise, gradients
    have few digits, and differences are wide enough to be clear of that.
    """
    count = roots.shape[1]
    found = np.zeros((count, count))
    for k in range(count):
        size = float(np.max(np.abs(roots[:, k])))
        width = min(max(min(_SHARE, _REACH / size), _CLEAR_OF * noise), max(_SHARE, _WIDEST / size))
        sides = []
        for sign in (1.0, -1.0):
            moved = x.copy()
            moved[inner] += sign * width * roots[:, k]
            sides.append(roots.T @ objective.evaluate(moved)[1][inner])
        found[k] = (sides[1] - sides[0]) / (2.0 * width)
    if not np.isfinite(found).all():
        return part, roots
    back = np.linalg.inv(roots)
    new = np.asarray(back.T @ (0.5 * (found + found.T)) @ back)
    return new, _axes(new)[0]


def _climb(
    objective: Objective, best: Optimum, z: Array, roots: Array, inner: NDArray[np.intp], limits: tuple[Array, Array]
) -> tuple[Optimum, Array] | None:
    """Return where a step leads uphill, shortened where it must be, and the gradient there; None where it does not.

    A long step along a valley that bends ends beside it: a second one leads back, across the first.
    """
    share = min(1.0, _LONGEST / max(float(np.max(np.abs(roots @ z))), 1e-300))
    low, high = (limit[inner] for limit in limits)
    evaluations, along = best.evaluations, z / max(float(np.linalg.norm(z)), 1e-300)
    # A gain may be too small for the digits of the objective: those of its gradient are better.
    least = best.value - _DIGITS * (1.0 + abs(best.value))
    for _ in range(6):
        x, step, trials = best.x, share * z, []
        for _ in range(3):
            x = x.copy()
            x[inner] = np.clip(x[inner] + roots @ step, low, high)
            value, slope = objective.evaluate(x)
            evaluations += 1
            if not np.isfinite(slope).all():
                break
            trials.append((value, x, slope))
            step = roots.T @ slope[inner]
            step -= along * float(along @ step)
            if float(np.max(np.abs(step))) < _FAR:
                break
        value, x, slope = max(trials, key=lambda item: item[0], default=(-np.inf, x, z))
        if value >= best.value or (value >= least and np.linalg.norm(roots.T @ slope[inner]) < np.linalg.norm(z)):
            return replace(best, x=x, value=value, evaluations=evaluations), slope
        share *= 0.25
    return None
