"""What a parameter at its bound leaves open of the others: it may be inside as well, and they follow it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lodekit.learning.curvature import covariance_from_curvature
from lodekit.learning.landscape import Landscape
from lodekit.learning.objective import Objective
from lodekit.learning.profiles import FALL
from lodekit.learning.search import Optimum

__all__ = ["reach_beside_bounds"]

Array = NDArray[np.float64]
#: How far from its bound a parameter is taken, in the size to expect of it.
_SHARES = np.geomspace(1e-3, 10.0, 13)
#: How often the place where the evidence has fallen is halved.
_HALVES = 3


def reach_beside_bounds(objective: Objective, optimum: Optimum, curvature: Array) -> dict[str, tuple[float, float]]:
    """Return 95 % intervals of parameters, by name, over all values of those at their bounds that would do as well.

    The curvature takes what sits at a bound as known. So a mass that is best at zero would make the other one of two,
    of which the data tell the sum, as certain as the sum. Here it is moved away from the bound, with all else learned
    anew, until the evidence falls; on the way, each other parameter has the interval that the rest of the fall leaves.
    The list is empty where no parameter sits at a bound.

    Parameters
    ----------
    objective : Objective
    optimum : Optimum
        The estimate.
    curvature : array, shape (n, n)
        Minus the Hessian of the objective there, from which errors come.
    """
    layout = objective.layout
    stuck = [k for k, n in enumerate(layout.learned) if optimum.at_bound[k] and not layout.transforms[n].is_unbounded]
    inner = [k for k in range(len(layout.learned)) if not optimum.at_bound[k]]
    covariance = covariance_from_curvature(curvature, ~optimum.at_bound)
    errors = np.sqrt(np.maximum(np.diag(covariance)[inner], 0.0))
    if not stuck or not inner:
        return {}
    low, high = optimum.x[inner] - np.sqrt(2.0 * FALL) * errors, optimum.x[inner] + np.sqrt(2.0 * FALL) * errors
    with np.errstate(all="ignore"):
        for place in stuck:
            land = Landscape(objective, optimum, curvature, [place], "relearned")
            for x, height in _away(land, place):
                reach = np.sqrt(2.0 * max(FALL + min(height, 0.0), 0.0)) * errors
                low, high = np.minimum(low, x[inner] - reach), np.maximum(high, x[inner] + reach)
    found = {}
    for k, bottom, top in zip(inner, low.tolist(), high.tolist(), strict=True):
        transform = layout.transforms[layout.learned[k]]
        found[layout.names[layout.learned[k]]] = (transform.forward(bottom), transform.forward(top))
    return found


def _away(land: Landscape, place: int) -> Iterator[tuple[Array, float]]:
    """Yield points, and heights, with one parameter farther and farther from its bound, until the evidence falls."""
    transform = land.objective.layout.transforms[land.objective.layout.learned[place]]
    is_low = abs(transform.forward(float(land.centre[place])) - transform.low) < transform.size
    room = 0.5 * (transform.high - transform.low)

    def moved(x: Array, share: float) -> tuple[Array, float]:
        step = min(share * transform.size, room)
        point = x.copy()
        point[place] = transform.inverse(transform.low + step if is_low else transform.high - step)
        point = land.settle(point)
        return point, land.height(point)

    inside, x = 0.0, land.centre
    for share in _SHARES.tolist():
        point, height = moved(x, share)
        if height >= -FALL:
            inside, x = share, point
            yield point, height
            continue
        outside = share
        for _ in range(_HALVES):
            middle = 0.5 * (inside + outside)
            point, height = moved(x, middle)
            if height >= -FALL:
                inside, x = middle, point
                yield point, height
            else:
                outside = middle
        return
