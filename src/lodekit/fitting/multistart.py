"""The whole search: starts from the user, from the data and blind; one after the other or in parallel; best wins.

A second look around an optimum, where searches are known to end too early: other lengthscales, lost parameters.

Deviations of disturbances: starts at several scales, and those that are best at zero.

A fit without disturbances is the limit of deviations that vanish, so it is where a search begins: with disturbances of
several sizes added to it, and to all values of the parameters that the data suggest. On the logarithmic scale of the
search zero is infinitely far away; a deviation that makes no difference any more is set to next to nothing, and
nothing is searched along it.

Of several optima that differ in signs alone, the one with the most positive parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise, product

import numpy as np
from numpy.typing import NDArray

from lodekit.data.inputs import InputSignal
from lodekit.data.observations import TimeSeries
from lodekit.errors import FitError
from lodekit.fitting.lbfgs import Optimum, maximize_lbfgs
from lodekit.fitting.objective import Objective
from lodekit.fitting.output_error import multistart_output_error
from lodekit.fitting.starts.candidates import (
    StartPoint,
    VarianceTargets,
    build_start_points,
    collect_guesses,
    explain_infeasible_start,
    initialize_disturbances,
    match_variances,
    raise_mode_std,
)
from lodekit.fitting.starts.variable_projection import union_times
from lodekit.prior.prior import Hyperparameters
from lodekit.support.progress import track_progress
from lodekit.system.system import System

Array = NDArray[np.float64]
#: Searches that end this close to each other, in log evidence, have met: the later ones end early.
_SEARCH_AGREEMENT = 0.1
#: Where those have ended that came this far is worth knowing.
_KEPT_OPTIMUM_GAP = 3.0
#: What a step has to gain of what tells two optima apart, on the first search and on those that look where they lead.
_FINE_TOLERANCE, _COARSE_TOLERANCE = 1e-5, 1e-2
#: How many steps there are at most, on the first search and on those that look where they lead.
_MAX_ITERATIONS, _EXPLORING_MAX_ITERATIONS = 500, 80
#: So many rows of a long record are simulated at first, or more until inputs change by this share of what they do.
_FIRST_ROWS, _MIN_INPUT_STD_RATIO = 2000, 0.5


def multistart(
    system: System,
    objective: Objective,
    records: Sequence[Sequence[TimeSeries]],
    *,
    restarts: int,
    random_state: int | None,
    n_jobs: int | None,
    noise_estimate: Array | None = None,
    initial_point: Array | None = None,
    inputs: Sequence[Mapping[str, InputSignal]] | None = None,
    full_records: Sequence[Sequence[TimeSeries]] | None = None,
) -> Optimum:
    """Return the best optimum of the log evidence, plus the log prior where parameters have priors."""
    layout = objective.layout
    if layout.size == 0:
        return _evaluate_fixed(objective)
    generator = np.random.default_rng(random_state)
    guesses = collect_guesses(system, objective, records, generator, inputs)
    series = [item for own in records for item in own]
    agree = objective.engine.search_limits.evidence_tolerance
    if inputs and full_records and any(inputs) and layout.is_deterministic and layout.free_parameters:
        first = [_first_segment(own, signals) for own, signals in zip(full_records, inputs, strict=True)]
        theta = None if initial_point is None else layout.unpack(initial_point).theta
        if (
            driven := multistart_output_error(
                system, objective, first, guesses, generator, _FINE_TOLERANCE * agree, theta
            )
        ) is not None:
            return driven
    starts = build_start_points(objective, guesses, series, restarts, generator, noise_estimate)
    if not starts and initial_point is None:
        reason = explain_infeasible_start(objective, guesses[0].theta, generator)
        advice = reason or "give start= values near the truth, or check the units of the data"
        raise FitError(f"no start gives a finite evidence; {advice}")
    if initial_point is not None:
        found = maximize_lbfgs(objective, initial_point)
        better = [start for start in starts if start.value + objective.log_prior(start.x)[0] > found.value]
        return _best_optimum([found, *([_search_sequentially(objective, better)] if better else [])])
    best = (
        _search_in_parallel(objective, starts, n_jobs)
        if n_jobs not in (None, 1)
        else _search_sequentially(objective, starts)
    )
    return _best_optimum(
        [
            escape_local_optimum(
                objective, best, tolerance=_COARSE_TOLERANCE * agree, fine_tolerance=_FINE_TOLERANCE * agree
            ),
            best,
        ]
    )


def rank_starts(
    system: System,
    objective: Objective,
    records: Sequence[Sequence[TimeSeries]],
    *,
    restarts: int,
    random_state: int | None,
    noise_estimate: Array | None = None,
    inputs: Sequence[Mapping[str, InputSignal]] | None = None,
) -> list[Array]:
    """Return the most promising starts, best first, as vectors of the layout; nothing is searched."""
    if objective.layout.size == 0:
        return []
    generator = np.random.default_rng(random_state)
    guesses = collect_guesses(system, objective, records, generator, inputs)
    series = [item for own in records for item in own]
    return [start.x for start in build_start_points(objective, guesses, series, restarts, generator, noise_estimate)]


def _search_in_parallel(objective: Objective, starts: list[StartPoint], n_jobs: int | None) -> Optimum:
    """Return the best optimum of starts that are followed at the same time."""
    from joblib import Parallel, delayed

    tasks = (delayed(maximize_lbfgs)(objective, start.x, trusted=start.is_trusted) for start in starts)
    with track_progress(f"fitting, {len(starts)} starts side by side"):
        return _best_optimum(list(Parallel(n_jobs=n_jobs)(tasks)))


def _first_segment(record: Sequence[TimeSeries], inputs: Mapping[str, InputSignal]) -> list[TimeSeries]:
    """Return the first part of a long record, in which inputs do about as much as in all of it."""
    count = _FIRST_ROWS
    times = union_times(record)
    while count < len(times):
        stop = times[count - 1]
        parts = [(signal.values[signal.times <= stop], signal.values) for signal in inputs.values()]
        if all(np.std(part) >= _MIN_INPUT_STD_RATIO * np.std(whole) for part, whole in parts if len(part)):
            break
        count *= 2
    stop = times[min(count, len(times)) - 1]
    return [item.select(np.flatnonzero(item.times <= stop)) for item in record]


def _search_sequentially(objective: Objective, starts: list[StartPoint]) -> Optimum:
    """Return the best optimum of starts followed in turn, until two agree and no other family has found a better one.

    Where there is but one family, two of it have to do. Progress is shown where it takes long.
    """
    found: list[Optimum] = []
    agree = objective.engine.search_limits.evidence_tolerance
    families = [start.family for start in starts]
    with track_progress("fitting", len(starts)) as advance:
        for number, start in enumerate(starts):
            advance(min(number, 1), f"start {number + 1} of {len(starts)}")
            # After the first, a coarse search is enough to see whether a start leads to the same place.
            rival = _best_optimum(found) if found else None
            tolerance, most = (
                (_FINE_TOLERANCE * agree, _MAX_ITERATIONS)
                if rival is None
                else (_COARSE_TOLERANCE * agree, _EXPLORING_MAX_ITERATIONS)
            )
            trusted = start.is_trusted
            optimum = maximize_lbfgs(
                objective, start.x, tolerance=tolerance, max_iterations=most, known_optimum=rival, trusted=trusted
            )
            if rival is not None and optimum.value > rival.value:
                optimum = maximize_lbfgs(objective, optimum.x, tolerance=_FINE_TOLERANCE * agree, trusted=trusted)
            found.append(optimum)
            best = _best_optimum(found)
            met = sum(1 for optimum in found if optimum.value > best.value - max(agree, _SEARCH_AGREEMENT))
            if met >= 2 and len(set(families[: len(found)])) >= min(2, len(set(families))):
                break
    return _best_optimum(found)


def _best_optimum(optima: list[Optimum]) -> Optimum:
    """Return the best optimum, which keeps where others have ended that came about as far."""
    best = max(optima, key=lambda optimum: optimum.value)
    close = [each for each in optima if each is not best and each.value > best.value - _KEPT_OPTIMUM_GAP]
    known = {id(other): other for each in optima for other in each.other_optima}
    others = [*known.values(), *((each.value, each.x) for each in close)]
    return replace(best, other_optima=tuple(others)) if others else best


def _evaluate_fixed(objective: Objective) -> Optimum:
    """Return the only point there is; raise where the log evidence is not finite there."""
    empty = np.zeros(0)
    value = objective.value(empty)
    if not np.isfinite(value):
        raise FitError("the covariance of the data is not finite; check units and fixed values")
    return Optimum(empty, value, True, "nothing to learn", 1, empty.astype(bool))


#: Lengthscales are tried at these factors of what was found, where neighbours can hide behind a low pass.
_LENGTHSCALE_FACTORS = 1.08 ** np.arange(-9.0, 9.0)
#: Where a window holds many lengthscales, those two steps to either side are followed in any case: the scan cannot tell
#: them apart.
_NEIGHBOUR_FACTORS, _SHORT_LENGTHSCALE = _LENGTHSCALE_FACTORS[[7, 11]], 0.1
#: Where it holds hardly any there is nothing to confuse, nor where processes of all channels share the work.
_LONG_LENGTHSCALE = 0.2
#: What longer ones leave over counts as noise: by this power of the factor it grows along.
_NOISE_EXPONENT = 0.55
#: A top beside the optimum is worth a search where it is no lower than this, in log evidence.
_SCAN_GAP = 8.0
#: A parameter this far from where it was expected, as a logarithm, may have run away along a plain.
_RUNAWAY_LOG_DISTANCE = 6.0
#: Others that are this far away are set back with it, in one try or another.
_RESET_THRESHOLDS = (3.0, 1.0)
#: What is set back leaves more over at first: noise of this share of the data.
_RESET_NOISE_FRACTION = 0.1
#: How often one look follows another, and how many lengthscales are looked at.
_MAX_ESCAPE_ROUNDS, _MAX_SCANNED_LENGTHSCALES = 3, 4
#: How many steps a search takes that looks where a start leads.
_ESCAPE_MAX_ITERATIONS = 80


def escape_local_optimum(objective: Objective, optimum: Optimum, *, tolerance: float, fine_tolerance: float) -> Optimum:
    """Return an optimum, or a better one that a search has missed.

    Steps in an input make several optima of the lengthscale, close to each other: the evidence is scanned along it. And
    a parameter at a millionth of its size does nothing any more, so nothing leads it back: it is set back.
    """
    best = optimum
    for _ in range(_MAX_ESCAPE_ROUNDS):
        before = best
        for x in [*_scan_lengthscales(objective, best), *_reset_runaways(objective, best)]:
            found = maximize_lbfgs(
                objective, x, tolerance=tolerance, max_iterations=_ESCAPE_MAX_ITERATIONS, known_optimum=best
            )
            if found.value > best.value + tolerance:
                best = maximize_lbfgs(objective, found.x, tolerance=fine_tolerance)
        if best is before:
            break
    return best


def _scan_lengthscales(objective: Objective, optimum: Optimum) -> Iterator[Array]:
    """Yield the tops of the log evidence along each lengthscale, other than the optimum itself."""
    block = objective.layout.slices.lengthscales
    reach = objective.engine.search_limits
    low, high = float(np.log(reach.min_lengthscale)), float(np.log(reach.max_lengthscale))
    for place in range(block.start, min(block.stop, block.start + _MAX_SCANNED_LENGTHSCALES)):
        length = float(np.exp(optimum.x[place]))
        if length > _LONG_LENGTHSCALE or objective.engine.prior.channels is not None:
            continue
        moves, is_short = np.log(_LENGTHSCALE_FACTORS), length < _SHORT_LENGTHSCALE
        moves = moves[(optimum.x[place] + moves > low) & (optimum.x[place] + moves < high)]
        points = [optimum.x.copy() for _ in moves]
        for point, move in zip(points, moves, strict=True):
            point[place] += move
            point[objective.layout.slices.noise] += _NOISE_EXPONENT * move
        with np.errstate(all="ignore"):
            heights = [optimum.value if not move else objective.value(x) for move, x in zip(moves, points, strict=True)]
        rises = [after > before for before, after in pairwise(heights)]
        for k in range(len(points)):
            is_top = (k == 0 or rises[k - 1]) and (k == len(points) - 1 or not rises[k])
            is_neighbour = is_short and any(np.isclose(moves[k], np.log(factor)) for factor in _NEIGHBOUR_FACTORS)
            if moves[k] and (is_neighbour or (is_top and heights[k] > optimum.value - _SCAN_GAP)):
                yield points[k]


def _reset_runaways(objective: Objective, optimum: Optimum) -> Iterator[Array]:
    """Yield the optimum with parameters that have run away set back to the size to expect, one by one and together."""
    layout = objective.layout
    usual, away = np.zeros(len(layout.free_parameters)), np.zeros(len(layout.free_parameters))
    for place, number in enumerate(layout.free_parameters):
        transform, x = layout.transforms[number], float(optimum.x[place])
        away[place], usual[place] = transform.distance_from_expected(x), transform.centre
        if transform.is_unbounded:
            usual[place] = float(np.copysign(transform.inverse(transform.expected_magnitude), x))
    lost = np.flatnonzero(away > _RUNAWAY_LOG_DISTANCE)
    # Those that run away take others with them, not as far.
    groups = [np.array([place]) for place in lost]
    for least in _RESET_THRESHOLDS if len(lost) else ():
        together = np.flatnonzero(away > least)
        groups += [together] if len(together) > len(groups[-1]) else []
    for group in groups:
        point = optimum.x.copy()
        point[group] = usual[group]
        yield point
        # What suits the data of deviations depends on the parameters.
        hyper = layout.unpack(point)
        length = float(np.exp(np.mean(np.log(hyper.lengthscales)))) if layout.n_processes else 1.0
        with np.errstate(all="ignore"):
            sizes = VarianceTargets.evaluate_at(objective.engine, hyper.theta)
            noise = np.maximum(
                hyper.noise_std,
                _RESET_NOISE_FRACTION * objective.engine.prior.noise.level_scales[: layout.n_noise_levels],
            )
            matched = match_variances(objective.engine, layout, sizes, length, noise)
        if matched is not None and np.isfinite(layout.pack(matched)).all():
            yield layout.pack(matched)


#: Sizes of what disturbances do, as shares of the data, and lengthscales that are tried, as shares of the window.
_DISTURBANCE_SHARES, _DISTURBANCE_LENGTHSCALES = (0.5, 0.1, 0.02, 0.003), (0.3, 0.05, 0.01)
#: What stands for a deviation of zero, as a share of one that suits the data.
_ZERO_DISTURBANCE_SHARE = 1e-9
#: Levels of noise to begin with are at least this share of the spread of the data.
_MIN_DISTURBED_NOISE_FRACTION = 1e-3
#: A deviation that gains less than this, in log evidence, is zero.
_MIN_VARIANCE_GAIN = 1e-4
#: How many starts are followed, how far they are apart, and how many ways to add disturbances are tried at all origins.
_N_DISTURBANCE_STARTS, _DISTURBANCE_START_DISTANCE, _N_DISTURBANCE_COMBINATIONS = 2, 0.7, 3
#: What a step has to gain, and how many of them there are; last digits are those of Newton's steps.
_DISTURBANCE_TOLERANCE, _DISTURBANCE_MAX_ITERATIONS = 3e-4, 150
#: A search ends that has come so close to the objective of the best one before, and close to where that ended.
_DISTURBANCE_AGREEMENT = 1.0
#: What changes the objective by less than this where it goes that far is lost; it is set back so far, if that gains.
_PLATEAU_TOLERANCE, _PLATEAU_PROBE, _RESET_LOG_DISTANCES = 0.1, 2.0, np.arange(1.5, 18.0, 1.5)
#: How much less the logarithm of a deviation of modes is where it makes no difference.
_MODE_STD_PROBE = 5.0


def multistart_disturbances(
    objective: Objective, origins: Sequence[Hyperparameters], noise_estimate: Array | None = None
) -> Optimum | None:
    """Return the best optimum of an objective with disturbances; None where no start is finite."""
    best: Optimum | None = None
    with track_progress("fitting, sizes of disturbances"):
        starts = _rank_disturbance_starts(objective, origins, noise_estimate)
    with track_progress("fitting with disturbances", len(starts)) as advance:
        for number, x in enumerate(starts):
            advance(min(number, 1), f"start {number + 1} of {len(starts)}")
            end = maximize_lbfgs(
                objective,
                x,
                tolerance=_DISTURBANCE_TOLERANCE,
                max_iterations=_DISTURBANCE_MAX_ITERATIONS,
                known_optimum=best,
                agreement=_DISTURBANCE_AGREEMENT,
                trusted=True,
            )
            best = end if best is None or end.value > best.value else best
    if best is None:
        return None
    for x in _reset_from_plateau(objective, best):
        end = maximize_lbfgs(
            objective, x, tolerance=_DISTURBANCE_TOLERANCE, max_iterations=_DISTURBANCE_MAX_ITERATIONS, trusted=True
        )
        best = end if end.value > best.value else best
    return best if best.converged else maximize_lbfgs(objective, best.x, tolerance=_DISTURBANCE_TOLERANCE, trusted=True)


def _rank_disturbance_starts(
    objective: Objective, origins: Sequence[Hyperparameters], noise_estimate: Array | None
) -> list[Array]:
    """Return the most promising starts that differ, best first.

    What suits the first origin best is tried at the others.
    """
    engine, layout = objective.engine, objective.layout
    units = engine.prior.noise.level_scales[: layout.n_noise_levels]
    # Noise as it was found without disturbances, or as neighbours suggest.
    levels: list[Array | None] = [None]
    if noise_estimate is not None and layout.n_noise_levels:
        levels.append(np.clip(noise_estimate, _MIN_DISTURBED_NOISE_FRACTION * units, None))
    ways = list(
        product(
            _DISTURBANCE_SHARES,
            _DISTURBANCE_LENGTHSCALES if layout.n_coloured_disturbances else _DISTURBANCE_LENGTHSCALES[:1],
            levels,
        )
    )
    found: list[tuple[float, Array]] = []
    for hyper in origins:
        seen = list[tuple[float, int]]()
        with np.errstate(all="ignore"):
            raised = raise_mode_std(engine, layout, hyper)
        for number, (share, length, level) in enumerate(ways):
            with np.errstate(all="ignore"):
                whole = initialize_disturbances(engine, layout, raised, share, length)
                noise = hyper.noise_std if level is None else level
                x = layout.pack(replace(whole, noise_std=noise[: layout.n_noise_levels]))
                value = objective.value(x) if np.isfinite(x).all() else -np.inf
            if np.isfinite(value):
                found.append((value, x))
                seen.append((-value, number))
        if len(seen) > _N_DISTURBANCE_COMBINATIONS:
            ways = [ways[number] for _, number in sorted(seen)[:_N_DISTURBANCE_COMBINATIONS]]
    chosen: list[Array] = []
    for _, x in sorted(found, key=lambda pair: -pair[0]):
        if len(chosen) < _N_DISTURBANCE_STARTS and all(
            np.abs(x - other).max() > _DISTURBANCE_START_DISTANCE for other in chosen
        ):
            chosen.append(x)
    return chosen


def _reset_from_plateau(objective: Objective, best: Optimum) -> list[Array]:
    """Return starts with something set back that has run away along a plain, from where nothing leads it back.

    So one of two lags vanishes, and what is left is the best with one lag; or an initial state, while the search is far
    from the end, and does not come back.
    """
    layout, found = objective.layout, list[Array]()
    bounded = [k for k, number in enumerate(layout.free_parameters) if not layout.transforms[number].is_unbounded]
    modes = layout.slices.mode_deviations

    def at(place: int, move: float) -> tuple[float, Array]:
        x = best.x.copy()
        x[place] += move
        with np.errstate(all="ignore"):
            return objective.value(x), x

    for place in [*bounded, *range(modes.start, modes.stop)]:
        for sign in (-1.0, 1.0)[: 1 if place >= modes.start else 2]:
            if not abs(at(place, sign * _PLATEAU_PROBE)[0] - best.value) < _PLATEAU_TOLERANCE:
                continue
            moves = -sign * _RESET_LOG_DISTANCES
            if place in bounded:
                own = layout.transforms[layout.free_parameters[place]]
                around = (
                    own.inverse(own.expected_magnitude)
                    - float(best.x[place])
                    + (_RESET_LOG_DISTANCES - _RESET_LOG_DISTANCES.mean())
                )
                # It may be anywhere by now; what data and equations suggest is where it was expected.
                moves = around if abs(np.median(around)) > _RESET_LOG_DISTANCES[-1] else moves
            value, x = max((at(place, move) for move in moves.tolist()), key=lambda pair: pair[0])
            found += [x] if value > best.value + _PLATEAU_TOLERANCE else []
            break
    return found


def zero_inactive_disturbances(objective: Objective, optimum: Optimum) -> Optimum:
    """Return an optimum in which deviations that make no difference are next to nothing, and at their limit."""
    layout, best = objective.layout, optimum
    if not layout.n_disturbances:
        return best
    best = _zero_inactive_modes(objective, best)
    disturbed = objective.engine.prior.observables.disturbances
    coloured = disturbed.coloured_index if disturbed is not None else ()
    usual = layout.pack(
        initialize_disturbances(objective.engine, layout, layout.unpack(best.x), _ZERO_DISTURBANCE_SHARE)
    )
    for k in range(layout.n_disturbances):
        place = layout.slices.disturbance_deviations.start + k
        x, at_bound = best.x.copy(), best.at_bound.copy()
        x[place] = min(x[place], usual[place])
        value = objective.value(x)
        if not value >= best.value - _MIN_VARIANCE_GAIN:
            continue
        at_bound[place] = True
        if k in coloured:
            # Nothing has this lengthscale.
            at_bound[layout.slices.disturbance_lengthscales.start + coloured.index(k)] = True
        best = replace(best, x=x, value=value, at_bound=at_bound)
    return best


def _zero_inactive_modes(objective: Objective, optimum: Optimum) -> Optimum:
    """Return an optimum in which modes that data do without are at their limit: deviations would shrink for ever."""
    best, block = optimum, objective.layout.slices.mode_deviations
    for place in range(block.start, block.stop):
        x, at_bound = best.x.copy(), best.at_bound.copy()
        x[place] -= _MODE_STD_PROBE
        value = objective.value(x)
        if value >= best.value - _MIN_VARIANCE_GAIN:
            at_bound[place] = True
            best = replace(best, x=x, value=value, at_bound=at_bound)
    return best


#: Of more symmetries than this, the first ones are tried.
_MAX_SYMMETRIES = 6
#: The objective may differ by this, relative to its size: by rounding.
_SYMMETRY_TOLERANCE = 1e-6


def canonicalize_signs(
    objective: Objective, optimum: Optimum, information: Array, symmetries: Sequence[frozenset[str]]
) -> tuple[Optimum, Array]:
    """Return the optimum with the most positive parameters among those that differ in signs, and its curvature.

    A start value that the user has given counts: its sign is preferred, whatever it is.

    Shapes: information (n, n).
    """
    layout = objective.layout
    learned = [layout.names[number] for number in layout.free_parameters]
    wanted = np.ones(len(learned))
    for position, name in enumerate(learned):
        start = objective.parameters[name].start
        wanted[position] = -1.0 if start is not None and start < 0 else 1.0
    signs = np.sign(optimum.x[: len(learned)])
    best = np.ones(len(learned))
    for size in range(1, min(len(symmetries), _MAX_SYMMETRIES) + 1):
        for chosen in combinations(symmetries[:_MAX_SYMMETRIES], size):
            flip = np.ones(len(learned))
            for names in chosen:
                flip *= np.array([-1.0 if name in names else 1.0 for name in learned])
            if _sign_key(signs * flip * wanted) > _sign_key(signs * best * wanted):
                best = flip
    if (best > 0).all():
        return optimum, information
    whole = np.ones(layout.size)
    whole[: len(learned)] = best
    x = whole * optimum.x
    value = objective.value(x)
    if not abs(value - optimum.value) < _SYMMETRY_TOLERANCE * (1.0 + abs(optimum.value)):
        return optimum, information
    return replace(optimum, x=x), information * np.outer(whole, whole)


def _sign_key(signs: Array) -> tuple[int, ...]:
    """Return how many are positive, and then which: what makes one choice of signs better than another."""
    return (int(np.sum(signs > 0)), *(int(sign > 0) for sign in signs))
