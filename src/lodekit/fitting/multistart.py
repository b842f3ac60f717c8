"""Multistart: searches from given, estimated and random starting points, sequential or parallel; the best one wins.

Where searches are known to end too early, other lengthscales are scanned and runaway parameters are reset.

A fit without disturbances is the limit of vanishing standard deviations: the search with disturbances begins there,
with disturbances of several sizes. On the logarithmic scale of the search, zero is infinitely far away: an inactive
standard deviation is set to next to nothing and is not searched.

Of several optima that differ in signs only, the one with the most positive parameters is returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, pairwise, product

import numpy as np
from numpy.typing import NDArray

from lodekit.data.inputs import InputSignal
from lodekit.data.observations import TimeSeries
from lodekit.data.records import with_empty_series
from lodekit.errors import FitError
from lodekit.fitting import search_options as options
from lodekit.fitting.lbfgs import Optimum, maximize_lbfgs
from lodekit.fitting.objective import Objective
from lodekit.fitting.output_error import multistart_output_error
from lodekit.fitting.setup import FitSetup
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

Array = NDArray[np.float64]


def multistart(setup: FitSetup, objective: Objective, initial_point: Array | None = None) -> Optimum:
    """Return the best optimum of an objective over the data of a setup, from all starts or from a given point."""
    opt, layout, measurements = options.SEARCH, objective.layout, setup.measurements
    if layout.size == 0:
        return _evaluate_fixed(objective)
    agree = objective.engine.search_limits.evidence_tolerance
    coarse, fine = opt.coarse_tolerance * agree, opt.fine_tolerance * agree
    guesses, generator = _collect_guesses(setup, objective)
    parts = [] if measurements.has_only_statistics else list(measurements.records.values())
    if any(part.inputs for part in parts) and layout.is_deterministic and layout.free_parameters:
        names = setup.prior.noise.observables
        first = [_first_segment(with_empty_series(part, names).series, part.inputs) for part in parts]
        theta = None if initial_point is None else layout.unpack(initial_point).theta
        priors = [part.prior for part in setup.record_setups.values()]
        optimum = multistart_output_error(setup.system, objective, priors, first, guesses, generator, fine, theta)
        if optimum is not None:
            return optimum
    starts = _rank_guesses(setup, objective, guesses, generator)
    if not starts and initial_point is None:
        reason = explain_infeasible_start(objective, guesses[0].theta, generator)
        advice = reason or "give start= values near the truth, or check the units of the data"
        raise FitError(f"no start gives a finite evidence; {advice}")
    if initial_point is not None:
        best = maximize_lbfgs(objective, initial_point)
        better = [start for start in starts if start.value + objective.log_prior(start.x)[0] > best.value]
        return _best_optimum([best, *([_search_sequentially(objective, better)] if better else [])])
    n_jobs = setup.settings.n_jobs
    if n_jobs in (None, 1):
        best = _search_sequentially(objective, starts)
    else:
        from joblib import Parallel, delayed

        tasks = (delayed(maximize_lbfgs)(objective, start.x, trusted=start.is_trusted(layout)) for start in starts)
        with track_progress(f"fitting, {len(starts)} starts side by side"):
            best = _best_optimum(list(Parallel(n_jobs=n_jobs)(tasks)))
    return _best_optimum([escape_local_optimum(objective, best, tolerance=coarse, fine_tolerance=fine), best])


def rank_starts(setup: FitSetup) -> list[Array]:
    """Return the most promising starts of a setup, best first, as vectors of the layout, without a search."""
    if setup.layout.size == 0:
        return []
    return [start.x for start in _rank_guesses(setup, setup.objective, *_collect_guesses(setup, setup.objective))]


def _collect_guesses(setup: FitSetup, objective: Objective) -> tuple[list[StartPoint], np.random.Generator]:
    """Return guesses of the parameters, and the random generator that was used."""
    generator, parts = np.random.default_rng(setup.settings.random_state), setup.measurements.records.values()
    records, inputs = [part.decimated_series() for part in parts], [part.inputs for part in parts]
    return collect_guesses(setup.system, objective, records, generator, inputs), generator


def _rank_guesses(
    setup: FitSetup, objective: Objective, guesses: Sequence[StartPoint], generator: np.random.Generator
) -> list[StartPoint]:
    """Return the most promising starts at some guesses, best first."""
    series = [item for part in setup.measurements.records.values() for item in part.decimated_series()]
    return build_start_points(objective, guesses, series, setup.settings.restarts, generator, setup.noise_estimate)


def _first_segment(record: Sequence[TimeSeries], inputs: Mapping[str, InputSignal]) -> list[TimeSeries]:
    """Return the first part of a long record, in which inputs do about as much as in all of it."""
    count = options.SEARCH.simulation_rows
    times = union_times(record)
    while count < len(times):
        stop = times[count - 1]
        parts = [(signal.values[signal.times <= stop], signal.values) for signal in inputs.values()]
        if all(
            np.std(part) >= options.SEARCH.min_input_std_ratio * np.std(whole) for part, whole in parts if len(part)
        ):
            break
        count *= 2
    stop = times[min(count, len(times)) - 1]
    return [item.select(np.flatnonzero(item.times <= stop)) for item in record]


def _search_sequentially(objective: Objective, starts: list[StartPoint]) -> Optimum:
    """Return the best optimum of starts searched in turn, until two agree and a second family was searched."""
    opt, optima = options.SEARCH, list[Optimum]()
    agree = objective.engine.search_limits.evidence_tolerance
    coarse, fine = opt.coarse_tolerance * agree, opt.fine_tolerance * agree
    families = [start.family for start in starts]
    with track_progress("fitting", len(starts)) as advance:
        for number, start in enumerate(starts):
            advance(min(number, 1), f"start {number + 1} of {len(starts)}")
            search = partial(maximize_lbfgs, objective, trusted=start.is_trusted(objective.layout))
            if number == 0:
                optima.append(search(start.x, tolerance=fine, max_iterations=opt.max_iterations))
                continue
            # After the first, a coarse search is enough to see whether a start leads to the same place.
            best, most = _best_optimum(optima), opt.exploring_max_iterations
            end = search(start.x, tolerance=coarse, max_iterations=most, known_optimum=best)
            optima.append(search(end.x, tolerance=fine) if end.value > best.value else end)
            best = _best_optimum(optima)
            met = sum(each.value > best.value - max(agree, opt.search_agreement) for each in optima)
            if met >= 2 and len(set(families[: number + 1])) >= min(2, len(set(families))):
                break
    return _best_optimum(optima)


def _best_optimum(optima: list[Optimum]) -> Optimum:
    """Return the best optimum, which keeps where others have ended that came about as far."""
    best = max(optima, key=lambda optimum: optimum.value)
    close = [each for each in optima if each is not best and each.value > best.value - options.SEARCH.kept_optimum_gap]
    known = {id(other): other for each in optima for other in each.other_optima}
    others = [*known.values(), *((each.value, each.x) for each in close)]
    return replace(best, other_optima=tuple(others)) if others else best


def _evaluate_fixed(objective: Objective) -> Optimum:
    """Return the optimum if nothing is estimated; raise if the log evidence is not finite."""
    empty = np.zeros(0)
    value = objective.value(empty)
    if not np.isfinite(value):
        raise FitError("the covariance of the data is not finite; check units and fixed values")
    return Optimum(empty, value, True, "nothing to learn", 1, empty.astype(bool))


def escape_local_optimum(objective: Objective, optimum: Optimum, *, tolerance: float, fine_tolerance: float) -> Optimum:
    """Return an optimum, or a better one that a search has missed.

    Steps in an input make several optima of the lengthscale, close to each other: the evidence is scanned along it. And
    a parameter at a millionth of its size does nothing any more, so nothing leads it back: it is set back.
    """
    best = optimum
    for _ in range(options.SEARCH.max_escape_rounds):
        before = best
        for x in [*_scan_lengthscales(objective, best), *_reset_runaways(objective, best)]:
            found = maximize_lbfgs(
                objective,
                x,
                tolerance=tolerance,
                max_iterations=options.SEARCH.exploring_max_iterations,
                known_optimum=best,
            )
            if found.value > best.value + tolerance:
                best = maximize_lbfgs(objective, found.x, tolerance=fine_tolerance)
        if best is before:
            break
    return best


def _scan_lengthscales(objective: Objective, optimum: Optimum) -> Iterator[Array]:
    """Yield the tops of the log evidence along each lengthscale, other than the optimum itself."""
    opt = options.SEARCH
    block = objective.layout.slices.lengthscales
    reach = objective.engine.search_limits
    low, high = float(np.log(reach.min_lengthscale)), float(np.log(reach.max_lengthscale))
    for place in range(block.start, min(block.stop, block.start + opt.max_scanned_lengthscales)):
        length = float(np.exp(optimum.x[place]))
        if length > opt.long_lengthscale or objective.engine.prior.channels is not None:
            continue
        moves = np.log(opt.lengthscale_factor ** np.arange(*opt.lengthscale_exponents))
        near = np.log(opt.lengthscale_factor) * np.array(
            opt.neighbour_exponents if length < opt.short_lengthscale else ()
        )
        moves = moves[(optimum.x[place] + moves > low) & (optimum.x[place] + moves < high)]
        points = [optimum.x.copy() for _ in moves]
        for point, move in zip(points, moves, strict=True):
            point[place] += move
            point[objective.layout.slices.noise] += opt.noise_exponent * move
        with np.errstate(all="ignore"):
            heights = [optimum.value if not move else objective.value(x) for move, x in zip(moves, points, strict=True)]
        rises = [after > before for before, after in pairwise(heights)]
        for k in range(len(points)):
            is_top = (k == 0 or rises[k - 1]) and (k == len(points) - 1 or not rises[k])
            if moves[k] and (
                np.isclose(moves[k], near).any() or (is_top and heights[k] > optimum.value - opt.scan_gap)
            ):
                yield points[k]


def _reset_runaways(objective: Objective, optimum: Optimum) -> Iterator[Array]:
    """Yield the optimum with runaway parameters reset to their expected magnitudes, one by one and together."""
    opt = options.SEARCH
    layout = objective.layout
    usual, away = np.zeros(len(layout.free_parameters)), np.zeros(len(layout.free_parameters))
    for place, number in enumerate(layout.free_parameters):
        transform, x = layout.transforms[number], float(optimum.x[place])
        away[place], usual[place] = transform.distance_from_expected(x), transform.centre
        if transform.is_unbounded:
            usual[place] = float(np.copysign(transform.inverse(transform.expected_magnitude), x))
    lost = np.flatnonzero(away > opt.runaway_log_distance)
    # Those that run away take others with them, not as far.
    groups = [np.array([place]) for place in lost]
    for least in opt.reset_thresholds if len(lost) else ():
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
            units = objective.engine.prior.noise.level_scales[: layout.n_noise_levels]
            noise = np.maximum(hyper.noise_std, opt.reset_noise_fraction * units)
            matched = match_variances(objective.engine, layout, sizes, length, noise)
        if matched is not None and np.isfinite(layout.pack(matched)).all():
            yield layout.pack(matched)


def multistart_disturbances(
    objective: Objective, origins: Sequence[Hyperparameters], noise_estimate: Array | None = None
) -> Optimum | None:
    """Return the best optimum of an objective with disturbances; None where no start is finite."""
    opt, best = options.SEARCH, None
    search = partial(maximize_lbfgs, objective, tolerance=opt.disturbance_tolerance, trusted=True)
    most = opt.disturbance_max_iterations
    with track_progress("fitting, sizes of disturbances"):
        starts = _rank_disturbance_starts(objective, origins, noise_estimate)
    with track_progress("fitting with disturbances", len(starts)) as advance:
        for number, x in enumerate(starts):
            advance(min(number, 1), f"start {number + 1} of {len(starts)}")
            end = search(x, max_iterations=most, known_optimum=best, agreement=opt.disturbance_agreement)
            best = end if best is None or end.value > best.value else best
    if best is None:
        return None
    for x in _reset_from_plateau(objective, best):
        end = search(x, max_iterations=most)
        best = end if end.value > best.value else best
    return best if best.converged else search(best.x)


def _rank_disturbance_starts(
    objective: Objective, origins: Sequence[Hyperparameters], noise_estimate: Array | None
) -> list[Array]:
    """Return the most promising starts that differ, best first.

    What suits the first origin best is tried at the others.
    """
    opt = options.SEARCH
    engine, layout = objective.engine, objective.layout
    units = engine.prior.noise.level_scales[: layout.n_noise_levels]
    # Noise as it was found without disturbances, or as neighbours suggest.
    levels: list[Array | None] = [None]
    if noise_estimate is not None and layout.n_noise_levels:
        levels.append(np.clip(noise_estimate, opt.min_start_noise_fraction * units, None))
    lengths = opt.disturbance_lengthscales[: None if layout.n_coloured_disturbances else 1]
    ways = list(product(opt.disturbance_shares, lengths, levels))
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
        if len(seen) > opt.n_disturbance_combinations:
            ways = [ways[number] for _, number in sorted(seen)[: opt.n_disturbance_combinations]]
    chosen: list[Array] = []
    for _, x in sorted(found, key=lambda pair: -pair[0]):
        if all(np.abs(x - other).max() > opt.start_distance for other in chosen):
            chosen.append(x)
    return chosen[: opt.n_disturbance_starts]


def _reset_from_plateau(objective: Objective, best: Optimum) -> list[Array]:
    """Return starts with one entry reset that has run away along a plateau, where the gradient vanishes.

    So one of two lags vanishes, and what is left is the best with one lag; or an initial state, while the search is far
    from the end, and does not come back.
    """
    opt = options.SEARCH
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
            if not abs(at(place, sign * opt.plateau_probe)[0] - best.value) < opt.plateau_tolerance:
                continue
            distances = np.arange(opt.reset_log_range[0], opt.reset_log_range[1], opt.reset_log_range[0])
            moves = -sign * distances
            if place in bounded:
                own = layout.transforms[layout.free_parameters[place]]
                around = own.inverse(own.expected_magnitude) - float(best.x[place]) + (distances - distances.mean())
                # It may be anywhere by now; what data and equations suggest is where it was expected.
                moves = around if abs(np.median(around)) > distances[-1] else moves
            value, x = max((at(place, move) for move in moves.tolist()), key=lambda pair: pair[0])
            found += [x] if value > best.value + opt.plateau_tolerance else []
            break
    return found


def zero_inactive_disturbances(objective: Objective, optimum: Optimum) -> Optimum:
    """Return an optimum in which inactive standard deviations are next to zero and at their bound."""
    opt, layout, best = options.SEARCH, objective.layout, optimum
    if not layout.n_disturbances:
        return best
    modes, blocks = layout.slices.mode_deviations, layout.slices
    for place in range(modes.start, modes.stop):
        best = _move_if_inactive(objective, best, place, float(best.x[place]) - opt.mode_std_probe)
    disturbed = objective.engine.prior.observables.disturbances
    coloured = disturbed.coloured_index if disturbed is not None else ()
    hyper = initialize_disturbances(objective.engine, layout, layout.unpack(best.x), opt.zero_disturbance_share)
    for k, least in enumerate(layout.pack(hyper)[blocks.disturbance_deviations].tolist()):
        before, place = best, blocks.disturbance_deviations.start + k
        best = _move_if_inactive(objective, best, place, min(float(best.x[place]), least))
        if best is not before and k in coloured:
            # Nothing has this lengthscale.
            best.at_bound[blocks.disturbance_lengthscales.start + coloured.index(k)] = True
    return best


def _move_if_inactive(objective: Objective, optimum: Optimum, place: int, bound: float) -> Optimum:
    """Return an optimum with one entry moved to its bound, if that changes the objective by next to nothing."""
    x, at_bound = optimum.x.copy(), optimum.at_bound.copy()
    x[place], at_bound[place] = bound, True
    value = objective.value(x)
    is_inactive = value >= optimum.value - options.SEARCH.min_variance_gain
    return replace(optimum, x=x, value=value, at_bound=at_bound) if is_inactive else optimum


def canonicalize_signs(
    objective: Objective, optimum: Optimum, information: Array, symmetries: Sequence[frozenset[str]]
) -> tuple[Optimum, Array]:
    """Return the optimum with the most positive parameters among those that differ in signs, and its curvature.

    A start value that the user has given counts: its sign is preferred, whatever it is.

    Shapes: information (n, n).
    """
    opt = options.SEARCH
    layout = objective.layout
    learned = [layout.names[number] for number in layout.free_parameters]
    wanted = np.array([-1.0 if (objective.parameters[name].start or 0.0) < 0 else 1.0 for name in learned])
    signs = np.sign(optimum.x[: len(learned)])
    best = np.ones(len(learned))
    for size in range(1, min(len(symmetries), opt.max_symmetries) + 1):
        for chosen in combinations(symmetries[: opt.max_symmetries], size):
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
    if not abs(value - optimum.value) < opt.symmetry_tolerance * (1.0 + abs(optimum.value)):
        return optimum, information
    return replace(optimum, x=x), information * np.outer(whole, whole)


def _sign_key(signs: Array) -> tuple[int, ...]:
    """Return how many are positive, and then which: what makes one choice of signs better than another."""
    return (int(np.sum(signs > 0)), *(int(sign > 0) for sign in signs))
