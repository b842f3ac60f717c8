"""Whether the data tell a parameter: it is moved far, all else is learned anew, and the evidence falls, or does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator

from lodekit.learning.identifiability.landscape import Landscape
from lodekit.learning.objective import Objective
from lodekit.learning.searches.search import Optimum
from lodekit.learning.transforms import Transform

__all__ = ["FALL", "Path", "Profile", "Side", "grade", "profile"]

Array = NDArray[np.float64]
#: Points of a search, and by how much the evidence is higher there.
Path = list[tuple[Array, float]]
#: An interval of 95 % ends where the evidence has fallen by this: half the 95 % quantile of chi-squared with one degree
#: of freedom.
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
#: An interval's end is aimed at a little beyond; so much beyond is too far; and it is found to this share of the move.
_BEYOND, _TOO_FAR, _CLOSE = 1.05, 1.3, 0.05
#: How often a parameter is moved on one side at most, before the nearest place where the evidence has fallen counts.
_MOVES = 16


@dataclass(frozen=True)
class Profile:
    """How far a parameter can move before the evidence falls.

    Parameters
    ----------
    low, high : float
        Where it has fallen, in the user's units; infinite, or the parameter's own limit, where it has not.
    below, above : bool
        Whether it has fallen on that side.
    paths : tuple of paths
        On each side, points of the search, and by how much the evidence is higher there, from the estimate on.
    """

    low: float
    high: float
    below: bool
    above: bool
    paths: tuple[Path, ...] = field(default=(), compare=False, repr=False)

    @property
    def is_flat(self) -> bool:
        """Whether the evidence falls on neither side."""
        return not self.below and not self.above


def profile(objective: Objective, optimum: Optimum, curvature: Array, position: int) -> Profile:
    """Return how far one parameter can move, with all else learned anew at each step.

    Where the evidence falls on both sides already at the first step, the place is looked for below the estimate alone,
    and taken to be as far above it.

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
        paths: tuple[Path, Path] = ([(land.centre, 0.0)], [(land.centre, 0.0)])
        falls = [_fall(land, transform, position, sign, path) for sign, path in zip((-1, 1), paths, strict=True)]
        edges: list[float | None] = []
        for fall, path in zip(falls, paths, strict=True):
            if fall is None:
                edges.append(None)
            elif edges and edges[0] is not None and all(each is not None and each[0] is land.centre for each in falls):
                edges.append(2.0 * centre - edges[0])
            else:
                edges.append(_edge(land, position, *fall, guess, path))
            path.sort(key=lambda point: abs(float(point[0][position]) - centre))
    low = transform.low if edges[0] is None else transform.forward(edges[0])
    high = transform.high if edges[1] is None else transform.forward(edges[1])
    return Profile(low, high, edges[0] is not None, edges[1] is not None, paths)


@dataclass(frozen=True)
class Side:
    """How the evidence falls as a parameter moves to one side, all else learned anew.

    Parameters
    ----------
    points : tuple of (float, float)
        The root of twice the fall, growing, and how far the parameter has moved; the first is the estimate, (0, 0).
    pace : float
        How far it moves for one unit of that root, next to the estimate.
    place : function
        From a move to the parameter in the user's units.
    is_open : bool
        Whether the evidence does not fall by what was asked for.
    limit : float
        The farthest that the parameter may be on this side.
    """

    points: tuple[tuple[float, float], ...]
    pace: float
    place: Callable[[float], float]
    is_open: bool
    limit: float

    def end(self, root: float) -> float:
        """Return where the evidence has fallen by half the square of a root, in the user's units.

        Parameters
        ----------
        root : float
            Beyond what was looked at, it is taken to fall on as it did last.
        """
        roots, moves = (np.array(column) for column in zip(*self.points, strict=True))
        if root > roots[-1]:
            if self.is_open:
                return self.limit
            rate = (moves[-1] - moves[-2]) / max(roots[-1] - roots[-2], 1e-300)
            return self.place(float(moves[-1] + rate * (root - roots[-1])))
        if root < roots[1]:
            # Next to the estimate the curvature is known: a parabola, unless that turns round.
            bend = float((moves[1] - self.pace * roots[1]) / roots[1] ** 2)
            if self.pace + 2.0 * bend * roots[1] > 0.0:
                return self.place(self.pace * root + bend * root**2)
        return self.place(float(PchipInterpolator(roots, moves)(root)))


def grade(
    objective: Objective, optimum: Optimum, curvature: Array, position: int, pace: float, root: float
) -> tuple[Side, Side]:
    """Return how the evidence falls below and above an estimate, as far as an interval reaches, or until it is open.

    As a rule, two or three points to either side are enough, each of which takes some 15 to 60 evaluations.

    Parameters
    ----------
    objective : Objective
    optimum : Optimum
        The estimate.
    curvature : array, shape (n, n)
        Minus the Hessian of the objective there, or what is proportional to it.
    position : int
        Of the parameter in the vector that is searched.
    pace : float
        How far the parameter moves until the evidence has fallen by a half, as the curvature has it: on the scale of
        the search, or in units of its size where it may be anything.
    root : float
        The interval ends where the evidence has fallen by half the square of this.
    """
    transform = objective.layout.transforms[objective.layout.learned[position]]
    land = Landscape(objective, optimum, curvature, [position], "relearned")
    centre = float(optimum.x[position])
    value = transform.forward(centre)
    unit = max(abs(value), transform.size)

    def side(sign: int, limit: float) -> Side:
        def at(move: float) -> float:
            return transform.inverse(value + sign * move * unit) if transform.is_unbounded else centre + sign * move

        last = _steps(transform, centre, sign)[-1]
        far = abs(transform.forward(last) - value) / unit if transform.is_unbounded else abs(last - centre)
        with np.errstate(all="ignore"):
            points = _walk(land, position, at, pace, root, far)
        return Side(tuple(points), pace, lambda move: transform.forward(at(move)), points[-1][0] < root, limit)

    return side(-1, transform.low), side(1, transform.high)


def _walk(
    land: Landscape, position: int, at: Callable[[float], float], pace: float, root: float, far: float
) -> list[tuple[float, float]]:
    """Return roots of twice the fall, and moves to one side, until the root that is aimed at, or as far as it goes.

    Moves become points of the search by `at`; how fast the root grows with them is told by the first `pace`.
    """
    found, x = [(0.0, 0.0)], land.centre
    outside: float | None = None
    for _ in range(_MOVES):
        reached, moved = found[-1]
        if reached >= root or moved >= far:
            break
        step = min(pace * max(_BEYOND * root - reached, 0.2 * root), _STEP if moved < _REACH else _STRIDE, far - moved)
        if outside is not None:
            if outside - moved < _CLOSE * outside:
                break
            step = min(step, 0.7 * (outside - moved))
        point = _move(land, x, position, at(moved + step), again=False)
        height = land.height(point)
        new = float(np.sqrt(2.0 * max(-height, 0.0)))
        if new > _TOO_FAR * root:
            outside = moved + step
            pace = max(step / (new - reached), 0.05 * step / root) if np.isfinite(new) else 0.2 * pace
            continue
        pace = float(np.clip(step / max(new - reached, 1e-6), 0.3 * pace, 3.0 * pace))
        x = point
        found.append((max(new, reached + 1e-9), moved + step))
    if found[-1][0] < root and outside is not None:
        found.append((root, outside))
    return found


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


def _fall(land: Landscape, transform: Transform, position: int, sign: int, path: Path) -> tuple[Array, float] | None:
    """Return the last point before the evidence falls on one side, and the step that makes it fall, if one does.

    Points are added to the path.
    """
    x = land.centre
    for target in _steps(transform, float(land.centre[position]), sign):
        found = _move(land, x, position, target)
        path.append((found, land.height(found)))
        if path[-1][1] < -FALL:
            return x, target - float(x[position])
        x = found
    return None


def _edge(land: Landscape, position: int, x: Array, step: float, guess: float, path: Path) -> float:
    """Return where the evidence has fallen between a point and a step from there, on the scale of the search.

    Points are added to the path.
    """
    start, sign = float(x[position]), np.sign(step)
    inside, outside = 0.0, abs(step)
    middle = guess if x is land.centre else 0.5 * outside
    while outside > _FINEST:
        if not inside < middle < outside:
            # By what order of magnitude the parameter can move is not known; then between two orders.
            middle = float(np.sqrt(inside * outside)) if inside else 0.1 * outside
        point = _move(land, x, position, start + sign * middle)
        height = land.height(point)
        path.append((point, height))
        if height < -FALL:
            # The evidence falls with the square of a move, or faster: so the edge is about there.
            share = max(_NEAREST, float(np.sqrt(-FALL / height))) if np.isfinite(height) else _BLIND
            outside, middle = middle, min(0.3, share) * middle
        else:
            inside, middle = middle, 3.0 * middle
        if inside and outside / inside < _PRECISE:
            break
    return float(start + sign * outside)


def _move(land: Landscape, x: Array, position: int, target: float, *, again: bool = True) -> Array:
    """Return a point with one parameter moved, and all else learned anew from where it is, or should follow to."""
    length = target - float(x[position])
    starts = []
    for move in (length * land.along[:, 0], _follow(land, position, length), length * np.eye(len(x))[position]):
        start = x + np.clip(move, -_REACH, _REACH)
        start[position] = target
        starts.append((land.height(start), start))
    best = max(starts, key=lambda item: item[0])[1]
    found = land.settle(best)
    if again and -FALL > land.height(found) > -50.0 * FALL:
        # Near the edge a few more steps may find the valley again.
        found = land.settle(found)
    return found


def _follow(land: Landscape, position: int, length: float) -> Array:
    """Return how all else should follow where sums of positive parameters are known: in their own units, linearly."""
    layout, found = land.objective.layout, length * land.along[:, 0]
    transforms = [layout.transforms[number] for number in layout.learned]
    if transforms[position].low != 0.0 or not np.isinf(transforms[position].high):
        return found
    for k, transform in enumerate(transforms):
        if transform.low == 0.0 and np.isinf(transform.high):
            found[k] = np.log(max(1.0 + land.along[k, 0] * np.expm1(min(length, _REACH)), np.exp(-_REACH)))
    return found
