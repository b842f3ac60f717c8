"""What correlated residuals do: factors by which errors of parameters are larger, and what bands must hold besides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.learning.bands.correlated_errors import inflate
from lodekit.learning.bands.uncertainty import Uncertainty
from lodekit.learning.diagnosis.residuals import Check
from lodekit.learning.transforms import Layout
from lodekit.prior.observables import Observables
from lodekit.wording import join_words

__all__ = ["Leftover", "find_missed", "find_widening", "warn_of_missed", "widen_all"]

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


def widen_all(layout: Layout, checks: Sequence[Check]) -> dict[str, float]:
    """Return factors of standard errors for all learned parameters by name, in a fit with free functions.

    How much of what is left these would take up is not known. So the factor is that of the mean of as many errors
    which resemble their neighbours as much: a rule of thumb, and the largest of all observables.

    Parameters
    ----------
    layout : Layout
    checks : sequence of Check
        Of each observable.
    """
    largest = max((check.inflation for check in checks if check.has_memory), default=1.0)
    return {layout.names[number]: largest for number in layout.learned} if largest > 1.0 else {}


def find_missed(checks: Sequence[Check], level: Callable[[str], float], noise: Mapping[str, float]) -> dict[str, float]:
    """Return the deviation of what is left of observables beside noise, by name.

    Where the prior finds a motion so unlikely that it counts as noise, what is left is a curve: its innovations are
    correlated, and neighbours differ by less than the level of the noise. Bands must hold it as well.

    Parameters
    ----------
    checks : sequence of Check
        Of each observable.
    level : function
        From an observable to the level of noise in the fit.
    noise : dict of str to float
        What neighbouring measurements say of the noise, by observable, where that is known.
    """
    found: dict[str, float] = {}
    for check in checks:
        whole = level(check.name) if check.has_memory else 0.0
        rest = whole**2 - min(noise.get(check.name, np.sqrt(max(1.0 - check.memory, 0.0)) * whole), whole) ** 2
        if rest > 0.0:
            found[check.name] = max(found.get(check.name, 0.0), float(np.sqrt(rest)))
    return found


def warn_of_missed(missed: Mapping[str, float], *, is_conditioned: bool) -> list[str]:
    """Return a warning where the fit leaves curves over; none where it does not.

    Parameters
    ----------
    missed : dict of str to float
        Deviations of what is left beside noise, by observable.
    is_conditioned : bool
        Whether the prior is one of channels, conditioned on the equations.

    Examples
    --------
    >>> warn_of_missed({"x": 0.2}, is_conditioned=True)
    ['what is left of x is a curve and no noise; bands hold it as well, about 0.2']
    """
    if not missed:
        return []
    sizes = ", ".join(f"{deviation:.2g}" for deviation in missed.values())
    text = f"what is left of {join_words(list(missed))} is a curve and no noise; bands hold it as well, about {sizes}"
    advice = (
        ": where the equations miss nothing, free functions find the motion unlikely, such as ringing under a slow "
        'input; try prior="channels"'
    )
    return [text if is_conditioned else text + advice]
