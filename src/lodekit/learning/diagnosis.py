"""What users should be told about an estimate beside its value."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lodekit.algebra.scalars import Scalar
from lodekit.errors import AlgebraError
from lodekit.prior.compile import ScalarTable
from lodekit.system.system import System

__all__ = ["near_degeneracies"]

#: An expression is close to zero when it is this much smaller than the sum of the sizes of its terms.
_CLOSE = 1e-2


def near_degeneracies(system: System, theta: NDArray[np.float64]) -> list[str]:
    """Return warnings for expressions that nearly vanish at the estimate and at whose zeros the structure changes."""
    ring = system.operator.ring
    try:
        elements = system.degenerate_elements
    except AlgebraError:
        return []
    found = []
    for element in elements:
        terms = [Scalar(ring, ring.from_terms({exponents: value})) for exponents, value in ring.terms(element).items()]
        values, _ = ScalarTable(ring, terms).evaluate(theta)
        if abs(values.sum()) < _CLOSE * np.abs(values).sum():
            text = ring.format(element)
            found.append(f"the structure of the system changes at {text} = 0, and the estimate is close to that")
    return found
