"""Start values where inputs act later: delays are scanned, and the weak form tells the rest at each of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from lodekit.learning.gaps import gaps_between
from lodekit.learning.guesses.implied import ImpliedEquations, parameters_in
from lodekit.learning.guesses.weak import Integrals, weak_guesses
from lodekit.learning.transforms import Layout
from lodekit.prior.compile import ScalarTable
from lodekit.system.system import System

__all__ = ["delay_grid", "delay_guesses", "delay_parameters"]

Array = NDArray[np.float64]
#: The longest delay that is tried, as a share of the record, and by which factor two neighbours differ.
_LONGEST, _FACTOR = 0.3, 1.5
#: How many combinations of delays are tried at most.
_MOST = 40
#: Half widths of the windows of the weak form, as shares of the record.
_HALVES = (0.12, 0.03)


def delay_parameters(system: System, layout: Layout) -> list[int]:
    """Return the learned parameters that the delays of a system depend on, by number.

    Parameters
    ----------
    system : System
    layout : Layout
        Which parameters are learned.
    """
    times = [name.time for name in system.delayed_channels]
    elements = [part for time in times for part in (time.numerator, time.denominator)]
    seen = parameters_in(system.operator.ring, elements)
    return [number for number in layout.learned if number in seen]


def delay_grid(times: Array) -> Array:
    """Return delays to try: from half a sampling step to a good share of the record.

    Parameters
    ----------
    times : array, shape (n,)
        Of the measurements.

    Examples
    --------
    >>> delay_grid(np.arange(11.0)).round(2).tolist()
    [0.5, 0.75, 1.12, 1.69, 2.53]
    """
    gaps = gaps_between([times])
    if len(gaps) < 2:
        return np.zeros(0)
    shortest, longest = 0.5 * float(np.median(gaps)), _LONGEST * float(np.ptp(times))
    count = int(np.floor(np.log(max(longest / shortest, 1.0)) / np.log(_FACTOR))) + 1
    return np.asarray(shortest * _FACTOR ** np.arange(count))


def delay_guesses(
    system: System, equations: Sequence[ImpliedEquations], layout: Layout, generator: np.random.Generator
) -> list[Array]:
    """Return values of the parameters for many delays, each of shape (p,), NaN where they do not occur.

    Parameters
    ----------
    system : System
    equations : sequence of ImpliedEquations
        Between what was measured in each record; inputs are not delayed yet.
    layout : Layout
        Which parameters are learned, and on which scale.
    generator : numpy.random.Generator
        For the points that least-squares searches start from.
    """
    table = ScalarTable(system.operator.ring, [name.time for name in system.delayed_channels])
    numbers = delay_parameters(system, layout)
    # The longest record has the longest delays.
    longest = max(equations, key=lambda each: each.window[1] - each.window[0])
    measured = [item.times for item, kind in zip(longest.series, longest.kinds, strict=True) if not kind]
    grid = delay_grid(np.concatenate(measured)).tolist()
    tried = list(product(grid, repeat=len(numbers)))
    tried = [tried[k] for k in np.unique(np.linspace(0, len(tried) - 1, min(len(tried), _MOST)).astype(int))]
    found: list[Array] = []
    integrals: list[Integrals] = [{} for _ in equations]
    for values in tried:
        theta = np.where(np.isnan(layout.fixed), 1.0, layout.fixed)
        theta[numbers] = values
        delays, _ = table.evaluate(theta)
        shifted, near = [each.delayed(delays) for each in equations], found[-1] if found else None
        for guess in weak_guesses(shifted, layout, generator, _HALVES, near=near, integrals=integrals)[:1]:
            guess[numbers] = values
            found.append(guess)
    return found
