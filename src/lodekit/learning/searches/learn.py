"""The whole search: starts from the user, from the data and blind; one after the other or in parallel; best wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lodekit.data.inputs import InputSignal
from lodekit.data.observations import Series
from lodekit.errors import FitError
from lodekit.learning.guesses.gather import gather_guesses
from lodekit.learning.guesses.simulated import times_of
from lodekit.learning.objective import Objective
from lodekit.learning.searches.driven import learn_driven
from lodekit.learning.searches.search import Optimum, search
from lodekit.learning.searches.second_look import look_again
from lodekit.learning.searches.starts import Start, find_trouble, starting_points
from lodekit.progress import waiting
from lodekit.system.system import System

__all__ = ["guess_starts", "learn"]

Array = NDArray[np.float64]
#: Searches that end this close to each other, in log evidence, have met: the later ones end early.
_MET = 0.1
#: Where those have ended that came this far is worth knowing.
_CLOSE = 3.0
#: What a step has to gain of what tells two optima apart, on the first search and on those that look where they lead.
_FINE, _COARSE = 1e-5, 1e-2
#: How many steps there are at most, on the first search and on those that look where they lead.
_STEPS, _FEWER = 500, 80
#: So many rows of a long record are simulated at first, or more until inputs change by this share of what they do.
_OPENING, _LIVELY = 2000, 0.5


def learn(
    system: System,
    objective: Objective,
    records: Sequence[Sequence[Series]],
    *,
    restarts: int,
    random_state: int | None,
    n_jobs: int | None,
    scatter: Array | None = None,
    known: Array | None = None,
    inputs: Sequence[Mapping[str, InputSignal]] | None = None,
    runs: Sequence[Sequence[Series]] | None = None,
) -> Optimum:
    """Return the best optimum of the log evidence, plus the log prior where parameters have priors.

    Parameters
    ----------
    system : System
    objective : Objective
    records : sequence of sequences of Series
        Measurements of each record, or averages of them, from which start values are guessed.
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
    inputs : sequence of dict of str to InputSignal, optional
        Channels that are known for all times, in each record.
    runs : sequence of sequences of Series, optional
        All measurements of each record, where they are in memory: one series for each observable.
    """
    layout = objective.layout
    if layout.size == 0:
        return _nothing_to_learn(objective)
    generator = np.random.default_rng(random_state)
    guesses = gather_guesses(system, objective, records, generator, inputs)
    series = [item for own in records for item in own]
    agree = objective.engine.limits.agree
    if inputs and runs and any(inputs) and layout.is_driven and layout.learned:
        first = [_opening(own, signals) for own, signals in zip(runs, inputs, strict=True)]
        theta = None if known is None else layout.unpack(known).theta
        if (driven := learn_driven(system, objective, first, guesses, generator, _FINE * agree, theta)) is not None:
            return driven
    starts = starting_points(objective, guesses, series, restarts, generator, scatter)
    if not starts and known is None:
        reason = find_trouble(objective, guesses[0].theta, generator)
        advice = reason or "give start= values near the truth, or check the units of the data"
        raise FitError(f"no start gives a finite evidence; {advice}")
    if known is not None:
        found = search(objective, known)
        better = [start for start in starts if start.value + objective.log_prior(start.x)[0] > found.value]
        return _best([found, *([_one_by_one(objective, better)] if better else [])])
    best = _in_parallel(objective, starts, n_jobs) if n_jobs not in (None, 1) else _one_by_one(objective, starts)
    return _best([look_again(objective, best, tolerance=_COARSE * agree, fine=_FINE * agree), best])


def guess_starts(
    system: System,
    objective: Objective,
    records: Sequence[Sequence[Series]],
    *,
    restarts: int,
    random_state: int | None,
    scatter: Array | None = None,
    inputs: Sequence[Mapping[str, InputSignal]] | None = None,
) -> list[Array]:
    """Return the most promising starts, best first, as vectors of the layout; nothing is searched.

    Parameters
    ----------
    system, objective, records, restarts, random_state, scatter, inputs
        As in `learn`.
    """
    if objective.layout.size == 0:
        return []
    generator = np.random.default_rng(random_state)
    guesses = gather_guesses(system, objective, records, generator, inputs)
    series = [item for own in records for item in own]
    return [start.x for start in starting_points(objective, guesses, series, restarts, generator, scatter)]


def _in_parallel(objective: Objective, starts: list[Start], n_jobs: int | None) -> Optimum:
    """Return the best optimum of starts that are followed at the same time."""
    from joblib import Parallel, delayed

    tasks = (delayed(search)(objective, start.x, trusted=start.is_trusted) for start in starts)
    with waiting(f"fitting, {len(starts)} starts side by side"):
        return _best(list(Parallel(n_jobs=n_jobs)(tasks)))


def _opening(record: Sequence[Series], inputs: Mapping[str, InputSignal]) -> list[Series]:
    """Return the first part of a long record, in which inputs do about as much as in all of it."""
    count = _OPENING
    times = times_of(record)
    while count < len(times):
        stop = times[count - 1]
        parts = [(signal.values[signal.times <= stop], signal.values) for signal in inputs.values()]
        if all(np.std(part) >= _LIVELY * np.std(whole) for part, whole in parts if len(part)):
            break
        count *= 2
    stop = times[min(count, len(times)) - 1]
    return [item.take(np.flatnonzero(item.times <= stop)) for item in record]


def _one_by_one(objective: Objective, starts: list[Start]) -> Optimum:
    """Return the best optimum of starts followed in turn, until two agree and no other family has found a better one.

    Where there is but one family, two of it have to do. Progress is shown where it takes long.
    """
    found: list[Optimum] = []
    agree = objective.engine.limits.agree
    families = [start.family for start in starts]
    with waiting("fitting", len(starts)) as advance:
        for number, start in enumerate(starts):
            advance(min(number, 1), f"start {number + 1} of {len(starts)}")
            # After the first, a coarse search is enough to see whether a start leads to the same place.
            rival = _best(found) if found else None
            tolerance, most = (_FINE * agree, _STEPS) if rival is None else (_COARSE * agree, _FEWER)
            trusted = start.is_trusted
            optimum = search(objective, start.x, tolerance=tolerance, iterations=most, rival=rival, trusted=trusted)
            if rival is not None and optimum.value > rival.value:
                optimum = search(objective, optimum.x, tolerance=_FINE * agree, trusted=trusted)
            found.append(optimum)
            best = _best(found)
            met = sum(1 for optimum in found if optimum.value > best.value - max(agree, _MET))
            if met >= 2 and len(set(families[: len(found)])) >= min(2, len(set(families))):
                break
    return _best(found)


def _best(found: list[Optimum]) -> Optimum:
    """Return the best optimum, which keeps where others have ended that came about as far."""
    best = max(found, key=lambda optimum: optimum.value)
    close = [each for each in found if each is not best and each.value > best.value - _CLOSE]
    known = {id(other): other for each in found for other in each.others}
    others = [*known.values(), *((each.value, each.x) for each in close)]
    return replace(best, others=tuple(others)) if others else best


def _nothing_to_learn(objective: Objective) -> Optimum:
    """Return the only point there is; raise where the log evidence is not finite there."""
    empty = np.zeros(0)
    value = objective.value(empty)
    if not np.isfinite(value):
        raise FitError("the covariance of the data is not finite; check units and fixed values")
    return Optimum(empty, value, True, "nothing to learn", 1, empty.astype(bool))
