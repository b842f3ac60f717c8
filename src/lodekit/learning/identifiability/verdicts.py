"""Which parameters the data tell: by exact algebra, by the motion that was measured, by profiles of the evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.learning.curvature import covariance_from_curvature, share_left
from lodekit.learning.estimates import AT_BOUND, NORMAL_95, NOT_IDENTIFIED, Estimate, find_quantile, find_reach
from lodekit.learning.freedom import degrees_of_freedom
from lodekit.learning.identifiability.motion import Curves, open_directions
from lodekit.learning.identifiability.neighbours import Rung, reach_beside_bounds
from lodekit.learning.identifiability.profiles import Path, grade, profile
from lodekit.learning.identifiability.rivals import Rival
from lodekit.learning.identifiability.structure import Structure
from lodekit.learning.objective import Objective
from lodekit.learning.searches.search import Optimum

__all__ = [
    "Verdict",
    "apply_verdicts",
    "compare_rivals",
    "give_verdicts",
    "relative_errors",
    "structural_verdicts",
]

Array = NDArray[np.float64]
#: Entries of open directions below this, in units of the sizes of the parameters, do not count.
_SHARE = 0.1
#: A standard error beyond this on the scale of the search, or in units of the size, makes the shape of the evidence
#: matter: its profile gives the interval, or says that there is none.
_LOOSE = 0.15
#: Beyond this the curvature does not even say how far to look, and the profile looks far.
_LOST = 3.0
#: An interval of 95 % that reaches farther than that of so large an error to one side leaves a parameter open; so does
#: one that is as wide on the whole, where it holds rivals.
_OPEN = 2.0
#: At which shares of the way to an end of 95 % intervals of other levels are kept: about 50, 90, 95, 99 and 99.9 %.
_RUNGS = (0.34, 0.84, 1.0, 1.32, 1.7)
#: The exponential of more is no number.
_HUGE = 700.0


@dataclass(frozen=True)
class Verdict:
    """What was found out about a parameter beside the curvature, and goes before what that says.

    Parameters
    ----------
    identified : bool
        Whether the data determine it.
    note : str
        Why there is no interval; empty where there is one.
    reason : str
        How that was found out: ``"structure"`` by exact algebra, ``"size"`` where that of a disturbance makes up for
        it, ``"motion"`` because the curves solve the equations for other values, too, ``"flat"``, ``"side"`` and
        ``"profile"`` by a profile of the evidence, ``"bound"`` by moving others from their bounds, ``"rival"`` and
        ``"alias"`` because other values fit about as well,
        ``"unresolved"`` because measurements without noise are too few, ``"failed"`` because the search has failed.
    interval : (float, float), optional
        95 %, in the user's units, where it is known.
    ladder : tuple of (float, float, float)
        Intervals of several levels: how many standard errors of a normal distribution each stands for, and its ends.
    """

    identified: bool
    note: str
    reason: str
    interval: tuple[float, float] | None = None
    ladder: tuple[Rung, ...] = ()

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Verdict:
        """Return a verdict that was taken apart for JSON, where infinite ends are None; older files have no ladders."""

        def ends(low: float | None, high: float | None) -> tuple[float, float]:
            return -math.inf if low is None else float(low), math.inf if high is None else float(high)

        edges = state["interval"]
        ladder = tuple((float(deviate), *ends(low, high)) for deviate, low, high in state.get("ladder", ()))
        words = str(state["note"]), str(state["reason"])
        return cls(bool(state["identified"]), *words, None if edges is None else ends(*edges), ladder)

    def interval_at(self, value: float, share: float, reach: float | None = None) -> tuple[float, float] | None:
        """Return the interval of some level around a value, where it is known; between rungs it is interpolated.

        Parameters
        ----------
        value : float
            The estimate.
        share : float
            How often the interval should hold the truth.
        reach : float, optional
            How many standard errors it then reaches; as many as those of a normal distribution by default.

        Examples
        --------
        >>> Verdict(True, "", "profile", (1.0, 16.0)).interval_at(4.0, 0.95)
        (1.0, 16.0)
        >>> low, high = Verdict(True, "", "profile", (1.0, 16.0)).interval_at(4.0, 0.5)
        >>> round(low, 2), round(high, 2)
        (2.48, 6.45)
        """
        if self.interval is None or share == 0.95 or (not self.identified and not self.ladder):
            return self.interval
        rungs = ((0.0, value, value), *(self.ladder or ((NORMAL_95, *self.interval),)))
        deviate = find_quantile(share) if reach is None else reach
        after = next((k for k, rung in enumerate(rungs) if rung[0] >= deviate), len(rungs) - 1)
        (below, *inner), (above, *outer) = rungs[after - 1], rungs[after]
        return _between((deviate - below) / (above - below), inner, outer)


def _between(share: float, inner: Sequence[float], outer: Sequence[float]) -> tuple[float, float]:
    """Return both ends of an interval between two others, or beyond them: on a logarithmic scale where it is one."""
    if min(*inner, *outer) > 0.0 and math.isfinite(outer[1]):
        ends = ((1.0 - share) * math.log(a) + share * math.log(b) for a, b in zip(inner, outer, strict=True))
        low, high = (math.exp(end) if end < _HUGE else math.inf for end in ends)
    else:
        low, high = (b if math.isinf(b) else a + share * (b - a) for a, b in zip(inner, outer, strict=True))
    return low, high


def apply_verdicts(
    estimates: Mapping[str, Estimate],
    verdicts: Mapping[str, Verdict],
    enough: bool,
    share: float = 0.95,
    reaches: Mapping[str, float] | None = None,
) -> dict[str, Estimate]:
    """Return estimates from the curvature, corrected by what is known better.

    Parameters
    ----------
    estimates : dict of str to Estimate
    verdicts : dict of str to Verdict
        By name; not for all.
    enough : bool
        Whether there are as many measurements as there is to learn; fewer determine nothing.
    share : float
        How often intervals should hold the truth.
    reaches : dict of str to float, optional
        How many standard errors these then reach, by name, where profiles of the evidence give them.
    """
    found = dict(estimates)
    for name, verdict in verdicts.items():
        reach = (reaches or {}).get(name) if verdict.reason in ("profile", "side") and verdict.ladder else None
        old, interval = estimates[name], verdict.interval_at(estimates[name].value, share, reach)
        if verdict.reason in ("bound", "rival") and interval is not None and verdict.interval is not None:
            if old.identified:
                low, high = min(old.interval[0], interval[0]), max(old.interval[1], interval[1])
                error = max(old.std_error, (verdict.interval[1] - verdict.interval[0]) / (2.0 * NORMAL_95))
                found[name] = replace(old, std_error=error, interval=(low, high))
            continue
        if old.note == AT_BOUND and verdict.reason not in ("structure", "size"):
            continue
        if not verdict.identified:
            limits = interval or (old.interval if not old.identified else (-math.inf, math.inf))
            found[name] = replace(old, std_error=math.inf, interval=limits, identified=False, note=verdict.note)
        elif verdict.reason == "profile" and interval is not None and old.identified:
            found[name] = replace(old, interval=interval)
        elif interval is not None and verdict.interval is not None and old.note == NOT_IDENTIFIED and enough:
            error = (verdict.interval[1] - verdict.interval[0]) / (2.0 * NORMAL_95)
            found[name] = replace(old, std_error=error, interval=interval, identified=True, note="")
    return found


def structural_verdicts(structure: Structure) -> dict[str, Verdict]:
    """Return what no data of this kind can tell, by name."""
    found = {name: Verdict(False, NOT_IDENTIFIED, "structure") for name in structure.undetermined}
    return found | {name: Verdict(False, NOT_IDENTIFIED, "size") for name in structure.resized}


def give_verdicts(
    structure: Structure,
    curves: Sequence[Curves],
    objective: Objective,
    optimum: Optimum,
    curvature: Array,
    widening: float = 1.0,
) -> dict[str, Verdict]:
    """Return what is to be said about parameters other than what the curvature says, by name.

    Parameters
    ----------
    structure : Structure
    curves : sequence of Curves
        At the optimum, of each record.
    objective : Objective
    optimum : Optimum
    curvature : array, shape (n, n)
        Minus the Hessian of the objective there, from which errors come.
    widening : float
        By what factor errors are larger, because residuals are correlated.
    """
    layout = objective.layout
    found = structural_verdicts(structure)
    free = [
        n
        for n in layout.learned
        if layout.names[n] not in found and objective.parameters[layout.names[n]].prior is None
    ]
    sizes = np.array([max(abs(float(curves[0].theta[n])), layout.transforms[n].size) for n in free])
    for way in open_directions(curves, free, sizes):
        for number, share in zip(free, way, strict=True):
            if abs(share) > _SHARE:
                found[layout.names[number]] = Verdict(False, NOT_IDENTIFIED, "motion")
    profiled, paths = _profiles(objective, optimum, curvature, found, widening)
    found |= profiled
    return found | _beside_bounds(objective, optimum, curvature, found, paths)


def _beside_bounds(
    objective: Objective, optimum: Optimum, curvature: Array, known: Mapping[str, Verdict], paths: Sequence[Path]
) -> dict[str, Verdict]:
    """Return what is left open of parameters by others that sit at their bounds, or near them, and need not."""
    layout, found = objective.layout, {}
    for name, ladder in reach_beside_bounds(objective, optimum, curvature, paths).items():
        interval = next((low, high) for deviate, low, high in ladder if deviate == NORMAL_95)
        transform, point = layout.transform(name), float(optimum.x[layout.position(name)])
        if transform is None or (name in known and not known[name].identified):
            continue
        value = transform.forward(point)
        far = max(abs(transform.inverse(edge) - point) for edge in interval)
        if transform.is_unbounded:
            far = max(abs(edge - value) for edge in interval) / max(abs(value), transform.size)
        is_open = far > NORMAL_95 * _OPEN
        inside = Verdict(True, "", "bound", interval, ladder)
        found[name] = Verdict(False, NOT_IDENTIFIED, "flat") if is_open else inside
    return found


def compare_rivals(
    objective: Objective, optimum: Optimum, curvature: Array, rivals: Sequence[Rival], known: Mapping[str, Verdict]
) -> dict[str, Verdict]:
    """Return what is to be said about parameters of which other values fit about as well, by name.

    Their intervals hold all of them; those that aliases leave open are not identified.

    Parameters
    ----------
    objective : Objective
    optimum : Optimum
    curvature : array, shape (n, n)
        Minus the Hessian of the objective there, from which errors come.
    rivals : sequence of Rival
    known : dict of str to Verdict
        What was found out before; it goes before this where it says that a parameter is not identified.
    """
    layout, found = objective.layout, {}
    covariance = covariance_from_curvature(curvature, ~optimum.at_bound)
    for name in dict.fromkeys(name for rival in rivals for name in rival.values):
        position, transform = layout.position(name), layout.transform(name)
        if transform is None or (name in known and not known[name].identified):
            continue
        own = [rival for rival in rivals if name in rival.values]
        places = [(float(optimum.x[position]), math.sqrt(max(float(covariance[position, position]), 0.0)))]
        places += [(rival.point[position], rival.errors[name]) for rival in own]
        ends = [x + sign * NORMAL_95 * error for x, error in places for sign in (-1, 1)]
        interval = transform.forward(float(min(ends))), transform.forward(float(max(ends)))
        if any(rival.is_alias for rival in own):
            others = ", ".join(f"{rival.values[name]:.4g}" for rival in own)
            found[name] = Verdict(False, f"{others} would do as well", "alias", interval)
        elif max(ends) - min(ends) > 2.0 * NORMAL_95 * _OPEN and not transform.is_unbounded:
            found[name] = Verdict(False, NOT_IDENTIFIED, "rival", interval)
        else:
            found[name] = Verdict(True, "", "rival", interval)
    return found


def _profiles(
    objective: Objective, optimum: Optimum, curvature: Array, known: Mapping[str, Verdict], widening: float
) -> tuple[dict[str, Verdict], list[Path]]:
    """Return what profiles say about parameters of which the curvature leaves doubts.

    Beside it, the paths of those that are bounded on one side alone, or on none.
    """
    layout, found, paths = objective.layout, dict[str, Verdict](), list[Path]()
    errors = relative_errors(objective, optimum, curvature)
    doubtful = {name: error for name, error in errors.items() if name not in known and not 0.0 < error < _LOOSE}
    if not doubtful:
        return {}, []
    covariance = covariance_from_curvature(curvature, ~optimum.at_bound)
    freedom = degrees_of_freedom(objective, optimum.x, covariance)
    left = math.sqrt(share_left(layout, objective.engine.size, optimum.at_bound))
    for name, relative in doubtful.items():
        position = layout.position(name)
        if 0.0 < relative < _LOST:
            reach = find_reach(0.95, float(freedom[position]), widening)
            found[name] = _graded(objective, optimum, curvature, position, (relative, reach, left))
            continue
        seen = profile(objective, optimum, curvature, position)
        paths += () if seen.below and seen.above else seen.paths
        if seen.is_flat:
            found[name] = Verdict(False, NOT_IDENTIFIED, "flat")
        elif not seen.below or not seen.above:
            found[name] = _bounded(seen.low, seen.high, is_above=seen.above)
        else:
            found[name] = Verdict(True, "", "profile", (seen.low, seen.high))
    return found, paths


def _bounded(low: float, high: float, *, is_above: bool, ladder: tuple[Rung, ...] = ()) -> Verdict:
    """Return what is said of a parameter that the data bound on one side."""
    side, edge = ("at most", high) if is_above else ("at least", low)
    return Verdict(False, f"{side} {edge:.3g} (95 %)", "side", (low, high), ladder)


def _graded(
    objective: Objective, optimum: Optimum, curvature: Array, position: int, known: tuple[float, float, float]
) -> Verdict:
    """Return what the profile of one parameter says, whose error, reach of 95 % and share left of errors are known."""
    error, reach, left = known
    # Errors count that learning has used up measurements, which the evidence does not.
    below, above = grade(objective, optimum, curvature, position, error * left, reach / left)
    low, high = below.end(reach / left), above.end(reach / left)
    if below.is_open and above.is_open:
        return Verdict(False, NOT_IDENTIFIED, "flat")
    levels = [share * reach for share in _RUNGS]
    ladder = tuple((level, below.end(level / left), above.end(level / left)) for level in levels)
    if below.is_open or above.is_open:
        return _bounded(low, high, is_above=below.is_open, ladder=ladder)
    return Verdict(True, "", "profile", (low, high), ladder)


def relative_errors(objective: Objective, optimum: Optimum, curvature: Array) -> dict[str, float]:
    """Return standard errors on the scale of the search, or in units of the size of what may be anything, by name.

    Parameters
    ----------
    objective : Objective
    optimum : Optimum
        What sits at a limit is left out.
    curvature : array, shape (n, n)
        Minus the Hessian of the objective there.
    """
    layout, found = objective.layout, {}
    covariance = covariance_from_curvature(curvature, ~optimum.at_bound)
    for position, number in enumerate(layout.learned):
        transform, point = layout.transforms[number], float(optimum.x[position])
        if not optimum.at_bound[position]:
            spread = math.sqrt(max(float(covariance[position, position]), 0.0))
            size = max(abs(transform.forward(point)), transform.size)
            unit = transform.slope(point) / size if transform.is_unbounded else 1.0
            found[layout.names[number]] = spread * unit
    return found
