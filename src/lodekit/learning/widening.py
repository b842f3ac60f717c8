"""Factors by which correlated residuals make standard errors of parameters larger than the curvature says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.learning.disturbances import inflate
from lodekit.learning.transforms import Layout
from lodekit.learning.uncertainty import Uncertainty
from lodekit.prior.observables import Observables

__all__ = ["Leftover", "find_widening"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Leftover:
    """Residuals of one observable, and how the curve there moves with what was learned.

    Parameters
    ----------
    uncertainty : Uncertainty
        Of the fit, or of the record that it is from.
    observables : Observables
        The observable, compiled.
    times, residuals, noise : arrays, shape (n,)
        In the order of time; residuals in units of the noise.
    """

    uncertainty: Uncertainty
    observables: Observables
    times: Array
    residuals: Array
    noise: Array


def find_widening(layout: Layout, roots: Array, parts: Sequence[Leftover]) -> dict[str, float]:
    """Return factors of standard errors for learned parameters by name, one at least.

    Parameters
    ----------
    layout : Layout
    roots : array, shape (n, k)
        Of the covariance of all that was learned, if errors were independent.
    parts : sequence of Leftover
        Of a fit without free functions: its curve follows measurements only as parameters and a few modes allow.
    """
    slopes = []
    for part in parts:
        moved = part.uncertainty.slopes(part.observables, part.times)[:, :, 0]
        if len(moved) != roots.shape[1]:
            return {}
        slopes.append(np.asarray((moved / part.noise).T))
    if not slopes or not roots.shape[1]:
        return {}
    correlated, plain = (roots @ each @ roots.T for each in inflate(slopes, [part.residuals for part in parts]))
    found = {}
    for position, number in enumerate(layout.learned):
        before, after = float(plain[position, position]), float(correlated[position, position])
        if before > 0.0 and np.isfinite(after):
            found[layout.names[number]] = max(1.0, float(np.sqrt(after / before)))
    return found
