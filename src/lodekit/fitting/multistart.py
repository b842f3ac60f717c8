"""Multistart: the complete search for the best optimum.

A search ranks starting points, follows the best ones with L-BFGS-B until two agree, and refines the result by Newton's
method. Known noise that is very small is approached by continuation; long records are searched on subsamples first.

A fit without disturbances is the limit of vanishing standard deviations: the search with disturbances starts from it,
with disturbances of several sizes, and compares the objective with and without each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np

from lodekit.data.noise import EXACT_NOISE_RATIO
from lodekit.data.records import Measurements, decimate_record, most_active_segment, with_empty_series
from lodekit.errors import AccuracyError, FitError
from lodekit.fitting import search_options as options
from lodekit.fitting.escape import canonicalize_signs, scan_lengthscales, zero_inactive_disturbances
from lodekit.fitting.hessian import observed_information, observed_information_across_kinks, whitening_axes
from lodekit.fitting.lbfgs import Optimum, maximize_lbfgs, maximize_lbfgs_preconditioned
from lodekit.fitting.newton import NewtonIteration, refine_newton
from lodekit.fitting.objective import Objective
from lodekit.fitting.output_error import multistart_output_error
from lodekit.fitting.parameter_vector import build_transforms
from lodekit.fitting.scaling import solve_balance_equations, time_gaps
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import FitSetup, build_setup
from lodekit.fitting.starts.candidates import (
    StartPoint,
    VarianceTargets,
    build_start_points,
    estimate_correlation_time,
    explain_infeasible_start,
    initialize_disturbances,
    match_variances,
    median_correlation_time,
    rank_disturbance_starts,
)
from lodekit.fitting.starts.weak_form import build_delay_grid, find_delay_parameters
from lodekit.inference.engine import Engine
from lodekit.inference.fallback import FallbackEngine
from lodekit.inference.multi_record import combine_engines
from lodekit.prior.disturbances import require_disturbances
from lodekit.prior.prior import Hyperparameters, Prior
from lodekit.support.arguments import Array
from lodekit.support.progress import report_best_value, track_progress

#: The optimum of a subsample, (n,), the information expected of the full record, (n, n), and gains by disturbance.
SubsampleOptimum = tuple[Array, Array, dict[str, float]]


def maximize_objective(setup: FitSetup, initial_point: Array | None = None) -> tuple[Optimum, Array, dict[str, float]]:
    """Return the best optimum, the observed information there, and the gain of each disturbance in nats."""
    if not setup.layout.n_disturbances:
        found, information = improve_delays(setup, _search_without_disturbances(setup, initial_point))
        optimum, curvature = _refine(setup.objective, found, information)
        return optimum, refine_information(setup, optimum, curvature), {}
    piece = _fit_disk_subsample(setup) if initial_point is None and _reads_from_disk(setup) else None
    found, without = maximize_with_disturbances(setup, initial_point, piece)
    optimum, curvature = _refine(setup.objective, found)
    is_zero = optimum.at_bound[setup.layout.slices.disturbance_deviations]
    pairs = zip(without.items(), is_zero, strict=True)
    needs = {name: 0.0 if zero else optimum.value - value for (name, value), zero in pairs}
    return optimum, refine_information(setup, optimum, curvature), needs


def refine_information(setup: FitSetup, optimum: Optimum, information: Array) -> Array:
    """Return the information at an optimum for standard errors, corrected for kinks in delays.

    Shapes: information (n, n).
    """
    learned = setup.layout.free_parameters
    places = [learned.index(number) for number in find_delay_parameters(setup.system, setup.layout)]
    return observed_information_across_kinks(setup.objective, optimum.x, information, ~optimum.at_bound, places)


def switch_optimum(setup: FitSetup, optimum: Optimum, x: Array) -> tuple[Optimum, Array]:
    """Return the optimum reached from another point with a larger objective, and the information there."""
    others = ((optimum.value, optimum.x), *optimum.other_optima)
    # Entries that have not moved from their bound are still at it.
    stuck = optimum.at_bound & (np.abs(x - optimum.x) < options.SEARCH.at_bound_tolerance)
    start = replace(optimum, x=x, value=setup.objective.value(x), at_bound=stuck, other_optima=others)
    found, curvature = _refine(setup.objective, start)
    return found, refine_information(setup, found, curvature)


def _centre_flat_directions(setup: FitSetup, optimum: Optimum, information: Array) -> tuple[Optimum, Array]:
    """Return the optimum nearest to the expected magnitudes along flat ridges, and its information.

    The end of a search on a flat ridge depends on rounding errors, and so on units and on the order of parameters.

    Shapes: information (n, n).
    """
    opt, objective, inner = options.SEARCH, setup.objective, ~optimum.at_bound
    part = information[np.ix_(inner, inner)]
    if objective.engine.size > opt.max_cheap_rows or not np.isfinite(part).all():
        return optimum, information
    scale = 1.0 / np.sqrt(np.maximum(np.abs(np.diag(part)), opt.ridge_pull))
    is_flat = np.linalg.eigvalsh(part * np.outer(scale, scale)) < opt.ridge_eigenvalue
    # Structurally unidentifiable directions are flat anyway; values along these do not matter.
    if not is_flat.any() or np.sum(is_flat) <= len(setup.structural_identifiability.unidentifiable_directions):
        return optimum, information
    found, curvature = optimum, information
    for own in (replace(objective, pull=opt.ridge_pull), objective):
        start = replace(found, value=own.value(found.x))
        found, curvature = refine_newton(own, start, observed_information(own, start.x))
    is_same = found.value > optimum.value - opt.max_snap_loss
    return (found, refine_information(setup, found, curvature)) if is_same else (optimum, information)


def canonicalize_optimum(setup: FitSetup, optimum: Optimum, information: Array) -> tuple[Optimum, Array]:
    """Return the one of several equivalent optima that depends neither on rounding nor on the order of parameters.

    As many parameters as possible are positive, values along ridges are near the expected magnitudes, and of two
    interchangeable parameters the first by name is larger, such as the longer of two lags.

    Shapes: information (n, n).
    """
    symmetries = setup.structural_identifiability.sign_symmetry_groups
    state = canonicalize_signs(setup.objective, optimum, information, symmetries)
    optimum, information = _centre_flat_directions(setup, *state)
    layout, parameters = setup.layout, setup.system.parameters
    hyper, order = layout.unpack(optimum.x), sorted(layout.free_parameters, key=layout.names.__getitem__)
    alike = [pair for pair in combinations(order, 2) if len({parameters[layout.names[n]] for n in pair}) == 1]
    start = theta = hyper.theta
    # The search for equivalent parameter values has the same limit on the number of parameters.
    for first, second in alike if len(order) <= 8 else ():
        other = theta.copy()
        other[[first, second]] = theta[[second, first]]
        is_wanted = theta[first] < theta[second]
        if is_wanted and (table := setup.structural_identifiability.input_output_coefficients) is not None:
            with np.errstate(all="ignore"):
                here, there = table.evaluate_many(np.stack([theta, other]))[0]
            theta = other if np.allclose(here, there, rtol=options.SEARCH.symmetry_tolerance, atol=0.0) else theta
    if theta is start:
        return optimum, information
    found, curvature = switch_optimum(setup, optimum, layout.pack(replace(hyper, theta=theta)))
    is_same = found.value > optimum.value - options.SEARCH.max_snap_loss
    return (replace(found, other_optima=optimum.other_optima), curvature) if is_same else (optimum, information)


def _reads_from_disk(setup: FitSetup) -> bool:
    """Return whether each evaluation reads the data from a disk."""
    return setup.engine_task.on_disk and setup.engine_choice.factory.has_states


def _search_without_disturbances(
    setup: FitSetup, initial_point: Array | None = None, tolerance: float | None = None
) -> Optimum:
    """Return the best optimum of all searches without disturbances, before the refinement."""
    opt, is_read = options.SEARCH, initial_point is None and _reads_from_disk(setup)
    # Several records together may be long although each is short.
    is_driven = setup.engine_task.has_inputs and len(setup.record_setups) == 1
    is_long = is_driven and setup.measurements.size > opt.long_record_rows
    for objective in build_noise_continuation(setup) if initial_point is None and not is_read else ():
        initial_point = _refine(objective, multistart(setup, objective, initial_point))[0].x
    if is_read:
        return _search_from_subsamples(setup, (most_active_segment, decimate_record), opt.disk_subsample_rows)
    if initial_point is None and is_long:
        return _search_from_subsamples(setup, (most_active_segment, decimate_record), opt.subsample_rows)
    if initial_point is None and (rows := _informative_rows(setup)):
        return _search_from_subsamples(setup, (most_active_segment,), rows)
    return multistart(setup, setup.objective, initial_point, tolerance)


def build_noise_continuation(setup: FitSetup) -> list[Objective]:
    """Return objectives with more noise than is known, largest first, for continuation to very small known noise.

    If the known noise is very small, the log evidence falls by millions next to the optimum, and far from it the
    gradient only points across narrow ridges. With more noise the ridges are wide and lead to the same optimum.
    """
    scales, names = setup.prior.noise.scales, setup.prior.noise.observables
    if setup.measurements.has_only_statistics or not setup.layout.free_parameters:
        return []
    statistics = setup.measurements.observable_statistics
    if 2 * sum(each.n_unknown_noise for each in statistics) > sum(each.count for each in statistics):
        return []  # most noise is estimated, so the median below is one
    parts = setup.record_setups
    kept = [with_empty_series(part.measurements, names) for part in parts.values()]
    pairs = [pair for own in kept for pair in zip(own.series, scales, strict=True)]
    shares = np.concatenate([item.std / scale for item, scale in pairs])
    shares = np.where(np.isnan(shares), 1.0, np.where(shares > 0.0, shares, EXACT_NOISE_RATIO))
    least = float(np.median(shares))
    found = []
    is_small = least < options.SEARCH.small_noise_fraction
    for share in [s for s in options.SEARCH.continuation_noise if is_small and s > 3.0 * least]:
        pairs_by_name = zip(parts.items(), kept, strict=True)
        engines = {name: _noisier_engine(part, own, share) for (name, part), own in pairs_by_name}
        engine = combine_engines(engines, setup.measurements)
        found.append(Objective(engine, setup.layout, dict(setup.system.parameters)))
    return found


def _noisier_engine(setup: FitSetup, measurements: Measurements, noise_fraction: float) -> Engine:
    """Return the engine of a record with known noise of at least a fraction of the scale of its observable."""
    series = [
        replace(item, std=np.where(item.has_unknown_noise, np.nan, np.maximum(item.std, noise_fraction * scale)))
        for item, scale in zip(measurements.series, setup.prior.noise.scales, strict=True)
    ]
    softer, case = replace(measurements, series=series), replace(setup.engine_task, has_exact_values=False)
    choice = setup.engine_choice
    return FallbackEngine(choice.factory.create(setup.prior, softer, case), choice, softer, case)


def _refine(objective: Objective, optimum: Optimum, information: Array | None = None) -> tuple[Optimum, Array]:
    """Return a refined optimum, and the information there.

    Other optima with about the same objective are refined, too, as they may turn out to be better.

    Shapes: information (n, n), before the refinement, if it is known.
    """
    opt, n_rows = options.SEARCH, objective.engine.size
    others = optimum.other_optima if objective.layout.free_parameters and n_rows < opt.max_cheap_rows else ()
    with track_progress("fitting, last steps"):
        report_best_value(objective, objective.name, optimum.value)
        information = observed_information(objective, optimum.x) if information is None else information
        found, curvature = refine_newton(objective, optimum, information)
        for value, x in others:
            gap = optimum.value - value
            if gap > objective.engine.search_limits.evidence_tolerance or _leads_to(objective, x, found, curvature):
                continue
            rest = ((optimum.value, optimum.x), *(each for each in others if each[1] is not x))
            start = replace(optimum, x=x, value=value, at_bound=np.zeros_like(optimum.at_bound), other_optima=rest)
            second, own = refine_newton(objective, start, observed_information(objective, x))
            # The same optimum up to rounding errors is not an alternative.
            if second.value > found.value + opt.full_record_tolerance:
                found, curvature = second, own
    return found, curvature


def _leads_to(objective: Objective, x: Array, optimum: Optimum, information: Array) -> bool:
    """Return whether one step of Newton's method leads from a point to an optimum, so that both are the same."""
    evidence, slope = objective.evaluate(x)
    try:
        step = np.linalg.solve(information, slope)
    except np.linalg.LinAlgError:
        return False
    least, miss = options.SEARCH.same_optimum_tolerance, x + step - optimum.x
    is_there = 0.0 <= float(miss @ information @ miss) < least
    return is_there and abs(evidence + 0.5 * float(slope @ step) - optimum.value) < least and not optimum.at_bound.any()


def _informative_rows(setup: FitSetup) -> int:
    """Return how many rows are about as informative as all rows if free functions vary very fast; zero otherwise."""
    opt = options.SEARCH
    kept, is_alone = setup.measurements, len(setup.record_setups) == 1 and not setup.engine_task.has_inputs
    if not is_alone or kept.has_only_statistics or not (setup.layout.free_parameters and setup.layout.n_processes):
        return 0
    rows = max(len(item.times) for item in kept.series)
    share = estimate_correlation_time(kept.series) / setup.prior.units.time_scale if rows > opt.min_dense_rows else 1.0
    return (
        max(opt.min_piece_rows, int(opt.piece_correlation_times * share * rows)) if share < opt.fast_lengthscale else 0
    )


def _fit_disk_subsample(setup: FitSetup) -> SubsampleOptimum | None:
    """Return the fit to a subsample of rows on disk; None if it fails or does not need all disturbances."""
    short = most_active_segment(setup.measurements, options.SEARCH.disk_subsample_rows)
    own = _build_subsample_setup(setup, setup.settings, short)
    try:
        found = None if own is None else maximize_objective(own)
    except (AccuracyError, FitError):
        return None
    if own is None or found is None or found[0].at_bound[own.layout.slices.disturbance_deviations].any():
        return None
    optimum, curvature, gains = found
    x = setup.layout.pack(own.layout.unpack(optimum.x))
    return x, setup.measurements.size / short.size * curvature, gains


def _build_subsample_setup(setup: FitSetup, settings: FitSettings, subsample: Measurements) -> FitSetup | None:
    """Return the setup of a subsample of a record, in the same units; None if an observable does not occur in it.

    Modes and the response to inputs begin where the subsample begins.
    """
    if subsample.names != setup.measurements.names:
        return None
    units = replace(setup.prior.units, start=subsample.window[0])
    return build_setup(setup.system, settings, subsample, time_units=units, scales=setup.scaling["scales"])


def _search_from_subsamples(
    setup: FitSetup, subsamplers: Sequence[Callable[[Measurements, int], Measurements]], max_rows: int
) -> Optimum:
    """Return an optimum for a long record, continued from the best optimum of subsamples drawn in several ways."""
    objective = setup.objective
    arguments, found = setup.settings, list[tuple[float, Array, Array]]()
    choice = setup.engine_choice
    if choice.is_automatic and not setup.engine_task.has_inputs and not choice.factory.has_states:
        # Fourier features cover the whole window, however short a segment is.
        arguments = replace(arguments, engine="dense")
    for shorten in subsamplers:
        short = shorten(setup.measurements, max_rows)
        try:
            own = _build_subsample_setup(setup, arguments, short)
            if own is None:
                continue
            end = multistart(own, own.objective)
        except FitError:
            continue
        x = setup.layout.pack(own.layout.unpack(end.x))
        curvature = setup.measurements.size / short.size * observed_information(own.objective, end.x)
        found.append((objective.value(x), x, curvature))
        if found[-1][0] / setup.measurements.size > end.value / short.size - options.SEARCH.subsample_loss_per_row:
            # The optimum of the subsample describes the full record equally well: no slower dynamics are missed.
            break
    value, x, curvature = max(found, key=lambda item: item[0], default=(-np.inf, np.zeros(0), np.zeros((0, 0))))
    return _continue_from_subsample(objective, x, curvature) if np.isfinite(value) else multistart(setup, objective)


def drop_disturbances(setup: FitSetup, names: Iterable[str]) -> FitSetup:
    """Return the setup of the same fit without some disturbances, in the same units."""
    disturbances, dropped = setup.observable_compiler.disturbances, set(names)
    left = {name: kind for name, kind in disturbances.items() if name not in dropped}
    system = setup.system.given([name for name in disturbances if name in dropped], are_all=False)
    settings = replace(setup.settings, disturbances=left or None, engine=setup.settings.engine if left else "auto")
    return build_setup(system, settings, setup.measurements, **setup.scaling)


def maximize_with_disturbances(
    setup: FitSetup, initial_point: Array | None, subsample: SubsampleOptimum | None = None
) -> tuple[Optimum, dict[str, float]]:
    """Return the best optimum of a fit with disturbances, and the best objective without each of them, by name."""
    opt = options.SEARCH
    objective, layout = setup.objective, setup.layout
    bare = drop_disturbances(setup, list(setup.observable_compiler.disturbances))
    first = None
    found: Optimum | None
    if subsample is not None:
        found = _continue_from_subsample(objective, *subsample[:2])
    elif initial_point is None:
        try:
            first = _search_without_disturbances(bare, tolerance=opt.disturbance_tolerance)
        except (AccuracyError, FitError):
            # Data with very little noise may have no finite evidence without disturbances.
            first = None
        origins, drawn = [] if first is None else [bare.layout.unpack(first.x)], list[Array]()
        # Evaluations on rows on disk are slow: only the optimum without disturbances is used.
        if first is not None and setup.engine_task.has_inputs and not setup.engine_task.on_disk:
            drawn = list(_draw_fast_starts(setup, origins[0].theta))
        elif first is None or not setup.engine_task.on_disk:
            origins += [bare.layout.unpack(x) for x in rank_starts(bare)]
        found = multistart_disturbances(objective, origins, setup.noise_estimate, drawn)
        if found is None:
            raise FitError("no start gives a finite evidence; give start= values near the truth, or check the units")
        found = improve_delays(setup, found)[0]
    else:
        found = maximize_lbfgs(objective, initial_point)
    # A disturbance next to zero would stay there, but may be needed when another one is dropped.
    hyper = layout.unpack(found.x)
    smallest = initialize_disturbances(objective.engine, layout, hyper, opt.disturbance_shares[-1])
    sizes = np.maximum(hyper.disturbance_amplitudes, smallest.disturbance_amplitudes)
    active = replace(hyper, disturbance_amplitudes=sizes)
    found, without = zero_inactive_disturbances(objective, found), dict[str, float]()
    for name in setup.observable_compiler.disturbances:
        gain = subsample[2].get(name, 0.0) if subsample is not None else 0.0
        if gain > opt.certain_gain:
            # A disturbance that a subsample needs is needed for the full record, too: it is not refitted without it.
            without[name] = found.value - gain
            continue
        nested, optimum = bare, first
        if optimum is None or len(setup.observable_compiler.disturbances) > 1:
            nested = drop_disturbances(setup, [name])
            start = nested.layout.pack(_drop_disturbance(setup.prior, active, name))
            # Evaluations on rows on disk are slow, and with so many rows a tenth of a nat is negligible.
            least = opt.dropped_disturbance_disk_tolerance if setup.engine_task.on_disk else opt.disturbance_tolerance
            optimum = maximize_lbfgs(nested.objective, start, tolerance=least, trusted=True)
        without[name] = optimum.value
        if optimum.value > found.value - opt.min_variance_gain:
            # A model with a disturbance contains the one without: its optimum cannot be worse.
            x = layout.pack(_insert_disturbance(setup.prior, nested.layout.unpack(optimum.x), active, name))
            found = zero_inactive_disturbances(objective, replace(found, x=x, value=objective.value(x)))
    return found, without


def improve_delays(setup: FitSetup, optimum: Optimum) -> tuple[Optimum, Array | None]:
    """Return an optimum, or a better one at other delays, including zero, and its information if it was computed.

    At a wrong delay the best response to an input that changes all the time is none, and the gradient does not lead
    to the right delay. At the right delay, a scoring step of all other parameters gains much.
    """
    parameters, best = find_delay_parameters(setup.system, setup.layout), optimum
    if setup.measurements.has_only_statistics or setup.engine_task.on_disk or not parameters:
        return best, None
    information: Array | None = None
    grid = build_delay_grid(np.concatenate([part.series[0].times for part in setup.measurements.records.values()]))
    for number in parameters if len(grid) else ():
        reached = -np.inf
        while best.value > reached + options.SEARCH.disturbance_agreement:
            reached, now = best.value, float(setup.layout.unpack(best.x).theta[number])
            # The grid begins at half a sampling interval. Its multiples are kinks, with optima on both sides.
            mirrored = 4.0 * grid[0] * np.rint(now / (2.0 * grid[0])) - now
            near = [options.SEARCH.zero_delay_share * grid[0], mirrored, now - grid[0], now + grid[0]]
            # Without disturbances, the whole grid has been screened by the output-error method.
            delays = [*near, *grid] if setup.layout.n_disturbances else near
            information = observed_information(setup.objective, best.x) if information is None else information
            found = _improve_delay(setup.objective, best, information, number, delays)
            best, information = found, information if found is best else None
    return best, information


def _improve_delay(
    objective: Objective, optimum: Optimum, information: Array, number: int, delays: Sequence[float]
) -> Optimum:
    """Return an optimum, or a better one from the most promising of some values of a delay, the parameter `number`.

    Shapes: information (n, n), at the optimum.
    """
    opt, layout, best = options.SEARCH, objective.layout, optimum
    place, transform = layout.free_parameters.index(number), layout.transforms[number]
    others, chart = np.arange(layout.size) != place, NewtonIteration(objective, best, linear=True)
    curvature = chart.information_from_search(information, chart.y, chart.gradient)
    finite = np.nan_to_num(curvature[np.ix_(others, others)], posinf=0.0, neginf=0.0)
    axes = whitening_axes(finite, opt.preconditioner_floor)[0]
    steps = list[tuple[list[tuple[float, Array]], Array, Array]]()

    def evaluate_step(y: Array, step: Array, share: float) -> tuple[float, Array]:
        x = chart.point(np.clip(y + share * step, *chart.bounds))
        return objective.value(x), x

    for delay in (each for each in delays if transform.low < each < transform.high):
        y = np.zeros(layout.size)
        y[place] = (delay - chart.values[place]) / chart.units[place]
        value, slope = chart.evaluate(np.clip(y, *chart.bounds))
        step = np.zeros(layout.size)
        step[others] = axes @ (axes.T @ slope[others])
        # Far from the optimum full steps are too long, and their gain differs from the prediction of the score test.
        steps.append(([(value, chart.point(np.clip(y, *chart.bounds))), evaluate_step(y, step, 0.5)], y, step))
    steps.sort(key=lambda item: -max(value for value, _ in item[0]))
    for tried, y, step in steps[: opt.n_disturbance_starts]:
        tried += [evaluate_step(y, step, share) for share in (1.0, 0.25, 0.1)]
        value, x = max(tried, key=lambda pair: pair[0])
        if value > best.value:
            found = maximize_lbfgs(objective, x, tolerance=opt.disturbance_tolerance, trusted=True)
            best = found if found.value > best.value else best
    return best


def _continue_from_subsample(objective: Objective, x: Array, information: Array) -> Optimum:
    """Return the optimum of a full record from that of a subsample.

    The optimum of the full record is near, and its information larger in proportion to the number of rows.

    Shapes: x (n,), information (n, n).
    """
    if np.isfinite(information).all():
        near = maximize_lbfgs_preconditioned(objective, x, information, options.SEARCH.full_record_tolerance)
        if near.converged:
            return near
        x = near.x
    return maximize_lbfgs(objective, x, trusted=True)


def _drop_disturbance(prior: Prior, hyper: Hyperparameters, name: str) -> Hyperparameters:
    """Return hyperparameters without those of a disturbance."""
    own = require_disturbances(prior.observables.disturbances)
    number, lengths = own.names.index(name), hyper.disturbance_lengthscales
    if number in own.coloured_index:
        lengths = np.delete(lengths, own.coloured_index.index(number))
    deviations = np.delete(hyper.disturbance_amplitudes, number)
    return replace(hyper, disturbance_lengthscales=lengths, disturbance_amplitudes=deviations)


def _insert_disturbance(prior: Prior, hyper: Hyperparameters, former: Hyperparameters, name: str) -> Hyperparameters:
    """Return hyperparameters with one more disturbance, of negligible amplitude and with its former lengthscale."""
    own = require_disturbances(prior.observables.disturbances)
    number, lengths = own.names.index(name), hyper.disturbance_lengthscales
    if number in own.coloured_index:
        place = own.coloured_index.index(number)
        lengths = np.insert(lengths, place, former.disturbance_lengthscales[place])
    size = options.SEARCH.zero_disturbance_share * former.disturbance_amplitudes[number]
    deviations = np.insert(hyper.disturbance_amplitudes, number, size)
    return replace(hyper, disturbance_lengthscales=lengths, disturbance_amplitudes=deviations)


def multistart(
    setup: FitSetup, objective: Objective, initial_point: Array | None = None, tolerance: float | None = None
) -> Optimum:
    """Return the best optimum of an objective over the data of a setup, from all starts or from a given point.

    The search of the output-error method ends if a step gains less than the tolerance.
    """
    opt, layout = options.SEARCH, objective.layout
    if layout.size == 0:
        return _evaluate_fixed(objective)
    fine = opt.fine_tolerance * objective.engine.search_limits.evidence_tolerance if tolerance is None else tolerance
    guesses, generator = setup.collect_guesses()
    if first := setup.simulated_records:
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
        with track_progress(f"fitting, {len(starts)} starts in parallel"):
            best = _best_optimum(list(Parallel(n_jobs=n_jobs)(tasks)))
    return search_other_lengthscales(objective, best)


def rank_starts(setup: FitSetup) -> list[Array]:
    """Return the most promising starts of a setup, best first, as vectors of the layout, without a search."""
    if setup.layout.size == 0:
        return []
    return [start.x for start in _rank_guesses(setup, setup.objective, *setup.collect_guesses())]


def _rank_guesses(
    setup: FitSetup, objective: Objective, guesses: Sequence[StartPoint], generator: np.random.Generator
) -> list[StartPoint]:
    """Return the most promising starts at some guesses, best first."""
    series = [item for part in setup.measurements.records.values() for item in part.decimated_series()]
    return build_start_points(objective, guesses, series, setup.settings.restarts, generator, setup.noise_estimate)


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
            # After the first start, a coarse search is enough to recognise the same optimum.
            best, most = _best_optimum(optima), opt.exploring_max_iterations
            end = search(start.x, tolerance=coarse, max_iterations=most, known_optimum=best)
            optima.append(search(end.x, tolerance=fine) if end.value > best.value else end)
            best = _best_optimum(optima)
            met = sum(each.value > best.value - max(agree, opt.search_agreement) for each in optima)
            if met >= 2 and len(set(families[: number + 1])) >= min(2, len(set(families))):
                break
    return _best_optimum(optima)


def search_other_lengthscales(objective: Objective, optimum: Optimum) -> Optimum:
    """Return an optimum, or a better one at another lengthscale."""
    opt, agree = options.SEARCH, objective.engine.search_limits.evidence_tolerance
    coarse, fine = opt.coarse_tolerance * agree, opt.fine_tolerance * agree
    explore = partial(maximize_lbfgs, objective, tolerance=coarse, max_iterations=opt.exploring_max_iterations)
    best, reached = optimum, -np.inf
    while best.value > reached:
        reached = best.value
        for x in scan_lengthscales(objective, best):
            found = explore(x, known_optimum=best)
            if found.value > best.value + coarse:
                best = _best_optimum([best, maximize_lbfgs(objective, found.x, tolerance=fine)])
    return best


def _best_optimum(optima: list[Optimum]) -> Optimum:
    """Return the best optimum, together with other optima of about the same objective."""
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


def _draw_fast_starts(setup: FitSetup, optimum_theta: Array) -> Iterator[Array]:
    """Yield random starts of a driven system with small disturbances, each farther from the expected magnitudes.

    Time constants are shorter than the data suggest: such searches find the best optimum far more often than those
    that start from slow states, one of which may become decoupled from all others. Delays are those of an optimum.

    Shapes: optimum_theta (p,).
    """
    opt, kept, layout, engine = options.SEARCH, setup.measurements, setup.layout, setup.engine
    gaps = time_gaps([item.times for part in kept.records.values() for item in part.series])
    paces = np.log([np.median(gaps) if len(gaps) else np.nan, median_correlation_time(kept.records.values())])
    (guesses, generator), noise = setup.collect_guesses(), setup.noise_estimate
    if not np.isfinite(paces).all() or noise is None:
        return
    known = np.where(np.isnan(layout.fixed_values), guesses[-1].theta, layout.fixed_values)
    delays = find_delay_parameters(setup.system, layout)
    known[delays] = optimum_theta[delays]
    statistics = [*kept.observable_statistics, *kept.input_statistics]
    for attempt in range(opt.n_random_disturbance_starts if np.isnan(known).any() else 0):
        pace = float(np.exp(paces[0] + generator.uniform(*opt.random_time_constants) * (paces[1] - paces[0])))
        sizes = solve_balance_equations(setup.system, statistics, setup.prior.units.time_scale, pace)
        magnitudes = np.array([sizes[name] for name in layout.names])
        drawn = replace(layout, transforms=build_transforms(layout.names, setup.system.parameters, magnitudes)[1])
        theta, reach = known.copy(), (attempt + 1) * opt.random_start_distance
        missing = np.flatnonzero(np.isnan(theta)).tolist()
        theta[missing] = drawn.draw_starts(missing, attempt + 2, generator, reach)
        with np.errstate(all="ignore"):
            targets = VarianceTargets.evaluate_at(engine, theta)
            hyper = match_variances(engine, layout, targets, opt.start_lengthscales[-1], noise[: layout.n_noise_levels])
            if hyper is not None:
                x = layout.pack(initialize_disturbances(engine, layout, hyper, opt.random_disturbance_share))
                if np.isfinite(x).all() and np.isfinite(setup.objective.value(x)):
                    yield x


def multistart_disturbances(
    objective: Objective,
    origins: Sequence[Hyperparameters],
    noise_estimate: Array | None = None,
    random_starts: Sequence[Array] = (),
) -> Optimum | None:
    """Return the best optimum of an objective with disturbances; None if no start has a finite objective.

    Random starts are searched after the best of the others, until two optima agree.
    """
    opt, ends = options.SEARCH, list[Optimum]()
    search = partial(
        maximize_lbfgs, objective, tolerance=opt.disturbance_tolerance, agreement=opt.disturbance_agreement
    )
    with track_progress("fitting, sizes of disturbances"):
        ranked = rank_disturbance_starts(objective, origins, noise_estimate)
    starts = [(x, True) for x in (ranked[:1] if random_starts else ranked)] + [(x, False) for x in random_starts]
    with track_progress("fitting with disturbances", len(starts)) as advance:
        for number, (x, trusted) in enumerate(starts):
            advance(min(number, 1), f"start {number + 1} of {len(starts)}")
            best, most = max(ends, key=lambda end: end.value, default=None), opt.disturbance_max_iterations
            ends.append(search(x, max_iterations=most, trusted=trusted, known_optimum=best))
            first, second = sorted([-np.inf, *(end.value for end in ends)])[-1:-3:-1]
            if first - second < opt.disturbance_agreement:
                break
    if not ends:
        return None
    best = _best_optimum(ends)
    return best if best.converged else replace(search(best.x, trusted=True), other_optima=best.other_optima)
