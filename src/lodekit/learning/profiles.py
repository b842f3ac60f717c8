"""Whether the data tell a parameter: it is moved far, all else is learned anew, and the evidence falls, or does not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.learning.landscape import Landscape
from lodekit.learning.objective import Objective
from lodekit.learning.search import Optimum
from lodekit.learning.transforms import Transform

__all__ = ["FALL", "Profile", "profile"]

Array = NDArray[np.float64]
#: An interval of 95 % ends where the evidence has fallen by this.
FALL = 1.9207
#: Parameters with limits are moved so far on the scale of the search (a factor of 20), in steps of this length; where
#: they are moved farther, in longer ones.
_REACH, _STEP, _STRIDE = 3.0, 0.75, 1.5
#: All others so many times their own size, step by step.
_MULTIPLES = (0.3, 1.0, 3.0, 10.0)
#: The place where the evidence falls is found to this factor; nearer than the second to the estimate, nobody asks.
_PRECISE, _FINEST = 2.0, 1e-10
#: By what factors a move that makes it fall is made shorter at most, and where nothing finite can be said of it.
_NEAREST, _BLIND = 1e-4, 0.1


@dataclass(frozen=True)
class Profile:
    """How far a parameter can move before the evidence falls.

    Parameters
    ----------
    low, high : float
        Where it has fallen, in the user's units; infinite, or the parameter's own limit, where it has not.
    below, above : bool
        Whether it has fallen on that side.
    """

    low: float
    high: float
    below: bool
    above: bool

    @property
    def is_flat(self) -> bool:
        """Whether the evidence falls on neither side."""
        return not self.below and not self.above


def profile(objective: Objective, optimum: Optimum, curvature: Array, position: int) -> Profile:
    """Return how far one parameter can move, with all else learned anew at each step.

    Where the evidence falls on both sides already at the first step, the nearer of the two places is looked for on one
    side alone.

    Parameters
    ----------
    objective : Objective
    optimum : Optimum
        The estimate.
    curvature : array, shape (n, n)
        Minus the Hessian of the objective there.
    position : int
        Of the parameter in the vector that is searched.
    """
    transform = objective.layout.transforms[objective.layout.learned[position]]
    land = Landscape(objective, optimum, curvature, [position], "relearned")
    guess = _guess(curvature, ~optimum.at_bound, position)
    centre = float(optimum.x[position])
    with np.errstate(all="ignore"):
        falls = [_fall(land, transform, position, sign) for sign in (-1, 1)]
        edges: list[float | None] = []
        for fall in falls:
            if fall is None:
                edges.append(None)
            elif edges and edges[0] is not None and all(each is not None and each[0] is land.centre for each in falls):
                edges.append(2.0 * centre - edges[0])
            else:
                edges.append(_edge(land, position, *fall, guess))
    low = transform.low if edges[0] is None else transform.forward(edges[0])
    high = transform.high if edges[1] is None else transform.forward(edges[1])
    return Profile(low, high, edges[0] is not None, edges[1] is not None)


def _guess(curvature: Array, keep: NDArray[np.bool_], position: int) -> float:
    """Return about how far the parameter can move, whatever the curvature is worth; zero where nothing is known."""
    inner = np.flatnonzero(keep)
    part = curvature[np.ix_(inner, inner)]
    if position not in inner or not np.isfinite(part).all():
        return 0.0
    scale = 1.0 / np.sqrt(np.maximum(np.abs(np.diag(part)), 1e-12))
    eigenvalues, vectors = np.linalg.eigh(part * np.outer(scale, scale))
    place = int(np.flatnonzero(inner == position)[0])
    spread = float(np.sqrt(np.sum(vectors[place] ** 2 / np.maximum(np.abs(eigenvalues), 1e-12))))
    return 2.0 * min(spread * float(scale[place]), _REACH)


def _steps(transform: Transform, start: float, sign: int) -> list[float]:
    """Return where a parameter is moved to on one side, on the scale of the search."""
    value = transform.forward(start)
    if not transform.is_unbounded:
        found = [start + sign * float(step) for step in np.arange(_STEP, _REACH + 1e-9, _STEP)]
        if sign > 0 and transform.low == 0.0 and value < transform.size and np.isinf(transform.high):
            # What is next to nothing may be bounded by what can be expected of it; the valley bends on the way.
            last = transform.inverse(_MULTIPLES[-1] * transform.size)
            found += np.linspace(found[-1], last, int(np.ceil((last - found[-1]) / _STRIDE)) + 1)[1:].tolist()
        return found
    size = max(abs(value), transform.size)
    return [transform.inverse(value + sign * share * size) for share in _MULTIPLES]


def _fall(land: Landscape, transform: Transform, position: int, sign: int) -> tuple[Array, float] | None:
    """Return the last point before the evidence falls on one side, and the step that makes it fall, if one does."""
    x = land.centre
    for target in _steps(transform, float(land.centre[position]), sign):
        found = _move(land, x, position, target)
        if land.height(found) < -FALL:
            return x, target - float(x[position])
        x = found
    return None


def _edge(land: Landscape, position: int, x: Array, step: float, guess: float) -> float:
    """Return where the evidence has fallen between a point and a step from there, on the scale of the search."""
    start, sign = float(x[position]), np.sign(step)
    inside, outside = 0.0, abs(step)
    middle = guess if x is land.centre else 0.5 * outside
    while outside > _FINEST:
        if not inside < middle < outside:
            # By what order of magnitude the parameter can move is not known; then between two orders.
            middle = float(np.sqrt(inside * outside)) if inside else 0.1 * outside
        height = land.height(_move(land, x, position, start + sign * middle))
        if height < -FALL:
            # The evidence falls with the square of a move, or faster: so the edge is about there.
            share = max(_NEAREST, float(np.sqrt(-FALL / height))) if np.isfinite(height) else _BLIND
            outside, middle = middle, min(0.3, share) * middle
        else:
            inside, middle = middle, 3.0 * middle
        if inside and outside / inside < _PRECISE:
            break
    return float(start + sign * outside)


def _move(land: Landscape, x: Array, position: int, target: float) -> Array:
    """Return a point with one parameter moved, and all else learned anew from where it is, or should follow to."""
    length = target - float(x[position])
    starts = []
    for direction in (land.along[:, 0], np.eye(len(x))[position]):
        start = x + length * np.clip(direction, -_REACH / max(abs(length), 1e-300), _REACH / max(abs(length), 1e-300))
        start[position] = target
        starts.append((land.height(start), start))
    best = max(starts, key=lambda item: item[0])[1]
    found = land.settle(best)
    if -FALL > land.height(found) > -50.0 * FALL:
        # Near the edge a few more steps may find the valley again.
        found = land.settle(found)
    return found
