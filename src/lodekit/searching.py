"""The best optimum for a setup: searches, from pieces of long records first, and last steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lodekit.data.excerpts import decimate, liveliest
from lodekit.data.measurements import Measurements
from lodekit.data.noise import EXACT
from lodekit.data.records import padded, parts_of
from lodekit.disturbing import PieceLearned, find_disturbed
from lodekit.errors import AccuracyError, FitError
from lodekit.inference.accurate import AccurateEngine
from lodekit.inference.records import RecordsEngine
from lodekit.learning.curvature import curvature_across_kinks, curvature_at
from lodekit.learning.guesses.delays import delay_parameters
from lodekit.learning.objective import Objective
from lodekit.learning.searches.driven import search_along
from lodekit.learning.searches.learn import learn
from lodekit.learning.searches.polish import polish
from lodekit.learning.searches.search import Optimum, search
from lodekit.learning.searches.starts import data_lengthscale
from lodekit.preparing import prepare
from lodekit.progress import reach, waiting
from lodekit.settings import Arguments
from lodekit.setup import Setup

__all__ = ["find_optimum", "look_across_kinks", "soften", "take_rival"]

Array = NDArray[np.float64]
#: Known noise below this share of the spread of the data is approached from above, through these.
_LITTLE, _SOFTER = 1e-4, np.array([1e-2, 1e-5, 1e-8])
#: Of more measurements that inputs drive, shorter records are learned from first; so many rows of them.
_LONG, _SHORT = 40_000, 6_000
#: So many rows of those that are on disk are learned from first.
_READ = 4_000
#: What a step has to gain on the whole record, before the last ones; and another end of a search over the best one.
_GAIN = 1e-4
#: How much less likely, in nat for each measurement, a whole record may be under what was learned from a piece of it.
_AS_GOOD = 0.05
#: Of a record with more rows than this, in which something forgets its values within this share of the window, a piece
#: is learned from first: it tells the same, and each look at all of the record takes long.
_ROWS, _FAST = 500, 0.002
#: So many rows a piece has at least; and what forgets its values does so that often in it.
_PIECE, _OFTEN = 150, 40
#: Ends of searches that are less than the best by so much, in nat, are followed; of fewer measurements than that.
_NEAR, _FEW = 0.5, 2000
#: A step that ends so close to an optimum, in nat, leads to it.
_SAME = 0.02


def find_optimum(setup: Setup, known: Array | None = None) -> tuple[Optimum, Array, dict[str, float]]:
    """Return the best optimum, the curvature there, and by how much the objective is less without each disturbance.

    Parameters
    ----------
    setup : Setup
    known : array, optional
        A point to search from, a vector of the layout.
    """
    if not setup.layout.disturbances:
        optimum, curvature = _polished(setup.objective, _search_all(setup, known))
        return optimum, look_across_kinks(setup, optimum, curvature), {}
    piece = _learn_from_rows(setup) if known is None and _is_read(setup) else None
    found, without = find_disturbed(setup, known, _search_all, piece)
    optimum, curvature = _polished(setup.objective, found)
    needs = {name: optimum.value - value for name, value in without.items()}
    return optimum, look_across_kinks(setup, optimum, curvature), needs


def look_across_kinks(setup: Setup, optimum: Optimum, curvature: Array) -> Array:
    """Return the curvature at an optimum as errors need it, where delays make kinks.

    Parameters
    ----------
    setup : Setup
    optimum : Optimum
    curvature : array, shape (n, n)
        From narrow differences.
    """
    learned = setup.layout.learned
    places = [learned.index(number) for number in delay_parameters(setup.system, setup.layout)]
    return curvature_across_kinks(setup.objective, optimum.x, curvature, ~optimum.at_bound, places)


def take_rival(setup: Setup, optimum: Optimum, x: Array) -> tuple[Optimum, Array]:
    """Return the optimum at another place that has turned out to be more likely, and the curvature there.

    Parameters
    ----------
    setup : Setup
    optimum : Optimum
        The best one so far.
    x : array
        The other place, a vector of the layout.
    """
    others = ((optimum.value, optimum.x), *optimum.others)
    free = np.zeros_like(optimum.at_bound)
    start = replace(optimum, x=x, value=setup.objective.value(x), at_bound=free, others=others)
    found, curvature = _polished(setup.objective, start)
    return found, look_across_kinks(setup, found, curvature)


def _is_read(setup: Setup) -> bool:
    """Return whether each look at the data reads them from a disk."""
    return setup.case.on_disk and setup.choice.name == "markov"


def _search_all(setup: Setup, known: Array | None = None) -> Optimum:
    """Return the best optimum of all searches without disturbances, before last steps."""
    is_read = known is None and _is_read(setup)
    # Of several records, each may be short.
    is_long = setup.case.driven and setup.measurements.size > _LONG and not setup.parts
    for objective in soften(setup) if known is None and not is_read else ():
        known = _polished(objective, _learn(setup, objective, known))[0].x
    if is_read:
        return _learn_from_pieces(setup, (liveliest, decimate), _READ)
    if known is None and is_long:
        return _learn_from_pieces(setup, (liveliest, decimate), _SHORT)
    if known is None and (rows := _telling_rows(setup)):
        return _learn_from_pieces(setup, (liveliest,), rows)
    return _learn(setup, setup.objective, known)


def soften(setup: Setup) -> list[Objective]:
    """Return objectives with more noise than is known, most first, that lead a search to the one with so little of it.

    Where known noise is next to nothing, the evidence falls by millions beside the answer, and all that a search sees
    from afar are the walls of narrow valleys. With more noise they are wide, and lead to the same place.

    Parameters
    ----------
    setup : Setup
    """
    scales, names = setup.prior.noise.scales, setup.prior.noise.observables
    if setup.measurements.is_summed or not setup.layout.learned:
        return []
    parts = list(setup.parts.values()) or [setup]
    kept = [padded(part.measurements, names) for part in parts]
    pairs = [pair for own in kept for pair in zip(own.series, scales, strict=True)]
    shares = np.concatenate([item.std / scale for item, scale in pairs])
    shares = np.where(np.isnan(shares), 1.0, np.where(shares > 0.0, shares, EXACT))
    least = float(np.median(shares))
    found = []
    for share in _SOFTER[3.0 * least < _SOFTER] if least < _LITTLE else ():
        engines = [_soften_record(part, own, share) for part, own in zip(parts, kept, strict=True)]
        whole = setup.engine
        engine = replace(whole, engines=tuple(engines)) if isinstance(whole, RecordsEngine) else engines[0]
        found.append(Objective(engine, setup.layout, dict(setup.system.parameters)))
    return found


def _soften_record(setup: Setup, measurements: Measurements, share: float) -> AccurateEngine:
    """Return the engine of a record whose known noise is at least a share of the scale of what was measured."""
    series = [
        replace(item, std=np.where(item.learned, np.nan, np.maximum(item.std, share * scale)))
        for item, scale in zip(measurements.series, setup.prior.noise.scales, strict=True)
    ]
    softer, case = replace(measurements, series=series), replace(setup.case, exact=False)
    return AccurateEngine(setup.choice.kind.make(setup.prior, softer, case), setup.choice, softer, case)


def _polished(objective: Objective, optimum: Optimum) -> tuple[Optimum, Array]:
    """Return an optimum after last steps towards it, and the curvature there.

    Searches end early in long valleys, and from where another one ended steps may lead the other way, and higher: so
    others are followed, too, that had come about as far.
    """
    with waiting("fitting, last steps"):
        reach(objective, objective.name, optimum.value)
        found, curvature = polish(objective, optimum, curvature_at(objective, optimum.x))
        for value, x in optimum.others if objective.layout.learned and objective.engine.size < _FEW else ():
            if value < optimum.value - _NEAR or _leads_to(objective, x, found, curvature):
                continue
            rest = [each for each in optimum.others if each[1] is not x]
            others = ((optimum.value, optimum.x), *rest)
            start = replace(optimum, x=x, value=value, at_bound=np.zeros_like(optimum.at_bound), others=others)
            second, own = polish(objective, start, curvature_at(objective, x))
            # The same place to rounding is no other one.
            if second.value > found.value + _GAIN:
                found, curvature = second, own
    return found, curvature


def _leads_to(objective: Objective, x: Array, optimum: Optimum, curvature: Array) -> bool:
    """Return whether one step of Newton's method leads from a point to an optimum: then it is no other place."""
    evidence, slope = objective.evaluate(x)
    try:
        step = np.linalg.solve(curvature, slope)
    except np.linalg.LinAlgError:
        return False
    miss, gain = x + step - optimum.x, 0.5 * float(slope @ step)
    is_there = 0.0 <= float(miss @ curvature @ miss) < _SAME and abs(evidence + gain - optimum.value) < _SAME
    return is_there and not optimum.at_bound.any()


def _learn(setup: Setup, objective: Objective, known: Array | None) -> Optimum:
    """Return the best optimum from all starts; from `known` where that is a point."""
    arguments, measurements, names = setup.arguments, setup.measurements, setup.prior.noise.observables
    scatter = measurements.scatter()
    return learn(
        setup.system,
        objective,
        [part.thumbnail() for part in parts_of(measurements)],
        inputs=[part.inputs for part in parts_of(measurements)],
        runs=None if measurements.is_summed else [padded(part, names).series for part in parts_of(measurements)],
        restarts=arguments.restarts,
        random_state=arguments.random_state,
        n_jobs=arguments.n_jobs,
        scatter=None if scatter is None else setup.prior.noise.medians(scatter),
        known=known,
    )


def _telling_rows(setup: Setup) -> int:
    """Return how many rows tell about as much as all of them, where free functions move very fast; zero otherwise."""
    kept = setup.measurements
    if setup.parts or setup.case.driven or kept.is_summed or not setup.layout.learned or not setup.layout.processes:
        return 0
    rows = max(len(item.times) for item in kept.series)
    share = data_lengthscale(kept.series) / setup.prior.units.span if rows > _ROWS else 1.0
    return max(_PIECE, int(_OFTEN * share * rows)) if share < _FAST else 0


def _learn_from_rows(setup: Setup) -> PieceLearned | None:
    """Return what a piece of the rows on disk says, where it needs all disturbances: all rows may tell smaller ones."""
    short = liveliest(setup.measurements, _READ)
    own = _prepare_piece(setup, setup.arguments, short)
    try:
        found = None if own is None else find_optimum(own)
    except (AccuracyError, FitError):
        return None
    if own is None or found is None or found[0].at_bound[own.layout.blocks.disturbance_deviations].any():
        return None
    optimum, curvature, gains = found
    x = setup.layout.pack(own.layout.unpack(optimum.x))
    return PieceLearned(x, setup.measurements.size / short.size * curvature, gains)


def _prepare_piece(setup: Setup, arguments: Arguments, short: Measurements) -> Setup | None:
    """Return what is settled for a piece of a record, in the same units; None where something was not measured in it.

    Modes, and the response, begin where a piece does; and it shows a pace of its own.
    """
    units, names = setup.prior.units, setup.measurements.names
    if short.names != names:
        return None
    scales = dict(zip(names, units.scales.tolist(), strict=True))
    return prepare(setup.system, arguments, short, time=replace(units, start=short.window[0]), scales=scales)


def _learn_from_pieces(
    setup: Setup, ways: Sequence[Callable[[Measurements, int], Measurements]], count: int
) -> Optimum:
    """Return an optimum for a long record, from the better one of those for shorter records made of it in some ways."""
    objective = setup.objective
    arguments, found = setup.arguments, list[tuple[float, Array, Array]]()
    if arguments.engine == "auto" and not setup.case.driven and setup.choice.kind.name != "markov":
        # Waves fill the whole window, however short a piece of it is; states are chosen where they are cheaper.
        arguments = replace(arguments, engine="dense")
    for shorten in ways:
        short = shorten(setup.measurements, count)
        try:
            own = _prepare_piece(setup, arguments, short)
            if own is None:
                continue
            end = _learn(own, own.objective, None)
        except FitError:
            continue
        x = setup.layout.pack(own.layout.unpack(end.x))
        curvature = setup.measurements.size / short.size * curvature_at(own.objective, end.x)
        found.append((objective.value(x), x, curvature))
        if found[-1][0] / setup.measurements.size > end.value / short.size - _AS_GOOD:
            # What describes a piece describes all of it as well: nothing slower is missed.
            break
    value, x, curvature = max(found, key=lambda item: item[0], default=(-np.inf, np.zeros(0), np.zeros((0, 0))))
    if not np.isfinite(value):
        return _learn(setup, objective, None)
    # A record that is many times as long has an optimum beside theirs, and about as many times the curvature.
    near = search_along(objective, x, curvature, _GAIN) if np.isfinite(curvature).all() else None
    if near is not None and near.value >= value:
        x = near.x
    return search(objective, x, trusted=True) if near is None or not near.converged else near
