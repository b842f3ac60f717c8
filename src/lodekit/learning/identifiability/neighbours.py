"""What a parameter at its bound, or near it, leaves open of others: it may be inside as well, and they follow it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from lodekit.learning.curvature import covariance_from_curvature
from lodekit.learning.estimates import NORMAL_95
from lodekit.learning.identifiability.landscape import Landscape
from lodekit.learning.identifiability.profiles import FALL, Path
from lodekit.learning.objective import Objective
from lodekit.learning.searches.search import Optimum

__all__ = ["Rung", "reach_beside_bounds"]

Array = NDArray[np.float64]
#: How many standard errors of a normal distribution an interval stands for, and where it begins and ends.
Rung = tuple[float, float, float]
#: Of which intervals there are rungs: 50, 90, 95, 99 and 99.9 %.
_DEVIATES = (0.6744897501960817, 1.6448536269514722, NORMAL_95, 2.5758293035489004, 3.2905267314919255)
#: How far from its bound a parameter is taken, in the size to expect of it.
_SHARES = np.geomspace(1e-3, 10.0, 13)
#: How often the place where the evidence has fallen by what makes 95 % is halved.
_HALVES = 3


def reach_beside_bounds(
    objective: Objective, optimum: Optimum, curvature: Array, others: Sequence[Path] = ()
) -> dict[str, tuple[Rung, ...]]:
    """Return intervals of parameters, by name, over all values of those at their bounds that would do as well.

    The curvature takes what sits at a bound as known. So a mass that is best at zero would make the other one of two,
    of which the data tell the sum, as certain as the sum. Here it is moved away from the bound, with all else learned
    anew, until the evidence falls; on the way, each other parameter has the interval that the rest of the fall leaves.
    The same holds for parameters that may be next to nothing, beside which the curvature takes others as known: on the
    scale of the search they are flat there, and nothing follows. Empty where there are none of either.

    Parameters
    ----------
    objective : Objective
    optimum : Optimum
        The estimate.
    curvature : array, shape (n, n)
        Minus the Hessian of the objective there, from which errors come.
    others : sequence of paths
        Of parameters that are bounded on one side alone, or on none: points, and heights, from the estimate on.
    """
    layout = objective.layout
    stuck = [k for k, n in enumerate(layout.learned) if optimum.at_bound[k] and not layout.transforms[n].is_unbounded]
    inner = [k for k in range(len(layout.learned)) if not optimum.at_bound[k]]
    covariance = covariance_from_curvature(curvature, ~optimum.at_bound)
    errors = np.sqrt(np.maximum(np.diag(covariance)[inner], 0.0))
    if not (stuck or others) or not inner:
        return {}
    with np.errstate(all="ignore"):
        paths = [_path(Landscape(objective, optimum, curvature, [place], "relearned"), place) for place in stuck]
    paths += [[(x, min(height, 0.0)) for x, height in path] for path in others]
    found: dict[str, list[Rung]] = {layout.names[layout.learned[k]]: [] for k in inner}
    for deviate in _DEVIATES:
        fall = 0.5 * deviate**2
        low, high = optimum.x[inner] - deviate * errors, optimum.x[inner] + deviate * errors
        for x, height in (point for path in paths for point in _until(path, fall)):
            reach = np.sqrt(2.0 * max(fall + height, 0.0)) * errors
            low, high = np.minimum(low, x[inner] - reach), np.maximum(high, x[inner] + reach)
        for k, bottom, top in zip(inner, low.tolist(), high.tolist(), strict=True):
            transform = layout.transforms[layout.learned[k]]
            ends = transform.forward(bottom), transform.forward(top)
            found[layout.names[layout.learned[k]]].append((deviate, *ends))
    return {name: tuple(rungs) for name, rungs in found.items()}


def _until(path: Path, fall: float) -> Iterator[tuple[Array, float]]:
    """Yield points of a path, and heights, until the evidence has fallen, and the place where it just has."""
    before: tuple[Array, float] | None = None
    for x, height in path:
        if height >= -fall:
            yield x, height
            before = x, height
        elif before is not None:
            # The evidence falls about with the square of a move.
            inside, outside = np.sqrt(-before[1]), np.sqrt(-height)
            share = (np.sqrt(fall) - inside) / (outside - inside) if np.isfinite(outside) else 0.0
            yield before[0] + share * (x - before[0]), -fall
            return


def _path(land: Landscape, place: int) -> Path:
    """Return points, and heights, with one parameter farther and farther from its bound, until the evidence falls."""
    transform = land.objective.layout.transforms[land.objective.layout.learned[place]]
    is_low = abs(transform.forward(float(land.centre[place])) - transform.low) < transform.size
    room = 0.5 * (transform.high - transform.low)

    def moved(x: Array, share: float) -> tuple[Array, float]:
        step = min(share * transform.size, room)
        target = transform.inverse(transform.low + step if is_low else transform.high - step)
        point = x.copy()
        point[place] = target
        # What is known relative to it goes along, over many orders of magnitude from so near to the bound.
        beside = x + (target - float(x[place])) * land.along[:, 0]
        point = land.settle(max((point, beside), key=land.height))
        return point, min(land.height(point), 0.0)

    def between(first: float, last: float, x: Array) -> Iterator[tuple[float, Array, float]]:
        """Yield points around the place where an interval of 95 % ends."""
        for _ in range(_HALVES):
            middle = 0.5 * (first + last)
            point, height = moved(x, middle)
            yield middle, point, height
            first, last, x = (middle, last, point) if height >= -FALL else (first, middle, x)

    found = [(0.0, land.centre, 0.0)]
    for share in _SHARES.tolist():
        point, height = moved(found[-1][1], share)
        if found[-1][2] >= -FALL > height:
            found += between(found[-1][0], share, found[-1][1])
        found.append((share, point, height))
        if height < -0.5 * _DEVIATES[-1] ** 2:
            break
    return [(point, height) for _, point, height in sorted(found, key=lambda item: item[0])]
