"""Other values of the parameters that fit about as well as the estimate: twins, rivals a search has met, and aliases.

A curvature knows the neighbourhood of one optimum. Where a search from another start has ended elsewhere, hardly less
likely, the data do not choose between the two; and at times that are multiples of one step, an oscillation looks like
one that is faster by a whole turn in each step. The sampling theorem tells them apart only for those who know that
nothing is faster than half a turn. Twins give the same behaviour of all that was measured, by exact algebra.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.learning.curvature import covariance_from_curvature, curvature_at
from lodekit.learning.gaps import gaps_between
from lodekit.learning.guesses.decays import root_factors, values_with_roots
from lodekit.learning.identifiability.structure import Structure
from lodekit.learning.identifiability.twins import find_twins
from lodekit.learning.objective import Objective
from lodekit.learning.searches.search import Optimum, search

__all__ = ["Rival", "common_step", "find_rivals"]

Array = NDArray[np.float64]
#: Less likely than this, in log evidence, and nobody need hear of it: one in seven against the estimate.
_WITHIN = 2.0
#: So many standard errors away, and so far on the scale of the search, it is another place.
_APART, _ELSEWHERE = 5.0, 0.05
#: An alias matters where an oscillation has fewer measurements in each period than this; in all others it is faster
#: than anything that somebody who measures so slowly expects.
_COARSE = 3.0
#: Gaps between times are multiples of a step up to this share of it.
_UNIFORM = 1e-4
#: How many steps a search takes that looks whether a rival is one.
_STEPS = 100
#: A twin that is as likely up to this, in log evidence, needs no search.
_EQUAL = 1e-2


@dataclass(frozen=True)
class Rival:
    """Values that fit about as well as the estimate.

    Parameters
    ----------
    point : tuple of float
        The vector of the layout.
    below : float
        By how much its log evidence is less; below zero where it is more.
    is_alias : bool
        Whether it is the same oscillation seen at times that are multiples of one step.
    values : dict of str to float
        Learned parameters that are elsewhere, in the user's units.
    errors : dict of str to float
        Their standard errors there, on the scale of the search; zero where they are not known.
    is_twin : bool
        Whether all that was measured behaves exactly as at the estimate.
    """

    point: tuple[float, ...]
    below: float
    is_alias: bool
    values: Mapping[str, float]
    errors: Mapping[str, float]
    is_twin: bool = False

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Rival:
        """Return a rival that was taken apart for JSON; older files know of no twins."""
        point, own = tuple(float(each) for each in state["point"]), (dict(state["values"]), dict(state["errors"]))
        return cls(point, float(state["below"]), bool(state["is_alias"]), *own, bool(state.get("is_twin", False)))


def find_rivals(
    objective: Objective,
    optimum: Optimum,
    curvature: Array,
    times: Sequence[Array],
    structure: Structure | None = None,
) -> tuple[Rival, ...]:
    """Return other values of the parameters that fit about as well, most likely first.

    Parameters
    ----------
    objective : Objective
    optimum : Optimum
        The estimate, with the places where other searches have ended.
    curvature : array, shape (n, n)
        Minus the Hessian of the objective there, from which errors come.
    times : sequence of arrays
        All times of each record; empty where they are not in memory.
    structure : Structure, optional
        What the equations say: twins are sought in it.
    """
    layout = objective.layout
    if not layout.learned:
        return ()
    covariance = covariance_from_curvature(curvature, ~optimum.at_bound)[layout.blocks.theta, layout.blocks.theta]
    errors = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    errors[optimum.at_bound[layout.blocks.theta]] = np.inf
    found = [] if structure is None else _twins(objective, optimum, covariance, errors, structure)
    starts = [(x, True) for x in _aliases(objective, optimum, common_step(times))]
    starts += [(x, False) for value, x in optimum.others if value > optimum.value - _WITHIN - 1.0]
    for start, is_alias in starts:
        if not _elsewhere(objective, start, optimum.x, errors):
            continue
        rival = _follow(objective, optimum, start, errors)
        if rival is None:
            continue
        point = np.array(rival.point)
        if all(_elsewhere(objective, point, np.array(each.point), errors) for each in found):
            found.append(replace(rival, is_alias=is_alias))
    return tuple(sorted(found, key=lambda rival: rival.below))


def _follow(objective: Objective, optimum: Optimum, start: Array, errors: Array) -> Rival | None:
    """Return where a search from a point ends, if that is somewhere else and about as likely as the optimum."""
    with np.errstate(all="ignore"):
        other = search(objective, start, tolerance=1e-3, iterations=_STEPS, rival=optimum)
    names = _elsewhere(objective, other.x, optimum.x, errors)
    if not names or not other.value > optimum.value - _WITHIN:
        return None
    point, below = tuple(other.x.tolist()), optimum.value - other.value
    return Rival(point, below, False, *_describe(objective, other, names))


def _twins(
    objective: Objective, optimum: Optimum, covariance: Array, errors: Array, structure: Structure
) -> list[Rival]:
    """Return other values that give the same behaviour; what the prior says of free functions and states may differ."""
    layout, found = objective.layout, list[Rival]()
    # What the data say nothing about has no error that others could follow, not by rounding either.
    known = np.where(np.isfinite(covariance), covariance, 0.0)
    for twin in find_twins(structure, layout, layout.unpack(optimum.x).theta):
        x = optimum.x.copy()
        x[layout.blocks.theta] = [layout.transforms[n].inverse(float(twin.theta[n])) for n in layout.learned]
        names = _elsewhere(objective, x, optimum.x, errors)
        if not names:
            continue
        with np.errstate(all="ignore"):
            below = optimum.value - objective.value(x)
        if abs(below) < _EQUAL:
            # Where it is as likely, errors follow from those at the estimate, and nothing is left to search for.
            spread = np.sqrt(np.maximum(np.diag(twin.moves @ known @ twin.moves.T), 0.0))
            own = {name: float(spread[layout.position(name)]) for name in names}
            values = {name: float(twin.theta[layout.names.index(name)]) for name in names}
            rival: Rival | None = Rival(tuple(x.tolist()), below, False, values, own)
        else:
            rival = _follow(objective, optimum, x, errors)
        if rival is None or _elsewhere(objective, np.array(rival.point), x, errors):
            continue
        kept = [name for name in rival.values if name not in structure.undetermined]
        values, own = ({name: each[name] for name in kept} for each in (rival.values, rival.errors))
        if kept:
            found.append(replace(rival, values=values, errors=own, is_twin=True))
    return found


def _describe(objective: Objective, rival: Optimum, names: list[str]) -> tuple[dict[str, float], dict[str, float]]:
    """Return some parameters at a rival, in the user's units, and their errors on the scale of the search."""
    layout = objective.layout
    theta = layout.unpack(rival.x).theta
    with np.errstate(all="ignore"):
        covariance = covariance_from_curvature(curvature_at(objective, rival.x), ~rival.at_bound)
    spread = np.nan_to_num(np.sqrt(np.maximum(np.diag(covariance), 0.0)), posinf=0.0)
    values = {name: float(theta[layout.names.index(name)]) for name in names}
    return values, {name: float(spread[layout.position(name)]) for name in names}


def _elsewhere(objective: Objective, x: Array, centre: Array, errors: Array) -> list[str]:
    """Return the parameters that are somewhere else at one point than at another."""
    layout, found = objective.layout, []
    for position, number in enumerate(layout.learned):
        transform, error = layout.transforms[number], float(errors[position])
        apart = abs(float(x[position] - centre[position]))
        if transform.is_unbounded:
            here, there = (transform.forward(float(each[position])) for each in (centre, x))
            size = max(abs(here), transform.size)
            apart, error = abs(there - here) / size, error * transform.slope(float(centre[position])) / size
        if apart > max(_APART * error, _ELSEWHERE):
            found.append(layout.names[number])
    return found


def common_step(times: Sequence[Array]) -> float:
    """Return the step of which all gaps between the times of each record are multiples; NaN where there is none.

    Parameters
    ----------
    times : sequence of arrays

    Examples
    --------
    >>> common_step([np.array([0.0, 0.5, 1.5]), np.array([7.1, 8.1])]), common_step([np.array([0.0, 1.0, 2.3])])
    (0.5, nan)
    """
    gaps = gaps_between(times)
    if not len(gaps):
        return math.nan
    step = float(gaps.min())
    turns = gaps / step
    return step if bool(np.all(np.abs(turns - np.rint(turns)) < _UNIFORM)) else math.nan


def _aliases(objective: Objective, optimum: Optimum, step: float) -> Iterator[Array]:
    """Yield points at which one oscillation of a system that nothing drives is seen at too few times to be told."""
    prior, layout = objective.engine.prior, objective.layout
    factors = [] if math.isnan(step) else root_factors(prior)
    if not factors:
        return
    turn = 2.0 * np.pi * prior.units.span / step
    theta = layout.unpack(optimum.x).theta
    own = prior.observables.evaluate(theta).factors
    roots = [root for k in factors for root in np.roots(np.asarray(own[k])[::-1]) if root.imag >= 0.0]
    generator = np.random.default_rng(0)
    for number, root in enumerate(roots):
        # The same value after each step: a turn more, or the mirror image, of which conjugates are roots as well.
        other = abs(turn - root.imag)
        if not root.imag > 0.0 or min(other, root.imag) < turn / _COARSE:
            continue
        wanted = np.array([*roots[:number], complex(root.real, other), *roots[number + 1 :]])
        found = values_with_roots(prior, factors, layout, wanted, generator, near=theta)
        if found is not None:
            x = optimum.x.copy()
            x[layout.blocks.theta] = [layout.transforms[n].inverse(float(found[n])) for n in layout.learned]
            yield x
