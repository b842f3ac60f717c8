"""Whether measurements follow each other so closely that they tell what happens between them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lodekit.learning.gaps import gaps_between
from lodekit.learning.guesses.implied import parameters_in
from lodekit.system.system import System

__all__ = ["is_unresolved", "parameters_between"]

Array = NDArray[np.float64]
#: Measurements so many lengthscales apart leave open what a free function does between them: at that distance some
#: millionths of its variance lie beyond the frequency that they can tell.
_TELLING = 1.5


def is_unresolved(lengthscales: Array, times: Sequence[Array]) -> bool:
    """Return whether all free functions forget their values from one measurement to the next, or nearly so.

    Then the lengthscale is what the prior makes of it, and so is every derivative.

    Parameters
    ----------
    lengthscales : array
        Of the free functions, in the unit of the times; none where nothing is free.
    times : sequence of arrays
        All times of each record.

    Examples
    --------
    >>> is_unresolved(np.array([2.0]), [np.arange(0.0, 20.0, 1.8)]), is_unresolved(np.array([2.0]), [np.arange(20.0)])
    (True, False)
    """
    gaps = gaps_between(times)
    return bool(len(gaps) and len(lengthscales) and float(np.max(lengthscales)) < _TELLING * float(np.median(gaps)))


def parameters_between(system: System, measured: Sequence[str]) -> list[str]:
    """Return parameters of equations that hold between values of which not all are measured, in order.

    Parameters
    ----------
    system : System
    measured : sequence of str
        The observables.

    Examples
    --------
    >>> parameters_between(System("x' = -a*x + b*u; y = c*x", parameters=["a", "b", "c"]), ["x", "u", "y"])
    ['a', 'b']
    """
    operator, found = system.operator, set()
    open_equations = {i for i, j, k, _ in operator.terms() if system.channels[j] + "'" * k not in measured}
    for i, _, _, value in operator.terms():
        if i in open_equations:
            found |= parameters_in(operator.ring, [value.numerator, value.denominator])
    return [name for number, name in enumerate(system.parameters) if number in found]
