"""The whole search: starts from the user, from the data and blind; one after the other or in parallel; best wins."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lodekit.data.observations import Series
from lodekit.errors import FitError
from lodekit.learning.matching import match_derivatives
from lodekit.learning.objective import Objective
from lodekit.learning.search import Optimum, search
from lodekit.learning.starts import find_trouble, starting_points
from lodekit.progress import waiting
from lodekit.system.system import System

__all__ = ["learn"]

Array = NDArray[np.float64]
#: What a step has to gain of what tells two optima apart, on the first search and on those that look where they lead.
_FINE, _COARSE = 1e-5, 1e-2


def learn(
    system: System,
    objective: Objective,
    series: list[Series],
    *,
    restarts: int,
    random_state: int | None,
    n_jobs: int | None,
    scatter: Array | None = None,
    known: Array | None = None,
) -> Optimum:
    """Return the best optimum of the log evidence, plus the log prior where parameters have priors.

    Parameters
    ----------
    system : System
    objective : Objective
    series : list of Series
        Measurements, or averages of them, from which start values are guessed.
    restarts : int
        How many starts are followed at most.
    random_state : int or None
        Seed of the starts.
    n_jobs : int or None
        How many are followed at the same time; None and one for one after the other.
    scatter : array, optional
        What neighbouring measurements suggest for each level, in the user's units.
    known : array, optional
        A vector of the layout from an earlier fit: it is followed first, and others only where they start out better
        than it ends.
    """
    layout = objective.layout
    if layout.size == 0:
        return _nothing_to_learn(objective)
    generator = np.random.default_rng(random_state)
    guesses, trusted = _guess(system, objective, series, generator)
    ranked = starting_points(objective, guesses, restarts, generator, scatter)
    if not ranked and known is None:
        reason = find_trouble(objective, guesses[0], generator)
        raise FitError(
            "no start gives a finite evidence; "
            + (reason or "give start= values near the truth, or check the units of the data")
        )
    if known is not None:
        found = search(objective, known)
        better = [point for value, point in ranked if value + objective.log_prior(point)[0] > found.value]
        return _best([found, *([_one_by_one(objective, better, trusted=trusted)] if better else [])])
    points = [point for _, point in ranked]
    if n_jobs not in (None, 1):
        from joblib import Parallel, delayed

        several = Parallel(n_jobs=n_jobs)(delayed(search)(objective, point, trusted=trusted) for point in points)
        return _best(list(several))
    return _one_by_one(objective, points, trusted=trusted)


def _guess(
    system: System, objective: Objective, series: list[Series], generator: np.random.Generator
) -> tuple[list[Array], bool]:
    """Return start values of the parameters, NaN where there are none, and whether they may be trusted."""
    layout = objective.layout
    given = [system.parameters[name].start for name in layout.names]
    starts = np.array([np.nan if start is None else start for start in given])
    if not len(layout.learned) or not np.isnan(starts[layout.learned]).any():
        return [starts], False
    matched = match_derivatives(system, series, layout, 2, generator)
    # What the user says comes before what the data suggest; the blind guess is the last resort.
    guesses = [np.where(np.isnan(starts), guess, starts) for guess in matched]
    if not guesses or not set(system.channels) <= {item.observable for item in series}:
        # Elimination of hidden channels takes derivatives of noise: its guess may be poor.
        guesses.append(starts)
    return guesses, not any(np.isnan(guess[layout.learned]).any() for guess in guesses)


def _one_by_one(objective: Objective, points: list[Array], *, trusted: bool) -> Optimum:
    """Return the best optimum of starts followed in turn, until two agree; progress is shown where it takes long."""
    found: list[Optimum] = []
    agree = objective.engine.limits.agree
    with waiting("fitting", len(points)) as advance:
        for point in points:
            # After the first, a coarse search is enough to see whether a start leads to the same place.
            tolerance, rival = (_COARSE * agree, _best(found)) if found else (_FINE * agree, None)
            optimum = search(objective, point, tolerance=tolerance, rival=rival, trusted=trusted)
            if rival is not None and optimum.value > rival.value:
                optimum = search(objective, optimum.x, tolerance=_FINE * agree, trusted=trusted)
            found.append(optimum)
            best = _best(found)
            if sum(1 for optimum in found if optimum.value > best.value - agree) >= 2:
                break
            advance(1, f"{objective.name} {best.value:.3f}")
    return _best(found)


def _best(found: list[Optimum]) -> Optimum:
    return max(found, key=lambda optimum: optimum.value)


def _nothing_to_learn(objective: Objective) -> Optimum:
    """Return the only point there is; raise where the log evidence is not finite there."""
    empty = np.zeros(0)
    value = objective.value(empty)
    if not np.isfinite(value):
        raise FitError("the covariance of the data is not finite; check units and fixed values")
    return Optimum(empty, value, True, "nothing to learn", 1, empty.astype(bool))
