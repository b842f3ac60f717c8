"""A second look around an optimum, where searches are known to end too early: other lengthscales, lost parameters."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lodekit.learning.objective import Objective
from lodekit.learning.searches.search import Optimum, search
from lodekit.learning.searches.starts import Sizes, match_sizes

__all__ = ["look_again"]

Array = NDArray[np.float64]
#: Lengthscales are tried at these factors of what was found, where neighbours can hide behind a low pass.
_FACTORS = 1.08 ** np.arange(-9.0, 9.0)
#: Where a window holds many lengthscales, those two steps to either side are followed in any case: the scan cannot tell
#: them apart.
_NEIGHBOURS, _SHORT = _FACTORS[[7, 11]], 0.1
#: Where it holds hardly any there is nothing to confuse, nor where processes of all channels share the work.
_LONG = 0.2
#: What longer ones leave over counts as noise: by this power of the factor it grows along.
_ALONG = 0.55
#: A top beside the optimum is worth a search where it is no lower than this, in log evidence.
_LOWER = 8.0
#: A parameter this far from where it was expected, as a logarithm, may have run away along a plain.
_LOST = 6.0
#: Others that are this far away are set back with it, in one try or another.
_TAKEN = (3.0, 1.0)
#: What is set back leaves more over at first: noise of this share of the data.
_NOISE = 0.1
#: How often one look follows another, and how many lengthscales are looked at.
_ROUNDS, _PROCESSES = 3, 4
#: How many steps a search takes that looks where a start leads.
_STEPS = 80


def look_again(objective: Objective, optimum: Optimum, *, tolerance: float, fine: float) -> Optimum:
    """Return an optimum, or a better one that a search has missed.

    Steps in an input make several optima of the lengthscale, close to each other: the evidence is scanned along it. And
    a parameter at a millionth of its size does nothing any more, so nothing leads it back: it is set back.

    Parameters
    ----------
    objective : Objective
    optimum : Optimum
        Where the search ended.
    tolerance, fine : float
        What a step has to gain in a search that looks where a start leads, and in one that is taken to its end.
    """
    best = optimum
    for _ in range(_ROUNDS):
        before = best
        for x in [*_other_lengthscales(objective, best), *_set_back(objective, best)]:
            found = search(objective, x, tolerance=tolerance, iterations=_STEPS, rival=best)
            if found.value > best.value + tolerance:
                best = search(objective, found.x, tolerance=fine)
        if best is before:
            break
    return best


def _other_lengthscales(objective: Objective, optimum: Optimum) -> Iterator[Array]:
    """Yield the tops of the log evidence along each lengthscale, other than the optimum itself."""
    block = objective.layout.blocks.lengthscales
    reach = objective.engine.limits
    low, high = float(np.log(reach.shortest)), float(np.log(reach.longest))
    for place in range(block.start, min(block.stop, block.start + _PROCESSES)):
        length = float(np.exp(optimum.x[place]))
        if length > _LONG or objective.engine.prior.channels is not None:
            continue
        moves, is_short = np.log(_FACTORS), length < _SHORT
        moves = moves[(optimum.x[place] + moves > low) & (optimum.x[place] + moves < high)]
        points = [optimum.x.copy() for _ in moves]
        for point, move in zip(points, moves, strict=True):
            point[place] += move
            point[objective.layout.blocks.noise] += _ALONG * move
        with np.errstate(all="ignore"):
            heights = [optimum.value if not move else objective.value(x) for move, x in zip(moves, points, strict=True)]
        rises = [after > before for before, after in pairwise(heights)]
        for k in range(len(points)):
            is_top = (k == 0 or rises[k - 1]) and (k == len(points) - 1 or not rises[k])
            is_neighbour = is_short and any(np.isclose(moves[k], np.log(factor)) for factor in _NEIGHBOURS)
            if moves[k] and (is_neighbour or (is_top and heights[k] > optimum.value - _LOWER)):
                yield points[k]


def _set_back(objective: Objective, optimum: Optimum) -> Iterator[Array]:
    """Yield the optimum with parameters that have run away set back to the size to expect, one by one and together."""
    layout = objective.layout
    usual, away = np.zeros(len(layout.learned)), np.zeros(len(layout.learned))
    for place, number in enumerate(layout.learned):
        transform, x = layout.transforms[number], float(optimum.x[place])
        away[place], usual[place] = transform.away(x), transform.centre
        if transform.is_unbounded:
            usual[place] = float(np.copysign(transform.inverse(transform.size), x))
    lost = np.flatnonzero(away > _LOST)
    # Those that run away take others with them, not as far.
    groups = [np.array([place]) for place in lost]
    for least in _TAKEN if len(lost) else ():
        together = np.flatnonzero(away > least)
        groups += [together] if len(together) > len(groups[-1]) else []
    for group in groups:
        point = optimum.x.copy()
        point[group] = usual[group]
        yield point
        # What suits the data of deviations depends on the parameters.
        hyper = layout.unpack(point)
        length = float(np.exp(np.mean(np.log(hyper.lengthscales)))) if layout.processes else 1.0
        with np.errstate(all="ignore"):
            sizes = Sizes.at(objective.engine, hyper.theta)
            noise = np.maximum(hyper.noise, _NOISE * objective.engine.prior.noise.units[: layout.noise_levels])
            matched = match_sizes(objective.engine, layout, sizes, length, noise)
        if matched is not None and np.isfinite(layout.pack(matched)).all():
            yield layout.pack(matched)
