"""Of several optima that differ in signs alone, the one with the most positive parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from lodekit.learning.objective import Objective
from lodekit.learning.searches.search import Optimum

__all__ = ["choose_signs"]

Array = NDArray[np.float64]
#: Of more symmetries than this, the first ones are tried.
_MOST = 6
#: The objective may differ by this, relative to its size: by rounding.
_SAME = 1e-6


def choose_signs(
    objective: Objective, optimum: Optimum, curvature: Array, symmetries: Sequence[frozenset[str]]
) -> tuple[Optimum, Array]:
    """Return the optimum with the most positive parameters among those that differ in signs, and its curvature.

    A start value that the user has given counts: its sign is preferred, whatever it is.

    Parameters
    ----------
    objective : Objective
    optimum : Optimum
    curvature : array, shape (n, n)
        Minus the Hessian of the objective there.
    symmetries : sequence of sets of str
        Parameters whose signs can change together; they generate all such changes.
    """
    layout = objective.layout
    learned = [layout.names[number] for number in layout.learned]
    wanted = np.ones(len(learned))
    for position, name in enumerate(learned):
        start = objective.parameters[name].start
        wanted[position] = -1.0 if start is not None and start < 0 else 1.0
    signs = np.sign(optimum.x[: len(learned)])
    best = np.ones(len(learned))
    for size in range(1, min(len(symmetries), _MOST) + 1):
        for chosen in combinations(symmetries[:_MOST], size):
            flip = np.ones(len(learned))
            for names in chosen:
                flip *= np.array([-1.0 if name in names else 1.0 for name in learned])
            if _rank(signs * flip * wanted) > _rank(signs * best * wanted):
                best = flip
    if (best > 0).all():
        return optimum, curvature
    whole = np.ones(layout.size)
    whole[: len(learned)] = best
    x = whole * optimum.x
    value = objective.value(x)
    if not abs(value - optimum.value) < _SAME * (1.0 + abs(optimum.value)):
        return optimum, curvature
    return replace(optimum, x=x), curvature * np.outer(whole, whole)


def _rank(signs: Array) -> tuple[int, ...]:
    """Return how many are positive, and then which: what makes one choice of signs better than another."""
    return (int(np.sum(signs > 0)), *(int(sign > 0) for sign in signs))
