"""Deviations of disturbances: starts at several scales, and those that are best at zero.

A fit without disturbances is the limit of deviations that vanish, so it is where a search begins: with disturbances of
several sizes added to it, and to all values of the parameters that the data suggest. On the logarithmic scale of the
search zero is infinitely far away; a deviation that makes no difference any more is set to next to nothing, and
nothing is searched along it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from lodekit.learning.disturbance_sizes import add_disturbances
from lodekit.learning.objective import Objective
from lodekit.learning.search import Optimum, search
from lodekit.prior.hyperparameters import Hyperparameters

__all__ = ["learn_disturbed", "settle_disturbances"]

Array = NDArray[np.float64]
#: Sizes of what disturbances do, as shares of the data, and lengthscales that are tried, as shares of the window.
_SHARES, _LENGTHS = (0.5, 0.1, 0.02, 0.003), (0.3, 0.05, 0.01)
#: What stands for a deviation of zero, as a share of one that suits the data.
_NOTHING = 1e-9
#: A deviation that gains less than this, in log evidence, is zero.
_WORTH = 1e-4
#: How many starts are followed to the end, how far they are apart, and how much worse than the best they may begin.
_FOLLOWED, _APART = 3, 0.7
#: What a step has to gain on the first search, and on others.
_FINE, _COARSE, _FEWER = 1e-7, 1e-3, 80


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
    starts = _rank(objective, origins, scatter)
    found: list[Optimum] = []
    for x in starts:
        rival = max(found, key=lambda each: each.value) if found else None
        tolerance, most = (_FINE, 500) if rival is None else (_COARSE, _FEWER)
        end = search(objective, x, tolerance=tolerance, iterations=most, rival=rival, trusted=True)
        if rival is not None and end.value > rival.value:
            end = search(objective, end.x, tolerance=_FINE, trusted=True)
        found.append(end)
    return max(found, key=lambda each: each.value, default=None)


def _rank(objective: Objective, origins: Iterable[Hyperparameters], scatter: Array | None) -> list[Array]:
    """Return the most promising starts that differ, best first."""
    engine, layout = objective.engine, objective.layout
    found: list[tuple[float, Array]] = []
    for hyper in origins:
        levels = [hyper.noise]
        if scatter is not None and len(hyper.noise):
            units = engine.prior.noise.units[: layout.noise_levels]
            levels.append(np.clip(scatter, 1e-3 * units, None)[: layout.noise_levels])
        for share, length in product(_SHARES, _LENGTHS if layout.coloured else _LENGTHS[:1]):
            with np.errstate(all="ignore"):
                whole = add_disturbances(engine, layout, hyper, share, length)
                for noise in levels:
                    x = layout.pack(replace(whole, noise=noise))
                    value = objective.value(x) if np.isfinite(x).all() else -np.inf
                    found += [(value, x)] if np.isfinite(value) else []
    chosen: list[Array] = []
    for _, x in sorted(found, key=lambda pair: -pair[0]):
        if len(chosen) < _FOLLOWED and all(np.abs(x - other).max() > _APART for other in chosen):
            chosen.append(x)
    return chosen


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
