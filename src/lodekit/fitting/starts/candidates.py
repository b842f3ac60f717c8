"""Starting points: guesses of the parameters, and hyperparameters that match the variance of the data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from lodekit.data.inputs import InputSignal
from lodekit.data.observations import TimeSeries
from lodekit.data.records import Measurements
from lodekit.fitting import search_options as options
from lodekit.fitting.objective import Objective
from lodekit.fitting.parameter_vector import ParameterLayout
from lodekit.fitting.starts.input_output import derive_input_output_equations
from lodekit.fitting.starts.undriven import fit_gradient_matching, fit_oscillations
from lodekit.fitting.starts.weak_form import fit_weak_form, scan_delays
from lodekit.inference.engine import Engine
from lodekit.inference.kalman.state_space import unit_disturbance_variance
from lodekit.prior.compile import Coefficients
from lodekit.prior.covariance import free_function_variance
from lodekit.prior.kernels import CHANNEL_KERNEL
from lodekit.prior.prior import Hyperparameters
from lodekit.support.arguments import Array
from lodekit.system.system import System


@dataclass(frozen=True, eq=False)
class StartPoint:
    """A guess of the parameters and, after ranking, a starting point of the search.

    family: The method of the guess: ``"given"``, ``"weak"``, ``"smoothed"``, ``"decay"`` or ``"blind"``.
    theta: Guessed values of the parameters, NaN if there is no guess; (p,).
    value: The log evidence at the starting point.
    x: The starting point, a vector of the layout; (n,).
    """

    family: str
    theta: Array
    value: float = -np.inf
    x: Array = field(default_factory=lambda: np.zeros(0))

    def is_trusted(self, layout: ParameterLayout) -> bool:
        """Return whether all free parameters were estimated from the data."""
        return self.family != "given" and not np.isnan(self.theta[layout.free_parameters]).any()


def collect_guesses(
    system: System,
    objective: Objective,
    records: Sequence[Sequence[TimeSeries]],
    generator: np.random.Generator,
    inputs: Sequence[Mapping[str, InputSignal]] | None = None,
) -> list[StartPoint]:
    """Return guesses of the parameters; start values of the user take precedence over estimates from the data.

    Unless the user has given all start values, a blind guess is included, as every other method fails for some data.
    """
    layout = objective.layout
    given = [system.parameters[name].start for name in layout.names]
    starts = np.array([np.nan if start is None else start for start in given])
    if not len(layout.free_parameters) or not np.isnan(starts[layout.free_parameters]).any():
        return [StartPoint("given", starts)]
    opt, found = options.SEARCH, list[tuple[str, Array]]()
    records = [[item.at_midpoints() for item in record] for record in records]
    equations = derive_input_output_equations(system, records, layout, inputs)
    if equations and not system.delayed_channels:
        found += [("weak", theta) for theta in fit_weak_form(equations, layout, generator)[: opt.max_guesses]]
    elif equations and layout.n_processes:
        # Without free functions, the output-error method compares many delays anyway.
        found += [("weak", theta) for theta in scan_delays(system, equations, layout, generator)]
    if equations and not any(each.has_inputs for each in equations):
        # Smoothing is unsuitable for inputs with jumps and for the responses to them.
        most = opt.max_gradient_matching_guesses
        found += [("smoothed", theta) for theta in fit_gradient_matching(equations, layout, most, generator)]
    if not any(inputs or ()):
        series, prior = [item for record in records for item in record], objective.engine.prior
        found += [("decay", theta) for theta in fit_oscillations(prior, series, layout, generator)]
    clipped = [(family, _clip_to_expected(layout, theta)) for family, theta in found]
    found += [(family, theta) for family, theta in clipped if theta is not None]
    guesses = [StartPoint(family, np.where(np.isnan(starts), theta, starts)) for family, theta in found]
    return [*guesses, StartPoint("blind", starts)]


def _clip_to_expected(layout: ParameterLayout, theta: Array) -> Array | None:
    """Return parameter values clipped to a log distance from the expected magnitudes; None if nothing changes.

    The evidence may not depend on a parameter that is almost zero, or huge, so a search would not return from there.
    """
    far, clipped = options.SEARCH.max_guess_log_distance, theta.copy()
    for number, transform in layout.transforms.items():
        if np.isnan(theta[number]):
            continue
        if transform.is_unbounded:
            most = transform.expected_magnitude * np.exp(far)
            clipped[number] = np.clip(theta[number], -most, most)
        else:
            x = np.clip(transform.inverse(float(theta[number])) - transform.centre, -far, far)
            clipped[number] = transform.forward(transform.centre + float(x))
    return None if np.allclose(clipped, theta, rtol=1e-6, equal_nan=True) else clipped


def build_start_points(
    objective: Objective,
    guesses: Sequence[StartPoint],
    series: Sequence[TimeSeries],
    restarts: int,
    generator: np.random.Generator,
    noise_estimate: Array | None = None,
) -> list[StartPoint]:
    """Return the most promising starts, best first, except that the second one is of another family than the first.

    All guesses are compared at few hyperparameters; the best one, and the best of another family, at many.
    """
    opt = options.SEARCH
    engine, layout = objective.engine, objective.layout
    units, learned = engine.prior.noise.level_scales, layout.n_noise_levels
    levels = [level * units[:learned] for level in opt.start_noise_fractions]
    if noise_estimate is not None and learned:
        levels.insert(0, np.clip(noise_estimate, opt.min_start_noise_fraction * units, None)[:learned])
    shortest = estimate_correlation_time(series) / engine.prior.units.time_scale
    shortest = max(shortest, 1.01 * engine.search_limits.min_lengthscale)
    short = (shortest,) if shortest < opt.short_lengthscale_ratio * opt.start_lengthscales[0] else ()
    if not layout.n_processes:
        lengthscales, some = opt.start_lengthscales[-1:], opt.start_lengthscales[-1:]
    else:
        lengthscales, some = (*short, *opt.start_lengthscales), (*short, *opt.screening_lengthscales)
    with np.errstate(all="ignore"):
        coarse, best = [(length, False) for length in some], []
        for theta, guess in _complete_guesses(layout, guesses, opt.n_blind_starts, generator):
            if starts := _evaluate_grid(engine, layout, theta, guess, levels[0], coarse):
                best.append(starts)
        best.sort(key=lambda starts: -starts[0].value)
        others = [starts for starts in best if starts[0].family != best[0][0].family]
        found = [start for starts in best for start in starts]
        grid = [pair for pair in product(lengthscales, (False, True)) if pair[1] or pair[0] not in some]
        for starts in (*best[:1], *others[:1]):
            refined = _evaluate_grid(engine, layout, layout.unpack(starts[0].x).theta, starts[0], levels[0], grid)
            found += refined
            promising = max([*starts, *refined], key=lambda start: start.value)
            for noise in levels[1:]:
                hyper = replace(layout.unpack(promising.x), noise_std=noise)
                if np.isfinite(value := engine.value(hyper)):
                    found.append(replace(promising, value=value, x=layout.pack(hyper)))
    return _select_distinct_starts(found, restarts)


def _evaluate_grid(
    engine: Engine,
    layout: ParameterLayout,
    theta: Array,
    guess: StartPoint,
    noise: Array,
    grid: Iterable[tuple[float, bool]],
) -> list[StartPoint]:
    """Return starts at given parameter values, best first, for each lengthscale and rule for matching variances."""
    sizes, starts = VarianceTargets.evaluate_at(engine, theta), []
    for lengthscale, generous in grid:
        hyper = match_variances(engine, layout, sizes, lengthscale, noise, match_largest=generous)
        if hyper is None:
            continue
        x = layout.pack(hyper)
        value = engine.value(hyper) if np.isfinite(x).all() else -np.inf
        if np.isfinite(value):
            starts.append(replace(guess, value=value, x=x))
    return sorted(starts, key=lambda start: -start.value)


def _select_distinct_starts(starts: Sequence[StartPoint], restarts: int) -> list[StartPoint]:
    """Return the best starts that differ from each other, best first; the second is of another family."""
    ranked = sorted(starts, key=lambda start: -start.value)
    chosen = ranked[:1]
    chosen += [start for start in ranked[1:] if start.family != chosen[0].family and _is_distinct(start, chosen)][:1]
    for start in ranked:
        # Starts close to a chosen one lead to the same optimum.
        if len(chosen) < restarts and _is_distinct(start, chosen):
            chosen.append(start)
    return chosen[:restarts]


def _is_distinct(start: StartPoint, others: Sequence[StartPoint]) -> bool:
    """Return whether a start is farther than `start_distance` from all others."""
    return all(np.max(np.abs(start.x - other.x), initial=0.0) > options.SEARCH.start_distance for other in others)


def estimate_correlation_time(series: Sequence[TimeSeries]) -> float:
    """Return the correlation time of the fastest of some series, in the user's time; infinite if unknown.

    This is the lag at which the autocorrelation falls to exp(-1/2): the lengthscale of a squared exponential, and less
    than a sixth of the period of an oscillation.
    """
    opt, shortest = options.SEARCH, np.inf
    for item in series:
        size = max(1, -(-len(item.values) // opt.max_correlated_rows))
        lag, time = _correlation_lag(item.times, item.values, size)
        if size > 1 and lag < opt.min_averaged_lag:
            # The series changes too fast for averaging.
            _, time = _correlation_lag(item.times, item.values, 1)
        shortest = min(shortest, time)
    return shortest


def median_correlation_time(records: Iterable[Measurements]) -> float:
    """Return the median of the correlation times of records, in the user's time; infinite if unknown."""
    return float(np.median([estimate_correlation_time(part.decimated_series()) for part in records]))


def _correlation_lag(times: Array, values: Array, group_size: int) -> tuple[float, float]:
    """Return the lag of correlation exp(-1/2), in groups of rows and in time; infinite if unknown."""
    end, threshold = len(values) // group_size * group_size, float(np.exp(-0.5))
    times, values = (part[:end].reshape(-1, group_size).mean(axis=1) for part in (times, values))
    n = len(values)
    y = values - values.mean() if n else values
    if n < 8 or not float(np.mean(y**2)) > 0:
        return np.inf, np.inf
    spectrum = np.fft.rfft(y, 2 ** (2 * n - 1).bit_length())
    products = np.fft.irfft(np.abs(spectrum) ** 2)[: n // 2] / (n - np.arange(n // 2))
    correlation = products / products[0]
    below = np.flatnonzero(correlation < threshold)
    if not len(below):
        return np.inf, np.inf
    lag = int(below[0])
    is_white = float(np.max(np.abs(correlation[1:]))) < options.SEARCH.white_correlation / math.sqrt(n)
    if lag == 1 and is_white:
        return lag, np.inf
    # Linear interpolation between the last lag above the threshold and the first one below it.
    before, after = (float(np.mean(times[k:] - times[: n - k])) for k in (lag - 1, lag))
    share = (correlation[lag - 1] - threshold) / (correlation[lag - 1] - correlation[lag])
    return lag, before + float(share) * (after - before)


def explain_infeasible_start(objective: Objective, guess_theta: Array, generator: np.random.Generator) -> str:
    """Return why a guess gives no finite log evidence, as a sentence; empty if unknown.

    Shapes: guess_theta (p,).
    """
    engine, layout = objective.engine, objective.layout
    theta, _ = next(_complete_guesses(layout, [StartPoint("blind", guess_theta)], 1, generator))
    with np.errstate(all="ignore"):
        opt, targets = options.SEARCH, VarianceTargets.evaluate_at(engine, theta)
        noise = opt.start_noise_fractions[-1] * engine.prior.noise.level_scales[: layout.n_noise_levels]
        hyper = match_variances(engine, layout, targets, opt.start_lengthscales[-1], noise)
    return "" if hyper is None else engine.explain_failure(hyper)


def _complete_guesses(
    layout: ParameterLayout, guesses: Sequence[StartPoint], n_blind: int, generator: np.random.Generator
) -> Iterator[tuple[Array, StartPoint]]:
    """Yield complete parameter vectors with their guesses; missing values are drawn at random."""
    for guess in guesses:
        known = np.where(np.isnan(layout.fixed_values), guess.theta, layout.fixed_values)
        gaps = [number for number in layout.free_parameters if np.isnan(known[number])]
        for attempt in range(n_blind if gaps and guess.family == "blind" else 1):
            theta = known.copy()
            theta[gaps] = layout.draw_starts(gaps, attempt, generator)
            yield theta, guess


@dataclass(frozen=True)
class VarianceTargets:
    """Mean squares of the data and of the basis functions of modes at given parameter values.

    theta: Values of all parameters; (p,).
    coefficients: Coefficients of the measured observables on free functions and modes, in scaled units.
    data_mean_squares: The mean square of the data of each observable, scaled; (o,).
    mode_mean_squares: The mean square of each basis function of the modes, scaled, over all observables; (r,).
    """

    theta: Array
    coefficients: Coefficients
    data_mean_squares: Array
    mode_mean_squares: Array

    @classmethod
    def evaluate_at(cls, engine: Engine, theta: Array) -> VarianceTargets:
        """Return the variance targets at given parameter values.

        Shapes: theta (p,).
        """
        coefficients = engine.prior.observables.evaluate(theta)
        return cls(theta, coefficients, *engine.mean_squares(coefficients))


def match_variances(
    engine: Engine,
    layout: ParameterLayout,
    targets: VarianceTargets,
    lengthscale: float,
    noise: Array,
    *,
    match_largest: bool = False,
) -> Hyperparameters | None:
    """Return hyperparameters whose prior variances match those of the data; None if `match_largest` changes nothing.

    The standard deviation of a free function matches the ratio of variances averaged over observables, or the largest
    ratio with `match_largest`; if these are about the same, the latter is not a new start.
    """
    prior, free, target = engine.prior, targets.coefficients.free, targets.data_mean_squares
    lengthscales, deviations = np.full(layout.n_processes, lengthscale), np.ones(len(prior.kernels))
    different = False
    for number, latent in enumerate(prior.kernels):
        variance = free_function_variance(latent, free[:, number], lengthscale, 1.0, prior.observables.windows)
        ratio = target[variance > 0] / variance[variance > 0]
        if len(ratio):
            logs = np.log(ratio)
            different |= float(np.ptp(logs)) > np.log(options.SEARCH.variance_ratio)
            deviations[number] = float(np.exp(0.5 * (logs.max() if match_largest else logs.mean())))
    if match_largest and not different:
        return None
    if prior.channels is not None and layout.n_processes:
        channels, variance = prior.channels.evaluate(targets.theta).free, np.zeros(layout.n_processes)
        for number, deviation in enumerate(deviations):
            variance += free_function_variance(CHANNEL_KERNEL, channels[:, number], lengthscale, float(deviation))
        deviations = np.sqrt(np.where(variance > 0, variance, 1.0))
    ends = np.cumsum([group.size for group in prior.groups])[:-1]
    pieces = np.split(targets.mode_mean_squares, ends) if prior.groups else []
    modes = np.array([np.sqrt(float(target.mean()) / max(float(piece.sum()), 1e-300)) for piece in pieces])
    modes = layout.resolve_mode_std(modes, targets.theta)
    hyper = Hyperparameters(targets.theta, lengthscales, deviations, modes, noise)
    return initialize_disturbances(engine, layout, hyper) if layout.n_disturbances else hyper


def initialize_disturbances(
    engine: Engine,
    layout: ParameterLayout,
    hyper: Hyperparameters,
    share: float = options.SEARCH.disturbance_share,
    lengthscale: float = options.SEARCH.disturbance_lengthscale,
) -> Hyperparameters:
    """Return hyperparameters with disturbances whose responses are about `share` times the size of the data."""
    coefficients = engine.prior.observables.evaluate(hyper.theta)
    target, _ = engine.mean_squares(coefficients)
    with np.errstate(all="ignore"):
        powers = unit_disturbance_variance(engine.prior.observables, coefficients, hyper.theta, lengthscale)
        logs = np.log(target) - np.log(powers)
    means = [float(np.mean(row[np.isfinite(row)])) if np.isfinite(row).any() else 0.0 for row in logs]
    deviations = share * np.exp(np.clip(0.5 * np.array(means), -300.0, 300.0))
    lengths = np.full(layout.n_coloured_disturbances, lengthscale)
    return replace(hyper, disturbance_lengthscales=lengths, disturbance_amplitudes=deviations)


def rank_disturbance_starts(
    objective: Objective, origins: Sequence[Hyperparameters], noise_estimate: Array | None
) -> list[Array]:
    """Return the most promising distinct starts, best first.

    Only the best combinations at the first origin are tried at the others.
    """
    opt = options.SEARCH
    engine, layout = objective.engine, objective.layout
    units = engine.prior.noise.level_scales[: layout.n_noise_levels]
    # Noise levels of the fit without disturbances, or those estimated from differences of neighbours.
    levels: list[Array | None] = [None]
    if noise_estimate is not None and layout.n_noise_levels:
        levels.append(np.clip(noise_estimate, opt.min_start_noise_fraction * units, None))
    lengths = opt.disturbance_lengthscales[: None if layout.n_coloured_disturbances else 1]
    ways = list(product(opt.disturbance_shares, lengths, levels))
    found: list[tuple[float, Array]] = []
    for hyper in origins:
        seen = list[tuple[float, int]]()
        for number, (share, length, level) in enumerate(ways):
            with np.errstate(all="ignore"):
                whole = initialize_disturbances(engine, layout, hyper, share, length)
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
