"""Deviations of disturbances: starts at several scales, and those that are best at zero.

A fit without disturbances is the limit of deviations that vanish, so it is where a search begins: with disturbances of
several sizes added to it, and to all values of the parameters that the data suggest. On the logarithmic scale of the
search zero is infinitely far away; a deviation that makes no difference any more is set to next to nothing, and
nothing is searched along it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from lodekit.learning.objective import Objective
from lodekit.learning.searches.disturbance_sizes import add_disturbances, raise_modes
from lodekit.learning.searches.search import Optimum, search
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.progress import waiting

__all__ = ["learn_disturbed", "settle_disturbances"]

Array = NDArray[np.float64]
#: Sizes of what disturbances do, as shares of the data, and lengthscales that are tried, as shares of the window.
_SHARES, _LENGTHS = (0.5, 0.1, 0.02, 0.003), (0.3, 0.05, 0.01)
#: What stands for a deviation of zero, as a share of one that suits the data.
_NOTHING = 1e-9
#: Levels of noise to begin with are at least this share of the spread of the data.
_QUIETEST = 1e-3
#: A deviation that gains less than this, in log evidence, is zero.
_WORTH = 1e-4
#: How many starts are followed, how far they are apart, and how many ways to add disturbances are tried at all origins.
_FOLLOWED, _APART, _WAYS = 2, 0.7, 3
#: What a step has to gain, and how many of them there are; last digits are those of Newton's steps.
_GAIN, _STEPS = 3e-4, 150
#: A search ends that has come so close to the objective of the best one before, and close to where that ended.
_AGREE = 1.0
#: What changes the objective by less than this where it goes that far is lost; it is set back so far, if that gains.
_PLAIN, _FURTHER, _BACK = 0.1, 2.0, np.arange(1.5, 18.0, 1.5)
#: How much less the logarithm of a deviation of modes is where it makes no difference.
_LESS = 5.0


def learn_disturbed(
    objective: Objective, origins: Sequence[Hyperparameters], scatter: Array | None = None
) -> Optimum | None:
    """Return the best optimum of an objective with disturbances; None where no start is finite.

    Parameters
    ----------
    objective : Objective
    origins : sequence of Hyperparameters
        Where to add disturbances: the best point without them first.
    scatter : array, optional
        What neighbouring measurements suggest for each level of noise, in the user's units.
    """
    best: Optimum | None = None
    with waiting("fitting, sizes of disturbances"):
        starts = _rank(objective, origins, scatter)
    with waiting("fitting with disturbances", len(starts)) as advance:
        for number, x in enumerate(starts):
            advance(min(number, 1), f"start {number + 1} of {len(starts)}")
            end = search(objective, x, tolerance=_GAIN, iterations=_STEPS, rival=best, agree=_AGREE, trusted=True)
            best = end if best is None or end.value > best.value else best
    if best is None:
        return None
    for x in _lost(objective, best):
        end = search(objective, x, tolerance=_GAIN, iterations=_STEPS, trusted=True)
        best = end if end.value > best.value else best
    return best if best.converged else search(objective, best.x, tolerance=_GAIN, trusted=True)


def _rank(objective: Objective, origins: Sequence[Hyperparameters], scatter: Array | None) -> list[Array]:
    """Return the most promising starts that differ, best first.

    What suits the first origin best is tried at the others.
    """
    engine, layout = objective.engine, objective.layout
    units = engine.prior.noise.units[: layout.noise_levels]
    # Noise as it was found without disturbances, or as neighbours suggest.
    levels: list[Array | None] = [None]
    if scatter is not None and layout.noise_levels:
        levels.append(np.clip(scatter, _QUIETEST * units, None))
    ways = list(product(_SHARES, _LENGTHS if layout.coloured else _LENGTHS[:1], levels))
    found: list[tuple[float, Array]] = []
    for hyper in origins:
        seen = list[tuple[float, int]]()
        with np.errstate(all="ignore"):
            raised = raise_modes(engine, layout, hyper)
        for number, (share, length, level) in enumerate(ways):
            with np.errstate(all="ignore"):
                whole = add_disturbances(engine, layout, raised, share, length)
                noise = hyper.noise if level is None else level
                x = layout.pack(replace(whole, noise=noise[: layout.noise_levels]))
                value = objective.value(x) if np.isfinite(x).all() else -np.inf
            if np.isfinite(value):
                found.append((value, x))
                seen.append((-value, number))
        if len(seen) > _WAYS:
            ways = [ways[number] for _, number in sorted(seen)[:_WAYS]]
    chosen: list[Array] = []
    for _, x in sorted(found, key=lambda pair: -pair[0]):
        if len(chosen) < _FOLLOWED and all(np.abs(x - other).max() > _APART for other in chosen):
            chosen.append(x)
    return chosen


def _lost(objective: Objective, best: Optimum) -> list[Array]:
    """Return starts with something set back that has run away along a plain, from where nothing leads it back.

    So one of two lags vanishes, and what is left is the best with one lag; or an initial state, while the search is far
    from the end, and does not come back.
    """
    layout, found = objective.layout, list[Array]()
    bounded = [k for k, number in enumerate(layout.learned) if not layout.transforms[number].is_unbounded]
    modes = layout.blocks.mode_deviations

    def at(place: int, move: float) -> tuple[float, Array]:
        x = best.x.copy()
        x[place] += move
        with np.errstate(all="ignore"):
            return objective.value(x), x

    for place in [*bounded, *range(modes.start, modes.stop)]:
        for sign in (-1.0, 1.0)[: 1 if place >= modes.start else 2]:
            if not abs(at(place, sign * _FURTHER)[0] - best.value) < _PLAIN:
                continue
            moves = -sign * _BACK
            if place in bounded:
                own = layout.transforms[layout.learned[place]]
                around = own.inverse(own.size) - float(best.x[place]) + (_BACK - _BACK.mean())
                # It may be anywhere by now; what data and equations suggest is where it was expected.
                moves = around if abs(np.median(around)) > _BACK[-1] else moves
            value, x = max((at(place, move) for move in moves.tolist()), key=lambda pair: pair[0])
            found += [x] if value > best.value + _PLAIN else []
            break
    return found


def settle_disturbances(objective: Objective, optimum: Optimum) -> Optimum:
    """Return an optimum in which deviations that make no difference are next to nothing, and at their limit.

    Parameters
    ----------
    objective : Objective
    optimum : Optimum
    """
    layout, best = objective.layout, optimum
    if not layout.disturbances:
        return best
    best = _settle_modes(objective, best)
    disturbed = objective.engine.prior.observables.disturbed
    coloured = disturbed.coloured if disturbed is not None else ()
    usual = layout.pack(add_disturbances(objective.engine, layout, layout.unpack(best.x), _NOTHING))
    for k in range(layout.disturbances):
        place = layout.blocks.disturbance_deviations.start + k
        x, at_bound = best.x.copy(), best.at_bound.copy()
        x[place] = min(x[place], usual[place])
        value = objective.value(x)
        if not value >= best.value - _WORTH:
            continue
        at_bound[place] = True
        if k in coloured:
            # Nothing has this lengthscale.
            at_bound[layout.blocks.disturbance_lengthscales.start + coloured.index(k)] = True
        best = replace(best, x=x, value=value, at_bound=at_bound)
    return best


def _settle_modes(objective: Objective, optimum: Optimum) -> Optimum:
    """Return an optimum in which modes that data do without are at their limit: deviations would shrink for ever."""
    best, block = optimum, objective.layout.blocks.mode_deviations
    for place in range(block.start, block.stop):
        x, at_bound = best.x.copy(), best.at_bound.copy()
        x[place] -= _LESS
        value = objective.value(x)
        if value >= best.value - _WORTH:
            at_bound[place] = True
            best = replace(best, x=x, value=value, at_bound=at_bound)
    return best
