"""Output-error method for systems in which known inputs and initial states determine all measured channels.

Parameters are drawn around their expected magnitudes, delays from a grid. The best vectors on a thinned record are
refined by the Levenberg-Marquardt method with variable projection, which solves for initial states; the results are
starts of a preconditioned search of the objective.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

import numpy as np

from lodekit.data.observations import TimeSeries
from lodekit.fitting import search_options as options
from lodekit.fitting.lbfgs import Optimum, maximize_lbfgs_preconditioned
from lodekit.fitting.objective import Objective
from lodekit.fitting.starts.candidates import StartPoint
from lodekit.fitting.starts.variable_projection import ProjectedFit, VariableProjection, union_times
from lodekit.fitting.starts.weak_form import build_delay_grid, find_delay_parameters
from lodekit.prior.prior import Hyperparameters, Prior
from lodekit.support.arguments import Array
from lodekit.support.progress import track_progress
from lodekit.system.system import System


def multistart_output_error(
    system: System,
    objective: Objective,
    priors: Sequence[Prior],
    records: Sequence[Sequence[TimeSeries]],
    guesses: Sequence[StartPoint],
    generator: np.random.Generator,
    tolerance: float,
    initial_theta: Array | None = None,
) -> Optimum | None:
    """Return the best optimum of the objective; None if no simulation is finite.

    Shapes: initial_theta (p,).
    """
    opt, layout = options.SEARCH, objective.layout
    whole = VariableProjection.from_records(priors, layout, records, opt.simulation_rows)
    thin = VariableProjection.from_records(priors, layout, records, opt.screening_rows)
    lags = find_delay_parameters(system, layout)
    # A delay may be shorter than the sampling interval of a thinned record, so all times are used.
    grid = build_delay_grid(max(map(union_times, records), key=np.ptp)) if lags else np.zeros(0)
    delays = {n: np.roll(grid, -k * opt.delay_grid_offset) for k, n in enumerate(lags) if len(grid)}
    given = [guess.theta for guess in guesses if guess.family == "given"]
    if initial_theta is not None:
        ends = _continue_from_previous(thin, whole, initial_theta, guesses, delays, generator)
    elif given:
        ends = [end for theta in given if (end := _descend(whole, whole.from_parameters(theta))) is not None]
    else:
        ends = _screen_and_descend(thin, whole, _screen_starts(thin, guesses, delays, generator))
    return _maximize_from_projection(objective, whole, ends[0], tolerance) if ends else None


def _descend(whole: VariableProjection, z: Array, target_deviance: float = -np.inf) -> ProjectedFit | None:
    """Return the result of Levenberg-Marquardt steps on all rows; None if the start is not finite."""
    opt = options.SEARCH
    return whole.levenberg_marquardt(z, opt.simulation_max_steps, opt.simulation_tolerance, target_deviance)


def _continue_from_previous(
    thin: VariableProjection,
    whole: VariableProjection,
    initial_theta: Array,
    guesses: Sequence[StartPoint],
    delays: Mapping[int, Array],
    generator: np.random.Generator,
) -> list[ProjectedFit]:
    """Return the fit continued from an earlier one, and fits from other starts if one starts out better; best first."""
    end = _descend(whole, whole.from_parameters(initial_theta))
    here = None if end is None else thin.evaluate(end.z, end.noise_std, with_jacobian=False)
    starts = _screen_starts(thin, guesses, delays, generator)
    best = thin.evaluate(starts[0], None if end is None else end.noise_std, with_jacobian=False) if starts else None
    if end is not None and (best is None or (here is not None and here.deviance <= best.deviance)):
        return [end]
    others = _screen_and_descend(thin, whole, starts)
    return sorted([*([] if end is None else [end]), *others], key=lambda item: item.deviance)


def _screen_and_descend(
    thin: VariableProjection, whole: VariableProjection, starts: Sequence[Array]
) -> list[ProjectedFit]:
    """Return the fits reached from the first of some starting points, best first."""
    opt = options.SEARCH
    first, ends = list[ProjectedFit](), list[ProjectedFit]()
    with track_progress("fitting, simulations"):
        for z in starts[: opt.n_screened_followed]:
            end = thin.levenberg_marquardt(z, opt.screening_max_steps, opt.screening_tolerance)
            first = sorted([*first, *([] if end is None else [end])], key=lambda end: end.deviance)
            agree = len(first) > 1 and first[1].deviance < first[0].deviance + opt.screening_tolerance
            if agree and len(first) > opt.n_simulation_finalists:
                break
        for start in first[: opt.n_simulation_finalists]:
            # A search that reaches the deviance of another one has found the same optimum.
            enough = min((end.deviance + opt.simulation_agreement for end in ends), default=-np.inf)
            end = _descend(whole, start.z, enough)
            ends += [] if end is None else [end]
    return sorted(ends, key=lambda end: end.deviance)


def _screen_starts(
    thin: VariableProjection, guesses: Sequence[StartPoint], delays: Mapping[int, Array], generator: np.random.Generator
) -> list[Array]:
    """Return coordinates of starting points, the most promising first; the values of `delays` are tried in turn.

    A fit with a long delay and a vanishing lag can hide the optimum with a short delay. So the start with the shortest
    delays, near the model without delays, is the first one.
    """
    opt, layout = options.SEARCH, thin.layout
    count = min(opt.n_screened_per_parameter * (1 + len(layout.free_parameters)), opt.max_screened)
    blind = next((guess.theta for guess in guesses if guess.family == "blind"), np.full(len(layout.names), np.nan))
    drawn = [*(guess.theta for guess in guesses if guess.family != "blind"), *[blind] * count]
    found = []
    for attempt, theta in enumerate(drawn):
        filled = np.where(np.isnan(layout.fixed_values), theta, layout.fixed_values)
        for n in (n for n in delays if np.isnan(filled[n])):
            filled[n] = delays[n][attempt % len(delays[n])]
        # Unbounded parameters are drawn at random from the third attempt on, others from the second.
        gaps = np.flatnonzero(np.isnan(filled)).tolist()
        filled[gaps] = layout.draw_starts(gaps, attempt, generator)
        if (end := thin.evaluate(thin.from_parameters(filled), with_jacobian=False)) is not None:
            found.append(end)
    found = sorted(found, key=lambda end: end.deviance)
    if thin.is_unbounded.any():
        # Growing modes can fit the beginning of a record and lead away from stable ones: both kinds alternate.
        grows = [thin.has_growing_mode(end.z) for end in found]
        kinds = ([end for end, own in zip(found, grows, strict=True) if own is kind] for kind in (False, True))
        found = [end for pair in zip_longest(*kinds) for end in pair if end is not None]
    if delays and found:
        found.insert(0, min(found, key=lambda end: float(thin.to_parameters(end.z)[list(delays)].sum())))
    return [end.z for end in found]


def _maximize_from_projection(
    objective: Objective, whole: VariableProjection, projected: ProjectedFit, tolerance: float
) -> Optimum | None:
    """Return the optimum searched from a projected fit, preconditioned by its Jacobian; None if that is not finite."""
    prior, layout = objective.engine.prior, objective.layout
    ends = np.cumsum([group.size for group in prior.groups])[:-1]
    pieces = np.split(projected.mode_amplitudes, ends, axis=1) if prior.groups else []
    modes = np.array([max(float(np.sqrt(np.mean(piece**2))), 1e-6) for piece in pieces])
    levels, groups = projected.noise_std * prior.units.scales, np.array(prior.noise.level_indices)
    noise = np.array([float(np.sqrt(np.mean(levels[groups == g] ** 2))) for g in range(layout.n_noise_levels)])
    theta = whole.to_parameters(projected.z)
    hyper = Hyperparameters(theta, np.zeros(0), np.zeros(0), layout.resolve_mode_std(modes, theta), noise)
    x0 = layout.pack(hyper)
    if not np.isfinite(objective.value(x0)):
        return None
    blocks, curvature = layout.slices, np.zeros(layout.size)
    curvature[blocks.mode_deviations] = options.SEARCH.mode_std_curvature
    counts = whole.counts
    curvature[blocks.noise] = [2.0 * max(int(counts[groups == g].sum()), 1) for g in range(layout.n_noise_levels)]
    H = np.diag(curvature)
    slopes = np.array([layout.transforms[n].derivative(float(x0[i])) for i, n in enumerate(layout.free_parameters)])
    J = projected.jacobian * (slopes / whole.derivatives(projected.z))
    # The information is scaled up to the number of measurements, as the record is thinned.
    H[blocks.theta, blocks.theta] = J.T @ J * max(objective.engine.size / len(whole.values), 1.0)
    return maximize_lbfgs_preconditioned(objective, x0, H, tolerance)
