"""Profile likelihood over a range of one parameter, for figures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from lodekit.diagnostics.profile_likelihood import CHI2_95_HALF, ObjectiveSurface, profile_point
from lodekit.fitting.global_search import GlobalSearch
from lodekit.support.arguments import Array

#: Heights and points by the move of a parameter.
_Curve = dict[float, tuple[float, Array]]


def trace_highest_profile(
    surface: ObjectiveSurface, position: int, width: float, points: int, optima: Sequence[Sequence[float]]
) -> tuple[Array, Array]:
    """Return moves of a parameter, ascending, and the highest re-optimised objective that was found there.

    Each point starts from the previous one, outwards from the estimate, and from other optima above that curve. Where
    the objective starts to fall, falls steeply, or crosses the 95 % level, a local search may have left a curved ridge:
    there it also starts from other optima and from a global search with the parameter held. From points that are higher
    than expected, a second pass leads back inwards.
    """
    x, longest = surface.optimum_point, 2.0 * width / (points - 1)
    known, search = _Curve(), GlobalSearch.around(surface.objective, x)

    def improve(move: float, starts: Sequence[Array]) -> bool:
        before, target = found.get(move, (-np.inf, x)), float(x[position]) + move
        ends = [profile_point(surface, start, position, target, [], retry=False) for start in starts]
        found[move] = max([before, *((surface.relative_value(end), end) for end in ends)], key=lambda pair: pair[0])
        return found[move][0] > before[0] + 1e-3

    def find_starts(move: float) -> list[Array]:
        starts, target = [*map(np.array, optima)], float(x[position]) + move
        if search is not None:
            held = {k: float(x[k]) for k in range(len(search.low)) if k not in surface.other_index}
            starts += [*search.find_points(x, 4.0 * CHI2_95_HALF, held | {position: target}, share=0.1)[:2]]
        for start in starts:
            start[position] = target
        return sorted(starts, key=surface.relative_value)[-2:]

    def walk(begin: float, sign: float) -> None:
        at, step, path, raised, is_local = begin, longest, [begin], set[float](), True
        while sign * at < width * (1.0 - 1e-9) and found[at][0] > max(-7.0, _height_at(known, at)):
            step = min(step, width - sign * at)
            height, move = found[at][0], at + sign * step
            improve(move, [found[at][1]])
            crosses = any(height > -level > found[move][0] for level in (0.1 * CHI2_95_HALF, CHI2_95_HALF))
            if crosses or (is_local and height - found[move][0] > 1.0):
                # If this does not help, the profile is steep.
                is_local = improve(move, find_starts(move))
                raised |= {move} if is_local else set()
            # A steep drop is approached in small steps, so that the figure shows where it is.
            if height - found[move][0] > 3.0 and step > longest / 12:
                del found[move]
                step /= 2.0
                continue
            at, step = move, min(2.0 * step, longest)
            path.append(at)
        for outer, inner in pairwise(path[:0:-1]):
            if (outer in raised or found[outer][0] > found[inner][0]) and improve(inner, [found[outer][1]]):
                raised.add(inner)

    with np.errstate(all="ignore"):
        for origin in map(np.array, [x, *optima]):
            begin, height = float(origin[position] - x[position]), surface.relative_value(origin)
            if abs(begin) < width and height > _height_at(known, begin) + 1e-3:
                found = {begin: (height, origin)}
                walk(begin, -1.0)
                walk(begin, 1.0)
                known = _above(known, found) | _above(found, known)
    moves = np.array(sorted(known))
    return moves, np.array([known[move][0] for move in moves.tolist()])


def _height_at(curve: _Curve, move: float) -> float:
    """Return the interpolated height of a curve; minus infinity beyond its ends."""
    heights = [curve[each][0] for each in sorted(curve)]
    return float(np.interp(move, sorted(curve), heights, -np.inf, -np.inf)) if curve else -np.inf


def _above(curve: _Curve, other: _Curve) -> _Curve:
    """Return the points of a curve that are not below another one."""
    return {move: pair for move, pair in curve.items() if not pair[0] < _height_at(other, move)}
