"""Which parameters the data tell: by exact algebra, by the motion that was measured, by profiles of the evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.learning.curvature import covariance_from_curvature
from lodekit.learning.estimates import NOT_IDENTIFIED, Verdict
from lodekit.learning.motion import Curves, open_directions
from lodekit.learning.objective import Objective
from lodekit.learning.profiles import profile
from lodekit.learning.search import Optimum
from lodekit.prior.observables import ObservableReader
from lodekit.system.identification import Measured, undetermined_directions
from lodekit.system.symmetries import determined_combinations, sign_symmetries
from lodekit.system.system import System

__all__ = ["Structure", "give_verdicts"]

Array = NDArray[np.float64]
#: Entries of open directions below this, in units of the sizes of the parameters, do not count.
_SHARE = 0.1
#: A standard error beyond this on the scale of the search, or in units of the size, asks for a profile.
_DOUBT = 1.0


@dataclass(frozen=True)
class Structure:
    """What the equations say about what can be learned from what was measured, whatever the data are.

    Parameters
    ----------
    system : System
    measured : tuple of str
        The observables.
    """

    system: System
    measured: tuple[str, ...]

    @cached_property
    def _case(self) -> Measured:
        operator, known = ObservableReader(self.system).read(self.measured)
        # A prior tells a parameter, too.
        unknown = (n for n, each in self.system.parameters.items() if each.fixed is None and each.prior is None)
        return Measured(self.system, operator, known, tuple(unknown))

    @cached_property
    def directions(self) -> list[dict[str, object]]:
        """Directions in which parameters can move without any change of what can be measured."""
        try:
            return [dict(way) for way in undetermined_directions(self._case) or []]
        except LodekitError:
            return []

    @property
    def undetermined(self) -> list[str]:
        """Parameters that no data of this kind can tell, in order."""
        return [name for name in self.system.parameters if any(name in way for way in self.directions)]

    @cached_property
    def combinations(self) -> list[str]:
        """What is determined of them, such as ``k/m``, where that is simple."""
        if not self.directions:
            return []
        return determined_combinations(self._case, undetermined_directions(self._case) or []) or []

    @cached_property
    def symmetries(self) -> list[frozenset[str]]:
        """Parameters whose signs can change together; those that are undetermined anyway are not worth a word."""
        either = [
            name for name, each in self.system.parameters.items()
            if each.fixed is None and each.prior is None and all(map(math.isinf, each.interval))
        ]  # fmt: skip
        try:
            found = sign_symmetries(self._case, either) if either else []
        except LodekitError:
            found = []
        return [names for names in found if not names <= set(self.undetermined)]


def give_verdicts(
    structure: Structure, curves: Curves, objective: Objective, optimum: Optimum, curvature: Array
) -> dict[str, Verdict]:
    """Return what is to be said about parameters other than what the curvature says, by name.

    Parameters
    ----------
    structure : Structure
    curves : Curves
        At the optimum.
    objective : Objective
    optimum : Optimum
    curvature : array, shape (n, n)
        Minus the Hessian of the objective there, from which errors come.
    """
    layout = objective.layout
    found = {name: Verdict(False, NOT_IDENTIFIED, "structure") for name in structure.undetermined}
    free = [
        n
        for n in layout.learned
        if layout.names[n] not in found and objective.parameters[layout.names[n]].prior is None
    ]
    sizes = np.array([max(abs(float(curves.theta[n])), layout.transforms[n].size) for n in free])
    for way in open_directions(curves, free, sizes):
        for number, share in zip(free, way, strict=True):
            if abs(share) > _SHARE:
                found[layout.names[number]] = Verdict(False, NOT_IDENTIFIED, "motion")
    found |= _profiles(objective, optimum, curvature, found)
    return found


def _profiles(
    objective: Objective, optimum: Optimum, curvature: Array, known: Mapping[str, Verdict]
) -> dict[str, Verdict]:
    """Return what profiles say about parameters of which the curvature leaves doubts."""
    layout, found = objective.layout, {}
    covariance = covariance_from_curvature(curvature, ~optimum.at_bound)
    for position, number in enumerate(layout.learned):
        name, transform = layout.names[number], layout.transforms[number]
        if name in known or optimum.at_bound[position]:
            continue
        spread = math.sqrt(max(float(covariance[position, position]), 0.0))
        point = float(optimum.x[position])
        size = max(abs(transform.forward(point)), transform.size)
        relative = spread if not transform.is_unbounded else spread * transform.slope(point) / size
        if math.isfinite(relative) and 0.0 < relative < _DOUBT:
            continue
        seen = profile(objective, optimum, curvature, position)
        if seen.is_flat:
            found[name] = Verdict(False, NOT_IDENTIFIED, "flat")
        elif not seen.below or not seen.above:
            side, edge = ("at most", seen.high) if seen.above else ("at least", seen.low)
            found[name] = Verdict(False, f"{side} {edge:.3g} (95 %)", "side", (seen.low, seen.high))
        elif not math.isfinite(relative) or relative == 0.0 or relative > 3.0 * _DOUBT:
            found[name] = Verdict(True, "", "profile", (seen.low, seen.high))
    return found
